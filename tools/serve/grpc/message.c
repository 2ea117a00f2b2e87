/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/grpc/message.h"

#include "formats/wire.h"
#include "runtime/base/size.h"
#include "tools/serve/base64.h"

#include <stdlib.h>
#include <string.h>

/* --- fields --- */

void pare_message_free(pare_message *m)
{
    free(m->data);
    *m = (pare_message){0};
}

/* Room for so many bytes more; false: memory is out. */
static bool make_room(pare_message *m, size_t bytes)
{
    size_t need;
    if (m->failed || !pare_add_size(m->bytes, bytes, &need)) return !(m->failed = true);
    if (need <= m->room) return true;
    const size_t room = need > 2 * m->room ? need + 64 : 2 * m->room;
    char *data = realloc(m->data, room);
    if (!data) return !(m->failed = true);
    m->data = data;
    m->room = room;
    return true;
}

static void put_varint(pare_message *m, uint64_t value)
{
    if (make_room(m, 10)) m->bytes += pare_wire_put_varint((uint8_t *)m->data + m->bytes, value);
}

static void put_key(pare_message *m, uint32_t field, pare_wire_type type)
{
    put_varint(m, (uint64_t)field << 3 | type);
}

static void put_raw(pare_message *m, const void *data, size_t bytes)
{
    if (!bytes || !make_room(m, bytes)) return;
    memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

void pare_message_number(pare_message *m, uint32_t field, uint64_t value)
{
    put_key(m, field, PARE_WIRE_VARINT);
    put_varint(m, value);
}

void pare_message_bytes(pare_message *m, uint32_t field, const void *data, size_t bytes)
{
    put_key(m, field, PARE_WIRE_BYTES);
    put_varint(m, bytes);
    put_raw(m, data, bytes);
}

void pare_message_text(pare_message *m, uint32_t field, const char *text)
{
    pare_message_bytes(m, field, text, strlen(text));
}

void pare_message_put(pare_message *m, uint32_t field, pare_message *inner)
{
    pare_message_bytes(m, field, inner->data, inner->bytes);
    m->failed |= inner->failed;
    pare_message_free(inner);
}

size_t pare_message_head(char *at, uint32_t field, size_t bytes)
{
    const size_t key = pare_wire_put_varint((uint8_t *)at, (uint64_t)field << 3 | PARE_WIRE_BYTES);
    return key + pare_wire_put_varint(at ? (uint8_t *)at + key : NULL, bytes);
}

/* --- JSON to message --- */

static void put_float(pare_message *m, uint32_t field, float value)
{
    put_key(m, field, PARE_WIRE_32);
    put_raw(m, &value, sizeof value); /* little-endian */
}

static void put_double(pare_message *m, uint32_t field, double value)
{
    put_key(m, field, PARE_WIRE_64);
    put_raw(m, &value, sizeof value);
}

static void put_one(pare_message *m, const ProtobufCFieldDescriptor *f, const json_t *value)
{
    pare_message inner = {0};
    switch (f->type) {
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_STRING:
        if (json_is_string(value))
            pare_message_bytes(m, f->id, json_string_value(value), json_string_length(value));
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        pare_message_of_json(&inner, f->descriptor, value);
        pare_message_put(m, f->id, &inner);
        break;
    case PROTOBUF_C_TYPE_ENUM: {
        const char *name = json_string_value(value);
        const ProtobufCEnumValue *found =
            name ? protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, name) : NULL;
        if (found) pare_message_number(m, f->id, (uint64_t)(int64_t)found->value);
        break;
    }
    case PROTOBUF_C_TYPE_BOOL: pare_message_number(m, f->id, json_is_true(value)); break;
    case PROTOBUF_C_TYPE_FLOAT: put_float(m, f->id, (float)json_number_value(value)); break;
    case PROTOBUF_C_TYPE_DOUBLE: put_double(m, f->id, json_number_value(value)); break;
    default: pare_message_number(m, f->id, (uint64_t)json_integer_value(value)); break;
    }
}

/* A map's entry: the key is field 1, the value field 2. */
static void put_entry(pare_message *m, const ProtobufCFieldDescriptor *f, const char *key,
                      const json_t *value)
{
    pare_message entry = {0};
    const ProtobufCFieldDescriptor *of = protobuf_c_message_descriptor_get_field(f->descriptor, 2);
    pare_message_text(&entry, 1, key);
    if (of) put_one(&entry, of, value);
    pare_message_put(m, f->id, &entry);
}

void pare_message_of_json(pare_message *m, const ProtobufCMessageDescriptor *type,
                          const json_t *object)
{
    const char *key, *name;
    json_t *value, *each;
    json_object_foreach((json_t *)object, key, value)
    {
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(type, key);
        if (!f) continue;
        if (f->label != PROTOBUF_C_LABEL_REPEATED) {
            put_one(m, f, value);
        } else if (json_is_object(value) && f->type == PROTOBUF_C_TYPE_MESSAGE) {
            json_object_foreach(value, name, each) put_entry(m, f, name, each);
        } else {
            for (size_t i = 0; i < json_array_size(value); i++)
                put_one(m, f, json_array_get(value, i));
        }
    }
}

/* --- message to JSON --- */

static pare_wire_type wire_type(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return PARE_WIRE_BYTES;
    case PROTOBUF_C_TYPE_DOUBLE: return PARE_WIRE_64;
    case PROTOBUF_C_TYPE_FLOAT: return PARE_WIRE_32;
    default: return PARE_WIRE_VARINT;
    }
}

/* As base64, as JSON has bytes; null where they are more than what is read of any message. */
static json_t *bytes_json(const pare_wire_field *w)
{
    enum { MOST = 256 };
    char text[(MOST + 2) / 3 * 4 + 1];
    if (w->size > MOST) return json_null();
    pare_base64_put(text, w->data, w->size);
    return json_string(text);
}

/* The value of a field. */
static pare_status value_json(pare_ctx *ctx, const ProtobufCFieldDescriptor *f,
                              const pare_wire_field *w, json_t **out)
{
    uint64_t number = 0;
    double real = 0;
    float single = 0;
    const uint8_t *at = w->data;
    switch (f->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return pare_message_to_json(ctx, out, f->descriptor, (const char *)w->data, w->size);
    case PROTOBUF_C_TYPE_BYTES:
        *out = bytes_json(w);
        return *out ? PARE_OK : PARE_FAIL(ctx, MEMORY, "out of memory for a request");
    case PROTOBUF_C_TYPE_STRING:
        *out = json_stringn((const char *)w->data, w->size);
        if (*out) return PARE_OK;
        return PARE_FAIL(ctx, INPUT, "the request: '%s' is no UTF-8", f->name);
    case PROTOBUF_C_TYPE_DOUBLE: memcpy(&real, w->data, sizeof real); break;
    case PROTOBUF_C_TYPE_FLOAT:
        memcpy(&single, w->data, sizeof single);
        real = (double)single;
        break;
    default: (void)pare_wire_varint(&at, w->data + w->size, &number); break;
    }
    if (wire_type(f->type) != PARE_WIRE_VARINT)
        *out = json_real(real);
    else
        *out = f->type == PROTOBUF_C_TYPE_BOOL ? json_boolean(number != 0)
                                               : json_integer((json_int_t)number);
    if (*out) return PARE_OK;
    return PARE_FAIL(ctx, INPUT, "the request: '%s' is no number", f->name);
}

/* Is the message an entry of a map? */
static bool is_entry(const ProtobufCFieldDescriptor *f)
{
    const size_t n = strlen(f->type == PROTOBUF_C_TYPE_MESSAGE
                                ? ((const ProtobufCMessageDescriptor *)f->descriptor)->short_name
                                : "");
    return n > 5 && !strcmp(((const ProtobufCMessageDescriptor *)f->descriptor)->short_name + n - 5,
                            "Entry");
}

/* Takes the value. */
static void set_json(json_t *object, const ProtobufCFieldDescriptor *f, json_t *value)
{
    json_t *list = json_object_get(object, f->name);
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        json_object_set_new(object, f->name, value);
        return;
    }
    if (!list) {
        list = is_entry(f) ? json_object() : json_array();
        json_object_set_new(object, f->name, list);
    }
    if (!is_entry(f)) {
        json_array_append_new(list, value);
        return;
    }
    const char *key = json_string_value(json_object_get(value, "key"));
    json_t *of = json_object_get(value, "value");
    json_object_set_new(list, key ? key : "", of ? json_incref(of) : json_null());
    json_decref(value);
}

static pare_status fields_json(pare_ctx *ctx, json_t *object,
                               const ProtobufCMessageDescriptor *type, const uint8_t *at,
                               const uint8_t *end)
{
    while (at < end) {
        pare_wire_field w;
        json_t *value;
        const char *wrong = pare_wire_next(&at, end, &w);
        if (wrong)
            return PARE_FAIL(ctx, INPUT, "the request is no %s: %s", type->short_name, wrong);
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(type, w.number);
        if (!f) continue;
        if (w.type != wire_type(f->type))
            return PARE_FAIL(ctx, INPUT, "the request is no %s: '%s' has another type",
                             type->short_name, f->name);
        PARE_TRY(value_json(ctx, f, &w, &value));
        set_json(object, f, value);
    }
    return PARE_OK;
}

pare_status pare_message_to_json(pare_ctx *ctx, json_t **out,
                                 const ProtobufCMessageDescriptor *type, const char *data,
                                 size_t bytes)
{
    json_t *object = json_object();
    if (!object) return PARE_FAIL(ctx, MEMORY, "out of memory for a request");
    const uint8_t *at = (const uint8_t *)data;
    const pare_status st = fields_json(ctx, object, type, at, at + bytes);
    if (st == PARE_OK)
        *out = object;
    else
        json_decref(object);
    return st;
}
