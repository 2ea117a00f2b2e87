/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm and FusedMatMul with constant weights, one entry a tile, after the libraries'. What
   these refuse, factors that are both computed among it, matmul_dynamic.c takes. */
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/gemm/sparse.h"
#include "runtime/cuda/gemm/tcgen.h"
#include "runtime/cuda/gemm/wgmma_swap.h"

static void matrix_set(const pare_prep *prep, const pare_matmul_args *a, pare_cuda_gemm_args *p)
{
    pare_cuda_gemm_init(p, prep->in[0].dtype, prep->out[0].dtype);
    p->rows = a->batch * a->rows;
    p->columns = (int)a->columns;
    p->depth = (int)a->depth;
    p->x_row = a->depth;
    p->y_row = a->columns;
    p->w_row = pare_cuda_pitch(a->depth, p->x_type);
    p->copy = pare_cuda_copy_of(p->x_type, &a->depth, 1);
}

bool pare_cuda_matmul_read(const pare_prep *prep, pare_matmul_args *a, pare_cuda_gemm_args *p)
{
    const pare_view *x = &prep->in[0], *w = &prep->in[1], *y = &prep->out[0];
    if (!pare_cuda_weights_fit(prep) || w->rank != 2 || x->rank < 2 || y->rank < 2) return false;
    if (!pare_cuda_readable(prep, pare_matmul_args_read(prep, a))) return false;
    if (!pare_cuda_gemm_counts(a->columns, a->depth)) return false;
    matrix_set(prep, a, p);
    return !a->trans_a && a->alpha == 1 && a->beta == 1 && !a->q.w_zero && pare_view_rowmajor(x) &&
           pare_view_rowmajor(y) && pare_cuda_bias_fits(prep, a->at.bias, a->columns) &&
           pare_cuda_residual_fits(prep, a->at.residual) && (a->int8 || a->f8 || a->at.w_scale < 0);
}

static pare_status matmul_prepare(pare_prep *prep, pare_cuda_tiling tile, pare_cuda_way way)
{
    pare_cuda_prepared *s;
    pare_cuda_prepack k;
    pare_cuda_gemm_args p;
    pare_matmul_args a;
    const pare_view *w = &prep->in[1];
    PARE_TRY(pare_matmul_args_read(prep, &a));
    matrix_set(prep, &a, &p);
    p.tile = tile;
    PARE_TRY(pare_cuda_prepared_new(prep, &p, &s));
    if (way == PARE_CUDA_SPLIT) pare_cuda_splits_set(prep, s, pare_cuda_splits_of(&p));
    pare_cuda_epilogue_set(prep, s, a.int8 || a.f8, &a.act, &a.epilogue, a.at.residual);
    PARE_TRY(pare_cuda_prepack_open(prep, &p, way, &k));
    for (int64_t c = 0; c < a.columns; c++)
        pare_cuda_row_pack(&k, &p, c, 0, w, c * w->stride[a.trans_b ? 0 : 1],
                           w->stride[a.trans_b ? 1 : 0], a.depth);
    return pare_cuda_prepack_close(
        prep, s, &k, &(pare_cuda_constants){a.int8, a.scale, a.q.x_zero, a.at, a.columns});
}

#define MATMUL(entry, fits, tile, way)                                                             \
    PARE_CUDA_GEMM(entry, pare_matmul_args, pare_cuda_matmul_read, fits, matmul_prepare, tile,     \
                   way, 0)
MATMUL(matmul_128x128, pare_cuda_tile_fits(&p, PARE_CUDA_128X128), PARE_CUDA_128X128,
       PARE_CUDA_WHOLE)
MATMUL(matmul_128x64, pare_cuda_tile_fits(&p, PARE_CUDA_128X64), PARE_CUDA_128X64, PARE_CUDA_WHOLE)
MATMUL(matmul_split, pare_cuda_splits_fit(prep, &p), PARE_CUDA_64X64, PARE_CUDA_SPLIT)
MATMUL(matmul_64x64, true, PARE_CUDA_64X64, PARE_CUDA_WHOLE)
MATMUL(matmul_sparse_128x128,
       pare_cuda_sparse_fits(prep, &p, PARE_CUDA_128X128) &&
           pare_matmul_is_sparse(&prep->in[1], &a),
       PARE_CUDA_128X128, PARE_CUDA_SPARSE)
MATMUL(matmul_sparse_64x64,
       pare_cuda_sparse_fits(prep, &p, PARE_CUDA_64X64) && pare_matmul_is_sparse(&prep->in[1], &a),
       PARE_CUDA_64X64, PARE_CUDA_SPARSE)
#define WGMMA(entry, tile)                                                                         \
    MATMUL(entry, PARE_CUDA_RULE(pare_cuda_wgmma_fits, tile), tile, PARE_CUDA_WGMMA)
WGMMA(matmul_wgmma_128x128, PARE_CUDA_128X128)
WGMMA(matmul_wgmma_256x128, PARE_CUDA_256X128)
WGMMA(matmul_wgmma_128x192, PARE_CUDA_128X192)
WGMMA(matmul_wgmma_128x64, PARE_CUDA_128X64)
WGMMA(matmul_wgmma_256x64, PARE_CUDA_256X64)
WGMMA(matmul_wgmma_256x128_4wg, PARE_CUDA_256X128_4WG)

#define SWAP(entry, tile)                                                                          \
    MATMUL(entry, PARE_CUDA_RULE(pare_cuda_swap_fits, tile), tile, PARE_CUDA_SWAP)
SWAP(matmul_wgmma_swap_32x64, PARE_CUDA_32X64)
SWAP(matmul_wgmma_swap_64x64, PARE_CUDA_64X64)
SWAP(matmul_wgmma_swap_128x64, PARE_CUDA_128X64)

#define TCGEN(entry, tile)                                                                         \
    MATMUL(entry, PARE_CUDA_RULE(pare_cuda_tcgen_fits, tile), tile, PARE_CUDA_TCGEN)
TCGEN(matmul_tcgen_128x64, PARE_CUDA_128X64)
TCGEN(matmul_tcgen_128x128, PARE_CUDA_128X128)
TCGEN(matmul_tcgen_128x256, PARE_CUDA_128X256)

#define WGMMA_SPARSE(entry, tile)                                                                  \
    MATMUL(entry,                                                                                  \
           PARE_CUDA_RULE(pare_cuda_wgmma_sparse_fits, tile) &&                                    \
               pare_matmul_is_sparse(&prep->in[1], &a),                                            \
           tile, PARE_CUDA_WGMMA_SPARSE)
WGMMA_SPARSE(matmul_sparse_wgmma_128x128, PARE_CUDA_128X128)
WGMMA_SPARSE(matmul_sparse_wgmma_256x128, PARE_CUDA_256X128)
WGMMA_SPARSE(matmul_sparse_wgmma_256x64, PARE_CUDA_256X64)
WGMMA_SPARSE(matmul_sparse_wgmma_4wg, PARE_CUDA_256X128_4WG)

#define FLOATS                                                                                     \
    &pare_cuda_matmul_batched, &pare_cuda_matmul_lt_0, &pare_cuda_matmul_lt_1,                     \
        &pare_cuda_matmul_lt_2, &pare_cuda_matmul_lt_3, &pare_cuda_matmul_lt_4,                    \
        &pare_cuda_matmul_lt_5, &pare_cuda_matmul_lt_6, &pare_cuda_matmul_lt_7
#define PACKED &matmul_128x128, &matmul_128x64, &matmul_split, &matmul_64x64
/* After the dense ones, as the libraries with a pass behind them: taken where a tuner measured that
   they are faster. So are those of one device's instructions. */
#define SPARSE &matmul_sparse_128x128, &matmul_sparse_64x64
#define NEWER                                                                                      \
    &matmul_wgmma_128x128, &matmul_wgmma_256x128, &matmul_wgmma_128x192, &matmul_wgmma_128x64,     \
        &matmul_wgmma_256x64, &matmul_wgmma_256x128_4wg, &matmul_wgmma_swap_32x64,                 \
        &matmul_wgmma_swap_64x64, &matmul_wgmma_swap_128x64, &matmul_sparse_wgmma_128x128,         \
        &matmul_sparse_wgmma_256x128, &matmul_sparse_wgmma_256x64, &matmul_sparse_wgmma_4wg,       \
        &matmul_tcgen_128x64, &matmul_tcgen_128x128, &matmul_tcgen_128x256
#define PASSES                                                                                     \
    &pare_cuda_matmul_lt_epilogue_0, &pare_cuda_matmul_lt_epilogue_1,                              \
        &pare_cuda_matmul_lt_epilogue_2, &pare_cuda_matmul_lt_epilogue_3
#define ALL FLOATS, PACKED, &pare_cuda_matmul_dynamic, SPARSE, NEWER, PASSES
const pare_kernel *const pare_cuda_matmul[] = {ALL, NULL};
const pare_kernel *const pare_cuda_gemm[] = {ALL, NULL};
const pare_kernel *const pare_cuda_fused_matmul[] = {&pare_cuda_matmul_weights_few, ALL,
                                                     &pare_cuda_matmul_weights, NULL};
