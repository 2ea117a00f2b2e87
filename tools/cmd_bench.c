/* SPDX-License-Identifier: Apache-2.0 */
/* pare bench: latency, throughput and memory of a model, with profile and trace. */
#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/exec/exec.h"
#include "tools/commands.h"
#include "tools/measure.h"
#include "tools/memory.h"
#include "tools/model_facts.h"
#include "tools/profile.h"
#include "tools/progress.h"
#include "tools/source.h"
#include "tools/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct bench_options {
    pare_common common;
    pare_list shapes;
    const char *percentile, *profile, *trace, *cache;
    double warm_up, duration;
    int64_t iterations;
    bool no_tune;
} bench_options;

static const pare_option table[] = {
    {"shapes", 0, PARE_OPTION_LIST, "in:32x1x28x28", offsetof(bench_options, shapes), 0, 0,
     "shape of an input, more with commas between them (unknown dims: 1)"},
    {"warmUp", 0, PARE_OPTION_REAL, "MS", offsetof(bench_options, warm_up), 0, 1e7,
     "milliseconds to run before timing (200)"},
    {"duration", 0, PARE_OPTION_REAL, "S", offsetof(bench_options, duration), 0, 1e6,
     "seconds to time, at least (3)"},
    {"iterations", 0, PARE_OPTION_INT, "N", offsetof(bench_options, iterations), 1, 1e7,
     "runs to time, at least (10)"},
    {"percentile", 0, PARE_OPTION_TEXT, "90,95,99", offsetof(bench_options, percentile), 0, 0,
     "percentiles to report beside the median (90,95,99)"},
    {"profile", 0, PARE_OPTION_OUTPUT, "p.json", offsetof(bench_options, profile), 0, 0,
     "write time, bytes, kernel and precision of every step"},
    {"trace", 0, PARE_OPTION_OUTPUT, "t.json", offsetof(bench_options, trace), 0, 0,
     "write one run as a Chrome trace"},
    {"no-tune", 0, PARE_OPTION_FLAG, NULL, offsetof(bench_options, no_tune), 0, 0,
     "take the first kernel that can, without timing the others"},
    {"cache", 0, PARE_OPTION_FOLDER, "DIR", offsetof(bench_options, cache), 0, 0,
     "keep kernel timings here, so that the next start is fast"},
    {0},
};

static const bench_options defaults = {
    .warm_up = 200, .duration = 3, .iterations = 10, .percentile = "90,95,99"};

enum { MOST_PERCENTILES = 16 };

static pare_status parse_percentiles(pare_ctx *ctx, const char *text, double *out, int *count)
{
    *count = 0;
    for (const char *at = text; at;) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(value >= 0 && value <= 100) ||
            *count == MOST_PERCENTILES)
            return PARE_FAIL(ctx, USAGE,
                             "--percentile %s: expected up to %d numbers from 0 to 100 with "
                             "commas between them",
                             text, MOST_PERCENTILES);
        out[(*count)++] = value;
        at = *end ? end + 1 : NULL;
    }
    return PARE_OK;
}

/* --- shapes --- */

/* "in:32x1x28x28" up to `end`; a name may hold ':' itself, the last one counts. */
static pare_status parse_shape(pare_ctx *ctx, pare_arena *arena, const char *text, const char *end,
                               pare_input_shape *out)
{
    const char *colon = end, *at;
    while (colon > text && *colon != ':') colon--;
    out->name = pare_arena_strndup(arena, text, (size_t)(colon - text));
    if (!out->name) return PARE_MEMORY;
    out->shape = (pare_shape){0};
    for (at = colon + 1; at < end || at == colon + 1;) {
        char *behind;
        errno = 0;
        long long dim = strtoll(at, &behind, 10);
        if (colon == text || behind == at || behind > end || dim < 0 || errno ||
            (behind < end && (*behind != 'x' || behind + 1 == end)) ||
            out->shape.rank == PARE_MAX_RANK)
            return PARE_FAIL(ctx, USAGE, "--shapes %s: expected NAME:AxBxC, up to %d dims", text,
                             PARE_MAX_RANK);
        out->shape.dim[out->shape.rank++] = dim;
        at = behind + (behind < end);
    }
    return PARE_OK;
}

/* Shapes of all inputs: those asked for, the others as the model has them, unknown dims 1. */
static pare_status choose_shapes(pare_tool *tool, const pare_model *model, const bench_options *o,
                                 pare_input_shape **out, int *count)
{
    pare_value **inputs = pare_model_inputs(&tool->arena, model, count);
    pare_input_shape *shapes = pare_arena_alloc(&tool->arena, (size_t)*count, sizeof *shapes);
    bool *given = pare_arena_alloc(&tool->arena, (size_t)*count + 1, sizeof *given);
    if (!inputs || !shapes || !given) return PARE_MEMORY;
    for (int i = 0; i < *count; i++) {
        if (inputs[i]->shape.rank < 0 && !o->shapes.count)
            return PARE_FAIL(tool->ctx, INPUT,
                             "%s: input '%s' has no known rank; give --shapes %s:AxB", model->path,
                             inputs[i]->name, inputs[i]->name);
        shapes[i] = (pare_input_shape){inputs[i]->name, inputs[i]->shape};
        for (int d = 0; d < shapes[i].shape.rank; d++)
            if (shapes[i].shape.dim[d] < 0) shapes[i].shape.dim[d] = 1;
    }
    for (int s = 0; s < o->shapes.count; s++)
        for (const char *at = o->shapes.item[s]; *at;) {
            pare_input_shape one;
            const char *end = at + strcspn(at, ",");
            int i = 0;
            PARE_TRY(parse_shape(tool->ctx, &tool->arena, at, end, &one));
            while (i < *count && strcmp(shapes[i].name, one.name) != 0) i++;
            if (i == *count)
                return PARE_FAIL(tool->ctx, INPUT,
                                 "%s: has no input '%s' (--shapes); its first is '%s'", model->path,
                                 one.name, *count ? shapes[0].name : "(none)");
            if (given[i])
                return PARE_FAIL(tool->ctx, USAGE, "--shapes %s: input '%s' is given twice",
                                 o->shapes.item[s], one.name);
            given[i] = true;
            shapes[i] = one;
            at = *end ? end + 1 : end;
        }
    for (int i = 0; i < *count; i++)
        PARE_TRY(pare_check_samples(tool->ctx, model, shapes[i].name, &shapes[i].shape));
    *out = shapes;
    return PARE_OK;
}

static json_t *shapes_json(const pare_input_shape *shapes, int count)
{
    json_t *json = json_object();
    for (int i = 0; i < count; i++) {
        json_t *dims = json_array();
        for (int d = 0; d < shapes[i].shape.rank; d++)
            json_array_append_new(dims, json_integer(shapes[i].shape.dim[d]));
        json_object_set_new(json, shapes[i].name, dims);
    }
    return json;
}

/* --- output --- */

static void print_facts(const json_t *facts)
{
    const json_t *latency = json_object_get(facts, "latency_ms");
    const char *name;
    json_t *value, *note;
    size_t i;
    char text[32];
    printf("latency       ");
    json_object_foreach((json_t *)latency, name, value) printf(
        "%s %.4g ms%s", name, json_real_value(value),
        json_object_iter_next((json_t *)latency, json_object_iter_at((json_t *)latency, name))
            ? ", "
            : "\n");
    printf("throughput    %.6g per second\n",
           json_real_value(json_object_get(facts, "throughput_per_s")));
    printf("variation     %.1f %% over %lld runs\n",
           100 * json_real_value(json_object_get(facts, "coefficient_of_variation")),
           (long long)json_integer_value(json_object_get(facts, "runs")));
    printf("peak memory   %s\n",
           pare_bytes_text((double)json_integer_value(json_object_get(facts, "peak_memory_bytes")),
                           text, sizeof text));
    json_array_foreach(json_object_get(facts, "notes"), i, note)
        printf("note          %s\n", json_string_value(note));
}

static pare_status measure_plan(pare_tool *tool, const bench_options *o, const pare_plan *plan,
                                double batch)
{
    pare_measure_options options = {o->warm_up, o->duration, o->iterations};
    pare_runner *runner;
    pare_times times = {0};
    double percentiles[MOST_PERCENTILES];
    int count;
    PARE_TRY(parse_percentiles(tool->ctx, o->percentile, percentiles, &count));
    PARE_TRY(pare_runner_new(tool->ctx, &runner, plan));
    pare_measure_fill(runner);
    pare_say_memory(tool, pare_plan_activation_bytes(plan));
    pare_status st = pare_measure(tool->ctx, runner, &options, &times);
    if (st == PARE_OK) {
        json_t *json = pare_times_json(tool->ctx, &times, batch, percentiles, count);
        if (!json)
            st = PARE_MEMORY;
        else
            json_object_update_new(tool->facts, json);
        if (pare_plan_emulates(plan)) {
            json_object_set_new(tool->facts, "emulated", json_true());
            json_array_append_new(
                json_object_get(tool->facts, "notes"),
                json_string("emulated: the CPU computes 16-bit nodes in 32 bits and rounds "
                            "their outputs; the latency predicts no other hardware"));
        }
        json_object_set_new(tool->facts, "peak_memory_bytes", json_integer(pare_peak_memory()));
    }
    if (st == PARE_OK && (o->profile || o->trace))
        st = pare_profile_write(tool->ctx, runner, tool->arg[0], o->profile, o->trace);
    pare_times_free(&times);
    pare_runner_free(runner);
    return st;
}

static pare_status bench(pare_tool *tool, const bench_options *o, const pare_model *model)
{
    pare_plan_options options = {
        .threads = (int)o->common.threads, .tune = !o->no_tune, .cache_dir = o->cache,
        .device = tool->device};
    pare_input_shape *shapes = NULL;
    pare_model_facts facts;
    pare_plan *plan;
    int count;
    PARE_TRY(choose_shapes(tool, model, o, &shapes, &count));
    PARE_TRY(pare_model_count(tool->ctx, model, &facts));
    double start = pare_seconds();
    pare_threads_bind(o->common.threads ? (int)o->common.threads : pare_cpu_cores());
    PARE_TRY(pare_plan_new(tool->ctx, &plan, model, shapes, count, &options));
    double planned = pare_seconds() - start;
    double batch = count && shapes[0].shape.rank ? (double)shapes[0].shape.dim[0] : 1;
    json_object_update_new(
        tool->facts,
        json_pack("{s:{s:s, s:s, s:I}, s:o, s:i, s:f, s:I, s:I}", "model", "file", tool->arg[0],
                  "precision", pare_model_precision(&facts), "bytes",
                  (json_int_t)pare_model_bytes(model), "shapes", shapes_json(shapes, count),
                  "threads", o->common.threads ? (int)o->common.threads : pare_cpu_cores(),
                  "plan_seconds", planned, "activation_bytes",
                  (json_int_t)pare_plan_activation_bytes(plan), "packed_weight_bytes",
                  (json_int_t)pare_plan_weight_bytes(plan)));
    pare_status st = measure_plan(tool, o, plan, batch);
    pare_plan_free(plan);
    return st;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const bench_options *o = options;
    pare_model *model;
    double percentiles[MOST_PERCENTILES];
    int count;
    PARE_TRY(parse_percentiles(tool->ctx, o->percentile, percentiles, &count));
    PARE_TRY(pare_onnx_read(tool->ctx, &model, tool->arg[0]));
    if (o->cache && mkdir(o->cache, 0777) && errno != EEXIST)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "%s: the folder cannot be made: %s; kernel timings are not kept", o->cache,
                 strerror(errno));
    pare_status st = bench(tool, o, model);
    if (st == PARE_OK) print_facts(tool->facts);
    pare_model_free(model);
    return st;
}

const pare_command pare_command_bench = {
    .name = "bench",
    .arguments = "MODEL",
    .min = 1,
    .max = 1,
    .summary = "measure latency, throughput and memory of a model",
    .detail = "Inputs are filled with repeatable values. The command says when its own number is "
              "unstable.",
    .example =
        "pare bench resnet.int8.onnx --shapes input:32x1x28x28 --threads 2 --json bench.json",
    .options = table,
    .size = sizeof(bench_options),
    .defaults = &defaults,
    .run = run,
};
