/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolutions with the pointwise one behind them on a device. Expected: the plain
   kernel, which is FusedConv's twice; integers byte-equal. */
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
    for (int i = 0; i < 4 * SHAPES * 3; i += apart()) {
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
    for (int i = 0; i<2 * SHAPES; i += apart()> 1 ? 3 : 1) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinities_stay_in_their_windows),
        cmocka_unit_test(the_largest_sums_are_counted),
        cmocka_unit_test(plain_integers_agree),
        cmocka_unit_test(pairs_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
