/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/data/held.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pare_held {
    int64_t *sample; /* (count) ascending */
    int64_t count;
    uint8_t **rows; /* (sources): (count, row_bytes); NULL of a source that is not held */
    bool **ready;   /* (sources): (count) */
    int source_count;
    pthread_mutex_t lock; /* of ready */
};

static int ascending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int64_t place_of(const pare_held *h, int64_t sample)
{
    const int64_t *at = bsearch(&sample, h->sample, (size_t)h->count, sizeof *h->sample, ascending);
    return at ? at - h->sample : -1;
}

static pare_status hold_rows(pare_ctx *ctx, pare_held *h, const pare_data *data)
{
    h->rows = pare_alloc(ctx, (size_t)data->source_count, sizeof *h->rows);
    h->ready = pare_alloc(ctx, (size_t)data->source_count, sizeof *h->ready);
    if (!h->rows || !h->ready) return PARE_MEMORY;
    h->source_count = data->source_count;
    for (int i = 0; i < data->source_count; i++) {
        const pare_data_source *s = &data->source[i];
        if (s->set.serial || s->shared) continue;
        h->rows[i] = pare_alloc(ctx, (size_t)h->count, s->set.row_bytes);
        h->ready[i] = pare_alloc(ctx, (size_t)h->count, sizeof **h->ready);
        if (!h->rows[i] || !h->ready[i]) return PARE_MEMORY;
    }
    return PARE_OK;
}

static void held_free(pare_held *h)
{
    for (int i = 0; i < h->source_count; i++) {
        pare_free(h->rows[i]);
        pare_free(h->ready[i]);
    }
    pthread_mutex_destroy(&h->lock);
    pare_free(h->rows);
    pare_free(h->ready);
    pare_free(h->sample);
    pare_free(h);
}

pare_status pare_data_hold(pare_data *data, const int64_t *samples, int64_t n)
{
    pare_data_release(data);
    pare_held *h = pare_alloc(data->ctx, 1, sizeof *h);
    if (!h) return PARE_MEMORY;
    pthread_mutex_init(&h->lock, NULL);
    h->count = n;
    h->sample = pare_alloc(data->ctx, (size_t)n, sizeof *h->sample);
    pare_status st = h->sample ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        memcpy(h->sample, samples, (size_t)n * sizeof *samples);
        qsort(h->sample, (size_t)n, sizeof *h->sample, ascending);
        st = hold_rows(data->ctx, h, data);
    }
    if (st == PARE_OK)
        data->held = h;
    else
        held_free(h);
    return st;
}

void pare_data_release(pare_data *data)
{
    if (data->held) held_free(data->held);
    data->held = NULL;
}

const uint8_t *pare_held_row(const pare_data *data, int i, int64_t sample)
{
    pare_held *h = data->held;
    const int64_t at = h && h->rows[i] ? place_of(h, sample) : -1;
    if (at < 0) return NULL;
    pthread_mutex_lock(&h->lock);
    const bool ready = h->ready[i][at];
    pthread_mutex_unlock(&h->lock);
    return ready ? h->rows[i] + (size_t)at * data->source[i].set.row_bytes : NULL;
}

void pare_held_keep(const pare_data *data, int i, int64_t sample, const uint8_t *row)
{
    pare_held *h = data->held;
    const int64_t at = h && h->rows[i] ? place_of(h, sample) : -1;
    const size_t bytes = data->source[i].set.row_bytes;
    if (at < 0) return;
    pthread_mutex_lock(&h->lock);
    if (!h->ready[i][at]) memcpy(h->rows[i] + (size_t)at * bytes, row, bytes);
    h->ready[i][at] = true;
    pthread_mutex_unlock(&h->lock);
}
