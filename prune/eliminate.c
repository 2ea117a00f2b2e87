/* SPDX-License-Identifier: Apache-2.0 */
/* A reader with groups (of a convolution) is one block per group. A block holds the inverse of the
   covariance of its columns and its weight. An elimination makes of them
   W - W_S P inv_S:, inv - inv_:S P inv_S:, with P = (inv_SS)^-1 = u^-1 u^-T. With y = u^-T inv_S:
   and v = u^-T W_S^T that is W - v^T y, inv - y^T y: rows of y and v wait until there are some, and
   are then subtracted in one product. What is read until then is corrected where it is read. Where
   nothing is refitted the block holds the second moments themselves, and a coupled set costs
   W_S H_SS W_S^T. */
#include "prune/score_inner.h"

#include "calib/linear.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double RIDGE = 1e-2; /* of the mean diagonal */
enum { WAITING = 64 };            /* rows that may wait, beside those of one coupled set */

typedef struct block {
    int64_t d, n;
    double *inverse; /* (d, d), its upper triangle; without refit: the moments, whole */
    double *w;       /* (n, d) */
    double *y, *v;   /* (waiting, d), (waiting, n) */
    int32_t *out;    /* (waiting) columns that go with them */
    int64_t waiting;
    double weight;
    int32_t *first, *column; /* columns of coupled set k: column[first[k] .. first[k + 1]) */
} block;

struct pare_elimination {
    pare_ctx *ctx;
    const pare_groups *groups;
    const pare_dependency_group *group;
    bool refits;
    int threads;
    block *block;
    size_t count, capacity;
};

pare_status pare_elimination_new(pare_ctx *ctx, pare_elimination **out, const pare_groups *groups,
                                 int group, bool refits, int threads)
{
    pare_elimination *e = pare_alloc(ctx, 1, sizeof *e);
    if (!e) return PARE_MEMORY;
    *e = (pare_elimination){.ctx = ctx,
                            .groups = groups,
                            .group = &groups->group[group],
                            .refits = refits,
                            .threads = threads};
    *out = e;
    return PARE_OK;
}

void pare_elimination_free(pare_elimination *e)
{
    if (!e) return;
    for (size_t i = 0; i < e->count; i++) {
        pare_free(e->block[i].inverse);
        pare_free(e->block[i].w);
        pare_free(e->block[i].y);
        pare_free(e->block[i].v);
        pare_free(e->block[i].out);
        pare_free(e->block[i].first);
        pare_free(e->block[i].column);
    }
    pare_free(e->block);
    pare_free(e);
}

/* --- blocks --- */

/* Lists the columns of each coupled set; channel_of: channels of the slot for the block's channels.
 */
static pare_status list_columns(pare_elimination *e, block *b, const pare_prunable *s, int slot,
                                int64_t group)
{
    const int coupled_sets = e->group->count;
    b->first = pare_alloc(e->ctx, (size_t)coupled_sets + 2, sizeof *b->first);
    b->column = pare_alloc(e->ctx, (size_t)b->d + 1, sizeof *b->column);
    int32_t *of = pare_alloc(e->ctx, (size_t)b->d + 1, sizeof *of);
    if (!b->first || !b->column || !of) {
        pare_free(of);
        return PARE_MEMORY;
    }
    for (int64_t k = 0; k < b->d; k++) {
        int64_t channel = group * s->columns.channels + k % s->columns.channels;
        int c = pare_groups_coupled(e->groups, slot, channel) - e->group->first;
        of[k] = c >= 0 && c < coupled_sets ? c : -1;
        if (of[k] >= 0) b->first[of[k] + 1]++;
    }
    for (int c = 0; c < coupled_sets; c++) b->first[c + 1] += b->first[c];
    for (int64_t k = b->d - 1; k >= 0; k--)
        if (of[k] >= 0) b->column[--b->first[of[k] + 1]] = (int32_t)k;
    /* first[c + 1] has been counted down to the start of c */
    memmove(b->first, b->first + 1, (size_t)coupled_sets * sizeof *b->first);
    b->first[coupled_sets] = 0;
    for (int64_t k = 0; k < b->d; k++) b->first[coupled_sets] += of[k] >= 0;
    pare_free(of);
    return PARE_OK;
}

/* Room for what waits. */
static pare_status open_waiting(pare_elimination *e, block *b)
{
    int64_t most = 0;
    for (int c = 0; c < e->group->count; c++)
        if (b->first[c + 1] - b->first[c] > most) most = b->first[c + 1] - b->first[c];
    most += WAITING;
    b->y = pare_alloc(e->ctx, (size_t)(most * b->d), sizeof *b->y);
    b->v = pare_alloc(e->ctx, (size_t)(most * b->n), sizeof *b->v);
    b->out = pare_alloc(e->ctx, (size_t)most, sizeof *b->out);
    return b->y && b->v && b->out ? PARE_OK : PARE_MEMORY;
}

static pare_status add_block(pare_elimination *e, const pare_prunable *s, int slot, int64_t group,
                             const pare_moments *m, bool centred, double weight)
{
    if (!pare_grow(e->ctx, &e->block, &e->capacity, e->count, sizeof *e->block)) return PARE_MEMORY;
    block *b = &e->block[e->count++];
    *b = (block){.d = m->columns, .n = s->columns.outputs};
    b->inverse = pare_alloc(e->ctx, (size_t)(b->d * b->d), sizeof *b->inverse);
    b->w = pare_alloc(e->ctx, (size_t)(b->n * b->d), sizeof *b->w);
    if (!b->inverse || !b->w) return PARE_MEMORY;
    for (int64_t o = 0; o < b->n; o++)
        for (int64_t k = 0; k < b->d; k++)
            b->w[o * b->d + k] =
                (double)s->part.alpha *
                (double)pare_unstructured_weight(s, pare_unstructured_place(s, group, o, k));
    /* the inverse is of sums over rows: errors come as sums, too */
    b->weight = m->rows > 0 ? weight / m->rows : 0;
    double ridge = RIDGE;
    if (!e->refits)
        (void)pare_moments_normal(m, false, 0, NULL, b->inverse, NULL);
    else
        PARE_TRY(pare_moments_inverse(e->ctx, m, centred, &ridge, e->threads, b->inverse));
    PARE_TRY(list_columns(e, b, s, slot, group));
    return e->refits ? open_waiting(e, b) : PARE_OK;
}

pare_status pare_elimination_add(pare_elimination *e, const pare_prunable *single, int slot,
                                 const pare_observer *observer, bool centred, double weight)
{
    for (int64_t g = 0; g < single->columns.groups; g++)
        PARE_TRY(
            add_block(e, single, slot, g, pare_observer_moments(observer, 0, g), centred, weight));
    return PARE_OK;
}

/* --- eliminating --- */

/* The inverse and the weight as they are with what waits. */
static double inverse_at(const block *b, int64_t i, int64_t j)
{
    double x = i < j ? b->inverse[i * b->d + j] : b->inverse[j * b->d + i];
    for (int64_t p = 0; p < b->waiting; p++) x -= b->y[p * b->d + i] * b->y[p * b->d + j];
    return x;
}

static double weight_at(const block *b, int64_t o, int64_t k)
{
    double x = b->w[o * b->d + k];
    for (int64_t p = 0; p < b->waiting; p++) x -= b->v[p * b->n + o] * b->y[p * b->d + k];
    return x;
}

/* u^T u = the block's inverse over coupled set c's columns, upper triangle; false where it is not
   positive definite (a dead input). */
static bool factor(const block *b, int c, double *u)
{
    const int32_t *s = b->column + b->first[c];
    int n = b->first[c + 1] - b->first[c];
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            double sum = inverse_at(b, s[i], s[j]);
            for (int k = 0; k < i; k++) sum -= u[k * n + i] * u[k * n + j];
            if (i == j && !(sum > DBL_MIN)) return false;
            u[i * n + j] = i == j ? sqrt(sum) : sum / u[i * n + i];
        }
    return true;
}

/* z = u^-T z for one right-hand side: |z|^2 is then z^T (u^T u)^-1 z. */
static double half_solve(const double *u, int n, double *z)
{
    double square = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) z[i] -= u[k * n + i] * z[k];
        z[i] /= u[i * n + i];
        square += z[i] * z[i];
    }
    return square;
}

/* W_S H_SS W_S^T. */
static double plain_cost(const block *b, int c)
{
    int n = b->first[c + 1] - b->first[c];
    const int32_t *s = b->column + b->first[c];
    double sum = 0;
    for (int64_t o = 0; o < b->n; o++)
        for (int i = 0; i < n; i++) {
            double inner = 0;
            for (int j = 0; j < n; j++)
                inner += b->inverse[s[i] * b->d + s[j]] * b->w[o * b->d + s[j]];
            sum += inner * b->w[o * b->d + s[i]];
        }
    return b->weight * sum;
}

static double cost_in(const block *b, int c, double *scratch)
{
    int n = b->first[c + 1] - b->first[c];
    const int32_t *s = b->column + b->first[c];
    double *z = scratch + (int64_t)n * n, sum = 0;
    if (!n || !factor(b, c, scratch)) return 0;
    for (int64_t o = 0; o < b->n; o++) {
        for (int i = 0; i < n; i++) z[i] = weight_at(b, o, s[i]);
        sum += half_solve(scratch, n, z);
    }
    return b->weight * sum;
}

static double cost_of(const pare_elimination *e, int c, double *scratch)
{
    double sum = 0;
    for (size_t i = 0; i < e->count; i++)
        sum += e->refits ? cost_in(&e->block[i], c, scratch) : plain_cost(&e->block[i], c);
    return sum;
}

/* Subtracts what waits. */
static pare_status settle(const pare_elimination *e, block *b)
{
    const int64_t rows = b->waiting;
    const pare_mat_view y = {b->y, b->d}, v = {b->v, b->n};
    PARE_TRY(pare_linear_product(e->ctx, (pare_mat_view){b->inverse, b->d}, y, y, rows, b->d, b->d,
                                 -1, true, e->threads));
    PARE_TRY(pare_linear_product(e->ctx, (pare_mat_view){b->w, b->d}, v, y, rows, b->n, b->d, -1,
                                 false, e->threads));
    for (int64_t o = 0; o < b->n; o++)
        for (int64_t p = 0; p < rows; p++) b->w[o * b->d + b->out[p]] = 0;
    b->waiting = 0;
    return PARE_OK;
}

static pare_status settle_all(pare_elimination *e)
{
    for (size_t i = 0; i < e->count; i++) PARE_TRY(settle(e, &e->block[i]));
    return PARE_OK;
}

/* Row i of the coupled set's part of the inverse, times u^-T. */
static void add_row(const block *b, const int32_t *s, int n, int i, const double *u, double *y)
{
    double *row = y + i * b->d;
    for (int64_t j = 0; j < s[i]; j++) row[j] = b->inverse[j * b->d + s[i]];
    for (int64_t j = s[i]; j < b->d; j++) row[j] = b->inverse[s[i] * b->d + j];
    for (int64_t p = 0; p < b->waiting; p++)
        pare_linear_take(row, b->y + p * b->d, b->y[p * b->d + s[i]], b->d);
    for (int k = 0; k < i; k++) pare_linear_take(row, y + k * b->d, u[k * n + i], b->d);
    for (int64_t j = 0; j < b->d; j++) row[j] /= u[i * n + i];
}

static pare_status eliminate_in(const pare_elimination *e, block *b, int c, double *scratch)
{
    const int n = b->first[c + 1] - b->first[c];
    const int32_t *s = b->column + b->first[c];
    double *u = scratch, *z = scratch + (int64_t)n * n; /* z (n): of one output, solved */
    for (int64_t o = 0; o < b->n && !e->refits; o++)
        for (int i = 0; i < n; i++) b->w[o * b->d + s[i]] = 0;
    if (!e->refits || !n || !factor(b, c, u)) return PARE_OK;
    double *y = b->y + b->waiting * b->d, *v = b->v + b->waiting * b->n;
    for (int i = 0; i < n; i++) add_row(b, s, n, i, u, y);
    for (int64_t o = 0; o < b->n; o++) {
        for (int i = 0; i < n; i++) z[i] = weight_at(b, o, s[i]);
        (void)half_solve(u, n, z);
        for (int i = 0; i < n; i++) v[i * b->n + o] = z[i];
    }
    memcpy(b->out + b->waiting, s, (size_t)n * sizeof *s);
    b->waiting += n;
    return b->waiting > WAITING ? settle(e, b) : PARE_OK;
}

/* Scratch of one thread: a coupled set's triangle and one right-hand side. */
static size_t scratch_size(const pare_elimination *e)
{
    size_t most = 1;
    for (size_t i = 0; i < e->count; i++)
        for (int c = 0; c < e->group->count; c++) {
            size_t n = (size_t)(e->block[i].first[c + 1] - e->block[i].first[c]);
            size_t need = n * n + n;
            if (need > most) most = need;
        }
    return most;
}

static int cheapest(const double *cost, const bool *gone, int count)
{
    int best = -1;
    for (int c = 0; c < count; c++)
        if (!gone[c] && (best < 0 || cost[c] < cost[best])) best = c;
    return best;
}

/* The work of a run. */
typedef struct turns {
    double *score, *cost, *scratch;
    bool *gone;
    size_t each; /* scratch of a thread */
    const double **w;
    const int *stops;
    int stop_count, next;
    pare_elimination_visit visit;
    void *user;
    double total, least;
    int done, left; /* eliminated; to eliminate */
} turns;

static pare_status drop(pare_elimination *e, turns *t, int c)
{
    t->gone[c] = true;
    for (size_t b = 0; b < e->count; b++) PARE_TRY(eliminate_in(e, &e->block[b], c, t->scratch));
    return PARE_OK;
}

static pare_status take(pare_elimination *e, turns *t, int c)
{
    if (t->cost[c] > t->least) t->least = t->cost[c];
    t->score[c] = t->least;
    t->total += t->least;
    t->least *= 1 + 1e-12; /* equal costs keep the order */
    PARE_TRY(drop(e, t, c));
    t->done++;
    if (t->next == t->stop_count || t->stops[t->next] != t->done) return PARE_OK;
    PARE_TRY(settle_all(e));
    pare_elimination_state state = {t->done, t->total, t->score[c], t->w};
    return t->visit(t->user, t->next++, &state);
}

/* In a few turns all costs are found again; of each turn's cheapest as many go as there are more
   coupled sets than TURNS. */
static pare_status eliminate(pare_elimination *e, turns *t)
{
    enum { TURNS = 96 };
    const int count = e->group->count, lump = (count + TURNS - 1) / TURNS;
    while (t->done < t->left) {
        PARE_TRY(settle_all(e));
        PARE_TRY(pare_ctx_poll(e->ctx));
#pragma omp parallel for schedule(dynamic, 1) num_threads(e->threads)
        for (int k = 0; k < e->threads; k++)
            for (int c = k; c < count; c += e->threads)
                if (!t->gone[c]) t->cost[c] = cost_of(e, c, t->scratch + (size_t)k * t->each);
        for (int i = 0; i < lump && t->done < t->left; i++) {
            int c = cheapest(t->cost, t->gone, count);
            if (i) t->cost[c] = cost_of(e, c, t->scratch);
            PARE_TRY(take(e, t, c));
        }
    }
    return PARE_OK;
}

pare_status pare_elimination_run(pare_elimination *e, double *score, const bool *before,
                                 const int *stops, int stop_count, pare_elimination_visit visit,
                                 void *user)
{
    const int count = e->group->count;
    turns t = {
        .score = score, .stops = stops, .stop_count = stop_count, .visit = visit, .user = user};
    for (int c = 0; c < count; c++) score[c] = INFINITY;
    if (!e->count) return PARE_OK;
    t.each = scratch_size(e);
    t.cost = pare_alloc(e->ctx, (size_t)count, sizeof *t.cost);
    t.gone = pare_alloc(e->ctx, (size_t)count, sizeof *t.gone);
    t.scratch = pare_alloc(e->ctx, t.each * (size_t)e->threads, sizeof *t.scratch);
    t.w = pare_alloc(e->ctx, e->count, sizeof *t.w);
    pare_status st = t.cost && t.gone && t.scratch && t.w ? PARE_OK : PARE_MEMORY;
    for (size_t b = 0; b < e->count && st == PARE_OK; b++) t.w[b] = e->block[b].w;
    t.left = count;
    for (int c = 0; before && st == PARE_OK && c < count; c++) {
        if (!before[c]) continue;
        st = drop(e, &t, c);
        score[c] = 0;
        t.left--;
    }
    if (st == PARE_OK) st = eliminate(e, &t);
    pare_free(t.cost);
    pare_free(t.gone);
    pare_free(t.scratch);
    pare_free(t.w);
    return st;
}
