/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of up to 6 rows x 2 vectors: per pair of the inner axis two loads of B, one broadcast of A
   per row, and two vpmaddwd and vpaddd per row, all sums in registers. */
#include "runtime/cpu/int8_simd.h"
#include "runtime/cpu/int8_rows.h"

#ifdef PARE_INT8_SIMD
#include <immintrin.h>

/* sum += pairs of a * b. In assembly so that each sum stays in its register: a compiler that moves
   them about spills twelve of sixteen. */
#define MADD_AVX2(sum, a, b)                                                                       \
    do {                                                                                           \
        __m256i t_;                                                                                \
        __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"                                         \
                : "+x"(sum), "=&x"(t_)                                                             \
                : "x"(a), "x"(b));                                                                 \
    } while (0)
#define MADD_AVX512(sum, a, b)                                                                     \
    do {                                                                                           \
        __m512i t_;                                                                                \
        __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"                                         \
                : "+v"(sum), "=&v"(t_)                                                             \
                : "v"(a), "v"(b));                                                                 \
    } while (0)

static inline int32_t pair_at(const int16_t *a)
{
    int32_t v;
    memcpy(&v, a, sizeof v);
    return v;
}

__attribute__((target("avx2"), always_inline)) static inline __m256i load32(const int16_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

__attribute__((target("avx2"), always_inline)) static inline void
rows_avx2(int32_t *acc, int64_t acc_step, const pare_int8_rows *a, const int16_t *b, int rows)
{
    __m256i s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    const int16_t *x[PARE_TILE_ROWS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) s0[r] = s1[r] = _mm256_setzero_si256();
    for (int64_t i = 0; i < a->runs; i++) {
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) x[r] = a->row[r] + a->run[i];
        for (int64_t k = 0; k < a->pairs; k++, b += 32) {
            __m256i b0 = load32(b), b1 = load32(b + 16);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                __m256i v = _mm256_set1_epi32(pair_at(x[r] + 2 * k));
                MADD_AVX2(s0[r], v, b0);
                MADD_AVX2(s1[r], v, b1);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_si256((__m256i *)(acc + r * acc_step), s0[r]);
        _mm256_storeu_si256((__m256i *)(acc + r * acc_step + 8), s1[r]);
    }
}

__attribute__((target("avx512f,avx512bw"), always_inline)) static inline void
rows_avx512(int32_t *acc, int64_t acc_step, const pare_int8_rows *a, const int16_t *b, int rows)
{
    __m512i s0[PARE_TILE_ROWS], s1[PARE_TILE_ROWS];
    const int16_t *x[PARE_TILE_ROWS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) s0[r] = s1[r] = _mm512_setzero_si512();
    for (int64_t i = 0; i < a->runs; i++) {
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) x[r] = a->row[r] + a->run[i];
        for (int64_t k = 0; k < a->pairs; k++, b += 64) {
            __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 32);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                __m512i v = _mm512_set1_epi32(pair_at(x[r] + 2 * k));
                MADD_AVX512(s0[r], v, b0);
                MADD_AVX512(s1[r], v, b1);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_si512(acc + r * acc_step, s0[r]);
        _mm512_storeu_si512(acc + r * acc_step + 16, s1[r]);
    }
}

/* One copy per number of rows, so that the sums are registers. */
#define BY_ROWS(name, isa)                                                                         \
    __attribute__((target(isa))) void pare_int8_tile_##name(                                       \
        int32_t *acc, int64_t acc_step, const pare_int8_rows *a, const int16_t *b)                 \
    {                                                                                              \
        switch (a->count) {                                                                        \
        case 1:                                                                                    \
            rows_##name(acc, acc_step, a, b, 1);                                                   \
            break;                                                                                 \
        case 2:                                                                                    \
            rows_##name(acc, acc_step, a, b, 2);                                                   \
            break;                                                                                 \
        case 3:                                                                                    \
            rows_##name(acc, acc_step, a, b, 3);                                                   \
            break;                                                                                 \
        case 4:                                                                                    \
            rows_##name(acc, acc_step, a, b, 4);                                                   \
            break;                                                                                 \
        case 5:                                                                                    \
            rows_##name(acc, acc_step, a, b, 5);                                                   \
            break;                                                                                 \
        default:                                                                                   \
            rows_##name(acc, acc_step, a, b, 6);                                                   \
            break;                                                                                 \
        }                                                                                          \
    }
BY_ROWS(avx2, "avx2")
BY_ROWS(avx512, "avx512f,avx512bw")

/* Eight lanes of epilogue.h, the same roundings in the same order: no product is contracted but the
   residual's. The clamp stands before the rounding, which changes nothing: its bounds are whole. */
typedef struct lanes {
    __m256 low, high, zero, act_low, act_high, z_scale;
    __m256i z_zero;
} lanes;

__attribute__((target("avx2,fma"), always_inline)) static inline __m256
finish8(const pare_epilogue *e, const lanes *l, __m256i acc, __m256i bias, __m256 scale,
        const void *z)
{
    __m256 v =
        _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(acc), _mm256_cvtepi32_ps(bias)), scale);
    if (z) {
        __m128i r8 = _mm_loadl_epi64(z);
        __m256i r = e->z_type == PARE_s8 ? _mm256_cvtepi8_epi32(r8) : _mm256_cvtepu8_epi32(r8);
        __m256 f = _mm256_cvtepi32_ps(_mm256_sub_epi32(r, l->z_zero));
        v = e->real ? _mm256_add_ps(v, _mm256_mul_ps(f, l->z_scale))
                    : _mm256_fmadd_ps(f, l->z_scale, v);
    }
    v = _mm256_min_ps(_mm256_max_ps(v, l->act_low), l->act_high);
    if (e->to == PARE_f32) return v;
    v = _mm256_add_ps(v, l->zero);
    return _mm256_min_ps(_mm256_max_ps(v, l->low), l->high);
}

__attribute__((target("avx2,fma"), always_inline)) static inline void store8(const pare_epilogue *e,
                                                                             __m256 v, void *y)
{
    if (e->to == PARE_f32) {
        _mm256_storeu_ps(y, v);
        return;
    }
    __m256i i = _mm256_cvtps_epi32(v);
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64(y, e->to == PARE_s8 ? _mm_packs_epi16(w, w) : _mm_packus_epi16(w, w));
}

__attribute__((target("avx2,fma"))) static void finish_last(const pare_int8_tail *t, const lanes *l,
                                                            int64_t from, int n, const int32_t *acc,
                                                            const void *z, void *y)
{
    const pare_epilogue *e = t->epilogue;
    int32_t a[8] = {0}, b[8] = {0};
    float s[8] = {0}, out[8];
    char r[8] = {0};
    memcpy(a, acc, (size_t)n * 4);
    memcpy(s, t->scale + from, (size_t)n * 4);
    if (t->bias) memcpy(b, t->bias + from, (size_t)n * 4);
    if (z) memcpy(r, z, (size_t)n);
    __m256 v = finish8(e, l, _mm256_loadu_si256((const __m256i *)a),
                       _mm256_loadu_si256((const __m256i *)b), _mm256_loadu_ps(s), z ? r : NULL);
    store8(e, v, out);
    memcpy(y, out, (size_t)n * (e->to == PARE_f32 ? 4 : 1));
}

__attribute__((target("avx2,fma"))) void pare_int8_finish_avx2(const pare_int8_tail *t,
                                                               int64_t from, int64_t n,
                                                               const int32_t *acc, const void *z,
                                                               void *y)
{
    const pare_epilogue *e = t->epilogue;
    bool relu = e->act.kind == PARE_ACT_RELU, clip = e->act.kind == PARE_ACT_CLIP;
    lanes l = {.low = _mm256_set1_ps(e->low),
               .high = _mm256_set1_ps(e->high),
               .zero = _mm256_set1_ps(e->y_zero),
               .z_scale = _mm256_set1_ps(e->z_scale),
               .z_zero = _mm256_set1_epi32(e->z_zero),
               .act_low = _mm256_set1_ps(relu   ? 0
                                         : clip ? e->act.alpha
                                                : -INFINITY),
               .act_high = _mm256_set1_ps(clip ? e->act.beta : INFINITY)};
    if (e->z_type == PARE_NOTYPE) z = NULL;
    int64_t i = 0, size = e->to == PARE_f32 ? 4 : 1;
    for (; i + 8 <= n; i += 8) {
        __m256i bias = _mm256_setzero_si256();
        if (t->bias) bias = _mm256_loadu_si256((const __m256i *)(t->bias + from + i));
        __m256 v = finish8(e, &l, _mm256_loadu_si256((const __m256i *)(acc + i)), bias,
                           _mm256_loadu_ps(t->scale + from + i), z ? (const char *)z + i : NULL);
        store8(e, v, (char *)y + i * size);
    }
    if (i < n)
        finish_last(t, &l, from + i, (int)(n - i), acc + i, z ? (const char *)z + i : NULL,
                    (char *)y + i * size);
}

__attribute__((target("avx2"), always_inline)) static inline __m256i
load16(const void *x, int64_t at, bool is_signed, bool shifted, __m256i zero)
{
    __m128i v = _mm_loadu_si128((const __m128i *)((const char *)x + at));
    __m256i wide = is_signed ? _mm256_cvtepi8_epi16(v) : _mm256_cvtepu8_epi16(v);
    return shifted ? _mm256_sub_epi16(wide, zero) : wide;
}

__attribute__((target("avx2"), always_inline)) static inline void
dw_rows(int32_t *acc, int64_t n, const void *const *x, int taps, int32_t zero, const int16_t *w,
        bool is_signed, bool shifted)
{
    __m256i z = _mm256_set1_epi16((int16_t)zero);
    for (int64_t c = 0; c < n; c += PARE_DW_LANES, w += PARE_DW_LANES * taps) {
        __m256i s0 = _mm256_setzero_si256(), s1 = s0;
        for (int t = 0; t < taps; t += 2) {
            __m256i a = load16(x[t], c, is_signed, shifted, z);
            __m256i b = load16(x[t + 1], c, is_signed, shifted, z);
            __m256i w0 = _mm256_loadu_si256((const __m256i *)(w + t * 16));
            __m256i w1 = _mm256_loadu_si256((const __m256i *)(w + t * 16 + 16));
            s0 = _mm256_add_epi32(s0, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w0));
            s1 = _mm256_add_epi32(s1, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w1));
        }
        _mm256_storeu_si256((__m256i *)(acc + c), _mm256_permute2x128_si256(s0, s1, 0x20));
        _mm256_storeu_si256((__m256i *)(acc + c + 8), _mm256_permute2x128_si256(s0, s1, 0x31));
    }
}

/* Reads and writes whole groups of 16 channels: the caller's buffers are that much longer. */
__attribute__((target("avx2"))) void pare_int8_dw_avx2(int32_t *acc, int64_t n,
                                                       const void *const *x, pare_dtype type,
                                                       int taps, int32_t zero, const int16_t *w,
                                                       int64_t channels)
{
    (void)channels;
    if (type == PARE_s8 && zero)
        dw_rows(acc, n, x, taps, zero, w, true, true);
    else if (type == PARE_s8)
        dw_rows(acc, n, x, taps, zero, w, true, false);
    else
        dw_rows(acc, n, x, taps, zero, w, false, true);
}

/* QAdd: v = fmaf(b - z_b, factor b, (a - z_a) * factor a), then the epilogue's clamps. */
__attribute__((target("avx2,fma"), always_inline)) static inline __m256
eight(const void *x, int64_t i, bool is_signed, __m256i zero)
{
    __m128i v = _mm_loadl_epi64((const __m128i *)((const char *)x + i));
    __m256i wide = is_signed ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(wide, zero));
}

__attribute__((target("avx2,fma"))) int64_t
pare_int8_add_avx2(const pare_int8_sum *s, int64_t n, const void *a, const void *b, void *y)
{
    const pare_epilogue *e = s->epilogue;
    bool relu = e->act.kind == PARE_ACT_RELU, clip = e->act.kind == PARE_ACT_CLIP;
    bool sa = s->a_type == PARE_s8, sb = s->b_type == PARE_s8;
    __m256i za = _mm256_set1_epi32(s->a_zero), zb = _mm256_set1_epi32(s->b_zero);
    __m256 ma = _mm256_set1_ps(s->a), mb = _mm256_set1_ps(s->b), zero = _mm256_set1_ps(e->y_zero);
    __m256 low = _mm256_set1_ps(e->low), high = _mm256_set1_ps(e->high);
    __m256 act_low = _mm256_set1_ps(relu ? 0 : clip ? e->act.alpha : -INFINITY);
    __m256 act_high = _mm256_set1_ps(clip ? e->act.beta : INFINITY);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(eight(a, i, sa, za), ma);
        v = _mm256_fmadd_ps(eight(b, i, sb, zb), mb, v);
        v = _mm256_min_ps(_mm256_max_ps(v, act_low), act_high);
        v = _mm256_min_ps(_mm256_max_ps(_mm256_add_ps(v, zero), low), high);
        store8(e, v, (char *)y + i);
    }
    return i;
}

/* 64 entries at a time from a table of 256 in four registers: the upper two bits of an index choose
   the pair and the half. */
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) int64_t
pare_table_vbmi(const uint8_t *table, int64_t n, const uint8_t *x, uint8_t *y)
{
    __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i v = _mm512_loadu_si512(x + i);
        __m512i low = _mm512_permutex2var_epi8(t0, v, t1),
                high = _mm512_permutex2var_epi8(t2, v, t3);
        _mm512_storeu_si512(y + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high));
    }
    return i;
}
#endif
