/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of 2:4: how they are packed, and products with them against the CPU's plain kernels
   (kernel_case.c compares, bytes equal for integers). That the sparse kernels took part is counted:
   the same node with dense weights has that many kernels less. */
#include "runtime/cuda/gemm/sparse.h"
#include "tests/cuda/sparse_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_DEPTH = 300, MOST_ROWS = 40 };

/* Rows 0 and 8 of 8-bit numbers, depth 64: in the figures of the PTX ISA lane 0 holds row 0's
   places of depth 0 to 31, lane 2 those of 32 to 63, lane 1 and 3 the same of row 8. */
static void bytes_are_packed_as_drawn(void **state)
{
    (void)state;
    int8_t row[64] = {0}, kept[32];
    uint32_t meta[16 * 2 * 32];
    size_t bytes = pare_sparse_meta_bytes(9, 64, 1);
    assert_int_equal(bytes, sizeof meta); /* 16 tiles and two steps, filled up */
    assert_int_equal(pare_sparse_kept_bytes(64, 1), 32);
    row[1] = 5, row[3] = -7;   /* group 0: places 1 and 3: 1101 */
    row[30] = 9;               /* group 7: place 2, and 3: 1110 */
    row[32] = 11, row[34] = 2; /* group 8: places 0 and 2: 1000 */
    row[63] = 1;               /* group 15: place 3 after 2: 1110 */
    pare_sparse_meta_clear(meta, bytes);
    pare_sparse_row_pack(row, 1, 0, 64, kept, meta);
    assert_int_equal(meta[0], 0xe444444d);
    assert_int_equal(meta[2], 0xe4444448);
    assert_int_equal(meta[1], 0x44444444);
    pare_sparse_row_pack(row, 1, 8, 64, kept, meta);
    assert_int_equal(meta[1], 0xe444444d);
    assert_int_equal(meta[3], 0xe4444448);
    assert_int_equal(meta[4], 0x44444444);  /* row 1 */
    assert_int_equal(meta[32], 0x44444444); /* a step behind the last */
    const int8_t wanted[32] = {5, -7, [14] = 9, [16] = 11, 2, [31] = 1};
    assert_memory_equal(kept, wanted, 32);
}

/* 16-bit numbers, depth 32: words of lanes 0 and 1 of each four, two depths of 16, row 0 in the
   lower half, row 8 in the upper. */
static void halves_are_packed_as_drawn(void **state)
{
    (void)state;
    uint16_t row[32] = {0}, kept[16];
    uint32_t meta[16 * 2 * 16];
    size_t bytes = pare_sparse_meta_bytes(16, 32, 2);
    assert_int_equal(bytes, sizeof meta);
    assert_int_equal(pare_sparse_kept_bytes(32, 2), 32);
    row[0] = 0x3c00, row[3] = 0x4000; /* 1100 */
    row[18] = 0x3c00;                 /* group 4: 1110 */
    row[31] = 0x8000;                 /* -0 is not kept: 0100 */
    pare_sparse_meta_clear(meta, bytes);
    pare_sparse_row_pack(row, 2, 8, 32, kept, meta);
    assert_int_equal(meta[0], 0x444c4444);
    assert_int_equal(meta[1], 0x444e4444);
    pare_sparse_row_pack(row, 2, 0, 32, kept, meta);
    assert_int_equal(meta[0], 0x444c444c);
    assert_int_equal(meta[1], 0x444e444e);
    const uint16_t wanted[16] = {0x3c00, 0x4000, [8] = 0x3c00};
    assert_memory_equal(kept, wanted, 32);
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void rows_come_back(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (int i = 0; i < 24; i++) {
        static char rows[MOST_ROWS][MOST_DEPTH * 2], kept[MOST_ROWS][MOST_DEPTH * 2 + 64];
        char back[MOST_DEPTH * 2];
        int bytes = 1 + i % 2, depth = 1 + (int)(next(&seed) % MOST_DEPTH),
            count = 1 + (int)(next(&seed) % MOST_ROWS);
        size_t size = pare_sparse_meta_bytes(count, depth, bytes);
        uint32_t *meta = malloc(size);
        assert_non_null(meta);
        memset(rows, 0, sizeof rows);
        pare_sparse_meta_clear(meta, size);
        for (int r = 0; r < count; r++) {
            for (int k = 0; k < depth; k++)
                if (next(&seed) % 3)
                    memset(rows[r] + k * bytes, (int)(1 + next(&seed) % 100), (size_t)bytes);
            for (int k = 0; k < depth; k += 4) /* two of each four go */
                for (int j = 0, first = (int)(next(&seed) % 4); j < 2; j++)
                    if (k + (first + j) % 4 < depth)
                        memset(rows[r] + (k + (first + j) % 4) * bytes, 0, (size_t)bytes);
            assert_true(pare_sparse_fits(rows[r], bytes, 1, depth));
            pare_sparse_row_pack(rows[r], bytes, r, depth, kept[r], meta);
        }
        for (int r = 0; r < count; r++) {
            pare_sparse_row_unpack(kept[r], meta, bytes, r, depth, back);
            assert_memory_equal(back, rows[r], (size_t)(depth * bytes));
        }
        for (size_t w = 0; w < size / 4; w++)
            for (int n = 0; n < 32; n += 4)
                assert_true((meta[w] >> n & 3) < (meta[w] >> n >> 2 & 3));
        free(meta);
    }
}

static void three_of_four_do_not_fit(void **state)
{
    (void)state;
    const int8_t row[10] = {0, 1, 2, 0, 3, 0, 0, 4, 5, 6}, bad[9] = {0, 1, 2, 3};
    const uint16_t zeros[4] = {1, 0x8000, 2, 0}, three[4] = {1, 0x8001, 2, 0};
    assert_true(pare_sparse_fits(row, 1, 1, 10));
    assert_false(pare_sparse_fits(row + 1, 1, 1, 9)); /* 1 2 0 3 */
    assert_false(pare_sparse_fits(bad, 1, 1, 4));
    assert_true(pare_sparse_fits(bad, 1, 1, 3)); /* 0 1 2 */
    assert_true(pare_sparse_fits(bad, 1, 2, 5)); /* 0 2 0 0 0 */
    assert_true(pare_sparse_fits(zeros, 2, 1, 4));
    assert_false(pare_sparse_fits(three, 2, 1, 4));
}

/* --- kernels --- */

static void attributes_set(kernel_case *k, pare_dtype to)
{
    assert_int_equal(pare_node_set_float(k->node, "x_scale", 0.02f), PARE_OK);
    assert_int_equal(pare_node_set_float(k->node, "y_scale", 0.9f), PARE_OK);
    assert_int_equal(pare_node_set_int(k->node, "x_zero_point", 3), PARE_OK);
    assert_int_equal(pare_node_set_int(k->node, "to", to), PARE_OK);
}

/* The device's kernels that took the node. */
static int runs_of(kernel_case *k)
{
    case_infer(k);
    void *y = malloc(case_bytes(k) + 1);
    assert_non_null(y);
    assert_true(case_run(k, case_plain(k), y));
    free(y);
    int runs = k->device_runs;
    case_close(k);
    return runs;
}

typedef struct matrix_case {
    pare_dtype type;
    int64_t rows, depth, columns;
    int sparse; /* kernels that must take it */
} matrix_case;

static int matrix_runs(const matrix_case *c, bool dense, bool deterministic, bool transposed)
{
    kernel_case k;
    const bool int8 = c->type == PARE_s8 || c->type == PARE_u8;
    const int bytes = int8 ? 1 : 2;
    case_open(&k, int8 ? "pare" : "", int8 ? "FusedMatMul" : "Gemm", (uint64_t)c->depth);
    k.deterministic = deterministic;
    int64_t a[2] = {c->rows, c->depth}, one = 1,
            b[2] = {transposed ? c->columns : c->depth, transposed ? c->depth : c->columns};
    case_input(&k, c->type, 2, a, false, c->type == PARE_s8 ? -128 : 0, int8 ? 127 : 1);
    char *w = case_input(&k, int8 ? PARE_s8 : c->type, 2, b, true, int8 ? -127 : 1, int8 ? 127 : 1);
    for (int64_t i = 0; i < c->columns && !dense; i++)
        numbers_drop(&k, w, bytes, transposed ? i * c->depth : i, transposed ? 1 : c->columns,
                     c->depth);
    case_input(&k, int8 ? PARE_s32 : c->type, 1, &c->columns, true, -5000, int8 ? 5000 : 1);
    assert_int_equal(pare_node_set_int(k.node, "transB", transposed), PARE_OK);
    if (int8) {
        case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
        *(float *)case_input(&k, PARE_f32, 1, &one, true, 0, 1) = 0.01f;
        attributes_set(&k, c->type);
    }
    return runs_of(&k);
}

static void matrices_agree(void **state)
{
    (void)state;
    static const matrix_case cases[] = {
        {PARE_s8, 8330, 64, 72, 2},                              /* both tiles */
        {PARE_f16, 8330, 40, 72, 2}, {PARE_u8, 70, 400, 100, 1}, /* more steps than stages */
        {PARE_bf16, 33, 72, 65, 1},  {PARE_f16, 5, 200, 130, 1},
        {PARE_s8, 3, 16, 9, 1},      {PARE_s8, 65, 132, 20, 0}, /* copies of four bytes */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int dense = matrix_runs(&cases[i], true, false, i % 2),
            sparse = matrix_runs(&cases[i], false, false, i % 2);
        assert_int_equal(sparse - dense, cases[i].sparse);
    }
}

/* Sums of floats would be added in another order than those of dense weights. */
static void canonical_products_of_floats_stay_dense(void **state)
{
    (void)state;
    const matrix_case floats = {PARE_f16, 20, 64, 24, 0}, bytes = {PARE_s8, 20, 64, 24, 0};
    assert_int_equal(matrix_runs(&floats, false, true, false),
                     matrix_runs(&floats, true, true, false));
    assert_int_equal(matrix_runs(&bytes, false, true, false),
                     matrix_runs(&bytes, true, true, false) + 1);
}

static int convolution_runs(int i, pare_dtype t, bool dense, int64_t group)
{
    kernel_case k;
    const bool int8 = t == PARE_s8 || t == PARE_u8;
    int64_t c = i % 3 ? 32 : 16, m = i % 2 ? 70 : 24, side = i % 4 ? 3 : 1, one = 1;
    int64_t x[4] = {2, c * group, 9, 7}, w[4] = {m * group, c, side, side},
            strides[2] = {1, 1 + i % 2}, pads[4] = {side / 2, 0, side / 2, side / 2},
            all = m * group;
    case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
    k.nhwc = true;
    case_input(&k, t, 4, x, false, t == PARE_s8 ? -128 : 0, int8 ? 127 : 1);
    char *to = case_input(&k, int8 ? PARE_s8 : t, 4, w, true, int8 ? -127 : 1, int8 ? 127 : 1);
    for (int64_t f = 0; f < all * side * side && !dense; f++)
        numbers_drop(&k, to, int8 ? 1 : 2, f / (side * side) * c * side * side + f % (side * side),
                     side * side, c);
    case_input(&k, int8 ? PARE_s32 : t, 1, &all, true, -5000, int8 ? 5000 : 1);
    if (int8) {
        case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
        *(float *)case_input(&k, PARE_f32, 1, &one, true, 0, 1) = 0.01f;
        attributes_set(&k, i % 5 ? t : PARE_f32);
    }
    assert_int_equal(pare_node_set_string(k.node, "activation", i % 2 ? "relu" : "none"), PARE_OK);
    assert_int_equal(pare_node_set_ints(k.node, "strides", strides, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(k.node, "pads", pads, 4), PARE_OK);
    assert_int_equal(pare_node_set_int(k.node, "group", group), PARE_OK);
    return runs_of(&k);
}

static void convolutions_agree(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_f16, PARE_u8, PARE_bf16};
    for (int i = 0; i < 12; i++)
        assert_int_equal(convolution_runs(i, types[i % 4], false, 1),
                         convolution_runs(i, types[i % 4], true, 1) + 1);
    assert_int_equal(convolution_runs(1, PARE_s8, false, 2),
                     convolution_runs(1, PARE_s8, true, 2)); /* groups stay dense */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_packed_as_drawn),
        cmocka_unit_test(halves_are_packed_as_drawn),
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(three_of_four_do_not_fit),
        cmocka_unit_test(matrices_agree),
        cmocka_unit_test(canonical_products_of_floats_stay_dense),
        cmocka_unit_test(convolutions_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
