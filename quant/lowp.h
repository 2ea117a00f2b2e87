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
    pare_dtype type;      /* f16 or bf16 */
    float largest;        /* finite number of that type */
    float clamp;          /* what finite constants beyond it become */
    pare_ptr_map is_lowp; /* node -> 1 where it computes in the short type, else 0 */
    pare_ptr_map beyond;  /* tensors that are beyond the type's range, as far as is known */
    pare_ptr_map made;    /* tensors whose type became short */
    pare_ptr_map twin;    /* tensor -> position in kept of itself in the other type */
    pare_value **kept;
    int kept_count;
    size_t kept_capacity;
} pare_lowp;

/* Typed f16 or bf16 throughout; weights only, after a Cast to f32. */
PARE_NODISCARD pare_status pare_lowp_compute(pare_lowp *h);
PARE_NODISCARD pare_status pare_lowp_store(pare_lowp *h);

/* lowp_select.c: fills is_lowp; notes why nodes stay f32. */
PARE_NODISCARD pare_status pare_lowp_select(pare_lowp *h);
/* The attribute that holds what a node of no float inputs makes (Constant, ConstantOfShape), or
 * NULL. */
const pare_attr *pare_lowp_content(const pare_node *node);

/* lowp_cast.c: the value in the wanted type (f32 or h->type): itself, a converted constant, or
   what a Cast makes of it, one per tensor. */
PARE_NODISCARD pare_status pare_lowp_as(pare_lowp *h, pare_value *v, pare_dtype wanted,
                                        pare_value **out);
PARE_NODISCARD pare_status pare_lowp_cast(pare_lowp *h, int at, pare_value *from, pare_value *to,
                                          pare_dtype type);
/* Remembers that a and b are the same tensor in both types. */
PARE_NODISCARD pare_status pare_lowp_pair(pare_lowp *h, pare_value *a, pare_value *b);
/* A constant of the short type with this content; finite numbers beyond the type's range are
   clamped, so that a mask of -3.4e38 does not become -Inf, and 0 times it not NaN. In f16 they
   become +-61,440 and not 65,504: a score that is added to such a mask is lost in it (its steps are
   of 32) and does not carry it over the end, where a row that is masked throughout would be NaN. */
PARE_NODISCARD pare_status pare_lowp_constant(pare_lowp *h, const pare_value *v, pare_value **out);
/* The same content as numbers in memory, to be freed with pare_free. */
PARE_NODISCARD pare_status pare_lowp_convert(pare_lowp *h, const pare_tensor *t, void **out);

#endif
