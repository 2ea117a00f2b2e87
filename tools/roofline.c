/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/roofline.h"
#include "formats/json.h"
#include "tools/measured.h"
#include "tools/shapes.h"
#include "tools/table.h"

#include <math.h>

/* Slower than the same product in FP16. */
static bool is_slower(const pare_roofline_step *s)
{
    return s->seconds_f16 > 0 && s->seconds > s->seconds_f16;
}

static pare_status shapes_of(pare_tool *tool, const pare_model *model, int64_t batch,
                             const pare_list *list, pare_input_shape **out, int *count)
{
    pare_input_shape *given;
    int given_count, open = 0;
    PARE_TRY(pare_shapes_parse(tool, model, "--shapes", list, &given, &given_count));
    PARE_TRY(pare_shapes_choose(tool, model, given, given_count, out, count));
    for (int i = 0; batch && i < *count; i++) {
        const pare_value *x = pare_graph_find_own(model->graph, (*out)[i].name);
        if (!x || x->shape.rank < 1 || x->shape.dim[0] >= 0 ||
            pare_input_shape_find(given, given_count, x->name))
            continue;
        (*out)[i].shape.dim[0] = batch;
        open++;
    }
    if (batch && !open)
        return PARE_FAIL(tool->ctx, USAGE,
                         "--batch %lld: %s has no input whose first axis is open and not in "
                         "--shapes",
                         (long long)batch, model->path);
    return PARE_OK;
}

/* measured: milliseconds; below 0: the step was not. */
static json_t *step_json(const pare_roofline_step *s, double measured)
{
    json_t *json =
        json_pack("{s:o, s:s, s:s, s:b, s:s, s:o, s:i, s:f, s:f, s:s, s:i, s:f, s:f}", "node",
                  pare_json_text(s->node), "op_type", s->op_type, "kernel", s->kernel, "known",
                  s->known, "precision", pare_type(s->dtype)->onnx_name, "output",
                  pare_json_text(s->output), "launches", s->launches, "bytes", s->bytes, "ops",
                  2 * s->macs, "bound", pare_bound_name(s->bound), "occupancy", s->occupancy,
                  "waves", s->waves, "time_ms", 1e3 * s->seconds);
    if (s->seconds_f16 > 0) {
        json_object_set_new(json, "fp16_ms", json_real(1e3 * s->seconds_f16));
        json_object_set_new(json, "slower_than_fp16", json_boolean(is_slower(s)));
    }
    if (measured >= 0) json_object_set_new(json, "measured_ms", json_real(measured));
    if (measured > 0)
        json_object_set_new(json, "ratio",
                            json_real(pare_measured_ratio(1e3 * s->seconds, measured)));
    if (s->region >= 0) {
        json_object_set_new(json, "region", json_integer(s->region));
        json_object_set_new(json, "second_stream", json_boolean(s->side));
    }
    return json;
}

/* m: NULL: no profile was given. */
static void add_row(pare_table *rows, const pare_roofline_step *s, const pare_measured *m, int i)
{
    char bytes[32], ops[32] = "", waves[32] = "", half[32] = "", ms[32] = "", ratio[32] = "";
    const char *name = *s->node ? s->node : s->output, *type = pare_type(s->dtype)->onnx_name;
    const char *slower = is_slower(s) ? "<" : "", *bound = pare_bound_name(s->bound);
    if (s->macs > 0) pare_count_text(2 * s->macs, ops, sizeof ops);
    if (s->waves > 0) snprintf(waves, sizeof waves, "%.2f", s->waves);
    if (s->seconds_f16 > 0) snprintf(half, sizeof half, "%.4f", 1e3 * s->seconds_f16);
    if (m && m->ms[i] >= 0) snprintf(ms, sizeof ms, "%.4f", m->ms[i]);
    if (m && m->ms[i] > 0)
        snprintf(ratio, sizeof ratio, "%.2f", pare_measured_ratio(1e3 * s->seconds, m->ms[i]));
    pare_bytes_text(s->bytes, bytes, sizeof bytes);
    if (m)
        pare_table_add(rows, "%s|%s|%s|%s|%s|%s|%s|%s|%.4f|%s|%s|%s|%s", name, s->op_type,
                       s->kernel, type, bytes, ops, bound, waves, 1e3 * s->seconds, ms, ratio, half,
                       slower);
    else
        pare_table_add(rows, "%s|%s|%s|%s|%s|%s|%s|%s|%.4f|%s|%s", name, s->op_type, s->kernel,
                       type, bytes, ops, bound, waves, 1e3 * s->seconds, half, slower);
}

/* How many steps are so: unknown to the model of time, on the host, slower than in FP16, in the
   second stream. */
typedef struct tally {
    int unknown, host, slower, side;
    double unknown_seconds, saved;
} tally;

static void print_tally(const tally *t)
{
    if (t->side)
        pare_print(stdout, "%-14s%d steps run beside others: the sum is %.4f ms less for it\n",
                   "branches", t->side, 1e3 * t->saved);
    if (t->slower)
        pare_print(stdout, "%-14s%d INT8 steps, marked <: the same product is faster in FP16\n",
                   "slower", t->slower);
    if (t->unknown)
        pare_print(stdout, "%-14s%d steps, %.4f ms of the sum: counted by their bytes alone\n",
                   "unknown", t->unknown, 1e3 * t->unknown_seconds);
    if (t->host)
        pare_print(stdout, "%-14s%d steps are the host's: counted by the copies alone\n", "host",
                   t->host);
}

static void print_steps(pare_tool *tool, const pare_roofline *r, const pare_gpu_spec *spec,
                        double samples, const pare_measured *m)
{
    pare_table rows;
    tally t = {.saved = pare_roofline_saved(r)};
    json_t *steps = json_array();
    const double seconds = pare_roofline_seconds(r), rate = seconds > 0 ? samples / seconds : 0;
    pare_table_init(&rows, &tool->arena, m ? "llllrrlrrrrrl" : "llllrrlrrrl");
    pare_table_add(&rows, m ? "step|op|kernel|type|bytes|ops|bound|waves|ms|measured|ratio|FP16 ms|"
                            : "step|op|kernel|type|bytes|ops|bound|waves|ms|FP16 ms|");
    for (int i = 0; i < pare_roofline_count(r); i++) {
        const pare_roofline_step *s = pare_roofline_at(r, i);
        const bool host = s->bound == PARE_BOUND_HOST;
        add_row(&rows, s, m, i);
        json_array_append_new(steps, step_json(s, m ? m->ms[i] : -1));
        t.host += host;
        t.unknown += !s->known && !host;
        t.unknown_seconds += s->known || host ? 0 : s->seconds;
        t.slower += is_slower(s);
        t.side += s->side;
    }
    pare_print(stdout, "%-14s%s: predicted, not measured\n", "device", spec->title);
    pare_table_print(&rows, stdout);
    pare_print(stdout, "%-14s%.4f ms for %.0f samples, %.0f samples/s\n", "sum", 1e3 * seconds,
               samples, rate);
    print_tally(&t);
    if (m) pare_measured_print(m);
    json_t *prediction =
        json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:o}", "device", spec->name, "name", spec->title,
                  "samples", samples, "time_ms", 1e3 * seconds, "saved_ms", 1e3 * t.saved,
                  "throughput_per_s", rate, "steps", steps);
    if (m) json_object_set_new(prediction, "measured", pare_measured_json(m));
    json_object_set_new(tool->facts, "prediction", prediction);
}

pare_status pare_roofline_show(pare_tool *tool, const pare_model *model, const pare_gpu_spec *spec,
                               int64_t batch, const pare_list *shapes, const char *measured)
{
    pare_roofline *r;
    pare_input_shape *input;
    pare_measured m;
    int count;
    PARE_TRY(shapes_of(tool, model, batch, shapes, &input, &count));
    PARE_TRY(pare_roofline_new(tool->ctx, &r, model, input, count, spec));
    const pare_status st = measured ? pare_measured_read(tool, &m, measured, model, r) : PARE_OK;
    if (st == PARE_OK)
        print_steps(tool, r, spec,
                    (double)pare_shapes_samples(model, pare_roofline_plan(r), input, count),
                    measured ? &m : NULL);
    pare_roofline_free(r);
    return st;
}
