/* SPDX-License-Identifier: Apache-2.0 */
/* Bias correction layer after layer: what a clipped input shifts is made good, and only where the
   outputs come nearer. */
#include "calib/calib.h"
#include "formats/data.h"
#include "quant/output_error.h"
#include "quant/quant.h"
#include "tests/quant/quant_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SAMPLES = 64, WIDTH = 8, OUTPUTS = 3 };
static char path[64];
static float x[SAMPLES * WIDTH];

/* One value of eight is far out: a percentile clips it, and the means of all outputs fall. */
static void write_data(pare_ctx *ctx)
{
    for (int i = 0; i < SAMPLES * WIDTH; i++)
        x[i] = (float)(i * 37 % 101) / 101 + (i % WIDTH == i / WIDTH / 2 % WIDTH ? 2 : 0);
    write_rows(ctx, path, WIDTH, x, SAMPLES);
}

/* Where the first layer's bias is. */
typedef enum form { OWN, SUM, NONE, FORMS } form;

static void build(graph_case *g, form of)
{
    static float first[WIDTH * WIDTH], second[WIDTH * OUTPUTS];
    static const float bias[WIDTH] = {1, 0.5f, 0.25f, 2, 0, 1, 3, 0.125f};
    for (int i = 0; i < WIDTH * WIDTH; i++) first[i] = (float)(i * 7 % 11) / 11;
    for (int i = 0; i < WIDTH * OUTPUTS; i++) second[i] = (float)(i * 5 % 9 - 3) / 9;
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    graph_floats(g, "first", 2, (int64_t[]){WIDTH, WIDTH}, first);
    graph_floats(g, "bias", 1, (int64_t[]){WIDTH}, bias);
    graph_floats(g, "second", 2, (int64_t[]){WIDTH, OUTPUTS}, second);
    graph_floats(g, "shift", 1, (int64_t[]){OUTPUTS}, bias);
    if (of == SUM) {
        graph_node(g, "MatMul", "x first", "product");
        graph_node(g, "Add", "product bias", "made");
    } else {
        graph_node(g, "Gemm", of == OWN ? "x first bias" : "x first", "made");
    }
    graph_node(g, "Relu", "made", "kept");
    graph_node(g, "Gemm", "kept second shift", "y");
    graph_output(g, "y");
}

typedef struct how {
    bool fast, onnxruntime;
    form of;
    int threads;
    double percentile;
} how;

static pare_status quantize(graph_case *g, const how *h)
{
    pare_data *data = NULL;
    pare_data_input in = {"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
    pare_quant_options o;
    pare_calib_options calib;
    int64_t samples[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) samples[i] = i;
    pare_quant_options_init(&o);
    o.equalize = false;
    o.mixed = 0;
    o.fast_correction = h->fast;
    o.rule = (pare_range_rule){.method = PARE_METHOD_PERCENTILE,
                               .percentile = h->percentile,
                               .symmetric = !h->onnxruntime};
    o.unsigned_activations = h->onnxruntime;
    o.target = h->onnxruntime ? PARE_TARGET_ONNXRUNTIME : PARE_TARGET_TENSORRT;
    pare_calib_options_init(&calib);
    calib.samples = samples;
    calib.sample_count = SAMPLES;
    calib.batch = 16;
    calib.threads = h->threads;
    pare_status st = pare_data_open(&g->ctx, &data, path, &in, 1);
    if (st == PARE_OK) st = pare_quantize_on_data(&g->ctx, g->model, data, &o, &calib, NULL);
    pare_data_close(data);
    return st;
}

static const int64_t dims[] = {SAMPLES, WIDTH};

/* The squared error of the outputs, of every second sample (those that judge), and that of the
   means of the others (which corrections are of). */
static double error_of(const how *h, double *of_means)
{
    graph_case g;
    float exact[SAMPLES * OUTPUTS], y[SAMPLES * OUTPUTS];
    double sum = 0, mean[OUTPUTS] = {0};
    build(&g, h->of);
    graph_run(&g, 2, dims, x, exact, SAMPLES * OUTPUTS);
    if (quantize(&g, h) != PARE_OK) fail_msg("%s", g.ctx.message);
    graph_run(&g, 2, dims, x, y, SAMPLES * OUTPUTS);
    for (int i = 0; i < SAMPLES * OUTPUTS; i++) {
        const double d = (double)y[i] - (double)exact[i];
        if (i / OUTPUTS % 2 == 0)
            sum += d * d;
        else
            mean[i % OUTPUTS] += d / (SAMPLES / 2);
    }
    *of_means = 0;
    for (int o = 0; o < OUTPUTS; o++) *of_means += mean[o] * mean[o];
    graph_close(&g);
    return sum;
}

static void what_clipping_shifts_is_made_good(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * FORMS; i++) {
        how h = {.threads = 1, .percentile = 85, .onnxruntime = i & 1, .of = (form)(i / 2)};
        double full_means, fast_means;
        const double full = error_of(&h, &full_means);
        h.fast = true;
        const double fast = error_of(&h, &fast_means);
        assert_true(full < 0.9 * fast);
        assert_true(full_means < 0.07 * fast_means); /* a last shift within chance stays */
    }
}

/* Nothing is clipped: what is left is rounding, and no correction may add to it. */
static void it_never_adds_to_the_error(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * FORMS; i++) {
        how h = {.threads = 1, .percentile = 100, .onnxruntime = i & 1, .of = (form)(i / 2)};
        double means;
        const double full = error_of(&h, &means);
        h.fast = true;
        assert_true(full <= 1.000001 * error_of(&h, &means));
    }
}

/* As the target takes it: of s32 with a DequantizeLinear, or a float. */
static void a_layer_without_a_bias_gets_one(void **state)
{
    (void)state;
    for (int onnxruntime = 0; onnxruntime < 2; onnxruntime++) {
        const how h = {.threads = 1, .percentile = 85, .onnxruntime = onnxruntime, .of = NONE};
        graph_case g;
        build(&g, NONE);
        if (quantize(&g, &h) != PARE_OK) fail_msg("%s", g.ctx.message);
        const pare_node *node = graph_value(&g, "made")->producer;
        const pare_value *bias = pare_node_in(node, 2);
        assert_non_null(bias);
        if (onnxruntime) {
            assert_string_equal(bias->producer->op_type, "DequantizeLinear");
            bias = bias->producer->in[0];
        }
        assert_int_equal(bias->data->dtype, onnxruntime ? PARE_s32 : PARE_f32);
        assert_int_equal(bias->data->count, WIDTH);
        graph_close(&g);
    }
}

static void a_fall_of_the_error_is_more_than_chance(void **state)
{
    (void)state;
    const double was[] = {3, 3, 3, 3}, all[] = {2, 2, 2, 2}, some[] = {1, 4, 3, 2};
    const double worse[] = {3, 3, 3, 4};
    assert_true(pare_output_error_falls(was, all, 4, 100));
    /* falls by 2, -1, 0, 1: 0.5 in the mean, with a standard error of sqrt(5 / 12) */
    assert_true(pare_output_error_falls(was, some, 4, 0.77));
    assert_false(pare_output_error_falls(was, some, 4, 0.78));
    assert_false(pare_output_error_falls(was, worse, 4, 0));
    assert_false(pare_output_error_falls(was, was, 4, 0));
    assert_true(pare_output_error_falls(was, all, 1, 1));
}

static void threads_change_nothing(void **state)
{
    graph_case a, b;
    char text[256];
    how h = {.threads = 1, .percentile = 85, .onnxruntime = true};
    (void)state;
    build(&a, NONE);
    build(&b, NONE);
    assert_int_equal(quantize(&a, &h), PARE_OK);
    h.threads = 3;
    assert_int_equal(quantize(&b, &h), PARE_OK);
    const char *apart = pare_model_compare(a.model, b.model, text, sizeof text);
    if (apart) fail_msg("%s", apart);
    graph_close(&a);
    graph_close(&b);
}

static void memory_that_runs_out_is_said(void **state)
{
    const how h = {.threads = 1, .percentile = 85};
    (void)state;
    for (long after = 0;; after += 5) {
        graph_case g;
        build(&g, NONE);
        g.ctx.fail_after = after;
        const pare_status st = quantize(&g, &h);
        g.ctx.fail_after = -1;
        graph_close(&g);
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
        assert_true(after < 1000000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_clipping_shifts_is_made_good),
        cmocka_unit_test(it_never_adds_to_the_error),
        cmocka_unit_test(a_layer_without_a_bias_gets_one),
        cmocka_unit_test(a_fall_of_the_error_is_more_than_chance),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(memory_that_runs_out_is_said),
    };
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    snprintf(path, sizeof path, "correct.%d.h5", (int)getpid());
    write_data(&ctx);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}
