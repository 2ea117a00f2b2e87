/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/protocol.h"

#include "runtime/base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- elements as JSON --- */

/* Element i of the tensor; NULL: JSON has no such number or text, or memory is out. */
static json_t *element_json(const pare_infer_tensor *t, int64_t i)
{
    const size_t size = (size_t)pare_type(t->dtype)->bits / 8;
    const char *at = (const char *)t->data + (size_t)i * size;
    int64_t whole = 0;
    double real;
    switch (t->dtype) {
    case PARE_string: {
        const pare_bytes *text = (const pare_bytes *)t->data + i;
        return text->size ? json_stringn(text->data, text->size) : json_string("");
    }
    case PARE_bool: return json_boolean(*at);
    case PARE_f64: memcpy(&real, at, sizeof real); return json_real(real);
    case PARE_f32:
    case PARE_f16:
    case PARE_bf16: return json_real((double)pare_type(t->dtype)->to_f32(at));
    default: break;
    }
    const bool has_sign = t->dtype == PARE_s8 || t->dtype == PARE_s16 || t->dtype == PARE_s32;
    memcpy(&whole, at, size); /* little-endian */
    if (has_sign && whole >> (8 * size - 1) & 1) whole -= (int64_t)1 << 8 * size;
    if (t->dtype == PARE_u64 && whole < 0) return NULL; /* above the integers of the JSON library */
    return json_integer(whole);
}

static pare_status data_json(pare_ctx *ctx, const pare_infer_tensor *t, json_t *entry)
{
    json_t *data = json_array();
    const int64_t count = pare_infer_count(t);
    json_object_set_new(entry, "data", data);
    for (int64_t i = 0; i < count; i++)
        if (json_array_append_new(data, element_json(t, i)))
            return PARE_FAIL(ctx, INPUT,
                             "output '%s': element %lld cannot be written as JSON (NaN, infinity, "
                             "no UTF-8 or above 2^63 - 1); ask for binary data",
                             t->name, (long long)i);
    return PARE_OK;
}

/* --- the response --- */

typedef struct writer {
    pare_arena *arena;
    pare_infer_tensor *output; /* (count) what is written: the result's, or their classes */
    size_t binary;             /* bytes of all binary data */
    bool is_binary;            /* is there any? */
} writer;

/* Into the client's memory; the response says where. */
static pare_status put_shared(writer *w, const pare_infer_result *r, int i, json_t *entry)
{
    size_t bytes;
    const pare_infer_place *to = &r->wanted[i].place;
    PARE_TRY(pare_infer_share(w->arena, r, i, &w->output[i], &bytes));
    json_object_set_new(entry, "parameters",
                        json_pack("{s:s, s:I, s:I}", "shared_memory_region", to->region,
                                  "shared_memory_offset", (json_int_t)to->offset,
                                  "shared_memory_byte_size", (json_int_t)bytes));
    return PARE_OK;
}

static pare_status output_json(writer *w, const pare_infer_result *r, int i, json_t *list)
{
    size_t bytes;
    pare_infer_tensor *t = &w->output[i];
    PARE_TRY(pare_infer_sent(w->arena, t, r, i));
    json_t *shape = json_array();
    for (int k = 0; k < t->rank; k++) json_array_append_new(shape, json_integer(t->dim[k]));
    json_t *entry = json_pack("{s:s, s:s, s:o}", "name", t->name, "datatype",
                              pare_infer_type_name(t->dtype), "shape", shape);
    if (json_array_append_new(list, entry))
        return PARE_FAIL(w->arena->ctx, INPUT, "an output's name is no UTF-8");
    if (r->wanted[i].place.region) return put_shared(w, r, i, entry);
    if (!r->wanted[i].binary) return data_json(w->arena->ctx, t, entry);
    if (!pare_infer_binary_bytes(t, &bytes) || !pare_add_size(w->binary, bytes, &w->binary))
        return PARE_FAIL(w->arena->ctx, INPUT, "output '%s': is too large", t->name);
    w->is_binary = true;
    json_object_set_new(entry, "parameters",
                        json_pack("{s:I}", "binary_data_size", (json_int_t)bytes));
    return PARE_OK;
}

static pare_status outputs_json(writer *w, const pare_infer_result *r, json_t *root)
{
    char version[32];
    json_t *list = json_array();
    snprintf(version, sizeof version, "%lld", (long long)r->version);
    if (r->id) json_object_set_new(root, "id", json_string(r->id));
    json_object_set_new(root, "model_name", json_string(r->model));
    json_object_set_new(root, "model_version", json_string(version));
    if (json_object_set_new(root, "outputs", list)) return PARE_MEMORY;
    for (int i = 0; i < r->count; i++) PARE_TRY(output_json(w, r, i, list));
    return PARE_OK;
}

static pare_status put_body(const writer *w, const pare_infer_result *r, const json_t *root,
                            pare_reply *reply)
{
    size_t bytes;
    char *text = json_dumps(root, JSON_COMPACT);
    if (!text) return PARE_FAIL(w->arena->ctx, MEMORY, "out of memory for a response");
    reply->type = "application/json";
    reply->body = text;
    reply->bytes = strlen(text);
    if (!w->is_binary) return PARE_OK;
    char *whole = pare_add_size(reply->bytes, w->binary + 1, &bytes) ? realloc(text, bytes) : NULL;
    if (!whole)
        return PARE_FAIL(w->arena->ctx, MEMORY, "out of memory: %zu bytes for a response",
                         w->binary);
    char *at = whole + reply->bytes;
    for (int i = 0; i < r->count; i++)
        if (r->wanted[i].binary && !r->wanted[i].place.region)
            at = pare_infer_binary_put(at, &w->output[i]);
    reply->type = "application/octet-stream";
    reply->body = whole;
    reply->json_bytes = reply->bytes;
    reply->bytes += w->binary;
    return PARE_OK;
}

pare_status pare_infer_write(pare_arena *arena, pare_reply *reply, const pare_infer_result *result)
{
    writer w = {.arena = arena};
    w.output = pare_arena_alloc(arena, (size_t)result->count + 1, sizeof *w.output);
    json_t *root = json_object();
    pare_status st = w.output && root ? outputs_json(&w, result, root) : PARE_MEMORY;
    if (st == PARE_OK) st = put_body(&w, result, root, reply);
    json_decref(root);
    return st;
}
