/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/attention.h"
#include "runtime/cuda/kernel.h"

enum { MOST_RANK = 2 + PARE_CUDA_HEAD_AXES };

static bool attention_can(const pare_prep *p)
{
    bool masked = p->in_count > 3 && p->in[3].dtype;
    int r = p->out[0].rank;
    if (!pare_cuda_can_float(p, 3) || (masked && !pare_cuda_is_float(p->in[3].dtype))) return false;
    for (int i = 0; i < 3; i++)
        if (p->in[i].rank != r) return false;
    return r >= 2 && r <= MOST_RANK && p->in[1].dim[r - 2] <= PARE_CUDA_MOST_KEYS;
}

/* The operand against the output's leading axes. */
static pare_cuda_operand operand(const pare_view *v, const pare_view *y)
{
    pare_cuda_operand o = {.data = v->data};
    for (int i = 0; i < y->rank - 2; i++) {
        int axis = i - (y->rank - v->rank);
        int64_t stride = axis >= 0 && v->dim[axis] != 1 ? v->stride[axis] : 0;
        o.head[i + MOST_RANK - y->rank] = stride;
    }
    if (v->rank > 1 && v->dim[v->rank - 2] != 1) o.row = v->stride[v->rank - 2];
    if (v->rank > 0 && v->dim[v->rank - 1] != 1) o.last = v->stride[v->rank - 1];
    return o;
}

static pare_status attention_run(const pare_call *c)
{
    const pare_view *y = &c->out[0];
    int r = y->rank;
    pare_cuda_attend a = {.q = operand(&c->in[0], y),
                          .k = operand(&c->in[1], y),
                          .v = operand(&c->in[2], y),
                          .y = operand(y, y),
                          .queries = y->dim[r - 2],
                          .keys = (int)c->in[1].dim[r - 2],
                          .depth = (int)c->in[0].dim[r - 1],
                          .width = (int)y->dim[r - 1],
                          .scale = pare_node_float(c->node, "scale", 1),
                          .dtype = y->dtype};
    if (c->in_count > 3 && c->in[3].dtype) {
        a.mask = operand(&c->in[3], y);
        a.mask_type = c->in[3].dtype;
    }
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) {
        int axis = i - (MOST_RANK - r);
        a.heads[i] = axis < 0 ? 1 : y->dim[axis];
    }
    return PARE_CUDA_LAUNCH(c, pare_cuda_attention_launch, &a);
}

static const pare_kernel attention = {
    .name = "cuda_attention", .can = attention_can, .run = attention_run};
const pare_kernel *const pare_cuda_attention[] = {&attention, NULL};
