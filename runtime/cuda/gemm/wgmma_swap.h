/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose tiles by wgmma.h would leave most of a device idle (small batches), by the same
   instructions with operands swapped: 64 columns of Y, which are rows of W, are the rows of a
   product of matrices, and few rows of Y its columns. A tile's depth is shared by the blocks of a
   cluster, which add their sums up through each other's shared memory. Builds without code for
   compute capability 9.0 have wgmma_none.c instead. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_SWAP_H
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_SWAP_H

#include "runtime/cuda/gemm/gemm.h"
#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_SWAP_COLUMNS = 64,     /* of a tile: filters */
    PARE_SWAP_STEP = 128,       /* bytes of depth a stage has */
    PARE_SWAP_LEAST_STEPS = 2,  /* that are worth a block */
    PARE_SWAP_PROCESSORS = 132, /* an H200's: the order of sums is the same on all devices */
    PARE_SWAP_MOST_CLUSTER = 8, /* CUDA's portable size */
    PARE_SWAP_MOST_TILES = 4 * PARE_SWAP_PROCESSORS
};

/* Rows of such a tile. */
static inline int pare_swap_rows(pare_cuda_tiling tile)
{
    return tile == PARE_CUDA_32X64 ? 32 : tile == PARE_CUDA_64X64 ? 64 : 128;
}

static inline int64_t pare_swap_tiles(const pare_cuda_gemm_args *p, pare_cuda_tiling tile)
{
    const int rows = pare_swap_rows(tile);
    return (p->rows + rows - 1) / rows * ((p->columns + PARE_SWAP_COLUMNS - 1) / PARE_SWAP_COLUMNS);
}

/* Blocks that share a tile's depth, of so many bytes: a power of two. */
static inline int pare_swap_cluster(int64_t tiles, int64_t depth_bytes)
{
    const int64_t steps = (depth_bytes + PARE_SWAP_STEP - 1) / PARE_SWAP_STEP;
    int cluster = 1;
    while (cluster < PARE_SWAP_MOST_CLUSTER && 2 * cluster * tiles <= PARE_SWAP_PROCESSORS &&
           steps >= 2 * cluster * PARE_SWAP_LEAST_STEPS)
        cluster *= 2;
    return cluster;
}

/* Can the node's device compute product p, whose epilogue is *e, in such tiles, and are they few?
   x_zero: X's zero point. */
bool pare_cuda_swap_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                         const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile);
/* p: one that fits, W's rows as they are. */
cudaError_t pare_cuda_swap_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* The same of f16 and bf16. */
cudaError_t pare_cuda_swap_half_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
