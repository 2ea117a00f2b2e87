/* SPDX-License-Identifier: Apache-2.0 */
/* What the files for pruning single weights share: the list of weights, masks, second-order pruning
   of a matrix, the walk through the layers. Private to prune/. */
#ifndef PARE_PRUNE_UNSTRUCTURED_H
#define PARE_PRUNE_UNSTRUCTURED_H

#include "calib/capture.h"
#include "calib/moments.h"
#include "prune/plan.h"
#include "runtime/ops/ops.h"

/* Bytes that one pass may take for moments of one set, of scoring channels and of weights; and a
   flow for what it keeps. */
enum { PARE_SCORE_ROOM = 1000000000, PARE_BUDGET_ROOM = 500000000, PARE_KEEP_ROOM = 1 << 30 };

/* --- prunables.c: what can be pruned --- */

/* A constant weight of Conv, ConvTranspose, Gemm or MatMul, with the first node that reads it. */
typedef struct pare_prunable {
    pare_node *node;
    pare_value *value;
    pare_weighted part;
    int64_t count;
    pare_columns columns; /* by inferred shapes; the window's sizes may be unknown */
    bool matrix;          /* columns is known: rows of weights against columns of inputs */
    bool shared;          /* several nodes read it */
    bool inner;           /* in a body, whose tensors no capture sees */
    bool dense;           /* stays as it is (--keep, N:M does not fit) */
    bool *zero;           /* (count) what is pruned */
    pare_unstructured_layer *facts;
} pare_prunable;

typedef struct pare_prunables {
    pare_ctx *ctx;
    pare_model *model;
    const pare_model *reference; /* what layers are fitted to; NULL: the model as it was */
    pare_arena *arena;           /* ends with the call */
    const pare_unstructured_options *options;
    pare_unstructured_facts *facts;
    pare_prunable *item;
    int count;
    size_t capacity;
} pare_prunables;

PARE_NODISCARD pare_status pare_prunables_find(pare_prunables *all);

/* Weight i of a layer; payloads are at any address. */
float pare_unstructured_weight(const pare_prunable *s, int64_t i);
/* Where weight (output, column) of a group is; s->matrix only. */
int64_t pare_unstructured_place(const pare_prunable *s, int64_t group, int64_t output,
                                int64_t column);
/* New content; the model's own copy of the payload. */
PARE_NODISCARD pare_status pare_unstructured_put(pare_prunables *all, pare_prunable *s,
                                                 const float *data);
/* The old content with what zero says at 0: every other bit stays. */
PARE_NODISCARD pare_status pare_unstructured_put_zeros(pare_prunables *all, pare_prunable *s);

/* --- prunables.c: masks by score --- */

/* The `want` weights of least score of these layers get their zero; ties go by place. user: one
   pointer a layer, or NULL. */
PARE_NODISCARD pare_status pare_prunables_least(pare_prunables *all, int first, int count,
                                                int64_t want, pare_unstructured_score score,
                                                const void *const *user);
/* In each group of m columns that lie side by side the m - n of least score. */
void pare_unstructured_least_of_m(pare_prunable *s, int n, int m, pare_unstructured_score score,
                                  const void *user);

/* --- obs.c: second-order pruning of rows --- */

/* What the rows of a matrix are fitted to: minimise (w - w0)^T a (w - w0) where a is positive
   definite. Rows share a; w0 are the best dense rows. */
typedef struct pare_obs {
    pare_ctx *ctx;
    int64_t columns, rows;
    const double *inverse; /* (columns, columns) of a, whole */
    const double *best;    /* (rows, columns): w0 */
    int n, m;              /* N:M among columns side by side; m 0: free */
    int threads;
} pare_obs;

/* Zeros each row one weight after the other, each time the one that raises the row's error least
   once the others are refitted. order[r][k]: the k-th to go; loss[r][k]: what it costs then. N:M
   ends where every group has its zeros; the rest of order is -1. (rows, columns) each. */
PARE_NODISCARD pare_status pare_obs_trace(const pare_obs *second, int32_t *order, float *loss);

/* The same in one sweep over the columns for matrices too large for that: `want` zeros (N:M: as
   many as it takes). zero, weights (rows, columns): mask, and what the rest becomes. */
PARE_NODISCARD pare_status pare_obs_sweep(const pare_obs *second, int64_t want, bool *zero,
                                          double *weights);

/* Is a trace of so many rows affordable? */
bool pare_obs_affords(int64_t rows, int64_t columns);

/* Of a trace, the `want` zeros of least loss, each row's in its order. */
PARE_NODISCARD pare_status pare_obs_cheapest(pare_ctx *ctx, const int32_t *order, const float *loss,
                                             int64_t rows, int64_t columns, int64_t want,
                                             bool *zero);

/* The weights that minimise w^T a w - 2 w^T b where zero allows any: (columns) of one row. scratch:
   columns * (columns + 1). false: a is not positive definite. */
bool pare_obs_fit(const double *a, const double *b, const bool *zero, int64_t columns,
                  double *weights, double *scratch);

/* --- unstructured_layer.c: one layer against its moments --- */

typedef struct pare_layer_fit {
    pare_prunables *all;
    pare_prunable *layer;
    pare_observer *observer; /* two sets: fifths 1-4, the fifth */
    bool centred;            /* a bias takes up the means */
    bool masked;             /* layer->zero is given: only refit */
    int64_t want;            /* else: zeros of this layer */
    float *weights;          /* (layer->count), in and out */
    double *bias;            /* out: (all outputs) */
} pare_layer_fit;

PARE_NODISCARD pare_status pare_layer_fit_run(pare_layer_fit *fit);

/* --- unstructured_refit.c: the walk --- */

/* Where a weighted node's result is complete: after the addition of its bias, and after that of a
   residual, which it then can make good. */
typedef struct pare_unstructured_end {
    const pare_value *target, *skip; /* skip NULL: target is the node's own result */
    pare_node *bias_node;            /* takes or may take the bias as input bias_at; or NULL */
    int bias_at;
    bool any_bias; /* some constant is added: means are not the weight's task */
} pare_unstructured_end;
void pare_unstructured_end_find(const pare_prunable *s, pare_unstructured_end *out);

PARE_NODISCARD pare_status pare_prunables_refit(pare_prunables *all, const int64_t *want);
/* want (count): how many of all zeros each layer gets. */
PARE_NODISCARD pare_status pare_prunables_budget(pare_prunables *all, int64_t zeros, int64_t *want);

/* --- permute.c --- */

/* Puts channels into the order in which N:M keeps most magnitude; results stay what they are. */
PARE_NODISCARD pare_status pare_prunables_permute(pare_prunables *all);

/* --- prunables.c: moments of inputs --- */

/* Is it a layer whose inputs' moments say what its weights are worth? */
bool pare_unstructured_is_fitted(const pare_prunable *s);
/* Called with the inputs' moments (one set, no targets) of each such layer, in order. */
typedef pare_status (*pare_unstructured_visit)(void *user, int layer,
                                               const pare_observer *observer);
/* This rank's part of the samples, and a flow's options for it. */
PARE_NODISCARD pare_status pare_unstructured_share(pare_prunables *all, pare_run_share *share,
                                                   pare_capture_options *flow);
/* Bytes of a layer's moments of one set, without targets, while they are summed. */
double pare_unstructured_moments_bytes(const pare_columns *columns, int ranks);
/* The hash of what the flows of all ranks read into the facts. */
PARE_NODISCARD pare_status pare_unstructured_note_data(pare_prunables *all,
                                                       const pare_run_share *share,
                                                       const pare_capture *flow);
PARE_NODISCARD pare_status pare_prunables_moments(pare_prunables *all,
                                                  pare_unstructured_visit visit, void *user);

#endif
