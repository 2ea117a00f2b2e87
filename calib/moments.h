/* SPDX-License-Identifier: Apache-2.0 */
/* Second moments of what a weighted node sums over: the normal equations of fitting its weight.

   A node with constant weight computes, in each of `groups` groups, rows of y = W x + b where x are
   `columns` numbers: a row of a matrix product's input, or what one place of a convolution sees,
   zeros of the padding among them. Column k * c + i of a convolution is input channel i (of c in
   the group) at kernel position k: channels lie side by side, positions one after the other.

   Kept are, over all rows seen, the sums of x x^T, x t^T, t^2, x and t, where t is what the node
   should compute there, in float64. Rows are added in fixed portions in the order of the samples,
   so that sums depend on neither batch nor threads, nor on the ranks that share the runs (share.h).
 */
#ifndef PARE_CALIB_MOMENTS_H
#define PARE_CALIB_MOMENTS_H

#include "calib/linear.h"
#include "calib/share.h"
#include "runtime/ops/window.h"

/* How a weighted node meets its input. */
typedef struct pare_columns {
    bool convolution;
    pare_window window;      /* of a convolution, for one sample's shape */
    int64_t groups, columns; /* columns of a group */
    int64_t outputs;         /* of a group */
    int64_t channels;        /* input channels of a group; columns / channels kernel positions */
    int64_t rows;            /* in one run */
    int64_t batch;           /* of a convolution: samples in one run */
} pare_columns;

/* node: Conv, Gemm or MatMul with its weight (constant, rank 2, or as Conv takes it) on the right.
   x: its input's shape in one run. *ok is false for forms that are not served (a weight on the left
   or of rank 3 in a matrix product, a transposed input, a transposed convolution). */
PARE_NODISCARD pare_status pare_columns_read(const pare_node *node, const pare_shape *x,
                                             pare_columns *out, bool *ok);

/* Where weight (output o, column k) of group g is in the node's weight. */
int64_t pare_columns_weight(const pare_columns *columns, bool outputs_first, int64_t group,
                            int64_t output, int64_t column);

/* Of one group. Sums over `rows` rows. */
typedef struct pare_moments {
    int64_t columns, outputs; /* outputs 0: no targets */
    double rows;
    double *xx;    /* (columns, columns), upper triangle */
    double *xt;    /* (columns, outputs) */
    double *tt;    /* (outputs) */
    double *x, *t; /* (columns), (outputs) */
    double *all;   /* the array that these lie in, one after the other; rows is its last */
} pare_moments;

PARE_NODISCARD pare_status pare_moments_new(pare_ctx *ctx, pare_moments **out, int64_t columns,
                                            int64_t outputs);
void pare_moments_free(pare_moments *moments);
/* Adds another's sums: exact in the numbers of rows, rounded once in each sum. */
void pare_moments_add(pare_moments *to, const pare_moments *from);

/* Moments less their means (where centred), plus ridge * mean diagonal, whole; weights times that
   ridge into the right-hand side. a (columns, columns), b (columns, outputs) or NULL. Returns what
   was added to the diagonal. */
double pare_moments_normal(const pare_moments *m, bool centred, double ridge, const double *dense,
                           double *a, double *b);

/* The right-hand side alone; add: the number that pare_moments_normal returned. */
void pare_moments_right(const pare_moments *m, bool centred, double add, const double *dense,
                        double *b);

/* a's inverse in place of `inverse`, where a Cholesky fails with a higher ridge: *ridge in and out.
   a is worthless afterwards. */
PARE_NODISCARD pare_status pare_moments_inverse(pare_ctx *ctx, const pare_moments *m, bool centred,
                                                double *ridge, int threads, double *inverse);

/* Takes runs and makes moments of them, a set of groups each. */
typedef struct pare_observer pare_observer;

/* Bytes of rows that wait to be added, of one set and group. */
size_t pare_observer_panel_bytes(const pare_columns *columns, bool targets);

/* Does a run belong to the fifth to judge by? */
bool pare_is_held_out(int64_t run);

/* sets: 1, or 2 where every fifth run goes to a set of its own, to judge by. targets: is there a t?
   share: of the runs, borrowed; NULL: this process adds all of them, in one block. */
PARE_NODISCARD pare_status pare_observer_new(pare_ctx *ctx, pare_observer **out,
                                             const pare_columns *columns, int sets, bool targets,
                                             const pare_run_share *share, int threads);
void pare_observer_free(pare_observer *observer);
/* Adds one run, `index` the number of it among those of all ranks: x is the node's input; t, and
   where it is not NULL less s, is what the output should be without the node's own bias (both in
   the output's shape). */
PARE_NODISCARD pare_status pare_observer_add(pare_observer *observer, int64_t index, const float *x,
                                             const float *t, const float *s);
/* Adds what is still waiting, and what the other ranks added; once. */
PARE_NODISCARD pare_status pare_observer_finish(pare_observer *observer);
/* Moments of a group; valid after finish, the observer's own. */
pare_moments *pare_observer_moments(const pare_observer *observer, int set, int64_t group);

/* --- conv_gram.c: second moments of what a convolution with stride 1 sees, without its columns
   --- */

/* Moments of one group on their way. */
typedef struct pare_conv_gram pare_conv_gram;

/* Is it quicker that way? Of convolutions with stride 1, more than one tap and enough channels. */
bool pare_conv_gram_can(const pare_columns *columns);
/* What pare_conv_gram_new asks for. */
size_t pare_conv_gram_bytes(const pare_columns *columns, bool targets);
PARE_NODISCARD pare_status pare_conv_gram_new(pare_ctx *ctx, pare_conv_gram **out,
                                              const pare_columns *columns, bool targets,
                                              int threads);
void pare_conv_gram_free(pare_conv_gram *shifts);
/* Adds a run as pare_observer_add does; what a full portion comes to goes into sum. */
PARE_NODISCARD pare_status pare_conv_gram_add(pare_conv_gram *shifts, int64_t group, const float *x,
                                              const float *t, const float *s, pare_moments *sum);
/* Adds what is still waiting, and what shifted planes came to; then it is as new. */
PARE_NODISCARD pare_status pare_conv_gram_finish(pare_conv_gram *shifts, pare_moments *sum);

#endif
