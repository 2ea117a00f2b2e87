/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled graph as one process runs it: of a node that is cut its own channels, by slices of
   what has them (weights, scales, a residual), and an AllGather behind it. */
#include "runtime/exec/shard.h"

#include <stdio.h>
#include <string.h>

/* A name that is new in the part, and in the graph that it is made from. */
static pare_status new_value(pare_graph *to, pare_graph *from, const char *base, pare_value **out)
{
    const char *name = base;
    for (int n = 0; name && (pare_graph_find_any(to, name) || pare_graph_find_any(from, name)); n++)
        name = pare_arena_printf(&to->model->arena, "%s.part%d", base, n);
    return name ? pare_value_new(to, out, name) : PARE_MEMORY;
}

static int64_t first_of(const pare_shard_cut *cut, int shard)
{
    int64_t first = 0;
    for (int r = 0; r < shard; r++) first += cut->size[r];
    return first;
}

/* The shape of a value that is cut, of this shard. */
static void set_part(pare_value *part, const pare_value *whole, int axis, int64_t size)
{
    part->dtype = whole->dtype;
    part->shape = whole->shape;
    memset(part->shape.name, 0, sizeof part->shape.name);
    part->shape.dim[axis] = size;
    part->nhwc = whole->nhwc;
}

/* A constant's own indices of an axis, which begin and end at a byte. */
static void copy_rows(char *to, const pare_tensor *from, int axis, int64_t first, int64_t size)
{
    size_t inner = (size_t)pare_type(from->dtype)->bits;
    int64_t rows = 1;
    for (int i = 0; i < axis; i++) rows *= from->dims[i];
    for (int i = axis + 1; i < from->rank; i++) inner *= (size_t)from->dims[i];
    const size_t step = (size_t)from->dims[axis] * inner / 8, bytes = (size_t)size * inner / 8;
    const char *at = (const char *)from->data + (size_t)first * inner / 8;
    for (int64_t k = 0; k < rows && bytes; k++)
        memcpy(to + (size_t)k * bytes, at + (size_t)k * step, bytes);
}

static pare_status slice_constant(pare_value *part, const pare_value *whole, int axis,
                                  int64_t first)
{
    pare_tensor *t;
    PARE_TRY(pare_tensor_new(part->graph->model, &t, part->name, part->dtype, part->shape.rank,
                             part->shape.dim, NULL));
    copy_rows((char *)t->data, whole->data, axis, first, part->shape.dim[axis]);
    pare_tensor_give_back(whole->data);
    part->data = t;
    return PARE_OK;
}

static pare_status new_ints(pare_graph *to, pare_graph *from, const char *base,
                            const int64_t *number, pare_value **out)
{
    const int64_t one = 1;
    pare_tensor *t;
    PARE_TRY(new_value(to, from, base, out));
    PARE_TRY(pare_tensor_new(to->model, &t, (*out)->name, PARE_s64, 1, &one, number));
    (*out)->dtype = PARE_s64;
    (*out)->shape = (pare_shape){.rank = 1, .dim = {1}};
    (*out)->data = t;
    return PARE_OK;
}

/* Slice (13) (data, starts, ends, axes) of an activation. */
static pare_status slice_activation(pare_graph *to, const pare_value *whole, pare_value *part,
                                    int axis, int64_t first)
{
    const int64_t number[3] = {first, first + part->shape.dim[axis], axis};
    pare_value *in[4];
    PARE_TRY(pare_part_value(to, whole, &in[0]));
    for (int i = 0; i < 3; i++)
        PARE_TRY(new_ints(to, whole->graph, part->name, &number[i], &in[i + 1]));
    return pare_node_new(to, NULL, to->node_count, "Slice", "", part->name, in, 4, &part, 1);
}

static pare_status add_input(pare_graph *to, const pare_shard_cut *cut, int i, int shard,
                             pare_value **out)
{
    const pare_value *whole = cut->node->in[i];
    *out = NULL;
    if (!whole) return PARE_OK;
    if (cut->in[i] < 0) return pare_part_value(to, whole, out);
    const int64_t first = first_of(cut, shard);
    PARE_TRY(new_value(to, whole->graph, whole->name, out));
    set_part(*out, whole, cut->in[i], cut->size[shard]);
    return whole->data ? slice_constant(*out, whole, cut->in[i], first)
                       : slice_activation(to, whole, *out, cut->in[i], first);
}

pare_status pare_shard_add(pare_graph *to, const pare_shard_cut *cut, int shard, pare_arena *arena,
                           pare_value **out)
{
    const pare_node *from = cut->node;
    pare_value **in = pare_arena_alloc(arena, (size_t)from->in_count + 1, sizeof *in);
    if (!in) return PARE_MEMORY;
    for (int i = 0; i < from->in_count; i++) PARE_TRY(add_input(to, cut, i, shard, &in[i]));
    PARE_TRY(new_value(to, from->graph, from->out[0]->name, out));
    set_part(*out, from->out[0], cut->axis, cut->size[shard]);
    return pare_part_node(to, from, in, out);
}

static pare_status add_gather(pare_graph *to, const pare_shard_cut *cut, int shard,
                              pare_value *part)
{
    pare_node *n;
    pare_value *y;
    PARE_TRY(pare_part_value(to, cut->node->out[0], &y));
    PARE_TRY(pare_node_new(to, &n, to->node_count, "AllGather", PARE_DOMAIN, cut->node->name, &part,
                           1, &y, 1));
    PARE_TRY(pare_node_set_int(n, "axis", cut->axis));
    PARE_TRY(pare_node_set_int(n, "part", shard));
    return pare_node_set_ints(n, "parts", cut->size, cut->shards);
}

static pare_status fill(pare_graph *to, const pare_graph *from, const pare_shard_cut *cut,
                        int shard, pare_arena *arena)
{
    pare_value **list, *part;
    int count;
    PARE_TRY(pare_graph_crossing(from, 0, arena, &list, &count));
    PARE_TRY(pare_part_ends(to, &to->in, list, count));
    for (int i = 0; i < from->node_count; i++) {
        if (!cut[i].node) {
            PARE_TRY(pare_part_copy(to, from->node[i], arena));
            continue;
        }
        PARE_TRY(pare_shard_add(to, &cut[i], shard, arena, &part));
        PARE_TRY(add_gather(to, &cut[i], shard, part));
    }
    PARE_TRY(pare_graph_crossing(from, from->node_count, arena, &list, &count));
    return pare_part_ends(to, &to->out, list, count);
}

pare_status pare_shard_model(pare_plan *plan, const pare_shard_cut *cut)
{
    pare_model *model = NULL;
    pare_arena arena;
    pare_arena_init(&arena, plan->ctx);
    pare_status st = pare_part_new(&model, plan->model);
    if (st == PARE_OK)
        st = fill(model->graph, plan->model->graph, cut, plan->options.shard, &arena);
    if (st == PARE_OK) st = pare_part_take(plan, model);
    if (st != PARE_OK) pare_model_free(model);
    pare_arena_free(&arena);
    return st;
}
