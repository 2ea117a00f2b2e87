/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions (ReduceSum 13, the others 18 and 20): one output element after the other. Floats sum
   in double and are rounded once; integers wrap around. Of nothing: sums 0, products 1, maxima the
   lowest value, minima the highest, means NaN. NaN wins maxima and minima. */
#include "runtime/ops/reduce.h"
#include "runtime/cpu/ref.h"

#include <math.h>
#include <string.h>

typedef enum kind { SUM, MEAN, MAX, MIN, PROD, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP } kind;

typedef struct reduce {
    kind kind;
    bool known;
    pare_reduce axes;
} reduce;

static kind kind_of(const pare_node *node)
{
    static const char *const names[] = {"Sum", "Mean", "Max",       "Min",    "Prod",
                                        "L1",  "L2",   "SumSquare", "LogSum", "LogSumExp"};
    for (int k = 0; k <= LOG_SUM_EXP; k++)
        if (!strcmp(node->op_type + strlen("Reduce"), names[k])) return (kind)k;
    return SUM;
}

static double float_start(kind k)
{
    return k == PROD ? 1 : k == MAX ? -INFINITY : k == MIN ? INFINITY : 0;
}

static double float_step(kind k, double acc, double x, double top)
{
    switch (k) {
    case PROD: return acc * x;
    case MAX: return acc != acc || x <= acc ? acc : x;
    case MIN: return acc != acc || x >= acc ? acc : x;
    case L1: return acc + fabs(x);
    case L2:
    case SUM_SQUARE: return acc + x * x;
    case LOG_SUM_EXP: return acc + exp(x - top);
    default: return acc + x;
    }
}

static double float_end(kind k, double acc, double top, int64_t n)
{
    switch (k) {
    case MEAN: return acc / (double)n;
    case L2: return sqrt(acc);
    case LOG_SUM: return log(acc);
    case LOG_SUM_EXP: return top + log(acc);
    default: return acc;
    }
}

/* The region's elements are at base + offsets of region. */
static double float_region(kind k, const pare_view *region, int64_t base, double acc, double top)
{
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(region) == 0) return acc;
    do acc = float_step(k, acc, pare_ref_get(region, base + pare_ref_offset(region, index)), top);
    while (pare_ref_next(region, index));
    return acc;
}

static double float_one(kind k, const pare_view *region, int64_t base)
{
    double top = 0;
    if (k == LOG_SUM_EXP) { /* shifted by the maximum, so that no exponential overflows */
        top = float_region(MAX, region, base, -INFINITY, 0);
        if (isinf(top)) return top;
    }
    return float_end(k, float_region(k, region, base, float_start(k), top), top,
                     pare_view_count(region));
}

/* The lowest and highest integer of a type: what a maximum and a minimum start from. */
static int64_t int_start(kind k, pare_dtype type)
{
    int bits = type == PARE_bool ? 1 : pare_type(type)->bits;
    bool has_sign = type == PARE_s8 || type == PARE_s16 || type == PARE_s32 || type == PARE_s64;
    if (k == PROD) return 1;
    if (k == MAX) return has_sign ? (int64_t)(~0ull << (bits - 1)) : 0;
    if (k == MIN)
        return has_sign ? (int64_t)(~0ull >> (65 - bits)) : (int64_t)(~0ull >> (64 - bits));
    return 0;
}

static int64_t int_step(kind k, int64_t acc, int64_t x, bool wide)
{
    bool less = wide ? (uint64_t)x < (uint64_t)acc : x < acc;
    switch (k) {
    case PROD: return (int64_t)((uint64_t)acc * (uint64_t)x);
    case MAX: return less ? acc : x;
    case MIN: return less ? x : acc;
    case L1: return (int64_t)((uint64_t)acc + (x < 0 && !wide ? 0 - (uint64_t)x : (uint64_t)x));
    case L2:
    case SUM_SQUARE: return (int64_t)((uint64_t)acc + (uint64_t)x * (uint64_t)x);
    default: return (int64_t)((uint64_t)acc + (uint64_t)x);
    }
}

static int64_t int_one(kind k, const pare_view *region, int64_t base)
{
    bool wide = region->dtype == PARE_u64;
    int64_t n = pare_view_count(region), acc = int_start(k, region->dtype);
    int64_t index[PARE_MAX_RANK] = {0};
    if (k == LOG_SUM_EXP) return (int64_t)float_one(k, region, base);
    if (n > 0) do
            acc = int_step(k, acc, pare_ref_get_int(region, base + pare_ref_offset(region, index)),
                           wide);
        while (pare_ref_next(region, index));
    switch (k) {
    case MEAN: return n ? acc / n : 0;
    case L2: return (int64_t)sqrt((double)acc);
    case LOG_SUM: return (int64_t)log((double)acc);
    default: return acc;
    }
}

/* Axes are constant as a rule and read once; computed ones are read at each run. */
static pare_status axes_now(const pare_call *c, const reduce *r, pare_reduce *out)
{
    int64_t axes[PARE_MAX_RANK], index[PARE_MAX_RANK] = {0};
    int count = 0;
    *out = r->axes;
    if (r->known) return PARE_OK;
    const pare_view *list = &c->in[1];
    if (pare_view_count(list) > 0) do {
            if (count == PARE_MAX_RANK) return PARE_FAIL_CALL(c, INPUT, "too many axes");
            axes[count++] = pare_ref_get_int(list, pare_ref_offset(list, index));
        } while (pare_ref_next(list, index));
    return pare_reduce_set(c->node, axes, count, c->in[0].rank, out);
}

/* in split into kept and reduced axes; the output's kept axes in the same order. */
static void split_views(const pare_call *c, const pare_reduce *axes, pare_view *kept,
                        pare_view *region, pare_view *out)
{
    pare_view ones;
    pare_ref_split(&c->in[0], axes->axis, kept, region);
    if (axes->keepdims)
        pare_ref_split(&c->out[0], axes->axis, out, &ones);
    else
        *out = c->out[0];
}

static pare_status reduce_run(const pare_call *c)
{
    const reduce *r = c->state;
    pare_reduce axes;
    pare_view kept, region, out;
    int64_t index[PARE_MAX_RANK] = {0};
    PARE_TRY(axes_now(c, r, &axes));
    if (axes.noop) {
        pare_ref_copy(&c->out[0], &c->in[0], c->threads);
        return PARE_OK;
    }
    split_views(c, &axes, &kept, &region, &out);
    if (pare_view_count(&out) == 0) return PARE_OK;
    bool real = pare_type_is_float(out.dtype);
    do {
        int64_t base = pare_ref_offset(&kept, index), at = pare_ref_offset(&out, index);
        if (real)
            pare_ref_set(&out, at, float_one(r->kind, &region, base));
        else
            pare_ref_set_int(&out, at, int_one(r->kind, &region, base));
    } while (pare_ref_next(&out, index));
    return PARE_OK;
}

static pare_status reduce_prepare(pare_prep *p)
{
    reduce *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    r->kind = kind_of(p->node);
    PARE_TRY(pare_reduce_read(p->node, p->in[0].rank, &r->axes));
    r->known = r->axes.known;
    p->state = r;
    return PARE_OK;
}

/* --- f32 in vectors: all but products and logarithms --- */

/* Of each kind: n elements of stride 1 in eight lanes of double, joined pairwise at the end; and a
   row of n neighbours, each taken into its own acc. JOIN is STEP without what is done to x. */
#define LANE_KIND(name, start, STEP, JOIN)                                                         \
    PARE_CLONES static double name##_run(const float *from, int64_t n)                             \
    {                                                                                              \
        double lane[8] = {start, start, start, start, start, start, start, start};                 \
        int64_t i = 0;                                                                             \
        for (; i + 8 <= n; i += 8)                                                                 \
            for (int j = 0; j < 8; j++) {                                                          \
                const double x = (double)from[i + j], acc = lane[j];                               \
                lane[j] = STEP;                                                                    \
            }                                                                                      \
        for (; i < n; i++) {                                                                       \
            const double x = (double)from[i], acc = lane[i % 8];                                   \
            lane[i % 8] = STEP;                                                                    \
        }                                                                                          \
        for (int width = 4; width; width /= 2)                                                     \
            for (int j = 0; j < width; j++) {                                                      \
                const double x = lane[j + width], acc = lane[j];                                   \
                lane[j] = JOIN;                                                                    \
            }                                                                                      \
        return lane[0];                                                                            \
    }                                                                                              \
    PARE_CLONES static void name##_rows(double *to, const float *from, int64_t n)                  \
    {                                                                                              \
        for (int64_t j = 0; j < n; j++) {                                                          \
            const double x = (double)from[j], acc = to[j];                                         \
            to[j] = STEP;                                                                          \
        }                                                                                          \
    }
LANE_KIND(sum, 0, acc + x, acc + x)
LANE_KIND(absolute, 0, acc + fabs(x), acc + x)
LANE_KIND(square, 0, acc + x * x, acc + x)
LANE_KIND(most, -INFINITY, acc != acc || x <= acc ? acc : x, acc != acc || x <= acc ? acc : x)
LANE_KIND(least, INFINITY, acc != acc || x >= acc ? acc : x, acc != acc || x >= acc ? acc : x)

typedef struct lanes {
    double (*run)(const float *from, int64_t n);
    void (*rows)(double *to, const float *from, int64_t n);
} lanes;
static const lanes lanes_of[LOG_SUM_EXP + 1] = {
    [SUM] = {sum_run, sum_rows},
    [MEAN] = {sum_run, sum_rows},
    [MAX] = {most_run, most_rows},
    [MIN] = {least_run, least_rows},
    [L1] = {absolute_run, absolute_rows},
    [L2] = {square_run, square_rows},
    [SUM_SQUARE] = {square_run, square_rows},
};

enum { BLOCK = 64 };

static float lane_end(kind k, double acc, double scale)
{
    return (float)(k == L2 ? sqrt(acc) : acc * scale);
}

/* Neighbouring outputs at once: the region is walked once for a block of them. */
static void reduce_block(kind k, const float *x, const pare_view *region, float *y,
                         int64_t y_stride, int64_t n, double scale)
{
    double acc[BLOCK];
    int64_t index[PARE_MAX_RANK] = {0};
    for (int64_t j = 0; j < n; j++) acc[j] = float_start(k);
    do lanes_of[k].rows(acc, x + pare_ref_offset(region, index), n);
    while (pare_ref_next(region, index));
    for (int64_t j = 0; j < n; j++) y[j * y_stride] = lane_end(k, acc[j], scale);
}

static double reduce_region(kind k, const float *x, const pare_view *region, int run_axis)
{
    pare_view outer = *region;
    int64_t index[PARE_MAX_RANK] = {0};
    double acc = float_start(k);
    outer.dim[run_axis] = 1;
    do {
        const double next =
            lanes_of[k].run(x + pare_ref_offset(&outer, index), region->dim[run_axis]);
        acc = k == MAX || k == MIN ? float_step(k, acc, next, 0) : acc + next;
    } while (pare_ref_next(&outer, index));
    return acc;
}

/* The axis of stride 1 with more than one element, or -1. */
static int unit_axis(const pare_view *v)
{
    for (int i = 0; i < v->rank; i++)
        if (v->stride[i] == 1 && v->dim[i] > 1) return i;
    return -1;
}

static pare_status vec_reduce_run(const pare_call *c)
{
    const reduce *r = c->state;
    pare_view kept, region, out;
    int64_t index[PARE_MAX_RANK] = {0};
    split_views(c, &r->axes, &kept, &region, &out);
    int64_t n = pare_view_count(&region);
    if (pare_view_count(&out) == 0) return PARE_OK;
    const float *x = c->in[0].data;
    float *y = c->out[0].data;
    double scale = r->kind == MEAN ? 1 / (double)n : 1;
    int along = unit_axis(&region), beside = unit_axis(&kept);
    pare_view walk = out;
    if (beside >= 0) walk.dim[beside] = (walk.dim[beside] + BLOCK - 1) / BLOCK;
    do {
        int64_t from = pare_ref_offset(&kept, index), to = pare_ref_offset(&out, index);
        if (beside >= 0) {
            int64_t j = index[beside] * BLOCK, left = out.dim[beside] - j;
            from += j - index[beside];
            to += (j - index[beside]) * out.stride[beside];
            reduce_block(r->kind, x + from, &region, y + to, out.stride[beside],
                         left < BLOCK ? left : BLOCK, scale);
        } else if (along >= 0)
            y[to] = lane_end(r->kind, reduce_region(r->kind, x + from, &region, along), scale);
        else
            reduce_block(r->kind, x + from, &region, y + to, 1, 1, scale);
    } while (pare_ref_next(&walk, index));
    return PARE_OK;
}

static bool vec_reduce_can(const pare_prep *p)
{
    if (p->in[0].dtype != PARE_f32 || pare_view_count(&p->in[0]) == 0) return false;
    const pare_tensor *axes = pare_infer_constant(p->node, 1);
    if (p->in_count > 1 && p->in[1].dtype && !axes) return false;
    return !pare_node_int(p->node, "noop_with_empty_axes", 0);
}

static bool reduce_can(const pare_prep *p)
{
    kind k = kind_of(p->node);
    return k == MAX || k == MIN ? pare_ref_can_all(p) : pare_ref_can_numbers(p);
}

static const pare_kernel ref_reduce = {.name = "ref_reduce",
                                       .can = reduce_can,
                                       .prepare = reduce_prepare,
                                       .run = reduce_run,
                                       .flags = PARE_KERNEL_REF};
static const pare_kernel vec_reduce = {
    .name = "vec_reduce", .can = vec_reduce_can, .prepare = reduce_prepare, .run = vec_reduce_run};
const pare_kernel *const pare_cpu_reduce[] = {&vec_reduce, &ref_reduce, NULL};
const pare_kernel *const pare_cpu_reduce_product[] = {&ref_reduce, NULL}; /* and logarithms */

/* --- ArgMax, ArgMin (13) --- */

typedef struct arg {
    int axis;
    bool keepdims, last, least;
} arg;

static pare_status arg_prepare(pare_prep *p)
{
    arg *a = pare_arena_alloc(p->arena, 1, sizeof *a);
    if (!a) return PARE_MEMORY;
    PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", 0), p->in[0].rank, &a->axis));
    a->keepdims = pare_node_int(p->node, "keepdims", 1) != 0;
    a->last = pare_node_int(p->node, "select_last_index", 0) != 0;
    a->least = !strcmp(p->node->op_type, "ArgMin");
    p->state = a;
    return PARE_OK;
}

/* Position of the extreme; among equals the first, or the last. NaN counts as the extreme, as in
 * numpy. */
static int64_t arg_one(const pare_view *lane, int64_t base, const arg *a)
{
    bool real = pare_type_is_float(lane->dtype);
    double best = 0;
    int64_t best_int = 0, at = 0;
    for (int64_t i = 0; i < lane->dim[0]; i++) {
        double x = 0;
        int64_t n = 0, offset = base + i * lane->stride[0];
        if (real)
            x = pare_ref_get(lane, offset);
        else
            n = pare_ref_get_int(lane, offset);
        if (lane->dtype == PARE_u64)
            n = (int64_t)((uint64_t)n ^ 1ull << 63); /* orders as u64 does */
        bool more = real ? x > best : n > best_int, less = real ? x < best : n < best_int;
        bool better = i == 0 || (a->least ? less : more) || (a->last && !more && !less);
        if (isnan(x) || isnan(best)) better = isnan(x) && (a->last || !isnan(best));
        if (!better) continue;
        best = x;
        best_int = n;
        at = i;
    }
    return at;
}

static pare_status arg_run(const pare_call *c)
{
    const arg *a = c->state;
    bool flag[PARE_MAX_RANK] = {false};
    pare_view kept, lane, out = c->out[0], ones;
    int64_t index[PARE_MAX_RANK] = {0};
    flag[a->axis] = true;
    pare_ref_split(&c->in[0], flag, &kept, &lane);
    if (a->keepdims) pare_ref_split(&c->out[0], flag, &out, &ones);
    if (pare_view_count(&out) == 0) return PARE_OK;
    if (lane.dim[0] == 0) return PARE_FAIL_CALL(c, INPUT, "there is no extreme of an empty axis");
    do
        pare_ref_set_int(&out, pare_ref_offset(&out, index),
                         arg_one(&lane, pare_ref_offset(&kept, index), a));
    while (pare_ref_next(&out, index));
    return PARE_OK;
}

static const pare_kernel ref_arg_extreme = {.name = "ref_arg_extreme",
                                            .can = pare_ref_can_numbers,
                                            .prepare = arg_prepare,
                                            .run = arg_run,
                                            .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_arg_extreme[] = {&ref_arg_extreme, NULL};
