/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention, softmax(scale * Q K^T + mask) V ("Attention Is All You Need", Vaswani et al.
   2017, section 3.2.1), as kernels see it. Of f16 and bf16 under a mask, scale * Q K^T and its sum
   with the mask are rounded to this type, as the operators round them (rounded of
   pare_attention_views). */
#ifndef PARE_RUNTIME_CUDA_ATTENTION_CUH
#define PARE_RUNTIME_CUDA_ATTENTION_CUH

#include "runtime/cuda/device/fast_divisor.h"
#include "runtime/cuda/device/simt.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/attention.h"

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
    const int *tiles; /* (blocks of PARE_CUDA_FLASH_TILE queries, 2): the tiles of as many keys that
                         a mask leaves to each, from the first to before the last; NULL: all */
    float scale;
    pare_dtype dtype, mask_type; /* f32, f16 or bf16 of all, of the mask; computed in float */
} pare_cuda_attend;

/* On tensor cores: f16 and bf16, depth and width of at most PARE_CUDA_FLASH_DEPTH, chunks of 16
   bytes aligned in Q, K and V, pairs in Y. */
enum { PARE_CUDA_FLASH_DEPTH = 128, PARE_CUDA_FLASH_TILE = 64 };
extern "C" cudaError_t pare_cuda_flash_launch(const pare_cuda_attend *a, cudaStream_t stream);

/* QAttention (runtime/ops/attention.h) on tensor cores: what pare_q_attention_fits allows. */

/* As pare_cuda_operand, of strides that 32 bits hold. */
typedef struct pare_cuda_near_operand {
    const void *data;
    int head[PARE_CUDA_HEAD_AXES], row, last;
} pare_cuda_near_operand;

typedef struct pare_cuda_attend_int8 {
    pare_cuda_near_operand q, k, v, mask, y;
    int heads[PARE_CUDA_HEAD_AXES];
    pare_cuda_fast_divisor by[PARE_CUDA_HEAD_AXES]; /* heads but the first axis'; a head's blocks */
    int queries, keys, depth, width;
    pare_q_attention_blocks b;
    pare_cuda_fast_divisor by_groups;
    bool in_turn;     /* V comes over K in shared memory: the launcher's to say */
    const int *range; /* (blocks, 3): the keys that a mask leaves to each, from the first to before
                         the last, and of a slice; NULL: all */
    unsigned q_flip, k_flip, v_flip; /* what makes four codes s8: 0, or the sign bits of u8 */
    int q_zero, k_zero, v_zero;      /* of s8 */
    pare_q_attention a;
    pare_dtype type; /* of y */
} pare_cuda_attend_int8;

extern "C" cudaError_t pare_cuda_attention_int8_launch(const pare_cuda_attend_int8 *a,
                                                       cudaStream_t stream);

SIMT_INLINE int64_t pare_cuda_head_offset(const pare_cuda_operand &o,
                                          const int64_t index[PARE_CUDA_HEAD_AXES])
{
    int64_t at = 0;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) at += index[i] * o.head[i];
    return at;
}

#endif
