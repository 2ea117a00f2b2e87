/* SPDX-License-Identifier: Apache-2.0 */
/* CumSum (14) and TopK (11). */
#include "runtime/cuda/sort.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.h"
#include "runtime/ops/infer.h"

#include <limits.h>

enum {
    LONG_LANE = 512,  /* elements that a block goes through together */
    MANY_LANES = 1024 /* from here on a thread a lane fills the device */
};

/* The lanes' beginnings: all axes but one. */
static void lanes_set(pare_walk *w, const pare_view *const *v, int operands, int axis)
{
    bool flag[PARE_MAX_RANK] = {false};
    pare_view kept[3];
    const pare_view *all[3] = {&kept[0], &kept[1], &kept[2]};
    flag[axis] = true;
    for (int i = 0; i < operands; i++) kept[i] = pare_cuda_axes(v[i], flag, false);
    pare_walk_init(w, all, operands);
}

static bool number(pare_dtype type)
{
    return type != PARE_bool && pare_cuda_bytes(type) > 0 && pare_type(type)->to_f32;
}

/* --- CumSum --- */

/* Constant input 1. */
static bool scan_axis(const pare_prep *p, int *axis)
{
    const int64_t *at;
    int count;
    return pare_infer_ints(p->node, 1, &at, &count) == PARE_OK && at && count == 1 &&
           pare_infer_axis(p->node, at[0], p->in[0].rank, axis) == PARE_OK;
}

static bool scan_can(const pare_prep *p)
{
    int axis;
    return number(p->in[0].dtype) && p->in[0].rank > 0 && scan_axis(p, &axis);
}

static pare_status scan_prepare(pare_prep *p)
{
    pare_cuda_scan *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    const pare_view *x = &p->in[0], *y = &p->out[0];
    int axis = 0;
    (void)scan_axis(p, &axis);
    lanes_set(&s->lanes, (const pare_view *const[]){y, x}, 2, axis);
    s->dtype = x->dtype;
    s->n = x->dim[axis];
    s->x_step = x->stride[axis];
    s->y_step = y->stride[axis];
    s->exclusive = pare_node_int(p->node, "exclusive", 0) != 0;
    s->reverse = pare_node_int(p->node, "reverse", 0) != 0;
    s->columns = s->lanes.count >= MANY_LANES && s->lanes.stride[1][s->lanes.rank - 1] < s->x_step;
    s->warps = s->n > LONG_LANE ? 8 : 1;
    p->state = s;
    return PARE_OK;
}

static pare_status scan_run(const pare_call *c)
{
    pare_cuda_scan s = *(const pare_cuda_scan *)c->state;
    s.x = c->in[0].data;
    s.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_scan_launch, &s);
}

static const pare_kernel cuda_cum_sum = {
    .name = "cuda_cum_sum", .can = scan_can, .prepare = scan_prepare, .run = scan_run};
const pare_kernel *const pare_cuda_cum_sum[] = {&cuda_cum_sum, NULL};

/* --- TopK --- */

static int64_t power_of_two(int64_t n)
{
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static bool top_axis(const pare_prep *p, int *axis)
{
    return pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->in[0].rank, axis) ==
           PARE_OK;
}

/* All keys in scratch, and a block for each SORT_SHARED of them, must be possible. */
static bool top_can(const pare_prep *p)
{
    int axis;
    const pare_view *x = &p->in[0];
    if (!number(x->dtype) || x->rank == 0 || !top_axis(p, &axis)) return false;
    int64_t n = x->dim[axis], lanes = n ? pare_view_count(x) / n : 0;
    if (n > INT_MAX) return false;
    return power_of_two(n) <= PARE_CUDA_SORT_SHARED
               ? lanes <= INT_MAX
               : lanes <= INT_MAX / (power_of_two(n) / PARE_CUDA_SORT_SHARED);
}

static bool wants_index(const pare_view *out, int count) { return count > 1 && out[1].dtype; }

static pare_status top_prepare(pare_prep *p)
{
    pare_cuda_top *t = pare_arena_alloc(p->arena, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    const pare_view *x = &p->in[0], *y = &p->out[0];
    const pare_view *index = wants_index(p->out, p->out_count) ? &p->out[1] : y;
    int axis = 0;
    PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), x->rank, &axis));
    lanes_set(&t->lanes, (const pare_view *const[]){y, x, index}, 3, axis);
    t->dtype = x->dtype;
    t->n = x->dim[axis];
    t->k = y->dim[axis];
    t->padded = power_of_two(t->n);
    while (1ll << t->bits < t->padded) t->bits++;
    t->x_step = x->stride[axis];
    t->y_step = y->stride[axis];
    t->index_step = index->stride[axis];
    t->largest = pare_node_int(p->node, "largest", 1) != 0;
    if (t->padded > PARE_CUDA_SORT_SHARED)
        p->scratch = 16 * (size_t)t->lanes.count * (size_t)t->padded;
    p->state = t;
    return PARE_OK;
}

static pare_status top_run(const pare_call *c)
{
    pare_cuda_top t = *(const pare_cuda_top *)c->state;
    t.x = c->in[0].data;
    t.y = c->out[0].data;
    t.index = wants_index(c->out, c->out_count) ? c->out[1].data : NULL;
    t.keys = c->scratch;
    return PARE_CUDA_LAUNCH(c, pare_cuda_top_launch, &t);
}

static const pare_kernel cuda_top_k = {
    .name = "cuda_top_k", .can = top_can, .prepare = top_prepare, .run = top_run};
const pare_kernel *const pare_cuda_top_k[] = {&cuda_top_k, NULL};
