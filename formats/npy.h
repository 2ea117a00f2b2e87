/* SPDX-License-Identifier: Apache-2.0 */
/* NPY files (numpy.lib.format 1.0 to 3.0): one row-major array each. Types: bool, integers of 8 to
   64 bits, f16, f32, f64; big-endian files are swapped while reading. */
#ifndef PARE_FORMATS_NPY_H
#define PARE_FORMATS_NPY_H

#include "runtime/base/ctx.h"
#include "runtime/base/types.h"
#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open file, read piece by piece. */
typedef struct pare_npy {
    char *path;
    int fd;
    pare_dtype dtype;
    int rank;
    int64_t dim[PARE_MAX_RANK], count;
    uint64_t offset; /* of the data */
    bool swap;
} pare_npy;

/* PARE_INPUT: not NPY, cut, Fortran order, a type without a number format of ours. */
PARE_NODISCARD pare_status pare_npy_open(pare_ctx *ctx, pare_npy *out, const char *path);
/* Elements first .. first + count, in our byte order. */
PARE_NODISCARD pare_status pare_npy_read(pare_ctx *ctx, const pare_npy *npy, int64_t first,
                                         int64_t count, void *out);
void pare_npy_close(pare_npy *npy);

/* A whole file; *data is the caller's (pare_free). */
PARE_NODISCARD pare_status pare_npy_load(pare_ctx *ctx, const char *path, pare_dtype *dtype,
                                         pare_shape *shape, void **data);

/* Writes and renames. bf16, which NumPy lacks, is written as f32. */
PARE_NODISCARD pare_status pare_npy_save(pare_ctx *ctx, const char *path, pare_dtype dtype,
                                         const pare_shape *shape, const void *data);

#ifdef __cplusplus
}
#endif
#endif
