/* SPDX-License-Identifier: Apache-2.0 */
/* First convolutions with their MaxPool on a device. Expected: the plain kernel, which is
   FusedConv's and then MaxPool's; integers byte-equal. */
#include "tests/cuda/product_case.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct pool_shape {
    int64_t n, c, m, h, w, kh, kw, pad, pool_h, pool_w, pool_pads[4];
} pool_shape;

static void case_shape(kernel_case *k, const pool_shape *s, pare_dtype t, int64_t scales)
{
    k->nhwc = true;
    fused_inputs(k, t, (int64_t[]){s->n, s->c, s->h, s->w}, (int64_t[]){s->m, s->c, s->kh, s->kw},
                 scales);
    case_set_ints(k, "strides", (int64_t[]){2, 2}, 2);
    case_set_ints(k, "pads", (int64_t[]){s->pad, s->pad, s->pad, s->pad}, 4);
    case_set_ints(k, "pool_kernel", (int64_t[]){s->pool_h, s->pool_w}, 2);
    case_set_ints(k, "pool_strides", (int64_t[]){2, 2}, 2);
    case_set_ints(k, "pool_pads", s->pool_pads, 4);
}

static const pool_shape shapes[] = {
    {2, 3, 64, 61, 76, 7, 7, 3, 3, 3, {1, 1, 1, 1}},  /* ResNet's windows */
    {1, 3, 32, 40, 120, 3, 3, 1, 2, 2, {0, 0, 0, 0}}, /* four pixels begin at words */
    {3, 1, 96, 17, 45, 5, 5, 2, 3, 2, {0, 1, 1, 0}},
    {1, 4, 64, 33, 131, 8, 8, 0, 2, 3, {1, 2, 0, 2}},
    {2, 2, 32, 1, 1, 1, 1, 0, 2, 2, {1, 1, 0, 0}},  /* one pixel, in a window that hangs over it */
    {1, 3, 128, 2, 3, 3, 2, 1, 3, 3, {2, 2, 2, 2}}, /* few, in windows that hang over all edges */
    {2, 3, 64, 12, 68, 7, 7, 3, 3, 3, {0, 0, 1, 1}},
    /* as many pictures as give a block six lines and more, on an H200's multiprocessors */
    {200, 3, 32, 24, 12, 7, 7, 3, 3, 3, {1, 1, 1, 1}},
    {200, 1, 32, 30, 7, 8, 5, 0, 3, 2, {0, 1, 1, 0}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void stem_pools_agree(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
    static const char *const acts[] = {"relu", "clip", "none"};
    for (int i = 0; i < 4 * SHAPES * 3; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = types[i % 4];
        const bool int8 = t == PARE_s8 || t == PARE_u8, plain = i / 4 % 2;
        pool_shape s = shapes[i % SHAPES];
        if (s.n > 100) s.n = scaled(s.n);
        case_open(&k, "pare", "FusedConvPool", (uint64_t)i + 1);
        case_shape(&k, &s, t, i % 3 ? s.m : 1);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[i % 3 % (int8 ? 3 : 2)]),
                         PARE_OK);
        case_set_float(&k, "alpha", int8 ? -3 : 0.25f);
        case_set_float(&k, "beta", plain ? 1000 : int8 ? 11 : 1.75f);
        if (int8) {
            case_set_int(&k, "to", i / 8 % 2 ? PARE_s8 : PARE_u8);
            case_set_int(&k, "x_zero_point", t == PARE_u8 ? 121 : -5);
            case_set_int(&k, "y_zero_point", plain ? 0 : i / 8 % 2 ? -7 : 100);
        }
        case_check_device(&k, 1);
    }
}

/* Numbers that are not finite reach the outputs whose windows hold them, and no others; a NaN is
   the largest of a window. */
static void infinities_stay_in_their_windows(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_f16, PARE_bf16};
    for (int i = 0; i < 4; i++) {
        kernel_case k;
        const pool_shape s = {1, 3, 32, 24, 40, 3, i / 2 ? 7 : 1, 1, 3, 3, {1, 1, 1, 1}};
        case_open(&k, "pare", "FusedConvPool", (uint64_t)i + 1);
        case_shape(&k, &s, types[i % 2], 1);
        assert_int_equal(pare_node_set_string(k.node, "activation", "relu"), PARE_OK);
        case_put(&k, 0, (10 * s.w + 13) * 3 + 1, INFINITY);
        case_put(&k, 0, (4 * s.w + 6) * 3, NAN);
        case_put(&k, 0, (17 * s.w + 30) * 3 + 2, -INFINITY);
        case_check_device(&k, 1);
    }
}

/* --- the same net with and without the fusion, on the device --- */

enum { WIDE = 61, HIGH = 38, FILTERS = 32, PICTURE = 3 * HIGH * WIDE, WEIGHTS = FILTERS * 3 * 49 };

static void net_make(graph_case *g, pare_dtype type)
{
    const int64_t x[] = {2, 3, HIGH, WIDE}, w[] = {FILTERS, 3, 7, 7}, b[] = {FILTERS};
    static float weights[WEIGHTS], bias[FILTERS];
    for (int i = 0; i < WEIGHTS; i++) weights[i] = (float)(i * 7919 % 211 - 105) / 97;
    for (int i = 0; i < FILTERS; i++) bias[i] = (float)(i % 7 - 3);
    graph_open(g, 17);
    graph_input(g, "x", type, 4, x);
    graph_floats(g, "w_", 4, w, weights);
    graph_floats(g, "b_", 1, b, bias);
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", "w_", "w"), "to", type), PARE_OK);
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", "b_", "b"), "to", type), PARE_OK);
    pare_node *conv = graph_node(g, "Conv", "x w b", "c");
    graph_node(g, "Relu", "c", "r");
    pare_node *pool = graph_node(g, "MaxPool", "r", "y");
    assert_int_equal(pare_node_set_ints(conv, "strides", (int64_t[]){2, 2}, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(conv, "pads", (int64_t[]){3, 3, 3, 3}, 4), PARE_OK);
    assert_int_equal(pare_node_set_ints(pool, "kernel_shape", (int64_t[]){3, 3}, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(pool, "strides", (int64_t[]){2, 2}, 2), PARE_OK);
    assert_int_equal(pare_node_set_int(pool, "ceil_mode", 1), PARE_OK);
    graph_output(g, "y");
}

/* What a run made, in how many steps. */
typedef struct net_result {
    void *y;
    size_t bytes;
    int steps;
} net_result;

/* kept: a tensor to be observed, which stays; NULL: none. */
static net_result net_run(graph_case *g, pare_device *device, const char *kept)
{
    pare_plan *plan;
    pare_runner *runner;
    const pare_plan_options options = {
        .threads = 1, .device = device, .keep = &kept, .keep_count = kept != NULL};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    const pare_view x = pare_runner_input(runner, 0);
    const pare_type_info *type = pare_type(x.dtype);
    for (int i = 0; i < 2 * PICTURE; i++)
        type->from_f32_ref((char *)x.data + 2 * i, (float)(i * 37 % 1013) / 311 - 1.5f);
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    const pare_view y = pare_runner_output(runner, 0);
    net_result m = {.bytes = pare_view_bytes(&y), .steps = pare_plan_step_count(plan)};
    m.y = malloc(m.bytes);
    assert_non_null(m.y);
    memcpy(m.y, y.data, m.bytes);
    pare_runner_free(runner);
    pare_plan_free(plan);
    return m;
}

static void floats_are_the_bytes_of_two_steps(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case g;
        pare_device *device;
        net_make(&g, i ? PARE_bf16 : PARE_f16);
        if (pare_device_open(&g.ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
        const net_result one = net_run(&g, device, NULL), two = net_run(&g, device, "r");
        assert_int_equal(one.steps + 1, two.steps);
        assert_int_equal(one.bytes, two.bytes);
        assert_memory_equal(one.y, two.y, one.bytes);
        free(one.y);
        free(two.y);
        pare_device_close(device);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinities_stay_in_their_windows),
        cmocka_unit_test(floats_are_the_bytes_of_two_steps),
        cmocka_unit_test(stem_pools_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
