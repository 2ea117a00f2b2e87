/* SPDX-License-Identifier: Apache-2.0 */
/* pare load: what a server of models does under load. */
#include "formats/json.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/load/drive.h"
#include "tools/load/schedule.h"
#include "tools/times.h"
#include "tools/token.h"

#include <string.h>

typedef struct load_options {
    pare_common common;
    pare_source_options source;
    const char *model, *rate, *percentile, *token, *authority;
    double warm_up, duration, timeout, plan;
    int64_t version, connections, seed;
} load_options;

#define OPTIONS load_options
static const pare_option table[] = {
    PARE_OPT_TEXT("model", "NAME", model, "the model's name at the server"),
    PARE_OPT_INT("model-version", "N", version, 1, 9e15,
                 "its version (the one that the server chooses)"),
    PARE_OPT_FILE("data", "F.h5", source.data,
                  "data set: HDF5, one dataset per model input, first axis samples; with labels "
                  "the answers' top-1 is counted"),
    PARE_OPT_INT("samples", "N", source.samples, 0, 1e15,
                 "samples to send in turn, evenly spaced; they are kept in memory (1000)"),
    PARE_OPT_TEXT("range", "A:B", source.range, "take samples from A to B-1 only"),
    PARE_OPT_LIST("map", "INPUT=/path", source.map,
                  "dataset in the file for a model input (the one of its name)"),
    PARE_OPT_INT("batch", "N", source.batch, 1, 65536, "samples in a request (1)"),
    PARE_OPT_TEXT("rate", "poisson:A,B,...", rate,
                  "requests a second, one load after the other; poisson: with random gaps, "
                  "constant: with equal ones, as without either word"),
    PARE_OPT_REAL("duration", "S", duration, 0.001, 1e6,
                  "seconds in which the requests of a rate are due (10)"),
    PARE_OPT_REAL("warmup", "MS", warm_up, 0, 1e7,
                  "milliseconds before, whose requests are sent and not counted (1000)"),
    PARE_OPT_INT("connections", "N", connections, 1, 65536,
                 "requests under way at once, at most; others wait, and their wait counts (256)"),
    PARE_OPT_REAL("timeout", "S", timeout, 0.001, 1e6,
                  "seconds after which a request that was due has failed (10)"),
    PARE_OPT_REAL("plan", "RATE", plan, 1e-3, 1e12,
                  "say how many such servers so many requests a second need"),
    PARE_OPT_INT("seed", "N", seed, 0, 9e15, "of the random gaps (0)"),
    PARE_OPT_TEXT("percentile", "90,99", percentile,
                  "percentiles of the latency in the facts beside the median; the table shows 90 "
                  "and 99 (90,99)"),
    PARE_OPT_FILE("token", "FILE", token, "send the word in this file: Authorization: Bearer WORD"),
    PARE_OPT_FILE("tls-ca", "FILE.pem", authority,
                  "certificates to trust with https, in place of the system's"),
    {0},
};

static const load_options defaults = {.source = {.samples = -1, .batch = 1, .shuffle = -1},
                                      .percentile = "90,99",
                                      .warm_up = 1000,
                                      .duration = 10,
                                      .timeout = 10,
                                      .connections = 256};
enum { SAMPLES = 1000 };

/* A load in the making, and what it found. */
typedef struct job {
    pare_tool *tool;
    const load_options *o;
    pare_client *client;
    pare_load_target target;
    pare_load_requests requests;
    pare_load_rates rates;
    double percentile[PARE_PERCENTILES];
    int percentile_count;
    pare_load_row *row; /* (row_count) */
    int row_count;
} job;

static pare_status check(pare_tool *tool, const void *options)
{
    const load_options *o = options;
    pare_load_rates rates;
    double percentile[PARE_PERCENTILES];
    int count;
    PARE_TRY(pare_need_option(tool, o->model, "--model NAME", "what the server calls the model"));
    PARE_TRY(pare_need_option(tool, o->source.data, "--data F.h5", "the samples to send"));
    PARE_TRY(pare_need_option(tool, o->rate, "--rate poisson:A,B,...", "requests a second"));
    PARE_TRY(pare_load_rates_parse(tool->ctx, &rates, o->rate));
    return pare_percentiles_parse(tool->ctx, o->percentile, percentile, &count);
}

static pare_status open_client(job *j)
{
    const char *token;
    PARE_TRY(pare_token_read(&j->tool->arena, &token, j->o->token));
    const pare_client_options options = {.url = j->tool->arg[0],
                                         .token = token,
                                         .authority = j->o->authority,
                                         .connections = (int)j->o->connections};
    return pare_client_open(j->tool->ctx, &j->client, &options);
}

static void note_words(const job *j)
{
    json_t *facts = j->tool->facts;
    json_object_set_new(facts, "url", pare_json_text(j->tool->arg[0]));
    json_object_set_new(facts, "model", pare_json_text(j->o->model));
    if (j->o->version) json_object_set_new(facts, "model_version", json_integer(j->o->version));
    json_object_set_new(facts, "arrivals",
                        json_string(j->rates.is_poisson ? "poisson" : "constant"));
    json_object_set_new(facts, "connections", json_integer(j->o->connections));
    json_object_set_new(facts, "batch", json_integer(j->o->source.batch));
}

/* The model as its server has it, and requests for it. */
static pare_status prepare(job *j)
{
    pare_source source;
    pare_tool *tool = j->tool;
    note_words(j);
    PARE_TRY(pare_load_target_read(&tool->arena, &j->target, j->client, tool->arg[0], j->o->model,
                                   j->o->version));
    PARE_TRY(pare_source_open_inputs(tool, &source, tool->arg[0], j->target.input,
                                     j->target.input_count, &j->o->source, SAMPLES));
    pare_status st =
        pare_load_requests_make(tool, &j->requests, &j->target, &source, j->o->source.batch);
    json_t *data = pare_source_json(&source, &j->o->source);
    json_object_set_new(data, "labels", json_boolean(pare_data_has_labels(source.data)));
    json_object_set_new(tool->facts, "data", data);
    pare_source_close(&source);
    return st;
}

static pare_status drive(job *j)
{
    const load_options *o = j->o;
    pare_load_drive drive = {
        .tool = j->tool,
        .client = j->client,
        .target = &j->target,
        .requests = &j->requests,
        .load = {.warm_up = o->warm_up / 1e3,
                 .duration = o->duration,
                 .timeout = o->timeout,
                 .connections = (int)o->connections},
        .is_poisson = j->rates.is_poisson,
        .seed = (uint64_t)o->seed,
    };
    for (int i = 0; i < j->rates.count; i++)
        PARE_TRY(pare_load_rate_check(&drive, j->rates.per_s[i]));
    PARE_TRY(pare_load_probe(&drive));
    for (int i = 0; i < j->rates.count; i++)
        PARE_TRY(pare_load_rate(&drive, &j->row[j->row_count++], j->rates.per_s[i]));
    return PARE_OK;
}

/* --- what was found --- */

static pare_status note_rates(job *j)
{
    json_t *rates = json_array();
    json_object_set_new(j->tool->facts, "rates", rates);
    for (int i = 0; i < j->row_count; i++) {
        if (!j->row[i].result.due) continue; /* it had not begun */
        if (json_array_append_new(
                rates, pare_load_row_json(&j->row[i], j->percentile, j->percentile_count)))
            return PARE_MEMORY;
    }
    return PARE_OK;
}

/* What there is, also of a load that was cut short: st says why. */
static pare_status tell(job *j, pare_status st)
{
    pare_tool *tool = j->tool;
    if (!j->row_count || !j->row[0].result.due) return st;
    if (st != PARE_OK && st != PARE_INTERRUPTED && st != PARE_IO) return st;
    if (st == PARE_INTERRUPTED) {
        tool->ctx->interrupted = NULL; /* it was asked to end, and does */
        pare_ctx_clear(tool->ctx);
        (void)PARE_FAIL(tool->ctx, INTERRUPTED,
                        "interrupted: the table has what was measured until then");
    }
    PARE_TRY(note_rates(j));
    if (st == PARE_OK) {
        json_t *knee = pare_load_knee(j->row, j->row_count);
        if (j->o->plan > 0)
            json_object_set_new(tool->facts, "plan", pare_load_plan(knee, j->o->plan));
        json_object_set_new(tool->facts, "knee", knee);
    }
    pare_load_print(&tool->arena, tool->facts, tool->common->quiet);
    tool->found = st != PARE_OK;
    return st;
}

static pare_status run(pare_tool *tool, const void *options)
{
    job j = {.tool = tool, .o = options};
    PARE_TRY(check(tool, options));
    PARE_TRY(pare_load_rates_parse(tool->ctx, &j.rates, j.o->rate));
    PARE_TRY(pare_percentiles_parse(tool->ctx, j.o->percentile, j.percentile, &j.percentile_count));
    j.row = pare_arena_alloc(&tool->arena, (size_t)j.rates.count, sizeof *j.row);
    if (!j.row) return PARE_MEMORY;
    pare_status st = open_client(&j);
    if (st == PARE_OK) st = prepare(&j);
    if (st == PARE_OK) st = drive(&j);
    st = tell(&j, st);
    for (int i = 0; i < j.row_count; i++) pare_load_row_free(&j.row[i]);
    pare_load_requests_free(&j.requests);
    pare_client_close(j.client);
    return st;
}

const pare_command pare_command_load = {
    .name = "load",
    .arguments = "URL --model NAME --data F.h5 --rate poisson:A,B,...",
    .min = 1,
    .max = 1,
    .summary = "send requests to a server at given rates: latency, throughput, accuracy under load",
    .detail =
        "Requests begin when they are due, whether or not earlier ones are answered, and latency "
        "is\n"
        "counted from then. The server is one of the KServe protocol, version 2, as pare serve "
        "and\n"
        "Triton are. Each rate is a row; the last line says which rate is still answered well.",
    .example = "pare load http://localhost:8000 --model mlp --data test.h5 --rate "
               "poisson:500,1000,2000",
    .options = table,
    .size = sizeof(load_options),
    .defaults = &defaults,
    .check = check,
    .run = run,
};
