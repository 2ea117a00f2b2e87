/* SPDX-License-Identifier: Apache-2.0 */
/* A calibration on a device that can count: one thread feeds two runners in turn; while one
   computes and counts, the other's input is copied. */
#include "calib/calibrate.h"

#include <string.h>

bool pare_calib_is_there(const pare_calib_job *j)
{
    return j->options->device && j->options->device->samples;
}

static pare_status observe_there(void *user, const pare_value *value, const pare_view *view,
                                 pare_queue *queue)
{
    pare_calib_runner *t = user;
    int at = pare_ranges_place(t->ranges, value->name);
    if (at < 0 || !pare_type_is_float(view->dtype)) return PARE_OK;
    return pare_device_stats_add(t->stats, at, view, t->job->unit, queue);
}

/* Inputs that are stored as pixels become floats on the device. */
static pare_status take_pixels(pare_calib_runner *t)
{
    const pare_calib_job *j = t->job;
    for (int i = 0; i < pare_plan_input_count(j->plan); i++) {
        pare_pixels pixels;
        if (pare_data_take_pixels(j->data, pare_calib_source(j, i), &pixels))
            PARE_TRY(pare_runner_take_pixels(t->runner, i, &pixels));
    }
    return PARE_OK;
}

pare_status pare_calib_open_there(pare_calib_runner *t)
{
    const pare_calib_job *j = t->job;
    PARE_TRY(pare_device_stats_open(&t->ctx, &t->stats, j->options->device, j->name_count,
                                    j->options->extremes));
    PARE_TRY(take_pixels(t));
    pare_runner_observe_there(t->runner, observe_there, t);
    return PARE_OK;
}

static pare_status finish(pare_calib_runner *t)
{
    if (!t->busy) return PARE_OK;
    t->busy = false;
    return pare_runner_wait(t->runner);
}

void pare_calib_close_there(pare_calib_runner *t)
{
    if (finish(t) != PARE_OK) pare_ctx_clear(&t->ctx);
    pare_device_stats_close(t->stats);
}

/* Inputs go through the runner's own, pinned memory: the batch's is the reader's again afterwards.
 */
static pare_status start_unit(pare_calib_runner *t, int64_t index)
{
    const pare_calib_job *j = t->job;
    PARE_TRY(finish(t));
    for (int i = 0; i < pare_plan_input_count(j->plan); i++) {
        int from = pare_calib_source(j, i);
        pare_view to = pare_runner_input(t->runner, i);
        size_t bytes = pare_view_bytes(&to);
        memcpy(to.data, (const char *)j->batch.input[from] + (size_t)index * bytes, bytes);
    }
    pare_calib_trace(t);
    PARE_TRY(pare_runner_start(t->runner));
    t->busy = true;
    return PARE_OK;
}

pare_status pare_calib_batch_there(pare_calib_job *j, const pare_batch *batch)
{
    j->batch = *batch;
    for (int64_t i = 0; i * j->unit < batch->count; i++) {
        pare_calib_runner *t = &j->runner[j->next++ % j->threads];
        pare_status st = start_unit(t, i);
        if (st != PARE_OK) return pare_fail(j->ctx, st, "%s", t->ctx.message);
    }
    return PARE_OK;
}

pare_status pare_calib_gather_there(const pare_calib_job *j)
{
    for (int i = 0; i < j->threads; i++) {
        pare_calib_runner *t = &j->runner[i];
        pare_status st = finish(t);
        if (st == PARE_OK) st = pare_device_stats_fetch(t->stats, t->ranges);
        if (st != PARE_OK) return pare_fail(j->ctx, st, "%s", t->ctx.message);
    }
    return PARE_OK;
}

void pare_calib_say_there(const pare_calib_job *j)
{
    const double mib = 1024 * 1024;
    size_t each = pare_device_stats_bytes(j->name_count, j->options->extremes);
    pare_log(j->ctx, PARE_LOG_INFO,
             "%s: %.1f MiB for the weights, %.1f MiB for %d runners, %.1f MiB for the counts of %d "
             "tensors",
             j->options->device->name, (double)pare_plan_weight_bytes(j->plan) / mib,
             (double)j->threads * (double)pare_plan_activation_bytes(j->plan) / mib, j->threads,
             (double)j->threads * (double)each / mib, j->name_count);
}
