/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose weights have at most two numbers that are not 0 in each four neighbours along a
   packed row's depth (2:4): half of the weights and two bits a number that is kept are read, and
   tensor cores take depth at up to twice their speed.

   Packed: rows of kept numbers, two of each four, PARE_SPARSE_STEP / 2 bytes for each
   PARE_SPARSE_STEP bytes of depth, the last step filled up with 0; and metadata, in the order in
   which the lanes of a warp hand it over (simt.h), for tiles of 16 rows: (tiles, steps, words), as
   many tiles as PARE_SPARSE_ROWS rows fill, and PARE_SPARSE_STEPS steps or a multiple. What is no
   row or no step keeps places 0 and 1 of 0s. */
#ifndef PARE_RUNTIME_CUDA_GEMM_SPARSE_H
#define PARE_RUNTIME_CUDA_GEMM_SPARSE_H

#include "runtime/cuda/gemm/gemm.h"
#include "runtime/ops/sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_SPARSE_STEP = PARE_CUDA_STEP, /* bytes of depth that one word a lane is about */
    PARE_SPARSE_ROWS = 256,            /* packed tiles of 16 rows fill a multiple */
    PARE_SPARSE_STEPS = 2
};

/* Bytes of a row of kept numbers, and of all metadata. */
size_t pare_sparse_kept_bytes(int64_t depth, int bytes);
size_t pare_sparse_meta_bytes(int64_t rows, int64_t depth, int bytes);
/* Metadata of rows that are not packed yet. */
void pare_sparse_meta_clear(uint32_t *meta, size_t meta_bytes);
/* Packs row r, `depth` numbers that fit; kept: where its numbers go. */
void pare_sparse_row_pack(const void *row, int bytes, int64_t r, int64_t depth, void *kept,
                          uint32_t *meta);
/* The row again. */
void pare_sparse_row_unpack(const void *kept, const uint32_t *meta, int bytes, int64_t r,
                            int64_t depth, void *row);

/* p: one batch, no split, copies of 16 bytes, s8, u8, f16 or bf16; its w the kept numbers, w_row
   their elements a row; tile: PARE_CUDA_128X128, else 64 x 64. */
cudaError_t pare_cuda_sparse_launch(const pare_cuda_gemm_args *p, const void *meta,
                                    cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
