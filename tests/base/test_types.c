/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/types.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* Every f16 and bf16 value survives the way to f32 and back. */
static void shorts_round_trip(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = pare_f16_to_f32((uint16_t)h), b = pare_bf16_to_f32((uint16_t)h);
        if (!isnan(f)) assert_int_equal(pare_f32_to_f16(f), h);
        if (!isnan(b)) assert_int_equal(pare_f32_to_bf16(b), h);
        assert_int_equal(isnan(f), (h & 0x7c00) == 0x7c00 && (h & 1023));
    }
}

/* Ties go to even, overflow to Inf: values worked out by hand from IEEE 754. */
static void halves_round_to_even(void **state)
{
    (void)state;
    assert_int_equal(pare_f32_to_f16(1 + 0x1p-11f), 0x3c00);     /* tie, down to even */
    assert_int_equal(pare_f32_to_f16(1 + 3 * 0x1p-11f), 0x3c02); /* tie, up to even */
    assert_int_equal(pare_f32_to_f16(65519.f), 0x7bff);
    assert_int_equal(pare_f32_to_f16(65520.f), 0x7c00);
    assert_int_equal(pare_f32_to_f16(0x1p-25f), 0); /* tie with zero */
    assert_int_equal(pare_f32_to_f16(0x1.8p-25f), 1);
    assert_int_equal(pare_f32_to_bf16(1 + 0x1p-8f), 0x3f80);
    assert_int_equal(pare_f32_to_bf16(1 + 3 * 0x1p-8f), 0x3f82);
    assert_true(isnan(pare_f16_to_f32(pare_f32_to_f16(NAN))));
}

static void integers_saturate(void **state)
{
    (void)state;
    int8_t s;
    uint8_t u;
    pare_type(PARE_s8)->from_f32_ref(&s, 300);
    assert_int_equal(s, 127);
    pare_type(PARE_s8)->from_f32_ref(&s, -2.5f);
    assert_int_equal(s, -2);
    pare_type(PARE_u8)->from_f32_ref(&u, -1);
    assert_int_equal(u, 0);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    size_t bytes;
    assert_true(pare_type_bytes(PARE_s4, 3, &bytes));
    assert_int_equal(bytes, 2);
    assert_false(pare_type_bytes(PARE_f32, INT64_MAX, &bytes));
    assert_false(pare_type_bytes(PARE_string, 1, &bytes));
    assert_int_equal(pare_type_find("int8"), PARE_s8);
    assert_int_equal(pare_type_find("bf16"), PARE_bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorts_round_trip),
        cmocka_unit_test(halves_round_to_even),
        cmocka_unit_test(integers_saturate),
        cmocka_unit_test(sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
