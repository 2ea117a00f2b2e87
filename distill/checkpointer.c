/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping a training in a checkpoint. */
#include "distill/trainer.h"
#include "runtime/base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- what is kept --- */

static const char *path_of(const pare_checkpointer *k)
{
    return k->trainer->options.checkpoint.path;
}

static void add_blob(pare_checkpointer *k, const char *name, void *data, size_t bytes)
{
    k->blob[k->checkpoint.blob_count++] = (pare_checkpoint_blob){name, data, bytes};
}

/* A block of weights. By pipeline every rank has a part of it. */
static void add_block(pare_checkpointer *k, const char *name, float *block)
{
    const pare_trainer *t = k->trainer;
    if (!block) return;
    if (t->stage) k->own[k->checkpoint.blob_count] = block;
    add_blob(k, name, t->stage ? NULL : block, pare_trainer_all_weights(t)->floats * sizeof *block);
}

static void add_blobs(pare_checkpointer *k)
{
    const pare_weights *w = &k->trainer->weights;
    k->checkpoint.blob = k->blob;
    add_blob(k, "state", k->state, sizeof *k->state);
    add_block(k, "weights", w->value);
    add_block(k, "first moments", w->exp_avg);
    add_block(k, "second moments", w->exp_avg_sq);
    add_block(k, "average of weights", w->ema);
    add_block(k, "best weights", w->best);
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

/* --- going on --- */

/* Rank 0's file, checked; map: of no file where there is none. */
static pare_status open_file(pare_checkpointer *k, pare_map *map, const uint8_t **blobs)
{
    if (access(path_of(k), F_OK) && errno == ENOENT) return PARE_OK;
    PARE_TRY(pare_checkpoint_open(k->trainer->ctx, map, blobs, path_of(k), &k->checkpoint));
    memcpy(k->state, *blobs, sizeof *k->state);
    PARE_TRY(check_state(k));
    k->resumed = k->state->step;
    return PARE_OK;
}

/* A blob, in rank 0 the file's, becomes each rank's. */
static pare_status hand_out(const pare_checkpointer *k, int i, const uint8_t *from)
{
    const pare_checkpoint_blob *blob = &k->blob[i];
    if (k->own[i]) return pare_stage_weights_scatter(k->trainer, from, k->own[i]);
    if (from) memcpy(blob->data, from, blob->bytes);
    return pare_comm_broadcast(k->trainer->options.comm, blob->data, blob->bytes, 0);
}

static pare_status read_blobs(pare_checkpointer *k, const uint8_t *from)
{
    PARE_TRY(pare_comm_broadcast(k->trainer->options.comm, &k->resumed, sizeof k->resumed, 0));
    k->kept = k->resumed;
    for (int i = 0; i < k->checkpoint.blob_count && k->resumed >= 0; i++) {
        PARE_TRY(hand_out(k, i, from));
        if (from) from += k->blob[i].bytes;
    }
    return PARE_OK;
}

/* The others need not see the file. */
static pare_status resume(pare_checkpointer *k)
{
    pare_map map = {0};
    const uint8_t *blobs = NULL;
    pare_status st = PARE_OK;
    if (!pare_comm_rank(k->trainer->options.comm)) st = open_file(k, &map, &blobs);
    if (st == PARE_OK) st = read_blobs(k, blobs);
    pare_map_close(&map);
    return st;
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
    add_blobs(k);
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

/* A checkpoint of this step was written, or this is why not. */
static pare_status end_save(pare_checkpointer *k, pare_status st)
{
    if (st != PARE_OK) return warn(k, st);
    k->kept = k->state->step;
    if (k->failing)
        pare_log(k->trainer->ctx, PARE_LOG_WARNING,
                 "%s: can be written again: checkpoint of step %" PRId64, path_of(k), k->kept);
    k->failing = false;
    return PARE_OK;
}

/* A weight of a block, and the zeros behind it. */
static pare_status put_weight(void *user, int weight, const float *x)
{
    static const float zero[PARE_WEIGHT_ALIGN];
    const pare_checkpointer *k = user;
    const size_t count = (size_t)pare_trainer_all_weights(k->trainer)->item[weight].tensor->count;
    const size_t gap = pare_align_up(count, PARE_WEIGHT_ALIGN) - count;
    pare_checkpoint_put(k->writer, x, count * sizeof *x);
    pare_checkpoint_put(k->writer, zero, gap * sizeof *x);
    return PARE_OK; /* the writer notes what fails */
}

static pare_status put_blobs(pare_checkpointer *k)
{
    for (int i = 0; i < k->checkpoint.blob_count; i++)
        if (k->own[i])
            PARE_TRY(pare_stage_weights_gather(k->trainer, k->own[i], put_weight, k));
        else if (k->writer)
            pare_checkpoint_put(k->writer, k->blob[i].data, k->blob[i].bytes);
    return PARE_OK;
}

static pare_status download(const pare_trainer *t)
{
    pare_device_weights *on_device = t->weights.on_device;
    return on_device ? pare_device_weights_download(on_device, true) : PARE_OK;
}

/* By pipeline weights come to rank 0 one by one, and go into its file. */
static pare_status save_stages(pare_checkpointer *k)
{
    pare_ctx *ctx = k->trainer->ctx;
    pare_comm *comm = k->trainer->options.comm;
    const bool leads = !pare_comm_rank(comm);
    const bool writes = leads && k->kept != k->state->step;
    pare_status st = PARE_OK;
    if (writes) st = pare_checkpoint_begin(ctx, &k->writer, path_of(k), &k->checkpoint);
    bool goes = writes && st == PARE_OK;
    const bool opened = goes;
    const pare_status told = pare_comm_broadcast(comm, &goes, sizeof goes, 0);
    if (told == PARE_OK && !goes) return writes ? end_save(k, st) : PARE_OK;
    st = told == PARE_OK ? download(k->trainer) : told;
    if (st == PARE_OK) st = put_blobs(k);
    if (!opened) return st;
    const pare_status ended = pare_checkpoint_end(k->writer, st);
    k->writer = NULL;
    return st == PARE_OK ? end_save(k, ended) : st;
}

pare_status pare_checkpointer_save(pare_checkpointer *k)
{
    const pare_trainer *t = k->trainer;
    if (!path_of(k)) return PARE_OK;
    if (t->stage) return save_stages(k);
    if (pare_comm_rank(t->options.comm) || k->kept == k->state->step) return PARE_OK;
    PARE_TRY(download(t));
    return end_save(k, pare_checkpoint_write(t->ctx, path_of(k), &k->checkpoint));
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
