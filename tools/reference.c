/* SPDX-License-Identifier: Apache-2.0 */
/* An entry is a record per batch: a head, then per output its shape and its rows as f32, each at a
   multiple of 64 bytes. It is read from its map, whose pages are given back batch by batch. */
#include "tools/reference.h"
#include "runtime/base/room.h"

#include <string.h>

enum { ALIGN = 64, LAYOUT = 1 };

typedef struct batch_head {
    int64_t count, outputs;
    pare_hash seen;
    char rest[32];
} batch_head;

typedef struct rows_head {
    int64_t dtype, rank, size, has_rows;
    int64_t dim[PARE_MAX_RANK];
} rows_head;

struct pare_reference {
    pare_cache cache;
    pare_hash key;
    const pare_model *model;
    pare_cache_entry entry;
    size_t at;      /* in the entry */
    pare_rows *row; /* (outputs) */
    pare_cache_writer *writer;
};

static size_t padded(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* --- the key --- */

static void add_inputs(pare_hash *key, const pare_source *source)
{
    for (int i = 0; i < source->input_count; i++) {
        const pare_data_input *in = &source->inputs[i];
        const pare_shape *shape = pare_data_shape(source->data, i);
        pare_cache_key_add_text(key, in->name);
        pare_cache_key_add_text(key, in->dataset);
        pare_cache_key_add(key, &in->dtype, sizeof in->dtype);
        pare_cache_key_add(key, shape->dim, (size_t)shape->rank * sizeof *shape->dim);
    }
}

static pare_status make_key(pare_reference *r, const pare_tool *tool, const char *model_hash,
                            const pare_source *source, const pare_source_options *options)
{
    const int64_t cut[] = {LAYOUT, options->batch};
    pare_cache_key_begin(&r->key, &r->cache, tool->device);
    pare_cache_key_add(&r->key, cut, sizeof cut);
    pare_cache_key_add_text(&r->key, model_hash);
    add_inputs(&r->key, source);
    pare_cache_key_add(&r->key, source->samples, (size_t)source->count * sizeof *source->samples);
    return pare_cache_key_add_file(tool->ctx, &r->key, options->data);
}

/* --- opening and closing --- */

pare_status pare_reference_open(pare_tool *tool, pare_reference **out, const char *folder,
                                const pare_model *model, const char *model_hash,
                                const pare_source *source, const pare_source_options *options)
{
    *out = NULL;
    if (!folder) return PARE_OK;
    pare_reference *r = pare_arena_alloc(&tool->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    r->cache = (pare_cache){.ctx = tool->ctx, .folder = folder, .kind = "outputs"};
    r->model = model;
    r->row = pare_arena_alloc(&tool->arena, (size_t)model->graph->out.count + 1, sizeof *r->row);
    if (!r->row) return PARE_MEMORY;
    PARE_TRY(make_key(r, tool, model_hash, source, options));
    if (!pare_cache_find(&r->cache, &r->key, &r->entry))
        r->writer = pare_cache_begin(&r->cache, &r->key);
    *out = r;
    return PARE_OK;
}

void pare_reference_close(pare_reference *r, bool complete)
{
    if (!r) return;
    pare_cache_close(&r->entry);
    if (complete)
        pare_cache_commit(r->writer);
    else
        pare_cache_discard(r->writer);
    r->writer = NULL;
}

bool pare_reference_found(const pare_reference *r) { return r && r->entry.data; }

/* --- reading --- */

/* The next bytes of the entry, or NULL where it ends before. */
static const void *take(pare_reference *r, size_t bytes)
{
    const uint8_t *at = r->entry.data + r->at;
    if (r->entry.size - r->at < padded(bytes)) return NULL;
    r->at += padded(bytes);
    return at;
}

static bool take_rows(pare_reference *r, int o, int count)
{
    rows_head head;
    size_t bytes = 0;
    pare_rows *row = &r->row[o];
    const void *at = take(r, sizeof head);
    if (!at) return false;
    memcpy(&head, at, sizeof head);
    if (head.rank < 0 || head.rank > PARE_MAX_RANK || head.size < 0 ||
        __builtin_mul_overflow((size_t)head.size, (size_t)count * sizeof(float), &bytes))
        return false;
    *row = (pare_rows){.name = r->model->graph->out.item[o]->name,
                       .dtype = (pare_dtype)head.dtype,
                       .size = head.size};
    row->shape.rank = (int)head.rank;
    memcpy(row->shape.dim, head.dim, sizeof head.dim);
    if (!head.has_rows) return true;
    row->f32 = take(r, bytes);
    row->data = row->dtype == PARE_f32 ? row->f32 : NULL;
    return row->f32 != NULL;
}

/* Memory of the pages before this place, which are in the file. */
static void give_back(const pare_reference *r) { pare_memory_give_back(r->entry.data, r->at); }

static bool take_batch(pare_reference *r, int count, pare_hash seen)
{
    batch_head head;
    give_back(r);
    const void *at = take(r, sizeof head);
    if (!at) return false;
    memcpy(&head, at, sizeof head);
    if (head.count != count || head.outputs != r->model->graph->out.count ||
        memcmp(&head.seen, &seen, sizeof seen) != 0)
        return false;
    for (int o = 0; o < r->model->graph->out.count; o++)
        if (!take_rows(r, o, count)) return false;
    return true;
}

const pare_rows *pare_reference_next(pare_reference *r, int count, pare_hash seen)
{
    if (!pare_reference_found(r)) return NULL;
    if (take_batch(r, count, seen)) return r->row;
    pare_cache_drop(&r->cache, &r->key, "is of other data");
    pare_cache_close(&r->entry);
    return NULL;
}

/* --- writing --- */

static void put(pare_reference *r, const void *data, size_t bytes)
{
    static const char zero[ALIGN];
    pare_cache_write(r->writer, data, bytes);
    pare_cache_write(r->writer, zero, padded(bytes) - bytes);
}

void pare_reference_keep(pare_reference *r, const pare_predictor *predictor, int count,
                         pare_hash seen)
{
    if (!r || !r->writer) return;
    const int outputs = pare_predictor_output_count(predictor);
    const batch_head head = {.count = count, .outputs = outputs, .seen = seen};
    put(r, &head, sizeof head);
    for (int o = 0; o < outputs; o++) {
        const pare_rows rows = pare_predictor_rows(predictor, o);
        rows_head one = {.dtype = rows.dtype,
                         .rank = rows.shape.rank,
                         .size = rows.size,
                         .has_rows = rows.f32 != NULL};
        memcpy(one.dim, rows.shape.dim, (size_t)rows.shape.rank * sizeof *one.dim);
        put(r, &one, sizeof one);
        if (rows.f32) put(r, rows.f32, (size_t)rows.size * (size_t)count * sizeof(float));
    }
}
