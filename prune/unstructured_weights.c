/* SPDX-License-Identifier: Apache-2.0 */
/* The weights that single-weight pruning works on, and writing them back. */
#include "prune/unstructured.h"

#include <string.h>

static int find(const pare_prunables *all, const pare_value *value)
{
    for (int i = 0; i < all->count; i++)
        if (all->item[i].value == value) return i;
    return -1;
}

static pare_status add(pare_prunables *all, pare_node *node, const pare_weighted *part)
{
    pare_value *value = pare_node_in(node, part->w), *x = pare_node_in(node, part->x);
    int known = find(all, value);
    if (known >= 0) {
        all->item[known].shared = true;
        return PARE_OK;
    }
    if (!pare_arena_grow(all->arena, &all->item, &all->capacity, (size_t)all->count,
                         sizeof *all->item))
        return PARE_MEMORY;
    pare_prunable s = {.node = node, .value = value, .part = *part, .count = value->data->count};
    s.shared = value->user_count > 1;
    if (x && x->shape.rank >= 0)
        PARE_TRY(pare_columns_read(node, &x->shape, &s.columns, &s.matrix));
    s.zero = pare_arena_alloc(all->arena, (size_t)s.count, sizeof *s.zero);
    if (!s.zero) return PARE_MEMORY;
    const pare_unstructured_options *o = all->options;
    s.dense = o->keep && o->keep(o->keep_user, node);
    all->item[all->count++] = s;
    return PARE_OK;
}

static pare_status make_facts(pare_prunables *all)
{
    pare_unstructured_layer *list =
        pare_arena_alloc(&all->model->arena, (size_t)all->count, sizeof *list);
    if (!list) return PARE_MEMORY;
    for (int i = 0; i < all->count; i++) {
        pare_prunable *s = &all->item[i];
        s->facts = &list[i];
        list[i].node = s->node->name[0] ? s->node->name : s->node->out[0]->name;
        list[i].weight = s->value->name;
        list[i].count = s->count;
        list[i].error = list[i].masked = list[i].fitted = -1;
        if (s->dense) list[i].note = "kept as asked";
    }
    all->facts->layer = list;
    all->facts->layer_count = all->count;
    return PARE_OK;
}

pare_status pare_prunables_find(pare_prunables *all)
{
    const pare_graph *g = all->model->graph;
    for (int n = 0; n < g->node_count; n++) {
        const pare_op *op = pare_op_of(g->node[n]);
        pare_weighted part;
        if (!op || op->quant.kind != PARE_QUANT_WEIGHTED) continue;
        PARE_TRY(op->quant.weighted(g->node[n], &part));
        const pare_value *w = part.constant ? pare_node_in(g->node[n], part.w) : NULL;
        if (!w || !w->data || !w->is_init || w->data->dtype != PARE_f32 || !w->data->count)
            continue;
        PARE_TRY(add(all, g->node[n], &part));
    }
    if (!all->count)
        return PARE_FAIL(all->ctx, INPUT,
                         "%s: has no convolution or matrix product with a constant f32 weight: "
                         "nothing can be pruned",
                         all->model->path);
    return make_facts(all);
}

float pare_unstructured_weight(const pare_prunable *s, int64_t i)
{
    float w;
    memcpy(&w, (const char *)s->value->data->data + (size_t)i * sizeof w, sizeof w);
    return w;
}

int64_t pare_unstructured_place(const pare_prunable *s, int64_t group, int64_t output,
                                int64_t column)
{
    return pare_columns_weight(&s->columns, s->part.axis == 0, group, output, column);
}

pare_status pare_unstructured_put(pare_prunables *all, pare_prunable *s, const float *data)
{
    pare_tensor *t;
    const pare_tensor *old = s->value->data;
    PARE_TRY(pare_tensor_new(all->model, &t, s->value->name, PARE_f32, old->rank, old->dims, data));
    return pare_value_set_init(s->value, t);
}

pare_status pare_unstructured_put_zeros(pare_prunables *all, pare_prunable *s)
{
    float *data = pare_alloc(all->ctx, (size_t)s->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    memcpy(data, s->value->data->data, (size_t)s->count * sizeof *data);
    for (int64_t i = 0; i < s->count; i++)
        if (s->zero[i]) data[i] = 0;
    pare_status st = pare_unstructured_put(all, s, data);
    pare_free(data);
    return st;
}
