/* SPDX-License-Identifier: Apache-2.0 */
/* QAttention on tensor cores, the bytes of runtime/ops/attention.h. A probability's step needs the
   sum of its row first, and no sum is rounded on the way: so all scores of a query are held at
   once. A warp has 16 queries and up to 128 keys, whose scores stay in registers; `slices` warps
   share the keys of one query, `groups` the queries of a block, which has K and V whole in shared
   memory. Maxima, sums of exponentials and sums of products go over shared memory from slice to
   slice; they are maxima and whole numbers, which no order changes. Where K and V do not fit side
   by side, V comes over K. Keys that a constant mask takes from all queries of a block are not
   read.

   What two tiles of scores are as sums is what the product with V wants as factors, four neighbours
   of depth in a word: keys 2t, 2t + 1 of both tiles. Words of V as ldmatrix transposes them have
   two columns of two keys; two bytes of each make a factor of even columns, the others one of odd
   columns, so that a lane ends with four neighbours of Y. */
#include "runtime/cuda/attention.cuh"
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/mma.cuh"
#include "runtime/cuda/device/vec_number.cuh"
#include "runtime/ops/softmax_codes.h"

enum {
    ROWS = PARE_Q_ATTENTION_QUERIES,
    KEYS = PARE_Q_ATTENTION_KEYS,
    THREADS = PARE_Q_ATTENTION_WARPS * 32,
    CHUNK = 16 /* bytes */
};
enum {
    MASK_NONE,
    MASK_ROW, /* one for all queries */
    MASK_ANY
};

/* Bytes of a row of depth D in shared memory: eight rows of an ldmatrix fall into different banks.
   pare_q_attention_shared counts them, and what block_memory has. */
template <int D> struct row_of_bytes {
    uint4 at[D / CHUNK + 1];
};

/* What a block has in shared memory, in this order. */
template <int D> struct block_memory {
    row_of_bytes<D> *q, *k, *v; /* v == k: in turn */
    float *mask;                /* (keys), of MASK_ROW */
    int *rows, *columns;        /* what zero points add to a query's and to a key's sums */
    float *top;                 /* (slices, queries) */
    unsigned *sum;              /* (slices, queries) */
};

/* `count` rows from row `first` on; what is behind `end`, or the last column, is 0. A thread copies
   the same chunk of rows that are as far apart as threads reach. */
template <int D>
SIMT_INLINE void rows_bring(row_of_bytes<D> *to, const char *from, int row, int first, int end,
                            int count, int width)
{
    enum { CHUNKS = D / CHUNK };
    const unsigned c = threadIdx.x % CHUNKS, step = blockDim.x / CHUNKS;
    const bool wide = (int)c * CHUNK < width;
    int r = (int)(threadIdx.x / CHUNKS);
    const char *at = from + (int64_t)(first + r) * row + c * CHUNK;
    const int64_t far = (int64_t)(int)step * row;
    PARE_ROLLED for (; r < count; r += (int)step, at += far)
    {
        const bool there = wide && first + r < end;
        simt_cp_async16(&to[r].at[c], there ? at : from, there ? CHUNK : 0);
    }
}

/* Makes `count` rows s8, and writes factor * (the sum of a row) + plus to sum unless it is NULL.
   width: of which rows have numbers. */
template <int D>
SIMT_INLINE void rows_sign(row_of_bytes<D> *rows, int count, int width, unsigned flip, int *sum,
                           int factor, int plus)
{
    PARE_ROLLED for (int r = (int)threadIdx.x; r < count; r += (int)blockDim.x)
    {
        int all = 0;
        for (int c = 0; c * CHUNK < width; c++) {
            uint4 v = rows[r].at[c];
            v.x ^= flip, v.y ^= flip, v.z ^= flip, v.w ^= flip;
            rows[r].at[c] = v;
            all = __dp4a((int)v.x, 0x01010101, __dp4a((int)v.y, 0x01010101, all));
            all = __dp4a((int)v.z, 0x01010101, __dp4a((int)v.w, 0x01010101, all));
        }
        if (sum) sum[r] = factor * all + plus;
    }
}

/* Of a warp's rows lane / 4 and lane / 4 + 8: over the four lanes that share them. */
SIMT_INLINE float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
template <class T> SIMT_INLINE T quad_sum(T v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* Where a warp is: its keys among the block's, its queries, a lane's first row of these. */
typedef struct warp_place {
    int slice, first, own; /* the warp's slice; its first key, and how many it has */
    int row;               /* of the block's queries: lane / 4 of the warp's */
    int query;             /* the same of all queries */
    const float *mask;     /* of this head and the block's first key */
} warp_place;

/* Scores of 16 queries and 128 keys: two tiles of eight keys are what a word of depth has. */
typedef struct warp_scores {
    float at[KEYS / 8][4];
} warp_scores;

/* Of MASK_ROW: `count` keys, of which the first `keys` are there. */
SIMT_INLINE void mask_bring(float *to, const float *from, int last, int keys, int count)
{
    const int64_t step = (int64_t)(int)blockDim.x * last;
    const float *at = from + (int64_t)(int)threadIdx.x * last;
    PARE_ROLLED for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x, at += step) to[i] =
        i < keys ? *at : -INFINITY;
}

/* Sums of one tile as scores. key: the lane's first one, of the warp's. */
template <int D, int MASK>
SIMT_INLINE void tile_scale(float to[4], const int sum[4], const pare_cuda_attend_int8 &a,
                            const block_memory<D> &m, const warp_place &w, int key)
{
    float2 mask = make_float2(0, 0);
    if (MASK == MASK_ROW) mask = *reinterpret_cast<const float2 *>(m.mask + w.first + key);
    PARE_UNROLL for (int r = 0; r < 4; r++)
    {
        to[r] = (float)sum[r] * a.a.scale;
        if (MASK == MASK_ROW) to[r] += r % 2 ? mask.y : mask.x;
        const int query = w.query + r / 2 * 8, k = key + r % 2;
        if (MASK == MASK_ANY && k < w.own && query < a.queries)
            to[r] += w.mask[(int64_t)query * a.mask.row + (int64_t)(w.first + k) * a.mask.last];
    }
}

/* Scores of a warp's 16 keys from tile 2 * pair on. */
template <int D, int MASK, bool SHIFTED>
SIMT_INLINE void pair_make(warp_scores &s, int pair, const unsigned q[D / 32][4],
                           const pare_cuda_attend_int8 &a, const block_memory<D> &m,
                           const warp_place &w)
{
    const int lane = (int)threadIdx.x & 31, key = pair * 16 + (lane & 3) * 2;
    const row_of_bytes<D> *k = m.k + w.first + pair * 16 + (lane & 7) + (lane >> 4) * 8;
    int sum[2][4] = {};
    if (SHIFTED)
        PARE_UNROLL for (int t = 0; t < 2; t++) PARE_UNROLL for (int r = 0; r < 4; r++) sum[t][r] =
            m.rows[w.row + r / 2 * 8] + m.columns[w.first + key + t * 8 + r % 2];
    PARE_UNROLL for (int d = 0; d < D / 32; d++)
    {
        unsigned b[4];
        simt_ldmatrix_x4(b, &k->at[d * 2 + (lane >> 3 & 1)]);
        simt_mma_m16n8k32_s8s8(sum[0], q[d], b);
        simt_mma_m16n8k32_s8s8(sum[1], q[d], b + 2);
    }
    PARE_UNROLL for (int t = 0; t < 2; t++)
    {
        float *to = s.at[pair * 2 + t];
        tile_scale<D, MASK>(to, sum[t], a, m, w, key + t * 8);
        if (MASK != MASK_ROW && (pair + 1) * 16 > w.own)
            PARE_UNROLL for (int r = 0; r < 4; r++) if (key + t * 8 + r % 2 >= w.own) to[r] =
                -INFINITY;
    }
}

/* All scores of a warp, and the largest of a lane's two rows. */
template <int D, int MASK, bool SHIFTED>
SIMT_INLINE void scores_make(warp_scores &s, float top[2], const pare_cuda_attend_int8 &a,
                             const block_memory<D> &m, const warp_place &w)
{
    const int lane = (int)threadIdx.x & 31;
    unsigned q[D / 32][4];
    PARE_UNROLL for (int d = 0; d < D / 32; d++)
        simt_ldmatrix_x4(q[d], &m.q[w.row - (lane >> 2) + (lane & 15)].at[d * 2 + (lane >> 4)]);
    top[0] = top[1] = -INFINITY;
    PARE_UNROLL for (int pair = 0; pair < KEYS / 16; pair++)
    {
        if (pair * 16 < w.own) {
            pair_make<D, MASK, SHIFTED>(s, pair, q, a, m, w);
        } else {
            PARE_UNROLL for (int t = 0; t < 2; t++) PARE_UNROLL for (int r = 0; r < 4; r++)
                s.at[pair * 2 + t][r] = -INFINITY;
        }
        PARE_UNROLL for (int t = 0; t < 2; t++) PARE_UNROLL for (int r = 0; r < 4; r++) top[r / 2] =
            fmaxf(top[r / 2], s.at[pair * 2 + t][r]);
    }
    PARE_UNROLL for (int h = 0; h < 2; h++) top[h] = quad_max(top[h]);
}

/* Over the slices of a query; all threads call it. */
template <int D>
SIMT_INLINE void tops_join(float top[2], const pare_cuda_attend_int8 &a, const block_memory<D> &m,
                           const warp_place &w)
{
    const int rows = a.b.groups * ROWS;
    PARE_UNROLL for (int h = 0; h < 2; h++) if ((threadIdx.x & 3) == 0)
        m.top[w.slice * rows + w.row + h * 8] = top[h];
    __syncthreads();
    for (int i = 0; i < a.b.slices; i++)
        PARE_UNROLL for (int h = 0; h < 2; h++) top[h] =
            fmaxf(top[h], m.top[i * rows + w.row + h * 8]);
}

template <int D>
SIMT_INLINE void sums_join(unsigned long long total[2], const pare_cuda_attend_int8 &a,
                           const block_memory<D> &m, const warp_place &w)
{
    const int rows = a.b.groups * ROWS;
    PARE_UNROLL for (int h = 0; h < 2; h++)
    {
        if ((threadIdx.x & 3) == 0) m.sum[w.slice * rows + w.row + h * 8] = (unsigned)total[h];
        total[h] = 0;
    }
    __syncthreads();
    for (int i = 0; i < a.b.slices; i++)
        PARE_UNROLL for (int h = 0; h < 2; h++) total[h] += m.sum[i * rows + w.row + h * 8];
}

/* What is taken from rows of which one is so far away; seldom. */
SIMT_INLINE void scores_lessen(warp_scores &s, const float top[2])
{
    const float less[2] = {pare_softmax_less(top[0]), pare_softmax_less(top[1])};
    if (!__any_sync(0xffffffffu, less[0] != 0 || less[1] != 0)) return;
    PARE_UNROLL for (int j = 0; j < KEYS / 8; j++) PARE_UNROLL for (int r = 0; r < 4; r++)
        s.at[j][r] -= less[r / 2];
}

/* Scores become exponentials times 2^-60, 0 where there are no keys; sum: of a lane's two rows. */
SIMT_INLINE void powers_make(warp_scores &s, unsigned long long sum[2], const float top[2], int own)
{
    unsigned part[2] = {0, 0};
    float low[2], round[2];
    PARE_UNROLL for (int h = 0; h < 2; h++) low[h] = pare_softmax_low(top[h]),
                                            round[h] = pare_softmax_round(top[h]) - 60;
    PARE_UNROLL for (int pair = 0; pair < KEYS / 16; pair++)
    {
        float *e = s.at[pair * 2];
        if (pair * 16 < own) {
            PARE_UNROLL for (int i = 0; i < 8; i++)
            {
                const int h = i / 2 % 2;
                e[i] = pare_softmax_power(e[i], low[h], round[h]);
                part[h] += pare_softmax_part(fmaf(e[i], 0x1p60f, 1));
            }
        } else {
            PARE_UNROLL for (int i = 0; i < 8; i++) e[i] = 0;
        }
    }
    PARE_UNROLL for (int h = 0; h < 2; h++) sum[h] = quad_sum(part[h]);
}

/* Four steps of one row: of two tiles' keys. c is times 2^-89, so that products are subnormal:
   their bits are the nearest integers, which saturate to 8 bits, or behind them to seven. */
SIMT_INLINE unsigned steps_pack(const float low[2], const float high[2], float c, bool seven)
{
    int v[4];
    PARE_UNROLL PARE_VEC4 v[k] = __float_as_int((k < 2 ? low[k] : high[k - 2]) * c);
    const unsigned u = simt_saturate_u8x4(v),
                   over = simt_permute_bytes(u, 0, seven ? 0xba98 : 0x4444);
    return (u | over) & (seven ? 0x7f7f7f7fu : 0xffffffffu);
}

/* The factors of the product with V: of 32 keys each, as mma wants them. */
SIMT_INLINE void steps_make(unsigned p[KEYS / 32][4], const warp_scores &s, const float c[2],
                            bool seven)
{
    PARE_UNROLL for (int k = 0; k < KEYS / 32; k++) PARE_UNROLL for (int i = 0; i < 4; i++)
    {
        const int tile = 4 * k + i / 2 * 2, h = i % 2;
        p[k][i] = steps_pack(&s.at[tile][h * 2], &s.at[tile + 1][h * 2], c[h], seven);
    }
}

/* Adds steps times rows of V. y: of 16 columns the even ones, then the odd ones. */
template <int D>
SIMT_INLINE void values_add(int y[D / 8][4], const unsigned p[KEYS / 32][4],
                            const row_of_bytes<D> *v, int own)
{
    const int lane = (int)threadIdx.x & 31;
    PARE_UNROLL for (int k = 0; k < KEYS / 32; k++) if (k * 32 < own)
        PARE_UNROLL for (int d = 0; d < D / 16; d++)
    {
        unsigned w[4], even[2], odd[2];
        simt_ldmatrix_x4_trans(w, &v[k * 32 + lane].at[d]);
        PARE_UNROLL for (int i = 0; i < 2; i++)
        {
            even[i] = __byte_perm(w[i * 2], w[i * 2 + 1], 0x6420);
            odd[i] = __byte_perm(w[i * 2], w[i * 2 + 1], 0x7531);
        }
        simt_mma_m16n8k32_u8s8(y[2 * d], p[k], even);
        simt_mma_m16n8k32_u8s8(y[2 * d + 1], p[k], odd);
    }
}

/* Takes away what V's zero point added. Steps are summed as s8, less 128 each. */
template <int D>
SIMT_INLINE void values_shift(int y[D / 8][4], const unsigned p[KEYS / 32][4], int zero)
{
    int sum[2] = {KEYS / 4 * 128, KEYS / 4 * 128};
    PARE_UNROLL for (int k = 0; k < KEYS / 32; k++) PARE_UNROLL for (int i = 0; i < 4; i++)
        sum[i % 2] = __dp4a((int)(p[k][i] ^ 0x80808080u), 0x01010101, sum[i % 2]);
    PARE_UNROLL for (int h = 0; h < 2; h++) sum[h] = quad_sum(sum[h]) * zero;
    PARE_UNROLL for (int d = 0; d < D / 8; d++) PARE_UNROLL for (int r = 0; r < 4; r++) y[d][r] -=
        sum[r / 2];
}

/* --- what follows the sums --- */

/* Four neighbours of one query as codes: epilogue.h without bias and activation. A number times
   2^-149 is subnormal, too; s8 are moved up before, and back by their signs. */
SIMT_INLINE void codes_store(const pare_cuda_attend_int8 &a, char *to, const int sum[4])
{
    const bool sign = a.type == PARE_s8;
    int bits[4];
    PARE_UNROLL PARE_VEC4 bits[k] = __float_as_int(
        fmaf((float)sum[k] * a.a.m + a.a.epilogue.y_zero, 0x1p-149f, sign ? 0x1p-142f : 0));
    *reinterpret_cast<unsigned *>(to) = simt_saturate_u8x4(bits) ^ (sign ? 0x80808080u : 0);
}

SIMT_INLINE void floats_store(const pare_cuda_attend_int8 &a, char *y, int64_t at, const int sum[4])
{
    float v[4];
    PARE_UNROLL PARE_VEC4 v[k] = (float)sum[k] * a.a.m;
    vec4_store(a.type, y, at, v, 4, true);
}

/* Codes of one slice: a lane has its four. y: of this head. */
template <int D>
SIMT_INLINE void outputs_write(const pare_cuda_attend_int8 &a, char *head, const warp_place &w,
                               const int y[D / 8][4])
{
    const int column = ((int)threadIdx.x & 3) * 4;
    PARE_UNROLL for (int h = 0; h < 2; h++)
    {
        const int query = w.query + h * 8;
        char *to = head + (int64_t)query * a.y.row + column;
        PARE_UNROLL for (int d = 0; d < D / 16; d++)
        {
            const int *even = &y[2 * d][h * 2], *odd = &y[2 * d + 1][h * 2];
            const int four[4] = {even[0], odd[0], even[1], odd[1]};
            if (query < a.queries && d * 16 < a.width) codes_store(a, to + d * 16, four);
        }
    }
}

SIMT_INLINE char *y_of(const pare_cuda_attend_int8 &a)
{
    return static_cast<char *>(const_cast<void *>(a.y.data));
}

/* Of more slices, which add up in shared memory where K and V were, and floats. All threads call
   it. */
template <int D>
SIMT_INLINE void outputs_join(const pare_cuda_attend_int8 &a, int64_t head, const warp_place &w,
                              int first, int (*all)[D + 4], const int y[D / 8][4])
{
    const int lane = (int)threadIdx.x & 31;
    PARE_ROLLED for (int turn = 0; turn < 2; turn++)
    {
        __syncthreads(); /* K and V are read; the first slice's sums are there */
        if ((turn == 0) != (w.slice == 0)) continue;
        PARE_UNROLL for (int d = 0; d < D / 8; d++) PARE_UNROLL for (int r = 0; r < 4; r++)
        {
            int *to = &all[w.row + r / 2 * 8][d / 2 * 16 + (lane & 3) * 4 + r % 2 * 2 + d % 2];
            if (turn == 0)
                *to = y[d][r];
            else
                atomicAdd(to, y[d][r]);
        }
    }
    __syncthreads();
    PARE_ROLLED for (int i = (int)threadIdx.x; i < a.b.groups * ROWS * (D / 4);
                     i += (int)blockDim.x)
    {
        const int row = i / (D / 4), at = i % (D / 4) * 4;
        const int query = first + row;
        const int64_t to = head + (int64_t)query * a.y.row + at;
        if (query >= a.queries || at >= a.width) continue;
        if (a.a.epilogue.to == PARE_f32)
            floats_store(a, y_of(a), to, &all[row][at]);
        else
            codes_store(a, y_of(a) + to, &all[row][at]);
    }
}

/* --- the kernel --- */

SIMT_INLINE int64_t near_offset(const pare_cuda_near_operand &o,
                                const int index[PARE_CUDA_HEAD_AXES])
{
    int64_t at = 0;
    PARE_UNROLL for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) at += (int64_t)index[i] * o.head[i];
    return at;
}

template <int D>
SIMT_INLINE block_memory<D> memory_of(const pare_cuda_attend_int8 &a, void *shared, int keys)
{
    block_memory<D> m;
    const int queries = a.b.groups * ROWS;
    m.q = static_cast<row_of_bytes<D> *>(shared);
    m.k = m.q + queries;
    m.v = a.in_turn ? m.k : m.k + keys;
    m.mask = reinterpret_cast<float *>(m.v + keys);
    m.columns = reinterpret_cast<int *>(m.mask + keys);
    m.rows = m.columns + keys;
    m.top = reinterpret_cast<float *>(m.rows + queries);
    m.sum = reinterpret_cast<unsigned *>(m.top + a.b.slices * queries);
    return m;
}

/* Where heads are wide, blocks have half as many warps: a mask's addresses take registers. */
template <int D, int MASK, bool SHIFTED>
static __global__ void __launch_bounds__(D > 64 && MASK == MASK_ANY ? THREADS / 2 : THREADS, 1)
    attention_int8(pare_cuda_attend_int8 a)
{
    simt_dependency_wait();
    SIMT_DYN_SHARED(uint4, shared);
    const block_memory<D> m = memory_of<D>(a, shared, pare_q_attention_rows(a.b.slice, a.b.slices));
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int queries = a.b.groups * ROWS;
    int left = (int)blockIdx.x, block = 0;
    int index[PARE_CUDA_HEAD_AXES];
    PARE_UNROLL for (int i = PARE_CUDA_HEAD_AXES; i >= 0; i--)
    {
        const int whole = i ? fast_divide(left, a.by[i - 1]) : 0,
                  part = i ? left - whole * a.by[i - 1].by : left;
        if (i == PARE_CUDA_HEAD_AXES)
            block = part;
        else
            index[i] = part;
        left = whole;
    }
    const int first = block * queries;
    const int *range = a.range ? a.range + block * 3 : NULL;
    const int begin = range ? range[0] : 0, end = range ? range[1] : a.keys,
              slice = range ? range[2] : a.b.slice,
              count = pare_q_attention_rows(slice, a.b.slices);
    const char *v = static_cast<const char *>(a.v.data) + near_offset(a.v, index);
    warp_place w;
    w.slice = fast_divide(warp, a.by_groups);
    w.first = w.slice * slice;
    w.row = (warp - w.slice * a.b.groups) * ROWS + (lane >> 2);
    w.query = first + w.row;
    w.mask = static_cast<const float *>(a.mask.data) + near_offset(a.mask, index) +
             (int64_t)begin * a.mask.last;
    w.own = end - begin - w.first < slice ? end - begin - w.first : slice;
    if (first + w.row - (lane >> 2) >= a.queries) w.own = 0;

    rows_bring<D>(m.q, static_cast<const char *>(a.q.data) + near_offset(a.q, index), a.q.row,
                  first, a.queries, queries, a.depth);
    rows_bring<D>(m.k, static_cast<const char *>(a.k.data) + near_offset(a.k, index), a.k.row,
                  begin, end, count, a.depth);
    simt_cp_async_commit();
    if (!a.in_turn) rows_bring<D>(m.v, v, a.v.row, begin, end, count, a.width);
    simt_cp_async_commit();
    if (MASK == MASK_ROW) mask_bring(m.mask, w.mask, a.mask.last, end - begin, count);
    simt_cp_async_wait<1>();
    __syncthreads();
    if (SHIFTED) {
        rows_sign<D>(m.q, queries, a.depth, a.q_flip, m.rows, -a.k_zero,
                     a.depth * a.q_zero * a.k_zero);
        rows_sign<D>(m.k, count, a.depth, a.k_flip, m.columns, -a.q_zero, 0);
        __syncthreads();
    }

    warp_scores s;
    unsigned long long total[2];
    unsigned p[KEYS / 32][4];
    float top[2], c[2];
    scores_make<D, MASK, SHIFTED>(s, top, a, m, w);
    if (a.b.slices > 1) tops_join<D>(top, a, m, w);
    scores_lessen(s, top);
    powers_make(s, total, top, w.own);
    if (a.b.slices > 1) sums_join<D>(total, a, m, w);
    PARE_UNROLL for (int h = 0; h < 2; h++) c[h] =
        pare_softmax_factor(top[h], (float)total[h], a.a.p_scale) * 0x1p-89f;
    steps_make(p, s, c, a.a.p_steps == 127);

    if (a.in_turn) {
        __syncthreads();
        rows_bring<D>(m.v, v, a.v.row, begin, end, count, a.width);
        simt_cp_async_commit();
    }
    simt_cp_async_wait<0>();
    __syncthreads();
    if (SHIFTED) {
        rows_sign<D>(m.v, count, a.width, a.v_flip, NULL, 0, 0);
        __syncthreads();
    }
    int y[D / 8][4] = {};
    values_add<D>(y, p, m.v + w.first, w.own);
    if (SHIFTED) values_shift<D>(y, p, a.v_zero);
    simt_dependents_launch();
    const int64_t head = near_offset(a.y, index);
    if (a.b.slices > 1 || a.a.epilogue.to == PARE_f32)
        outputs_join<D>(a, head, w, first, reinterpret_cast<int(*)[D + 4]>(m.k), y);
    else
        outputs_write<D>(a, y_of(a) + head, w, y);
}

/* --- launchers --- */

template <int D, int MASK, bool SHIFTED>
static cudaError_t shifted_launch(const pare_cuda_attend_int8 *a, cudaStream_t stream)
{
    int64_t blocks = a->b.blocks;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) blocks *= a->heads[i];
    if (blocks == 0) return cudaSuccess;
    auto kernel = attention_int8<D, MASK, SHIFTED>;
    const size_t bytes = pare_q_attention_shared(&a->b, D);
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, bytes);
    if (error != cudaSuccess) return error;
    PARE_LAUNCH_DEPENDENT(kernel, dim3(pare_cuda_blocks(blocks)),
                          dim3(32u * a->b.groups * a->b.slices), bytes, stream, *a);
    return cudaGetLastError();
}

template <int D, int MASK>
static cudaError_t mask_launch(const pare_cuda_attend_int8 *a, cudaStream_t stream)
{
    const bool shifted = a->q_flip || a->k_flip || a->v_flip || a->q_zero || a->k_zero || a->v_zero;
    return shifted ? shifted_launch<D, MASK, true>(a, stream)
                   : shifted_launch<D, MASK, false>(a, stream);
}

template <int D>
static cudaError_t depth_launch(const pare_cuda_attend_int8 *given, cudaStream_t stream)
{
    pare_cuda_attend_int8 a = *given;
    a.in_turn = pare_q_attention_in_turn(&a.b, D);
    if (!a.mask.data) return mask_launch<D, MASK_NONE>(&a, stream);
    return a.mask.row ? mask_launch<D, MASK_ANY>(&a, stream) : mask_launch<D, MASK_ROW>(&a, stream);
}

extern "C" cudaError_t pare_cuda_attention_int8_launch(const pare_cuda_attend_int8 *a,
                                                       cudaStream_t stream)
{
    const int depth = a->depth > a->width ? a->depth : a->width;
    if (depth <= 32) return depth_launch<32>(a, stream);
    return depth <= 64 ? depth_launch<64>(a, stream) : depth_launch<128>(a, stream);
}
