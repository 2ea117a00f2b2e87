/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products and convolutions that only the device's kernels distinguish: factors that are
   both computed, broadcast batches, vectors, biases of any shape, zero points by row and column,
   transposed and grouped convolutions, large tiles and split depths. Expected: the CPU's plain
   kernels, bytes equal for integers (kernel_case.c compares). Each case says how many of the
   device's kernels must have taken it. */
#include "tests/cuda/product_case.h"
#include "tests/simt/emulation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const pare_dtype float_types[] = {PARE_f32, PARE_f16, PARE_bf16};

static void operand(kernel_case *k, pare_dtype type, int rank, const int64_t *dims)
{
    int high = type == PARE_u8 ? 255 : type == PARE_s8 ? 127 : 1;
    case_input(k, type, rank, dims, false, type == PARE_s8 ? -128 : 0, high);
}

static void two(kernel_case *k, pare_dtype a, int ra, const int64_t *da, pare_dtype b, int rb,
                const int64_t *db)
{
    operand(k, a, ra, da);
    operand(k, b, rb, db);
}

typedef struct shapes {
    int ra, rb;
    int64_t a[5], b[5];
} shapes;

static void batches_broadcast(void **state)
{
    (void)state;
    static const shapes cases[] = {
        {3, 3, {3, 5, 16}, {3, 16, 24}},
        {4, 3, {2, 3, 7, 20}, {3, 20, 9}},
        {5, 4, {2, 1, 3, 4, 33}, {5, 1, 33, 6}},
        {4, 2, {2, 2, 65, 8}, {8, 70}},
        {2, 3, {3, 40}, {4, 40, 5}},
        {1, 2, {17}, {17, 31}},
        {2, 1, {9, 64}, {64}},
        {1, 1, {100}, {100}},
        {1, 3, {6}, {4, 6, 3}},
        {3, 1, {2, 4, 6}, {6}},
        {3, 3, {2, 0, 6}, {2, 6, 3}},
        {3, 3, {2, 3, 0}, {2, 0, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int t = 0; t < 3; t++) {
            kernel_case k;
            case_open(&k, "", "MatMul", i + 1);
            two(&k, float_types[t], cases[i].ra, cases[i].a, float_types[t], cases[i].rb,
                cases[i].b);
            case_check_device(&k, 1);
        }
}

static void gemm_takes_any_bias(void **state)
{
    (void)state;
    static const int64_t bias[][2] = {{1, 1}, {1, 13}, {21, 1}, {21, 13}};
    for (int i = 0; i < 32; i += case_apart())
        for (int t = 0; t < 3; t++) {
            kernel_case k;
            case_open(&k, "", "Gemm", (uint64_t)i + 1);
            int64_t m = 21, n = 13, d = 34;
            int ta = i & 1, tb = i >> 1 & 1;
            two(&k, float_types[t], 2, (int64_t[]){ta ? d : m, ta ? m : d}, float_types[t], 2,
                (int64_t[]){tb ? n : d, tb ? d : n});
            k.constant[1] = i >> 2 & 1;
            const int64_t *b = bias[i >> 3];
            bool vector = b[0] == 1;
            case_input(&k, float_types[t], vector ? 1 : 2, vector ? b + 1 : b, false, 0, 1);
            case_set_int(&k, "transA", ta);
            case_set_int(&k, "transB", tb);
            case_set_float(&k, "alpha", 0.5f);
            case_set_float(&k, "beta", -2);
            case_check_device(&k, 1);
        }
}

static void transposed_convolutions_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 36; i += case_apart()) {
        kernel_case k;
        case_open(&k, "", "ConvTranspose", (uint64_t)i + 1);
        pare_dtype t = float_types[i % 3];
        int64_t group = i % 4 ? 1 : 2, c = (i % 5 ? 6 : 16) * group, mg = 3 + i % 6, m = mg * group;
        int64_t x[4] = {2, c, 5, 4}, w[4] = {c, mg, 3, 2}, more[2] = {0, i % 3 > 1};
        k.nhwc = true;
        case_input(&k, t, 4, x, false, 0, 1);
        case_input(&k, t, 4, w, true, 0, 1);
        if (i & 1) case_input(&k, t, 1, &m, true, 0, 1);
        window_set(&k, i, group);
        if (i % 3 > 1) case_set_ints(&k, "output_padding", more, 2);
        case_check_device(&k, 1);
    }
}

/* Filters of a group fewer than a tile's columns; channels in fours and not. */
static void grouped_convolutions_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i += case_apart()) {
        kernel_case k;
        static const pare_dtype types[] = {PARE_f32, PARE_f16, PARE_bf16, PARE_s8, PARE_u8};
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        pare_dtype t = types[i % 5];
        bool int8 = t == PARE_s8 || t == PARE_u8;
        int64_t group = i % 2 ? 12 : 7, cg = i % 3 ? 1 : 3, mg = i % 3 == 1 ? 2 : 1, m = group * mg;
        int64_t x[4] = {1, cg * group, 8, 9}, w[4] = {m, cg, 3, 3};
        k.nhwc = true;
        fused_inputs(&k, t, x, w, i % 4 ? 1 : m);
        if (int8) case_set_int(&k, "to", t);
        window_set(&k, i, group);
        case_check_device(&k, 1);
    }
}

/* Depthwise windows of 3 and 5 taps, 1 or 2 a step, over borders on every side; strips of outputs
   that a line does not fill; activations of steps and curved ones. */
static void depthwise_convolutions_agree(void **state)
{
    (void)state;
    static const char *const acts[] = {"none", "relu", "hardswish", "silu", "leaky_relu"};
    for (int i = 0; i < 60; i += case_apart()) {
        kernel_case k;
        static const pare_dtype types[] = {PARE_f32, PARE_f16, PARE_bf16, PARE_s8, PARE_u8};
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        pare_dtype t = types[i % 5];
        bool int8 = t == PARE_s8 || t == PARE_u8;
        int64_t c = 4 + i % 3 * 8, taps = i & 1 ? 3 : 5, stride = 1 + (i >> 1 & 1), pad = i % 3;
        int64_t x[4] = {2, c, 7, 5 + i % 7}, w[4] = {c, 1, taps, taps};
        int64_t strides[2] = {stride, stride}, pads[4] = {pad, pad, pad, i % 2};
        k.nhwc = true;
        fused_inputs(&k, t, x, w, i % 4 ? 1 : c);
        if (int8) case_set_int(&k, "to", i % 7 ? t : PARE_f32);
        case_set_ints(&k, "strides", strides, 2);
        case_set_ints(&k, "pads", pads, 4);
        case_set_int(&k, "group", c);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[i % 4 + (i > 40)]),
                         PARE_OK);
        case_check_device(&k, 2); /* and the one of any grouped convolution */
    }
}

/* Windows whose channels are whole chunks: each tile by patches, taps in steps of depth that hold
   several, one and a part of one; borders; rows and columns that no tile ends at; windows side by
   side, whose lines are whole chunks. */
static void patches_agree(void **state)
{
    (void)state;
    static const struct {
        int64_t channels, filters, side, taps, stride, pad;
        int kernels;
    } cases[] = {
        {16, 40, 9, 3, 1, 1, 1},  {32, 72, 8, 3, 2, 1, 1},   {48, 17, 7, 3, 1, 2, 1},
        {64, 130, 6, 3, 1, 1, 1}, {80, 33, 6, 2, 1, 0, 1},   {16, 24, 12, 5, 2, 2, 1},
        {32, 16, 9, 6, 1, 3, 1},  {16, 72, 93, 1, 1, 0, 3},  {16, 72, 94, 3, 1, 1, 3},
        {16, 40, 92, 2, 1, 1, 2}, {3, 40, 48, 16, 16, 0, 1}, {4, 24, 16, 4, 4, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases * 4; i += (size_t)case_apart()) {
        kernel_case k;
        static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
        const int64_t c = cases[i / 4].channels, m = cases[i / 4].filters, side = cases[i / 4].side;
        const int64_t taps = cases[i / 4].taps, stride = cases[i / 4].stride,
                      pad = cases[i / 4].pad;
        const pare_dtype t = types[i % 4];
        const bool int8 = t == PARE_s8 || t == PARE_u8;
        case_open(&k, "pare", "FusedConv", i + 1);
        k.nhwc = true;
        fused_inputs(&k, t, (int64_t[]){1, c, side, side}, (int64_t[]){m, c, taps, taps}, m);
        if (int8) case_set_int(&k, "to", t);
        case_set_ints(&k, "strides", (int64_t[]){stride, stride}, 2);
        case_set_ints(&k, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
        case_check_device(&k, cases[i / 4].kernels);
    }
}

/* Windows side by side that begin a pixel inside of the picture: their lines are no whole chunks.
 */
static void negative_pads_agree(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
    for (int i = 0; i < 4; i++) {
        kernel_case k;
        const bool int8 = types[i] == PARE_s8 || types[i] == PARE_u8;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        fused_inputs(&k, types[i], (int64_t[]){2, 4, 8, 20}, (int64_t[]){24, 4, 4, 4}, 24);
        if (int8) case_set_int(&k, "to", types[i]);
        case_set_ints(&k, "strides", (int64_t[]){4, 4}, 2);
        case_set_ints(&k, "pads", (int64_t[]){0, -1, 0, 0}, 4);
        case_check_device(&k, 2); /* the stem's, and the one that gathers */
    }
}

/* Tiles that are whole, whose rows move by chunks, with and without a residual, of matrices and of
   patches, with what the common epilogues take: none, relu and clip. The last eight: integers
   without a zero point, whose bounds are their type's, or 0 and 127. */
static void whole_tiles_agree(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
    static const char *const acts[] = {"none", "relu", "clip"};
    for (int i = 0; i < 24; i += case_apart()) {
        kernel_case k;
        const bool plain = i >= 16;
        const pare_dtype t = types[i % (plain ? 2 : 4)];
        const bool int8 = t == PARE_s8 || t == PARE_u8;
        const bool residual = plain ? i < 22 : i / 4 % 2;
        const int act = !plain ? i % 3 : i < 22 ? (i - 16) / 2 : 1;
        const int64_t stride = 1 + i / 8 % 2, side = 92 * stride, y[4] = {1, 128, 92, 92};
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        residual_inputs(&k, t, (int64_t[]){1, 16, side, side}, (int64_t[]){128, 16, 1, 1}, 128,
                        residual ? y : NULL);
        case_set_ints(&k, "strides", (int64_t[]){stride, stride}, 2);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[act]), PARE_OK);
        case_set_float(&k, "alpha", plain ? 0 : int8 ? -3 : -0.5f);
        case_set_float(&k, "beta", plain ? 1000 : int8 ? 11 : 0.75f);
        if (int8) {
            case_set_int(&k, "to", t);
            case_set_float(&k, "z_scale", 0.07f);
            case_set_int(&k, "z_zero_point", 9);
            case_set_int(&k, "y_zero_point", plain ? 0 : t == PARE_u8 ? 100 : -7);
        }
        case_check_device(&k, 3); /* each tile */
    }
}

/* alpha and beta of an activation that has them; of products they are factors. */
static void bounds_set(kernel_case *k, const char *act, float slope, float low, float high)
{
    const bool clip = !strcmp(act, "clip");
    if (!clip && strcmp(act, "leaky_relu") && strcmp(act, "hardsigmoid")) return;
    case_set_float(k, "alpha", clip ? low : slope);
    case_set_float(k, "beta", clip ? high : 0.4f);
}

/* Channels that are whole pieces of 8 bytes but no chunks: each tile; pixels and windows over
   borders, taps that a chunk holds two of, groups, split depths; each epilogue. Filters that are no
   chunks make rows of Y that are stored by words. */
static void pieces_agree(void **state)
{
    (void)state;
    static const struct {
        int64_t channels, filters, side, taps, stride, pad, group;
        int kernels;
    } cases[] = {
        {24, 144, 93, 1, 1, 0, 1, 3}, {8, 24, 92, 3, 1, 1, 1, 2},  {24, 72, 94, 1, 1, 0, 1, 3},
        {40, 24, 13, 1, 1, 0, 1, 1},  {72, 24, 9, 1, 2, 0, 1, 1},  {88, 40, 7, 3, 2, 1, 1, 2},
        {120, 130, 9, 1, 1, 0, 1, 1}, {200, 88, 6, 1, 1, 0, 1, 1}, {8, 17, 9, 5, 2, 2, 1, 1},
        {24, 33, 8, 3, 1, 2, 1, 1},   {8, 20, 9, 2, 2, 1, 1, 1},   {24, 20, 9, 3, 1, 1, 2, 1},
    };
    static const char *const acts[] = {"none", "relu", "clip", "hardswish"};
    enum { CASES = sizeof cases / sizeof *cases };
    for (int i = 0; i < CASES * 8; i += case_apart()) {
        kernel_case k;
        const int64_t cg = cases[i % CASES].channels, group = cases[i % CASES].group,
                      c = cg * group, m = cases[i % CASES].filters * group,
                      side = cases[i % CASES].side, taps = cases[i % CASES].taps,
                      stride = cases[i % CASES].stride, pad = cases[i % CASES].pad,
                      out = (side + 2 * pad - taps) / stride + 1, y[4] = {1, m, out, out};
        const pare_dtype t = i / CASES % 2 ? PARE_u8 : PARE_s8;
        const int act = (i / CASES + i % CASES) % 4;
        const bool bounds = i / CASES / 4;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        residual_inputs(&k, t, (int64_t[]){1, c, side, side}, (int64_t[]){m, cg, taps, taps}, m,
                        i / CASES / 2 % 2 ? y : NULL);
        case_set_int(&k, "to", t);
        case_set_int(&k, "group", group);
        case_set_ints(&k, "strides", (int64_t[]){stride, stride}, 2);
        case_set_ints(&k, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[act]), PARE_OK);
        bounds_set(&k, acts[act], 0, bounds ? -3 : 0, bounds ? 11 : 1000);
        case_set_float(&k, "z_scale", 0.07f);
        case_set_int(&k, "y_zero_point", !bounds ? 0 : t == PARE_u8 ? 100 : -7);
        case_check_device(&k, cases[i % CASES].kernels);
    }
}

/* Shapes that fill a device with the large tiles, and ones that split their depth. */
static void tiles_and_splits_agree(void **state)
{
    (void)state;
    static const struct {
        pare_dtype type;
        int64_t rows, depth, columns;
        int kernels;
    } cases[] = {
        {PARE_s8, 8330, 64, 72, 4}, /* both large tiles, the small one, any */
        {PARE_u8, 8330, 32, 40, 3}, /* 128 rows by 64 columns */
        {PARE_f16, 8330, 32, 72, 4}, {PARE_bf16, 8330, 24, 72, 4},
        {PARE_s8, 8330, 24, 72, 4},  {PARE_u8, 8330, 40, 24, 3}, /* pieces of 8 bytes */
        {PARE_s8, 9, 616, 10, 3},    {PARE_s8, 5, 1040, 70, 3},  /* split, small, any */
        {PARE_u8, 70, 512, 20, 3},   {PARE_f16, 33, 600, 65, 3},
        {PARE_bf16, 3, 640, 10, 3},  {PARE_s8, 9, 612, 10, 3}, /* depth in fours */
        {PARE_f16, 9, 602, 10, 3},   {PARE_f16, 9, 601, 10, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += (size_t)case_apart()) {
        kernel_case k;
        bool int8 = cases[i].type == PARE_s8 || cases[i].type == PARE_u8;
        case_open(&k, int8 ? "pare" : "", int8 ? "FusedMatMul" : "MatMul", i + 1);
        int64_t a[2] = {cases[i].rows, cases[i].depth}, b[2] = {cases[i].depth, cases[i].columns},
                one = 1;
        case_input(&k, cases[i].type, 2, a, false, cases[i].type == PARE_s8 ? -128 : 0,
                   int8 ? 127 : 1);
        case_input(&k, int8 ? PARE_s8 : cases[i].type, 2, b, true, int8 ? -127 : 0, int8 ? 127 : 1);
        if (int8) {
            case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
            case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
            case_input(&k, PARE_f32, 1, &one, true, 0, 1);
            *(float *)k.in[4].data = 0.01f;
            case_set_float(&k, "y_scale", 3);
            case_set_int(&k, "x_zero_point", 3);
            case_set_int(&k, "to", PARE_s8);
        }
        case_check_device(&k, cases[i].kernels);
    }
}

static void libraries_take_floats(void **state)
{
    (void)state;
    static const char *const acts[] = {"none", "relu", "gelu_tanh", "gelu"};
    for (int i = 0; i < 48; i += case_apart()) {
        kernel_case k;
        pare_dtype t = float_types[i % 3];
        int act = i / 3 % 4;
        bool biased = i & 1, residual = i / 12 & 1, constant = i / 24;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        int64_t a[3] = {2, 9, 36}, b[2] = {36, 20}, y[3] = {2, 9, 20};
        two(&k, t, 3, a, t, 2, b);
        k.constant[1] = constant;
        case_input(&k, biased ? t : PARE_NOTYPE, 1, b + 1, true, 0, 1);
        if (residual) case_input(&k, t, 3, y, false, 0, 2);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[act]), PARE_OK);
        /* 20 columns are whole vectors of f32 only */
        case_check_libraries(&k, constant ? 2 : 1, t == PARE_f32 || act < 3 ? 2 : 0);
    }
}

/* Activations that cuBLASLt has not, as a pass behind it: erf-GELU and all others. */
static void libraries_take_activations(void **state)
{
    (void)state;
    static const char *const acts[] = {"gelu",        "silu", "hardswish", "sigmoid",   "tanh",
                                       "hardsigmoid", "clip", "relu",      "leaky_relu"};
    enum { ACTS = sizeof acts / sizeof *acts };
    for (int i = 0; i < 3 * ACTS; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = float_types[i / ACTS];
        const char *act = acts[i % ACTS];
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        const int64_t a[3] = {2, 7 + 40 * (i % 2), 40}, b[2] = {40, 24}, y[3] = {2, a[1], 24};
        two(&k, t, 3, a, t, 2, b);
        k.constant[1] = i % 2;
        case_input(&k, i % 3 ? t : PARE_NOTYPE, 1, b + 1, true, 0, 1);
        if (i % 4 == 1) case_input(&k, t, 3, y, false, 0, 2);
        assert_int_equal(pare_node_set_string(k.node, "activation", act), PARE_OK);
        bounds_set(&k, act, 0.2f, -0.5f, 0.75f);
        case_check_libraries(&k, i % 2 ? 2 : 1, 2);
    }
}

/* Windows of one pixel are matrices: with each epilogue of the library's and of a pass. */
static void libraries_take_convolutions(void **state)
{
    (void)state;
    static const char *const acts[] = {"none", "relu", "gelu_tanh", "silu", "clip"};
    for (int i = 0; i < 60; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = float_types[i % 3];
        const bool biased = i & 1, residual = i / 2 & 1, strided = i % 7 == 0;
        const int64_t c = i % 4 ? 16 : 12, m = i % 11 ? 24 : 20, in = strided ? 9 : 5;
        const int act = i / 3 % 5;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        k.deterministic = i % 13 == 5;
        case_input(&k, t, 4, (int64_t[]){2, c, in, 5}, false, 0, 1);
        case_input(&k, t, 4, (int64_t[]){m, c, 1, 1}, true, 0, 1);
        case_input(&k, biased ? t : PARE_NOTYPE, 1, &m, true, 0, 1);
        if (residual) case_input(&k, t, 4, (int64_t[]){2, m, 5, strided ? 3 : 5}, false, 0, 1);
        if (strided) case_set_ints(&k, "strides", (int64_t[]){2, 2}, 2);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[act]), PARE_OK);
        bounds_set(&k, acts[act], 0, -0.5f, 0.75f);
        const bool vectors = act < 3 || t == PARE_f32 || m % 8 == 0;
        case_check_libraries(&k, 1, strided || k.deterministic || !vectors ? 0 : 2);
    }
}

/* Integers of many rows: the library's sums, and a pass that must make the bytes of our own
   kernels. Every activation, residuals and biases of each type, zero points, sums of u8. */
static void libraries_take_integers(void **state)
{
    (void)state;
    static const char *const acts[] = {"none",      "relu", "clip", "leaky_relu",
                                       "hardswish", "gelu", "silu"};
    static const pare_dtype residuals[] = {PARE_NOTYPE, PARE_s8, PARE_u8, PARE_f32};
    for (int i = 0; i < 28; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = i & 1 ? PARE_u8 : PARE_s8, z = residuals[i / 2 % 4];
        const bool conv = i / 4 & 1, real = i % 5 == 4;
        const int64_t rows = 1024 + 6 * (i % 3), c = 256, m = 64, b[2] = {c, m}, y[2] = {rows, m};
        const int64_t one = 1, yc[4] = {2, m, rows / 2, 1}, x[2] = {rows, c},
                      xc[4] = {2, c, rows / 2, 1}, wc[4] = {m, c, 1, 1};
        case_open(&k, "pare", conv ? "FusedConv" : "FusedMatMul", (uint64_t)i + 1);
        k.nhwc = conv;
        k.deterministic = i % 3 == 1; /* sums are exact */
        case_input(&k, t, conv ? 4 : 2, conv ? xc : x, false, t == PARE_s8 ? -128 : 0,
                   t == PARE_s8 ? 127 : 255);
        case_input(&k, PARE_s8, conv ? 4 : 2, conv ? wc : b, true, -127, 127);
        case_input(&k, i % 3 ? PARE_s32 : i % 2 ? PARE_f32 : PARE_NOTYPE, 1, &m, true, -5000, 5000);
        case_input(&k, z, conv ? 4 : 2, conv ? yc : y, false, z == PARE_s8 ? -128 : 0,
                   z == PARE_s8   ? 127
                   : z == PARE_u8 ? 255
                                  : 1);
        floats_between(&k, i % 4 ? m : one, 0.01f, 0.02f);
        case_set_float(&k, "x_scale", 0.02f);
        case_set_float(&k, "y_scale", 0.9f);
        case_set_float(&k, "z_scale", 0.07f);
        case_set_int(&k, "x_zero_point", i % 3 ? 5 : 0);
        case_set_int(&k, "z_zero_point", 9);
        case_set_int(&k, "y_zero_point", real ? 0 : t == PARE_u8 ? 100 : -7);
        case_set_int(&k, "to", real ? PARE_f32 : t);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[i % 7]), PARE_OK);
        bounds_set(&k, acts[i % 7], 0.1f, -3, 11);
        case_check_libraries(&k, conv ? 1 : 2, 2);
    }
}

/* f32 of integers is rounded to a short type at once; residuals of it, of f32, or none; split
   depths, columns that no vector takes, weights that are computed. */
static void integers_become_halves(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{70, 64, 24}, {9, 612, 10}, {130, 48, 68}, {33, 80, 7}};
    for (int i = 0; i < 24; i += case_apart()) {
        kernel_case k;
        const int64_t *s = sizes[i % 4], y[2] = {s[0], s[2]};
        const pare_dtype x = i & 1 ? PARE_u8 : PARE_s8, to = i / 12 ? PARE_bf16 : PARE_f16,
                         residuals[] = {PARE_NOTYPE, to, PARE_f32};
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        case_input(&k, x, 2, s, false, i & 1 ? 0 : -128, i & 1 ? 255 : 127);
        case_input(&k, PARE_s8, 2, s + 1, i % 5 != 4, -127, 127);
        case_input(&k, PARE_s32, 1, s + 2, true, -5000, 5000);
        case_input(&k, residuals[i / 4 % 3], 2, y, false, 0, 4);
        floats_between(&k, s[2], 0.01f, 0.02f);
        case_set_float(&k, "x_scale", 0.02f);
        case_set_int(&k, "x_zero_point", 5);
        case_set_int(&k, "to", PARE_f32);
        case_set_int(&k, "output_dtype", to);
        assert_int_equal(pare_node_set_string(k.node, "activation", i % 3 ? "none" : "gelu"),
                         PARE_OK);
        case_check_device(&k, 1);
    }
}

/* What passes are not worth their time for, or what the library's kernels take badly. */
static void libraries_leave_small_integers(void **state)
{
    (void)state;
    static const int64_t sizes[4][3] = {
        {1024, 240, 64}, {64, 256, 64}, {1024, 264, 64}, {1024, 256, 72}};
    for (int i = 0; i < 4; i++) {
        kernel_case k;
        const int64_t one = 1;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        case_input(&k, PARE_s8, 2, sizes[i], false, -128, 127);
        case_input(&k, PARE_s8, 2, sizes[i] + 1, true, -127, 127);
        case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
        case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
        floats_between(&k, one, 0.01f, 0.02f);
        case_set_float(&k, "y_scale", 3);
        case_run_device(&k, 2);
        assert_in_range(k.device_runs, 2, 3);
        assert_int_equal(k.library_runs, 0);
        case_close(&k);
    }
}

/* The heuristic is asked once for a product: not for every kernel, and not by other nodes. */
static void the_heuristic_is_asked_once(void **state)
{
    (void)state;
    static const char *const name = "cublasLtMatmulAlgoGetHeuristic";
    if (!simt_emulated()) skip(); /* nobody counts a library's calls */
    uint64_t before = simt_calls_of(name);
    for (int i = 0; i < 3; i++) {
        kernel_case k;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        two(&k, PARE_f16, 2, (int64_t[]){11 + i / 2, 48}, PARE_f16, 2, (int64_t[]){48, 56});
        k.constant[1] = true;
        case_check_libraries(&k, 2, 2);
        assert_int_equal(simt_calls_of(name) - before, case_has_libraries() ? 1 + i / 2 : 0);
    }
}

static void libraries_take_batches(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i += case_apart()) {
        kernel_case k;
        pare_dtype t = float_types[i % 3];
        bool broadcast = i / 3 & 1, deterministic = i / 6;
        case_open(&k, "", "MatMul", (uint64_t)i + 1);
        two(&k, t, 4, (int64_t[]){2, 3, 7, 24}, t, 4, (int64_t[]){broadcast ? 1 : 2, 3, 24, 10});
        k.deterministic = deterministic; /* other batches, other algorithms */
        case_check_libraries(&k, 1, deterministic || broadcast ? 0 : 3);
    }
    for (int i = 0; i < 12; i += case_apart()) {
        kernel_case k;
        pare_dtype t = float_types[i % 3];
        int ta = i / 3 & 1, tb = i / 6;
        case_open(&k, "", "Gemm", (uint64_t)i + 1);
        two(&k, t, 2, ta ? (int64_t[]){12, 5} : (int64_t[]){5, 12}, t, 2,
            tb ? (int64_t[]){9, 12} : (int64_t[]){12, 9});
        case_set_int(&k, "transA", ta);
        case_set_int(&k, "transB", tb);
        case_set_float(&k, "alpha", 0.25f);
        case_check_libraries(&k, 1, 2);
    }
}

/* Pictures of one pixel, row-major: in a batch each is the next one's neighbour. */
static void pictures_of_one_pixel_agree(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_f16, PARE_f32};
    for (int i = 0; i < 6; i++) {
        kernel_case k;
        const int64_t side = i / 3 ? 3 : 1, pad = i / 3;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        fused_inputs(&k, types[i % 3], (int64_t[]){5, 32, 1, 1}, (int64_t[]){24, 32, side, side},
                     24);
        case_set_ints(&k, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
        k.only = "conv_64x64";
        case_check_device(&k, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_broadcast),
        cmocka_unit_test(gemm_takes_any_bias),
        cmocka_unit_test(transposed_convolutions_agree),
        cmocka_unit_test(grouped_convolutions_agree),
        cmocka_unit_test(depthwise_convolutions_agree),
        cmocka_unit_test(patches_agree),
        cmocka_unit_test(pictures_of_one_pixel_agree),
        cmocka_unit_test(whole_tiles_agree),
        cmocka_unit_test(pieces_agree),
        cmocka_unit_test(negative_pads_agree),
        cmocka_unit_test(tiles_and_splits_agree),
        cmocka_unit_test(libraries_take_floats),
        cmocka_unit_test(the_heuristic_is_asked_once),
        cmocka_unit_test(libraries_take_batches),
        cmocka_unit_test(libraries_take_activations),
        cmocka_unit_test(libraries_take_convolutions),
        cmocka_unit_test(libraries_take_integers),
        cmocka_unit_test(libraries_leave_small_integers),
        cmocka_unit_test(integers_become_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
