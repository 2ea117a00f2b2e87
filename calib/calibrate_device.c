/* SPDX-License-Identifier: Apache-2.0 */
/* A calibration on a device that can count: two replicas in turn; while one computes and counts,
   the inputs of the other are copied. */
#include "calib/calibrate.h"

#include <string.h>

bool pare_calib_on_device(const pare_calib_job *j)
{
    return j->options->device && j->options->device->samples;
}

static pare_status observe_device(void *user, const pare_value *value, const pare_view *view,
                                  pare_stream *stream)
{
    pare_calib_runner *t = user;
    int at = pare_ranges_place(t->ranges, value->name);
    if (at < 0 || !pare_type_is_float(view->dtype)) return PARE_OK;
    return pare_device_stats_add(t->stats, at, view, t->job->unit, stream);
}

/* Inputs that are stored as pixels become floats on the device. */
static pare_status take_pixels(pare_calib_runner *t)
{
    const pare_calib_job *j = t->job;
    for (int i = 0; i < pare_plan_input_count(j->plan); i++) {
        pare_pixels pixels;
        if (pare_data_take_pixels(j->data, pare_calib_source(j, i), &pixels))
            PARE_TRY(pare_runner_take_pixels(t->replica->runner, i, &pixels));
    }
    return PARE_OK;
}

pare_status pare_calib_open_device(pare_calib_runner *t)
{
    const pare_calib_job *j = t->job;
    PARE_TRY(pare_device_stats_open(&t->replica->ctx, &t->stats, j->options->device, j->name_count,
                                    j->options->minmax_only));
    PARE_TRY(take_pixels(t));
    pare_runner_observe_device(t->replica->runner, observe_device, t);
    return PARE_OK;
}

void pare_calib_close_device(pare_calib_runner *t) { pare_device_stats_close(t->stats); }

/* Inputs go through the runner's own, pinned memory: the batch's is the reader's again afterwards.
 */
void pare_calib_load_device(const pare_calib_job *j, int64_t run, pare_runner *runner)
{
    for (int i = 0; i < pare_plan_input_count(j->plan); i++) {
        const pare_view to = pare_runner_input(runner, i); /* u8 of pixels */
        const size_t bytes = pare_view_bytes(&to);
        memcpy(to.data, pare_calib_input(j, i, run, bytes), bytes);
    }
}

pare_status pare_calib_gather_device(const pare_calib_job *j)
{
    PARE_TRY(pare_replicas_finish(j->pool));
    for (int i = 0; i < j->count; i++) {
        pare_calib_runner *t = &j->runner[i];
        pare_status st = pare_device_stats_fetch(t->stats, t->ranges);
        if (st != PARE_OK) return pare_fail(j->ctx, st, "%s", t->replica->ctx.message);
    }
    return PARE_OK;
}

void pare_calib_log_device(const pare_calib_job *j)
{
    const double mib = 1024 * 1024;
    size_t each = pare_device_stats_bytes(j->name_count, j->options->minmax_only);
    pare_log(j->ctx, PARE_LOG_INFO,
             "%s: %.1f MiB for the weights, %.1f MiB for %d runners, %.1f MiB for the counts of %d "
             "tensors",
             j->options->device->name, (double)pare_plan_weight_bytes(j->plan) / mib,
             (double)j->count * (double)pare_plan_activation_bytes(j->plan) / mib, j->count,
             (double)j->count * (double)each / mib, j->name_count);
}
