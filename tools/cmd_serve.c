/* SPDX-License-Identifier: Apache-2.0 */
/* pare serve: models for those who ask over HTTP or gRPC. */
#include "formats/file.h"
#include "formats/json.h"
#include "runtime/base/clock.h"
#include "runtime/exec/exec.h"
#include "tools/commands.h"
#include "tools/ranks.h"
#include "tools/serve/api.h"
#include "tools/serve/grpc/grpc.h"
#include "tools/serve/http/http.h"
#include "tools/serve/traffic/shadow.h"
#include "tools/stages.h"
#include "tools/text.h"
#include "tools/token.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

typedef struct serve_options {
    pare_common common;
    const char *host, *preprocess;
    int64_t port, grpc_port, http_threads, max_batch, max_delay, max_queue, max_wait, instances,
        max_request, max_pending, stage_weights;
    int64_t shadow_queue;
    double shadow_share;
    pare_list shadow, traffic;
    bool shared_memory, cuda_shared_memory;
    const char *certificate, *key, *token;
    const char *gpus;
    int parallel; /* 0: a pipeline; PARE_PARALLEL_NONE */
} serve_options;

#define OPTIONS serve_options
static const pare_option table[] = {
    PARE_OPT_TEXT("host", "ADDRESS", host, "address to listen on (127.0.0.1: this machine alone)"),
    PARE_OPT_INT("port", "N", port, 0, 65535, "port to listen on, 0 for any that is free (8000)"),
    PARE_OPT_INT("grpc-port", "N", grpc_port, 0, 65535,
                 "answer gRPC, too, on this port, which Triton has at 8001; 0 for any that is "
                 "free (no gRPC)"),
    PARE_OPT_INT("http-threads", "N", http_threads, 1, 64,
                 "threads that read requests (one for each 4 cores, at most 8)"),
    PARE_OPT_INT("max-batch", "N", max_batch, 0, 65536,
                 "samples that a request or a batch has at most, 0 for no batches (32)"),
    PARE_OPT_INT("max-delay", "US", max_delay, 0, 60000000,
                 "microseconds that a request waits for others to make a batch (0)"),
    PARE_OPT_INT("max-queue", "N", max_queue, 1, 1e9,
                 "requests that may wait for a model; more are refused with status 503 (1024)"),
    PARE_OPT_INT("max-wait", "US", max_wait, 0, 60000000,
                 "microseconds that a request may be expected to wait for its turn, by the runs of "
                 "late; others are refused with status 503, 0 for none (0)"),
    PARE_OPT_INT("instances", "N", instances, 1, 1024,
                 "runs of a model side by side: on the CPU each by one thread (as many as "
                 "--threads), on a GPU each in a stream (2), of a pipeline as many as stages"),
    PARE_OPT_CHOICE("parallel", "pipeline", parallel,
                    "each model that does not choose its place lies on all of --gpus, a stage of "
                    "its nodes on each, with their weights"),
    PARE_OPT_TEXT("gpus", "0-3|0,2", gpus, "with --parallel, the GPUs, in the order of the stages"),
    PARE_OPT_BYTES("stage-weights", "SIZE", stage_weights, 1, 1e15,
                   "most bytes of weights in a stage of a pipeline, also of models that are loaded "
                   "later (no limit)"),
    PARE_OPT_TEXT("preprocess", "TEXT", preprocess,
                  "models take PNG and JPEG as strings: 'resize 256, crop 224, mean 0.485 0.456 "
                  "0.406, std 0.229 0.224 0.225'; a model's config.pbtxt says it in 'parameters'"),
    PARE_OPT_BYTES("max-request", "SIZE", max_request, 1e3, 1e12,
                   "size of a request's body at most (256MiB)"),
    PARE_OPT_BYTES("max-pending", "SIZE", max_pending, 1e3, 1e13,
                   "size of the bodies of all requests that are not answered yet, and of replies "
                   "that are not read; more are refused with status 503 (1GiB)"),
    PARE_OPT_LIST("traffic", "MODEL=V:W,...", traffic,
                  "share MODEL's requests that name no version between versions V by weights W, "
                  "also of its config.pbtxt; may be given several times"),
    PARE_OPT_LIST("shadow", "MODEL=OTHER", shadow,
                  "run MODEL's requests by OTHER, too, behind their replies, and compare the "
                  "answers; OTHER/VERSION names a version; may be given several times"),
    PARE_OPT_REAL("shadow-share", "SHARE", shadow_share, 0, 1,
                  "share of the requests that are compared (1)"),
    PARE_OPT_INT("shadow-queue", "N", shadow_queue, 1, 1e6,
                 "requests that wait for a shadow or run in it; more are not compared (64)"),
    PARE_OPT_FLAG("shared-memory", shared_memory,
                  "let clients of this machine pass tensors in POSIX shared memory, of which they "
                  "may name any that this program may open"),
    PARE_OPT_FLAG("cuda-shared-memory", cuda_shared_memory,
                  "let clients of this machine pass tensors in memory of the GPUs that models are "
                  "served on, by handles of CUDA's"),
    PARE_OPT_FILE("tls-cert", "FILE.pem", certificate,
                  "certificate, with those that it hangs on: speak HTTPS"),
    PARE_OPT_FILE("tls-key", "FILE.pem", key, "the certificate's key"),
    PARE_OPT_FILE("token", "FILE", token,
                  "the word in this file must come with every request but those of v2/health: "
                  "Authorization: Bearer WORD"),
    {0},
};

static const serve_options defaults = {.host = "127.0.0.1",
                                       .port = 8000,
                                       .grpc_port = -1,
                                       .parallel = PARE_PARALLEL_NONE,
                                       .max_batch = 32,
                                       .max_queue = 1024,
                                       .shadow_queue = 64,
                                       .shadow_share = 1,
                                       .max_request = 256 << 20,
                                       .max_pending = 1 << 30};

/* A server at work. */
typedef struct server {
    pare_gpus *gpus;
    pare_repository *repository;
    pare_shadows *shadows; /* NULL: none */
    pare_regions regions;
    pare_api api;
    size_t held; /* bytes of requests that are not answered yet, and of replies that are sent */
    pare_http *http;
    pare_grpc *grpc; /* NULL: it is not spoken */
} server;

static void handle(void *user, pare_exchange *x) { pare_api_handle(user, x); }

static bool admit(void *user, pare_exchange *x) { return pare_api_admit(user, x); }

static pare_bodies *bodies(void *user, pare_exchange *x) { return pare_api_bodies(user, x); }

/* A signal is noted by its handler alone, whichever thread it comes to. */
static void await_signal(const pare_ctx *ctx)
{
    while (!ctx->interrupted || !*ctx->interrupted) pare_sleep_ms(20);
}

/* --- the command --- */

static pare_status check_gpus(pare_tool *tool, const serve_options *o)
{
    int gpu[PARE_MOST_LISTED], count;
    const bool is_parallel = o->parallel != PARE_PARALLEL_NONE;
    if (!is_parallel && !o->gpus) return PARE_OK;
    if (!is_parallel || !o->gpus)
        return PARE_FAIL(tool->ctx, USAGE,
                         "--parallel pipeline and --gpus come together: stages lie on these GPUs");
    if (o->common.device)
        return PARE_FAIL(tool->ctx, USAGE, "--gpus and --device exclude each other");
    PARE_TRY(pare_gpus_parse(tool->ctx, o->gpus, gpu, &count));
    if (count > 1) return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE,
                     "--gpus %s: names one GPU, expected a GPU for each stage of a pipeline",
                     o->gpus);
}

/* --stage-weights is of models in stages. The configuration of a folder's models is read whenever
   they are loaded; a file alone has none. */
static pare_status check_stages(pare_tool *tool, const serve_options *o)
{
    if (!o->stage_weights || o->gpus) return PARE_OK;
    for (int i = 0; i < tool->arg_count; i++)
        if (!pare_ends_with(tool->arg[i], ".onnx")) return PARE_OK;
    return PARE_FAIL(
        tool->ctx, USAGE,
        "--stage-weights: no model is in stages, nor can one be loaded later: expected "
        "--parallel pipeline, or a folder of models with 'parallel' in config.pbtxt");
}

static pare_status check(pare_tool *tool, const void *options)
{
    const serve_options *o = options;
    if (o->max_pending / 2 < o->max_request)
        return PARE_FAIL(tool->ctx, USAGE,
                         "--max-pending is less than twice --max-request, which a request may be "
                         "packed and unpacked");
    for (int i = 0; i < o->traffic.count; i++) {
        pare_shares shares;
        const char *rule = o->traffic.item[i], *equals = strchr(rule, '=');
        if (!equals || equals == rule)
            return PARE_FAIL(tool->ctx, USAGE, "--traffic %s: expected MODEL=VERSION:WEIGHT,...",
                             rule);
        if (pare_shares_read(tool->ctx, &shares, "--traffic", equals + 1) != PARE_OK)
            return PARE_USAGE;
    }
    if (!o->certificate != !o->key)
        return PARE_FAIL(tool->ctx, USAGE, "--tls-cert and --tls-key come together");
    PARE_TRY(check_gpus(tool, o));
    PARE_TRY(check_stages(tool, o));
    for (int i = 0; i < tool->arg_count; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(tool->arg[i], tool->arg[k]))
                return PARE_FAIL(tool->ctx, USAGE, "%s is given twice", tool->arg[i]);
    return PARE_OK;
}

/* What HTTP takes of a small model is as much as the model; most of a large one's time is its own.
 */
static int http_threads(const serve_options *o)
{
    const int quarter = pare_cpu_cores() / 4;
    if (o->http_threads) return (int)o->http_threads;
    return quarter < 1 ? 1 : quarter > 8 ? 8 : quarter;
}

/* A file's text, in the tool's arena; *out stays NULL where there is no file. */
static pare_status read_text(pare_tool *tool, const char *path, const char **out)
{
    pare_map map;
    if (!path) return PARE_OK;
    PARE_TRY(pare_map_open(tool->ctx, &map, path));
    *out = pare_arena_strndup(&tool->arena, (const char *)map.data, map.size);
    const bool is_text = !map.size || !memchr(map.data, 0, map.size);
    pare_map_close(&map);
    if (!is_text) return PARE_FAIL(tool->ctx, INPUT, "%s: holds a zero byte, expected text", path);
    return *out ? PARE_OK : PARE_MEMORY;
}

/* One run is copied in and out while the other is computed. */
enum { GPU_INSTANCES = 2 };

static pare_status open_shadows(pare_tool *tool, const serve_options *o, server *out)
{
    const pare_shadows_options options = {.rule = o->shadow.item,
                                          .count = o->shadow.count,
                                          .share = o->shadow_share,
                                          .queue = o->shadow_queue};
    return options.count ? pare_shadows_new(tool->ctx, &out->shadows, &options) : PARE_OK;
}

/* All models that do not choose their place are in stages on these GPUs. */
static pare_status place_stages(pare_tool *tool, const serve_options *o, pare_serve_config *out)
{
    int gpu[PARE_MOST_LISTED];
    PARE_TRY(pare_gpus_parse(tool->ctx, o->gpus, gpu, &out->gpu_count));
    out->kind = PARE_KIND_GPU;
    out->is_pipeline = true;
    for (int i = 0; i < out->gpu_count; i++)
        out->gpu[i] = (pare_gpu_group){.index = gpu[i], .instances = o->instances};
    return PARE_OK;
}

static void say_site(pare_tool *tool, const pare_served *s, const pare_site *site)
{
    const pare_pipeline_plan *p = site->planned;
    pare_stages_print_table(tool, p);
    char gpus[4096];
    pare_print(stderr,
               "model '%s' on %s: batches of %d sample%s, %d at a time; stages wait for %.1f %% of "
               "the time, equal ones would for %.1f %%\n",
               s->name, pare_site_text(site, gpus, sizeof gpus), p->samples,
               p->samples == 1 ? "" : "s", p->runs, 100 * p->bubble, 100 * p->bubble_equal);
}

/* What was planned for models in stages. */
static pare_status say_stages(pare_tool *tool, const server *s)
{
    pare_served **all;
    int count;
    if (tool->common->quiet) return PARE_OK;
    PARE_TRY(pare_repository_all(s->repository, tool->ctx, &all, &count));
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < all[i]->site_count; k++)
            if (all[i]->site[k].planned) say_site(tool, all[i], &all[i]->site[k]);
        pare_served_release(all[i]);
    }
    pare_free(all);
    return PARE_OK;
}

static pare_status open_repository(pare_tool *tool, const serve_options *o, server *out)
{
    if (!o->gpus) PARE_TRY(pare_tool_open_device(tool));
    PARE_TRY(pare_gpus_new(tool->ctx, &out->gpus, tool->device, (size_t)o->common.memory_limit));
    pare_repository_options options = {
        .path = tool->arg, .count = tool->arg_count, .gpus = out->gpus};
    pare_serve_config_init(&options.config);
    const int64_t threads = o->common.threads ? o->common.threads : pare_cpu_cores();
    options.config.max_batch = o->max_batch;
    options.config.delay = o->max_delay;
    options.config.queue = o->max_queue;
    options.config.wait = o->max_wait;
    options.config.instances = o->instances ? o->instances : threads;
    options.config.gpu_instances = o->instances ? o->instances : GPU_INSTANCES;
    options.config.stage_weights = (size_t)o->stage_weights;
    if (o->gpus) PARE_TRY(place_stages(tool, o, &options.config));
    options.traffic = o->traffic.item;
    options.traffic_count = o->traffic.count;
    options.shadows = out->shadows;
    if (o->preprocess) {
        const pare_status st = pare_preprocess_parse(&tool->arena, &options.config.preprocess,
                                                     "--preprocess", o->preprocess);
        if (st != PARE_OK) return st == PARE_INPUT ? PARE_USAGE : st;
    }
    PARE_TRY(pare_repository_open(tool->ctx, &out->repository, &options));
    PARE_TRY(say_stages(tool, out));
    return out->shadows ? pare_shadows_start(out->shadows, tool->ctx, out->repository) : PARE_OK;
}

static pare_status open_transports(pare_tool *tool, const serve_options *o, const char *certificate,
                                   const char *key, server *out)
{
    const pare_http_options http = {.host = o->host,
                                    .port = (int)o->port,
                                    .threads = http_threads(o),
                                    .limit = o->max_request,
                                    .pending = o->max_pending,
                                    .held = &out->held,
                                    .certificate = certificate,
                                    .key = key,
                                    .admit = admit,
                                    .bodies = bodies,
                                    .handle = handle,
                                    .user = &out->api};
    const pare_grpc_options grpc = {.host = o->host,
                                    .port = (int)o->grpc_port,
                                    .limit = o->max_request,
                                    .pending = o->max_pending,
                                    .held = &out->held,
                                    .certificate = certificate,
                                    .key = key,
                                    .api = &out->api};
    const pare_status st = pare_http_open(tool->ctx, &out->http, &http);
    if (st == PARE_INPUT && certificate)
        return pare_fail_prefix(tool->ctx, st, "%s, %s", o->certificate, o->key);
    PARE_TRY(st);
    return o->grpc_port < 0 ? PARE_OK : pare_grpc_open(tool->ctx, &out->grpc, &grpc);
}

static pare_status open_server(pare_tool *tool, const serve_options *o, server *out)
{
    const char *certificate = NULL, *key = NULL;
    PARE_TRY(read_text(tool, o->certificate, &certificate));
    PARE_TRY(read_text(tool, o->key, &key));
    PARE_TRY(pare_token_read(&tool->arena, &out->api.token, o->token));
    PARE_TRY(open_shadows(tool, o, out));
    PARE_TRY(open_repository(tool, o, out));
    out->api.repository = out->repository;
    out->api.shadows = out->shadows;
    out->regions.has_system = o->shared_memory;
    out->regions.gpus = o->cuda_shared_memory ? out->gpus : NULL;
    out->api.regions = o->shared_memory || o->cuda_shared_memory ? &out->regions : NULL;
    return open_transports(tool, o, certificate, key, out);
}

/* "http://127.0.0.1:8000", or "https"; an IPv6 address is in brackets. */
static void say_address(const serve_options *o, const char *scheme, int port)
{
    const bool is_v6 = strchr(o->host, ':') != NULL;
    pare_print(stdout, "%s%s://%s%s%s:%d\n", scheme, o->certificate ? "s" : "", is_v6 ? "[" : "",
               o->host, is_v6 ? "]" : "", port);
}

static pare_status say_addresses(pare_tool *tool, const serve_options *o, const server *s)
{
    say_address(o, "http", pare_http_port(s->http));
    if (s->grpc) say_address(o, "grpc", pare_grpc_port(s->grpc));
    if (fflush(stdout)) return PARE_FAIL(tool->ctx, IO, "standard output: %s", strerror(errno));
    return PARE_OK;
}

/* What was planned for a model in stages; NULL: it is not. */
static json_t *pipelines_json(const pare_served *s)
{
    json_t *list = NULL;
    for (int i = 0; i < s->site_count; i++) {
        const pare_pipeline_plan *p = s->site[i].planned;
        if (!p) continue;
        json_t *gpus = json_array();
        for (int k = 0; k < p->stages; k++)
            json_array_append_new(gpus, json_integer(s->site[i].stage[k]->device->index));
        if (!list) list = json_array();
        json_array_append_new(list, json_pack("{s:o, s:i, s:i, s:f, s:f, s:o}", "gpus", gpus,
                                              "batch", p->samples, "side_by_side", p->runs,
                                              "bubble", p->bubble, "bubble_equal", p->bubble_equal,
                                              "stages", pare_stages_list(p)));
    }
    return list;
}

static pare_status note_facts(pare_tool *tool, const server *s, double seconds)
{
    pare_served **all;
    int count;
    json_t *list = json_array();
    json_object_set_new(tool->facts, "models", list);
    json_object_set_new(tool->facts, "seconds", json_real(seconds));
    PARE_TRY(pare_repository_all(s->repository, tool->ctx, &all, &count));
    for (int i = 0; i < count; i++) {
        pare_served_stats stats;
        pare_served_stats_read(&all[i]->stats, &stats);
        json_array_append_new(
            list,
            json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o*}", "name",
                      pare_json_text(all[i]->name), "version", (json_int_t)all[i]->options.version,
                      "answered", (json_int_t)stats.stage[PARE_STAGE_REQUEST].count, "failed",
                      (json_int_t)stats.failed.count, "shed", (json_int_t)stats.shed, "samples",
                      (json_int_t)stats.rows, "runs", (json_int_t)stats.runs, "pipelines",
                      pipelines_json(all[i])));
        pare_served_release(all[i]);
    }
    pare_free(all);
    if (!s->shadows) return PARE_OK;
    json_object_set_new(tool->facts, "shadows", list = json_array());
    for (int i = 0; i < pare_shadows_count(s->shadows); i++)
        json_array_append_new(list, pare_shadow_json(pare_shadows_at(s->shadows, i)));
    return PARE_OK;
}

static void *drain_grpc(void *user)
{
    pare_grpc_drain(user);
    return NULL;
}

/* Side by side: neither transport takes more requests while the other ends. */
static void drain_transports(server *s)
{
    pthread_t thread;
    const bool is_beside = s->grpc && !pthread_create(&thread, NULL, drain_grpc, s->grpc);
    pare_http_drain(s->http);
    if (is_beside)
        (void)pthread_join(thread, NULL);
    else
        pare_grpc_drain(s->grpc);
}

/* Answers what has come. */
static void drain(pare_tool *tool, server *s)
{
    tool->ctx->interrupted = NULL; /* it was asked to end, and does */
    pare_log(tool->ctx, PARE_LOG_INFO, "no new connections; answering what has come");
    __atomic_store_n(&s->api.draining, true, __ATOMIC_RELEASE);
    if (pare_repository_hurry(s->repository, tool->ctx) != PARE_OK)
        pare_ctx_clear(tool->ctx); /* those that wait for others do so as long as they would */
    drain_transports(s);
    pare_shadows_drain(s->shadows); /* what they hold counts with the transport's */
}

/* Until a signal asks for the end. */
static pare_status serve(pare_tool *tool, const serve_options *o, server *s)
{
    const double start = pare_seconds();
    const pare_status st = say_addresses(tool, o, s);
    if (st == PARE_OK) await_signal(tool->ctx);
    drain(tool, s);
    return st == PARE_OK ? note_facts(tool, s, pare_seconds() - start) : st;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const serve_options *o = options;
    server s = {0};
    PARE_TRY(check(tool, options));
    pare_regions_init(&s.regions);
    pare_status st = open_server(tool, o, &s);
    if (st == PARE_OK) st = serve(tool, o, &s);
    pare_grpc_close(s.grpc);
    pare_http_close(s.http);
    pare_repository_close(s.repository);
    pare_shadows_free(s.shadows);
    pare_regions_free(&s.regions);
    pare_gpus_free(s.gpus);
    return st;
}

const pare_command pare_command_serve = {
    .name = "serve",
    .arguments = "FOLDER|MODEL.onnx...",
    .min = 1,
    .max = -1,
    .summary = "serve models over HTTP and gRPC, by the protocol that Triton and KServe have",
    .detail =
        "A folder holds MODEL/VERSION/model.onnx, and MODEL/config.pbtxt where a model has one. "
        "The\n"
        "address is printed once every model is loaded. SIGTERM ends it: requests that have come "
        "are\n"
        "answered first.",
    .example = "pare serve models/ --port 8000",
    .options = table,
    .size = sizeof(serve_options),
    .defaults = &defaults,
    .check = check,
    .run = run,
};
