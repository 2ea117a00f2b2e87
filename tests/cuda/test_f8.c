/* SPDX-License-Identifier: Apache-2.0 */
/* FP8 on the device, against the CPU's plain kernels: products with constant and with computed
   factors, convolutions, QuantizeLinear, DequantizeLinear. Floats are apart by what sums in f32
   lose, codes of products by a step; codes of QuantizeLinear are equal. PARE_EXACT=quick: a part of
   the cases. */
#include "tests/cpu/f8_case.h"
#include "tests/simt/testing.h"

static const f8_end ends[] = {
    {PARE_f8e4m3, PARE_f8e4m3, PARE_NOTYPE, "none", true, false},
    {PARE_f8e4m3, PARE_f8e4m3, PARE_f8e4m3, "relu", true, true},
    {PARE_f8e4m3, PARE_f32, PARE_f32, "clip", false, false},
    {PARE_f8e5m2, PARE_f8e5m2, PARE_NOTYPE, "gelu", true, false},
    {PARE_f8e5m2, PARE_f32, PARE_f8e5m2, "none", false, true},
};
static const f8_end halves[] = {
    {PARE_f8e4m3, PARE_f16, PARE_f16, "none", true, false},
    {PARE_f8e4m3, PARE_bf16, PARE_NOTYPE, "relu", false, true},
};
enum { ENDS = sizeof ends / sizeof *ends, HALVES = sizeof halves / sizeof *halves };

/* Is case i left out? */
static bool is_apart(int i) { return case_is_quick() && i % 3 != 0; }

static void products_agree(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, depth, columns;
        int kernels;
    } cases[] = {{1, 16, 16, 1},     {70, 48, 40, 1},     {33, 7, 5, 1}, /* gathered */
                 {9, 1040, 24, 2},                                       /* split, too */
                 {1200, 64, 130, 2}, {1100, 80, 1030, 3}, {0, 16, 8, 0}};
    for (int i = 0; i < 7 * (ENDS + HALVES); i++) {
        kernel_case k;
        const int c = i % 7, e = i / 7;
        const int64_t x[2] = {cases[c].rows, cases[c].depth}, w[2] = {x[1], cases[c].columns},
                      y[2] = {x[0], w[1]};
        if (is_apart(i)) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        f8_node(&k, e < ENDS ? &ends[e] : &halves[e - ENDS], 2, x, w, y, w[1], x[1]);
        case_check_device(&k, cases[c].kernels);
    }
}

/* In batches, the second one turned or not; depth that is packed first, or read where it is. */
static void computed_factors_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        kernel_case k;
        const pare_dtype type = i & 1 ? PARE_f8e5m2 : PARE_f8e4m3;
        const bool turned = i & 2;
        const int64_t depth = i & 4 ? 32 : 27, x[3] = {3, 19, depth},
                      w[3] = {3, turned ? 21 : depth, turned ? depth : 21};
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        f8_input(&k, type, 3, x, false);
        f8_input(&k, type, 3, w, false);
        case_set_int(&k, "transB", turned);
        case_set_int(&k, "to", i & 4 ? PARE_f32 : type);
        case_set_float(&k, "x_scale", 0.01f);
        case_set_float(&k, "y_scale", 3);
        case_check_device(&k, 1);
    }
}

static void convolutions_agree(void **state)
{
    (void)state;
    static const struct {
        int64_t channels, filters, side, taps, stride, groups;
        int kernels;
    } cases[] = {
        {3, 16, 15, 3, 2, 1, 2},                             /* widened, and gathered */
        {16, 24, 9, 1, 1, 1, 1},   {32, 32, 8, 3, 1, 32, 3}, /* strips, one by one, and gathered */
        {48, 12, 10, 3, 1, 3, 2},                            /* one by one, and gathered */
        {64, 72, 33, 3, 1, 1, 1},  {20, 16, 12, 3, 1, 1, 1},
        {12, 12, 11, 5, 2, 12, 3}, {7, 7, 9, 3, 1, 7, 2}}; /* channels that are in no fours */
    for (int i = 0; i < 8 * ENDS; i++) {
        kernel_case k;
        const int c = i % 8;
        const int64_t m = cases[c].filters, side = cases[c].side, taps = cases[c].taps,
                      out = (side - taps + 2) / cases[c].stride + 1,
                      x[4] = {2, cases[c].channels, side, side},
                      w[4] = {m, x[1] / cases[c].groups, taps, taps}, y[4] = {2, m, out, out};
        if (is_apart(i)) continue;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        case_set_ints(&k, "pads", (int64_t[]){1, 1, 1, 1}, 4);
        case_set_ints(&k, "strides", (int64_t[]){cases[c].stride, cases[c].stride}, 2);
        case_set_int(&k, "group", cases[c].groups);
        f8_node(&k, &ends[i / 8], 4, x, w, y, m, w[1] * taps * taps);
        case_check_device(&k, cases[c].kernels);
    }
}

/* Of each float type, per tensor and along an axis, of one order and of another. */
static void codes_are_equal(void **state)
{
    (void)state;
    static const pare_dtype floats[] = {PARE_f32, PARE_f16, PARE_bf16};
    for (int i = 0; i < 24; i++) {
        kernel_case k;
        const pare_dtype type = i & 1 ? PARE_f8e5m2 : PARE_f8e4m3, real = floats[i % 3];
        const bool back = i & 2, axis = i & 4;
        const int64_t dims[4] = {2, 5, 3, i & 8 ? 8 : 7}, scales = axis ? dims[1] : 1;
        if (is_apart(i)) continue;
        case_open(&k, "", back ? "DequantizeLinear" : "QuantizeLinear", (uint64_t)i + 1);
        k.nhwc = i % 5 == 0;
        if (back)
            f8_input(&k, type, 4, dims, false);
        else
            case_input(&k, real, 4, dims, false, 0, type == PARE_f8e4m3 ? 400 : 40000);
        case_input(&k, real, axis ? 1 : 0, &scales, true, 0, 1);
        for (int64_t c = 0; c < scales; c++) case_put(&k, 1, c, 0.75f + (float)c);
        memset(case_input(&k, type, axis ? 1 : 0, &scales, true, 0, 0), 0, (size_t)scales);
        case_check_device(&k, 1);
    }
}

/* What is too large for a code becomes the largest number, infinities too; -0 becomes 0. */
static void ends_of_codes_are_equal(void **state)
{
    (void)state;
    static const float numbers[] = {INFINITY, -INFINITY, 3e38f, -3e38f, -0.0f, 448,
                                    463,      465,       57344, 61439,  61441, 1e-45f};
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    for (int i = 0; i < 2; i++) {
        kernel_case k;
        const pare_dtype type = i ? PARE_f8e5m2 : PARE_f8e4m3;
        const int64_t dims[1] = {NUMBERS}, one = 1;
        case_open(&k, "", "QuantizeLinear", (uint64_t)i + 1);
        memcpy(case_input(&k, PARE_f32, 1, dims, false, 0, 1), numbers, sizeof numbers);
        *(float *)case_input(&k, PARE_f32, 0, &one, true, 0, 1) = 1;
        *(uint8_t *)case_input(&k, type, 0, &one, true, 0, 0) = 0x80;
        case_check_device(&k, 1);
    }
}

/* NaN stays NaN, what is too large becomes the largest number, in products and beside them. */
static void large_and_no_numbers_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        kernel_case k;
        const pare_dtype type = i & 1 ? PARE_f8e5m2 : PARE_f8e4m3;
        const int64_t x[2] = {20, 32}, w[2] = {32, 16};
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        f8_input(&k, type, 2, x, false);
        f8_input(&k, type, 2, w, true);
        ((uint8_t *)k.in[0].data)[5] = 0x7f;
        case_set_int(&k, "to", i & 2 ? PARE_f32 : type);
        case_set_float(&k, "y_scale", i & 2 ? 1 : 1e-3f);
        case_check_device(&k, 1);
    }
}

/* Zero points that are not 0, blocks, codes that do not saturate: the host computes them. */
static void others_are_left(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        kernel_case k;
        const int64_t dims[2] = {4, 6}, one = 1;
        case_open(&k, "", "QuantizeLinear", 1);
        case_input(&k, PARE_f32, 2, dims, false, 0, 4);
        case_input(&k, PARE_f32, 1, &one, true, 0, 1);
        case_put(&k, 1, 0, 0.5f);
        *(uint8_t *)case_input(&k, PARE_f8e4m3, 1, &one, true, 0, 0) = i ? 0 : 0x38;
        if (i) case_set_int(&k, "saturate", 0);
        case_run_device(&k, 0);
        assert_int_equal(k.device_runs, 0);
        case_close(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(products_agree),          device_test(computed_factors_agree),
        device_test(convolutions_agree),      device_test(codes_are_equal),
        device_test(ends_of_codes_are_equal), device_test(large_and_no_numbers_agree),
        device_test(others_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
