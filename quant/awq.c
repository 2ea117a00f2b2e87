/* SPDX-License-Identifier: Apache-2.0 */
/* AWQ's scaling of channels in the graph. While layers are rounded one after the other, readers see
   a scaled input through a division of its own, so that what was computed of the input stays valid.
   In the end the division moves into what makes the channels: scale and bias of a normalization, or
   rows of a matrix, whose own scales take it where it is rounded already. */
#include "quant/weight_only.h"

#include <math.h>

/* --- finding --- */

/* A product whose weight no other node reads. */
static bool is_maker(void *user, pare_node *node, pare_weighted *part)
{
    const pare_quant_nodes *nodes = user;
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED || !pare_quant_chosen(nodes, node) ||
        pare_op_of(node)->quant.weighted(node, part) != PARE_OK)
        return false;
    const pare_value *w = pare_node_in(node, part->w);
    part->constant = w && w->data && w->user_count == 1;
    return part->constant;
}

/* Users of x that sum over it; -1: others, too. */
static int readers_of(const pare_value *x, const pare_quant_matrix *matrix, int count)
{
    int readers = 0;
    for (int i = 0; i < x->user_count; i++) {
        int k = 0;
        if (pare_node_is(x->user[i], "Shape")) continue;
        while (k < count && matrix[k].node != x->user[i]) k++;
        if (k == count || matrix[k].shared || matrix[k].x != x) return -1;
        readers++;
    }
    return readers;
}

static pare_status note_scaling(pare_arena *arena, const pare_quant_nodes *nodes,
                                pare_quant_matrix *m, const pare_quant_matrix *all, int count)
{
    const pare_quant_makers makers = {
        .find = is_maker, .user = (void *)(uintptr_t)nodes, .products = true};
    pare_quant_scaling *s = pare_arena_alloc(arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    *s = (pare_quant_scaling){.x = m->x, .readers = readers_of(m->x, all, count)};
    const int rank = m->x->shape.rank;
    if (s->readers < 1 || rank < 1 || rank > 3 || m->node->graph->parent ||
        !pare_quant_pair_find(m->x, &makers, &s->pair) || s->pair.channels < 2 ||
        s->pair.channels * s->pair.block != m->columns)
        return PARE_OK;
    m->scaling = s;
    return PARE_OK;
}

pare_status pare_quant_scalings_find(pare_ctx *ctx, pare_arena *arena,
                                     const pare_quant_nodes *nodes, pare_quant_matrix *matrix,
                                     int count)
{
    for (int i = 0; i < count; i++) {
        pare_quant_matrix *m = &matrix[i];
        if (i && m->x == matrix[i - 1].x)
            m->scaling = matrix[i - 1].scaling;
        else
            PARE_TRY(note_scaling(arena, nodes, m, matrix, count));
    }
    return pare_ctx_poll(ctx);
}

/* --- choosing --- */

typedef struct group {
    const pare_quant_matrix *matrix;
    int count;
} group;

static void read_row(const void *user, int64_t row, double *to)
{
    const group *g = user;
    int i = 0;
    for (; i + 1 < g->count && row >= g->matrix[i].rows; i++) row -= g->matrix[i].rows;
    pare_quant_matrix_read(&g->matrix[i], row, 1, to);
}

/* Readers of x see x / factor, from before the first of them on. */
static pare_status divide_input(pare_quant_scaling *s, const pare_quant_matrix *matrix, int count,
                                int64_t columns)
{
    pare_graph *graph = s->x->graph;
    pare_value *in[2] = {s->x, NULL};
    pare_node *node;
    float *each = pare_alloc(graph->model->ctx, (size_t)columns, sizeof *each);
    if (!each) return PARE_MEMORY;
    for (int64_t i = 0; i < columns; i++) each[i] = s->factor[i / s->pair.block];
    pare_status st =
        pare_quant_constant(graph, &in[1], s->x->name, "factor", PARE_f32, 1, &columns, each);
    pare_free(each);
    PARE_TRY(st);
    PARE_TRY(pare_quant_value(graph, &s->divided, s->x->name, "divided"));
    pare_value_set_type(s->divided, PARE_f32, &s->x->shape);
    PARE_TRY(pare_quant_insert(graph, pare_node_index(matrix->node), &node, "Div", s->x->name, in,
                               2, s->divided));
    for (int i = 0; i < count; i++) {
        pare_weighted part;
        PARE_TRY(pare_op_of(matrix[i].node)->quant.weighted(matrix[i].node, &part));
        PARE_TRY(pare_node_set_in(matrix[i].node, part.x, s->divided));
    }
    return PARE_OK;
}

pare_status pare_quant_scaling_choose(pare_ctx *ctx, pare_arena *arena,
                                      const pare_quant_matrix *matrix, int count,
                                      const pare_quant_grid *grid, bool gptq, int threads,
                                      pare_moments *moments)
{
    pare_quant_scaling *s = matrix->scaling;
    const group g = {matrix, count};
    pare_quant_rows rows = {.read = read_row, .user = &g};
    pare_quant_scaled found;
    if (!s || s->readers != count || moments->columns != s->pair.channels * s->pair.block)
        return PARE_OK;
    for (int i = 0; i < count; i++) rows.count += matrix[i].rows;
    float *factor = pare_arena_alloc(arena, (size_t)s->pair.channels, sizeof *factor);
    if (!factor) return PARE_MEMORY;
    PARE_TRY(pare_quant_scale_channels(ctx, moments, s->pair.block, &rows, grid, gptq, threads,
                                       factor, &found));
    if (!(found.alpha > 0)) return PARE_OK;
    pare_log(ctx, PARE_LOG_INFO,
             "channels of '%s' are scaled by their size ^ %.1f: %.3g of the error is left",
             s->x->name, found.alpha, found.part);
    s->factor = factor;
    pare_quant_moments_divide(moments, factor, s->pair.block);
    return divide_input(s, matrix, count, moments->columns);
}

/* --- into the makers --- */

/* Scales of a rounded matrix, a power of two each: exponents. */
static pare_status lower_exponents(pare_ctx *ctx, pare_node *dq, int axis, const float *e)
{
    pare_value *v = dq->in[1];
    const pare_quant_weight_view w = pare_quant_weight_look(v->data, axis);
    pare_tensor *t;
    uint8_t *code = pare_alloc(ctx, (size_t)v->data->count, 1);
    if (!code) return PARE_MEMORY;
    for (int64_t i = 0; i < v->data->count; i++) { /* beyond the least, weights are as good as 0 */
        const int old = ((const uint8_t *)v->data->data)[i];
        const int k = old - ilogbf(e[i / w.inner % w.channels]);
        code[i] = (uint8_t)(k < 0 ? 0 : k > 254 ? 254 : k);
    }
    pare_status st = pare_tensor_new(v->graph->model, &t, v->name, v->data->dtype, v->data->rank,
                                     v->data->dims, code);
    pare_free(code);
    return st == PARE_OK ? pare_value_set_init(v, t) : st;
}

static pare_status divide_operand(pare_ctx *ctx, const pare_quant_operand *o, const float *e)
{
    const pare_value *v = o->node->in[o->input];
    pare_quant_operand at = *o;
    float *data;
    if (!v->data) { /* rounded: its scales, (rows) or of the matrix' axes */
        at =
            (pare_quant_operand){v->producer, 1, v->producer->in[1]->data->rank == 1 ? 0 : o->axis};
        if (at.node->in[1]->dtype == PARE_f8e8m0) return lower_exponents(ctx, at.node, at.axis, e);
    }
    PARE_TRY(pare_quant_operand_divide(ctx, &at, e, &data));
    const pare_status st = pare_quant_put(at.node, at.input, data);
    pare_free(data);
    return st;
}

static pare_status finish(pare_ctx *ctx, pare_quant_scaling *s)
{
    for (int i = 0; i < s->pair.operands; i++)
        PARE_TRY(divide_operand(ctx, &s->pair.operand[i], s->factor));
    PARE_TRY(pare_value_replace(s->divided, s->x, false));
    s->divided = NULL;
    return PARE_OK;
}

pare_status pare_quant_scalings_finish(pare_ctx *ctx, const pare_quant_matrix *matrix, int count)
{
    for (int i = 0; i < count; i++) {
        pare_quant_scaling *s = matrix[i].scaling;
        if (s && s->divided) PARE_TRY(finish(ctx, s));
    }
    return PARE_OK;
}
