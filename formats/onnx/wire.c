/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/onnx/inner.h"

#include <limits.h>
#include <string.h>

/* --- which fields the walks treat apart --- */

typedef enum action {
    COPY,    /* stays as it is */
    CUT,     /* a payload */
    NUMBERS, /* a payload that may be written element by element */
    ONE,     /* a message that may occur once */
    MANY     /* a message */
} action;

typedef struct rule {
    uint8_t kind, field, action, inner;
} rule;

static const rule rules[] = {
    {PARE_WIRE_MODEL, 7, ONE, PARE_WIRE_GRAPH},
    {PARE_WIRE_MODEL, 20, CUT, 0},
    {PARE_WIRE_MODEL, 25, CUT, 0},
    {PARE_WIRE_FUNCTION, 7, MANY, PARE_WIRE_NODE},
    {PARE_WIRE_FUNCTION, 11, MANY, PARE_WIRE_ATTRIBUTE},
    {PARE_WIRE_GRAPH, 1, MANY, PARE_WIRE_NODE},
    {PARE_WIRE_GRAPH, 5, MANY, PARE_WIRE_TENSOR},
    {PARE_WIRE_GRAPH, 11, CUT, 0},
    {PARE_WIRE_GRAPH, 12, CUT, 0},
    {PARE_WIRE_GRAPH, 13, CUT, 0},
    {PARE_WIRE_GRAPH, 14, CUT, 0},
    {PARE_WIRE_GRAPH, 15, CUT, 0},
    {PARE_WIRE_NODE, 5, MANY, PARE_WIRE_ATTRIBUTE},
    {PARE_WIRE_ATTRIBUTE, 5, ONE, PARE_WIRE_TENSOR},
    {PARE_WIRE_ATTRIBUTE, 6, ONE, PARE_WIRE_GRAPH},
    {PARE_WIRE_ATTRIBUTE, 10, MANY, PARE_WIRE_TENSOR},
    {PARE_WIRE_ATTRIBUTE, 11, MANY, PARE_WIRE_GRAPH},
    {PARE_WIRE_ATTRIBUTE, 14, CUT, 0},
    {PARE_WIRE_ATTRIBUTE, 15, CUT, 0},
    {PARE_WIRE_ATTRIBUTE, 22, CUT, 0},
    {PARE_WIRE_ATTRIBUTE, 23, CUT, 0},
    {PARE_WIRE_TENSOR, 4, NUMBERS, 0},
    {PARE_WIRE_TENSOR, 5, NUMBERS, 0},
    {PARE_WIRE_TENSOR, 7, NUMBERS, 0},
    {PARE_WIRE_TENSOR, 9, CUT, 0},
    {PARE_WIRE_TENSOR, 10, NUMBERS, 0},
    {PARE_WIRE_TENSOR, 11, NUMBERS, 0},
    {PARE_WIRE_SPARSE, 1, ONE, PARE_WIRE_TENSOR},
    {PARE_WIRE_SPARSE, 2, ONE, PARE_WIRE_TENSOR},
    {PARE_WIRE_VALUE_INFO, 2, ONE, PARE_WIRE_TYPE},
    {PARE_WIRE_TYPE, 1, ONE, PARE_WIRE_TENSOR_TYPE},
    {PARE_WIRE_TENSOR_TYPE, 2, ONE, PARE_WIRE_SHAPE},
};

static const rule *rule_of(pare_wire_kind kind, uint32_t field)
{
    static const rule copy = {0, 0, COPY, 0};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].kind == kind && rules[i].field == field) return &rules[i];
    return &copy;
}

/* --- cutting --- */

typedef struct cutter {
    pare_ctx *ctx;
    const char *path;
    const uint8_t *base;
    uint8_t *out;
    size_t used, capacity;
} cutter;

static pare_status damaged(const cutter *c, const uint8_t *at, const char *reason)
{
    return PARE_FAIL(
        c->ctx, INPUT,
        "%s: byte %zu: %s; the file is cut, damaged or not ONNX: copy or export it again", c->path,
        (size_t)(at - c->base), reason);
}

static pare_status reserve(cutter *c, size_t more)
{
    if (c->capacity - c->used >= more) return PARE_OK;
    if (more > INT_MAX || c->used > INT_MAX)
        return PARE_FAIL(c->ctx, UNSUPPORTED, "%s: its structure without payloads exceeds 2 GiB",
                         c->path);
    size_t capacity = c->capacity ? c->capacity : 4096;
    while (capacity - c->used < more) capacity *= 2;
    uint8_t *out = pare_alloc(c->ctx, capacity, 1);
    if (!out) return PARE_MEMORY;
    if (c->used) memcpy(out, c->out, c->used);
    pare_free(c->out);
    c->out = out;
    c->capacity = capacity;
    return PARE_OK;
}

static pare_status put_field(cutter *c, uint32_t number, pare_wire_type type, const void *data,
                             size_t size)
{
    PARE_TRY(reserve(c, size < INT_MAX ? size + 20 : size));
    c->used += pare_wire_put_varint(c->out + c->used, (uint64_t)number << 3 | type);
    if (type == PARE_WIRE_BYTES) c->used += pare_wire_put_varint(c->out + c->used, size);
    if (size) memcpy(c->out + c->used, data, size);
    c->used += size;
    return PARE_OK;
}

/* A length that is known only later: five bytes, filled with a varint of that width. */
static void fill_length(cutter *c, size_t at)
{
    size_t length = c->used - at - 5;
    for (int i = 0; i < 5; i++)
        c->out[at + (size_t)i] = (uint8_t)((length >> 7 * i & 127) | (i < 4 ? 128 : 0));
}

static pare_status cut_message(cutter *c, pare_wire_kind kind, const uint8_t *at, size_t size,
                               int depth);

static pare_status cut_field(cutter *c, const rule *how, const pare_wire_field *f, int depth)
{
    if (how->action == COPY) return put_field(c, f->number, f->type, f->data, f->size);
    if (f->type != PARE_WIRE_BYTES && how->action != NUMBERS)
        return damaged(c, f->data, "a number is where a message should be");
    if (how->action == CUT || how->action == NUMBERS) {
        pare_bytes range = {f->data, f->size};
        return put_field(c, f->number, PARE_WIRE_BYTES, &range, sizeof range);
    }
    PARE_TRY(reserve(c, 20));
    c->used += pare_wire_put_varint(c->out + c->used, (uint64_t)f->number << 3 | PARE_WIRE_BYTES);
    size_t length = c->used;
    c->used += 5;
    PARE_TRY(cut_message(c, (pare_wire_kind)how->inner, f->data, f->size, depth + 1));
    fill_length(c, length);
    return PARE_OK;
}

static pare_status cut_message(cutter *c, pare_wire_kind kind, const uint8_t *at, size_t size,
                               int depth)
{
    const uint8_t *end = at + size;
    uint32_t seen = 0;
    if (depth > PARE_WIRE_DEPTH)
        return PARE_FAIL(c->ctx, UNSUPPORTED,
                         "%s: byte %zu: messages nest deeper than %d; flatten its nested graphs",
                         c->path, (size_t)(at - c->base), PARE_WIRE_DEPTH);
    while (at < end) {
        pare_wire_field f;
        const uint8_t *start = at;
        const char *reason = pare_wire_next(&at, end, &f);
        if (reason) return damaged(c, start, reason);
        const rule *how = rule_of(kind, f.number);
        if (how->action == ONE && seen >> f.number & 1)
            return damaged(c, start, "a part that may occur once occurs twice");
        if (how->action == ONE) seen |= 1u << f.number;
        PARE_TRY(cut_field(c, how, &f, depth));
    }
    return PARE_OK;
}

pare_status pare_wire_cut(pare_ctx *ctx, pare_arena *scratch, pare_bytes *out, pare_wire_kind kind,
                          pare_bytes message, const char *path)
{
    cutter c = {.ctx = ctx, .path = path, .base = message.data};
    pare_status st = cut_message(&c, kind, message.data, message.size, 1);
    if (st == PARE_OK) {
        *out = (pare_bytes){pare_arena_memdup(scratch, c.out, c.used), c.used};
        if (!out->data) st = PARE_MEMORY;
    }
    pare_free(c.out);
    return st;
}

/* --- splicing --- */

static bool is_message(const rule *how) { return how->action == ONE || how->action == MANY; }

static pare_bytes range_of(const pare_wire_field *f)
{
    pare_bytes range;
    memcpy(&range, f->data, sizeof range);
    return range;
}

static pare_status measure(pare_splice *s, pare_wire_kind kind, const uint8_t *at, size_t size,
                           size_t *total)
{
    const uint8_t *end = at + size;
    *total = 0;
    while (at < end) {
        pare_wire_field f;
        if (pare_wire_next(&at, end, &f))
            return PARE_FAIL(s->ctx, INPUT, "a part of the model to write is not valid protobuf");
        const rule *how = rule_of(kind, f.number);
        size_t length = f.size;
        if (is_message(how)) {
            size_t slot = s->count;
            if (!pare_grow(s->ctx, &s->length, &s->capacity, s->count, sizeof *s->length))
                return PARE_MEMORY;
            s->count++;
            PARE_TRY(measure(s, (pare_wire_kind)how->inner, f.data, f.size, &length));
            s->length[slot] = length;
        } else if (how->action != COPY) {
            length = range_of(&f).size;
        }
        *total += pare_wire_put_varint(NULL, (uint64_t)f.number << 3) + length;
        if (f.type == PARE_WIRE_BYTES) *total += pare_wire_put_varint(NULL, length);
    }
    return PARE_OK;
}

pare_status pare_splice_measure(pare_splice *splice)
{
    splice->count = 0;
    return measure(splice, splice->kind, splice->message.data, splice->message.size,
                   &splice->total);
}

void pare_splice_free(pare_splice *splice)
{
    pare_free(splice->length);
    splice->length = NULL;
    splice->capacity = splice->count = 0;
}

/* Small pieces are gathered; payloads go to the file as they are. */
typedef struct gather {
    pare_output *output; /* NULL: all of it goes to the hasher */
    pare_hasher *hasher;
    size_t used;
    uint8_t buffer[1 << 14];
} gather;

static pare_status put(gather *g, const void *data, size_t size)
{
    if (g->output) return pare_output_write(g->output, data, size);
    pare_hasher_add(g->hasher, data, size);
    return PARE_OK;
}

static pare_status flush(gather *g)
{
    size_t n = g->used;
    g->used = 0;
    return n ? put(g, g->buffer, n) : PARE_OK;
}

static pare_status add(gather *g, const void *data, size_t size)
{
    if (size > sizeof g->buffer - g->used) PARE_TRY(flush(g));
    if (size > sizeof g->buffer) return put(g, data, size);
    if (size) memcpy(g->buffer + g->used, data, size);
    g->used += size;
    return PARE_OK;
}

static pare_status emit(pare_splice *s, gather *g, pare_wire_kind kind, const uint8_t *at,
                        size_t size)
{
    const uint8_t *end = at + size;
    while (at < end) {
        pare_wire_field f;
        if (pare_wire_next(&at, end, &f))
            return PARE_FAIL(s->ctx, INPUT, "a part of the model to write is not valid protobuf");
        const rule *how = rule_of(kind, f.number);
        uint8_t head[20];
        pare_bytes body = {f.data, f.size};
        if (how->action == CUT || how->action == NUMBERS) body = range_of(&f);
        size_t length = is_message(how) ? s->length[s->next++] : body.size;
        size_t n = pare_wire_put_varint(head, (uint64_t)f.number << 3 | f.type);
        if (f.type == PARE_WIRE_BYTES) n += pare_wire_put_varint(head + n, length);
        PARE_TRY(add(g, head, n));
        if (is_message(how))
            PARE_TRY(emit(s, g, (pare_wire_kind)how->inner, f.data, f.size));
        else
            PARE_TRY(add(g, body.data, body.size));
    }
    return PARE_OK;
}

pare_status pare_splice_write(pare_splice *splice, pare_output *output)
{
    gather g = {.output = output, .hasher = splice->hasher};
    splice->next = 0;
    PARE_TRY(emit(splice, &g, splice->kind, splice->message.data, splice->message.size));
    return flush(&g);
}
