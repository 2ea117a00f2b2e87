/* SPDX-License-Identifier: Apache-2.0 */
/* First-order Taylor score (Molchanov et al. 2019, "Importance Estimation for Neural Network
   Pruning", arXiv 1906.10771): to first order, setting the weights that read a channel to 0 changes
   the loss of a run by minus the sum of w dloss/dw over them. A coupled set's score is the mean
   over runs of that sum's absolute value; signs cancel inside a run, not between runs. */
#include "prune/score.h"

#include <math.h>
#include <string.h>

typedef struct reader {
    int slot, weight; /* weight: place among the tensors to differentiate by */
} reader;

typedef struct taylor {
    pare_ctx *ctx;
    const pare_groups *groups;
    const char **names; /* of weights, each once */
    const pare_tensor **tensor;
    float **weight; /* their numbers */
    int count;
    reader *reader;
    int reader_count;
    double *run, *sum; /* (coupled_count); (largest extent) */
    float *product;    /* (largest weight) */
} taylor;

static bool reads(const pare_channel_axis *s)
{
    return s->role == PARE_AXIS_READS && s->value && s->value->data &&
           s->value->data->dtype == PARE_f32;
}

static int place_of(taylor *t, const pare_channel_axis *s)
{
    for (int i = 0; i < t->count; i++)
        if (!strcmp(t->names[i], s->value->name)) return i;
    t->names[t->count] = s->value->name;
    t->tensor[t->count] = s->value->data;
    return t->count++;
}

static pare_status list_readers(taylor *t)
{
    size_t most = (size_t)t->groups->slot_count + 1;
    int64_t extent = 1, elements = 1;
    t->names = pare_alloc(t->ctx, most, sizeof *t->names);
    t->tensor = pare_alloc(t->ctx, most, sizeof *t->tensor);
    t->weight = pare_alloc(t->ctx, most, sizeof *t->weight);
    t->reader = pare_alloc(t->ctx, most, sizeof *t->reader);
    if (!t->names || !t->tensor || !t->weight || !t->reader) return PARE_MEMORY;
    for (int s = 0; s < t->groups->slot_count; s++) {
        const pare_channel_axis *slot = &t->groups->slot[s];
        if (!reads(slot)) continue;
        t->reader[t->reader_count++] = (reader){s, place_of(t, slot)};
        if (slot->extent > extent) extent = slot->extent;
        if (slot->value->data->count > elements) elements = slot->value->data->count;
    }
    t->run = pare_alloc(t->ctx, (size_t)t->groups->coupled_count + 1, sizeof *t->run);
    t->sum = pare_alloc(t->ctx, (size_t)extent, sizeof *t->sum);
    t->product = pare_alloc(t->ctx, (size_t)elements, sizeof *t->product);
    return t->run && t->sum && t->product ? PARE_OK : PARE_MEMORY;
}

static pare_status read_weights(taylor *t)
{
    for (int i = 0; i < t->count; i++) {
        t->weight[i] = pare_alloc(t->ctx, (size_t)t->tensor[i]->count, sizeof(float));
        if (!t->weight[i]) return PARE_MEMORY;
        pare_score_read(t->weight[i], t->tensor[i], 0, t->tensor[i]->count);
    }
    return PARE_OK;
}

static double itself(double x) { return x; }

static void add_run(const taylor *t, double *score, const float *const *gradient)
{
    const pare_groups *groups = t->groups;
    memset(t->run, 0, (size_t)groups->coupled_count * sizeof *t->run);
    for (int i = 0; i < t->reader_count; i++) {
        const reader *r = &t->reader[i];
        const pare_channel_axis *slot = &groups->slot[r->slot];
        const float *d = gradient[r->weight], *w = t->weight[r->weight];
        if (!d) continue;
        for (int64_t k = 0; k < slot->value->data->count; k++) t->product[k] = d[k] * w[k];
        memset(t->sum, 0, (size_t)slot->extent * sizeof *t->sum);
        pare_score_add_channels(t->sum, slot, t->product, itself);
        for (int64_t u = 0; u < slot->extent; u++) {
            int c = pare_groups_coupled(groups, r->slot, u);
            if (c >= 0) t->run[c] += t->sum[u];
        }
    }
    for (int c = 0; c < groups->coupled_count; c++) score[c] += fabs(t->run[c]);
}

static pare_status add_runs(const taylor *t, double *score, pare_data *data,
                            const pare_gradients_options *given)
{
    pare_gradients_options options = *given;
    pare_gradients *gradients;
    pare_gradients_batch batch = {.count = 1};
    options.by = t->names;
    options.by_count = t->count;
    PARE_TRY(pare_gradients_new(t->ctx, &gradients, t->groups->model, data, &options));
    pare_status st = PARE_OK;
    while (st == PARE_OK && batch.count) {
        st = pare_gradients_next(gradients, &batch);
        for (int r = 0; st == PARE_OK && r < batch.count; r++) add_run(t, score, batch.of[r]);
    }
    for (int c = 0; c < t->groups->coupled_count; c++)
        score[c] /= (double)pare_gradients_runs(gradients);
    pare_gradients_free(gradients);
    return st;
}

pare_status pare_score_from_gradients(pare_ctx *ctx, double *score, const pare_groups *groups,
                                      pare_data *data, const pare_gradients_options *options)
{
    taylor t = {.ctx = ctx, .groups = groups};
    memset(score, 0, (size_t)groups->coupled_count * sizeof *score);
    pare_status st = list_readers(&t);
    if (st == PARE_OK) st = read_weights(&t);
    if (st == PARE_OK) st = add_runs(&t, score, data, options);
    for (int i = 0; t.weight && i < t.count; i++) pare_free(t.weight[i]);
    pare_free(t.names);
    pare_free(t.tensor);
    pare_free(t.weight);
    pare_free(t.reader);
    pare_free(t.run);
    pare_free(t.sum);
    pare_free(t.product);
    return st;
}

/* --- single weights --- */

static void add_elements(double *score, const float *gradient, const float *weight, int64_t count)
{
    for (int64_t i = 0; i < count; i++) score[i] += fabs((double)gradient[i] * (double)weight[i]);
}

static pare_status add_weight_runs(pare_gradients *gradients, double *const *score,
                                   float *const *weight, const int64_t *size, int count)
{
    const double runs = (double)pare_gradients_runs(gradients);
    pare_gradients_batch batch = {.count = 1};
    while (batch.count) {
        PARE_TRY(pare_gradients_next(gradients, &batch));
        for (int r = 0; r < batch.count; r++)
            for (int k = 0; k < count; k++)
                if (batch.of[r][k]) add_elements(score[k], batch.of[r][k], weight[k], size[k]);
    }
    for (int k = 0; k < count; k++)
        for (int64_t i = 0; i < size[k]; i++) score[k][i] /= runs;
    return PARE_OK;
}

/* The numbers of the constants `by`, and zeroed scores. */
static pare_status read_constants(pare_ctx *ctx, const pare_model *model,
                                  const pare_gradients_options *o, float **weight, int64_t *size,
                                  double *const *score)
{
    for (int k = 0; k < o->by_count; k++) {
        const pare_value *v = pare_graph_find_own(model->graph, o->by[k]);
        if (!v || !v->data)
            return PARE_FAIL(ctx, INPUT, "%s: there is no constant '%s' to score", model->path,
                             o->by[k]);
        size[k] = v->data->count;
        weight[k] = pare_alloc(ctx, (size_t)size[k], sizeof **weight);
        if (!weight[k]) return PARE_MEMORY;
        pare_score_read(weight[k], v->data, 0, size[k]);
        memset(score[k], 0, (size_t)size[k] * sizeof **score);
    }
    return PARE_OK;
}

pare_status pare_score_weights_from_gradients(pare_ctx *ctx, double *const *score,
                                              const pare_model *model, pare_data *data,
                                              const pare_gradients_options *options)
{
    const size_t count = (size_t)options->by_count + 1;
    float **weight = pare_alloc(ctx, count, sizeof *weight);
    int64_t *size = pare_alloc(ctx, count, sizeof *size);
    pare_gradients *gradients = NULL;
    pare_status st = weight && size ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) st = read_constants(ctx, model, options, weight, size, score);
    if (st == PARE_OK) st = pare_gradients_new(ctx, &gradients, model, data, options);
    if (st == PARE_OK) st = add_weight_runs(gradients, score, weight, size, options->by_count);
    pare_gradients_free(gradients);
    for (int k = 0; weight && k < options->by_count; k++) pare_free(weight[k]);
    pare_free(weight);
    pare_free(size);
    return st;
}
