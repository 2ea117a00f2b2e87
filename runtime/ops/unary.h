/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of unary.inc as an enum and a list. pare.UnaryGrad (g, x, y) -> dx names its row in the
   attribute `of`; x or y is absent where the row does not read it. */
#ifndef PARE_RUNTIME_OPS_UNARY_H
#define PARE_RUNTIME_OPS_UNARY_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_unary {
#define PARE_UNARY(name, ...)       PARE_UNARY_##name,
#define PARE_UNARY_SLOPE(name, ...) PARE_UNARY_##name,
#include "runtime/ops/unary.inc"
    PARE_UNARY_COUNT
} pare_unary;

typedef enum pare_unary_reads { PARE_READS_NONE, PARE_READS_X, PARE_READS_Y } pare_unary_reads;

typedef struct pare_unary_row {
    const char *name;
    pare_unary_reads reads;
    struct {
        const char *name; /* NULL: none */
        float missing;
    } attr[2];
} pare_unary_row;

extern const pare_unary_row pare_unary_rows[PARE_UNARY_COUNT];

/* The row of an operator, PARE_UNARY_COUNT where there is none: Gelu's by its attribute
   `approximate`, UnaryGrad's by `of`. */
pare_unary pare_unary_of(const pare_node *node);
/* Attribute 0 or 1 of the row, 0 where it has none. */
float pare_unary_attr(const pare_node *node, pare_unary row, int i);

#ifdef __cplusplus
}
#endif
#endif
