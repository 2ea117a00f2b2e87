/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, softmax, normalizations, matrix products and quantization: values worked out by hand,
   and every kernel of a row against the plain one on odd sizes and both memory orders. */
#include "tests/cpu/kernel_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void set_axes(kernel_case *k, const int64_t *axes, int count)
{
    assert_int_equal(pare_node_set_ints(k->node, "axes", axes, count), PARE_OK);
}

static float reduce_nothing(const char *op)
{
    kernel_case k;
    float y[2];
    case_open(&k, "", op, 1);
    set_axes(&k, (int64_t[]){1}, 1);
    case_input(&k, PARE_f32, 2, (int64_t[]){2, 0}, false, 0, 1);
    case_infer(&k);
    assert_int_equal(pare_view_count(&k.out), 2);
    assert_true(case_run(&k, case_plain(&k), y));
    assert_true(y[0] == y[1] || (isnan(y[0]) && isnan(y[1])));
    case_close(&k);
    return y[0];
}

static void reductions_of_nothing(void **state)
{
    (void)state;
    assert_true(reduce_nothing("ReduceSum") == 0);
    assert_true(reduce_nothing("ReduceProd") == 1);
    assert_true(reduce_nothing("ReduceMax") == -INFINITY);
    assert_true(reduce_nothing("ReduceMin") == INFINITY);
    assert_true(reduce_nothing("ReduceL2") == 0);
    assert_true(reduce_nothing("ReduceLogSum") == -INFINITY);
    assert_true(reduce_nothing("ReduceLogSumExp") == -INFINITY);
    assert_true(isnan(reduce_nothing("ReduceMean")));
}

static void integer_reductions(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        int32_t want;
    } cases[] = {{"ReduceSum", -6}, {"ReduceMax", 4},        {"ReduceMin", -9}, {"ReduceProd", 36},
                 {"ReduceL1", 14},  {"ReduceSumSquare", 98}, {"ReduceMean", -2}};
    const int32_t x[3] = {4, -1, -9}; /* L1 14, squares 16 + 1 + 81 */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kernel_case k;
        int32_t y;
        case_open(&k, "", cases[i].op, 1);
        memcpy(case_input(&k, PARE_s32, 1, (int64_t[]){3}, false, 0, 1), x, sizeof x);
        case_infer(&k);
        assert_true(case_run(&k, case_plain(&k), &y));
        assert_int_equal(y, cases[i].want);
        case_close(&k);
    }
}

/* Adding 1e8 and ones in f32 one by one would lose the ones. */
static void sums_lose_nothing(void **state)
{
    (void)state;
    kernel_case k;
    case_open(&k, "", "ReduceSum", 1);
    float y, *x = case_input(&k, PARE_f32, 1, (int64_t[]){1025}, false, 0, 1);
    for (int i = 0; i < 1025; i++) x[i] = i ? 1 : 1e8f;
    case_infer(&k);
    for (const pare_kernel *const *it = k.op->cpu; *it; it++) {
        assert_true(case_run(&k, *it, &y));
        assert_true(y == 100001024.0f);
    }
    case_close(&k);
}

static void extremes_take_the_first_or_the_last(void **state)
{
    (void)state;
    const float x[5] = {1, 3, 3, 0, 0};
    static const struct {
        const char *op;
        int last;
        int64_t want;
    } cases[] = {{"ArgMax", 0, 1}, {"ArgMax", 1, 2}, {"ArgMin", 0, 3}, {"ArgMin", 1, 4}};
    for (int i = 0; i < 4; i++) {
        kernel_case k;
        int64_t y;
        case_open(&k, "", cases[i].op, 1);
        assert_int_equal(pare_node_set_int(k.node, "select_last_index", cases[i].last), PARE_OK);
        memcpy(case_input(&k, PARE_f32, 1, (int64_t[]){5}, false, 0, 1), x, sizeof x);
        case_infer(&k);
        assert_true(case_run(&k, case_plain(&k), &y));
        assert_int_equal(y, cases[i].want);
        case_close(&k);
    }
}

static void softmax_survives_large_numbers(void **state)
{
    (void)state;
    kernel_case k;
    float y[3];
    case_open(&k, "", "Softmax", 1);
    float *x = case_input(&k, PARE_f32, 1, (int64_t[]){3}, false, 0, 1);
    x[0] = 10000;
    x[1] = 10000;
    x[2] = -INFINITY;
    case_infer(&k);
    for (const pare_kernel *const *it = k.op->cpu; *it; it++) {
        if (!case_run(&k, *it, y)) continue;
        assert_true(y[0] == 0.5f && y[1] == 0.5f && y[2] == 0);
    }
    case_close(&k);
}

/* --- every kernel of a row against the plain one --- */

static void compare_all(kernel_case *k, double tolerance)
{
    size_t bytes = case_bytes(k);
    float *want = malloc(bytes + 4), *y = malloc(bytes + 4);
    assert_true(case_run(k, case_plain(k), want));
    for (const pare_kernel *const *it = k->op->cpu; it[1]; it++) {
        if (!case_run(k, *it, y)) continue;
        for (size_t i = 0; i < bytes / 4; i++)
            if (!(fabs((double)y[i] - (double)want[i]) <= tolerance * (1 + fabs((double)want[i]))))
                fail_msg("%s (%s): element %zu: %.9g, expected %.9g", (*it)->name, k->node->op_type,
                         i, (double)y[i], (double)want[i]);
    }
    free(want);
    free(y);
}

static void vector_reductions_agree(void **state)
{
    (void)state;
    static const int64_t dims[][4] = {{2, 3, 4, 5}, {1, 67, 7, 7}, {3, 130, 1, 2}, {2, 16, 9, 1}};
    static const int64_t axes[][3] = {{2, 3, -1}, {1, -1, -1}, {3, -1, -1}, {0, 2, -1}, {0, 1, 3}};
    for (int d = 0; d < 4; d++)
        for (int a = 0; a < 5; a++)
            for (int mode = 0; mode < 8; mode++) {
                kernel_case k;
                int count = axes[a][1] < 0 ? 1 : axes[a][2] < 0 ? 2 : 3;
                case_open(&k, "", mode & 1 ? "ReduceMean" : "ReduceSum", (uint64_t)mode);
                k.nhwc = mode & 2;
                set_axes(&k, axes[a], count);
                assert_int_equal(pare_node_set_int(k.node, "keepdims", mode >> 2), PARE_OK);
                case_input(&k, PARE_f32, 4, dims[d], false, 0, 3);
                case_infer(&k);
                compare_all(&k, 1e-6);
                case_close(&k);
            }
}

static void vector_softmax_and_layer_norm_agree(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 197, 1000};
    static const char *const ops[] = {"Softmax", "LogSoftmax", "LayerNormalization"};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int o = 0; o < 3; o++) {
            kernel_case k;
            case_open(&k, "", ops[o], l);
            int64_t dims[] = {o == 2 ? 2 : 5, o == 2 ? 3 : 17, lengths[l]};
            case_input(&k, PARE_f32, 3, dims, false, 0, 4);
            if (o == 2) {
                case_input(&k, PARE_f32, 1, &lengths[l], true, 0, 1);
                case_input(&k, PARE_f32, 1, &lengths[l], true, 0, 1);
            }
            case_infer(&k);
            compare_all(&k, 2e-6);
            case_close(&k);
        }
}

/* f16 and bf16: the first kernel against the plain one, at most one step of the type apart. */
static void short_floats_agree(void **state)
{
    (void)state;
    static const char *const ops[] = {"Softmax", "LayerNormalization", "Gelu", "Tanh", "Add",
                                      "Relu"};
    enum { N = 6 * 533 };
    for (int mode = 0; mode < 12; mode++) {
        const char *op = ops[mode / 2];
        pare_dtype type = mode & 1 ? PARE_bf16 : PARE_f16;
        uint16_t want[N], y[N];
        int64_t last = 533;
        kernel_case k;
        case_open(&k, "", op, (uint64_t)mode);
        k.threads = 2;
        case_input(&k, type, 3, (int64_t[]){2, 3, last}, false, 0, 3);
        if (!strcmp(op, "LayerNormalization") || !strcmp(op, "Add"))
            case_input(&k, type, 1, &last, true, 0, 1);
        if (!strcmp(op, "LayerNormalization")) case_input(&k, type, 1, &last, true, 0, 1);
        case_infer(&k);
        assert_true(case_run(&k, case_plain(&k), want));
        const pare_kernel *const *it = k.op->cpu;
        while (!case_run(&k, *it, y)) it++;
        for (int i = 0; i < N; i++) {
            double a = (double)pare_type(type)->to_f32(&y[i]),
                   b = (double)pare_type(type)->to_f32(&want[i]);
            double step = fmax(fabs(b), 1e-3) * (type == PARE_f16 ? 0x1p-10 : 0x1p-7);
            if (!(fabs(a - b) <= step))
                fail_msg("%s: element %d: %.9g, expected %.9g", op, i, a, b);
        }
        case_close(&k);
    }
}

static void softmax_along_any_axis_and_order(void **state)
{
    (void)state;
    static const int64_t dims[4] = {2, 3, 4, 5};
    for (int mode = 0; mode < 8; mode++) {
        kernel_case k;
        float y[120];
        int axis = mode & 3;
        case_open(&k, "", "Softmax", 7);
        k.nhwc = mode >= 4;
        assert_int_equal(pare_node_set_int(k.node, "axis", axis - 4), PARE_OK);
        const float *x = case_input(&k, PARE_f32, 4, dims, false, 0, 2);
        case_infer(&k);
        assert_true(case_run(&k, case_plain(&k), y));
        for (int64_t at = 0; at < 120; at++) {
            int64_t index[4] = {at / 60, at / 20 % 3, at / 5 % 4, at % 5}, ix = 0, iy = 0;
            for (int i = 0; i < 4; i++) {
                ix += index[i] * k.in[0].stride[i];
                iy += index[i] * k.out.stride[i];
            }
            int64_t first = ix - index[axis] * k.in[0].stride[axis];
            double sum = 0;
            for (int64_t i = 0; i < dims[axis]; i++)
                sum += exp((double)x[first + i * k.in[0].stride[axis]]);
            assert_true(fabs((double)y[iy] - exp((double)x[ix]) / sum) < 1e-6);
        }
        case_close(&k);
    }
}

/* --- matrix products --- */

static void products_sum_over_k(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {4, 128, 3}, {5, 129, 7},
                                       {3, 2, 0}, {0, 3, 2},   {9, 300, 33}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        kernel_case k;
        int64_t m = sizes[s][0], n = sizes[s][1], inner = sizes[s][2];
        case_open(&k, "", "MatMul", s);
        const float *a = case_input(&k, PARE_f32, 3, (int64_t[]){2, m, inner}, false, 0, 1);
        const float *b = case_input(&k, PARE_f32, 2, (int64_t[]){inner, n}, false, 0, 1);
        case_infer(&k);
        float *y = malloc(case_bytes(&k) + 4);
        assert_true(case_run(&k, case_plain(&k), y));
        for (int64_t r = 0; r < 2 * m; r++)
            for (int64_t c = 0; c < n; c++) {
                double want = 0;
                for (int64_t i = 0; i < inner; i++)
                    want += (double)a[r * inner + i] * (double)b[i * n + c];
                assert_true(fabs((double)y[r * n + c] - want) < 1e-5);
            }
        free(y);
        case_close(&k);
    }
}

static void gemm_scales_and_transposes(void **state)
{
    (void)state;
    /* A' = [[1, 2], [3, 4]], B' = [[1, 0], [2, 1]]: A'B' = [[5, 2], [11, 4]]; C = [10, 20] */
    const float a[4] = {1, 3, 2, 4}, b[4] = {1, 2, 0, 1}, c[2] = {10, 20};
    const float want[4] = {0.5f * 5 + 20, 0.5f * 2 + 40, 0.5f * 11 + 20, 0.5f * 4 + 40};
    kernel_case k;
    float y[4];
    case_open(&k, "", "Gemm", 1);
    assert_int_equal(pare_node_set_int(k.node, "transA", 1), PARE_OK);
    assert_int_equal(pare_node_set_int(k.node, "transB", 1), PARE_OK);
    assert_int_equal(pare_node_set_float(k.node, "alpha", 0.5f), PARE_OK);
    assert_int_equal(pare_node_set_float(k.node, "beta", 2), PARE_OK);
    memcpy(case_input(&k, PARE_f32, 2, (int64_t[]){2, 2}, false, 0, 1), a, sizeof a);
    memcpy(case_input(&k, PARE_f32, 2, (int64_t[]){2, 2}, false, 0, 1), b, sizeof b);
    memcpy(case_input(&k, PARE_f32, 1, (int64_t[]){2}, false, 0, 1), c, sizeof c);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), y));
    assert_memory_equal(y, want, sizeof y);
    case_close(&k);
}

/* --- quantization --- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_of_nothing),
        cmocka_unit_test(integer_reductions),
        cmocka_unit_test(sums_lose_nothing),
        cmocka_unit_test(extremes_take_the_first_or_the_last),
        cmocka_unit_test(softmax_survives_large_numbers),
        cmocka_unit_test(vector_reductions_agree),
        cmocka_unit_test(vector_softmax_and_layer_norm_agree),
        cmocka_unit_test(short_floats_agree),
        cmocka_unit_test(softmax_along_any_axis_and_order),
        cmocka_unit_test(products_sum_over_k),
        cmocka_unit_test(gemm_scales_and_transposes),
        cmocka_unit_test(quantization_rounds_ties_to_even_before_the_zero_point),
        cmocka_unit_test(quantization_divides),
        cmocka_unit_test(dequantization_per_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
