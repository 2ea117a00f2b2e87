/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a training run: one file with named memory (weights, moments, statistics,
   counters, the best so far) and the facts that say which run it belongs to. A checkpoint is
   replaced whole: written without a name, flushed to disk, renamed over the old one; whatever
   happens, the old or the new one is there.

   The file, little-endian, is a head, then the blobs' bytes, one after the other:
     "PARECKPT"
     u32 version (1), u32 facts, u32 blobs, u32 zero
     u64 bytes of the head without its hash, u64 bytes of the file
     each fact: u32, u32 lengths of name and value; name; value
     each blob: u32 length of name, u32 zero, u64 bytes, 16 bytes XXH3-128 of them; name
     16 bytes XXH3-128 of the head so far */
#ifndef PARE_DISTILL_CHECKPOINT_H
#define PARE_DISTILL_CHECKPOINT_H

#include "formats/file.h"

/* What must be equal for a run to continue from a checkpoint: hashes of the models and the data,
   options that reach a weight, kernels, instruction set. The value is for people, too. */
typedef struct pare_checkpoint_fact {
    const char *name, *value;
} pare_checkpoint_fact;

/* Memory that is written from, or read back into. Names are different. */
typedef struct pare_checkpoint_blob {
    const char *name;
    void *data;
    size_t bytes;
} pare_checkpoint_blob;

typedef struct pare_checkpoint {
    const pare_checkpoint_fact *fact;
    int fact_count;
    const pare_checkpoint_blob *blob;
    int blob_count;
} pare_checkpoint;

/* Writes, also where a stop was asked for (pare_ctx_poll): then it is wanted most. PARE_IO (disk
   full, no permission): the message names the file, the old one is as it was and nothing is
   beside it, so that a run may warn, pare_ctx_clear and continue. */
PARE_NODISCARD pare_status pare_checkpoint_write(pare_ctx *ctx, const char *path,
                                                 const pare_checkpoint *checkpoint);

/* The same of blobs whose bytes come in pieces, in their order; their data are not read. */
typedef struct pare_checkpoint_writer pare_checkpoint_writer;
PARE_NODISCARD pare_status pare_checkpoint_begin(pare_ctx *ctx, pare_checkpoint_writer **out,
                                                 const char *path,
                                                 const pare_checkpoint *checkpoint);
/* The next bytes, of one blob. After a failure, which the end tells, it does nothing. */
void pare_checkpoint_put(pare_checkpoint_writer *writer, const void *data, size_t bytes);
/* Frees the writer. status: of the caller's work; a failure becomes the result, and the old file is
   as it was. */
PARE_NODISCARD pare_status pare_checkpoint_end(pare_checkpoint_writer *writer, pare_status status);

/* Reads into the blobs' memory once everything has been checked; else none of it is touched.
   PARE_IO: cannot be opened. PARE_INPUT, naming file and difference: no checkpoint, another version
   of the format, cut, damaged, a fact or a blob that is not this run's. */
PARE_NODISCARD pare_status pare_checkpoint_read(pare_ctx *ctx, const char *path,
                                                const pare_checkpoint *checkpoint);
/* Checks as much and reads nothing: *blobs are the bytes of all of them in the map, which the
   caller closes. */
PARE_NODISCARD pare_status pare_checkpoint_open(pare_ctx *ctx, pare_map *map, const uint8_t **blobs,
                                                const char *path,
                                                const pare_checkpoint *checkpoint);
/* pare_checkpoint_read of a file's content in memory; path: for messages. */
PARE_NODISCARD pare_status pare_checkpoint_parse(pare_ctx *ctx, const char *path, const void *data,
                                                 size_t size, const pare_checkpoint *checkpoint);
#endif
