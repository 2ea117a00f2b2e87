/* SPDX-License-Identifier: Apache-2.0 */
/* Of a build without code for compute capability 10.0. */
#include "runtime/cuda/gemm/tcgen.h"

const bool pare_cuda_tcgen_built = false;

cudaError_t pare_cuda_tcgen_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    (void)p, (void)stream;
    return cudaErrorNotSupported;
}
