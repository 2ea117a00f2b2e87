/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding up or down, learned (Nagel, Amjad, van Baalen, Louizos, Blankevoort 2020, "Up or Down?
   Adaptive Rounding for Post-Training Quantization", arXiv 2004.10568): a weight is s (b + h(v)),
   b its lower level, h(v) = clip(sigmoid(v) (zeta - gamma) + gamma, 0, 1), and v follows the
   gradient of the row's error plus lambda (1 - |2h - 1|^beta), whose beta falls from 20 to 2 once
   a fifth of the iterations is over and drives each h to 0 or 1. Steps are Adam's (Kingma, Ba 2014,
   arXiv 1412.6980). A row's error is d^T H d, where d is what its weights err by, so that H d is
   all that an iteration needs of the data.

   Afterwards, and from where the levels were before, single weights go to the level that makes the
   error least while the others stay, until none does; each row takes the best. A row whose every h
   is 0 or 1 is done; rows do not see each other. */
#include "quant/rounding/round.h"

#include <math.h>
#include <string.h>

static const double ZETA = 1.1, GAMMA = -0.1, WARM = 0.2, FIRST_BETA = 20, LAST_BETA = 2;
static const double LAMBDA = 0.3, RATE = 0.03;
static const double PULL = 0.5;   /* from the weight to the level that it starts at */
static const double CLOSE = 0.02; /* to 0 or 1: there an h has no slope */

enum { SIDE = 16 /* rows that a thread takes */, MOST = 1 << 20 /* weights at once */ };

/* Rows side by side: arrays are (columns, rows) where nothing else is said. */
typedef struct block {
    const pare_quant_loss *loss;
    int64_t n, rows;
    double *memory;
    double *w, *scale, *low; /* target, scale, lower level */
    double *v, *h, *m1, *m2; /* Adam's moments of v */
    double *d, *g;           /* error and H times it */
    double *unit;            /* (rows) H_kk s^2 on average: gradients are in it */
    bool *done;              /* (rows) */
} block;

static pare_status block_new(pare_ctx *ctx, block *b, const pare_quant_loss *loss, int64_t rows)
{
    const size_t all = (size_t)(loss->columns * rows);
    *b = (block){.loss = loss, .n = loss->columns, .rows = rows};
    b->memory = pare_alloc(ctx, 9 * all + (size_t)rows, sizeof *b->memory);
    b->done = pare_alloc(ctx, (size_t)rows, sizeof *b->done);
    if (!b->memory || !b->done) return PARE_MEMORY;
    double **part[] = {&b->w,  &b->scale, &b->low, &b->v, &b->h,
                       &b->m1, &b->m2,    &b->d,   &b->g, &b->unit};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) *part[i] = b->memory + i * all;
    return PARE_OK;
}

static void block_free(block *b)
{
    pare_free(b->memory);
    pare_free(b->done);
}

/* h, not cut off, as sigmoid(v). */
static double sigmoid_of(double h) { return (h - GAMMA) / (ZETA - GAMMA); }

/* Between the levels on both sides of the weight; of a level that lies elsewhere, between that and
   the next one towards the weight. */
static void start_row(block *b, int64_t r, const double *w, const pare_quant_grid *grid,
                      const int8_t *level, const float *scale)
{
    const int64_t n = b->n, group = pare_quant_group(grid, n);
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = k * b->rows + r;
        const double s = (double)scale[k / group], at = w[k] / s, q = level[k];
        double low = fabs(q - at) < 1 ? floor(at) : q < at ? q : q - 1;
        low = fmin(fmax(low, grid->low), grid->high - 1);
        double h = fmin(fmax(at - low, 0), 1);
        h = fmin(fmax(h + PULL * (q - low - h), CLOSE), 1 - CLOSE);
        b->w[i] = w[k];
        b->scale[i] = s;
        b->low[i] = low;
        b->h[i] = h;
        b->v[i] = -log(1 / sigmoid_of(h) - 1);
        b->unit[r] += b->loss->h[k * n + k] * s * s / (double)n;
    }
    if (!(b->unit[r] > 0)) b->unit[r] = 1;
}

/* One step of Adam of rows first .. last - 1. beta 0: there is no regulariser yet. */
static void step(block *b, int64_t first, int64_t last, int iteration, double beta)
{
    const double keep1 = 0.9, keep2 = 0.999, small = 1e-8;
    const double one = 1 - pow(keep1, iteration + 1), two = 1 - pow(keep2, iteration + 1);
    bool open[SIDE] = {false};
    for (int64_t k = 0; k < b->n; k++)
        for (int64_t r = first; r < last; r++) {
            const int64_t i = k * b->rows + r;
            if (b->done[r]) continue;
            double h = b->h[i], slope = 0;
            if (h > 0 && h < 1) {
                const double u = 2 * h - 1, p = sigmoid_of(h);
                slope = 2 * b->g[i] * b->scale[i] / b->unit[r];
                if (beta > 0) slope -= LAMBDA * 2 * beta * copysign(pow(fabs(u), beta - 1), u);
                slope *= (ZETA - GAMMA) * p * (1 - p);
            }
            b->m1[i] = keep1 * b->m1[i] + (1 - keep1) * slope;
            b->m2[i] = keep2 * b->m2[i] + (1 - keep2) * slope * slope;
            b->v[i] -= RATE * (b->m1[i] / one) / (sqrt(b->m2[i] / two) + small);
            h = (ZETA - GAMMA) / (1 + exp(-b->v[i])) + GAMMA;
            b->h[i] = h = h < 0 ? 0 : h > 1 ? 1 : h;
            open[r - first] |= h > 0 && h < 1;
        }
    for (int64_t r = first; r < last; r++) b->done[r] = b->done[r] || !open[r - first];
}

static pare_status iterate(pare_ctx *ctx, block *b, int iteration, double beta, int threads)
{
    const int64_t n = b->n, rows = b->rows;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = k * rows; i < (k + 1) * rows; i++) {
            b->d[i] = b->scale[i] * (b->low[i] + b->h[i]) - b->w[i];
            b->g[i] = 0;
        }
    PARE_TRY(pare_linear_product(ctx, (pare_mat_view){b->g, rows},
                                 (pare_mat_view){(double *)(uintptr_t)b->loss->h, n},
                                 (pare_mat_view){b->d, rows}, n, n, rows, 1, false, threads));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r += SIDE)
        step(b, r, r + SIDE < rows ? r + SIDE : rows, iteration, beta);
    return pare_ctx_poll(ctx);
}

static bool all_done(const block *b)
{
    for (int64_t r = 0; r < b->rows; r++)
        if (!b->done[r]) return false;
    return true;
}

static pare_status learn(pare_ctx *ctx, block *b, int iterations, int threads)
{
    const int warm = (int)(WARM * iterations);
    for (int i = 0; i < iterations && !all_done(b); i++) {
        const double part = (double)(i - warm) / (double)(iterations - warm);
        const double beta = LAST_BETA + (FIRST_BETA - LAST_BETA) * (1 + cos(acos(-1) * part)) / 2;
        PARE_TRY(iterate(ctx, b, i, i < warm ? 0 : beta, threads));
    }
    return PARE_OK;
}

static pare_status learn_rows(pare_ctx *ctx, const pare_quant_loss *loss, const double *w,
                              int64_t rows, const pare_quant_grid *grid, int8_t *level,
                              const float *scale, int iterations, int threads)
{
    const int64_t n = loss->columns, groups = pare_quant_groups(grid, n);
    block b;
    pare_status st = block_new(ctx, &b, loss, rows);
    for (int64_t r = 0; st == PARE_OK && r < rows; r++)
        start_row(&b, r, w + r * n, grid, level + r * n, scale + r * groups);
    if (st == PARE_OK) st = learn(ctx, &b, iterations, threads);
    for (int64_t k = 0; st == PARE_OK && k < n; k++)
        for (int64_t r = 0; r < rows; r++)
            level[r * n + k] = (int8_t)(b.low[k * rows + r] + (b.h[k * rows + r] >= 0.5 ? 1 : 0));
    block_free(&b);
    return st;
}

static pare_status learn_all(pare_ctx *ctx, const pare_quant_loss *loss, const double *w,
                             int64_t rows, const pare_quant_grid *grid, int8_t *level,
                             const float *scale, int iterations, int threads)
{
    const int64_t n = loss->columns, groups = pare_quant_groups(grid, n);
    const int64_t fit = n > 0 ? MOST / n : 1, most = fit > SIDE ? fit : SIDE;
    for (int64_t r = 0; r < rows; r += most)
        PARE_TRY(learn_rows(ctx, loss, w + r * n, rows - r < most ? rows - r : most, grid,
                            level + r * n, scale + r * groups, iterations, threads));
    return PARE_OK;
}

/* --- what a row errs by --- */

/* d^T H d of one row; g (columns) becomes H d. */
static double error_of(const pare_quant_loss *loss, const double *w, const pare_quant_grid *grid,
                       const int8_t *level, const float *scale, double *g)
{
    const int64_t n = loss->columns, group = pare_quant_group(grid, n);
    double sum = 0;
    memset(g, 0, (size_t)n * sizeof *g);
    for (int64_t k = 0; k < n; k++) {
        const double d = (double)level[k] * (double)scale[k / group] - w[k];
        pare_linear_take(g, loss->h + k * n, -d, n);
    }
    for (int64_t k = 0; k < n; k++)
        sum += g[k] * ((double)level[k] * (double)scale[k / group] - w[k]);
    return sum;
}

/* Single weights to the level of least error; g as error_of leaves it. */
static void descend(const pare_quant_loss *loss, const pare_quant_grid *grid, int8_t *level,
                    const float *scale, double *g)
{
    enum { SWEEPS = 50 };
    const int64_t n = loss->columns, group = pare_quant_group(grid, n);
    bool moved = true;
    for (int sweep = 0; sweep < SWEEPS && moved; sweep++) {
        moved = false;
        for (int64_t k = 0; k < n; k++) {
            const double s = (double)scale[k / group], own = loss->h[k * n + k];
            double to = own > 0 ? rint(level[k] - g[k] / (own * s)) : level[k];
            to = fmin(fmax(to, grid->low), grid->high);
            const double by = (to - level[k]) * s;
            if (!(by * (2 * g[k] + by * own) < 0)) continue;
            pare_linear_take(g, loss->h + k * n, -by, n);
            level[k] = (int8_t)to;
            moved = true;
        }
    }
}

/* --- the choice --- */

typedef struct choice {
    const pare_quant_loss *loss;
    const double *plain, *w;
    const pare_quant_grid *grid;
    int8_t *level; /* as it was; then the best */
    const int8_t *learned;
    const float *scale;
} choice;

/* Of row r: the levels as they were and the learned ones, each once it is mended, and the nearest.
   room: (columns) doubles, then as many levels. */
static void choose_row(const choice *c, int64_t r, double *room)
{
    const int64_t n = c->loss->columns, group = pare_quant_group(c->grid, n);
    const float *scale = c->scale + r * pare_quant_groups(c->grid, n);
    const double *w = c->w + r * n;
    int8_t *level = c->level + r * n, *other = (int8_t *)(room + n);
    (void)error_of(c->loss, w, c->grid, level, scale, room);
    descend(c->loss, c->grid, level, scale, room);
    double least = error_of(c->loss, w, c->grid, level, scale, room);
    for (int nearest = 0; nearest < 2; nearest++) {
        for (int64_t i = 0; i < n; i++)
            other[i] = nearest ? pare_quant_level(c->plain[r * n + i], scale[i / group], c->grid)
                               : c->learned[r * n + i];
        double error = error_of(c->loss, w, c->grid, other, scale, room);
        if (!nearest) {
            descend(c->loss, c->grid, other, scale, room);
            error = error_of(c->loss, w, c->grid, other, scale, room);
        }
        if (!(error < least)) continue;
        least = error;
        memcpy(level, other, (size_t)n);
    }
}

static pare_status choose(pare_ctx *ctx, const choice *c, int64_t rows, int threads)
{
    const int64_t n = c->loss->columns;
    double *room = pare_alloc(ctx, (size_t)(threads * 2 * n), sizeof *room);
    if (!room) return PARE_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        for (int64_t r = t; r < rows; r += threads) choose_row(c, r, room + t * 2 * n);
    pare_free(room);
    return PARE_OK;
}

pare_status pare_quant_round_adaround(pare_ctx *ctx, const pare_quant_loss *loss,
                                      const double *plain, const double *w, int64_t rows,
                                      const pare_quant_grid *grid, int8_t *level,
                                      const float *scale, int iterations, int threads)
{
    const size_t all = (size_t)(rows * loss->columns);
    int8_t *learned = pare_alloc(ctx, all, 1);
    if (!learned) return PARE_MEMORY;
    memcpy(learned, level, all);
    const choice c = {loss, plain, w, grid, level, learned, scale};
    pare_status st = learn_all(ctx, loss, w, rows, grid, learned, scale, iterations, threads);
    if (st == PARE_OK) st = choose(ctx, &c, rows, threads);
    pare_free(learned);
    return st;
}
