/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges that are in a quantized model, of whatever tool wrote it. */
#include "calib/ranges.h"
#include "runtime/base/f8.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

#include <stdlib.h>
#include <string.h>

static int zero_of(const pare_value *zero)
{
    if (!zero) return 0;
    switch (zero->data->dtype) {
    case PARE_s8: return *(const int8_t *)zero->data->data;
    case PARE_u8: return *(const uint8_t *)zero->data->data;
    case PARE_s16: return *(const int16_t *)zero->data->data;
    case PARE_u16: return *(const uint16_t *)zero->data->data;
    default: return 0;
    }
}

static bool levels_of(pare_dtype type, int *least, int *most)
{
    switch (type) {
    case PARE_s8: *least = -128, *most = 127; return true;
    case PARE_u8: *least = 0, *most = 255; return true;
    case PARE_s16: *least = -32768, *most = 32767; return true;
    case PARE_u16: *least = 0, *most = 65535; return true;
    case PARE_f8e4m3: *most = (int)PARE_F8E4M3_MOST, *least = -*most; return true;
    case PARE_f8e5m2: *most = (int)PARE_F8E5M2_MOST, *least = -*most; return true;
    default: return false;
    }
}

/* Zero points of FP8 are 0 or -0: others shift what its numbers reach. */
static bool is_shifted(const pare_value *zero)
{
    return zero && pare_type_is_f8(zero->data->dtype) &&
           (*(const uint8_t *)zero->data->data & 0x7f) != 0;
}

static bool is_scale(pare_dtype type)
{
    return type == PARE_f32 || type == PARE_f16 || type == PARE_bf16;
}

bool pare_quantized_tensor_of(const pare_node *q, pare_quantized_tensor *out)
{
    const pare_value *x = pare_node_in(q, 0), *scale = pare_node_in(q, 1),
                     *zero = pare_node_in(q, 2);
    if (!pare_node_is_qdq(q) || strcmp(q->op_type, "QuantizeLinear") != 0 || !x || x->data ||
        !scale || !scale->data || scale->data->count != 1 || !is_scale(scale->data->dtype) ||
        (zero && (!zero->data || !zero->data->data)) || is_shifted(zero))
        return false;
    *out = (pare_quantized_tensor){.name = x->name, .zero = zero_of(zero)};
    out->type = zero ? zero->data->dtype : (pare_dtype)pare_node_int(q, "output_dtype", PARE_u8);
    if (!levels_of(out->type, &out->least, &out->most)) return false;
    out->scale = pare_type(scale->data->dtype)->to_f32(scale->data->data);
    out->low = (float)(out->least - out->zero) * out->scale;
    out->high = (float)(out->most - out->zero) * out->scale;
    return true;
}

static int by_name(const void *a, const void *b)
{
    const pare_quantized_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

pare_status pare_quantized_tensors(pare_model *model, pare_arena *arena,
                                   pare_quantized_tensor **out, int *count)
{
    const pare_infer_options infer = {.fold = true, .lenient = true, .keep_dequantize = true};
    pare_node **node;
    int nodes;
    *count = 0;
    PARE_TRY(pare_graph_sort(model->graph));
    PARE_TRY(pare_pass_expand_contrib(model));
    pare_graph_clear_inputs(model->graph);
    PARE_TRY(pare_pass_infer(model, &infer));
    PARE_TRY(pare_pass_expand_qlinear(model));
    PARE_TRY(pare_graph_all_nodes(model->graph, arena, &node, &nodes));
    *out = pare_arena_alloc(arena, (size_t)nodes + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (int n = 0; n < nodes; n++) *count += pare_quantized_tensor_of(node[n], &(*out)[*count]);
    return PARE_OK;
}

pare_status pare_ranges_of_ends(pare_ctx *ctx, pare_ranges **out, const char *const *names,
                                const float *low, const float *high, int count)
{
    pare_ranges *r;
    PARE_TRY(pare_ranges_new(ctx, &r, names, count));
    pare_status st = PARE_OK;
    for (int i = 0; st == PARE_OK && i < count; i++) {
        const float ends[2] = {low[i], high[i]};
        st = pare_histogram_add(ctx, r->stats[i].histogram, PARE_f32, ends, 2);
    }
    if (st == PARE_OK)
        *out = r;
    else
        pare_ranges_free(r);
    return st;
}

/* Of a tensor that is quantized several times the first counts. An s8 of zero point 0 reaches from
   -127 to 127 steps, as pare_range_scale has it. */
static pare_status table_of(pare_ctx *ctx, pare_arena *arena, pare_ranges **out,
                            pare_quantized_tensor *list, int count)
{
    const char **name = pare_arena_alloc(arena, (size_t)count + 1, sizeof *name);
    float *low = pare_arena_alloc(arena, (size_t)count + 1, sizeof *low);
    float *high = pare_arena_alloc(arena, (size_t)count + 1, sizeof *high);
    int n = 0;
    if (!name || !low || !high) return PARE_MEMORY;
    qsort(list, (size_t)count, sizeof *list, by_name);
    for (int i = 0; i < count; i++) {
        const pare_quantized_tensor *t = &list[i];
        if (!(t->scale > 0) || !(t->high - t->low < 3e38f) || (n && !strcmp(name[n - 1], t->name)))
            continue;
        name[n] = t->name;
        low[n] = t->least < 0 && !t->zero ? -t->high : t->low;
        high[n++] = t->high;
    }
    if (n) return pare_ranges_of_ends(ctx, out, name, low, high, n);
    return PARE_FAIL(ctx, INPUT,
                     "has no tensor between QuantizeLinear and DequantizeLinear with one scale; "
                     "expected a quantized model");
}

pare_status pare_ranges_of_model(pare_ctx *ctx, pare_ranges **out, pare_model *model)
{
    pare_arena arena;
    pare_quantized_tensor *list;
    int count;
    pare_arena_init(&arena, ctx);
    pare_status st = pare_quantized_tensors(model, &arena, &list, &count);
    if (st == PARE_OK) st = table_of(ctx, &arena, out, list, count);
    pare_arena_free(&arena);
    return st == PARE_INPUT && !strstr(ctx->message, model->path)
               ? pare_fail_prefix(ctx, st, "%s", model->path)
               : st;
}
