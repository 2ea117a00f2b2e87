/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizations, norms over windows and planes, sums and means of several tensors, and
   quantization by the data's own range: in every float type and both memory orders, against the
   formulas written out here in double. */
#include "tests/cpu/kernel_case.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const pare_dtype floats[] = {PARE_f32, PARE_f16, PARE_bf16};

static double number(const pare_view *v, int64_t at)
{
    const char *p = (const char *)v->data + at * (pare_type(v->dtype)->bits / 8);
    return (double)pare_type(v->dtype)->to_f32(p);
}

/* Row-major place -> offset, and back to the index along one axis. */
static int64_t offset_of(const pare_view *v, int64_t i)
{
    int64_t offset = 0;
    for (int a = v->rank - 1; a >= 0; a--) {
        offset += i % v->dim[a] * v->stride[a];
        i /= v->dim[a];
    }
    return offset;
}

static int64_t index_of(const pare_view *v, int64_t i, int axis)
{
    for (int a = v->rank - 1; a > axis; a--) i /= v->dim[a];
    return i % v->dim[axis];
}

typedef double (*formula)(const kernel_case *k, int64_t i); /* of y's element i, row-major */

/* Runs the plain kernel (and the device's) and holds every element to the formula. */
static void check(kernel_case *k, formula f)
{
    case_infer(k);
    pare_view y = k->out;
    double unit = y.dtype == PARE_f16 ? 1e-3 : y.dtype == PARE_bf16 ? 8e-3 : 1e-5;
    y.data = malloc(case_bytes(k) + 8);
    assert_true(case_run(k, case_plain(k), y.data));
#ifdef CASE_DEVICE
    assert_true(k->device_runs > 0 || !k->op->cuda[0]);
#endif
    const int64_t step = pare_view_count(&y) > 5000 ? 97 : 1; /* formulas look at whole regions */
    for (int64_t i = 0; i < pare_view_count(&y); i += step) {
        double got = number(&y, offset_of(&y, i)), want = f(k, i);
        if (!(got == want || fabs(got - want) <= unit * (1 + fabs(want))))
            fail_msg("%s %s: element %d is %.9g, expected %.9g", k->node->op_type,
                     pare_type(y.dtype)->name, (int)i, got, want);
    }
    free(y.data);
    case_close(k);
}

/* --- InstanceNormalization, GroupNormalization --- */

/* Mean and variance of the elements of x in i's sample and group: row-major they follow each other.
 */
static void stats_of(const pare_view *x, int64_t i, int64_t groups, double *mean, double *variance)
{
    int64_t n = pare_view_count(x) / x->dim[0] / groups, first = i / n * n;
    double sum = 0, squares = 0;
    for (int64_t k = first; k < first + n; k++) sum += number(x, offset_of(x, k));
    *mean = sum / (double)n;
    for (int64_t k = first; k < first + n; k++) {
        double d = number(x, offset_of(x, k)) - *mean;
        squares += d * d;
    }
    *variance = squares / (double)n;
}

static double group_formula(const kernel_case *k, int64_t i)
{
    const pare_view *x = &k->in[0];
    int64_t groups = pare_node_int(k->node, "num_groups", x->dim[1]), c = index_of(x, i, 1);
    double mean, variance;
    stats_of(x, i, groups, &mean, &variance);
    double v = (number(x, offset_of(x, i)) - mean) / sqrt(variance + 1e-5);
    int64_t at = k->in[1].dim[0] == groups ? c / (x->dim[1] / groups) : c;
    return v * number(&k->in[1], at) + number(&k->in[2], at);
}

static void group_open(kernel_case *k, pare_dtype type, const int64_t *dims, int rank,
                       int64_t groups, int64_t factors, bool nhwc)
{
    case_open(k, "", groups ? "GroupNormalization" : "InstanceNormalization", (uint64_t)dims[1]);
    k->nhwc = nhwc;
    if (groups) assert_int_equal(pare_node_set_int(k->node, "num_groups", groups), PARE_OK);
    case_input(k, type, rank, dims, false, 0, 2);
    case_input(k, type, 1, &factors, false, 0, 1);
    case_input(k, type, 1, &factors, false, 0, 1);
}

static void groups_of_channels(void **state)
{
    (void)state;
    const int64_t dims[4] = {2, 6, 3, 5};
    static const int64_t groups[] = {0, 1, 2, 3, 6};
    for (int t = 0; t < 3; t++)
        for (int g = 0; g < 5; g++)
            for (int nhwc = 0; nhwc < 2; nhwc++) {
                kernel_case k;
                group_open(&k, floats[t], dims, 4, groups[g], 6, nhwc);
                check(&k, group_formula);
            }
}

static void groups_of_any_size(void **state)
{
    (void)state;
    static const int64_t dims[][3] = {{1, 2, 4200}, {3, 2, 1}, {2, 4, 0}, {5, 1, 600}};
    for (int d = 0; d < 4; d++)
        for (int64_t groups = 0; groups < 2; groups++) {
            kernel_case k;
            group_open(&k, floats[d % 3], dims[d], 3, groups, dims[d][1], false);
            check(&k, group_formula);
        }
    kernel_case k; /* one factor a group: the form of opset 18 */
    group_open(&k, PARE_f32, (int64_t[]){2, 6, 4}, 3, 3, 3, false);
    check(&k, group_formula);
}

/* --- BatchNormalization --- */

static double batch_formula(const kernel_case *k, int64_t i)
{
    const pare_view *x = &k->in[0];
    int64_t c = x->rank > 1 ? index_of(x, i, 1) : 0;
    return (number(x, offset_of(x, i)) - number(&k->in[3], c)) /
               sqrt(number(&k->in[4], c) + (double)pare_node_float(k->node, "epsilon", 1e-5f)) *
               number(&k->in[1], c) +
           number(&k->in[2], c);
}

static void batch_normalization(void **state)
{
    (void)state;
    const int64_t dims[4] = {2, 7, 3, 5};
    for (int mode = 0; mode < 16; mode++) {
        kernel_case k;
        pare_dtype type = floats[mode % 3], stats = mode & 4 ? PARE_f32 : type;
        case_open(&k, "", "BatchNormalization", (uint64_t)mode + 1);
        assert_int_equal(pare_node_set_float(k.node, "epsilon", 0.25f), PARE_OK);
        k.nhwc = mode & 1;
        case_input(&k, type, mode & 8 ? 2 : 4, dims, false, 0, 2);
        case_input(&k, type, 1, &dims[1], false, 0, 1);
        case_input(&k, type, 1, &dims[1], false, 0, 1);
        case_input(&k, stats, 1, &dims[1], false, 0, 1);
        case_input(&k, stats, 1, &dims[1], false, 0, 1);
        for (int64_t c = 0; c < dims[1]; c++) { /* variances are not negative */
            char *p = (char *)k.in[4].data + c * (pare_type(stats)->bits / 8);
            pare_type(stats)->from_f32_ref(p, fabsf(pare_type(stats)->to_f32(p)));
        }
        check(&k, batch_formula);
    }
}

/* --- LpNormalization, LRN --- */

static double lp_formula(const kernel_case *k, int64_t i)
{
    const pare_view *x = &k->in[0];
    int axis = (int)pare_node_int(k->node, "axis", -1);
    if (axis < 0) axis += x->rank;
    int64_t p = pare_node_int(k->node, "p", 2);
    int64_t at = offset_of(x, i) - index_of(x, i, axis) * x->stride[axis];
    double norm = 0;
    for (int64_t n = 0; n < x->dim[axis]; n++)
        norm += pow(fabs(number(x, at + n * x->stride[axis])), (double)p);
    norm = pow(norm, 1 / (double)p);
    return norm != 0 ? number(x, offset_of(x, i)) / norm : 0;
}

static void lp_normalization(void **state)
{
    (void)state;
    for (int mode = 0; mode < 24; mode++) {
        kernel_case k;
        case_open(&k, "", "LpNormalization", (uint64_t)mode + 1);
        k.nhwc = mode & 1;
        assert_int_equal(pare_node_set_int(k.node, "p", 1 + (mode >> 1 & 1)), PARE_OK);
        assert_int_equal(pare_node_set_int(k.node, "axis", mode % 4 - (mode & 8 ? 4 : 0)), PARE_OK);
        case_input(&k, floats[mode % 3], 4, (int64_t[]){3, 4, 5, 2}, false, 0, 2);
        if (mode < 3) memset(k.in[0].data, 0, pare_view_bytes(&k.in[0]));
        check(&k, lp_formula);
    }
}

static double lrn_formula(const kernel_case *k, int64_t i)
{
    const pare_view *x = &k->in[0];
    int64_t size = pare_node_int(k->node, "size", 1), c = index_of(x, i, 1), at = offset_of(x, i);
    double sum = 0;
    for (int64_t n = c - (size - 1) / 2; n <= c + size / 2; n++) {
        if (n < 0 || n >= x->dim[1]) continue;
        double v = number(x, at + (n - c) * x->stride[1]);
        sum += v * v;
    }
    return number(x, at) / pow(1.5 + 0.5 / (double)size * sum, 0.6);
}

static void local_responses(void **state)
{
    (void)state;
    for (int mode = 0; mode < 12; mode++) {
        kernel_case k;
        case_open(&k, "", "LRN", (uint64_t)mode + 1);
        k.nhwc = mode & 1;
        assert_int_equal(pare_node_set_int(k.node, "size", 1 + mode / 2), PARE_OK);
        assert_int_equal(pare_node_set_float(k.node, "alpha", 0.5f), PARE_OK);
        assert_int_equal(pare_node_set_float(k.node, "beta", 0.6f), PARE_OK);
        assert_int_equal(pare_node_set_float(k.node, "bias", 1.5f), PARE_OK);
        case_input(&k, floats[mode % 3], 4, (int64_t[]){2, mode < 6 ? 5 : 3, 3, 4}, false, 0, 2);
        check(&k, lrn_formula);
    }
}

/* --- pools --- */

/* Over planes, or 2 x 3 windows of stride 2, 1 after one row and column of padding. */
static double pool_formula(const kernel_case *k, int64_t i)
{
    const pare_view *x = &k->in[0], *y = &k->out;
    const char *op = k->node->op_type;
    bool whole = !strncmp(op, "Global", 6);
    double p = (double)pare_node_int(k->node, "p", 2), sum = 0, best = -INFINITY;
    int64_t high = whole ? x->dim[2] : 2, wide = whole ? x->dim[3] : 3;
    int64_t row = whole ? 0 : index_of(y, i, 2) * 2 - 1, column = whole ? 0 : index_of(y, i, 3) - 1;
    int64_t base = index_of(y, i, 0) * x->stride[0] + index_of(y, i, 1) * x->stride[1];
    for (int64_t r = row; r < row + high; r++)
        for (int64_t c = column; c < column + wide; c++) {
            if (r < 0 || c < 0 || r >= x->dim[2] || c >= x->dim[3]) continue;
            double v = number(x, base + r * x->stride[2] + c * x->stride[3]);
            sum += strstr(op, "Lp") ? pow(fabs(v), p) : v;
            best = fmax(best, v);
        }
    return strstr(op, "Lp")    ? pow(sum, 1 / p)
           : strstr(op, "Max") ? best
                               : sum / (double)(high * wide);
}

static void pools(void **state)
{
    (void)state;
    static const char *const ops[] = {"LpPool", "GlobalLpPool", "GlobalMaxPool",
                                      "GlobalAveragePool"};
    for (int mode = 0; mode < 48; mode++) {
        kernel_case k;
        const char *op = ops[mode % 4];
        case_open(&k, "", op, (uint64_t)mode + 1);
        k.nhwc = mode >> 2 & 1;
        if (mode % 4 < 2) assert_int_equal(pare_node_set_int(k.node, "p", 1 + mode / 16), PARE_OK);
        if (mode % 4 == 0) {
            assert_int_equal(pare_node_set_ints(k.node, "kernel_shape", (int64_t[]){2, 3}, 2),
                             PARE_OK);
            assert_int_equal(pare_node_set_ints(k.node, "strides", (int64_t[]){2, 1}, 2), PARE_OK);
            assert_int_equal(pare_node_set_ints(k.node, "pads", (int64_t[]){1, 1, 0, 1}, 4),
                             PARE_OK);
        }
        case_input(&k, floats[mode / 8 % 3], 4, (int64_t[]){2, mode & 8 ? 5 : 40, 6, 7}, false, 0,
                   2);
        check(&k, pool_formula);
    }
}

static void pools_of_integers(void **state)
{
    (void)state;
    for (int mode = 0; mode < 4; mode++) {
        kernel_case k;
        case_open(&k, "", "GlobalMaxPool", (uint64_t)mode + 1);
        k.nhwc = mode & 1;
        case_input(&k, mode & 2 ? PARE_u8 : PARE_s8, 4, (int64_t[]){2, 3, 4, 5}, false,
                   mode & 2 ? 0 : -128, mode & 2 ? 255 : -1);
        check(&k, pool_formula);
    }
}

/* --- sums and means of several tensors --- */

static double many_formula(const kernel_case *k, int64_t i)
{
    double sum = 0;
    for (int n = 0; n < k->in_count; n++) {
        const pare_view *v = &k->in[n];
        bool one = pare_view_count(v) == 1;
        sum += number(v, one ? 0 : v->rank == 1 ? index_of(&k->out, i, 3) : offset_of(v, i));
    }
    return !strcmp(k->node->op_type, "Mean") ? sum / k->in_count : sum;
}

static void sums_of_many(void **state)
{
    (void)state;
    const int64_t dims[4] = {2, 3, 4, 5}, row = 5;
    for (int t = 0; t < 3; t++)
        for (int count = 1; count <= 9; count++)
            for (int mode = 0; mode < 2; mode++) {
                kernel_case k;
                case_open(&k, "", mode ? "Mean" : "Sum", (uint64_t)count);
                k.nhwc = count & 1;
                for (int i = 0; i < count; i++)
                    case_input(&k, floats[t],
                               i % 3 == 2   ? 0
                               : i % 3 == 1 ? 1
                                            : 4,
                               i % 3 == 1 ? &row : dims, false, 0, 2);
                check(&k, many_formula);
            }
}

/* --- DynamicQuantizeLinear, seen through DequantizeLinear --- */

static void dynamic_round_trip(int64_t n, float spread, float shift)
{
    graph_case g;
    float *x = malloc((size_t)n * sizeof *x + 4), *y = malloc((size_t)n * sizeof *y + 4);
    float low = 0, high = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(i * 7919 % 1009) / 1009 * spread + shift;
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float scale = (high - low) / 255;
    if (scale == 0) scale = 1;
    float zero = fminf(fmaxf(rintf(-low / scale), 0), 255);
    graph_open(&g, 20);
    graph_input(&g, "x", PARE_f32, 1, &n);
    graph_node(&g, "DynamicQuantizeLinear", "x", "q s z");
    graph_node(&g, "DequantizeLinear", "q s z", "y");
    graph_output(&g, "y");
    graph_run(&g, 1, &n, x, y, n);
    for (int64_t i = 0; i < n; i++) {
        float code = fminf(fmaxf(rintf(x[i] / scale) + zero, 0), 255);
        assert_true(y[i] == (code - zero) * scale);
    }
    graph_close(&g);
    free(x);
    free(y);
}

static void quantization_by_the_range(void **state)
{
    (void)state;
    dynamic_round_trip(1, 0, 3);
    dynamic_round_trip(257, 2, -1.25f);
    dynamic_round_trip(9001, 5, 1);
    dynamic_round_trip(600, -5, -2);
    dynamic_round_trip(31, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_channels),        cmocka_unit_test(groups_of_any_size),
        cmocka_unit_test(batch_normalization),       cmocka_unit_test(lp_normalization),
        cmocka_unit_test(local_responses),           cmocka_unit_test(pools),
        cmocka_unit_test(pools_of_integers),         cmocka_unit_test(sums_of_many),
        cmocka_unit_test(quantization_by_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
