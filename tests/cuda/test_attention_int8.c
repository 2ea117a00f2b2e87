/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of 8 bits on the device's tensor cores against the CPU's plain kernel: codes of all
   sizes byte for byte (kernel_case.c compares). */
#include "tests/cuda/product_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Q, K and V of a type over all its codes, Y of it or floats. */
static void codes_set(kernel_case *k, pare_dtype type, pare_dtype to, int steps)
{
    const bool sign = type == PARE_s8;
    case_set_float(k, "scale", sign ? 4e-4f : 1.5e-4f);
    case_set_float(k, "p_scale", steps == 100 ? 1.0f : 0.3f / (float)steps); /* some are larger */
    case_set_int(k, "p_steps", steps);
    case_set_float(k, "v_scale", 0.02f);
    case_set_float(k, "y_scale", 0.01f);
    case_set_int(k, "to", to == PARE_f16 ? PARE_f32 : to);
    if (to == PARE_f16) case_set_int(k, "output_dtype", PARE_f16);
    if (sign) return;
    case_set_int(k, "q_zero_point", 120);
    case_set_int(k, "k_zero_point", 255);
    case_set_int(k, "v_zero_point", 3);
    case_set_int(k, "y_zero_point", 131);
}

static void operand(kernel_case *k, pare_dtype type, const int64_t dims[4])
{
    case_input(k, type, 4, dims, false, type == PARE_s8 ? -128 : 0, type == PARE_s8 ? 127 : 255);
}

/* Numbers of a mask: most of them open, others take a key away, more or less. */
static void mask_make(kernel_case *k, int rows, int keys)
{
    const float low[] = {-INFINITY, case_lowest(PARE_f32), -10000, -1e9f};
    for (int64_t i = 0; i < pare_view_count(&k->in[3]); i++) {
        const int row = (int)(i / keys) % rows, what = case_between(k, 0, 9);
        if (rows > 2 && row < 2) /* a query whose keys all go */
            case_put(k, 3, i, row ? -1e9f : -INFINITY);
        else if (what < 4)
            case_put(k, 3, i, low[what]);
    }
}

/* One slice of keys and more, also of a tile's part; blocks with queries behind the last; K and V
   side by side and in turn. */
static void codes_of_all_sizes(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 16, 50, 65, 130},
                         keys[] = {1, 17, 128, 197, 300, 512, 1024},
                         depths[] = {16, 32, 48, 64, 96, 128};
    static const pare_dtype types[] = {PARE_s8, PARE_u8}, to[] = {PARE_NOTYPE, PARE_f32, PARE_f16};
    for (int i = 0; i < 84; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = types[i % 2];
        const int64_t s = lengths[i % 5], n = keys[i % 7], d = depths[i % 6],
                      w = depths[(i / 6 + i) % 6], most = d > 64 || w > 64 ? 512 : 1024;
        const int64_t all = n > most ? most : n;
        case_open(&k, "pare", "QAttention", (uint64_t)i + 1);
        operand(&k, t, (int64_t[]){1, 2, s, d});
        operand(&k, t, (int64_t[]){1, 2, all, d});
        operand(&k, t, (int64_t[]){1, 2, all, w});
        codes_set(&k, t, i % 4 == 3 ? to[1 + i / 4 % 2] : t, i % 3 ? 255 : 127);
        if (i % 3) {
            const int64_t rows = i % 3 == 1 ? 1 : s;
            case_input(&k, PARE_f32, 4, (int64_t[]){1, i / 3 % 2 ? 2 : 1, rows, all}, false, 0, 2);
            mask_make(&k, (int)rows, (int)all);
        }
        case_check_device(&k, 1);
    }
}

/* Heads behind the sequence, parts of one product, and types that are not alike. */
static void heads_where_they_lie(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i += case_apart()) {
        kernel_case k;
        int64_t axes[4], dims[3][4] = {{2, 3, 20, 32}, {2, 3, 70, 32}, {2, 3, 70, 48}};
        const pare_dtype t = i % 3 ? PARE_s8 : PARE_u8;
        case_open(&k, "pare", "QAttention", (uint64_t)i + 1);
        for (int j = 0; j < 4; j++) axes[j] = 1 + (i >> j & 1);
        for (int j = 0; j < 3; j++) {
            const int64_t *m = dims[j], part[5] = {2, m[2], 4, 3, m[3]};
            const pare_dtype own = j == 1 && i % 5 == 1 ? PARE_u8 : t;
            if (axes[j] == 2) dims[j][1] = dims[j][2], dims[j][2] = 3;
            if (i > 11)
                case_input(&k, own, 5, part, false, own == PARE_s8 ? -128 : 0,
                           own == PARE_s8 ? 127 : 255);
            else
                operand(&k, own, m);
        }
        codes_set(&k, t, t, 255);
        if (i > 11) case_set_ints(&k, "parts", (int64_t[]){0, 3, 2}, 3);
        case_set_ints(&k, "head_axes", axes, 4);
        case_check_device(&k, 1);
    }
}

/* Constant masks that leave keys out of whole blocks: causal ones, a window of keys; queries
   without any key. */
static void masked_keys_are_not_read(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i += case_apart()) {
        kernel_case k;
        const int64_t s = i % 2 ? 260 : 66, n = i % 3 ? s : s + 70;
        const int window = i % 3 == 1 ? 40 : 1000, blind = i > 5 ? 5 + i : -1;
        const float low[] = {-INFINITY, case_lowest(PARE_f32), -10000};
        case_open(&k, "pare", "QAttention", (uint64_t)i + 1);
        operand(&k, PARE_s8, (int64_t[]){1, 1, s, 32});
        operand(&k, PARE_s8, (int64_t[]){1, 1, n, 32});
        operand(&k, PARE_s8, (int64_t[]){1, 1, n, 32});
        codes_set(&k, PARE_s8, PARE_s8, 127);
        case_input(&k, PARE_f32, 2, (int64_t[]){s, n}, true, 0, 1);
        for (int64_t j = 0; j < s * n; j++)
            if (j % n > j / n || j % n + window < j / n || j / n == blind)
                case_put(&k, 3, j, low[i / 2 % 3]);
        case_check_device(&k, 1);
    }
}

/* NaN counts as -infinity: also in a constant mask, where it opens no query whose other keys are
   all alike low. */
static void masks_with_nan(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        kernel_case k;
        enum { QUERIES = 40, ALL = 150 };
        case_open(&k, "pare", "QAttention", (uint64_t)i + 1);
        operand(&k, PARE_s8, (int64_t[]){1, 2, QUERIES, 32});
        operand(&k, PARE_s8, (int64_t[]){1, 2, ALL, 32});
        operand(&k, PARE_s8, (int64_t[]){1, 2, ALL, 32});
        codes_set(&k, PARE_s8, PARE_s8, 127);
        case_input(&k, PARE_f32, 2, (int64_t[]){QUERIES, ALL}, i < 2, 0, 1);
        for (int64_t j = 0; j < QUERIES * ALL; j++) {
            const float low = i % 2 ? case_lowest(PARE_f32) : j / ALL % 2 ? -1e38f : -INFINITY;
            case_put(&k, 3, j, j % ALL == j / ALL + 20 ? NAN : low);
        }
        case_check_device(&k, 1);
    }
}

/* Softmax to codes of rows that fit into one to eight vectors of a lane, of others, and of long
   ones. */
static void softmaxes_to_codes(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1,   4,   100, 128,  132,  200,  256,   260,  300,
                                      512, 516, 999, 1000, 1024, 1025, 16385, 40000};
    static const pare_dtype types[] = {PARE_f32, PARE_f16, PARE_bf16};
    enum { ROWS = 7 };
    for (int i = 0; i < 51; i++) {
        kernel_case k;
        const int64_t n = lengths[i % 17];
        const pare_dtype type = types[i / 17];
        case_open(&k, "pare", "QSoftmax", (uint64_t)i + 1);
        case_input(&k, type, 2, (int64_t[]){ROWS, n}, false, 0, 8);
        for (int64_t j = 0; j < n; j++) {
            case_put(&k, 0, j, j ? -16 - (float)(j % 3) / 2 : 0); /* near the least that counts */
            if (type == PARE_f32) case_put(&k, 0, n + j, 70000 + (float)(j % 9) / 4);
            if (j % 3 == 1) case_put(&k, 0, 2 * n + j, NAN);
            case_put(&k, 0, 3 * n + j, j % 2 ? NAN : -INFINITY);
            if (j == n / 2) case_put(&k, 0, 4 * n + j, INFINITY);
            if (j % 2) case_put(&k, 0, 5 * n + j, -INFINITY);
        }
        case_set_float(&k, "y_scale", i % 2 ? 1 / 255.0f : 1e-3f);
        case_set_int(&k, "y_zero_point", i % 2 ? -128 : 0);
        case_set_int(&k, "to", i % 2 ? PARE_s8 : PARE_u8);
        case_check_device(&k, 1);
    }
}

/* What the kernel does not take. */
static void others_are_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t depth, keys;
        int steps;
        float p_scale, scale;
    } row[] = {{24, 16, 255, 1 / 255.0f, 1},   {144, 16, 255, 1 / 255.0f, 1},
               {128, 513, 255, 1 / 255.0f, 1}, {64, 1025, 255, 1 / 255.0f, 1},
               {64, 16, 100, 1 / 255.0f, 1},   {64, 16, 255, 1 / 255.0f, 1e21f}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        kernel_case k;
        case_open(&k, "pare", "QAttention", (uint64_t)i + 1);
        operand(&k, PARE_s8, (int64_t[]){1, 1, 4, row[i].depth});
        operand(&k, PARE_s8, (int64_t[]){1, 1, row[i].keys, row[i].depth});
        operand(&k, PARE_s8, (int64_t[]){1, 1, row[i].keys, 32});
        codes_set(&k, PARE_s8, PARE_s8, row[i].steps);
        case_set_float(&k, "p_scale", row[i].p_scale);
        case_set_float(&k, "scale", row[i].scale);
        case_run_device(&k, 0);
        assert_int_equal(k.device_runs, 0);
        case_close(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_all_sizes),       cmocka_unit_test(heads_where_they_lie),
        cmocka_unit_test(masked_keys_are_not_read), cmocka_unit_test(masks_with_nan),
        cmocka_unit_test(softmaxes_to_codes),       cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
