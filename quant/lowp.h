/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of FP16 and BF16 conversion share. */
#ifndef PARE_QUANT_LOWP_H
#define PARE_QUANT_LOWP_H

#include "quant/internal.h"

typedef struct pare_lowp {
    pare_ctx *ctx;
    pare_model *model;
    pare_arena *arena; /* dies with the call */
    const pare_ranges *ranges;
    const pare_quant_options *options;
    pare_quant_facts *facts;
    pare_dtype type;        /* f16 or bf16 */
    float largest;          /* finite number of that type */
    float clamp;            /* what finite constants beyond it become */
    pare_quant_nodes nodes; /* of the main graph and bodies */
    pare_ptr_map is_lowp;   /* node -> 1 where it computes in the short type, else 0 */
    pare_ptr_map beyond;    /* tensors that are beyond the type's range, as far as is known */
    pare_ptr_map made;      /* tensors whose type became short */
    pare_ptr_map twin;      /* tensor -> position in kept of itself in the other type */
    pare_value **kept;
    int kept_count;
    size_t kept_capacity;
} pare_lowp;

/* lowp_select.c: fills is_lowp; notes why nodes stay f32. */
PARE_NODISCARD pare_status pare_lowp_select(pare_lowp *h);
/* The attribute that holds what a node of no float inputs makes (Constant, ConstantOfShape), or
 * NULL. */
const pare_attr *pare_lowp_content(const pare_node *node);

#endif
