/* SPDX-License-Identifier: Apache-2.0 */
/* Products and convolutions of FP8: every CPU kernel against the plain one, whose sums are exact.
   Floats are apart by what sums in f32 lose, codes by a step. */
#include "tests/cpu/f8_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static float number_of(const void *data, pare_dtype type, int64_t i)
{
    if (pare_type_is_f8(type)) return pare_f8_value(type, ((const uint8_t *)data)[i]);
    return pare_type(type)->to_f32((const char *)data + i * (pare_type(type)->bits / 8));
}

/* A step of y's type at v. */
static float step_of(pare_dtype type, float v)
{
    const float part = type == PARE_f32      ? 0
                       : type == PARE_f16    ? 0x1p-10f
                       : type == PARE_bf16   ? 0x1p-7f
                       : type == PARE_f8e4m3 ? 0x1p-3f
                                             : 0x1p-2f;
    return fabsf(v) * part + (type == PARE_f8e4m3 ? 0x1p-9f : type == PARE_f8e5m2 ? 0x1p-16f : 0);
}

/* Kernels but the plain one that take the node. */
static int kernels_agree(kernel_case *k)
{
    int ran = 0;
    case_infer(k);
    const int64_t count = pare_view_count(&k->out);
    char *want = malloc(case_bytes(k) + 1), *got = malloc(case_bytes(k) + 1);
    assert_true(want && got && case_run(k, case_plain(k), want));
    float largest = 1;
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(number_of(want, k->out.dtype, i)));
    for (const pare_kernel *const *it = k->op->cpu; *it != case_plain(k); it++) {
        if (!case_run(k, *it, got)) continue;
        ran++;
        for (int64_t i = 0; i < count; i++) {
            const float a = number_of(want, k->out.dtype, i), b = number_of(got, k->out.dtype, i);
            if (!(fabsf(a - b) <= step_of(k->out.dtype, a) + 1e-5f * largest))
                fail_msg("%s: element %lld is %.9g, expected %.9g", (*it)->name, (long long)i,
                         (double)b, (double)a);
        }
    }
    free(want);
    free(got);
    case_close(k);
    return ran;
}

static const f8_end ends[] = {
    {PARE_f8e4m3, PARE_f8e4m3, PARE_NOTYPE, "none", true, false},
    {PARE_f8e4m3, PARE_f8e4m3, PARE_f8e4m3, "relu", true, true},
    {PARE_f8e4m3, PARE_f8e4m3, PARE_f32, "clip", false, false},
    {PARE_f8e4m3, PARE_f8e4m3, PARE_NOTYPE, "gelu", true, false},
    {PARE_f8e4m3, PARE_f32, PARE_f32, "none", true, false},
    {PARE_f8e4m3, PARE_f32, PARE_f8e4m3, "silu", false, true},
    {PARE_f8e5m2, PARE_f8e5m2, PARE_NOTYPE, "leaky_relu", true, false},
    {PARE_f8e5m2, PARE_f32, PARE_f8e5m2, "none", false, true},
};
enum { ENDS = sizeof ends / sizeof *ends };

static void products_agree(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {{1, 1, 1}, {7, 33, 5}, {40, 300, 65}, {13, 64, 128}};
    for (int i = 0; i < 4 * ENDS; i++) {
        kernel_case k;
        const int64_t *c = cases[i / ENDS], x[2] = {c[0], c[1]}, w[2] = {c[1], c[2]},
                      y[2] = {c[0], c[2]};
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        k.threads = 1 + i % 2;
        f8_node(&k, &ends[i % ENDS], 2, x, w, y, c[2], c[1]);
        assert_true(kernels_agree(&k) > 0);
    }
}

static void products_to_halves_agree(void **state)
{
    (void)state;
    static const f8_end halves[] = {{PARE_f8e4m3, PARE_f16, PARE_f16, "none", true, false},
                                    {PARE_f8e4m3, PARE_bf16, PARE_NOTYPE, "relu", true, true},
                                    {PARE_f8e5m2, PARE_f16, PARE_f8e5m2, "none", false, false}};
    const int64_t x[2] = {21, 70}, w[2] = {70, 35}, y[2] = {21, 35};
    for (int i = 0; i < 3; i++) {
        kernel_case k;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        f8_node(&k, &halves[i], 2, x, w, y, w[1], w[0]);
        assert_true(kernels_agree(&k) > 0);
    }
}

/* Both factors computed, in batches, the second one turned. */
static void computed_factors_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        kernel_case k;
        const pare_dtype type = i ? PARE_f8e5m2 : PARE_f8e4m3;
        const int64_t x[3] = {3, 9, 20}, w[3] = {3, 17, 20};
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        f8_input(&k, type, 3, x, false);
        f8_input(&k, type, 3, w, false);
        case_set_int(&k, "transB", 1);
        case_set_int(&k, "to", i ? PARE_f32 : type);
        case_set_float(&k, "x_scale", 0.01f);
        case_set_float(&k, "y_scale", 3);
        assert_true(kernels_agree(&k) > 0);
    }
}

static void convolutions_agree(void **state)
{
    (void)state;
    static const int64_t cases[][6] = {/* channels, filters, side, taps, stride, groups */
                                       {3, 16, 15, 3, 2, 1},
                                       {16, 24, 9, 1, 1, 1},
                                       {32, 32, 8, 3, 1, 32},
                                       {24, 12, 10, 5, 1, 3}};
    for (int i = 0; i < 4 * ENDS; i++) {
        kernel_case k;
        const int64_t *c = cases[i / ENDS], x[4] = {2, c[0], c[2], c[2]},
                      w[4] = {c[1], c[0] / c[5], c[3], c[3]},
                      y[4] = {2, c[1], (c[2] - c[3] + 2) / c[4] + 1, (c[2] - c[3] + 2) / c[4] + 1};
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = i % 3 != 0;
        case_set_ints(&k, "pads", (int64_t[]){1, 1, 1, 1}, 4);
        case_set_ints(&k, "strides", (int64_t[]){c[4], c[4]}, 2);
        case_set_int(&k, "group", c[5]);
        f8_node(&k, &ends[i % ENDS], 4, x, w, y, c[1], w[1] * c[3] * c[3]);
        assert_true(kernels_agree(&k) > 0);
    }
}

/* The sum is exact: terms of 2^35 and more apart, which no f32 holds together. */
static void plain_sums_are_exact(void **state)
{
    (void)state;
    kernel_case k;
    float y;
    const int64_t x[2] = {1, 3}, w[2] = {3, 1};
    case_open(&k, "pare", "FusedMatMul", 1);
    uint8_t *a = case_input(&k, PARE_f8e4m3, 2, x, false, 0, 0),
            *b = case_input(&k, PARE_f8e4m3, 2, w, true, 0, 0);
    a[0] = b[0] = 0x7e, a[1] = b[1] = 0x01, a[2] = 0xfe, b[2] = 0x7e; /* 448, 2^-9, -448 */
    case_set_int(&k, "to", PARE_f32);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), &y));
    assert_true(y == 0x1p-18f);
    case_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree),         cmocka_unit_test(products_to_halves_agree),
        cmocka_unit_test(computed_factors_agree), cmocka_unit_test(convolutions_agree),
        cmocka_unit_test(plain_sums_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
