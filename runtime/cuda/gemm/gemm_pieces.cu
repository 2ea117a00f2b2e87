/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of integers whose rows of X are copied by pieces of 8 bytes (pieces.h), of matrices and of
   patches alike: a table says where the two pieces of a chunk are, and which tap each belongs to. A
   matrix is a window of one tap that is never outside. Everything else is gemm_tiles.cuh's. */
#include "runtime/cuda/gemm/pieces.h"
#include "runtime/cuda/gemm/gemm_tiles.cuh"

/* The pieces of a chunk. */
typedef struct __attribute__((aligned(16))) pieces_pair {
    pare_cuda_im2col of[PARE_CUDA_CHUNK / PARE_CUDA_PIECE];
} pieces_pair;

template <typename T> struct pieces_iterator {
    const char *at[T::X_ROWS];
    unsigned inside[T::X_ROWS];
    const pieces_pair *patch; /* of the chunk */
    pieces_pair next;         /* of the one that is fetched next */
};

/* A row a thread, for the CHUNKS threads that copy of it. */
template <typename T>
SIMT_INLINE void rows_prepare(pieces_iterator<T> &, const pare_cuda_gemm_args &p, const char *x,
                              int bytes, const tile_place &t, uint4 *room)
{
    const int mine = (int)threadIdx.x; /* no tile has more rows than threads */
    if (mine < T::BM) {
        const int64_t m = t.m0 + mine;
        im2col_row row = {x + m * p.x_row * bytes, 1, 0};
        if (p.picture) row = im2col_row_find(p.in, x, bytes, (int)m);
        if (mine >= t.rows) row.inside = 0;
        reinterpret_cast<im2col_row *>(room)[mine] = row;
    }
    __syncthreads();
}

template <typename T>
SIMT_INLINE void rows_open(pieces_iterator<T> &r, const pare_cuda_gemm_args &p, const char *, int,
                           const tile_place &, int line, int chunk, const uint4 *room)
{
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++)
    {
        const im2col_row row = reinterpret_cast<const im2col_row *>(room)[line + i * T::LINES];
        r.at[i] = row.at, r.inside[i] = row.inside;
    }
    r.patch = reinterpret_cast<const pieces_pair *>(p.patch) + chunk;
    r.next = *r.patch;
}

/* Where a tap is outside, or behind the depth, X is `fill`, which is stored. */
template <typename T>
SIMT_INLINE void rows_fetch(pieces_iterator<T> &r, const pare_cuda_gemm_args &p, uint4 *to,
                            int ahead, bool)
{
    const pieces_pair now = r.next;
    r.next = r.patch[(ahead + 1) * CHUNKS];
    PARE_UNROLL for (int i = 0; i < T::X_ROWS; i++) PARE_UNROLL for (int h = 0; h < 2; h++)
    {
        uint2 *near = reinterpret_cast<uint2 *>(to + i * T::LINES * ROW) + h;
        if (r.inside[i] & now.of[h].tap)
            simt_cp_async8(near, r.at[i] + now.of[h].at, PARE_CUDA_PIECE);
        else
            *near = make_uint2(p.fill, p.fill);
    }
}

template <typename T> SIMT_INLINE void rows_advance(pieces_iterator<T> &r, int steps)
{
    r.patch += steps * CHUNKS;
}

extern "C" cudaError_t pare_cuda_gemm_pieces_launch(const pare_cuda_gemm_args *p,
                                                    cudaStream_t stream)
{
    return p->x_type == PARE_s8 ? rows_launch<PARE_s8, pieces_iterator>(p, stream)
                                : rows_launch<PARE_u8, pieces_iterator>(p, stream);
}
