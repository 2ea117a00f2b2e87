/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear and DequantizeLinear of FP8: quantize_f8.cu. */
#ifndef PARE_RUNTIME_CUDA_QUANTIZE_F8_H
#define PARE_RUNTIME_CUDA_QUANTIZE_F8_H

#include "runtime/cuda/tensor_iterator.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operands y, x, scale, all stretched to x: y FP8 of x f32, f16 or bf16, or the other way; scale of
   a float type, perhaps another. */
cudaError_t pare_cuda_quantize_f8_launch(const pare_cuda_iterator *w, pare_dtype y_type,
                                         pare_dtype x_type, pare_dtype s_type, cudaStream_t stream);
cudaError_t pare_cuda_dequantize_f8_launch(const pare_cuda_iterator *w, pare_dtype y_type,
                                           pare_dtype x_type, pare_dtype s_type,
                                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
