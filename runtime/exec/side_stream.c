/* SPDX-License-Identifier: Apache-2.0 */
/* The second stream of a runner. Events order the two, in runs and in recordings alike: a recording
   that is begun in the first stream follows the fork's event into the second, and the join's event
   brings it back before the recording ends. One pair of events serves all regions: a wait means the
   mark that was made last before it. */
#include "runtime/exec/runner.h"

pare_status pare_runner_side_open(pare_runner *r)
{
    pare_runner_device *on = r->device;
    pare_device *d = r->plan->options.device;
    if (!r->plan->branches || r->single) return PARE_OK;
    PARE_TRY(d->streams->open(r->ctx, d, &on->side));
    PARE_TRY(d->streams->event_open(r->ctx, d, &on->fork));
    return d->streams->event_open(r->ctx, d, &on->join);
}

void pare_runner_side_sync(pare_runner *r)
{
    pare_ctx quiet;
    pare_ctx_init(&quiet);
    if (r->device->side) (void)r->plan->options.device->backend->sync(&quiet, r->device->side);
}

void pare_runner_side_close(pare_runner *r)
{
    pare_runner_device *on = r->device;
    const pare_stream_table *q = r->plan->options.device->streams;
    pare_runner_side_sync(r);
    if (on->fork) q->event_close(on->fork);
    if (on->join) q->event_close(on->join);
    if (on->side) q->close(on->side);
}

void pare_runner_side_bind(pare_runner *r)
{
    pare_runner_device *on = r->device;
    const bool watched = r->observe || r->observe_device || r->times || r->timeline;
    const bool apart = on->side && !watched && !on->mark_count;
    if (apart == on->apart) return;
    on->apart = apart;
    for (int i = 0; i < r->plan->step_count; i++)
        if (r->plan->step[i].side) r->call[i].stream = apart ? on->side : on->stream;
}

/* What goes into `to` from here on follows all that is in `from`. */
static pare_status follow(pare_runner *r, pare_stream *to, pare_stream *from, pare_event *event)
{
    const pare_stream_table *q = r->plan->options.device->streams;
    PARE_TRY(q->event_mark(r->ctx, from, event));
    return q->event_wait(r->ctx, to, event);
}

pare_status pare_runner_side_fork(pare_runner *r, int i)
{
    pare_runner_device *on = r->device;
    if (!on->apart || !r->plan->step[i].forks) return PARE_OK;
    return follow(r, on->side, on->stream, on->fork);
}

pare_status pare_runner_side_join(pare_runner *r, int i)
{
    pare_runner_device *on = r->device;
    if (!on->apart || !r->plan->step[i].joins) return PARE_OK;
    return follow(r, on->stream, on->side, on->join);
}
