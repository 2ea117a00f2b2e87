/* SPDX-License-Identifier: Apache-2.0 */
/* ReduceX (13, 18, 20), ArgMax and ArgMin (13), GlobalAveragePool (1), GlobalMaxPool (1) and
   GlobalLpPool (2): one description (reduce.h), set when the plan is made. */
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/element.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/reduce.h"

#include <string.h>

/* --- setting one up --- */

pare_view pare_cuda_axes(const pare_view *v, const bool *axis, bool flagged)
{
    pare_view out = {.dtype = v->dtype, .data = v->data};
    for (int i = 0; i < v->rank; i++) {
        if (axis[i] != flagged) continue;
        out.dim[out.rank] = v->dim[i];
        out.stride[out.rank++] = v->stride[i];
    }
    return out;
}

/* The lowest integer of a type for a maximum, the highest for a minimum. */
static int64_t extreme_start(pare_cuda_reduction kind, pare_dtype type)
{
    int bits = type == PARE_bool ? 1 : pare_type(type)->bits;
    bool has_sign = type == PARE_s8 || type == PARE_s16 || type == PARE_s32 || type == PARE_s64;
    if (kind == PARE_CUDA_MAX) return has_sign ? (int64_t)(~0ull << (bits - 1)) : 0;
    return has_sign ? (int64_t)(~0ull >> (65 - bits)) : (int64_t)(~0ull >> (64 - bits));
}

enum {
    LONG_ROW = 512,    /* elements that eight warps share */
    ROW_PART = 4096,   /* the least that is worth a block of its own */
    COLUMN_PART = 256, /* the same for 32 columns */
    FULL = 264,        /* blocks that fill a large device twice */
    MOST_PARTS = 1024
};

static int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Enough parts to fill a device, each worth its block; cut the same way on every device. */
static void geometry_set(pare_cuda_reduce *r, bool canonical)
{
    const pare_walk *k = &r->kept, *in = &r->region;
    const int64_t n = in->count;
    r->columns = k->count > 1 && n > 1 && k->stride[1][k->rank - 1] < in->stride[0][in->rank - 1];
    r->warps = n > LONG_ROW ? 8 : 1;
    int64_t blocks = r->columns ? ceiling(k->count, 32) : ceiling(k->count * r->warps, 8);
    int64_t least = r->columns ? COLUMN_PART : ROW_PART, parts = n / least;
    if (!canonical && parts > FULL / (blocks + 1)) parts = FULL / (blocks + 1);
    if (canonical) parts /= 16;
    r->parts = (int)(parts < 1 ? 1 : parts > MOST_PARTS ? MOST_PARTS : parts);
    r->chunk = ceiling(n, r->parts);
}

void pare_cuda_reduce_set(pare_cuda_reduce *r, pare_cuda_reduction kind, const pare_view *x,
                          const bool *axis, const pare_view *y, bool canonical)
{
    pare_view kept = pare_cuda_axes(x, axis, false), region = pare_cuda_axes(x, axis, true);
    const pare_view *both[2] = {y, &kept}, *one[1] = {&region};
    r->kind = kind;
    r->x_type = x->dtype;
    r->y_type = y->dtype;
    if (!pare_type_is_float(x->dtype)) r->start = extreme_start(kind, x->dtype);
    pare_walk_init(&r->kept, both, 2);
    pare_walk_init(&r->region, one, 1);
    geometry_set(r, canonical);
}

size_t pare_cuda_reduce_scratch(const pare_cuda_reduce *r)
{
    return r->parts > 1 ? 16 * (size_t)r->parts * (size_t)r->kept.count : 0;
}

bool pare_cuda_reduce_takes(pare_cuda_reduction kind, pare_dtype x)
{
    if (pare_cuda_is_float(x)) return true;
    if (x == PARE_f64) return kind < PARE_CUDA_LP;
    if (x == PARE_bool) return kind == PARE_CUDA_MAX || kind == PARE_CUDA_MIN;
    return kind < PARE_CUDA_LP && kind != PARE_CUDA_LOG_SUM_EXP && pare_cuda_bytes(x) > 0 &&
           pare_type(x)->to_f32;
}

static pare_status reduce_new(pare_prep *p, pare_cuda_reduce **out)
{
    pare_cuda_reduce *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    p->state = *out = r;
    return r ? PARE_OK : PARE_MEMORY;
}

static void y_set(pare_prep *p, pare_cuda_reduce *r, pare_cuda_reduction kind, const bool *axis)
{
    bool keeps = p->out[0].rank == p->in[0].rank;
    pare_view y = keeps ? pare_cuda_axes(&p->out[0], axis, false) : p->out[0];
    pare_cuda_reduce_set(r, kind, &p->in[0], axis, &y, p->canonical);
    p->scratch = pare_cuda_reduce_scratch(r);
}

static pare_status reduce_run(const pare_call *c)
{
    pare_cuda_reduce r = *(const pare_cuda_reduce *)c->state;
    r.x = c->in[0].data;
    r.y = c->out[0].data;
    r.part = c->scratch;
    return PARE_CUDA_LAUNCH(c, pare_cuda_reduce_launch, &r);
}

/* --- ReduceX --- */

static pare_cuda_reduction kind_of(const pare_node *node)
{
    static const char *const names[] = {"Sum", "Mean", "Max",       "Min",    "Prod",
                                        "L1",  "L2",   "SumSquare", "LogSum", "LogSumExp"};
    for (int k = 0; k <= PARE_CUDA_LOG_SUM_EXP; k++)
        if (!strcmp(node->op_type + strlen("Reduce"), names[k])) return (pare_cuda_reduction)k;
    return PARE_CUDA_SUM;
}

static bool axes_known(const pare_prep *p, pare_reduce *out)
{
    return pare_reduce_read(p->node, p->in[0].rank, out) == PARE_OK && out->known;
}

static bool reduce_can(const pare_prep *p)
{
    pare_reduce axes;
    return pare_cuda_reduce_takes(kind_of(p->node), p->in[0].dtype) && axes_known(p, &axes) &&
           !axes.noop;
}

static pare_status reduce_prepare(pare_prep *p)
{
    pare_cuda_reduce *r;
    pare_reduce axes;
    PARE_TRY(reduce_new(p, &r));
    PARE_TRY(pare_reduce_read(p->node, p->in[0].rank, &axes));
    y_set(p, r, kind_of(p->node), axes.axis);
    return PARE_OK;
}

static const pare_kernel cuda_reduce = {
    .name = "cuda_reduce", .can = reduce_can, .prepare = reduce_prepare, .run = reduce_run};

/* No axes and noop_with_empty_axes: a copy. */
static bool noop_can(const pare_prep *p)
{
    pare_reduce axes;
    return pare_cuda_bytes(p->in[0].dtype) > 0 && axes_known(p, &axes) && axes.noop;
}

static pare_status noop_run(const pare_call *c)
{
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, pare_cuda_copy_launch, &w, pare_cuda_bytes(c->in[0].dtype));
}

static const pare_kernel cuda_reduce_nothing = {
    .name = "cuda_reduce_nothing", .can = noop_can, .run = noop_run};
const pare_kernel *const pare_cuda_reduce_axes[] = {&cuda_reduce, &cuda_reduce_nothing, NULL};

/* --- ArgMax, ArgMin --- */

static pare_cuda_reduction arg_kind(const pare_node *node)
{
    return pare_node_is(node, "ArgMin") ? PARE_CUDA_ARG_MIN : PARE_CUDA_ARG_MAX;
}

/* The host says that an empty axis has no extreme. */
static bool arg_can(const pare_prep *p)
{
    int axis;
    return pare_cuda_reduce_takes(arg_kind(p->node), p->in[0].dtype) &&
           pare_infer_axis(p->node, pare_node_int(p->node, "axis", 0), p->in[0].rank, &axis) ==
               PARE_OK &&
           p->in[0].dim[axis] > 0;
}

static pare_status arg_prepare(pare_prep *p)
{
    pare_cuda_reduce *r;
    int axis;
    bool flag[PARE_MAX_RANK] = {false};
    PARE_TRY(reduce_new(p, &r));
    PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", 0), p->in[0].rank, &axis));
    flag[axis] = true;
    r->last = pare_node_int(p->node, "select_last_index", 0) != 0;
    y_set(p, r, arg_kind(p->node), flag);
    return PARE_OK;
}

static const pare_kernel cuda_arg_extreme = {
    .name = "cuda_arg_extreme", .can = arg_can, .prepare = arg_prepare, .run = reduce_run};
const pare_kernel *const pare_cuda_arg_extreme[] = {&cuda_arg_extreme, NULL};

/* --- pools over the whole plane --- */

static bool mean_can(const pare_prep *p)
{
    return pare_cuda_is_float(p->in[0].dtype) && p->in[0].rank >= 2;
}

static bool max_can(const pare_prep *p)
{
    return pare_cuda_reduce_takes(PARE_CUDA_MAX, p->in[0].dtype) && p->in[0].rank >= 2;
}

static pare_status plane_prepare(pare_prep *p, pare_cuda_reduction kind)
{
    pare_cuda_reduce *r;
    bool flag[PARE_MAX_RANK] = {false};
    PARE_TRY(reduce_new(p, &r));
    for (int i = 2; i < p->in[0].rank; i++) flag[i] = true;
    r->p = (float)pare_node_int(p->node, "p", 2);
    y_set(p, r, kind, flag);
    return PARE_OK;
}

#define PLANE(fn, accepts, kind)                                                                   \
    static pare_status fn##_prepare(pare_prep *p) { return plane_prepare(p, PARE_CUDA_##kind); }   \
    static const pare_kernel cuda_##fn = {                                                         \
        .name = "cuda_" #fn, .can = accepts, .prepare = fn##_prepare, .run = reduce_run};          \
    const pare_kernel *const pare_cuda_##fn[] = {&cuda_##fn, NULL};
PLANE(global_average_pool, mean_can, MEAN)
PLANE(global_max_pool, max_can, MAX)
PLANE(global_lp_pool, mean_can, LP)
