/* SPDX-License-Identifier: Apache-2.0 */
/* What 8-bit convolutions on cuDNN have around the library's sums: signed pictures with their
   padding before it, scales and rounding behind it. */
#ifndef PARE_RUNTIME_CUDA_CONV_DNN_PASS_H
#define PARE_RUNTIME_CUDA_CONV_DNN_PASS_H

#include "runtime/cuda/device/fast_divisor.h"
#include "runtime/ops/epilogue.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A dense copy of X, u8 as s8 (128 less of each), with a zero point around it: to is (images,
   channels, out...), or channels fastest. */
typedef struct pare_dnn_signs {
    const void *from;
    void *to;
    int64_t from_stride[5]; /* N, C, three of a window */
    int64_t count;          /* of bytes written; as all counts here less than 2^31 */
    pare_cuda_fast_divisor channels, out[3];
    int in[3], begin[3];
    int zero;         /* as s8 */
    bool flips, last; /* X is u8; channels are fastest */
} pare_dnn_signs;
cudaError_t pare_dnn_signs_launch(const pare_dnn_signs *s, cudaStream_t stream);

/* y = round(act((sum - shift + bias) * scale + residual)), as ops/epilogue.h defines it. Sums, y
   and z are dense and alike: element i is of channel i / inner % channels. */
typedef struct pare_dnn_requantize {
    const int32_t *sums;
    const void *z;             /* NULL: none */
    const float *scale, *bias; /* (channels) */
    const int32_t *shift;      /* (channels) */
    void *y;
    int64_t count;
    pare_cuda_fast_divisor inner, channels;
    pare_epilogue epilogue;
} pare_dnn_requantize;
cudaError_t pare_dnn_requantize_launch(const pare_dnn_requantize *r, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
