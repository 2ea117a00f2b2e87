/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of matrices brought into the order that tensor cores read: depth contiguous, each row at a
   multiple of 16 bytes. */
#ifndef PARE_RUNTIME_CUDA_GEMM_PACK_H
#define PARE_RUNTIME_CUDA_GEMM_PACK_H

#include "runtime/cuda/gemm/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_cuda_pack {
    const void *from;
    void *to;                       /* (matrices, rows, pitch) */
    pare_cuda_side *side;           /* (matrices, rows), integers only; NULL: not wanted */
    int32_t zero;                   /* from's zero point */
    pare_dtype type;                /* s8, u8, f8e4m3, f8e5m2, f16, bf16 */
    bool flip;                      /* u8 becomes s8: 128 less, the zero point too */
    int64_t rows, row, step, pitch; /* elements from one row, one step of depth, to the next */
    int depth, matrices;
    pare_tensor_iterator batch; /* operands To, From of the matrices */
} pare_cuda_pack;

enum { PARE_CUDA_STEM_PIXELS = 4, PARE_CUDA_STEM_CHANNELS = 4 };

/* Pictures of up to PARE_CUDA_STEM_CHANNELS channels copied so that PARE_CUDA_STEM_PIXELS
   neighbours of a line are together: pixel x has those from x * step - begin on, `zero` where they
   are beside the picture, 0 in channels that it has not. */
typedef struct pare_cuda_widen {
    const void *from;
    void *to; /* (pictures, height, width, PARE_CUDA_STEM_PIXELS, PARE_CUDA_STEM_CHANNELS) */
    int64_t pixels, image, line, pixel; /* of all pictures in `to`, at most INT32_MAX; element
                                           strides of from */
    int height, width, from_width, step, begin, channels;
    pare_cuda_fast_divisor by_width, by_height;
    unsigned zero;
    int bytes; /* of an element: 1, 2, or 4 of f32 */
} pare_cuda_widen;

cudaError_t pare_cuda_widen_launch(const pare_cuda_widen *w, cudaStream_t stream);
cudaError_t pare_cuda_pack_launch(const pare_cuda_pack *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
