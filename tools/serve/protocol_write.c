/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/protocol.h"

#include "runtime/base/size.h"

#include <math.h>
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

static int64_t count_of(const pare_infer_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->dim[i];
    return count;
}

static pare_status data_json(pare_ctx *ctx, const pare_infer_tensor *t, json_t *entry)
{
    json_t *data = json_array();
    const int64_t count = count_of(t);
    json_object_set_new(entry, "data", data);
    for (int64_t i = 0; i < count; i++)
        if (json_array_append_new(data, element_json(t, i)))
            return PARE_FAIL(ctx, INPUT,
                             "output '%s': element %lld cannot be written as JSON (NaN, infinity, "
                             "no UTF-8 or above 2^63 - 1); ask for binary data",
                             t->name, (long long)i);
    return PARE_OK;
}

/* --- classification --- */

static double number_at(const pare_infer_tensor *t, int64_t i)
{
    const char *at = (const char *)t->data + (size_t)i * (size_t)pare_type(t->dtype)->bits / 8;
    double d;
    int32_t s32;
    int64_t s64;
    switch (t->dtype) {
    case PARE_f64: memcpy(&d, at, sizeof d); return d;
    case PARE_s32: memcpy(&s32, at, sizeof s32); return s32;
    case PARE_s64: memcpy(&s64, at, sizeof s64); return (double)s64;
    default: return (double)pare_type(t->dtype)->to_f32(at);
    }
}

typedef struct place {
    double value;
    int64_t at;
} place;

/* The largest first; of equals the first. */
static int by_value(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* The largest values of one sample as "value:place", or "value:place:label". */
static pare_status classify_row(pare_arena *arena, const pare_infer_tensor *t, int64_t from,
                                place *order, int64_t each, pare_bytes *text, int64_t classes)
{
    for (int64_t i = 0; i < each; i++) {
        order[i] = (place){number_at(t, from + i), i};
        if (isnan(order[i].value))
            return PARE_FAIL(arena->ctx, INPUT, "output '%s': holds NaN, which has no class",
                             t->name);
    }
    qsort(order, (size_t)each, sizeof *order, by_value);
    for (int64_t k = 0; k < classes; k++) {
        const char *label = pare_labels_at(t->labels, order[k].at);
        const char *one =
            pare_arena_printf(arena, "%f:%lld%s%s", order[k].value, (long long)order[k].at,
                              label ? ":" : "", label ? label : "");
        if (!one) return PARE_MEMORY;
        text[k] = (pare_bytes){one, strlen(one)};
    }
    return PARE_OK;
}

/* The tensor's largest values: (samples, classes) where the first axis counts samples, else
   (classes). */
static pare_status classify(pare_arena *arena, const pare_infer_tensor *t, int64_t classes,
                            bool batched, pare_infer_tensor *out)
{
    const int64_t rows = batched ? t->dim[0] : 1, each = rows ? count_of(t) / rows : 0;
    if (!pare_type(t->dtype)->to_f32)
        return PARE_FAIL(arena->ctx, INPUT, "output '%s': %s cannot be classified", t->name,
                         pare_infer_type_name(t->dtype));
    if (classes > each) classes = each;
    *out = (pare_infer_tensor){.name = t->name, .dtype = PARE_string, .rank = batched ? 2 : 1};
    out->dim[0] = rows;
    out->dim[batched] = classes;
    out->bytes = (size_t)(rows * classes) * sizeof(pare_bytes);
    pare_bytes *text = pare_arena_alloc(arena, out->bytes, 1);
    place *order = pare_arena_alloc(arena, (size_t)each, sizeof *order);
    if (!text || !order) return PARE_MEMORY;
    out->data = text;
    for (int64_t row = 0; row < rows; row++)
        PARE_TRY(classify_row(arena, t, row * each, order, each, text + row * classes, classes));
    return PARE_OK;
}

/* --- binary data --- */

/* Bytes that the tensor takes; false: more than a size_t. */
static bool binary_bytes(const pare_infer_tensor *t, size_t *out)
{
    const pare_bytes *text = t->data;
    *out = t->bytes;
    if (t->dtype != PARE_string) return true;
    *out = 0;
    for (int64_t i = 0; i < count_of(t); i++)
        if (text[i].size > UINT32_MAX || !pare_add_size(*out, sizeof(uint32_t), out) ||
            !pare_add_size(*out, text[i].size, out))
            return false;
    return true;
}

static char *put_binary(char *at, const pare_infer_tensor *t)
{
    const pare_bytes *text = t->data;
    if (t->dtype != PARE_string) {
        if (t->bytes) memcpy(at, t->data, t->bytes);
        return at + t->bytes;
    }
    for (int64_t i = 0; i < count_of(t); i++) {
        const uint32_t bytes = (uint32_t)text[i].size; /* little-endian */
        memcpy(at, &bytes, sizeof bytes);
        if (bytes) memcpy(at + sizeof bytes, text[i].data, bytes);
        at += sizeof bytes + bytes;
    }
    return at;
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
    const pare_infer_tensor *t = &w->output[i];
    const pare_infer_place *to = &r->wanted[i].place;
    if (!binary_bytes(t, &bytes) || bytes > (size_t)to->bytes)
        return PARE_FAIL(w->arena->ctx, INPUT,
                         "output '%s': takes %zu bytes, shared_memory_byte_size is %lld", t->name,
                         bytes, (long long)to->bytes);
    json_object_set_new(entry, "parameters",
                        json_pack("{s:s, s:I, s:I}", "shared_memory_region", to->region,
                                  "shared_memory_offset", (json_int_t)to->offset,
                                  "shared_memory_byte_size", (json_int_t)bytes));
    if (t->dtype != PARE_string) return r->put(r->user, i, t->data, bytes);
    char *data = pare_arena_alloc(w->arena, bytes, 1);
    if (!data) return PARE_MEMORY;
    (void)put_binary(data, t);
    return r->put(r->user, i, data, bytes);
}

static pare_status output_json(writer *w, const pare_infer_result *r, int i, json_t *list)
{
    size_t bytes;
    pare_infer_tensor *t = &w->output[i];
    *t = r->output[i];
    if (r->wanted[i].classes)
        PARE_TRY(classify(w->arena, &r->output[i], r->wanted[i].classes, r->batched, t));
    json_t *shape = json_array();
    for (int k = 0; k < t->rank; k++) json_array_append_new(shape, json_integer(t->dim[k]));
    json_t *entry = json_pack("{s:s, s:s, s:o}", "name", t->name, "datatype",
                              pare_infer_type_name(t->dtype), "shape", shape);
    if (json_array_append_new(list, entry))
        return PARE_FAIL(w->arena->ctx, INPUT, "an output's name is no UTF-8");
    if (r->wanted[i].place.region) return put_shared(w, r, i, entry);
    if (!r->wanted[i].binary) return data_json(w->arena->ctx, t, entry);
    if (!binary_bytes(t, &bytes) || !pare_add_size(w->binary, bytes, &w->binary))
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
        if (r->wanted[i].binary && !r->wanted[i].place.region) at = put_binary(at, &w->output[i]);
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
