/* SPDX-License-Identifier: Apache-2.0 */
/* What pruning with data will touch, from the shapes alone. Sizes follow what score_data.c,
   score_trial.c, eliminate.c, unstructured_refit.c and unstructured_layer.c allocate; what one of
   them frees before the next begins counts once. */
#include "prune/score.h"
#include "prune/unstructured.h"

#include <math.h>

enum { PLANNED = 4 }; /* tensors as large as the largest in the activations of a run */

/* Of a weighted layer, bytes. */
typedef struct layer_bytes {
    double square, both; /* of (columns, columns), (columns, outputs) of one group */
    double moments;      /* of an observer without targets: two sets, all groups */
    double panels;       /* rows on their way into moments */
} layer_bytes;

static layer_bytes layer_of(const pare_prunable *s)
{
    const pare_columns *c = &s->columns;
    const double d = (double)c->columns, n = (double)c->outputs, sets = 2 * (double)c->groups;
    layer_bytes l = {.square = 8 * d * d, .both = 8 * d * n};
    l.moments = sets * l.square;
    l.panels = sets * (double)pare_observer_panel_bytes(c, true);
    return l;
}

static double weights_of(const pare_prunables *all)
{
    double sum = 0;
    for (int i = 0; i < all->count; i++) sum += 4 * (double)all->item[i].count;
    return sum;
}

/* Scoring: the moments of a pass with all tensors that are shown, of one layer what eliminating its
   inputs takes, tensors that trials begin at, and each weight as three trials put it. */
static double of_scores(const pare_prunables *all, const pare_capture_sizes *flow, double samples)
{
    enum { TRIALS = 3, BORDER = 2, HELD = 5 };
    double sum = 0, most = 0, work = 0;
    for (int i = 0; i < all->count; i++) {
        if (!all->item[i].matrix) continue;
        const layer_bytes l = layer_of(&all->item[i]);
        sum += (l.moments + l.panels) / 2; /* one set */
        most = fmax(most, (l.moments + l.panels) / 2);
        work = fmax(work, 2 * l.square + 3 * l.both);
    }
    const double kept = fmin(PARE_KEEP_ROOM, BORDER * flow->largest * samples / HELD);
    return fmin(sum, fmax(PARE_SCORE_ROOM, most)) + work + flow->all * flow->runs + kept +
           TRIALS * weights_of(all);
}

/* Finding each layer's part of the zeros: moments of one set of a pass, and all it shows. */
static double of_budget(const pare_prunables *all, const pare_capture_sizes *flow)
{
    double sum = 0, most = 0;
    for (int i = 0; i < all->count; i++) {
        if (!all->item[i].matrix) continue;
        const layer_bytes l = layer_of(&all->item[i]);
        sum += (l.moments + l.panels) / 2;
        most = fmax(most, (l.moments + l.panels) / 2 + 3 * l.square);
    }
    return fmin(sum, PARE_BUDGET_ROOM) + most + flow->all * flow->runs;
}

/* Fitting one layer: its moments with targets, the normal equations, weights, and what products
   pack. Where single weights go, one factor a thread, too. */
static double of_fit(const pare_prunables *all, const pare_capture_sizes *flow, double samples)
{
    enum { BORDER = 4 }; /* tensors kept or shown at a time, of two flows */
    const double threads = all->options->refit ? 0 : (double)all->options->threads;
    double most = 0;
    for (int i = 0; i < all->count; i++) {
        if (!all->item[i].matrix) continue;
        const layer_bytes l = layer_of(&all->item[i]);
        const double targets = 2 * (double)all->item[i].columns.groups * l.both;
        most = fmax(most, l.moments + l.panels + targets + (4 + threads) * l.square +
                              (10 + threads) * l.both);
    }
    return most + fmin(2.0 * PARE_KEEP_ROOM, BORDER * flow->largest * samples) +
           BORDER * flow->largest * flow->runs + weights_of(all);
}

pare_status pare_prune_memory(pare_ctx *ctx, const pare_model *model, const pare_score_data *data,
                              bool scores, bool channels, size_t *out)
{
    pare_arena arena;
    pare_unstructured_options options = {.threads = data->threads, .refit = channels};
    pare_unstructured_facts facts = {0};
    if (options.threads < 1) options.threads = pare_cpu_cores();
    pare_arena_init(&arena, ctx);
    pare_prunables all = {.ctx = ctx,
                          .model = (pare_model *)model,
                          .arena = &arena,
                          .options = &options,
                          .facts = &facts};
    pare_status st = pare_prunables_find(&all);
    if (st == PARE_OK) {
        const pare_capture_sizes flow = pare_capture_sizes_of(model, options.threads);
        const double samples = (double)data->sample_count;
        /* kernels pack the weights, and each thread has activations */
        const double plan = weights_of(&all) + PLANNED * flow.largest * options.threads;
        double most = data->refits ? of_fit(&all, &flow, samples) : 0;
        if (scores) most = fmax(most, of_scores(&all, &flow, samples));
        if (data->refits && !channels) most = fmax(most, of_budget(&all, &flow));
        *out = (size_t)(plan + most);
    }
    pare_arena_free(&arena);
    return st;
}
