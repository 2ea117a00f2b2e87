/* SPDX-License-Identifier: Apache-2.0 */
/* Two runs of one runner in flight: while one computes, the inputs of the next go up and the
   outputs of the one before come down. Copies have streams of their own, and go by way of memory
   of the device that no step touches: recorded steps keep their addresses, and there is one set of
   activations. What that costs is a copy within the device of what goes up and what comes down, at
   a fiftieth of the time that the link to the host takes. Run n, with events between the streams:

     in        waits for taken;  inputs of set n % 2 go up;                           marks up
     steps     waits for up;     they are copied to where steps read them;            marks taken
               the steps; waits for down of run n - 1; outputs are copied out;        marks made
     out       waits for made;   outputs come down to set n % 2;                      marks down

   So inputs of run n + 1 go up once run n has taken its own. A wait means the mark that was made
   last before it; one before the first mark does not wait. */
#include "runtime/base/size.h"
#include "runtime/exec/runner.h"

#include <assert.h>

enum { ALIGN = 256 };

/* --- making it --- */

/* An output that is an input has the host's bytes of it, of which there would be two sets. */
static bool can_run_ahead(const pare_runner *r)
{
    const pare_device *d = r->plan->options.device;
    if (!d || !d->sharing || r->stream || r->use_count || r->times || r->phases) return false;
    for (int i = 0; i < r->plan->output_count; i++)
        if (r->plan->stays[i]) return false;
    return true;
}

static pare_status lists_open(pare_runner *r, pare_ahead *a)
{
    const size_t in = (size_t)r->plan->input_count + 1, out = (size_t)r->plan->output_count + 1;
    a->input = pare_arena_alloc(&r->arena, in, sizeof *a->input);
    a->output = pare_arena_alloc(&r->arena, out, sizeof *a->output);
    if (!a->input || !a->output) return PARE_MEMORY;
    for (int set = 0; set < 2; set++) {
        a->host_input[set] = pare_arena_alloc(&r->arena, in, sizeof *a->host_input[set]);
        a->host_output[set] = pare_arena_alloc(&r->arena, out, sizeof *a->host_output[set]);
        if (!a->host_input[set] || !a->host_output[set]) return PARE_MEMORY;
    }
    return PARE_OK;
}

/* Memory of the device for all that goes up and comes down; one block. */
static pare_status staging_open(pare_runner *r, pare_ahead *a)
{
    const pare_plan *p = r->plan;
    pare_device *d = p->options.device;
    void *memory, *to;
    size_t all = 0, at = 0;
    for (int i = 0; i < p->input_count; i++)
        all += pare_align_up(pare_runner_input_bytes(r, i, &to), ALIGN);
    for (int i = 0; i < p->output_count; i++)
        all += pare_align_up(pare_runner_output_bytes(r, i), ALIGN);
    const pare_status st = d->backend->alloc(r->ctx, d, &memory, all);
    if (st != PARE_OK)
        return pare_fail_prefix(r->ctx, st, "%s: %zu bytes to copy while it computes",
                                p->model->path, all);
    a->memory = memory;
    for (int i = 0; i < p->input_count; i++) {
        const size_t bytes = pare_runner_input_bytes(r, i, &to);
        if (bytes) a->input[i] = a->memory + at;
        at += pare_align_up(bytes, ALIGN);
    }
    for (int i = 0; i < p->output_count; i++) {
        const size_t bytes = pare_runner_output_bytes(r, i);
        if (bytes) a->output[i] = a->memory + at;
        at += pare_align_up(bytes, ALIGN);
    }
    return PARE_OK;
}

/* Set 0 is what the runner has. */
static pare_status host_open(pare_runner *r, pare_ahead *a)
{
    enum { BEHIND = 64 }; /* bytes, as behind the runner's own */
    const pare_plan *p = r->plan;
    pare_device *d = p->options.device;
    void *to;
    for (int i = 0; i < p->input_count; i++) {
        const size_t bytes = pare_runner_input_bytes(r, i, &to);
        a->host_input[0][i] = r->own_input[i];
        if (bytes) PARE_TRY(d->streams->pin(r->ctx, d, &a->host_input[1][i], bytes + BEHIND));
    }
    for (int i = 0; i < p->output_count; i++) {
        const size_t bytes = pare_runner_output_bytes(r, i);
        a->host_output[0][i] = r->output[i].data;
        if (bytes) PARE_TRY(d->streams->pin(r->ctx, d, &a->host_output[1][i], bytes + BEHIND));
    }
    return PARE_OK;
}

static pare_status ahead_open(pare_runner *r, pare_ahead *a)
{
    pare_device *d = r->plan->options.device;
    PARE_TRY(lists_open(r, a));
    PARE_TRY(staging_open(r, a));
    PARE_TRY(host_open(r, a));
    PARE_TRY(d->streams->open(r->ctx, d, &a->in));
    PARE_TRY(d->streams->open(r->ctx, d, &a->out));
    PARE_TRY(d->streams->event_open(r->ctx, d, &a->up));
    PARE_TRY(d->streams->event_open(r->ctx, d, &a->taken));
    PARE_TRY(d->streams->event_open(r->ctx, d, &a->made));
    PARE_TRY(d->streams->event_open(r->ctx, d, &a->down[0]));
    return d->streams->event_open(r->ctx, d, &a->down[1]);
}

pare_status pare_runner_run_ahead(pare_runner *r, bool *ahead)
{
    *ahead = false;
    if (!can_run_ahead(r)) return PARE_OK;
    pare_ahead *a = pare_arena_alloc(&r->arena, 1, sizeof *a);
    if (!a) return PARE_MEMORY;
    const pare_status st = ahead_open(r, a);
    r->device->ahead = a;
    *ahead = st == PARE_OK;
    if (st != PARE_OK) pare_ahead_close(r);
    if (st != PARE_MEMORY) return st;
    pare_log(r->ctx, PARE_LOG_INFO, "%s: copies and computing take turns", r->ctx->message);
    pare_ctx_clear(r->ctx);
    return PARE_OK;
}

/* --- the order of a run --- */

/* What goes into `to` from here on follows all that is in `from`. */
static pare_status follow(pare_runner *r, pare_stream *to, pare_stream *from, pare_event *event)
{
    const pare_stream_table *q = r->plan->options.device->streams;
    PARE_TRY(q->event_mark(r->ctx, from, event));
    return q->event_wait(r->ctx, to, event);
}

pare_status pare_ahead_enter(pare_runner *r)
{
    const pare_ahead *a = r->device->ahead;
    assert(a->begun - a->ended < 2 && !r->times && !r->phases);
    if (!a->begun) return PARE_OK;
    return r->plan->options.device->streams->event_wait(r->ctx, a->in, a->taken);
}

pare_status pare_ahead_went_up(pare_runner *r)
{
    const pare_ahead *a = r->device->ahead;
    return follow(r, r->device->stream, a->in, a->up);
}

pare_status pare_ahead_took(pare_runner *r)
{
    return r->plan->options.device->streams->event_mark(r->ctx, r->device->stream,
                                                        r->device->ahead->taken);
}

pare_status pare_ahead_make(pare_runner *r)
{
    const pare_ahead *a = r->device->ahead;
    if (!a->begun) return PARE_OK;
    return r->plan->options.device->streams->event_wait(r->ctx, r->device->stream,
                                                        a->down[(a->begun + 1) % 2]);
}

pare_status pare_ahead_made(pare_runner *r)
{
    const pare_ahead *a = r->device->ahead;
    return follow(r, a->out, r->device->stream, a->made);
}

/* The caller's own memory of an input stays; the runner's alternates. */
static void inputs_turn(pare_runner *r)
{
    const pare_ahead *a = r->device->ahead;
    for (int i = 0; i < r->plan->input_count; i++) {
        if (!a->input[i]) continue;
        void *next = a->host_input[a->begun % 2][i];
        if (r->input[i] == r->own_input[i]) r->input[i] = next;
        r->own_input[i] = next;
    }
}

pare_status pare_ahead_leave(pare_runner *r)
{
    pare_ahead *a = r->device->ahead;
    PARE_TRY(r->plan->options.device->streams->event_mark(r->ctx, a->out, a->down[a->begun % 2]));
    a->begun++;
    inputs_turn(r);
    return PARE_OK;
}

pare_status pare_ahead_land(pare_runner *r, int *set)
{
    pare_ahead *a = r->device->ahead;
    assert(a->ended < a->begun);
    *set = (int)(a->ended++ % 2);
    PARE_TRY(r->plan->options.device->streams->event_sync(r->ctx, a->down[*set]));
    for (int i = 0; i < r->plan->output_count; i++)
        if (a->output[i]) r->output[i].data = a->host_output[*set][i];
    return PARE_OK;
}

/* --- ending it --- */

void pare_ahead_sync(pare_runner *r)
{
    const pare_ahead *a = r->device->ahead;
    const pare_backend *b = r->plan->options.device->backend;
    pare_ctx quiet;
    pare_ctx_init(&quiet);
    if (a && a->in) (void)b->sync(&quiet, a->in);
    if (a && a->out) (void)b->sync(&quiet, a->out);
}

static void events_close(const pare_stream_table *q, pare_ahead *a)
{
    pare_event *const all[] = {a->up, a->taken, a->made, a->down[0], a->down[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) q->event_close(all[i]);
}

/* The runner has set 0 again. */
static void host_close(pare_runner *r, const pare_ahead *a)
{
    pare_device *d = r->plan->options.device;
    for (int i = 0; a->host_input[1] && i < r->plan->input_count; i++) {
        if (!a->host_input[1][i]) continue;
        if (r->input[i] == a->host_input[1][i]) r->input[i] = a->host_input[0][i];
        r->own_input[i] = a->host_input[0][i];
        d->streams->unpin(d, a->host_input[1][i]);
    }
    for (int i = 0; a->host_output[1] && i < r->plan->output_count; i++) {
        if (!a->host_output[1][i]) continue;
        r->output[i].data = a->host_output[0][i];
        d->streams->unpin(d, a->host_output[1][i]);
    }
}

void pare_ahead_close(pare_runner *r)
{
    pare_ahead *a = r->device ? r->device->ahead : NULL;
    pare_device *d = r->plan->options.device;
    if (!a) return;
    pare_ahead_sync(r);
    host_close(r, a);
    events_close(d->streams, a);
    if (a->in) d->streams->close(a->in);
    if (a->out) d->streams->close(a->out);
    d->backend->free(d, a->memory);
    r->device->ahead = NULL;
}
