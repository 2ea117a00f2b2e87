/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear and DequantizeLinear: values worked out by hand. */
#include "tests/cpu/kernel_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void quantize(const float *x, int64_t n, float scale, pare_dtype type, int zero, void *y)
{
    kernel_case k;
    case_open(&k, "", "QuantizeLinear", 1);
    memcpy(case_input(&k, PARE_f32, 1, &n, false, 0, 1), x, (size_t)n * sizeof *x);
    *(float *)case_input(&k, PARE_f32, 0, NULL, true, 0, 1) = scale;
    case_input(&k, type, 0, NULL, true, zero, zero);
    case_infer(&k);
    assert_int_equal(k.out.dtype, type);
    assert_true(case_run(&k, case_plain(&k), y));
    case_close(&k);
}

static void quantization_rounds_ties_to_even_before_the_zero_point(void **state)
{
    (void)state;
    const float x[] = {1.25f, 1.75f, -1.25f, -1.75f, 1000, -1000, NAN, INFINITY};
    const int8_t s8[] = {2, 4, -2, -4, 127, -128, -128, 127};
    const uint8_t u8[] = {5, 7, 1, 0, 255, 0, 0, 255};
    int8_t y[8];
    quantize(x, 8, 0.5f, PARE_s8, 0, y);
    assert_memory_equal(y, s8, sizeof y);
    quantize(x, 8, 0.5f, PARE_u8, 3, y);
    assert_memory_equal(y, u8, sizeof y);
}

/* 2.25 / 0.3f is just below 7.5 and rounds to 7; times 1 / 0.3f it would be the tie 7.5, thus 8. */
static void quantization_divides(void **state)
{
    (void)state;
    const float x = 2.25f;
    int8_t y;
    quantize(&x, 1, 0.3f, PARE_s8, 0, &y);
    assert_int_equal(y, 7);
}

static void dequantization_per_axis(void **state)
{
    (void)state;
    const int8_t x[6] = {-128, 0, 127, 1, 2, 3}, zero[2] = {0, 1};
    const float scale[2] = {0.5f, 2}, want[6] = {-64, 0, 63.5f, 0, 2, 4};
    kernel_case k;
    float y[6];
    case_open(&k, "", "DequantizeLinear", 1);
    assert_int_equal(pare_node_set_int(k.node, "axis", 0), PARE_OK);
    memcpy(case_input(&k, PARE_s8, 2, (int64_t[]){2, 3}, false, 0, 1), x, sizeof x);
    memcpy(case_input(&k, PARE_f32, 1, (int64_t[]){2}, true, 0, 1), scale, sizeof scale);
    memcpy(case_input(&k, PARE_s8, 1, (int64_t[]){2}, true, 0, 1), zero, sizeof zero);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), y));
    assert_memory_equal(y, want, sizeof y);
    case_close(&k);
}

/* x, or y, in f16 beside a scale that f16 does not have: 0.1f is 0.099976 there. 20.04 is 20.047 in
   f16; over 0.1f that is 200.47, over f16's scale 200.52. */
static void scale_of_another_type(void **state)
{
    (void)state;
    const uint16_t x[2] = {pare_f32_to_f16(20.04f), pare_f32_to_f16(-1)};
    const uint8_t q[2] = {200, 0};
    kernel_case k;
    uint8_t y[2];
    uint16_t half[2];
    case_open(&k, "", "QuantizeLinear", 1);
    memcpy(case_input(&k, PARE_f16, 1, (int64_t[]){2}, false, 0, 1), x, sizeof x);
    *(float *)case_input(&k, PARE_f32, 0, NULL, true, 0, 1) = 0.1f;
    case_input(&k, PARE_u8, 0, NULL, true, 0, 0);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), y));
    assert_memory_equal(y, q, sizeof y);
    case_close(&k);
    case_open(&k, "", "DequantizeLinear", 1);
    case_set_int(&k, "output_dtype", PARE_f16);
    memcpy(case_input(&k, PARE_u8, 1, (int64_t[]){2}, false, 0, 1), q, sizeof q);
    *(float *)case_input(&k, PARE_f32, 0, NULL, true, 0, 1) = 0.1f;
    case_input(&k, PARE_u8, 0, NULL, true, 0, 0);
    case_infer(&k);
    assert_int_equal(k.out.dtype, PARE_f16);
    assert_true(case_run(&k, case_plain(&k), half));
    assert_int_equal(half[0], pare_f32_to_f16(200 * 0.1f));
    assert_int_equal(half[1], 0);
    case_close(&k);
}

/* From N, C, H, W to N, H, W, C: every kernel of both backends gives the plain one's bytes,
   whatever the tile's edges. */
static void quantization_into_the_other_order(void **state)
{
    (void)state;
    static const int64_t dims[][4] = {{2, 3, 4, 5},   {1, 3, 32, 40}, {2, 4, 1, 9},  {2, 2, 7, 8},
                                      {1, 8, 16, 17}, {2, 16, 5, 20}, {1, 64, 8, 8}, {2, 70, 3, 11},
                                      {1, 132, 7, 8}, {3, 3, 31, 33}, {0, 3, 4, 4}};
    static const pare_dtype from[] = {PARE_f32, PARE_f16, PARE_bf16};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int t = 0; t < 6; t++) {
            kernel_case k;
            case_open(&k, "", "QuantizeLinear", d + 1);
            case_input(&k, from[t / 2], 4, dims[d], false, 0, 4);
            *(float *)case_input(&k, PARE_f32, 0, NULL, true, 0, 1) = 0.07f;
            if (t % 2) case_input(&k, PARE_u8, 0, NULL, true, 3, 90);
            if (t % 2 == 0) case_input(&k, PARE_s8, 0, NULL, true, -9, 9);
            k.nhwc = true;
            case_infer(&k);
            uint8_t *want = malloc(case_bytes(&k) + 1), *got = malloc(case_bytes(&k) + 1);
            assert_true(want && got && case_run(&k, case_plain(&k), want));
#ifdef CASE_DEVICE
            assert_true(k.device_runs >= 1 + (dims[d][0] > 0));
#endif
            int served = 0;
            for (const pare_kernel *const *it = k.op->cpu; *it; it++) {
                if (!case_run(&k, *it, got)) continue;
                served++;
                assert_memory_equal(got, want, case_bytes(&k));
            }
            assert_true(served == 2 || from[t / 2] != PARE_f32 || !dims[d][0]);
            free(want);
            free(got);
            case_close(&k);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantization_rounds_ties_to_even_before_the_zero_point),
        cmocka_unit_test(quantization_divides),
        cmocka_unit_test(dequantization_per_axis),
        cmocka_unit_test(scale_of_another_type),
        cmocka_unit_test(quantization_into_the_other_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
