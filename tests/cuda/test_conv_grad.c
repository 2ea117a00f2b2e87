/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions whose weights are computed and both gradients, of f32, f16 and bf16 and of f32 as
   TF32, against the CPU's plain kernels on the same numbers in doubles. */
#include "runtime/exec/exec.h"
#include "runtime/ops/ops.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <math.h>
#include <stdlib.h>

typedef struct sizes {
    int64_t n, c, h, w, m, kernel[2], stride[2], dilation[2], pads[4];
    bool expect; /* kernels whose names end in "_tile" */
    bool slow;   /* not under PARE_EXACT=quick */
} sizes;

/* Edges of tiles of 64 and 128, of chunks of 8 and of steps of depth of 16 and 32. */
static const sizes cases[] = {
    /* one pixel a window: rows, columns and depth below, at and above a tile's */
    {1, 8, 3, 5, 8, {1, 1}, {1, 1}, {1, 1}, {0}, true, false},
    {2, 64, 4, 8, 64, {1, 1}, {1, 1}, {1, 1}, {0}, true, false},
    {3, 72, 5, 7, 136, {1, 1}, {1, 1}, {1, 1}, {0}, true, false},
    {1, 16, 1, 1, 24, {1, 1}, {1, 1}, {1, 1}, {0}, true, false},
    {5, 16, 3, 1, 8, {1, 1}, {2, 1}, {1, 1}, {0}, true, false},
    {2, 64, 5, 7, 72, {1, 1}, {1, 1}, {1, 1}, {0}, true, false},
    {2, 72, 5, 7, 64, {1, 1}, {1, 1}, {1, 1}, {0}, true, false},
    /* windows: padded alike and not, dilated, wider than the picture */
    {2, 16, 7, 6, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, true, false},
    {2, 8, 9, 5, 16, {3, 2}, {1, 1}, {1, 1}, {2, 0, 1, 1}, true, false},
    {1, 24, 8, 9, 8, {3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}, true, false},
    {3, 8, 2, 2, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, true, false},
    {2, 8, 11, 9, 8, {5, 5}, {1, 1}, {1, 1}, {2, 2, 2, 2}, true, false},
    /* strides: each class with taps, classes without, of sizes that differ, dilated */
    {2, 16, 8, 8, 16, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, true, false},
    {1, 8, 9, 7, 24, {3, 3}, {2, 2}, {1, 1}, {0, 1, 1, 0}, true, false},
    {2, 8, 7, 7, 16, {1, 1}, {2, 2}, {1, 1}, {0}, true, false},
    {2, 8, 9, 10, 8, {3, 3}, {2, 2}, {2, 3}, {2, 3, 2, 3}, true, false},
    {1, 8, 10, 13, 8, {2, 4}, {1, 4}, {1, 1}, {0, 1, 0, 2}, true, false},
    {1, 8, 13, 3, 8, {4, 1}, {3, 1}, {1, 1}, {3, 0, 0, 0}, true, false},
    {1, 8, 1, 5, 8, {1, 3}, {2, 2}, {1, 1}, {0, 1, 0, 1}, true, false},
    /* depths of positions in several splits */
    {2, 16, 24, 23, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, true, false},
    {3, 72, 17, 16, 72, {1, 1}, {1, 1}, {1, 1}, {0}, true, true},
    /* tiles of 128 x 128 in all, and of 128 x 64 */
    {3, 72, 76, 75, 72, {1, 1}, {1, 1}, {1, 1}, {0}, true, true},
    {8, 8, 64, 66, 72, {1, 1}, {2, 2}, {1, 1}, {0}, true, true},
    {3, 8, 76, 75, 8, {1, 1}, {1, 1}, {1, 1}, {0}, true, true},
    /* what is left to other kernels: channels that are no chunks, many taps */
    {2, 6, 5, 6, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, false, false},
    {2, 8, 5, 6, 3, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, false, false},
    {1, 8, 9, 9, 8, {7, 7}, {1, 1}, {1, 1}, {3, 3, 3, 3}, false, false},
    /* more classes than tiles of dX have */
    {1, 8, 7, 9, 8, {3, 3}, {3, 2}, {1, 1}, {1, 1, 1, 1}, true, false},
};

enum { Y, DX, DW, OUTPUTS };

/* What an input holds. */
typedef enum numbers {
    COARSE, /* units of 1 / 8 that all types hold, of magnitude 2 and less */
    FINE,   /* 12 bits behind the point, of magnitude 1 to 2 */
    ROUNDED /* the same as TF32: 10 bits, to nearest, ties away from 0 */
} numbers;

static void fill(pare_view *v, uint32_t seed, numbers kind)
{
    for (int64_t i = 0; i < pare_view_count(v); i++) {
        const uint32_t r = test_random(&seed);
        float x = 1 + (float)(r >> 8 & 4095) * 0x1p-12f;
        if (kind == ROUNDED) x = floorf(x * 0x1p10f + 0.5f) * 0x1p-10f;
        ((float *)v->data)[i] = kind == COARSE ? (float)((int)(r % 33) - 16) / 8 : r & 1 ? -x : x;
    }
}

static pare_node *own_node(graph_case *g, const char *op, const char *in, const char *out)
{
    pare_node *node = graph_node(g, op, in, out);
    node->domain = PARE_DOMAIN;
    return node;
}

static void attributes_set(pare_node *node, const sizes *s)
{
    assert_int_equal(pare_node_set_ints(node, "pads", s->pads, 4), PARE_OK);
    assert_int_equal(pare_node_set_ints(node, "strides", s->stride, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(node, "dilations", s->dilation, 2), PARE_OK);
}

static int64_t out_of(const sizes *s, int axis)
{
    const int64_t in = axis ? s->w : s->h;
    return (in + s->pads[axis] + s->pads[2 + axis] - s->dilation[axis] * (s->kernel[axis] - 1) -
            1) /
               s->stride[axis] +
           1;
}

static void cast(graph_case *g, const char *from, const char *to, pare_dtype type)
{
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", from, to), "to", type), PARE_OK);
}

/* How tensors of a short type come to an operator. */
typedef enum conv_form {
    TYPED, /* all are short; there is no bias */
    FOLDED /* f32, behind and before Casts that go into it; the bias and dW are f32 */
} conv_form;

/* Inputs and outputs are f32. */
static void graph_make(graph_case *g, const sizes *s, pare_dtype type, conv_form form)
{
    static const char *const names[] = {"x", "w", "dy"};
    const int64_t x[4] = {s->n, s->c, s->h, s->w}, w[4] = {s->m, s->c, s->kernel[0], s->kernel[1]},
                  y[4] = {s->n, s->m, out_of(s, 0), out_of(s, 1)};
    const int64_t *dims[] = {x, w, y};
    graph_open(g, 21);
    for (int i = 0; i < 3; i++) {
        char in[8], stored[8];
        snprintf(in, sizeof in, "%s_in", names[i]);
        snprintf(stored, sizeof stored, "%s_s", names[i]);
        graph_input(g, in, PARE_f32, 4, dims[i]);
        cast(g, in, form == FOLDED ? stored : names[i], type);
        if (form == FOLDED) cast(g, stored, names[i], PARE_f32);
    }
    graph_input(g, "b", PARE_f32, 1, &s->m);
    pare_node *node[OUTPUTS] = {graph_node(g, "Conv", form == FOLDED ? "x w b" : "x w", "y_"),
                                own_node(g, "ConvGradInput", "dy w", "dx_"),
                                own_node(g, "ConvGradWeight", "dy x", "dw_")};
    for (int i = 0; i < OUTPUTS; i++) attributes_set(node[i], s);
    assert_int_equal(pare_node_set_ints(node[DX], "shape", x, 4), PARE_OK);
    assert_int_equal(pare_node_set_ints(node[DW], "shape", w, 4), PARE_OK);
    static const char *const made[] = {"y_", "dx_", "dw_"}, *const outs[] = {"y", "dx", "dw"},
                             *const stored[] = {"y_s", "dx_s", "dw_s"};
    for (int i = 0; i < OUTPUTS; i++) {
        const bool rounded = form == FOLDED && i != DW;
        if (rounded) cast(g, made[i], stored[i], type);
        cast(g, rounded ? stored[i] : made[i], outs[i], PARE_f32);
        graph_output(g, outs[i]);
    }
}

typedef struct run {
    float *value[OUTPUTS];
    int64_t count[OUTPUTS];
} run;

/* Each reads `type` in a kernel of the device, a tile where one is expected. */
static void kernels_check(const pare_plan *plan, const sizes *s, pare_dtype type)
{
    int seen = 0;
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info step;
        pare_plan_step(plan, i, &step);
        if (strncmp(step.kernel, "cuda_", 5)) fail_msg("%s runs %s", step.op_type, step.kernel);
        if (!strstr(step.op_type, "Conv")) continue;
        const size_t length = strlen(step.kernel);
        const bool tile = length > 5 && !strcmp(step.kernel + length - 5, "_tile");
        const bool many = s->stride[0] * s->stride[1] > 4 && !strcmp(step.op_type, "ConvGradInput");
        assert_int_equal(pare_plan_node(plan, i)->in[0]->dtype, type);
        if (tile != (s->expect && !many)) fail_msg("%s runs %s", step.op_type, step.kernel);
        seen++;
    }
    assert_int_equal(seen, OUTPUTS);
}

/* other: of the kind `kind` is that input, -1: none. */
static void execute(graph_case *g, const sizes *s, pare_dtype type, pare_device *device, int other,
                    numbers kind, run *out)
{
    pare_plan *plan;
    pare_runner *runner;
    const pare_plan_options options = {
        .threads = 1, .deterministic = true, .reference = !device, .device = device};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    if (device) kernels_check(plan, s, type);
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        pare_view v = pare_runner_input(runner, i);
        fill(&v, (uint32_t)i + 1, i == other ? kind : COARSE);
    }
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    assert_int_equal(pare_plan_output_count(plan), OUTPUTS);
    for (int o = 0; o < OUTPUTS; o++) {
        pare_view v = pare_runner_output(runner, o);
        out->count[o] = pare_view_count(&v);
        out->value[o] = malloc((size_t)out->count[o] * sizeof(float));
        assert_non_null(out->value[o]);
        memcpy(out->value[o], v.data, (size_t)out->count[o] * sizeof(float));
    }
    pare_runner_free(runner);
    pare_plan_free(plan);
}

/* The device's outputs are the reference's, whose input `rounded` (-1: none) is that of the device
   as TF32. Products are multiples of 1 / 64 of magnitude 4 and less, and their sums, of fewer than
   2^16, are exact in f32 whatever their order; with an input of 10 bits behind the point, of fewer
   than 2^9. What is stored short is rounded once on both sides, from the same sum. */
static void compare_form(const sizes *s, pare_dtype type, bool tf32, int rounded, conv_form form)
{
    graph_case g;
    pare_device *device;
    run here, there;
    graph_make(&g, s, type, form);
    if (pare_device_open(&g.ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
    device->tf32 = tf32;
    execute(&g, s, type, NULL, rounded, ROUNDED, &here);
    execute(&g, s, type, device, rounded, FINE, &there);
    for (int o = 0; o < OUTPUTS; o++) {
        assert_true(here.count[o] == there.count[o] && here.count[o] > 0);
        for (int64_t i = 0; i < here.count[o]; i++)
            if (here.value[o][i] != there.value[o][i])
                fail_msg("case %d, type %d, output %d, element %lld: %.9g, expected %.9g",
                         (int)(s - cases), (int)type, o, (long long)i, (double)there.value[o][i],
                         (double)here.value[o][i]);
        free(here.value[o]);
        free(there.value[o]);
    }
    pare_device_close(device);
    graph_close(&g);
}

static void compare(const sizes *s, pare_dtype type, bool tf32, int rounded)
{
    for (int f = type == PARE_f32 ? FOLDED : TYPED; f <= FOLDED; f++)
        compare_form(s, type, tf32, rounded, (conv_form)f);
}

static void compare_all(pare_dtype type, bool tf32)
{
    const char *exact = getenv("PARE_EXACT");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (!cases[k].slow || !exact || strcmp(exact, "quick")) compare(&cases[k], type, tf32, -1);
}

static void floats_are_exact(void **state)
{
    (void)state;
    compare_all(PARE_f32, false);
}

static void tf32_is_exact_where_factors_are(void **state)
{
    (void)state;
    compare_all(PARE_f32, true);
}

/* Of X, W and dY one each time; a window and classes of a stride. */
static void tf32_rounds_each_factor_to_nearest(void **state)
{
    (void)state;
    for (int input = 0; input < 3; input++) {
        compare(&cases[7], PARE_f32, true, input);
        compare(&cases[12], PARE_f32, true, input);
    }
}

static void f16_rounds_once(void **state)
{
    (void)state;
    compare_all(PARE_f16, false);
}

static void bf16_rounds_once(void **state)
{
    (void)state;
    compare_all(PARE_bf16, false);
}

/* Of a position of Y 8 bytes, which ConvGradWeight keeps. */
static void a_plan_counts_the_tables_of_tiles(void **state)
{
    (void)state;
    const sizes *s = &cases[22];
    graph_case g;
    pare_plan *plan;
    pare_device *device;
    graph_make(&g, s, PARE_f32, FOLDED);
    if (pare_device_open(&g.ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
    const pare_plan_options options = {.threads = 1, .deterministic = true, .device = device};
    if (pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    kernels_check(plan, s, PARE_f32);
    assert_true(pare_plan_weight_bytes(plan) >= (size_t)(8 * s->n * out_of(s, 0) * out_of(s, 1)));
    pare_plan_free(plan);
    pare_device_close(device);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(floats_are_exact),
        device_test(tf32_is_exact_where_factors_are),
        device_test(tf32_rounds_each_factor_to_nearest),
        device_test(f16_rounds_once),
        device_test(bf16_rounds_once),
        device_test(a_plan_counts_the_tables_of_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
