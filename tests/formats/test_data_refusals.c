/* SPDX-License-Identifier: Apache-2.0 */
/* What data sets are refused with: wrong names, shapes, types, values; cut and damaged files. */
#include "tests/formats/hdf5_files.h"

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
    } cases[] = {
        {H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x, PARE_f32, "sample 3 has a NaN or an infinite"},
        {H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x, PARE_f16, "sample 3 has a NaN or an infinite"},
        {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, big, PARE_f32, "sample 0 has a value too large"},
        {H5T_STD_I64LE, H5T_NATIVE_INT64, ids, PARE_s32, "sample 2 has an integer"},
        {H5T_STD_I64LE, H5T_NATIVE_INT64, ids, PARE_f32,
         "has type s64, but input 'input' takes f32; store ready values as float32"},
        {H5T_STD_I8LE, H5T_NATIVE_INT64, ids, PARE_f16,
         "has type s8, but input 'input' takes f16"}};
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

/* Text, records and references are no numbers, as input or as label. */
static void test_types_without_numbers(void **state)
{
    (void)state;
    hid_t text = H5Tcopy(H5T_C_S1), words = H5Tcopy(H5T_C_S1), record = H5Tcreate(H5T_COMPOUND, 12);
    H5Tset_size(text, 8);
    H5Tset_size(words, H5T_VARIABLE);
    H5Tinsert(record, "value", 0, H5T_IEEE_F32LE);
    H5Tinsert(record, "label", 4, H5T_STD_I64LE);
    const hid_t types[] = {text, words, record, H5T_STD_REF_OBJ, H5T_STD_B8LE};
    pare_data_input in = wants(PARE_f32, 2, 4, 0, 0);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        make m = {types[i], 2, {6, 4}, {0}, .name = "/input"};
        hid_t file = file_new(false);
        H5Dclose(dataset_new(file, &m));
        H5Fclose(file);
        fails_with(&in, 1,
                   "dataset '/input': its type is not a number of 8 to 64 bits; store uint8");
        make good = {H5T_IEEE_F32LE, 2, {6, 4}, {0}, .name = "/input"};
        make labels = {types[i], 1, {6}, {0}, .name = "/labels"};
        file = file_new(false);
        dataset_fill(file, &good);
        H5Dclose(dataset_new(file, &labels));
        H5Fclose(file);
        fails_with(&in, 1, "dataset '/labels': its type is not a number of 8 to 64 bits; store");
    }
    H5Tclose(text);
    H5Tclose(words);
    H5Tclose(record);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),           cmocka_unit_test(test_label_refusals),
        cmocka_unit_test(test_bad_values),         cmocka_unit_test(test_types_without_numbers),
        cmocka_unit_test(test_damaged_chunk),      cmocka_unit_test(test_cut_and_damaged_files),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
