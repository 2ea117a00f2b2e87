/* SPDX-License-Identifier: Apache-2.0 */
/* Which products are cut, and where. Channels are cut in blocks: kernels compute as many of them
   side by side, so that a part has the whole product's blocks. The smallest blocks with which a
   trial finds the same bytes are taken; more channels in a block leave fewer products that can be
   cut into many parts. */
#include "runtime/exec/shard.h"
#include "runtime/exec/shards.h"

#include <string.h>

enum { LEAST_BYTES = 16384 }; /* of weights: below, a message costs more than the product */
static const int64_t blocks[] = {16, 64};

/* --- what can be cut --- */

/* Inputs behind the factors: bias, residual, scales and zero points of the weight. */
enum { RESIDUAL = 3, W_SCALE = 4, W_ZERO = 5 };

static bool is_conv(const pare_node *node) { return pare_op_of(node)->layout == PARE_NHWC; }

/* The axis of an operand other than the factors that has the output channels. */
static int axis_of(const pare_node *node, int i)
{
    const int rank = node->in[i]->shape.rank;
    if (is_conv(node)) return i == RESIDUAL ? 1 : 0;
    const bool transposed = pare_node_int(node, "transB", 0) != 0;
    return (i == W_SCALE || i == W_ZERO) && rank == 2 && transposed ? 0 : rank - 1;
}

/* Do parts of so many blocks along the axis begin and end at bytes? */
static bool whole_bytes(const pare_value *v, int axis)
{
    int64_t bits = pare_type(v->dtype)->bits;
    for (int i = axis; i < v->shape.rank; i++) bits *= v->shape.dim[i];
    return pare_type(v->dtype)->bits >= 4 && bits % 8 == 0;
}

/* Where an operand is cut; false where it cannot be. One value for all channels stays. */
static bool cut_operand(pare_shard_cut *c, const pare_weighted *w, int i, int64_t channels)
{
    const pare_value *v = c->node->in[i];
    c->in[i] = -1;
    if (!v || i == w->x || pare_shape_count(&v->shape) == 1) return true;
    const int axis = i == w->w ? w->axis : axis_of(c->node, i);
    if (axis < 0 || axis >= v->shape.rank || !whole_bytes(v, axis)) return false;
    if (i != w->w && v->shape.dim[axis] == 1) return true;
    c->in[i] = axis;
    return v->shape.dim[axis] == channels;
}

/* A product of an activation and a constant matrix, or an ungrouped convolution. */
static bool is_product(const pare_node *node, pare_weighted *w)
{
    const pare_quant_role *role = pare_quant_role_of(node);
    if (role->kind != PARE_QUANT_WEIGHTED || role->weighted(node, w) != PARE_OK) return false;
    return w->constant && node->in[w->w]->data && node->out_count == 1 && node->out[0];
}

/* Everything of a cut but the sizes; false where the node stays whole. */
static bool describe(const pare_node *node, pare_shard_cut *c)
{
    pare_weighted w;
    if (!is_product(node, &w) || node->in_count > PARE_SHARD_INPUTS || w.w != 1) return false;
    const pare_value *x = node->in[0], *weight = node->in[1], *y = node->out[0];
    const int rank = y->shape.rank;
    if (rank < 2 || x->shape.rank < 2 || weight->data->bytes < LEAST_BYTES) return false;
    if (is_conv(node) ? pare_node_int(node, "group", 1) != 1 : weight->shape.rank != 2)
        return false;
    if (pare_type(y->dtype)->bits < 8 || pare_shape_count(&y->shape) <= 0) return false;
    c->node = node;
    c->axis = is_conv(node) ? 1 : rank - 1;
    for (int i = 0; i < node->in_count; i++)
        if (!cut_operand(c, &w, i, y->shape.dim[c->axis])) return false;
    return true;
}

/* Whole blocks, as even as they are; what fills none is the last part's. */
static bool cut_channels(pare_shard_cut *c, int64_t block)
{
    const int64_t channels = c->node->out[0]->shape.dim[c->axis], count = channels / block;
    if (count < c->shards) return false;
    for (int r = 0; r < c->shards; r++) {
        const int64_t from = count * r / c->shards, to = count * (r + 1) / c->shards;
        c->size[r] = (to - from) * block;
    }
    c->size[c->shards - 1] += channels % block;
    return true;
}

/* --- the cuts --- */

/* c->node becomes NULL where the node stays whole. */
static pare_status choose_cut(const pare_plan *plan, pare_shard_cut *c)
{
    bool same = false;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks && !same; i++)
        if (cut_channels(c, blocks[i])) PARE_TRY(pare_shard_trial(plan, c, &same));
    pare_log(plan->ctx, PARE_LOG_DEBUG, "%s %s: %s", c->node->op_type, c->node->name,
             same ? "cut" : "stays whole");
    if (!same) c->node = NULL;
    return PARE_OK;
}

static pare_status choose_cuts(pare_plan *plan, pare_shard_cut *cut)
{
    const pare_graph *g = plan->model->graph;
    for (int i = 0; i < g->node_count; i++) {
        pare_weighted w;
        pare_shard_cut *c = &cut[i];
        plan->sharding->products += is_product(g->node[i], &w);
        c->shards = plan->options.shards;
        if (!describe(g->node[i], c)) {
            c->node = NULL;
            continue;
        }
        PARE_TRY(pare_ctx_poll(plan->ctx));
        c->size = pare_arena_alloc(&plan->arena, (size_t)c->shards, sizeof *c->size);
        if (!c->size) return PARE_MEMORY;
        PARE_TRY(choose_cut(plan, c));
    }
    return PARE_OK;
}

/* --- what each shard has --- */

static void add_weight(pare_plan_sharding *s, const pare_value *v, const pare_shard_cut *c, int i)
{
    const size_t bytes = v->data->bytes;
    const bool whole = !c->node || c->in[i] < 0;
    const int64_t all = whole ? 1 : v->shape.dim[c->in[i]];
    for (int r = 0; r < s->shards; r++)
        s->shard[r].weights += whole ? bytes : bytes / (size_t)all * (size_t)c->size[r];
    if (!whole) s->cut_weights += bytes;
    s->weights += bytes;
}

static void add_sent(pare_plan_sharding *s, const pare_shard_cut *c)
{
    const pare_value *y = c->node->out[0];
    size_t bytes = 0;
    if (!pare_type_bytes(y->dtype, pare_shape_count(&y->shape), &bytes)) return;
    if (bytes > s->largest) s->largest = bytes;
    const size_t each = bytes / (size_t)y->shape.dim[c->axis];
    for (int r = 0; r < s->shards; r++) s->shard[r].sent += each * (size_t)c->size[r];
}

static void add_bounds(pare_plan_sharding *s, const pare_shard_cut *c, int node)
{
    const struct {
        pare_hash before, sizes;
        int64_t node;
    } all = {s->bounds, pare_hash_bytes(c->size, (size_t)s->shards * sizeof *c->size), node};
    s->bounds = pare_hash_bytes(&all, sizeof all);
}

/* A constant counts once, and once more for each product that cuts it. */
static void count_bytes(pare_plan *plan, const pare_shard_cut *cut)
{
    pare_plan_sharding *s = plan->sharding;
    const pare_graph *g = plan->model->graph;
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < g->node[n]->in_count; i++)
            if (g->node[n]->in[i]) g->node[n]->in[i]->mark = 0;
    for (int n = 0; n < g->node_count; n++) {
        for (int i = 0; i < g->node[n]->in_count; i++) {
            pare_value *v = g->node[n]->in[i];
            const bool cuts = cut[n].node && cut[n].in[i] >= 0;
            if (!v || !v->data || (!cuts && v->mark)) continue;
            if (!cuts) v->mark = 1;
            add_weight(s, v, &cut[n], i);
        }
        if (!cut[n].node) continue;
        s->cut++;
        add_sent(s, &cut[n]);
        add_bounds(s, &cut[n], n);
    }
}

static pare_status refuse(const pare_plan *plan)
{
    return PARE_FAIL(plan->ctx, INPUT,
                     "%s: none of its %d product%s with constant weights can be cut into %d parts "
                     "that have the whole one's bytes: they are small, have fewer than %d output "
                     "channels, or sum in another order; use --parallel pipeline",
                     plan->model->path, plan->sharding->products,
                     plan->sharding->products == 1 ? "" : "s", plan->options.shards,
                     plan->options.shards * (int)*blocks);
}

pare_status pare_shard_take(pare_plan *plan)
{
    const int shards = plan->options.shards;
    if (plan->dynamic) return pare_part_refuse(plan, "shards");
    pare_plan_sharding *s = pare_arena_alloc(&plan->arena, 1, sizeof *s);
    pare_shard_cut *cut =
        pare_arena_alloc(&plan->arena, (size_t)plan->model->graph->node_count + 1, sizeof *cut);
    if (!s || !cut) return PARE_MEMORY;
    *s = (pare_plan_sharding){.shards = shards};
    s->shard = pare_arena_alloc(&plan->arena, (size_t)shards, sizeof *s->shard);
    if (!s->shard) return PARE_MEMORY;
    plan->sharding = s;
    PARE_TRY(choose_cuts(plan, cut));
    count_bytes(plan, cut);
    return s->cut ? pare_shard_model(plan, cut) : refuse(plan);
}
