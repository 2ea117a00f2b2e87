/* SPDX-License-Identifier: Apache-2.0 */
/* Bias correction, layer after layer: the mean that a weighted node's output has in the quantized
   model, whose earlier layers are corrected already, less the mean that it has in the float model,
   is taken from the bias (Nagel and others 2019, "Data-Free Quantization through Weight
   Equalization and Bias Correction", arXiv 1906.04721, section 4.2, measured on samples). So what
   rounded and clipped inputs shift is made good, too, not only what rounded weights do.

   Equal means are not least errors: a correction stays only where the error at the model's outputs,
   on samples that the means are not of, falls by it and by more than chance. Where an operator
   takes a bias and has none, it gets one in the same way. */
#include "calib/channels.h"
#include "quant/internal.h"
#include "quant/output_error.h"

#include <math.h>

/* Means are compared on the same samples: what they are off by is known from few. */
enum { SAMPLES = 128, LEAST_SAMPLES = 16, JUDGES = 64, KEEP_ROOM = 1 << 28 };
static const double DEVIATIONS = 1;     /* that a fall of the error must have */
static const double MOST_MEANS = 1e12;  /* multiply-adds of the passes that take them */
static const double MOST_TRIALS = 2e12; /* of the trials of all layers */

struct pare_quant_biases {
    pare_model *floats; /* a copy */
};

/* The bias of a quantized node, which it alone reads. */
typedef struct place {
    pare_value *value;       /* f32, or s32 with a DequantizeLinear after it; NULL: there is none,
                                though the operator takes one */
    const pare_tensor *step; /* of s32: one, or one a channel; NULL: f32 */
    float x_scale;           /* of f32: the step is this times the weight's scale */
    const pare_tensor *w_scale;
} place;

/* A weighted node of the main graph that can be corrected. */
typedef struct layer {
    const pare_quant_job *job;
    const char *x, *y; /* tensors of the quantized model */
    place at;
    const float *divided; /* (channels) what equalization divided y by; or NULL */
    pare_channels *exact; /* of y in the float model */
} layer;

typedef struct correction {
    pare_quant_scheme *s;
    const pare_quant_search *on;
    int64_t *sample, samples; /* that means are of */
    layer *item;
    int count;
    pare_output_error outputs;
    pare_capture *means;   /* of the samples, through the quantized model */
    pare_capture *trials;  /* of those that judge */
    double macs, largest;  /* of a run: multiply-adds, bytes of its largest tensor */
    double *error, *trial; /* (outputs.runs) at the outputs, by now and of a trial */
} correction;

pare_status pare_quant_biases_open(pare_quant_scheme *s)
{
    pare_quant_biases *b = s->biases = pare_arena_alloc(s->arena, 1, sizeof *b);
    if (!b) return PARE_MEMORY;
    return pare_model_clone(s->ctx, &b->floats, s->model);
}

void pare_quant_biases_close(pare_quant_scheme *s)
{
    if (s->biases) pare_model_free(s->biases->floats);
}

/* --- which layers --- */

static const pare_tensor *scale_of(const pare_value *dequantized)
{
    const pare_node *dq = dequantized ? dequantized->producer : NULL;
    if (!dq || !pare_node_is(dq, "DequantizeLinear") || !dq->in[1]) return NULL;
    return dq->in[1]->data;
}

static bool find_place(const pare_quant_scheme *s, const pare_quant_job *job, place *out)
{
    const pare_value *w = pare_node_in(job->node, job->part.w);
    pare_value *v = job->part.bias >= 0 ? pare_node_in(job->node, job->part.bias) : NULL;
    const pare_node *sum = v ? NULL : pare_quant_bias_node(job->node);
    if (sum) v = sum->in[sum->in[0]->data == NULL];
    *out = (place){.value = v, .x_scale = s->point[job->x].scale, .w_scale = scale_of(w)};
    if (!out->w_scale || out->w_scale->dtype != PARE_f32) return false;
    if (!v) return job->part.takes >= 0 && w->shape.rank != 3; /* whose channels are no last axis */
    if (!v->data) {
        out->step = scale_of(v);
        if (!out->step) return false;
        out->value = v->producer->in[0];
    }
    v = out->value;
    return v->data && v->user_count == 1 && !v->is_output &&
           v->data->dtype == (out->step ? PARE_s32 : PARE_f32);
}

static bool find_layer(const correction *c, const pare_quant_job *job, layer *out)
{
    const pare_quant_scheme *s = c->s;
    const pare_graph *floats = s->biases->floats->graph;
    const pare_value *x = s->point[job->x].value, *y = job->node->out[0];
    *out = (layer){.job = job, .x = x->name, .y = y->name, .divided = job->divided};
    const pare_value *same = pare_graph_find_own(floats, y->name);
    return job->part.constant && !job->node->graph->parent && same && same->producer &&
           x->dtype == PARE_f32 && !x->data && find_place(s, job, &out->at);
}

static pare_status list_layers(correction *c)
{
    const pare_quant_scheme *s = c->s;
    pare_ptr_map at;
    pare_ptr_map_init(&at, s->arena);
    c->item = pare_arena_alloc(s->arena, (size_t)s->job_count + 1, sizeof *c->item);
    if (!c->item) return PARE_MEMORY;
    for (int j = 0; j < s->job_count; j++) PARE_TRY(pare_ptr_map_put(&at, s->job[j].node, j));
    for (int n = 0; n < s->graph->node_count; n++) {
        const int j = pare_ptr_map_find(&at, s->graph->node[n]);
        if (j >= 0 && find_layer(c, &s->job[j], &c->item[c->count])) c->count++;
    }
    return PARE_OK;
}

/* --- means --- */

/* all_at_once: many tensors are shown, so few runs are side by side. */
static pare_status flow_open(const correction *c, const pare_model *model, bool all_at_once,
                             pare_capture **out)
{
    const pare_capture_options options = {.samples = c->sample,
                                          .sample_count = c->samples,
                                          .threads = c->on->threads,
                                          .device = c->on->device,
                                          .room = KEEP_ROOM,
                                          .batch_runs = all_at_once ? 1 : 0};
    return pare_capture_new(c->s->ctx, out, model, c->on->data, &options);
}

/* Adds runs of tensor k. */
static pare_status add_runs(const correction *c, pare_capture *flow,
                            const pare_capture_batch *batch, int k, pare_channels *to)
{
    const pare_shape *shape = pare_capture_shape(flow, k);
    pare_view view;
    pare_view_set(&view, PARE_f32, shape, false);
    for (int r = 0; r < batch->count; r++) {
        view.data = (float *)batch->value[k] + r * batch->size[k];
        PARE_TRY(pare_channels_add(c->s->ctx, to, &view, shape->rank ? shape->dim[0] : 1));
    }
    return PARE_OK;
}

/* Spread over the samples that do not judge; over all where none is left. */
static pare_status choose_samples(correction *c)
{
    const double time = MOST_MEANS / (2 * c->macs + 1), room = KEEP_ROOM / (2 * c->largest + 1);
    const double most = fmax(LEAST_SAMPLES, fmin(SAMPLES, fmin(time, room)));
    int64_t unit, count = 0;
    PARE_TRY(pare_data_run_samples(c->s->ctx, c->on->data, c->s->biases->floats, &unit));
    if (unit < 1) unit = 1;
    int64_t *rest =
        pare_arena_alloc(c->s->arena, (size_t)c->on->sample_count + 1, sizeof *c->sample);
    if (!rest) return PARE_MEMORY;
    for (int64_t i = 0; i < c->on->sample_count; i++)
        if (!pare_output_error_has(&c->outputs, c->on->samples[i]))
            rest[count++] = c->on->samples[i];
    if (count < unit) {
        count = c->on->sample_count;
        memcpy(rest, c->on->samples, (size_t)count * sizeof *rest);
    }
    c->samples = ((int64_t)most + unit - 1) / unit * unit; /* whole batches of a model with one */
    if (c->samples > count) c->samples = count;
    for (int64_t i = 0; i < c->samples; i++) rest[i] = rest[i * count / c->samples];
    c->sample = rest;
    return PARE_OK;
}

/* Of all layers, in one pass of the float model. */
static pare_status exact_means(correction *c)
{
    pare_capture *flow = NULL;
    pare_capture_batch batch = {0};
    const char **name = pare_arena_alloc(c->s->arena, (size_t)c->count + 1, sizeof *name);
    if (!name) return PARE_MEMORY;
    for (int i = 0; i < c->count; i++) {
        name[i] = c->item[i].y;
        PARE_TRY(pare_channels_new(c->s->ctx, &c->item[i].exact));
    }
    pare_status st = flow_open(c, c->s->biases->floats, true, &flow);
    if (st == PARE_OK) st = pare_capture_begin(flow, name, NULL, c->count);
    do {
        if (st == PARE_OK) st = pare_capture_next(flow, &batch);
        for (int i = 0; st == PARE_OK && batch.count && i < c->count; i++)
            st = add_runs(c, flow, &batch, i, c->item[i].exact);
    } while (st == PARE_OK && batch.count);
    pare_capture_free(flow);
    return st;
}

static pare_status mean_now(const correction *c, const layer *l, pare_channels *to)
{
    const char *const names[] = {l->x, l->y};
    const bool keep[] = {true, false};
    pare_capture_batch batch;
    PARE_TRY(pare_capture_begin(c->means, names, keep, 2));
    do {
        PARE_TRY(pare_capture_next(c->means, &batch));
        if (batch.count) PARE_TRY(add_runs(c, c->means, &batch, 1, to));
    } while (batch.count);
    return PARE_OK;
}

/* --- one layer --- */

static double element(const pare_tensor *t, int64_t c)
{
    return (double)pare_quant_number(t->data, t->count == 1 ? 0 : c);
}

/* Zeros where there is no bias. */
static pare_status new_bias(const correction *c, const layer *l, pare_tensor **out)
{
    const pare_value *v = l->at.value;
    const int64_t channels[] = {l->exact->count};
    const char *name = pare_arena_printf(c->s->arena, "%s_bias", l->y);
    float *zeros = pare_arena_alloc(c->s->arena, (size_t)l->exact->count + 1, sizeof *zeros);
    if (!name || !zeros) return PARE_MEMORY;
    if (!v) return pare_tensor_new(c->s->model, out, name, PARE_f32, 1, channels, zeros);
    const pare_tensor *was = v->data;
    return pare_tensor_new(c->s->model, out, was->name, was->dtype, was->rank, was->dims,
                           was->data);
}

/* The bias less the shift, on the grid that the integer sum has. */
static pare_status shifted(const correction *c, const layer *l, const pare_channels *now,
                           const pare_tensor **out)
{
    const place *at = &l->at;
    pare_tensor *made;
    PARE_TRY(new_bias(c, l, &made));
    for (int64_t i = 0; i < made->count; i++) {
        const int64_t channel = at->w_scale->count == 1 ? 0 : i;
        const double step =
            at->step ? element(at->step, i) /* else as round_float has it */
                     : (double)(at->x_scale * pare_quant_number(at->w_scale->data, channel));
        const double exact = pare_channels_mean(l->exact, i) / (l->divided ? l->divided[i] : 1);
        const double shift = pare_channels_mean(now, i) - exact;
        if (at->step) {
            int32_t *q = (int32_t *)(uintptr_t)made->data + i;
            *q = (int32_t)fmax(INT32_MIN, fmin(INT32_MAX, rint((double)*q - shift / step)));
        } else {
            float *b = (float *)(uintptr_t)made->data + i;
            *b = (float)(rint(((double)*b - shift) / step) * step);
        }
    }
    *out = made;
    return PARE_OK;
}

/* What the node's bias becomes; NULL: it has none again. */
static pare_status put_bias(const correction *c, const layer *l, const pare_tensor *bias)
{
    pare_node *node = l->job->node;
    const int at = l->job->part.takes;
    if (l->at.value) return pare_value_set_init(l->at.value, bias);
    if (bias) return pare_quant_add_bias(c->s, l->job, bias, l->at.w_scale);
    pare_node *dq = node->in[at]->producer;
    PARE_TRY(pare_node_set_in(node, at, NULL));
    if (at == node->in_count - 1) node->in_count--;
    if (dq) pare_node_remove(dq);
    c->s->facts->dq_nodes -= dq != NULL;
    return PARE_OK;
}

static bool fits(const layer *l, const pare_channels *now)
{
    const pare_value *w = pare_node_in(l->job->node, l->job->part.w);
    const int64_t n = l->at.value ? l->at.value->data->count : w->shape.dim[l->job->part.axis];
    const int64_t steps = l->at.step ? l->at.step->count : l->at.w_scale->count;
    return pare_channels_known(l->exact) && pare_channels_known(now) && now->count == n &&
           l->exact->count == n && (steps == 1 || steps == n);
}

static pare_status correct(correction *c, const layer *l)
{
    pare_quant_scheme *s = c->s;
    const pare_tensor *was = l->at.value ? l->at.value->data : NULL, *made;
    pare_channels *now;
    bool worth;
    PARE_TRY(pare_channels_new(s->ctx, &now));
    pare_status st = mean_now(c, l, now);
    const bool ok = st == PARE_OK && fits(l, now);
    if (ok) st = shifted(c, l, now, &made);
    pare_channels_free(now);
    if (st != PARE_OK || !ok) return st;
    PARE_TRY(put_bias(c, l, made));
    st = pare_output_error_onward(&c->outputs, c->trials, l->x, c->error, c->trial, &worth);
    if (st != PARE_OK || !worth ||
        !pare_output_error_falls(c->error, c->trial, c->outputs.runs, DEVIATIONS)) {
        PARE_TRY(put_bias(c, l, was));
        return st;
    }
    memcpy(c->error, c->trial, (size_t)c->outputs.runs * sizeof *c->error);
    s->shifts = pare_hash_sum(s->shifts, pare_hash_bytes(made->data, made->bytes));
    s->corrected++;
    return PARE_OK;
}

/* What the layers from `first` on will begin at. */
static pare_status forget(const correction *c, int first)
{
    const pare_values *out = &c->s->graph->out;
    const size_t most = (size_t)(c->count - first + out->count);
    const char **name = pare_alloc(c->s->ctx, most + 1, sizeof *name);
    int count = 0;
    if (!name) return PARE_MEMORY;
    for (int i = first; i < c->count; i++) name[count++] = c->item[i].y;
    pare_status st = pare_capture_forget(c->means, name, count);
    for (int i = 0; i < out->count; i++) name[count++] = out->item[i]->name;
    if (st == PARE_OK) st = pare_capture_forget(c->trials, name, count);
    pare_free(name);
    return st;
}

static pare_status correct_all(correction *c)
{
    PARE_TRY(flow_open(c, c->s->model, false, &c->means));
    PARE_TRY(pare_output_error_flow(&c->outputs, c->s->model, 0, PARE_OUTPUT_ROOM, &c->trials));
    for (int i = 0; i < c->count; i++) {
        PARE_TRY(correct(c, &c->item[i]));
        PARE_TRY(forget(c, i + 1));
        if (c->on->progress) c->on->progress(c->on->progress_user, i + 1, c->count);
        PARE_TRY(pare_ctx_poll(c->s->ctx));
    }
    return PARE_OK;
}

/* --- all --- */

/* Opens what measures errors. False in *worth: too long, or there is nothing to measure. */
static pare_status open_outputs(correction *c, bool *worth)
{
    pare_model *sized = NULL;
    double values = 0;
    pare_status st = pare_quant_run_shapes(c->s->ctx, c->s->biases->floats, c->on->data, &sized);
    for (int n = 0; st == PARE_OK && n < sized->graph->node_count; n++)
        c->macs += fmax(0, pare_node_macs(sized->graph->node[n]));
    for (int i = 0; st == PARE_OK && i < sized->graph->out.count; i++)
        values += pare_quant_values(sized->graph->out.item[i]);
    if (st == PARE_OK) c->largest = pare_capture_sizes_of(sized, 1).largest;
    pare_model_free(sized);
    PARE_TRY(st);
    const int64_t half = (c->on->sample_count + 1) / 2;
    PARE_TRY(pare_output_error_open(c->s->ctx, &c->outputs, c->s->biases->floats, c->on, c->macs,
                                    values, c->count + 2, half < JUDGES ? half : JUDGES));
    *worth = c->outputs.count && c->macs * (double)c->outputs.samples * c->count <= MOST_TRIALS;
    return PARE_OK;
}

static pare_status run(correction *c)
{
    bool worth;
    double error;
    PARE_TRY(list_layers(c));
    if (!c->count) return PARE_OK;
    PARE_TRY(open_outputs(c, &worth));
    if (!worth) return PARE_OK;
    PARE_TRY(pare_output_error_keep(&c->outputs, c->s->biases->floats));
    c->error = pare_arena_alloc(c->s->arena, (size_t)c->outputs.runs, sizeof *c->error);
    c->trial = pare_arena_alloc(c->s->arena, (size_t)c->outputs.runs, sizeof *c->trial);
    if (!c->error || !c->trial) return PARE_MEMORY;
    PARE_TRY(pare_output_error_runs(&c->outputs, c->s->model, &error, c->error));
    if (!(error > 0)) return PARE_OK; /* nothing to mend, or NaN */
    PARE_TRY(choose_samples(c));
    PARE_TRY(exact_means(c));
    return correct_all(c);
}

pare_status pare_quant_correct_biases(pare_quant_scheme *s)
{
    correction c = {.s = s, .on = s->options->correct};
    const pare_log_fn log = s->ctx->log;
    s->ctx->log = NULL; /* runs of trials would say everything many times */
    const pare_status st = run(&c);
    s->ctx->log = log;
    pare_capture_free(c.means);
    pare_capture_free(c.trials);
    for (int i = 0; i < c.count; i++) pare_channels_free(c.item[i].exact);
    pare_output_error_close(&c.outputs);
    if (st == PARE_UNSUPPORTED || st == PARE_INPUT) {
        pare_log(s->ctx, PARE_LOG_WARNING, "biases are not corrected layer after layer: %s",
                 s->ctx->message);
        pare_ctx_clear(s->ctx);
    } else if (st != PARE_OK)
        return st;
    return pare_graph_sweep_all(s->graph); /* biases that were tried */
}
