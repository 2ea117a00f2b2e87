/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/gemm/gemm_tiles.cuh"

extern "C" cudaError_t pare_cuda_gemm_f8_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    return p->x_type == PARE_f8e4m3 ? chunks_launch<PARE_f8e4m3>(p, stream)
                                    : chunks_launch<PARE_f8e5m2>(p, stream);
}
