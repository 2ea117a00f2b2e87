/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision: a small product that makes all of the error stays float, within its budget. */
#include "calib/calib.h"
#include "formats/data.h"
#include "quant/quant.h"
#include "tests/quant/quant_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SAMPLES = 24, WIDTH = 64, CLASSES = 2 };
static char path[64];

static void write_data(pare_ctx *ctx)
{
    static float x[SAMPLES * WIDTH];
    for (int i = 0; i < SAMPLES * WIDTH; i++) x[i] = (float)(i * 37 % 255 - 127);
    x[0] = 127;
    write_rows(ctx, path, WIDTH, x, SAMPLES);
}

/* "first" is exact in int8: x are whole numbers up to 127, its weight is the identity. What it
   makes is 0.3 above whole numbers, which "second" rounds. */
static void build(graph_case *g)
{
    static float identity[WIDTH * WIDTH], bias[WIDTH], second[WIDTH * CLASSES];
    for (int i = 0; i < WIDTH; i++) {
        identity[i * WIDTH + i] = 1;
        bias[i] = 0.3f;
        for (int c = 0; c < CLASSES; c++) second[i * CLASSES + c] = 1;
    }
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    graph_floats(g, "identity", 2, (int64_t[]){WIDTH, WIDTH}, identity);
    graph_floats(g, "bias", 1, (int64_t[]){WIDTH}, bias);
    graph_floats(g, "weight", 2, (int64_t[]){WIDTH, CLASSES}, second);
    graph_node(g, "Gemm", "x identity bias", "made")->name = "first";
    graph_node(g, "Relu", "made", "kept");
    graph_node(g, "MatMul", "kept weight", "y")->name = "second";
    graph_output(g, "y");
}

static pare_status quantize(graph_case *g, double mixed, int threads, pare_quant_facts *facts)
{
    pare_data *data = NULL;
    pare_data_input in = {"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
    pare_quant_options o;
    pare_calib_options calib;
    int64_t samples[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) samples[i] = i;
    pare_quant_options_init(&o);
    o.equalize = o.bias_correction = false;
    o.mixed = mixed;
    pare_calib_options_init(&calib);
    calib.samples = samples;
    calib.sample_count = SAMPLES;
    calib.batch = 8;
    calib.threads = threads;
    pare_status st = pare_data_open(&g->ctx, &data, path, &in, 1);
    if (st == PARE_OK) st = pare_quantize_on_data(&g->ctx, g->model, data, &o, &calib, facts);
    pare_data_close(data);
    return st;
}

static void the_node_that_errs_stays_float(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        graph_case g;
        pare_quant_facts facts = {0};
        build(&g);
        if (quantize(&g, 0.2, threads, &facts) != PARE_OK) fail_msg("%s", g.ctx.message);
        assert_int_equal(facts.quantized_nodes, 1);
        assert_int_equal(facts.float_nodes, 1);
        assert_string_equal(facts.sensitive_nodes, "second");
        assert_non_null(strstr(facts.note[0], "100 % of the outputs' error"));
        graph_close(&g);
    }
}

static void it_does_not_beyond_the_budget(void **state)
{
    static const double budgets[] = {0, 0.01};
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case g;
        pare_quant_facts facts = {0};
        build(&g);
        if (quantize(&g, budgets[i], 1, &facts) != PARE_OK) fail_msg("%s", g.ctx.message);
        assert_int_equal(facts.quantized_nodes, 2);
        assert_null(facts.sensitive_nodes);
        graph_close(&g);
    }
}

/* Each allocation fails once: out of memory, and nothing else. */
static void memory_that_runs_out_is_said(void **state)
{
    (void)state;
    for (long after = 0;; after += 7) {
        graph_case g;
        pare_quant_facts facts = {0};
        build(&g);
        g.ctx.fail_after = after;
        const pare_status st = quantize(&g, 0.2, 1, &facts);
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
        cmocka_unit_test(the_node_that_errs_stays_float),
        cmocka_unit_test(it_does_not_beyond_the_budget),
        cmocka_unit_test(memory_that_runs_out_is_said),
    };
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    snprintf(path, sizeof path, "sensitivity.%d.h5", (int)getpid());
    write_data(&ctx);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}
