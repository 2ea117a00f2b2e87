/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on the device's tensor cores against the CPU's plain kernel (kernel_case.c compares).
   Each case says how many of the device's kernels must have taken it. */
#include "tests/cuda/product_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const pare_dtype halves[] = {PARE_f16, PARE_bf16};

/* Under a mask scores are rounded: Q and K whose sums are exact, so that no other order of them
   rounds another way. */
static void make_exact(kernel_case *k)
{
    case_coarsen(k, 0);
    case_coarsen(k, 1);
    case_set_float(k, "scale", 0.25f);
}

/* Tensor cores take attention of halves whose rows are chunks; keys and queries that no tile ends
   at, masks of f32 and of halves that leave the last keys only, and of one low number throughout.
 */
static void attention_takes_tensor_cores(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 16, 63, 64, 65, 130}, depths[] = {8, 32, 40, 64, 72, 128};
    for (int i = 0; i < 72; i += case_apart()) {
        kernel_case k;
        case_open(&k, "pare", "FusedAttention", (uint64_t)i + 1);
        const pare_dtype t = halves[i % 2];
        const int64_t d = depths[i % 6], w = depths[(i / 6 + i) % 6], s = lengths[i / 12],
                      n = lengths[i / 2 % 6];
        const int64_t mask[4] = {1, i % 3 ? 3 : 1, i % 5 ? s : 1, n};
        case_input(&k, t, 4, (int64_t[]){2, 3, s, d}, false, 0, 2);
        case_input(&k, t, 4, (int64_t[]){2, 3, n, d}, false, 0, 2);
        case_input(&k, t, 4, (int64_t[]){2, 3, n, w}, false, 0, 2);
        case_set_float(&k, "scale", 0.3f);
        if (i % 4) {
            case_input(&k, i / 4 % 2 ? t : PARE_f32, 4, mask, false, 0, 2);
            for (int64_t j = 0; j < pare_view_count(&k.in[3]); j++)
                if (i % 4 > 1 && (j % n < n / 2 || i % 4 == 2))
                    case_put(&k, 3, j, i % 4 > 2 ? -INFINITY : case_lowest(t));
            make_exact(&k);
        }
        case_check_device(&k, 2); /* and the one of any floats */
    }
}

/* The same with heads behind the sequence in some of Q, K, V and Y, or as parts of products, and a
   depth that tensor cores do not take. */
static void attention_reads_heads_where_they_lie(void **state)
{
    (void)state;
    for (int i = 1; i < 16; i += case_apart()) {
        kernel_case k;
        case_open(&k, "pare", "FusedAttention", (uint64_t)i + 1);
        const pare_dtype t = halves[i % 2];
        const int64_t d = i % 4 == 3 ? 20 : 32, s = i % 3 ? 65 : 20, n = i % 5 ? 70 : 64;
        int64_t axes[4], dims[3][4] = {{2, 3, s, d}, {2, 3, n, d}, {2, 3, n, 40}};
        for (int j = 0; j < 4; j++) axes[j] = 1 + (i >> j & 1);
        for (int j = 0; j < 3; j++) {
            const int64_t *m = dims[j], part[5] = {2, m[2], 4, 3, m[3]};
            if (axes[j] == 2) dims[j][1] = dims[j][2], dims[j][2] = 3;
            if (i > 7)
                case_input(&k, t, 5, part, false, 0, 2);
            else
                case_input(&k, t, 4, m, false, 0, 2);
        }
        if (i > 7) case_set_ints(&k, "parts", (int64_t[]){0, 3, 2}, 3);
        case_set_float(&k, "scale", 0.3f);
        if (i % 2) {
            case_input(&k, PARE_f32, 4, (int64_t[]){2, i % 3 ? 3 : 1, s, n}, false, 0, 2);
            make_exact(&k);
        }
        case_set_ints(&k, "head_axes", axes, 4);
        case_check_device(&k, d == 20 ? 1 : 2);
    }
}

/* Constant masks that leave whole tiles of keys out: causal ones, a window of keys, of each number
   that masks have; queries without any key, of which those of finite masks see all. */
static void attention_skips_masked_tiles(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = halves[i % 2];
        const int64_t s = i / 4 % 2 ? 66 : 130, n = i % 3 ? s : 196, d = 32;
        const int window = i % 3 == 1 ? 40 : 1000, blind = i % 12 > 5 ? 5 + i : -1;
        const float low[] = {-INFINITY, case_lowest(t), -10000};
        case_open(&k, "pare", "FusedAttention", (uint64_t)i + 1);
        case_input(&k, t, 4, (int64_t[]){1, 1, s, d}, false, 0, 2);
        case_input(&k, t, 4, (int64_t[]){1, 1, n, d}, false, 0, 2);
        case_input(&k, t, 4, (int64_t[]){1, 1, n, d}, false, 0, 2);
        case_input(&k, i % 5 ? t : PARE_f32, 2, (int64_t[]){s, n}, true, 0, 1);
        for (int64_t j = 0; j < s * n; j++)
            if (j % n > j / n || j % n + window < j / n || j / n == blind)
                case_put(&k, 3, j, low[i / 2 % 3]);
        make_exact(&k);
        case_check_device(&k, 2);
    }
}

/* Masks of Y's type that a run brings: of all heads or each, of a sample's keys or of each
   query and key, an odd number of keys, too. One query, or the whole second sample, has no key. */
static void attention_takes_masks_of_runs(void **state)
{
    (void)state;
    for (int i = 0; i < 36; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = halves[i % 2];
        const bool padding = i / 6 % 2, heads = i / 12 == 1;
        const int64_t s = 66, n = i / 12 ? 70 : 69, d = 16,
                      mask[4] = {2, heads ? 3 : 1, padding ? 1 : s, n};
        const float low[] = {-INFINITY, case_lowest(t), -10000};
        case_open(&k, "pare", "FusedAttention", (uint64_t)i + 1);
        case_input(&k, t, 4, (int64_t[]){2, 3, s, d}, false, 0, 2);
        case_input(&k, t, 4, (int64_t[]){2, 3, n, d}, false, 0, 2);
        case_input(&k, t, 4, (int64_t[]){2, 3, n, d}, false, 0, 2);
        case_input(&k, t, 4, mask, false, 0, 1);
        for (int64_t j = 0, count = pare_view_count(&k.in[3]); j < count; j++) {
            const bool blind = padding ? j >= count / 2 : j / n % s == 7;
            case_put(&k, 3, j, blind || j % n > n - 9 ? low[i / 2 % 3] : 0);
        }
        make_exact(&k);
        case_check_device(&k, 2);
    }
}

/* f32: queries below, at and beside eights, which share a block but where keys are many; a mask,
   heads behind the sequence, more width than threads. */
static void attention_takes_f32(void **state)
{
    static const int64_t queries[] = {1, 7, 8, 9, 20}, keys[] = {1, 33, 70, 1600};
    (void)state;
    for (int i = 0; i < 18; i += case_apart()) {
        kernel_case k;
        const int64_t s = queries[(i + i / 5) % 5], n = keys[i / 5], d = i % 3 ? 20 : 40,
                      w = i % 7 ? 24 : 130;
        case_open(&k, "pare", "FusedAttention", (uint64_t)i + 1);
        case_input(&k, PARE_f32, 4, (int64_t[]){2, i % 4 ? 3 : s, i % 4 ? s : 3, d}, false, 0, 2);
        case_input(&k, PARE_f32, 4, (int64_t[]){2, 3, n, d}, false, 0, 2);
        case_input(&k, PARE_f32, 4, (int64_t[]){2, 3, n, w}, false, 0, 2);
        case_set_float(&k, "scale", 0.3f);
        if (i % 2) case_input(&k, PARE_f32, 4, (int64_t[]){2, 1, i % 3 ? s : 1, n}, false, 0, 2);
        if (i % 4 == 0) case_set_ints(&k, "head_axes", (int64_t[]){2, 1, 1, 1}, 4);
        case_check_device(&k, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_takes_tensor_cores),
        cmocka_unit_test(attention_reads_heads_where_they_lie),
        cmocka_unit_test(attention_skips_masked_tiles),
        cmocka_unit_test(attention_takes_masks_of_runs),
        cmocka_unit_test(attention_takes_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
