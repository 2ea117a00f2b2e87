/* SPDX-License-Identifier: Apache-2.0 */
/* What follows sums of a product by wgmma whose operands are swapped: rows of sums are columns of
   Y, columns of sums are rows of X. Weights of 2:4 must be the instruction's first operand
   (wgmma_sparse.cuh); a product of few rows of X wastes no row of it.

   A group of four warps has 64 columns of Y by V::ROWS rows. Rows of W are packed so
   (pare_wgmma_filter) that a thread's sums are of two neighbouring columns: their constants are
   read once, and each block of 2 x 2 sums is finished at once, stored as two pairs. V is what
   wgmma_tiles has as variant: KIND, TO, GELU, RESIDUAL, END, sizes. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_SWAPPED_CUH
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_SWAPPED_CUH

#include "runtime/cuda/gemm/wgmma_tiles.cuh"

/* The byte of a pair of columns in a group's part of Y, or of a residual, of numbers of SIZE bytes:
   slices of up to 128 bytes of a row, ROWS rows each, whose chunks of 16 bytes are swizzled as maps
   have them. column: of the group's 64, even. Rows that are eight apart differ in the row alone. */
template <int SIZE, int ROWS> SIMT_INLINE int pair_at(int row, int column)
{
    enum { SLICE = SIZE == 1 ? 64 : 128 };
    const int byte = column * SIZE, in = byte % SLICE;
    const int turn = SLICE == 128 ? row & 7 : row >> 1 & 3;
    return (byte / SLICE * ROWS + row) * SLICE + ((in >> 4 ^ turn) << 4) + (in & 15);
}

/* Those of two neighbouring columns, twice: of a block's first row and of its second. */
template <typename V>
SIMT_INLINE four_constants pair_constants(const pare_cuda_gemm_args &p, int column)
{
    four_constants k;
    if constexpr (V::INTEGER) {
        const pare_cuda_four_columns &of = *columns_of(p, column & ~3);
        vec_load<2>(of.shift, column & 2, 1, k.shift);
        vec_load<2>(of.scale, column & 2, 1, k.scale);
        vec_load<2>(of.bias, column & 2, 1, k.bias);
        PARE_UNROLL for (int i = 0; i < 2; i++)
        {
            k.shift[2 + i] = k.shift[i];
            k.scale[2 + i] = k.scale[i];
        }
    } else if (p.bias) {
        vec_load<2>(static_cast<const float *>(p.bias), column, 1, k.bias);
    } else {
        k.bias[0] = k.bias[1] = -0.0f; /* changes no float */
    }
    k.bias[2] = k.bias[0], k.bias[3] = k.bias[1];
    return k;
}

SIMT_INLINE unsigned pair_of_bytes(const char *at)
{
    return *reinterpret_cast<const uint16_t *>(at);
}

/* A pair of each of two rows: low half, high half. */
SIMT_INLINE void pairs_of_bytes_put(char *const to[2], unsigned four)
{
    *reinterpret_cast<uint16_t *>(to[0]) = (uint16_t)four;
    *reinterpret_cast<uint16_t *>(to[1]) = (uint16_t)(four >> 16);
}

/* Adds two neighbours of type TO. */
template <int TO> SIMT_INLINE void pair_add(const char *from, float v[2])
{
    if constexpr (TO == PARE_f32) {
        float z[2];
        vec_load<2>(reinterpret_cast<const float *>(from), 0, 1, z);
        v[0] += z[0], v[1] += z[1];
    } else {
        const float2 z = pair_read(*reinterpret_cast<const typename pair_of<TO>::type *>(from));
        v[0] += z.x, v[1] += z.y;
    }
}

template <int TO> SIMT_INLINE void pair_write(char *to, const float v[2])
{
    if constexpr (TO == PARE_f32)
        vec_store<2>(reinterpret_cast<float *>(to), 0, v);
    else if constexpr (TO == PARE_f16)
        *reinterpret_cast<__half2 *>(to) = __floats2half2_rn(v[0], v[1]);
    else
        *reinterpret_cast<__nv_bfloat162 *>(to) = __floats2bfloat162_rn(v[0], v[1]);
}

/* The sum once `wait`, which is 0, is known. */
SIMT_INLINE int sum_behind(int sum, int wait) { return sum + wait; }
SIMT_INLINE float sum_behind(float sum, int wait)
{
    return __int_as_float(__float_as_int(sum) | wait);
}

/* A block of 2 x 2: sums of a row's two columns, then of the next row's; stored at to[row]. z:
   bytes that are added to floats. Returns bits of the last number. */
template <typename V>
SIMT_INLINE int block_finish(const pare_cuda_gemm_args &p, const tile_clamp &l, float inverse,
                             const typename V::sum sum[4], const four_constants &k,
                             char *const to[2], const char *const z[2])
{
    enum { OF_Y = V::RESIDUAL == (int)RESIDUAL_OF_Y, BYTES = V::RESIDUAL == (int)RESIDUAL_BYTES };
    if constexpr (V::END != (int)EPILOGUE_ANY) {
        unsigned four = OF_Y ? pair_of_bytes(to[0]) | pair_of_bytes(to[1]) << 16 : 0;
        pairs_of_bytes_put(
            to, four_finish<V::END>(p, l, sum, k.scale, k.bias, reinterpret_cast<char *>(&four)));
        return 0;
    } else {
        float v[4];
        const unsigned added = BYTES ? pair_of_bytes(z[0]) | pair_of_bytes(z[1]) << 16 : 0;
        four_values<V>(p, l, inverse, sum, k, added, v);
        if constexpr (V::TO == (int)PARE_s8) {
            pairs_of_bytes_put(to, four_pack<false>(l, v));
        } else {
            PARE_UNROLL for (int row = 0; row < 2; row++)
            {
                float *pair = v + row * 2;
                if (OF_Y) pair_add<V::TO>(to[row], pair);
                pair[0] = clamped(pair[0], l), pair[1] = clamped(pair[1], l);
                pair_write<V::TO>(to[row], pair);
            }
        }
        return __float_as_int(v[3]);
    }
}

/* A group's sums become its part of Y in `out`. n0: its first column. A GELU takes so many
   registers that each block waits for the last but one; g.zero is 0, which the compiler does not
   know. */
template <typename V>
SIMT_INLINE void swapped_finish(const pare_cuda_gemm_args &p, const tile_clamp &l,
                                const wgmma_walk &g, const typename V::sum (&acc)[V::ROWS / 2],
                                char *out, const char *residual, int n0)
{
    const int lane = (int)threadIdx.x & 31, row = (lane & 3) * 2;
    const int column = ((int)threadIdx.x >> 5 & 3) * 16 + (lane >> 2) * 2;
    const four_constants k = pair_constants<V>(p, min(n0 + column, p.columns - 2));
    int wait[2] = {0}; /* stay 0 */
    PARE_UNROLL for (int j = 0; j < V::ROWS / 8; j++)
    {
        typename V::sum sum[4];
        char *to[2];
        const char *z[2];
        PARE_UNROLL for (int r = 0; r < 2; r++)
        {
            to[r] = out + pair_at<V::Y_SIZE, V::ROWS>(row + r, column) + j * 8 * V::SLICE;
            z[r] = residual + pair_at<1, V::ROWS>(row + r, column) + j * 8 * V::Z_SLICE;
            PARE_UNROLL for (int c = 0; c < 2; c++)
            {
                typename V::sum s = acc[j * 4 + r + 2 * c];
                if (V::GELU) s = sum_behind(s, wait[j % 2]);
                if constexpr (V::INTEGER) s = (int)((unsigned)s - (unsigned)k.shift[c]);
                sum[r * 2 + c] = s;
            }
        }
        wait[j % 2] = block_finish<V>(p, l, g.inverse, sum, k, to, z) & g.zero;
    }
}

#endif
