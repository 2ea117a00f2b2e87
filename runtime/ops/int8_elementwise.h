/* SPDX-License-Identifier: Apache-2.0 */
/* What pare.QAdd, QMul, Requantize and QConcat compute from a node's scales once, on every backend:
     QAdd        v = fmaf(b - z_b, s_b / s_y, (a - z_a) * (s_a / s_y))
     QMul        v = ((a - z_a) * (b - z_b)) * ((s_a * s_b) / s_y)
     Requantize  v = (x - z_x) * (s_x / s_y); QConcat the same per input
   then activation, rounding and clamping of epilogue.h. With an f32 output s_y is 1. */
#ifndef PARE_RUNTIME_OPS_INT8_ELEMENTWISE_H
#define PARE_RUNTIME_OPS_INT8_ELEMENTWISE_H

#include "runtime/ops/epilogue.h"
#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The can() of QAdd and QMul: both operands are s8 or u8. */
bool pare_int8_pair_can(const pare_prep *prep);

typedef struct pare_int8_pair {
    pare_epilogue epilogue;
    float a_factor, b_factor; /* QMul: a_factor is the product's */
    int32_t a_zero, b_zero;
    pare_dtype a_type, b_type;
    bool product;
} pare_int8_pair;

PARE_NODISCARD pare_status pare_int8_pair_read(const pare_prep *prep, bool product,
                                               pare_int8_pair *pair);

/* The can() of Requantize and QConcat: all inputs and the output are s8 or u8. */
bool pare_requantize_can(const pare_prep *prep);

/* Requantize as y = table[(uint8_t)x]. */
PARE_NODISCARD pare_status pare_requantize_table(const pare_prep *prep, uint8_t table[256]);

/* QConcat's, 256 bytes an input one after the other; that of a plain copy is the identity. */
void pare_concat_tables(const pare_prep *prep, uint8_t *tables);
/* Has input i the output's scale, zero point and type? */
bool pare_concat_is_copy(const pare_node *concat, int i);

#ifdef __cplusplus
}
#endif
#endif
