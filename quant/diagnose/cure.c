/* SPDX-License-Identifier: Apache-2.0 */
/* What mends a part: a range from the samples at hand, a weight quantized again from the float
   model's, or the float form itself. */
#include "quant/diagnose/internal.h"

#include <math.h>

/* The type that a pair's scale has where its node's tensors are of this one. */
static pare_dtype scale_type(pare_dtype tensor, float scale)
{
    return tensor == PARE_f16 && pare_quant_f16_takes(scale) ? PARE_f16 : PARE_f32;
}

static pare_status put_scales(pare_diag *d, const char *name, pare_dtype type, int64_t count,
                              int rank, float *scale, pare_value **out)
{
    const pare_tensor t = {.rank = rank, .dims = &count, .count = count, .data = scale};
    return pare_diag_constant(d, name, "scale", type, &t, out);
}

/* What a reader reads of the integers in in[0] with this scale and in[2]. */
static pare_status new_read(pare_diag *d, pare_part *part, pare_part_read *read, float scale,
                            pare_value **in)
{
    const char *name = part->value->name;
    const pare_dtype type = pare_diag_read_type(d, read);
    pare_value *y;
    for (const pare_part_read *r = part->read; r < read; r++)
        if (pare_diag_read_type(d, r) == type) {
            read->name[PARE_CHOICE_CURED] = r->name[PARE_CHOICE_CURED];
            return PARE_OK;
        }
    PARE_TRY(put_scales(d, name, scale_type(type, scale), 1, 0, &scale, &in[1]));
    PARE_TRY(pare_diag_append(d, "DequantizeLinear", name, in, 3, &y));
    pare_value_set_type(y, in[1]->dtype, &part->value->shape);
    PARE_TRY(pare_diag_cast(d, y, type, &y));
    read->name[PARE_CHOICE_CURED] = y->name;
    return PARE_OK;
}

/* Does a node of the pair have f16 tensors? */
static bool is_f16(const pare_diag *d, const pare_part *part)
{
    bool is = part->value->dtype == PARE_f16;
    for (int r = 0; r < part->read_count; r++)
        is = is || pare_diag_read_type(d, &part->read[r]) == PARE_f16;
    return is;
}

/* The file's other pair, in the types that it has. A scale that f16 holds is the same number in
   both nodes, whatever their types. */
static pare_status new_pair(pare_diag *d, pare_part *part, float scale, int zero)
{
    const pare_value *was = pare_node_in(part->q, 2);
    const pare_dtype type = was ? was->dtype : PARE_u8;
    const int8_t s8 = (int8_t)zero;
    const uint8_t u8 = (uint8_t)zero;
    pare_graph *g = d->master->graph;
    pare_value *in[3], *q;
    const char *name = part->value->name;
    const pare_dtype scales = scale_type(part->value->dtype, scale);
    PARE_TRY(pare_diag_cast(d, part->value, scales, &in[0]));
    PARE_TRY(put_scales(d, name, scales, 1, 0, &scale, &in[1]));
    PARE_TRY(pare_quant_constant(g, &in[2], name, "zero_point", type, 0, NULL,
                                 type == PARE_s8 ? (const void *)&s8 : &u8));
    PARE_TRY(pare_diag_append(d, "QuantizeLinear", name, in, 3, &q));
    in[0] = q;
    for (int r = 0; r < part->read_count; r++)
        PARE_TRY(new_read(d, part, &part->read[r], scale, in));
    return PARE_OK;
}

static pare_status new_range(pare_diag *d, pare_part *part, const char **words)
{
    const bool symmetric = part->least < 0 && !part->zero, is_s8 = part->least == -128;
    const pare_range_rule rule = {.method = PARE_METHOD_AUTO, .symmetric = symmetric};
    pare_range range;
    float scale;
    int zero;
    if (part->most > 255) return PARE_OK; /* 16 bits */
    PARE_TRY(pare_range_choose(d->ctx, part->stats.histogram, &rule, &range));
    pare_range_scale(&range, symmetric, &scale, &zero);
    if (is_s8 && !symmetric) zero -= 128;
    if (is_f16(d, part) && pare_quant_f16_takes(scale)) scale = pare_quant_f16_scale(scale);
    PARE_TRY(new_pair(d, part, scale, zero));
    const int least = symmetric ? -127 : part->least;
    *words = pare_arena_printf(&d->out->arena,
                               "give it the range %.4g to %.4g, which these samples "
                               "call for",
                               (double)((float)(least - zero) * scale),
                               (double)((float)(part->most - zero) * scale));
    return *words ? PARE_OK : PARE_MEMORY;
}

static void as_float(pare_part *part, int first)
{
    for (int r = first; r < part->read_count; r++)
        part->read[r].name[PARE_CHOICE_CURED] = part->read[r].name[PARE_CHOICE_FLOAT];
}

/* The type of the scales of a weight's outputs, which are numbers of that type then. */
static pare_dtype shorten(pare_dtype tensor, float *scale, int64_t count)
{
    for (int64_t c = 0; c < count; c++)
        if (scale_type(tensor, scale[c]) == PARE_f32) return PARE_f32;
    for (int64_t c = 0; c < count; c++) scale[c] = pare_quant_f16_scale(scale[c]);
    return PARE_f16;
}

/* A reader's own copy: eight bits, one scale per output. */
static pare_status requantize(pare_diag *d, const pare_part *part, pare_part_read *read, int axis)
{
    pare_graph *g = d->master->graph;
    const pare_tensor *w = read->exact;
    if (!w) return PARE_OK;
    const pare_dtype type = pare_diag_read_type(d, read);
    pare_dtype scales = PARE_f32;
    const pare_quant_weight_view view = pare_quant_weight_look(w, axis);
    const char *name = part->value->name;
    float *scale = pare_alloc(d->ctx, (size_t)view.channels, sizeof *scale);
    int8_t *level = pare_alloc(d->ctx, (size_t)w->count, 1);
    pare_value *in[2], *y;
    pare_status st =
        scale && level ? pare_quant_weight_scales(d->ctx, &view, 8, scale) : PARE_MEMORY;
    if (st == PARE_OK) {
        scales = shorten(type, scale, view.channels);
        pare_quant_weight_round(&view, scale, 8, level);
        st = pare_quant_constant(g, &in[0], name, "again", PARE_s8, w->rank, w->dims, level);
    }
    if (st == PARE_OK) st = put_scales(d, name, scales, view.channels, 1, scale, &in[1]);
    if (st == PARE_OK) st = pare_diag_append(d, "DequantizeLinear", name, in, 2, &y);
    if (st == PARE_OK) st = pare_node_set_int(y->producer, "axis", axis);
    if (st == PARE_OK) {
        pare_value_set_type(y, scales, &d->master->graph->node[read->node]->in[read->input]->shape);
        st = pare_diag_cast(d, y, type, &y);
    }
    if (st == PARE_OK) read->name[PARE_CHOICE_CURED] = y->name;
    pare_free(scale);
    pare_free(level);
    return st;
}

static pare_status new_weight(pare_diag *d, pare_part *part, const char **words)
{
    bool again = false;
    for (int r = 0; r < part->readers; r++) {
        pare_part_read *read = &part->read[r];
        const pare_node *node = d->master->graph->node[read->node];
        pare_weighted role;
        read->name[PARE_CHOICE_CURED] = read->name[PARE_CHOICE_FLOAT];
        if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED) continue;
        PARE_TRY(pare_op_of(node)->quant.weighted(node, &role));
        if (read->input != role.w || role.axis < 0 || role.axis >= part->value->data->rank)
            continue;
        PARE_TRY(requantize(d, part, read, role.axis));
        again = true;
    }
    as_float(part, part->readers); /* a correction was of the old levels */
    *words = again ? part->readers > 1 ? "quantize it again for each reader, one scale per output"
                                       : "quantize it again, one scale per output"
                   : "keep it float";
    return PARE_OK;
}

pare_status pare_diag_cure(pare_diag *d, pare_part *part, pare_fault fault, const char **words)
{
    *words = NULL;
    if (!pare_diag_has(part, PARE_CHOICE_FLOAT)) return PARE_OK;
    const bool ranges = fault == PARE_FAULT_CLIPPED || fault == PARE_FAULT_WIDE ||
                        fault == PARE_FAULT_STALE_RANGES || fault == PARE_FAULT_PREPROCESSING ||
                        fault == PARE_FAULT_ZERO_SCALE;
    if (part->kind == PARE_PART_ACTIVATION && ranges) PARE_TRY(new_range(d, part, words));
    if (*words) return PARE_OK;
    if (part->kind == PARE_PART_WEIGHT && ranges && fault != PARE_FAULT_ZERO_SCALE) {
        as_float(part, part->readers); /* the correction alone goes */
        *words = "take the correction of its bias back";
        return PARE_OK;
    }
    if (part->kind == PARE_PART_WEIGHT && (fault != PARE_FAULT_WEIGHT || part->scale->count == 1))
        return new_weight(d, part, words);
    as_float(part, 0);
    *words = part->kind == PARE_PART_BIAS ? "keep the bias float" : "keep it float";
    return PARE_OK;
}
