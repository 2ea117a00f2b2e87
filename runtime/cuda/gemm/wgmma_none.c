/* SPDX-License-Identifier: Apache-2.0 */
/* Of a build without code for compute capability 9.0. */
#include "runtime/cuda/gemm/tcgen.h"
#include "runtime/cuda/gemm/wgmma_swap.h"

bool pare_cuda_wgmma_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                          const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile)
{
    (void)prep, (void)p, (void)e, (void)x_zero, (void)tile;
    return false;
}

cudaError_t pare_cuda_wgmma_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    (void)p, (void)stream;
    return cudaErrorNotSupported;
}

bool pare_cuda_tcgen_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                          const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile)
{
    return pare_cuda_wgmma_fits(prep, p, e, x_zero, tile);
}

bool pare_cuda_swap_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                         const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile)
{
    return pare_cuda_wgmma_fits(prep, p, e, x_zero, tile);
}

cudaError_t pare_cuda_swap_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    return pare_cuda_wgmma_launch(p, stream);
}

bool pare_cuda_wgmma_sparse_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                                 const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile)
{
    return pare_cuda_wgmma_fits(prep, p, e, x_zero, tile);
}

cudaError_t pare_cuda_wgmma_sparse_launch(const pare_cuda_gemm_args *p, const void *meta,
                                          cudaStream_t stream)
{
    (void)meta;
    return pare_cuda_wgmma_launch(p, stream);
}
