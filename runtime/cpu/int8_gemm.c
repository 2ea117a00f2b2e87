/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/int8_gemm.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/int8_simd.h"

/* The portable tile: same packing, plain C; the compiler turns the inner loop into vectors. */
static void tile_portable(int32_t *acc, int64_t acc_step, const pare_int8_rows *a, const int16_t *b)
{
    enum { BLOCK = 16 };
    for (int r = 0; r < a->count; r++) {
        int32_t sum[BLOCK] = {0};
        const int16_t *p = b;
        for (int64_t i = 0; i < a->runs; i++) {
            const int16_t *x = a->row[r] + a->run[i];
            for (int64_t k = 0; k < a->pairs; k++, p += 2 * BLOCK) {
                int32_t a0 = x[2 * k], a1 = x[2 * k + 1];
                for (int j = 0; j < BLOCK; j++) sum[j] += a0 * p[2 * j] + a1 * p[2 * j + 1];
            }
        }
        memcpy(acc + r * acc_step, sum, sizeof sum);
    }
}

void pare_int8_gemm_init(pare_int8_gemm *g, pare_isa isa, int64_t pairs, int64_t columns)
{
    *g = (pare_int8_gemm){
        .columns = columns, .pairs = pairs, .block = 16, .isa = isa, .tile = tile_portable};
#ifdef PARE_INT8_SIMD
    if (isa >= PARE_ISA_AVX2) g->tile = pare_int8_tile_avx2;
    if (isa >= PARE_ISA_AVX512 && columns > 16) {
        g->tile = pare_int8_tile_avx512;
        g->block = 32;
    }
#endif
    g->blocks = (columns + g->block - 1) / g->block;
}

size_t pare_int8_packed_count(const pare_int8_gemm *g)
{
    return (size_t)(g->blocks * g->block * g->pairs * 2);
}

void pare_int8_widen(int16_t *dst, const void *src, pare_dtype type, int64_t n, int64_t stride,
                     int32_t zero)
{
    const int8_t *s = src;
    const uint8_t *u = src;
    if (stride == 1 && type == PARE_s8)
        pare_widen_s8(dst, s, n, zero);
    else if (stride == 1)
        pare_widen_u8(dst, u, n, zero);
    else if (type == PARE_s8)
        for (int64_t i = 0; i < n; i++) dst[i] = (int16_t)(s[i * stride] - zero);
    else
        for (int64_t i = 0; i < n; i++) dst[i] = (int16_t)(u[i * stride] - zero);
}

void pare_int8_pack(const pare_int8_gemm *g, int16_t *packed, const void *b, pare_dtype type,
                    int64_t depth, int64_t row, int64_t column, int32_t zero)
{
    memset(packed, 0, pare_int8_packed_count(g) * sizeof *packed);
    const int8_t *s = b;
    const uint8_t *u = b;
    for (int64_t n = 0; n < g->columns; n++) {
        int16_t *to = packed + n / g->block * g->block * g->pairs * 2 + n % g->block * 2;
        for (int64_t k = 0; k < depth; k++) {
            int64_t at = k * row + n * column;
            int32_t v = type == PARE_s8 ? s[at] : u[at];
            to[k / 2 * 2 * g->block + k % 2] = (int16_t)(v - zero);
        }
    }
}

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

void pare_int8_finish(const pare_int8_tail *t, int64_t from, int64_t n, const int32_t *acc,
                      const void *z, int64_t z_step, void *y, int64_t y_step)
{
    const pare_epilogue *e = t->epilogue;
#ifdef PARE_INT8_SIMD
    if (t->simd && y_step == 1 && (e->z_type == PARE_NOTYPE || z_step == 1)) {
        pare_int8_finish_avx2(t, from, n, acc, z, y);
        return;
    }
#endif
    float v[PARE_ROW], r[PARE_ROW];
    int32_t same[PARE_ROW];
    const int32_t *bias = t->bias ? t->bias + from * t->bias_step : NULL;
    if (bias && !t->bias_step) {
        for (int64_t i = 0; i < n; i++) same[i] = *bias;
        bias = same;
    }
    scale_row(v, acc, bias, t->scale + from, n);
    if (e->z_type != PARE_NOTYPE) {
        pare_row_load(r, n, z, e->z_type, z_step, e->z_zero);
        residual_row(v, r, e->z_scale, e->real, n);
    }
    pare_row_store(e, n, v, y, y_step);
}

void pare_int8_tail_init(pare_int8_tail *t, pare_isa isa, const pare_epilogue *e,
                         const float *scale, const int32_t *bias, int bias_step)
{
    bool straight = e->act.kind == PARE_ACT_NONE || e->act.kind == PARE_ACT_RELU ||
                    e->act.kind == PARE_ACT_CLIP;
    *t = (pare_int8_tail){.epilogue = e, .bias = bias, .bias_step = bias_step, .scale = scale};
    t->simd = straight && e->z_type != PARE_f32 && !(bias && !bias_step) && isa >= PARE_ISA_AVX2;
}

void pare_int8_job(const pare_int8_gemm *g, const pare_int8_rows *a, const int16_t *packed,
                   int64_t from, int64_t to, const pare_int8_tail *tail, int64_t channel,
                   const pare_int8_target *target)
{
    _Alignas(64) int32_t acc[PARE_TILE_ROWS][PARE_ROW];
    pare_dtype y = tail->epilogue->to, z = tail->epilogue->z_type;
    for (int64_t at = from; at < to; at += PARE_ROW) {
        int64_t n = to - at < PARE_ROW ? to - at : PARE_ROW;
        for (int64_t j = 0; j < n; j += g->block)
            g->tile(acc[0] + j, PARE_ROW, a, packed + (at + j) * g->pairs * 2);
        for (int r = 0; r < a->count; r++) {
            const void *zp = NULL;
            if (target->z) zp = pare_element(target->z, z, target->z_at[r] + at * target->z_step);
            pare_int8_finish(tail, channel + at, n, acc[r], zp, target->z_step,
                             pare_element(target->y, y, target->y_at[r] + at * target->y_step),
                             target->y_step);
        }
    }
}

/* --- channel by channel --- */

size_t pare_int8_dw_count(int64_t channels, int taps)
{
    return (size_t)((channels + PARE_DW_LANES - 1) / PARE_DW_LANES * PARE_DW_LANES * taps);
}

/* Within a group of 16 the pairs lie as the interleaving of two vectors leaves them: channels 0..3
   and 8..11, then 4..7 and 12..15. */
void pare_int8_dw_pack(int16_t *packed, const int8_t *w, int64_t channels, int taps, int used)
{
    memset(packed, 0, pare_int8_dw_count(channels, taps) * sizeof *packed);
    for (int64_t c = 0; c < channels; c++) {
        int64_t group = c / PARE_DW_LANES, lane = c % PARE_DW_LANES;
        int64_t half = lane / 4 % 2, place = half * 8 + lane / 8 * 4 + lane % 4;
        for (int t = 0; t < used; t++)
            packed[group * PARE_DW_LANES * taps + t / 2 * 32 + place * 2 + t % 2] = w[c * used + t];
    }
}

static void dw_portable(int32_t *acc, int64_t n, const void *const *x, pare_dtype type, int taps,
                        int32_t zero, const int16_t *w, int64_t channels)
{
    (void)channels;
    for (int64_t c = 0; c < n; c++) {
        int64_t lane = c % PARE_DW_LANES, place = lane / 4 % 2 * 8 + lane / 8 * 4 + lane % 4;
        const int16_t *p = w + c / PARE_DW_LANES * PARE_DW_LANES * taps + place * 2;
        int32_t sum = 0;
        for (int t = 0; t < taps; t++) {
            int32_t v = type == PARE_s8 ? ((const int8_t *)x[t])[c] : ((const uint8_t *)x[t])[c];
            sum += (v - zero) * p[t / 2 * 32 + t % 2];
        }
        acc[c] = sum;
    }
}

pare_int8_dw_fn pare_int8_dw(pare_isa isa)
{
#ifdef PARE_INT8_SIMD
    if (isa >= PARE_ISA_AVX2) return pare_int8_dw_avx2;
#else
    (void)isa;
#endif
    return dw_portable;
}
