/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that makes channels and what reads them: dividing channel c by e_c where it is made, and
   multiplying the weights that read it by e_c, changes no output, for what may be between commutes
   with positive factors (Nagel et al. 2019, arXiv 1906.04721, section 4.1). Private to quant/. */
#ifndef PARE_QUANT_PAIRS_H
#define PARE_QUANT_PAIRS_H

#include "quant/internal.h"

enum { PARE_PAIR_OPERANDS = 8, PARE_PAIR_STEPS = 8 };

/* A constant that has the maker's channels along an axis. */
typedef struct pare_quant_operand {
    pare_node *node;
    int input, axis;
} pare_quant_operand;

typedef struct pare_quant_pair {
    pare_quant_operand operand[PARE_PAIR_OPERANDS]; /* what to divide */
    int operands;
    const pare_value *way[PARE_PAIR_STEPS]; /* tensors of these channels, the one read first */
    int ways;
    const pare_value *product; /* of the maker, where its bias is added after it; or NULL */
    int64_t channels, block;   /* of the maker; of the channels that are read, one after the other,
                                  one of these became */
} pare_quant_pair;

/* What may make channels and stand on their way. */
typedef struct pare_quant_makers {
    /* May this node's weight be divided? Its parts, where it may. */
    bool (*find)(void *user, pare_node *node, pare_weighted *part);
    void *user;
    bool bounds;   /* Clip's upper bound may be on the way: it does not go along */
    bool products; /* gates (a tensor times a computed one) and attention may be */
} pare_quant_makers;

/* What makes the channels of x; false: nothing that can be divided, or another node reads what is
   on the way. Readers of x are the caller's. */
bool pare_quant_pair_find(const pare_value *x, const pare_quant_makers *makers,
                          pare_quant_pair *out);

/* (channels) e: what each number of the constant is divided by; its new content, to be freed. */
PARE_NODISCARD pare_status pare_quant_operand_divide(pare_ctx *ctx, const pare_quant_operand *o,
                                                     const float *e, float **out);
#endif
