/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels on tensor cores share: kinds of numbers, how a block brings rows of X to shared
   memory, what it makes of the sums of a tile. */
#ifndef PARE_RUNTIME_CUDA_GEMM_TILE_CUH
#define PARE_RUNTIME_CUDA_GEMM_TILE_CUH

#include "runtime/cuda/gemm/gemm.cuh"

enum { STAGES = 4, CHUNKS = PARE_CUDA_STEP / PARE_CUDA_CHUNK, ROW = CHUNKS + 1 };

/* A type's elements in a chunk of 16 bytes, its sums, its multiply-add. */
template <int KIND> struct kind_of;
template <> struct kind_of<PARE_s8> {
    typedef int sum;
    typedef int8_t element;
};
template <> struct kind_of<PARE_u8> {
    typedef int sum;
    typedef uint8_t element;
};
template <> struct kind_of<PARE_f16> {
    typedef float sum;
    typedef uint16_t element;
};
template <> struct kind_of<PARE_bf16> {
    typedef float sum;
    typedef uint16_t element;
};

/* A chunk of row `r` of X from byte kb of its depth on, in copies of COPY bytes; COPY 1: gathered
   one element at a time. */
template <int KIND, int COPY, int ROWS>
SIMT_INLINE void x_fetch(const pare_cuda_gemm_args &p, const char *x, const row_place *places,
                         int kb, uint4 *to, int apart)
{
    typedef typename kind_of<KIND>::element element;
    enum { BYTES = sizeof(element), PIECE = COPY == 1 ? BYTES : COPY };
    PARE_UNROLL for (int at = 0; at < PARE_CUDA_CHUNK; at += PIECE)
    {
        const int left = p.depth * BYTES - kb - at;
        const int some = left > PIECE ? PIECE : left > 0 ? left : 0;
        const tap_place tap = tap_find(p, (kb + at) / BYTES);
        PARE_UNROLL for (int i = 0; i < ROWS; i++)
        {
            char *piece = reinterpret_cast<char *>(to + i * apart) + at;
            const char *from = static_cast<const char *>(p.fill);
            const int present = places[i].present ? some : 0;
            if (present) {
                int64_t offset = element_find(p, places[i], tap);
                if (offset >= 0) from = x + offset * BYTES;
            }
            if (COPY == 16)
                simt_cp_async16(piece, from, present);
            else if (COPY == 4)
                simt_cp_async4(piece, from, present);
            else
                *reinterpret_cast<element *>(piece) =
                    present ? *reinterpret_cast<const element *>(from) : static_cast<element>(0);
        }
    }
}

/* Sums of BM rows and BN columns in shared memory become Y, neighbours by neighbours, or parts of
   sums where `partial` is not NULL. */
template <int BM, int BN, int THREADS, typename SUM>
SIMT_INLINE void tile_finish(const pare_cuda_gemm_args &p, const operands &o,
                             const SUM (*out)[BN + 8], int64_t m0, int n0, SUM *partial)
{
    const int lot = p.splits > 1 ? 1 : p.lot;
    for (int i = (int)threadIdx.x; i < BM * BN / lot; i += THREADS) {
        const int r = i / (BN / lot), c = i % (BN / lot) * lot, column = n0 + c;
        const int64_t row = m0 + r, at = row * p.y_row + column;
        if (row >= p.rows || column >= p.columns) continue;
        if (p.splits > 1)
            partial[row * p.columns + column] = out[r][c];
        else if (lot > 1 && column + lot <= p.columns)
            lot_finish(p, o, &out[r][c], row, column, at);
        else
            PARE_ROLLED for (int k = 0; k < lot && column + k < p.columns; k++)
                sum_finish(p, o, out[r][c + k], row, column + k, at + k);
    }
}

#endif
