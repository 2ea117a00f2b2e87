/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolutions with the pointwise one behind them on a device. Expected: the plain
   kernel, which is FusedConv's twice, and in plans two steps; integers byte-equal. */
#include "runtime/ops/depthwise_pointwise.h"
#include "tests/cuda/product_case.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

typedef struct pair_shape {
    int64_t n, c, m, h, w, stride, pads[4];
} pair_shape;

static bool is_int8(pare_dtype t) { return t == PARE_s8 || t == PARE_u8; }

static int64_t out_of(int64_t in, int64_t begin, int64_t end, int64_t stride)
{
    return (in + begin + end - 3) / stride + 1;
}

/* X, W, B, Z, w_scale, D, D_bias, D_scale. */
static void case_shape(kernel_case *k, const pair_shape *s, pare_dtype t, bool residual)
{
    const bool int8 = is_int8(t);
    const pare_dtype weights = int8 ? PARE_s8 : t;
    const int64_t z[] = {s->n, s->m, out_of(s->h, s->pads[0], s->pads[2], s->stride),
                         out_of(s->w, s->pads[1], s->pads[3], s->stride)};
    k->nhwc = true;
    residual_inputs(k, t, (int64_t[]){s->n, s->c, s->h, s->w}, (int64_t[]){s->m, s->c, 1, 1}, s->m,
                    residual ? z : NULL);
    for (int i = int8 ? 5 : residual ? 4 : 3; i < PARE_DEPTHWISE_WEIGHTS; i++)
        case_input(k, PARE_NOTYPE, 0, NULL, true, 0, 0);
    case_input(k, weights, 4, (int64_t[]){s->c, 1, 3, 3}, true, int8 ? -127 : 0, int8 ? 127 : 1);
    if (int8)
        floats_between(k, s->c, -900, 900);
    else
        case_input(k, t, 1, &s->c, true, 0, 1);
    if (int8) floats_between(k, s->c, 0.01f, 0.03f);
    case_set_ints(k, "depthwise_strides", (int64_t[]){s->stride, s->stride}, 2);
    case_set_ints(k, "depthwise_pads", s->pads, 4);
    case_set_int(k, "depthwise_group", s->c);
}

/* Scales and zero points of three tensors. */
static void case_quantize(kernel_case *k, pare_dtype t, int x_zero, int made_zero, int y_zero,
                          pare_dtype to)
{
    case_set_int(k, "depthwise_x_zero_point", x_zero);
    case_set_float(k, "depthwise_x_scale", 0.02f);
    case_set_float(k, "depthwise_y_scale", 0.2f);
    case_set_int(k, "depthwise_y_zero_point", made_zero);
    case_set_int(k, "depthwise_to", t);
    case_set_int(k, "x_zero_point", made_zero);
    case_set_float(k, "x_scale", 0.2f);
    case_set_float(k, "y_scale", 1.5f);
    case_set_int(k, "y_zero_point", y_zero);
    case_set_float(k, "z_scale", 0.7f);
    case_set_int(k, "z_zero_point", y_zero / 2);
    case_set_int(k, "to", to);
}

static const pair_shape shapes[] = {
    {1, 16, 16, 8, 8, 1, {1, 1, 1, 1}},    /* one strip and one that is not there */
    {2, 32, 24, 9, 17, 1, {1, 1, 1, 1}},   /* a pixel and a line more; Y 8 bytes at once */
    {3, 144, 32, 7, 7, 1, {1, 1, 1, 1}},   /* the last step has a quarter of its channels */
    {1, 96, 24, 15, 13, 2, {1, 1, 1, 1}},  /* two a step */
    {1, 64, 40, 1, 1, 1, {1, 1, 1, 1}},    /* one pixel */
    {1, 48, 96, 20, 9, 1, {0, 2, 1, 0}},   /* padding of all widths */
    {2, 80, 160, 6, 23, 2, {1, 0, 0, 2}},  /* two blocks of columns */
    {1, 208, 328, 7, 7, 1, {2, 1, 0, 1}},  /* three, the last not whole */
    {1, 16, 128, 6, 30, 1, {1, 1, 1, 1}},  /* the widest block */
    {1, 192, 64, 16, 18, 2, {0, 0, 1, 1}}, /* TensorFlow's SAME */
    {1, 32, 8, 3, 3, 1, {0, 0, 0, 0}},     /* a window, no more */
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void pairs_agree(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
    static const char *const acts[] = {"relu", "clip", "none"};
    for (int i = 0; i < 4 * SHAPES * 3; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = types[i % 4];
        const pair_shape *s = &shapes[i % SHAPES];
        const bool int8 = is_int8(t), plain = i / 4 % 2, signs = i / 8 % 2;
        case_open(&k, "pare", "FusedDepthwisePointwise", (uint64_t)i + 1);
        case_shape(&k, s, t, s->stride == 1 && i / 3 % 2);
        assert_int_equal(pare_node_set_string(k.node, "depthwise_activation", acts[(i / 2) % 3]),
                         PARE_OK);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[i % 3]), PARE_OK);
        case_set_float(&k, "depthwise_alpha", -1);
        case_set_float(&k, "depthwise_beta", int8 ? 9 : 2);
        case_set_float(&k, "alpha", -3);
        case_set_float(&k, "beta", int8 ? 60 : 4);
        if (int8)
            case_quantize(&k, t, t == PARE_u8 ? 121 : -5,
                          plain          ? 0
                          : t == PARE_u8 ? 20
                                         : -9,
                          plain   ? 0
                          : signs ? -7
                                  : 100,
                          signs ? PARE_s8 : PARE_u8);
        case_check_device(&k, 1);
    }
}

/* The epilogue without bounds: ReLU, no zero points. */
static void plain_integers_agree(void **state)
{
    (void)state;
    for (int i = 0; i<2 * SHAPES; i += case_apart()> 1 ? 3 : 1) {
        kernel_case k;
        const pare_dtype t = i % 2 ? PARE_u8 : PARE_s8;
        const pair_shape *s = &shapes[i / 2];
        case_open(&k, "pare", "FusedDepthwisePointwise", (uint64_t)i + 7);
        case_shape(&k, s, t, s->stride == 1 && i / 4 % 2);
        assert_int_equal(pare_node_set_string(k.node, "depthwise_activation", "relu"), PARE_OK);
        case_quantize(&k, t, t == PARE_u8 ? 3 : 0, 0, 0, i / 2 % 2 ? PARE_s8 : PARE_u8);
        case_check_device(&k, 1);
    }
}

/* The largest sums that nine products have, of both signs, and of zero points at the ends. */
static void the_largest_sums_are_counted(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        kernel_case k;
        const pare_dtype t = i % 2 ? PARE_u8 : PARE_s8;
        const int low = t == PARE_s8 ? -128 : 0, zero = i / 2 % 2 ? low : low + 255;
        const pair_shape s = {1, 16, 8, 10, 12, 1, {1, 1, 1, 1}};
        case_open(&k, "pare", "FusedDepthwisePointwise", (uint64_t)i + 1);
        case_shape(&k, &s, t, false);
        for (int64_t j = 0; j < s.c * s.h * s.w; j++)
            case_put(&k, 0, j, (float)(i / 2 % 2 ? low + 255 : low));
        for (int64_t j = 0; j < s.c * 9; j++)
            case_put(&k, PARE_DEPTHWISE_WEIGHTS, j, i / 4 ? 127 : -127);
        case_quantize(&k, t, zero, 0, 0, PARE_s8);
        case_set_float(&k, "depthwise_y_scale", 90);
        case_check_device(&k, 1);
    }
}

/* Numbers that are not finite reach the outputs whose windows hold them, and no others. */
static void infinities_stay_in_their_windows(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_f16, PARE_bf16};
    for (int i = 0; i < 4; i++) {
        kernel_case k;
        const pair_shape s = {1, 16, 16, 12, 20, 1 + i / 2, {1, 1, 1, 1}};
        case_open(&k, "pare", "FusedDepthwisePointwise", (uint64_t)i + 1);
        case_shape(&k, &s, types[i % 2], false);
        case_put(&k, 0, (5 * s.w + 13) * s.c + 1, INFINITY);
        case_put(&k, 0, (2 * s.w + 6) * s.c, NAN);
        case_put(&k, 0, (9 * s.w + 3) * s.c + 15, -INFINITY);
        case_check_device(&k, 1);
    }
}

/* --- plans: a convolution that widens, the depthwise one, and one that narrows --- */

typedef struct block_net {
    pare_dtype type;
    int64_t n, side, wide, m, stride;
    bool residual;
} block_net;

enum { NARROW = 16, MOST_WEIGHTS = 4096 };

static void weights(graph_case *g, const char *name, pare_dtype type, const int64_t dims[4])
{
    static int8_t codes[MOST_WEIGHTS];
    static uint16_t halves[MOST_WEIGHTS];
    pare_value *made;
    assert_true(dims[0] * dims[1] * dims[2] * dims[3] <= MOST_WEIGHTS);
    for (int i = 0; i < MOST_WEIGHTS; i++) {
        const float v = (float)(i * 7919 % 255 - 127) / 512;
        codes[i] = (int8_t)(i * 7919 % 255 - 127);
        pare_type(PARE_f16)->from_f32_ref(&halves[i], v);
    }
    const void *data = type == PARE_s8 ? (const void *)codes : halves;
    assert_int_equal(pare_init_new(g->model->graph, &made, name, type, 4, dims, data), PARE_OK);
}

static void conv_add(graph_case *g, const block_net *n, const char *in, const char *out,
                     const char *activation)
{
    pare_node *node = graph_node(g, "FusedConv", in, out);
    const bool depthwise = !strcmp(out, "d");
    const int64_t stride = depthwise ? n->stride : 1, pad = depthwise;
    node->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_ints(node, "strides", (int64_t[]){stride, stride}, 2), 0);
    assert_int_equal(pare_node_set_ints(node, "pads", (int64_t[]){pad, pad, pad, pad}, 4), 0);
    assert_int_equal(pare_node_set_int(node, "group", depthwise ? n->wide : 1), 0);
    assert_int_equal(pare_node_set_string(node, "activation", activation), 0);
}

static void net_make(graph_case *g, const block_net *n)
{
    const bool int8 = n->type == PARE_s8;
    const float scale[] = {0.002f, 0.01f, 0.004f};
    graph_open(g, 17);
    graph_input(g, "x", n->type, 4, (int64_t[]){n->n, NARROW, n->side, n->side});
    weights(g, "we", n->type, (int64_t[]){n->wide, NARROW, 1, 1});
    weights(g, "wd", n->type, (int64_t[]){n->wide, 1, 3, 3});
    weights(g, "wp", n->type, (int64_t[]){n->m, n->wide, 1, 1});
    if (int8) {
        graph_floats(g, "se", 0, NULL, &scale[0]);
        graph_floats(g, "sd", 0, NULL, &scale[1]);
        graph_floats(g, "sp", 0, NULL, &scale[2]);
    }
    conv_add(g, n, int8 ? "x we - - se" : "x we", "e", "relu");
    conv_add(g, n, int8 ? "e wd - - sd" : "e wd", "d", "relu");
    conv_add(g, n,
             n->residual ? (int8 ? "d wp - x sp" : "d wp - x")
             : int8      ? "d wp - - sp"
                         : "d wp",
             "y", "none");
    graph_output(g, "y");
}

static pare_plan *plan_of(graph_case *g, pare_device *device, const char *kept)
{
    pare_plan *plan;
    const pare_plan_options options = {
        .threads = 1, .device = device, .keep = &kept, .keep_count = kept != NULL};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    return plan;
}

/* Steps of the kernel; where it is NULL, of the operator. */
static int steps_of(const pare_plan *plan, const char *op, const char *kernel)
{
    int count = 0;
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        count += kernel ? !strcmp(info.kernel, kernel) : !strcmp(info.op_type, op);
    }
    return count;
}

/* What a run of it makes, to be freed. */
static void *plan_run(graph_case *g, pare_plan *plan, size_t *bytes)
{
    pare_runner *runner;
    if (pare_runner_new(&g->ctx, &runner, plan) != PARE_OK) fail_msg("%s", g->ctx.message);
    const pare_view x = pare_runner_input(runner, 0);
    for (int64_t i = 0; i < pare_view_count(&x); i++) {
        const int v = (int)(i * 37 % 251) - 125;
        if (x.dtype == PARE_s8)
            ((int8_t *)x.data)[i] = (int8_t)v;
        else
            pare_type(x.dtype)->from_f32_ref((uint16_t *)x.data + i, (float)v / 64);
    }
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    const pare_view y = pare_runner_output(runner, 0);
    *bytes = pare_view_bytes(&y);
    void *copy = malloc(*bytes);
    assert_non_null(copy);
    memcpy(copy, y.data, *bytes);
    pare_runner_free(runner);
    return copy;
}

/* One step of the kernel between the net's ends, with the bytes of two; those of integers are the
   CPU's, too. */
static void block_check(const block_net *n)
{
    graph_case g;
    pare_device *device;
    size_t bytes[3];
    void *y[3];
    net_make(&g, n);
    if (pare_device_open(&g.ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
    pare_plan *const plan[] = {plan_of(&g, device, NULL), plan_of(&g, device, "d"),
                               plan_of(&g, NULL, NULL)};
    const int ends = n->side / n->stride > 1 ? 2 : 1; /* a picture of one pixel is not turned */
    assert_int_equal(steps_of(plan[0], NULL, "cuda_depthwise_pointwise"), 1);
    assert_int_equal(steps_of(plan[0], "Reorder", NULL), ends);
    assert_int_equal(pare_plan_step_count(plan[0]), ends + 2);
    assert_int_equal(steps_of(plan[1], "FusedConv", NULL), 3);
    for (int i = 0; i < 3; i++) y[i] = plan_run(&g, plan[i], &bytes[i]);
    for (int i = 1; i < (n->type == PARE_s8 ? 3 : 2); i++) {
        assert_int_equal(bytes[0], bytes[i]);
        assert_memory_equal(y[0], y[i], bytes[0]);
    }
    for (int i = 0; i < 3; i++) free(y[i]), pare_plan_free(plan[i]);
    pare_device_close(device);
    graph_close(&g);
}

static void a_plan_has_one_step(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        const bool one = i / 2 == 2; /* pixel of Y */
        block_check(&(block_net){.type = i % 2 ? PARE_f16 : PARE_s8,
                                 .n = one ? 128 : 8,
                                 .side = one ? 2 : 28,
                                 .wide = 48,
                                 .m = one ? 24 : NARROW,
                                 .stride = one ? 2 : 1,
                                 .residual = i / 2 == 1});
    }
}

/* Y of 6.7 GB, X of 1.7: places in Y are of 64 bits. It is not run. */
static void a_large_output_is_one_step(void **state)
{
    (void)state;
    graph_case g;
    pare_device *device;
    net_make(&g, &(block_net){PARE_s8, 16384, 80, NARROW, 64, 1, false});
    if (pare_device_open(&g.ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
    pare_plan *plan = plan_of(&g, device, NULL);
    assert_int_equal(steps_of(plan, NULL, "cuda_depthwise_pointwise"), 1);
    pare_plan_free(plan);
    pare_device_close(device);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinities_stay_in_their_windows),
        cmocka_unit_test(the_largest_sums_are_counted),
        cmocka_unit_test(plain_integers_agree),
        cmocka_unit_test(pairs_agree),
        cmocka_unit_test(a_plan_has_one_step),
        cmocka_unit_test(a_large_output_is_one_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
