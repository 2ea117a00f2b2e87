/* SPDX-License-Identifier: Apache-2.0 */
/* Second-order pruning. With inputs' second moments a, zeroing weight p of a row w and refitting
   the others costs w_p^2 / c_pp, c the inverse of a, and moves them by -w_p / c_pp c_p (Hassibi,
   Stork 1992, "Optimal Brain Surgeon"; per row of a layer: Frantar, Singh, Alistarh 2022, "Optimal
   Brain Compression", arXiv 2208.11580). c then loses the outer product c_p c_p^T / c_pp: step by
   step that is a Cholesky decomposition of c with the pivot chosen by cost. So nothing of size
   columns^2 is kept for a row: u_k, column k of the factor, is made from c and the earlier columns
   when weight k goes.

   The sweep goes over the columns from the left and spreads what a zero costs over the columns to
   its right only, so that all rows share one factor (Frantar, Alistarh 2023, "SparseGPT", arXiv
   2301.00774); how many zeros a block of columns gets follows the cost that the whole inverse says.
 */
#include "prune/unstructured.h"
#include "runtime/base/clones.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double TRACE_LIMIT = 1e11; /* multiply-adds */

bool pare_obs_affords(int64_t rows, int64_t columns)
{
    double d = (double)columns;
    return (double)rows * d * d * d / 2 < TRACE_LIMIT && columns < 4096;
}

/* --- traces --- */

/* A row on its way. Columns that are gone leave the arrays now and then: the first `width` entries
   of w, diagonal, alive and of each row of u belong to the columns that `at` names. */
typedef struct walker {
    const pare_obs *s;
    double *w, *diagonal; /* (columns) */
    double *u;            /* (columns, width): row k is the factor's column k */
    double *c;            /* (width): one row of the inverse */
    int32_t *at;
    int16_t *gone; /* N:M: zeros of each group so far */
    bool *alive;
    int64_t width, left;
} walker;

static pare_status walker_open(walker *k, const pare_obs *s)
{
    size_t d = (size_t)s->columns;
    *k = (walker){.s = s};
    k->w = pare_alloc(s->ctx, d, sizeof(double));
    k->diagonal = pare_alloc(s->ctx, d, sizeof(double));
    k->u = pare_alloc(s->ctx, d * d, sizeof(double));
    k->c = pare_alloc(s->ctx, d, sizeof(double));
    k->at = pare_alloc(s->ctx, d, sizeof *k->at);
    k->gone = pare_alloc(s->ctx, d, sizeof *k->gone);
    k->alive = pare_alloc(s->ctx, d, sizeof *k->alive);
    bool ok = k->w && k->diagonal && k->u && k->c && k->at && k->gone && k->alive;
    return ok ? PARE_OK : PARE_MEMORY;
}

static void walker_close(walker *k)
{
    pare_free(k->w);
    pare_free(k->diagonal);
    pare_free(k->u);
    pare_free(k->c);
    pare_free(k->at);
    pare_free(k->gone);
    pare_free(k->alive);
}

static void walker_begin(walker *k, int64_t row)
{
    const pare_obs *s = k->s;
    int64_t d = s->columns;
    k->width = k->left = d;
    memset(k->gone, 0, (size_t)d * sizeof *k->gone);
    for (int64_t j = 0; j < d; j++) {
        k->w[j] = s->best[row * d + j];
        k->diagonal[j] = s->inverse[j * d + j];
        k->at[j] = (int32_t)j;
        k->alive[j] = true;
    }
}

/* Leaves out the columns that are gone; steps: rows of u so far. */
static void walker_pack(walker *k, int64_t steps)
{
    int64_t old = k->width, n = 0;
    for (int64_t r = 0; r < steps; r++) {
        const double *from = k->u + r * old;
        double *to = k->u + r * k->left;
        for (int64_t j = 0; j < old; j++)
            if (k->alive[j]) *to++ = from[j];
    }
    for (int64_t j = 0; j < old; j++) {
        if (!k->alive[j]) continue;
        k->w[n] = k->w[j];
        k->diagonal[n] = k->diagonal[j];
        k->at[n++] = k->at[j];
    }
    k->width = n;
    for (int64_t j = 0; j < n; j++) k->alive[j] = true;
}

static int64_t cheapest(const walker *k)
{
    const pare_obs *s = k->s;
    int64_t best = -1;
    double least = 0;
    for (int64_t j = 0; j < k->width; j++) {
        if (!k->alive[j] || (s->m && k->gone[k->at[j] / s->m] >= s->m - s->n)) continue;
        double cost = k->w[j] * k->w[j] / k->diagonal[j];
        if (best >= 0 && !(cost < least)) continue;
        best = j;
        least = cost;
    }
    return best;
}

/* u = (c - sum of the earlier columns' shares) / root; w and the diagonal follow. */
PARE_CLONES_SUMS static void remove_one(double *u, const double *c, const double *earlier,
                                        int64_t count, int64_t width, int64_t p, double *w,
                                        double *diagonal)
{
    memcpy(u, c, (size_t)width * sizeof *u);
    int64_t k = 0;
    for (; k + 4 <= count; k += 4) {
        const double *a = earlier + k * width, *b = a + width, *e = b + width, *f = e + width;
        double fa = a[p], fb = b[p], fe = e[p], ff = f[p];
        for (int64_t j = 0; j < width; j++) u[j] -= fa * a[j] + fb * b[j] + fe * e[j] + ff * f[j];
    }
    for (; k < count; k++) {
        const double *a = earlier + k * width;
        double fa = a[p];
        for (int64_t j = 0; j < width; j++) u[j] -= fa * a[j];
    }
    double root = sqrt(diagonal[p]), share = w[p] / root;
    for (int64_t j = 0; j < width; j++) {
        u[j] /= root;
        w[j] -= share * u[j];
        diagonal[j] -= u[j] * u[j];
    }
}

static void trace_row(walker *k, int64_t row, int32_t *order, float *loss)
{
    const pare_obs *s = k->s;
    int64_t d = s->columns, t = 0;
    walker_begin(k, row);
    for (; t < d; t++) {
        if (4 * k->left < 3 * k->width) walker_pack(k, t);
        int64_t p = cheapest(k);
        if (p < 0) break;
        const double *c = s->inverse + (int64_t)k->at[p] * d;
        /* rounding may leave a pivot of nothing; its weight is nothing, too */
        double tiny = 1e-13 * c[k->at[p]];
        if (!(k->diagonal[p] > tiny)) k->diagonal[p] = tiny;
        order[t] = k->at[p];
        loss[t] = (float)(k->w[p] * k->w[p] / k->diagonal[p]);
        for (int64_t j = 0; j < k->width; j++) k->c[j] = c[k->at[j]];
        remove_one(k->u + t * k->width, k->c, k->u, t, k->width, p, k->w, k->diagonal);
        k->alive[p] = false;
        k->left--;
        if (s->m) k->gone[k->at[p] / s->m]++;
    }
    for (; t < d; t++) {
        order[t] = -1;
        loss[t] = INFINITY;
    }
}

pare_status pare_obs_trace(const pare_obs *s, int32_t *order, float *loss)
{
    bool failed = false;
#pragma omp parallel num_threads(s->threads)
    {
        walker k;
        bool ready = walker_open(&k, s) == PARE_OK;
        if (!ready) {
#pragma omp atomic write
            failed = true;
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t r = 0; r < s->rows; r++)
            if (ready) trace_row(&k, r, order + r * s->columns, loss + r * s->columns);
        walker_close(&k);
    }
    return failed ? PARE_FAIL(s->ctx, MEMORY, "out of memory") : pare_ctx_poll(s->ctx);
}

/* --- choosing among traces --- */

typedef struct step {
    float loss;
    int32_t row;
} step;

/* By loss, then by row; steps of one row keep their order, for losses of a row never fall. */
static int by_loss(const void *a, const void *b)
{
    const step *x = a, *y = b;
    if (x->loss != y->loss) return x->loss < y->loss ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

pare_status pare_obs_cheapest(pare_ctx *ctx, const int32_t *order, const float *loss, int64_t rows,
                              int64_t columns, int64_t want, bool *zero)
{
    int64_t n = rows * columns;
    step *all = pare_alloc(ctx, (size_t)n, sizeof *all);
    int64_t *taken = pare_alloc(ctx, (size_t)rows, sizeof *taken);
    if (all && taken) {
        for (int64_t r = 0; r < rows; r++) {
            float most = 0;
            for (int64_t k = 0; k < columns; k++) {
                most = fmaxf(most, loss[r * columns + k]);
                all[r * columns + k] = (step){most, (int32_t)r};
            }
        }
        qsort(all, (size_t)n, sizeof *all, by_loss);
        memset(zero, 0, (size_t)n * sizeof *zero);
        for (int64_t i = 0; i < n && want > 0; i++) {
            int64_t r = all[i].row;
            int32_t p = order[r * columns + taken[r]++];
            if (p < 0) continue;
            zero[r * columns + p] = true;
            want--;
        }
    }
    bool ok = all && taken;
    pare_free(all);
    pare_free(taken);
    return ok ? PARE_OK : PARE_MEMORY;
}

/* --- the sweep --- */

enum { SWEEP = 128 };

typedef struct sweep {
    const pare_obs *s;
    double *factor; /* (columns, columns) of the inverse, upper */
    step *sorted;   /* scratch: (rows * SWEEP) */
    bool *zero;
    double *w;
} sweep;

/* How many weights of columns first .. last - 1 are among the `want` cheapest of all. */
static pare_status share_out(const pare_obs *s, int64_t want, int64_t *share)
{
    int64_t d = s->columns, n = s->rows * d;
    step *all = pare_alloc(s->ctx, (size_t)n, sizeof *all);
    if (!all) return PARE_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        int64_t j = i % d;
        all[i] =
            (step){(float)(s->best[i] * s->best[i] / s->inverse[j * d + j]), (int32_t)(j / SWEEP)};
    }
    qsort(all, (size_t)n, sizeof *all, by_loss);
    for (int64_t i = 0; i < want && i < n; i++) share[all[i].row]++;
    pare_free(all);
    return PARE_OK;
}

/* The `want` cheapest of a block of columns; step.row is the place in rows x width here. */
static void choose_free(sweep *k, int64_t first, int64_t width, int64_t want)
{
    const pare_obs *s = k->s;
    int64_t d = s->columns, n = s->rows * width;
    for (int64_t i = 0; i < n; i++) {
        int64_t j = first + i % width;
        double root = k->factor[j * d + j], w = k->w[i / width * d + j];
        k->sorted[i] = (step){(float)(w * w / (root * root)), (int32_t)i};
    }
    qsort(k->sorted, (size_t)n, sizeof *k->sorted, by_loss);
    for (int64_t i = 0; i < want && i < n; i++) {
        int64_t at = k->sorted[i].row;
        k->zero[at / width * d + first + at % width] = true;
    }
}

static void choose_group(sweep *k, int64_t row, int64_t first)
{
    const pare_obs *s = k->s;
    int64_t d = s->columns;
    for (int gone = 0; gone < s->m - s->n; gone++) {
        int64_t best = -1;
        double least = 0;
        for (int64_t j = first; j < first + s->m; j++) {
            double root = k->factor[j * d + j], w = k->w[row * d + j], cost = w * w / (root * root);
            if (k->zero[row * d + j] || (best >= 0 && !(cost < least))) continue;
            best = j;
            least = cost;
        }
        k->zero[row * d + best] = true;
    }
}

static void sweep_row(sweep *k, int64_t row, int64_t first, int64_t last)
{
    int64_t d = k->s->columns;
    double *w = k->w + row * d;
    for (int64_t j = first; j < last; j++) {
        if (k->s->m && j % k->s->m == 0) choose_group(k, row, j);
        if (!k->zero[row * d + j]) continue;
        pare_linear_take(w + j, k->factor + j * d + j, w[j] / k->factor[j * d + j], d - j);
        w[j] = 0;
    }
}

static pare_status sweep_all(sweep *k, int64_t want)
{
    const pare_obs *s = k->s;
    int64_t d = s->columns, blocks = (d + SWEEP - 1) / SWEEP, width = SWEEP;
    if (s->m) width = SWEEP / s->m * s->m; /* groups stay whole */
    if (width < 1) width = s->m;
    int64_t *share = pare_alloc(s->ctx, (size_t)blocks, sizeof *share);
    if (!share) return PARE_MEMORY;
    pare_status st = s->m ? PARE_OK : share_out(s, want, share);
    for (int64_t first = 0; first < d && st == PARE_OK; first += width) {
        int64_t last = first + width < d ? first + width : d;
        if (!s->m) choose_free(k, first, last - first, share[first / SWEEP]);
#pragma omp parallel for schedule(static) num_threads(s->threads)
        for (int64_t r = 0; r < s->rows; r++) sweep_row(k, r, first, last);
        st = pare_ctx_poll(s->ctx);
    }
    pare_free(share);
    return st;
}

pare_status pare_obs_sweep(const pare_obs *s, int64_t want, bool *zero, double *weights)
{
    int64_t d = s->columns;
    bool ok;
    sweep k = {.s = s, .zero = zero, .w = weights};
    k.factor = pare_alloc(s->ctx, (size_t)(d * d), sizeof(double));
    k.sorted = pare_alloc(s->ctx, (size_t)(s->rows * SWEEP), sizeof *k.sorted);
    pare_status st = k.factor && k.sorted ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        memcpy(k.factor, s->inverse, (size_t)(d * d) * sizeof(double));
        memcpy(weights, s->best, (size_t)(s->rows * d) * sizeof(double));
        memset(zero, 0, (size_t)(s->rows * d) * sizeof *zero);
        st = pare_linear_cholesky(s->ctx, (pare_mat_view){k.factor, d}, d, s->threads, &ok);
        if (st == PARE_OK && !ok)
            st = PARE_FAIL(s->ctx, INPUT,
                           "the second moments of its inputs are singular, expected more varied "
                           "samples");
    }
    if (st == PARE_OK) st = sweep_all(&k, want);
    pare_free(k.factor);
    pare_free(k.sorted);
    return st;
}

/* --- fitting what stays --- */

bool pare_obs_fit(const double *a, const double *b, const bool *zero, int64_t columns,
                  double *weights, double *scratch)
{
    int64_t n = 0, r = 0;
    double *x = scratch + columns * columns;
    for (int64_t j = 0; j < columns; j++)
        if (!zero[j]) x[n++] = b[j];
    for (int64_t i = 0; i < columns; i++) {
        if (zero[i]) continue;
        double *to = scratch + r++ * n;
        for (int64_t j = 0, c = 0; j < columns; j++)
            if (!zero[j]) to[c++] = a[i * columns + j];
    }
    if (!pare_linear_cholesky_small((pare_mat_view){scratch, n}, n)) return false;
    pare_linear_solve_one(scratch, n, n, x);
    for (int64_t j = 0, c = 0; j < columns; j++) weights[j] = zero[j] ? 0 : x[c++];
    return true;
}
