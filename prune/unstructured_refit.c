/* SPDX-License-Identifier: Apache-2.0 */
/* The walk through the layers from the input. Each layer sees its inputs in the model as pruned so
   far and is fitted to what the dense model has after it: after its bias, and where its result is
   added to a residual, after that addition, less the residual as it is now. So a layer makes good
   what the layers before it lost. */
#include "prune/unstructured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One f32 constant a channel of the layer's outputs, or nothing. */
static bool is_bias(const pare_value *v, int64_t outputs)
{
    return v && v->data && v->is_init && v->data->dtype == PARE_f32 && v->data->count == outputs &&
           v->data->rank >= 1 && v->data->dims[v->data->rank - 1] == outputs;
}

/* The addition that alone reads v, or NULL; *other: the position of its other operand. */
static pare_node *sum_after(const pare_value *v, int *other)
{
    pare_node *next = pare_value_only_user(v);
    const pare_op *op = next ? pare_op_of(next) : NULL;
    if (!op || op->quant.kind != PARE_QUANT_SUM || next->in_count != 2) return NULL;
    *other = next->in[0] == v;
    return next->in[*other] == v ? NULL : next;
}

void pare_unstructured_end_find(const pare_prunable *s, pare_unstructured_end *out)
{
    const pare_value *v = s->node->out[0];
    int64_t outputs = s->columns.groups * s->columns.outputs;
    int other = 0;
    *out = (pare_unstructured_end){.bias_at = s->part.takes};
    if (s->part.takes >= 0) {
        const pare_value *bias = pare_node_in(s->node, s->part.takes);
        if ((bias && !is_bias(bias, outputs)) || s->part.alpha == 0 || s->part.beta == 0) return;
        out->bias_node = s->node;
    } else {
        pare_node *sum = sum_after(v, &other);
        if (sum && is_bias(sum->in[other], outputs)) {
            out->bias_node = sum;
            out->bias_at = other;
            v = sum->out[0];
        }
    }
    out->target = v;
    pare_node *sum = sum_after(v, &other);
    if (!sum || !sum->in[other] || sum->in[other]->data) return;
    if (v->shape.rank < 0 || !pare_shape_equal(&v->shape, &sum->in[other]->shape)) return;
    out->skip = sum->in[other];
    out->target = sum->out[0];
}

typedef struct walk {
    pare_prunables *all;
    pare_model *dense;    /* as it was */
    pare_run_share share; /* of the runs */
    pare_capture *before, *now;
    pare_unstructured_end *end; /* (count) */
    const char **needed;        /* scratch: (2 count) */
} walk;

static bool is_fitted(const walk *w, int i)
{
    const pare_prunable *s = &w->all->item[i];
    return pare_unstructured_is_fitted(s) && w->end[i].target;
}

/* Does making the value need a layer from `first` on? */
static pare_status depends(walk *w, const pare_value *value, int first, bool *out)
{
    pare_graph *g = w->all->model->graph;
    const pare_value **stack = NULL;
    size_t capacity = 0, count = 0;
    *out = false;
    for (int n = 0; n < g->node_count; n++) g->node[n]->mark = 0;
    for (int i = first; i < w->all->count; i++) w->all->item[i].node->mark = 2;
    pare_status st =
        pare_grow(w->all->ctx, &stack, &capacity, 0, sizeof *stack) ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) stack[count++] = value;
    while (st == PARE_OK && count) {
        pare_node *node = stack[--count]->producer;
        if (!node || node->mark == 1) continue;
        *out |= node->mark == 2;
        node->mark = 1;
        for (int i = 0; i < node->in_count && st == PARE_OK; i++) {
            if (!node->in[i]) continue;
            if (!pare_grow(w->all->ctx, &stack, &capacity, count, sizeof *stack)) st = PARE_MEMORY;
            if (st == PARE_OK) stack[count++] = node->in[i];
        }
    }
    pare_free(stack);
    return st;
}

/* One pass over the samples for layer i. */
static pare_status observe(walk *w, int i, pare_observer **out)
{
    const pare_prunable *s = &w->all->item[i];
    const pare_unstructured_end *end = &w->end[i];
    const char *now[2] = {pare_node_in(s->node, s->part.x)->name,
                          end->skip ? end->skip->name : NULL};
    const char *before[1] = {end->target->name};
    bool keep[2] = {true, false}, later = false, ok = false;
    if (end->skip) PARE_TRY(depends(w, end->skip, i, &later));
    keep[1] = !later;
    PARE_TRY(pare_capture_begin(w->before, before, keep, 1));
    PARE_TRY(pare_capture_begin(w->now, now, keep, end->skip ? 2 : 1));
    pare_columns columns;
    PARE_TRY(pare_columns_read(s->node, pare_capture_shape(w->now, 0), &columns, &ok));
    PARE_TRY(pare_observer_new(w->all->ctx, out, &columns, 2, true, &w->share,
                               w->all->options->threads));
    for (;;) {
        pare_capture_batch x, t;
        PARE_TRY(pare_capture_next(w->before, &t));
        PARE_TRY(pare_capture_next(w->now, &x));
        for (int r = 0; r < x.count; r++)
            PARE_TRY(pare_observer_add(*out, w->share.first + x.first + r,
                                       x.value[0] + r * x.size[0], t.value[0] + r * t.size[0],
                                       end->skip ? x.value[1] + r * x.size[1] : NULL));
        if (!x.count) return pare_observer_finish(*out);
    }
}

/* The fitted bias into the node that takes it. */
static pare_status put_bias(walk *w, const pare_prunable *s, const pare_unstructured_end *end,
                            const double *bias)
{
    pare_graph *g = w->all->model->graph;
    pare_value *old = pare_node_in(end->bias_node, end->bias_at), *fresh;
    int64_t n = s->columns.groups * s->columns.outputs;
    double beta = end->bias_node == s->node && old ? (double)s->part.beta : 1;
    float *data = pare_arena_alloc(w->all->arena, (size_t)n, sizeof *data);
    if (!data) return PARE_MEMORY;
    for (int64_t i = 0; i < n; i++) data[i] = (float)(bias[i] / beta);
    if (old && old->user_count == 1 && !old->is_output) {
        pare_tensor *t;
        PARE_TRY(pare_tensor_new(w->all->model, &t, old->name, PARE_f32, old->data->rank,
                                 old->data->dims, data));
        return pare_value_set_init(old, t);
    }
    char *base = pare_arena_printf(w->all->arena, "%s_bias", s->value->name);
    const char *name = base ? pare_graph_fresh_name(g, base) : NULL;
    if (!name) return PARE_MEMORY;
    const int64_t *dims = old ? old->data->dims : &n;
    PARE_TRY(pare_init_new(g, &fresh, name, PARE_f32, old ? old->data->rank : 1, dims, data));
    return pare_node_set_in(end->bias_node, end->bias_at, fresh);
}

static pare_status fit(walk *w, int i, int64_t want)
{
    pare_prunables *all = w->all;
    pare_prunable *s = &all->item[i];
    const pare_unstructured_end *end = &w->end[i];
    pare_layer_fit f = {.all = all, .layer = s, .centred = end->bias_node, .want = want};
    f.masked = all->options->score != PARE_SCORE_BEST;
    f.weights = pare_alloc(all->ctx, (size_t)s->count, sizeof *f.weights);
    f.bias = end->bias_node ? pare_alloc(all->ctx, (size_t)(s->columns.groups * s->columns.outputs),
                                         sizeof *f.bias)
                            : NULL;
    pare_status st = f.weights && (f.bias || !end->bias_node) ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) st = observe(w, i, &f.observer);
    for (int64_t k = 0; st == PARE_OK && k < s->count; k++)
        f.weights[k] = pare_unstructured_weight(s, k);
    if (st == PARE_OK) st = pare_layer_fit_run(&f);
    if (st == PARE_OK) st = pare_unstructured_put(all, s, f.weights);
    if (st == PARE_OK && f.bias) st = put_bias(w, s, end, f.bias);
    pare_observer_free(f.observer);
    pare_free(f.weights);
    pare_free(f.bias);
    return st;
}

/* What layers from i on will ask for. */
static pare_status forget(walk *w, int first)
{
    int before = 0, now = 0;
    const char **later = w->needed + w->all->count;
    for (int i = first; i < w->all->count; i++)
        if (is_fitted(w, i)) later[before++] = w->end[i].target->name;
    PARE_TRY(pare_capture_forget(w->before, later, before));
    /* what a residual or a later input needs is needed to make that target, too */
    for (int i = first; i < w->all->count; i++)
        if (is_fitted(w, i)) w->needed[now++] = w->end[i].target->name;
    return pare_capture_forget(w->now, w->needed, now);
}

static float magnitude(const pare_prunable *s, int64_t i, const void *user)
{
    float w = pare_unstructured_weight(s, i);
    (void)user;
    return w < 0 ? -w : w;
}

/* Layers that cannot be fitted go by magnitude. */
static pare_status unfitted(walk *w, int i, int64_t want)
{
    pare_prunables *all = w->all;
    pare_prunable *s = &all->item[i];
    if (s->dense) return PARE_OK;
    if (all->options->score == PARE_SCORE_BEST) {
        if (all->options->m)
            pare_unstructured_least_of_m(s, all->options->n, all->options->m, magnitude, NULL);
        else
            PARE_TRY(pare_prunables_least(all, i, 1, want, magnitude, NULL));
    }
    s->facts->note = s->shared  ? "several nodes read it: by magnitude, not refitted"
                     : s->inner ? "in a body: by magnitude, not refitted"
                                : "of a form that is not refitted: by magnitude";
    return pare_unstructured_put_zeros(all, s);
}

static pare_status walk_all(walk *w, const int64_t *want)
{
    pare_prunables *all = w->all;
    const pare_unstructured_options *o = all->options;
    for (int i = 0; i < all->count; i++) {
        if (is_fitted(w, i))
            PARE_TRY(fit(w, i, want[i]));
        else
            PARE_TRY(unfitted(w, i, want[i]));
        PARE_TRY(forget(w, i + 1));
        if (o->progress) o->progress(o->progress_user, i + 1, all->count);
    }
    return PARE_OK;
}

pare_status pare_prunables_refit(pare_prunables *all, const int64_t *want)
{
    const pare_unstructured_options *o = all->options;
    pare_capture_options options;
    walk w = {.all = all};
    PARE_TRY(pare_unstructured_share(all, &w.share, &options));
    options.room = PARE_KEEP_ROOM;
    w.end = pare_arena_alloc(all->arena, (size_t)all->count, sizeof *w.end);
    w.needed = pare_arena_alloc(all->arena, 2 * (size_t)all->count, sizeof *w.needed);
    if (!w.end || !w.needed) return PARE_MEMORY;
    for (int i = 0; i < all->count; i++)
        if (all->item[i].matrix) pare_unstructured_end_find(&all->item[i], &w.end[i]);
    const pare_model *aim = all->reference ? all->reference : all->model;
    pare_status st = pare_model_clone(all->ctx, &w.dense, aim);
    if (st == PARE_OK) st = pare_capture_new(all->ctx, &w.before, w.dense, o->data, &options);
    if (st == PARE_OK) st = pare_capture_new(all->ctx, &w.now, all->model, o->data, &options);
    if (st == PARE_OK) st = walk_all(&w, want);
    if (st == PARE_OK) st = pare_unstructured_note_data(all, &w.share, w.before);
    pare_capture_free(w.before);
    pare_capture_free(w.now);
    pare_model_free(w.dense);
    return st;
}

/* How a sparsity over all weights is shared out among layers. On the dense model's inputs, traces
   of second-order pruning (second.h) of some rows of each layer say what each further zero costs,
   as a part of the variance of the layer's result; over all layers the cheapest zeros are counted.
   Every layer's result counts the same. */

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
        st = pare_moments_inverse(b->all->ctx, m, end.bias_node, &ridge, b->all->options->threads,
                                  inverse);
    if (st == PARE_OK) {
        (void)pare_moments_normal(m, end.bias_node, 0, NULL, a, NULL);
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
