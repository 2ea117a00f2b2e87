/* SPDX-License-Identifier: Apache-2.0 */
/* pare.UnaryGrad (g, x, y) -> dx: the rows of grad_unary.inc as an enum and a list. Attribute `of`
   names the row; x or y is absent where the row does not read it. */
#ifndef PARE_RUNTIME_OPS_GRAD_UNARY_H
#define PARE_RUNTIME_OPS_GRAD_UNARY_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_unary_grad {
#define PARE_UNARY_GRAD(name, reads, a, b, dx) PARE_UNARY_GRAD_##name,
#include "runtime/ops/grad_unary.inc"
#undef PARE_UNARY_GRAD
    PARE_UNARY_GRADS
} pare_unary_grad;

typedef enum pare_unary_reads { PARE_READS_NONE, PARE_READS_X, PARE_READS_Y } pare_unary_reads;

typedef struct pare_unary_attr {
    const char *name; /* NULL: none */
    float missing;
} pare_unary_attr;

typedef struct pare_unary_row {
    const char *name;
    pare_unary_reads reads;
    pare_unary_attr a, b;
} pare_unary_row;

extern const pare_unary_row pare_unary_rows[PARE_UNARY_GRADS];

/* The row of this name, PARE_UNARY_GRADS where there is none. */
pare_unary_grad pare_unary_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
