/* SPDX-License-Identifier: Apache-2.0 */
#include "calib/run_batch.h"

#include <inttypes.h>

pare_status pare_calib_run_batch(const pare_model *model, int64_t *unit)
{
    PARE_TRY(pare_model_batch(model, unit));
    if (!*unit) *unit = 1;
    return PARE_OK;
}

pare_status pare_calib_runs(pare_ctx *ctx, const pare_model *model, int64_t unit, int64_t samples,
                            int64_t *runs)
{
    *runs = samples / unit;
    if (*runs > 0) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "%s: its batch is fixed to %" PRId64 ", but only %" PRId64
                     " samples were given",
                     model->path, unit, samples);
}
