/* SPDX-License-Identifier: Apache-2.0 */
/* What mends a part: a range from the samples at hand, a weight quantized again from the float
   model's, or the float form itself. */
#include "quant/diagnose/internal.h"

#include <math.h>

/* The file's other pair, in the types that it has. */
static pare_status new_pair(pare_diag *d, pare_part *part, float scale, int zero)
{
    const pare_value *was = pare_node_in(part->q, 2);
    const pare_dtype type = was ? was->dtype : PARE_u8;
    const int8_t s8 = (int8_t)zero;
    const uint8_t u8 = (uint8_t)zero;
    pare_graph *g = d->master->graph;
    pare_value *in[3] = {part->value}, *q, *y;
    const char *name = part->value->name;
    PARE_TRY(pare_quant_constant(g, &in[1], name, "scale", PARE_f32, 0, NULL, &scale));
    PARE_TRY(pare_quant_constant(g, &in[2], name, "zero_point", type, 0, NULL,
                                 type == PARE_s8 ? (const void *)&s8 : &u8));
    PARE_TRY(pare_diag_append(d, "QuantizeLinear", name, in, 3, &q));
    in[0] = q;
    PARE_TRY(pare_diag_append(d, "DequantizeLinear", name, in, 3, &y));
    for (int r = 0; r < part->read_count; r++) part->read[r].name[PARE_CHOICE_CURED] = y->name;
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

/* A reader's own copy: eight bits, one scale per output. */
static pare_status requantize(pare_diag *d, const pare_part *part, pare_part_read *read, int axis)
{
    pare_graph *g = d->master->graph;
    const pare_value *exact = pare_graph_find_own(g, read->name[PARE_CHOICE_FLOAT]);
    if (!exact || !exact->data) return PARE_OK;
    const pare_tensor *w = exact->data;
    const pare_quant_weight_view view = pare_quant_weight_look(w, axis);
    const char *name = part->value->name;
    float *scale = pare_alloc(d->ctx, (size_t)view.channels, sizeof *scale);
    int8_t *level = pare_alloc(d->ctx, (size_t)w->count, 1);
    pare_value *in[2], *y;
    pare_status st =
        scale && level ? pare_quant_weight_scales(d->ctx, &view, 8, scale) : PARE_MEMORY;
    if (st == PARE_OK) {
        pare_quant_weight_round(&view, scale, 8, level);
        st = pare_quant_constant(g, &in[0], name, "again", PARE_s8, w->rank, w->dims, level);
    }
    if (st == PARE_OK)
        st =
            pare_quant_constant(g, &in[1], name, "again_scale", PARE_f32, 1, &view.channels, scale);
    if (st == PARE_OK) st = pare_diag_append(d, "DequantizeLinear", name, in, 2, &y);
    if (st == PARE_OK) st = pare_node_set_int(y->producer, "axis", axis);
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
