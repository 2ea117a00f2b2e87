/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit operators without a product: QAdd, QMul, Table, Requantize, QConcat and the average pools
   against their formulas written out once more here, byte for byte, on random shapes, scales, zero
   points and types; and a few values worked out by hand. PARE_EXACT=slow: ten million of each sum.
 */
#include "tests/cpu/kernel_case.h"
#include "runtime/ops/fused.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int value(const pare_view *v, const void *data, int64_t i)
{
    return v->dtype == PARE_s8 ? ((const int8_t *)data)[i] : ((const uint8_t *)data)[i];
}

static int clamped(float v, int zero, pare_dtype to)
{
    float low = to == PARE_s8 ? -128 : 0, high = to == PARE_s8 ? 127 : 255;
    v = rintf(v + (float)zero);
    return (int)(v < low ? low : v > high ? high : v);
}

static pare_dtype byte_type(kernel_case *k) { return case_between(k, 0, 1) ? PARE_s8 : PARE_u8; }

static void *byte_input(kernel_case *k, pare_dtype t, int rank, const int64_t *dims)
{
    return case_input(k, t, rank, dims, false, t == PARE_s8 ? -128 : 0, t == PARE_s8 ? 127 : 255);
}

static int zero_of(kernel_case *k, pare_dtype t)
{
    return case_between(k, t == PARE_s8 ? -128 : 0, t == PARE_s8 ? 127 : 255);
}

static float scale_of(kernel_case *k) { return 0.005f + (float)case_between(k, 0, 1000) * 0.0001f; }

/* Runs the first kernel that can. */
static void *output_of(kernel_case *k)
{
    case_infer(k);
    void *y = malloc(case_bytes(k) + 1);
    assert_non_null(y);
    const pare_kernel *const *it = k->op->cpu;
    while (!case_run(k, *it, y)) assert_non_null(*++it);
    return y;
}

static int64_t sum_case(uint64_t seed, bool product)
{
    kernel_case k;
    case_open(&k, "pare", product ? "QMul" : "QAdd", seed);
    int64_t dims[4] = {case_between(&k, 1, 3), case_between(&k, 1, 40), case_between(&k, 1, 9),
                       case_between(&k, 1, 60)};
    pare_dtype a = byte_type(&k), b = byte_type(&k), to = byte_type(&k);
    k.nhwc = case_between(&k, 0, 1), k.threads = case_between(&k, 1, 2);
    byte_input(&k, a, 4, dims);
    byte_input(&k, b, 4, dims);
    float sa = scale_of(&k), sb = scale_of(&k), sy = scale_of(&k) * (product ? 30 : 1);
    int za = zero_of(&k, a), zb = zero_of(&k, b), zy = zero_of(&k, to),
        relu = case_between(&k, 0, 1);
    case_set_float(&k, "a_scale", sa), case_set_float(&k, "b_scale", sb),
        case_set_float(&k, "y_scale", sy);
    case_set_int(&k, "a_zero_point", za), case_set_int(&k, "b_zero_point", zb);
    case_set_int(&k, "y_zero_point", zy), case_set_int(&k, "to", to);
    if (relu) assert_int_equal(pare_node_set_string(k.node, "activation", "relu"), PARE_OK);
    void *y = output_of(&k);
    int64_t n = pare_view_count(&k.out);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(value(&k.in[0], k.in[0].data, i) - za);
        float z = (float)(value(&k.in[1], k.in[1].data, i) - zb);
        float v = product ? (x * z) * ((sa * sb) / sy) : fmaf(z, sb / sy, x * (sa / sy));
        if (relu && v < 0) v = 0;
        if (value(&k.out, y, i) != clamped(v, zy, to))
            fail_msg("element %lld is %d, expected %d", (long long)i, value(&k.out, y, i),
                     clamped(v, zy, to));
    }
    free(y);
    case_close(&k);
    return n;
}

static void sums_follow_their_formula(void **state)
{
    (void)state;
    const char *word = getenv("PARE_EXACT");
    int64_t goal = word && !strcmp(word, "slow") ? 10000000 : 300000;
    for (int product = 0; product < 2; product++) {
        int64_t done = 0;
        for (uint64_t seed = 1; done < goal; seed++) done += sum_case(seed, product);
    }
}

/* 3 * 0.5 + 5 * 0.25 = 2.75 -> 5.5 steps of 0.5 -> 6 (even); 1 * 0.5 + 0 = 0.5 -> 1; ties of both
   parities: 2.5 steps -> 2. */
static void a_sum_by_hand(void **state)
{
    (void)state;
    kernel_case k;
    case_open(&k, "pare", "QAdd", 1);
    int64_t dims[1] = {3};
    int8_t *a = case_input(&k, PARE_s8, 1, dims, false, 0, 1);
    int8_t *b = case_input(&k, PARE_s8, 1, dims, false, 0, 1);
    memcpy(a, (int8_t[]){3, 1, 0}, 3), memcpy(b, (int8_t[]){5, 0, 5}, 3);
    case_set_float(&k, "a_scale", 0.5f), case_set_float(&k, "b_scale", 0.25f),
        case_set_float(&k, "y_scale", 0.5f);
    int8_t *y = output_of(&k);
    assert_int_equal(y[0], 6);
    assert_int_equal(y[1], 1);
    assert_int_equal(y[2], 2);
    free(y);
    case_close(&k);
}

static void tables_map_every_byte(void **state)
{
    (void)state;
    for (int n = 1; n < 700; n += 37) {
        kernel_case k;
        case_open(&k, "pare", "Table", (uint64_t)n);
        int64_t dims[1] = {n}, entries[1] = {256};
        const uint8_t *x = byte_input(&k, PARE_s8, 1, dims);
        const uint8_t *table = case_input(&k, PARE_u8, 1, entries, true, 0, 255);
        uint8_t *y = output_of(&k);
        for (int i = 0; i < n; i++) assert_int_equal(y[i], table[x[i]]);
        free(y);
        case_close(&k);
    }
}

static void requantized_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 60; seed++) {
        kernel_case k;
        case_open(&k, "pare", "Requantize", seed);
        pare_dtype t = byte_type(&k), to = byte_type(&k);
        int64_t dims[2] = {3, 300};
        byte_input(&k, t, 2, dims);
        float sx = scale_of(&k), sy = scale_of(&k);
        int zx = zero_of(&k, t), zy = zero_of(&k, to);
        case_set_float(&k, "x_scale", sx), case_set_float(&k, "y_scale", sy);
        case_set_int(&k, "x_zero_point", zx), case_set_int(&k, "y_zero_point", zy),
            case_set_int(&k, "to", to);
        void *y = output_of(&k);
        for (int64_t i = 0; i < 900; i++) {
            float v = (float)(value(&k.in[0], k.in[0].data, i) - zx) * (sx / sy);
            assert_int_equal(value(&k.out, y, i), clamped(v, zy, to));
        }
        free(y);
        case_close(&k);
    }
}

static void joined_tensors(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        kernel_case k;
        case_open(&k, "pare", "QConcat", seed);
        int64_t a[3] = {2, case_between(&k, 1, 9), 5}, b[3] = {2, case_between(&k, 1, 9), 5};
        byte_input(&k, PARE_u8, 3, a);
        byte_input(&k, PARE_u8, 3, b);
        float scales[3] = {scale_of(&k), scale_of(&k), scale_of(&k)};
        int64_t zeros[3] = {zero_of(&k, PARE_u8), zero_of(&k, PARE_u8), zero_of(&k, PARE_u8)};
        if (seed % 2) scales[1] = scales[2], zeros[1] = zeros[2]; /* a plain copy */
        pare_attr attr = {.name = "scales", .kind = PARE_ATTR_FLOATS, .count = 3, .floats = scales};
        assert_int_equal(pare_node_set_attr(k.node, &attr), PARE_OK);
        assert_int_equal(pare_node_set_ints(k.node, "zero_points", zeros, 3), PARE_OK);
        case_set_int(&k, "axis", 1);
        uint8_t *y = output_of(&k);
        for (int64_t n = 0; n < 2; n++)
            for (int64_t c = 0; c < a[1] + b[1]; c++)
                for (int64_t i = 0; i < 5; i++) {
                    int which = c >= a[1];
                    int64_t at = which ? (n * b[1] + c - a[1]) * 5 + i : (n * a[1] + c) * 5 + i;
                    float x = (float)(((uint8_t *)k.in[which].data)[at] - zeros[which]);
                    int want = clamped(x * (scales[which] / scales[2]), (int)zeros[2], PARE_u8);
                    assert_int_equal(y[(n * (a[1] + b[1]) + c) * 5 + i], want);
                }
        free(y);
        case_close(&k);
    }
}

/* Windows of 2 x 2, stride 1, one pad around: corners see one element, edges two. */
static void averaged_windows(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        kernel_case k;
        bool global = seed % 3 == 0, padded = seed % 2;
        case_open(&k, "pare", global ? "QGlobalAveragePool" : "QAveragePool", seed);
        int64_t c = case_between(&k, 1, 40), s = 5, dims[4] = {2, c, s, s};
        k.nhwc = true, k.threads = 2;
        byte_input(&k, PARE_s8, 4, dims);
        const int8_t *x = k.in[0].data;
        float sx = scale_of(&k), sy = scale_of(&k);
        int zx = zero_of(&k, PARE_s8), zy = zero_of(&k, PARE_u8);
        case_set_float(&k, "x_scale", sx), case_set_float(&k, "y_scale", sy);
        case_set_int(&k, "x_zero_point", zx), case_set_int(&k, "y_zero_point", zy);
        case_set_int(&k, "to", PARE_u8);
        if (!global) {
            assert_int_equal(pare_node_set_ints(k.node, "kernel_shape", (int64_t[]){2, 2}, 2),
                             PARE_OK);
            assert_int_equal(pare_node_set_ints(k.node, "pads", (int64_t[]){1, 1, 1, 1}, 4),
                             PARE_OK);
            case_set_int(&k, "count_include_pad", padded);
        }
        uint8_t *y = output_of(&k);
        int64_t out = global ? 1 : s + 1, span = global ? s : 2, shift = global ? 0 : 1;
        for (int64_t n = 0; n < 2; n++)
            for (int64_t p = 0; p < out * out * c; p++) {
                int64_t h = p / c / out - shift, w = p / c % out - shift, ch = p % c, count = 0;
                int sum = 0;
                for (int64_t i = h; i < h + span; i++)
                    for (int64_t j = w; j < w + span; j++)
                        if (i >= 0 && i < s && j >= 0 && j < s)
                            sum += x[((n * s + i) * s + j) * c + ch] - zx, count++;
                if (padded && !global) count = 4;
                float v = ((float)sum * (sx / sy)) / (float)count;
                assert_int_equal(y[n * out * out * c + p], clamped(v, zy, PARE_u8));
            }
        free(y);
        case_close(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_follow_their_formula),
                                       cmocka_unit_test(a_sum_by_hand),
                                       cmocka_unit_test(tables_map_every_byte),
                                       cmocka_unit_test(requantized_bytes),
                                       cmocka_unit_test(joined_tensors),
                                       cmocka_unit_test(averaged_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
