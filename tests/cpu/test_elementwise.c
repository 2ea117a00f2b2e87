/* SPDX-License-Identifier: Apache-2.0 */
/* Plain kernels of element-by-element operators against values worked out by hand, and the vector
   kernels against the C library in double. */
#include "tests/cpu/kernel_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Runs the plain kernel of one operator on vectors; inputs are n elements each, or 1 (count[i]). */
static void run_vectors(kernel_case *k, pare_dtype dtype, int inputs, const void *const *data,
                        const int64_t *count, void *y)
{
    for (int i = 0; i < inputs; i++) {
        void *x = case_input(k, dtype, 1, &count[i], false, 0, 1);
        memcpy(x, data[i], pare_view_bytes(&k->in[i]));
    }
    case_infer(k);
    assert_true(case_run(k, case_plain(k), y));
}

static void floats_of(const char *op, const float *a, const float *b, int64_t n, float *y)
{
    kernel_case k;
    case_open(&k, "", op, 1);
    run_vectors(&k, PARE_f32, b ? 2 : 1, (const void *const[]){a, b}, (const int64_t[]){n, n}, y);
    case_close(&k);
}

static void assert_floats(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue;
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("element %d: %a, expected %a", i, (double)got[i], (double)want[i]);
    }
}

static void rounding_goes_to_even(void **state)
{
    (void)state;
    const float x[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, 8388609, NAN, -INFINITY};
    const float want[] = {0, 2, 2, -0.0f, -2, -2, 0, 8388609, NAN, -INFINITY};
    float y[10];
    floats_of("Round", x, NULL, 10, y);
    assert_floats(y, want, 10);
}

static void nan_is_kept(void **state)
{
    (void)state;
    const float a[] = {NAN, 1, NAN, 2, -3, INFINITY}, b[] = {1, NAN, NAN, -3, 2, NAN};
    const float min[] = {NAN, NAN, NAN, -3, -3, NAN}, max[] = {NAN, NAN, NAN, 2, 2, NAN};
    const float relu[] = {NAN, 1, NAN, 2, 0, INFINITY}, sign[] = {NAN, 1, NAN, 1, -1, 1};
    float y[6];
    floats_of("Min", a, b, 6, y);
    assert_floats(y, min, 6);
    floats_of("Max", a, b, 6, y);
    assert_floats(y, max, 6);
    floats_of("Relu", a, NULL, 6, y);
    assert_floats(y, relu, 6);
    floats_of("Sign", a, NULL, 6, y);
    assert_floats(y, sign, 6);
}

static void clip_with_crossed_limits_gives_the_upper(void **state)
{
    (void)state;
    const float x[] = {-5, 0, 5, NAN}, low = 2, high = 1, want[] = {1, 1, 1, NAN};
    float y[4];
    kernel_case k;
    case_open(&k, "", "Clip", 1);
    memcpy(case_input(&k, PARE_f32, 1, (int64_t[]){4}, false, 0, 1), x, sizeof x);
    memcpy(case_input(&k, PARE_f32, 0, NULL, false, 0, 1), &low, sizeof low);
    memcpy(case_input(&k, PARE_f32, 0, NULL, false, 0, 1), &high, sizeof high);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), y));
    assert_floats(y, want, 4);
    case_close(&k);
}

static void ints_of(const char *op, const int32_t *a, const int32_t *b, int64_t n, int fmod_form,
                    int32_t *y)
{
    kernel_case k;
    case_open(&k, "", op, 1);
    if (fmod_form) assert_int_equal(pare_node_set_int(k.node, "fmod", 1), PARE_OK);
    run_vectors(&k, PARE_s32, 2, (const void *const[]){a, b}, (const int64_t[]){n, n}, y);
    case_close(&k);
}

static void integers_wrap_and_divide_by_zero_to_zero(void **state)
{
    (void)state;
    const int32_t a[] = {7, -7, 7, -7, 5, INT32_MIN, INT32_MAX}, b[] = {3, 3, -3, -3, 0, -1, 2};
    const int32_t quotient[] = {2, -2, -2, 2, 0, INT32_MIN, 1073741823};
    const int32_t modulo[] = {1, 2, -2, -1, 0, 0, 1}, remainder[] = {1, -1, 1, -1, 0, 0, 1};
    const int32_t sum[] = {10, -4, 4, -10, 5, INT32_MAX, INT32_MIN + 1};
    const int32_t product[] = {21, -21, -21, 21, 0, INT32_MIN, -2};
    const int32_t power[] = {343, -343, 0, 0, 1, 0, 1}; /* INT32_MAX squared is 1 modulo 2^32 */
    int32_t y[7];
    ints_of("Div", a, b, 7, 0, y);
    assert_memory_equal(y, quotient, sizeof y);
    ints_of("Mod", a, b, 7, 0, y);
    assert_memory_equal(y, modulo, sizeof y);
    ints_of("Mod", a, b, 7, 1, y);
    assert_memory_equal(y, remainder, sizeof y);
    ints_of("Add", a, b, 7, 0, y);
    assert_memory_equal(y, sum, sizeof y);
    ints_of("Mul", a, b, 7, 0, y);
    assert_memory_equal(y, product, sizeof y);
    ints_of("Pow", a, b, 7, 0, y);
    assert_memory_equal(y, power, sizeof y);
}

static void cast(pare_dtype from, pare_dtype to, const void *x, int64_t n, void *y)
{
    kernel_case k;
    case_open(&k, "", "Cast", 1);
    assert_int_equal(pare_node_set_int(k.node, "to", to), PARE_OK);
    run_vectors(&k, from, 1, &x, &n, y);
    case_close(&k);
}

static void cast_truncates_and_saturates(void **state)
{
    (void)state;
    const float x[] = {300.7f, -1.9f, 1.9f, NAN, INFINITY, -INFINITY, 0.5f};
    const uint8_t u8[] = {255, 0, 1, 0, 255, 0, 0}, truth[] = {1, 1, 1, 1, 1, 1, 1};
    const int8_t s8[] = {127, -1, 1, 0, 127, -128, 0};
    const int64_t s64[] = {300, -1, 1, 0, INT64_MAX, INT64_MIN, 0};
    const int32_t wide[] = {300, -1, 65536};
    const uint8_t low_bits[] = {44, 255, 0};
    const uint16_t f16[] = {0x5cb3, 0xbf9a, 0x3f9a, 0x7e00, 0x7c00, 0xfc00, 0x3800};
    int64_t y[7];
    cast(PARE_f32, PARE_u8, x, 7, y);
    assert_memory_equal(y, u8, sizeof u8);
    cast(PARE_f32, PARE_s8, x, 7, y);
    assert_memory_equal(y, s8, sizeof s8);
    cast(PARE_f32, PARE_s64, x, 7, y);
    assert_memory_equal(y, s64, sizeof s64);
    cast(PARE_f32, PARE_bool, x, 7, y);
    assert_memory_equal(y, truth, sizeof truth);
    cast(PARE_s32, PARE_u8, wide, 3, y);
    assert_memory_equal(y, low_bits, sizeof low_bits);
    cast(PARE_f32, PARE_f16, x, 7, y);
    assert_memory_equal(y, f16, sizeof f16);
    const int64_t big[] = {INT64_C(1) << 53 | 1, -(INT64_C(1) << 24) - 1};
    const float rounded[] = {9007199254740992.0f, -16777216.0f};
    cast(PARE_s64, PARE_f32, big, 2, y);
    assert_memory_equal(y, rounded, sizeof rounded);
}

static void short_floats_are_rounded_once(void **state)
{
    (void)state;
    /* 1 + 2^-11 + 2^-11 in f16: each addition alone would round back to 1 */
    const uint16_t one = 0x3c00, tiny = 0x1000, want = 0x3c01;
    uint16_t y;
    kernel_case k;
    case_open(&k, "", "Sum", 1);
    run_vectors(&k, PARE_f16, 3, (const void *const[]){&one, &tiny, &tiny},
                (const int64_t[]){1, 1, 1}, &y);
    assert_int_equal(y, want);
    case_close(&k);
}

static void scalars_and_empty_tensors_work(void **state)
{
    (void)state;
    kernel_case k;
    float y = -1;
    case_open(&k, "", "Add", 1);
    *(float *)case_input(&k, PARE_f32, 0, NULL, false, 0, 1) = 2;
    *(float *)case_input(&k, PARE_f32, 0, NULL, false, 0, 1) = 3;
    case_infer(&k);
    assert_int_equal(k.out.rank, 0);
    assert_true(case_run(&k, case_plain(&k), &y));
    assert_true(y == 5);
    case_close(&k);
    case_open(&k, "", "Mul", 1);
    case_input(&k, PARE_f32, 2, (int64_t[]){3, 0}, false, 0, 1);
    case_input(&k, PARE_f32, 2, (int64_t[]){3, 1}, false, 0, 1);
    case_infer(&k);
    assert_int_equal(pare_view_count(&k.out), 0);
    assert_true(case_run(&k, case_plain(&k), &y));
    case_close(&k);
}

/* Broadcasts of every kind of axis, row-major and N, H, W, C, against index arithmetic. */
static void broadcasts_follow_any_order(void **state)
{
    (void)state;
    static const int64_t a_dims[4] = {2, 3, 4, 5};
    for (int mask = 0; mask < 32; mask++) {
        int64_t b_dims[4];
        float y[120];
        kernel_case k;
        case_open(&k, "", "Sub", (uint64_t)mask);
        k.nhwc = mask >= 16;
        for (int i = 0; i < 4; i++) b_dims[i] = mask >> i & 1 ? 1 : a_dims[i];
        const float *a = case_input(&k, PARE_f32, 4, a_dims, false, 0, 1);
        const float *b = case_input(&k, PARE_f32, 4, b_dims, false, 0, 1);
        case_infer(&k);
        assert_true(case_run(&k, case_plain(&k), y));
        for (int64_t at = 0; at < 120; at++) {
            int64_t index[4] = {at / 60, at / 20 % 3, at / 5 % 4, at % 5}, ia = 0, ib = 0, iy = 0;
            for (int i = 0; i < 4; i++) {
                ia += index[i] * k.in[0].stride[i];
                ib += (b_dims[i] == 1 ? 0 : index[i]) * k.in[1].stride[i];
                iy += index[i] * k.out.stride[i];
            }
            assert_true(y[iy] == a[ia] - b[ib]);
        }
        case_close(&k);
    }
}

/* --- vector kernels --- */

static double exact(const char *op, double x)
{
    if (!strcmp(op, "Exp")) return exp(x);
    if (!strcmp(op, "Tanh")) return tanh(x);
    if (!strcmp(op, "Erf")) return erf(x);
    if (!strcmp(op, "Sigmoid")) return 1 / (1 + exp(-x));
    return x / 2 * (1 + erf(x * M_SQRT1_2));
}

static void vector_kernels_stay_close(void **state)
{
    (void)state;
    static const char *const ops[] = {"Exp", "Tanh", "Erf", "Sigmoid", "Gelu"};
    enum { N = 20001 };
    float *y = malloc(N * sizeof *y);
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        kernel_case k;
        case_open(&k, "", ops[o], 1);
        float *x = case_input(&k, PARE_f32, 1, (int64_t[]){N}, false, 0, 1);
        for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * 0.01f;
        x[0] = NAN;
        x[1] = INFINITY;
        x[2] = -INFINITY;
        case_infer(&k);
        assert_true(case_run(&k, k.op->cpu[0], y));
        assert_false(k.op->cpu[0]->flags & PARE_KERNEL_REF);
        assert_true(isnan(y[0]));
        for (int i = 3; i < N; i++) {
            double want = exact(ops[o], (double)x[i]), scale = fabs(want);
            if (isinf((float)want) || scale < 1e-37) { /* overflow, and near what f32 can hold */
                assert_true(isinf((float)want) ? isinf(y[i]) : fabs((double)y[i]) < 2e-37);
                continue;
            }
            /* Gelu's tail is a difference of nearly equal numbers: absolute there */
            double error = fabs((double)y[i] - want) / (o == 4 ? fmax(scale, 1) : scale);
            if (error > 5e-7)
                fail_msg("%s(%g): %.9g, expected %.9g", ops[o], (double)x[i], (double)y[i], want);
        }
        if (o == 0) assert_true(isinf(y[1]) && y[2] == 0);
        if (o == 1 || o == 2) assert_true(y[1] == 1 && y[2] == -1);
        if (o == 3) assert_true(y[1] == 1 && y[2] == 0);
        case_close(&k);
    }
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_goes_to_even),
        cmocka_unit_test(nan_is_kept),
        cmocka_unit_test(clip_with_crossed_limits_gives_the_upper),
        cmocka_unit_test(integers_wrap_and_divide_by_zero_to_zero),
        cmocka_unit_test(cast_truncates_and_saturates),
        cmocka_unit_test(short_floats_are_rounded_once),
        cmocka_unit_test(scalars_and_empty_tensors_work),
        cmocka_unit_test(broadcasts_follow_any_order),
        cmocka_unit_test(vector_kernels_stay_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
