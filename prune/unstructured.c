/* SPDX-License-Identifier: Apache-2.0 */
/* Single weights: which part of them becomes 0, by which score, and whether the others are
   refitted. The model keeps its form; only weights and, refitted, biases change. */
#include "prune/score_inner.h"
#include "prune/unstructured.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void pare_unstructured_options_init(pare_unstructured_options *out)
{
    *out = (pare_unstructured_options){0};
}

/* --- scores --- */

static float magnitude(const pare_prunable *s, int64_t i, const void *user)
{
    (void)user;
    return fabsf(pare_unstructured_weight(s, i));
}

/* SplitMix64 (Steele, Lea, Flood 2014) of the layer and the place in it. */
static float lot(const pare_prunable *s, int64_t i, const void *user)
{
    const uint64_t *seed = user;
    uint64_t z = *seed + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
    (void)s;
    for (int k = 0; k < 2; k++) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
    }
    return (float)(z >> 40) * 0x1p-24f;
}

/* user: a score per weight. */
static float listed(const pare_prunable *s, int64_t i, const void *user)
{
    (void)s;
    return ((const float *)user)[i];
}

static float listed_f64(const pare_prunable *s, int64_t i, const void *user)
{
    (void)s;
    return (float)((const double *)user)[i];
}

/* |w| sqrt(E[x^2]) over the root of the layer's mean of that square, so that layers compare (the
   product: Sun et al. 2023, "A Simple and Effective Pruning Approach", arXiv 2306.11695). */
typedef struct activity {
    pare_prunables *all;
    const void **score; /* (count) */
} activity;

static pare_status weigh(void *user, int layer, const pare_observer *observer)
{
    activity *a = user;
    pare_prunable *s = &a->all->item[layer];
    float *score = pare_arena_alloc(a->all->arena, (size_t)s->count, sizeof *score);
    double sum = 0;
    if (!score) return PARE_MEMORY;
    for (int64_t g = 0; g < s->columns.groups; g++) {
        const pare_moments *m = pare_observer_moments(observer, 0, g);
        for (int64_t o = 0; o < s->columns.outputs; o++)
            for (int64_t k = 0; k < m->columns; k++) {
                int64_t at = pare_unstructured_place(s, g, o, k);
                double w = (double)pare_unstructured_weight(s, at);
                double square = w * w * m->xx[k * m->columns + k] / m->rows;
                score[at] = (float)sqrt(square);
                sum += square;
            }
    }
    float scale = sum > 0 ? (float)(1 / sqrt(sum / (double)s->count)) : 0;
    for (int64_t i = 0; i < s->count; i++) score[i] *= scale;
    a->score[layer] = score;
    return PARE_OK;
}

pare_status pare_weight_score_magnitude(pare_prunables *all, pare_unstructured_score *score,
                                        const void **list)
{
    (void)all;
    (void)list;
    *score = magnitude;
    return PARE_OK;
}

pare_status pare_weight_score_random(pare_prunables *all, pare_unstructured_score *score,
                                     const void **list)
{
    uint64_t *seed = pare_arena_alloc(all->arena, (size_t)all->count, sizeof *seed);
    if (!seed) return PARE_MEMORY;
    for (int i = 0; i < all->count; i++) {
        seed[i] = all->options->seed + ((uint64_t)i << 40);
        list[i] = &seed[i];
    }
    *score = lot;
    return PARE_OK;
}

/* The loss's change to first order (score.h). */
pare_status pare_weight_score_taylor(pare_prunables *all, pare_unstructured_score *score_fn,
                                     const void **list)
{
    const pare_unstructured_options *o = all->options;
    const char **names = pare_arena_alloc(all->arena, (size_t)all->count, sizeof *names);
    double **score = pare_arena_alloc(all->arena, (size_t)all->count, sizeof *score);
    int count = 0;
    *score_fn = listed_f64;
    if (!names || !score) return PARE_MEMORY;
    for (int i = 0; i < all->count; i++) {
        if (all->item[i].dense) continue;
        score[count] = pare_arena_alloc(all->arena, (size_t)all->item[i].count, sizeof **score);
        if (!score[count]) return PARE_MEMORY;
        names[count++] = all->item[i].value->name;
    }
    pare_gradients_options options = {.by = names,
                                      .by_count = count,
                                      .samples = o->samples,
                                      .sample_count = o->sample_count,
                                      .threads = o->threads,
                                      .comm = o->comm};
    PARE_TRY(pare_score_weights_from_gradients(all->ctx, score, all->model, o->data, &options));
    for (int i = 0, k = 0; i < all->count; i++)
        if (!all->item[i].dense) list[i] = score[k++];
    return PARE_OK;
}

pare_status pare_weight_score_activation(pare_prunables *all, pare_unstructured_score *score,
                                         const void **list)
{
    activity a = {all, list};
    for (int i = 0; i < all->count; i++)
        if (!all->item[i].dense && !pare_unstructured_is_fitted(&all->item[i]))
            return PARE_FAIL_NODE(all->item[i].node, INPUT,
                                  "its inputs cannot be weighed against its weight '%s', which is "
                                  "shared, in a body or of another form; leave it out with "
                                  "--keep",
                                  all->item[i].value->name);
    *score = listed;
    return pare_prunables_moments(all, weigh, &a);
}

/* The score function of the options; *user, one a layer, is in the arena. */
static pare_status choose_score(pare_prunables *all, pare_unstructured_score *score,
                                const void ***user)
{
    const pare_score kind = all->options->score;
    const pare_score_row *row = &pare_scores[kind == PARE_SCORE_BEST ? PARE_SCORE_L1 : kind];
    if (!row->weights)
        return PARE_FAIL(all->ctx, USAGE, "%s: score %s ranks channels, expected one of weights",
                         all->model->path, row->name);
    *user = pare_arena_alloc(all->arena, (size_t)all->count, sizeof **user);
    return *user ? row->weights(all, score, *user) : PARE_MEMORY;
}

/* --- masks --- */

static pare_status masks_by_score(pare_prunables *all, const int64_t *want, int64_t zeros)
{
    const pare_unstructured_options *o = all->options;
    pare_unstructured_score score;
    const void **user = NULL;
    PARE_TRY(choose_score(all, &score, &user));
    for (int i = 0; o->m && i < all->count; i++)
        if (!all->item[i].dense)
            pare_unstructured_least_of_m(&all->item[i], o->n, o->m, score, user[i]);
    if (o->m) return PARE_OK;
    if (!o->per_layer) return pare_prunables_least(all, 0, all->count, zeros, score, user);
    for (int i = 0; i < all->count; i++)
        PARE_TRY(pare_prunables_least(all, i, 1, want[i], score, user));
    return PARE_OK;
}

/* N:M: layers that it does not fit stay as they are. */
static pare_status leave_dense(pare_prunables *all)
{
    enum { LEAST_CHANNELS = 4 };
    const int m = all->options->m;
    int left = 0;
    for (int i = 0; i < all->count && m; i++) {
        pare_prunable *s = &all->item[i];
        const char *why = NULL;
        if (s->dense) continue;
        if (!s->matrix)
            why = "of a form whose input channels are not known";
        else if (s->columns.channels < LEAST_CHANNELS)
            why = "fewer than 4 input channels a group";
        else if (s->columns.channels % m)
            why = pare_arena_printf(&all->model->arena,
                                    "%d does not divide its %" PRId64 " input channels", m,
                                    s->columns.channels);
        else
            left++;
        s->dense = why;
        s->facts->note = why;
    }
    if (!m || left) return PARE_OK;
    return PARE_FAIL(all->ctx, INPUT,
                     "%s: no layer has input channels that %d divides: nothing can be pruned to "
                     "%d:%d",
                     all->model->path, m, all->options->n, m);
}

/* Zeros of each layer, of a sparsity in each; and how many all are. */
static pare_status share(pare_prunables *all, int64_t *want, int64_t *zeros)
{
    int64_t count = 0, open = 0;
    for (int i = 0; i < all->count; i++) {
        const pare_prunable *s = &all->item[i];
        count += s->count;
        open += s->dense ? 0 : s->count;
        want[i] = s->dense ? 0 : llrint(all->options->sparsity * (double)s->count);
    }
    *zeros = llrint(all->options->sparsity * (double)count);
    all->facts->count = count;
    if (all->options->m || all->options->per_layer || *zeros <= open) return PARE_OK;
    return PARE_FAIL(all->ctx, INPUT,
                     "%s: a sparsity of %g of %" PRId64 " weights cannot be met: only %" PRId64
                     " of them are in layers that may be pruned; ask for at most %g",
                     all->model->path, all->options->sparsity, count, open,
                     floor(1000 * (double)open / (double)count) / 1000);
}

static void finish_facts(pare_prunables *all)
{
    for (int i = 0; i < all->count; i++) {
        pare_prunable *s = &all->item[i];
        int64_t rows = s->matrix              ? s->columns.groups * s->columns.outputs
                       : s->value->data->rank ? s->value->data->dims[0]
                                              : 1;
        for (int64_t k = 0; k < s->count; k++)
            s->facts->zeros += pare_unstructured_weight(s, k) == 0;
        int64_t columns = rows ? s->count / rows : 0;
        s->facts->csr = (double)(s->count - s->facts->zeros) * (columns < 65536 ? 6 : 8) +
                        4 * (double)(rows + 1);
        all->facts->zeros += s->facts->zeros;
    }
}

static pare_status prune(pare_prunables *all)
{
    const pare_unstructured_options *o = all->options;
    int64_t *want, zeros;
    PARE_TRY(pare_prunables_find(all));
    PARE_TRY(leave_dense(all));
    if (o->m && !o->fixed_order) PARE_TRY(pare_prunables_permute(all));
    want = pare_arena_alloc(all->arena, (size_t)all->count, sizeof *want);
    if (!want) return PARE_MEMORY;
    PARE_TRY(share(all, want, &zeros));
    bool refit = o->data && o->refit, best = refit && o->score == PARE_SCORE_BEST;
    if (!best) PARE_TRY(masks_by_score(all, want, zeros));
    if (best && !o->m && !o->per_layer) PARE_TRY(pare_prunables_budget(all, zeros, want));
    if (refit)
        PARE_TRY(pare_prunables_refit(all, want));
    else
        for (int i = 0; i < all->count; i++)
            if (!all->item[i].dense) PARE_TRY(pare_unstructured_put_zeros(all, &all->item[i]));
    finish_facts(all);
    return PARE_OK;
}

/* --- in steps --- */

double pare_prune_sparsity_at(double before, double goal, int64_t step, int64_t steps)
{
    const double left = 1 - (double)step / (double)steps;
    if (step >= steps) return goal;
    return before < goal ? goal + (before - goal) * left * left * left : goal;
}

double pare_prune_cost_at(double before, double goal, int64_t step, int64_t steps)
{
    if (step >= steps || !(before > 0)) return goal;
    return before * pow(goal / before, (double)step / (double)steps);
}

static int64_t zeros_of(const pare_prunable *s)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < s->count; i++) zeros += pare_unstructured_weight(s, i) == 0;
    return zeros;
}

pare_status pare_prune_sparsity(pare_ctx *ctx, pare_model *model, double *out)
{
    pare_arena arena;
    pare_unstructured_options options = {0};
    pare_unstructured_facts facts = {0};
    pare_arena_init(&arena, ctx);
    pare_prunables all = {
        .ctx = ctx, .model = model, .arena = &arena, .options = &options, .facts = &facts};
    pare_status st = pare_prunables_find(&all);
    int64_t count = 0, zeros = 0;
    for (int i = 0; i < all.count; i++) {
        count += all.item[i].count;
        zeros += zeros_of(&all.item[i]);
    }
    *out = count ? (double)zeros / (double)count : 0;
    pare_arena_free(&arena);
    return st;
}

static pare_status prune_once(pare_ctx *ctx, pare_model *model,
                              const pare_unstructured_options *options, double sparsity,
                              pare_unstructured_facts *facts)
{
    pare_unstructured_options own = *options;
    pare_arena arena;
    own.sparsity = sparsity;
    if (own.threads < 1) own.threads = pare_cpu_cores();
    *facts = (pare_unstructured_facts){0};
    if (own.data && own.refit) PARE_TRY(pare_pass_fold_batchnorm(model));
    pare_arena_init(&arena, ctx);
    pare_prunables all = {
        .ctx = ctx, .model = model, .arena = &arena, .options = &own, .facts = facts};
    pare_status st = prune(&all);
    pare_arena_free(&arena);
    return st;
}

static pare_status train(const pare_unstructured_options *o, const pare_model *dense,
                         pare_model *model, int64_t step, const pare_unstructured_facts *facts)
{
    const double count = (double)facts->count, left = count - (double)facts->zeros;
    if (!o->train) return PARE_OK;
    return o->train(o->train_user, dense, model, step, count > 0 ? left / count : 1);
}

pare_status pare_prune_unstructured(pare_ctx *ctx, pare_model *model,
                                    const pare_unstructured_options *options,
                                    pare_unstructured_facts *facts)
{
    const int64_t steps = options->steps < 1 ? 1 : options->steps;
    pare_model *dense = NULL;
    double before = 0;
    if (steps > 1) PARE_TRY(pare_prune_sparsity(ctx, model, &before));
    if (options->train) PARE_TRY(pare_model_clone(ctx, &dense, model));
    pare_status st = PARE_OK;
    for (int64_t i = 1; st == PARE_OK && i <= steps; i++) {
        const double sparsity = pare_prune_sparsity_at(before, options->sparsity, i, steps);
        if (options->phase) options->phase(options->progress_user, "prune", "layers");
        st = prune_once(ctx, model, options, sparsity, facts);
        if (options->phase) options->phase(options->progress_user, NULL, NULL);
        if (st == PARE_OK) st = train(options, dense, model, i, facts);
    }
    pare_model_free(dense);
    return st;
}
