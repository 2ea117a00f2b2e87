/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, ArgMin and ArgMax over any axes, in every type, both memory orders and all the ways a
   device cuts them, against sums made here element by element. */
#include "tests/cpu/kernel_case.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { KINDS = 10 };

static const char *const reductions[KINDS] = {
    "ReduceSum", "ReduceMean", "ReduceMax",       "ReduceMin",    "ReduceProd",
    "ReduceL1",  "ReduceL2",   "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"};

static double number(const pare_view *v, int64_t at)
{
    const char *p = (const char *)v->data + at * (pare_type(v->dtype)->bits / 8);
    if (v->dtype == PARE_f64) return *(const double *)(const void *)p;
    return (double)pare_type(v->dtype)->to_f32(p);
}

static bool is_float(pare_dtype d) { return pare_type_is_float(d); }

/* What the result may differ by, relative to the largest: one unit of rounding. */
static double unit(pare_dtype d)
{
    return d == PARE_f16 ? 1e-3 : d == PARE_bf16 ? 8e-3 : is_float(d) ? 1e-5 : 0;
}

/* The definition, over the elements whose offsets are listed; kind counts as `reductions` does. */
static double reduced(int kind, const pare_view *x, const int64_t *at, int64_t n)
{
    double sum = kind == 4 ? 1 : kind == 2 ? -INFINITY : kind == 3 ? INFINITY : 0, top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = fmax(top, number(x, at[i]));
    for (int64_t i = 0; i < n; i++) {
        double v = number(x, at[i]);
        switch (kind) {
        case 2: sum = fmax(sum, v); break;
        case 3: sum = fmin(sum, v); break;
        case 4: sum *= v; break;
        case 5: sum += fabs(v); break;
        case 6:
        case 7: sum += v * v; break;
        case 9: sum += exp(v - top); break;
        default: sum += v;
        }
    }
    if (kind == 1 && !is_float(x->dtype)) return trunc(sum / (double)n);
    return kind == 1   ? sum / (double)n
           : kind == 6 ? sqrt(sum)
           : kind == 8 ? log(sum)
           : kind == 9 ? top + log(sum)
                       : sum;
}

/* Offsets of the elements of x that are reduced to output o, o counting x's other axes row-major.
 */
static int64_t region_of(const pare_view *x, unsigned mask, int64_t o, int64_t *at)
{
    int64_t n = 0, count = pare_view_count(x);
    for (int64_t i = 0; i < count; i++) {
        int64_t left = i, offset = 0, out = 0, step = 1;
        for (int a = x->rank - 1; a >= 0; a--) {
            int64_t k = left % x->dim[a];
            left /= x->dim[a];
            offset += k * x->stride[a];
            if (mask >> a & 1) continue;
            out += k * step;
            step *= x->dim[a];
        }
        if (out == o) at[n++] = offset;
    }
    return n;
}

/* Where output o, counted row-major over its dims, is. */
static int64_t offset_of(const pare_view *y, int64_t o)
{
    int64_t offset = 0;
    for (int a = y->rank - 1; a >= 0; a--) {
        offset += o % y->dim[a] * y->stride[a];
        o /= y->dim[a];
    }
    return offset;
}

static void positive(kernel_case *k) /* logarithms of sums must exist */
{
    pare_view *x = &k->in[0];
    for (int64_t i = 0; i < pare_view_count(x); i++) {
        void *p = (char *)x->data + i * (pare_type(x->dtype)->bits / 8);
        pare_type(x->dtype)->from_f32_ref(p, fabsf(pare_type(x->dtype)->to_f32(p)) + 1);
    }
}

static void reduce_open(kernel_case *k, const char *op, pare_dtype type, const int64_t *dims,
                        int rank, unsigned mask, int mode)
{
    int64_t axes[4];
    int count = 0;
    case_open(k, "", op, mask * 16 + (unsigned)mode);
    k->nhwc = mode & 1;
    k->deterministic = mode & 4;
    for (int a = 0; a < rank; a++)
        if (mask >> a & 1) axes[count++] = mode & 2 ? a - rank : a;
    assert_int_equal(pare_node_set_ints(k->node, "axes", axes, count), PARE_OK);
    assert_int_equal(pare_node_set_int(k->node, "keepdims", mode >> 1 & 1), PARE_OK);
    int spread = !strcmp(op, "ReduceProd") ? 1 : is_float(type) ? 2 : 9;
    case_input(k, type, rank, dims, false, 0, spread);
    if (!strcmp(op, "ReduceLogSum")) positive(k);
    case_infer(k);
}

static void check_reduction(int kind, pare_dtype type, const int64_t *dims, int rank, unsigned mask,
                            int mode)
{
    kernel_case k;
    reduce_open(&k, reductions[kind], type, dims, rank, mask, mode);
    pare_view y = k.out;
    int64_t *at = malloc(sizeof *at * (size_t)(pare_view_count(&k.in[0]) + 1));
    double largest = 1;
    y.data = malloc(case_bytes(&k) + 8);
    assert_true(case_run(&k, case_plain(&k), y.data));
#ifdef CASE_DEVICE
    assert_int_equal(k.device_runs, is_float(type) || kind != 9);
#endif
    for (int64_t o = 0; o < pare_view_count(&y); o++)
        if (isfinite(number(&y, offset_of(&y, o))))
            largest = fmax(largest, fabs(number(&y, offset_of(&y, o))));
    for (int64_t o = 0; o < pare_view_count(&y); o++) {
        double want = reduced(kind, &k.in[0], at, region_of(&k.in[0], mask, o, at));
        double got = number(&y, offset_of(&y, o));
        if (!is_float(type) && fabs(want) > 127) continue; /* wraps around: compared elsewhere */
        if (isinf(got) && fabs(want) > 65504) continue;    /* beyond the type's largest */
        if (!is_float(type)) want = trunc(want);
        if (got != want && !(fabs(got - want) <= unit(type) * largest))
            fail_msg("%s %s mask %u mode %d: output %d is %.9g, expected %.9g", reductions[kind],
                     pare_type(type)->name, mask, mode, (int)o, got, want);
    }
    free(at);
    free(y.data);
    case_close(&k);
}

static const pare_dtype types[] = {PARE_f32, PARE_f16, PARE_bf16, PARE_f64, PARE_s32, PARE_s64,
                                   PARE_u8,  PARE_s8,  PARE_u16,  PARE_s16, PARE_u32, PARE_u64};
enum { TYPES = sizeof types / sizeof *types };

static void reductions_over_any_axes(void **state)
{
    (void)state;
    static const int64_t dims[][4] = {{2, 3, 4, 5}, {1, 35, 3, 3}};
    static const unsigned masks[] = {1, 2, 4, 8, 6, 12, 5, 14, 15};
    int turn = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
            for (int mode = 0; mode < 4; mode++, turn++)
                check_reduction(kind, types[mode < 2 ? turn / 4 % 3 : turn % TYPES], dims[turn & 1],
                                4, masks[m], mode);
}

static void reductions_in_every_type(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int t = 0; t < TYPES; t++)
            check_reduction(kind, types[t], (const int64_t[]){3, 37}, 2, 1u << (t & 1), 0);
}

/* Several warps an output; the region cut into parts; the same by columns; deterministic order. */
static void long_regions(void **state)
{
    (void)state;
    static const pare_dtype some[] = {PARE_f32, PARE_f16, PARE_s64, PARE_bf16};
    for (int i = 0; i < 4 * KINDS; i++) {
        int kind = i / 4, mode = i % 4 == 3 ? 4 : 0;
        pare_dtype type = some[(kind + i) % 4];
        if (i % 4 == 0) check_reduction(kind, type, (const int64_t[]){3, 700}, 2, 2, mode);
        if (i % 4 == 1) check_reduction(kind, type, (const int64_t[]){2, 9001}, 2, 2, mode);
        if (i % 4 == 2) check_reduction(kind, type, (const int64_t[]){1200, 5}, 2, 1, mode);
        if (i % 4 == 3) check_reduction(kind, type, (const int64_t[]){9000, 3}, 2, 1, mode);
    }
}

static void reductions_of_bool(void **state)
{
    (void)state;
    const uint8_t x[6] = {0, 1, 0, 0, 1, 1}, most[2] = {1, 1}, least[2] = {0, 0};
    for (int least_of = 0; least_of < 2; least_of++) {
        kernel_case k;
        uint8_t y[2];
        case_open(&k, "", least_of ? "ReduceMin" : "ReduceMax", 1);
        assert_int_equal(pare_node_set_ints(k.node, "axes", (const int64_t[]){-1}, 1), PARE_OK);
        memcpy(case_input(&k, PARE_bool, 2, (int64_t[]){2, 3}, false, 0, 1), x, sizeof x);
        case_infer(&k);
        assert_true(case_run(&k, case_plain(&k), y));
        assert_memory_equal(y, least_of ? least : most, 2);
        case_close(&k);
    }
}

static float reduce_three(const char *op, float a, float b, float c)
{
    kernel_case k;
    float y, x[3] = {a, b, c};
    case_open(&k, "", op, 1);
    memcpy(case_input(&k, PARE_f32, 1, (int64_t[]){3}, false, 0, 1), x, sizeof x);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), &y));
    case_close(&k);
    return y;
}

static void infinite_and_missing_numbers(void **state)
{
    (void)state;
    assert_true(isnan(reduce_three("ReduceMax", 1, NAN, 2)));
    assert_true(isnan(reduce_three("ReduceMin", NAN, 1, 2)));
    assert_true(isnan(reduce_three("ReduceLogSumExp", 3, NAN, 2)));
    assert_true(reduce_three("ReduceLogSumExp", -INFINITY, INFINITY, 2) == INFINITY);
    assert_true(reduce_three("ReduceLogSumExp", -INFINITY, -INFINITY, -INFINITY) == -INFINITY);
    /* 1000 + ln(2 + e^-1) = 1000.8619948, from numpy's logaddexp */
    assert_true(fabsf(reduce_three("ReduceLogSumExp", 1000, 999, 1000) - 1000.86199f) < 1e-4f);
}

static void no_axes_and_noop_copies(void **state)
{
    (void)state;
    kernel_case k;
    float y[6];
    case_open(&k, "", "ReduceL2", 3);
    assert_int_equal(pare_node_set_int(k.node, "noop_with_empty_axes", 1), PARE_OK);
    const float *x = case_input(&k, PARE_f32, 2, (int64_t[]){2, 3}, false, 0, 1);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), y));
    assert_memory_equal(y, x, sizeof y);
    case_close(&k);
}

static int64_t extreme_at(const pare_view *x, const int64_t *at, int64_t n, bool least, bool last)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        double a = number(x, at[best]), b = number(x, at[i]);
        bool beyond = isnan(b) ? !isnan(a) : !isnan(a) && (least ? b < a : b > a);
        bool equal = a == b || (isnan(a) && isnan(b));
        if (beyond || (equal && last)) best = i;
    }
    return best;
}

static void check_extreme(pare_dtype type, const int64_t *dims, int rank, int axis, int mode,
                          bool nan)
{
    kernel_case k;
    bool least = mode & 1, last = mode & 2;
    case_open(&k, "", least ? "ArgMin" : "ArgMax", (uint64_t)(axis + mode));
    k.nhwc = mode & 4;
    assert_int_equal(pare_node_set_int(k.node, "axis", mode & 8 ? axis - rank : axis), PARE_OK);
    assert_int_equal(pare_node_set_int(k.node, "select_last_index", last), PARE_OK);
    assert_int_equal(pare_node_set_int(k.node, "keepdims", mode >> 3 & 1), PARE_OK);
    case_input(&k, type, rank, dims, false, 0, 3);
    const pare_view *x = &k.in[0];
    for (int64_t i = 0; i < pare_view_count(x); i++) { /* whole numbers: many are equal */
        void *p = (char *)x->data + i * (pare_type(type)->bits / 8);
        float v = rintf(pare_type(type)->to_f32(p));
        pare_type(type)->from_f32_ref(p, nan && i % 13 == 5 ? NAN : v);
    }
    case_infer(&k);
    int64_t *at = malloc(sizeof *at * (size_t)(pare_view_count(x) + 1));
    pare_view y = k.out;
    y.data = malloc(case_bytes(&k) + 8);
    assert_true(case_run(&k, case_plain(&k), y.data));
#ifdef CASE_DEVICE
    assert_int_equal(k.device_runs, 1);
#endif
    for (int64_t o = 0; o < pare_view_count(&y); o++) {
        int64_t n = region_of(x, 1u << axis, o, at);
        assert_int_equal(((int64_t *)y.data)[offset_of(&y, o)], extreme_at(x, at, n, least, last));
    }
    free(at);
    free(y.data);
    case_close(&k);
}

static void extremes_along_any_axis(void **state)
{
    (void)state;
    for (int mode = 0; mode < 16; mode++)
        for (int axis = 0; axis < 4; axis++)
            check_extreme(types[(mode + 4 * axis) % TYPES], (const int64_t[]){2, 3, 4, 5}, 4, axis,
                          mode, false);
    for (int t = 0; t < TYPES; t++)
        check_extreme(types[t], (const int64_t[]){2, 41}, 2, 1, t, false);
    for (int mode = 0; mode < 4; mode++) {
        check_extreme(types[mode % 4], (const int64_t[]){3, 65}, 2, 1, mode, true);
        check_extreme(mode < 2 ? PARE_f32 : PARE_s32, (const int64_t[]){1, 9001}, 2, 1, mode,
                      false);
    }
}

/* u64 beyond the largest s64 is the larger. */
static void extremes_of_large_unsigned(void **state)
{
    (void)state;
    const uint64_t x[3] = {1, 1ull << 63, 5};
    kernel_case k;
    int64_t y;
    case_open(&k, "", "ArgMax", 1);
    memcpy(case_input(&k, PARE_u64, 1, (int64_t[]){3}, false, 0, 1), x, sizeof x);
    case_infer(&k);
    assert_true(case_run(&k, case_plain(&k), &y));
    assert_int_equal(y, 1);
    case_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_over_any_axes),
        cmocka_unit_test(reductions_in_every_type),
        cmocka_unit_test(long_regions),
        cmocka_unit_test(reductions_of_bool),
        cmocka_unit_test(infinite_and_missing_numbers),
        cmocka_unit_test(no_axes_and_noop_copies),
        cmocka_unit_test(extremes_along_any_axis),
        cmocka_unit_test(extremes_of_large_unsigned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
