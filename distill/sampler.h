/* SPDX-License-Identifier: Apache-2.0 */
/* The order of training samples: epoch after epoch, each a permutation of the same samples, so that
   position p is in epoch p / count. Which sample it is depends on seed, epoch, position, the set
   of samples, block and window alone.

   Chunks of a data set hold many samples and are inflated whole, so an order that jumps freely
   inflates a chunk for nearly every sample. Here the chunks are permuted, a window is as many of
   them as one may keep inflated, and the samples of a window are permuted: each chunk is inflated
   once an epoch. Windows share the chunks evenly; a window that holds all is a free permutation. */
#ifndef PARE_DISTILL_SAMPLER_H
#define PARE_DISTILL_SAMPLER_H

#include "runtime/base/ctx.h"

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

size_t pare_sampler_bytes(const pare_sampler *sampler);
#endif
