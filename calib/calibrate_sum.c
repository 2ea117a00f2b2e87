/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a calibration run: the runners' counts become one table. */
#include "calib/calibrate.h"
#include "runtime/ops/ops.h"

#include <inttypes.h>

/* A tensor that is another one under a new shape, and whose own node the plan fused away, is shown
   to no observer: it has the other's values. */
static const pare_histogram *seen_as(const pare_calib_job *j, const pare_ranges *r,
                                     const char *name)
{
    const pare_value *v = pare_graph_find_own(j->model->graph, name);
    while (v && v->producer) {
        const pare_op *op = pare_op_of(v->producer);
        if (!op || !op->cpu[0] || !(op->cpu[0]->flags & PARE_KERNEL_ALIAS)) break;
        v = v->producer->in[0];
        int at = v ? pare_ranges_place(r, v->name) : -1;
        if (at >= 0 && r->stats[at].histogram->count) return r->stats[at].histogram;
    }
    return NULL;
}

static pare_status fill_gaps(const pare_calib_job *j, pare_ranges *out)
{
    for (int i = 0; i < out->count; i++) {
        const pare_histogram *twin = seen_as(j, out, out->stats[i].name);
        if (!out->stats[i].histogram->count && twin)
            PARE_TRY(pare_histogram_merge(j->ctx, out->stats[i].histogram, twin));
    }
    return PARE_OK;
}

/* Tensors that no run computed (constant for this shape) leave the table. */
static void drop_gaps(const pare_calib_job *j, pare_ranges *out)
{
    int kept = 0;
    for (int i = 0; i < out->count; i++) {
        pare_stats s = out->stats[i];
        if (s.histogram->count) {
            out->stats[kept++] = s;
            continue;
        }
        if (!j->options->minmax_only)
            pare_log(j->ctx, PARE_LOG_WARNING,
                     "tensor '%s' is not computed from the data: it has no range", s.name);
        pare_stats_drop(&s);
    }
    out->count = kept;
}

static pare_status add_stats(const pare_calib_job *j, pare_stats *to, const pare_stats *from)
{
    PARE_TRY(pare_histogram_merge(j->ctx, to->histogram, from->histogram));
    return pare_channels_merge(j->ctx, to->channels, from->channels);
}

void pare_ranges_warn(pare_ctx *ctx, const pare_ranges *r)
{
    for (int i = 0; i < r->count; i++) {
        const pare_histogram *h = r->stats[i].histogram;
        if (h->nan || (h->inf && !r->minmax_only)) /* a mask of -Inf is meant */
            pare_log(ctx, PARE_LOG_WARNING,
                     "tensor '%s' has %" PRIu64 " NaN and %" PRIu64 " infinite values",
                     r->stats[i].name, h->nan, h->inf);
    }
}

pare_status pare_calib_add_up(const pare_calib_job *j, pare_ranges *out)
{
    for (int t = 0; t < j->count; t++)
        for (int i = 0; i < out->count; i++)
            PARE_TRY(add_stats(j, &out->stats[i], &j->runner[t].ranges->stats[i]));
    PARE_TRY(fill_gaps(j, out));
    drop_gaps(j, out);
    pare_ranges_warn(j->ctx, out);
    return PARE_OK;
}
