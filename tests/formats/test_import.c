/* SPDX-License-Identifier: Apache-2.0 */
/* Importers and NPY. Images are written here with libpng and libjpeg; resized pixels are Pillow's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "formats/data.h"
#include "formats/file.h"
#include "formats/import.h"
#include "formats/npy.h"
#include "tests/formats/pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static pare_ctx ctx;
static char folder[] = "/tmp/pare_import_XXXXXX";

static const char *in_folder(const char *name)
{
    static char text[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn], "%s/%s", folder, name);
    return text[turn];
}

static void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static void write_gz(const char *path, const void *data, size_t size)
{
    gzFile f = gzopen(path, "wb");
    assert_int_equal(gzwrite(f, data, (unsigned)size), size);
    gzclose(f);
}

static void has_message(const char *words)
{
    if (!strstr(ctx.message, words)) print_error("message: %s\n", ctx.message);
    assert_non_null(strstr(ctx.message, words));
    pare_ctx_clear(&ctx);
}

/* All samples of a file as f32, with labels; returns the count. */
static int64_t load(const char *path, pare_dtype dtype, int rank, void *out, size_t size,
                    int64_t *labels)
{
    pare_data *d = NULL;
    pare_reader *r = NULL;
    pare_batch b;
    pare_data_input in = {"input", dtype, {rank, {-1, -1, -1, -1}, {0}}, NULL};
    int64_t order[64];
    if (pare_data_open(&ctx, &d, path, &in, 1) != PARE_OK) fail_msg("%s", ctx.message);
    int64_t n = pare_data_count(d);
    assert_true(n <= 64);
    pare_data_spread(0, n, n, order);
    assert_int_equal(pare_reader_open(&ctx, &r, d, order, n, (int)n, 2), PARE_OK);
    assert_int_equal(pare_reader_next(r, &b), PARE_OK);
    assert_int_equal(b.count, n);
    memcpy(out, b.input[0], size);
    if (labels) memcpy(labels, b.label, (size_t)n * sizeof *labels);
    pare_reader_close(r);
    pare_data_close(d);
    return n;
}

/* --- IDX --- */

static void test_idx(void **state)
{
    (void)state;
    static const uint8_t x[] = {0, 0, 8, 3,  0,   0,   0,   2,   0, 0, 0, 2, 0, 0,
                                0, 3, 0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6};
    static const uint8_t y[] = {0, 0, 8, 1, 0, 0, 0, 2, 9, 4};
    const float mean = 0.5f, std = 0.25f;
    float out[12];
    int64_t labels[2];
    pare_import_options o = {.mean = &mean, .std = &std, .channels = 1};
    write_gz(in_folder("x.gz"), x, sizeof x);
    write_bytes(in_folder("y"), y, sizeof y);
    assert_int_equal(
        pare_import_idx(&ctx, in_folder("o.h5"), in_folder("x.gz"), in_folder("y"), &o), PARE_OK);
    assert_int_equal(load(in_folder("o.h5"), PARE_f32, 4, out, sizeof out, labels), 2);
    const double want[6] = {-2, -1.2, -0.4, 0.4, 1.2, 2};
    for (int i = 0; i < 6; i++) assert_true(fabs((double)out[i] - want[i]) < 1e-6);
    assert_int_equal(labels[0], 9);
    assert_int_equal(labels[1], 4);
}

static void test_idx_refusals(void **state)
{
    (void)state;
    static const uint8_t x[] = {0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6};
    static const uint8_t y[] = {0, 0, 8, 1, 0, 0, 0, 2, 9, 4};
    unlink(in_folder("o.h5"));
    write_bytes(in_folder("x"), x, sizeof x - 1);
    write_bytes(in_folder("y"), y, sizeof y);
    assert_int_equal(pare_import_idx(&ctx, in_folder("o.h5"), in_folder("x"), NULL, NULL),
                     PARE_INPUT);
    has_message("x: is cut off or damaged: 1 bytes are missing");
    write_bytes(in_folder("x"), x, sizeof x);
    assert_int_equal(pare_import_idx(&ctx, in_folder("o.h5"), in_folder("x"), in_folder("y"), NULL),
                     PARE_INPUT);
    has_message("has 2 labels for the 3 samples");
    write_bytes(in_folder("x"), "plain text", 10);
    assert_int_equal(pare_import_idx(&ctx, in_folder("o.h5"), in_folder("x"), NULL, NULL),
                     PARE_INPUT);
    has_message("is not an IDX file");
    assert_int_equal(pare_import_idx(&ctx, in_folder("o.h5"), in_folder("none"), NULL, NULL),
                     PARE_IO);
    has_message("none: cannot be opened: No such file");
    assert_int_not_equal(access(in_folder("o.h5"), F_OK), 0); /* nothing is left behind */
}

/* --- NPY --- */

static void test_npy_bytes(void **state)
{
    (void)state;
    /* what numpy.save(f, np.array([[1, 2, 3]], '<f4')) writes */
    static const char want[] = "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': "
                               "(1, 3), }";
    const float x[3] = {1, 2, 3};
    pare_shape shape = {.rank = 2, .dim = {1, 3}};
    char file[256] = "";
    assert_int_equal(pare_npy_save(&ctx, in_folder("a.npy"), PARE_f32, &shape, x), PARE_OK);
    FILE *f = fopen(in_folder("a.npy"), "rb");
    assert_int_equal(fread(file, 1, sizeof file, f), 128 + 12);
    fclose(f);
    assert_memory_equal(file, want, sizeof want - 1);
    for (size_t i = sizeof want - 1; i < 127; i++) assert_int_equal(file[i], ' ');
    assert_int_equal(file[127], '\n');
    assert_memory_equal(file + 128, x, sizeof x);
}

static void test_npy_round_trip(void **state)
{
    (void)state;
    const pare_dtype types[] = {PARE_bool, PARE_u8,  PARE_s8,  PARE_u16, PARE_s16, PARE_u32,
                                PARE_s32,  PARE_u64, PARE_s64, PARE_f16, PARE_f32, PARE_f64};
    const int ranks[] = {0, 1, 3};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t k = 0; k < 3; k++) {
            uint8_t data[6 * 8];
            for (size_t i = 0; i < sizeof data; i++)
                data[i] = (uint8_t)(types[t] == PARE_bool ? i % 2 : i);
            pare_shape shape = {.rank = ranks[k], .dim = {k == 1 ? 6 : 1, 2, 3}}, back;
            pare_dtype dtype;
            void *got = NULL;
            assert_int_equal(pare_npy_save(&ctx, in_folder("b.npy"), types[t], &shape, data),
                             PARE_OK);
            assert_int_equal(pare_npy_load(&ctx, in_folder("b.npy"), &dtype, &back, &got), PARE_OK);
            assert_int_equal(dtype, types[t]);
            assert_true(pare_shape_equal(&shape, &back));
            assert_memory_equal(
                got, data, (size_t)pare_shape_count(&shape) * (size_t)pare_type(dtype)->bits / 8);
            pare_free(got);
        }
}

static void npy_text(const char *dict, const void *data, size_t size)
{
    char file[512];
    size_t n = strlen(dict);
    memcpy(file, "\x93NUMPY\1\0", 8);
    file[8] = (char)n;
    file[9] = 0;
    memcpy(file + 10, dict, n);
    memcpy(file + 10 + n, data, size);
    write_bytes(in_folder("c.npy"), file, 10 + n + size);
}

static void test_npy_foreign(void **state)
{
    (void)state;
    pare_dtype dtype;
    pare_shape shape;
    void *data = NULL;
    npy_text("{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }\n", "\1\2\3\4", 4);
    assert_int_equal(pare_npy_load(&ctx, in_folder("c.npy"), &dtype, &shape, &data), PARE_OK);
    assert_int_equal(((int16_t *)data)[0], 0x0102);
    assert_int_equal(((int16_t *)data)[1], 0x0304);
    pare_free(data);
    static const struct {
        const char *dict, *words;
    } bad[] = {{"{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }\n", "Fortran order"},
               {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }\n", "is not bool, "
                                                                               "integer"},
               {"{'descr': '<f4', 'fortran_order': False, 'shape': (9,), }\n", "is cut off"},
               {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n", "shape is damaged"},
               {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,99999999999), }\n",
                "is cut off"},
               {"{'descr': '<f4', 'fortran_order': False, }\n", "without a shape"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        npy_text(bad[i].dict, "\0\0\0\0", 4);
        assert_int_equal(pare_npy_load(&ctx, in_folder("c.npy"), &dtype, &shape, &data),
                         PARE_INPUT);
        has_message(bad[i].words);
    }
}

static void test_import_npy(void **state)
{
    (void)state;
    float x[4 * 6], out[4 * 6];
    int32_t y[4] = {3, 1, 4, 1};
    int64_t labels[4];
    for (int i = 0; i < 24; i++) x[i] = (float)i / 8;
    pare_shape xs = {.rank = 3, .dim = {4, 2, 3}}, ys = {.rank = 1, .dim = {4}};
    assert_int_equal(pare_npy_save(&ctx, in_folder("x.npy"), PARE_f32, &xs, x), PARE_OK);
    assert_int_equal(pare_npy_save(&ctx, in_folder("y.npy"), PARE_s32, &ys, y), PARE_OK);
    assert_int_equal(
        pare_import_npy(&ctx, in_folder("n.h5"), in_folder("x.npy"), in_folder("y.npy"), NULL),
        PARE_OK);
    assert_int_equal(load(in_folder("n.h5"), PARE_f32, 3, out, sizeof out, labels), 4);
    assert_memory_equal(x, out, sizeof x);
    for (int i = 0; i < 4; i++) assert_int_equal(labels[i], y[i]);
    ys.dim[0] = 3;
    assert_int_equal(pare_npy_save(&ctx, in_folder("y.npy"), PARE_s32, &ys, y), PARE_OK);
    assert_int_equal(
        pare_import_npy(&ctx, in_folder("n.h5"), in_folder("x.npy"), in_folder("y.npy"), NULL),
        PARE_INPUT);
    has_message("has 3 labels for the 4 samples");
}

/* --- images --- */

static void test_resize(void **state)
{
    (void)state;
    /* Pillow 13, Image.BILINEAR, of the 11 x 7 pattern: 6 x 4 whole, and row 7 of 23 x 15 */
    static const uint8_t small[72] = {
        50,  140, 152, 109, 187, 58,  174, 135, 104, 126, 83,  171, 64,  150, 136, 120, 146, 57,
        132, 175, 83,  166, 100, 117, 153, 106, 167, 88,  165, 155, 143, 164, 90,  167, 75,  128,
        167, 100, 151, 103, 124, 169, 102, 179, 109, 161, 114, 98,  167, 101, 158, 92,  135, 179,
        67,  147, 160, 117, 160, 72,  184, 112, 113, 132, 93,  180, 80,  158, 142, 127, 152, 74};
    static const uint8_t large[24] = {159, 250, 85,  167, 202, 93,  185, 98, 111, 202, 37,  128,
                                      220, 55,  146, 204, 73,  164, 100, 91, 182, 17,  108, 199};
    pare_image in, out;
    paint(&in, 11, 7);
    assert_int_equal(pare_image_resize(&ctx, &out, &in, 6, 4), PARE_OK);
    for (int i = 0; i < 72; i++) assert_true(abs(out.rgb[i] - small[i]) <= 1);
    pare_free(out.rgb);
    assert_int_equal(pare_image_resize(&ctx, &out, &in, 23, 15), PARE_OK);
    for (int i = 0; i < 24; i++) assert_true(abs(out.rgb[7 * 23 * 3 + i] - large[i]) <= 1);
    pare_free(out.rgb);
    free(in.rgb);
}

static void test_images(void **state)
{
    (void)state;
    pare_image a, b;
    paint(&a, 8, 8);
    paint(&b, 12, 8);
    mkdir(in_folder("set"), 0777);
    mkdir(in_folder("set/zebra"), 0777);
    mkdir(in_folder("set/ant"), 0777);
    write_png(in_folder("set/zebra/1.PNG"), &a, PNG_OF_RGB);
    write_jpeg(in_folder("set/ant/2.jpeg"), &b);
    write_png(in_folder("set/ant/1.png"), &b, PNG_OF_RGB);
    write_bytes(in_folder("set/ant/readme.txt"), "no image", 8);
    pare_import_options o = {.resize = 8, .crop = 4, .threads = 2};
    uint8_t out[3 * 48];
    int64_t labels[3];
    assert_int_equal(pare_import_images(&ctx, in_folder("i.h5"), in_folder("set"), &o), PARE_OK);
    assert_int_equal(load(in_folder("i.h5"), PARE_u8, 4, out, sizeof out, labels), 3);
    assert_int_equal(labels[0], 0); /* ant/1.png, ant/2.jpeg, zebra/1.PNG */
    assert_int_equal(labels[1], 0);
    assert_int_equal(labels[2], 1);
    for (int c = 0; c < 3; c++) /* the shorter side is 8 already: only the centre is cut */
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 4; x++) {
                int at = (c * 4 + y) * 4 + x;
                assert_int_equal(out[at], pixel(x + 4, y + 2, c));
                assert_true(abs(out[48 + at] - pixel(x + 4, y + 2, c)) <= 12); /* JPEG loses */
                assert_int_equal(out[96 + at], pixel(x + 2, y + 2, c));
            }
    o.layout = "nhwc";
    assert_int_equal(pare_import_images(&ctx, in_folder("i.h5"), in_folder("set"), &o), PARE_OK);
    uint8_t turned[3 * 48];
    load(in_folder("i.h5"), PARE_u8, 4, turned, sizeof turned, NULL);
    assert_memory_equal(out, turned, sizeof out); /* the reader gives N, C, H, W again */
    free(a.rgb);
    free(b.rgb);
}

static void decode_file(pare_image *out, const char *path)
{
    pare_map map;
    const pare_picture_options options = {0};
    assert_int_equal(pare_map_open(&ctx, &map, path), PARE_OK);
    assert_int_equal(pare_image_decode(&ctx, out, path, map.data, map.size, &options), PARE_OK);
    pare_map_close(&map);
}

static void test_image_kinds(void **state)
{
    (void)state;
    pare_image in, out;
    paint(&in, 8, 6); /* 144 bytes: enough for the grey and RGBA images below */
    write_png(in_folder("g.png"), &(pare_image){8, 6, in.rgb}, PNG_OF_GRAY);
    decode_file(&out, in_folder("g.png"));
    for (int i = 0; i < 48; i++)
        for (int c = 0; c < 3; c++) assert_int_equal(out.rgb[3 * i + c], in.rgb[i]);
    pare_free(out.rgb);
    write_png(in_folder("a.png"), &(pare_image){6, 6, in.rgb}, PNG_OF_RGBA);
    decode_file(&out, in_folder("a.png"));
    for (int i = 0; i < 36; i++)
        for (int c = 0; c < 3; c++) assert_int_equal(out.rgb[3 * i + c], in.rgb[4 * i + c]);
    pare_free(out.rgb);
    free(in.rgb);
}

/* Every image is broken in turn, and named. */
static void test_broken_images(void **state)
{
    (void)state;
    pare_image a;
    uint8_t file[4096];
    paint(&a, 16, 16);
    pare_import_options o = {.resize = 8, .crop = 8};
    mkdir(in_folder("bad"), 0777);
    mkdir(in_folder("bad/x"), 0777);
    for (int kind = 0; kind < 2; kind++) {
        char name[128];
        strcpy(name, in_folder(kind ? "bad/x/b.jpg" : "bad/x/a.png"));
        if (kind)
            write_jpeg(name, &a);
        else
            write_png(name, &a, PNG_OF_RGB);
        FILE *f = fopen(name, "rb");
        size_t size = fread(file, 1, sizeof file, f);
        fclose(f);
        for (size_t cut = 0; cut < size - (kind ? 2 : 12); cut += 7) {
            write_bytes(name, file, cut);
            pare_status st = pare_import_images(&ctx, in_folder("bad.h5"), in_folder("bad"), &o);
            assert_int_equal(st, PARE_INPUT);
            has_message(kind ? "bad/x/b.jpg: " : "bad/x/a.png: ");
        }
        unlink(name);
    }
    assert_int_equal(pare_import_images(&ctx, in_folder("bad.h5"), in_folder("bad"), &o),
                     PARE_INPUT);
    has_message("has no PNG or JPEG files in its subfolders");
    assert_int_equal(pare_import_images(&ctx, in_folder("bad.h5"), in_folder("gone"), &o), PARE_IO);
    has_message("gone: cannot be listed");
    o.crop = 9;
    assert_int_equal(pare_import_images(&ctx, in_folder("bad.h5"), in_folder("bad"), &o),
                     PARE_USAGE);
    has_message("crop <= resize");
    assert_int_not_equal(access(in_folder("bad.h5"), F_OK), 0);
    free(a.rgb);
}

/* --- pictures in memory --- */

/* How much may be taken, and what was. */
typedef struct allowance {
    size_t most, taken;
} allowance;

static pare_status take(void *user, size_t bytes)
{
    allowance *a = user;
    a->taken += bytes;
    return a->taken <= a->most ? PARE_OK : PARE_FAIL(&ctx, MEMORY, "no more");
}

/* Decodes the file; the pixels go to out, (3, crop, crop). */
static pare_status decode_picture(const char *path, const pare_picture_options *o, uint8_t *out)
{
    pare_map map;
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_map_open(&ctx, &map, path), PARE_OK);
    const pare_status st = pare_picture_decode(&ctx, out, "picture 3", map.data, map.size, o);
    pare_map_close(&map);
    return st;
}

static void test_pictures_have_limits(void **state)
{
    (void)state;
    pare_image a;
    uint8_t out[3 * 64];
    allowance may = {.most = SIZE_MAX};
    pare_picture_options o = {.resize = 8, .crop = 8, .hold = take, .user = &may};
    paint(&a, 32, 16);
    write_png(in_folder("l.png"), &a, PNG_OF_RGB);
    write_jpeg(in_folder("l.jpg"), &a);
    write_jpeg_scans(in_folder("scans.jpg"), &a);
    assert_int_equal(decode_picture(in_folder("l.png"), &o, out), PARE_OK);
    assert_int_equal(may.taken, 3 * (32 * 16 + 16 * 16 + 16 * 8));
    for (int kind = 0; kind < 2; kind++) {
        const char *path = in_folder(kind ? "l.jpg" : "l.png");
        o.pixels = 32 * 16;
        assert_int_equal(decode_picture(path, &o, out), PARE_OK);
        o.pixels--;
        assert_int_equal(decode_picture(path, &o, out), PARE_INPUT);
        has_message(kind ? "picture 3: broken JPEG image: it is 32 x 16 pixels, at most 511"
                         : "picture 3: broken PNG image: it is 32 x 16 pixels, at most 511");
        o.pixels = 0;
        may = (allowance){.most = SIZE_MAX};
        assert_int_equal(decode_picture(path, &o, out), PARE_OK);
        for (size_t most = may.taken; most--;) {
            may = (allowance){.most = most};
            assert_int_equal(decode_picture(path, &o, out), PARE_MEMORY);
            has_message("no more");
        }
        may = (allowance){.most = SIZE_MAX};
    }
    assert_int_equal(decode_picture(in_folder("scans.jpg"), &o, out), PARE_INPUT);
    has_message("it has more than the 100 scans");
    write_bytes(in_folder("l.txt"), "no picture", 10);
    assert_int_equal(decode_picture(in_folder("l.txt"), &o, out), PARE_INPUT);
    has_message("picture 3: is neither PNG nor JPEG");
    free(a.rgb);
    paint(&a, 64, 1);
    write_png(in_folder("thin.png"), &a, PNG_OF_RGB);
    o.pixels = 4000; /* it would be 512 x 8 */
    assert_int_equal(decode_picture(in_folder("thin.png"), &o, out), PARE_INPUT);
    has_message("picture 3: is 64 x 1, too narrow to be resized");
    free(a.rgb);
}

/* --- Fashion-MNIST --- */

static void test_fashion_mnist(void **state)
{
    (void)state;
    if (access("/usr/share/datasets/fashion-mnist", F_OK)) {
        print_message("SKIP: Debian's package dataset-fashion-mnist is not installed\n");
        skip();
    }
    assert_int_equal(pare_data_fashion_mnist(&ctx, in_folder("fm"), NULL, NULL), PARE_OK);
    static const struct {
        const char *file, *source;
        int64_t count;
    } parts[] = {{"fm/train.h5", "train", 60000}, {"fm/test.h5", "t10k", 10000}};
    for (int p = 0; p < 2; p++) {
        pare_data *d = NULL;
        pare_reader *r = NULL;
        pare_batch b;
        pare_data_input in = {"input", PARE_f32, {4, {-1, 1, 28, 28}, {0}}, NULL};
        assert_int_equal(pare_data_open(&ctx, &d, in_folder(parts[p].file), &in, 1), PARE_OK);
        assert_int_equal(pare_data_count(d), parts[p].count);
        int64_t last = parts[p].count - 1;
        assert_int_equal(pare_reader_open(&ctx, &r, d, &last, 1, 1, 1), PARE_OK);
        assert_int_equal(pare_reader_next(r, &b), PARE_OK);
        char name[128];
        uint8_t raw[784], label;
        snprintf(name, sizeof name, "/usr/share/datasets/fashion-mnist/%s-images-idx3-ubyte.gz",
                 parts[p].source);
        gzFile f = gzopen(name, "rb");
        gzseek(f, 16 + 784 * last, SEEK_SET);
        assert_int_equal(gzread(f, raw, 784), 784);
        gzclose(f);
        snprintf(name, sizeof name, "/usr/share/datasets/fashion-mnist/%s-labels-idx1-ubyte.gz",
                 parts[p].source);
        f = gzopen(name, "rb");
        gzseek(f, 8 + last, SEEK_SET);
        assert_int_equal(gzread(f, &label, 1), 1);
        gzclose(f);
        assert_int_equal(b.label[0], label);
        for (int i = 0; i < 784; i++) {
            double want = (raw[i] / 255.0 - 0.2860) / 0.3530;
            assert_true(fabs((double)((float *)b.input[0])[i] - want) < 1e-5);
        }
        pare_reader_close(r);
        pare_data_close(d);
    }
}

static int set_up(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx),           cmocka_unit_test(test_idx_refusals),
        cmocka_unit_test(test_npy_bytes),     cmocka_unit_test(test_npy_round_trip),
        cmocka_unit_test(test_npy_foreign),   cmocka_unit_test(test_import_npy),
        cmocka_unit_test(test_resize),        cmocka_unit_test(test_images),
        cmocka_unit_test(test_image_kinds),   cmocka_unit_test(test_broken_images),
        cmocka_unit_test(test_fashion_mnist), cmocka_unit_test(test_pictures_have_limits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
