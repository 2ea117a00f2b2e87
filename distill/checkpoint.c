/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a checkpoint, and keeping a training in it. */
#include "distill/checkpoint.h"
#include "distill/trainer.h"
#include "formats/file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* Fills the head (bytes, then its hash). */
static void make_head(const pare_checkpoint *c, uint8_t *head, size_t bytes)
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
        pare_hash hash = pare_hash_bytes(b->data, b->bytes);
        put_u32(&w, strlen(b->name));
        put_u32(&w, 0);
        put_u64(&w, b->bytes);
        put(&w, &hash, HASH);
        put(&w, b->name, strlen(b->name));
    }
    pare_hash hash = pare_hash_bytes(head, bytes);
    put(&w, &hash, HASH);
}

static pare_status write_parts(pare_output *o, const pare_checkpoint *c, const uint8_t *head,
                               size_t bytes)
{
    PARE_TRY(pare_output_write(o, head, bytes + HASH));
    for (int i = 0; i < c->blob_count; i++)
        PARE_TRY(pare_output_write(o, c->blob[i].data, c->blob[i].bytes));
    return PARE_OK;
}

static pare_status write_file(pare_ctx *ctx, const char *path, const pare_checkpoint *c)
{
    size_t bytes = head_bytes(c);
    uint8_t *head = pare_alloc(ctx, bytes + HASH, 1);
    if (!head) return PARE_MEMORY;
    make_head(c, head, bytes);
    pare_output *o = NULL;
    pare_status st = pare_output_open(ctx, &o, path);
    if (st == PARE_OK) {
        st = write_parts(o, c, head, bytes);
        if (st == PARE_OK)
            st = pare_output_commit(o);
        else
            pare_output_discard(o);
    }
    pare_free(head);
    return st;
}

pare_status pare_checkpoint_write(pare_ctx *ctx, const char *path, const pare_checkpoint *c)
{
    pare_ctx calm;
    pare_ctx_child(&calm, ctx);
    calm.interrupted = NULL;
    pare_status st = write_file(&calm, path, c);
    return st == PARE_OK ? st : pare_fail(ctx, st, "%s", calm.message);
}

/* --- reading --- */

typedef struct reader {
    pare_ctx *ctx;
    const char *path;
    const uint8_t *data, *at, *end; /* the file, and what is left of its head */
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
    hash = pare_hash_bytes(*data, (size_t)bytes);
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

pare_status pare_checkpoint_parse(pare_ctx *ctx, const char *path, const void *data, size_t size,
                                  const pare_checkpoint *c)
{
    const uint8_t *at = data;
    reader r = {ctx, path, data, data, data};
    PARE_TRY(check_all(&r, size, c, &at));
    for (int i = 0; i < c->blob_count; at += c->blob[i].bytes, i++)
        if (c->blob[i].bytes) memcpy(c->blob[i].data, at, c->blob[i].bytes);
    return PARE_OK;
}

pare_status pare_checkpoint_read(pare_ctx *ctx, const char *path, const pare_checkpoint *c)
{
    pare_map map;
    PARE_TRY(pare_map_open(ctx, &map, path));
    pare_status st = pare_checkpoint_parse(ctx, path, map.data, map.size, c);
    pare_map_close(&map);
    return st;
}

/* --- keeping a training --- */

static const char *path_of(const pare_checkpointer *k)
{
    return k->trainer->options.checkpoint.path;
}

static void add_blob(pare_checkpointer *k, const char *name, void *data, size_t bytes)
{
    k->blob[k->checkpoint.blob_count++] = (pare_checkpoint_blob){name, data, bytes};
}

/* A block of weights. By pipeline the blob is of all ranks' in rank 0, and of nothing elsewhere. */
static pare_status add_block(pare_checkpointer *k, const char *name, float *block)
{
    const pare_trainer *t = k->trainer;
    const size_t floats = pare_trainer_all_weights(t)->floats;
    void *data = block;
    if (!block) return PARE_OK;
    if (t->stage) {
        data = pare_comm_rank(t->options.comm) ? NULL
                                               : pare_arena_alloc(&k->arena, floats, sizeof(float));
        if (!data && !pare_comm_rank(t->options.comm)) return PARE_MEMORY;
        k->own[k->checkpoint.blob_count] = block;
    }
    add_blob(k, name, data, floats * sizeof(float));
    return PARE_OK;
}

static pare_status add_blobs(pare_checkpointer *k)
{
    const pare_weights *w = &k->trainer->weights;
    k->checkpoint.blob = k->blob;
    add_blob(k, "state", k->state, sizeof *k->state);
    PARE_TRY(add_block(k, "weights", w->value));
    PARE_TRY(add_block(k, "first moments", w->exp_avg));
    PARE_TRY(add_block(k, "second moments", w->exp_avg_sq));
    PARE_TRY(add_block(k, "average of weights", w->ema));
    return add_block(k, "best weights", w->best);
}

/* What a checkpoint of this training cannot hold. */
static pare_status check_state(const pare_checkpointer *k)
{
    const pare_train_state *s = k->state;
    const bool good = s->step >= 0 && s->step <= k->trainer->steps && s->reported <= s->step &&
                      s->reported >= s->step - 1 && s->since_best >= 0 && s->best_step >= 0 &&
                      s->best_step <= s->step && s->estimated >= 0 && s->estimated <= INT32_MAX &&
                      isfinite(s->loss_scale) && s->loss_scale >= 1 && s->good >= 0 &&
                      s->skipped >= 0 && s->skipped <= s->step;
    if (good) return PARE_OK;
    return PARE_FAIL(k->trainer->ctx, INPUT,
                     "%s: is damaged (step %" PRId64 " of %" PRId64 ", best %" PRId64
                     "); remove it to start again",
                     path_of(k), s->step, k->trainer->steps, s->best_step);
}

static pare_status read_checkpoint(pare_checkpointer *k)
{
    pare_ctx *ctx = k->trainer->ctx;
    if (access(path_of(k), F_OK) && errno == ENOENT) return PARE_OK;
    PARE_TRY(pare_checkpoint_read(ctx, path_of(k), &k->checkpoint));
    PARE_TRY(check_state(k));
    k->resumed = k->kept = k->state->step;
    return PARE_OK;
}

static pare_status hand_out(const pare_checkpointer *k, int i)
{
    const pare_checkpoint_blob *blob = &k->blob[i];
    if (k->own[i]) return pare_stage_weights_scatter(k->trainer, blob->data, k->own[i]);
    return pare_comm_broadcast(k->trainer->options.comm, blob->data, blob->bytes, 0);
}

/* The others need not see the file. */
static pare_status resume(pare_checkpointer *k)
{
    pare_comm *comm = k->trainer->options.comm;
    if (!pare_comm_rank(comm)) PARE_TRY(read_checkpoint(k));
    PARE_TRY(pare_comm_broadcast(comm, &k->resumed, sizeof k->resumed, 0));
    k->kept = k->resumed;
    for (int i = 0; i < k->checkpoint.blob_count && k->resumed >= 0; i++) PARE_TRY(hand_out(k, i));
    return PARE_OK;
}

/* All ranks make the same training. */
static pare_status compare(const pare_checkpointer *k)
{
    for (int i = 0; i < k->checkpoint.fact_count; i++) {
        const pare_checkpoint_fact *f = &k->checkpoint.fact[i];
        PARE_TRY(pare_comm_same(k->trainer->options.comm, f->name, f->value, strlen(f->value)));
    }
    return PARE_OK;
}

pare_status pare_checkpointer_open(pare_checkpointer *k, const pare_trainer *trainer,
                                   pare_train_state *state)
{
    *k = (pare_checkpointer){.trainer = trainer, .state = state, .resumed = -1, .kept = -1};
    pare_arena_init(&k->arena, trainer->ctx);
    if (!path_of(k) && !trainer->options.comm) return PARE_OK;
    PARE_TRY(pare_fingerprint_make(&k->arena, trainer, &k->checkpoint));
    PARE_TRY(compare(k));
    if (!path_of(k)) return PARE_OK;
    PARE_TRY(pare_comm_settle(trainer->options.comm, add_blobs(k)));
    return trainer->options.checkpoint.resume ? resume(k) : PARE_OK;
}

void pare_checkpointer_free(pare_checkpointer *k)
{
    if (k->trainer) pare_arena_free(&k->arena);
}

pare_status pare_checkpointer_check(pare_ctx *ctx, const pare_distill_checkpoint *c)
{
    if (!c->path || c->resume || (access(c->path, F_OK) && errno == ENOENT)) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "%s: is the checkpoint of an earlier run; continue from it with --resume, or "
                     "choose another place for this run's",
                     c->path);
}

/* A write that failed, where training can do without. */
static pare_status warn(pare_checkpointer *k, pare_status st)
{
    pare_ctx *ctx = k->trainer->ctx;
    char old[64] = "there is none to resume from";
    if (st != PARE_IO) return st;
    if (k->kept >= 0) snprintf(old, sizeof old, "that of step %" PRId64 " stays", k->kept);
    if (!k->failing)
        pare_log(ctx, PARE_LOG_WARNING,
                 "%s; training continues without a checkpoint of step %" PRId64 ", %s",
                 ctx->message, k->state->step, old);
    pare_ctx_clear(ctx);
    k->failing = true;
    return PARE_OK;
}

/* By pipeline all ranks put together what rank 0 is to write. */
static pare_status put_together(pare_checkpointer *k)
{
    const pare_trainer *t = k->trainer;
    PARE_TRY(pare_comm_broadcast(t->options.comm, &k->kept, sizeof k->kept, 0));
    for (int i = 0; i < k->checkpoint.blob_count && k->kept != k->state->step; i++)
        if (k->own[i]) PARE_TRY(pare_stage_weights_gather(t, k->own[i], k->blob[i].data));
    return PARE_OK;
}

pare_status pare_checkpointer_save(pare_checkpointer *k)
{
    pare_ctx *ctx = k->trainer->ctx;
    if (!path_of(k)) return PARE_OK;
    if (k->trainer->stage) PARE_TRY(put_together(k));
    if (pare_comm_rank(k->trainer->options.comm) || k->kept == k->state->step) return PARE_OK;
    pare_device_weights *on_device = k->trainer->weights.on_device;
    if (on_device) PARE_TRY(pare_device_weights_download(on_device, true));
    pare_status st = pare_checkpoint_write(ctx, path_of(k), &k->checkpoint);
    if (st != PARE_OK) return warn(k, st);
    k->kept = k->state->step;
    if (k->failing)
        pare_log(ctx, PARE_LOG_WARNING, "%s: can be written again: checkpoint of step %" PRId64,
                 path_of(k), k->kept);
    k->failing = false;
    return PARE_OK;
}

/* --- where it is --- */

pare_status pare_distill_checkpoint_file(pare_arena *arena, const char *folder, const char *name,
                                         const char *const *outputs, int output_count,
                                         pare_distill_checkpoint *out)
{
    const size_t n = strlen(folder);
    out->path =
        pare_arena_printf(arena, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    if (!out->path) return PARE_MEMORY;
    for (int i = 0; i < output_count; i++)
        if (outputs[i] && (!strcmp(outputs[i], out->path) || pare_file_same(outputs[i], out->path)))
            return PARE_FAIL(arena->ctx, INPUT,
                             "%s: is the checkpoint, too; choose another name for the output",
                             outputs[i]);
    return PARE_OK;
}
