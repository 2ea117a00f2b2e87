/* SPDX-License-Identifier: Apache-2.0 */
/* Between number formats: launcher of cast.cu. */
#ifndef PARE_RUNTIME_CUDA_CAST_H
#define PARE_RUNTIME_CUDA_CAST_H

#include "runtime/cuda/walk.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operands y, x of any numbers or bool; those of 4 bits are row-major. */
cudaError_t pare_cuda_cast_launch(const pare_cuda_walk *w, pare_dtype to, pare_dtype from,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
