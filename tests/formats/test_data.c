/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets: files are made by the HDF5 library itself in every form it can store them, expected
   values come from the formula that filled them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "formats/data.h"

#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pare_ctx ctx;
static char folder[] = "/tmp/pare_data_XXXXXX", path[64];

/* HDF5 1.10 loses memory of its own when a damaged file is refused. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libhdf5"; }

/* --- making files --- */

typedef struct make {
    hid_t type;      /* in the file */
    int rank;
    hsize_t dim[4], chunk[4]; /* chunk[0] 0: contiguous, or compact */
    bool shuffle, deflate, fletcher, compact, latest;
    const char *name;
} make;

/* Element i of the dataset (row-major) as the tests fill it. */
static int element(size_t i) { return (int)(i * 37 % 251); }

static size_t count_of(const make *m)
{
    size_t n = 1;
    for (int i = 0; i < m->rank; i++) n *= m->dim[i];
    return n;
}

static hid_t file_new(bool latest)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (latest) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    assert_true(file >= 0);
    return file;
}

static hid_t dataset_new(hid_t file, const make *m)
{
    hid_t space = H5Screate_simple(m->rank, m->dim, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    if (m->compact) H5Pset_layout(plist, H5D_COMPACT);
    if (m->chunk[0]) H5Pset_chunk(plist, m->rank, m->chunk);
    if (m->shuffle) H5Pset_shuffle(plist);
    if (m->deflate) H5Pset_deflate(plist, 6);
    if (m->fletcher) H5Pset_fletcher32(plist);
    hid_t d = H5Dcreate2(file, m->name, m->type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    assert_true(d >= 0);
    H5Pclose(plist);
    H5Sclose(space);
    return d;
}

static void dataset_fill(hid_t file, const make *m)
{
    hid_t d = dataset_new(file, m);
    size_t n = count_of(m);
    int *values = malloc((n + 1) * sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = element(i);
    assert_true(H5Dwrite(d, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    free(values);
    H5Dclose(d);
}

static void attribute(hid_t file, const char *dataset, const char *name, const float *v, hsize_t n)
{
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t a = H5Acreate_by_name(file, dataset, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT,
                                H5P_DEFAULT);
    assert_true(H5Awrite(a, H5T_NATIVE_FLOAT, v) >= 0);
    H5Aclose(a);
    H5Sclose(space);
}

static void text_attribute(hid_t file, const char *dataset, const char *name, const char *text)
{
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1); /* variable length, as h5py does */
    H5Tset_size(type, H5T_VARIABLE);
    hid_t a = H5Acreate_by_name(file, dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT,
                                H5P_DEFAULT);
    assert_true(H5Awrite(a, type, &text) >= 0);
    H5Aclose(a);
    H5Tclose(type);
    H5Sclose(space);
}

static void write_file(const make *m)
{
    hid_t file = file_new(m->latest);
    dataset_fill(file, m);
    H5Fclose(file);
}

static pare_data_input wants(pare_dtype dtype, int rank, int64_t a, int64_t b, int64_t c)
{
    return (pare_data_input){"input", dtype, {rank, {-1, a, b, c}, {0}}, NULL};
}

static void fails_with(const pare_data_input *input, int count, const char *words)
{
    pare_data *d = NULL;
    pare_ctx_clear(&ctx);
    assert_int_not_equal(pare_data_open(&ctx, &d, path, input, count), PARE_OK);
    if (!strstr(ctx.message, words)) print_error("message: %s\n", ctx.message);
    assert_non_null(strstr(ctx.message, words));
    assert_non_null(strstr(ctx.message, "t.h5"));
}

/* --- reading every form --- */

/* Reads n samples and compares each with what element() says; returns the hash. */
static pare_hash check_read(pare_data *d, const int64_t *samples, int64_t n, int batch, int threads,
                            size_t row)
{
    pare_reader *r = NULL;
    pare_batch b;
    int64_t seen = 0;
    assert_int_equal(pare_reader_open(&ctx, &r, d, samples, n, batch, threads), PARE_OK);
    for (;;) {
        assert_int_equal(pare_reader_next(r, &b), PARE_OK);
        if (b.count == 0) break;
        assert_int_equal(b.first, seen);
        const float *x = b.input[0];
        for (int i = 0; i < b.count; i++, seen++)
            for (size_t k = 0; k < row; k++)
                if (x[(size_t)i * row + k] != (float)element((size_t)samples[seen] * row + k))
                    fail_msg("sample %d element %d: %g", (int)samples[seen], (int)k,
                             (double)x[(size_t)i * row + k]);
    }
    assert_int_equal(seen, n);
    pare_hash h = pare_reader_hash(r);
    pare_reader_close(r);
    return h;
}

static void test_forms(void **state)
{
    (void)state;
    const make forms[] = {
        {H5T_IEEE_F32LE, 4, {23, 3, 5, 7}, {4, 3, 5, 7}, .deflate = true},
        {H5T_IEEE_F32LE, 4, {23, 3, 5, 7}, {4, 3, 5, 7}, .shuffle = true, .deflate = true},
        {H5T_IEEE_F32LE, 4, {23, 3, 5, 7}, {4, 2, 5, 3}, .shuffle = true, .deflate = true},
        {H5T_IEEE_F32LE, 4, {23, 3, 5, 7}, {23, 1, 2, 7}, .deflate = true, .latest = true},
        {H5T_IEEE_F32LE, 4, {23, 3, 5, 7}, {1, 3, 5, 7}, .shuffle = true},
        {H5T_IEEE_F32LE, 4, {23, 3, 5, 7}, {5, 3, 5, 7}, .fletcher = true, .deflate = true},
        {H5T_IEEE_F32LE, 4, {23, 3, 5, 7}, {0}, .name = ""},
        {H5T_IEEE_F32LE, 4, {23, 3, 5, 7}, {0}, .compact = true},
        {H5T_IEEE_F32BE, 4, {23, 3, 5, 7}, {4, 3, 5, 7}, .deflate = true},
        {H5T_IEEE_F64LE, 4, {23, 3, 5, 7}, {4, 3, 5, 7}, .shuffle = true, .deflate = true},
        {H5T_STD_I16LE, 4, {23, 3, 5, 7}, {4, 3, 5, 7}, .shuffle = true, .deflate = true},
        {H5T_STD_I32BE, 4, {23, 3, 5, 7}, {0}, .name = ""},
        {H5T_STD_I64LE, 4, {23, 3, 5, 7}, {7, 3, 5, 7}, .shuffle = true, .latest = true},
        {H5T_STD_U16LE, 4, {23, 3, 5, 7}, {0}, .name = ""},
    };
    int64_t order[23];
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        make m = forms[f];
        m.name = "/input";
        write_file(&m);
        pare_data *d = NULL;
        pare_data_input in = wants(PARE_f32, 4, 3, 5, -1);
        if (pare_data_open(&ctx, &d, path, &in, 1) != PARE_OK) fail_msg("form %d: %s", (int)f, ctx.message);
        assert_int_equal(pare_data_count(d), 23);
        assert_false(pare_data_has_labels(d));
        assert_int_equal(pare_data_shape(d, 0)->dim[0], 1);
        assert_int_equal(pare_data_shape(d, 0)->dim[3], 7);
        for (int i = 0; i < 23; i++) order[i] = i;
        pare_hash all = check_read(d, order, 23, 4, 2, 105);
        pare_hash halves = pare_hash_sum(check_read(d, order, 11, 3, 1, 105),
                                         check_read(d, order + 11, 12, 100, 2, 105));
        for (int i = 0; i < 23; i++) order[i] = i * 7 % 23;
        pare_hash mixed = check_read(d, order, 23, 1, 3, 105);
        assert_memory_equal(&all, &mixed, sizeof all);
        assert_memory_equal(&all, &halves, sizeof all);
        pare_data_close(d);
    }
}

static void test_missing_chunk_is_fill_value(void **state)
{
    (void)state;
    hsize_t dim[2] = {6, 4}, chunk[2] = {2, 4}, at[2] = {2, 0}, size[2] = {2, 4};
    float fill = 2.5f, ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    hid_t file = file_new(false), space = H5Screate_simple(2, dim, NULL);
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE), memory = H5Screate_simple(2, size, NULL);
    H5Pset_chunk(plist, 2, chunk);
    H5Pset_deflate(plist, 4);
    H5Pset_fill_value(plist, H5T_NATIVE_FLOAT, &fill);
    hid_t d = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, size, NULL);
    H5Dwrite(d, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, ones);
    H5Sclose(memory), H5Sclose(space), H5Pclose(plist), H5Dclose(d), H5Fclose(file);
    pare_data *data = NULL;
    pare_reader *r = NULL;
    pare_batch b;
    int64_t samples[6] = {0, 1, 2, 3, 4, 5};
    pare_data_input in = wants(PARE_f32, 2, 4, 0, 0); /* the only dataset, though its name is x */
    assert_int_equal(pare_data_open(&ctx, &data, path, &in, 1), PARE_OK);
    assert_int_equal(pare_reader_open(&ctx, &r, data, samples, 6, 6, 1), PARE_OK);
    assert_int_equal(pare_reader_next(r, &b), PARE_OK);
    for (int i = 0; i < 24; i++)
        assert_true(((float *)b.input[0])[i] == (i / 8 == 1 ? 1.0f : 2.5f));
    pare_reader_close(r);
    pare_data_close(data);
}

/* A chunk whose deflate was skipped carries bit 0 in its mask. */
static void test_filter_mask(void **state)
{
    (void)state;
    make m = {H5T_STD_U8LE, 2, {4, 4}, {2, 4}, .deflate = true, .name = "/input"};
    hid_t file = file_new(false), d = dataset_new(file, &m);
    uint8_t plain[8] = {9, 8, 7, 6, 5, 4, 3, 2};
    hsize_t at[2] = {2, 0};
    assert_true(H5Dwrite_chunk(d, H5P_DEFAULT, 1, at, sizeof plain, plain) >= 0);
    H5Dclose(d), H5Fclose(file);
    pare_data *data = NULL;
    pare_reader *r = NULL;
    pare_batch b;
    int64_t samples[2] = {2, 3};
    pare_data_input in = wants(PARE_u8, 2, 4, 0, 0);
    assert_int_equal(pare_data_open(&ctx, &data, path, &in, 1), PARE_OK);
    assert_int_equal(pare_reader_open(&ctx, &r, data, samples, 2, 2, 1), PARE_OK);
    assert_int_equal(pare_reader_next(r, &b), PARE_OK);
    assert_memory_equal(b.input[0], plain, sizeof plain);
    pare_reader_close(r);
    pare_data_close(data);
}

/* --- pixels --- */

static void test_pixels_and_layout(void **state)
{
    (void)state;
    const float mean[3] = {0.5f, 0.25f, 0.125f}, std[3] = {0.5f, 2.0f, 1.0f};
    make m = {H5T_STD_U8LE, 4, {5, 2, 4, 3}, {2, 2, 4, 3}, .deflate = true, .name = "/input"};
    make y = {H5T_STD_I64LE, 1, {5}, {0}, .name = "/labels"};
    hid_t file = file_new(false);
    dataset_fill(file, &m);
    dataset_fill(file, &y);
    attribute(file, "/input", "mean", mean, 3);
    attribute(file, "/input", "std", std, 3);
    text_attribute(file, "/input", "layout", "nhwc");
    H5Fclose(file);
    pare_data *data = NULL;
    pare_reader *r = NULL;
    pare_batch b;
    int64_t samples[2] = {4, 1};
    pare_data_input in = wants(PARE_f32, 4, 3, 2, 4);
    assert_int_equal(pare_data_open(&ctx, &data, path, &in, 1), PARE_OK);
    assert_true(pare_data_has_labels(data));
    assert_int_equal(pare_reader_open(&ctx, &r, data, samples, 2, 8, 2), PARE_OK);
    assert_int_equal(pare_reader_next(r, &b), PARE_OK);
    assert_int_equal(b.count, 2);
    assert_int_equal(b.label[0], element(4));
    assert_int_equal(b.label[1], element(1));
    const float *x = b.input[0];
    for (int i = 0; i < 2; i++)
        for (size_t c = 0; c < 3; c++)
            for (size_t p = 0; p < 8; p++) {
                double v = element((size_t)samples[i] * 24 + p * 3 + c) / 255.0;
                double want = (v - (double)mean[c]) / (double)std[c];
                assert_true(fabs((double)*x++ - want) < 1e-6);
            }
    pare_reader_close(r);
    pare_data_close(data);
    in = wants(PARE_f32, 4, 3, 4, 2);
    fails_with(&in, 1, "has shape [5,2,4,3] with layout nhwc, but input 'input' takes [?,3,4,2]");
}

static void test_nchw_file_feeds_an_nhwc_model(void **state)
{
    (void)state;
    const float mean[3] = {0, 0, 1}, std = 1.0f / 255;
    make m = {H5T_STD_U8LE, 4, {2, 3, 2, 4}, {2, 3, 2, 4}, .name = "/input"};
    hid_t file = file_new(false);
    dataset_fill(file, &m);
    attribute(file, "/input", "mean", mean, 3);
    attribute(file, "/input", "std", &std, 1);
    text_attribute(file, "/input", "layout", "NCHW");
    H5Fclose(file);
    pare_data *data = NULL;
    pare_reader *r = NULL;
    pare_batch b;
    int64_t sample = 1;
    pare_data_input in = wants(PARE_f32, 4, 2, 4, 3);
    assert_int_equal(pare_data_open(&ctx, &data, path, &in, 1), PARE_OK);
    assert_int_equal(pare_reader_open(&ctx, &r, data, &sample, 1, 1, 1), PARE_OK);
    assert_int_equal(pare_reader_next(r, &b), PARE_OK);
    for (size_t p = 0; p < 8; p++)
        for (size_t c = 0; c < 3; c++) {
            double want = element(24 + c * 8 + p) - (c == 2 ? 255 : 0);
            assert_true(fabs((double)((float *)b.input[0])[p * 3 + c] - want) < 1e-4);
        }
    pare_reader_close(r);
    pare_data_close(data);
}

static void test_several_inputs(void **state)
{
    (void)state;
    make ids = {H5T_STD_I32LE, 2, {9, 6}, {2, 6}, .deflate = true, .name = "/input"};
    make mask = {H5T_STD_I64LE, 2, {9, 6}, {0}, .name = "/other"};
    hid_t file = file_new(false);
    dataset_fill(file, &ids);
    dataset_fill(file, &mask);
    H5Fclose(file);
    pare_data *data = NULL;
    pare_reader *r = NULL;
    pare_batch b;
    int64_t samples[3] = {8, 0, 3};
    pare_data_input in[2] = {wants(PARE_s64, 2, 6, 0, 0), wants(PARE_f16, 2, -1, 0, 0)};
    in[1].name = "mask";
    fails_with(in, 2, "--map mask=/dataset");
    in[1].dataset = "other";
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_data_open(&ctx, &data, path, in, 2), PARE_OK);
    assert_int_equal(pare_reader_open(&ctx, &r, data, samples, 3, 2, 2), PARE_OK);
    for (int64_t k = 0; k < 3;) {
        assert_int_equal(pare_reader_next(r, &b), PARE_OK);
        for (int i = 0; i < b.count; i++, k++)
            for (int e = 0; e < 6; e++) {
                int want = element((size_t)samples[k] * 6 + (size_t)e);
                assert_int_equal(((int64_t *)b.input[0])[i * 6 + e], want);
                assert_true(pare_f16_to_f32(((uint16_t *)b.input[1])[i * 6 + e]) == (float)want);
            }
    }
    pare_reader_close(r);
    pare_data_close(data);
}

/* --- refusals --- */

static void test_refusals(void **state)
{
    (void)state;
    pare_data_input in = wants(PARE_f32, 2, 4, 0, 0);
    unlink(path);
    fails_with(&in, 1, "No such file");
    FILE *f = fopen(path, "wb");
    fputs("just text, long enough to be read", f);
    fclose(f);
    fails_with(&in, 1, "is not HDF5");
    make m = {H5T_IEEE_F32LE, 2, {6, 4}, {2, 4}, .deflate = true, .name = "/a"};
    make other = {H5T_IEEE_F32LE, 2, {6, 4}, {0}, .name = "/b"};
    hid_t file = file_new(false);
    dataset_fill(file, &m);
    dataset_fill(file, &other);
    H5Fclose(file);
    fails_with(&in, 1, "the file has /a, /b; choose one with --map input=/dataset");
    in.dataset = "/c";
    fails_with(&in, 1, "dataset '/c'");
    in.dataset = "/a";
    in.shape.rank = 3;
    fails_with(&in, 1, "has shape [6,4], but input 'input' takes");
    in.shape.rank = 2;
    in.shape.dim[1] = 5;
    fails_with(&in, 1, "takes [?,5]");
    in = wants(PARE_s64, 2, 4, 0, 0);
    in.dataset = "/a";
    fails_with(&in, 1, "has type f32, but input 'input' takes s64");
    m.dim[0] = 0;
    m.name = "/input";
    m.chunk[0] = 0, m.deflate = false;
    write_file(&m);
    in = wants(PARE_f32, 2, 4, 0, 0);
    fails_with(&in, 1, "has 0 samples");
}

static void test_label_refusals(void **state)
{
    (void)state;
    const int64_t bad[6] = {0, 1, 2, -3, 4, 5};
    pare_data_input in = wants(PARE_f32, 2, 4, 0, 0);
    make m = {H5T_IEEE_F32LE, 2, {6, 4}, {2, 4}, .name = "/input"};
    make few = {H5T_STD_I64LE, 1, {5}, {0}, .name = "/labels"}, real = few, six = few;
    hid_t file = file_new(false);
    dataset_fill(file, &m);
    dataset_fill(file, &few);
    H5Fclose(file);
    fails_with(&in, 1, "has 5 labels for 6 samples");
    file = file_new(false);
    real.dim[0] = 6;
    real.type = H5T_IEEE_F32LE;
    dataset_fill(file, &m);
    dataset_fill(file, &real);
    H5Fclose(file);
    fails_with(&in, 1, "has type f32, expected int64");
    file = file_new(false);
    six.dim[0] = 6;
    dataset_fill(file, &m);
    hid_t d = dataset_new(file, &six);
    H5Dwrite(d, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, bad);
    H5Dclose(d), H5Fclose(file);
    fails_with(&in, 1, "sample 3 has label -3");
}

static pare_status read_all(const pare_data_input *in, int64_t n, int batch, int threads)
{
    pare_data *d = NULL;
    pare_reader *r = NULL;
    pare_batch b = {.count = 1};
    pare_ctx_clear(&ctx);
    pare_status st = pare_data_open(&ctx, &d, path, in, 1);
    if (st != PARE_OK) return st;
    if (n < 0) n = pare_data_count(d);
    int64_t *samples = calloc((size_t)n, sizeof *samples);
    pare_data_spread(0, pare_data_count(d), n, samples);
    st = pare_reader_open(&ctx, &r, d, samples, n, batch, threads);
    while (st == PARE_OK && b.count) st = pare_reader_next(r, &b);
    pare_reader_close(r);
    pare_data_close(d);
    free(samples);
    return st;
}

static void test_bad_values(void **state)
{
    (void)state;
    float x[12] = {0, 1, 2, 3, 4, 5, 6, NAN, 8, 9, -INFINITY, 11};
    double big[12] = {1e300};
    int64_t ids[12] = {[5] = (int64_t)1 << 40};
    pare_data_input in = wants(PARE_f32, 2, 2, 0, 0);
    struct {
        hid_t type, memory;
        const void *data;
        pare_dtype dtype;
        const char *words;
    } cases[] = {{H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x, PARE_f32, "sample 3 has a NaN or an infinite"},
                 {H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x, PARE_f16, "sample 3 has a NaN or an infinite"},
                 {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, big, PARE_f32, "sample 0 has a value too large"},
                 {H5T_STD_I64LE, H5T_NATIVE_INT64, ids, PARE_s32, "sample 2 has an integer"},
                 {H5T_STD_I64LE, H5T_NATIVE_INT64, ids, PARE_f32, "sample 2 has an integer"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make m = {cases[i].type, 2, {6, 2}, {1, 2}, .deflate = true, .name = "/input"};
        hid_t file = file_new(false), d = dataset_new(file, &m);
        H5Dwrite(d, cases[i].memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, cases[i].data);
        H5Dclose(d), H5Fclose(file);
        in.dtype = cases[i].dtype;
        assert_int_equal(read_all(&in, -1, 2, 2), PARE_INPUT);
        if (!strstr(ctx.message, cases[i].words)) print_error("message: %s\n", ctx.message);
        assert_non_null(strstr(ctx.message, cases[i].words));
    }
}

static uint8_t *slurp(size_t *size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(1 << 20);
    *size = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

static void spit(const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    fwrite(data, 1, size, f);
    fclose(f);
}

static void test_damaged_chunk(void **state)
{
    (void)state;
    make m = {H5T_IEEE_F32LE, 2, {64, 64}, {8, 64}, .deflate = true, .name = "/input"};
    pare_data_input in = wants(PARE_f32, 2, 64, 0, 0);
    write_file(&m);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), d = H5Dopen2(file, "/input", 0);
    hsize_t at[2] = {16, 0}, bytes;
    haddr_t address;
    unsigned mask;
    H5Dget_chunk_info_by_coord(d, at, &mask, &address, &bytes);
    H5Dclose(d), H5Fclose(file);
    size_t size;
    uint8_t *data = slurp(&size);
    data[address + bytes / 2] ^= 0x55;
    spit(data, size);
    assert_int_equal(read_all(&in, -1, 7, 2), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "dataset '/input': chunk 2 is damaged"));
    free(data);
}

/* Cut files and files with random bytes damaged give a status and a message, never a crash. */
static void test_cut_and_damaged_files(void **state)
{
    (void)state;
    make m = {H5T_STD_U8LE, 4, {12, 1, 4, 4}, {2, 1, 4, 4}, .deflate = true, .name = "/input"};
    make y = {H5T_STD_I64LE, 1, {12}, {0}, .name = "/labels"};
    const float mean[1] = {0.25f};
    pare_data_input in = wants(PARE_f32, 4, 1, 4, 4);
    hid_t file = file_new(false);
    dataset_fill(file, &m);
    dataset_fill(file, &y);
    attribute(file, "/input", "mean", mean, 1);
    H5Fclose(file);
    size_t size;
    uint8_t *data = slurp(&size), *bad = malloc(size);
    assert_int_equal(read_all(&in, -1, 4, 1), PARE_OK);
    for (size_t cut = 0; cut < size; cut += size / 97 + 1) {
        spit(data, cut);
        assert_int_not_equal(read_all(&in, -1, 4, 1), PARE_OK);
        assert_true(ctx.message[0] != 0);
    }
    uint32_t seed = 1;
    int refused = 0;
    for (int i = 0; i < 600; i++) {
        memcpy(bad, data, size);
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            bad[(seed >> 8) % size] = (uint8_t)(seed >> 3);
        }
        spit(bad, size);
        pare_status st = read_all(&in, -1, 4, 1);
        assert_true(st == PARE_OK || ctx.message[0] != 0);
        refused += st != PARE_OK;
    }
    assert_true(refused > 30);
    free(bad);
    free(data);
}

/* Every allocation fails once: a status each time, and no leak (seen by the sanitizer build). */
static void test_failed_allocations(void **state)
{
    (void)state;
    make m = {H5T_IEEE_F32LE, 2, {6, 4}, {2, 4}, .deflate = true, .name = "/input"};
    pare_data_input in = wants(PARE_f32, 2, 4, 0, 0);
    write_file(&m);
    bool done = false;
    for (long n = 0; !done && n < 200; n++) {
        ctx.fail_after = n;
        done = read_all(&in, -1, 2, 1) == PARE_OK;
        ctx.fail_after = -1;
        if (!done) assert_non_null(strstr(ctx.message, "out of memory"));
    }
    assert_true(done);
}

/* --- writing --- */

static void test_writer(void **state)
{
    (void)state;
    const float mean[1] = {0.5f}, std[1] = {0.25f};
    pare_data_column columns[2] = {
        {.name = "input", .dtype = PARE_u8, .shape = {.rank = 3, .dim = {1, 2, 2}}, .mean = mean,
         .std = std, .channels = 1, .layout = "nchw"},
        {.name = "labels", .dtype = PARE_s64}};
    uint8_t x[3][4] = {{0, 51, 102, 153}, {204, 255, 0, 51}, {1, 2, 3, 4}};
    int64_t y[3] = {7, 8, 9};
    pare_data_writer *w = NULL;
    unlink(path);
    assert_int_equal(pare_data_create(&ctx, &w, path, columns, 2), PARE_OK);
    const void *first[2] = {x, y}, *rest[2] = {x[2], y + 2};
    assert_int_equal(pare_data_append(w, first, 2), PARE_OK);
    assert_int_equal(pare_data_append(w, rest, 1), PARE_OK);
    assert_int_equal(access(path, F_OK), -1); /* not before commit */
    assert_int_equal(pare_data_commit(w), PARE_OK);
    pare_data *d = NULL;
    pare_reader *r = NULL;
    pare_batch b;
    int64_t samples[3] = {0, 1, 2};
    pare_data_input in = wants(PARE_f32, 4, 1, 2, 2);
    assert_int_equal(pare_data_open(&ctx, &d, path, &in, 1), PARE_OK);
    assert_int_equal(pare_reader_open(&ctx, &r, d, samples, 3, 3, 1), PARE_OK);
    assert_int_equal(pare_reader_next(r, &b), PARE_OK);
    const double want[5] = {-2, -1.2, -0.4, 0.4, 1.2}; /* (v / 255 - 0.5) / 0.25 */
    for (int i = 0; i < 5; i++)
        assert_true(fabs((double)((float *)b.input[0])[i] - want[i]) < 1e-6);
    assert_int_equal(b.label[2], 9);
    pare_reader_close(r);
    pare_data_close(d);
    size_t size, again;
    uint8_t *one = slurp(&size);
    assert_int_equal(pare_data_create(&ctx, &w, path, columns, 2), PARE_OK);
    assert_int_equal(pare_data_append(w, first, 3), PARE_OK);
    assert_int_equal(pare_data_commit(w), PARE_OK);
    uint8_t *two = slurp(&again);
    assert_int_equal(size, again); /* same content, same bytes */
    assert_memory_equal(one, two, size);
    assert_int_equal(pare_data_create(&ctx, &w, path, columns, 2), PARE_OK);
    pare_data_discard(w); /* the old file stays */
    assert_int_equal(access(path, F_OK), 0);
    free(one);
    free(two);
}

static void test_writer_types(void **state)
{
    (void)state;
    const pare_dtype types[] = {PARE_f32, PARE_f64, PARE_f16, PARE_bf16, PARE_s8,  PARE_s16,
                                PARE_s32, PARE_s64, PARE_u16, PARE_u32,  PARE_bool};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        uint8_t raw[3 * 8] = {0};
        size_t bytes = (size_t)pare_type(types[t])->bits / 8;
        for (size_t i = 0; i < 3; i++) {
            double wide = (double)(i % 2);
            if (types[t] == PARE_f64) memcpy(raw + i * bytes, &wide, 8);
            else pare_type(types[t])->from_f32_ref(raw + i * bytes, (float)(i % 2));
        }
        pare_data_column column = {.name = "input", .dtype = types[t], .shape = {.rank = 1, .dim = {1}}};
        pare_data_writer *w = NULL;
        const void *data[1] = {raw};
        assert_int_equal(pare_data_create(&ctx, &w, path, &column, 1), PARE_OK);
        assert_int_equal(pare_data_append(w, data, 3), PARE_OK);
        assert_int_equal(pare_data_commit(w), PARE_OK);
        pare_data *d = NULL;
        pare_reader *r = NULL;
        pare_batch b;
        int64_t samples[3] = {0, 1, 2};
        pare_data_input in = wants(types[t], 2, 1, 0, 0);
        assert_int_equal(pare_data_open(&ctx, &d, path, &in, 1), PARE_OK);
        assert_int_equal(pare_reader_open(&ctx, &r, d, samples, 3, 3, 1), PARE_OK);
        assert_int_equal(pare_reader_next(r, &b), PARE_OK);
        assert_memory_equal(b.input[0], raw, 3 * bytes);
        pare_reader_close(r);
        pare_data_close(d);
    }
}

static void test_spread(void **state)
{
    (void)state;
    int64_t out[4];
    pare_data_spread(0, 10, 4, out); /* floor(i * 10 / 4) */
    assert_int_equal(out[0], 0);
    assert_int_equal(out[1], 2);
    assert_int_equal(out[2], 5);
    assert_int_equal(out[3], 7);
    pare_data_spread(100, 104, 4, out);
    for (int i = 0; i < 4; i++) assert_int_equal(out[i], 100 + i);
}

static int set_up(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.h5", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails where something was left behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_missing_chunk_is_fill_value),
        cmocka_unit_test(test_filter_mask),
        cmocka_unit_test(test_pixels_and_layout),
        cmocka_unit_test(test_nchw_file_feeds_an_nhwc_model),
        cmocka_unit_test(test_several_inputs),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_label_refusals),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_damaged_chunk),
        cmocka_unit_test(test_cut_and_damaged_files),
        cmocka_unit_test(test_failed_allocations),
        cmocka_unit_test(test_writer),
        cmocka_unit_test(test_writer_types),
        cmocka_unit_test(test_spread),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
