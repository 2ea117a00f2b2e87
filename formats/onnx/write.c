/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/onnx.h"
#include "formats/onnx/inner.h"
#include "runtime/base/size.h"
#include "runtime/base/version.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void pare_onnx_write_options_init(pare_onnx_write_options *out)
{
    *out = (pare_onnx_write_options){0};
}

static const char *find(const pare_model *model, const char *key)
{
    for (int i = 0; i < model->meta.count; i++)
        if (model->meta.item[i].key && !strcmp(model->meta.item[i].key, key))
            return model->meta.item[i].value;
    return NULL;
}

const char *pare_onnx_recipes(const pare_model *model, pare_arena *arena)
{
    const char *now = find(model, "pare.recipe"), *before = find(model, "pare.recipe_before");
    if (!now || !before) return now ? now : before;
    return pare_arena_printf(arena, "%s; %s", before, now);
}

pare_status pare_onnx_recipe(pare_model *model, const char *recipe)
{
    const char *now = find(model, "pare.recipe");
    const bool goes_on = now && !strncmp(recipe, now, strlen(now));
    if (now && !goes_on) {
        const char *all = pare_onnx_recipes(model, &model->arena);
        if (!all) return PARE_MEMORY;
        PARE_TRY(pare_model_set_meta(model, "pare.recipe_before", all));
    }
    return pare_model_set_meta(model, "pare.recipe", recipe);
}

pare_status pare_onnx_manifest(pare_ctx *ctx, pare_model *model, const char *recipe,
                               const char *data_hash)
{
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_model_set_meta(model, "pare.version", PARE_VERSION));
    if (recipe) PARE_TRY(pare_onnx_recipe(model, recipe));
    if (data_hash && data_hash[0])
        PARE_TRY(pare_model_set_meta(model, "pare.data_hash", data_hash));
    pare_status st = model->path[0] ? pare_onnx_hash(ctx, model->path, hash, &bytes) : PARE_INPUT;
    if (st == PARE_OK) return pare_model_set_meta(model, "pare.source_hash", hash);
    if (st == PARE_MEMORY || st == PARE_INTERRUPTED) return st;
    pare_ctx_clear(ctx); /* a model made in memory has no file */
    return PARE_OK;
}

/* Writing a model: messages with stand-ins (build.c), packed by protobuf-c, and the payloads
   spliced in on the way to the file, straight from where they are. */

enum {
    EXTERNAL_FROM = 1024, /* bytes of an initializer that leaves the model's file */
    ALIGN_SMALL = 64,     /* of external payloads; those of a megabyte start on a page, */
    ALIGN_LARGE = 4096    /* so that others can map them */
};

/* --- tensors --- */

static bool goes_outside(const pare_onnx_builder *b, const pare_tensor *t, bool is_init)
{
    if (!b->location || t->dtype == PARE_string || !t->bytes) return false;
    bool as_read = t->read_data == t->data;
    if (t->encoding == PARE_EXTERNAL && as_read) return true;
    if (t->encoding == PARE_TYPED && as_read) return false;
    return is_init && t->bytes >= EXTERNAL_FROM;
}

/* location, offset, length, and what else the file said of unchanged data (a checksum). */
static pare_status put_external(pare_onnx_builder *b, Onnx__Tensor *m, const pare_tensor *t)
{
    size_t align = t->bytes >= 1 << 20 ? ALIGN_LARGE : ALIGN_SMALL;
    uint64_t offset = pare_align_up(b->external_bytes, align);
    pare_pairs pairs = {0};
    if (!pare_grow(b->ctx, &b->external, &b->external_capacity, b->external_count,
                   sizeof *b->external))
        return PARE_MEMORY;
    b->external[b->external_count++] = (struct pare_onnx_external){{t->data, t->bytes}, offset};
    b->external_bytes = offset + t->bytes;
    pairs.item = pare_arena_alloc(&b->scratch, (size_t)t->external.count + 3, sizeof *pairs.item);
    if (!pairs.item) return PARE_MEMORY;
    pairs.item[0] = (pare_pair){.key = "location", .value = b->location};
    pairs.item[1].key = "offset";
    pairs.item[1].value = pare_arena_printf(&b->scratch, "%" PRIu64, offset);
    pairs.item[2].key = "length";
    pairs.item[2].value = pare_arena_printf(&b->scratch, "%zu", t->bytes);
    if (!pairs.item[1].value || !pairs.item[2].value) return PARE_MEMORY;
    pairs.count = 3;
    for (int i = 0; i < t->external.count && t->read_data == t->data; i++) {
        const char *key = t->external.item[i].key;
        if (key && (!strcmp(key, "location") || !strcmp(key, "offset") || !strcmp(key, "length")))
            continue;
        pairs.item[pairs.count++] = t->external.item[i];
    }
    m->has_data_location = 1;
    m->data_location = 1;
    return pare_onnx_put_pairs(b, &m->n_external_data, &m->external_data, &pairs);
}

static pare_status put_typed(pare_onnx_builder *b, Onnx__Tensor *m, const pare_tensor *t)
{
    size_t *const count[] = {&m->n_float_data, &m->n_int32_data, &m->n_int64_data,
                             &m->n_double_data, &m->n_uint64_data};
    ProtobufCBinaryData **const field[] = {&m->float_data, &m->int32_data, &m->int64_data,
                                           &m->double_data, &m->uint64_data};
    pare_onnx_typed which = pare_onnx_typed_of(t->dtype);
    return pare_onnx_stand_ins(b, count[which], field[which], t->typed, t->typed_count);
}

static pare_status put_strings(pare_onnx_builder *b, Onnx__Tensor *m, const pare_tensor *t)
{
    const pare_bytes *list = t->data;
    m->string_data = pare_arena_alloc(&b->scratch, (size_t)t->count + 1, sizeof *m->string_data);
    if (!m->string_data) return PARE_MEMORY;
    m->n_string_data = (size_t)t->count;
    for (size_t i = 0; i < m->n_string_data; i++)
        m->string_data[i] = (ProtobufCBinaryData){list[i].size, (uint8_t *)list[i].data};
    return PARE_OK;
}

static pare_status put_payload(pare_onnx_builder *b, Onnx__Tensor *m, const pare_tensor *t,
                               bool is_init)
{
    bool as_read = t->read_data == t->data;
    if (t->dtype == PARE_string) return put_strings(b, m, t);
    if (goes_outside(b, t, is_init)) return put_external(b, m, t);
    if (t->encoding == PARE_TYPED && as_read && t->typed) return put_typed(b, m, t);
    if (!t->bytes && !(t->present & PARE_HAS_RAW)) return PARE_OK;
    pare_bytes raw = {t->data, t->bytes};
    return pare_onnx_stand_ins(b, &m->n_raw_data, &m->raw_data, &raw, 1);
}

pare_status pare_onnx_build_tensor(pare_onnx_builder *b, Onnx__Tensor **out, const pare_tensor *t,
                                   const char *name, bool is_init)
{
    Onnx__Tensor *m = pare_arena_alloc(&b->scratch, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    *out = m;
    onnx__tensor__init(m);
    m->n_dims = (size_t)t->rank;
    m->dims = (int64_t *)t->dims;
    m->has_data_type = 1;
    m->data_type = (int32_t)t->dtype;
    m->has_name = name != NULL;
    m->name = pare_onnx_put_text(name);
    m->has_doc_string = t->doc != NULL;
    m->doc_string = pare_onnx_put_text(t->doc);
    m->has_data_location = t->present & PARE_HAS_LOCATION && t->encoding != PARE_EXTERNAL;
    PARE_TRY(pare_onnx_put_pairs(b, &m->n_metadata_props, &m->metadata_props, &t->meta));
    PARE_TRY(pare_onnx_put_unknown(b, &m->base, t->unknown));
    /* a tensor in the file may carry external_data, too, which says nothing: kept */
    if (t->encoding != PARE_EXTERNAL && t->read_data == t->data && !goes_outside(b, t, is_init))
        PARE_TRY(pare_onnx_put_pairs(b, &m->n_external_data, &m->external_data, &t->external));
    return put_payload(b, m, t, is_init);
}

/* --- files --- */

static pare_status write_external(const pare_onnx_builder *b, pare_output *output)
{
    static const uint8_t zero[ALIGN_LARGE];
    uint64_t at = 0;
    for (size_t i = 0; i < b->external_count; i++) {
        const struct pare_onnx_external *e = &b->external[i];
        PARE_TRY(pare_output_write(output, zero, (size_t)(e->offset - at)));
        PARE_TRY(pare_output_write(output, e->payload.data, e->payload.size));
        at = e->offset + e->payload.size;
    }
    return PARE_OK;
}

/* Gives both their names and takes the old data away, one process at a time. */
static pare_status commit_files(pare_onnx_builder *b, pare_output *model, pare_output *data,
                                const char *path)
{
    int lock = pare_onnx_external_lock(path);
    pare_status st = pare_onnx_external_old(b, path);
    if (st != PARE_OK)
        pare_output_discard(data);
    else if (data)
        st = pare_output_commit(data);
    if (st != PARE_OK)
        pare_output_discard(model);
    else
        st = pare_output_commit(model);
    if (st == PARE_OK) pare_onnx_external_end(b);
    if (lock >= 0) close(lock);
    return st;
}

/* Both files are complete and on the disk before either gets its name; the data goes first, for the
 * model needs it.
 */
static pare_status write_files(pare_onnx_builder *b, pare_splice *splice, const char *path)
{
    pare_output *model = NULL, *data = NULL;
    pare_status st = PARE_OK;
    if (b->external_count) {
        st = pare_output_open(b->ctx, &data, b->data_path);
        if (st == PARE_OK) st = write_external(b, data);
    }
    if (st == PARE_OK) st = pare_output_open(b->ctx, &model, path);
    if (st == PARE_OK) st = pare_splice_write(splice, model);
    if (st == PARE_OK && data) st = pare_output_flush(data);
    if (st == PARE_OK && data) st = pare_output_flush(model);
    if (st == PARE_OK) return commit_files(b, model, data, path);
    pare_output_discard(model);
    pare_output_discard(data);
    return st;
}

/* path NULL: for no file, whose size has a bound. */
static pare_status pack(pare_onnx_builder *b, pare_splice *splice, const char *path)
{
    Onnx__Model *m;
    PARE_TRY(pare_onnx_build(b, &m));
    if (b->external_count) PARE_TRY(pare_onnx_external_name(b)); /* the messages point to it */
    size_t size = onnx__model__get_packed_size(m);
    uint8_t *bytes = pare_arena_alloc(&b->scratch, size, 1);
    if (!bytes) return PARE_MEMORY;
    onnx__model__pack(m, bytes);
    splice->message = (pare_bytes){bytes, size};
    PARE_TRY(pare_splice_measure(splice));
    if (path && splice->total > INT_MAX)
        return PARE_FAIL(
            b->ctx, INPUT,
            "%s: the model has %zu bytes, ONNX files hold less than 2 GiB; write it with "
            "external data (--external-data)",
            path, splice->total);
    return PARE_OK;
}

pare_status pare_onnx_write(pare_ctx *ctx, const pare_model *model, const char *path,
                            const pare_onnx_write_options *options)
{
    pare_onnx_builder b = {.ctx = ctx, .model = model};
    pare_splice splice = {.ctx = ctx, .kind = PARE_WIRE_MODEL};
    pare_arena_init(&b.scratch, ctx);
    pare_status st = PARE_OK;
    if (options && options->external_data) st = pare_onnx_external_begin(&b, path);
    if (st == PARE_OK) st = pack(&b, &splice, path);
    if (st == PARE_OK) st = pare_onnx_external_check(&b, path);
    if (st == PARE_OK) st = write_files(&b, &splice, path);
    pare_splice_free(&splice);
    pare_free(b.external);
    pare_arena_free(&b.scratch);
    return st;
}

pare_status pare_onnx_content_hash(pare_ctx *ctx, const pare_model *model, pare_hash *out)
{
    pare_onnx_builder b = {.ctx = ctx, .model = model};
    pare_splice splice = {.ctx = ctx, .kind = PARE_WIRE_MODEL, .hasher = pare_hasher_new()};
    pare_arena_init(&b.scratch, ctx);
    pare_status st = splice.hasher ? PARE_OK : PARE_FAIL(ctx, MEMORY, "out of memory");
    if (st == PARE_OK) st = pack(&b, &splice, NULL);
    if (st == PARE_OK) st = pare_splice_write(&splice, NULL);
    if (splice.hasher) *out = pare_hasher_end(splice.hasher);
    pare_splice_free(&splice);
    pare_free(b.external);
    pare_arena_free(&b.scratch);
    return st;
}
