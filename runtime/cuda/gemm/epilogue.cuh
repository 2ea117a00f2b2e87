/* SPDX-License-Identifier: Apache-2.0 */
/* What a block makes of a tile's sums. The common epilogues are types of their own: every number is
   made where its sum is, in registers, and Y is stored 16 bytes a thread through shared memory, in
   which a residual was brought the same way. All others go to shared memory as sums, and are
   finished four neighbours at a time, so that what a node does is decided once for four of them. */
#ifndef PARE_RUNTIME_CUDA_GEMM_EPILOGUE_CUH
#define PARE_RUNTIME_CUDA_GEMM_EPILOGUE_CUH

#include "runtime/cuda/gemm/tile.cuh"

typedef enum tile_epilogue {
    EPILOGUE_CLAMP,          /* rounded and clamped integers, or clamped floats of X's type */
    EPILOGUE_CLAMP_RESIDUAL, /* the same with a residual of Y's size */
    EPILOGUE_ANY,
    EPILOGUE_PARTIAL /* sums of a part of depth */
} tile_epilogue;

/* Of EPILOGUE_CLAMP. Integers: none, relu and clip are bounds of what is stored, because rounding
   keeps an order; a residual's byte, its sign turned by `flip`, becomes a float under 2^23, less
   `base`.
 */
typedef struct tile_clamp {
    float low, high, base;
    unsigned flip;
} tile_clamp;

/* A float of at most 2^22 that this is added to is rounded to an integer, its lowest bits are that.
 */
#define PARE_ROUNDER 12582912.0f

/* Constants of a tile's columns, in shared memory. */
template <int COLUMNS> struct tile_columns {
    float scale[COLUMNS], bias[COLUMNS];
    int shift[COLUMNS];
};

/* Those of columns behind the last are 0. A bias that is absent is -0, which changes no float. */
template <typename T>
SIMT_INLINE void constants_bring(const pare_cuda_gemm_args &p, const operands &o, int n0,
                                 tile_columns<T::BN> *k)
{
    const int c = (int)threadIdx.x, column = n0 + c;
    if (c < T::BN) { /* no tile has more columns than threads */
        const bool there = column < p.columns;
        k->scale[c] = o.scale && there ? o.scale[column] : 0;
        k->shift[c] = o.shift && there ? o.shift[column] : 0;
        k->bias[c] = o.bias && there && !p.bias_row
                         ? p.beta * pare_number_at(o.bias, p.bias_type, column * p.bias_column)
                         : -0.0f;
    }
}

/* --- tiles of Y's elements in shared memory --- */

/* A thread moves chunk `at` of rows `first`, first + LINES and so on. */
template <typename T, int BYTES> struct tile_rows {
    enum {
        PITCH = T::BN * BYTES + PARE_CUDA_CHUNK,
        PIECES = T::BN * BYTES / PARE_CUDA_CHUNK,
        LINES = T::THREADS / PIECES,
        MINE = T::BM / LINES
    };
};

/* Are all its rows and columns there, and chunks of them aligned? */
template <typename T, int BYTES>
SIMT_INLINE bool tile_is_whole(const pare_cuda_gemm_args &p, int64_t m0, int n0)
{
    return p.lot * BYTES == PARE_CUDA_CHUNK && m0 + T::BM <= p.rows && n0 + T::BN <= p.columns;
}

/* A thread's words of any tile: each(row, byte of it). */
template <typename T, int BYTES, typename EACH> SIMT_INLINE void words_each(EACH each)
{
    enum { WORDS = T::BN * BYTES / 4 };
    PARE_ROLLED for (int i = (int)threadIdx.x; i < T::BM * WORDS; i += T::THREADS)
        each(i / WORDS, i % WORDS * 4);
}

/* Of a tile that is not whole: move(byte of Y, byte of the tile, how many), words where they are
   aligned, else elements. */
template <typename T, int BYTES, typename MOVE>
SIMT_INLINE void parts_move(const pare_cuda_gemm_args &p, int64_t m0, int n0, MOVE move)
{
    const int width = (p.columns - n0) * BYTES;
    const bool words = p.lot * BYTES >= 4;
    words_each<T, BYTES>([&](int r, int b) {
        if (m0 + r >= p.rows) return;
        const int64_t far = ((m0 + r) * p.y_row + n0) * BYTES + b;
        const int near = r * tile_rows<T, BYTES>::PITCH + b;
        if (words && b + 4 <= width)
            move(far, near, 4);
        else
            PARE_ROLLED for (int k = 0; k < 4 && b + k < width; k += BYTES)
                move(far + k, near + k, BYTES);
    });
}

SIMT_INLINE void part_copy(char *to, const char *from, int bytes)
{
    if (bytes == 4)
        *reinterpret_cast<unsigned *>(to) = *reinterpret_cast<const unsigned *>(from);
    else if (bytes == 2)
        *reinterpret_cast<uint16_t *>(to) = *reinterpret_cast<const uint16_t *>(from);
    else
        *to = *from;
}

/* Brings what is laid out as Y. A barrier must follow. */
template <typename T, int BYTES>
SIMT_INLINE void tile_bring(const pare_cuda_gemm_args &p, const char *z, char *tile, int64_t m0,
                            int n0)
{
    typedef tile_rows<T, BYTES> rows;
    const int first = (int)threadIdx.x / rows::PIECES;
    const int at = (int)threadIdx.x % rows::PIECES * PARE_CUDA_CHUNK;
    if (tile_is_whole<T, BYTES>(p, m0, n0)) {
        const char *from = z + ((m0 + first) * p.y_row + n0) * BYTES + at;
        PARE_UNROLL for (int i = 0; i < rows::MINE; i++, from += rows::LINES * p.y_row * BYTES)
            simt_cp_async16(tile + (first + i * rows::LINES) * rows::PITCH + at, from,
                            PARE_CUDA_CHUNK);
        simt_cp_async_commit();
        simt_cp_async_wait<0>();
    } else { /* what is not there is 0 */
        words_each<T, BYTES>(
            [&](int r, int b) { *reinterpret_cast<unsigned *>(tile + r * rows::PITCH + b) = 0; });
        parts_move<T, BYTES>(p, m0, n0, [&](int64_t far, int near, int bytes) {
            part_copy(tile + near, z + far, bytes);
        });
    }
}

template <typename T, int BYTES>
SIMT_INLINE void tile_store(const pare_cuda_gemm_args &p, char *y, const char *tile, int64_t m0,
                            int n0)
{
    typedef tile_rows<T, BYTES> rows;
    const int first = (int)threadIdx.x / rows::PIECES;
    const int at = (int)threadIdx.x % rows::PIECES * PARE_CUDA_CHUNK;
    if (tile_is_whole<T, BYTES>(p, m0, n0)) {
        char *to = y + ((m0 + first) * p.y_row + n0) * BYTES + at;
        PARE_UNROLL for (int i = 0; i < rows::MINE; i++, to += rows::LINES * p.y_row * BYTES) *
            reinterpret_cast<uint4 *>(to) =
            *reinterpret_cast<const uint4 *>(tile + (first + i * rows::LINES) * rows::PITCH + at);
    } else {
        parts_move<T, BYTES>(p, m0, n0, [&](int64_t far, int near, int bytes) {
            part_copy(y + far, tile + near, bytes);
        });
    }
}

/* --- what is finished in registers --- */

/* Bounds before rounding: it keeps them, which are integers. */
SIMT_INLINE unsigned rounded(float v, const pare_cuda_gemm_args &p, const tile_clamp &l)
{
    return __float_as_uint(fminf(fmaxf(v + p.epilogue.y_zero, l.low), l.high) + PARE_ROUNDER);
}

/* Two neighbours of integer sums, stored at `to`. */
template <int KIND, bool RESIDUAL>
SIMT_INLINE void pair_finish(const pare_cuda_gemm_args &p, const tile_clamp &l, const int sum[2],
                             float2 scale, float2 bias, int2 shift, char *to)
{
    float a = ((float)(int)((unsigned)sum[0] - (unsigned)shift.x) + bias.x) * scale.x;
    float b = ((float)(int)((unsigned)sum[1] - (unsigned)shift.y) + bias.y) * scale.y;
    uint16_t *both = reinterpret_cast<uint16_t *>(to);
    if (RESIDUAL) {
        const unsigned z = *both ^ l.flip;
        a = fmaf(__uint_as_float(__byte_perm(z, 0x4b000000u, 0x7440)) - l.base, p.epilogue.z_scale,
                 a);
        b = fmaf(__uint_as_float(__byte_perm(z, 0x4b000000u, 0x7441)) - l.base, p.epilogue.z_scale,
                 b);
    }
    *both = (uint16_t)__byte_perm(rounded(a, p, l), rounded(b, p, l), 0x0040);
}

/* NaN stays NaN. */
SIMT_INLINE float clamped(float v, const tile_clamp &l)
{
    v = v < l.low ? l.low : v;
    return v > l.high ? l.high : v;
}

/* The same of float sums, which become halves. */
template <int KIND, bool RESIDUAL>
SIMT_INLINE void pair_finish(const pare_cuda_gemm_args &, const tile_clamp &l, const float sum[2],
                             float2, float2 bias, int2, char *to)
{
    float a = sum[0] + bias.x, b = sum[1] + bias.y;
    if (KIND == PARE_f16) {
        __half2 *both = reinterpret_cast<__half2 *>(to);
        if (RESIDUAL) {
            const __half2 z = *both;
            a += __low2float(z), b += __high2float(z);
        }
        const __half2 y = __floats2half2_rn(clamped(a, l), clamped(b, l));
        *both = y;
    } else {
        __nv_bfloat162 *both = reinterpret_cast<__nv_bfloat162 *>(to);
        if (RESIDUAL) {
            const __nv_bfloat162 z = *both;
            a += __low2float(z), b += __high2float(z);
        }
        const __nv_bfloat162 y = __floats2bfloat162_rn(clamped(a, l), clamped(b, l));
        *both = y;
    }
}

template <int KIND, typename T, bool RESIDUAL>
SIMT_INLINE void clamp_finish(const pare_cuda_gemm_args &p, const operands &o, const tile_clamp &l,
                              const accumulators<KIND, T> &sums, char *shared, int64_t m0, int n0)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element), PITCH = tile_rows<T, BYTES>::PITCH };
    tile_columns<T::BN> *k = reinterpret_cast<tile_columns<T::BN> *>(shared + T::BM * PITCH);
    const int lane = (int)threadIdx.x & 31;
    constants_bring<T>(p, o, n0, k);
    if (RESIDUAL) tile_bring<T, BYTES>(p, o.z, shared, m0, n0);
    __syncthreads();
    PARE_UNROLL for (int j = 0; j < T::TN; j++)
    {
        const int c = warp_column<T>() + j * 8 + (lane & 3) * 2;
        const float2 scale = *reinterpret_cast<const float2 *>(k->scale + c);
        const float2 bias = *reinterpret_cast<const float2 *>(k->bias + c);
        const int2 shift = *reinterpret_cast<const int2 *>(k->shift + c);
        PARE_UNROLL for (int i = 0; i < T::TM * 2; i++)
        {
            const int r = warp_row<T>() + i * 8 + (lane >> 2);
            pair_finish<KIND, RESIDUAL>(p, l, &sums.at[i / 2][j][i % 2 * 2], scale, bias, shift,
                                        shared + r * PITCH + c * BYTES);
        }
    }
    __syncthreads();
    tile_store<T, BYTES>(p, o.y, shared, m0, n0);
}

/* --- what is finished four columns at a time --- */

/* Four integer sums of a row's neighbours, scaled, with their residual, activated. */
SIMT_INLINE void vec4_epilogue(const pare_cuda_gemm_args &p, const operands &o, const int sum[4],
                               const float *scale, const float *bias, const int *shift, int64_t row,
                               int column, int left, int64_t at, float v[4])
{
    const pare_cuda_side x = o.x_side ? o.x_side[row] : pare_cuda_side{0, 0};
    PARE_UNROLL PARE_VEC4
    {
        unsigned s = (unsigned)sum[k] - (unsigned)shift[k];
        if (o.x_side && k < left) s -= sides_of(p, x, o.w_side[column + k]);
        v[k] = ((float)(int)s + bias[k]) * scale[k];
        if (k < left) v[k] = pare_epilogue_residual(&p.epilogue, v[k], o.z, at + k);
    }
    vec4_act(p.epilogue.act, v);
    if (p.epilogue.to == PARE_f32) return;
    PARE_UNROLL PARE_VEC4 v[k] = pare_epilogue_round(&p.epilogue, v[k]);
}

/* The same of float sums. */
SIMT_INLINE void vec4_epilogue(const pare_cuda_gemm_args &p, const operands &o, const float sum[4],
                               const float *, const float *bias, const int *, int64_t row,
                               int column, int left, int64_t at, float v[4])
{
    PARE_UNROLL PARE_VEC4
    {
        v[k] = sum[k] * p.alpha;
        if (k >= left) continue;
        if (!p.bias_row)
            v[k] += bias[k];
        else if (o.bias)
            v[k] += p.beta * pare_number_at(o.bias, p.bias_type,
                                            row * p.bias_row + (column + k) * p.bias_column);
        if (o.z) v[k] += pare_number_at(o.z, p.epilogue.z_type, at + k);
    }
    vec4_act(p.epilogue.act, v);
}

template <int KIND, typename T>
SIMT_INLINE void sums_store(const accumulators<KIND, T> &sums,
                            typename kind_of<KIND>::sum (*out)[T::BN + 8])
{
    const int lane = (int)threadIdx.x & 31;
    PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++)
            out[warp_row<T>() + i * 16 + (lane >> 2) + r / 2 * 8]
               [warp_column<T>() + j * 8 + (lane & 3) * 2 + r % 2] = sums.at[i][j][r];
}

/* Of sums that are in shared memory, and room behind them. */
template <typename T, typename SUM>
SIMT_INLINE void vec4_finish(const pare_cuda_gemm_args &p, const operands &o,
                             const SUM (*out)[T::BN + 8], tile_columns<T::BN> *k, int64_t m0,
                             int n0)
{
    const bool words = p.lot * bytes_of(p.y_type) >= (bytes_of(p.y_type) == 4 ? 16 : 4);
    constants_bring<T>(p, o, n0, k);
    __syncthreads();
    PARE_ROLLED for (int i = (int)threadIdx.x; i < T::BM * T::BN / 4; i += T::THREADS)
    {
        const int r = i / (T::BN / 4), c = i % (T::BN / 4) * 4, left = p.columns - n0 - c;
        const int64_t row = m0 + r, at = row * p.y_row + n0 + c;
        float v[4];
        if (row >= p.rows || left <= 0) continue;
        vec4_epilogue(p, o, &out[r][c], k->scale + c, k->bias + c, k->shift + c, row, n0 + c, left,
                      at, v);
        vec4_store(p.y_type, o.y, at, v, left, words);
    }
}

template <int KIND, typename T>
SIMT_INLINE void any_finish(const pare_cuda_gemm_args &p, const operands &o,
                            const accumulators<KIND, T> &sums, char *shared, int64_t m0, int n0)
{
    typedef typename kind_of<KIND>::sum sum;
    sum(*out)[T::BN + 8] = reinterpret_cast<sum(*)[T::BN + 8]>(shared);
    sums_store(sums, out);
    vec4_finish<T, sum>(p, o, out, reinterpret_cast<tile_columns<T::BN> *>(out + T::BM), m0, n0);
}

/* --- sums of a part of depth, (splits, batches, rows, columns) --- */

template <int KIND, typename T>
SIMT_INLINE void partial_finish(const pare_cuda_gemm_args &p, const accumulators<KIND, T> &sums,
                                int batch, int split, int64_t m0, int n0)
{
    typedef typename kind_of<KIND>::sum sum;
    const int lane = (int)threadIdx.x & 31;
    sum *to =
        static_cast<sum *>(p.partial) + ((int64_t)split * p.batches + batch) * p.rows * p.columns;
    PARE_UNROLL for (int i = 0; i < T::TM * 2; i++)
    {
        const int64_t row = m0 + warp_row<T>() + i * 8 + (lane >> 2);
        if (row >= p.rows) continue;
        PARE_UNROLL for (int j = 0; j < T::TN * 2; j++)
        {
            const int column = n0 + warp_column<T>() + j / 2 * 8 + (lane & 3) * 2 + j % 2;
            if (column < p.columns)
                to[row * p.columns + column] = sums.at[i / 2][j / 2][i % 2 * 2 + j % 2];
        }
    }
}

#endif
