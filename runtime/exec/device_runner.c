/* SPDX-License-Identifier: Apache-2.0 */
/* A runner's half on a device. One buffer there holds activations, inputs and scratch; the host holds
   pinned copies of inputs and outputs. Everything goes through one queue, so that its order is the
   only synchronisation; the host waits once, at the end. */
#include "runtime/base/size.h"
#include "runtime/exec/runner.h"

#include <stdlib.h>

pare_status pare_runner_device_open(pare_runner *r)
{
    const pare_plan *p = r->plan;
    pare_device *d = p->options.device;
    size_t bytes;
    pare_runner_device *on = pare_arena_alloc(&r->arena, 1, sizeof *on);
    if (!on) return PARE_MEMORY;
    r->device = on;
    on->output = pare_arena_alloc(&r->arena, (size_t)p->output_count + 1, sizeof *on->output);
    on->event = pare_arena_alloc(&r->arena, (size_t)p->step_count + 1, sizeof *on->event);
    if (!on->output || !on->event) return PARE_MEMORY;
    PARE_TRY(d->queues->open(r->ctx, d, &on->queue));
    if (!pare_add_size(p->buffer_bytes, p->scratch_bytes + 256, &bytes))
        return PARE_FAIL(r->ctx, MEMORY, "%s: activations do not fit in memory", p->model->path);
    void *buffer;
    pare_status st = d->backend->alloc(r->ctx, d, &buffer, bytes);
    if (st != PARE_OK)
        return pare_fail_prefix(r->ctx, st, "%s: activations (a smaller batch needs less)",
                                p->model->path);
    on->buffer = buffer;
    r->scratch = on->buffer + p->buffer_bytes;
    return PARE_OK;
}

static void pinned_free(pare_runner *r)
{
    pare_device *d = r->plan->options.device;
    for (int i = 0; r->own_input && i < r->plan->input_count; i++)
        if (r->own_input[i]) d->queues->unpin(d, r->own_input[i]);
    for (int i = 0; r->output && i < r->plan->output_count; i++)
        if (r->device->output[i].data) d->queues->unpin(d, r->output[i].data);
    if (r->device->seen) d->queues->unpin(d, r->device->seen);
}

void pare_runner_device_close(pare_runner *r)
{
    pare_runner_device *on = r->device;
    if (!on) return;
    pare_device *d = r->plan->options.device;
    pinned_free(r);
    for (int i = 0; on->event && i <= r->plan->step_count; i++)
        if (on->event[i]) d->queues->event_close(on->event[i]);
    if (on->recording) d->queues->drop(on->recording);
    d->backend->free(d, on->buffer);
    if (on->queue) d->queues->close(on->queue);
}

void *pare_runner_device_address(const pare_runner *r, const pare_root *root)
{
    switch (root->where) {
    case PARE_AT_CONSTANT:
        return root->uploaded ? (char *)r->plan->device_constants + root->offset : NULL;
    case PARE_AT_INPUT:
    case PARE_AT_BUFFER: return r->device->buffer + root->offset;
    case PARE_AT_NOWHERE: break;
    }
    return NULL;
}

pare_status pare_runner_device_output(pare_runner *r, int i)
{
    const pare_place *place = &r->plan->output_place[i];
    pare_device *d = r->plan->options.device;
    r->output[i] = place->view;
    r->output[i].data = NULL;
    PARE_TRY(d->queues->pin(r->ctx, d, &r->output[i].data, pare_view_bytes(&place->view) + 64));
    r->device->output[i] = place->view;
    r->device->output[i].data = pare_runner_device_address(r, &r->plan->root[place->root]);
    return PARE_OK;
}

pare_status pare_runner_device_show(pare_runner *r, pare_view *view)
{
    pare_runner_device *on = r->device;
    pare_device *d = r->plan->options.device;
    size_t bytes = pare_view_bytes(view);
    if (bytes > on->seen_bytes) {
        if (on->seen) d->queues->unpin(d, on->seen);
        on->seen = NULL;
        on->seen_bytes = 0;
        PARE_TRY(d->queues->pin(r->ctx, d, &on->seen, bytes));
        on->seen_bytes = bytes;
    }
    if (bytes) PARE_TRY(d->backend->download(r->ctx, on->queue, on->seen, view->data, bytes));
    PARE_TRY(d->backend->sync(r->ctx, on->queue));
    view->data = on->seen;
    return PARE_OK;
}

pare_status pare_runner_device_mark(pare_runner *r, int at)
{
    pare_runner_device *on = r->device;
    pare_device *d = r->plan->options.device;
    if (!on->event[at]) PARE_TRY(d->queues->event_open(r->ctx, d, &on->event[at]));
    return d->queues->event_mark(r->ctx, on->queue, on->event[at]);
}

pare_status pare_runner_device_times(pare_runner *r)
{
    const pare_queue_table *q = r->plan->options.device->queues;
    for (int i = 0; i < r->plan->step_count; i++)
        PARE_TRY(q->event_seconds(r->ctx, r->device->event[i], r->device->event[i + 1],
                                  &r->times[i]));
    return PARE_OK;
}

/* The first run goes step by step, because libraries load and choose at their first call; the second
   is recorded; later ones play the recording. */
static pare_status steps_play(pare_runner *r)
{
    pare_runner_device *on = r->device;
    const pare_queue_table *q = r->plan->options.device->queues;
    if (r->observe || r->times || !r->plan->recordable || !on->warm) {
        on->warm = true;
        return pare_runner_steps(r);
    }
    if (!on->recording) {
        PARE_TRY(q->record_begin(r->ctx, on->queue));
        pare_status st = pare_runner_steps(r);
        pare_status ended = q->record_end(r->ctx, on->queue, &on->recording);
        if (st != PARE_OK || ended != PARE_OK) return st != PARE_OK ? st : ended;
    }
    return q->play(r->ctx, on->queue, on->recording);
}

static pare_status inputs_upload(pare_runner *r)
{
    const pare_plan *p = r->plan;
    for (int i = 0; i < p->input_count; i++) {
        size_t bytes = pare_view_bytes(&p->input_place[i].view);
        const pare_root *root = &p->root[p->input_place[i].root];
        if (bytes)
            PARE_TRY(p->options.device->backend->upload(r->ctx, r->device->queue,
                                                        pare_runner_device_address(r, root),
                                                        r->input[i], bytes));
    }
    return PARE_OK;
}

static pare_status outputs_download(pare_runner *r)
{
    const pare_backend *b = r->plan->options.device->backend;
    for (int i = 0; i < r->plan->output_count; i++) {
        const pare_view *there = &r->device->output[i];
        size_t bytes = there->data ? pare_view_bytes(there) : 0;
        if (bytes)
            PARE_TRY(b->download(r->ctx, r->device->queue, r->output[i].data, there->data, bytes));
    }
    return b->sync(r->ctx, r->device->queue);
}

pare_status pare_runner_device_run(pare_runner *r)
{
    PARE_TRY(inputs_upload(r));
    PARE_TRY(steps_play(r));
    if (r->times) PARE_TRY(pare_runner_device_mark(r, r->plan->step_count));
    PARE_TRY(outputs_download(r));
    return r->times ? pare_runner_device_times(r) : PARE_OK;
}
