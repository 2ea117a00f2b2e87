/* SPDX-License-Identifier: Apache-2.0 */
/* From sums to outputs, several rows at a time so that bias and scale are read once: epilogue.h's
   roundings in the same order, and no product contracted but the residual's. In vectors the
   activation's clamp is moved after the zero point and joined with the type's: adding and rounding
   are monotonic, so f(clamp(v, a, b)) = clamp(f(v), f(a), f(b)). The clamp is before the last
   rounding, which changes nothing: the type's bounds are whole, and the activation's are rounded
   like any v. */
#include "runtime/cpu/gemm/int8_gemm.h"
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/cpu/gemm/int8_simd.h"

PARE_CLONES_FMA static void scale_row(float *v, const int32_t *acc, const float *bias,
                                      const float *scale, int64_t n)
{
    if (bias)
        for (int64_t i = 0; i < n; i++) v[i] = ((float)acc[i] + bias[i]) * scale[i];
    else
        for (int64_t i = 0; i < n; i++) v[i] = ((float)acc[i] + 0.0f) * scale[i];
}

PARE_CLONES_FMA static void residual_row(float *v, const float *r, float scale, bool real,
                                         int64_t n)
{
    if (real)
        for (int64_t i = 0; i < n; i++) v[i] = v[i] + r[i] * scale;
    else
        for (int64_t i = 0; i < n; i++) v[i] = fmaf(r[i], scale, v[i]);
}

static void finish_row(const pare_int8_tail *t, int64_t channel, int64_t n, const int32_t *acc,
                       const void *z, int64_t z_step, void *y, int64_t y_step)
{
    const pare_epilogue *e = t->epilogue;
    float v[PARE_ROW], r[PARE_ROW];
    scale_row(v, acc, t->bias ? t->bias + channel : NULL, t->scale + channel, n);
    if (z) {
        pare_row_load(r, n, z, e->z_type, z_step, e->z_zero);
        residual_row(v, r, e->z_scale, e->real, n);
    }
    pare_row_store(e, n, v, y, y_step);
}

void pare_int8_finish(const pare_int8_tail *t, int64_t channel, int64_t n, const int32_t *acc,
                      int64_t acc_step, const pare_tile *to, int64_t column)
{
    const pare_epilogue *e = t->epilogue;
    if (t->vector && to->y_step == 1 && (!to->z || to->z_step == 1)) {
        t->vector(t, channel, n, acc, acc_step, to, column);
        return;
    }
    for (int r = 0; r < to->count; r++) {
        const void *z = NULL;
        if (to->z) z = pare_element(to->z, e->z_type, to->z_at[r] + column * to->z_step);
        finish_row(t, channel, n, acc + r * acc_step, z, to->z_step,
                   pare_element(to->y, e->to, to->y_at[r] + column * to->y_step), to->y_step);
    }
}

/* The joined clamp's bounds, after the zero point. */
static void bounds_set(pare_int8_tail *t)
{
    const pare_epilogue *e = t->epilogue;
    t->low = -INFINITY, t->high = INFINITY;
    if (e->act.kind == PARE_ACT_RELU) t->low = 0;
    if (e->act.kind == PARE_ACT_CLIP) t->low = e->act.alpha, t->high = e->act.beta;
    if (e->to == PARE_f32) return;
    t->low = fminf(fmaxf(t->low + e->y_zero, e->low), e->high);
    t->high = fminf(fmaxf(t->high + e->y_zero, e->low), e->high);
}

void pare_int8_tail_init(pare_int8_tail *t, pare_isa isa, const pare_epilogue *e,
                         const float *scale, const float *bias)
{
    bool straight = e->act.kind == PARE_ACT_NONE || e->act.kind == PARE_ACT_RELU ||
                    e->act.kind == PARE_ACT_CLIP;
    *t = (pare_int8_tail){.epilogue = e, .bias = bias, .scale = scale};
#ifdef PARE_INT8_SIMD
    bounds_set(t);
    if (!straight || e->z_type == PARE_f32) return;
    if (isa >= PARE_ISA_AVX2) t->vector = pare_int8_finish_avx2;
    if (isa >= PARE_ISA_AVX512) t->vector = pare_int8_finish_avx512;
#else
    (void)isa, (void)straight;
#endif
}

#ifdef PARE_INT8_SIMD
#include <immintrin.h>

#include <string.h>

/* Which of its parts an epilogue has, for loops without the others. */
typedef enum kind { TO_BYTES, TO_BYTES_SHIFTED, TO_BYTES_SUM, TO_FLOAT } kind;

static kind kind_of(const pare_epilogue *e, const void *z)
{
    if (e->to == PARE_f32) return TO_FLOAT;
    return z ? TO_BYTES_SUM : e->y_zero != 0 ? TO_BYTES_SHIFTED : TO_BYTES;
}

/* Calls loop(..., k) with k a constant. */
#define BY_KIND(loop, k, ...)                                                                      \
    do {                                                                                           \
        if (k == TO_BYTES)                                                                         \
            loop(__VA_ARGS__, TO_BYTES);                                                           \
        else if (k == TO_BYTES_SHIFTED)                                                            \
            loop(__VA_ARGS__, TO_BYTES_SHIFTED);                                                   \
        else if (k == TO_BYTES_SUM)                                                                \
            loop(__VA_ARGS__, TO_BYTES_SUM);                                                       \
        else                                                                                       \
            loop(__VA_ARGS__, TO_FLOAT);                                                           \
    } while (0)

typedef struct lanes8 {
    __m256 low, high, zero, z_scale;
    __m256i z_zero;
} lanes8;

#define NARROW __attribute__((target("avx2,fma")))

NARROW __attribute__((always_inline)) static inline __m256
value8(const pare_epilogue *e, const lanes8 *l, const int32_t *acc, __m256 bias, __m256 scale,
       const char *z, kind k)
{
    __m256 sum = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)acc));
    __m256 v = _mm256_mul_ps(_mm256_add_ps(sum, bias), scale);
    if (k >= TO_BYTES_SUM && z) {
        __m128i r8 = _mm_loadl_epi64((const __m128i *)z);
        __m256i r = e->z_type == PARE_s8 ? _mm256_cvtepi8_epi32(r8) : _mm256_cvtepu8_epi32(r8);
        __m256 f = _mm256_cvtepi32_ps(_mm256_sub_epi32(r, l->z_zero));
        v = e->real ? _mm256_add_ps(v, _mm256_mul_ps(f, l->z_scale))
                    : _mm256_fmadd_ps(f, l->z_scale, v);
    }
    if (k == TO_BYTES_SHIFTED || k == TO_BYTES_SUM) v = _mm256_add_ps(v, l->zero);
    return _mm256_min_ps(_mm256_max_ps(v, l->low), l->high);
}

/* 8 * vectors (2 or 4) values to bytes or floats. */
NARROW __attribute__((always_inline)) static inline void
store(const pare_epilogue *e, const __m256 *v, void *y, int vectors, kind k)
{
    if (k == TO_FLOAT) {
        for (int i = 0; i < vectors; i++) _mm256_storeu_ps((float *)y + 8 * i, v[i]);
        return;
    }
    bool s8 = e->to == PARE_s8;
    __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
    if (vectors == 2) {
        __m128i low = _mm256_castsi256_si128(w), high = _mm256_extracti128_si256(w, 1);
        __m128i b = s8 ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high);
        _mm_storeu_si128(y, _mm_shuffle_epi32(b, 0xd8));
        return;
    }
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i u = _mm256_packs_epi32(_mm256_cvtps_epi32(v[2]), _mm256_cvtps_epi32(v[3]));
    __m256i b = s8 ? _mm256_packs_epi16(w, u) : _mm256_packus_epi16(w, u);
    _mm256_storeu_si256(y, _mm256_permutevar8x32_epi32(b, order));
}

/* What a run of columns needs of the sums, in rows of `step`. */
typedef struct sums {
    const int32_t *acc;
    const float *bias, *scale;
    int64_t step;
} sums;

/* n = 8 * vectors columns of all rows; fewer go through buffers. */
NARROW __attribute__((always_inline)) static inline void
columns8(const pare_epilogue *e, const lanes8 *l, const sums *s, const pare_tile *to,
         int64_t column, int64_t n, int vectors, kind k)
{
    __m256 bias[4], scale[4], v[4];
#pragma GCC unroll 4
    for (int i = 0; i < vectors; i++) {
        bias[i] = _mm256_setzero_ps();
        if (s->bias) bias[i] = _mm256_loadu_ps(s->bias + 8 * i);
        scale[i] = _mm256_loadu_ps(s->scale + 8 * i);
    }
    size_t size = k == TO_FLOAT ? 4 : 1;
    bool whole = n == 8 * vectors;
    for (int r = 0; r < to->count; r++) {
        char *y = (char *)to->y + (size_t)(to->y_at[r] + column) * size;
        const char *z = NULL;
        char part[32], out[128];
        if (k >= TO_BYTES_SUM && to->z) z = (const char *)to->z + to->z_at[r] + column;
        if (z && !whole) z = memcpy(part, z, (size_t)n);
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++)
            v[i] = value8(e, l, s->acc + r * s->step + 8 * i, bias[i], scale[i],
                          z ? z + 8 * i : NULL, k);
        store(e, v, whole ? y : out, vectors, k);
        if (!whole) memcpy(y, out, (size_t)n * size);
    }
}

NARROW __attribute__((always_inline)) static inline void finish8(const pare_epilogue *e,
                                                                 const lanes8 *l, sums s, int64_t n,
                                                                 const pare_tile *to,
                                                                 int64_t column, kind k)
{
    while (n >= 16) {
        int64_t done = n >= 32 ? 32 : 16;
        if (done == 32)
            columns8(e, l, &s, to, column, 32, 4, k);
        else
            columns8(e, l, &s, to, column, 16, 2, k);
        s.acc += done, s.scale += done, column += done, n -= done;
        if (s.bias) s.bias += done;
    }
    if (!n) return;
    float bias[16] = {0}, scale[16] = {0};
    memcpy(scale, s.scale, (size_t)n * 4);
    if (s.bias) memcpy(bias, s.bias, (size_t)n * 4);
    s.bias = bias, s.scale = scale;
    columns8(e, l, &s, to, column, n, 2, k);
}

NARROW void pare_int8_finish_avx2(const pare_int8_tail *t, int64_t channel, int64_t n,
                                  const int32_t *acc, int64_t acc_step, const pare_tile *to,
                                  int64_t column)
{
    const pare_epilogue *e = t->epilogue;
    lanes8 l = {.low = _mm256_set1_ps(t->low),
                .high = _mm256_set1_ps(t->high),
                .zero = _mm256_set1_ps(e->y_zero),
                .z_scale = _mm256_set1_ps(e->z_scale),
                .z_zero = _mm256_set1_epi32(e->z_zero)};
    sums s = {.acc = acc, .scale = t->scale + channel, .step = acc_step};
    if (t->bias) s.bias = t->bias + channel;
    kind k = kind_of(e, to->z);
    BY_KIND(finish8, k, e, &l, s, n, to, column);
}

#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

typedef struct lanes16 {
    __m512 low, high, zero, z_scale;
    __m512i z_zero;
} lanes16;

/* Sixteen columns (those of the mask) of all rows. */
WIDE __attribute__((always_inline)) static inline void
columns_masked(const pare_epilogue *e, const lanes16 *l, __m512 bias, __m512 scale,
               const int32_t *acc, int64_t acc_step, const pare_tile *to, int64_t column,
               __mmask16 m, kind k)
{
    for (int r = 0; r < to->count; r++, acc += acc_step) {
        __m512 v = _mm512_cvtepi32_ps(_mm512_loadu_si512(acc));
        v = _mm512_mul_ps(_mm512_add_ps(v, bias), scale);
        if (k >= TO_BYTES_SUM && to->z) {
            const char *z = (const char *)to->z + to->z_at[r] + column;
            __m128i r8 = _mm_maskz_loadu_epi8(m, z);
            __m512i wide =
                e->z_type == PARE_s8 ? _mm512_cvtepi8_epi32(r8) : _mm512_cvtepu8_epi32(r8);
            __m512 f = _mm512_cvtepi32_ps(_mm512_sub_epi32(wide, l->z_zero));
            v = e->real ? _mm512_add_ps(v, _mm512_mul_ps(f, l->z_scale))
                        : _mm512_fmadd_ps(f, l->z_scale, v);
        }
        if (k == TO_BYTES_SHIFTED || k == TO_BYTES_SUM) v = _mm512_add_ps(v, l->zero);
        v = _mm512_min_ps(_mm512_max_ps(v, l->low), l->high);
        if (k == TO_FLOAT) {
            _mm512_mask_storeu_ps((float *)to->y + to->y_at[r] + column, m, v);
            continue;
        }
        /* in range already: the low bytes are the values, signed or not */
        __m128i b = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
        _mm_mask_storeu_epi8((char *)to->y + to->y_at[r] + column, m, b);
    }
}

WIDE __attribute__((always_inline)) static inline void
finish16(const pare_int8_tail *t, const lanes16 *l, int64_t channel, int64_t n, const int32_t *acc,
         int64_t acc_step, const pare_tile *to, int64_t column, kind k)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffffu);
        __m512 bias = _mm512_setzero_ps();
        if (t->bias) bias = _mm512_maskz_loadu_ps(m, t->bias + channel + i);
        __m512 scale = _mm512_maskz_loadu_ps(m, t->scale + channel + i);
        columns_masked(t->epilogue, l, bias, scale, acc + i, acc_step, to, column + i, m, k);
    }
}

WIDE void pare_int8_finish_avx512(const pare_int8_tail *t, int64_t channel, int64_t n,
                                  const int32_t *acc, int64_t acc_step, const pare_tile *to,
                                  int64_t column)
{
    const pare_epilogue *e = t->epilogue;
    lanes16 l = {.low = _mm512_set1_ps(t->low),
                 .high = _mm512_set1_ps(t->high),
                 .zero = _mm512_set1_ps(e->y_zero),
                 .z_scale = _mm512_set1_ps(e->z_scale),
                 .z_zero = _mm512_set1_epi32(e->z_zero)};
    kind k = kind_of(e, to->z);
    BY_KIND(finish16, k, t, &l, channel, n, acc, acc_step, to, column);
}
#endif
