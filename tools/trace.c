/* SPDX-License-Identifier: Apache-2.0 */
/* The Trace Event Format: complete events ("ph": "X") on the lanes ("tid") of one process, which
   metadata events ("ph": "M") name. */
#include "tools/trace.h"

#include "formats/json.h"

#include <stdio.h>

static const char *const lane_name[PARE_LANES] = {"copy in", "compute", "observe", "copy out"};

const char *pare_lane_name(pare_lane lane) { return lane_name[lane]; }

static int lane_number(const pare_span *s) { return s->track * PARE_LANES + (int)s->lane + 1; }

static json_t *span_event(const pare_span *s, const pare_plan *plan)
{
    pare_step_info info = {.op_type = "step"};
    json_t *args;
    if (s->step >= 0 && plan) {
        pare_plan_step(plan, s->step, &info);
        args = json_pack("{s:s, s:s, s:I, s:I}", "kernel", info.kernel, "precision",
                         pare_type(info.dtype)->name, "bytes_in", (json_int_t)info.bytes_in,
                         "bytes_out", (json_int_t)info.bytes_out);
    } else
        args = json_pack("{s:I}", "bytes", (json_int_t)s->bytes);
    return json_pack("{s:o, s:o, s:s, s:i, s:i, s:f, s:f, s:o}", "name", pare_json_text(s->name),
                     "cat",
                     pare_json_text(s->step >= 0                   ? info.op_type
                                    : s->lane == PARE_LANE_OBSERVE ? "observe"
                                                                   : "copy"),
                     "ph", "X", "pid", 1, "tid", lane_number(s), "ts", s->start * 1e6, "dur",
                     s->seconds * 1e6, "args", args);
}

static json_t *lane_event(const char *kind, int tid, const char *key, json_t *value)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:o}}", "name", kind, "ph", "M", "pid", 1, "tid", tid,
                     "args", key, value);
}

/* Names a lane at its first span. */
static void lane_add(json_t *events, const pare_timeline *t, int i)
{
    const pare_span *s = pare_timeline_span(t, i);
    char name[48];
    for (int k = 0; k < i; k++)
        if (lane_number(pare_timeline_span(t, k)) == lane_number(s)) return;
    snprintf(name, sizeof name, "stream %d: %s", s->track, lane_name[s->lane]);
    json_array_append_new(events,
                          lane_event("thread_name", lane_number(s), "name", json_string(name)));
    json_array_append_new(events, lane_event("thread_sort_index", lane_number(s), "sort_index",
                                             json_integer(lane_number(s))));
}

json_t *pare_trace_json(const char *title, const pare_timeline *timeline, const pare_plan *plan)
{
    json_t *events = json_array();
    json_array_append_new(events, lane_event("process_name", 0, "name", pare_json_text(title)));
    for (int i = 0; i < pare_timeline_count(timeline); i++) {
        lane_add(events, timeline, i);
        json_array_append_new(events, span_event(pare_timeline_span(timeline, i), plan));
    }
    return json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ms");
}

pare_status pare_trace_write(pare_ctx *ctx, const char *path, const char *title,
                             const pare_timeline *timeline, const pare_plan *plan)
{
    json_t *json = pare_trace_json(title, timeline, plan);
    pare_status st =
        json ? pare_json_write(ctx, json, path) : PARE_FAIL(ctx, MEMORY, "%s: out of memory", path);
    json_decref(json);
    return st;
}
