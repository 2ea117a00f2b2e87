/* SPDX-License-Identifier: Apache-2.0 */
/* What a comparison counts (internal to eval/). The error sums of each sample are made apart and
   added in the order of the samples: neither the batch nor the number of ranks shows in them. Ranks
   keep their samples' sums until the end; then one after the other adds its own to what came before
   it. */
#ifndef PARE_RUNTIME_EVAL_ERROR_TALLY_H
#define PARE_RUNTIME_EVAL_ERROR_TALLY_H

#include "runtime/comm/comm.h"
#include "runtime/eval/eval.h"

typedef struct pare_kept_error {
    pare_candidate *of;
    int output;
    int64_t sample;
    pare_error_stats sums;
} pare_kept_error;

typedef struct pare_error_tally {
    pare_ctx *ctx;
    pare_comm *comm;
    pare_kept_error *kept; /* of ranks alone */
    size_t count, capacity;
} pare_error_tally;

/* Adds `samples` rows of `size` values of an output of model `of` (b) against the first model's
   (a); part: of the first output, for intervals, too. first: the number of the first sample among
   those of all ranks. */
PARE_NODISCARD pare_status pare_error_tally_add(pare_error_tally *tally, pare_candidate *of,
                                                int output, bool part, const float *a,
                                                const float *b, int64_t size, int64_t first,
                                                int samples);

/* Gives all ranks what all ranks counted of the models, and the number of samples. */
PARE_NODISCARD pare_status pare_error_tally_share(pare_error_tally *tally,
                                                  pare_candidate *candidates, int count,
                                                  int64_t *samples);

void pare_error_tally_free(pare_error_tally *tally);
#endif
