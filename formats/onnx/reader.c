/* SPDX-License-Identifier: Apache-2.0 */
/* What every part of reading needs: problems, texts, unknown fields, protobuf-c's memory. */
#include "formats/onnx/inner.h"

#include <stdio.h>
#include <string.h>

static void *scratch_alloc(void *scratch, size_t size)
{
    return pare_arena_alloc(scratch, size, 1);
}

static void scratch_free(void *scratch, void *memory) { (void)scratch, (void)memory; }

void pare_onnx_reader_init(pare_onnx_reader *r, pare_ctx *ctx, pare_arena *arena, const char *path)
{
    *r = (pare_onnx_reader){
        .ctx = ctx, .arena = arena, .path = path, .dense_left = (size_t)256 << 20};
    pare_arena_init(&r->scratch, ctx);
    r->allocator = (ProtobufCAllocator){scratch_alloc, scratch_free, &r->scratch};
}

void pare_onnx_reader_free(pare_onnx_reader *r) { pare_arena_free(&r->scratch); }

pare_status pare_onnx_problem(pare_onnx_reader *r, pare_status status, const char *format, ...)
{
    char text[sizeof r->ctx->message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!r->report) return pare_fail(r->ctx, status, "%s: %s%s", r->path, r->where, text);
    char line[sizeof text + sizeof r->where];
    snprintf(line, sizeof line, "%s%s", r->where, text);
    r->report(r->report_user, line);
    return PARE_OK;
}

pare_status pare_onnx_unpack(pare_onnx_reader *r, ProtobufCMessage **out,
                             const ProtobufCMessageDescriptor *type, pare_wire_kind kind,
                             pare_bytes bytes)
{
    pare_bytes skeleton;
    PARE_TRY(pare_wire_cut(r->ctx, &r->scratch, &skeleton, kind, bytes, r->path));
    *out = protobuf_c_message_unpack(type, &r->allocator, skeleton.size, skeleton.data);
    if (*out) return PARE_OK;
    if (r->ctx->message[0]) return PARE_MEMORY; /* the arena said so */
    return PARE_FAIL(r->ctx, INPUT,
                     "%s: %sa field does not hold what ONNX says it holds; the file is damaged or "
                     "not ONNX",
                     r->path, r->where);
}

pare_status pare_onnx_text(pare_onnx_reader *r, const char **out, bool present,
                           ProtobufCBinaryData text, const char *what)
{
    *out = NULL;
    if (!present) return PARE_OK;
    if (text.len && memchr(text.data, 0, text.len))
        PARE_TRY(pare_onnx_problem(r, PARE_UNSUPPORTED,
                                   "the %s '%s' continues after a NUL byte; give it a plain text",
                                   what, (const char *)text.data));
    *out = pare_arena_strndup(r->arena, (const char *)text.data, text.len);
    return *out ? PARE_OK : PARE_MEMORY;
}

pare_status pare_onnx_pairs(pare_onnx_reader *r, pare_pairs *out, size_t count,
                            Onnx__Pair *const *pair)
{
    *out = (pare_pairs){0};
    if (!count) return PARE_OK;
    out->item = pare_arena_alloc(r->arena, count, sizeof *out->item);
    if (!out->item) return PARE_MEMORY;
    out->count = (int)count;
    for (size_t i = 0; i < count; i++) {
        pare_pair *p = &out->item[i];
        PARE_TRY(pare_onnx_text(r, &p->key, pair[i]->has_key, pair[i]->key, "metadata key"));
        PARE_TRY(
            pare_onnx_text(r, &p->value, pair[i]->has_value, pair[i]->value, "metadata value"));
        PARE_TRY(pare_onnx_unknown(r, &p->unknown, &pair[i]->base));
    }
    return PARE_OK;
}

pare_status pare_onnx_unknown(pare_onnx_reader *r, pare_bytes *out, const ProtobufCMessage *message)
{
    *out = (pare_bytes){0};
    size_t size = 0;
    for (unsigned i = 0; i < message->n_unknown_fields; i++)
        size += 10 + message->unknown_fields[i].len;
    if (!size) return PARE_OK;
    uint8_t *bytes = pare_arena_alloc(r->arena, size, 1), *at = bytes;
    if (!bytes) return PARE_MEMORY;
    for (unsigned i = 0; i < message->n_unknown_fields; i++) {
        /* protobuf-c keeps the length in front of a length-delimited field as part of its data */
        const ProtobufCMessageUnknownField *f = &message->unknown_fields[i];
        if (f->tag == 0 || f->tag >= 1u << 29)
            return pare_onnx_problem(r, PARE_INPUT, "a field has an impossible number");
        at += pare_wire_put_varint(at, (uint64_t)f->tag << 3 | (uint64_t)f->wire_type);
        if (f->len) memcpy(at, f->data, f->len);
        at += f->len;
    }
    *out = (pare_bytes){bytes, (size_t)(at - bytes)};
    return PARE_OK;
}

pare_bytes pare_onnx_range(ProtobufCBinaryData field)
{
    pare_bytes range;
    memcpy(&range, field.data, sizeof range);
    return range;
}

pare_status pare_onnx_ranges(pare_onnx_reader *r, pare_bytes **out, size_t count,
                             const ProtobufCBinaryData *field)
{
    *out = NULL;
    if (!count) return PARE_OK;
    *out = pare_arena_alloc(r->arena, count, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (size_t i = 0; i < count; i++) (*out)[i] = pare_onnx_range(field[i]);
    return PARE_OK;
}
