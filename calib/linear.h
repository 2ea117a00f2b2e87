/* SPDX-License-Identifier: Apache-2.0 */
/* Dense linear algebra in float64, for second moments and least squares. Matrices are row-major; of
   a symmetric one the upper triangle counts. Work is shared out so that each number is computed by
   one thread in one order: results do not depend on how many threads there are.

   Own code in place of a LAPACK: OpenBLAS adds up in an order that follows its number of threads,
   and four kernels are all that is needed. */
#ifndef PARE_CALIB_LINEAR_H
#define PARE_CALIB_LINEAR_H

#include "runtime/base/ctx.h"

/* A part of a matrix: rows `step` numbers apart. */
typedef struct pare_mat_view {
    double *data;
    int64_t step;
} pare_mat_view;

/* c (m, n) += sign * a^T b with a (rows, m), b (rows, n); upper: only where column >= row (tiles of
   8 x 16 on the diagonal are written whole). sign is 1 or -1. */
PARE_NODISCARD pare_status pare_linear_product(pare_ctx *ctx, pare_mat_view c, pare_mat_view a,
                                               pare_mat_view b, int64_t rows, int64_t m, int64_t n,
                                               double sign, bool upper, int threads);

/* The same of rows that are anywhere: row r of a at a[r], of b at b[r]. Done by the caller's thread
   alone. */
PARE_NODISCARD pare_status pare_linear_gathered(pare_ctx *ctx, pare_mat_view c,
                                                const double *const *a, const double *const *b,
                                                int64_t rows, int64_t m, int64_t n, double sign,
                                                bool upper);

/* a = u^T u in place (n, n), upper triangle. *ok is false where a is not positive definite (or not
   finite); a is then worthless. */
PARE_NODISCARD pare_status pare_linear_cholesky(pare_ctx *ctx, pare_mat_view a, int64_t n,
                                                int threads, bool *ok);

/* The same of a small matrix, in place, alone and without scratch; false where a is not positive
   definite. */
bool pare_linear_cholesky_small(pare_mat_view a, int64_t n);

/* Solves u^T u x = b in place: b (n, columns). */
PARE_NODISCARD pare_status pare_linear_solve(pare_ctx *ctx, pare_mat_view u, int64_t n,
                                             pare_mat_view b, int64_t columns, int threads);

/* out (n, n) = (u^T u)^-1, whole. */
PARE_NODISCARD pare_status pare_linear_inverse(pare_ctx *ctx, double *out, pare_mat_view u,
                                               int64_t n, int threads);

/* Solves u^T u x = b for one right-hand side, without scratch. */
void pare_linear_solve_one(const double *u, int64_t step, int64_t n, double *b);

/* The lower triangle of a (n, n) becomes what the upper one says. */
void pare_linear_fill_lower(double *a, int64_t n);

/* y -= f x */
void pare_linear_take(double *y, const double *x, double f, int64_t n);
#endif
