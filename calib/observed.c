/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors calibration observes: those some placement of Q/DQ pairs may quantize. That is what
   goes into and comes out of weighted nodes (after their bias addition and clamp), and backwards
   from there what can be computed on int8 between: views, pools, joins, sums, products. A tensor
   between a weighted node and the clamp it is fused with is none. Bodies of If, Loop and Scan are
   observed as the main graph is; names tell their tensors apart (pare_graph_name_apart). */
#include "calib/calib.h"
#include "runtime/ops/ops.h"

#include <stdlib.h>
#include <string.h>

typedef struct point_list {
    pare_ctx *ctx;
    pare_value **item;
    size_t count, capacity;
} point_list;

static bool is_activation(const pare_value *v)
{
    return v && pare_type_is_float(v->dtype) && !v->data;
}

static pare_status add(point_list *list, pare_value *v)
{
    if (!is_activation(v)) return PARE_OK;
    for (size_t i = 0; i < list->count; i++)
        if (list->item[i] == v) return PARE_OK;
    if (!pare_grow(list->ctx, &list->item, &list->capacity, list->count, sizeof *list->item))
        return PARE_MEMORY;
    list->item[list->count++] = v;
    return PARE_OK;
}

/* The only reader of a value, where it is not in a body. */
static pare_node *reader_of(const pare_value *v)
{
    pare_node *user = pare_value_only_user(v);
    return user && user->graph == v->graph ? user : NULL;
}

/* The value after a constant's addition and a clamp that alone read it. */
static pare_value *chain_end(pare_value *v)
{
    pare_node *next = reader_of(v);
    if (next && pare_quant_kind_of(next) == PARE_QUANT_SUM && next->in_count == 2) {
        const pare_value *other = next->in[next->in[0] == v];
        if (other && other->data) v = next->out[0];
    }
    next = reader_of(v);
    if (next && pare_quant_kind_of(next) == PARE_QUANT_CLAMP && next->in[0] == v) v = next->out[0];
    return v;
}

static pare_status add_weighted(point_list *list, const pare_node *node)
{
    pare_weighted part;
    PARE_TRY(pare_op_of(node)->quant.weighted(node, &part));
    PARE_TRY(add(list, pare_node_in(node, part.x)));
    PARE_TRY(add(list, pare_node_in(node, part.w)));
    return add(list, chain_end(node->out[0]));
}

/* Inputs of the node that makes the point, where it can compute on int8. */
static pare_status add_before(point_list *list, const pare_value *v)
{
    const pare_node *node = v->producer;
    if (pare_quant_kind_of(node) == PARE_QUANT_CLAMP) {
        PARE_TRY(pare_value_only_user(node->in[0]) == node ? PARE_OK : add(list, node->in[0]));
        node = node->in[0]->producer;
    }
    int last = 0;
    switch (pare_quant_kind_of(node)) {
    case PARE_QUANT_PASS:
    case PARE_QUANT_MEAN: last = 1; break;
    case PARE_QUANT_JOIN: last = node->in_count; break;
    case PARE_QUANT_SUM:
    case PARE_QUANT_PRODUCT: /* of a constant: not a sum of two int8 tensors */
        last = node->in_count;
        for (int i = 0; i < node->in_count; i++)
            if (!is_activation(node->in[i])) last = 0;
        break;
    default: break;
    }
    for (int i = 0; i < last && i < node->in_count; i++) PARE_TRY(add(list, node->in[i]));
    return PARE_OK;
}

static pare_status collect_weighted(pare_graph *g, void *user)
{
    for (int n = 0; n < g->node_count; n++)
        if (pare_quant_kind_of(g->node[n]) == PARE_QUANT_WEIGHTED)
            PARE_TRY(add_weighted(user, g->node[n]));
    return PARE_OK;
}

static pare_status collect_recurrent(pare_graph *g, void *user)
{
    for (int n = 0; n < g->node_count; n++)
        if (pare_quant_kind_of(g->node[n]) == PARE_QUANT_WEIGHT_ONLY)
            PARE_TRY(add(user, pare_node_in(g->node[n], 0)));
    return PARE_OK;
}

/* Of a net whose only weights are recurrent, which need no ranges, the inputs of these nodes. */
static pare_status collect(point_list *list, pare_graph *g)
{
    PARE_TRY(pare_graph_each(g, collect_weighted, list));
    if (!list->count) PARE_TRY(pare_graph_each(g, collect_recurrent, list));
    for (size_t i = 0; i < list->count; i++) PARE_TRY(add_before(list, list->item[i]));
    return PARE_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names in order; frees the list. */
static pare_status list_names(point_list *list, pare_status st, const char ***names, int *count)
{
    const char **out = NULL;
    if (st == PARE_OK && !(out = pare_alloc(list->ctx, list->count, sizeof *out))) st = PARE_MEMORY;
    for (size_t i = 0; st == PARE_OK && i < list->count; i++) out[i] = list->item[i]->name;
    if (st == PARE_OK) {
        qsort(out, list->count, sizeof *out, by_name);
        *names = out;
        *count = (int)list->count;
    }
    pare_free(list->item);
    return st;
}

pare_status pare_calib_observed(pare_ctx *ctx, const pare_model *model, const char ***names,
                                int *count)
{
    point_list list = {.ctx = ctx};
    pare_status st = collect(&list, model->graph);
    if (st == PARE_OK && list.count == 0)
        st = PARE_FAIL(ctx, INPUT,
                       "%s: has no convolution, matrix product or recurrent node to quantize",
                       model->path);
    return list_names(&list, st, names, count);
}

/* Each is found once: no search in the list. */
static pare_status append(point_list *list, pare_value *v)
{
    if (!v || v->data || v->dtype != PARE_f32) return PARE_OK;
    if (!pare_grow(list->ctx, &list->item, &list->capacity, list->count, sizeof *list->item))
        return PARE_MEMORY;
    list->item[list->count++] = v;
    return PARE_OK;
}

static pare_status append_graph(pare_graph *g, void *user)
{
    for (int i = 0; i < g->in.count; i++)
        if (!g->in.item[i]->is_init) PARE_TRY(append(user, g->in.item[i]));
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < g->node[n]->out_count; i++) PARE_TRY(append(user, g->node[n]->out[i]));
    return PARE_OK;
}

pare_status pare_calib_tensors(pare_ctx *ctx, const pare_model *model, const char ***names,
                               int *count)
{
    point_list list = {.ctx = ctx};
    pare_status st = pare_graph_each(model->graph, append_graph, &list);
    if (st == PARE_OK && list.count == 0)
        st = PARE_FAIL(ctx, INPUT, "%s: has no f32 tensor, expected a float model", model->path);
    return list_names(&list, st, names, count);
}
