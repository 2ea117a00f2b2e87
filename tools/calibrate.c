/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/calibrate.h"

#include "tools/memory.h"
#include "tools/progress.h"
#include "tools/trace.h"
#include "tools/vitals.h"

/* Where a trace goes. */
typedef struct trace_file {
    pare_ctx *ctx;
    const char *path, *model;
} trace_file;

static pare_status traced(void *user, const pare_timeline *timeline, const pare_plan *plan)
{
    const trace_file *t = user;
    return pare_trace_write(t->ctx, t->path, t->model, timeline, plan);
}

static void planned(void *user, size_t bytes) { pare_say_memory(user, bytes); }

pare_status pare_tool_calibrate_on(pare_tool *tool, pare_ranges **out, const pare_model *prepared,
                                   const char *model_hash, const pare_source_options *options,
                                   const pare_source *source, bool extremes, const char *trace)
{
    enum { FEW_SAMPLES = 100 };
    pare_progress bar;
    if (source->count < FEW_SAMPLES)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "%lld samples are few: ranges may be too narrow; %d are advised",
                 (long long)source->count, PARE_CALIBRATION_SAMPLES);
    pare_progress_begin(&bar, stderr, tool->common->quiet, "calibrate", "samples");
    trace_file file = {tool->ctx, trace, prepared->path};
    pare_calib_options calib = {
        .samples = source->samples,
        .sample_count = source->count,
        .batch = (int)options->batch,
        .threads = (int)tool->common->threads,
        .device = tool->device,
        .model_hash = model_hash,
        .extremes = extremes,
        .progress = pare_progress_step,
        .progress_user = &bar,
        .planned = planned,
        .planned_user = tool,
        .traced = trace ? traced : NULL,
        .traced_user = &file,
    };
    pare_watch *watch = NULL;
    pare_status st = pare_watch_start(tool->ctx, &watch, tool->device);
    if (st == PARE_OK) st = pare_calibrate(tool->ctx, out, prepared, source->data, &calib);
    double seconds = pare_seconds() - bar.start;
    pare_progress_end(&bar);
    json_t *device = watch ? pare_watch_end(watch) : NULL;
    if (st == PARE_OK && !device) st = PARE_MEMORY;
    if (device) json_object_set_new(tool->facts, "device", device);
    if (st != PARE_OK) return st;
    json_t *data = pare_source_json(source, options);
    json_object_set_new(data, "seconds", json_real(seconds));
    json_object_set_new(tool->facts, "data", data);
    return PARE_OK;
}

pare_status pare_tool_calibrate(pare_tool *tool, pare_ranges **out, const pare_model *prepared,
                                const char *model_hash, const pare_source_options *options,
                                bool extremes, const char *trace)
{
    pare_source source;
    PARE_TRY(pare_source_open(tool, &source, prepared, options, PARE_CALIBRATION_SAMPLES));
    pare_status st =
        pare_tool_calibrate_on(tool, out, prepared, model_hash, options, &source, extremes, trace);
    pare_source_close(&source);
    return st;
}
