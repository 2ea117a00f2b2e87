/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/api.h"

#include "runtime/base/version.h"
#include "tools/serve/base64.h"
#include "tools/serve/traffic/shadow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A request on its way: the parts of its path that its route leaves open. */
typedef struct call {
    pare_api *api;
    pare_exchange *x;
    const char *model;   /* NULL: the route has none */
    const char *version; /* NULL: not given */
    const char *region;  /* of shared memory; NULL: the route has none */
    pare_task task;      /* loading and unloading */
} call;

/* --- the server --- */

static void live(call *c) { pare_exchange_empty(c->x); }

static void ready(call *c)
{
    if (__atomic_load_n(&c->api->draining, __ATOMIC_ACQUIRE))
        pare_exchange_refuse(c->x, PARE_HTTP_UNAVAILABLE, "the server is about to end");
    else if (pare_repository_check(c->api->repository, &c->x->ctx) != PARE_OK)
        pare_exchange_fail(c->x, PARE_HTTP_UNAVAILABLE);
    else
        pare_exchange_empty(c->x);
}

static bool serves(const pare_api *api, pare_region_kind kind)
{
    if (!api->regions) return false;
    return kind == PARE_REGION_CUDA ? api->regions->gpus != NULL : api->regions->has_system;
}

static void server_metadata(call *c)
{
    json_t *extensions = json_pack("[s, s, s, s, s, s, s]", "binary_tensor_data", "classification",
                                   "model_configuration", "model_repository", "schedule_policy",
                                   "sequence", "statistics");
    if (serves(c->api, PARE_REGION_SYSTEM))
        json_array_append_new(extensions, json_string("system_shared_memory"));
    if (serves(c->api, PARE_REGION_CUDA))
        json_array_append_new(extensions, json_string("cuda_shared_memory"));
    pare_exchange_json(c->x, json_pack("{s:s, s:s, s:o}", "name", "pare", "version", PARE_VERSION,
                                       "extensions", extensions));
}

static void metrics(call *c)
{
    pare_served **all;
    int count;
    size_t bytes = 0;
    if (pare_repository_all(c->api->repository, &c->x->ctx, &all, &count) != PARE_OK) {
        pare_exchange_fail(c->x, PARE_HTTP_UNAVAILABLE);
        return;
    }
    char *text = pare_metrics_text(all, count, c->api->shadows, &bytes);
    for (int i = 0; i < count; i++) pare_served_release(all[i]);
    pare_free(all);
    pare_exchange_text(c->x, "application/openmetrics-text; version=1.0.0; charset=utf-8", text,
                       bytes);
}

/* --- a model --- */

/* A reference to the model that the path names; false: the reply says why there is none. */
static bool find(call *c, int code, pare_served **out)
{
    int64_t version = 0;
    if (c->version) {
        char *end;
        errno = 0;
        version = strtoll(c->version, &end, 10);
        if (errno || *end || version < 1) {
            pare_exchange_refuse(c->x, PARE_HTTP_BAD_REQUEST,
                                 "model '%s': version '%s' is not a whole number from 1", c->model,
                                 c->version);
            return false;
        }
    }
    const pare_status st =
        pare_repository_find(c->api->repository, &c->x->ctx, out, c->model, version);
    if (st == PARE_OK) return true;
    pare_exchange_fail(c->x, pare_reply_code_missing(st, code));
    return false;
}

static void model_ready(call *c)
{
    pare_served *s;
    if (!find(c, PARE_HTTP_BAD_REQUEST, &s)) return;
    pare_served_release(s);
    pare_exchange_empty(c->x);
}

static void model_metadata(call *c)
{
    pare_served *s;
    if (!find(c, PARE_HTTP_NOT_FOUND, &s)) return;
    json_t *versions = pare_repository_versions(c->api->repository, c->model);
    pare_exchange_json(c->x, pare_served_metadata(s, versions));
    pare_served_release(s);
}

static void model_config(call *c)
{
    pare_served *s;
    if (!find(c, PARE_HTTP_NOT_FOUND, &s)) return;
    pare_exchange_json(c->x, pare_served_config(s));
    pare_served_release(s);
}

/* The model counts a request that could not be read; where there is no model, that is what is said.
 */
static void refuse_unread(call *c, pare_status read)
{
    pare_ctx ctx;
    pare_served *s;
    pare_exchange *x = c->x;
    pare_ctx_child(&ctx, &x->ctx);
    const pare_status st = pare_repository_find(c->api->repository, &ctx, &s, c->model, 0);
    if (st == PARE_OK) {
        pare_infer_job_submit(NULL, s, x, read);
        return;
    }
    pare_ctx_clear(&x->ctx);
    (void)pare_fail(&x->ctx, st, "%s", ctx.message);
    pare_exchange_fail(x, pare_reply_code_missing(st, PARE_HTTP_NOT_FOUND));
}

/* To the version whose turn it is, or that has all requests of this sequence or id. */
static void infer_by_share(call *c)
{
    pare_served *s;
    pare_infer_request request;
    const char *id = NULL;
    pare_exchange *x = c->x;
    const bool is_picture = pare_infer_job_is_picture(x);
    const pare_status read = is_picture ? PARE_OK : pare_infer_job_read(x, &request);
    if (read != PARE_OK) {
        refuse_unread(c, read);
        return;
    }
    if (!is_picture) id = request.sequence.id ? request.sequence.id : request.id;
    if (id && !*id) id = NULL;
    const pare_status st = pare_repository_choose(c->api->repository, &x->ctx, &s, c->model, id);
    if (st == PARE_OK)
        pare_served_infer(s, x, is_picture ? NULL : &request, c->api->regions);
    else
        pare_exchange_fail(x, pare_reply_code_missing(st, PARE_HTTP_NOT_FOUND));
}

static void infer(call *c)
{
    pare_served *s;
    if (!c->version && pare_repository_shares(c->api->repository, c->model))
        infer_by_share(c);
    else if (find(c, PARE_HTTP_NOT_FOUND, &s))
        pare_served_infer(s, c->x, NULL, c->api->regions);
}

/* Of the model that the path names, all its versions where it names none, or of all models. */
static void statistics(call *c)
{
    pare_served **all, *s;
    int count;
    if (c->model) {
        if (!find(c, PARE_HTTP_NOT_FOUND, &s)) return;
        pare_served_release(s);
    }
    if (pare_repository_all(c->api->repository, &c->x->ctx, &all, &count) != PARE_OK) {
        pare_exchange_fail(c->x, PARE_HTTP_UNAVAILABLE);
        return;
    }
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        const bool is_asked = !c->model || !strcmp(c->model, all[i]->name);
        const int64_t version = all[i]->options.version;
        if (is_asked && (!c->version || strtoll(c->version, NULL, 10) == version))
            json_array_append_new(list,
                                  pare_served_stats_json(&all[i]->stats, all[i]->name, version));
        pare_served_release(all[i]);
    }
    pare_free(all);
    pare_exchange_json(c->x, json_pack("{s:o}", "model_stats", list));
}

static void shadow(call *c)
{
    pare_shadow *found = pare_shadows_find(c->api->shadows, c->model);
    if (found)
        pare_exchange_json(c->x, pare_shadow_json(found));
    else
        pare_exchange_refuse(c->x, PARE_HTTP_NOT_FOUND, "no model shadows '%s'", c->model);
}

/* --- the repository --- */

/* The body as a JSON object, empty where there is none; NULL: the reply says what is wrong. */
static json_t *body_json(call *c)
{
    json_error_t error;
    pare_exchange *x = c->x;
    if (!x->bytes) return json_object();
    json_t *json = json_loadb(x->body, x->bytes, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(json)) return json;
    pare_exchange_refuse(x, PARE_HTTP_BAD_REQUEST, "the request is no JSON object%s%s",
                         json ? "" : ": ", json ? "" : error.text);
    json_decref(json);
    return NULL;
}

static void repository_index(call *c)
{
    json_t *body = body_json(c);
    if (!body) return;
    const bool only_ready = json_is_true(json_object_get(body, "ready"));
    json_decref(body);
    pare_exchange_json(c->x, pare_repository_index(c->api->repository, only_ready));
}

static void load_now(void *user)
{
    call *c = user;
    const pare_status st = pare_repository_load(c->api->repository, &c->x->ctx, c->model);
    if (st == PARE_OK)
        pare_exchange_empty(c->x);
    else
        pare_exchange_fail(c->x, pare_reply_code(st));
}

/* A request may not bring a configuration or files of its own. */
static void repository_load(call *c)
{
    const char *key;
    json_t *value, *body = body_json(c);
    if (!body) return;
    json_object_foreach(json_object_get(body, "parameters"), key, value)
    {
        pare_exchange_refuse(c->x, PARE_HTTP_NOT_SERVED,
                             "model '%s': the parameter '%s' of a load is not served", c->model,
                             key);
        json_decref(body);
        return;
    }
    json_decref(body);
    pare_repository_later(c->api->repository, &c->task, load_now, c);
}

static void unload_now(void *user)
{
    call *c = user;
    const pare_status st = pare_repository_unload(c->api->repository, &c->x->ctx, c->model);
    if (st == PARE_OK)
        pare_exchange_empty(c->x);
    else
        pare_exchange_fail(c->x, pare_reply_code(st));
}

static void repository_unload(call *c)
{
    json_t *body = body_json(c);
    if (!body) return;
    json_decref(body);
    pare_repository_later(c->api->repository, &c->task, unload_now, c);
}

/* --- shared memory --- */

/* False: the reply says that it is not served. */
static bool has_regions(call *c, pare_region_kind kind)
{
    const bool is_cuda = kind == PARE_REGION_CUDA;
    if (serves(c->api, kind)) return true;
    pare_exchange_refuse(c->x, PARE_HTTP_NOT_SERVED,
                         "%sshared memory is not served; pare serve --%sshared-memory allows it",
                         is_cuda ? "CUDA's " : "", is_cuda ? "cuda-" : "");
    return false;
}

static void status_of(call *c, pare_region_kind kind)
{
    if (!has_regions(c, kind)) return;
    json_t *list = pare_regions_json(c->api->regions, kind, c->region);
    if (list)
        pare_exchange_json(c->x, list);
    else
        pare_exchange_refuse(c->x, PARE_HTTP_NOT_FOUND, "there is no shared memory region '%s'",
                             c->region);
}

static void region_status(call *c) { status_of(c, PARE_REGION_SYSTEM); }

static void cuda_status(call *c) { status_of(c, PARE_REGION_CUDA); }

static void say_registered(call *c, pare_status st)
{
    if (st == PARE_OK)
        pare_exchange_empty(c->x);
    else
        pare_exchange_fail(c->x, pare_reply_code(st));
}

static void region_register(call *c)
{
    const char *key = NULL;
    json_int_t offset = 0, bytes = -1;
    json_t *body = has_regions(c, PARE_REGION_SYSTEM) ? body_json(c) : NULL;
    if (!body) return;
    const bool is_read =
        !json_unpack(body, "{s:s, s?I, s:I}", "key", &key, "offset", &offset, "byte_size", &bytes);
    if (!is_read || offset < 0 || bytes < 0)
        pare_exchange_refuse(c->x, PARE_HTTP_BAD_REQUEST,
                             "region '%s': expected a text 'key' and whole numbers 'offset' and "
                             "'byte_size' from 0",
                             c->region);
    else
        say_registered(
            c, pare_regions_add(c->api->regions, &c->x->ctx, c->region, key, offset, bytes));
    json_decref(body);
}

/* A handle is base64: {"b64": TEXT}, or, of gRPC's bytes, the text. */
static bool read_handle(const json_t *json, unsigned char *handle)
{
    const json_t *text = json_is_object(json) ? json_object_get(json, "b64") : json;
    return json_is_string(text) &&
           pare_base64_read(handle, PARE_SHARING_HANDLE, json_string_value(text));
}

/* gRPC leaves out a device that is 0. */
static void cuda_register(call *c)
{
    unsigned char handle[PARE_SHARING_HANDLE];
    json_t *raw = NULL;
    json_int_t device = 0, bytes = -1;
    json_t *body = has_regions(c, PARE_REGION_CUDA) ? body_json(c) : NULL;
    if (!body) return;
    const bool is_read = !json_unpack(body, "{s:o, s?I, s:I}", "raw_handle", &raw, "device_id",
                                      &device, "byte_size", &bytes);
    if (!is_read || bytes < 0)
        pare_exchange_refuse(c->x, PARE_HTTP_BAD_REQUEST,
                             "region '%s': expected a 'raw_handle' and whole numbers 'device_id' "
                             "and 'byte_size' from 0",
                             c->region);
    else if (!read_handle(raw, handle))
        pare_exchange_refuse(c->x, PARE_HTTP_BAD_REQUEST,
                             "region '%s': raw_handle: expected %d bytes as base64", c->region,
                             PARE_SHARING_HANDLE);
    else
        say_registered(c, pare_regions_add_cuda(c->api->regions, &c->x->ctx, c->region, handle,
                                                device, bytes));
    json_decref(body);
}

static void unregister(call *c, pare_region_kind kind)
{
    if (!has_regions(c, kind)) return;
    pare_regions_remove(c->api->regions, kind, c->region);
    pare_exchange_empty(c->x);
}

static void region_unregister(call *c) { unregister(c, PARE_REGION_SYSTEM); }

static void cuda_unregister(call *c) { unregister(c, PARE_REGION_CUDA); }

/* --- routes --- */

/* In a path {m} is a model, {v} a version, {r} a region. */
static const struct route {
    const char *method, *path;
    void (*answer)(call *c);
} routes[] = {
    {"GET", "v2/health/live", live},
    {"GET", "v2/health/ready", ready},
    {"GET", "v2", server_metadata},
    {"GET", "metrics", metrics},
    {"GET", "v2/models/stats", statistics},
    {"GET", "v2/models/{m}", model_metadata},
    {"GET", "v2/models/{m}/versions/{v}", model_metadata},
    {"GET", "v2/models/{m}/ready", model_ready},
    {"GET", "v2/models/{m}/versions/{v}/ready", model_ready},
    {"GET", "v2/models/{m}/config", model_config},
    {"GET", "v2/models/{m}/versions/{v}/config", model_config},
    {"GET", "v2/models/{m}/stats", statistics},
    {"GET", "v2/models/{m}/versions/{v}/stats", statistics},
    {"GET", "v2/models/{m}/shadow", shadow},
    {"POST", "v2/models/{m}/infer", infer},
    {"POST", "v2/models/{m}/versions/{v}/infer", infer},
    {"POST", "v2/repository/index", repository_index},
    {"POST", "v2/repository/models/{m}/load", repository_load},
    {"POST", "v2/repository/models/{m}/unload", repository_unload},
    {"GET", "v2/systemsharedmemory/status", region_status},
    {"GET", "v2/systemsharedmemory/region/{r}/status", region_status},
    {"POST", "v2/systemsharedmemory/region/{r}/register", region_register},
    {"POST", "v2/systemsharedmemory/unregister", region_unregister},
    {"POST", "v2/systemsharedmemory/region/{r}/unregister", region_unregister},
    {"GET", "v2/cudasharedmemory/status", cuda_status},
    {"GET", "v2/cudasharedmemory/region/{r}/status", cuda_status},
    {"POST", "v2/cudasharedmemory/region/{r}/register", cuda_register},
    {"POST", "v2/cudasharedmemory/unregister", cuda_unregister},
    {"POST", "v2/cudasharedmemory/region/{r}/unregister", cuda_unregister},
};

/* Does the path have the route's form? Takes what the route leaves open. */
static bool match(call *c, const char *form, const char *path)
{
    c->model = c->version = c->region = NULL;
    for (;;) {
        const size_t want = strcspn(form, "/"), have = strcspn(path, "/");
        const bool is_open = want == 3 && form[0] == '{';
        if (is_open ? !have : want != have || strncmp(form, path, want)) return false;
        if (is_open) {
            const char **field = form[1] == 'm'   ? &c->model
                                 : form[1] == 'v' ? &c->version
                                                  : &c->region;
            *field = pare_arena_strndup(&c->x->arena, path, have);
            if (!*field) return false;
        }
        form += want;
        path += have;
        if (!*form || !*path) return !*form && (!*path || !strcmp(path, "/"));
        form++;
        path++;
    }
}

/* Equal texts, in a time that does not tell where they differ. */
static bool is_same_secret(const char *a, const char *b)
{
    const size_t n = strlen(a);
    unsigned differ = n != strlen(b);
    for (size_t i = 0; i < n && !(differ & 1); i++) differ |= (unsigned)(a[i] ^ b[i]) << 1;
    return !differ;
}

bool pare_api_admit(const pare_api *api, pare_exchange *x)
{
    static const char scheme[] = "Bearer", health[] = "/v2/health/";
    const char *given = x->authorization;
    if (!api->token || !strncmp(x->path, health, sizeof health - 1)) return true;
    const char *word =
        given && !strncasecmp(given, scheme, sizeof scheme - 1) ? given + sizeof scheme - 1 : NULL;
    const bool is_bearer = word && (*word == ' ' || !*word);
    if (is_bearer && is_same_secret(word + (*word == ' '), api->token)) return true;
    pare_exchange_refuse(
        x, PARE_HTTP_UNAUTHORIZED, "%s",
        is_bearer ? "the token in the header 'Authorization' is not the server's"
                  : "expected the header 'Authorization: Bearer TOKEN' with the server's token");
    return false;
}

pare_bodies *pare_api_bodies(pare_api *api, pare_exchange *x)
{
    pare_ctx quiet;
    pare_served *s;
    call c = {.api = api, .x = x};
    const char *path = x->path + (*x->path == '/');
    if (!match(&c, "v2/models/{m}/infer", path) &&
        !match(&c, "v2/models/{m}/versions/{v}/infer", path))
        return NULL;
    if (x->encoding && *x->encoding && strcmp(x->encoding, "identity") != 0) return NULL;
    pare_ctx_init(&quiet);
    const int64_t version = c.version ? strtoll(c.version, NULL, 10) : 0;
    if (pare_repository_find(api->repository, &quiet, &s, c.model, version) != PARE_OK) return NULL;
    pare_gpu *gpu = s->site_count && !s->preprocess ? s->site[0].gpu : NULL;
    pare_served_release(s); /* GPUs stay open */
    return gpu ? &gpu->pinned : NULL;
}

void pare_api_refuse_size(pare_exchange *x)
{
    pare_exchange_refuse(x, PARE_HTTP_TOO_LARGE,
                         "%s: the body is larger than the %d bytes that are taken", x->path,
                         PARE_API_MOST_BODY);
}

static void answer(call *c, const struct route *route)
{
    if (route->answer != infer && c->x->bytes > PARE_API_MOST_BODY)
        pare_api_refuse_size(c->x);
    else
        route->answer(c);
}

void pare_api_answer(pare_api *api, pare_exchange *x, const char *path, const char *model,
                     const char *version, const char *region)
{
    const struct route *route = routes;
    call *c = pare_arena_alloc(&x->arena, 1, sizeof *c);
    if (!c) {
        pare_exchange_fail(x, PARE_HTTP_UNAVAILABLE);
        return;
    }
    *c = (call){.api = api, .x = x, .model = model, .version = version, .region = region};
    while (strcmp(route->path, path) != 0) route++;
    answer(c, route);
}

void pare_api_handle(pare_api *api, pare_exchange *x)
{
    const char *method = strcmp(x->method, "HEAD") ? x->method : "GET";
    call *c = pare_arena_alloc(&x->arena, 1, sizeof *c);
    if (!c) {
        pare_exchange_fail(x, PARE_HTTP_UNAVAILABLE);
        return;
    }
    *c = (call){.api = api, .x = x};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!match(c, routes[i].path, x->path + (*x->path == '/'))) continue;
        if (!strcmp(routes[i].method, method)) {
            answer(c, &routes[i]);
            return;
        }
        x->reply.allow = routes[i].method;
    }
    if (x->reply.allow)
        pare_exchange_refuse(x, PARE_HTTP_NOT_ALLOWED, "%s: expected %s, not %s", x->path,
                             x->reply.allow, x->method);
    else
        pare_exchange_refuse(x, PARE_HTTP_NOT_FOUND, "%s: there is nothing of this name", x->path);
}
