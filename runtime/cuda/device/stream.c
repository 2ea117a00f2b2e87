/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, pinned memory, graphs and events. The current GPU is a property of the calling thread,
   so each entry that makes something sets it first. */
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/device/dependent.h"
#include "runtime/cuda/device/device_parts.h"
#include "runtime/cuda/device/error.h"

struct cuda_stream {
    pare_stream stream; /* first */
    cudaStream_t handle;
    pare_cuda_stream_blas blas;
    pare_cuda_stream_dnn dnn;
};

struct pare_captured_graph {
    cudaGraphExec_t exec;
};

struct pare_event {
    cudaEvent_t event;
};

cudaStream_t pare_cuda_stream(const pare_stream *stream)
{
    return ((const struct cuda_stream *)stream)->handle;
}

pare_cuda_stream_blas *pare_cuda_stream_blas_of(pare_stream *stream)
{
    return &((struct cuda_stream *)stream)->blas;
}

pare_cuda_stream_dnn *pare_cuda_stream_dnn_of(pare_stream *stream)
{
    return &((struct cuda_stream *)stream)->dnn;
}

static pare_status stream_open(pare_ctx *ctx, pare_device *device, pare_stream **out)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(device->index));
    struct cuda_stream *q = pare_alloc(ctx, 1, sizeof *q);
    if (!q) return PARE_MEMORY;
    q->stream.device = device;
    cudaError_t error = cudaStreamCreateWithFlags(&q->handle, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        pare_free(q);
        return pare_cuda_fail(ctx, error, "cudaStreamCreateWithFlags");
    }
    *out = &q->stream;
    return PARE_OK;
}

static void stream_close(pare_stream *stream)
{
    pare_cuda_stream_blas_close(stream->device, pare_cuda_stream_blas_of(stream));
    pare_cuda_stream_dnn_close(pare_cuda_stream_dnn_of(stream));
    (void)cudaStreamDestroy(pare_cuda_stream(stream));
    pare_free(stream);
}

static pare_status stream_enter(pare_ctx *ctx, pare_device *device)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(device->index));
    return PARE_OK;
}

static pare_status stream_pin(pare_ctx *ctx, pare_device *device, void **out, size_t bytes)
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

static void stream_unpin(pare_device *device, void *memory)
{
    (void)device;
    (void)cudaFreeHost(memory);
}

static pare_status capture_begin(pare_ctx *ctx, pare_stream *stream)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(stream->device->index));
    PARE_CUDA_TRY(
        ctx, cudaStreamBeginCapture(pare_cuda_stream(stream), cudaStreamCaptureModeThreadLocal));
    pare_cuda_capture_begins();
    return PARE_OK;
}

static pare_status capture_end(pare_ctx *ctx, pare_stream *stream, pare_captured_graph **out)
{
    cudaGraph_t graph = NULL;
    PARE_CUDA_TRY(ctx, cudaStreamEndCapture(pare_cuda_stream(stream), &graph));
    pare_captured_graph *r = pare_alloc(ctx, 1, sizeof *r);
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

static pare_status graph_launch(pare_ctx *ctx, pare_stream *stream, pare_captured_graph *captured)
{
    PARE_CUDA_TRY(ctx, cudaGraphLaunch(captured->exec, pare_cuda_stream(stream)));
    return PARE_OK;
}

static void drop(pare_captured_graph *captured)
{
    (void)cudaGraphExecDestroy(captured->exec);
    pare_free(captured);
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

static pare_status event_mark(pare_ctx *ctx, pare_stream *stream, pare_event *event)
{
    PARE_CUDA_TRY(ctx, cudaEventRecord(event->event, pare_cuda_stream(stream)));
    return PARE_OK;
}

static pare_status event_wait(pare_ctx *ctx, pare_stream *stream, pare_event *event)
{
    PARE_CUDA_TRY(ctx, cudaStreamWaitEvent(pare_cuda_stream(stream), event->event, 0));
    pare_cuda_stream_joins(pare_cuda_stream(stream));
    return PARE_OK;
}

static pare_status event_sync(pare_ctx *ctx, pare_event *event)
{
    PARE_CUDA_TRY(ctx, cudaEventSynchronize(event->event));
    return PARE_OK;
}

static pare_status event_seconds(pare_ctx *ctx, pare_event *from, pare_event *to, double *out)
{
    float ms;
    PARE_CUDA_TRY(ctx, cudaEventElapsedTime(&ms, from->event, to->event));
    *out = (double)ms * 1e-3;
    return PARE_OK;
}

const pare_stream_table pare_cuda_streams = {.open = stream_open,
                                             .close = stream_close,
                                             .enter = stream_enter,
                                             .pin = stream_pin,
                                             .unpin = stream_unpin,
                                             .capture_begin = capture_begin,
                                             .capture_end = capture_end,
                                             .graph_launch = graph_launch,
                                             .drop = drop,
                                             .event_open = event_open,
                                             .event_close = event_close,
                                             .event_mark = event_mark,
                                             .event_wait = event_wait,
                                             .event_sync = event_sync,
                                             .event_seconds = event_seconds,
                                             .range_begin = pare_cuda_range_begin,
                                             .range_end = pare_cuda_range_end};
