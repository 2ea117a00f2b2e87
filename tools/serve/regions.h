/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of shared memory that clients of this machine have registered: tensors go through them in
   place of a request's body. POSIX shared memory is read and written by system calls, not mapped: a
   client that makes its memory smaller fails its own request and nothing else. A GPU's memory is
   opened by a handle of CUDA's. No two regions have one name. */
#ifndef PARE_TOOLS_SERVE_REGIONS_H
#define PARE_TOOLS_SERVE_REGIONS_H

#include "runtime/base/ctx.h"
#include "tools/serve/gpu/gpus.h"

#include <jansson.h>
#include <pthread.h>

typedef struct pare_region pare_region;
typedef enum pare_region_kind { PARE_REGION_SYSTEM, PARE_REGION_CUDA } pare_region_kind;
typedef struct pare_regions {
    pthread_mutex_t lock;
    pare_region *first;
    bool has_system; /* POSIX shared memory may be registered */
    pare_gpus *gpus; /* and memory of these; NULL: no GPU's */
} pare_regions;

/* Of system regions; who wants others says so. */
void pare_regions_init(pare_regions *regions);
void pare_regions_free(pare_regions *regions);

/* Bytes from offset on of the shared memory object `key`. PARE_INPUT: there is a region of this
   name, no such object, or it is smaller. */
PARE_NODISCARD pare_status pare_regions_add(pare_regions *regions, pare_ctx *ctx, const char *name,
                                            const char *key, int64_t offset, int64_t bytes);
/* So many bytes of the memory whose handle, of PARE_SHARING_HANDLE bytes, a client was given on GPU
   `device`. PARE_INPUT: there is a region of this name, no model is served on the GPU, the handle
   is of no memory of it, or that is smaller. */
PARE_NODISCARD pare_status pare_regions_add_cuda(pare_regions *regions, pare_ctx *ctx,
                                                 const char *name, const void *handle,
                                                 int64_t device, int64_t bytes);
/* name NULL: all of the kind. Requests that use a region go on. */
void pare_regions_remove(pare_regions *regions, pare_region_kind kind, const char *name);
/* What is registered; name NULL: all of the kind. NULL: there is no such region of this name, or
   memory is out. */
json_t *pare_regions_json(pare_regions *regions, pare_region_kind kind, const char *name);

/* A reference to the region that holds so many bytes from offset on. PARE_INPUT: there is none, or
   it ends before. */
PARE_NODISCARD pare_status pare_regions_find(pare_regions *regions, pare_ctx *ctx,
                                             pare_region **out, const char *name, int64_t offset,
                                             int64_t bytes);
void pare_region_release(pare_region *region);
/* Where the byte is in the memory of this GPU; NULL: the region is elsewhere. */
void *pare_region_there(const pare_region *region, const pare_gpu *gpu, int64_t offset);
/* Within what pare_regions_find was asked for. PARE_INPUT: the memory has become smaller. PARE_IO:
   a GPU failed to copy. */
PARE_NODISCARD pare_status pare_region_read(const pare_region *region, pare_ctx *ctx, void *to,
                                            int64_t offset, size_t bytes);
PARE_NODISCARD pare_status pare_region_write(const pare_region *region, pare_ctx *ctx,
                                             const void *from, int64_t offset, size_t bytes);
#endif
