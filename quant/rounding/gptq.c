/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of a matrix of weights, a row an output, to few bits; columns in groups share a scale.

   To the nearest: each scale is the one of least squared error among clipping points. Or one column
   after the other, its error made good by the columns that follow, as second moments of the inputs
   say (Frantar, Ashkboos, Hoefler, Alistarh 2022, "GPTQ", arXiv 2210.17323): with U the upper
   Cholesky factor of the inverse moments, column i's error e = (w - q) / U_ii takes e U_ij from
   column j. Columns go by falling second moment; scales are chosen before, by errors that count as
   much as the columns' second moments. */
#include "quant/rounding/round.h"
#include "runtime/base/clones.h"
#include "runtime/base/minifloat.h"

#include <math.h>
#include <stdlib.h>

enum { PANEL = 128 /* columns whose errors reach the later ones together */ };

/* --- one group --- */

/* Squared error of n numbers on a grid; weight: what each counts, NULL: the same. Adding and taking
   away 1.5 * 2^52 rounds to the nearest integer, ties to even. */
PARE_CLONES static double error_of(const double *w, const double *weight, int64_t n, double scale,
                                   double low, double high)
{
    enum { LANES = 8 };
    const double magic = 0x1.8p52, step = 1 / scale;
    double sum[LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double v = w[i + k] * step;
            double q = (v + magic) - magic;
            q = q < low ? low : q;
            q = q > high ? high : q;
            sum[k] += (v - q) * (v - q) * (weight ? weight[i + k] : 1);
        }
    for (; i < n; i++) {
        const double v = w[i] * step, q = fmin(fmax((v + magic) - magic, low), high);
        sum[0] += (v - q) * (v - q) * (weight ? weight[i] : 1);
    }
    for (int k = 0; k < LANES; k++) all += sum[k];
    return all * scale * scale;
}

static bool is_float(const pare_quant_grid *grid) { return pare_is_minifloat(grid->format); }

double pare_quant_level_number(int8_t level, const pare_quant_grid *grid)
{
    if (!is_float(grid)) return level;
    const double number = (double)pare_minifloat_to_f32(grid->format, (uint8_t)abs(level));
    return level < 0 ? -number : number;
}

static double float_error(const double *w, const double *weight, int64_t n, float scale,
                          const pare_quant_grid *grid)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double q = pare_quant_level_number(pare_quant_level(w[i], scale, grid), grid);
        const double d = w[i] - q * (double)scale;
        sum += d * d * (weight ? weight[i] : 1);
    }
    return sum;
}

/* A float format's steps follow its numbers, so that the scale matters at its ends alone: the
   largest number is the largest of the format. A power of two: that or the next ones, whichever
   errs least; the first is that of OCP Microscaling Formats 1.0, section 6.3. */
static float float_scale(const double *w, const double *weight, int64_t n, double most,
                         const pare_quant_grid *grid)
{
    enum { LEAST = -127, MOST = 127 };
    static const int around[] = {0, -1, 1};
    const double largest = pare_quant_level_number((int8_t)grid->high, grid);
    double least = -1;
    float best = 1;
    if (!grid->powers) return most > 1e-30 ? (float)(most / largest) : 1;
    const int first = most > 1e-30 ? ilogb(most) - ilogb(largest) : 0;
    for (int i = 0; i < 3; i++) {
        const int k = first + around[i];
        const float scale = ldexpf(1, k < LEAST ? LEAST : k > MOST ? MOST : k);
        const double error = float_error(w, weight, n, scale, grid);
        if (least >= 0 && !(error < least)) continue;
        least = error;
        best = scale;
    }
    return best;
}

float pare_quant_group_scale(const double *w, const double *weight, int64_t n,
                             const pare_quant_grid *grid)
{
    enum { CANDIDATES = 40 };
    double most = 0, least = -1;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(w[i]));
    if (is_float(grid)) return float_scale(w, weight, n, most, grid);
    float best = 1; /* a group of zeros: any scale serves */
    for (int k = 0; k < CANDIDATES && most > 1e-30; k++) {
        const float scale = (float)(most / (double)grid->high * (1 - 0.5 * (double)k / CANDIDATES));
        const double error =
            error_of(w, weight, n, (double)scale, (double)grid->low, (double)grid->high);
        if (least >= 0 && !(error < least)) continue;
        least = error;
        best = scale;
    }
    return best;
}

int8_t pare_quant_level(double w, float scale, const pare_quant_grid *grid)
{
    if (is_float(grid)) {
        const uint8_t code = pare_minifloat_from_f32(grid->format, (float)fabs(w / (double)scale),
                                                     true, PARE_ROUND_NEAREST);
        return (int8_t)(w < 0 ? -code : code);
    }
    const double q = rint(w / (double)scale);
    return (int8_t)(q < grid->low ? grid->low : q > grid->high ? grid->high : q);
}

int64_t pare_quant_group(const pare_quant_grid *grid, int64_t columns)
{
    return grid->group > 0 && grid->group < columns ? grid->group : columns > 0 ? columns : 1;
}

int64_t pare_quant_groups(const pare_quant_grid *grid, int64_t columns)
{
    const int64_t group = pare_quant_group(grid, columns);
    return (columns + group - 1) / group;
}

/* --- to the nearest --- */

void pare_quant_round_nearest(const double *w, int64_t rows, int64_t columns,
                              const pare_quant_grid *grid, int8_t *level, float *scale, int threads)
{
    const int64_t group = pare_quant_group(grid, columns),
                  groups = pare_quant_groups(grid, columns);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const int64_t from = g * group, left = columns - from, n = left < group ? left : group;
            const double *at = w + r * columns + from;
            const float s = scale[r * groups + g] = pare_quant_group_scale(at, NULL, n, grid);
            for (int64_t i = 0; i < n; i++)
                level[r * columns + from + i] = pare_quant_level(at[i], s, grid);
        }
}

/* --- with second moments --- */

PARE_CLONES static void take(double *w, const double *u, double by, int64_t n)
{
    for (int64_t i = 0; i < n; i++) w[i] -= by * u[i];
}

typedef struct panel {
    const pare_quant_gptq *gptq;
    int64_t columns, rows, group, groups;
    const pare_quant_grid *grid;
    int64_t from, to;  /* columns in order */
    double *w, *error; /* (rows, columns), columns in order; (to - from, rows) */
    int8_t *level;
    const float *scale;
} panel;

static void round_row(const panel *p, int64_t r)
{
    double *w = p->w + r * p->columns;
    for (int64_t i = p->from; i < p->to; i++) {
        const int64_t column = p->gptq->order[i];
        const float scale = p->scale[r * p->groups + column / p->group];
        const double *u = p->gptq->factor + i * p->columns;
        const int8_t q = pare_quant_level(w[i], scale, p->grid);
        const double number = pare_quant_level_number(q, p->grid);
        const double error = (w[i] - number * (double)scale) / u[i];
        p->level[r * p->columns + column] = q;
        p->error[(i - p->from) * p->rows + r] = error;
        take(w + i + 1, u + i + 1, error, p->to - i - 1);
    }
}

static void choose_scales(const double *w, const panel *p, float *scale, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t g = 0; g < p->groups; g++) {
            const int64_t from = g * p->group, left = p->columns - from;
            scale[r * p->groups + g] =
                pare_quant_group_scale(w + r * p->columns + from, p->gptq->square + from,
                                       left < p->group ? left : p->group, p->grid);
        }
}

static pare_status round_panels(pare_ctx *ctx, panel *p, int threads)
{
    for (; p->from < p->columns; p->from = p->to) {
        p->to = p->from + PANEL < p->columns ? p->from + PANEL : p->columns;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t r = 0; r < p->rows; r++) round_row(p, r);
        const double *u = p->gptq->factor + p->from * p->columns + p->to;
        if (p->to < p->columns)
            PARE_TRY(pare_linear_product(
                ctx, (pare_mat_view){p->w + p->to, p->columns}, (pare_mat_view){p->error, p->rows},
                (pare_mat_view){(double *)(uintptr_t)u, p->columns}, p->to - p->from, p->rows,
                p->columns - p->to, -1, false, threads));
        PARE_TRY(pare_ctx_poll(ctx));
    }
    return PARE_OK;
}

pare_status pare_quant_round_gptq(pare_ctx *ctx, const pare_quant_gptq *gptq, const double *w,
                                  int64_t rows, const pare_quant_grid *grid, int8_t *level,
                                  float *scale, int threads)
{
    const int64_t columns = gptq->columns;
    panel p = {.gptq = gptq,
               .columns = columns,
               .rows = rows,
               .group = pare_quant_group(grid, columns),
               .groups = pare_quant_groups(grid, columns),
               .grid = grid,
               .level = level,
               .scale = scale};
    if (!grid->set) choose_scales(w, &p, scale, threads);
    p.w = pare_alloc(ctx, (size_t)(rows * columns), sizeof *p.w);
    p.error = pare_alloc(ctx, (size_t)(PANEL * rows), sizeof *p.error);
    pare_status st = p.w && p.error ? PARE_OK : PARE_MEMORY;
    for (int64_t r = 0; st == PARE_OK && r < rows; r++)
        for (int64_t i = 0; i < columns; i++)
            p.w[r * columns + i] = w[r * columns + gptq->order[i]];
    if (st == PARE_OK) st = round_panels(ctx, &p, threads);
    pare_free(p.w);
    pare_free(p.error);
    return st;
}

/* Columns by falling second moment: the dearest are rounded while most others can make good. */
typedef struct column {
    double square;
    int64_t at;
} column;

static int by_square(const void *a, const void *b)
{
    const column *x = a, *y = b;
    if (x->square != y->square) return x->square > y->square ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static pare_status order_columns(pare_ctx *ctx, const double *square, int64_t n, int64_t *order)
{
    column *c = pare_alloc(ctx, (size_t)n + 1, sizeof *c);
    if (!c) return PARE_MEMORY;
    for (int64_t i = 0; i < n; i++) c[i] = (column){square[i], i};
    qsort(c, (size_t)n, sizeof *c, by_square);
    for (int64_t i = 0; i < n; i++) order[i] = c[i].at;
    pare_free(c);
    return PARE_OK;
}

static pare_status make_factor(pare_ctx *ctx, pare_quant_gptq *g, const pare_moments *m,
                               bool centred, double *inverse, int threads)
{
    const int64_t n = m->columns;
    double ridge = 1e-2; /* of the mean diagonal, as in the paper */
    bool ok;
    const double rows = centred && m->rows > 0 ? m->rows : INFINITY;
    for (int64_t i = 0; i < n; i++) g->square[i] = m->xx[i * n + i] - m->x[i] * m->x[i] / rows;
    PARE_TRY(pare_moments_inverse(ctx, m, centred, &ridge, threads, inverse));
    PARE_TRY(order_columns(ctx, g->square, n, g->order));
    g->factor = pare_alloc(ctx, (size_t)(n * n), sizeof *g->factor); /* its scratch is gone */
    if (!g->factor) return PARE_MEMORY;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++)
            g->factor[i * n + j] = inverse[g->order[i] * n + g->order[j]];
    PARE_TRY(pare_linear_cholesky(ctx, (pare_mat_view){g->factor, n}, n, threads, &ok));
    if (ok) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "the second moments of its inputs have no factor: the data hold values that "
                     "are not finite");
}

pare_status pare_quant_gptq_new(pare_ctx *ctx, pare_quant_gptq **out, const pare_moments *m,
                                bool centred, int threads)
{
    const size_t n = (size_t)m->columns;
    pare_quant_gptq *g = pare_alloc(ctx, 1, sizeof *g);
    double *inverse = pare_alloc(ctx, n * n, sizeof *inverse);
    pare_status st = g && inverse ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        g->columns = m->columns;
        g->order = pare_alloc(ctx, n, sizeof *g->order);
        g->square = pare_alloc(ctx, n, sizeof *g->square);
        st =
            g->order && g->square ? make_factor(ctx, g, m, centred, inverse, threads) : PARE_MEMORY;
    }
    pare_free(inverse);
    if (st == PARE_OK)
        *out = g;
    else
        pare_quant_gptq_free(g);
    return st;
}

void pare_quant_gptq_free(pare_quant_gptq *g)
{
    if (!g) return;
    pare_free(g->order);
    pare_free(g->square);
    pare_free(g->factor);
    pare_free(g);
}
