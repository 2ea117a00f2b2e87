/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's memory that belongs to a client, opened by the handle it has told. */
#ifndef PARE_TOOLS_SERVE_GPU_REGION_H
#define PARE_TOOLS_SERVE_GPU_REGION_H

#include "tools/serve/gpu/gpus.h"

typedef struct pare_gpu_region {
    pare_gpu *gpu;
    char *memory;        /* of the GPU */
    pare_stream *stream; /* of copies from and to the host */
} pare_gpu_region;

/* handle: of PARE_SHARING_HANDLE bytes. PARE_INPUT: it is of no memory of the GPU, or of less than
   so many bytes. After a failure, too, the region is to be closed. */
PARE_NODISCARD pare_status pare_gpu_region_open(pare_ctx *ctx, pare_gpu_region *out, pare_gpu *gpu,
                                                const void *handle, size_t bytes);
void pare_gpu_region_close(pare_gpu_region *region); /* one of zeros is fine */

/* For tensors that the host needs; any thread may call. PARE_IO with the GPU's words. */
PARE_NODISCARD pare_status pare_gpu_region_read(const pare_gpu_region *region, pare_ctx *ctx,
                                                void *to, int64_t offset, size_t bytes);
PARE_NODISCARD pare_status pare_gpu_region_write(const pare_gpu_region *region, pare_ctx *ctx,
                                                 const void *from, int64_t offset, size_t bytes);
#endif
