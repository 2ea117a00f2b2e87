/* SPDX-License-Identifier: Apache-2.0 */
/* TensorProto: where its numbers are (raw_data, a typed field, another file), checked against its
   shape. Dense payloads stay where they are; numbers written as varints are decoded. */
#include "formats/onnx/inner.h"
#include "runtime/base/size.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_UP_TO = 1 << 20 }; /* payloads of this size are copied where they are unaligned */

static const char *name_of(const pare_tensor *t) { return t->name ? t->name : ""; }

/* "float [3,4]" */
static const char *describe(const pare_tensor *t, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "%s [", pare_type(t->dtype)->onnx_name);
    for (int i = 0; i < t->rank && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%" PRId64, i ? "," : "", t->dims[i]);
    if (at < size) snprintf(text + at, size - at, "]");
    return text;
}

static bool holds(const pare_map *map, const void *data)
{
    return map->size && (uintptr_t)data - (uintptr_t)map->data < map->size;
}

static bool in_map(const pare_onnx_files *files, const void *data)
{
    if (!files || files->is_copy) return false;
    if (holds(&files->model, data)) return true;
    for (size_t i = 0; i < files->count; i++)
        if (holds(&files->file[i].map, data)) return true;
    return false;
}

/* Sets data of t->bytes; what is unaligned and is small moves to the arena. */
static pare_status set_data(pare_onnx_reader *r, pare_tensor *t, const void *data)
{
    size_t align = (size_t)pare_type(t->dtype)->bits / 8;
    if (t->dtype == PARE_c64 || t->dtype == PARE_c128) align /= 2;
    if (align > 1 && (uintptr_t)data % align && t->bytes <= ALIGN_UP_TO) {
        t->data = pare_arena_memdup(r->arena, data, t->bytes);
        return t->data ? PARE_OK : PARE_MEMORY;
    }
    t->data = t->bytes ? data : "";
    t->mapped = in_map(r->files, data);
    return PARE_OK;
}

/* --- typed fields --- */

typedef struct typed_field {
    const char *name;
    size_t count;
    const ProtobufCBinaryData *piece;
    size_t fixed; /* bytes of a number, 0: varint */
} typed_field;

static void list_typed(const Onnx__Tensor *m, typed_field field[PARE_TYPED_FIELDS])
{
    field[PARE_FLOAT_DATA] = (typed_field){"float_data", m->n_float_data, m->float_data, 4};
    field[PARE_INT32_DATA] = (typed_field){"int32_data", m->n_int32_data, m->int32_data, 0};
    field[PARE_INT64_DATA] = (typed_field){"int64_data", m->n_int64_data, m->int64_data, 0};
    field[PARE_DOUBLE_DATA] = (typed_field){"double_data", m->n_double_data, m->double_data, 8};
    field[PARE_UINT64_DATA] = (typed_field){"uint64_data", m->n_uint64_data, m->uint64_data, 0};
}

/* Which of them holds numbers of this type (TensorProto in onnx.proto, ONNX IR 10). */
pare_onnx_typed pare_onnx_typed_of(pare_dtype dtype)
{
    switch (dtype) {
    case PARE_f32:
    case PARE_c64: return PARE_FLOAT_DATA;
    case PARE_s64: return PARE_INT64_DATA;
    case PARE_f64:
    case PARE_c128: return PARE_DOUBLE_DATA;
    case PARE_u32:
    case PARE_u64: return PARE_UINT64_DATA;
    default: return PARE_INT32_DATA;
    }
}

static bool is_signed(pare_dtype t) { return t == PARE_s8 || t == PARE_s16 || t == PARE_s32; }

/* Stores one number of a varint field in `width` bytes; false where it does not fit. */
static bool store(uint8_t *out, size_t width, pare_dtype dtype, uint64_t number)
{
    if (width < 4) {
        int64_t value = (int32_t)(uint32_t)number, range = (int64_t)1 << 8 * width;
        int64_t low = is_signed(dtype) ? -range / 2 : 0, high = low + range;
        if (pare_type(dtype)->bits <
            8) { /* two packed numbers: writers differ in the byte's sign */
            low = -range / 2;
            high = range;
        }
        if (value < low || value >= high) return false;
    }
    if (dtype == PARE_u32 && number > UINT32_MAX) return false;
    memcpy(out, &number, width); /* little-endian, as the files are */
    return true;
}

static pare_status decode_varints(pare_onnx_reader *r, pare_tensor *t, const typed_field *field,
                                  size_t numbers)
{
    size_t width = t->bytes / (numbers ? numbers : 1), n = 0;
    uint8_t *out = pare_arena_alloc(r->arena, t->bytes, 1);
    if (!out) return PARE_MEMORY;
    t->data = out;
    for (size_t i = 0; i < field->count; i++) {
        pare_bytes piece = pare_onnx_range(field->piece[i]);
        const uint8_t *at = piece.data, *end = at + piece.size;
        for (; at < end; n++) {
            uint64_t number;
            if (!pare_wire_varint(&at, end, &number))
                return pare_onnx_problem(r, PARE_INPUT, "tensor '%s': %s ends inside a number",
                                         name_of(t), field->name);
            if (n < numbers && !store(out + n * width, width, t->dtype, number))
                return pare_onnx_problem(
                    r, PARE_INPUT, "tensor '%s': the number %" PRId64 " in %s does not fit %s",
                    name_of(t), (int64_t)number, field->name, pare_type(t->dtype)->onnx_name);
        }
    }
    char text[200];
    if (n != numbers)
        return pare_onnx_problem(
            r, PARE_INPUT, "tensor '%s': %s holds %zu numbers, %s needs %zu; export it again",
            name_of(t), field->name, n, describe(t, text, sizeof text), numbers);
    return PARE_OK;
}

static pare_status join_pieces(pare_onnx_reader *r, pare_tensor *t, const typed_field *field)
{
    uint8_t *out = pare_arena_alloc(r->arena, t->bytes, 1);
    if (!out) return PARE_MEMORY;
    t->data = out;
    for (size_t i = 0; i < field->count; i++) {
        pare_bytes piece = pare_onnx_range(field->piece[i]);
        if (piece.size) memcpy(out, piece.data, piece.size);
        out += piece.size;
    }
    return PARE_OK;
}

static pare_status read_typed(pare_onnx_reader *r, pare_tensor *t, const typed_field *field)
{
    char text[200];
    pare_bytes *piece;
    size_t size = 0, bits = (size_t)pare_type(t->dtype)->bits;
    PARE_TRY(pare_onnx_ranges(r, &piece, field->count, field->piece));
    for (size_t i = 0; i < field->count; i++) size += piece[i].size;
    t->encoding = PARE_TYPED;
    t->typed = piece;
    t->typed_count = (int)field->count;
    if (field->fixed ? size != t->bytes : size < (bits < 8 ? t->bytes : (size_t)t->count))
        return pare_onnx_problem(
            r, PARE_INPUT, "tensor '%s': %s holds %zu bytes, too %s for %s; export it again",
            name_of(t), field->name, size, field->fixed && size > t->bytes ? "many" : "few",
            describe(t, text, sizeof text));
    if (!field->fixed) return decode_varints(r, t, field, bits < 8 ? t->bytes : (size_t)t->count);
    return field->count == 1 ? set_data(r, t, piece[0].data) : join_pieces(r, t, field);
}

static pare_status read_strings(pare_onnx_reader *r, pare_tensor *t, const Onnx__Tensor *m)
{
    if (m->has_data_location && m->data_location == 1)
        return pare_onnx_problem(r, PARE_INPUT,
                                 "tensor '%s': strings cannot be in another file; store them in "
                                 "string_data",
                                 name_of(t));
    if ((int64_t)m->n_string_data != t->count)
        return pare_onnx_problem(
            r, PARE_INPUT,
            "tensor '%s': string_data holds %zu strings, its shape needs %" PRId64
            "; export it again",
            name_of(t), m->n_string_data, t->count);
    pare_bytes *list = pare_arena_alloc(r->arena, m->n_string_data + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    for (size_t i = 0; i < m->n_string_data; i++) {
        const ProtobufCBinaryData *s = &m->string_data[i];
        list[i] = (pare_bytes){pare_arena_strndup(r->arena, (const char *)s->data, s->len), s->len};
        if (!list[i].data) return PARE_MEMORY;
    }
    t->data = list;
    t->bytes = m->n_string_data * sizeof *list;
    t->encoding = m->n_string_data ? PARE_TYPED : PARE_RAW;
    return PARE_OK;
}

/* --- external data --- */

static bool parse_size(const char *text, size_t *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    unsigned long long value = strtoull(text, &end, 10);
    *out = (size_t)value;
    return !*end && value < SIZE_MAX / 2;
}

static bool has_pair(const pare_tensor *t, const char *key)
{
    for (int i = 0; i < t->external.count; i++)
        if (t->external.item[i].key && !strcmp(t->external.item[i].key, key)) return true;
    return false;
}

typedef struct place {
    const char *location, *offset_text, *length_text; /* "" where absent */
    size_t offset;
} place;

/* external_data to a place; its sizes are checked against the tensor's. *good: no problem came up.
 */
static pare_status find_place(pare_onnx_reader *r, const pare_tensor *t, place *out, bool *good)
{
    char text[200];
    *out = (place){"", "", "", 0};
    for (int i = 0; i < t->external.count; i++) {
        const pare_pair *p = &t->external.item[i];
        if (!p->key || !p->value) continue;
        if (!strcmp(p->key, "location")) out->location = p->value;
        if (!strcmp(p->key, "offset")) out->offset_text = p->value;
        if (!strcmp(p->key, "length")) out->length_text = p->value;
    }
    size_t length = t->bytes;
    *good = false;
    if ((has_pair(t, "offset") && !parse_size(out->offset_text, &out->offset)) ||
        (has_pair(t, "length") && !parse_size(out->length_text, &length)))
        return pare_onnx_problem(r, PARE_INPUT,
                                 "tensor '%s': offset '%s' and length '%s' of its external data "
                                 "are not both numbers",
                                 name_of(t), out->offset_text, out->length_text);
    if (length != t->bytes)
        return pare_onnx_problem(r, PARE_INPUT,
                                 "tensor '%s': its external data has %zu bytes, %s needs %zu; "
                                 "export it again",
                                 name_of(t), length, describe(t, text, sizeof text), t->bytes);
    if (!r->files || !r->files->folder)
        return pare_onnx_problem(r, PARE_INPUT,
                                 "tensor '%s': its data is in the file '%s', which cannot be "
                                 "looked for here",
                                 name_of(t), out->location);
    *good = true;
    return PARE_OK;
}

/* The file's map; data is NULL after a problem that was only reported. */
static pare_status map_place(pare_onnx_reader *r, const pare_tensor *t, const place *from,
                             pare_map *map)
{
    char title[600];
    snprintf(title, sizeof title, "%stensor '%s'", r->where, name_of(t));
    pare_ctx own = *r->ctx; /* a reported problem leaves no message behind */
    own.message[0] = 0;
    *map = (pare_map){0};
    pare_status st = pare_onnx_files_map(&own, r->files, map, from->location, title);
    r->ctx->fail_after = own.fail_after;
    if (st == PARE_OK) return PARE_OK;
    if (st == PARE_MEMORY) return PARE_FAIL(r->ctx, MEMORY, "%s", own.message);
    if (!r->report) return pare_fail(r->ctx, st, "%s: %s", r->path, own.message);
    r->report(r->report_user, own.message);
    return PARE_OK;
}

static pare_status read_external(pare_onnx_reader *r, pare_tensor *t)
{
    place from;
    pare_map map;
    bool good;
    t->encoding = PARE_EXTERNAL;
    PARE_TRY(find_place(r, t, &from, &good));
    if (!good) return PARE_OK;
    PARE_TRY(map_place(r, t, &from, &map));
    if (!map.data) return PARE_OK;
    if (from.offset > map.size || t->bytes > map.size - from.offset)
        return pare_onnx_problem(r, PARE_INPUT,
                                 "tensor '%s': needs bytes %zu to %zu of '%s', which has %zu; the "
                                 "file is too short: copy it again",
                                 name_of(t), from.offset, from.offset + t->bytes, from.location,
                                 map.size);
    pare_bytes payload = {map.data + from.offset, t->bytes};
    PARE_TRY(pare_onnx_files_note(r->ctx, r->files, payload));
    return set_data(r, t, payload.data);
}

/* --- the tensor --- */

static pare_status read_numbers(pare_onnx_reader *r, pare_tensor *t, const Onnx__Tensor *m)
{
    typed_field field[PARE_TYPED_FIELDS];
    char text[200];
    int own = (int)pare_onnx_typed_of(t->dtype), places = 0;
    list_typed(m, field);
    pare_bytes raw = {"", 0};
    if (m->n_raw_data) {
        raw = pare_onnx_range(m->raw_data[m->n_raw_data - 1]);
        t->present |= PARE_HAS_RAW;
    }
    bool external = m->has_data_location && m->data_location == 1;
    for (int i = 0; i < PARE_TYPED_FIELDS; i++) {
        if (field[i].count && i != own)
            return pare_onnx_problem(r, PARE_INPUT,
                                     "tensor '%s': its numbers are in %s, expected %s or raw_data "
                                     "for %s",
                                     name_of(t), field[i].name, field[own].name,
                                     pare_type(t->dtype)->onnx_name);
        places += field[i].count > 0;
    }
    if (places + external + (raw.size > 0) + (m->n_string_data > 0) > 1)
        return pare_onnx_problem(r, PARE_INPUT, "tensor '%s': its numbers are in two places",
                                 name_of(t));
    if (external) return read_external(r, t);
    if (field[own].count) return read_typed(r, t, &field[own]);
    if (raw.size != t->bytes || m->n_string_data)
        return pare_onnx_problem(r, PARE_INPUT,
                                 "tensor '%s': it holds %zu bytes, %s needs %zu; export it again",
                                 name_of(t), raw.size, describe(t, text, sizeof text), t->bytes);
    return set_data(r, t, raw.data);
}

static pare_status read_head(pare_onnx_reader *r, pare_tensor *t, const Onnx__Tensor *m)
{
    PARE_TRY(pare_onnx_text(r, &t->name, m->has_name, m->name, "tensor name"));
    PARE_TRY(pare_onnx_text(r, &t->doc, m->has_doc_string, m->doc_string, "tensor's doc_string"));
    PARE_TRY(pare_onnx_pairs(r, &t->external, m->n_external_data, m->external_data));
    PARE_TRY(pare_onnx_pairs(r, &t->meta, m->n_metadata_props, m->metadata_props));
    PARE_TRY(pare_onnx_unknown(r, &t->unknown, &m->base));
    if (m->has_data_location) t->present |= PARE_HAS_LOCATION;
    if (m->n_dims > INT_MAX / sizeof *t->dims)
        return PARE_FAIL(r->ctx, INPUT, "%s: %stoo many dims", r->path, r->where);
    t->rank = (int)m->n_dims;
    t->dims = pare_arena_memdup(r->arena, m->dims, m->n_dims * sizeof *m->dims);
    return t->dims ? PARE_OK : PARE_MEMORY;
}

pare_status pare_onnx_tensor(pare_onnx_reader *r, pare_tensor **out, const Onnx__Tensor *m)
{
    char text[200];
    pare_tensor *t = pare_arena_alloc(r->arena, 1, sizeof *t);
    *out = NULL;
    if (!t) return PARE_MEMORY;
    PARE_TRY(read_head(r, t, m));
    if (!m->has_data_type || m->data_type <= 0 || m->data_type >= PARE_DTYPE_COUNT)
        return pare_onnx_problem(
            r, PARE_UNSUPPORTED, "tensor '%s': data type %d is unknown, expected 1 to %d of ONNX",
            name_of(t), m->has_data_type ? m->data_type : 0, PARE_DTYPE_COUNT - 1);
    t->dtype = (pare_dtype)m->data_type;
    if (!pare_count_dims(t->dims, t->rank, &t->count) ||
        (t->dtype != PARE_string && !pare_type_bytes(t->dtype, t->count, &t->bytes)))
        return pare_onnx_problem(r, PARE_INPUT,
                                 "tensor '%s': the dims of %s are negative or overflow; export it "
                                 "again",
                                 name_of(t), describe(t, text, sizeof text));
    PARE_TRY(t->dtype == PARE_string ? read_strings(r, t, m) : read_numbers(r, t, m));
    t->read_data = t->data;
    if (t->data) *out = t;
    return PARE_OK;
}

/* --- sparse tensors (SparseTensorProto, ONNX IR 6) --- */

/* Position of entry i: one linear index, or one per axis. -1 where it is outside. */
static int64_t sparse_at(const pare_tensor *dense, const pare_tensor *indices, int64_t i)
{
    const int64_t *index = indices->data;
    if (indices->rank == 1) return index[i] >= 0 && index[i] < dense->count ? index[i] : -1;
    int64_t at = 0;
    for (int a = 0; a < dense->rank; a++) {
        int64_t k = index[i * dense->rank + a];
        if (k < 0 || k >= dense->dims[a]) return -1;
        at = at * dense->dims[a] + k;
    }
    return at;
}

static pare_status fill_sparse(pare_onnx_reader *r, pare_tensor *t, const pare_tensor *values,
                               const pare_tensor *indices)
{
    int64_t n = values->count;
    bool linear = indices->rank == 1 && indices->dims[0] == n;
    bool by_axis = indices->rank == 2 && indices->dims[0] == n && indices->dims[1] == t->rank;
    if (indices->dtype != PARE_s64 || values->rank != 1 || (!linear && !by_axis))
        return pare_onnx_problem(r, PARE_INPUT,
                                 "sparse tensor '%s': values and indices do not fit together",
                                 name_of(t));
    size_t width = (size_t)pare_type(t->dtype)->bits / 8;
    uint8_t *data = pare_arena_alloc(r->arena, t->bytes, 1);
    if (!data) return PARE_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = sparse_at(t, indices, i);
        if (at < 0)
            return pare_onnx_problem(r, PARE_INPUT,
                                     "sparse tensor '%s': index %" PRId64 " is outside its shape",
                                     name_of(t), i);
        memcpy(data + (size_t)at * width, (const uint8_t *)values->data + (size_t)i * width, width);
    }
    t->data = data;
    return PARE_OK;
}

pare_status pare_onnx_sparse(pare_onnx_reader *r, pare_tensor **out, pare_bytes bytes)
{
    ProtobufCMessage *message;
    pare_tensor *values = NULL, *indices = NULL;
    *out = NULL;
    PARE_TRY(
        pare_onnx_unpack(r, &message, &onnx__sparse_tensor__descriptor, PARE_WIRE_SPARSE, bytes));
    const Onnx__SparseTensor *m = (const Onnx__SparseTensor *)message;
    if (m->values) PARE_TRY(pare_onnx_tensor(r, &values, m->values));
    if (m->indices) PARE_TRY(pare_onnx_tensor(r, &indices, m->indices));
    if (!values || !indices || !values->name || m->n_dims > INT_MAX / 8)
        return pare_onnx_problem(r, PARE_INPUT,
                                 "a sparse tensor lacks values, indices or its name");
    if (pare_type(values->dtype)->bits < 8 || values->dtype == PARE_string)
        return pare_onnx_problem(r, PARE_UNSUPPORTED,
                                 "sparse tensor '%s': its type is %s; store it as a dense tensor",
                                 name_of(values), pare_type(values->dtype)->onnx_name);
    pare_tensor *t = pare_arena_alloc(r->arena, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    *t = (pare_tensor){.name = values->name, .dtype = values->dtype, .rank = (int)m->n_dims};
    t->dims = pare_arena_memdup(r->arena, m->dims, m->n_dims * sizeof *m->dims);
    if (!t->dims) return PARE_MEMORY;
    if (!pare_count_dims(t->dims, t->rank, &t->count) ||
        !pare_type_bytes(t->dtype, t->count, &t->bytes) || t->bytes > r->dense_left)
        return pare_onnx_problem(
            r, PARE_UNSUPPORTED,
            "sparse tensor '%s': sparse tensors made dense exceed 256 MiB; store it "
            "as a dense tensor",
            name_of(t));
    r->dense_left -= t->bytes;
    PARE_TRY(fill_sparse(r, t, values, indices));
    if (t->data) *out = t;
    return PARE_OK;
}
