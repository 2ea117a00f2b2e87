/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/wire.h"

bool pare_wire_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *out = value;
            return true;
        }
    }
    return false;
}

size_t pare_wire_put_varint(uint8_t *out, uint64_t value)
{
    size_t n = 0;
    for (;; value >>= 7) {
        if (out) out[n] = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        n++;
        if (value < 128) return n;
    }
}

const char *pare_wire_next(const uint8_t **at, const uint8_t *end, pare_wire_field *out)
{
    uint64_t key, size;
    if (!pare_wire_varint(at, end, &key)) return "a field's key is cut off";
    if (key >> 3 == 0 || key >> 3 >= 1u << 29) return "a field has an impossible number";
    *out = (pare_wire_field){(uint32_t)(key >> 3), (pare_wire_type)(key & 7), *at, *at, 0};
    switch (out->type) {
    case PARE_WIRE_VARINT:
        if (!pare_wire_varint(at, end, &size)) return "a number is cut off";
        out->size = (size_t)(*at - out->data);
        return NULL;
    case PARE_WIRE_64: out->size = 8; break;
    case PARE_WIRE_32: out->size = 4; break;
    case PARE_WIRE_BYTES:
        if (!pare_wire_varint(at, end, &size)) return "a length is cut off";
        out->data = *at;
        if (size > (size_t)(end - *at)) return "a field is longer than the message it is in";
        out->size = (size_t)size;
        break;
    default: return "a field has an unknown wire type";
    }
    if (out->size > (size_t)(end - *at)) return "a number is cut off";
    *at += out->size;
    return NULL;
}
