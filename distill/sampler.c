/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/sampler.h"
#include "distill/random.h"

#include <stdlib.h>
#include <string.h>

struct pare_sampler {
    uint64_t seed;
    int64_t count, blocks, windows, widest; /* widest: most samples a window can have */
    int64_t *sample;                        /* (count), ascending */
    int64_t *first; /* (blocks + 1): where a block's samples begin in sample[] */
    int64_t *block; /* (blocks): the present epoch's order of blocks */
    int64_t *start; /* (windows + 1): where a window begins in the present epoch */
    int64_t *item;  /* (widest): the present window's samples */
    int64_t epoch;  /* -1: none yet */
    int64_t window; /* -1: none yet */
};

/* Fisher and Yates' shuffle (Durstenfeld 1964, CACM Algorithm 235). */
static void shuffle(int64_t *item, int64_t n, pare_random random)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)pare_random_below(&random, (uint64_t)i + 1), kept = item[i];
        item[i] = item[k];
        item[k] = kept;
    }
}

/* First block of window w: blocks are shared out evenly. */
static int64_t block_of(const pare_sampler *s, int64_t w)
{
    int64_t most = s->blocks / s->windows, over = s->blocks % s->windows;
    return w * most + (w < over ? w : over);
}

static void begin_epoch(pare_sampler *s, int64_t epoch)
{
    for (int64_t b = 0; b < s->blocks; b++) s->block[b] = b;
    if (s->windows > 1)
        shuffle(s->block, s->blocks, pare_random_of(s->seed, PARE_RANDOM_BLOCKS, epoch, 0));
    int64_t at = 0;
    for (int64_t w = 0; w < s->windows; w++) {
        s->start[w] = at;
        for (int64_t i = block_of(s, w); i < block_of(s, w + 1); i++)
            at += s->first[s->block[i] + 1] - s->first[s->block[i]];
    }
    s->start[s->windows] = at;
    s->epoch = epoch;
    s->window = -1;
}

static void begin_window(pare_sampler *s, int64_t w)
{
    int64_t n = 0;
    for (int64_t i = block_of(s, w); i < block_of(s, w + 1); i++) {
        int64_t from = s->first[s->block[i]], size = s->first[s->block[i] + 1] - from;
        memcpy(s->item + n, s->sample + from, (size_t)size * sizeof *s->item);
        n += size;
    }
    shuffle(s->item, n, pare_random_of(s->seed, PARE_RANDOM_WINDOW, s->epoch, w));
    s->window = w;
}

/* The window of the present epoch that holds a position. */
static int64_t find_window(const pare_sampler *s, int64_t position)
{
    int64_t low = 0, high = s->windows;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(s->start[middle] <= position ? &low : &high) = middle;
    }
    return low;
}

int64_t pare_sampler_at(pare_sampler *s, int64_t position)
{
    int64_t epoch = position / s->count, w;
    position %= s->count;
    if (epoch != s->epoch) begin_epoch(s, epoch);
    w = s->window;
    if (w < 0 || position < s->start[w] || position >= s->start[w + 1])
        begin_window(s, find_window(s, position));
    return s->item[position - s->start[s->window]];
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Finds the blocks of the sorted samples. */
static pare_status find_blocks(pare_ctx *ctx, pare_sampler *s, int64_t rows)
{
    for (int64_t i = 0; i < s->count; i++)
        s->blocks += i == 0 || s->sample[i] / rows != s->sample[i - 1] / rows;
    s->first = pare_alloc(ctx, (size_t)s->blocks + 1, sizeof *s->first);
    s->block = pare_alloc(ctx, (size_t)s->blocks, sizeof *s->block);
    if (!s->first || !s->block) return PARE_MEMORY;
    int64_t b = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (i == 0 || s->sample[i] / rows != s->sample[i - 1] / rows) s->first[b++] = i;
    s->first[b] = s->count;
    return PARE_OK;
}

static pare_status find_windows(pare_ctx *ctx, pare_sampler *s, int64_t rows, int64_t window)
{
    int64_t most = window / rows < 1 ? 1 : window / rows, large = 1; /* blocks; samples in one */
    s->windows = s->blocks / most + (s->blocks % most != 0);
    int64_t wide = s->blocks / s->windows + (s->blocks % s->windows != 0);
    for (int64_t b = 0; b < s->blocks; b++)
        if (s->first[b + 1] - s->first[b] > large) large = s->first[b + 1] - s->first[b];
    s->widest = wide > s->count / large ? s->count : wide * large;
    s->start = pare_alloc(ctx, (size_t)s->windows + 1, sizeof *s->start);
    s->item = pare_alloc(ctx, (size_t)s->widest, sizeof *s->item);
    return s->start && s->item ? PARE_OK : PARE_MEMORY;
}

pare_status pare_sampler_new(pare_ctx *ctx, pare_sampler **out, const pare_sampler_options *options)
{
    int64_t rows = options->block < 1 ? 1 : options->block;
    pare_sampler *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    *s = (pare_sampler){.seed = options->seed, .count = options->count, .epoch = -1, .window = -1};
    s->sample = pare_alloc(ctx, (size_t)s->count, sizeof *s->sample);
    pare_status st = s->sample ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        memcpy(s->sample, options->samples, (size_t)s->count * sizeof *s->sample);
        qsort(s->sample, (size_t)s->count, sizeof *s->sample, ascending);
        st = find_blocks(ctx, s, rows);
    }
    if (st == PARE_OK) st = find_windows(ctx, s, rows, options->window);
    if (st == PARE_OK)
        *out = s;
    else
        pare_sampler_free(s);
    return st;
}

void pare_sampler_free(pare_sampler *s)
{
    if (!s) return;
    pare_free(s->sample);
    pare_free(s->first);
    pare_free(s->block);
    pare_free(s->start);
    pare_free(s->item);
    pare_free(s);
}

size_t pare_sampler_bytes(const pare_sampler *s)
{
    return (size_t)(s->count + 2 * s->blocks + s->windows + s->widest + 2) * sizeof(int64_t);
}
