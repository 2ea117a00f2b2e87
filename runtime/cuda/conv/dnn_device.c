/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/conv/dnn_device.h"
#include "runtime/cuda/conv/dnn_plan.h"
#include "runtime/cuda/device/device_parts.h"
#include "runtime/cuda/device/error.h"

pare_status pare_cuda_dnn_status(pare_ctx *ctx, const pare_dnn_api *api, const pare_node *node,
                                 int code, const char *call)
{
    if (code == PARE_DNN_SUCCESS) return PARE_OK;
    char last[256] = "";
    api->last_error(last, sizeof last);
    last[sizeof last - 1] = 0;
    const bool memory =
        code == PARE_DNN_HOST_ALLOCATION_FAILED || code == PARE_DNN_DEVICE_ALLOCATION_FAILED;
    const pare_status st = memory ? PARE_FAIL(ctx, MEMORY, "%s: no memory was left", call)
                                  : PARE_FAIL(ctx, DEVICE, "%s: %s (status %d)%s%s", call,
                                              api->text(code), code, last[0] ? ": " : "", last);
    return node ? pare_fail_prefix(ctx, st, "node '%s' (%s)", node->name, node->op_type) : st;
}

pare_cuda_dnn *pare_cuda_dnn_find(pare_ctx *ctx, pare_device *device)
{
    pare_cuda_dnn_slot *slot = pare_cuda_device_dnn(device);
    if (slot->looked) return slot->dnn;
    slot->looked = true;
    pare_cuda_dnn *d = pare_alloc(ctx, 1, sizeof *d);
    const pare_status st = d ? pare_dnn_open(ctx, &d->api) : PARE_MEMORY;
    if (st == PARE_OK) {
        (void)pthread_mutex_init(&d->lock, NULL); /* on Linux it does not fail */
        return slot->dnn = d;
    }
    pare_log(ctx, PARE_LOG_INFO, "without cuDNN, convolutions run on our own kernels: %s",
             ctx->message);
    pare_ctx_clear(ctx);
    pare_free(d);
    return NULL;
}

static pare_status handle_make(pare_ctx *ctx, pare_device *device, pare_cuda_dnn *d)
{
    if (d->handle) return PARE_OK;
    PARE_TRY(device->streams->enter(ctx, device));
    const pare_status st =
        pare_cuda_dnn_status(ctx, &d->api, NULL, d->api.create(&d->handle), "cudnnCreate");
    if (st != PARE_OK) d->handle = NULL;
    return st;
}

pare_cuda_dnn *pare_cuda_dnn_start(pare_ctx *ctx, pare_device *device)
{
    pare_cuda_dnn *d = pare_cuda_dnn_find(ctx, device);
    if (!d) return NULL;
    (void)pthread_mutex_lock(&d->lock);
    if (!d->failed && handle_make(ctx, device, d) != PARE_OK) pare_cuda_dnn_give_up(ctx, d);
    if (!d->failed) return d;
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

void pare_cuda_dnn_give_up(pare_ctx *ctx, pare_cuda_dnn *d)
{
    if (!d->failed)
        pare_log(ctx, PARE_LOG_WARNING, "cuDNN failed, our own kernels serve: %s", ctx->message);
    d->failed = true;
    pare_ctx_clear(ctx);
}

void pare_cuda_dnn_close(pare_cuda_dnn *d)
{
    if (!d) return;
    pare_dnn_answers_free(&d->api, d->answers);
    if (d->handle) (void)d->api.destroy(d->handle);
    (void)pthread_mutex_destroy(&d->lock);
    pare_free(d);
}

pare_status pare_cuda_dnn_handle(pare_ctx *ctx, pare_stream *stream, void **out)
{
    pare_cuda_stream_dnn *q = pare_cuda_stream_dnn_of(stream);
    pare_cuda_dnn *d = pare_cuda_device_dnn(stream->device)->dnn;
    const pare_dnn_api *api = &d->api;
    if (!q->handle) {
        PARE_TRY(stream->device->streams->enter(ctx, stream->device));
        q->destroy = api->destroy;
        pare_status st =
            pare_cuda_dnn_status(ctx, api, NULL, api->create(&q->handle), "cudnnCreate");
        if (st != PARE_OK) q->handle = NULL;
        if (st == PARE_OK)
            st = pare_cuda_dnn_status(ctx, api, NULL,
                                      api->set_stream(q->handle, pare_cuda_stream(stream)),
                                      "cudnnSetStream");
        if (st != PARE_OK) {
            pare_cuda_stream_dnn_close(q);
            (void)pthread_mutex_lock(&d->lock);
            d->failed |= st != PARE_MEMORY;
            (void)pthread_mutex_unlock(&d->lock);
            return st;
        }
    }
    *out = q->handle;
    return PARE_OK;
}

void pare_cuda_stream_dnn_close(pare_cuda_stream_dnn *q)
{
    if (q->handle) (void)q->destroy(q->handle);
    *q = (pare_cuda_stream_dnn){0};
}
