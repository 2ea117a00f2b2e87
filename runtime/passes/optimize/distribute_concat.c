/* SPDX-License-Identifier: Apache-2.0 */
/* A Concat of channels only moves bytes. Where one node alone reads it, the node is spread over the
   parts instead:
     MaxPool(Concat(a, b)) = Concat(MaxPool(a), MaxPool(b)), and so fewer bytes move;
     act(Conv(Concat(a, b), W) + B) = act(Conv(b, W_b) + (Conv(a, W_a) + B)), the sum in brackets
   being a residual of the second convolution, and nothing moves. The second pays where the filters
   are few beside the channels: each part writes and reads a sum of the output's size. Only float
   convolutions: an integer one rounds its sum once. */
#include "runtime/passes/optimize/fuse.h"

#include <string.h>

/* The Concat of channels that alone makes node's input 0, which node alone reads; else NULL. */
static pare_node *parts_of(const pare_fuse *f, const pare_node *node)
{
    pare_node *concat = pare_fuse_maker(node, 0, "Concat");
    if (!concat || pare_fuse_only_use(f, concat->out[0]) != node || concat->in_count < 2)
        return NULL;
    int rank = concat->out[0]->shape.rank;
    int64_t axis = pare_node_int(concat, "axis", 0);
    if (rank != 4 || (axis < 0 ? axis + rank : axis) != 1) return NULL;
    for (int i = 0; i < concat->in_count; i++) {
        const pare_value *v = concat->in[i];
        if (!v || v->data || v->graph != node->graph || !pare_shape_known(&v->shape)) return NULL;
    }
    return concat;
}

static pare_status attrs_copy(pare_node *to, const pare_node *from)
{
    for (int i = 0; i < from->attr_count; i++) PARE_TRY(pare_node_set_attr(to, &from->attr[i]));
    return PARE_OK;
}

/* --- MaxPool --- */

static pare_status pool_spread(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_node *concat = parts_of(f, node), *made;
    const pare_shape *y = &node->out[0]->shape;
    bool shrinks = concat && pare_shape_known(y) &&
                   pare_shape_count(y) < pare_shape_count(&concat->out[0]->shape);
    if (!shrinks || (node->out_count > 1 && node->out[1])) return PARE_OK;
    int count = concat->in_count;
    pare_value **part = pare_arena_alloc(&f->graph->model->arena, (size_t)count, sizeof *part);
    if (!part) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        pare_shape shape = *y;
        shape.dim[1] = concat->in[i]->shape.dim[1];
        PARE_TRY(
            pare_fuse_insert(node, node->op_type, node->domain, &concat->in[i], 1, &shape, &made));
        PARE_TRY(attrs_copy(made, node));
        part[i] = made->out[0];
    }
    PARE_TRY(pare_fuse_replace(node, "Concat", "", part, count, &made));
    *changed = true;
    return pare_node_set_int(made, "axis", 1);
}

/* --- FusedConv --- */

/* Channels first..first + n of a weight (filters, channels, kernel). */
static pare_status weight_part(pare_graph *graph, const pare_value *w, int64_t first, int64_t n,
                               pare_value **out)
{
    const pare_tensor *t = w->data;
    int64_t dims[PARE_MAX_RANK], taps = 1;
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    dims[1] = n;
    for (int i = 2; i < t->rank; i++) taps *= dims[i];
    size_t channel = (size_t)taps * (size_t)pare_type(t->dtype)->bits / 8;
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_part", w->name);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    char *data = pare_alloc(graph->model->ctx, (size_t)(dims[0] * n) * channel + 1, 1);
    pare_status st = name && data ? PARE_OK : PARE_MEMORY;
    for (int64_t m = 0; m < dims[0] && st == PARE_OK; m++)
        memcpy(data + (size_t)(m * n) * channel,
               (const char *)t->data + (size_t)(m * t->dims[1] + first) * channel,
               (size_t)n * channel);
    if (st == PARE_OK) st = pare_init_new(graph, out, name, t->dtype, t->rank, dims, data);
    pare_free(data);
    return st;
}

/* In f32: in a shorter type each part's sum would be rounded, and could overflow. */
static bool conv_pays(const pare_node *node, const pare_node *concat)
{
    const pare_value *w = node->in[1];
    if (!concat || !w || !w->data || w->data->dtype != PARE_f32 || node->in[0]->dtype != PARE_f32 ||
        w->data->rank != 4 || pare_node_int(node, "group", 1) != 1 ||
        !pare_shape_known(&node->out[0]->shape))
        return false;
    int64_t channels = w->data->dims[1], sum = 0;
    for (int i = 0; i < concat->in_count; i++) sum += concat->in[i]->shape.dim[1];
    return sum == channels && w->data->dims[0] * concat->in_count <= channels;
}

static pare_status conv_spread(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_node *concat = parts_of(f, node), *made;
    if (!conv_pays(node, concat)) return PARE_OK;
    pare_value *bias = pare_node_in(node, 2), *sum = pare_node_in(node, 3), *w;
    int64_t first = 0;
    for (int i = 0; i < concat->in_count; i++) {
        pare_value *x = concat->in[i];
        PARE_TRY(weight_part(f->graph, node->in[1], first, x->shape.dim[1], &w));
        first += x->shape.dim[1];
        pare_value *in[4] = {x, w, i ? NULL : bias, sum};
        if (i + 1 == concat->in_count) break;
        PARE_TRY(pare_fuse_insert(node, node->op_type, node->domain, in, 4, &node->out[0]->shape,
                                  &made));
        PARE_TRY(attrs_copy(made, node));
        PARE_TRY(pare_node_set_string(made, "activation", "none"));
        sum = made->out[0];
    }
    PARE_TRY(pare_node_set_in(node, 0, concat->in[concat->in_count - 1]));
    PARE_TRY(pare_node_set_in(node, 1, w));
    PARE_TRY(pare_node_set_in(node, 2, NULL));
    *changed = true;
    return pare_node_set_in(node, 3, sum);
}

pare_status pare_fuse_concat(pare_fuse *f, pare_node *node, bool *changed)
{
    if (pare_node_is(node, "MaxPool")) return pool_spread(f, node, changed);
    if (!strcmp(node->op_type, "FusedConv") && !strcmp(node->domain, PARE_DOMAIN))
        return conv_spread(f, node, changed);
    return PARE_OK;
}
