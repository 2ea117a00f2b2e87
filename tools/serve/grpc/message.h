/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf messages: written field by field, and made of JSON, or turned into it, by protobuf-c's
   descriptors. Fields have the same names in both. */
#ifndef PARE_TOOLS_SERVE_GRPC_MESSAGE_H
#define PARE_TOOLS_SERVE_GRPC_MESSAGE_H

#include "runtime/base/ctx.h"

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* A message while it is written. */
typedef struct pare_message {
    char *data; /* from malloc */
    size_t bytes, room;
    bool failed; /* memory is out: it is not whole */
} pare_message;

void pare_message_free(pare_message *message);
/* Each of these adds a field of this number. */
void pare_message_number(pare_message *message, uint32_t field, uint64_t value);
void pare_message_bytes(pare_message *message, uint32_t field, const void *data, size_t bytes);
void pare_message_text(pare_message *message, uint32_t field, const char *text);
/* The inner one, which it frees. */
void pare_message_put(pare_message *message, uint32_t field, pare_message *inner);
/* Bytes of the field's key and of the length of so many bytes; at NULL: they are not written. */
size_t pare_message_head(char *at, uint32_t field, size_t bytes);

/* Makes the message of an object. Members that it has no field for are left out, and values of
   another kind are the field's default. An object in place of a list is a map. */
void pare_message_of_json(pare_message *out, const ProtobufCMessageDescriptor *type,
                          const json_t *object);
/* Makes an object of a message, without fields that it has not, or that the descriptor does not
   know. Maps are objects, bytes base64, or null where they are more than 256. PARE_INPUT: it is
   damaged, or a text is no UTF-8. */
PARE_NODISCARD pare_status pare_message_to_json(pare_ctx *ctx, json_t **out,
                                                const ProtobufCMessageDescriptor *type,
                                                const char *data, size_t bytes);
#endif
