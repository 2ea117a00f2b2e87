/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding a matrix of weights (rows: outputs, columns: what they sum over) to integers. Private to
   quant/. Results depend on neither threads nor how rows are cut into calls. */
#ifndef PARE_QUANT_ROUND_H
#define PARE_QUANT_ROUND_H

#include "calib/capture.h"
#include "calib/moments.h"

/* Levels low..high; `group` columns side by side share a scale (0: all of a row). */
typedef struct pare_quant_grid {
    int low, high;
    int64_t group;
    bool set; /* GPTQ: the scales are given */
} pare_quant_grid;

int64_t pare_quant_groups(const pare_quant_grid *grid, int64_t columns);

/* The scale of least squared error of n numbers; weight: what each one's error counts, NULL: the
   same. */
float pare_quant_group_scale(const double *w, const double *weight, int64_t n,
                             const pare_quant_grid *grid);

/* level (rows, columns), scale (rows, groups) of w (rows, columns). */
void pare_quant_round_nearest(const double *w, int64_t rows, int64_t columns,
                              const pare_quant_grid *grid, int8_t *level, float *scale,
                              int threads);

/* One pass over the samples for the second moments of tensor x, as the node sums over it; *out is
   the caller's. *ok false, and no moments: a form that they do not serve, or a shape that only a
   run knows. */
PARE_NODISCARD pare_status pare_quant_observe(pare_ctx *ctx, pare_capture *flow, const char *x,
                                              const pare_node *node, int threads,
                                              pare_columns *columns, pare_observer **out, bool *ok);

/* What GPTQ needs of the inputs' second moments. */
typedef struct pare_quant_gptq {
    int64_t columns, *order; /* (columns): in which they are rounded */
    double *square;          /* (columns): sums of squares of the inputs */
    double *factor;          /* (columns, columns), in that order, upper triangle */
} pare_quant_gptq;

/* PARE_INPUT: moments that are not finite. */
PARE_NODISCARD pare_status pare_quant_gptq_new(pare_ctx *ctx, pare_quant_gptq **out,
                                               const pare_moments *moments, int threads);
void pare_quant_gptq_free(pare_quant_gptq *gptq);

/* The same as above by GPTQ. */
PARE_NODISCARD pare_status pare_quant_round_gptq(pare_ctx *ctx, const pare_quant_gptq *gptq,
                                                 const double *w, int64_t rows,
                                                 const pare_quant_grid *grid, int8_t *level,
                                                 float *scale, int threads);

#endif
