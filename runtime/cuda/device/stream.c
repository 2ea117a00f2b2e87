/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, pinned memory, graphs and events. The current GPU is a property of the calling thread,
   so each entry that makes something sets it first. */
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/device/device_parts.h"
#include "runtime/cuda/device/error.h"

struct cuda_queue {
    pare_queue queue; /* first */
    cudaStream_t stream;
    pare_cuda_queue_blas blas;
};

struct pare_recording {
    cudaGraphExec_t exec;
};

struct pare_event {
    cudaEvent_t event;
};

cudaStream_t pare_cuda_stream(const pare_queue *queue)
{
    return ((const struct cuda_queue *)queue)->stream;
}

pare_cuda_queue_blas *pare_cuda_queue_blas_of(pare_queue *queue)
{
    return &((struct cuda_queue *)queue)->blas;
}

static pare_status queue_open(pare_ctx *ctx, pare_device *device, pare_queue **out)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(device->index));
    struct cuda_queue *q = pare_alloc(ctx, 1, sizeof *q);
    if (!q) return PARE_MEMORY;
    q->queue.device = device;
    cudaError_t error = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        pare_free(q);
        return pare_cuda_fail(ctx, error, "cudaStreamCreateWithFlags");
    }
    *out = &q->queue;
    return PARE_OK;
}

static void queue_close(pare_queue *queue)
{
    pare_cuda_queue_blas_close(queue->device, pare_cuda_queue_blas_of(queue));
    (void)cudaStreamDestroy(pare_cuda_stream(queue));
    pare_free(queue);
}

static pare_status queue_pin(pare_ctx *ctx, pare_device *device, void **out, size_t bytes)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(device->index));
    cudaError_t error = cudaMallocHost(out, bytes ? bytes : 1);
    if (error == cudaSuccess) return PARE_OK;
    *out = NULL;
    if (error != cudaErrorMemoryAllocation) return pare_cuda_fail(ctx, error, "cudaMallocHost");
    (void)cudaGetLastError();
    return PARE_FAIL(ctx, MEMORY, "out of pinned memory: %zu bytes of the host's were not granted",
                     bytes);
}

static void queue_unpin(pare_device *device, void *memory)
{
    (void)device;
    (void)cudaFreeHost(memory);
}

static pare_status record_begin(pare_ctx *ctx, pare_queue *queue)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(queue->device->index));
    PARE_CUDA_TRY(
        ctx, cudaStreamBeginCapture(pare_cuda_stream(queue), cudaStreamCaptureModeThreadLocal));
    return PARE_OK;
}

static pare_status record_end(pare_ctx *ctx, pare_queue *queue, pare_recording **out)
{
    cudaGraph_t graph = NULL;
    PARE_CUDA_TRY(ctx, cudaStreamEndCapture(pare_cuda_stream(queue), &graph));
    pare_recording *r = pare_alloc(ctx, 1, sizeof *r);
    cudaError_t error = r ? cudaGraphInstantiate(&r->exec, graph, 0) : cudaSuccess;
    (void)cudaGraphDestroy(graph);
    if (!r) return PARE_MEMORY;
    if (error != cudaSuccess) {
        pare_free(r);
        return pare_cuda_fail(ctx, error, "cudaGraphInstantiate");
    }
    *out = r;
    return PARE_OK;
}

static pare_status play(pare_ctx *ctx, pare_queue *queue, pare_recording *recording)
{
    PARE_CUDA_TRY(ctx, cudaGraphLaunch(recording->exec, pare_cuda_stream(queue)));
    return PARE_OK;
}

static void drop(pare_recording *recording)
{
    (void)cudaGraphExecDestroy(recording->exec);
    pare_free(recording);
}

static pare_status event_open(pare_ctx *ctx, pare_device *device, pare_event **out)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(device->index));
    pare_event *e = pare_alloc(ctx, 1, sizeof *e);
    if (!e) return PARE_MEMORY;
    cudaError_t error = cudaEventCreate(&e->event);
    if (error != cudaSuccess) {
        pare_free(e);
        return pare_cuda_fail(ctx, error, "cudaEventCreate");
    }
    *out = e;
    return PARE_OK;
}

static void event_close(pare_event *event)
{
    (void)cudaEventDestroy(event->event);
    pare_free(event);
}

static pare_status event_mark(pare_ctx *ctx, pare_queue *queue, pare_event *event)
{
    PARE_CUDA_TRY(ctx, cudaEventRecord(event->event, pare_cuda_stream(queue)));
    return PARE_OK;
}

static pare_status event_wait(pare_ctx *ctx, pare_queue *queue, pare_event *event)
{
    PARE_CUDA_TRY(ctx, cudaStreamWaitEvent(pare_cuda_stream(queue), event->event, 0));
    return PARE_OK;
}

static pare_status event_seconds(pare_ctx *ctx, pare_event *from, pare_event *to, double *out)
{
    float ms;
    PARE_CUDA_TRY(ctx, cudaEventElapsedTime(&ms, from->event, to->event));
    *out = (double)ms * 1e-3;
    return PARE_OK;
}

const pare_queue_table pare_cuda_queues = {.open = queue_open,
                                           .close = queue_close,
                                           .pin = queue_pin,
                                           .unpin = queue_unpin,
                                           .record_begin = record_begin,
                                           .record_end = record_end,
                                           .play = play,
                                           .drop = drop,
                                           .event_open = event_open,
                                           .event_close = event_close,
                                           .event_mark = event_mark,
                                           .event_wait = event_wait,
                                           .event_seconds = event_seconds,
                                           .range_begin = pare_cuda_range_begin,
                                           .range_end = pare_cuda_range_end};
