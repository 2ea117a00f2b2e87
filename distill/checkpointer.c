/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/checkpointer.h"
#include "distill/fingerprint.h"
#include "distill/device_weights.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static const char *path_of(const pare_checkpointer *k)
{
    return k->trainer->options.checkpoint.path;
}

static void add_blob(pare_checkpointer *k, const char *name, void *data, size_t bytes)
{
    if (!data) return;
    k->blob[k->checkpoint.blob_count++] = (pare_checkpoint_blob){name, data, bytes};
}

static void add_blobs(pare_checkpointer *k)
{
    const pare_weights *w = &k->trainer->weights;
    const size_t bytes = w->floats * sizeof(float);
    add_blob(k, "state", k->state, sizeof *k->state);
    add_blob(k, "weights", w->value, bytes);
    add_blob(k, "first moments", w->first, bytes);
    add_blob(k, "second moments", w->second, bytes);
    add_blob(k, "average of weights", w->average, bytes);
    add_blob(k, "best weights", w->best, bytes);
    k->checkpoint.blob = k->blob;
}

/* What a checkpoint of this training cannot hold. */
static pare_status check_state(const pare_checkpointer *k)
{
    const pare_train_state *s = k->state;
    const bool good = s->step >= 0 && s->step <= k->trainer->steps && s->told <= s->step &&
                      s->told >= s->step - 1 && s->since_best >= 0 && s->best_step >= 0 &&
                      s->best_step <= s->step && s->estimated >= 0 && s->estimated <= INT32_MAX &&
                      isfinite(s->loss_scale) && s->loss_scale >= 1 && s->good >= 0 &&
                      s->skipped >= 0 && s->skipped <= s->step;
    if (good) return PARE_OK;
    return PARE_FAIL(k->trainer->ctx, INPUT,
                     "%s: is damaged (step %" PRId64 " of %" PRId64 ", best %" PRId64
                     "); remove it to start again",
                     path_of(k), s->step, k->trainer->steps, s->best_step);
}

static pare_status resume(pare_checkpointer *k)
{
    pare_ctx *ctx = k->trainer->ctx;
    if (access(path_of(k), F_OK) && errno == ENOENT) return PARE_OK;
    PARE_TRY(pare_checkpoint_read(ctx, path_of(k), &k->checkpoint));
    PARE_TRY(check_state(k));
    k->resumed = k->kept = k->state->step;
    return PARE_OK;
}

pare_status pare_checkpointer_open(pare_checkpointer *k, const pare_trainer *trainer,
                                   pare_train_state *state)
{
    *k = (pare_checkpointer){.trainer = trainer, .state = state, .resumed = -1, .kept = -1};
    pare_arena_init(&k->arena, trainer->ctx);
    if (!path_of(k)) return PARE_OK;
    PARE_TRY(pare_fingerprint_make(&k->arena, trainer, &k->checkpoint));
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

pare_status pare_checkpointer_save(pare_checkpointer *k)
{
    pare_ctx *ctx = k->trainer->ctx;
    if (!path_of(k) || k->kept == k->state->step) return PARE_OK;
    pare_device_weights *there = k->trainer->weights.there;
    if (there) PARE_TRY(pare_device_weights_download(there, true));
    pare_status st = pare_checkpoint_write(ctx, path_of(k), &k->checkpoint);
    if (st != PARE_OK) return warn(k, st);
    k->kept = k->state->step;
    if (k->failing)
        pare_log(ctx, PARE_LOG_WARNING, "%s: can be written again: checkpoint of step %" PRId64,
                 path_of(k), k->kept);
    k->failing = false;
    return PARE_OK;
}
