/* SPDX-License-Identifier: Apache-2.0 */
/* What a device does to score channels by their weights. Numbers come from and go to host memory;
   calls return when they are there. Sums are made in the host's order (prune/score.c,
   prune/score_fpgm.c): every bit is the same. */
#ifndef PARE_RUNTIME_OPS_SCORES_H
#define PARE_RUNTIME_OPS_SCORES_H

#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A weight as (outer, dim, inner); unit part * dim + d holds the elements d of outer indices
   part * outer / parts and on. */
typedef struct pare_score_units {
    int64_t outer, dim, inner, parts;
    bool squares; /* sums of squares, else of magnitudes */
} pare_score_units;

struct pare_score_table {
    /* sum (parts * dim) += over the units' elements in x. */
    pare_status (*units)(pare_ctx *ctx, pare_device *device, double *sum, const float *x,
                         const pare_score_units *units);
    /* sum (count): each += its Euclidean distance to every other row (count, width) of its part, in
       order of rows. */
    pare_status (*distances)(pare_ctx *ctx, pare_device *device, double *sum, const float *rows,
                             const int *part, int count, int64_t width);
};

#ifdef __cplusplus
}
#endif
#endif
