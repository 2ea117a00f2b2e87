/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit tensors element by element, and the steps between them and floats: launchers of integer.cu.
 */
#ifndef PARE_RUNTIME_CUDA_INTEGER_H
#define PARE_RUNTIME_CUDA_INTEGER_H

#include "runtime/cuda/walk.h"
#include "runtime/ops/int8_elementwise.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t pare_cuda_pair_launch(const pare_cuda_walk *w, const pare_int8_pair *pair,
                                  cudaStream_t stream);

/* y = table[x], bytes; table: (256) on the device. */
cudaError_t pare_cuda_table_launch(const pare_cuda_walk *w, const void *table, cudaStream_t stream);

/* Operands y, x, scale, zero point, all stretched to x; zero NULL: none. QuantizeLinear: y s8 or u8
   of x f32, f16 or bf16; DequantizeLinear the other way; scale of the float's type. */
cudaError_t pare_cuda_quantize_launch(const pare_cuda_walk *w, pare_dtype y_type, pare_dtype x_type,
                                      bool zeroed, cudaStream_t stream);
cudaError_t pare_cuda_dequantize_launch(const pare_cuda_walk *w, pare_dtype y_type,
                                        pare_dtype x_type, bool zeroed, cudaStream_t stream);

/* DynamicQuantizeLinear's step and zero point (u8) from a range that holds 0: range[0], range[1].
 */
cudaError_t pare_cuda_dynamic_launch(const float *range, float *scale, uint8_t *zero,
                                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
