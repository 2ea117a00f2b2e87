/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CUDA_ATTENTION_H
#define PARE_RUNTIME_CUDA_ATTENTION_H

#include "runtime/ops/kernel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_CUDA_HEAD_AXES = 3 };

/* One operand: element strides of up to three leading axes (0 where it broadcasts), of its rows and
   of its last axis. */
typedef struct pare_cuda_operand {
    const void *data;
    int64_t head[PARE_CUDA_HEAD_AXES], row, last;
} pare_cuda_operand;

/* Y (heads..., queries, width) = softmax(scale * Q K^T + mask) V; Q (..., queries, depth),
   K (..., keys, depth), V (..., keys, width), mask broadcasts to (..., queries, keys) or data NULL.
 */
typedef struct pare_cuda_attend {
    pare_cuda_operand q, k, v, mask, y;
    int64_t heads[PARE_CUDA_HEAD_AXES]; /* leading axes, missing ones 1 */
    int64_t queries;
    int keys, depth, width;
    float scale;
    pare_dtype dtype, mask_type; /* f32, f16 or bf16 of all, of the mask; computed in float */
} pare_cuda_attend;

cudaError_t pare_cuda_attention_launch(const pare_cuda_attend *a, cudaStream_t stream);

/* Keys whose scores fit in a block's shared memory. */
enum { PARE_CUDA_MOST_KEYS = 11264 };

#ifdef __cplusplus
}
#endif
#endif
