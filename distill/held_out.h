/* SPDX-License-Identifier: Apache-2.0 */
/* Validation on samples that are not trained on (internal to distill/). */
#ifndef PARE_DISTILL_HELD_OUT_H
#define PARE_DISTILL_HELD_OUT_H

#include "distill/step.h"

typedef struct pare_held_out {
    pare_ctx *ctx;
    pare_data *data;
    int64_t *sample, count; /* whole microbatches */
    bool labels;            /* there are some, and all of them are classes of the output */
    pare_microbatches *microbatches;
    int threads;
} pare_held_out;

/* How well these weights do. */
PARE_NODISCARD pare_status pare_held_out_score(const pare_held_out *held, const float *values,
                                               pare_distill_score *out);

#endif
