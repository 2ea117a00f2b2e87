/* SPDX-License-Identifier: Apache-2.0 */
/* Cast, and operators in f16 and bf16: rounded once. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cast_truncates_and_saturates),
        cmocka_unit_test(short_floats_are_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
