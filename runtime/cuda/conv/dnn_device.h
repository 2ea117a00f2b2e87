/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN of an opened GPU. It is looked for at the first convolution that could use it. Where it is
   absent, or a call of it fails, the device's own kernels serve, and a message says so once. */
#ifndef PARE_RUNTIME_CUDA_CONV_DNN_DEVICE_H
#define PARE_RUNTIME_CUDA_CONV_DNN_DEVICE_H

#include "runtime/cuda/conv/dnn.h"
#include "runtime/ops/kernel.h"

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What cuDNN's heuristics answered for a convolution (dnn_plan.c). */
typedef struct pare_dnn_answers pare_dnn_answers;

typedef struct pare_cuda_dnn {
    pare_dnn_api api;
    pthread_mutex_t lock;      /* of the rest: runners come and go beside each other */
    void *handle;              /* that plans are made with; NULL: none was needed yet */
    pare_dnn_answers *answers; /* of convolutions so far, the last one first */
    bool failed;               /* a call did: no more are made */
} pare_cuda_dnn;

/* The device's, or NULL where the library is absent (dnn.h says where it is looked for). */
pare_cuda_dnn *pare_cuda_dnn_find(pare_ctx *ctx, pare_device *device);
/* The same, locked and with its handle; or NULL, where it is absent or has failed. */
pare_cuda_dnn *pare_cuda_dnn_start(pare_ctx *ctx, pare_device *device);
void pare_cuda_dnn_close(pare_cuda_dnn *dnn);
/* Says once what has failed, the context's message, and clears that. Of a locked one. */
void pare_cuda_dnn_give_up(pare_ctx *ctx, pare_cuda_dnn *dnn);

/* A handle for a stream; made at the first call, freed with the stream. Not while it records. Where
   it fails no more plans are made. */
PARE_NODISCARD pare_status pare_cuda_dnn_handle(pare_ctx *ctx, pare_stream *stream, void **out);

/* The status for a code; a failure names the call, the library's words, and the node where one is.
 */
PARE_NODISCARD pare_status pare_cuda_dnn_status(pare_ctx *ctx, const pare_dnn_api *api,
                                                const pare_node *node, int code, const char *call);

#ifdef __cplusplus
}
#endif
#endif
