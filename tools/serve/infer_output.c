/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent of an output, whatever form the response has. */
#include "tools/serve/protocol.h"

#include "runtime/base/size.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t pare_infer_count(const pare_infer_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->dim[i];
    return count;
}

/* --- classification --- */

static double number_at(const pare_infer_tensor *t, int64_t i)
{
    const char *at = (const char *)t->data + (size_t)i * (size_t)pare_type(t->dtype)->bits / 8;
    double d;
    int32_t s32;
    int64_t s64;
    switch (t->dtype) {
    case PARE_f64: memcpy(&d, at, sizeof d); return d;
    case PARE_s32: memcpy(&s32, at, sizeof s32); return s32;
    case PARE_s64: memcpy(&s64, at, sizeof s64); return (double)s64;
    default: return (double)pare_type(t->dtype)->to_f32(at);
    }
}

typedef struct place {
    double value;
    int64_t at;
} place;

/* The largest first; of equals the first. */
static int by_value(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* The largest values of one sample as "value:place", or "value:place:label". */
static pare_status classify_row(pare_arena *arena, const pare_infer_tensor *t, int64_t from,
                                place *order, int64_t each, pare_bytes *text, int64_t classes)
{
    for (int64_t i = 0; i < each; i++) {
        order[i] = (place){number_at(t, from + i), i};
        if (isnan(order[i].value))
            return PARE_FAIL(arena->ctx, INPUT, "output '%s': holds NaN, which has no class",
                             t->name);
    }
    qsort(order, (size_t)each, sizeof *order, by_value);
    for (int64_t k = 0; k < classes; k++) {
        const char *label = pare_labels_at(t->labels, order[k].at);
        const char *one =
            pare_arena_printf(arena, "%f:%lld%s%s", order[k].value, (long long)order[k].at,
                              label ? ":" : "", label ? label : "");
        if (!one) return PARE_MEMORY;
        text[k] = (pare_bytes){one, strlen(one)};
    }
    return PARE_OK;
}

/* The tensor's largest values: (samples, classes) where the first axis counts samples, else
   (classes). */
static pare_status classify(pare_arena *arena, const pare_infer_tensor *t, int64_t classes,
                            bool batched, pare_infer_tensor *out)
{
    const int64_t rows = batched ? t->dim[0] : 1, each = rows ? pare_infer_count(t) / rows : 0;
    if (!pare_type(t->dtype)->to_f32)
        return PARE_FAIL(arena->ctx, INPUT, "output '%s': %s cannot be classified", t->name,
                         pare_infer_type_name(t->dtype));
    if (classes > each) classes = each;
    *out = (pare_infer_tensor){.name = t->name, .dtype = PARE_string, .rank = batched ? 2 : 1};
    out->dim[0] = rows;
    out->dim[batched] = classes;
    out->bytes = (size_t)(rows * classes) * sizeof(pare_bytes);
    pare_bytes *text = pare_arena_alloc(arena, out->bytes, 1);
    place *order = pare_arena_alloc(arena, (size_t)each, sizeof *order);
    if (!text || !order) return PARE_MEMORY;
    out->data = text;
    for (int64_t row = 0; row < rows; row++)
        PARE_TRY(classify_row(arena, t, row * each, order, each, text + row * classes, classes));
    return PARE_OK;
}

/* --- binary data --- */

bool pare_infer_binary_bytes(const pare_infer_tensor *t, size_t *out)
{
    const pare_bytes *text = t->data;
    *out = t->bytes;
    if (t->dtype != PARE_string) return true;
    *out = 0;
    for (int64_t i = 0; i < pare_infer_count(t); i++)
        if (text[i].size > UINT32_MAX || !pare_add_size(*out, sizeof(uint32_t), out) ||
            !pare_add_size(*out, text[i].size, out))
            return false;
    return true;
}

char *pare_infer_binary_put(char *at, const pare_infer_tensor *t)
{
    const pare_bytes *text = t->data;
    if (t->dtype != PARE_string) {
        if (t->bytes) memcpy(at, t->data, t->bytes);
        return at + t->bytes;
    }
    for (int64_t i = 0; i < pare_infer_count(t); i++) {
        const uint32_t bytes = (uint32_t)text[i].size; /* little-endian */
        memcpy(at, &bytes, sizeof bytes);
        if (bytes) memcpy(at + sizeof bytes, text[i].data, bytes);
        at += sizeof bytes + bytes;
    }
    return at;
}

pare_status pare_infer_sent(pare_arena *arena, pare_infer_tensor *out,
                            const pare_infer_result *result, int i)
{
    *out = result->output[i];
    if (!result->wanted[i].classes) return PARE_OK;
    return classify(arena, &result->output[i], result->wanted[i].classes, result->batched, out);
}

pare_status pare_infer_share(pare_arena *arena, const pare_infer_result *r, int i,
                             const pare_infer_tensor *t, size_t *bytes)
{
    const pare_infer_place *to = &r->wanted[i].place;
    if (!pare_infer_binary_bytes(t, bytes) || *bytes > (size_t)to->bytes)
        return PARE_FAIL(arena->ctx, INPUT,
                         "output '%s': takes %zu bytes, shared_memory_byte_size is %lld", t->name,
                         *bytes, (long long)to->bytes);
    if (t->dtype != PARE_string) return r->put(r->user, i, t->data, *bytes);
    char *data = pare_arena_alloc(arena, *bytes, 1);
    if (!data) return PARE_MEMORY;
    (void)pare_infer_binary_put(data, t);
    return r->put(r->user, i, data, *bytes);
}
