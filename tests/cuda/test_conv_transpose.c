/* SPDX-License-Identifier: Apache-2.0 */
/* Transposed convolutions, of f32, f16 and bf16 and of f32 as TF32, against the CPU's plain kernel
   on the same numbers. */
#include "runtime/exec/exec.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <stdlib.h>

typedef struct sizes {
    int64_t n, c, h, w, m, kernel[2], stride[2], dilation[2], pads[4], output_padding[2], group;
    bool tiles, slow; /* slow: not under PARE_EXACT=quick */
} sizes;

static const sizes cases[] = {
    /* upsampling by two, with windows as large as the stride, larger, and smaller */
    {1, 8, 3, 5, 8, {2, 2}, {2, 2}, {1, 1}, {0}, {0}, 1, true, false},
    {2, 16, 5, 4, 24, {4, 4}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {0}, 1, true, false},
    {2, 8, 4, 6, 16, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1, true, false},
    {1, 8, 4, 3, 8, {1, 1}, {2, 2}, {1, 1}, {0}, {1, 0}, 1, true, false},
    /* no stride, dilated, padded unevenly, one axis alone */
    {1, 16, 6, 5, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {0}, 1, true, false},
    {1, 8, 5, 6, 8, {3, 2}, {2, 1}, {1, 2}, {0, 1, 2, 0}, {0}, 1, true, false},
    {1, 8, 4, 3, 8, {3, 3}, {2, 2}, {2, 3}, {1, 0, 0, 1}, {1, 1}, 1, true, false},
    {1, 24, 1, 1, 8, {3, 4}, {1, 4}, {1, 1}, {0}, {0}, 1, true, false},
    /* tiles of 128 rows and columns */
    {3, 8, 80, 72, 72, {2, 2}, {2, 2}, {1, 1}, {0}, {0}, 1, true, true},
    /* left to the kernel that gathers: channels that are no chunks, groups, many classes, many taps
     */
    {1, 6, 4, 3, 8, {3, 3}, {2, 2}, {1, 1}, {0}, {0}, 1, false, false},
    {1, 8, 4, 3, 3, {3, 3}, {2, 2}, {1, 1}, {0}, {0}, 1, false, false},
    {1, 16, 4, 3, 16, {3, 3}, {2, 2}, {1, 1}, {0}, {0}, 2, false, false},
    {1, 8, 3, 3, 8, {4, 4}, {4, 4}, {1, 1}, {0}, {0}, 1, false, false},
    {1, 8, 3, 3, 8, {7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}, {0}, 1, false, false},
};

/* Where weights and bias come from. */
typedef enum weights { CONSTANT, COMPUTED, NO_BIAS, FORMS } weights;

/* Units of 1 / 8 that all types hold, of magnitude 2 and less. */
static void fill(float *v, int64_t count, uint32_t seed)
{
    for (int64_t i = 0; i < count; i++) v[i] = (float)((int)(test_random(&seed) % 33) - 16) / 8;
}

static void cast(graph_case *g, const char *from, const char *to, pare_dtype type)
{
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", from, to), "to", type), PARE_OK);
}

static void tensor(graph_case *g, const char *name, const char *typed, pare_dtype type,
                   weights from, int rank, const int64_t *dims)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    fill(values, count, 7);
    if (from == COMPUTED)
        graph_input(g, name, PARE_f32, rank, dims);
    else
        graph_floats(g, name, rank, dims, values);
    cast(g, name, typed, type);
    free(values);
}

static void graph_make(graph_case *g, const sizes *s, pare_dtype type, weights from)
{
    const int64_t x[4] = {s->n, s->c, s->h, s->w},
                  w[4] = {s->c, s->m / s->group, s->kernel[0], s->kernel[1]};
    graph_open(g, 21);
    graph_input(g, "x_in", PARE_f32, 4, x);
    cast(g, "x_in", "x", type);
    tensor(g, "w_in", "w", type, from, 4, w);
    if (from != NO_BIAS) tensor(g, "b_in", "b", type, from == COMPUTED ? CONSTANT : from, 1, &s->m);
    pare_node *n = graph_node(g, "ConvTranspose", from == NO_BIAS ? "x w" : "x w b", "y_");
    assert_int_equal(pare_node_set_ints(n, "pads", s->pads, 4), PARE_OK);
    assert_int_equal(pare_node_set_ints(n, "strides", s->stride, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(n, "dilations", s->dilation, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(n, "output_padding", s->output_padding, 2), PARE_OK);
    assert_int_equal(pare_node_set_int(n, "group", s->group), PARE_OK);
    cast(g, "y_", "y", PARE_f32);
    graph_output(g, "y");
}

static void kernel_check(const pare_plan *plan, const sizes *s)
{
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info step;
        pare_plan_step(plan, i, &step);
        if (strcmp(step.op_type, "ConvTranspose")) continue;
        assert_string_equal(step.kernel,
                            s->tiles ? "cuda_conv_transpose_tile" : "cuda_conv_transpose");
        return;
    }
    fail_msg("no ConvTranspose");
}

/* Y, for the caller to free. */
static float *execute(graph_case *g, const sizes *s, pare_device *device, int64_t *count)
{
    pare_plan *plan;
    pare_runner *runner;
    const pare_plan_options options = {
        .threads = 1, .deterministic = true, .reference = !device, .device = device};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    if (device) kernel_check(plan, s);
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        pare_view v = pare_runner_input(runner, i);
        fill(v.data, pare_view_count(&v), (uint32_t)i + 1);
    }
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    pare_view v = pare_runner_output(runner, 0);
    *count = pare_view_count(&v);
    float *y = malloc((size_t)*count * sizeof *y);
    assert_non_null(y);
    memcpy(y, v.data, (size_t)*count * sizeof *y);
    pare_runner_free(runner);
    pare_plan_free(plan);
    return y;
}

/* Sums are exact in f32 whatever their order, and rounded once. */
static void compare(const sizes *s, pare_dtype type, weights from, bool tf32)
{
    graph_case g;
    pare_device *device;
    int64_t count, also;
    graph_make(&g, s, type, from);
    if (pare_device_open(&g.ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
    device->tf32 = tf32;
    float *here = execute(&g, s, NULL, &count), *there = execute(&g, s, device, &also);
    assert_true(count == also && count > 0);
    for (int64_t i = 0; i < count; i++)
        if (here[i] != there[i])
            fail_msg("case %d, type %d, form %d, element %lld: %.9g, expected %.9g",
                     (int)(s - cases), (int)type, (int)from, (long long)i, (double)there[i],
                     (double)here[i]);
    free(here);
    free(there);
    pare_device_close(device);
    graph_close(&g);
}

static void compare_all(pare_dtype type, bool tf32)
{
    const char *exact = getenv("PARE_EXACT");
    const bool quick = exact && !strcmp(exact, "quick");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int from = 0; from < FORMS; from++) {
            if (quick && (cases[k].slow || from != (int)k % FORMS)) continue;
            if (from == COMPUTED && !cases[k].tiles) continue; /* the host's */
            compare(&cases[k], type, (weights)from, tf32);
        }
}

static void floats_are_exact(void **state)
{
    (void)state;
    compare_all(PARE_f32, false);
}

static void tf32_is_exact_where_factors_are(void **state)
{
    (void)state;
    compare(&cases[1], PARE_f32, CONSTANT, true);
    compare(&cases[6], PARE_f32, COMPUTED, true);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(floats_are_exact),
        device_test(tf32_is_exact_where_factors_are),
        device_test(f16_rounds_once),
        device_test(bf16_rounds_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
