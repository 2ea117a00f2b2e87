/* SPDX-License-Identifier: Apache-2.0 */
/* Training batches: the order of samples, and the reader that decodes them ahead in that order. */
#include "distill/loader.h"

#include <stdlib.h>
#include <string.h>

/* --- the order: blocks and windows --- */

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

static size_t sampler_bytes(const pare_sampler *s)
{
    return (size_t)(s->count + 2 * s->blocks + s->windows + s->widest + 2) * sizeof(int64_t);
}

/* --- batches in that order --- */

/* All of CIFAR-10 or Fashion-MNIST is mixed freely, and thousands of our own 64 KiB chunks of
   anything larger, hundreds of samples in each of which differ from a free order in nothing a
   batch shows; and the memory is a small part of what training takes. */
enum { WINDOW_BYTES = 256 << 20 };

struct pare_loader {
    pare_sampler *sampler;
    pare_reader *reader;
    int64_t start, every, count;
    int64_t *epoch; /* (batch) */
    int batch;
};

/* The position of the i-th that is read. */
static int64_t position_of(const pare_loader *s, int64_t i)
{
    return s->start + i / s->batch * s->every + i % s->batch;
}

static pare_status order(void *user, int64_t first, int64_t count, int64_t *out)
{
    pare_loader *s = user;
    for (int64_t i = 0; i < count; i++)
        out[i] = pare_sampler_at(s->sampler, position_of(s, first + i));
    return PARE_OK;
}

/* Of the positions from start on. */
static int64_t count_read(const pare_loader *s, int64_t positions)
{
    const int64_t rest = positions % s->every;
    return positions / s->every * s->batch + (rest < s->batch ? rest : s->batch);
}

/* Samples whose chunks are kept and mixed. A chunk of one sample is inflated for it alone in any
   order: then all are mixed and none kept. */
static void choose_window(const pare_data *data, const pare_loader_options *options,
                          int64_t *window, int64_t *keep)
{
    size_t bytes = options->window ? options->window : WINDOW_BYTES;
    size_t one = pare_data_stored_bytes(data);
    int64_t all = pare_data_count(data);
    int64_t fits = one && bytes / one < (size_t)all ? (int64_t)(bytes / one) : all;
    bool alone = pare_data_chunk_samples(data) == 1;
    *window = alone ? all : fits;
    *keep = alone ? 0 : fits;
}

static pare_status open_parts(pare_ctx *ctx, pare_loader *s, pare_data *data,
                              const pare_loader_options *options)
{
    pare_sampler_options sampler = {.seed = options->seed,
                                    .samples = options->samples,
                                    .count = options->count,
                                    .block = pare_data_chunk_samples(data)};
    pare_reader_plan plan = {
        .order = order, .user = s, .n = count_read(s, options->end - options->start)};
    choose_window(data, options, &sampler.window, &plan.keep);
    s->epoch = pare_alloc(ctx, (size_t)s->batch, sizeof *s->epoch);
    if (!s->epoch) return PARE_MEMORY;
    PARE_TRY(pare_sampler_new(ctx, &s->sampler, &sampler));
    return pare_reader_open_plan(ctx, &s->reader, data, &plan, s->batch, options->threads);
}

pare_status pare_loader_open(pare_ctx *ctx, pare_loader **out, pare_data *data,
                             const pare_loader_options *options)
{
    if (options->count < 1) return PARE_FAIL(ctx, USAGE, "no samples are left to train on");
    pare_loader *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    *s = (pare_loader){.start = options->start,
                       .count = options->count,
                       .batch = options->batch < 1 ? 1 : options->batch};
    s->every = options->every ? options->every : s->batch;
    pare_status st = open_parts(ctx, s, data, options);
    if (st == PARE_OK)
        *out = s;
    else
        pare_loader_close(s);
    return st;
}

pare_status pare_loader_next(pare_loader *s, pare_loader_batch *out)
{
    pare_batch b;
    *out = (pare_loader_batch){0};
    PARE_TRY(pare_reader_next(s->reader, &b));
    *out = (pare_loader_batch){.position = position_of(s, b.first),
                               .count = b.count,
                               .input = b.input,
                               .label = b.label,
                               .epoch = s->epoch,
                               .sample = b.sample};
    for (int i = 0; i < b.count; i++) s->epoch[i] = (out->position + i) / s->count;
    return PARE_OK;
}

pare_hash pare_loader_hash(const pare_loader *s) { return pare_reader_hash(s->reader); }

size_t pare_loader_bytes(const pare_loader *s)
{
    return sampler_bytes(s->sampler) + pare_reader_bytes(s->reader) +
           (size_t)s->batch * sizeof *s->epoch;
}

void pare_loader_close(pare_loader *s)
{
    if (!s) return;
    pare_reader_close(s->reader);
    pare_sampler_free(s->sampler);
    pare_free(s->epoch);
    pare_free(s);
}
