/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/rows.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/infer.h"

#include <string.h>

/* --- Softmax, LogSoftmax (13) --- */

bool pare_cuda_rows_along(const pare_view *x, int axis, pare_cuda_rows *out)
{
    int64_t inner = 1;
    for (int i = x->rank - 1; i > axis; i--) {
        if (x->dim[i] != 1 && x->stride[i] != inner) return false;
        inner *= x->dim[i];
    }
    int64_t before = 0, rows = inner;
    for (int i = axis - 1; i >= 0; i--) {
        if (x->dim[i] == 1) continue;
        if (!before)
            out->outer_step = before = x->stride[i];
        else if (x->stride[i] != before)
            return false;
        before *= x->dim[i];
        rows *= x->dim[i];
    }
    out->rows = rows;
    out->n = x->dim[axis];
    out->step = x->stride[axis];
    out->inner = inner;
    return true;
}

static pare_status axis_read(const pare_prep *p, int *axis)
{
    return pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->in[0].rank, axis);
}

static bool softmax_can(const pare_prep *p)
{
    int axis;
    pare_cuda_rows r = {0};
    return pare_cuda_can_float(p, 1) && p->in[0].rank > 0 && axis_read(p, &axis) == PARE_OK &&
           pare_view_same_order(&p->in[0], &p->out[0]) && pare_cuda_rows_along(&p->in[0], axis, &r);
}

static pare_status rows_prepare(pare_prep *p)
{
    int axis;
    pare_cuda_rows *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    PARE_TRY(axis_read(p, &axis));
    (void)pare_cuda_rows_along(&p->in[0], axis, r);
    r->dtype = p->in[0].dtype;
    p->state = r;
    return PARE_OK;
}

static pare_status softmax_run(const pare_call *c)
{
    pare_cuda_rows r = *(const pare_cuda_rows *)c->state;
    r.x = c->in[0].data;
    r.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_softmax_launch, &r,
                            !strcmp(c->node->op_type, "LogSoftmax"));
}

static const pare_kernel softmax = {.name = "cuda_softmax",
                                    .can = softmax_can,
                                    .prepare = rows_prepare,
                                    .run = softmax_run,
                                    .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_softmax[] = {&softmax, NULL};

/* --- LayerNormalization (17) --- */

static bool factor_fits(const pare_prep *p, int i, int64_t n)
{
    return i >= p->in_count || !p->in[i].dtype ||
           (p->in[i].dtype == p->in[0].dtype && pare_view_count(&p->in[i]) == n &&
            pare_view_rowmajor(&p->in[i]));
}

static int64_t row_length(const pare_view *x, int axis)
{
    int64_t n = 1;
    for (int i = axis; i < x->rank; i++) n *= x->dim[i];
    return n;
}

static bool stash_fits(const pare_prep *p, int i)
{
    return i >= p->out_count || !p->out[i].dtype || p->out[i].dtype == PARE_f32;
}

static bool layer_norm_can(const pare_prep *p)
{
    int axis;
    if (!pare_cuda_can_float(p, 1) || p->in[0].rank == 0 || axis_read(p, &axis) != PARE_OK)
        return false;
    int64_t n = row_length(&p->in[0], axis);
    return pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->out[0]) &&
           factor_fits(p, 1, n) && factor_fits(p, 2, n) && stash_fits(p, 1) && stash_fits(p, 2);
}

static pare_status layer_norm_prepare(pare_prep *p)
{
    int axis;
    pare_cuda_rows *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    PARE_TRY(axis_read(p, &axis));
    r->n = row_length(&p->in[0], axis);
    r->rows = r->n ? pare_view_count(&p->in[0]) / r->n : 0;
    r->step = 1;
    r->inner = 1;
    r->outer_step = r->n;
    r->dtype = p->in[0].dtype;
    p->state = r;
    return PARE_OK;
}

static void *optional(const pare_view *views, int count, int i)
{
    return i < count && views[i].dtype ? views[i].data : NULL;
}

static pare_status layer_norm_run(const pare_call *c)
{
    pare_cuda_rows r = *(const pare_cuda_rows *)c->state;
    r.x = c->in[0].data;
    r.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_layer_norm_launch, &r, c->in[1].data,
                            optional(c->in, c->in_count, 2),
                            pare_node_float(c->node, "epsilon", 1e-5f),
                            optional(c->out, c->out_count, 1), optional(c->out, c->out_count, 2));
}

static const pare_kernel layer_norm = {.name = "cuda_layer_norm",
                                       .can = layer_norm_can,
                                       .prepare = layer_norm_prepare,
                                       .run = layer_norm_run,
                                       .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_layer_norm[] = {&layer_norm, NULL};
