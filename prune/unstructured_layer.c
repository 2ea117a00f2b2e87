/* SPDX-License-Identifier: Apache-2.0 */
/* One layer: which of its weights go, and what the others become.

   With x what the layer sees in the model pruned so far and t what it should compute (moments.h),
   row w of its weight and bias b minimise sum (t - w x - b)^2 + ridge * |w - v|^2, v the dense
   weights: the ridge pulls to what was trained, not to zero. b takes up the means, so moments less
   their means are fitted. The ridge is relative to the mean diagonal; the mask is chosen at
   MASK_RIDGE, then the ridge whose weights, fitted on four fifths of the samples, err least on the
   last fifth. Where even these err more than the dense weights under the mask, these stay. */
#include "prune/unstructured.h"

#include <string.h>

static const double MASK_RIDGE = 1e-2;
static const double ridges[] = {1e-4, 1e-3, 1e-2, 1e-1, 1};
enum { RIDGES = sizeof ridges / sizeof *ridges, JUDGED_ROWS = 16 };
static const double FIT_LIMIT = 3e11; /* multiply-adds of fitting all rows */

/* A group under work. Matrices of weights are (outputs, columns). */
typedef struct group {
    pare_layer_fit *fit;
    pare_ctx *ctx;
    int64_t index, d, n;
    pare_moments *fitted, *held; /* four fifths, one */
    pare_moments *both;
    double *dense, *best, *w; /* dense weights; fitted, unmasked; the result */
    bool *zero;
    double *a, *b;               /* normal equations; b (columns, outputs) */
    bool swept;                  /* w comes from the sweep and is final */
    double *turned, *product;    /* scratch: (columns, outputs) each */
    int64_t *kept, kept_count;   /* columns that all rows keep; -1: rows differ */
    double masked, fitted_error; /* errors on held-out samples, of the rows that were judged */
    double variance;             /* of these rows there */
} group;

static void group_free(group *g)
{
    pare_moments_free(g->both);
    pare_free(g->dense);
    pare_free(g->best);
    pare_free(g->w);
    pare_free(g->zero);
    pare_free(g->a);
    pare_free(g->b);
    pare_free(g->kept);
    pare_free(g->turned);
    pare_free(g->product);
}

static pare_status group_open(group *g, pare_layer_fit *fit, int64_t index)
{
    const pare_prunable *s = fit->layer;
    int64_t d = s->columns.columns, n = s->columns.outputs;
    *g = (group){.fit = fit, .ctx = fit->all->ctx, .index = index, .d = d, .n = n};
    g->fitted = pare_observer_moments(fit->observer, 0, index);
    g->held = pare_observer_moments(fit->observer, 1, index);
    pare_linear_fill_lower(g->fitted->xx, d);
    pare_linear_fill_lower(g->held->xx, d);
    PARE_TRY(pare_moments_new(g->ctx, &g->both, d, n));
    pare_moments_add(g->both, g->fitted);
    pare_moments_add(g->both, g->held);
    size_t size = (size_t)(d * n);
    g->dense = pare_alloc(g->ctx, size, sizeof(double));
    g->best = pare_alloc(g->ctx, size, sizeof(double));
    g->w = pare_alloc(g->ctx, size, sizeof(double));
    g->zero = pare_alloc(g->ctx, size, sizeof(bool));
    g->a = pare_alloc(g->ctx, (size_t)(d * d), sizeof(double));
    g->kept = pare_alloc(g->ctx, (size_t)d, sizeof *g->kept);
    g->b = pare_alloc(g->ctx, size, sizeof(double));
    g->turned = pare_alloc(g->ctx, size, sizeof(double));
    g->product = pare_alloc(g->ctx, size, sizeof(double));
    if (!g->dense || !g->best || !g->w || !g->zero || !g->a || !g->b || !g->kept || !g->turned ||
        !g->product)
        return PARE_MEMORY;
    for (int64_t o = 0; o < n; o++)
        for (int64_t k = 0; k < d; k++) {
            int64_t at = pare_unstructured_place(s, index, o, k);
            g->dense[o * d + k] = (double)fit->weights[at] * (double)s->part.alpha;
            g->zero[o * d + k] = s->zero[at];
        }
    return PARE_OK;
}

/* --- which weights go --- */

static pare_status choose(group *g, int64_t want)
{
    const pare_unstructured_options *o = g->fit->all->options;
    int threads = o->threads;
    double ridge = MASK_RIDGE;
    double *inverse = pare_alloc(g->ctx, (size_t)(g->d * g->d), sizeof *inverse);
    int32_t *order = NULL;
    float *loss = NULL;
    pare_status st = inverse ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK)
        st = pare_moments_inverse(g->ctx, g->both, g->fit->centred, &ridge, threads, inverse);
    if (st != PARE_OK) goto done;
    (void)pare_moments_normal(g->both, g->fit->centred, ridge, g->dense, g->a, g->b);
    memset(g->best, 0, (size_t)(g->n * g->d) * sizeof(double));
    st = pare_linear_product(g->ctx, (pare_mat_view){g->best, g->d}, (pare_mat_view){g->b, g->n},
                             (pare_mat_view){inverse, g->d}, g->d, g->n, g->d, 1, false, threads);
    if (st != PARE_OK) goto done;
    pare_obs s = {g->ctx, g->d, g->n, inverse, g->best, o->n, o->m, threads};
    if (pare_obs_affords(g->n, g->d)) {
        order = pare_alloc(g->ctx, (size_t)(g->n * g->d), sizeof *order);
        loss = pare_alloc(g->ctx, (size_t)(g->n * g->d), sizeof *loss);
        st = order && loss ? pare_obs_trace(&s, order, loss) : PARE_MEMORY;
        if (st == PARE_OK)
            st = pare_obs_cheapest(g->ctx, order, loss, g->n, g->d, o->m ? INT64_MAX : want,
                                   g->zero);
    } else
        st = pare_obs_sweep(&s, want, g->zero, g->w);
done:
    pare_free(inverse);
    pare_free(order);
    pare_free(loss);
    return st;
}

/* --- what the others become --- */

/* The columns that all rows keep which keep any (whole channels were removed); false, and *count of
   no meaning, where rows differ. kept: (d) */
static bool same_columns(const group *g, int64_t *kept, int64_t *count)
{
    int64_t first = -1;
    *count = 0;
    for (int64_t r = 0; r < g->n; r++) {
        const bool *zero = g->zero + r * g->d;
        if (memchr(zero, 0, (size_t)g->d) == NULL) continue;
        if (first >= 0 && memcmp(zero, g->zero + first * g->d, (size_t)g->d) != 0) return false;
        first = first < 0 ? r : first;
    }
    for (int64_t k = 0; k < g->d && first >= 0; k++)
        if (!g->zero[first * g->d + k]) kept[(*count)++] = k;
    return true;
}

/* All rows at once over the columns they keep: one factor for all. */
static pare_status fit_together(group *g, const int64_t *kept, int64_t count, double *w, bool *ok)
{
    double *a = pare_alloc(g->ctx, (size_t)(count * (count + g->n)), sizeof *a);
    if (!a) return PARE_MEMORY;
    double *b = a + count * count;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = i; j < count; j++) a[i * count + j] = g->a[kept[i] * g->d + kept[j]];
        memcpy(b + i * g->n, g->b + kept[i] * g->n, (size_t)g->n * sizeof *b);
    }
    int threads = g->fit->all->options->threads;
    pare_status st = pare_linear_cholesky(g->ctx, (pare_mat_view){a, count}, count, threads, ok);
    if (st == PARE_OK && *ok)
        st = pare_linear_solve(g->ctx, (pare_mat_view){a, count}, count, (pare_mat_view){b, g->n},
                               g->n, threads);
    memset(w, 0, (size_t)(g->n * g->d) * sizeof *w);
    for (int64_t r = 0; r < g->n; r++)
        for (int64_t i = 0; i < count; i++)
            if (!g->zero[r * g->d + kept[i]]) w[r * g->d + kept[i]] = b[i * g->n + r];
    pare_free(a);
    return st;
}

/* Fits rows 0, step, 2 step ... to normal equations a, b; false where one is singular. */
static bool fit_rows(group *g, int64_t step, double *w)
{
    bool good = true;
    if (g->kept_count >= 0)
        return fit_together(g, g->kept, g->kept_count, w, &good) == PARE_OK && good;
#pragma omp parallel num_threads(g->fit->all->options->threads)
    {
        double *scratch = pare_alloc(g->ctx, (size_t)(g->d * (g->d + 2)), sizeof *scratch);
        double *b = scratch ? scratch + g->d * (g->d + 1) : NULL;
#pragma omp for schedule(dynamic, 1)
        for (int64_t r = 0; r < g->n; r += step) {
            for (int64_t k = 0; b && k < g->d; k++) b[k] = g->b[k * g->n + r];
            if (b && pare_obs_fit(g->a, b, g->zero + r * g->d, g->d, w + r * g->d, scratch))
                continue;
#pragma omp atomic write
            good = false;
        }
        pare_free(scratch);
    }
    return good;
}

/* Means left over: b = mean t - w mean x. */
static double bias_of(const group *g, const pare_moments *m, const double *w, int64_t r)
{
    double sum = m->t[r];
    if (!g->fit->centred) return 0;
    for (int64_t k = 0; k < g->d; k++) sum -= w[k] * m->x[k];
    return m->rows > 0 ? sum / m->rows : 0;
}

/* Squared error over the rows of m of w with bias c, for output r; xxw (d): m->xx w. */
static double error_of(const group *g, const pare_moments *m, const double *w, const double *xxw,
                       int64_t step, int64_t r, double c)
{
    double sum = m->tt[r] - 2 * c * m->t[r] + m->rows * c * c;
    for (int64_t i = 0; i < g->d; i++)
        if (w[i] != 0) sum += w[i] * (xxw[i * step] - 2 * m->xt[i * g->n + r] + 2 * c * m->x[i]);
    return sum;
}

/* An output that is removed: what it computes counts nowhere. */
static bool is_gone(const group *g, int64_t r)
{
    return g->fit->all->reference && !memchr(g->zero + r * g->d, 0, (size_t)g->d);
}

/* Squared error over the rows of m, whose xx is whole, of outputs 0, step, 2 step ..., with the
   biases that the sums of `means` ask for. */
static pare_status errors(const group *g, const pare_moments *m, const pare_moments *means,
                          const double *w, int64_t step, double *out)
{
    const int64_t n = (g->n + step - 1) / step;
    *out = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < g->d; k++) g->turned[k * n + j] = w[j * step * g->d + k];
    memset(g->product, 0, (size_t)(g->d * n) * sizeof *g->product);
    PARE_TRY(pare_linear_product(g->ctx, (pare_mat_view){g->product, n},
                                 (pare_mat_view){m->xx, g->d}, (pare_mat_view){g->turned, n}, g->d,
                                 g->d, n, 1, false, g->fit->all->options->threads));
    for (int64_t j = 0; j < n; j++) {
        const double *row = w + j * step * g->d;
        if (is_gone(g, j * step)) continue;
        *out += error_of(g, m, row, g->product + j, n, j * step, bias_of(g, means, row, j * step));
    }
    return PARE_OK;
}

static void masked_dense(const group *g, double *w)
{
    for (int64_t i = 0; i < g->n * g->d; i++) w[i] = g->zero[i] ? 0 : g->dense[i];
}

/* Of the targets of m about their mean, for output r. */
static double variance_of(const pare_moments *m, int64_t r)
{
    return m->tt[r] - m->t[r] * m->t[r] / m->rows;
}

/* The ridge whose weights, fitted on four fifths, err least on the last; negative: none does better
   than the dense weights. */
static pare_status choose_ridge(group *g, int64_t step, double *ridge)
{
    double least, error;
    *ridge = -1;
    masked_dense(g, g->best);
    PARE_TRY(errors(g, g->held, g->fitted, g->best, step, &g->masked));
    least = g->masked;
    for (int64_t r = 0; r < g->n; r += step)
        if (!is_gone(g, r)) g->variance += variance_of(g->held, r);
    for (int i = 0; i < RIDGES; i++) {
        (void)pare_moments_normal(g->fitted, g->fit->centred, ridges[i], g->dense, g->a, g->b);
        if (!fit_rows(g, step, g->best)) continue;
        PARE_TRY(errors(g, g->held, g->fitted, g->best, step, &error));
        if (!(error < least)) continue;
        least = error;
        *ridge = ridges[i];
    }
    g->fitted_error = least;
    return PARE_OK;
}

static double kept_cost(const group *g)
{
    double sum = 0, d = (double)g->kept_count;
    if (g->kept_count >= 0) return d * d * d / 6 + d * d * (double)g->n;
    for (int64_t r = 0; r < g->n; r++) {
        double kept = 0;
        for (int64_t k = 0; k < g->d; k++) kept += !g->zero[r * g->d + k];
        sum += kept * kept * kept / 6;
    }
    return sum;
}

static pare_status refit(group *g, double *ridge)
{
    int64_t step = g->n > JUDGED_ROWS ? (g->n + JUDGED_ROWS - 1) / JUDGED_ROWS : 1;
    if (!same_columns(g, g->kept, &g->kept_count)) g->kept_count = -1;
    if (kept_cost(g) > FIT_LIMIT) { /* the sweep's weights, or the dense ones */
        if (g->fit->masked) masked_dense(g, g->w);
        *ridge = g->fit->masked ? -1 : MASK_RIDGE;
        return PARE_OK;
    }
    if (kept_cost(g) < FIT_LIMIT / 100) step = 1;
    *ridge = MASK_RIDGE;
    if (g->held->rows > 0) PARE_TRY(choose_ridge(g, step, ridge));
    masked_dense(g, g->w);
    if (*ridge < 0) return PARE_OK;
    (void)pare_moments_normal(g->both, g->fit->centred, *ridge, g->dense, g->a, g->b);
    if (fit_rows(g, 1, g->w)) return PARE_OK;
    masked_dense(g, g->w);
    g->fitted_error = g->masked;
    *ridge = -1;
    return PARE_OK;
}

/* Adds the error on the held-out fifth, of weights that saw all, and the targets' variance there.
 */
static pare_status measure(const group *g, double *error, double *variance)
{
    const pare_moments *m = g->held->rows > 0 ? g->held : g->both;
    double sum;
    PARE_TRY(errors(g, m, g->both, g->w, 1, &sum));
    *error += sum;
    for (int64_t r = 0; r < g->n; r++)
        if (!is_gone(g, r)) *variance += variance_of(m, r);
    return PARE_OK;
}

static void put_back(group *g)
{
    pare_prunable *s = g->fit->layer;
    for (int64_t o = 0; o < g->n; o++) {
        double *row = g->w + o * g->d;
        for (int64_t k = 0; k < g->d; k++) {
            int64_t at = pare_unstructured_place(s, g->index, o, k);
            s->zero[at] = g->zero[o * g->d + k];
            g->fit->weights[at] = s->zero[at] ? 0 : (float)(row[k] / (double)s->part.alpha);
            row[k] = (double)g->fit->weights[at] * (double)s->part.alpha; /* as it will be read */
        }
        if (g->fit->bias) g->fit->bias[g->index * g->n + o] = bias_of(g, g->both, row, o);
    }
}

/* What came of all groups. */
typedef struct sums {
    double error, variance;        /* measured */
    double masked, fitted, judged; /* of choosing the ridge */
    double ridge;                  /* the largest */
} sums;

static pare_status fit_group(group *g, int64_t want, sums *s)
{
    double ridge = -1;
    if (!g->fit->masked) PARE_TRY(choose(g, want));
    PARE_TRY(refit(g, &ridge));
    if (ridge > s->ridge) s->ridge = ridge;
    put_back(g);
    s->masked += g->masked;
    s->fitted += g->fitted_error;
    s->judged += g->variance;
    return measure(g, &s->error, &s->variance);
}

pare_status pare_layer_fit_run(pare_layer_fit *fit)
{
    pare_unstructured_layer *facts = fit->layer->facts;
    int64_t groups = fit->layer->columns.groups;
    sums s = {.ridge = -1};
    for (int64_t i = 0; i < groups; i++) {
        group g;
        int64_t want = fit->want * (i + 1) / groups - fit->want * i / groups;
        pare_status st = group_open(&g, fit, i);
        if (st == PARE_OK) st = fit_group(&g, want, &s);
        group_free(&g);
        if (st != PARE_OK)
            return pare_fail_prefix(fit->all->ctx, st, "%s: weight '%s'", fit->all->model->path,
                                    fit->layer->value->name);
    }
    facts->refitted = s.ridge >= 0;
    facts->ridge = s.ridge;
    facts->error = s.variance > 0 ? s.error / s.variance : -1;
    facts->masked = s.judged > 0 ? s.masked / s.judged : -1;
    facts->fitted = s.judged > 0 ? s.fitted / s.judged : -1;
    return PARE_OK;
}
