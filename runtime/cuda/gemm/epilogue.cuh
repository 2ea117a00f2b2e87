/* SPDX-License-Identifier: Apache-2.0 */
/* What a block makes of a tile's sums. The common epilogues are types of their own: every number is
   made where its sum is, in registers, four neighbours at a time, and Y is stored 16 bytes a thread
   through shared memory, in which a residual was brought the same way. All others go to shared
   memory as sums, and are finished four neighbours at a time, so that what a node does is decided
   once for four of them. */
#ifndef PARE_RUNTIME_CUDA_GEMM_EPILOGUE_CUH
#define PARE_RUNTIME_CUDA_GEMM_EPILOGUE_CUH

#include "runtime/cuda/gemm/tile.cuh"

typedef enum tile_epilogue {
    EPILOGUE_CLAMP,          /* floats of X's type, clamped; integers, see tile_clamp */
    EPILOGUE_CLAMP_RESIDUAL, /* the same with a residual of Y's size */
    EPILOGUE_ANY,
    EPILOGUE_PARTIAL, /* sums of a part of depth */
    EPILOGUE_BOUNDS,  /* integers with a zero point or any bounds */
    EPILOGUE_BOUNDS_RESIDUAL
} tile_epilogue;

/* What an epilogue is: in registers, with a residual, with bounds. */
template <int END> struct end_of {
    enum {
        REGISTERS = END != EPILOGUE_ANY && END != EPILOGUE_PARTIAL,
        RESIDUAL = END == EPILOGUE_CLAMP_RESIDUAL || END == EPILOGUE_BOUNDS_RESIDUAL,
        BOUNDS = END == EPILOGUE_BOUNDS || END == EPILOGUE_BOUNDS_RESIDUAL
    };
};

/* Of what is finished in registers. Bounds: none, relu and clip are bounds of what is stored, as
   rounding keeps an order. A residual's byte, its sign turned by `flip`, becomes a float under
   2^23, less `base`. Where an integer's bounds are its type's, or 0 and 127, they are not needed: a
   number times 2^-149, plus `lift`, is subnormal, and its bits are it as the nearest integer, below
   0 a negative one; those saturate to 8 bits without sign. `turn` and `pick` then make of a byte
   what is stored: of s8 around 0 the byte with its sign turned, of s8 from 0 on at most 127.
   Others, and those with a zero point, are a number and `zero`, times 2^-24, as f16, whose bits
   from 0 to 2^-13 are integers: of 1,536 and the nearest integer, two to a word, as `bounds` are.
 */
typedef struct tile_clamp {
    float low, high, base, lift;
    unsigned flip, turn, pick, exponent, bounds[2];
    float zero;
    bool early; /* a residual has room of its own, and comes ahead of the sums */
} tile_clamp;

/* Constants of a tile's columns, in shared memory; shift: of sums in shared memory only. */
template <int COLUMNS> struct tile_columns {
    float scale[COLUMNS], bias[COLUMNS];
    int shift[COLUMNS];
};

/* Those of a column. */
typedef struct column_constants {
    float scale, bias;
    int shift;
} column_constants;

/* Those of columns behind the last are 0. A bias that is absent is -0, which changes no float. */
template <typename SUM>
SIMT_INLINE column_constants constants_read(const pare_cuda_gemm_args &p, const operands &o,
                                            int column, bool there)
{
    column_constants k = {0, -0.0f, 0};
    if constexpr ((SUM)0.5f == 0) { /* integers */
        k.scale = there ? o.scale[column] : 0;
        k.shift = o.shift && there ? o.shift[column] : 0;
        if (o.bias && there) k.bias = reinterpret_cast<const float *>(o.bias)[column];
    } else if (o.bias && there && !p.bias_row) {
        k.bias = p.beta * pare_number_at(o.bias, p.bias_type, column * p.bias_column);
    }
    return k;
}

/* --- tiles of Y's elements in shared memory --- */

/* What elements of so many bytes move as. */
template <int BYTES> struct word_part {
    typedef uint8_t type;
};
template <> struct word_part<2> {
    typedef uint16_t type;
};

/* A thread moves chunk `at` of rows `first`, first + LINES and so on. Rows are so far apart that
   eight lanes, of two rows each of four, are in different banks. */
template <typename T, int BYTES> struct tile_rows {
    enum {
        PITCH = (T::BN + PARE_CUDA_CHUNK) * BYTES,
        PIECES = T::BN * BYTES / PARE_CUDA_CHUNK,
        LINES = T::THREADS / PIECES,
        MINE = T::BM / LINES
    };
};

/* Bytes of a tile, and of the scales and biases of its columns. */
template <typename T, int BYTES> constexpr int tile_room(void)
{
    return T::BM * tile_rows<T, BYTES>::PITCH + 2 * T::BN * (int)sizeof(float);
}

/* Are all its rows and columns there, and chunks of them aligned? */
template <typename T, int BYTES>
SIMT_INLINE bool tile_is_whole(const pare_cuda_gemm_args &p, const tile_place &t)
{
    return p.lot * BYTES == PARE_CUDA_CHUNK && t.rows == T::BM && t.columns == T::BN;
}

/* A thread's chunks of a tile that is whole: each(byte of Y, byte of the tile). */
template <typename T, int BYTES, typename EACH>
SIMT_INLINE void chunks_each(const pare_cuda_gemm_args &p, const tile_place &t, EACH each)
{
    typedef tile_rows<T, BYTES> rows;
    const unsigned first = threadIdx.x / rows::PIECES;
    const int at = (int)threadIdx.x % rows::PIECES * PARE_CUDA_CHUNK;
    int64_t far = ((t.m0 + first) * p.y_row + t.n0) * BYTES + at;
    PARE_UNROLL for (int i = 0; i < rows::MINE; i++, far += rows::LINES * p.y_row * BYTES)
        each(far, ((int)first + i * rows::LINES) * rows::PITCH + at);
}

/* A thread's words of one that is not: each(byte of Y, byte of the tile, how many bytes
   are there, is it a whole word that is aligned in Y?) */
template <typename T, int BYTES, typename EACH>
SIMT_INLINE void words_each(const pare_cuda_gemm_args &p, const tile_place &t, EACH each)
{
    enum { WORDS = T::BN * BYTES / 4 };
    const bool aligned = p.lot * BYTES >= 4;
    PARE_ROLLED for (int i = (int)threadIdx.x; i < T::BM * WORDS; i += T::THREADS)
    {
        const int r = i / WORDS, b = i % WORDS * 4;
        const int left = r < t.rows ? t.columns * BYTES - b : 0;
        const int64_t far = ((t.m0 + r) * p.y_row + t.n0) * BYTES + b;
        each(far, r * tile_rows<T, BYTES>::PITCH + b, left, aligned && left >= 4);
    }
}

/* Begins to bring a tile that is whole. A wait and a barrier must follow. */
template <typename T, int BYTES>
SIMT_INLINE void tile_copy(const pare_cuda_gemm_args &p, const char *z, char *tile,
                           const tile_place &t)
{
    chunks_each<T, BYTES>(p, t, [&](int64_t far, int near) {
        simt_cp_async16(tile + near, z + far, PARE_CUDA_CHUNK);
    });
    simt_cp_async_commit();
}

/* Brings what is laid out as Y. A barrier must follow. */
template <typename T, int BYTES>
SIMT_INLINE void tile_bring(const pare_cuda_gemm_args &p, const char *z, char *tile,
                            const tile_place &t)
{
    typedef typename word_part<BYTES>::type part;
    if (tile_is_whole<T, BYTES>(p, t)) {
        tile_copy<T, BYTES>(p, z, tile, t);
        simt_cp_async_wait<0>();
    } else { /* what is not there is 0 */
        words_each<T, BYTES>(p, t, [&](int64_t far, int near, int left, bool word) {
            unsigned v = 0;
            if (word)
                v = *reinterpret_cast<const unsigned *>(z + far);
            else
                PARE_ROLLED for (int k = 0; k < 4 && k < left; k += BYTES) v |=
                    (unsigned)*reinterpret_cast<const part *>(z + far + k) << 8 * k;
            *reinterpret_cast<unsigned *>(tile + near) = v;
        });
    }
}

template <typename T, int BYTES>
SIMT_INLINE void tile_store(const pare_cuda_gemm_args &p, char *y, const char *tile,
                            const tile_place &t)
{
    typedef typename word_part<BYTES>::type part;
    if (tile_is_whole<T, BYTES>(p, t)) {
        chunks_each<T, BYTES>(p, t, [&](int64_t far, int near) {
            *reinterpret_cast<uint4 *>(y + far) = *reinterpret_cast<const uint4 *>(tile + near);
        });
    } else {
        words_each<T, BYTES>(p, t, [&](int64_t far, int near, int left, bool word) {
            const unsigned v = *reinterpret_cast<const unsigned *>(tile + near);
            if (word)
                *reinterpret_cast<unsigned *>(y + far) = v;
            else
                PARE_ROLLED for (int k = 0; k < 4 && k < left; k += BYTES) *
                    reinterpret_cast<part *>(y + far + k) = (part)(v >> 8 * k);
        });
    }
}

/* --- what is finished in registers --- */

SIMT_INLINE __half2 pair_of_bits(unsigned bits)
{
    __half2 pair;
    memcpy(static_cast<void *>(&pair), &bits, sizeof bits);
    return pair;
}

/* Two numbers with a zero point, within bounds, in the low bytes of a word's halves. The first
   rounding is that of their addition, the second that to f16. */
SIMT_INLINE unsigned pair_bound(const tile_clamp &l, float a, float b)
{
    unsigned bits;
    __half2 v = __floats2half2_rn(fmaf(a, 0x1p-24f, l.zero), fmaf(b, 0x1p-24f, l.zero));
    v = __hadd2(v, pair_of_bits(0x06000600u));
    v = __hmin2(__hmax2(v, pair_of_bits(l.bounds[0])), pair_of_bits(l.bounds[1]));
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* Four numbers as 8 bits each; BOUNDS: with a zero point and any bounds. */
template <bool BOUNDS> SIMT_INLINE unsigned four_pack(const tile_clamp &l, const float v[4])
{
    if constexpr (BOUNDS) {
        return __byte_perm(pair_bound(l, v[0], v[1]), pair_bound(l, v[2], v[3]), 0x6420);
    } else {
        int bits[4];
        PARE_UNROLL PARE_VEC4 bits[k] = __float_as_int(fmaf(v[k], 0x1p-149f, l.lift));
        const unsigned u = simt_saturate_u8x4(bits), turn = simt_permute_bytes(u, l.turn, l.pick);
        return simt_xor_or(u, turn, 0x80808080u);
    }
}

/* Four neighbours of integer sums, stored at `to`; returns what is stored. */
template <int END>
SIMT_INLINE unsigned four_finish(const pare_cuda_gemm_args &p, const tile_clamp &l,
                                 const int sum[4], const float scale[4], const float bias[4],
                                 char *to)
{
    unsigned *word = reinterpret_cast<unsigned *>(to);
    float v[4];
    const unsigned z = end_of<END>::RESIDUAL ? *word ^ l.flip : 0;
    PARE_UNROLL PARE_VEC4
    {
        v[k] = ((float)sum[k] + bias[k]) * scale[k];
        if (end_of<END>::RESIDUAL)
            v[k] = fmaf(byte_at(z, k, l.exponent) - l.base, p.epilogue.z_scale, v[k]);
    }
    return *word = four_pack<end_of<END>::BOUNDS>(l, v);
}

/* NaN stays NaN. */
SIMT_INLINE float clamped(float v, const tile_clamp &l)
{
    v = v < l.low ? l.low : v;
    return v > l.high ? l.high : v;
}

SIMT_INLINE float2 pair_read(__half2 v) { return make_float2(__low2float(v), __high2float(v)); }
SIMT_INLINE float2 pair_read(__nv_bfloat162 v)
{
    return make_float2(pare_to_f32(v.x), pare_to_f32(v.y));
}

template <int TO> struct pair_of {
    typedef __half2 type;
};
template <> struct pair_of<PARE_bf16> {
    typedef __nv_bfloat162 type;
};

/* Adds four neighbours of type TO. */
template <int TO> SIMT_INLINE void four_add(const char *from, float v[4])
{
    if constexpr (TO == PARE_f32) {
        float z[4];
        vec_load<4>(reinterpret_cast<const float *>(from), 0, 1, z);
        PARE_UNROLL PARE_VEC4 v[k] += z[k];
    } else {
        typename pair_of<TO>::type z[2];
        vec_load<2>(reinterpret_cast<const typename pair_of<TO>::type *>(from), 0, 1, z);
        PARE_UNROLL for (int k = 0; k < 2; k++)
        {
            const float2 f = pair_read(z[k]);
            v[2 * k] += f.x, v[2 * k + 1] += f.y;
        }
    }
}

/* Four neighbours of type TO, in one copy. */
template <int TO> SIMT_INLINE void four_write(char *to, const float v[4])
{
    if constexpr (TO == PARE_f32) {
        vec_store<4>(reinterpret_cast<float *>(to), 0, v);
    } else if constexpr (TO == PARE_f16) {
        const __half2 y[2] = {__floats2half2_rn(v[0], v[1]), __floats2half2_rn(v[2], v[3])};
        vec_store<2>(reinterpret_cast<__half2 *>(to), 0, y);
    } else {
        const __nv_bfloat162 y[2] = {__floats2bfloat162_rn(v[0], v[1]),
                                     __floats2bfloat162_rn(v[2], v[3])};
        vec_store<2>(reinterpret_cast<__nv_bfloat162 *>(to), 0, y);
    }
}

/* Four neighbours of floats, stored at `to` as TO. */
template <int TO, bool RESIDUAL>
SIMT_INLINE void floats_finish(const tile_clamp &l, float v[4], char *to)
{
    if (RESIDUAL) four_add<TO>(to, v);
    PARE_UNROLL PARE_VEC4 v[k] = clamped(v[k], l);
    four_write<TO>(to, v);
}

/* A tile of Y in shared memory, with constants of its columns behind it. A residual was brought
   there, or is on its way. */
template <int KIND, typename T, int END>
SIMT_INLINE void clamp_make(const pare_cuda_gemm_args &p, const tile_clamp &l,
                            const accumulators<KIND, T> &sums, const column_constants &mine,
                            char *shared)
{
    typedef typename kind_of<KIND>::sum sum;
    enum { BYTES = sizeof(typename kind_of<KIND>::element), PITCH = tile_rows<T, BYTES>::PITCH };
    tile_columns<T::BN> *k = reinterpret_cast<tile_columns<T::BN> *>(shared + T::BM * PITCH);
    if ((int)threadIdx.x < T::BN) {
        if (BYTES == 1) k->scale[threadIdx.x] = mine.scale;
        k->bias[threadIdx.x] = mine.bias;
    }
    __syncthreads();
    PARE_UNROLL for (int j = 0; j < fours_of<T>::FOURS; j++)
    {
        const int c = four_column<T>(j);
        float scale[4], bias[4];
        if (BYTES == 1) vec_load<4>(k->scale, c, 1, scale);
        vec_load<4>(k->bias, c, 1, bias);
        PARE_UNROLL for (int i = 0; i < fours_of<T>::ROWS_MINE; i++)
        {
            sum four[4];
            char *to = shared + four_row<T>(i) * PITCH + c * BYTES;
            four_read(sums, i, j, four);
            if constexpr (BYTES == 1) {
                four_finish<END>(p, l, four, scale, bias, to);
            } else {
                PARE_UNROLL for (int n = 0; n < 4; n++) four[n] += bias[n];
                floats_finish<KIND, end_of<END>::RESIDUAL>(l, four, to);
            }
        }
    }
    __syncthreads();
}

template <int KIND, typename T, int END>
SIMT_INLINE void clamp_finish(const pare_cuda_gemm_args &p, const operands &o, const tile_clamp &l,
                              const accumulators<KIND, T> &sums, const column_constants &mine,
                              char *shared, bool brought, const tile_place &t)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    if (end_of<END>::RESIDUAL && !brought) tile_bring<T, BYTES>(p, o.z, shared, t);
    clamp_make<KIND, T, END>(p, l, sums, mine, shared);
    tile_store<T, BYTES>(p, o.y, shared, t);
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
        if (k < left) v[k] = residual_add(p.epilogue, v[k], o.z, at + k);
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

template <int KIND, typename T, typename SUM>
SIMT_INLINE void sums_store(const accumulators<KIND, T> &sums, SUM (*out)[T::BN + 8])
{
    PARE_UNROLL for (int i = 0; i < fours_of<T>::ROWS_MINE; i++)
        PARE_UNROLL for (int j = 0; j < fours_of<T>::FOURS; j++)
    {
        SUM four[4];
        four_read(sums, i, j, four);
        vec_store<4>(out[four_row<T>(i)], four_column<T>(j), four);
    }
}

/* Of sums that are in shared memory, and room behind them. */
template <typename T, typename SUM>
SIMT_INLINE void vec4_finish(const pare_cuda_gemm_args &p, const operands &o,
                             const SUM (*out)[T::BN + 8], tile_columns<T::BN> *k, int64_t m0,
                             int n0)
{
    const bool words = p.lot * bytes_of(p.y_type) >= (bytes_of(p.y_type) == 4 ? 16 : 4);
    const int mine = (int)threadIdx.x;
    if (mine < T::BN) { /* no tile has more columns than threads */
        const column_constants c = constants_read<SUM>(p, o, n0 + mine, n0 + mine < p.columns);
        k->scale[mine] = c.scale, k->bias[mine] = c.bias, k->shift[mine] = c.shift;
    }
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
    sum *to =
        static_cast<sum *>(p.partial) + ((int64_t)split * p.batches + batch) * p.rows * p.columns;
    PARE_UNROLL for (int i = 0; i < fours_of<T>::ROWS_MINE; i++)
    {
        const int64_t row = m0 + four_row<T>(i);
        if (row >= p.rows) continue;
        PARE_UNROLL for (int j = 0; j < fours_of<T>::FOURS; j++)
        {
            const int column = n0 + four_column<T>(j);
            sum four[4];
            four_read(sums, i, j, four);
            PARE_UNROLL PARE_VEC4 if (column + k < p.columns) to[row * p.columns + column + k] =
                four[k];
        }
    }
}

#endif
