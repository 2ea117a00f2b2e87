/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of a matrix of weights, a row an output, to few bits; columns in groups share a scale.

   To the nearest: each scale is the one of least squared error among clipping points. Or one column
   after the other, its error made good by the columns that follow, as second moments of the inputs
   say (Frantar, Ashkboos, Hoefler, Alistarh 2022, "GPTQ", arXiv 2210.17323): with U the upper
   Cholesky factor of the inverse moments, column i's error e = (w - q) / U_ii takes e U_ij from
   column j. A group's scale is chosen when its first column comes. */
#include "quant/round.h"
#include "runtime/base/clones.h"

#include <math.h>

enum { PANEL = 128 /* columns whose errors reach the later ones together */ };

/* --- one group --- */

/* Squared error of n numbers on a grid. Adding and taking away 1.5 * 2^52 rounds to the
   nearest integer, ties to even. */
PARE_CLONES static double error_of(const double *w, int64_t n, double scale, double low,
                                   double high)
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
            sum[k] += (v - q) * (v - q);
        }
    for (; i < n; i++) {
        const double v = w[i] * step, q = fmin(fmax((v + magic) - magic, low), high);
        sum[0] += (v - q) * (v - q);
    }
    for (int k = 0; k < LANES; k++) all += sum[k];
    return all * scale * scale;
}

float pare_quant_group_scale(const double *w, int64_t n, const pare_quant_grid *grid)
{
    enum { CANDIDATES = 40 };
    double most = 0, least = -1;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(w[i]));
    float best = 1; /* a group of zeros: any scale serves */
    for (int k = 0; k < CANDIDATES && most > 1e-30; k++) {
        const float scale = (float)(most / (double)grid->high * (1 - 0.5 * (double)k / CANDIDATES));
        const double error = error_of(w, n, (double)scale, (double)grid->low, (double)grid->high);
        if (least >= 0 && !(error < least)) continue;
        least = error;
        best = scale;
    }
    return best;
}

static int8_t level_of(double w, float scale, const pare_quant_grid *grid)
{
    const double q = rint(w / (double)scale);
    return (int8_t)(q < grid->low ? grid->low : q > grid->high ? grid->high : q);
}

static int64_t group_of(const pare_quant_grid *grid, int64_t columns)
{
    return grid->group > 0 && grid->group < columns ? grid->group : columns > 0 ? columns : 1;
}

int64_t pare_quant_groups(const pare_quant_grid *grid, int64_t columns)
{
    const int64_t group = group_of(grid, columns);
    return (columns + group - 1) / group;
}

/* --- to the nearest --- */

void pare_quant_round_nearest(const double *w, int64_t rows, int64_t columns,
                              const pare_quant_grid *grid, int8_t *level, float *scale, int threads)
{
    const int64_t group = group_of(grid, columns), groups = pare_quant_groups(grid, columns);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const int64_t from = g * group, left = columns - from, n = left < group ? left : group;
            const double *at = w + r * columns + from;
            const float s = scale[r * groups + g] = pare_quant_group_scale(at, n, grid);
            for (int64_t i = 0; i < n; i++)
                level[r * columns + from + i] = level_of(at[i], s, grid);
        }
}

/* --- with second moments --- */

PARE_CLONES static void take(double *w, const double *u, double by, int64_t n)
{
    for (int64_t i = 0; i < n; i++) w[i] -= by * u[i];
}

typedef struct panel {
    const double *factor;
    int64_t columns, rows, group, groups;
    const pare_quant_grid *grid;
    int64_t from, to;  /* columns */
    double *w, *error; /* (rows, columns); (to - from, rows) */
    int8_t *level;
    float *scale;
} panel;

static void round_row(const panel *p, int64_t r)
{
    double *w = p->w + r * p->columns;
    for (int64_t i = p->from; i < p->to; i++) {
        const int64_t g = i / p->group, left = p->columns - i;
        float *scale = p->scale + r * p->groups + g;
        if (i % p->group == 0 && !p->grid->set)
            *scale = pare_quant_group_scale(w + i, left < p->group ? left : p->group, p->grid);
        const double *u = p->factor + i * p->columns;
        const int8_t q = level_of(w[i], *scale, p->grid);
        const double error = (w[i] - (double)q * (double)*scale) / u[i];
        p->level[r * p->columns + i] = q;
        p->error[(i - p->from) * p->rows + r] = error;
        take(w + i + 1, u + i + 1, error, p->to - i - 1);
    }
}

pare_status pare_quant_round_gptq(pare_ctx *ctx, const double *factor, double *w, int64_t rows,
                                  int64_t columns, const pare_quant_grid *grid, int8_t *level,
                                  float *scale, int threads)
{
    const int64_t group = group_of(grid, columns);
    const int64_t step = group == columns || PANEL < group ? PANEL : PANEL / group * group;
    panel p = {.factor = factor,
               .columns = columns,
               .rows = rows,
               .group = group,
               .groups = pare_quant_groups(grid, columns),
               .grid = grid,
               .w = w,
               .level = level,
               .scale = scale};
    const int64_t width = group < columns && group > PANEL ? group : step;
    pare_status st = PARE_OK;
    p.error = pare_alloc(ctx, (size_t)(width * rows), sizeof *p.error);
    if (!p.error) return PARE_MEMORY;
    for (; st == PARE_OK && p.from < columns; p.from = p.to) {
        p.to = p.from + width < columns ? p.from + width : columns;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t r = 0; r < rows; r++) round_row(&p, r);
        if (p.to < columns)
            st = pare_linear_product(
                ctx, (pare_mat_view){w + p.to, columns}, (pare_mat_view){p.error, rows},
                (pare_mat_view){(double *)(uintptr_t)factor + p.from * columns + p.to, columns},
                p.to - p.from, rows, columns - p.to, -1, false, threads);
        if (st == PARE_OK) st = pare_ctx_poll(ctx);
    }
    pare_free(p.error);
    return st;
}

pare_status pare_quant_gptq_factor(pare_ctx *ctx, const pare_moments *moments, int threads,
                                   double *factor)
{
    double ridge = 1e-2; /* of the mean diagonal, as in the paper */
    bool ok;
    PARE_TRY(pare_moments_inverse(ctx, moments, false, &ridge, threads, factor));
    PARE_TRY(pare_linear_cholesky(ctx, (pare_mat_view){factor, moments->columns}, moments->columns,
                                  threads, &ok));
    if (!ok)
        return PARE_FAIL(ctx, INPUT,
                         "the second moments of its inputs have no factor: the data "
                         "hold values that are not finite");
    return PARE_OK;
}
