/* SPDX-License-Identifier: Apache-2.0 */
/* How many samples one run of a model takes (internal to calib/). */
#ifndef PARE_CALIB_RUN_BATCH_H
#define PARE_CALIB_RUN_BATCH_H

#include "runtime/graph/graph.h"

/* Samples of a run: the model's fixed batch, 1 where it is free. PARE_UNSUPPORTED: as of
   pare_model_batch. */
PARE_NODISCARD pare_status pare_calib_run_batch(const pare_model *model, int64_t *unit);

/* The whole runs that so many samples make; fails where there are none. */
PARE_NODISCARD pare_status pare_calib_runs(pare_ctx *ctx, const pare_model *model, int64_t unit,
                                           int64_t samples, int64_t *runs);
#endif
