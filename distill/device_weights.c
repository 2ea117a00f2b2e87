/* SPDX-License-Identifier: Apache-2.0 */
/* Weights on a device: one allocation for the blocks, one for the tables. */
#include "distill/weights.h"

#include <string.h>

/* --- tables --- */

typedef struct layout {
    size_t masks, tensors, pieces, sums, bytes; /* where each begins, all of it */
    int piece_count;
} layout;

int pare_weight_chunks(const pare_weight *w)
{
    return (int)((w->tensor->count + PARE_TRAIN_CHUNK - 1) / PARE_TRAIN_CHUNK);
}

static size_t up(size_t bytes) { return (bytes + 255) / 256 * 256; }

static layout lay_out(const pare_weights *w)
{
    layout l = {0};
    size_t masks = 0;
    for (int k = 0; k < w->trained; k++) {
        if (w->item[k].zero) masks += (size_t)w->item[k].tensor->count;
        l.piece_count += pare_weight_chunks(&w->item[k]);
    }
    l.tensors = up(masks);
    l.pieces = l.tensors + up((size_t)w->trained * sizeof(pare_train_tensor));
    l.sums = l.pieces + up((size_t)l.piece_count * sizeof(pare_train_chunk));
    l.bytes = l.sums + ((size_t)l.piece_count + 1) * sizeof(double);
    return l;
}

static void fill_tables(const pare_weights *w, const layout *l, char *to)
{
    pare_train_tensor *tensor = (pare_train_tensor *)(void *)(to + l->tensors);
    pare_train_chunk *piece = (pare_train_chunk *)(void *)(to + l->pieces);
    int64_t mask = 0;
    for (int k = 0; k < w->trained; k++) {
        const pare_weight *item = &w->item[k];
        const int64_t count = item->tensor->count;
        tensor[k] = (pare_train_tensor){.at = (int64_t)item->at,
                                        .zero = item->zero ? mask : -1,
                                        .gradient_scale = (float)item->gradient_scale,
                                        .decays = item->decays};
        if (item->zero) memcpy(to + mask, item->zero, (size_t)count);
        if (item->zero) mask += count;
        for (int64_t at = 0; at < count; at += PARE_TRAIN_CHUNK)
            *piece++ = (pare_train_chunk){
                at, (int)(count - at < PARE_TRAIN_CHUNK ? count - at : PARE_TRAIN_CHUNK), k};
    }
}

static pare_status make_tables(pare_device_weights *t)
{
    const layout l = lay_out(t->weights);
    char *host = pare_alloc(t->ctx, l.bytes, 1);
    if (!host) return PARE_MEMORY;
    fill_tables(t->weights, &l, host);
    pare_status st = pare_device_copy(t->ctx, t->device, &t->tables, host, l.bytes);
    pare_free(host);
    if (st != PARE_OK) return st;
    const char *at = t->tables;
    t->bytes += l.bytes;
    t->blocks.zero = (const uint8_t *)at;
    t->blocks.tensor = (const pare_train_tensor *)(const void *)(at + l.tensors);
    t->blocks.chunk = (const pare_train_chunk *)(const void *)(at + l.pieces);
    t->blocks.chunks = l.piece_count;
    t->blocks.sum = (double *)(void *)((char *)t->tables + l.sums);
    return PARE_OK;
}

/* --- blocks --- */

static bool has_scales(const pare_weights *w)
{
    for (int k = 0; k < w->trained; k++)
        if (w->item[k].gradient_scale > 0) return true;
    return false;
}

static pare_status make_blocks(pare_device_weights *t)
{
    const pare_weights *w = t->weights;
    const pare_backend *b = t->device->backend;
    float *start = NULL, **const block[] = {&t->blocks.value,
                                            &t->blocks.gradient,
                                            &t->blocks.exp_avg,
                                            &t->check,
                                            w->exp_avg_sq ? &t->blocks.exp_avg_sq : NULL,
                                            w->ema ? &t->blocks.ema : NULL,
                                            has_scales(w) ? &start : NULL};
    size_t count = 0;
    void *memory;
    for (size_t i = 0; i < sizeof block / sizeof *block; i++) count += block[i] != NULL;
    t->bytes = (count + (size_t)w->levels) * w->floats * sizeof(float);
    PARE_TRY(b->alloc(t->ctx, t->device, &memory, t->bytes));
    t->floats = memory;
    for (size_t i = 0, k = 0; i < sizeof block / sizeof *block; i++)
        if (block[i]) *block[i] = t->floats + k++ * w->floats;
    t->blocks.start = start;
    t->blocks.waiting = w->levels ? t->floats + count * w->floats : NULL;
    t->blocks.floats = (int64_t)w->floats;
    PARE_TRY(b->fill(t->ctx, t->device->setup, t->floats, 0, t->bytes));
    if (start)
        PARE_TRY(b->upload(t->ctx, t->device->setup, start, w->value, w->floats * sizeof *start));
    return b->sync(t->ctx, t->device->setup);
}

static pare_status make(pare_device_weights *t)
{
    void *seen;
    PARE_TRY(make_blocks(t));
    PARE_TRY(make_tables(t));
    const size_t sums = (size_t)t->blocks.chunks + 1;
    PARE_TRY(t->device->streams->pin(t->ctx, t->device, &seen, sums * sizeof *t->seen));
    t->seen = seen;
    return PARE_OK;
}

pare_status pare_device_weights_open(pare_ctx *ctx, pare_device_weights **out, pare_device *device,
                                     const pare_weights *weights)
{
    pare_device_weights *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    *t = (pare_device_weights){.ctx = ctx, .device = device, .weights = weights};
    t->trained = pare_weights_trained_floats(weights);
    pare_status st = make(t);
    if (st == PARE_OK) {
        *out = t;
        return PARE_OK;
    }
    pare_device_weights_free(t);
    return pare_fail_prefix(ctx, st, "weights that are trained");
}

void pare_device_weights_free(pare_device_weights *t)
{
    if (!t) return;
    t->device->backend->free(t->device, t->floats);
    t->device->backend->free(t->device, t->tables);
    if (t->seen) t->device->streams->unpin(t->device, t->seen);
    pare_free(t);
}

/* --- to and fro --- */

static pare_status send(pare_device_weights *t, float *to, const float *from, size_t first,
                        size_t count)
{
    if (!to || !count) return PARE_OK;
    return t->device->backend->upload(t->ctx, t->device->setup, to + first, from + first,
                                      count * sizeof *to);
}

static pare_status fetch(pare_device_weights *t, float *to, const float *from)
{
    if (!to) return PARE_OK;
    return t->device->backend->download(t->ctx, t->device->setup, to, from,
                                        t->trained * sizeof *to);
}

pare_status pare_device_weights_upload(pare_device_weights *t)
{
    const pare_weights *w = t->weights;
    PARE_TRY(send(t, t->blocks.value, w->value, 0, w->floats));
    PARE_TRY(send(t, t->blocks.exp_avg, w->exp_avg, 0, t->trained));
    PARE_TRY(send(t, t->blocks.exp_avg_sq, w->exp_avg_sq, 0, t->trained));
    PARE_TRY(send(t, t->blocks.ema, w->ema, 0, t->trained));
    PARE_TRY(t->device->backend->sync(t->ctx, t->device->setup));
    t->sent = true;
    return PARE_OK;
}

pare_status pare_device_weights_upload_statistics(pare_device_weights *t)
{
    const pare_weights *w = t->weights;
    PARE_TRY(send(t, t->blocks.value, w->value, t->trained, w->floats - t->trained));
    return t->device->backend->sync(t->ctx, t->device->setup);
}

pare_status pare_device_weights_download(pare_device_weights *t, bool moments)
{
    const pare_weights *w = t->weights;
    if (!t->sent) return PARE_OK;
    PARE_TRY(fetch(t, w->value, t->blocks.value));
    PARE_TRY(fetch(t, w->ema, t->blocks.ema));
    if (moments) PARE_TRY(fetch(t, w->exp_avg, t->blocks.exp_avg));
    if (moments) PARE_TRY(fetch(t, w->exp_avg_sq, t->blocks.exp_avg_sq));
    return t->device->backend->sync(t->ctx, t->device->setup);
}

pare_status pare_device_weights_download_gradients(pare_device_weights *t)
{
    if (!t->sent) return PARE_OK;
    PARE_TRY(fetch(t, t->weights->gradient, t->blocks.gradient));
    return t->device->backend->sync(t->ctx, t->device->setup);
}

pare_status pare_device_weights_check(pare_device_weights *t, const float *values)
{
    PARE_TRY(send(t, t->check, values, 0, t->weights->floats));
    return t->device->backend->sync(t->ctx, t->device->setup);
}

/* --- a step --- */

/* The first so many of the sums. */
static pare_status see_sums(pare_device_weights *t, pare_stream *stream, size_t count)
{
    const pare_backend *b = t->device->backend;
    PARE_TRY(t->device->training->squares(t->ctx, stream, &t->blocks));
    PARE_TRY(b->download(t->ctx, stream, t->seen, t->blocks.sum, count * sizeof *t->seen));
    return b->sync(t->ctx, stream);
}

pare_status pare_device_weights_squares(pare_device_weights *t, pare_stream *stream, double *out)
{
    PARE_TRY(see_sums(t, stream, 1));
    *out = *t->seen;
    return PARE_OK;
}

pare_status pare_device_weights_chunk_squares(pare_device_weights *t, pare_stream *stream,
                                              const double **out)
{
    PARE_TRY(see_sums(t, stream, (size_t)t->blocks.chunks + 1));
    *out = t->seen + 1;
    return PARE_OK;
}

pare_status pare_device_weights_step(pare_device_weights *t, pare_stream *stream,
                                     const pare_train_rule *rule, float part)
{
    PARE_TRY(t->device->training->step(t->ctx, stream, &t->blocks, rule, part));
    return t->device->backend->sync(t->ctx, stream);
}
