/* SPDX-License-Identifier: Apache-2.0 */
/* INT8: placement, scales, writing; and the entry to every precision. */
#include "quant/internal.h"
#include "runtime/base/hash.h"

#include <string.h>

/* Hash of what was taken from the ranges: name, scale and zero point of every point, and the
   corrected biases, order-free. */
static void hash_points(const pare_quant_scheme *s, char text[33])
{
    pare_hash sum = s->shifts;
    for (int i = 0; i < s->point_count; i++) {
        const pare_quant_point *p = &s->point[i];
        pare_hash name = pare_hash_bytes(p->value->name, strlen(p->value->name));
        struct {
            uint64_t low, high;
            float scale;
            int32_t zero;
        } row = {name.low, name.high, p->scale, p->zero};
        sum = pare_hash_sum(sum, pare_hash_bytes(&row, sizeof row));
    }
    pare_hash_text(sum, text);
}

static pare_status to_int8(pare_quant_scheme *s)
{
    char hash[33];
    PARE_TRY(pare_quant_place(s));
    if (s->job_count == 0)
        return PARE_FAIL(s->ctx, INPUT,
                         "%s: no node can become int8; expected a float Conv, Gemm or MatMul that "
                         "--skip and --only leave to quantize",
                         s->model->path);
    PARE_TRY(pare_quant_equalize(s));
    PARE_TRY(pare_quant_scales(s));
    PARE_TRY(pare_quant_emit(s));
    hash_points(s, hash);
    pare_graph_sweep(s->graph);
    return pare_quant_manifest(s->model, s->options, hash);
}

pare_status pare_quantize(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                          const pare_quant_options *options, pare_quant_facts *facts)
{
    pare_quant_facts none = {0};
    if (!facts) facts = &none;
    if (options->precision != PARE_PRECISION_INT8)
        return pare_quant_to_lowp(ctx, model, ranges, options, facts);
    pare_arena arena;
    pare_arena_init(&arena, ctx);
    pare_quant_scheme s = {.ctx = ctx,
                           .model = model,
                           .graph = model->graph,
                           .arena = &arena,
                           .ranges = ranges,
                           .options = options,
                           .facts = facts};
    pare_ptr_map_init(&s.node_at, &arena);
    pare_ptr_map_init(&s.point_at, &arena);
    pare_status st = to_int8(&s);
    pare_arena_free(&arena);
    return st;
}
