/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf's wire form, read with every length checked, and the two walks over it: cutting payloads
   out of a file, and splicing them back. Private to formats/onnx*.c. */
#ifndef PARE_FORMATS_ONNX_WIRE_H
#define PARE_FORMATS_ONNX_WIRE_H

#include "formats/file.h"
#include "runtime/graph/graph.h"

enum { PARE_WIRE_DEPTH = 64 }; /* messages inside messages */

typedef enum pare_wire_type {
    PARE_WIRE_VARINT = 0,
    PARE_WIRE_64 = 1,
    PARE_WIRE_BYTES = 2,
    PARE_WIRE_32 = 5
} pare_wire_type;

/* One field of a message. data, size: its value without the length in front; value: with it. */
typedef struct pare_wire_field {
    uint32_t number;
    pare_wire_type type;
    const uint8_t *data, *value;
    size_t size;
} pare_wire_field;

/* Reads the field at *at and moves after it. NULL, or what is wrong in words. */
const char *pare_wire_next(const uint8_t **at, const uint8_t *end, pare_wire_field *out);

/* Reads a varint of at most 10 bytes; false where it does not end before end. */
bool pare_wire_varint(const uint8_t **at, const uint8_t *end, uint64_t *out);

/* Writes one (at most 10 bytes) and returns its length; out NULL: only the length. */
size_t pare_wire_put_varint(uint8_t *out, uint64_t value);

/* Kinds of messages that the walks look into. */
typedef enum pare_wire_kind {
    PARE_WIRE_MODEL = 1,
    PARE_WIRE_GRAPH,
    PARE_WIRE_NODE,
    PARE_WIRE_ATTRIBUTE,
    PARE_WIRE_TENSOR,
    PARE_WIRE_SPARSE,
    PARE_WIRE_VALUE_INFO,
    PARE_WIRE_TYPE,
    PARE_WIRE_TENSOR_TYPE,
    PARE_WIRE_SHAPE
} pare_wire_kind;

/* Copies a message into scratch, without its payloads: each field that onnx.proto marks as cut
   becomes a pare_bytes (16 bytes) that says where it is. Lengths, nesting, and messages that may
   occur only once are checked. path is for messages. */
PARE_NODISCARD pare_status pare_wire_cut(pare_ctx *ctx, pare_arena *scratch, pare_bytes *out,
                                         pare_wire_kind kind, pare_bytes message, const char *path);

/* The way back: how long the message is with everything spliced in, and writing it; or handing it,
   byte for byte, to a hash (output NULL). */
typedef struct pare_splice {
    pare_ctx *ctx;
    pare_bytes message; /* as pare_wire_cut makes it */
    pare_wire_kind kind;
    size_t *length; /* of the inner messages, in the order they begin */
    size_t count, capacity, next;
    size_t total;        /* bytes of the whole */
    pare_hasher *hasher; /* or NULL */
} pare_splice;
PARE_NODISCARD pare_status pare_splice_measure(pare_splice *splice);
PARE_NODISCARD pare_status pare_splice_write(pare_splice *splice, pare_output *output);
void pare_splice_free(pare_splice *splice);

#endif
