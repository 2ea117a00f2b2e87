/* SPDX-License-Identifier: Apache-2.0 */
/* Plain kernels of operators of two tensors, and of Clip, against values worked out by hand. */
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

static void assert_floats(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue;
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("element %d: %a, expected %a", i, (double)got[i], (double)want[i]);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clip_with_crossed_limits_gives_the_upper),
        cmocka_unit_test(integers_wrap_and_divide_by_zero_to_zero),
        cmocka_unit_test(scalars_and_empty_tensors_work),
        cmocka_unit_test(broadcasts_follow_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
