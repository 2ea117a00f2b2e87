/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/gpu/gpu_region.h"

pare_status pare_gpu_region_open(pare_ctx *ctx, pare_gpu_region *out, pare_gpu *gpu,
                                 const void *handle, size_t bytes)
{
    void *memory;
    size_t has;
    pare_device *device = gpu->device;
    const pare_sharing_table *sharing = device->sharing;
    if (!sharing)
        return PARE_FAIL(ctx, UNSUPPORTED, "%s shares no memory between processes", device->name);
    out->gpu = gpu;
    PARE_TRY(sharing->open(ctx, device, &memory, &has, handle));
    out->memory = memory;
    if (bytes > has)
        return PARE_FAIL(ctx, INPUT, "the handle is of %zu bytes of memory, expected %zu", has,
                         bytes);
    return device->streams->open(ctx, device, &out->stream);
}

void pare_gpu_region_close(pare_gpu_region *r)
{
    if (!r->gpu) return;
    pare_device *device = r->gpu->device;
    if (r->stream) device->streams->close(r->stream);
    if (r->memory) device->sharing->close(device, r->memory);
    *r = (pare_gpu_region){0};
}

/* After a failure, too, no copy is at work on the host's memory. The region's GPU need not be the
   model's, which has not failed then. */
static pare_status finish(const pare_gpu_region *r, pare_ctx *ctx, pare_status st)
{
    pare_ctx quiet;
    pare_ctx_init(&quiet);
    const pare_backend *backend = r->gpu->device->backend;
    if (st == PARE_OK)
        st = backend->sync(ctx, r->stream);
    else
        (void)backend->sync(&quiet, r->stream);
    if (st == PARE_OK) return st;
    return pare_fail_prefix(ctx, PARE_IO, "shared memory of GPU %d", r->gpu->device->index);
}

pare_status pare_gpu_region_read(const pare_gpu_region *r, pare_ctx *ctx, void *to, int64_t offset,
                                 size_t bytes)
{
    if (!bytes) return PARE_OK;
    return finish(r, ctx,
                  r->gpu->device->backend->download(ctx, r->stream, to, r->memory + offset, bytes));
}

pare_status pare_gpu_region_write(const pare_gpu_region *r, pare_ctx *ctx, const void *from,
                                  int64_t offset, size_t bytes)
{
    if (!bytes) return PARE_OK;
    return finish(r, ctx,
                  r->gpu->device->backend->upload(ctx, r->stream, r->memory + offset, from, bytes));
}
