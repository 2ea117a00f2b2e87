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
    const pare_quant_nodes *before; /* the model's before pairs were put in; NULL: as it is */
    const char *const *f32;         /* (before) why a node stays f32 for its latency, or NULL */
    bool pairs;                     /* the model has Q/DQ pairs: what is not int8 is converted */
    bool f16_scales;                /* pairs may have such, else what reads them stays f32 */
    pare_ptr_map beside;            /* nodes that stay f32 for their pairs -> what they make */
    pare_ptr_map made;              /* tensors whose type became short */
    pare_ptr_map twin;              /* tensor -> position in kept of itself in the other type */
    pare_value **kept;
    int kept_count;
    size_t kept_capacity;
} pare_lowp;

/* lowp_pairs.c, of a model with pairs. The tensor that stands for a dequantized one in what
   calibration saw: what its QuantizeLinear reads; itself where there is none. */
const pare_value *pare_lowp_seen(const pare_value *v);
static inline bool pare_lowp_is_pair(const pare_node *node)
{
    return pare_quant_is_q(node) || pare_quant_is_dq(node);
}
/* An integer product in all but its type: what a runtime folds. */
bool pare_lowp_is_int8(const pare_node *node);
/* Why a node stays f32 for the pairs that it reads; NULL: nothing is against it; "": it is beside
   int8, and there is nothing to say. Nodes before it are judged. */
PARE_NODISCARD pare_status pare_lowp_judge_pairs(pare_lowp *h, const pare_node *node,
                                                 const char **why);
/* Which Q and DQ are f16, once all other nodes are decided. */
PARE_NODISCARD pare_status pare_lowp_decide_pairs(pare_lowp *h);

/* lowp_select.c: fills is_lowp; notes why nodes stay f32. */
PARE_NODISCARD pare_status pare_lowp_select(pare_lowp *h);
/* The attribute that holds what a node of no float inputs makes (Constant, ConstantOfShape), or
 * NULL. */
const pare_attr *pare_lowp_content(const pare_node *node);

#endif
