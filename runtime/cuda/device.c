/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a GPU and its memory. All memory comes from one stream-ordered pool that keeps what it was
   given, so that plans made one after the other do not pay the driver twice. Memory is asked for and
   returned while plans and runners are made and freed, never inside a run; both wait for the device. */
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/error.h"
#include "runtime/cuda/queue.h"

#include <stdio.h>
#include <string.h>

typedef struct cuda_device {
    pare_device device; /* first */
    cudaMemPool_t pool;
} cuda_device;

int pare_cuda_count(char *why, size_t bytes)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (why && bytes) snprintf(why, bytes, "%s", error ? cudaGetErrorString(error) : "");
    if (error == cudaSuccess) return count;
    (void)cudaGetLastError();
    return 0;
}

static pare_status pool_new(pare_ctx *ctx, cuda_device *d, size_t limit)
{
    struct cudaMemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = d->device.index;
    props.maxSize = limit;
    PARE_CUDA_TRY(ctx, cudaMemPoolCreate(&d->pool, &props));
    unsigned long long keep = ~0ull;
    PARE_CUDA_TRY(ctx, cudaMemPoolSetAttribute(d->pool, cudaMemPoolAttrReleaseThreshold, &keep));
    return PARE_OK;
}

static void device_close(pare_device *device)
{
    cuda_device *d = (cuda_device *)device;
    if (device->setup) pare_cuda_queues.close(device->setup);
    if (d->pool) (void)cudaMemPoolDestroy(d->pool);
    pare_free(d);
}

static pare_status device_fill(pare_ctx *ctx, cuda_device *d, size_t limit)
{
    struct cudaDeviceProp facts;
    PARE_CUDA_TRY(ctx, cudaSetDevice(d->device.index));
    PARE_CUDA_TRY(ctx, cudaGetDeviceProperties(&facts, d->device.index));
    snprintf(d->device.name, sizeof d->device.name, "%.200s (sm_%d%d)", facts.name, facts.major,
             facts.minor);
    d->device.memory_bytes = limit ? limit : facts.totalGlobalMem;
    PARE_TRY(pool_new(ctx, d, limit));
    return pare_cuda_queues.open(ctx, &d->device, &d->device.setup);
}

pare_status pare_cuda_open(pare_ctx *ctx, pare_device **out, int index, size_t memory_limit)
{
    int count = 0;
    PARE_CUDA_TRY(ctx, cudaGetDeviceCount(&count));
    if (index < 0 || index >= count)
        return PARE_FAIL(ctx, DEVICE, "GPU %d does not exist: this machine has %d (cuda:0 to cuda:%d)",
                         index, count, count - 1);
    cuda_device *d = pare_alloc(ctx, 1, sizeof *d);
    if (!d) return PARE_MEMORY;
    d->device.backend = &pare_cuda_backend;
    d->device.queues = &pare_cuda_queues;
    d->device.index = index;
    pare_status st = device_fill(ctx, d, memory_limit);
    if (st != PARE_OK) {
        device_close(&d->device);
        return st;
    }
    *out = &d->device;
    return PARE_OK;
}

static pare_status open_whole(pare_ctx *ctx, pare_device **out, int index)
{
    return pare_cuda_open(ctx, out, index, 0);
}

static pare_status device_alloc(pare_ctx *ctx, pare_device *device, void **out, size_t bytes)
{
    cudaStream_t stream = pare_cuda_stream(device->setup);
    PARE_CUDA_TRY(ctx, cudaSetDevice(device->index));
    cudaError_t error = cudaMallocFromPoolAsync(out, bytes ? bytes : 1,
                                                ((cuda_device *)device)->pool, stream);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return PARE_FAIL(ctx, MEMORY, "%s: %zu bytes were not granted of %zu; a smaller --batch needs "
                                      "less memory", device->name, bytes, device->memory_bytes);
    }
    if (error != cudaSuccess) return pare_cuda_fail(ctx, error, "cudaMallocFromPoolAsync");
    error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess) return PARE_OK;
    (void)cudaFreeAsync(*out, stream);
    return pare_cuda_fail(ctx, error, "cudaStreamSynchronize");
}

static void device_free(pare_device *device, void *memory)
{
    if (!memory) return;
    (void)cudaSetDevice(device->index);
    (void)cudaDeviceSynchronize(); /* a run that failed half way may still be at work on it */
    (void)cudaFreeAsync(memory, pare_cuda_stream(device->setup));
}

static pare_status upload(pare_ctx *ctx, pare_queue *queue, void *dst, const void *src, size_t bytes)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(queue->device->index));
    PARE_CUDA_TRY(ctx, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice,
                                       pare_cuda_stream(queue)));
    return PARE_OK;
}

static pare_status download(pare_ctx *ctx, pare_queue *queue, void *dst, const void *src,
                            size_t bytes)
{
    PARE_CUDA_TRY(ctx, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost,
                                       pare_cuda_stream(queue)));
    return PARE_OK;
}

static pare_status fill(pare_ctx *ctx, pare_queue *queue, void *dst, int byte, size_t bytes)
{
    PARE_CUDA_TRY(ctx, cudaMemsetAsync(dst, byte, bytes, pare_cuda_stream(queue)));
    return PARE_OK;
}

static pare_status sync(pare_ctx *ctx, pare_queue *queue)
{
    PARE_CUDA_TRY(ctx, cudaStreamSynchronize(pare_cuda_stream(queue)));
    return PARE_OK;
}

const pare_backend pare_cuda_backend = {.name = "cuda",
                                        .open = open_whole,
                                        .close = device_close,
                                        .alloc = device_alloc,
                                        .free = device_free,
                                        .upload = upload,
                                        .download = download,
                                        .fill = fill,
                                        .sync = sync};
