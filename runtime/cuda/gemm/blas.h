/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS and cuBLASLt, opened at run time: half a gigabyte that a user may not have, and that only
   matrix products need. */
#ifndef PARE_RUNTIME_CUDA_GEMM_BLAS_H
#define PARE_RUNTIME_CUDA_GEMM_BLAS_H

#include "runtime/base/ctx.h"
#include "runtime/cuda/gemm/blas_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_blas {
    pare_blas_api api;
    void *lt, *blas; /* the libraries */
} pare_blas;

/* Opens both libraries: from the folders, a list separated by ':' (may be NULL), then from where
   the loader looks, then from the usual places of a toolkit. PARE_UNSUPPORTED, with a message that
   says what is missing and how to get it, where one is not found or lacks a function. */
PARE_NODISCARD pare_status pare_blas_open(pare_ctx *ctx, pare_blas **out, const char *folders);
void pare_blas_close(pare_blas *blas);

#ifdef __cplusplus
}
#endif
#endif
