/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of 4 bits beside INT8 activations: each rounded by GPTQ (round.h) on what the float model
   feeds it, on scales that are set. Equalization divides channels of the inputs: their second
   moments are divided, too. */
#include "quant/internal.h"
#include "quant/round.h"
#include "runtime/exec/exec.h"

struct pare_quant_inputs {
    const pare_quant_search *asked;
    pare_model *floats; /* a copy */
    pare_capture *flow;
    int threads;
};

pare_status pare_quant_inputs_open(pare_quant_scheme *s)
{
    const pare_quant_search *asked = s->options->inputs;
    pare_quant_inputs *in = s->inputs = pare_arena_alloc(s->arena, 1, sizeof *in);
    if (!in) return PARE_MEMORY;
    *in = (pare_quant_inputs){.asked = asked, .threads = asked->threads};
    if (in->threads < 1) in->threads = pare_cpu_cores();
    const pare_capture_options options = {.samples = asked->samples,
                                          .sample_count = asked->sample_count,
                                          .threads = in->threads,
                                          .device = asked->device,
                                          .room = PARE_QUANT_KEEP_ROOM};
    PARE_TRY(pare_model_clone(s->ctx, &in->floats, s->model));
    return pare_capture_new(s->ctx, &in->flow, in->floats, asked->data, &options);
}

void pare_quant_inputs_close(pare_quant_scheme *s)
{
    if (!s->inputs) return;
    pare_capture_free(s->inputs->flow);
    pare_model_free(s->inputs->floats);
}

/* As if channel c of the input were divided by divided[c]. */
static void divide(pare_moments *m, const pare_columns *columns, int64_t group,
                   const float *divided)
{
    const float *by = divided + group * columns->channels;
    for (int64_t i = 0; i < m->columns; i++)
        for (int64_t j = i; j < m->columns; j++)
            m->xx[i * m->columns + j] /=
                (double)by[i % columns->channels] * (double)by[j % columns->channels];
}

/* One group of outputs. */
typedef struct rounding {
    const pare_columns *columns;
    const pare_tensor *w;
    bool outputs_first;
    const float *scale;
    int64_t scales;
    int8_t *level; /* of the whole weight */
} rounding;

static pare_status round_group(pare_ctx *ctx, const rounding *r, int64_t group,
                               const pare_moments *m, int threads)
{
    const int64_t d = m->columns, n = r->columns->outputs;
    const pare_quant_grid grid = {pare_quant_weight_low(4), pare_quant_weight_high(4), 0, true};
    pare_quant_gptq *gptq = NULL;
    double *w = pare_alloc(ctx, (size_t)(n * d), sizeof *w);
    int8_t *level = pare_alloc(ctx, (size_t)(n * d), 1);
    float *scale = pare_alloc(ctx, (size_t)n, sizeof *scale);
    pare_status st = w && level && scale ? PARE_OK : PARE_MEMORY;
    for (int64_t o = 0; st == PARE_OK && o < n; o++) {
        scale[o] = r->scale[r->scales == 1 ? 0 : group * n + o];
        for (int64_t k = 0; k < d; k++)
            w[o * d + k] = (double)pare_quant_number(
                r->w->data, pare_columns_weight(r->columns, r->outputs_first, group, o, k));
    }
    if (st == PARE_OK) st = pare_quant_gptq_new(ctx, &gptq, m, threads);
    if (st == PARE_OK) st = pare_quant_round_gptq(ctx, gptq, w, n, &grid, level, scale, threads);
    for (int64_t o = 0; st == PARE_OK && o < n; o++)
        for (int64_t k = 0; k < d; k++)
            r->level[pare_columns_weight(r->columns, r->outputs_first, group, o, k)] =
                level[o * d + k];
    pare_quant_gptq_free(gptq);
    pare_free(w);
    pare_free(level);
    pare_free(scale);
    return st;
}

pare_status pare_quant_round_by_inputs(pare_quant_scheme *s, const pare_quant_job *job,
                                       const pare_tensor *w, const float *scale, int64_t scales,
                                       int8_t *level, bool *done)
{
    pare_quant_inputs *in = s->inputs;
    const pare_value *y = pare_graph_find_own(in->floats->graph, job->node->out[0]->name);
    const float *divided = s->point[job->x].divided;
    pare_columns columns;
    pare_observer *observer = NULL;
    *done = false;
    if (job->node->graph->parent || !y || !y->producer) return PARE_OK;
    pare_status st = pare_quant_observe(s->ctx, in->flow, job->node->in[job->part.x]->name,
                                        y->producer, in->threads, &columns, &observer, done);
    const rounding r = {&columns, w, job->part.axis == 0, scale, scales, level};
    for (int64_t g = 0; st == PARE_OK && *done && g < columns.groups; g++) {
        pare_moments *m = pare_observer_moments(observer, 0, g);
        if (divided) divide(m, &columns, g, divided);
        st = round_group(s->ctx, &r, g, m, in->threads);
    }
    pare_observer_free(observer);
    return st == PARE_OK ? st
                         : pare_fail_prefix(s->ctx, st, "%s: node '%s'", s->model->path,
                                            pare_quant_node_name(job->node));
}
