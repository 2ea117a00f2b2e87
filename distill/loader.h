/* SPDX-License-Identifier: Apache-2.0 */
/* Training batches: the samples of positions start, start + 1, ... in the sampler's order, decoded
   ahead on threads of their own. What a position holds does not depend on batch, start or threads,
   so a run that was cut off continues at its position. */
#ifndef PARE_DISTILL_LOADER_H
#define PARE_DISTILL_LOADER_H

#include "formats/data.h"
#include "runtime/base/random.h"

/* --- random numbers --- */

/* Numbers are a function of a key alone: they start at a mix of its parts. Use: what they are for;
   equal seeds, epochs and samples give others for each. */
typedef enum pare_random_use {
    PARE_RANDOM_BLOCKS,
    PARE_RANDOM_WINDOW,
    PARE_RANDOM_AUGMENT,
    PARE_RANDOM_MIX
} pare_random_use;

static inline pare_random pare_random_of(uint64_t seed, pare_random_use use, int64_t epoch,
                                         int64_t item)
{
    pare_random r = {seed};
    r.state = pare_random_next(&r) ^ (uint64_t)use;
    r.state = pare_random_next(&r) ^ (uint64_t)epoch;
    r.state = pare_random_next(&r) ^ (uint64_t)item;
    r.state = pare_random_next(&r);
    return r;
}

/* --- the order of samples --- */

/* Epoch after epoch, each a permutation of the same samples, so that position p is in epoch
   p / count. Which sample it is depends on seed, epoch, position, the set of samples, block and
   window alone.

   Chunks of a data set hold many samples and are inflated whole, so an order that jumps freely
   inflates a chunk for nearly every sample. Here the chunks are permuted, a window is as many of
   them as one may keep inflated, and the samples of a window are permuted: each chunk is inflated
   once an epoch. Windows share the chunks evenly; a window that holds all is a free permutation. */
typedef struct pare_sampler pare_sampler;

typedef struct pare_sampler_options {
    uint64_t seed;
    const int64_t *samples; /* (count), different ones >= 0 in any order; copied */
    int64_t count;          /* at least 1 */
    int64_t block;          /* neighbours i / block are in one chunk */
    int64_t window;         /* samples of whole chunks in one window; at least one chunk */
} pare_sampler_options;

PARE_NODISCARD pare_status pare_sampler_new(pare_ctx *ctx, pare_sampler **out,
                                            const pare_sampler_options *options);
void pare_sampler_free(pare_sampler *sampler); /* NULL is allowed */

/* The sample at a position >= 0. Any order; neighbours are cheap, a jump costs time in proportion
   to chunks and window. One thread at a time. */
int64_t pare_sampler_at(pare_sampler *sampler, int64_t position);

/* --- batches --- */

typedef struct pare_loader pare_loader;

typedef struct pare_loader_options {
    uint64_t seed;
    const int64_t *samples; /* (count), different indices into the data in any order; copied */
    int64_t count;
    int64_t start, end; /* positions of [start, end) are read: */
    int64_t every;      /* a batch begins so many positions after the one before; 0: batch. Where
                           it is more, what is between two is not read. */
    int batch, threads;
    size_t window; /* bytes of inflated chunks among which samples are mixed and which are kept in
                      memory; part of what decides the order. 0: 256 MiB */
} pare_loader_options;

typedef struct pare_loader_batch {
    int64_t position;      /* of its first sample */
    int count;             /* batch; fewer in the last; 0 after the last */
    void *const *input;    /* one dense block for each of the data's inputs, as pare_reader_next */
    const int64_t *label;  /* (count), or NULL */
    const int64_t *epoch;  /* (count) */
    const int64_t *sample; /* (count): indices into the data */
} pare_loader_batch;

/* PARE_USAGE: no samples, an index that the data has not. */
PARE_NODISCARD pare_status pare_loader_open(pare_ctx *ctx, pare_loader **out, pare_data *data,
                                            const pare_loader_options *options);
/* The next batch, valid until the following call. */
PARE_NODISCARD pare_status pare_loader_next(pare_loader *stream, pare_loader_batch *out);
/* Hash of what was handed out so far, whatever its order; of parts of a run: pare_hash_sum. */
pare_hash pare_loader_hash(const pare_loader *stream);
/* Most memory it takes. */
size_t pare_loader_bytes(const pare_loader *stream);
void pare_loader_close(pare_loader *stream); /* NULL is allowed */

#endif
