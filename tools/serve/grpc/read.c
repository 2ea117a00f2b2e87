/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/grpc/infer.h"

#include "formats/wire.h"

#include <string.h>

/* Fields of ModelInferRequest. */
enum { MODEL = 1, VERSION, ID, PARAMETERS, INPUTS, OUTPUTS, RAW };

enum { MOST_PARAMETERS = 1024 /* of the request, an input or an output */ };

/* A request while it is read. */
typedef struct reader {
    pare_arena *arena;
    pare_ctx *ctx;
    pare_exchange *x; /* for which memory counts; NULL: it does not */
    const uint8_t *at, *end;
    pare_wire_field field; /* the last one */
} reader;

/* --- fields --- */

static reader reader_of(pare_arena *arena, const void *data, size_t bytes)
{
    return (reader){
        .arena = arena, .ctx = arena->ctx, .at = data, .end = (const uint8_t *)data + bytes};
}

/* Reads the next field; *more is false at the end. */
static pare_status next(reader *r, const char *what, bool *more)
{
    const char *wrong = NULL;
    *more = r->at < r->end;
    if (*more) wrong = pare_wire_next(&r->at, r->end, &r->field);
    if (!wrong) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: the message is damaged: %s", what, wrong);
}

static pare_status expect(reader *r, const char *what, pare_wire_type type)
{
    if (r->field.type == type) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: the message is damaged: field %u has another type", what,
                     r->field.number);
}

/* A text without NUL, copied once. */
static pare_status read_text(reader *r, const char *what, const char *key, const char **out)
{
    PARE_TRY(expect(r, what, PARE_WIRE_BYTES));
    if (*out) return PARE_FAIL(r->ctx, INPUT, "%s: '%s' is given twice", what, key);
    if (r->field.size && memchr(r->field.data, 0, r->field.size))
        return PARE_FAIL(r->ctx, INPUT, "%s: '%s' is not a text", what, key);
    *out = pare_arena_strndup(r->arena, (const char *)r->field.data, r->field.size);
    return *out ? PARE_OK : PARE_MEMORY;
}

/* The message in the last field. */
static pare_status enter(reader *r, const char *what, reader *inner)
{
    PARE_TRY(expect(r, what, PARE_WIRE_BYTES));
    *inner = reader_of(r->arena, r->field.data, r->field.size);
    inner->x = r->x;
    return PARE_OK;
}

/* --- parameters --- */

/* The value of the last field of an InferParameter; NULL: it is damaged. */
static json_t *choice_json(const reader *r)
{
    uint64_t number = 0;
    double real;
    const pare_wire_field *f = &r->field;
    const uint8_t *at = f->data;
    if (f->number == 3 && f->type == PARE_WIRE_BYTES)
        return json_stringn((const char *)f->data, f->size);
    if (f->number == 4 && f->type == PARE_WIRE_64) {
        memcpy(&real, f->data, sizeof real);
        return json_real(real);
    }
    if (f->type != PARE_WIRE_VARINT) return NULL;
    (void)pare_wire_varint(&at, f->data + f->size, &number);
    if (f->number == 1) return json_boolean(number != 0);
    if (f->number == 2 || (f->number == 5 && number <= INT64_MAX))
        return json_integer((json_int_t)number);
    return NULL;
}

static pare_status read_value(reader *r, const char *what, const char *key, json_t *out)
{
    bool more;
    reader value;
    PARE_TRY(enter(r, what, &value));
    for (;;) {
        PARE_TRY(next(&value, what, &more));
        if (!more) return PARE_OK;
        if (json_object_set_new(out, key, choice_json(&value)))
            return PARE_FAIL(r->ctx, INPUT, "%s: parameter '%s' has no value that is read", what,
                             key);
    }
}

/* An entry of a map of parameters: the key is sent before the value. */
static pare_status read_entry(reader *r, const char *what, json_t *out)
{
    bool more;
    reader entry;
    const char *key = NULL;
    PARE_TRY(enter(r, what, &entry));
    for (;;) {
        PARE_TRY(next(&entry, what, &more));
        if (!more) return PARE_OK;
        if (entry.field.number == 1) PARE_TRY(read_text(&entry, what, "key", &key));
        if (entry.field.number == 2) PARE_TRY(read_value(&entry, what, key ? key : "", out));
    }
}

/* All fields of this number, of which there are `count`, as an object; NULL where there are none.
 */
static pare_status read_parameters(reader r, const char *what, uint32_t number, int count,
                                   json_t **out)
{
    bool more;
    pare_status st = PARE_OK;
    *out = NULL;
    if (!count) return PARE_OK;
    if (count > MOST_PARAMETERS)
        return PARE_FAIL(r.ctx, INPUT, "%s: %d parameters, at most %d are read", what, count,
                         MOST_PARAMETERS);
    json_t *all = json_object();
    if (!all) return PARE_FAIL(r.ctx, MEMORY, "out of memory for a request");
    while ((st = next(&r, what, &more)) == PARE_OK && more)
        if (r.field.number == number && (st = read_entry(&r, what, all)) != PARE_OK) break;
    if (st == PARE_OK)
        *out = all;
    else
        json_decref(all);
    return st;
}

/* --- typed contents --- */

static const struct {
    pare_dtype dtype;
    uint32_t number; /* of the field of InferTensorContents */
    pare_wire_type type;
} contents[] = {
    {PARE_bool, 1, PARE_WIRE_VARINT}, {PARE_s8, 2, PARE_WIRE_VARINT},
    {PARE_s16, 2, PARE_WIRE_VARINT},  {PARE_s32, 2, PARE_WIRE_VARINT},
    {PARE_s64, 3, PARE_WIRE_VARINT},  {PARE_u8, 4, PARE_WIRE_VARINT},
    {PARE_u16, 4, PARE_WIRE_VARINT},  {PARE_u32, 4, PARE_WIRE_VARINT},
    {PARE_u64, 5, PARE_WIRE_VARINT},  {PARE_f32, 6, PARE_WIRE_32},
    {PARE_f64, 7, PARE_WIRE_64},      {PARE_string, 8, PARE_WIRE_BYTES},
};

typedef struct filler {
    pare_ctx *ctx;
    const char *what;
    pare_dtype dtype;
    char *data;
    int64_t at, count;
} filler;

static pare_status fill_number(filler *f, uint64_t value)
{
    const size_t size = (size_t)pare_type(f->dtype)->bits / 8;
    if (f->dtype == PARE_bool) value = value != 0;
    if (f->dtype != PARE_u64 && !pare_infer_in_range(f->dtype, (int64_t)value))
        return PARE_FAIL(f->ctx, INPUT, "%s: element %lld of 'contents' is no %s", f->what,
                         (long long)f->at, pare_infer_type_name(f->dtype));
    memcpy(f->data + (size_t)f->at++ * size, &value, size); /* little-endian */
    return PARE_OK;
}

static pare_status fail_more(const filler *f)
{
    return PARE_FAIL(f->ctx, INPUT, "%s: 'contents' has more than the %lld elements of 'shape'",
                     f->what, (long long)f->count);
}

static pare_status fail_damaged(const filler *f, const char *why)
{
    return PARE_FAIL(f->ctx, INPUT, "%s: the message is damaged: %s", f->what, why);
}

static pare_status fill_varints(filler *f, const uint8_t *at, const uint8_t *end)
{
    uint64_t value;
    while (at < end) {
        if (f->at == f->count) return fail_more(f);
        if (!pare_wire_varint(&at, end, &value)) return fail_damaged(f, "a number is cut off");
        PARE_TRY(fill_number(f, value));
    }
    return PARE_OK;
}

static pare_status fill_floats(filler *f, const pare_wire_field *w, size_t size)
{
    const size_t n = w->size / size;
    if (w->size % size) return fail_damaged(f, "a number is cut off");
    if (n > (size_t)(f->count - f->at)) return fail_more(f);
    if (n) memcpy(f->data + (size_t)f->at * size, w->data, w->size);
    f->at += (int64_t)n;
    return PARE_OK;
}

/* The elements of the last field, one or packed. */
static pare_status fill(filler *f, const reader *r, pare_wire_type type)
{
    const pare_wire_field *w = &r->field;
    const bool is_packed = w->type == PARE_WIRE_BYTES && type != PARE_WIRE_BYTES;
    if (w->type != type && !is_packed) return fail_damaged(f, "'contents' has another type");
    if (type == PARE_WIRE_VARINT) return fill_varints(f, w->data, w->data + w->size);
    if (type != PARE_WIRE_BYTES) return fill_floats(f, w, type == PARE_WIRE_32 ? 4 : 8);
    if (f->at == f->count) return fail_more(f);
    ((pare_bytes *)(void *)f->data)[f->at++] = (pare_bytes){(const char *)w->data, w->size};
    return PARE_OK;
}

static pare_status read_contents(reader r, const char *what, int64_t count, pare_infer_tensor *t)
{
    bool more;
    size_t i = 0;
    const size_t kinds = sizeof contents / sizeof *contents;
    filler f = {.ctx = r.ctx, .what = what, .dtype = t->dtype, .count = count};
    while (i < kinds && contents[i].dtype != t->dtype) i++;
    if (i == kinds)
        return PARE_FAIL(r.ctx, INPUT, "%s: 'contents' cannot hold %s, raw_input_contents can",
                         what, pare_infer_type_name(t->dtype));
    if (count > r.end - r.at) /* each takes a byte at least: no room is made for more */
        return PARE_FAIL(r.ctx, INPUT, "%s: 'contents' has fewer than the %lld elements of 'shape'",
                         what, (long long)count);
    if (r.x && !pare_exchange_hold(r.x, t->bytes)) return PARE_MEMORY;
    t->data = f.data = pare_arena_alloc(r.arena, t->bytes, 1);
    if (!f.data) return PARE_MEMORY;
    for (;;) {
        PARE_TRY(next(&r, what, &more));
        if (!more) break;
        if (r.field.number != contents[i].number)
            return PARE_FAIL(r.ctx, INPUT, "%s: 'contents' holds a field %u, expected %u for %s",
                             what, r.field.number, contents[i].number,
                             pare_infer_type_name(t->dtype));
        PARE_TRY(fill(&f, &r, contents[i].type));
    }
    if (f.at == count) return PARE_OK;
    return PARE_FAIL(r.ctx, INPUT, "%s: 'contents' has %lld elements, 'shape' %lld", what,
                     (long long)f.at, (long long)count);
}

/* --- inputs --- */

/* What an input says, before its name is known. */
typedef struct entry {
    const char *type;
    reader contents;
    int contents_count, parameters;
} entry;

static pare_status read_dim(reader *r, const char *what, uint64_t value, pare_infer_tensor *t)
{
    if (t->rank == PARE_MAX_RANK)
        return PARE_FAIL(r->ctx, INPUT, "%s: 'shape' has more than the %d axes that are served",
                         what, PARE_MAX_RANK);
    if (value > INT64_MAX)
        return PARE_FAIL(r->ctx, INPUT, "%s: axis %d of 'shape' is not a whole number from 0", what,
                         t->rank);
    t->dim[t->rank++] = (int64_t)value;
    return PARE_OK;
}

static pare_status read_shape(reader *r, const char *what, pare_infer_tensor *t)
{
    uint64_t value;
    const uint8_t *at = r->field.data, *end = at + r->field.size;
    if (r->field.type != PARE_WIRE_VARINT) PARE_TRY(expect(r, what, PARE_WIRE_BYTES));
    while (at < end) {
        if (!pare_wire_varint(&at, end, &value))
            return PARE_FAIL(r->ctx, INPUT, "%s: the message is damaged: 'shape' is cut off", what);
        PARE_TRY(read_dim(r, what, value, t));
    }
    return PARE_OK;
}

static pare_status read_fields(reader r, const char *what, entry *e, pare_infer_tensor *t)
{
    for (bool more;;) {
        PARE_TRY(next(&r, what, &more));
        if (!more) return PARE_OK;
        switch (r.field.number) {
        case 1: PARE_TRY(read_text(&r, what, "name", &t->name)); break;
        case 2: PARE_TRY(read_text(&r, what, "datatype", &e->type)); break;
        case 3: PARE_TRY(read_shape(&r, what, t)); break;
        case 4: e->parameters++; break;
        case 5:
            PARE_TRY(enter(&r, what, &e->contents));
            e->contents_count++;
            break;
        default: break;
        }
    }
}

/* "input 'x'", or "input 2" where it has no name. */
static pare_status name_of(reader *r, const char *kind, int i, const char *name, const char **what)
{
    if (!name || !*name) return PARE_FAIL(r->ctx, INPUT, "%s %d: no 'name'", kind, i);
    *what = pare_arena_printf(r->arena, "%s '%s'", kind, name);
    return *what ? PARE_OK : PARE_MEMORY;
}

static pare_status read_place(const reader *r, const char *what, int count, pare_infer_place *out)
{
    json_t *parameters;
    PARE_TRY(read_parameters(*r, what, 4, count, &parameters));
    const pare_status st = pare_infer_place_parameters(r->arena, out, what, parameters);
    json_decref(parameters);
    return st;
}

/* Its elements, but for those that are in raw_input_contents. */
static pare_status read_input(reader *r, int i, pare_infer_request *out)
{
    char kind[32];
    const char *what = kind;
    int64_t count = 0;
    entry e = {0};
    reader input;
    pare_infer_tensor *t = &out->input[i];
    snprintf(kind, sizeof kind, "input %d", i);
    PARE_TRY(enter(r, kind, &input));
    PARE_TRY(read_fields(input, kind, &e, t));
    PARE_TRY(name_of(r, "input", i, t->name, &what));
    for (int k = 0; k < i; k++)
        if (!strcmp(out->input[k].name, t->name))
            return PARE_FAIL(r->ctx, INPUT, "%s is given twice", what);
    if (!e.type) return PARE_FAIL(r->ctx, INPUT, "%s: no 'datatype'", what);
    t->dtype = pare_infer_type_find(e.type);
    if (t->dtype == PARE_NOTYPE)
        return PARE_FAIL(r->ctx, INPUT, "%s: there is no datatype '%s'", what, e.type);
    PARE_TRY(read_place(&input, what, e.parameters, &t->place));
    PARE_TRY(pare_infer_tensor_size(r->ctx, t, what, &count));
    if (e.contents_count > 1 || (e.contents_count && t->place.region))
        return PARE_FAIL(r->ctx, INPUT, "%s: its elements are given twice", what);
    if (e.contents_count) return read_contents(e.contents, what, count, t);
    if (!t->place.region || t->dtype == PARE_string || t->place.bytes == (int64_t)t->bytes)
        return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: shared_memory_byte_size is %lld, 'shape' takes %zu bytes",
                     what, (long long)t->place.bytes, t->bytes);
}

/* --- raw_input_contents --- */

/* The next input that is not in shared memory, from *i on; NULL: there is none. */
static pare_infer_tensor *next_input(pare_infer_request *out, int count, int *i)
{
    while (*i < count && out->input[*i].place.region) ++*i;
    return *i < count ? &out->input[(*i)++] : NULL;
}

static pare_status read_raw(reader *r, pare_infer_tensor *t)
{
    const pare_wire_field *f = &r->field;
    PARE_TRY(expect(r, t->name, PARE_WIRE_BYTES));
    if (t->data)
        return PARE_FAIL(r->ctx, INPUT,
                         "input '%s': has 'contents', but the request has raw_input_contents",
                         t->name);
    if (t->dtype == PARE_string)
        return pare_infer_strings(r->arena, t, t->name, (const char *)f->data, f->size);
    if (f->size != t->bytes)
        return PARE_FAIL(r->ctx, INPUT,
                         "input '%s': raw_input_contents has %zu bytes, 'shape' takes %zu", t->name,
                         f->size, t->bytes);
    t->data = f->data;
    return PARE_OK;
}

static pare_status read_all_raw(reader r, pare_infer_request *out, int inputs, int raws)
{
    bool more;
    int i = 0, given = 0;
    pare_infer_tensor *t;
    while (raws) {
        PARE_TRY(next(&r, "the request", &more));
        if (!more) break;
        if (r.field.number != RAW) continue;
        t = next_input(out, inputs, &i);
        if (!t)
            return PARE_FAIL(r.ctx, INPUT,
                             "the request has %d raw_input_contents, and %d inputs that are not in "
                             "shared memory",
                             raws, given);
        given++;
        PARE_TRY(read_raw(&r, t));
    }
    while ((t = next_input(out, inputs, &i))) {
        if (t->data) continue;
        if (t->bytes || raws)
            return PARE_FAIL(r.ctx, INPUT, "input '%s': has no elements", t->name);
        t->data = "";
    }
    return PARE_OK;
}

/* --- outputs --- */

static pare_status read_output(reader *r, int i, pare_infer_request *out)
{
    bool more;
    char kind[32];
    const char *what = kind;
    int count = 0;
    reader output;
    json_t *parameters;
    pare_infer_wanted *w = &out->wanted[i];
    snprintf(kind, sizeof kind, "output %d", i);
    PARE_TRY(enter(r, kind, &output));
    for (reader of = output;;) {
        PARE_TRY(next(&of, kind, &more));
        if (!more) break;
        if (of.field.number == 1) PARE_TRY(read_text(&of, kind, "name", &w->name));
        count += of.field.number == 2;
    }
    PARE_TRY(name_of(r, "output", i, w->name, &what));
    for (int k = 0; k < i; k++)
        if (!strcmp(out->wanted[k].name, w->name))
            return PARE_FAIL(r->ctx, INPUT, "%s is given twice", what);
    w->binary = true;
    PARE_TRY(read_parameters(output, what, 2, count, &parameters));
    const pare_status st = pare_infer_wanted_parameters(r->arena, w, what, parameters);
    json_decref(parameters);
    return st;
}

/* --- the request --- */

typedef struct counts {
    int inputs, outputs, raws, parameters;
} counts;

static pare_status count_fields(reader r, counts *n)
{
    for (bool more;;) {
        PARE_TRY(next(&r, "the request", &more));
        if (!more) return PARE_OK;
        n->parameters += r.field.number == PARAMETERS;
        n->inputs += r.field.number == INPUTS;
        n->outputs += r.field.number == OUTPUTS;
        n->raws += r.field.number == RAW;
    }
}

static pare_status read_id(reader *r, pare_infer_request *out)
{
    PARE_TRY(read_text(r, "the request", "id", &out->id));
    json_t *text = json_string(out->id);
    json_decref(text);
    if (text) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "the request: 'id' is no UTF-8");
}

static pare_status read_lists(reader r, pare_infer_request *out)
{
    for (bool more;;) {
        PARE_TRY(next(&r, "the request", &more));
        if (!more) return PARE_OK;
        switch (r.field.number) {
        case ID: PARE_TRY(read_id(&r, out)); break;
        case INPUTS: PARE_TRY(read_input(&r, out->input_count++, out)); break;
        case OUTPUTS: PARE_TRY(read_output(&r, out->wanted_count++, out)); break;
        default: break;
        }
    }
}

pare_status pare_grpc_infer_read(pare_arena *arena, pare_exchange *x, pare_infer_request *out,
                                 const char *data, size_t bytes)
{
    counts n = {0};
    json_t *parameters;
    reader r = reader_of(arena, data, bytes);
    r.x = x;
    *out = (pare_infer_request){.binary = true};
    PARE_TRY(count_fields(r, &n));
    PARE_TRY(pare_infer_request_lists(arena, out, (size_t)n.inputs, (size_t)n.outputs));
    PARE_TRY(read_parameters(r, "the request", PARAMETERS, n.parameters, &parameters));
    const pare_status st = pare_infer_request_parameters(arena, out, parameters);
    json_decref(parameters);
    PARE_TRY(st);
    PARE_TRY(read_lists(r, out));
    if (out->id && !*out->id) out->id = NULL;
    return read_all_raw(r, out, n.inputs, n.raws);
}

pare_status pare_grpc_names_read(pare_arena *arena, pare_grpc_names *out, const char *data,
                                 size_t bytes)
{
    reader r = reader_of(arena, data, bytes);
    *out = (pare_grpc_names){0};
    for (bool more;;) {
        PARE_TRY(next(&r, "the request", &more));
        if (!more) break;
        const char **to = r.field.number == MODEL     ? &out->model
                          : r.field.number == VERSION ? &out->version
                          : r.field.number == ID      ? &out->id
                                                      : NULL;
        if (to) PARE_TRY(read_text(&r, "the request", "model_name, model_version or id", to));
    }
    if (out->model && !*out->model) out->model = NULL;
    if (out->version && !*out->version) out->version = NULL;
    if (out->id && !*out->id) out->id = NULL;
    return PARE_OK;
}

size_t pare_grpc_first_tensor(const char *data, size_t bytes)
{
    uint64_t key, size;
    const uint8_t *begin = (const uint8_t *)data, *at = begin, *end = begin + bytes;
    while (pare_wire_varint(&at, end, &key) && (key & 7) == PARE_WIRE_BYTES &&
           pare_wire_varint(&at, end, &size)) {
        if (key >> 3 == RAW) return (size_t)(at - begin);
        if (size >= (size_t)(end - at)) break;
        at += size;
    }
    return 0;
}
