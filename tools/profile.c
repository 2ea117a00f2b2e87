/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/profile.h"

#include "formats/json.h"
#include "runtime/eval/eval.h"
#include "tools/commands.h"
#include "tools/trace.h"

static json_t *step_json(const pare_step_info *info, double ms, double all_ms)
{
    json_t *shape = json_array();
    for (int d = 0; d < info->shape.rank; d++)
        json_array_append_new(shape, json_integer(info->shape.dim[d]));
    return json_pack("{s:o, s:o, s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:f, s:f, s:f}", "node",
                     pare_json_text(info->node), "op_type", pare_json_text(info->op_type), "kernel",
                     info->kernel, "precision", pare_type(info->dtype)->name, "output",
                     pare_json_text(info->output), "shape", shape, "bytes_in",
                     (json_int_t)info->bytes_in, "bytes_out", (json_int_t)info->bytes_out,
                     "live_bytes", (json_int_t)info->live, "macs", info->macs, "time_ms", ms,
                     "share", all_ms > 0 ? ms / all_ms : 0.0);
}

static json_t *steps_json(const pare_plan *plan, const double *median_ms, double *all)
{
    json_t *steps = json_array();
    int count = pare_plan_step_count(plan);
    *all = 0;
    for (int i = 0; i < count; i++) *all += median_ms[i];
    for (int i = 0; i < count; i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        json_array_append_new(steps, step_json(&info, median_ms[i], *all));
    }
    return steps;
}

/* [{a step, turns}] of what the host interpreted, bodies too; NULL where the plan holds it all. */
static pare_status inner_json(pare_ctx *ctx, const pare_runner *runner, double all, json_t **out)
{
    const int count = pare_runner_inner_steps(runner, NULL, 0);
    if (!count) return PARE_OK;
    pare_inner_step *step = pare_alloc(ctx, (size_t)count, sizeof *step);
    if (!step) return PARE_MEMORY;
    pare_runner_inner_steps(runner, step, count);
    *out = json_array();
    for (int i = 0; i < count; i++) {
        json_t *one = step_json(&step[i].info, step[i].seconds * 1e3, all);
        json_object_set_new(one, "turns", json_integer((json_int_t)step[i].turns));
        json_array_append_new(*out, one);
    }
    pare_free(step);
    return PARE_OK;
}

static pare_status write_and_free(pare_ctx *ctx, json_t *json, const char *path)
{
    pare_status st =
        json ? pare_json_write(ctx, json, path) : PARE_FAIL(ctx, MEMORY, "%s: out of memory", path);
    json_decref(json);
    return st;
}

/* The list of steps, and the milliseconds of all. */
static pare_status profile(pare_ctx *ctx, pare_runner *runner, json_t **out, json_t **inner,
                           double *all)
{
    const pare_plan *plan = pare_runner_plan(runner);
    int steps = pare_plan_step_count(plan);
    double *median = pare_alloc(ctx, (size_t)steps, sizeof *median);
    pare_status st = median ? pare_measure_steps(ctx, runner, 50, median) : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < steps; i++) median[i] *= 1000;
    if (st == PARE_OK) *out = steps_json(plan, median, all);
    pare_free(median);
    if (st == PARE_OK && inner) st = inner_json(ctx, runner, *all, inner);
    return st;
}

pare_status pare_profile_steps(pare_ctx *ctx, pare_runner *runner, json_t **out)
{
    double all;
    return profile(ctx, runner, out, NULL, &all);
}

/* The devices' runs are all in progress before the first is waited for. */
static pare_status trace_runs(pare_ctx *ctx, pare_runner *const *runners, int count,
                              pare_timeline *timeline)
{
    int started = 0;
    pare_status st = PARE_OK;
    for (; st == PARE_OK && started < count; started++) {
        pare_runner_trace(runners[started], timeline, started);
        st = pare_runner_start(runners[started]);
        if (st != PARE_OK) break;
    }
    for (int i = 0; i < started; i++) {
        pare_status ended = pare_runner_wait(runners[i]);
        if (st == PARE_OK) st = ended;
    }
    for (int i = 0; i < count; i++) pare_runner_trace(runners[i], NULL, 0);
    PARE_TRY(st);
    PARE_TRY(pare_ctx_poll(ctx));
    return pare_timeline_read(timeline);
}

/* [{stream, lane, name, start_ms, time_ms}] */
static json_t *lanes_json(const pare_timeline *timeline)
{
    json_t *lanes = json_array();
    for (int i = 0; i < pare_timeline_count(timeline); i++) {
        const pare_span *s = pare_timeline_span(timeline, i);
        json_array_append_new(lanes,
                              json_pack("{s:i, s:s, s:o, s:f, s:f}", "stream", s->track, "lane",
                                        pare_lane_name(s->lane), "name", pare_json_text(s->name),
                                        "start_ms", s->start * 1e3, "time_ms", s->seconds * 1e3));
    }
    return lanes;
}

/* One more run, as spans. */
static pare_status take_lanes(pare_ctx *ctx, pare_runner *runner, json_t **out)
{
    pare_timeline *timeline;
    PARE_TRY(pare_timeline_new(ctx, &timeline, pare_plan_device(pare_runner_plan(runner))));
    const pare_status st = trace_runs(ctx, &runner, 1, timeline);
    if (st == PARE_OK) *out = lanes_json(timeline);
    pare_timeline_free(timeline);
    return st;
}

pare_status pare_profile_write(pare_ctx *ctx, pare_runner *runner, const char *model,
                               const char *path)
{
    const pare_device *device = pare_plan_device(pare_runner_plan(runner));
    json_t *steps = NULL, *inner = NULL, *lanes = NULL;
    double all;
    pare_status st = profile(ctx, runner, &steps, &inner, &all);
    if (st == PARE_OK) st = take_lanes(ctx, runner, &lanes);
    if (st != PARE_OK) {
        json_decref(steps);
        json_decref(inner);
        return st;
    }
    json_t *page =
        json_pack("{s:i, s:s, s:s, s:o, s:s, s:f, s:o, s:o}", "schema", 1, "command", "profile",
                  "version", PARE_VERSION, "model", pare_json_text(model), "device",
                  device ? device->name : "cpu", "time_ms", all, "steps", steps, "lanes", lanes);
    if (inner) json_object_set_new(page, "interpreted", inner);
    return write_and_free(ctx, page, path);
}

pare_status pare_profile_trace(pare_ctx *ctx, pare_runner *const *runners, int count,
                               const char *model, const char *path)
{
    pare_timeline *timeline;
    const pare_plan *plan = pare_runner_plan(runners[0]);
    PARE_TRY(pare_timeline_new(ctx, &timeline, pare_plan_device(plan)));
    pare_status st = trace_runs(ctx, runners, count, timeline);
    if (st == PARE_OK) st = pare_trace_write(ctx, path, model, timeline, plan);
    pare_timeline_free(timeline);
    return st;
}
