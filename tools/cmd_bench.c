/* SPDX-License-Identifier: Apache-2.0 */
/* pare bench: latency, throughput and memory of a model, with profile and trace. */
#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/eval/relay.h"
#include "runtime/exec/exec.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/times.h"
#include "tools/telemetry.h"
#include "tools/model_facts.h"
#include "tools/parallel.h"
#include "tools/profile.h"
#include "tools/progress.h"
#include "tools/ranks.h"
#include "tools/results.h"
#include "tools/shapes.h"
#include "tools/source.h"
#include "tools/table.h"
#include "tools/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct bench_options {
    pare_common common;
    pare_list shapes;
    const char *percentile, *profile, *trace, *cache, *append;
    double warm_up, duration;
    int64_t iterations, streams;
    bool no_tune, one_stream, tf32;
    int parallel; /* pare_parallel */
} bench_options;

#define OPTIONS bench_options
static const pare_option table[] = {
    PARE_OPT_LIST("shapes", "in:32x1x28x28", shapes,
                  "shape of an input, more with commas between them (unknown dims: 1)"),
    PARE_OPT_REAL("warmup", "MS", warm_up, 0, 1e7, "milliseconds to run before timing (200)"),
    PARE_OPT_REAL("duration", "S", duration, 0, 1e6,
                  "seconds to time, at least (3); up to three times as long until the last three "
                  "windows agree"),
    PARE_OPT_INT("iterations", "N", iterations, 1, 1e7, "runs to time, at least (10)"),
    PARE_OPT_INT("streams", "N", streams, 1, 256,
                 "runs at once: queues of a GPU, or on the CPU sessions that share its cores (1)"),
    PARE_OPT_TEXT("percentile", "90,95,99", percentile,
                  "percentiles to report beside the median (90,95,99)"),
    PARE_OPT_OUTPUT("profile", "p.json", profile,
                    "write time, bytes, kernel and precision of every step"),
    PARE_OPT_OUTPUT("trace", "t.json", trace, "write one run of each stream as a Chrome trace"),
    PARE_OPT_OUTPUT("append", "results.csv", append,
                    "add a row for the model to a table that grows"),
    PARE_OPT_FLAG("no-tune", no_tune, "take the first kernel that can, without timing the others"),
    PARE_OPT_FLAG("one-stream", one_stream,
                  "let a GPU run steps one after the other, none side by side in a second stream"),
    PARE_OPT_TF32,
    PARE_OPT_FOLDER("cache", "DIR", cache,
                    "keep kernel timings here, so that the next start is fast"),
    PARE_OPT_PARALLEL(parallel, ""),
    PARE_OPT_GPUS,
    {0},
};

static const bench_options defaults = {.warm_up = 200,
                                       .duration = 3,
                                       .iterations = 10,
                                       .streams = 1,
                                       .percentile = "90,95,99",
                                       .parallel = PARE_PARALLEL_NONE};

/* --- shapes --- */

static pare_status choose_shapes(pare_tool *tool, const pare_model *model, const bench_options *o,
                                 pare_input_shape **out, int *count)
{
    pare_input_shape *given;
    int given_count;
    PARE_TRY(pare_shapes_parse(tool, model, "--shapes", &o->shapes, &given, &given_count));
    return pare_shapes_choose(tool, model, given, given_count, out, count);
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

static void print_latency(const char *label, const json_t *facts)
{
    const json_t *latency = json_object_get(facts, "latency_ms");
    const char *name, *before = "";
    json_t *value;
    pare_print(stdout, "%-14s", label);
    json_object_foreach((json_t *)latency, name, value)
    {
        pare_print(stdout, "%s%s %.4g ms", before, name, json_real_value(value));
        before = ", ";
    }
    pare_print(stdout, "\n");
}

/* Of the latency, what the GPU's own events saw. */
static void print_phases(const json_t *phases)
{
    if (!phases) return;
    pare_print(stdout, "on the GPU    %.4g ms, copies in %.4g ms, copies out %.4g ms\n",
               json_real_value(json_object_get(phases, "compute")),
               json_real_value(json_object_get(phases, "copy_in")),
               json_real_value(json_object_get(phases, "copy_out")));
}

static void print_device(const json_t *device)
{
    char text[512];
    if (!json_object_get(device, "cuda")) return;
    pare_print(stdout, "device        %s\n", pare_device_text(device, text, sizeof text));
    if (*pare_telemetry_text(device, text, sizeof text))
        pare_print(stdout, "              %s\n", text);
}

static void print_facts(const json_t *facts)
{
    json_t *value;
    size_t i;
    char text[32];
    print_latency("latency", facts);
    json_array_foreach(json_object_get(facts, "streams"), i, value)
    {
        snprintf(text, sizeof text, "  stream %zu", i);
        print_latency(text, value);
    }
    print_phases(json_object_get(facts, "phases_ms"));
    pare_print(stdout, "throughput    %.6g per second\n",
               json_real_value(json_object_get(facts, "throughput_per_s")));
    pare_print(stdout, "variation     %.1f %% over %lld runs\n",
               100 * json_real_value(json_object_get(facts, "coefficient_of_variation")),
               (long long)json_integer_value(json_object_get(facts, "runs")));
    pare_print(
        stdout, "peak memory   %s\n",
        pare_bytes_text((double)json_integer_value(json_object_get(facts, "peak_memory_bytes")),
                        text, sizeof text));
    print_device(json_object_get(facts, "device"));
    json_array_foreach(json_object_get(facts, "notes"), i, value)
        pare_print(stdout, "note          %s\n", json_string_value(value));
}

/* Times the streams while the device's meter is read. */
static pare_status time_streams(pare_tool *tool, const bench_options *o, pare_streams *streams,
                                double batch)
{
    pare_measure_options options = {o->warm_up, o->duration, o->iterations};
    double percentiles[PARE_PERCENTILES];
    int count;
    pare_watch *watch;
    PARE_TRY(pare_percentiles_parse(tool->ctx, o->percentile, percentiles, &count));
    PARE_TRY(pare_watch_start(tool->ctx, &watch, tool->device));
    pare_status st = pare_streams_measure(streams, &options);
    json_t *device = pare_watch_end(watch);
    json_t *json =
        st == PARE_OK ? pare_streams_json(tool->ctx, streams, batch, percentiles, count) : NULL;
    if (st == PARE_OK && (!json || !device)) st = PARE_MEMORY;
    if (st == PARE_OK) {
        json_object_update(tool->facts, json);
        json_object_set(tool->facts, "device", device);
    }
    json_decref(device);
    json_decref(json);
    return st;
}

/* The median times of one stream's phases, where it alone works. */
static pare_status time_phases(pare_tool *tool, const bench_options *o, const pare_streams *streams)
{
    const pare_measure_options options = {o->warm_up, o->duration, o->iterations};
    pare_phase_times t;
    if (!tool->device) return PARE_OK;
    PARE_TRY(pare_measure_phases(tool->ctx, pare_streams_runner(streams, 0), &options, 50, &t));
    json_object_set_new(tool->facts, "phases_ms",
                        json_pack("{s:f, s:f, s:f}", "copy_in", 1e3 * t.copy_in, "compute",
                                  1e3 * t.compute, "copy_out", 1e3 * t.copy_out));
    return PARE_OK;
}

static void say_emulated(pare_tool *tool)
{
    json_object_set_new(tool->facts, "emulated", json_true());
    json_array_append_new(
        json_object_get(tool->facts, "notes"),
        json_string("emulated: the CPU computes 16-bit nodes in 32 bits and rounds "
                    "their outputs; the latency predicts no other hardware"));
}

/* On the CPU runs do not overlap within one thread: the trace shows one of them. */
static pare_status trace_streams(pare_tool *tool, const pare_streams *streams, const char *path)
{
    int count = tool->device ? pare_streams_count(streams) : 1;
    pare_runner **runners = pare_arena_alloc(&tool->arena, (size_t)count, sizeof(pare_runner *));
    if (!runners) return PARE_MEMORY;
    for (int i = 0; i < count; i++) runners[i] = pare_streams_runner(streams, i);
    return pare_profile_trace(tool->ctx, runners, count, tool->arg[0], path);
}

/* A plan, of the whole model or of this rank's part. */
typedef struct planned {
    const pare_plan *plan;
    pare_plan *own;    /* or NULL: */
    pare_relay *relay; /* ranks share the model */
} planned;

/* Of stages: with as many runs under way as keep them busy. */
static pare_status time_rate(pare_tool *tool, const bench_options *o, const planned *p,
                             pare_runner *runner, double batch)
{
    const pare_measure_options options = {o->warm_up, o->duration, o->iterations};
    double rate;
    int under_way;
    json_t *pipeline = json_object_get(tool->facts, "pipeline");
    if (!pipeline) return PARE_OK;
    PARE_TRY(pare_relay_rate(p->relay, runner, &options, &rate, &under_way));
    json_object_set_new(tool->facts, "throughput_per_s", json_real(batch * rate));
    json_object_set_new(pipeline, "under_way", json_integer(under_way));
    return PARE_OK;
}

static pare_status measure_plan(pare_tool *tool, const bench_options *o, const planned *p,
                                double batch)
{
    const pare_plan *plan = p->plan;
    pare_streams *streams;
    PARE_TRY(pare_streams_new(tool->ctx, &streams, plan, (int)o->streams));
    if (p->relay) pare_relay_lead(p->relay, pare_streams_runner(streams, 0));
    pare_log_memory(tool, (size_t)o->streams * pare_plan_activation_bytes(plan));
    pare_status st = time_streams(tool, o, streams, batch);
    if (st == PARE_OK) st = time_rate(tool, o, p, pare_streams_runner(streams, 0), batch);
    if (st == PARE_OK) st = time_phases(tool, o, streams);
    if (st == PARE_OK && pare_plan_emulates(plan)) say_emulated(tool);
    if (st == PARE_OK)
        json_object_set_new(tool->facts, "peak_memory_bytes", json_integer(pare_peak_memory()));
    if (st == PARE_OK && o->profile)
        st = pare_profile_write(tool->ctx, pare_streams_runner(streams, 0), tool->arg[0],
                                o->profile);
    if (st == PARE_OK && o->trace) st = trace_streams(tool, streams, o->trace);
    st = pare_streams_status(streams, st);
    pare_streams_free(streams);
    return st;
}

/* Threads of one stream: those asked for, else its share of the cores. */
static int threads_of(const bench_options *o)
{
    int share = pare_cpu_cores() / (int)o->streams;
    return o->common.threads ? (int)o->common.threads : share > 1 ? share : 1;
}

/* Ranks share the model by the kernels that run and validate take: times differ from rank to rank.
 */
static pare_status plan_model(pare_tool *tool, const bench_options *o, const pare_model *model,
                              const pare_input_shape *shapes, int count, planned *out)
{
    const bool shared = tool->comm != NULL;
    const pare_plan_options options = {.threads = threads_of(o),
                                       .tune = !o->no_tune && !shared,
                                       .one_stream = o->one_stream,
                                       .cache_dir = o->cache,
                                       .device = tool->device};
    if (!shared) {
        if (o->streams == 1 && !tool->device) pare_threads_bind(options.threads);
        PARE_TRY(pare_plan_new(tool->ctx, &out->own, model, shapes, count, &options));
        out->plan = out->own;
        return PARE_OK;
    }
    PARE_TRY(pare_relay_new(tool->ctx, &out->relay, tool->comm, model, shapes, count, &options,
                            (pare_parallel)o->parallel));
    out->plan = pare_relay_plan(out->relay);
    return PARE_OK;
}

static pare_status add_model(pare_tool *tool, const pare_model *model)
{
    pare_model_facts facts;
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_model_count(tool->ctx, model, &facts));
    PARE_TRY(pare_onnx_hash(tool->ctx, tool->arg[0], hash, &bytes));
    json_t *file =
        json_pack("{s:o, s:s, s:s, s:I, s:I}", "file", pare_json_text(tool->arg[0]), "hash", hash,
                  "precision", pare_model_precision(&facts), "bytes",
                  (json_int_t)pare_model_bytes(model), "parameters", (json_int_t)facts.parameters);
    const char *recipes = pare_onnx_recipes(model, &tool->arena);
    if (recipes) json_object_set_new(file, "recipe", pare_json_text(recipes));
    return json_object_set_new(tool->facts, "model", file) ? PARE_MEMORY : PARE_OK;
}

/* Of one process, or of rank 0. */
static pare_status lead(pare_tool *tool, const bench_options *o, const planned *p,
                        const pare_model *model, const pare_input_shape *shapes, int count,
                        double seconds)
{
    const double batch = (double)pare_shapes_samples(model, p->plan, shapes, count);
    json_object_update_new(
        tool->facts,
        json_pack("{s:o, s:I, s:i, s:f, s:I, s:I}", "shapes", shapes_json(shapes, count), "batch",
                  (json_int_t)batch, "threads", threads_of(o), "plan_seconds", seconds,
                  "activation_bytes", (json_int_t)pare_plan_activation_bytes(p->plan),
                  "packed_weight_bytes", (json_int_t)pare_plan_weight_bytes(p->plan)));
    if (p->relay) {
        const pare_shared_plan shared = pare_relay_shared(p->relay);
        pare_parallel_print(tool, &shared);
        PARE_TRY(pare_parallel_facts(tool->facts, &shared));
    }
    return measure_plan(tool, o, p, batch);
}

static pare_status bench(pare_tool *tool, const bench_options *o, const pare_model *model)
{
    pare_input_shape *shapes = NULL;
    planned p = {0};
    int count;
    PARE_TRY(choose_shapes(tool, model, o, &shapes, &count));
    PARE_TRY(pare_tool_open_device(tool));
    if (o->tf32) pare_tool_allow_tf32(tool);
    PARE_TRY(add_model(tool, model));
    double start = pare_seconds();
    PARE_TRY(plan_model(tool, o, model, shapes, count, &p));
    double seconds = pare_seconds() - start;
    pare_status st;
    if (pare_tool_leads(tool)) {
        st = lead(tool, o, &p, model, shapes, count, seconds);
        if (p.relay) st = pare_relay_end(p.relay, st);
    } else
        st = pare_relay_follow(p.relay);
    pare_relay_free(p.relay);
    pare_plan_free(p.own);
    return st;
}

/* Options that do not go together. */
static pare_status check_options(pare_tool *tool, const bench_options *o)
{
    static const char *const of_one[] = {"cache", "no-tune", "streams", NULL};
    if (o->parallel >= 0) {
        pare_parallel_begin(tool);
        return pare_refuse_options(tool, "with --parallel", of_one);
    }
    if (!tool->comm) return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE,
                     "bench: %d processes were started, which share a model by --parallel pipeline "
                     "or --parallel tensor",
                     pare_comm_size(tool->comm));
}

static pare_status run(pare_tool *tool, const void *options)
{
    const bench_options *o = options;
    pare_model *model;
    double percentiles[PARE_PERCENTILES];
    int count;
    PARE_TRY(pare_percentiles_parse(tool->ctx, o->percentile, percentiles, &count));
    PARE_TRY(check_options(tool, o));
    if (pare_tool_leads(tool)) PARE_TRY(pare_results_check(tool->ctx, o->append));
    PARE_TRY(pare_onnx_read(tool->ctx, &model, tool->arg[0]));
    if (o->cache) pare_make_cache(tool->ctx, o->cache);
    pare_status st = tool->comm ? pare_parallel_same(tool, tool->arg[0]) : PARE_OK;
    if (st == PARE_OK) st = bench(tool, o, model);
    if (st == PARE_OK && pare_tool_leads(tool)) {
        print_facts(tool->facts);
        st = pare_results_append(tool->ctx, o->append, tool->facts);
    }
    pare_model_free(model);
    return st;
}

const pare_command pare_command_bench = {
    .name = "bench",
    .arguments = "MODEL",
    .min = 1,
    .max = 1,
    .summary = "measure latency, throughput and memory of a model",
    .detail =
        "Inputs are filled with repeatable values. The command says when its own number is "
        "unstable.\n"
        "mpirun -n N with --parallel measures the model that N processes share; profile, trace "
        "and\n"
        "memory are those of the first.",
    .example =
        "pare bench resnet.int8.onnx --shapes input:32x1x28x28 --threads 2 --json bench.json",
    .options = table,
    .size = sizeof(bench_options),
    .ranks = true,
    .defaults = &defaults,
    .run = run,
};
