/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets in every form HDF5 can store them, and what pare writes itself. Expected values come
   from the formula that filled the files. */
#include "tests/formats/hdf5_files.h"

/* --- reading every form --- */

/* Reads n samples, looking ahead, and compares each with what element() says; returns the hash. */
static pare_hash check_read(pare_data *d, const int64_t *samples, int64_t n, int batch, int threads,
                            size_t row, bool integers)
{
    pare_reader *r = NULL;
    pare_batch b, ahead;
    int64_t seen = 0;
    assert_int_equal(pare_reader_open(&ctx, &r, d, samples, n, batch, threads), PARE_OK);
    for (;;) {
        pare_reader_peek(r, &ahead);
        assert_int_equal(pare_reader_next(r, &b), PARE_OK);
        assert_true(ahead.first == b.first && ahead.count == b.count);
        assert_true(!b.count || ahead.input == b.input);
        if (b.count == 0) break;
        pare_reader_peek(r, &ahead);
        assert_int_equal(b.first, seen);
        for (int i = 0; i < b.count; i++, seen++)
            for (size_t k = 0; k < row; k++) {
                size_t at = (size_t)i * row + k;
                double x = integers ? (double)((const int64_t *)b.input[0])[at]
                                    : (double)((const float *)b.input[0])[at];
                if (x != element((size_t)samples[seen] * row + k))
                    fail_msg("sample %d element %d: %g", (int)samples[seen], (int)k, x);
            }
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
        bool integers = H5Tget_class(m.type) == H5T_INTEGER;
        pare_data_input in = wants(integers ? PARE_s64 : PARE_f32, 4, 3, 5, -1);
        if (pare_data_open(&ctx, &d, path, &in, 1) != PARE_OK)
            fail_msg("form %d: %s", (int)f, ctx.message);
        assert_int_equal(pare_data_count(d), 23);
        assert_false(pare_data_has_labels(d));
        assert_int_equal(pare_data_shape(d, 0)->dim[0], 1);
        assert_int_equal(pare_data_shape(d, 0)->dim[3], 7);
        for (int i = 0; i < 23; i++) order[i] = i;
        pare_hash all = check_read(d, order, 23, 4, 2, 105, integers);
        pare_hash halves = pare_hash_sum(check_read(d, order, 11, 3, 1, 105, integers),
                                         check_read(d, order + 11, 12, 100, 2, 105, integers));
        for (int i = 0; i < 23; i++) order[i] = i * 7 % 23;
        pare_hash mixed = check_read(d, order, 23, 1, 3, 105, integers);
        assert_memory_equal(&all, &mixed, sizeof all);
        assert_memory_equal(&all, &halves, sizeof all);
        pare_data_close(d);
    }
}

/* Rows of held samples are in memory: they are read again though the file lost its bytes. */
static void test_held_samples(void **state)
{
    (void)state;
    const make m = {H5T_IEEE_F32LE,  4, {23, 3, 5, 7}, {4, 3, 5, 7}, .deflate = true,
                    .name = "/input"};
    const int64_t held[] = {17, 2, 9}, other[] = {3};
    const pare_data_input in = wants(PARE_f32, 4, 3, 5, -1);
    pare_data *d = NULL;
    pare_reader *r = NULL;
    pare_batch b;
    write_file(&m);
    assert_int_equal(pare_data_open(&ctx, &d, path, &in, 1), PARE_OK);
    assert_int_equal(pare_data_hold(d, held, 3), PARE_OK);
    const pare_hash first = check_read(d, held, 3, 2, 2, 105, false);
    assert_int_equal(truncate(path, 0), 0);
    const pare_hash again = check_read(d, held, 3, 3, 2, 105, false);
    assert_memory_equal(&first, &again, sizeof first);
    assert_int_equal(pare_reader_open(&ctx, &r, d, other, 1, 1, 1), PARE_OK);
    pare_reader_peek(r, &b);
    assert_int_equal(b.count, 0);
    assert_int_not_equal(pare_reader_next(r, &b), PARE_OK);
    pare_reader_close(r);
    pare_data_release(d);
    assert_int_equal(pare_reader_open(&ctx, &r, d, held, 1, 1, 1), PARE_OK);
    assert_int_not_equal(pare_reader_next(r, &b), PARE_OK);
    pare_reader_close(r);
    pare_data_close(d);
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
    make mask = {H5T_IEEE_F32LE, 2, {9, 6}, {0}, .name = "/other"};
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

/* --- writing --- */

static void test_writer(void **state)
{
    (void)state;
    const float mean[1] = {0.5f}, std[1] = {0.25f};
    pare_data_column columns[2] = {{.name = "input",
                                    .dtype = PARE_u8,
                                    .shape = {.rank = 3, .dim = {1, 2, 2}},
                                    .mean = mean,
                                    .std = std,
                                    .channels = 1,
                                    .layout = "nchw"},
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
            if (types[t] == PARE_f64)
                memcpy(raw + i * bytes, &wide, 8);
            else
                pare_type(types[t])->from_f32_ref(raw + i * bytes, (float)(i % 2));
        }
        pare_data_column column = {
            .name = "input", .dtype = types[t], .shape = {.rank = 1, .dim = {1}}};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_held_samples),
        cmocka_unit_test(test_missing_chunk_is_fill_value),
        cmocka_unit_test(test_filter_mask),
        cmocka_unit_test(test_pixels_and_layout),
        cmocka_unit_test(test_nchw_file_feeds_an_nhwc_model),
        cmocka_unit_test(test_several_inputs),
        cmocka_unit_test(test_writer),
        cmocka_unit_test(test_writer_types),
        cmocka_unit_test(test_spread),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
