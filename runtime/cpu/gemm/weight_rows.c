/* SPDX-License-Identifier: Apache-2.0 */
/* A few rows of f32 times panels of integers, which become f32 in registers. Sums of a group are
   scaled once, when the group ends. */
#include "runtime/cpu/gemm/weight_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum {
    COLUMNS = PARE_PANEL_COLUMNS,
    WORD = PARE_PANEL_WORD,
    ROWS = PARE_TILE_ROWS,
    HALVES = 2 * PARE_PANELS
};

#define INLINE   __attribute__((target("avx2,fma"), always_inline)) static inline
#define FOR_ROWS _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)
#define FOR_HALVES                                                                                 \
    _Pragma("GCC unroll 8") for (int h = 0; h < halves; h++) /* of panels: 8 columns */

/* Sums of rows and halves of panels. */
typedef struct sums {
    __m256 at[ROWS][HALVES];
} sums;

static inline float sum_of(const pare_weight_rows *a, int r, int64_t from, int64_t end)
{
    float sum = 0;
    for (int64_t k = from; k < end; k++) sum += a->row[r][k];
    return sum;
}

/* Row k of half h of panels of 8 bits. */
INLINE __m256 level8(const pare_weight_panel *p, const uint8_t *levels, int64_t k, int h)
{
    const uint8_t *at = levels + (size_t)(h / 2) * p->bytes + k * COLUMNS + h % 2 * 8;
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at)));
}

INLINE __m256i word_of(const pare_weight_panel *p, const uint8_t *levels, int64_t k, int h)
{
    const uint8_t *at = levels + (size_t)(h / 2) * p->bytes + k / WORD * COLUMNS * 4 + h % 2 * 32;
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

/* part += row k's numbers times the levels v. */
#define ADD(v, k)                                                                                  \
    FOR_ROWS                                                                                       \
    {                                                                                              \
        const __m256 x = _mm256_set1_ps(row[r][k]);                                                \
        FOR_HALVES part->at[r][h] = _mm256_fmadd_ps(x, v[h], part->at[r][h]);                      \
    }

INLINE void group8(const pare_weight_panel *p, const pare_weight_rows *a, const uint8_t *levels,
                   int64_t from, int64_t end, int rows, int halves, sums *part)
{
    const float *row[ROWS];
    FOR_ROWS row[r] = a->row[r];
    __m256 v[HALVES];
    for (int64_t k = from; k < end; k++) {
        FOR_HALVES v[h] = level8(p, levels, k, h);
        ADD(v, k)
    }
}

/* Four bits go to the top of their word and come back with their sign. */
INLINE void group4(const pare_weight_panel *p, const pare_weight_rows *a, const uint8_t *levels,
                   int64_t from, int64_t end, int rows, int halves, sums *part)
{
    const float *row[ROWS];
    FOR_ROWS row[r] = a->row[r];
    __m256 v[HALVES];
    int64_t k = from;
    for (; k + WORD <= end; k += WORD) {
#pragma GCC unroll 8
        for (int j = 0; j < WORD; j++) {
            FOR_HALVES v[h] = _mm256_cvtepi32_ps(
                _mm256_srai_epi32(_mm256_slli_epi32(word_of(p, levels, k, h), 28 - 4 * j), 28));
            ADD(v, k + j)
        }
    }
    for (; k < end; k++) {
        const __m128i up = _mm_cvtsi32_si128(28 - 4 * (int)(k % WORD));
        FOR_HALVES v[h] = _mm256_cvtepi32_ps(
            _mm256_srai_epi32(_mm256_sll_epi32(word_of(p, levels, k, h), up), 28));
        ADD(v, k)
    }
}

INLINE void rows_avx2(const pare_weight_panel *p, const pare_weight_rows *a, int64_t panel,
                      int rows, int halves, int bits)
{
    const uint8_t *levels = p->level + (size_t)panel * p->bytes;
    sums sum, part;
    FOR_ROWS FOR_HALVES sum.at[r][h] = _mm256_setzero_ps();
    for (int64_t g = 0; g < p->groups; g++) {
        const int64_t from = g * p->group, left = p->depth - from;
        const int64_t end = from + (left < p->group ? left : p->group);
        FOR_ROWS FOR_HALVES part.at[r][h] = _mm256_setzero_ps();
        if (bits == 4)
            group4(p, a, levels, from, end, rows, halves, &part);
        else
            group8(p, a, levels, from, end, rows, halves, &part);
        __m256 all[ROWS];
        FOR_ROWS all[r] = _mm256_set1_ps(p->zero ? sum_of(a, r, from, end) : 0);
        FOR_HALVES
        {
            const int64_t at = ((panel + h / 2) * p->groups + g) * COLUMNS + h % 2 * 8;
            const __m256 scale = _mm256_loadu_ps(p->scale + at);
            FOR_ROWS
            {
                if (p->zero)
                    part.at[r][h] =
                        _mm256_fnmadd_ps(_mm256_loadu_ps(p->zero + at), all[r], part.at[r][h]);
                sum.at[r][h] = _mm256_fmadd_ps(part.at[r][h], scale, sum.at[r][h]);
            }
        }
    }
    FOR_ROWS FOR_HALVES _mm256_storeu_ps(a->acc + r * a->acc_step + h * 8, sum.at[r][h]);
}

/* A copy for each number of rows and panels, so that the sums of a group are registers. */
#define CASE(rows, panels)                                                                         \
    case rows * 8 + panels:                                                                        \
        if (p->bits == 4)                                                                          \
            rows_avx2(p, a, panel, rows, 2 * panels, 4);                                           \
        else                                                                                       \
            rows_avx2(p, a, panel, rows, 2 * panels, 8);                                           \
        return panels;

__attribute__((target("avx2,fma"))) int64_t pare_weight_rows_avx2(const pare_weight_panel *p,
                                                                  const pare_weight_rows *a,
                                                                  int64_t panel, int64_t panels)
{
    const int most = a->rows == 1 ? PARE_PANELS : a->rows == 2 && p->bits == 8 ? 2 : 1;
    switch (a->rows * 8 + (panels >= most ? most : 1)) {
        CASE(1, 3)
        CASE(1, 1)
        CASE(2, 2)
        CASE(2, 1)
        CASE(3, 1)
        CASE(4, 1)
        CASE(5, 1)
        CASE(6, 1)
    default: return panels;
    }
}
#else
typedef int pare_weight_rows_none; /* a file needs something */
#endif
