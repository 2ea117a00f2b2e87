/* SPDX-License-Identifier: Apache-2.0 */
#include "calib/unit.h"

#include <inttypes.h>

pare_status pare_calib_unit(pare_ctx *ctx, const pare_model *model, int64_t *unit)
{
    const pare_graph *g = model->graph;
    bool seen = false;
    *unit = 1;
    for (int i = 0; i < g->in.count; i++) {
        const pare_value *v = g->in.item[i];
        if (v->is_init) continue;
        int64_t dim = v->shape.rank > 0 && v->shape.dim[0] > 0 ? v->shape.dim[0] : 1;
        if (seen && dim != *unit)
            return PARE_FAIL(ctx, UNSUPPORTED,
                             "%s: input '%s' has %" PRId64 " rows, the one before it %" PRId64
                             "; expected one batch size",
                             model->path, v->name, dim, *unit);
        *unit = dim;
        seen = true;
    }
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
