/* SPDX-License-Identifier: Apache-2.0 */
/* Input channels at the size that rounds best (Lin and others 2023, "AWQ: Activation-aware Weight
   Quantization for LLM Compression and Acceleration", arXiv 2306.00978, section 3.2): weights that
   read channel c are multiplied by s_c before they are rounded, and the channel is divided by it.
   In a group that shares a scale the errors of large channels then shrink by s_c, at the cost of
   the small ones.

   s_c = (root of the mean square of channel c)^alpha over the geometric mean of the smallest and
   the largest. Alpha is the one of 0, 1/10 ... 1 of least tr(D H D^T): H are the inputs' second
   moments and D is by how much rounding to the nearest moves the weights. Where GPTQ rounds, the
   loss that it leaves must fall as well. The mean squares have H's ridge in them, so that a channel
   that was hardly seen is not scaled away. */
#include "quant/rounding/round.h"

#include <math.h>
#include <string.h>

enum { ALPHAS = 10, MOST_ROWS = 512 /* that are judged by */ };
static const double WORTH = 0.9;  /* of the loss with alpha 0, for a change */
static const double RIDGE = 1e-2; /* of the mean diagonal, as in GPTQ's paper */

typedef struct search {
    pare_ctx *ctx;
    const pare_quant_grid *grid;
    int64_t columns, rows, block;
    int threads;
    double *h;                  /* (columns, columns) */
    double *w, *scaled, *moved; /* (rows, columns): as it is, times s, the product's scratch */
    double *sum;                /* (columns, columns) */
    int8_t *level;              /* (rows, columns) */
    float *scale;               /* (rows, groups) */
} search;

/* factor (columns / block) of one alpha. */
static void factors(const search *q, double alpha, float *factor)
{
    const int64_t count = q->columns / q->block;
    double least = INFINITY, most = 0;
    for (int64_t c = 0; c < count; c++) {
        double square = 0;
        for (int64_t i = c * q->block; i < (c + 1) * q->block; i++)
            square += q->h[i * q->columns + i];
        const double s = pow(square, alpha / 2);
        factor[c] = (float)s;
        least = fmin(least, s);
        most = fmax(most, s);
    }
    const double middle = sqrt(least * most);
    for (int64_t c = 0; c < count; c++) {
        const double s = (double)factor[c] / middle;
        factor[c] = (float)(q->grid->powers ? exp2(rint(log2(s))) : s);
    }
}

static void scale_rows(search *q, const float *factor)
{
    for (int64_t r = 0; r < q->rows; r++)
        for (int64_t i = 0; i < q->columns; i++)
            q->scaled[r * q->columns + i] = q->w[r * q->columns + i] * (double)factor[i / q->block];
}

/* tr(D H D^T) of the rows as they are rounded. */
static pare_status measure(search *q, const float *factor, double *loss)
{
    const int64_t n = q->columns, group = pare_quant_group(q->grid, n),
                  groups = pare_quant_groups(q->grid, n);
    for (int64_t r = 0; r < q->rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const double number = pare_quant_level_number(q->level[r * n + i], q->grid),
                         scale = (double)q->scale[r * groups + i / group];
            q->moved[r * n + i] = number * scale / (double)factor[i / q->block] - q->w[r * n + i];
        }
    memset(q->sum, 0, (size_t)(n * n) * sizeof *q->sum);
    const pare_mat_view moved = {q->moved, n};
    PARE_TRY(pare_linear_product(q->ctx, (pare_mat_view){q->sum, n}, moved, moved, q->rows, n, n, 1,
                                 true, q->threads));
    *loss = 0;
    for (int64_t i = 0; i < n; i++) {
        *loss += q->sum[i * n + i] * q->h[i * n + i];
        for (int64_t j = i + 1; j < n; j++) *loss += 2 * q->sum[i * n + j] * q->h[i * n + j];
    }
    return PARE_OK;
}

static pare_status nearest_loss(search *q, const float *factor, double *loss)
{
    scale_rows(q, factor);
    pare_quant_round_nearest(q->scaled, q->rows, q->columns, q->grid, q->level, q->scale,
                             q->threads);
    return measure(q, factor, loss);
}

static pare_status gptq_loss(search *q, const pare_moments *m, const float *factor, double *loss)
{
    const int64_t n = q->columns;
    const pare_moments divided = {.columns = n, .rows = m->rows, .xx = q->sum, .x = m->x};
    pare_quant_gptq *gptq = NULL;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++)
            q->sum[i * n + j] =
                m->xx[i * n + j] / ((double)factor[i / q->block] * (double)factor[j / q->block]);
    scale_rows(q, factor);
    PARE_TRY(pare_quant_gptq_new(q->ctx, &gptq, &divided, false, q->threads));
    const pare_status st = pare_quant_round_gptq(q->ctx, gptq, q->scaled, q->rows, q->grid,
                                                 q->level, q->scale, q->threads);
    pare_quant_gptq_free(gptq);
    return st == PARE_OK ? measure(q, factor, loss) : st;
}

static pare_status search_all(search *q, float *factor, float *tried, pare_quant_scaled *out)
{
    const size_t bytes = (size_t)(q->columns / q->block) * sizeof *factor;
    double least = 0, plain = 0;
    for (int a = 0; a <= ALPHAS; a++) {
        double loss;
        factors(q, (double)a / ALPHAS, tried);
        PARE_TRY(nearest_loss(q, tried, &loss));
        if (!a) plain = loss, least = WORTH * loss;
        if (!(loss < least)) continue;
        least = loss;
        memcpy(factor, tried, bytes);
        *out = (pare_quant_scaled){.alpha = (double)a / ALPHAS, .part = loss / plain};
    }
    return pare_ctx_poll(q->ctx);
}

/* What GPTQ makes good needs no scaling: is it worth it all the same? */
static pare_status confirm(search *q, const pare_moments *m, const float *factor, float *tried,
                           pare_quant_scaled *out)
{
    double plain, loss;
    factors(q, 0, tried);
    PARE_TRY(gptq_loss(q, m, tried, &plain));
    PARE_TRY(gptq_loss(q, m, factor, &loss));
    const double alpha = loss < WORTH * plain ? out->alpha : 0;
    *out = (pare_quant_scaled){.alpha = alpha, .part = loss / plain};
    return PARE_OK;
}

static pare_status search_new(search *q)
{
    const size_t n = (size_t)q->columns, all = (size_t)q->rows * n,
                 groups = (size_t)pare_quant_groups(q->grid, q->columns);
    q->h = pare_alloc(q->ctx, n * n, sizeof *q->h);
    q->sum = pare_alloc(q->ctx, n * n, sizeof *q->sum);
    q->w = pare_alloc(q->ctx, all, sizeof *q->w);
    q->scaled = pare_alloc(q->ctx, all, sizeof *q->scaled);
    q->moved = pare_alloc(q->ctx, all, sizeof *q->moved);
    q->level = pare_alloc(q->ctx, all, 1);
    q->scale = pare_alloc(q->ctx, (size_t)q->rows * groups, sizeof *q->scale);
    const bool ok = q->h && q->sum && q->w && q->scaled && q->moved && q->level && q->scale;
    return ok ? PARE_OK : PARE_MEMORY;
}

static void search_free(search *q)
{
    pare_free(q->h);
    pare_free(q->sum);
    pare_free(q->w);
    pare_free(q->scaled);
    pare_free(q->moved);
    pare_free(q->level);
    pare_free(q->scale);
}

pare_status pare_quant_scale_channels(pare_ctx *ctx, const pare_moments *m, int64_t block,
                                      const pare_quant_rows *rows, const pare_quant_grid *grid,
                                      bool gptq, int threads, float *factor, pare_quant_scaled *out)
{
    const int64_t n = m->columns;
    search q = {.ctx = ctx,
                .grid = grid,
                .columns = n,
                .rows = rows->count < MOST_ROWS ? rows->count : MOST_ROWS,
                .block = block,
                .threads = threads};
    float *tried = pare_alloc(ctx, (size_t)(n / block), sizeof *tried);
    pare_status st = tried ? search_new(&q) : PARE_MEMORY;
    *out = (pare_quant_scaled){.part = 1};
    for (int64_t r = 0; st == PARE_OK && r < q.rows; r++) /* evenly spaced */
        rows->read(rows->user, r * rows->count / q.rows, q.w + r * n);
    if (st == PARE_OK) {
        (void)pare_moments_normal(m, false, RIDGE, NULL, q.h, NULL);
        st = search_all(&q, factor, tried, out);
    }
    if (st == PARE_OK && gptq && out->alpha > 0) st = confirm(&q, m, factor, tried, out);
    search_free(&q);
    pare_free(tried);
    return st;
}

void pare_quant_moments_divide(pare_moments *m, const float *factor, int64_t block)
{
    for (int64_t i = 0; i < m->columns; i++) {
        const double by = (double)factor[i / block];
        for (int64_t j = i; j < m->columns; j++)
            m->xx[i * m->columns + j] /= by * (double)factor[j / block];
        for (int64_t o = 0; o < m->outputs; o++)
            m->xt[i * m->outputs + o] /= by * (double)factor[o / block];
        m->x[i] /= by;
    }
    for (int64_t o = 0; o < m->outputs; o++) {
        const double by = (double)factor[o / block];
        m->t[o] /= by;
        m->tt[o] /= by * by;
    }
}
