/* SPDX-License-Identifier: Apache-2.0 */
/* How a sparsity over all weights is shared out among layers. On the dense model's inputs, traces
   of second-order pruning (second.h) of some rows of each layer say what each further zero costs,
   as a part of the variance of the layer's result; over all layers the cheapest zeros are counted.
   Every layer's result counts the same. */
#include "prune/unstructured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 32, LEAST_ROWS = 4 };
static const double ROWS_LIMIT = 5e10; /* multiply-adds */
static const double BUDGET_RIDGE = 1e-2;

typedef struct cost {
    float cost;
    int32_t layer;
    double weights; /* that it stands for */
} cost;

typedef struct budget {
    pare_prunables *all;
    cost *list;
    size_t count, capacity;
    double *share; /* (layers) */
} budget;

/* w^T a w */
static double energy(const double *a, const double *w, int64_t d)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++) {
        double inner = a[i * d + i] * w[i] / 2;
        for (int64_t j = i + 1; j < d; j++) inner += a[i * d + j] * w[j];
        sum += 2 * w[i] * inner;
    }
    return sum;
}

static pare_status add_costs(budget *b, int layer, const float *loss, int64_t rows, int64_t d,
                             double scale, double each)
{
    for (int64_t r = 0; r < rows; r++) {
        float most = 0;
        for (int64_t k = 0; k < d; k++) {
            if (!pare_grow(b->all->ctx, &b->list, &b->capacity, b->count, sizeof *b->list))
                return PARE_MEMORY;
            most = fmaxf(most, loss[r * d + k]);
            b->list[b->count++] = (cost){(float)((double)most * scale), layer, each};
        }
    }
    return PARE_OK;
}

/* Rows of one group: all, or evenly spaced ones. */
static int64_t rows_to_trace(const pare_columns *c)
{
    double one = (double)c->columns * (double)c->columns * (double)c->columns / 2;
    int64_t rows = (int64_t)(ROWS_LIMIT / one);
    if (rows > MOST_ROWS / (c->groups < 8 ? c->groups : 8)) rows = MOST_ROWS;
    if (rows < LEAST_ROWS) rows = LEAST_ROWS;
    return rows < c->outputs ? rows : c->outputs;
}

static pare_status trace_group(budget *b, int layer, const pare_moments *m, int64_t group,
                               double *variance)
{
    const pare_prunable *s = &b->all->item[layer];
    int64_t d = m->columns, n = s->columns.outputs, rows = rows_to_trace(&s->columns);
    pare_unstructured_end end;
    pare_unstructured_end_find(s, &end);
    double ridge = BUDGET_RIDGE;
    double *a = pare_alloc(b->all->ctx, (size_t)(d * d), sizeof *a);
    double *inverse = pare_alloc(b->all->ctx, (size_t)(d * d), sizeof *inverse);
    double *w = pare_alloc(b->all->ctx, (size_t)(d * n), sizeof *w);
    int32_t *order = pare_alloc(b->all->ctx, (size_t)(rows * d), sizeof *order);
    float *loss = pare_alloc(b->all->ctx, (size_t)(rows * d), sizeof *loss);
    pare_status st = a && inverse && w && order && loss ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK)
        st = pare_layer_inverse(b->all->ctx, m, end.bias_node, &ridge, b->all->options->threads,
                                inverse);
    if (st == PARE_OK) {
        (void)pare_layer_normal(m, end.bias_node, 0, NULL, a, NULL);
        for (int64_t o = 0; o < n; o++) {
            for (int64_t k = 0; k < d; k++)
                w[o * d + k] =
                    (double)pare_unstructured_weight(s, pare_unstructured_place(s, group, o, k));
            *variance += energy(a, w + o * d, d);
        }
        for (int64_t r = 0; r < rows; r++) /* evenly spaced, to the front */
            memmove(w + r * d, w + r * n / rows * d, (size_t)d * sizeof *w);
        pare_obs second = {b->all->ctx, d, rows, inverse, w, 0, 0, b->all->options->threads};
        st = pare_obs_trace(&second, order, loss);
    }
    if (st == PARE_OK) st = add_costs(b, layer, loss, rows, d, 1, (double)n / (double)rows);
    pare_free(a);
    pare_free(inverse);
    pare_free(w);
    pare_free(order);
    pare_free(loss);
    return st;
}

static pare_status trace_layer(void *user, int layer, const pare_observer *observer)
{
    budget *b = user;
    size_t first = b->count;
    double variance = 0;
    for (int64_t g = 0; g < b->all->item[layer].columns.groups; g++)
        PARE_TRY(trace_group(b, layer, pare_observer_moments(observer, 0, g), g, &variance));
    for (size_t i = first; i < b->count; i++)
        b->list[i].cost = variance > 0 ? (float)((double)b->list[i].cost / variance) : 0;
    return PARE_OK;
}

static int by_cost(const void *a, const void *b)
{
    const cost *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

/* Counts the cheapest zeros. Fractions that were cut off go to layers in turn. */
static void share_out(budget *b, int64_t zeros, int64_t *want)
{
    pare_prunables *all = b->all;
    double left = (double)zeros;
    if (b->count) qsort(b->list, b->count, sizeof *b->list, by_cost);
    for (size_t i = 0; i < b->count && left > 0; i++) {
        double take = b->list[i].weights < left ? b->list[i].weights : left;
        b->share[b->list[i].layer] += take;
        left -= take;
    }
    for (int i = 0; i < all->count; i++) {
        if (!pare_unstructured_is_fitted(&all->item[i])) continue;
        want[i] = (int64_t)b->share[i];
        if (want[i] > all->item[i].count) want[i] = all->item[i].count;
        zeros -= want[i];
    }
    for (bool more = true; zeros > 0 && more;) {
        more = false;
        for (int i = 0; i < all->count && zeros > 0; i++) {
            if (!pare_unstructured_is_fitted(&all->item[i]) || want[i] == all->item[i].count)
                continue;
            want[i]++;
            zeros--;
            more = true;
        }
    }
}

pare_status pare_prunables_budget(pare_prunables *all, int64_t zeros, int64_t *want)
{
    budget b = {.all = all};
    for (int i = 0; i < all->count; i++) {
        const pare_prunable *s = &all->item[i];
        want[i] = 0;
        if (s->dense || pare_unstructured_is_fitted(s)) continue;
        want[i] = llrint(all->options->sparsity * (double)s->count);
        zeros -= want[i];
    }
    b.share = pare_arena_alloc(all->arena, (size_t)all->count, sizeof *b.share);
    if (!b.share) return PARE_MEMORY;
    pare_status st = pare_prunables_moments(all, trace_layer, &b);
    if (st == PARE_OK) share_out(&b, zeros, want);
    pare_free(b.list);
    return st;
}
