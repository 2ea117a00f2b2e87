/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/distill/tensorboard.h"
#include "formats/file.h"
#include "runtime/base/clock.h"

#include <stdio.h>
#include <string.h>

pare_status pare_tensorboard_prepare(pare_ctx *ctx, const char *folder)
{
    return folder ? pare_folder_make(ctx, folder, "TensorBoard's files") : PARE_OK;
}

/* --- scalars --- */

enum { MOST = 10 };

typedef struct list {
    pare_tfevents_scalar item[MOST];
    int count;
} list;

static void put(list *l, const char *tag, double value)
{
    l->item[l->count++] = (pare_tfevents_scalar){tag, value};
}

static void put_step(list *l, const pare_distill_event *e, double seconds, int64_t samples)
{
    put(l, "train/loss", e->loss);
    put(l, "train/learning_rate", e->learning_rate);
    put(l, "train/gradient_norm", e->norm);
    put(l, "train/epoch", e->epoch);
    if (seconds > 0) put(l, "train/samples_per_second", (double)samples / seconds);
}

static void put_scale(list *l, const pare_distill_event *e)
{
    put(l, "train/loss_scale", e->loss_scale);
    put(l, "train/skipped_steps", (double)e->skipped);
}

static void put_score(list *l, const pare_distill_score *score)
{
    put(l, "eval/loss", score->loss);
    if (score->agreement >= 0) put(l, "eval/agreement", 100 * score->agreement);
    if (score->top1 >= 0) put(l, "eval/top1", 100 * score->top1);
}

/* The speed is that since the event before, its look at held-out samples included. */
static pare_status add_scalars(pare_tensorboard *t, const pare_distill_event *e)
{
    const double now = pare_seconds();
    list l = {.count = 0};
    if (e->step) put_step(&l, e, t->seconds > 0 ? now - t->seconds : 0, e->samples - t->samples);
    if (e->loss_scale > 0) put_scale(&l, e);
    if (e->score) put_score(&l, e->score);
    t->seconds = now;
    t->samples = e->samples;
    return pare_tfevents_add_scalars(t->file, e->step, l.item, l.count);
}

/* --- histograms --- */

static pare_status add_gradient(pare_tensorboard *t, const pare_distill_event *e,
                                const pare_distill_tensor *tensor)
{
    const size_t size = strlen(tensor->name) + sizeof "gradients/";
    char *tag = pare_alloc(t->ctx, size, 1);
    if (!tag) return PARE_MEMORY;
    snprintf(tag, size, "gradients/%s", tensor->name);
    const pare_status st = pare_tfevents_add_histogram(t->file, e->step, tag, tensor->gradient,
                                                       tensor->count, e->gradient_factor);
    pare_free(tag);
    return st;
}

static pare_status add_histograms(pare_tensorboard *t, const pare_distill_event *e)
{
    for (int i = 0; i < e->tensor_count; i++) {
        const pare_distill_tensor *tensor = &e->tensor[i];
        PARE_TRY(pare_tfevents_add_histogram(t->file, e->step, tensor->name, tensor->value,
                                             tensor->count, 1));
        if (e->gradient_factor > 0) PARE_TRY(add_gradient(t, e, tensor));
    }
    return PARE_OK;
}

/* --- the file --- */

/* A disk that is full ends the file, not the training. */
static pare_status give_up(pare_tensorboard *t, int64_t step)
{
    pare_log(t->ctx, PARE_LOG_WARNING,
             "%s; training continues, TensorBoard's file ends in step %lld", t->ctx->message,
             (long long)step);
    pare_ctx_clear(t->ctx);
    pare_tensorboard_close(t);
    return PARE_OK;
}

static pare_status begin(pare_tensorboard *t, const pare_distill_event *e)
{
    PARE_TRY(pare_tfevents_open(t->ctx, &t->file, t->folder, e->step));
    t->begun = true;
    return PARE_OK;
}

pare_status pare_tensorboard_add(pare_tensorboard *t, const pare_distill_event *event)
{
    if (!t->folder || (t->begun && !t->file)) return PARE_OK;
    if (!t->begun) PARE_TRY(begin(t, event));
    pare_status st = add_scalars(t, event);
    if (st == PARE_OK) st = add_histograms(t, event);
    return st == PARE_IO ? give_up(t, event->step) : st;
}

void pare_tensorboard_close(pare_tensorboard *t)
{
    pare_tfevents_close(t->file);
    t->file = NULL;
}
