/* SPDX-License-Identifier: Apache-2.0 */
/* A trial is a copy of the model whose weights are changed and changed back. */
#include "prune/score_inner.h"

#include "calib/capture.h"

#include <string.h>

enum { TRIAL_SAMPLES = 128 };

struct pare_trial {
    pare_ctx *ctx;
    const pare_model *model;
    pare_model *copy;
    pare_run_share share; /* of its runs */
    pare_capture *flow;
    int64_t *samples;
    const char **name; /* of the f32 outputs */
    int count;
    int64_t *size;        /* of a run */
    float **dense;        /* (runs of this rank, size): what the model computes */
    double *spread;       /* of each output: squares around its means over all runs */
    double *error;        /* (outputs, all runs): scratch, squares of a run */
    pare_value **changed; /* of the copy */
    size_t changed_count, changed_capacity;
};

void pare_trial_free(pare_trial *t)
{
    if (!t) return;
    for (int k = 0; t->dense && k < t->count; k++) pare_free(t->dense[k]);
    pare_free(t->dense);
    pare_free(t->size);
    pare_free(t->spread);
    pare_free(t->error);
    pare_free(t->name);
    pare_free(t->changed);
    pare_capture_free(t->flow);
    pare_free(t->samples);
    pare_model_free(t->copy);
    pare_free(t);
}

static pare_status find_outputs(pare_trial *t)
{
    const pare_graph *g = t->model->graph;
    t->name = pare_alloc(t->ctx, (size_t)g->out.count, sizeof *t->name);
    t->size = pare_alloc(t->ctx, (size_t)g->out.count, sizeof *t->size);
    t->dense = pare_alloc(t->ctx, (size_t)g->out.count, sizeof *t->dense);
    t->spread = pare_alloc(t->ctx, (size_t)g->out.count, sizeof *t->spread);
    if (!t->name || !t->size || !t->dense || !t->spread) return PARE_MEMORY;
    for (int i = 0; i < g->out.count; i++)
        if (g->out.item[i]->dtype == PARE_f32 && g->out.item[i]->producer)
            t->name[t->count++] = g->out.item[i]->name;
    return PARE_OK;
}

/* All ranks get the squares of all runs. */
static pare_status join_errors(pare_trial *t)
{
    return pare_run_share_join(&t->share, t->error, t->count * t->share.runs);
}

static double *error_at(const pare_trial *t, int k, int64_t run)
{
    return &t->error[k * t->share.runs + t->share.first + run];
}

/* Over all runs, in their order. */
static double error_of(const pare_trial *t, int k)
{
    double sum = 0;
    for (int64_t r = 0; r < t->share.runs; r++) sum += t->error[k * t->share.runs + r];
    return sum;
}

static void clear_errors(const pare_trial *t)
{
    memset(t->error, 0, (size_t)(t->count * t->share.runs) * sizeof *t->error);
}

static double squares(const float *x, const double *mean, double runs, int64_t size)
{
    double sum = 0;
    for (int64_t i = 0; i < size; i++) {
        const double d = (double)x[i] - mean[i] / runs;
        sum += d * d;
    }
    return sum;
}

/* Squares around the means over all runs, of this rank's. */
static pare_status find_spread(pare_trial *t, int k)
{
    const int64_t size = t->size[k];
    pare_block_sum *means;
    double *sum;
    PARE_TRY(pare_block_sum_new(t->ctx, &means, &t->share, (size_t)size));
    pare_status st = PARE_OK;
    for (int64_t r = 0; st == PARE_OK && r < t->share.count; r++) {
        st = pare_block_sum_at(means, t->share.first + r, &sum);
        for (int64_t i = 0; st == PARE_OK && i < size; i++)
            sum[i] += (double)t->dense[k][r * size + i];
    }
    if (st == PARE_OK) st = pare_block_sum_end(means, &sum);
    for (int64_t r = 0; st == PARE_OK && r < t->share.count; r++)
        *error_at(t, k, r) = squares(t->dense[k] + r * size, sum, (double)t->share.runs, size);
    pare_block_sum_free(means);
    return st;
}

static pare_status find_spreads(pare_trial *t)
{
    clear_errors(t);
    for (int k = 0; k < t->count; k++) PARE_TRY(find_spread(t, k));
    PARE_TRY(join_errors(t));
    for (int k = 0; k < t->count; k++) t->spread[k] = error_of(t, k);
    return PARE_OK;
}

static pare_status run_dense(pare_trial *t)
{
    const int64_t runs = t->share.count;
    PARE_TRY(pare_capture_begin(t->flow, t->name, NULL, t->count));
    for (int k = 0; k < t->count; k++) {
        t->size[k] = pare_shape_count(pare_capture_shape(t->flow, k));
        t->dense[k] = pare_alloc(t->ctx, (size_t)runs * (size_t)t->size[k], sizeof(float));
        if (!t->dense[k]) return PARE_MEMORY;
    }
    for (pare_capture_batch x = {.count = 1}; x.count;) {
        PARE_TRY(pare_capture_next(t->flow, &x));
        for (int k = 0; k < t->count && x.count; k++)
            memcpy(t->dense[k] + x.first * t->size[k], x.value[k],
                   (size_t)x.count * (size_t)t->size[k] * sizeof(float));
    }
    return find_spreads(t);
}

/* Leaves the outputs whose shape only a run knows out: another shape is no error of a size. */
static pare_status keep_known(pare_trial *t)
{
    int kept = 0;
    for (int k = 0; k < t->count; k++) {
        pare_status st = pare_capture_begin(t->flow, &t->name[k], NULL, 1);
        if (st == PARE_UNSUPPORTED)
            pare_ctx_clear(t->ctx);
        else if (st != PARE_OK)
            return st;
        else
            t->name[kept++] = t->name[k];
    }
    t->count = kept;
    return PARE_OK;
}

/* The samples of every fifth run, which are held out from moments (moments.h); at most
   TRIAL_SAMPLES. All where there is no fifth run. */
static pare_status choose_samples(pare_trial *t, const pare_score_data *data, int64_t *count)
{
    enum { HELD = 5 };
    int64_t unit, n = 0;
    PARE_TRY(pare_data_run_samples(t->ctx, data->data, t->model, &unit));
    if (!unit) unit = 1;
    const bool held = data->sample_count >= HELD * unit;
    t->samples = pare_alloc(t->ctx, (size_t)data->sample_count, sizeof *t->samples);
    if (!t->samples) return PARE_MEMORY;
    for (int64_t i = 0; i < data->sample_count; i++)
        if (!held || i / unit % HELD == HELD - 1) t->samples[n++] = data->samples[i];
    const int64_t most = unit > TRIAL_SAMPLES ? unit : TRIAL_SAMPLES / unit * unit;
    *count = n < most ? n : most;
    return PARE_OK;
}

static pare_status open(pare_trial *t, const pare_score_data *data)
{
    int64_t n;
    PARE_TRY(find_outputs(t));
    if (!t->count) return PARE_OK;
    PARE_TRY(choose_samples(t, data, &n));
    PARE_TRY(
        pare_run_share_open(t->ctx, &t->share, data->comm, t->model, data->data, t->samples, n));
    t->error = pare_alloc(t->ctx, (size_t)(t->count * t->share.runs), sizeof *t->error);
    if (!t->error) return PARE_MEMORY;
    pare_capture_options options = {.samples = t->share.samples,
                                    .sample_count = t->share.sample_count,
                                    .threads = data->threads,
                                    .device = data->device,
                                    .room = PARE_KEEP_ROOM,
                                    .comm = t->share.comm};
    PARE_TRY(pare_model_clone(t->ctx, &t->copy, t->model));
    PARE_TRY(pare_capture_new(t->ctx, &t->flow, t->copy, data->data, &options));
    pare_status st = run_dense(t);
    if (st != PARE_UNSUPPORTED) return st;
    pare_ctx_clear(t->ctx);
    PARE_TRY(keep_known(t));
    return t->count ? run_dense(t) : PARE_OK;
}

pare_status pare_trial_new(pare_ctx *ctx, pare_trial **out, const pare_model *model,
                           const pare_score_data *data)
{
    pare_trial *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    *t = (pare_trial){.ctx = ctx, .model = model};
    pare_status st = open(t, data);
    *out = st == PARE_OK && t->count ? t : NULL;
    if (!*out) pare_trial_free(t);
    return st;
}

/* --- where trials begin --- */

enum { FOLLOWS_INPUT = 1, FOLLOWS_LAYER = 2 };

static void mark_users(const pare_value *v, int mark)
{
    for (int u = 0; u < v->user_count; u++) {
        pare_node *node = v->user[u];
        if (node->mark >= mark) continue;
        node->mark = mark;
        for (int o = 0; o < node->out_count; o++)
            if (node->out[o]) mark_users(node->out[o], mark);
    }
}

static void mark_nodes(pare_trial *t, const pare_prunable *const *layers, int count)
{
    pare_graph *g = t->copy->graph;
    for (int n = 0; n < g->node_count; n++) g->node[n]->mark = 0;
    for (int i = 0; i < g->in.count; i++)
        if (!g->in.item[i]->is_init) mark_users(g->in.item[i], FOLLOWS_INPUT);
    for (int i = 0; i < count; i++)
        mark_users(pare_graph_find_own(g, layers[i]->value->name), FOLLOWS_LAYER);
}

/* Tensors that follow from the data alone, read by what follows from the layers, each once. */
static int find_border(const pare_graph *g, const char **name)
{
    int count = 0;
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < g->node[n]->in_count; i++) {
            const pare_value *v = g->node[n]->in[i];
            bool have = !v || !v->producer || v->dtype != PARE_f32 ||
                        g->node[n]->mark != FOLLOWS_LAYER || v->producer->mark != FOLLOWS_INPUT;
            for (int k = 0; k < count && !have; k++) have = !strcmp(name[k], v->name);
            if (!have) name[count++] = v->name;
        }
    return count;
}

static pare_status keep_border(pare_trial *t, const char **name, bool *keep, int count)
{
    PARE_TRY(pare_capture_forget(t->flow, name, count));
    for (int k = 0; k < count; k++) keep[k] = true;
    PARE_TRY(pare_capture_begin(t->flow, name, keep, count));
    for (pare_capture_batch x = {.count = 1}; x.count;) PARE_TRY(pare_capture_next(t->flow, &x));
    return PARE_OK;
}

pare_status pare_trial_begin(pare_trial *t, const pare_prunable *const *layers, int count)
{
    const pare_graph *g = t->copy->graph;
    size_t most = 0;
    mark_nodes(t, layers, count);
    for (int n = 0; n < g->node_count; n++) most += (size_t)g->node[n]->in_count;
    const char **name = pare_alloc(t->ctx, most, sizeof *name);
    bool *keep = pare_alloc(t->ctx, most, sizeof *keep);
    pare_status st = PARE_MEMORY;
    if (name && keep) st = keep_border(t, name, keep, find_border(g, name));
    pare_free(name);
    pare_free(keep);
    return st;
}

/* --- weights --- */

static pare_status put(pare_trial *t, const char *name, const float *data)
{
    pare_tensor *tensor;
    pare_value *v = pare_graph_find_own(t->copy->graph, name);
    const pare_tensor *old = v->data;
    PARE_TRY(pare_tensor_new(t->copy, &tensor, name, PARE_f32, old->rank, old->dims, data));
    if (!pare_grow(t->ctx, &t->changed, &t->changed_capacity, t->changed_count, sizeof *t->changed))
        return PARE_MEMORY;
    t->changed[t->changed_count++] = v;
    return pare_value_set_init(v, tensor);
}

/* Mean of the old result less that of the new one, for output o of a group. */
static double shift_of(const pare_prunable *s, int64_t group, int64_t o, const double *w,
                       const pare_moments *m)
{
    double sum = 0;
    for (int64_t k = 0; k < m->columns && m->rows > 0; k++) {
        double old = (double)s->part.alpha *
                     (double)pare_unstructured_weight(s, pare_unstructured_place(s, group, o, k));
        sum += (old - w[o * m->columns + k]) * m->x[k] / m->rows;
    }
    return sum;
}

static pare_status put_bias(pare_trial *t, const pare_prunable *s, const pare_unstructured_end *end,
                            const double *const *w, const pare_observer *moments)
{
    const pare_value *bias = end->bias_node ? pare_node_in(end->bias_node, end->bias_at) : NULL;
    const double beta = end->bias_node == s->node ? (double)s->part.beta : 1;
    const int64_t n = s->columns.outputs, all = n * s->columns.groups;
    if (!bias || !bias->data || bias->data->count != all || bias->user_count != 1) return PARE_OK;
    float *data = pare_alloc(t->ctx, (size_t)all, sizeof *data);
    if (!data) return PARE_MEMORY;
    pare_score_read(data, bias->data, 0, all);
    for (int64_t i = 0; i < all; i++)
        data[i] +=
            (float)(shift_of(s, i / n, i % n, w[i / n], pare_observer_moments(moments, 0, i / n)) /
                    beta);
    pare_status st = put(t, bias->name, data);
    pare_free(data);
    return st;
}

pare_status pare_trial_put(pare_trial *t, const pare_prunable *s, const pare_unstructured_end *end,
                           const double *const *w, const pare_observer *moments)
{
    float *data = pare_alloc(t->ctx, (size_t)s->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    for (int64_t g = 0; g < s->columns.groups; g++)
        for (int64_t o = 0; o < s->columns.outputs; o++)
            for (int64_t k = 0; k < s->columns.columns; k++)
                data[pare_unstructured_place(s, g, o, k)] =
                    (float)(w[g][o * s->columns.columns + k] / (double)s->part.alpha);
    pare_status st = put(t, s->value->name, data);
    pare_free(data);
    return st == PARE_OK && moments ? put_bias(t, s, end, w, moments) : st;
}

pare_status pare_trial_reset(pare_trial *t)
{
    for (; t->changed_count; t->changed_count--) {
        pare_value *v = t->changed[t->changed_count - 1];
        PARE_TRY(pare_value_set_init(v, pare_graph_find_own(t->model->graph, v->name)->data));
    }
    return PARE_OK;
}

/* --- the outputs --- */

static double difference(const float *a, const float *b, int64_t size)
{
    double sum = 0;
    for (int64_t i = 0; i < size; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sum;
}

pare_status pare_trial_run(pare_trial *t, double *damage)
{
    *damage = 0;
    clear_errors(t);
    PARE_TRY(pare_capture_begin(t->flow, t->name, NULL, t->count));
    for (pare_capture_batch x = {.count = 1}; x.count;) {
        PARE_TRY(pare_capture_next(t->flow, &x));
        for (int k = 0; k < t->count; k++)
            for (int64_t r = 0; r < x.count; r++)
                *error_at(t, k, x.first + r) =
                    difference(x.value[k] + r * t->size[k],
                               t->dense[k] + (x.first + r) * t->size[k], t->size[k]);
    }
    PARE_TRY(join_errors(t));
    for (int k = 0; k < t->count; k++)
        if (t->spread[k] > 0) *damage += error_of(t, k) / t->spread[k];
    return PARE_OK;
}
