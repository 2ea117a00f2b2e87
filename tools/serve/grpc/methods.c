/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/grpc/methods.h"

#include "formats/wire.h"
#include "runtime/base/clock.h"
#include "tools/serve/http/encoding.h"
#include "tools/serve/grpc/grpc.pb-c.h"
#include "tools/serve/grpc/infer.h"

#include <stdlib.h>
#include <string.h>

/* What a method's messages are. */
typedef enum kind {
    OBJECT, /* those of the descriptors, as JSON has them */
    FLAG,   /* the reply says true or false */
    INFER,
    STREAM
} kind;

/* What a method's message names. An empty name is "" for ONE_, and NULL for ANY_: all of them. */
typedef enum subject { NOTHING, ONE_MODEL, ANY_MODEL, ONE_REGION, ANY_REGION } subject;

struct pare_grpc_method {
    const char *name, *path; /* path: of the table of routes, behind a slash */
    kind kind;
    subject subject;
    const ProtobufCMessageDescriptor *request, *reply; /* NULL: read and written elsewhere */
    const char *wrap; /* field of the reply that the JSON is; NULL: it is the reply */
};

static const pare_grpc_method methods[] = {
    {"ServerLive", "/v2/health/live", FLAG, NOTHING, &inference__server_live_request__descriptor,
     NULL, NULL},
    {"ServerReady", "/v2/health/ready", FLAG, NOTHING, &inference__server_ready_request__descriptor,
     NULL, NULL},
    {"ModelReady", "/v2/models/{m}/ready", FLAG, ONE_MODEL,
     &inference__model_ready_request__descriptor, NULL, NULL},
    {"ServerMetadata", "/v2", OBJECT, NOTHING, &inference__server_metadata_request__descriptor,
     &inference__server_metadata_response__descriptor, NULL},
    {"ModelMetadata", "/v2/models/{m}", OBJECT, ONE_MODEL,
     &inference__model_metadata_request__descriptor,
     &inference__model_metadata_response__descriptor, NULL},
    {"ModelConfig", "/v2/models/{m}/config", OBJECT, ONE_MODEL,
     &inference__model_config_request__descriptor, &inference__model_config_response__descriptor,
     "config"},
    {"ModelStatistics", "/v2/models/{m}/stats", OBJECT, ANY_MODEL,
     &inference__model_statistics_request__descriptor,
     &inference__model_statistics_response__descriptor, NULL},
    {"ModelInfer", "/v2/models/{m}/infer", INFER, ONE_MODEL, NULL, NULL, NULL},
    {"ModelStreamInfer", "/v2/models/{m}/infer", STREAM, ONE_MODEL, NULL, NULL, NULL},
    {"RepositoryIndex", "/v2/repository/index", OBJECT, NOTHING,
     &inference__repository_index_request__descriptor,
     &inference__repository_index_response__descriptor, "models"},
    {"RepositoryModelLoad", "/v2/repository/models/{m}/load", OBJECT, ONE_MODEL,
     &inference__repository_model_load_request__descriptor, NULL, NULL},
    {"RepositoryModelUnload", "/v2/repository/models/{m}/unload", OBJECT, ONE_MODEL,
     &inference__repository_model_unload_request__descriptor, NULL, NULL},
    {"SystemSharedMemoryStatus", "/v2/systemsharedmemory/region/{r}/status", OBJECT, ANY_REGION,
     &inference__system_shared_memory_status_request__descriptor,
     &inference__system_shared_memory_status_response__descriptor, "regions"},
    {"SystemSharedMemoryRegister", "/v2/systemsharedmemory/region/{r}/register", OBJECT, ONE_REGION,
     &inference__system_shared_memory_register_request__descriptor, NULL, NULL},
    {"SystemSharedMemoryUnregister", "/v2/systemsharedmemory/region/{r}/unregister", OBJECT,
     ANY_REGION, &inference__system_shared_memory_unregister_request__descriptor, NULL, NULL},
    {"CudaSharedMemoryStatus", "/v2/cudasharedmemory/region/{r}/status", OBJECT, ANY_REGION,
     &inference__cuda_shared_memory_status_request__descriptor,
     &inference__cuda_shared_memory_status_response__descriptor, "regions"},
    {"CudaSharedMemoryRegister", "/v2/cudasharedmemory/region/{r}/register", OBJECT, ONE_REGION,
     &inference__cuda_shared_memory_register_request__descriptor, NULL, NULL},
    {"CudaSharedMemoryUnregister", "/v2/cudasharedmemory/region/{r}/unregister", OBJECT, ANY_REGION,
     &inference__cuda_shared_memory_unregister_request__descriptor, NULL, NULL},
};

const pare_grpc_method *pare_grpc_method_find(const char *path, size_t bytes)
{
    static const char service[] = "/inference.GRPCInferenceService/";
    const size_t before = sizeof service - 1;
    if (bytes < before || memcmp(path, service, before) != 0) return NULL;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const size_t n = strlen(methods[i].name);
        if (n == bytes - before && !memcmp(methods[i].name, path + before, n)) return &methods[i];
    }
    return NULL;
}

bool pare_grpc_method_streams(const pare_grpc_method *method) { return method->kind == STREAM; }

bool pare_grpc_method_infers(const pare_grpc_method *method)
{
    return method->kind == INFER || method->kind == STREAM;
}

/* --- the exchange's form --- */

static pare_status read_request(pare_exchange *x, pare_infer_request *out)
{
    return pare_grpc_infer_read(&x->arena, x, out, x->body, x->bytes);
}

static pare_status write_result(pare_exchange *x, const pare_infer_result *result)
{
    const pare_grpc_request *q = (const pare_grpc_request *)(const void *)x;
    return pare_grpc_infer_write(&x->arena, &x->reply, result, q->method->kind == STREAM);
}

/* Regions are listed in JSON, and by their names in the message. */
static json_t *by_name(json_t *list)
{
    size_t i;
    json_t *each, *all = json_object();
    json_array_foreach(list, i, each)
        json_object_set(all, json_string_value(json_object_get(each, "name")), each);
    json_decref(list);
    return all;
}

static void put(pare_exchange *x, int code, json_t *json)
{
    const pare_grpc_request *q = (const pare_grpc_request *)(const void *)x;
    const char *wrap = q->method->wrap, *error = json_string_value(json_object_get(json, "error"));
    pare_message m = {0};
    if (code != PARE_HTTP_OK) {
        x->reply.body = strdup(error ? error : "out of memory");
        x->reply.bytes = x->reply.body ? strlen(x->reply.body) : 0;
        x->reply.code = code;
        json_decref(json);
        return;
    }
    if (json && wrap && !strcmp(wrap, "regions")) json = by_name(json);
    if (json && wrap) json = json_pack("{s:o}", wrap, json);
    if (q->method->reply) pare_message_of_json(&m, q->method->reply, json);
    x->reply.code = json && !m.failed ? PARE_HTTP_OK : PARE_HTTP_UNAVAILABLE;
    x->reply.body = m.data;
    x->reply.bytes = m.bytes;
    if (x->reply.code != PARE_HTTP_OK) {
        pare_message_free(&m);
        x->reply.body = NULL;
        x->reply.bytes = 0;
    }
    json_decref(json);
}

static const pare_exchange_form form = {read_request, write_result, put};

void pare_grpc_request_init(pare_grpc_request *q, const pare_ctx *parent,
                            const pare_grpc_method *method)
{
    *q = (pare_grpc_request){.method = method};
    pare_exchange_init(&q->x, parent);
    q->x.form = &form;
    q->x.method = "POST";
    q->x.path = method->path;
}

/* --- asking --- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && *text ? text : NULL;
}

/* name: of the model or region; NULL: it is empty. */
static void answer(pare_grpc_request *q, pare_api *api, const char *name, const char *version)
{
    const subject of = q->method->subject;
    if (!name && (of == ONE_MODEL || of == ONE_REGION)) name = "";
    const bool is_region = of == ONE_REGION || of == ANY_REGION;
    pare_api_answer(api, &q->x, q->method->path + 1, is_region ? NULL : name, version,
                    is_region ? name : NULL);
}

static void infer(pare_grpc_request *q, pare_api *api)
{
    pare_grpc_names names;
    if (pare_grpc_names_read(&q->x.arena, &names, q->x.body, q->x.bytes) != PARE_OK) {
        pare_exchange_fail(&q->x, PARE_HTTP_BAD_REQUEST);
        return;
    }
    q->id = names.id;
    answer(q, api, names.model, names.version);
}

enum { MOST_FIELDS = 1024 };

/* What is made of a field takes many times its bytes. Damage is found later. */
static pare_status check_fields(pare_exchange *x)
{
    pare_wire_field field;
    const uint8_t *at = (const uint8_t *)x->body, *end = at + x->bytes;
    for (int i = 0; at < end && !pare_wire_next(&at, end, &field); i++)
        if (i == MOST_FIELDS)
            return PARE_FAIL(&x->ctx, INPUT,
                             "the request has more than the %d fields that are read", MOST_FIELDS);
    return PARE_OK;
}

/* The body becomes that of HTTP, in the arena. */
static pare_status read_object(pare_grpc_request *q, const char **name, const char **version)
{
    pare_exchange *x = &q->x;
    json_t *object;
    PARE_TRY(check_fields(x));
    PARE_TRY(pare_message_to_json(&x->ctx, &object, q->method->request, x->body, x->bytes));
    const char *model = text_of(object, "model_name");
    *name = pare_arena_strdup(&x->arena, model ? model : text_of(object, "name"));
    *version = pare_arena_strdup(&x->arena, text_of(object, "version"));
    char *text = json_dumps(object, JSON_COMPACT);
    x->body = pare_arena_strdup(&x->arena, text ? text : "");
    x->bytes = x->body ? strlen(x->body) : 0;
    free(text);
    json_decref(object);
    return x->bytes ? PARE_OK : PARE_FAIL(&x->ctx, MEMORY, "out of memory for a request");
}

static void ask(pare_grpc_request *q, pare_api *api)
{
    const char *name, *version;
    if (q->x.bytes > PARE_API_MOST_BODY) {
        pare_api_refuse_size(&q->x);
        return;
    }
    pare_status st = read_object(q, &name, &version);
    if (st == PARE_OK && !name && q->method->subject == ONE_REGION)
        st = PARE_FAIL(&q->x.ctx, INPUT, "the request: no 'name'");
    if (st == PARE_OK)
        answer(q, api, name, version);
    else
        pare_exchange_fail(&q->x, pare_reply_code(st));
}

void pare_grpc_request_handle(pare_grpc_request *q, pare_api *api)
{
    const pare_status st = pare_encoding_decode(&q->x);
    if (st != PARE_OK)
        pare_exchange_fail(&q->x, pare_reply_code(st));
    else if (pare_grpc_method_infers(q->method))
        infer(q, api);
    else
        ask(q, api);
}

/* --- the reply --- */

static int status_of(const pare_exchange *x)
{
    const int code = x->reply.code;
    if (code == PARE_HTTP_UNAVAILABLE && x->deadline > 0 && pare_seconds() >= x->deadline)
        return PARE_GRPC_DEADLINE_EXCEEDED;
    switch (code) {
    case PARE_HTTP_OK: return PARE_GRPC_OK;
    case PARE_HTTP_BAD_REQUEST: return PARE_GRPC_INVALID_ARGUMENT;
    case PARE_HTTP_UNAUTHORIZED: return PARE_GRPC_UNAUTHENTICATED;
    case PARE_HTTP_NOT_FOUND: return PARE_GRPC_NOT_FOUND;
    case PARE_HTTP_TOO_LARGE: return PARE_GRPC_RESOURCE_EXHAUSTED;
    case PARE_HTTP_NOT_SERVED: return PARE_GRPC_UNIMPLEMENTED;
    case PARE_HTTP_UNAVAILABLE: return PARE_GRPC_UNAVAILABLE;
    default: return PARE_GRPC_INTERNAL;
    }
}

/* The one field that says whether it is so. */
static int finish_flag(pare_reply *r)
{
    const bool is_so = r->code == PARE_HTTP_OK;
    pare_message m = {0};
    if (r->code == PARE_HTTP_UNAUTHORIZED) return PARE_GRPC_UNAUTHENTICATED;
    free(r->body);
    if (is_so) pare_message_number(&m, 1, true);
    r->body = m.data;
    r->bytes = m.bytes;
    return m.failed ? PARE_GRPC_UNAVAILABLE : PARE_GRPC_OK;
}

/* A message that holds the error, and which request it was. */
static void finish_stream(pare_grpc_request *q)
{
    pare_reply *r = &q->x.reply;
    pare_message m = {0}, response = {0};
    if (r->code == PARE_HTTP_OK) return;
    pare_message_text(&m, 1, r->body ? r->body : "out of memory");
    if (q->id) pare_message_text(&response, 3, q->id);
    pare_message_put(&m, 2, &response);
    free(r->body);
    r->body = m.data;
    r->bytes = m.bytes;
}

int pare_grpc_request_finish(pare_grpc_request *q)
{
    if (q->method->kind == FLAG) return finish_flag(&q->x.reply);
    if (q->method->kind == STREAM) finish_stream(q);
    return status_of(&q->x);
}
