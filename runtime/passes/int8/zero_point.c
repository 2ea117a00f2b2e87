/* SPDX-License-Identifier: Apache-2.0 */
/* Weights with zero points: w - z needs nine bits. It is written as a sum of two s8 numbers, and
   the input is put beside itself: x . (w - z) = [x, x] . [a, b], exactly, on the ordinary kernels.
 */
#include "runtime/passes/int8/fold_qdq.h"

#include <string.h>

/* (outer, depth, inner): depth is the axis that is summed over. */
typedef struct block {
    int64_t outer, depth, inner;
} block;

static block block_of(const pare_tensor *t, int axis)
{
    block b = {1, t->dims[axis], 1};
    for (int i = 0; i < axis; i++) b.outer *= t->dims[i];
    for (int i = axis + 1; i < t->rank; i++) b.inner *= t->dims[i];
    return b;
}

static int zero_at(const pare_tensor *zeros, int64_t c)
{
    return ((const int8_t *)zeros->data)[zeros->count == 1 ? 0 : c];
}

/* False where w - z is 255 somewhere: 127 + 128 does not fit. */
static bool split(const pare_qweight *w, const block *b, int8_t *out)
{
    const pare_tensor *t = w->q->data;
    const int8_t *q = t->data;
    int64_t channel_inner = 1, channels = t->dims[w->axis];
    for (int i = w->axis + 1; i < t->rank; i++) channel_inner *= t->dims[i];
    int64_t half = b->depth * b->inner;
    for (int64_t i = 0; i < t->count; i++) {
        int v = q[i] - zero_at(w->zeros, i / channel_inner % channels);
        int first = v / 2, second = v - first;
        if (second > 127) return false;
        int64_t at = i / half * 2 * half + i % half;
        out[at] = (int8_t)first;
        out[at + half] = (int8_t)second;
    }
    return true;
}

/* x beside itself along an axis; per group where the weight has groups. */
static pare_status beside(pare_node *node, pare_value *x, int axis, int64_t groups,
                          pare_value **out)
{
    pare_graph *graph = node->graph;
    pare_value *in[2] = {x, x};
    pare_node *made;
    PARE_TRY(pare_qdq_value(graph, out, x, "twice", x->dtype));
    if ((*out)->shape.dim[axis] > 0) (*out)->shape.dim[axis] *= 2;
    (*out)->shape.name[axis] = NULL;
    if (groups > 1) {
        int64_t count = 2 * x->shape.dim[axis], per = x->shape.dim[axis] / groups;
        int64_t *index = pare_arena_alloc(&graph->model->arena, (size_t)count, sizeof *index);
        if (!index) return PARE_MEMORY;
        for (int64_t i = 0; i < count; i++) index[i] = i / (2 * per) * per + i % per;
        char *wanted = pare_arena_printf(&graph->model->arena, "%s_index", (*out)->name);
        const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
        if (!name) return PARE_MEMORY;
        PARE_TRY(pare_init_new(graph, &in[1], name, PARE_s64, 1, &count, index));
    }
    PARE_TRY(pare_node_new(graph, &made, pare_node_index(node), groups > 1 ? "Gather" : "Concat",
                           "", (*out)->name, in, 2, out, 1));
    return pare_node_set_int(made, "axis", axis);
}

pare_status pare_qdq_widen(pare_node *node, const pare_qweight *w, int depth_axis, int x_axis,
                           int64_t groups, pare_value **xq, pare_value **wq, bool *done)
{
    pare_graph *graph = node->graph;
    const pare_tensor *t = w->q->data;
    int64_t dims[PARE_MAX_RANK];
    *done = false;
    bool known = t->rank <= PARE_MAX_RANK && (groups == 1 || (*xq)->shape.dim[x_axis] > 0);
    if (!known || t->dtype != PARE_s8) return PARE_OK;
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    dims[depth_axis] *= 2;
    block b = block_of(t, depth_axis);
    int8_t *data = pare_alloc(graph->model->ctx, 2 * (size_t)t->count, 1);
    if (!data) return PARE_MEMORY;
    pare_status st = PARE_OK;
    if (split(w, &b, data)) {
        char *wanted = pare_arena_printf(&graph->model->arena, "%s_split", w->q->name);
        const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
        st = name ? pare_init_new(graph, wq, name, PARE_s8, t->rank, dims, data) : PARE_MEMORY;
        if (st == PARE_OK) st = beside(node, *xq, x_axis, groups, xq);
        *done = st == PARE_OK;
    }
    pare_free(data);
    return st;
}
