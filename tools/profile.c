/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/profile.h"

#include "formats/json.h"
#include "tools/stats.h"

enum { RUNS = 21 };

static json_t *step_json(const pare_step_info *info, double ms, double all_ms)
{
    json_t *shape = json_array();
    for (int d = 0; d < info->shape.rank; d++)
        json_array_append_new(shape, json_integer(info->shape.dim[d]));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:f, s:f, s:f}", "node", info->node,
                     "op_type", info->op_type, "kernel", info->kernel, "precision",
                     pare_type(info->dtype)->name, "output", info->output, "shape", shape,
                     "bytes_in", (json_int_t)info->bytes_in, "bytes_out",
                     (json_int_t)info->bytes_out, "macs", info->macs, "time_ms", ms, "share",
                     all_ms > 0 ? ms / all_ms : 0.0);
}

static json_t *profile_json(const pare_plan *plan, const char *model, const double *median_ms)
{
    json_t *steps = json_array();
    double all = 0;
    int count = pare_plan_step_count(plan);
    for (int i = 0; i < count; i++) all += median_ms[i];
    for (int i = 0; i < count; i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        json_array_append_new(steps, step_json(&info, median_ms[i], all));
    }
    return json_pack("{s:i, s:s, s:s, s:f, s:o}", "schema", 1, "command", "profile", "model", model,
                     "time_ms", all, "steps", steps);
}

/* One complete event ("ph": "X") per step, in microseconds, one after the other. */
static json_t *trace_json(const pare_plan *plan, const double *seconds)
{
    json_t *events = json_array();
    double at = 0;
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        json_array_append_new(
            events,
            json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:s, s:s, s:I, s:I}}", "name",
                      *info.node ? info.node : info.output, "cat", info.op_type, "ph", "X", "pid",
                      1, "tid", 1, "ts", at * 1e6, "dur", seconds[i] * 1e6, "args", "kernel",
                      info.kernel, "precision", pare_type(info.dtype)->name, "bytes_in",
                      (json_int_t)info.bytes_in, "bytes_out", (json_int_t)info.bytes_out));
        at += seconds[i];
    }
    return json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ms");
}

static pare_status write_and_free(pare_ctx *ctx, json_t *json, const char *path)
{
    pare_status st =
        json ? pare_json_write(ctx, json, path) : PARE_FAIL(ctx, MEMORY, "%s: out of memory", path);
    json_decref(json);
    return st;
}

/* Times RUNS runs into times (RUNS, steps), seconds. */
static pare_status time_steps(pare_ctx *ctx, pare_runner *runner, double *times, int steps)
{
    for (int r = 0; r < RUNS; r++) {
        pare_runner_profile(runner, times + (size_t)r * (size_t)steps);
        PARE_TRY(pare_runner_run(runner));
        PARE_TRY(pare_ctx_poll(ctx));
    }
    return PARE_OK;
}

pare_status pare_profile_write(pare_ctx *ctx, pare_runner *runner, const char *model,
                               const char *profile, const char *trace)
{
    const pare_plan *plan = pare_runner_plan(runner);
    int steps = pare_plan_step_count(plan);
    double *times = pare_alloc(ctx, (size_t)steps * RUNS, sizeof *times);
    double *median = pare_alloc(ctx, (size_t)steps, sizeof *median);
    pare_status st = times && median ? time_steps(ctx, runner, times, steps) : PARE_MEMORY;
    pare_runner_profile(runner, NULL);
    for (int i = 0; st == PARE_OK && i < steps; i++) {
        double one[RUNS];
        for (int r = 0; r < RUNS; r++) one[r] = times[(size_t)r * (size_t)steps + (size_t)i] * 1000;
        pare_stats_sort(one, RUNS);
        median[i] = pare_stats_percentile(one, RUNS, 50);
    }
    if (st == PARE_OK && profile)
        st = write_and_free(ctx, profile_json(plan, model, median), profile);
    if (st == PARE_OK && trace)
        st = write_and_free(ctx, trace_json(plan, times + (size_t)(RUNS - 1) * (size_t)steps),
                            trace);
    pare_free(times);
    pare_free(median);
    return st;
}
