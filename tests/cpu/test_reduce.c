/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions: values worked out by hand, and every kernel of a row against the plain one on odd
   sizes and both memory orders; operators in f16 and bf16 against f32. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_of_nothing),
        cmocka_unit_test(integer_reductions),
        cmocka_unit_test(sums_lose_nothing),
        cmocka_unit_test(extremes_take_the_first_or_the_last),
        cmocka_unit_test(vector_reductions_agree),
        cmocka_unit_test(short_floats_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
