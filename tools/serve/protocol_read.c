/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/protocol.h"

#include "runtime/base/size.h"

#include <string.h>

static const struct {
    const char *name;
    pare_dtype dtype;
} types[] = {{"BOOL", PARE_bool},  {"UINT8", PARE_u8},    {"UINT16", PARE_u16},
             {"UINT32", PARE_u32}, {"UINT64", PARE_u64},  {"INT8", PARE_s8},
             {"INT16", PARE_s16},  {"INT32", PARE_s32},   {"INT64", PARE_s64},
             {"FP16", PARE_f16},   {"BF16", PARE_bf16},   {"FP32", PARE_f32},
             {"FP64", PARE_f64},   {"BYTES", PARE_string}};

const char *pare_infer_type_name(pare_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return NULL;
}

pare_dtype pare_infer_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name)) return types[i].dtype;
    return PARE_NOTYPE;
}

enum { MOST_JSON = 32 << 20 /* bytes; what is parsed takes many times as many */ };

/* A request while it is read. */
typedef struct reader {
    pare_arena *arena;
    pare_ctx *ctx;
    size_t json_bytes;
    const char *at; /* binary data that no input has taken yet */
    size_t left;
} reader;

/* --- fields --- */

/* A text without NUL, copied; *out stays NULL where the field is absent. */
static pare_status read_text(reader *r, const json_t *object, const char *what, const char *key,
                             const char **out)
{
    const json_t *field = json_object_get(object, key);
    *out = NULL;
    if (!field) return PARE_OK;
    const char *text = json_string_value(field);
    if (!text || strlen(text) != json_string_length(field))
        return PARE_FAIL(r->ctx, INPUT, "%s: '%s' is not a text", what, key);
    *out = pare_arena_strdup(r->arena, text);
    return *out ? PARE_OK : PARE_MEMORY;
}

/* A whole number that is not negative; *out is not touched where the field is absent. */
static pare_status read_count(reader *r, const json_t *object, const char *what, const char *key,
                              int64_t *out)
{
    const json_t *field = json_object_get(object, key);
    if (!field) return PARE_OK;
    if (!json_is_integer(field) || json_integer_value(field) < 0)
        return PARE_FAIL(r->ctx, INPUT, "%s: '%s' is not a whole number from 0", what, key);
    *out = json_integer_value(field);
    return PARE_OK;
}

static pare_status read_flag(reader *r, const json_t *object, const char *what, const char *key,
                             bool *out)
{
    const json_t *field = json_object_get(object, key);
    if (!field) return PARE_OK;
    if (!json_is_boolean(field))
        return PARE_FAIL(r->ctx, INPUT, "%s: '%s' is neither true nor false", what, key);
    *out = json_is_true(field);
    return PARE_OK;
}

/* The object or array of this key; *out is NULL where it is absent. */
static pare_status read_part(reader *r, const json_t *object, const char *what, const char *key,
                             json_type type, const json_t **out)
{
    *out = json_object_get(object, key);
    if (!*out || json_typeof(*out) == type) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: '%s' is not %s", what, key,
                     type == JSON_ARRAY ? "an array" : "an object");
}

static pare_status read_place(reader *r, const json_t *parameters, const char *what,
                              pare_infer_place *out)
{
    PARE_TRY(read_text(r, parameters, what, "shared_memory_region", &out->region));
    if (!out->region) return PARE_OK;
    out->bytes = -1;
    PARE_TRY(read_count(r, parameters, what, "shared_memory_offset", &out->offset));
    PARE_TRY(read_count(r, parameters, what, "shared_memory_byte_size", &out->bytes));
    if (out->bytes >= 0) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: no 'shared_memory_byte_size'", what);
}

pare_status pare_infer_place_parameters(pare_arena *arena, pare_infer_place *out, const char *what,
                                        const json_t *parameters)
{
    reader r = {.arena = arena, .ctx = arena->ctx};
    return read_place(&r, parameters, what, out);
}

/* --- numbers in JSON --- */

typedef struct filler {
    reader *r;
    const pare_infer_tensor *tensor;
    const char *what;
    char *data;
    int64_t count, at;
} filler;

bool pare_infer_in_range(pare_dtype dtype, int64_t value)
{
    const int bits = pare_type(dtype)->bits;
    const bool has_sign =
        dtype == PARE_s8 || dtype == PARE_s16 || dtype == PARE_s32 || dtype == PARE_s64;
    if (dtype == PARE_bool) return value == 0 || value == 1;
    if (!has_sign) return value >= 0 && (bits == 64 || value < (int64_t)1 << bits);
    if (bits == 64) return true;
    const int64_t most = ((int64_t)1 << (bits - 1)) - 1;
    return value >= -most - 1 && value <= most;
}

/* A number or a truth value at `to`; false where the type does not hold it. */
static bool store_number(pare_dtype dtype, void *to, const json_t *value)
{
    const size_t size = (size_t)pare_type(dtype)->bits / 8;
    if (pare_type_is_float(dtype)) {
        if (!json_is_number(value)) return false;
        const double number = json_number_value(value);
        if (dtype == PARE_f64)
            memcpy(to, &number, sizeof number);
        else
            pare_type(dtype)->from_f32_ref(to, (float)number);
        return true;
    }
    const bool truth = dtype == PARE_bool && json_is_boolean(value);
    if (!truth && !json_is_integer(value)) return false;
    const json_int_t number = truth ? json_is_true(value) : json_integer_value(value);
    if (!pare_infer_in_range(dtype, number)) return false;
    memcpy(to, &number, size); /* little-endian */
    return true;
}

static pare_status store_string(filler *f, const json_t *value)
{
    const size_t bytes = json_string_length(value);
    char *text = pare_arena_strndup(f->r->arena, json_string_value(value), bytes);
    if (!text) return PARE_MEMORY;
    ((pare_bytes *)(void *)f->data)[f->at++] = (pare_bytes){text, bytes};
    return PARE_OK;
}

/* Values of arrays in arrays come one after the other, whatever their nesting. */
static pare_status fill(filler *f, const json_t *value)
{
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            PARE_TRY(fill(f, json_array_get(value, i)));
        return PARE_OK;
    }
    if (f->at == f->count)
        return PARE_FAIL(f->r->ctx, INPUT, "%s: 'data' has more than the %lld elements of 'shape'",
                         f->what, (long long)f->count);
    const pare_dtype dtype = f->tensor->dtype;
    if (dtype == PARE_string && json_is_string(value)) return store_string(f, value);
    if (dtype == PARE_string ||
        !store_number(dtype, f->data + f->at * (pare_type(dtype)->bits / 8), value))
        return PARE_FAIL(f->r->ctx, INPUT, "%s: element %lld of 'data' is no %s", f->what,
                         (long long)f->at, pare_infer_type_name(dtype));
    f->at++;
    return PARE_OK;
}

static pare_status read_data(reader *r, const json_t *data, const char *what, int64_t count,
                             pare_infer_tensor *t)
{
    filler f = {.r = r, .tensor = t, .what = what, .count = count};
    if (!json_is_array(data)) return PARE_FAIL(r->ctx, INPUT, "%s: 'data' is not an array", what);
    if ((size_t)count > r->json_bytes) /* each takes a byte at least: no room is made for more */
        return PARE_FAIL(r->ctx, INPUT, "%s: 'data' has fewer than the %lld elements of 'shape'",
                         what, (long long)count);
    t->data = f.data = pare_arena_alloc(r->arena, t->bytes, 1);
    if (!f.data) return PARE_MEMORY;
    PARE_TRY(fill(&f, data));
    if (f.at == count) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: 'data' has %lld elements, 'shape' %lld", what,
                     (long long)f.at, (long long)count);
}

/* --- binary data --- */

/* Strings are their lengths, 4 bytes each, with the bytes behind them. */
pare_status pare_infer_strings(pare_arena *arena, pare_infer_tensor *t, const char *what,
                               const char *data, size_t size)
{
    const char *at = data, *end = data + size;
    const size_t count = t->bytes / sizeof(pare_bytes);
    if (count > size / sizeof(uint32_t))
        return PARE_FAIL(arena->ctx, INPUT, "%s: %zu bytes of binary data hold no %zu strings",
                         what, size, count);
    pare_bytes *list = pare_arena_alloc(arena, t->bytes, 1);
    if (!list) return PARE_MEMORY;
    for (size_t i = 0; i < count; i++) {
        uint32_t bytes = 0;
        const bool has_length = (size_t)(end - at) >= sizeof bytes;
        if (has_length) memcpy(&bytes, at, sizeof bytes); /* little-endian */
        if (!has_length || (size_t)(end - at) - sizeof bytes < bytes)
            return PARE_FAIL(arena->ctx, INPUT, "%s: the binary data end within string %zu", what,
                             i);
        list[i] = (pare_bytes){at + sizeof bytes, bytes};
        at += sizeof bytes + bytes;
    }
    t->data = list;
    if (at == end) return PARE_OK;
    return PARE_FAIL(arena->ctx, INPUT, "%s: %zu bytes of binary data are behind the last string",
                     what, (size_t)(end - at));
}

static pare_status read_binary(reader *r, const char *what, size_t size, pare_infer_tensor *t)
{
    if (size > r->left)
        return PARE_FAIL(r->ctx, INPUT, "%s: binary_data_size is %zu, %zu bytes were sent for it",
                         what, size, r->left);
    if (t->dtype == PARE_string)
        PARE_TRY(pare_infer_strings(r->arena, t, what, r->at, size));
    else if (size != t->bytes)
        return PARE_FAIL(r->ctx, INPUT, "%s: binary_data_size is %zu, 'shape' takes %zu bytes",
                         what, size, t->bytes);
    else
        t->data = r->at;
    r->at += size;
    r->left -= size;
    return PARE_OK;
}

/* --- inputs and outputs --- */

static pare_status read_shape(reader *r, const json_t *input, const char *what,
                              pare_infer_tensor *t)
{
    const json_t *shape = json_object_get(input, "shape");
    const size_t rank = json_array_size(shape);
    if (!json_is_array(shape)) return PARE_FAIL(r->ctx, INPUT, "%s: no array 'shape'", what);
    if (rank > PARE_MAX_RANK)
        return PARE_FAIL(r->ctx, INPUT, "%s: 'shape' has %zu axes, at most %d are served", what,
                         rank, PARE_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return PARE_FAIL(r->ctx, INPUT, "%s: axis %zu of 'shape' is not a whole number from 0",
                             what, i);
        t->dim[i] = json_integer_value(dim);
    }
    t->rank = (int)rank;
    return PARE_OK;
}

static pare_status read_type(reader *r, const json_t *input, const char *what, pare_infer_tensor *t)
{
    const char *name;
    PARE_TRY(read_text(r, input, what, "datatype", &name));
    if (!name) return PARE_FAIL(r->ctx, INPUT, "%s: no 'datatype'", what);
    t->dtype = pare_infer_type_find(name);
    if (t->dtype != PARE_NOTYPE) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: there is no datatype '%s'", what, name);
}

pare_status pare_infer_tensor_size(pare_ctx *ctx, pare_infer_tensor *t, const char *what,
                                   int64_t *count)
{
    if (pare_count_dims(t->dim, t->rank, count) && pare_type_bytes(t->dtype, *count, &t->bytes))
        return PARE_OK;
    return PARE_FAIL(ctx, INPUT, "%s: 'shape' is too large", what);
}

/* The tensor's elements, in shared memory, as binary data or as JSON. */
static pare_status read_elements(reader *r, const json_t *input, const char *what,
                                 pare_infer_tensor *t)
{
    const json_t *data = json_object_get(input, "data"), *parameters;
    int64_t size = -1, count = 0;
    PARE_TRY(read_part(r, input, what, "parameters", JSON_OBJECT, &parameters));
    PARE_TRY(pare_infer_place_parameters(r->arena, &t->place, what, parameters));
    PARE_TRY(read_count(r, parameters, what, "binary_data_size", &size));
    PARE_TRY(pare_infer_tensor_size(r->ctx, t, what, &count));
    if ((size >= 0) + (data != NULL) + (t->place.region != NULL) != 1)
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: expected one of 'data', 'binary_data_size' and "
                         "'shared_memory_region'",
                         what);
    if (size >= 0) return read_binary(r, what, (size_t)size, t);
    if (data) return read_data(r, data, what, count, t);
    if (t->dtype == PARE_string || t->place.bytes == (int64_t)t->bytes) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: shared_memory_byte_size is %lld, 'shape' takes %zu bytes",
                     what, (long long)t->place.bytes, t->bytes);
}

pare_status pare_infer_wanted_parameters(pare_arena *arena, pare_infer_wanted *w, const char *what,
                                         const json_t *parameters)
{
    reader r = {.arena = arena, .ctx = arena->ctx};
    PARE_TRY(read_place(&r, parameters, what, &w->place));
    PARE_TRY(read_flag(&r, parameters, what, "binary_data", &w->binary));
    return read_count(&r, parameters, what, "classification", &w->classes);
}

/* "input 'x'", or "input 2" where it has no name. */
static pare_status read_name(reader *r, const json_t *object, const char *kind, size_t i,
                             const char **name, const char **what)
{
    *what = pare_arena_printf(r->arena, "%s %zu", kind, i);
    if (!*what) return PARE_MEMORY;
    if (!json_is_object(object)) return PARE_FAIL(r->ctx, INPUT, "%s is not an object", *what);
    PARE_TRY(read_text(r, object, *what, "name", name));
    if (!*name) return PARE_FAIL(r->ctx, INPUT, "%s: no 'name'", *what);
    *what = pare_arena_printf(r->arena, "%s '%s'", kind, *name);
    return *what ? PARE_OK : PARE_MEMORY;
}

static pare_status read_input(reader *r, const json_t *input, size_t i, pare_infer_request *out)
{
    const char *what;
    pare_infer_tensor *t = &out->input[i];
    PARE_TRY(read_name(r, input, "input", i, &t->name, &what));
    for (size_t k = 0; k < i; k++)
        if (!strcmp(out->input[k].name, t->name))
            return PARE_FAIL(r->ctx, INPUT, "%s is given twice", what);
    PARE_TRY(read_shape(r, input, what, t));
    PARE_TRY(read_type(r, input, what, t));
    return read_elements(r, input, what, t);
}

static pare_status read_output(reader *r, const json_t *output, size_t i, pare_infer_request *out)
{
    const char *what;
    const json_t *parameters;
    pare_infer_wanted *w = &out->wanted[i];
    PARE_TRY(read_name(r, output, "output", i, &w->name, &what));
    for (size_t k = 0; k < i; k++)
        if (!strcmp(out->wanted[k].name, w->name))
            return PARE_FAIL(r->ctx, INPUT, "%s is given twice", what);
    w->binary = out->binary;
    PARE_TRY(read_part(r, output, what, "parameters", JSON_OBJECT, &parameters));
    return pare_infer_wanted_parameters(r->arena, w, what, parameters);
}

/* --- the request --- */

/* The id is a number or a text; 0 and "" are none. */
static pare_status read_sequence(reader *r, const json_t *parameters, const char *what,
                                 pare_infer_sequence *out)
{
    int64_t number = 0;
    PARE_TRY(read_flag(r, parameters, what, "sequence_start", &out->start));
    PARE_TRY(read_flag(r, parameters, what, "sequence_end", &out->end));
    if (json_is_string(json_object_get(parameters, "sequence_id"))) {
        PARE_TRY(read_text(r, parameters, what, "sequence_id", &out->id));
        if (!*out->id) out->id = NULL;
        return PARE_OK;
    }
    PARE_TRY(read_count(r, parameters, what, "sequence_id", &number));
    if (!number) return PARE_OK;
    out->id = pare_arena_printf(r->arena, "%lld", (long long)number);
    return out->id ? PARE_OK : PARE_MEMORY;
}

pare_status pare_infer_request_parameters(pare_arena *arena, pare_infer_request *out,
                                          const json_t *parameters)
{
    const char *what = "the request";
    reader of = {.arena = arena, .ctx = arena->ctx}, *r = &of;
    PARE_TRY(read_flag(r, parameters, what, "binary_data_output", &out->binary));
    PARE_TRY(read_count(r, parameters, what, "priority", &out->priority));
    PARE_TRY(read_sequence(r, parameters, what, &out->sequence));
    return read_count(r, parameters, what, "timeout", &out->timeout);
}

static pare_status read_parameters(reader *r, const json_t *root, pare_infer_request *out)
{
    const json_t *parameters;
    PARE_TRY(read_part(r, root, "the request", "parameters", JSON_OBJECT, &parameters));
    return pare_infer_request_parameters(r->arena, out, parameters);
}

pare_status pare_infer_request_lists(pare_arena *arena, pare_infer_request *out, size_t inputs,
                                     size_t outputs)
{
    enum { MOST = 1024 };
    if (inputs > MOST || outputs > MOST)
        return PARE_FAIL(arena->ctx, INPUT,
                         "the request lists %zu inputs and %zu outputs, at most %d are read",
                         inputs, outputs, MOST);
    out->input = pare_arena_alloc(arena, inputs + 1, sizeof *out->input);
    out->wanted = pare_arena_alloc(arena, outputs + 1, sizeof *out->wanted);
    return out->input && out->wanted ? PARE_OK : PARE_MEMORY;
}

static pare_status read_lists(reader *r, const json_t *root, pare_infer_request *out)
{
    const json_t *inputs, *outputs;
    PARE_TRY(read_part(r, root, "the request", "inputs", JSON_ARRAY, &inputs));
    PARE_TRY(read_part(r, root, "the request", "outputs", JSON_ARRAY, &outputs));
    if (!inputs) return PARE_FAIL(r->ctx, INPUT, "the request: no array 'inputs'");
    const size_t in = json_array_size(inputs), wanted = json_array_size(outputs);
    PARE_TRY(pare_infer_request_lists(r->arena, out, in, wanted));
    for (size_t i = 0; i < in; i++) PARE_TRY(read_input(r, json_array_get(inputs, i), i, out));
    for (size_t i = 0; i < wanted; i++)
        PARE_TRY(read_output(r, json_array_get(outputs, i), i, out));
    out->input_count = (int)in;
    out->wanted_count = (int)wanted;
    return PARE_OK;
}

static pare_status read_root(reader *r, const json_t *root, pare_infer_request *out)
{
    if (!json_is_object(root)) return PARE_FAIL(r->ctx, INPUT, "the request is not a JSON object");
    PARE_TRY(read_text(r, root, "the request", "id", &out->id));
    PARE_TRY(read_parameters(r, root, out));
    PARE_TRY(read_lists(r, root, out));
    if (!r->left) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%zu bytes of binary data are behind those of the inputs",
                     r->left);
}

pare_status pare_infer_read(pare_arena *arena, pare_infer_request *out, const char *body,
                            size_t bytes, size_t json_bytes)
{
    json_error_t error;
    reader r = {arena, arena->ctx, json_bytes, body + json_bytes, bytes - json_bytes};
    *out = (pare_infer_request){0};
    if (json_bytes > MOST_JSON)
        return PARE_FAIL(r.ctx, INPUT,
                         "the request's JSON has %zu bytes, at most %d are read; tensors may come "
                         "as binary data",
                         json_bytes, MOST_JSON);
    json_t *root = json_loadb(body, json_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        return PARE_FAIL(r.ctx, INPUT, "the request's JSON, line %d, column %d: %s", error.line,
                         error.column, error.text);
    pare_status st = read_root(&r, root, out);
    json_decref(root);
    return st;
}
