/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/gemm/gemm_tiles.cuh"

extern "C" cudaError_t pare_cuda_gemm_int8_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    return p->x_type == PARE_s8 ? chunks_launch<PARE_s8>(p, stream)
                                : chunks_launch<PARE_u8>(p, stream);
}
