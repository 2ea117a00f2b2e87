/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of f16 and bf16 on tensor cores: FlashAttention-2 (Dao 2023, arXiv 2307.08691,
   algorithm 1). A block of four warps takes 64 queries, a warp 16 of them; keys come 64 at a time,
   the next while these are worked on. Scores never leave registers: of each row a warp keeps the
   largest score yet and the sum of exponentials less it, and scales what it has of Y where a larger
   one comes. What two scores of a row's neighbours are as sums is what the product with V wants as
   factors. K and V are read once for 64 queries; tiles of keys that a constant mask takes from all
   of these, half of them under a causal one, are not. Exponentials are of base 2: scores are scaled
   by log2(e) more; those under a mask, which are rounded to Y's type first, when the largest is
   taken away. */
#include "runtime/cuda/attention.cuh"
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/mma.cuh"

enum {
    WARPS = 4,
    THREADS = WARPS * 32,
    QUERIES = WARPS * 16,
    KEYS = PARE_CUDA_FLASH_TILE,
    CHUNK = 16
};
enum {
    MASK_NONE,
    MASK_ROW,   /* of Y's type, one for all queries */
    MASK_PAIRS, /* of Y's type, two neighbouring keys in an aligned word */
    MASK_ANY
};
#define LOG2_E 1.44269504f

/* Rows of D numbers in shared memory, a chunk apart from another so that eight rows of an ldmatrix
   fall into different banks. */
template <int D> struct flash_rows {
    enum { CHUNKS = D * 2 / CHUNK, ROW = CHUNKS + 1 };
    uint4 at[KEYS][ROW];
};

/* 64 rows from `first` on; what is behind the last, or the last column, is 0. */
template <int D>
SIMT_INLINE void rows_bring(flash_rows<D> *to, const char *from, int64_t row, int first,
                            int64_t rows, int width)
{
    enum { CHUNKS = flash_rows<D>::CHUNKS };
    PARE_UNROLL for (int i = 0; i < KEYS * CHUNKS / THREADS; i++)
    {
        const int at = (int)threadIdx.x + i * THREADS, r = at / CHUNKS, c = at % CHUNKS;
        const bool there = first + r < rows && c * 8 < width;
        simt_cp_async16(&to->at[r][c], there ? from + ((first + r) * row + c * 8) * 2 : from,
                        there ? CHUNK : 0);
    }
}

template <int KIND> SIMT_INLINE unsigned packed(float a, float b)
{
    unsigned bits;
    if (KIND == PARE_f16) {
        const __half2 h = __floats2half2_rn(a, b);
        memcpy(&bits, &h, sizeof bits);
    } else {
        const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
        memcpy(&bits, &h, sizeof bits);
    }
    return bits;
}

template <int KIND> SIMT_INLINE float2 unpacked(unsigned bits)
{
    if (KIND == PARE_f16)
        return make_float2(__half2float(__ushort_as_half((uint16_t)bits)),
                           __half2float(__ushort_as_half((uint16_t)(bits >> 16))));
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

/* What a word of two numbers is. */
template <int KIND> struct pair_of;
template <> struct pair_of<PARE_f16> {
    typedef __half2 type;
};
template <> struct pair_of<PARE_bf16> {
    typedef __nv_bfloat162 type;
};

/* Both numbers of a word to those of another, each sum rounded. */
template <int KIND> SIMT_INLINE unsigned pair_sum(unsigned a, unsigned b)
{
    unsigned bits;
    typename pair_of<KIND>::type x, y;
    memcpy(static_cast<void *>(&x), &a, sizeof a);
    memcpy(static_cast<void *>(&y), &b, sizeof b);
    x = __hadd2(x, y);
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Of a warp's rows lane / 4 and lane / 4 + 8: over the four lanes that share them. */
SIMT_INLINE float row_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
SIMT_INLINE float row_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* Scores of 16 queries and 64 keys, as sums of mma. */
typedef struct flash_scores {
    float at[KEYS / 8][4];
} flash_scores;

template <int KIND, int D>
SIMT_INLINE void scores_make(flash_scores &s, const unsigned q[D / 16][4], const flash_rows<D> *k)
{
    const int lane = (int)threadIdx.x & 31;
    PARE_UNROLL for (int j = 0; j < KEYS / 8; j++) PARE_UNROLL for (int r = 0; r < 4; r++)
        s.at[j][r] = 0;
    PARE_UNROLL for (int d = 0; d < D / 16; d++) PARE_UNROLL for (int j = 0; j < KEYS / 16; j++)
    {
        unsigned b[4];
        simt_ldmatrix_x4(b, &k->at[j * 16 + (lane & 7) + (lane >> 4) * 8][d * 2 + (lane >> 3 & 1)]);
        multiply<KIND>(s.at[2 * j], q[d], b);
        multiply<KIND>(s.at[2 * j + 1], q[d], b + 2);
    }
}

/* The mask of one query and key; 0 where one of them is none. m: where the mask of this head is. */
SIMT_INLINE float mask_at(const pare_cuda_attend &a, int64_t m, int64_t query, int key)
{
    return query < a.queries && key < a.keys
               ? pare_number_at(a.mask.data, a.mask_type,
                                m + query * a.mask.row + key * a.mask.last)
               : 0;
}

/* Of MASK_ROW: a key and the next one. */
SIMT_INLINE unsigned mask_pair(const pare_cuda_attend &a, int64_t m, int key)
{
    const uint16_t *mask = static_cast<const uint16_t *>(a.mask.data) + m;
    const unsigned low = key < a.keys ? mask[key * a.mask.last] : 0u;
    return key + 1 < a.keys ? low | (unsigned)mask[(key + 1) * a.mask.last] << 16 : low;
}

/* Scales two neighbouring scores of a query, and adds the mask. of_keys: of MASK_ROW. */
template <int KIND, int MASK>
SIMT_INLINE void pair_mask(float s[2], const pare_cuda_attend &a, int64_t query, int key, int64_t m,
                           unsigned of_keys)
{
    if (MASK == MASK_NONE) {
        const float scale = a.scale * LOG2_E;
        s[0] *= scale;
        s[1] *= scale;
        return;
    }
    const unsigned score = packed<KIND>(s[0] * a.scale, s[1] * a.scale);
    unsigned sum;
    if (MASK == MASK_ANY) {
        const float2 two = unpacked<KIND>(score);
        sum =
            packed<KIND>(two.x + mask_at(a, m, query, key), two.y + mask_at(a, m, query, key + 1));
    } else {
        const uint16_t *mask =
            static_cast<const uint16_t *>(a.mask.data) + m + query * a.mask.row + key;
        const bool there = MASK == MASK_PAIRS && query < a.queries && key < a.keys;
        sum = pair_sum<KIND>(score, there ? *reinterpret_cast<const unsigned *>(mask) : of_keys);
    }
    const float2 two = unpacked<KIND>(sum);
    s[0] = two.x;
    s[1] = two.y;
}

/* Scales scores, and adds the mask. query, key: of the first score; m: where the mask of this head
   is; of_keys: of MASK_ROW, the words of the tile's keys from the first score's on. */
template <int KIND, int MASK>
SIMT_INLINE void scores_mask(flash_scores &s, const pare_cuda_attend &a, int64_t query, int key,
                             int64_t m, const unsigned *of_keys)
{
    PARE_UNROLL for (int j = 0; j < KEYS / 8; j++)
    {
        const unsigned word = MASK == MASK_ROW ? of_keys[j * 4] : 0;
        PARE_UNROLL for (int h = 0; h < 2; h++)
            pair_mask<KIND, MASK>(&s.at[j][h * 2], a, query + h * 8, key + j * 8, m, word);
    }
}

/* Takes away what is no key: `keys` are left from the first score on. */
SIMT_INLINE void scores_end(flash_scores &s, int keys)
{
    PARE_UNROLL for (int j = 0; j < KEYS / 8; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++) if (j * 8 + r % 2 >= keys) s.at[j][r] = -INFINITY;
}

/* e^v, of scores that a mask was added to; the others were scaled for 2^v. */
template <int MASK> SIMT_INLINE float power(float v)
{
    return exp2f(MASK == MASK_NONE ? v : v * LOG2_E);
}

/* Scores become exponentials; what of Y was made before them is scaled. */
template <int D, int MASK>
SIMT_INLINE void scores_join(flash_scores &s, float y[D / 8][4], float top[2], float total[2])
{
    PARE_UNROLL for (int h = 0; h < 2; h++)
    {
        float most = top[h], sum = 0;
        PARE_UNROLL for (int j = 0; j < KEYS / 8; j++) most =
            fmaxf(most, fmaxf(s.at[j][h * 2], s.at[j][h * 2 + 1]));
        most = row_max(most);
        const float base = most == -INFINITY ? 0 : most, less = power<MASK>(top[h] - base);
        PARE_UNROLL for (int j = 0; j < KEYS / 8; j++) PARE_UNROLL for (int r = 0; r < 2; r++)
        {
            float *v = &s.at[j][h * 2 + r];
            *v = power<MASK>(*v - base);
            sum += *v;
        }
        top[h] = most;
        total[h] = total[h] * less + sum;
        PARE_UNROLL for (int d = 0; d < D / 8; d++) y[d][h * 2] *= less, y[d][h * 2 + 1] *= less;
    }
}

/* Adds exponentials times rows of V. */
template <int KIND, int D>
SIMT_INLINE void values_add(float y[D / 8][4], const flash_scores &s, const flash_rows<D> *v)
{
    const int lane = (int)threadIdx.x & 31;
    PARE_UNROLL for (int k = 0; k < KEYS / 16; k++)
    {
        unsigned p[4];
        PARE_UNROLL for (int i = 0; i < 4; i++) p[i] =
            packed<KIND>(s.at[2 * k + i / 2][i % 2 * 2], s.at[2 * k + i / 2][i % 2 * 2 + 1]);
        PARE_UNROLL for (int d = 0; d < D / 16; d++)
        {
            unsigned b[4];
            simt_ldmatrix_x4_trans(
                b, &v->at[k * 16 + (lane & 7) + (lane >> 3 & 1) * 8][d * 2 + (lane >> 4)]);
            multiply<KIND>(y[2 * d], p, b);
            multiply<KIND>(y[2 * d + 1], p, b + 2);
        }
    }
}

/* Where an operand's rows of this head are. */
SIMT_INLINE const char *head_rows(const pare_cuda_operand &o,
                                  const int64_t index[PARE_CUDA_HEAD_AXES])
{
    return static_cast<const char *>(o.data) + pare_cuda_head_offset(o, index) * 2;
}

template <int KIND, int D, int MASK>
static __global__ void __launch_bounds__(THREADS, D > 64 ? 2 : 3)
    attention_flash(pare_cuda_attend a)
{
    simt_dependency_wait();
    SIMT_DYN_SHARED(flash_rows<D>, shared); /* Q, two of K, two of V */
    SIMT_SHARED(unsigned, masks, [2][KEYS / 2]);
    flash_rows<D> *qs = shared, *ks = shared + 1, *vs = shared + 3;
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int blocks = (int)((a.queries + QUERIES - 1) / QUERIES);
    int64_t left = blockIdx.x / (unsigned)blocks, index[PARE_CUDA_HEAD_AXES];
    const int block = (int)blockIdx.x - (int)left * blocks, first = block * QUERIES;
    const int begin = a.tiles ? a.tiles[block * 2] : 0,
              tiles = a.tiles ? a.tiles[block * 2 + 1] : (a.keys + KEYS - 1) / KEYS;
    for (int i = PARE_CUDA_HEAD_AXES - 1; i >= 0; i--) {
        index[i] = left % a.heads[i];
        left /= a.heads[i];
    }
    const char *k = head_rows(a.k, index), *v = head_rows(a.v, index);
    const int64_t row = first + warp * 16 + (lane >> 2), m = pare_cuda_head_offset(a.mask, index);
    auto fetch = [&](int tile) {
        if (tile < tiles) {
            rows_bring<D>(ks + tile % 2, k, a.k.row, tile * KEYS, a.keys, a.depth);
            rows_bring<D>(vs + tile % 2, v, a.v.row, tile * KEYS, a.keys, a.width);
            const int at = (int)threadIdx.x;
            if (MASK == MASK_ROW && at < KEYS / 2)
                masks[tile % 2][at] = mask_pair(a, m, tile * KEYS + at * 2);
        }
        simt_cp_async_commit();
    };
    rows_bring<D>(qs, head_rows(a.q, index), a.q.row, first, a.queries, a.depth);
    simt_cp_async_commit();
    fetch(begin);
    simt_cp_async_wait<1>();
    __syncthreads();
    unsigned q[D / 16][4];
    float y[D / 8][4], top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    PARE_UNROLL for (int d = 0; d < D / 16; d++)
        simt_ldmatrix_x4(q[d], &qs->at[warp * 16 + (lane & 15)][d * 2 + (lane >> 4)]);
    PARE_UNROLL for (int d = 0; d < D / 8; d++) PARE_UNROLL for (int r = 0; r < 4; r++) y[d][r] = 0;
    for (int tile = begin; tile < tiles; tile++) {
        flash_scores s;
        fetch(tile + 1);
        simt_cp_async_wait<1>();
        __syncthreads();
        scores_make<KIND, D>(s, q, ks + tile % 2);
        const int key = tile * KEYS + (lane & 3) * 2;
        scores_mask<KIND, MASK>(s, a, row, key, m, masks[tile % 2] + (lane & 3));
        if ((tile + 1) * KEYS > a.keys) scores_end(s, a.keys - key);
        scores_join<D, MASK>(s, y, top, total);
        values_add<KIND, D>(y, s, vs + tile % 2);
        __syncthreads(); /* its rows are read: the next but one may come */
    }
    simt_dependents_launch();
    simt_cp_async_wait<0>();
    uint16_t *to =
        static_cast<uint16_t *>(const_cast<void *>(a.y.data)) + pare_cuda_head_offset(a.y, index);
    PARE_UNROLL for (int h = 0; h < 2; h++)
    {
        const float by = 1 / row_sum(total[h]);
        const int64_t query = row + h * 8;
        PARE_UNROLL for (int d = 0; d < D / 8; d++)
        {
            const int at = d * 8 + (lane & 3) * 2;
            if (query < a.queries && at < a.width)
                *reinterpret_cast<unsigned *>(to + query * a.y.row + at) =
                    packed<KIND>(y[d][h * 2] * by, y[d][h * 2 + 1] * by);
        }
    }
}

/* --- launchers --- */

template <int KIND, int D, int MASK>
static cudaError_t flash_launch(const pare_cuda_attend *a, cudaStream_t stream)
{
    int64_t blocks = (a->queries + QUERIES - 1) / QUERIES;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) blocks *= a->heads[i];
    if (blocks == 0 || a->width == 0) return cudaSuccess;
    const int bytes = 5 * (int)sizeof(flash_rows<D>);
    auto kernel = attention_flash<KIND, D, MASK>;
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, bytes);
    if (error != cudaSuccess) return error;
    PARE_LAUNCH_DEPENDENT(kernel, dim3(pare_cuda_blocks(blocks)), dim3(THREADS), (size_t)bytes,
                          stream, *a);
    return cudaGetLastError();
}

/* Do words hold two keys of a mask of Y's type? */
static bool mask_is_paired(const pare_cuda_attend *a)
{
    bool well = a->mask_type == a->dtype && a->mask.last == 1 && a->keys % 2 == 0 &&
                a->mask.row % 2 == 0 && (uintptr_t)a->mask.data % 4 == 0;
    for (int i = 0; i < PARE_CUDA_HEAD_AXES; i++) well = well && a->mask.head[i] % 2 == 0;
    return well;
}

template <int KIND, int D>
static cudaError_t mask_launch(const pare_cuda_attend *a, cudaStream_t stream)
{
    if (!a->mask.data) return flash_launch<KIND, D, MASK_NONE>(a, stream);
    if (a->mask_type == a->dtype && !a->mask.row) return flash_launch<KIND, D, MASK_ROW>(a, stream);
    return mask_is_paired(a) ? flash_launch<KIND, D, MASK_PAIRS>(a, stream)
                             : flash_launch<KIND, D, MASK_ANY>(a, stream);
}

template <int KIND> static cudaError_t depth_launch(const pare_cuda_attend *a, cudaStream_t stream)
{
    const int depth = a->depth > a->width ? a->depth : a->width;
    if (depth <= 32) return mask_launch<KIND, 32>(a, stream);
    return depth <= 64 ? mask_launch<KIND, 64>(a, stream) : mask_launch<KIND, 128>(a, stream);
}

extern "C" cudaError_t pare_cuda_flash_launch(const pare_cuda_attend *a, cudaStream_t stream)
{
    return a->dtype == PARE_f16 ? depth_launch<PARE_f16>(a, stream)
                                : depth_launch<PARE_bf16>(a, stream);
}
