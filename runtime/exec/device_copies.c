/* SPDX-License-Identifier: Apache-2.0 */
/* What a run brings to its device and back. Without `ahead` all of it is in the stream of the
   steps. */
#include "runtime/device/samples.h"
#include "runtime/exec/runner.h"

static pare_status copy_begin(pare_runner *r, pare_lane lane, const pare_value *v, size_t bytes,
                              pare_stream *stream)
{
    pare_span span = {.name = v->name, .track = r->track, .lane = lane, .step = -1, .bytes = bytes};
    return r->timeline ? pare_timeline_begin(r->timeline, stream, &span) : PARE_OK;
}

static pare_status copy_end(pare_runner *r, pare_stream *stream)
{
    return r->timeline ? pare_timeline_end(r->timeline, stream) : PARE_OK;
}

/* From memory of the device to memory of it, in the stream of the steps. */
static pare_status copy_there(pare_runner *r, void *to, const void *from, size_t bytes)
{
    return r->plan->options.device->sharing->copy(r->ctx, r->device->stream, to, from, bytes);
}

/* --- inputs --- */

size_t pare_runner_input_bytes(const pare_runner *r, int i, void **to)
{
    const pare_plan *p = r->plan;
    const pare_storage *root = &p->root[p->input_place[i].root];
    const pare_raw_input *raw = &r->device->raw[i];
    if (root->there || r->device->input_left[i] || pare_plan_input_stays(p, i)) return 0;
    *to = raw->memory ? (void *)raw->bytes : pare_runner_device_address(r, root);
    return raw->memory ? (size_t)(raw->samples * raw->pixels.count)
                       : pare_view_bytes(&p->input_place[i].view);
}

/* Pixels go up as they are stored, a quarter of the bytes, and become floats there where a step or
   an observer wants these. */
static pare_status pixels_widen(pare_runner *r, int i)
{
    const pare_raw_input *raw = &r->device->raw[i];
    const pare_plan *p = r->plan;
    if (!raw->memory || (!raw->floats && !r->observe && !r->observe_device)) return PARE_OK;
    void *to = pare_runner_device_address(r, &p->root[p->input_place[i].root]);
    return p->options.device->samples->pixels(r->ctx, r->device->stream, to, raw->bytes,
                                              &raw->pixels, raw->samples);
}

static pare_status input_upload(pare_runner *r, int i)
{
    const pare_ahead *ahead = r->device->ahead;
    pare_stream *stream = ahead ? ahead->in : r->device->stream;
    void *to;
    const size_t bytes = pare_runner_input_bytes(r, i, &to);
    if (!bytes) return PARE_OK;
    PARE_TRY(copy_begin(r, PARE_LANE_IN, r->plan->input[i], bytes, stream));
    PARE_TRY(r->plan->options.device->backend->upload(r->ctx, stream, ahead ? ahead->input[i] : to,
                                                      r->input[i], bytes));
    if (!ahead) PARE_TRY(pixels_widen(r, i));
    return copy_end(r, stream);
}

static pare_status input_take(pare_runner *r, int i)
{
    void *to;
    const size_t bytes = pare_runner_input_bytes(r, i, &to);
    if (!bytes) return PARE_OK;
    PARE_TRY(copy_there(r, to, r->device->ahead->input[i], bytes));
    return pixels_widen(r, i);
}

pare_status pare_runner_inputs_upload(pare_runner *r)
{
    const bool ahead = r->device->ahead != NULL;
    if (ahead) PARE_TRY(pare_ahead_enter(r));
    for (int i = 0; i < r->plan->input_count; i++) PARE_TRY(input_upload(r, i));
    if (!ahead) return PARE_OK;
    PARE_TRY(pare_ahead_went_up(r));
    for (int i = 0; i < r->plan->input_count; i++) PARE_TRY(input_take(r, i));
    return pare_ahead_took(r);
}

/* --- outputs --- */

size_t pare_runner_output_bytes(const pare_runner *r, int i)
{
    const pare_view *there = &r->device->output[i];
    return there->data && !r->device->output_left[i] ? pare_view_bytes(there) : 0;
}

static pare_status output_download(pare_runner *r, int i)
{
    const pare_ahead *ahead = r->device->ahead;
    pare_stream *stream = ahead ? ahead->out : r->device->stream;
    const size_t bytes = pare_runner_output_bytes(r, i);
    const void *from = ahead ? ahead->output[i] : r->device->output[i].data;
    void *to = ahead ? ahead->host_output[ahead->begun % 2][i] : r->output[i].data;
    if (!bytes) return PARE_OK;
    PARE_TRY(copy_begin(r, PARE_LANE_OUT, r->plan->model->graph->out.item[i], bytes, stream));
    PARE_TRY(r->plan->options.device->backend->download(r->ctx, stream, to, from, bytes));
    return copy_end(r, stream);
}

/* What the run's work found wrong in its data. */
static pare_status fault_fetch(pare_runner *r)
{
    pare_runner_device *on = r->device;
    if (!on->fault) return PARE_OK;
    const int set = on->ahead ? (int)(on->ahead->begun % 2) : 0;
    return r->plan->options.device->backend->download(r->ctx, on->stream, &on->fault_seen[set],
                                                      on->fault, sizeof *on->fault);
}

static pare_status outputs_make(pare_runner *r)
{
    PARE_TRY(pare_ahead_make(r));
    for (int i = 0; i < r->plan->output_count; i++) {
        const size_t bytes = pare_runner_output_bytes(r, i);
        if (!bytes) continue;
        PARE_TRY(copy_there(r, r->device->ahead->output[i], r->device->output[i].data, bytes));
    }
    PARE_TRY(fault_fetch(r));
    return pare_ahead_made(r);
}

pare_status pare_runner_outputs_download(pare_runner *r)
{
    const bool ahead = r->device->ahead != NULL;
    if (ahead) PARE_TRY(outputs_make(r));
    for (int i = 0; i < r->plan->output_count; i++) PARE_TRY(output_download(r, i));
    return ahead ? pare_ahead_leave(r) : fault_fetch(r);
}
