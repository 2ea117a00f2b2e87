/* SPDX-License-Identifier: Apache-2.0 */
/* Scaling of channels before weights alone are rounded: which forms it serves, that the function
   stays, and that it does what it is for. */
#include "formats/data.h"
#include "quant/quant.h"
#include "tests/quant/quant_case.h"
#include "tests/quant/random_number.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROWS = 96, WIDTH = 32, HEADS = 2, TOKENS = 4, INNER = WIDTH / TOKENS };
static char path[64];

/* What makes the channels that "second" reads. The first ones can be divided, the others not: a
   bound would cut them elsewhere; the output of the model is read; another node reads them. */
static const char *const forms[] = {"norm",      "scale", "relu",   "gate",
                                    "attention", "clip",  "output", "residual"};
enum { SERVED = 5 };

static void fill(float *to, int count, uint64_t seed)
{
    for (int i = 0; i < count; i++) to[i] = (float)random_number(&seed);
}

/* (rows, columns) whose columns differ in size by up to 2^8. */
static void fill_spread(float *to, int rows, int columns, uint64_t seed)
{
    fill(to, rows * columns, seed);
    for (int i = 0; i < rows * columns; i++)
        to[i] *= exp2f((float)(i % columns * 5 % 8) - 4) / sqrtf((float)rows);
}

static void constants(graph_case *g)
{
    static float first[WIDTH * WIDTH], second[WIDTH * WIDTH], vector[WIDTH];
    fill_spread(first, WIDTH, WIDTH, 1);
    fill(second, WIDTH * WIDTH, 2);
    graph_floats(g, "first", 2, (int64_t[]){WIDTH, WIDTH}, first);
    graph_floats(g, "second", 2, (int64_t[]){WIDTH, WIDTH}, second);
    fill_spread(first, INNER, INNER, 3);
    graph_floats(g, "value", 2, (int64_t[]){INNER, INNER}, first);
    graph_floats(g, "out", 2, (int64_t[]){INNER, INNER}, second);
    fill(second, WIDTH * WIDTH, 4);
    graph_floats(g, "gate", 2, (int64_t[]){WIDTH, WIDTH}, second);
    fill_spread(vector, 1, WIDTH, 5);
    graph_floats(g, "spread", 1, (int64_t[]){WIDTH}, vector);
    fill_spread(vector, 1, WIDTH, 6);
    graph_floats(g, "bias", 1, (int64_t[]){WIDTH}, vector);
    graph_floats(g, "zero", 0, NULL, (float[]){0});
    graph_floats(g, "high", 0, NULL, (float[]){6});
    graph_ints(g, "tokens", 1, (int64_t[]){3}, (int64_t[]){0, TOKENS, INNER});
    graph_ints(g, "heads", 1, (int64_t[]){4}, (int64_t[]){0, TOKENS, HEADS, INNER / HEADS});
}

static void turn(graph_case *g, const char *in, const char *out)
{
    assert_int_equal(
        pare_node_set_ints(graph_node(g, "Transpose", in, out), "perm", (int64_t[]){0, 2, 1, 3}, 4),
        PARE_OK);
}

/* Each token's numbers in heads are weights and values of an attention. */
static void attention(graph_case *g)
{
    graph_node(g, "Reshape", "x tokens", "h");
    graph_node(g, "Reshape", "h heads", "split");
    turn(g, "split", "scores");
    graph_node(g, "Softmax", "scores", "weights");
    graph_node(g, "MatMul", "h value", "v");
    graph_node(g, "Reshape", "v heads", "v_split");
    turn(g, "v_split", "v_heads");
    graph_node(g, "MatMul", "weights v_heads", "mixed");
    turn(g, "mixed", "joined");
    graph_node(g, "Reshape", "joined tokens", "made");
    graph_node(g, "MatMul", "made out", "y");
}

static void build(graph_case *g, const char *form)
{
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    constants(g);
    if (!strcmp(form, "attention")) {
        attention(g);
        graph_output(g, "y");
        return;
    }
    if (!strcmp(form, "norm")) {
        graph_node(g, "LayerNormalization", "x spread bias", "made");
    } else if (!strcmp(form, "scale")) {
        graph_node(g, "Mul", "spread x", "scaled");
        graph_node(g, "Add", "scaled bias", "made");
    } else if (!strcmp(form, "gate")) {
        graph_node(g, "MatMul", "x gate", "gated");
        graph_node(g, "Sigmoid", "gated", "opened");
        graph_node(g, "MatMul", "x first", "up");
        graph_node(g, "Mul", "opened up", "made");
    } else {
        graph_node(g, "Gemm", "x first bias", "sum");
        if (!strcmp(form, "clip"))
            graph_node(g, "Clip", "sum zero high", "made");
        else
            graph_node(g, "Relu", "sum", "made");
    }
    if (!strcmp(form, "residual")) {
        graph_node(g, "MatMul", "made second", "product");
        graph_node(g, "Add", "made product", "y");
    } else {
        graph_node(g, "MatMul", "made second", "y");
    }
    graph_output(g, "y");
    if (!strcmp(form, "output")) graph_output(g, "made");
}

static pare_status quantize(graph_case *g, const pare_quant_options *o)
{
    pare_data *data = NULL;
    pare_data_input in = {"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
    pare_status st = pare_data_open(&g->ctx, &data, path, &in, 1);
    if (st == PARE_OK) st = pare_quantize_on_data(&g->ctx, g->model, data, o, NULL, NULL);
    pare_data_close(data);
    return st;
}

/* Squared error over the energy of the outputs of new samples. */
static double error_of(const char *form, const pare_quant_options *o)
{
    static float x[ROWS * WIDTH], y[2][ROWS * WIDTH];
    double error = 0, energy = 0;
    fill(x, ROWS * WIDTH, 8);
    for (int k = 0; k < 2; k++) {
        graph_case g;
        build(&g, form);
        if (k && quantize(&g, o) != PARE_OK) fail_msg("%s: %s", form, g.ctx.message);
        assert_int_equal(graph_count(&g, "Div"), 0);
        graph_run(&g, 2, (int64_t[]){ROWS, WIDTH}, x, y[k], ROWS * WIDTH);
        graph_close(&g);
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const double d = (double)y[1][i] - (double)y[0][i];
        error += d * d;
        energy += (double)y[0][i] * (double)y[0][i];
    }
    return error / energy;
}

static pare_quant_options options(pare_rounding rounding, bool equalize)
{
    return (pare_quant_options){.precision = PARE_PRECISION_W4A16,
                                .block_size = 32,
                                .rounding = rounding,
                                .equalize = equalize};
}

static void channels_get_the_size_that_rounds_best(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof forms / sizeof *forms); i++) {
        const pare_quant_options on = options(PARE_ROUNDING_NEAREST, true),
                                 off = options(PARE_ROUNDING_NEAREST, false);
        const double with = error_of(forms[i], &on), without = error_of(forms[i], &off);
        if (i < SERVED ? !(with < 0.95 * without) : with != without)
            fail_msg("%s: error %.4g scaled, %.4g not", forms[i], with, without);
    }
}

static void gptq_rounds_what_was_scaled(void **state)
{
    (void)state;
    for (int i = 0; i < SERVED; i++) {
        const pare_quant_options on = options(PARE_ROUNDING_GPTQ, true),
                                 off = options(PARE_ROUNDING_GPTQ, false);
        const double with = error_of(forms[i], &on), without = error_of(forms[i], &off);
        if (!(with < 1.05 * without))
            fail_msg("%s: error %.4g scaled, %.4g not", forms[i], with, without);
    }
}

/* Factors are powers of two there, and move into the exponents of the maker's scales. */
static void scales_that_are_powers_of_two_stay_so(void **state)
{
    (void)state;
    for (int i = 0; i < SERVED; i++) {
        pare_quant_options on = options(PARE_ROUNDING_NEAREST, true), off = on;
        on.float_weights = off.float_weights = true;
        off.equalize = false;
        const double with = error_of(forms[i], &on), without = error_of(forms[i], &off);
        if (!(with < 1.02 * without))
            fail_msg("%s: error %.4g scaled, %.4g not", forms[i], with, without);
    }
}

/* Each allocation fails once: out of memory, and nothing else. */
static void memory_that_runs_out_is_said(void **state)
{
    (void)state;
    const pare_quant_options o = options(PARE_ROUNDING_DEFAULT, true);
    for (long after = 0;; after += 7) {
        graph_case g;
        build(&g, "relu");
        g.ctx.fail_after = after;
        const pare_status st = quantize(&g, &o);
        g.ctx.fail_after = -1;
        if (st != PARE_OK && st != PARE_MEMORY) fail_msg("%ld: %s", after, g.ctx.message);
        graph_close(&g);
        if (st == PARE_OK) break;
    }
}

static void write_data(pare_ctx *ctx)
{
    static float x[ROWS * WIDTH];
    fill(x, ROWS * WIDTH, 7);
    write_rows(ctx, path, WIDTH, x, ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_get_the_size_that_rounds_best),
        cmocka_unit_test(gptq_rounds_what_was_scaled),
        cmocka_unit_test(scales_that_are_powers_of_two_stay_so),
        cmocka_unit_test(memory_that_runs_out_is_said),
    };
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    snprintf(path, sizeof path, "awq.%d.h5", (int)getpid());
    write_data(&ctx);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}
