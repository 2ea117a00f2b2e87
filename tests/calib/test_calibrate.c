/* SPDX-License-Identifier: Apache-2.0 */
/* The calibration run on small graphs: what is observed, exact counts, and that batch, threads and
   order leave no trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "calib/histogram.h"
#include "runtime/passes/passes.h"
#include "tests/calib/tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 37, WIDTH = 6 };

static pare_ctx ctx;
static tables files;

static float value_of(int sample, int i) { return sinf((float)(sample * WIDTH + i)) * 3; }

static void write_data(void)
{
    pare_data_column column = {
        .name = "x", .dtype = PARE_f32, .shape = {.rank = 1, .dim = {WIDTH}}};
    pare_data_writer *w = NULL;
    float x[SAMPLES * WIDTH];
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < WIDTH; i++) x[s * WIDTH + i] = value_of(s, i);
    const void *block[1] = {x};
    assert_int_equal(pare_data_create(&ctx, &w, files.data, &column, 1), PARE_OK);
    assert_int_equal(pare_data_append(w, block, SAMPLES), PARE_OK);
    assert_int_equal(pare_data_commit(w), PARE_OK);
}

static pare_value *node(pare_graph *g, const char *op, pare_value *const *in, int in_count,
                        const char *out)
{
    pare_value *v = NULL;
    pare_node *n = NULL;
    assert_int_equal(pare_value_new(g, &v, out), PARE_OK);
    assert_int_equal(pare_node_new(g, &n, g->node_count, op, "", out, in, in_count, &v, 1),
                     PARE_OK);
    return v;
}

/* x -> Flatten -> MatMul -> Add (bias) -> Relu -> MatMul -> y. Weights: twice the identity. */
static pare_model *make_model(int64_t batch)
{
    pare_model *m = NULL;
    pare_value *x = NULL, *w = NULL, *b = NULL;
    float weight[WIDTH * WIDTH] = {0}, bias[WIDTH] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f};
    const int64_t dims[2] = {WIDTH, WIDTH};
    for (int i = 0; i < WIDTH; i++) weight[i * WIDTH + i] = 2;
    assert_int_equal(pare_model_new(&ctx, &m, "made.onnx"), PARE_OK);
    assert_int_equal(pare_model_set_opset(m, "", 17), PARE_OK);
    pare_graph *g = m->graph;
    assert_int_equal(pare_value_new(g, &x, "x"), PARE_OK);
    pare_shape shape = {.rank = 2, .dim = {batch, WIDTH}};
    pare_value_set_type(x, PARE_f32, &shape);
    x->is_input = true;
    assert_int_equal(pare_values_add(g, &g->in, x), PARE_OK);
    assert_int_equal(pare_init_new(g, &w, "w", PARE_f32, 2, dims, weight), PARE_OK);
    assert_int_equal(pare_init_new(g, &b, "b", PARE_f32, 1, dims, bias), PARE_OK);
    pare_value *v = node(g, "Flatten", &x, 1, "flat");
    v = node(g, "MatMul", (pare_value *[]){v, w}, 2, "product");
    v = node(g, "Add", (pare_value *[]){v, b}, 2, "sum");
    v = node(g, "Relu", &v, 1, "relu");
    v = node(g, "MatMul", (pare_value *[]){v, w}, 2, "y");
    v->is_output = true;
    assert_int_equal(pare_values_add(g, &g->out, v), PARE_OK);
    pare_infer_options infer = {.fold = true};
    if (pare_pass_infer(m, &infer) != PARE_OK) fail_msg("%s", ctx.message);
    return m;
}

static bool minmax_only; /* what the calibrations below ask for */

/* Frees the model. */
static pare_status calibrate_model(pare_ranges **out, pare_model *m, int64_t n, int first,
                                   int batch, int threads, bool turned)
{
    pare_data *d = NULL;
    pare_data_input in = {"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
    int64_t samples[SAMPLES];
    for (int i = 0; i < n; i++) samples[i] = first + (turned ? i * 7 % (int)n : i);
    pare_calib_options options = {.samples = samples,
                                  .sample_count = n,
                                  .batch = batch,
                                  .threads = threads,
                                  .minmax_only = minmax_only,
                                  .model_hash = "00112233445566778899aabbccddeeff"};
    pare_status st = pare_data_open(&ctx, &d, files.data, &in, 1);
    if (st == PARE_OK) st = pare_calibrate(&ctx, out, m, d, &options);
    pare_data_close(d);
    pare_model_free(m);
    return st;
}

static pare_status calibrate(pare_ranges **out, int64_t fixed, int64_t n, int first, int batch,
                             int threads, bool turned)
{
    return calibrate_model(out, make_model(fixed), n, first, batch, threads, turned);
}

static void test_points(void **state)
{
    (void)state;
    pare_model *m = make_model(-1);
    const char **names = NULL;
    int count = 0;
    assert_int_equal(pare_calib_observed(&ctx, m, &names, &count), PARE_OK);
    /* not product and sum: bias and clamp are fused after the matrix product */
    const char *want[] = {"flat", "relu", "x", "y"};
    assert_int_equal(count, 4);
    for (int i = 0; i < 4; i++) assert_string_equal(names[i], want[i]);
    pare_free(names);
    pare_model_free(m);
}

static void test_counts(void **state)
{
    (void)state;
    pare_ranges *r = NULL;
    if (calibrate(&r, -1, SAMPLES, 0, 5, 2, false) != PARE_OK) fail_msg("%s", ctx.message);
    assert_int_equal(pare_ranges_count(r), 4);
    assert_int_equal(pare_ranges_samples(r), SAMPLES);
    assert_string_equal(pare_ranges_model_hash(r), "00112233445566778899aabbccddeeff");
    float low = INFINITY, high = -INFINITY;
    uint64_t zeros = 0;
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < WIDTH; i++) {
            float v = value_of(s, i);
            low = fminf(low, v);
            high = fmaxf(high, v);
            zeros += 2 * v + 0.5f <= 0;
        }
    const char *same[] = {"x", "flat"}; /* flat is x under another shape */
    for (int i = 0; i < 2; i++) {
        const pare_histogram *h = pare_ranges_find(r, same[i])->histogram;
        assert_int_equal(h->count, SAMPLES * WIDTH);
        assert_true(h->min == low && h->max == high);
    }
    const pare_histogram *relu = pare_ranges_find(r, "relu")->histogram;
    assert_int_equal(relu->count, SAMPLES * WIDTH);
    assert_int_equal(relu->zero, zeros);
    assert_true(relu->min == 0 && relu->max == 2 * high + 0.5f);
    assert_true(pare_ranges_find(r, "y")->histogram->max == 2 * (2 * high + 0.5f));
    pare_ranges_free(r);
}

static void test_batch_threads_and_order_leave_no_trace(void **state)
{
    (void)state;
    pare_ranges *r = NULL;
    assert_int_equal(calibrate(&r, -1, SAMPLES, 0, 1, 1, false), PARE_OK);
    assert_int_equal(pare_ranges_write(&ctx, r, files.a), PARE_OK);
    pare_ranges_free(r);
    const int batches[] = {1, 7, 64, 1000};
    for (int b = 0; b < 4; b++)
        for (int threads = 1; threads < 4; threads++) {
            assert_int_equal(calibrate(&r, -1, SAMPLES, 0, batches[b], threads, b % 2), PARE_OK);
            assert_int_equal(pare_ranges_write(&ctx, r, files.b), PARE_OK);
            tables_assert_same(&files, &ctx);
            pare_ranges_free(r);
        }
    pare_ranges *half = NULL;
    assert_int_equal(calibrate(&r, -1, 20, 0, 3, 2, false), PARE_OK);
    assert_int_equal(calibrate(&half, -1, SAMPLES - 20, 20, 3, 2, true), PARE_OK);
    assert_int_equal(pare_ranges_merge(&ctx, r, half), PARE_OK);
    assert_int_equal(pare_ranges_write(&ctx, r, files.b), PARE_OK);
    tables_assert_same(&files, &ctx);
    pare_ranges_free(r);
    pare_ranges_free(half);
}

/* x (N, 6) -> image (N, 2, 3, 1) -> Conv 1x1 -> Reshape (N, 4, 3) -> Transpose -> MatMul -> y, the
   head of a vision transformer: the plan keeps the convolution's output channels last, so that
   Reshape and Transpose are one view of it, and the reshaped tensor's own node is gone. */
static pare_model *make_patches(void)
{
    const float w[4][2] = {{1, 0}, {0, 1}, {-2, 0}, {0, 3}},
                eye[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    const int64_t w_dims[] = {4, 2, 1, 1}, eye_dims[] = {4, 4}, four = 4, three = 3;
    const int64_t image[] = {-1, 2, 3, 1}, flat[] = {-1, 4, 3}, perm[] = {0, 2, 1};
    pare_model *m = NULL;
    pare_value *x = NULL, *c[4];
    assert_int_equal(pare_model_new(&ctx, &m, "made.onnx"), PARE_OK);
    assert_int_equal(pare_model_set_opset(m, "", 17), PARE_OK);
    pare_graph *g = m->graph;
    pare_shape shape = {.rank = 2, .dim = {-1, WIDTH}};
    assert_int_equal(pare_value_new(g, &x, "x"), PARE_OK);
    pare_value_set_type(x, PARE_f32, &shape);
    x->is_input = true;
    assert_int_equal(pare_values_add(g, &g->in, x), PARE_OK);
    assert_int_equal(pare_init_new(g, &c[0], "image_shape", PARE_s64, 1, &four, image), PARE_OK);
    assert_int_equal(pare_init_new(g, &c[1], "w", PARE_f32, 4, w_dims, w), PARE_OK);
    assert_int_equal(pare_init_new(g, &c[2], "flat_shape", PARE_s64, 1, &three, flat), PARE_OK);
    assert_int_equal(pare_init_new(g, &c[3], "eye", PARE_f32, 2, eye_dims, eye), PARE_OK);
    pare_value *v = node(g, "Reshape", (pare_value *[]){x, c[0]}, 2, "image");
    v = node(g, "Conv", (pare_value *[]){v, c[1]}, 2, "conv");
    v = node(g, "Reshape", (pare_value *[]){v, c[2]}, 2, "patches");
    v = node(g, "Transpose", &v, 1, "tokens");
    assert_int_equal(pare_node_set_ints(v->producer, "perm", perm, 3), PARE_OK);
    v = node(g, "MatMul", (pare_value *[]){v, c[3]}, 2, "y");
    v->is_output = true;
    assert_int_equal(pare_values_add(g, &g->out, v), PARE_OK);
    if (pare_pass_infer(m, &(pare_infer_options){.fold = true}) != PARE_OK)
        fail_msg("%s", ctx.message);
    return m;
}

static void test_a_reshape_fused_away_has_its_source_s_values(void **state)
{
    (void)state;
    pare_ranges *r = NULL;
    pare_model *m = make_patches();
    if (calibrate_model(&r, m, SAMPLES, 0, 5, 2, false) != PARE_OK) fail_msg("%s", ctx.message);
    float low = INFINITY, high = -INFINITY;
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < WIDTH; i++) {
            float v = value_of(s, i), low_of, high_of; /* first three: channel 0 */
            low_of = fminf(v, (i < 3 ? -2 : 3) * v);
            high_of = fmaxf(v, (i < 3 ? -2 : 3) * v);
            low = fminf(low, low_of);
            high = fmaxf(high, high_of);
        }
    const char *same[] = {"conv", "patches", "tokens"};
    for (int i = 0; i < 3; i++) {
        const pare_stats *s = pare_ranges_find(r, same[i]);
        if (!s) fail_msg("%s has no histogram", same[i]);
        assert_int_equal(s->histogram->count, SAMPLES * 12);
        assert_true(s->histogram->min == low && s->histogram->max == high);
    }
    pare_ranges_free(r);
}

/* Extremes: every tensor, those too that the plan would fuse away, and no bins. */
static void test_extremes_of_every_tensor(void **state)
{
    (void)state;
    pare_ranges *r = NULL;
    minmax_only = true;
    pare_status st = calibrate(&r, -1, SAMPLES, 0, 5, 2, false);
    minmax_only = false;
    if (st != PARE_OK) fail_msg("%s", ctx.message);
    float low = INFINITY, high = -INFINITY;
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < WIDTH; i++) {
            low = fminf(low, value_of(s, i));
            high = fmaxf(high, value_of(s, i));
        }
    const struct {
        const char *name;
        float low, high;
    } want[] = {{"flat", low, high},
                {"product", 2 * low, 2 * high},
                {"relu", 0, 2 * high + 0.5f},
                {"sum", 2 * low + 0.5f, 2 * high + 0.5f},
                {"x", low, high},
                {"y", 0, 2 * (2 * high + 0.5f)}};
    assert_int_equal(pare_ranges_count(r), 6);
    for (int i = 0; i < 6; i++) {
        const pare_stats *s = pare_ranges_at(r, i);
        assert_string_equal(s->name, want[i].name);
        assert_int_equal(s->histogram->count, SAMPLES * WIDTH);
        assert_true(s->histogram->min == want[i].low && s->histogram->max == want[i].high);
        assert_null(s->histogram->slot);
    }
    pare_ranges_free(r);
}

static void keep_line(void *user, pare_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 256, "%s", line);
}

static void test_fixed_batch(void **state)
{
    (void)state;
    char line[256] = "";
    pare_ranges *r = NULL;
    ctx.log = keep_line;
    ctx.log_user = line;
    assert_int_equal(calibrate(&r, 8, SAMPLES, 0, 5, 2, false), PARE_OK);
    ctx.log = NULL;
    assert_non_null(strstr(line, "its batch is fixed to 8; 32 of 37 samples are run"));
    assert_int_equal(pare_ranges_samples(r), 32);
    assert_int_equal(pare_ranges_find(r, "x")->histogram->count, 32 * WIDTH);
    pare_ranges_free(r);
    pare_ctx_clear(&ctx);
    assert_int_equal(calibrate(&r, 64, SAMPLES, 0, 5, 2, false), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "its batch is fixed to 64, but only 37 samples"));
}

static void test_interruption(void **state)
{
    (void)state;
    volatile int stop = 1;
    pare_ranges *r = NULL;
    ctx.interrupted = &stop;
    pare_ctx_clear(&ctx);
    assert_int_equal(calibrate(&r, -1, SAMPLES, 0, 5, 2, false), PARE_INTERRUPTED);
    ctx.interrupted = NULL;
}

static int set_up(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    tables_open(&files);
    write_data();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return tables_close(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_a_reshape_fused_away_has_its_source_s_values),
        cmocka_unit_test(test_extremes_of_every_tensor),
        cmocka_unit_test(test_batch_threads_and_order_leave_no_trace),
        cmocka_unit_test(test_fixed_batch),
        cmocka_unit_test(test_interruption),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
