/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5 files as data sets need them (internal to formats/). The thread that opens a file is the
   only one that calls the HDF5 library, or has a child process call it; what was found (addresses
   of chunks, filters, fill value) lets any thread read afterwards with pread and zlib alone. */
#ifndef PARE_FORMATS_DATA_HDF5_H
#define PARE_FORMATS_DATA_HDF5_H

#include "runtime/base/ctx.h"
#include "runtime/base/types.h"
#include "runtime/graph/graph.h"

/* One stored chunk; size 0: never written, its elements have the fill value. */
typedef struct pare_h5_chunk {
    uint64_t address; /* in the file */
    uint32_t size;    /* as stored */
    uint32_t mask;    /* bit i: filter i was skipped for this chunk */
} pare_h5_chunk;

typedef struct pare_h5_helper pare_h5_helper;

typedef struct pare_h5_file {
    char *path;
    int fd;
    uint64_t size;
    int64_t id;             /* HDF5's handle; -1 where it is not needed any more */
    pare_h5_helper *helper; /* the child that calls HDF5; NULL: this process does */
} pare_h5_file;

/* Attributes that say how pixels are meant. */
typedef struct pare_h5_image {
    float *mean, *std; /* NULL where absent */
    int mean_count, std_count;
    char layout[16]; /* "" where absent */
} pare_h5_image;

/* One dataset. Axis 0 counts rows (samples). A group is all chunks that hold the same rows. */
typedef struct pare_h5_set {
    const pare_h5_file *file;
    char *name; /* "/input" */
    pare_dtype dtype;
    bool scalar; /* as stored; here it is a row */
    int rank;
    int64_t dim[PARE_MAX_RANK], chunk[PARE_MAX_RANK], grid[PARE_MAX_RANK];
    size_t element, row_bytes;                     /* bytes of one element, of one row */
    size_t chunk_bytes;                            /* of a whole chunk, inflated */
    int64_t group_rows, group_count, group_chunks; /* rows, groups, chunks in one group */
    pare_h5_chunk *chunks; /* (group_count * group_chunks); NULL where serial */
    bool contiguous;       /* chunks are plain runs of rows */
    bool serial;           /* only H5Dread can read it, in the opening thread */
    int deflate, shuffle;  /* place in the filter pipeline, -1 where absent */
    uint8_t fill[8];
    int64_t id, memory_type; /* HDF5's handles; -1 where closed */
    int number;              /* the helper's */
    pare_h5_image image;
} pare_h5_set;

/* Scratch memory of one thread that decodes chunks. */
typedef struct pare_h5_scratch {
    uint8_t *stored, *plain, *mixed;
    size_t stored_size, plain_size, mixed_size;
} pare_h5_scratch;

enum { PARE_H5_MAX_BYTES = 1 << 30 }; /* of one sample, one chunk and one group */

/* Opens a file to read; apart: a child process makes the HDF5 calls, and where it dies of them that
   is PARE_INPUT. PARE_IO: missing; PARE_INPUT: not HDF5, cut or damaged. */
PARE_NODISCARD pare_status pare_h5_open(pare_ctx *ctx, pare_h5_file *out, const char *path,
                                        bool apart);
/* Gives HDF5's handle or the child back; datasets that are not serial stay readable. */
void pare_h5_release(pare_h5_file *file);
void pare_h5_close(pare_h5_file *file);

/* Names of the datasets in the root group but /labels, joined by ", "; count is how many, first the
   first one's name. Both are the caller's. */
PARE_NODISCARD pare_status pare_h5_names(pare_ctx *ctx, const pare_h5_file *file, char **joined,
                                         char **first, int *count);
PARE_NODISCARD pare_status pare_h5_has(pare_ctx *ctx, const pare_h5_file *file, const char *name,
                                       bool *out);

/* Describes a dataset and lists its chunks, each checked against the file's size. */
PARE_NODISCARD pare_status pare_h5_set_open(pare_ctx *ctx, pare_h5_set *out,
                                            const pare_h5_file *file, const char *name);
void pare_h5_set_close(pare_h5_set *set);
/* Lists the chunks of a dataset that is not serial (part of pare_h5_set_open). */
PARE_NODISCARD pare_status pare_h5_list_chunks(pare_ctx *ctx, pare_h5_set *set);
/* Its parts, which need no HDF5: sizes of groups and grid from dim, chunk and element (false where
   a chunk or group passes 1 GiB), and the check of one chunk: size bytes at its address are in the
   file and can hold plain bytes. */
bool pare_h5_measure(pare_h5_set *set);
PARE_NODISCARD pare_status pare_h5_check_chunk(pare_ctx *ctx, const pare_h5_set *set,
                                               const pare_h5_chunk *c, uint64_t size, int64_t index,
                                               uint64_t plain);
/* Reads mean, std and layout (part of pare_h5_set_open). */
PARE_NODISCARD pare_status pare_h5_read_image(pare_ctx *ctx, pare_h5_set *set);

/* Decodes all rows of a group into out (group_rows * row_bytes; rows after the end are
   unspecified). Any thread, with a context and scratch of its own. */
PARE_NODISCARD pare_status pare_h5_read_group(pare_ctx *ctx, const pare_h5_set *set,
                                              pare_h5_scratch *scratch, int64_t group,
                                              uint8_t *out);
void pare_h5_scratch_free(pare_h5_scratch *scratch);

/* Reads count rows of a serial dataset; the opening thread only. */
PARE_NODISCARD pare_status pare_h5_read_rows(pare_ctx *ctx, const pare_h5_set *set, int64_t first,
                                             int64_t count, uint8_t *out);

/* hdf5_helper.c: the same questions, answered by the file's helper. */
PARE_NODISCARD pare_status pare_h5_open_here(pare_ctx *ctx, pare_h5_file *file);
PARE_NODISCARD pare_status pare_h5_helper_start(pare_ctx *ctx, pare_h5_file *file);
void pare_h5_helper_end(pare_h5_file *file); /* what it told stays */
void pare_h5_helper_free(pare_h5_file *file);
PARE_NODISCARD pare_status pare_h5_helper_names(pare_ctx *ctx, const pare_h5_file *file,
                                                char **joined, char **first, int *count);
PARE_NODISCARD pare_status pare_h5_helper_has(pare_ctx *ctx, const pare_h5_file *file,
                                              const char *name, bool *out);
PARE_NODISCARD pare_status pare_h5_helper_set(pare_ctx *ctx, pare_h5_set *out,
                                              const pare_h5_file *file, const char *name);
PARE_NODISCARD pare_status pare_h5_helper_rows(pare_ctx *ctx, const pare_h5_set *set, int64_t first,
                                               int64_t count, uint8_t *out);

#endif
