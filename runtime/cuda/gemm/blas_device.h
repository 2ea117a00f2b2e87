/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS and cuBLASLt of an opened GPU. They are looked for at the first product that could use
   them; where they are absent, the device's own kernels serve, and a message says so once. */
#ifndef PARE_RUNTIME_CUDA_GEMM_BLAS_DEVICE_H
#define PARE_RUNTIME_CUDA_GEMM_BLAS_DEVICE_H

#include "runtime/cuda/gemm/blas.h"
#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_CUDA_WORKSPACE = 32 << 20, /* bytes that a library may use for one product */
    PARE_LT_MOST = 8                /* algorithms that cuBLASLt is asked for */
};

/* What cuBLASLt's heuristic answered for a product (blas_product.c). */
typedef struct pare_lt_answers pare_lt_answers;
void pare_lt_answers_free(pare_lt_answers *first);

typedef struct pare_cuda_blas {
    pare_blas *library;
    const pare_blas_api *api;
    void *lt;                 /* cuBLASLt's handle; any thread may use it */
    pare_lt_answers *answers; /* of products so far; plans of a device are made one at a time */
} pare_cuda_blas;

/* The device's, or NULL where the libraries are absent (blas.h says where they are looked for). */
pare_cuda_blas *pare_cuda_blas_find(pare_ctx *ctx, pare_device *device);
void pare_cuda_blas_close(pare_cuda_blas *blas);

/* cuBLAS's handle for a stream, with the stream's stream and a workspace of its own; made at the
   first call, freed with the stream. Not while the stream records. */
PARE_NODISCARD pare_status pare_cuda_blas_handle(pare_ctx *ctx, pare_stream *stream, void **out);

/* The status for a code of either library; a failure names the call, and the node where one is. */
PARE_NODISCARD pare_status pare_cuda_blas_status(pare_ctx *ctx, const pare_node *node, int code,
                                                 const char *call);

#ifdef __cplusplus
}
#endif
#endif
