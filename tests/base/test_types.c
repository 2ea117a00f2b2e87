/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/minifloat.h"
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
    assert_true(pare_type_bytes(PARE_string, 1, &bytes));
    assert_int_equal(bytes, 16);
    assert_int_equal(pare_type_find("int8"), PARE_s8);
    assert_int_equal(pare_type_find("bf16"), PARE_bf16);
}

/* --- minifloats --- */

static const pare_dtype minifloats[] = {PARE_f8e4m3,     PARE_f8e4m3fnuz, PARE_f8e5m2,
                                        PARE_f8e5m2fnuz, PARE_f4e2m1,     PARE_f8e8m0};

static int codes_of(pare_dtype type) { return 1 << pare_type(type)->bits; }

/* Every code comes back from its number; the largest numbers are those of the formats' papers. */
static void minifloats_round_trip(void **state)
{
    static const float largest[] = {448, 240, 57344, 57344, 6, 0x1p127f};
    (void)state;
    for (int t = 0; t < 6; t++) {
        float top = 0;
        for (int c = 0; c < codes_of(minifloats[t]); c++) {
            const float v = pare_minifloat_to_f32(minifloats[t], (uint8_t)c);
            const uint8_t back = pare_minifloat_from_f32(minifloats[t], v, false, PARE_ROUND_UP);
            if (isfinite(v)) top = fmaxf(top, v);
            if (isnan(v) || (minifloats[t] == PARE_f8e8m0 && isinf(v)))
                assert_true(isnan(pare_minifloat_to_f32(minifloats[t], back)));
            else
                assert_int_equal(back, c);
        }
        assert_true(top == largest[t]);
    }
}

/* No other code is nearer; of two that are as near, the even one is taken. */
static void minifloats_round_to_nearest_even(void **state)
{
    (void)state;
    uint32_t x = 1;
    for (int t = 0; t < 5; t++)
        for (int n = 0; n < 20000; n++) {
            const pare_dtype type = minifloats[t];
            x = x * 1664525u + 1013904223u;
            /* sums of few powers of two: many are halfway between two codes */
            const float v = ldexpf((float)(x >> 16 & 63) - 31, (int)(x >> 24) % 24 - 17);
            const uint8_t got = pare_minifloat_from_f32(type, v, true, PARE_ROUND_UP);
            const double off = fabs((double)pare_minifloat_to_f32(type, got) - (double)v);
            for (int c = 0; c < codes_of(type); c++) {
                const double other = (double)pare_minifloat_to_f32(type, (uint8_t)c);
                if (!isfinite(other) || other == (double)pare_minifloat_to_f32(type, got)) continue;
                if (fabs(other - (double)v) < off)
                    fail_msg("%s: %g is not %d but %d", pare_type(type)->name, (double)v, got, c);
                if (fabs(other - (double)v) == off && got & 1)
                    fail_msg("%s: %g is halfway, and %d is odd", pare_type(type)->name, (double)v,
                             got);
            }
        }
}

static void minifloats_overflow_as_asked(void **state)
{
    (void)state;
    assert_int_equal(pare_minifloat_from_f32(PARE_f8e4m3, 1e9f, true, PARE_ROUND_UP), 0x7e);
    assert_int_equal(pare_minifloat_from_f32(PARE_f8e4m3, -1e9f, false, PARE_ROUND_UP), 0xff);
    assert_int_equal(pare_minifloat_from_f32(PARE_f8e5m2, 1e9f, false, PARE_ROUND_UP), 0x7c);
    assert_int_equal(pare_minifloat_from_f32(PARE_f8e5m2fnuz, INFINITY, false, PARE_ROUND_UP),
                     0x80);
    assert_int_equal(pare_minifloat_from_f32(PARE_f8e4m3fnuz, -0.0f, true, PARE_ROUND_UP), 0);
    assert_int_equal(pare_minifloat_from_f32(PARE_f8e8m0, 3, true, PARE_ROUND_UP), 129);
    assert_int_equal(pare_minifloat_from_f32(PARE_f8e8m0, 3, true, PARE_ROUND_DOWN), 128);
    assert_int_equal(pare_minifloat_from_f32(PARE_f8e8m0, 2.9f, true, PARE_ROUND_NEAREST), 128);
}

/* Two and four to a byte, low ones first, with their sign. */
static void packed_integers_are_read(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0x9c, 0x27};
    const int s4[] = {-4, -7, 7, 2}, u4[] = {12, 9, 7, 2}, s2[] = {0, -1, 1, -2, -1, 1, -2, 0},
              u2[] = {0, 3, 1, 2, 3, 1, 2, 0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pare_packed_get(PARE_s4, bytes, i), s4[i]);
        assert_int_equal(pare_packed_get(PARE_u4, bytes, i), u4[i]);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pare_packed_get(PARE_s2, bytes, i), s2[i]);
        assert_int_equal(pare_packed_get(PARE_u2, bytes, i), u2[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minifloats_round_trip),
        cmocka_unit_test(minifloats_round_to_nearest_even),
        cmocka_unit_test(minifloats_overflow_as_asked),
        cmocka_unit_test(packed_integers_are_read),
        cmocka_unit_test(shorts_round_trip),
        cmocka_unit_test(halves_round_to_even),
        cmocka_unit_test(integers_saturate),
        cmocka_unit_test(sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
