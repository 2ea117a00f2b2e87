/* SPDX-License-Identifier: Apache-2.0 */
/* From sums to outputs, several rows at a time so that bias and scale are read once: epilogue.h's
   roundings in the same order, and no product contracted but the residual's. In vectors the
   activation's clamp is moved behind the zero point and joined with the type's: adding and rounding
   are monotonic, so f(clamp(v, a, b)) = clamp(f(v), f(a), f(b)). The clamp stands before the last
   rounding, which changes nothing: the type's bounds are whole, and the activation's are rounded
   like any v. */
#include "runtime/cpu/int8_gemm.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/int8_simd.h"

PARE_CLONES_FMA static void scale_row(float *v, const int32_t *acc, const int32_t *bias,
                                      const float *scale, int64_t n)
{
    if (bias)
        for (int64_t i = 0; i < n; i++) v[i] = ((float)acc[i] + (float)bias[i]) * scale[i];
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
    int32_t same[PARE_ROW];
    const int32_t *bias = t->bias ? t->bias + channel * t->bias_step : NULL;
    if (bias && !t->bias_step) {
        for (int64_t i = 0; i < n; i++) same[i] = *bias;
        bias = same;
    }
    scale_row(v, acc, bias, t->scale + channel, n);
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

void pare_int8_tail_init(pare_int8_tail *t, pare_isa isa, const pare_epilogue *e,
                         const float *scale, const int32_t *bias, int bias_step)
{
    bool straight = e->act.kind == PARE_ACT_NONE || e->act.kind == PARE_ACT_RELU ||
                    e->act.kind == PARE_ACT_CLIP;
    *t = (pare_int8_tail){.epilogue = e, .bias = bias, .bias_step = bias_step, .scale = scale};
#ifdef PARE_INT8_SIMD
    if (!straight || e->z_type == PARE_f32 || (bias && !bias_step)) return;
    if (isa >= PARE_ISA_AVX2) t->vector = pare_int8_finish_avx2;
    if (isa >= PARE_ISA_AVX512) t->vector = pare_int8_finish_avx512;
#else
    (void)isa, (void)straight;
#endif
}

#ifdef PARE_INT8_SIMD
#include <immintrin.h>

/* The joined clamp's bounds, behind the zero point. */
static void bounds_of(const pare_epilogue *e, float *low, float *high)
{
    *low = -INFINITY, *high = INFINITY;
    if (e->act.kind == PARE_ACT_RELU) *low = 0;
    if (e->act.kind == PARE_ACT_CLIP) *low = e->act.alpha, *high = e->act.beta;
    if (e->to == PARE_f32) return;
    *low = fminf(fmaxf(*low + e->y_zero, e->low), e->high);
    *high = fminf(fmaxf(*high + e->y_zero, e->low), e->high);
}

/* Which of its parts an epilogue has, for loops without the others. */
typedef enum kind { TO_BYTES, TO_BYTES_SUM, TO_FLOAT } kind;

static kind kind_of(const pare_epilogue *e, const void *z)
{
    return e->to == PARE_f32 ? TO_FLOAT : z ? TO_BYTES_SUM : TO_BYTES;
}

typedef struct lanes8 {
    __m256 low, high, zero, z_scale;
    __m256i z_zero;
} lanes8;

__attribute__((target("avx2,fma"), always_inline)) static inline __m256
value8(const pare_epilogue *e, const lanes8 *l, const int32_t *acc, __m256 bias, __m256 scale,
       const void *z, kind k)
{
    __m256 sum = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)acc));
    __m256 v = _mm256_mul_ps(_mm256_add_ps(sum, bias), scale);
    if (k != TO_BYTES && z) {
        __m128i r8 = _mm_loadl_epi64(z);
        __m256i r = e->z_type == PARE_s8 ? _mm256_cvtepi8_epi32(r8) : _mm256_cvtepu8_epi32(r8);
        __m256 f = _mm256_cvtepi32_ps(_mm256_sub_epi32(r, l->z_zero));
        v = e->real ? _mm256_add_ps(v, _mm256_mul_ps(f, l->z_scale))
                    : _mm256_fmadd_ps(f, l->z_scale, v);
    }
    if (k != TO_FLOAT) v = _mm256_add_ps(v, l->zero);
    return _mm256_min_ps(_mm256_max_ps(v, l->low), l->high);
}

/* 16 values to bytes or floats. */
__attribute__((target("avx2,fma"), always_inline)) static inline void
store16(const pare_epilogue *e, __m256 v0, __m256 v1, void *y, kind k)
{
    if (k == TO_FLOAT) {
        _mm256_storeu_ps(y, v0);
        _mm256_storeu_ps((float *)y + 8, v1);
        return;
    }
    __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(v0), _mm256_cvtps_epi32(v1));
    __m128i low = _mm256_castsi256_si128(w), high = _mm256_extracti128_si256(w, 1);
    __m128i b = e->to == PARE_s8 ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high);
    _mm_storeu_si128(y, _mm_shuffle_epi32(b, 0xd8));
}

/* Columns that fill no vectors: through buffers that do. */
typedef struct last16 {
    int32_t bias[16];
    float scale[16];
} last16;

__attribute__((target("avx2,fma"), always_inline)) static inline void
columns16(const pare_epilogue *e, const lanes8 *l, const int32_t *bias, const float *scale,
          const int32_t *acc, int64_t acc_step, const pare_tile *to, int64_t column, int n, kind k)
{
    __m256 b0 = _mm256_setzero_ps(), b1 = b0;
    __m256 s0 = _mm256_loadu_ps(scale), s1 = _mm256_loadu_ps(scale + 8);
    if (bias) {
        b0 = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)bias));
        b1 = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(bias + 8)));
    }
    size_t size = k == TO_FLOAT ? 4 : 1;
    for (int r = 0; r < to->count; r++, acc += acc_step) {
        char *y = (char *)to->y + (size_t)(to->y_at[r] + column) * size;
        const char *z = to->z ? (const char *)to->z + to->z_at[r] + column : NULL;
        char part[16], out[64];
        if (z && n < 16) z = memcpy(part, z, (size_t)n);
        __m256 v0 = value8(e, l, acc, b0, s0, z, k);
        __m256 v1 = value8(e, l, acc + 8, b1, s1, z ? z + 8 : NULL, k);
        store16(e, v0, v1, n < 16 ? out : y, k);
        if (n < 16) memcpy(y, out, (size_t)n * size);
    }
}

__attribute__((target("avx2,fma"), always_inline)) static inline void
finish8(const pare_int8_tail *t, const lanes8 *l, int64_t channel, int64_t n, const int32_t *acc,
        int64_t acc_step, const pare_tile *to, int64_t column, kind k)
{
    const int32_t *bias = t->bias ? t->bias + channel : NULL;
    const float *scale = t->scale + channel;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        columns16(t->epilogue, l, bias ? bias + i : NULL, scale + i, acc + i, acc_step, to,
                  column + i, 16, k);
    if (i == n) return;
    last16 last = {{0}, {0}};
    memcpy(last.scale, scale + i, (size_t)(n - i) * 4);
    if (bias) memcpy(last.bias, bias + i, (size_t)(n - i) * 4);
    columns16(t->epilogue, l, last.bias, last.scale, acc + i, acc_step, to, column + i,
              (int)(n - i), k);
}

__attribute__((target("avx2,fma"))) void
pare_int8_finish_avx2(const pare_int8_tail *t, int64_t channel, int64_t n, const int32_t *acc,
                      int64_t acc_step, const pare_tile *to, int64_t column)
{
    const pare_epilogue *e = t->epilogue;
    float low, high;
    bounds_of(e, &low, &high);
    lanes8 l = {.low = _mm256_set1_ps(low),
                .high = _mm256_set1_ps(high),
                .zero = _mm256_set1_ps(e->y_zero),
                .z_scale = _mm256_set1_ps(e->z_scale),
                .z_zero = _mm256_set1_epi32(e->z_zero)};
    switch (kind_of(e, to->z)) {
    case TO_BYTES:
        finish8(t, &l, channel, n, acc, acc_step, to, column, TO_BYTES);
        break;
    case TO_BYTES_SUM:
        finish8(t, &l, channel, n, acc, acc_step, to, column, TO_BYTES_SUM);
        break;
    default:
        finish8(t, &l, channel, n, acc, acc_step, to, column, TO_FLOAT);
        break;
    }
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
        if (k != TO_BYTES && to->z) {
            const char *z = (const char *)to->z + to->z_at[r] + column;
            __m128i r8 = _mm_maskz_loadu_epi8(m, z);
            __m512i wide =
                e->z_type == PARE_s8 ? _mm512_cvtepi8_epi32(r8) : _mm512_cvtepu8_epi32(r8);
            __m512 f = _mm512_cvtepi32_ps(_mm512_sub_epi32(wide, l->z_zero));
            v = e->real ? _mm512_add_ps(v, _mm512_mul_ps(f, l->z_scale))
                        : _mm512_fmadd_ps(f, l->z_scale, v);
        }
        if (k != TO_FLOAT) v = _mm512_add_ps(v, l->zero);
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
        __mmask16 m = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        __m512 bias = _mm512_setzero_ps();
        if (t->bias) bias = _mm512_cvtepi32_ps(_mm512_maskz_loadu_epi32(m, t->bias + channel + i));
        __m512 scale = _mm512_maskz_loadu_ps(m, t->scale + channel + i);
        columns_masked(t->epilogue, l, bias, scale, acc + i, acc_step, to, column + i, m, k);
    }
}

WIDE void pare_int8_finish_avx512(const pare_int8_tail *t, int64_t channel, int64_t n,
                                  const int32_t *acc, int64_t acc_step, const pare_tile *to,
                                  int64_t column)
{
    const pare_epilogue *e = t->epilogue;
    float low, high;
    bounds_of(e, &low, &high);
    lanes16 l = {.low = _mm512_set1_ps(low),
                 .high = _mm512_set1_ps(high),
                 .zero = _mm512_set1_ps(e->y_zero),
                 .z_scale = _mm512_set1_ps(e->z_scale),
                 .z_zero = _mm512_set1_epi32(e->z_zero)};
    switch (kind_of(e, to->z)) {
    case TO_BYTES:
        finish16(t, &l, channel, n, acc, acc_step, to, column, TO_BYTES);
        break;
    case TO_BYTES_SUM:
        finish16(t, &l, channel, n, acc, acc_step, to, column, TO_BYTES_SUM);
        break;
    default:
        finish16(t, &l, channel, n, acc, acc_step, to, column, TO_FLOAT);
        break;
    }
}
#endif
