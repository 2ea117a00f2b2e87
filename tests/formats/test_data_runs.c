/* SPDX-License-Identifier: Apache-2.0 */
/* How runs take samples: in a batch, as whole inputs, as scalars that all share. And outputs whose
   samples have shapes of their own. */
#include "tests/formats/hdf5_files.h"

#include "runtime/graph/graph.h"

typedef struct set {
    const char *name;
    hid_t type;
    int rank; /* 0: a scalar */
    hsize_t dim[4];
    bool compact;
} set;

static void make_sets(const set *sets, int count)
{
    hid_t file = file_new(false);
    for (int i = 0; i < count; i++) {
        make m = {sets[i].type, sets[i].rank, {0}, {0}, .compact = sets[i].compact};
        m.name = sets[i].name;
        memcpy(m.dim, sets[i].dim, sizeof m.dim);
        if (sets[i].rank) {
            dataset_fill(file, &m);
            continue;
        }
        const int value = 42;
        hid_t space = H5Screate(H5S_SCALAR), plist = H5Pcreate(H5P_DATASET_CREATE);
        if (m.compact) H5Pset_layout(plist, H5D_COMPACT);
        hid_t d = H5Dcreate2(file, m.name, m.type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
        assert_true(H5Dwrite(d, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) >= 0);
        H5Dclose(d), H5Pclose(plist), H5Sclose(space);
    }
    H5Fclose(file);
}

static pare_data_input input(const char *name, pare_dtype dtype, int rank, int64_t a, int64_t b)
{
    return (pare_data_input){name, dtype, {rank, {a, b}, {0}}, NULL};
}

static pare_data *open_sets(const set *sets, const pare_data_input *in, int count)
{
    pare_data *d = NULL;
    make_sets(sets, count);
    pare_ctx_clear(&ctx);
    if (pare_data_open(&ctx, &d, path, in, count) != PARE_OK) fail_msg("%s", ctx.message);
    return d;
}

/* A model with these inputs. */
static pare_model *model_of(const pare_data_input *in, int count)
{
    pare_model *m;
    assert_int_equal(pare_model_new(&ctx, &m, "m.onnx"), PARE_OK);
    for (int i = 0; i < count; i++) {
        pare_value *v;
        assert_int_equal(pare_value_new(m->graph, &v, in[i].name), PARE_OK);
        pare_value_set_type(v, in[i].dtype, &in[i].shape);
        v->is_input = true;
        assert_int_equal(pare_values_add(m->graph, &m->graph->in, v), PARE_OK);
    }
    return m;
}

static pare_status samples_of(const pare_data *d, const pare_data_input *in, int count,
                              int64_t *samples)
{
    pare_model *m = model_of(in, count);
    pare_status st = pare_data_run_samples(&ctx, d, m, samples);
    pare_model_free(m);
    return st;
}

/* --- samples of a run --- */

static void test_fixed_and_free_batch(void **state)
{
    (void)state;
    const set sets[] = {{"a", H5T_IEEE_F32LE, 2, {8, 3}, false},
                        {"b", H5T_IEEE_F32LE, 2, {8, 3}, false},
                        {"c", H5T_IEEE_F32LE, 2, {8, 3}, false}};
    pare_data_input in[] = {input("a", PARE_f32, 2, -1, 3), input("b", PARE_f32, 2, 4, 3),
                            input("c", PARE_f32, 2, 5, 3)};
    pare_data *d = open_sets(sets, in, 3);
    int64_t samples = 7;
    assert_false(pare_data_runs_alone(d));
    assert_int_equal(samples_of(d, in, 1, &samples), PARE_OK);
    assert_int_equal(samples, 0);
    assert_int_equal(samples_of(d, in, 2, &samples), PARE_OK); /* the free one follows */
    assert_int_equal(samples, 4);
    assert_int_equal(samples_of(d, in, 3, &samples), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "m.onnx: input 'c' has 5 rows, input 'b' 4"));
    const pare_shape shape = pare_data_run_shape(d, 1, 4);
    assert_true(shape.rank == 2 && shape.dim[0] == 4 && shape.dim[1] == 3);
    assert_int_equal(pare_data_need_batch(&ctx, d, "this"), PARE_OK);
    pare_data_close(d);
}

static void test_whole_inputs_run_alone(void **state)
{
    (void)state;
    const set sets[] = {{"image", H5T_IEEE_F32LE, 3, {5, 3, 4}, false},
                        {"rows", H5T_IEEE_F32LE, 2, {5, 6}, false},
                        {"scale", H5T_IEEE_F32LE, 1, {5}, false}};
    pare_data_input in[] = {input("image", PARE_f32, 2, 3, 4), input("rows", PARE_f32, 2, -1, 6),
                            input("scale", PARE_f32, 0, 0, 0)};
    pare_data *d = open_sets(sets, in, 3);
    pare_reader *r = NULL;
    pare_batch b;
    const int64_t order[] = {4, 1, 2};
    int64_t samples;
    assert_true(pare_data_runs_alone(d));
    assert_int_equal(samples_of(d, in, 3, &samples), PARE_OK);
    assert_int_equal(samples, 1);
    const pare_shape image = pare_data_run_shape(d, 0, 1), rows = pare_data_run_shape(d, 1, 1);
    assert_true(image.rank == 2 && image.dim[0] == 3 && image.dim[1] == 4);
    assert_true(rows.rank == 2 && rows.dim[0] == 1 && rows.dim[1] == 6);
    assert_int_equal(pare_data_run_shape(d, 2, 1).rank, 0);
    assert_int_equal(pare_reader_open(&ctx, &r, d, order, 3, 3, 2), PARE_OK);
    assert_int_equal(pare_reader_next(r, &b), PARE_OK);
    for (int64_t i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            const float *x = pare_data_run_input(d, b.input, k, i);
            const int count = k == 0 ? 12 : k == 1 ? 6 : 1;
            for (int e = 0; e < count; e++)
                assert_true(x[e] == (float)element((size_t)order[i] * (size_t)count + (size_t)e));
        }
    pare_reader_close(r);
    in[1].shape.dim[0] = 2; /* takes two at a time, the others one */
    assert_int_equal(samples_of(d, in, 3, &samples), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "m.onnx: input 'rows' takes 2 samples at a time"));
    assert_non_null(strstr(ctx.message, "t.h5"));
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_data_need_batch(&ctx, d, "this"), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "dataset '/image' has shape [5,3,4]: whole inputs 'image' "
                                        "of shape [3,4]; this needs"));
    pare_data_close(d);
}

/* --- one input for all samples --- */

static void test_scalars_serve_every_sample(void **state)
{
    (void)state;
    const hid_t types[] = {H5T_STD_I32LE, H5T_STD_I64BE, H5T_STD_U8LE, H5T_STD_I32LE};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const set sets[] = {{"rate", types[t], 0, {0}, t == 3},
                            {"rows", H5T_IEEE_F32LE, 2, {5, 6}, false}};
        pare_data_input in[] = {input("rate", PARE_s64, 0, 0, 0), input("rows", PARE_f32, 2, 2, 6)};
        pare_data *d = open_sets(sets, in, 2);
        pare_reader *r = NULL;
        pare_batch b;
        const int64_t order[] = {3, 0, 4};
        int64_t samples;
        assert_int_equal(pare_data_count(d), 5);
        assert_false(pare_data_runs_alone(d)); /* it goes with any batch */
        assert_int_equal(samples_of(d, in, 2, &samples), PARE_OK);
        assert_int_equal(samples, 2);
        assert_int_equal(pare_reader_open(&ctx, &r, d, order, 3, 3, 2), PARE_OK);
        assert_int_equal(pare_reader_next(r, &b), PARE_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(*(const int64_t *)pare_data_run_input(d, b.input, 0, i), 42);
        pare_reader_close(r);
        pare_data_close(d);
    }
}

static void test_one_row_serves_every_sample(void **state)
{
    (void)state;
    const set sets[] = {{"state", H5T_IEEE_F32BE, 3, {1, 2, 3}, false},
                        {"rows", H5T_IEEE_F32LE, 3, {4, 2, 6}, false}};
    pare_data_input in[] = {input("state", PARE_f32, 2, 2, 3), input("rows", PARE_f32, 2, -1, 6)};
    pare_data *d = open_sets(sets, in, 2);
    pare_reader *r = NULL;
    pare_batch b;
    const int64_t order[] = {2, 3};
    assert_int_equal(pare_data_count(d), 4);
    assert_int_equal(pare_reader_open(&ctx, &r, d, order, 2, 2, 1), PARE_OK);
    assert_int_equal(pare_reader_next(r, &b), PARE_OK);
    for (int i = 0; i < 2; i++)
        for (int e = 0; e < 6; e++)
            assert_true(((const float *)pare_data_run_input(d, b.input, 0, i))[e] ==
                        (float)element((size_t)e));
    pare_reader_close(r);
    pare_data_close(d);
}

/* --- refusals --- */

static void test_refusals(void **state)
{
    (void)state;
    pare_data_input in[] = {input("a", PARE_f32, 2, -1, 6), input("b", PARE_f32, 1, 6, 0)};
    set sets[] = {{"a", H5T_IEEE_F32LE, 2, {5, 6}, false}, {"b", H5T_IEEE_F32LE, 2, {4, 6}, false}};
    make_sets(sets, 2);
    fails_with(in, 2, "dataset '/b': has 4 samples, but '/a' has 5; they must be equal");
    sets[1] = (set){"b", H5T_IEEE_F32LE, 2, {5, 7}, false};
    make_sets(sets, 2);
    fails_with(in, 2,
               "dataset '/b': has shape [5,7], but input 'b' takes [6]; store samples along");
    sets[1] = (set){"b", H5T_IEEE_F32LE, 3, {5, 6, 1}, false};
    make_sets(sets, 2);
    fails_with(in, 2, "dataset '/b': has shape [5,6,1], but input 'b' takes [6]");
    sets[1] = (set){"b", H5T_IEEE_F32LE, 0, {0}, false};
    make_sets(sets, 2);
    fails_with(in, 2, "dataset '/b': has shape [], but input 'b' takes [6]");
    in[1].shape.rank = 0;
    sets[1] = (set){"b", H5T_IEEE_F32LE, 2, {5, 1}, false};
    make_sets(sets, 2);
    fails_with(in, 2,
               "dataset '/b': has shape [5,1], but input 'b' takes []; store samples along "
               "one axis");
    sets[1] = (set){"b", H5T_STD_I64LE, 1, {5}, false};
    make_sets(sets, 2);
    fails_with(in, 2, "dataset '/b': has type s64, but input 'b' takes f32");
    in[1].dtype = PARE_s64;
    sets[1].type = H5T_IEEE_F32LE;
    make_sets(sets, 2);
    fails_with(in, 2, "dataset '/b': has type f32, but input 'b' takes s64");
    hid_t file = file_new(false), nothing = H5Screate(H5S_NULL);
    hid_t d = H5Dcreate2(file, "b", H5T_STD_I64LE, nothing, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(d), H5Sclose(nothing), H5Fclose(file);
    fails_with(in + 1, 1, "dataset '/b': has 0 axes");
}

/* --- outputs with shapes of their own --- */

enum { ROWS = 4 };
static const pare_shape row_shape[ROWS] = {{.rank = 2, .dim = {2, 3}},
                                           {.rank = 2, .dim = {2, 3}},
                                           {.rank = 2, .dim = {0, 3}},
                                           {.rank = 2, .dim = {1, 3}}};

/* Writes the rows, so many at a time, beside labels of one shape. */
static void write_rows(const pare_shape *shape, int rows, int at_a_time)
{
    float x[ROWS * 6];
    const int64_t y[ROWS] = {5, 6, 7, 8};
    pare_data_column columns[2] = {
        {.name = "g/boxes", .dtype = PARE_f32, .shape = shape[0], .varies = true},
        {.name = "labels", .dtype = PARE_s64}};
    pare_data_writer *w = NULL;
    for (int i = 0; i < ROWS * 6; i++) x[i] = (float)i;
    unlink(path);
    assert_int_equal(pare_data_create(&ctx, &w, path, columns, 2), PARE_OK);
    const float *at = x;
    for (int i = 0; i < rows; i += at_a_time) {
        const int count = rows - i < at_a_time ? rows - i : at_a_time;
        const void *data[2] = {at, y + i};
        const pare_shape *shapes[2] = {shape + i, NULL};
        assert_int_equal(pare_data_append_varied(w, data, shapes, count), PARE_OK);
        for (int k = 0; k < count; k++) at += pare_shape_count(&shape[i + k]);
    }
    assert_int_equal(pare_data_commit(w), PARE_OK);
}

static void check_row(hid_t file, int row, const pare_shape *shape, int first)
{
    char name[32];
    float x[8];
    hsize_t dim[4];
    snprintf(name, sizeof name, "g/boxes/%d", row);
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(d);
    assert_int_equal(H5Sget_simple_extent_dims(space, dim, NULL), shape->rank);
    for (int i = 0; i < shape->rank; i++) assert_int_equal(dim[i], shape->dim[i]);
    assert_true(H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    for (int i = 0; i < (int)pare_shape_count(shape); i++) assert_true(x[i] == (float)(first + i));
    H5Sclose(space), H5Dclose(d);
}

static void test_rows_that_differ_become_a_group(void **state)
{
    (void)state;
    size_t size, again;
    write_rows(row_shape, ROWS, 1);
    uint8_t *one = slurp(&size);
    write_rows(row_shape, ROWS, 3);
    uint8_t *three = slurp(&again);
    assert_int_equal(size, again); /* however many come at a time */
    assert_memory_equal(one, three, size);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    for (int i = 0, first = 0; i < ROWS; first += (int)pare_shape_count(&row_shape[i++]))
        check_row(file, i, &row_shape[i], first);
    hid_t labels = H5Dopen2(file, "labels", H5P_DEFAULT), space = H5Dget_space(labels);
    assert_int_equal(H5Sget_simple_extent_npoints(space), ROWS);
    H5Sclose(space), H5Dclose(labels), H5Fclose(file);
    write_rows(row_shape + 2, 2, 2); /* an empty first row */
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    check_row(file, 1, &row_shape[3], 0);
    H5Fclose(file);
    free(one);
    free(three);
}

static void test_rows_that_agree_stay_a_dataset(void **state)
{
    (void)state;
    hsize_t dim[3];
    write_rows(row_shape, 2, 1);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t d = H5Dopen2(file, "g/boxes", H5P_DEFAULT), space = H5Dget_space(d);
    assert_int_equal(H5Sget_simple_extent_dims(space, dim, NULL), 3);
    assert_true(dim[0] == 2 && dim[1] == 2 && dim[2] == 3);
    H5Sclose(space), H5Dclose(d), H5Fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_and_free_batch),
        cmocka_unit_test(test_whole_inputs_run_alone),
        cmocka_unit_test(test_scalars_serve_every_sample),
        cmocka_unit_test(test_one_row_serves_every_sample),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_rows_that_differ_become_a_group),
        cmocka_unit_test(test_rows_that_agree_stay_a_dataset),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
