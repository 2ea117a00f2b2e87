/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation's cuBLAS and cuBLASLt for tests. */
#ifndef PARE_SIMT_BLAS_TABLE_H
#define PARE_SIMT_BLAS_TABLE_H

#include "runtime/cuda/gemm/blas_api.h"

#ifdef __cplusplus
extern "C" {
#endif

void simt_blas_api(pare_blas_api *out);

#ifdef __cplusplus
}
#endif
#endif
