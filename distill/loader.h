/* SPDX-License-Identifier: Apache-2.0 */
/* Training batches: the samples of positions start, start + 1, ... in the sampler's order, decoded
   ahead on threads of their own. What a position holds does not depend on batch, start or threads,
   so a run that was cut off continues at its position. */
#ifndef PARE_DISTILL_LOADER_H
#define PARE_DISTILL_LOADER_H

#include "formats/data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_loader pare_loader;

typedef struct pare_loader_options {
    uint64_t seed;
    const int64_t *samples; /* (count), different indices into the data in any order; copied */
    int64_t count;
    int64_t start, end; /* positions [start, end) are read */
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

#ifdef __cplusplus
}
#endif
#endif
