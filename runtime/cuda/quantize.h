/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear that changes memory order or reads stored pixels: quantize_nhwc.cu. */
#ifndef PARE_RUNTIME_CUDA_QUANTIZE_H
#define PARE_RUNTIME_CUDA_QUANTIZE_H

#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The can() of QuantizeLinear to s8 or u8 of f32, f16 or bf16. */
bool pare_cuda_quantize_can(const pare_prep *prep);

/* takes_pixels() of its kernels: one scale, at most 4 channels, bytes in the output's order or in
   N, C, H, W where the output is N, H, W, C. */
bool pare_cuda_quantize_takes_pixels(const pare_call *call, const pare_pixels *pixels);
/* Makes output 0 of call->pixels. */
PARE_NODISCARD pare_status pare_cuda_quantize_pixels(const pare_call *call);

/* Of N, C, H, W in N, H, W, C order, with one scale. */
extern const pare_kernel pare_cuda_quantize_nhwc;

#ifdef __cplusplus
}
#endif
#endif
