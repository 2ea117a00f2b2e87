/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding a matrix of weights (rows: outputs, columns: what they sum over) to integers. Private to
   quant/. Results depend on neither threads nor how rows are cut into calls. */
#ifndef PARE_QUANT_ROUND_H
#define PARE_QUANT_ROUND_H

#include "calib/capture.h"
#include "calib/moments.h"
#include "quant/quant.h"

/* Levels low..high; `group` columns side by side share a scale (0: all of a row). Levels of a float
   format are its codes without the sign, with the sign: level -3 of f4e2m1 is -1.5. */
typedef struct pare_quant_grid {
    int low, high;
    int64_t group;
    bool set;          /* GPTQ: the scales are given */
    pare_dtype format; /* f8e4m3 or f4e2m1, else integers */
    bool powers;       /* scales are powers of two */
} pare_quant_grid;

/* Columns of a group, and groups of a row. */
int64_t pare_quant_group(const pare_quant_grid *grid, int64_t columns);
int64_t pare_quant_groups(const pare_quant_grid *grid, int64_t columns);

/* The level nearest to a number, and the number that it is with the scale 1. */
int8_t pare_quant_level(double w, float scale, const pare_quant_grid *grid);
double pare_quant_level_number(int8_t level, const pare_quant_grid *grid);

/* The scale of least squared error of n numbers; weight: what each one's error counts, NULL: the
   same. */
float pare_quant_group_scale(const double *w, const double *weight, int64_t n,
                             const pare_quant_grid *grid);

/* level (rows, columns), scale (rows, groups) of w (rows, columns). */
void pare_quant_round_nearest(const double *w, int64_t rows, int64_t columns,
                              const pare_quant_grid *grid, int8_t *level, float *scale,
                              int threads);

/* What GPTQ needs of the inputs' second moments. */
typedef struct pare_quant_gptq {
    int64_t columns, *order; /* (columns): in which they are rounded */
    double *square;          /* (columns): sums of squares of the inputs */
    double *factor;          /* (columns, columns), in that order, upper triangle */
} pare_quant_gptq;

/* centred: a bias takes up the means. PARE_INPUT: moments that are not finite. */
PARE_NODISCARD pare_status pare_quant_gptq_new(pare_ctx *ctx, pare_quant_gptq **out,
                                               const pare_moments *moments, bool centred,
                                               int threads);
void pare_quant_gptq_free(pare_quant_gptq *gptq);

/* The same as above by GPTQ. */
PARE_NODISCARD pare_status pare_quant_round_gptq(pare_ctx *ctx, const pare_quant_gptq *gptq,
                                                 const double *w, int64_t rows,
                                                 const pare_quant_grid *grid, int8_t *level,
                                                 float *scale, int threads);

/* --- adaround.c --- */

/* A row whose weights are off by d (columns) errs by d^T h d; h (columns, columns), whole. */
typedef struct pare_quant_loss {
    int64_t columns;
    const double *h;
} pare_quant_loss;

/* level (rows, columns) on given scales, of w (rows, columns): each row becomes the one that errs
   least of AdaRound's from where it is, itself with single weights mended, and `plain` (rows,
   columns) to the nearest. */
PARE_NODISCARD pare_status pare_quant_round_adaround(pare_ctx *ctx, const pare_quant_loss *loss,
                                                     const double *plain, const double *w,
                                                     int64_t rows, const pare_quant_grid *grid,
                                                     int8_t *level, const float *scale,
                                                     int iterations, int threads);

/* --- awq.c --- */

/* Rows of all weights that read an input. */
typedef struct pare_quant_rows {
    int64_t count;
    void (*read)(const void *user, int64_t row, double *to); /* to (columns) */
    const void *user;
} pare_quant_rows;

/* What was found. */
typedef struct pare_quant_scaled {
    double alpha; /* 0: nothing is worth it */
    double part;  /* of the loss that is left */
} pare_quant_scaled;

/* factor (columns / block): what `block` input columns side by side are to be divided by, and the
   weights that read them multiplied by; set where out->alpha is not 0. gptq: it rounds them, else
   they go to the nearest. With scales that are powers
   of two, factors are. Memory is columns x columns x 16 bytes, and that of 512 rows. */
PARE_NODISCARD pare_status pare_quant_scale_channels(pare_ctx *ctx, const pare_moments *moments,
                                                     int64_t block, const pare_quant_rows *rows,
                                                     const pare_quant_grid *grid, bool gptq,
                                                     int threads, float *factor,
                                                     pare_quant_scaled *out);
/* Moments of divided inputs, whose targets are inputs, too, divided likewise. */
void pare_quant_moments_divide(pare_moments *moments, const float *factor, int64_t block);

/* --- layer.c --- */

/* Flows of the same samples through the model as its first layers are rounded and as it was. */
typedef struct pare_quant_flows {
    pare_capture *now, *before;
    pare_model *floats; /* a copy, as it was */
    int threads;
} pare_quant_flows;

PARE_NODISCARD pare_status pare_quant_flows_open(pare_ctx *ctx, pare_quant_flows *out,
                                                 pare_model *model,
                                                 const pare_quant_search *samples);
void pare_quant_flows_close(pare_quant_flows *flows);

/* One pass over the samples: second moments of tensor x as the node sums over it now, and of
   targets, which are tensor t as it was before: the node's output, or of a matrix product its input
   x itself. *out is the caller's. *ok false, and no moments: a form that they do not serve, or a
   shape that only a run knows. */
PARE_NODISCARD pare_status pare_quant_observe(pare_ctx *ctx, const pare_quant_flows *flows,
                                              const pare_node *node, const char *x, const char *t,
                                              pare_columns *columns, pare_observer **out, bool *ok);

/* What rows of a weight are rounded by. */
typedef struct pare_quant_layer {
    const pare_moments *moments; /* targets: outputs without the bias, or inputs */
    bool targets_are_inputs;
    bool centred;   /* a bias takes up the means; of targets that are inputs: none does */
    int iterations; /* of AdaRound; 0: GPTQ alone */
    int threads;
} pare_quant_layer;

typedef struct pare_quant_rounder pare_quant_rounder;

/* The moments must outlive it. PARE_INPUT: moments that are not finite. */
PARE_NODISCARD pare_status pare_quant_rounder_new(pare_ctx *ctx, pare_quant_rounder **out,
                                                  const pare_quant_layer *layer);
void pare_quant_rounder_free(pare_quant_rounder *rounder);
/* w (rows, columns), all rows where targets are outputs; it becomes what was aimed at. */
PARE_NODISCARD pare_status pare_quant_round_layer(const pare_quant_rounder *rounder, double *w,
                                                  int64_t rows, const pare_quant_grid *grid,
                                                  int8_t *level, float *scale);

#endif
