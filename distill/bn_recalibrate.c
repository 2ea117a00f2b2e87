/* SPDX-License-Identifier: Apache-2.0 */
/* Running statistics of BatchNormalization: they follow the batches, and are estimated again before
   the first step. Plan of the latter: a copy of the student gets the new statistics node by node; a
   capture of its activations keeps what each node reads, so that every node is computed about once
   a sample. Sums are made sample after sample. */
#include "calib/capture.h"
#include "distill/trainer.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

#include <math.h>
#include <string.h>

/* --- following the batches --- */

static void follow(const pare_weights *w, int place, int64_t channel, double batch, double momentum)
{
    if (place < 0) return;
    float *running = w->value + w->item[place].at + channel;
    *running = (float)((double)*running * momentum + batch * (1 - momentum));
}

void pare_batchnorm_follow(const pare_batchnorm *norm, const pare_weights *weights,
                           const pare_runner *runner)
{
    const double *sums = pare_runner_output(runner, norm->sums).data;
    const pare_type_info *type = pare_type(norm->mean0->dtype);
    if (norm->mean < 0 && norm->variance < 0) return;
    for (int64_t c = 0; c < norm->channels; c++) {
        const char *at = (const char *)norm->mean0->data + c * (type->bits / 8);
        double mean, variance;
        pare_trained_norm_moments(sums, norm->channels, c, (double)type->to_f32(at), &mean,
                                  &variance);
        follow(weights, norm->mean, c, mean, norm->momentum);
        follow(weights, norm->variance, c, variance, norm->momentum);
    }
}

enum { OPSET = 21, ROOM = 128 << 20 };

typedef struct estimate {
    pare_trainer *t;
    pare_model *model; /* the student with the new statistics so far */
    pare_capture *flow;
    int64_t *sample, count;
    float *block; /* weights with the new statistics */
    int done;     /* nodes */
} estimate;

/* --- one node --- */

/* Where a statistic of the node is in the block, or -1. */
static int place_of(const estimate *e, const pare_node *node, int input)
{
    const pare_weights *w = &e->t->weights;
    const pare_value *v = pare_node_in(node, input);
    int place = v && v->data ? pare_weights_place(w, v->name) : -1;
    return place >= w->trained ? place : -1;
}

static bool is_estimated(const estimate *e, const pare_node *node)
{
    return pare_node_reads_statistic(node, 3) && place_of(e, node, 3) >= 0 &&
           place_of(e, node, 4) >= 0;
}

/* x: runs of (rows, channels, inner); sums: of x - mean0 and of its square, (2, channels). */
static void add_runs(const pare_capture_batch *x, const pare_shape *shape, const float *mean0,
                     double *sums)
{
    const int64_t channels = shape->dim[1];
    int64_t inner = 1;
    for (int i = 2; i < shape->rank; i++) inner *= shape->dim[i];
    for (int r = 0; r < x->count; r++)
        for (int64_t row = 0; row < shape->dim[0] * channels; row++) {
            const float *at = x->value[0] + r * x->size[0] + row * inner;
            const int64_t c = row % channels;
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < inner; i++) {
                double d = (double)at[i] - (double)mean0[c];
                sum += d;
                squares += d * d;
            }
            sums[c] += sum;
            sums[channels + c] += squares;
        }
}

/* Into the block and the copy; n elements a channel. */
static pare_status put(estimate *e, const pare_node *node, const double *sums, double n)
{
    const pare_weights *w = &e->t->weights;
    const float *mean0 = w->value + w->item[place_of(e, node, 3)].at;
    float *mean = e->block + w->item[place_of(e, node, 3)].at;
    float *variance = e->block + w->item[place_of(e, node, 4)].at;
    const int64_t channels = node->in[3]->data->count;
    for (int64_t c = 0; c < channels; c++) {
        const double d = sums[c] / n;
        mean[c] = (float)((double)mean0[c] + d);
        variance[c] = (float)fmax(sums[channels + c] / n - d * d, 0);
    }
    for (int k = 3; k <= 4; k++) {
        pare_tensor *fresh;
        const pare_tensor *old = node->in[k]->data;
        PARE_TRY(pare_tensor_new(e->model, &fresh, node->in[k]->name, PARE_f32, old->rank,
                                 old->dims, k == 3 ? mean : variance));
        PARE_TRY(pare_value_set_init(node->in[k], fresh));
    }
    e->done++;
    return PARE_OK;
}

static pare_status sum_up(estimate *e, const pare_node *node, double *sums)
{
    const pare_weights *w = &e->t->weights;
    const float *mean0 = w->value + w->item[place_of(e, node, 3)].at;
    const char *name = node->in[0]->name;
    const bool keep = true;
    PARE_TRY(pare_capture_begin(e->flow, &name, &keep, 1));
    const pare_shape shape = *pare_capture_shape(e->flow, 0);
    const int64_t runs = pare_capture_runs(e->flow), channels = node->in[3]->data->count;
    if (shape.rank < 2 || shape.dim[1] != channels) return PARE_OK;
    for (;;) {
        pare_capture_batch x;
        PARE_TRY(pare_ctx_poll(e->t->ctx));
        PARE_TRY(pare_capture_next(e->flow, &x));
        if (!x.count) break;
        add_runs(&x, &shape, mean0, sums);
    }
    const double n = (double)runs * (double)pare_shape_count(&shape) / (double)channels;
    return n > 0 ? put(e, node, sums, n) : PARE_OK;
}

static pare_status estimate_node(estimate *e, const pare_node *node)
{
    double *sums = pare_alloc(e->t->ctx, 2 * (size_t)node->in[3]->data->count, sizeof *sums);
    if (!sums) return PARE_MEMORY;
    pare_status st = sum_up(e, node, sums);
    pare_free(sums);
    return st;
}

/* --- all of them --- */

/* What was kept and no later node needs goes. */
static pare_status forget(estimate *e, int first)
{
    const pare_graph *g = e->model->graph;
    int count = 0;
    const char **later = pare_alloc(e->t->ctx, (size_t)g->node_count + 1, sizeof *later);
    if (!later) return PARE_MEMORY;
    for (int n = first; n < g->node_count; n++)
        if (is_estimated(e, g->node[n])) later[count++] = g->node[n]->in[0]->name;
    pare_status st = pare_capture_forget(e->flow, later, count);
    pare_free(later);
    return st;
}

static pare_status estimate_all(estimate *e)
{
    const pare_trainer *t = e->t;
    const pare_capture_options options = {.samples = e->sample,
                                          .sample_count = e->count,
                                          .threads = t->options.threads,
                                          .room = ROOM};
    PARE_TRY(pare_graph_sort(e->model->graph));
    PARE_TRY(pare_pass_version_convert(e->model, OPSET));
    PARE_TRY(pare_weights_separate(e->model));
    PARE_TRY(pare_pass_infer(e->model, &(pare_infer_options){.lenient = true}));
    PARE_TRY(pare_capture_new(t->ctx, &e->flow, e->model, t->data, &options));
    for (int n = 0; n < e->model->graph->node_count; n++) {
        if (!is_estimated(e, e->model->graph->node[n])) continue;
        PARE_TRY(estimate_node(e, e->model->graph->node[n]));
        PARE_TRY(forget(e, n + 1));
    }
    return PARE_OK;
}

/* Those that are better on the held-out samples stay. */
static pare_status choose(estimate *e)
{
    pare_trainer *t = e->t;
    pare_weights *w = &t->weights;
    pare_distill_score was, is;
    if (!e->done) return PARE_OK;
    PARE_TRY(pare_trainer_score(t, w->value, &was));
    PARE_TRY(pare_trainer_score(t, e->block, &is));
    const bool better = is.loss < was.loss || (isnan(was.loss) && isfinite(is.loss));
    pare_log(t->ctx, PARE_LOG_INFO,
             "%s: statistics of %d BatchNormalization nodes estimated again: held-out loss %.4g "
             "instead of %.4g; %s",
             t->student->path, e->done, is.loss, was.loss,
             better ? "they are used" : "those of the file are used");
    if (!better) return PARE_OK;
    t->estimated = e->done;
    memcpy(w->value, e->block, w->floats * sizeof *w->value);
    if (w->ema) memcpy(w->ema, w->value, w->floats * sizeof *w->value);
    return PARE_OK;
}

static pare_status open_estimate(estimate *e)
{
    pare_trainer *t = e->t;
    e->sample = pare_alloc(t->ctx, (size_t)e->count, sizeof *e->sample);
    e->block = pare_alloc(t->ctx, t->weights.floats, sizeof *e->block);
    if (!e->sample || !e->block) return PARE_MEMORY;
    pare_data_spread(0, t->sample_count, e->count, e->sample);
    for (int64_t i = 0; i < e->count; i++) e->sample[i] = t->sample[e->sample[i]];
    memcpy(e->block, t->weights.value, t->weights.floats * sizeof *e->block);
    return pare_model_clone(t->ctx, &e->model, t->student);
}

pare_status pare_trainer_estimate(pare_trainer *t)
{
    estimate e = {.t = t};
    e.count = t->options.bn_recalib_samples < t->sample_count ? t->options.bn_recalib_samples
                                                              : t->sample_count;
    e.count = e.count / t->rows * t->rows;
    if (!t->learn.norm_count || !e.count) return PARE_OK;
    pare_status st = open_estimate(&e);
    if (st == PARE_OK) st = estimate_all(&e);
    if (st == PARE_OK) st = choose(&e);
    pare_capture_free(e.flow);
    pare_model_free(e.model);
    pare_free(e.block);
    pare_free(e.sample);
    return st;
}
