/* SPDX-License-Identifier: Apache-2.0 */
/* TensorRT's calibration cache, as its calibrators up to version 10 wrote it: a line that begins
   with "TRT-", then a line a tensor, its name, ": " and eight hexadecimal digits, the bits of an
   f32: its scale, a 127th of its largest magnitude. */
#ifndef PARE_FORMATS_TENSORRT_CACHE_H
#define PARE_FORMATS_TENSORRT_CACHE_H

#include "runtime/base/ctx.h"

typedef struct pare_tensorrt_cache {
    char **name;
    float *scale; /* finite, 0 or more */
    int count;
} pare_tensorrt_cache;

/* Does a file's content begin as one does? */
bool pare_is_tensorrt_cache(const char *text, size_t size);

/* PARE_INPUT names the line or the tensor; path is for messages. Free *out in any case. */
PARE_NODISCARD pare_status pare_tensorrt_cache_parse(pare_ctx *ctx, pare_tensorrt_cache *out,
                                                     const char *text, size_t size,
                                                     const char *path);
/* Writes and renames. version: 8601 for TensorRT 8.6.1. */
PARE_NODISCARD pare_status pare_tensorrt_cache_write(pare_ctx *ctx,
                                                     const pare_tensorrt_cache *cache,
                                                     int64_t version, const char *path);
void pare_tensorrt_cache_free(pare_tensorrt_cache *cache);
#endif
