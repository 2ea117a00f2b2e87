/* SPDX-License-Identifier: Apache-2.0 */
/* A runner's half on a device. One buffer there holds activations, inputs and scratch; the host
   holds pinned copies of inputs and outputs. Everything goes through one stream, so that its order
   is the only synchronisation, but for branches, which have a second one (side_stream.c), and for
   copies of a run that others follow closely (run_ahead.c); the host waits once, at the end. */
#include "runtime/base/size.h"
#include "runtime/exec/runner.h"
#include "runtime/device/samples.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool is_marked(const pare_runner_device *on, int step)
{
    for (int i = 0; i < on->mark_count; i++)
        if (on->mark[i].step == step) return true;
    return false;
}

/* A step on the host waits for the device and cannot be recorded; it parts what goes before it from
   what follows, as does a sum over microbatches where runs have parts, and a mark. */
static void segments_cut(pare_runner_device *on, const pare_plan *p, bool parts)
{
    on->segment_count = 0;
    for (int i = 0; i < p->step_count; i++) {
        bool host = p->step[i].kernel->flags & PARE_KERNEL_HOST;
        host = host || (parts && pare_is_slice_sum(p->step[i].node));
        pare_segment *last = on->segment_count ? &on->segment[on->segment_count - 1] : NULL;
        if (last && !host && !last->host && !is_marked(on, i - 1))
            last->count++;
        else
            on->segment[on->segment_count++] = (pare_segment){.first = i, .count = 1, .host = host};
    }
}

/* --- wrong values that a run's work found in its data (kernel.h) --- */

static bool can_fault(const pare_plan *p)
{
    for (int i = 0; i < p->step_count; i++)
        if (p->step[i].kernel->fault) return true;
    return false;
}

static pare_status fault_open(pare_runner *r, size_t offset)
{
    pare_runner_device *on = r->device;
    pare_device *d = r->plan->options.device;
    void *seen;
    PARE_TRY(d->streams->pin(r->ctx, d, &seen, 2 * sizeof *on->fault_seen));
    on->fault_seen = seen;
    on->fault = (unsigned long long *)(void *)(on->buffer + offset);
    return PARE_OK;
}

static pare_status fault_clear(pare_runner *r)
{
    pare_runner_device *on = r->device;
    if (!on->fault) return PARE_OK;
    return r->plan->options.device->backend->fill(r->ctx, on->stream, on->fault, 0xff,
                                                  sizeof *on->fault);
}

/* After the run was waited for, whose outputs are in that set. */
static pare_status fault_tell(const pare_runner *r, int set)
{
    const pare_runner_device *on = r->device;
    if (!on->fault || on->fault_seen[set] == ~0ull) return PARE_OK;
    int step = (int)(on->fault_seen[set] >> PARE_FAULT_BITS);
    int64_t value =
        (int64_t)(on->fault_seen[set] & ((1ull << PARE_FAULT_BITS) - 1)) - PARE_FAULT_ZERO;
    return r->plan->step[step].kernel->fault(&r->call[step], value);
}

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
    on->segment = pare_arena_alloc(&r->arena, (size_t)p->step_count + 1, sizeof *on->segment);
    on->raw = pare_arena_alloc(&r->arena, (size_t)p->input_count + 1, sizeof *on->raw);
    on->input_left = pare_arena_alloc(&r->arena, (size_t)p->input_count + 1, 1);
    on->output_left = pare_arena_alloc(&r->arena, (size_t)p->output_count + 1, 1);
    if (!on->output || !on->event || !on->segment || !on->raw || !on->input_left ||
        !on->output_left)
        return PARE_MEMORY;
    segments_cut(on, p, r->stream != NULL);
    on->stream = r->stream;
    if (!on->stream) PARE_TRY(d->streams->open(r->ctx, d, &on->stream));
    PARE_TRY(pare_runner_side_open(r));
    const pare_single *single = r->single ? p->single : NULL;
    const size_t tensors = single ? single->buffer_bytes : p->buffer_bytes;
    const size_t scratch = pare_align_up(single ? single->scratch_bytes : p->scratch_bytes, 256),
                 all = scratch + (single ? 0 : pare_align_up(p->side_scratch_bytes, 256));
    void *buffer;
    char largest[1024];
    pare_plan_largest(p, largest, sizeof largest);
    if (!pare_add_size(tensors, all + 256, &bytes)) bytes = SIZE_MAX;
    pare_status st = d->backend->alloc(r->ctx, d, &buffer, bytes);
    if (st != PARE_OK)
        return pare_fail_prefix(r->ctx, st, "%s: %zu bytes for activations%s", p->model->path,
                                bytes, largest);
    on->buffer = buffer;
    r->scratch = on->buffer + tensors;
    on->side_scratch = single ? r->scratch : r->scratch + scratch;
    return can_fault(p) ? fault_open(r, tensors + all) : PARE_OK;
}

static void pinned_free(pare_runner *r)
{
    pare_device *d = r->plan->options.device;
    for (int i = 0; r->own_input && i < r->plan->input_count; i++)
        if (r->own_input[i]) d->streams->unpin(d, r->own_input[i]);
    for (int i = 0; r->output && i < r->plan->output_count; i++)
        if (r->device->output[i].data) d->streams->unpin(d, r->output[i].data);
    if (r->device->seen) d->streams->unpin(d, r->device->seen);
    if (r->device->fault_seen) d->streams->unpin(d, r->device->fault_seen);
}

void pare_runner_device_close(pare_runner *r)
{
    pare_runner_device *on = r->device;
    if (!on) return;
    pare_device *d = r->plan->options.device;
    pare_ctx quiet;
    pare_ctx_init(
        &quiet); /* after a run that failed, copies may still be at work on pinned memory */
    if (on->stream) (void)d->backend->sync(&quiet, on->stream);
    pare_runner_side_close(r);
    pare_ahead_close(r);
    pinned_free(r);
    for (int i = 0; on->event && i <= r->plan->step_count; i++)
        if (on->event[i]) d->streams->event_close(on->event[i]);
    for (int i = 0; i < PARE_PHASE_ENDS; i++)
        if (on->phase[i]) d->streams->event_close(on->phase[i]);
    for (int i = 0; i < on->segment_count; i++)
        if (on->segment[i].captured) d->streams->drop(on->segment[i].captured);
    for (int i = 0; on->raw && i < r->plan->input_count; i++)
        d->backend->free(d, on->raw[i].memory);
    d->backend->free(d, on->buffer);
    if (on->stream && !r->stream) d->streams->close(on->stream);
}

/* In the runner's buffer. */
static size_t offset_of(const pare_runner *r, const pare_storage *root)
{
    return r->single ? r->plan->single->offset[root - r->plan->root] : root->offset;
}

void *pare_runner_device_address(const pare_runner *r, const pare_storage *root)
{
    switch (root->where) {
    case PARE_AT_CONSTANT:
        return root->uploaded ? (char *)r->plan->device_constants + root->offset : NULL;
    case PARE_AT_INPUT: return root->there ? root->there : r->device->buffer + offset_of(r, root);
    case PARE_AT_BUFFER: return r->device->buffer + offset_of(r, root);
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
    PARE_TRY(d->streams->pin(r->ctx, d, &r->output[i].data, pare_view_bytes(&place->view) + 64));
    r->device->output[i] = place->view;
    r->device->output[i].data = pare_runner_device_address(r, &r->plan->root[place->root]);
    return PARE_OK;
}

pare_status pare_runner_device_show(pare_runner *r, pare_view *view)
{
    pare_runner_device *on = r->device;
    pare_device *d = r->plan->options.device;
    size_t bytes = pare_view_reach(view);
    if (bytes > on->seen_bytes) {
        if (on->seen) d->streams->unpin(d, on->seen);
        on->seen = NULL;
        on->seen_bytes = 0;
        PARE_TRY(d->streams->pin(r->ctx, d, &on->seen, bytes));
        on->seen_bytes = bytes;
    }
    if (bytes) PARE_TRY(d->backend->download(r->ctx, on->stream, on->seen, view->data, bytes));
    PARE_TRY(d->backend->sync(r->ctx, on->stream));
    view->data = on->seen;
    return PARE_OK;
}

/* --- data that are there already --- */

void *pare_runner_input_there(const pare_runner *r, int i)
{
    const pare_plan *p = r->plan;
    const int root = p->input_place[i].root;
    if (!r->device || r->device->raw[i].memory || p->root[root].there) return NULL;
    for (int k = 0; k < p->output_count && !pare_plan_input_stays(p, i); k++)
        if (p->output_place[k].root == root) return NULL;
    return pare_runner_device_address(r, &p->root[root]);
}

const void *pare_runner_output_there(const pare_runner *r, int i)
{
    return r->device && !r->plan->dynamic ? r->device->output[i].data : NULL;
}

const void *pare_runner_find_there(const pare_runner *r, const char *name)
{
    const pare_plan *p = r->plan;
    int root = -1;
    for (int i = 0; i < p->input_count; i++)
        if (!strcmp(p->input[i]->name, name)) root = p->input_place[i].root;
    for (int i = 0; i < p->output_count; i++)
        if (!strcmp(p->model->graph->out.item[i]->name, name)) root = p->output_place[i].root;
    return r->device && root >= 0 ? pare_runner_device_address(r, &p->root[root]) : NULL;
}

void pare_runner_leave_input(pare_runner *r, int i, bool leave)
{
    if (pare_runner_input_there(r, i)) r->device->input_left[i] = leave;
}

void pare_runner_leave_output(pare_runner *r, int i, bool leave)
{
    if (pare_runner_output_there(r, i)) r->device->output_left[i] = leave;
}

pare_stream *pare_runner_stream(const pare_runner *r)
{
    return r->device ? r->device->stream : NULL;
}

static pare_status mark(pare_runner *r, pare_event **event)
{
    pare_device *d = r->plan->options.device;
    if (!*event) PARE_TRY(d->streams->event_open(r->ctx, d, event));
    return d->streams->event_mark(r->ctx, r->device->stream, *event);
}

pare_status pare_runner_device_mark(pare_runner *r, int at)
{
    return mark(r, &r->device->event[at]);
}

static pare_status device_times(pare_runner *r)
{
    const pare_stream_table *q = r->plan->options.device->streams;
    for (int i = 0; i < r->plan->step_count; i++)
        PARE_TRY(
            q->event_seconds(r->ctx, r->device->event[i], r->device->event[i + 1], &r->times[i]));
    return PARE_OK;
}

/* Before phase `end`, or after the last. */
static pare_status phase_mark(pare_runner *r, int end)
{
    return r->phases ? mark(r, &r->device->phase[end]) : PARE_OK;
}

static pare_status phase_times(pare_runner *r)
{
    const pare_stream_table *q = r->plan->options.device->streams;
    pare_event *const *end = r->device->phase;
    pare_phase_times *p = r->phases;
    PARE_TRY(q->event_seconds(r->ctx, end[0], end[1], &p->copy_in));
    PARE_TRY(q->event_seconds(r->ctx, end[1], end[2], &p->compute));
    return q->event_seconds(r->ctx, end[2], end[3], &p->copy_out);
}

/* Of a step that failed a part was recorded: it is not kept. */
static pare_status segment_capture(pare_runner *r, pare_segment *s)
{
    const pare_stream_table *q = r->plan->options.device->streams;
    PARE_TRY(q->capture_begin(r->ctx, r->device->stream));
    pare_status st = pare_runner_steps(r, s->first, s->count);
    pare_status ended = q->capture_end(r->ctx, r->device->stream, &s->captured);
    if (st != PARE_OK && s->captured) {
        q->drop(s->captured);
        s->captured = NULL;
    }
    return st != PARE_OK ? st : ended;
}

/* One step is launched as it is. */
static bool is_played(const pare_segment *s) { return !s->host && s->count > 1; }

bool pare_runner_has_run(const pare_runner *r) { return r->device && r->device->warm; }

bool pare_runner_device_is_recorded(const pare_runner *r)
{
    const pare_runner_device *on = r->device;
    for (int i = 0; i < on->segment_count; i++)
        if (is_played(&on->segment[i]) && !on->segment[i].captured) return false;
    return true;
}

static pare_status segment_play(pare_runner *r, pare_segment *s)
{
    if (!is_played(s)) return pare_runner_steps(r, s->first, s->count);
    if (!s->captured) PARE_TRY(segment_capture(r, s));
    return r->plan->options.device->streams->graph_launch(r->ctx, r->device->stream, s->captured);
}

static pare_status marks_make(pare_runner *r, int step)
{
    const pare_runner_device *on = r->device;
    for (int i = 0; i < on->mark_count; i++)
        if (on->mark[i].step == step)
            PARE_TRY(r->plan->options.device->streams->event_mark(r->ctx, on->stream,
                                                                  on->mark[i].event));
    return PARE_OK;
}

static pare_status steps_once(pare_runner *r, int first, int end)
{
    int at = first;
    do {
        int next = at;
        while (next < end && (next == at || !is_marked(r->device, next - 1))) next++;
        PARE_TRY(pare_runner_steps(r, at, next - at));
        PARE_TRY(marks_make(r, next - 1));
        at = next;
    } while (at < end);
    return PARE_OK;
}

/* The first run goes step by step, because libraries load and choose at their first call; the
   second is recorded; later ones launch the captured graph. */
static pare_status steps_play(pare_runner *r)
{
    pare_runner_device *on = r->device;
    const int end = on->first + on->count;
    pare_runner_side_bind(r);
    if (r->observe || r->times || r->timeline || !on->warm) {
        PARE_TRY(steps_once(r, on->first, end));
        on->warm = on->warm || end == r->plan->step_count;
        return PARE_OK;
    }
    for (int i = 0; i < on->segment_count; i++) {
        pare_segment *s = &on->segment[i];
        if (s->first < on->first || s->first >= end) continue;
        PARE_TRY(segment_play(r, s));
        PARE_TRY(marks_make(r, s->first + s->count - 1));
    }
    return PARE_OK;
}

/* Recorded work has addresses in it, and observers' work. What is at work of it comes to its end.
 */
void pare_runner_device_forget(pare_runner *r)
{
    pare_runner_device *on = r->device;
    for (int i = 0; i < on->segment_count; i++) {
        if (on->segment[i].captured)
            r->plan->options.device->streams->drop(on->segment[i].captured);
        on->segment[i].captured = NULL;
    }
}

void pare_runner_mark(pare_runner *r, const pare_step_mark *marks, int count)
{
    pare_runner_device *on = r->device;
    if (!on) return;
    pare_runner_device_forget(r);
    on->mark = marks;
    on->mark_count = count;
    segments_cut(on, r->plan, r->stream != NULL);
}

/* Steps that can read input i as pixels do; its floats are made where another reads it. */
static void pixels_bind(pare_runner *r, int i)
{
    const pare_plan *p = r->plan;
    pare_raw_input *raw = &r->device->raw[i];
    const int root = p->input_place[i].root;
    raw->floats = false;
    for (int k = 0; k < p->output_count; k++)
        raw->floats = raw->floats || p->output_place[k].root == root;
    for (int k = 0; k < p->step_count; k++) {
        const pare_step *s = &p->step[k];
        pare_call *c = &r->call[k];
        bool first = s->in_count && s->in[0].root == root, other = false;
        for (int j = 1; j < s->in_count; j++) other = other || s->in[j].root == root;
        bool takes = raw->bytes && first && !other && s->kernel->takes_pixels &&
                     s->kernel->takes_pixels(c, &raw->pixels);
        if (first) c->pixels = takes ? &raw->pixels : NULL;
        if (takes) c->raw = raw->bytes;
        raw->floats = raw->floats || other || (first && !takes);
    }
}

pare_status pare_runner_take_pixels(pare_runner *r, int i, const pare_pixels *pixels)
{
    pare_device *d = r->plan->options.device;
    pare_raw_input *raw = &r->device->raw[i];
    assert(!r->device->ahead);
    int64_t n = pare_view_count(&r->plan->input_place[i].view);
    size_t table = (size_t)pixels->channels * 256 * sizeof *pixels->table;
    if (raw->memory) d->backend->free(d, raw->memory);
    pare_runner_device_forget(r);
    *raw = (pare_raw_input){.pixels = *pixels, .samples = n / pixels->count};
    pixels_bind(r, i); /* to none, should what follows fail */
    void *memory;
    pare_status st = d->backend->alloc(r->ctx, d, &memory, table + (size_t)n);
    if (st != PARE_OK)
        return pare_fail_prefix(r->ctx, st, "%s: %zu bytes for the pixels of input '%s'",
                                r->plan->model->path, table + (size_t)n, r->plan->input[i]->name);
    raw->memory = memory;
    PARE_TRY(d->backend->upload(r->ctx, r->device->stream, raw->memory, pixels->table, table));
    PARE_TRY(d->backend->sync(r->ctx, r->device->stream));
    raw->pixels.table = raw->memory;
    raw->bytes = (uint8_t *)raw->memory + table;
    pixels_bind(r, i);
    return PARE_OK;
}

/* One phase of a run, under its name for tools that watch. */
static pare_status phase(pare_runner *r, const char *name, pare_status (*work)(pare_runner *))
{
    const pare_stream_table *q = r->plan->options.device->streams;
    if (!q->range_begin) return work(r);
    q->range_begin(name);
    pare_status st = work(r);
    q->range_end();
    return st;
}

static pare_status work_queue(pare_runner *r, int first, int count)
{
    pare_device *d = r->plan->options.device;
    PARE_TRY(d->streams->enter(r->ctx, d));
    r->device->first = first;
    r->device->count = count;
    if (!first) {
        PARE_TRY(phase_mark(r, 0));
        PARE_TRY(phase(r, "copy in", pare_runner_inputs_upload));
        PARE_TRY(fault_clear(r));
        PARE_TRY(phase_mark(r, 1));
    }
    PARE_TRY(phase(r, "compute", steps_play));
    if (first + count < r->plan->step_count) return PARE_OK;
    if (r->times) PARE_TRY(pare_runner_device_mark(r, r->plan->step_count));
    PARE_TRY(phase_mark(r, 2));
    PARE_TRY(phase(r, "copy out", pare_runner_outputs_download));
    return phase_mark(r, 3);
}

/* A call that waits learns of the failure of any work before it: the message says which that was,
   no nearer than from which node to which. Looking for the node by running again, one at a time, is
   no way out: after a kernel's failure every call of the process fails, those that ask events how
   far the work came as well. */
static pare_status name_run(const pare_runner *r, pare_status st)
{
    const pare_plan *p = r->plan;
    if (st != PARE_DEVICE || !p->step_count) return st;
    if (strstr(r->ctx->message, "node '"))
        return pare_fail_prefix(r->ctx, st, "%s", p->model->path);
    const pare_node *first = p->step[0].node, *last = p->step[p->step_count - 1].node;
    return pare_fail_prefix(r->ctx, st,
                            "%s: node '%s' (%s) to node '%s' (%s), tensor '%s', on %s (with "
                            "CUDA_LAUNCH_BLOCKING=1 in the environment the first run says which)",
                            p->model->path, first->name, first->op_type, last->name, last->op_type,
                            last->out_count && last->out[0] ? last->out[0]->name : "",
                            p->options.device->name);
}

/* After a failure nothing still reads the caller's inputs. */
static pare_status start(pare_runner *r, int first, int count)
{
    pare_status st = work_queue(r, first, count);
    if (st != PARE_OK) (void)r->plan->options.device->backend->sync(r->ctx, r->device->stream);
    if (st != PARE_OK) pare_runner_side_sync(r);
    if (st != PARE_OK) pare_ahead_sync(r);
    return name_run(r, st);
}

pare_status pare_runner_device_start(pare_runner *r) { return start(r, 0, r->plan->step_count); }

pare_status pare_runner_device_part(pare_runner *r, int first, int count)
{
    PARE_TRY(start(r, first, count));
    return first + count < r->plan->step_count ? PARE_OK : pare_runner_device_wait(r);
}

pare_status pare_runner_device_wait(pare_runner *r)
{
    int set = 0;
    pare_status st = r->device->ahead
                         ? pare_ahead_land(r, &set)
                         : r->plan->options.device->backend->sync(r->ctx, r->device->stream);
    if (st == PARE_OK) st = fault_tell(r, set);
    if (st == PARE_OK && r->times) st = device_times(r);
    if (st == PARE_OK && r->phases) st = phase_times(r);
    return name_run(r, st);
}
