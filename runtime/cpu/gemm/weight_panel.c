/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/gemm/weight_panel.h"
#include "runtime/base/clones.h"
#include "runtime/cpu/gemm/weight_rows.h"

enum {
    COLUMNS = PARE_PANEL_COLUMNS,
    WORD = PARE_PANEL_WORD,
    MOST_OF_4 = 5 /* rows whose sums are registers beside the words of 4 bits */
};

static int64_t panels_of(const pare_weight_panel *p)
{
    return (p->columns + COLUMNS - 1) / COLUMNS;
}

/* --- packing --- */

/* u4 and u8 levels as signed ones, 8 or 128 less; their zero points, too. */
static int signed_level(int level, pare_dtype type)
{
    return type == PARE_u4 ? level - 8 : type == PARE_u8 ? level - 128 : level;
}

static void put(const pare_weight_panel *p, uint8_t *panel, int64_t row, int64_t column, int level)
{
    if (p->bits == 8) {
        panel[row * COLUMNS + column] = (uint8_t)level;
        return;
    }
    uint8_t *word = panel + (row / WORD * COLUMNS + column) * 4, *byte = word + row % WORD / 2;
    *byte = (uint8_t)(*byte | (level & 15) << row % 2 * 4);
}

static void pack_levels(const pare_weight_panel *p, uint8_t *levels, const pare_matmul_args *m,
                        const pare_view *b)
{
    const int64_t row = b->stride[m->trans_b ? 1 : 0], column = b->stride[m->trans_b ? 0 : 1];
    for (int64_t n = 0; n < p->columns; n += COLUMNS, levels += p->bytes) {
        const int64_t columns = p->columns - n < COLUMNS ? p->columns - n : COLUMNS;
        for (int64_t k = 0; k < p->depth; k++)
            for (int64_t j = 0; j < columns; j++) {
                const int64_t at = k * row + (n + j) * column;
                put(p, levels, k, j,
                    signed_level(pare_weight_level(b->data, b->dtype, at), b->dtype));
            }
    }
}

static void pack_scales(const pare_weight_panel *p, const pare_matmul_args *m, float *scale,
                        float *zeros)
{
    for (int64_t n = 0; n < p->columns; n++)
        for (int64_t g = 0; g < p->groups; g++) {
            const int64_t at = (n / COLUMNS * p->groups + g) * COLUMNS + n % COLUMNS;
            int zero;
            scale[at] = pare_weight_scale(&m->weight, g * p->group, n, &zero);
            if (zeros) zeros[at] = (float)signed_level(zero, m->weight.type);
        }
}

pare_status pare_weight_panel_pack(const pare_prep *prep, const pare_matmul_args *m, pare_isa isa,
                                   const pare_weight_panel **out)
{
    const pare_view *b = &prep->in[1];
    const bool centred = !m->weight.zero && (b->dtype == PARE_s8 || b->dtype == PARE_s4);
    pare_weight_panel *p = pare_arena_alloc(prep->arena, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    *p = (pare_weight_panel){.depth = m->depth,
                             .columns = m->columns,
                             .group = m->weight.block,
                             .groups =
                                 m->depth / m->weight.block + (m->depth % m->weight.block != 0),
                             .bits = pare_type(b->dtype)->bits,
                             .isa = isa};
    if (p->groups > 1 && p->group % WORD) p->bits = 8; /* words must not cross groups */
    p->bytes = p->bits == 8 ? (size_t)(p->depth * COLUMNS)
                            : (size_t)((p->depth + WORD - 1) / WORD * COLUMNS * 4);
    const size_t panels = (size_t)panels_of(p), scales = panels * (size_t)p->groups * COLUMNS;
    uint8_t *level = pare_arena_alloc(prep->arena, panels * p->bytes + 1, 1);
    float *scale = pare_arena_alloc(prep->arena, scales + 1, sizeof *scale), *zero = NULL;
    if (!centred) zero = pare_arena_alloc(prep->arena, scales + 1, sizeof *zero);
    if (!level || !scale || (!centred && !zero)) return PARE_MEMORY;
    pack_levels(p, level, m, b);
    pack_scales(p, m, scale, zero);
    p->level = level;
    p->scale = scale;
    p->zero = zero;
    *out = p;
    return PARE_OK;
}

/* --- 4 bits as 8 --- */

/* The loops have a fixed width, so that each becomes a few vectors. */
PARE_CLONES static void unpack_word(const uint8_t *q, int8_t *to)
{
    uint32_t word[COLUMNS];
    memcpy(word, q, sizeof word);
#pragma GCC unroll 8
    for (int j = 0; j < WORD; j++)
        for (int i = 0; i < COLUMNS; i++)
            to[j * COLUMNS + i] = (int8_t)((int32_t)(word[i] << (28 - 4 * j)) >> 28);
}

size_t pare_weight_panel_levels(const pare_weight_panel *p)
{
    return p->bits == 4 ? p->bytes * 2 : 0;
}

pare_weight_panel pare_weight_panel_unpack(const pare_weight_panel *p, int64_t index,
                                           int8_t *levels)
{
    pare_weight_panel one = *p;
    const int64_t at = index * p->groups * COLUMNS, words = (int64_t)p->bytes / (COLUMNS * 4);
    one.level += (size_t)index * p->bytes;
    one.scale += at;
    if (one.zero) one.zero += at;
    if (p->bits == 8) return one;
    for (int64_t k = 0; k < words; k++)
        unpack_word(one.level + k * COLUMNS * 4, levels + k * WORD * COLUMNS);
    one.level = (const uint8_t *)levels;
    one.bits = 8;
    one.bytes *= 2;
    return one;
}

/* --- products --- */

static void rows_portable(const pare_weight_panel *p, const pare_weight_rows *a, int64_t panel)
{
    const uint8_t *levels = p->level + (size_t)panel * p->bytes;
    for (int r = 0; r < a->rows; r++) {
        float sum[COLUMNS] = {0}, *acc = a->acc + r * a->acc_step;
        for (int64_t g = 0; g < p->groups; g++) {
            const int64_t from = g * p->group, at = (panel * p->groups + g) * COLUMNS;
            const int64_t end = from + p->group < p->depth ? from + p->group : p->depth;
            float part[COLUMNS] = {0}, all = 0;
            for (int64_t k = from; k < end; k++) {
                const float x = a->row[r][k];
                const uint8_t *q = levels + (p->bits == 8 ? k : k / WORD * 4) * COLUMNS;
                all += x;
                for (int j = 0; j < COLUMNS; j++) {
                    uint32_t word = q[j];
                    if (p->bits == 4) memcpy(&word, q + 4 * j, sizeof word);
                    const int level =
                        p->bits == 8 ? (int8_t)word : (int32_t)(word >> k % WORD * 4 << 28) >> 28;
                    part[j] += x * (float)level;
                }
            }
            for (int j = 0; j < COLUMNS; j++) {
                if (p->zero) part[j] -= p->zero[at + j] * all;
                sum[j] += part[j] * p->scale[at + j];
            }
        }
        memcpy(acc, sum, sizeof sum);
    }
}

void pare_weight_panel_multiply(const pare_weight_panel *p, const pare_weight_rows *a,
                                int64_t panel, int64_t panels)
{
    const int whole = p->bits == 4 && a->rows > MOST_OF_4 ? a->rows / 2 : a->rows;
    pare_weight_rows now = *a;
    if (whole < a->rows) {
        now.rows = whole;
        pare_weight_panel_multiply(p, &now, panel, panels);
        now.rows = a->rows - whole;
        now.acc += whole * a->acc_step;
        for (int r = 0; r < now.rows; r++) now.row[r] = a->row[whole + r];
    }
    while (panels > 0) {
        int64_t done = 1;
#if defined(__x86_64__)
        if (p->isa >= PARE_ISA_AVX2)
            done = pare_weight_rows_avx2(p, &now, panel, panels);
        else
#endif
            rows_portable(p, &now, panel);
        panels -= done;
        panel += done;
        now.acc += done * COLUMNS;
    }
}
