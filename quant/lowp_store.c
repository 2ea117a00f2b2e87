/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to a short model, and the one that only stores short: weights as bf16 after a Cast
   to f32. Every runtime loads that; half the size, and the arithmetic of f32. */
#include "quant/lowp.h"

/* Vectors (biases, normalization) weigh nothing and are worth their bits. */
static bool is_worth_it(const pare_value *v)
{
    return v->data && v->data->dtype == PARE_f32 && v->data->rank >= 2 && v->data->count >= 64 &&
           !v->is_output && v->user_count > 0;
}

static bool all_chosen(const pare_ptr_map *at, const bool *chosen, const pare_value *v)
{
    for (int i = 0; i < v->user_count; i++) {
        int n = pare_ptr_map_find(at, v->user[i]);
        if (n >= 0 && !chosen[n]) return false;
    }
    return true;
}

static pare_status store_one(pare_lowp *h, pare_value *v)
{
    pare_value *shorter;
    pare_shape shape = v->shape;
    PARE_TRY(pare_lowp_constant(h, v, &shorter));
    pare_init_remove(v);
    pare_value_set_type(v, PARE_f32, &shape);
    return pare_lowp_cast(h, 0, shorter, v, PARE_f32);
}

pare_status pare_lowp_store(pare_lowp *h)
{
    pare_graph *g = h->model->graph;
    bool *chosen = pare_arena_alloc(h->arena, (size_t)g->node_count + 1, sizeof *chosen);
    if (!chosen) return PARE_MEMORY;
    PARE_TRY(pare_quant_select(g, h->options, chosen));
    pare_ptr_map at;
    pare_ptr_map_init(&at, h->arena);
    for (int n = 0; n < g->node_count; n++) {
        if (chosen[n]) PARE_TRY(pare_quant_check_weights(g->node[n]));
        PARE_TRY(pare_ptr_map_put(&at, g->node[n], n));
    }
    for (int i = g->init.count - 1; i >= 0; i--) {
        pare_value *v = g->init.item[i];
        if (!is_worth_it(v) || !all_chosen(&at, chosen, v)) continue;
        PARE_TRY(store_one(h, v));
        h->facts->quantized_nodes++;
    }
    return PARE_OK;
}

pare_status pare_quant_to_lowp(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                               const pare_quant_options *options, pare_quant_facts *facts)
{
    bool f16 = options->precision == PARE_PRECISION_FP16;
    pare_arena arena;
    pare_arena_init(&arena, ctx);
    pare_lowp h = {.ctx = ctx,
                   .model = model,
                   .arena = &arena,
                   .ranges = ranges,
                   .options = options,
                   .facts = facts,
                   .type = f16 ? PARE_f16 : PARE_bf16,
                   .largest = f16 ? 65504.0f : 0x1.fep127f,
                   .clamp = f16 ? 61440.0f : 0x1.fep127f};
    pare_ptr_map_init(&h.is_lowp, &arena);
    pare_ptr_map_init(&h.beyond, &arena);
    pare_ptr_map_init(&h.made, &arena);
    pare_ptr_map_init(&h.twin, &arena);
    pare_status st = f16 || options->bf16_compute ? pare_lowp_compute(&h) : pare_lowp_store(&h);
    pare_arena_free(&arena);
    PARE_TRY(st);
    pare_graph_sweep(model->graph);
    return pare_quant_manifest(model, options, NULL);
}
