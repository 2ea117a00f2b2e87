/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a checkpoint. */
#include "distill/checkpoint.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 1, FIXED = 40, FACT = 8, BLOB = 32, HASH = 16 };
static const char magic[8] = "PARECKPT";

/* --- writing --- */

typedef struct writer {
    uint8_t *at;
} writer;

static void put(writer *w, const void *data, size_t bytes)
{
    memcpy(w->at, data, bytes);
    w->at += bytes;
}

static void put_u32(writer *w, size_t value) { put(w, &(uint32_t){(uint32_t)value}, 4); }

static void put_u64(writer *w, uint64_t value) { put(w, &value, 8); }

static size_t head_bytes(const pare_checkpoint *c)
{
    size_t bytes = FIXED;
    for (int i = 0; i < c->fact_count; i++)
        bytes += FACT + strlen(c->fact[i].name) + strlen(c->fact[i].value);
    for (int i = 0; i < c->blob_count; i++) bytes += BLOB + strlen(c->blob[i].name);
    return bytes;
}

/* Fills the head (bytes, then its hash); hash: of the blobs. */
static void make_head(const pare_checkpoint *c, const pare_hash *of, uint8_t *head, size_t bytes)
{
    writer w = {head};
    uint64_t total = bytes + HASH;
    for (int i = 0; i < c->blob_count; i++) total += c->blob[i].bytes;
    put(&w, magic, sizeof magic);
    put_u32(&w, VERSION);
    put_u32(&w, (size_t)c->fact_count);
    put_u32(&w, (size_t)c->blob_count);
    put_u32(&w, 0);
    put_u64(&w, bytes);
    put_u64(&w, total);
    for (int i = 0; i < c->fact_count; i++) {
        const pare_checkpoint_fact *f = &c->fact[i];
        put_u32(&w, strlen(f->name));
        put_u32(&w, strlen(f->value));
        put(&w, f->name, strlen(f->name));
        put(&w, f->value, strlen(f->value));
    }
    for (int i = 0; i < c->blob_count; i++) {
        const pare_checkpoint_blob *b = &c->blob[i];
        put_u32(&w, strlen(b->name));
        put_u32(&w, 0);
        put_u64(&w, b->bytes);
        put(&w, &of[i], HASH);
        put(&w, b->name, strlen(b->name));
    }
    pare_hash hash = pare_hash_bytes(head, bytes);
    put(&w, &hash, HASH);
}

/* The head goes first and is zeros until all hashes are known. */
struct pare_checkpoint_writer {
    pare_ctx *ctx;
    pare_ctx calm; /* hears of no stop */
    const pare_checkpoint *of;
    pare_output *file;
    uint8_t *head;
    size_t head_bytes; /* without its hash */
    pare_hash *hash;   /* (blobs) of those that are complete */
    int blob;          /* that the next bytes are of */
    size_t done;       /* bytes of it */
    pare_hasher *hasher;
    pare_status status;
};

static void note(pare_checkpoint_writer *w, pare_status st)
{
    if (w->status == PARE_OK) w->status = st;
}

static void begin_blob(pare_checkpoint_writer *w)
{
    w->done = 0;
    if (w->blob == w->of->blob_count) return;
    w->hasher = pare_hasher_new();
    if (!w->hasher) note(w, PARE_FAIL(&w->calm, MEMORY, "out of memory"));
}

/* Ends the blob that has all its bytes, and those after it that have none. */
static void end_blobs(pare_checkpoint_writer *w)
{
    while (w->hasher && w->done == w->of->blob[w->blob].bytes) {
        w->hash[w->blob++] = pare_hasher_end(w->hasher);
        w->hasher = NULL;
        begin_blob(w);
    }
}

static pare_status open_writer(pare_checkpoint_writer *w, const char *path)
{
    w->head_bytes = head_bytes(w->of);
    w->head = pare_alloc(w->ctx, w->head_bytes + HASH, 1);
    w->hash = pare_alloc(w->ctx, (size_t)w->of->blob_count + 1, sizeof *w->hash);
    if (!w->head || !w->hash) return PARE_MEMORY;
    begin_blob(w);
    end_blobs(w);
    note(w, pare_output_open(&w->calm, &w->file, path));
    if (w->status == PARE_OK) note(w, pare_output_write(w->file, w->head, w->head_bytes + HASH));
    return w->status == PARE_OK ? PARE_OK : pare_fail(w->ctx, w->status, "%s", w->calm.message);
}

static void free_writer(pare_checkpoint_writer *w)
{
    pare_output_discard(w->file);
    if (w->hasher) (void)pare_hasher_end(w->hasher);
    pare_free(w->head);
    pare_free(w->hash);
    pare_free(w);
}

pare_status pare_checkpoint_begin(pare_ctx *ctx, pare_checkpoint_writer **out, const char *path,
                                  const pare_checkpoint *c)
{
    pare_checkpoint_writer *w = pare_alloc(ctx, 1, sizeof *w);
    if (!w) return PARE_MEMORY;
    *w = (pare_checkpoint_writer){.ctx = ctx, .of = c};
    pare_ctx_child(&w->calm, ctx);
    w->calm.interrupted = NULL;
    const pare_status st = open_writer(w, path);
    if (st == PARE_OK)
        *out = w;
    else
        free_writer(w);
    return st;
}

void pare_checkpoint_put(pare_checkpoint_writer *w, const void *data, size_t bytes)
{
    if (w->status != PARE_OK || !bytes) return;
    assert(w->blob < w->of->blob_count && bytes <= w->of->blob[w->blob].bytes - w->done);
    pare_hasher_add(w->hasher, data, bytes);
    note(w, pare_output_write(w->file, data, bytes));
    w->done += bytes;
    end_blobs(w);
}

static pare_status commit(pare_checkpoint_writer *w)
{
    assert(w->blob == w->of->blob_count);
    make_head(w->of, w->hash, w->head, w->head_bytes);
    PARE_TRY(pare_output_overwrite(w->file, w->head, w->head_bytes + HASH));
    pare_output *file = w->file;
    w->file = NULL;
    return pare_output_commit(file);
}

pare_status pare_checkpoint_end(pare_checkpoint_writer *w, pare_status status)
{
    if (status == PARE_OK) {
        status = w->status == PARE_OK ? commit(w) : w->status;
        if (status != PARE_OK) (void)pare_fail(w->ctx, status, "%s", w->calm.message);
    }
    free_writer(w);
    return status;
}

pare_status pare_checkpoint_write(pare_ctx *ctx, const char *path, const pare_checkpoint *c)
{
    pare_checkpoint_writer *w;
    PARE_TRY(pare_checkpoint_begin(ctx, &w, path, c));
    for (int i = 0; i < c->blob_count; i++)
        pare_checkpoint_put(w, c->blob[i].data, c->blob[i].bytes);
    return pare_checkpoint_end(w, PARE_OK);
}

/* --- reading --- */

typedef struct reader {
    pare_ctx *ctx;
    const char *path;
    const uint8_t *data, *at, *end; /* the file, and what is left of its head */
    pare_hash (*hash)(const void *data, size_t bytes);
} reader;

static uint32_t get_u32(reader *r)
{
    uint32_t value;
    memcpy(&value, r->at, sizeof value);
    r->at += sizeof value;
    return value;
}

static uint64_t get_u64(reader *r)
{
    uint64_t value;
    memcpy(&value, r->at, sizeof value);
    r->at += sizeof value;
    return value;
}

static bool left(const reader *r, size_t bytes) { return (size_t)(r->end - r->at) >= bytes; }

static pare_status fail_damaged(const reader *r, const char *what)
{
    return PARE_FAIL(r->ctx, INPUT, "%s: is damaged (%s); remove it to start again", r->path, what);
}

/* Text of a file as far as a message can hold it: printable, 200 bytes at most. */
typedef struct excerpt {
    char text[204];
} excerpt;

static excerpt excerpt_of(const uint8_t *text, size_t bytes)
{
    excerpt e = {""};
    size_t n = bytes < 200 ? bytes : 200;
    for (size_t i = 0; i < n; i++) e.text[i] = text[i] < 32 || text[i] > 126 ? '?' : (char)text[i];
    memcpy(e.text + n, n < bytes ? "..." : "", n < bytes ? 4 : 1);
    return e;
}

static bool is_text(const uint8_t *text, size_t bytes, const char *wanted)
{
    return bytes == strlen(wanted) && !memcmp(text, wanted, bytes);
}

static pare_status fail_other(const reader *r, const char *what, const char *its, const char *ours)
{
    return PARE_FAIL(r->ctx, INPUT,
                     "%s: belongs to another run: its %s is %s, this run's is %s; remove it to "
                     "start again",
                     r->path, what, its, ours);
}

/* The fixed part and the head's hash. On success the rest of the head is whole. */
static pare_status open_head(reader *r, size_t size, uint32_t *facts, uint32_t *blobs)
{
    pare_hash hash;
    if (size < sizeof magic || memcmp(r->data, magic, sizeof magic) != 0)
        return PARE_FAIL(r->ctx, INPUT, "%s: is no checkpoint of a training run", r->path);
    if (size < FIXED)
        return PARE_FAIL(r->ctx, INPUT, "%s: is cut: %zu bytes; remove it to start again", r->path,
                         size);
    r->at = r->data + sizeof magic;
    uint32_t version = get_u32(r);
    if (version != VERSION)
        return PARE_FAIL(
            r->ctx, INPUT,
            "%s: has version %u of the format, this program reads version %d; continue "
            "with the program that wrote it, or remove it to start again",
            r->path, (unsigned)version, VERSION);
    *facts = get_u32(r);
    *blobs = get_u32(r);
    (void)get_u32(r);
    uint64_t head = get_u64(r), total = get_u64(r);
    if (size < total)
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: is cut: %zu bytes of %llu are there; remove it to start again",
                         r->path, size, (unsigned long long)total);
    if (size > total || head < FIXED || head > size || size - head < HASH)
        return fail_damaged(r, "its sizes are wrong");
    hash = pare_hash_bytes(r->data, (size_t)head);
    if (memcmp(&hash, r->data + head, HASH) != 0)
        return fail_damaged(r, "the hash of its head is wrong");
    r->end = r->data + head;
    return PARE_OK;
}

static pare_status check_fact(reader *r, const pare_checkpoint_fact *fact)
{
    if (!left(r, FACT)) return fail_damaged(r, "its head is too short");
    size_t name = get_u32(r), value = get_u32(r);
    if (!left(r, name + value)) return fail_damaged(r, "its head is too short");
    const uint8_t *text = r->at;
    r->at += name + value;
    if (!is_text(text, name, fact->name))
        return fail_other(r, "list of facts has", excerpt_of(text, name).text, fact->name);
    if (!is_text(text + name, value, fact->value))
        return fail_other(r, fact->name, excerpt_of(text + name, value).text, fact->value);
    return PARE_OK;
}

/* One blob: its name and size are this run's, its bytes have their hash. */
static pare_status check_blob(reader *r, const pare_checkpoint_blob *blob, const uint8_t **data,
                              size_t *rest)
{
    char its[64], ours[64];
    if (!left(r, BLOB)) return fail_damaged(r, "its head is too short");
    size_t name = get_u32(r);
    (void)get_u32(r);
    uint64_t bytes = get_u64(r);
    pare_hash hash, want;
    memcpy(&want, r->at, HASH);
    r->at += HASH;
    if (!left(r, name)) return fail_damaged(r, "its head is too short");
    const uint8_t *text = r->at;
    r->at += name;
    if (!is_text(text, name, blob->name))
        return fail_other(r, "next tensor", excerpt_of(text, name).text, blob->name);
    if (bytes != blob->bytes) {
        snprintf(its, sizeof its, "%llu bytes long", (unsigned long long)bytes);
        snprintf(ours, sizeof ours, "%llu", (unsigned long long)blob->bytes);
        return fail_other(r, blob->name, its, ours);
    }
    if (bytes > *rest) return fail_damaged(r, "its sizes are wrong");
    hash = r->hash(*data, (size_t)bytes);
    if (memcmp(&hash, &want, HASH) != 0) return fail_damaged(r, blob->name);
    *data += bytes;
    *rest -= (size_t)bytes;
    return PARE_OK;
}

static pare_status check_all(reader *r, size_t size, const pare_checkpoint *c,
                             const uint8_t **first)
{
    uint32_t facts = 0, blobs = 0;
    PARE_TRY(open_head(r, size, &facts, &blobs));
    const uint8_t *data = *first = r->end + HASH;
    size_t rest = size - (size_t)(data - r->data);
    for (uint32_t i = 0; i < facts && i < (uint32_t)c->fact_count; i++)
        PARE_TRY(check_fact(r, &c->fact[i]));
    if (facts != (uint32_t)c->fact_count)
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: belongs to another run: has %u facts about it, this run has %d; "
                         "remove it to start again",
                         r->path, (unsigned)facts, c->fact_count);
    for (uint32_t i = 0; i < blobs && i < (uint32_t)c->blob_count; i++)
        PARE_TRY(check_blob(r, &c->blob[i], &data, &rest));
    if (blobs != (uint32_t)c->blob_count)
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: belongs to another run: has %u tensors, this run has %d; remove it "
                         "to start again",
                         r->path, (unsigned)blobs, c->blob_count);
    return rest || r->at != r->end ? fail_damaged(r, "its sizes are wrong") : PARE_OK;
}

static void copy_blobs(const pare_checkpoint *c, const uint8_t *at)
{
    for (int i = 0; i < c->blob_count; at += c->blob[i].bytes, i++)
        if (c->blob[i].bytes) memcpy(c->blob[i].data, at, c->blob[i].bytes);
}

pare_status pare_checkpoint_parse(pare_ctx *ctx, const char *path, const void *data, size_t size,
                                  const pare_checkpoint *c)
{
    const uint8_t *at = data;
    reader r = {ctx, path, data, data, data, pare_hash_bytes};
    PARE_TRY(check_all(&r, size, c, &at));
    copy_blobs(c, at);
    return PARE_OK;
}

pare_status pare_checkpoint_open(pare_ctx *ctx, pare_map *map, const uint8_t **blobs,
                                 const char *path, const pare_checkpoint *c)
{
    PARE_TRY(pare_map_open(ctx, map, path));
    reader r = {ctx, path, map->data, map->data, map->data, pare_hash_map};
    const pare_status st = check_all(&r, map->size, c, blobs);
    if (st != PARE_OK) pare_map_close(map);
    return st;
}

pare_status pare_checkpoint_read(pare_ctx *ctx, const char *path, const pare_checkpoint *c)
{
    pare_map map;
    const uint8_t *at;
    PARE_TRY(pare_checkpoint_open(ctx, &map, &at, path, c));
    copy_blobs(c, at);
    pare_map_close(&map);
    return PARE_OK;
}
