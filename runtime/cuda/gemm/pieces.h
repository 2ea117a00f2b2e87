/* SPDX-License-Identifier: Apache-2.0 */
/* Products of integers whose rows of X are whole pieces of 8 bytes, but no chunks of 16: 8, 24, 40,
   72 channels and so on. Tiles copy them by pieces. W's rows are packed by chunks, zeros behind the
   depth. */
#ifndef PARE_RUNTIME_CUDA_GEMM_PIECES_H
#define PARE_RUNTIME_CUDA_GEMM_PIECES_H

#include "runtime/cuda/gemm/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_CUDA_PIECE = 8 }; /* bytes */

/* Do tiles copy X by pieces? pare_cuda_gemm_args's `patch` then has two entries a chunk, of
   matrices, too. */
static inline bool pare_cuda_by_pieces(const pare_cuda_gemm_args *p)
{
    return p->copy == PARE_CUDA_PIECE && pare_type_is_int8(p->x_type) &&
           (!p->picture || p->in.taps > 0);
}

cudaError_t pare_cuda_gemm_pieces_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
