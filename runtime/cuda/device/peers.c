/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between GPUs. Memory of a pool is reached by other GPUs where the pool was opened to them:
   then a copy crosses the link between the two; else the driver takes it through the host. Which it
   is, is found out, and said, once for each pair: who opens the same memory twice does so in one
   thread at a time. */
#include "runtime/cuda/device/device_parts.h"
#include "runtime/cuda/device/error.h"

#include <string.h>

static pare_status open_pool(pare_ctx *ctx, const pare_device *to, const pare_device *from)
{
    int reaches = 0;
    struct cudaMemAccessDesc access;
    PARE_CUDA_TRY(ctx, cudaDeviceCanAccessPeer(&reaches, from->index, to->index));
    if (!reaches) {
        pare_log(ctx, PARE_LOG_INFO,
                 "GPU %d does not reach the memory of GPU %d: copies go by the host", from->index,
                 to->index);
        return PARE_OK;
    }
    memset(&access, 0, sizeof access);
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = from->index;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    PARE_CUDA_TRY(ctx, cudaMemPoolSetAccess(pare_cuda_device_pool(to), &access, 1));
    return PARE_OK;
}

static pare_status peers_open(pare_ctx *ctx, pare_device *to, const pare_device *from)
{
    uint64_t *known = pare_cuda_device_peers(to);
    const uint64_t own = from->index < 64 ? UINT64_C(1) << from->index : 0;
    if (to->index == from->index || *known & own) return PARE_OK;
    PARE_TRY(open_pool(ctx, to, from));
    *known |= own;
    return PARE_OK;
}

static pare_status peers_copy(pare_ctx *ctx, pare_stream *stream, const pare_device *to, void *dst,
                              const void *src, size_t bytes)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(stream->device->index));
    PARE_CUDA_TRY(ctx, cudaMemcpyPeerAsync(dst, to->index, src, stream->device->index, bytes,
                                           pare_cuda_stream(stream)));
    return PARE_OK;
}

const pare_peer_table pare_cuda_peers = {.open = peers_open, .copy = peers_copy};
