/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices whose weights alone are quantized, and the scaling of the channels that they read
   (rounding/awq.c). Private to quant/. */
#ifndef PARE_QUANT_WEIGHT_ONLY_H
#define PARE_QUANT_WEIGHT_ONLY_H

#include "quant/pairs.h"
#include "quant/rounding/round.h"

/* Channels that can be divided where they are made. */
typedef struct pare_quant_scaling {
    pare_quant_pair pair;
    pare_value *x; /* that is read */
    int readers;
    float *factor;       /* (pair.channels) what they are divided by; or NULL */
    pare_value *divided; /* x as its readers see it, until its makers are divided */
} pare_quant_scaling;

/* A constant matrix that products read: rows are outputs. */
typedef struct pare_quant_matrix {
    pare_node *node; /* the first that reads it */
    pare_value *value, *x;
    bool outputs_first; /* the tensor is (rows, columns), else (columns, rows) */
    bool shared;        /* several read it */
    int64_t rows, columns;
    pare_quant_scaling *scaling; /* of x, or NULL */
} pare_quant_matrix;

/* Place of a weight in the tensor. */
static inline int64_t pare_quant_matrix_place(const pare_quant_matrix *m, int64_t row,
                                              int64_t column)
{
    return m->outputs_first ? row * m->columns + column : column * m->rows + row;
}

/* Rows from .. from + count - 1 (count, columns), times the factors of their columns. */
void pare_quant_matrix_read(const pare_quant_matrix *m, int64_t from, int64_t count, double *to);

/* --- awq.c --- */

/* Of matrices in the order of the graph, all still float: notes the scaling of each input that they
   alone read. */
PARE_NODISCARD pare_status pare_quant_scalings_find(pare_ctx *ctx, pare_arena *arena,
                                                    const pare_quant_nodes *nodes,
                                                    pare_quant_matrix *matrix, int count);
/* Matrices that read one input, `moments` of that input: looks for factors, and where some are
   worth it, makes readers see the input divided and the moments those of that. */
PARE_NODISCARD pare_status pare_quant_scaling_choose(pare_ctx *ctx, pare_arena *arena,
                                                     const pare_quant_matrix *matrix, int count,
                                                     const pare_quant_grid *grid, bool gptq,
                                                     int threads, pare_moments *moments);
/* Divides the makers, which may be rounded by now, and gives readers their input back. */
PARE_NODISCARD pare_status pare_quant_scalings_finish(pare_ctx *ctx,
                                                      const pare_quant_matrix *matrix, int count);
#endif
