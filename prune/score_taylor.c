/* SPDX-License-Identifier: Apache-2.0 */
/* First-order Taylor score (Molchanov et al. 2019, "Importance Estimation for Neural Network
   Pruning", arXiv 1906.10771): to first order, setting the weights that read a channel to 0 changes
   the loss of a run by minus the sum of w dloss/dw over them. A coupled set's score is the mean
   over runs of that sum's absolute value; signs cancel inside a run, not between runs. */
#include "prune/score.h"

#include "calib/share.h"

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

static void add_run(const void *user, double *score, const float *const *gradient)
{
    const taylor *t = user;
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

/* What a run adds to `count` sums; of: its gradients. */
typedef void (*add_fn)(const void *user, double *sums, const float *const *of);

/* The means over all runs of all ranks, to out (count). options: of all samples. */
static pare_status mean_of_runs(pare_ctx *ctx, double *out, size_t count, const pare_model *model,
                                pare_data *data, const pare_gradients_options *options, add_fn add,
                                const void *user)
{
    pare_gradients_options own = *options;
    pare_run_share share;
    pare_gradients *gradients = NULL;
    pare_block_sum *sums = NULL;
    pare_gradients_batch batch = {.count = 1};
    double *all = NULL;
    PARE_TRY(pare_run_share_open(ctx, &share, options->comm, model, data, options->samples,
                                 options->sample_count));
    own.samples = share.samples;
    own.sample_count = share.sample_count;
    own.comm = share.comm;
    pare_status st = pare_block_sum_new(ctx, &sums, &share, count);
    if (st == PARE_OK) st = pare_gradients_new(ctx, &gradients, model, data, &own);
    while (st == PARE_OK && batch.count) {
        st = pare_gradients_next(gradients, &batch);
        for (int r = 0; st == PARE_OK && r < batch.count; r++) {
            st = pare_block_sum_at(sums, share.first + batch.first + r, &all);
            if (st == PARE_OK) add(user, all, batch.of[r]);
        }
    }
    if (st == PARE_OK) st = pare_block_sum_end(sums, &all);
    for (size_t i = 0; st == PARE_OK && i < count; i++) out[i] = all[i] / (double)share.runs;
    pare_gradients_free(gradients);
    pare_block_sum_free(sums);
    return st;
}

pare_status pare_score_from_gradients(pare_ctx *ctx, double *score, const pare_groups *groups,
                                      pare_data *data, const pare_gradients_options *options)
{
    taylor t = {.ctx = ctx, .groups = groups};
    pare_gradients_options own = *options;
    pare_status st = list_readers(&t);
    if (st == PARE_OK) st = read_weights(&t);
    own.by = t.names;
    own.by_count = t.count;
    if (st == PARE_OK)
        st = mean_of_runs(ctx, score, (size_t)groups->coupled_count, groups->model, data, &own,
                          add_run, &t);
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

/* The constants to score, their sums one after the other. */
typedef struct constants {
    float **weight; /* (count) their numbers */
    int64_t *size;
    int count;
    size_t numbers; /* of all */
} constants;

static void add_elements(const void *user, double *sums, const float *const *gradient)
{
    const constants *c = user;
    for (int k = 0; k < c->count; sums += c->size[k++])
        for (int64_t i = 0; gradient[k] && i < c->size[k]; i++)
            sums[i] += fabs((double)gradient[k][i] * (double)c->weight[k][i]);
}

static pare_status read_constants(pare_ctx *ctx, const pare_model *model,
                                  const pare_gradients_options *o, constants *out)
{
    const size_t count = (size_t)o->by_count + 1;
    out->weight = pare_alloc(ctx, count, sizeof *out->weight);
    out->size = pare_alloc(ctx, count, sizeof *out->size);
    if (!out->weight || !out->size) return PARE_MEMORY;
    for (int k = 0; k < o->by_count; k++) {
        const pare_value *v = pare_graph_find_own(model->graph, o->by[k]);
        if (!v || !v->data)
            return PARE_FAIL(ctx, INPUT, "%s: there is no constant '%s' to score", model->path,
                             o->by[k]);
        out->size[k] = v->data->count;
        out->numbers += (size_t)v->data->count;
        out->weight[k] = pare_alloc(ctx, (size_t)v->data->count, sizeof **out->weight);
        out->count = k + 1;
        if (!out->weight[k]) return PARE_MEMORY;
        pare_score_read(out->weight[k], v->data, 0, v->data->count);
    }
    return PARE_OK;
}

pare_status pare_score_weights_from_gradients(pare_ctx *ctx, double *const *score,
                                              const pare_model *model, pare_data *data,
                                              const pare_gradients_options *options)
{
    constants c = {0};
    double *means = NULL;
    pare_status st = read_constants(ctx, model, options, &c);
    if (st == PARE_OK) means = pare_alloc(ctx, c.numbers, sizeof *means);
    if (st == PARE_OK && !means) st = PARE_MEMORY;
    if (st == PARE_OK)
        st = mean_of_runs(ctx, means, c.numbers, model, data, options, add_elements, &c);
    const double *from = means;
    for (int k = 0; st == PARE_OK && k < c.count; from += c.size[k++])
        memcpy(score[k], from, (size_t)c.size[k] * sizeof *from);
    for (int k = 0; k < c.count; k++) pare_free(c.weight[k]);
    pare_free(means);
    pare_free(c.weight);
    pare_free(c.size);
    return st;
}
