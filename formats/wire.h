/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf's wire form, read with every length checked: a message is a row of fields, each a key
   (number << 3 | wire type) and a value; lengths and keys are varints of 7 bits a byte. */
#ifndef PARE_FORMATS_WIRE_H
#define PARE_FORMATS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
#endif
