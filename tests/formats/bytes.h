/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf messages written by hand, for tests of the reader: independent of the code they test. */
#ifndef PARE_TESTS_FORMATS_BYTES_H
#define PARE_TESTS_FORMATS_BYTES_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

typedef struct bytes {
    uint8_t data[4096];
    size_t size;
} bytes;

static inline void put_varint(bytes *b, uint64_t value)
{
    for (; value > 127; value >>= 7) b->data[b->size++] = (uint8_t)(value | 128);
    b->data[b->size++] = (uint8_t)value;
    assert(b->size < sizeof b->data - 16);
}

static inline void put_int(bytes *b, unsigned field, int64_t value)
{
    put_varint(b, field << 3);
    put_varint(b, (uint64_t)value);
}

static inline void put_block(bytes *b, unsigned field, const void *data, size_t size)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, size);
    assert(b->size + size < sizeof b->data);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void put_text(bytes *b, unsigned field, const char *text)
{
    put_block(b, field, text, strlen(text));
}

static inline void put_bytes(bytes *b, unsigned field, const bytes *inner)
{
    put_block(b, field, inner->data, inner->size);
}

static inline void put_float(bytes *b, unsigned field, float value)
{
    put_varint(b, field << 3 | 5);
    memcpy(b->data + b->size, &value, 4);
    b->size += 4;
}

/* ValueInfoProto of a tensor; dims below 0 are written as the name "batch". */
static inline bytes make_info(const char *name, int type, int rank, const int64_t *dims)
{
    bytes shape = {.size = 0}, tensor = {.size = 0}, wrap = {.size = 0}, info = {.size = 0};
    for (int i = 0; i < rank; i++) {
        bytes dim = {.size = 0};
        if (dims[i] < 0)
            put_text(&dim, 2, "batch");
        else
            put_int(&dim, 1, dims[i]);
        put_bytes(&shape, 1, &dim);
    }
    put_int(&tensor, 1, type);
    put_bytes(&tensor, 2, &shape);
    put_bytes(&wrap, 1, &tensor);
    put_text(&info, 1, name);
    put_bytes(&info, 2, &wrap);
    return info;
}

/* NodeProto with names separated by blanks; "-" is an absent one. */
static inline bytes make_node(const char *op, const char *name, const char *in, const char *out)
{
    bytes node = {.size = 0};
    const char *const list[2] = {in, out};
    for (unsigned side = 0; side < 2; side++)
        for (const char *at = list[side]; *at;) {
            size_t n = strcspn(at, " ");
            put_block(&node, side + 1, at, n == 1 && *at == '-' ? 0 : n);
            at += n + (at[n] == ' ');
        }
    put_text(&node, 3, name);
    put_text(&node, 4, op);
    return node;
}

/* TensorProto's head; the caller adds the payload. */
static inline bytes make_tensor(const char *name, int type, int rank, const int64_t *dims)
{
    bytes tensor = {.size = 0};
    for (int i = 0; i < rank; i++) put_int(&tensor, 1, dims[i]);
    put_int(&tensor, 2, type);
    put_text(&tensor, 8, name);
    return tensor;
}

static inline bytes make_model(const bytes *graph)
{
    bytes model = {.size = 0}, opset = {.size = 0};
    put_int(&model, 1, 8);
    put_text(&opset, 1, "");
    put_int(&opset, 2, 17);
    put_bytes(&model, 8, &opset);
    put_bytes(&model, 7, graph);
    return model;
}

#endif
