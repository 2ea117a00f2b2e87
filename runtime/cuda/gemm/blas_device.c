/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/gemm/blas_device.h"
#include "runtime/cuda/device/device_parts.h"
#include "runtime/cuda/device/error.h"

static const char *words(int code)
{
    switch (code) {
    case PARE_BLAS_NOT_INITIALIZED: return "not initialized";
    case PARE_BLAS_ALLOC_FAILED: return "no memory was left";
    case PARE_BLAS_INVALID_VALUE: return "invalid value";
    case PARE_BLAS_EXECUTION_FAILED: return "the GPU failed to run it";
    case PARE_BLAS_INTERNAL_ERROR: return "internal error";
    case PARE_BLAS_NOT_SUPPORTED: return "not supported";
    default: return "failed";
    }
}

pare_status pare_cuda_blas_status(pare_ctx *ctx, const pare_node *node, int code, const char *call)
{
    if (code == PARE_BLAS_SUCCESS) return PARE_OK;
    pare_status st = code == PARE_BLAS_ALLOC_FAILED
                         ? PARE_FAIL(ctx, MEMORY, "%s: %s", call, words(code))
                         : PARE_FAIL(ctx, DEVICE, "%s: %s (status %d)", call, words(code), code);
    return node ? pare_fail_prefix(ctx, st, "node '%s' (%s)", node->name, node->op_type) : st;
}

static pare_status open_all(pare_ctx *ctx, pare_cuda_blas *b)
{
    PARE_TRY(pare_blas_open(ctx, &b->library, NULL));
    b->api = &b->library->api;
    return pare_cuda_blas_status(ctx, NULL, b->api->lt_create(&b->lt), "cublasLtCreate");
}

pare_cuda_blas *pare_cuda_blas_find(pare_ctx *ctx, pare_device *device)
{
    pare_cuda_blas_slot *slot = pare_cuda_device_blas(device);
    if (slot->looked) return slot->blas;
    slot->looked = true;
    pare_cuda_blas *b = pare_alloc(ctx, 1, sizeof *b);
    pare_status st = b ? open_all(ctx, b) : PARE_MEMORY;
    if (st == PARE_OK) return slot->blas = b;
    pare_log(ctx, PARE_LOG_INFO, "without cuBLAS, matrix products run on our own kernels: %s",
             ctx->message);
    pare_ctx_clear(ctx);
    pare_cuda_blas_close(b);
    return NULL;
}

void pare_cuda_blas_close(pare_cuda_blas *b)
{
    if (!b) return;
    pare_lt_answers_free(b->answers);
    if (b->lt) (void)b->api->lt_destroy(b->lt);
    pare_blas_close(b->library);
    pare_free(b);
}

/* The mode allows no TF32: a product says itself what it is computed in. */
static pare_status handle_set(pare_ctx *ctx, const pare_blas_api *api, pare_stream *stream,
                              pare_cuda_stream_blas *q)
{
    const pare_backend *backend = stream->device->backend;
    PARE_TRY(backend->alloc(ctx, stream->device, &q->workspace, PARE_CUDA_WORKSPACE));
    PARE_TRY(pare_cuda_blas_status(ctx, NULL, api->blas_create(&q->handle), "cublasCreate"));
    PARE_TRY(pare_cuda_blas_status(
        ctx, NULL, api->blas_set_stream(q->handle, pare_cuda_stream(stream)), "cublasSetStream"));
    PARE_TRY(pare_cuda_blas_status(
        ctx, NULL, api->blas_set_workspace(q->handle, q->workspace, PARE_CUDA_WORKSPACE),
        "cublasSetWorkspace"));
    PARE_TRY(pare_cuda_blas_status(ctx, NULL, api->blas_set_math(q->handle, PARE_BLAS_MATH_DEFAULT),
                                   "cublasSetMathMode"));
    return pare_cuda_blas_status(ctx, NULL,
                                 api->blas_set_pointers(q->handle, PARE_BLAS_POINTERS_HOST),
                                 "cublasSetPointerMode");
}

pare_status pare_cuda_blas_handle(pare_ctx *ctx, pare_stream *stream, void **out)
{
    pare_cuda_stream_blas *q = pare_cuda_stream_blas_of(stream);
    const pare_cuda_blas *b = pare_cuda_device_blas(stream->device)->blas;
    if (!q->handle) {
        q->destroy = b->api->blas_destroy;
        pare_status st = handle_set(ctx, b->api, stream, q);
        if (st != PARE_OK) {
            pare_cuda_stream_blas_close(stream->device, q);
            return st;
        }
    }
    *out = q->handle;
    return PARE_OK;
}

void pare_cuda_stream_blas_close(pare_device *device, pare_cuda_stream_blas *q)
{
    if (q->handle) (void)q->destroy(q->handle);
    if (q->workspace) device->backend->free(device, q->workspace);
    *q = (pare_cuda_stream_blas){0};
}
