/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/grpc/infer.h"

#include "formats/wire.h"
#include "runtime/base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fields of ModelInferResponse. */
enum { MODEL = 1, VERSION, ID, PARAMETERS, OUTPUTS, RAW };

typedef struct writer {
    pare_arena *arena;
    pare_infer_tensor *output; /* (count) what is sent */
    size_t *raw;               /* (count) bytes of it in the message */
    pare_message head;         /* all but raw_output_contents */
} writer;

/* An entry of a map of parameters; text NULL: it is the number. choice: the field of
   InferParameter. */
static void put_parameter(pare_message *m, uint32_t field, const char *key, uint32_t choice,
                          const char *text, uint64_t number)
{
    pare_message entry = {0}, value = {0};
    if (text)
        pare_message_text(&value, choice, text);
    else
        pare_message_number(&value, choice, number);
    pare_message_text(&entry, 1, key);
    pare_message_put(&entry, 2, &value);
    pare_message_put(m, field, &entry);
}

static void put_shape(pare_message *m, const pare_infer_tensor *t)
{
    uint8_t packed[10 * PARE_MAX_RANK];
    size_t bytes = 0;
    for (int d = 0; d < t->rank; d++)
        bytes += pare_wire_put_varint(packed + bytes, (uint64_t)t->dim[d]);
    pare_message_bytes(m, 3, packed, bytes);
}

static pare_status put_output(writer *w, const pare_infer_result *r, int i)
{
    pare_message out = {0};
    pare_infer_tensor *t = &w->output[i];
    const pare_infer_place *to = &r->wanted[i].place;
    PARE_TRY(pare_infer_sent(w->arena, t, r, i));
    if (!to->region && !pare_infer_binary_bytes(t, &w->raw[i]))
        return PARE_FAIL(w->arena->ctx, INPUT, "output '%s': is too large", t->name);
    if (to->region) PARE_TRY(pare_infer_share(w->arena, r, i, t, &w->raw[i]));
    pare_message_text(&out, 1, t->name);
    pare_message_text(&out, 2, pare_infer_type_name(t->dtype));
    put_shape(&out, t);
    if (to->region) {
        put_parameter(&out, 4, "shared_memory_region", 3, to->region, 0);
        put_parameter(&out, 4, "shared_memory_offset", 2, NULL, (uint64_t)to->offset);
        put_parameter(&out, 4, "shared_memory_byte_size", 2, NULL, w->raw[i]);
        w->raw[i] = 0;
    }
    pare_message_put(&w->head, OUTPUTS, &out);
    return PARE_OK;
}

static pare_status put_head(writer *w, const pare_infer_result *r, bool stream)
{
    char version[32];
    snprintf(version, sizeof version, "%lld", (long long)r->version);
    pare_message_text(&w->head, MODEL, r->model);
    pare_message_text(&w->head, VERSION, version);
    if (r->id) pare_message_text(&w->head, ID, r->id);
    if (stream) put_parameter(&w->head, PARAMETERS, "triton_final_response", 1, NULL, true);
    for (int i = 0; i < r->count; i++) PARE_TRY(put_output(w, r, i));
    return PARE_OK;
}

static pare_status fail_memory(const writer *w, size_t bytes)
{
    return PARE_FAIL(w->arena->ctx, MEMORY, "out of memory: %zu bytes for a response", bytes);
}

/* The whole, in memory of just its size. */
static pare_status put_body(writer *w, const pare_infer_result *r, bool stream, pare_reply *reply)
{
    size_t bytes = w->head.bytes;
    if (w->head.failed) return fail_memory(w, bytes);
    for (int i = 0; i < r->count; i++)
        if (!pare_add_size(bytes, pare_message_head(NULL, RAW, w->raw[i]), &bytes) ||
            !pare_add_size(bytes, w->raw[i], &bytes))
            return fail_memory(w, bytes);
    const size_t before = stream ? pare_message_head(NULL, 2, bytes) : 0;
    char *body = malloc(before + bytes), *at = body;
    if (!body) return fail_memory(w, bytes);
    if (stream) at += pare_message_head(at, 2, bytes);
    memcpy(at, w->head.data, w->head.bytes);
    at += w->head.bytes;
    for (int i = 0; i < r->count; i++) {
        at += pare_message_head(at, RAW, w->raw[i]);
        if (w->raw[i]) at = pare_infer_binary_put(at, &w->output[i]);
    }
    reply->body = body;
    reply->bytes = before + bytes;
    return PARE_OK;
}

pare_status pare_grpc_infer_write(pare_arena *arena, pare_reply *reply,
                                  const pare_infer_result *result, bool stream)
{
    writer w = {.arena = arena};
    w.output = pare_arena_alloc(arena, (size_t)result->count + 1, sizeof *w.output);
    w.raw = pare_arena_alloc(arena, (size_t)result->count + 1, sizeof *w.raw);
    pare_status st = w.output && w.raw ? put_head(&w, result, stream) : PARE_MEMORY;
    if (st == PARE_OK) st = put_body(&w, result, stream, reply);
    pare_message_free(&w.head);
    return st;
}
