/* SPDX-License-Identifier: Apache-2.0 */
/* Weights beside INT8 activations, each rounded by what it sees once the layers before it are
   written (round_layer.h), on scales that are set. Activations are not rounded meanwhile. Where
   equalization divides channels, the model that is written already has them divided; targets, of
   the float model, are divided here. */
#include "quant/internal.h"
#include "quant/rounding/round.h"

struct pare_quant_inputs {
    pare_quant_flows flows;
};

pare_status pare_quant_inputs_open(pare_quant_scheme *s)
{
    s->inputs = pare_arena_alloc(s->arena, 1, sizeof *s->inputs);
    if (!s->inputs) return PARE_MEMORY;
    return pare_quant_flows_open(s->ctx, &s->inputs->flows, s->model, s->options->inputs);
}

void pare_quant_inputs_close(pare_quant_scheme *s)
{
    if (s->inputs) pare_quant_flows_close(&s->inputs->flows);
}

/* --- targets --- */

/* As if output o were divided by divided[o]. */
static void divide(pare_moments *m, const float *divided)
{
    for (int64_t o = 0; o < m->outputs; o++) {
        for (int64_t k = 0; k < m->columns; k++) m->xt[k * m->outputs + o] /= (double)divided[o];
        m->t[o] /= (double)divided[o];
    }
}

/* Targets without the node's own bias, as the float model adds it. first: the group's output. */
static void without_bias(pare_moments *m, const pare_quant_job *job, const pare_node *node,
                         int64_t first)
{
    const pare_value *v = job->part.bias >= 0 ? pare_node_in(node, job->part.bias) : NULL;
    for (int64_t o = 0; v && o < m->outputs; o++) {
        const double b =
            (double)job->part.beta *
            (double)pare_quant_number(v->data->data, v->data->count > 1 ? first + o : 0);
        for (int64_t k = 0; k < m->columns; k++) m->xt[k * m->outputs + o] -= b * m->x[k];
        m->t[o] -= b * m->rows;
    }
}

/* Is the node's own bias known, one number or one of each output? */
static bool bias_is_plain(const pare_quant_job *job, const pare_node *node, int64_t outputs)
{
    const pare_value *v = job->part.bias >= 0 ? pare_node_in(node, job->part.bias) : NULL;
    if (!v) return true;
    return v->data && v->dtype == PARE_f32 && (v->data->count == 1 || v->data->count == outputs);
}

/* --- one group of outputs --- */

typedef struct rounding {
    const pare_columns *columns;
    const pare_tensor *w;
    bool outputs_first;
    int bits;
    const float *scale;
    int64_t scales;
    int8_t *level; /* of the whole weight */
    double *shift; /* (outputs), or NULL */
} rounding;

/* By how much the mean of output o is off. */
static double shift_of(const pare_moments *m, int64_t o, const int8_t *level, float scale)
{
    double sum = -m->t[o];
    for (int64_t k = 0; k < m->columns; k++) sum += (double)level[k] * (double)scale * m->x[k];
    return m->rows > 0 ? sum / m->rows : 0;
}

static void read_group(const rounding *r, int64_t group, double *w, float *scale)
{
    const int64_t d = r->columns->columns, n = r->columns->outputs;
    for (int64_t o = 0; o < n; o++) {
        scale[o] = r->scale[r->scales == 1 ? 0 : group * n + o];
        for (int64_t k = 0; k < d; k++)
            w[o * d + k] = (double)pare_quant_number(
                r->w->data, pare_columns_weight(r->columns, r->outputs_first, group, o, k));
    }
}

static void write_group(const rounding *r, int64_t group, const pare_moments *m,
                        const int8_t *level, const float *scale)
{
    const int64_t d = m->columns, n = m->outputs;
    for (int64_t o = 0; o < n; o++) {
        if (r->shift) r->shift[group * n + o] = shift_of(m, o, level + o * d, scale[o]);
        for (int64_t k = 0; k < d; k++)
            r->level[pare_columns_weight(r->columns, r->outputs_first, group, o, k)] =
                level[o * d + k];
    }
}

static pare_status round_group(pare_ctx *ctx, const rounding *r, int64_t group,
                               const pare_quant_layer *layer)
{
    const pare_moments *m = layer->moments;
    const size_t all = (size_t)(m->columns * m->outputs);
    const pare_quant_grid grid = {.low = pare_quant_weight_low(r->bits),
                                  .high = pare_quant_weight_high(r->bits),
                                  .set = true};
    pare_quant_rounder *rounder = NULL;
    double *w = pare_alloc(ctx, all, sizeof *w);
    int8_t *level = pare_alloc(ctx, all, 1);
    float *scale = pare_alloc(ctx, (size_t)m->outputs, sizeof *scale);
    pare_status st = w && level && scale ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        read_group(r, group, w, scale);
        st = pare_quant_rounder_new(ctx, &rounder, layer);
    }
    if (st == PARE_OK) st = pare_quant_round_layer(rounder, w, m->outputs, &grid, level, scale);
    if (st == PARE_OK) write_group(r, group, m, level, scale);
    pare_quant_rounder_free(rounder);
    pare_free(w);
    pare_free(level);
    pare_free(scale);
    return st;
}

static pare_status round_groups(pare_quant_scheme *s, const pare_quant_job *job,
                                const pare_node *was, const rounding *r,
                                const pare_observer *observer)
{
    const float *divided = job->divided;
    for (int64_t g = 0; g < r->columns->groups; g++) {
        const int64_t first = g * r->columns->outputs;
        pare_moments *m = pare_observer_moments(observer, 0, g);
        const pare_quant_layer layer = {.moments = m,
                                        .centred = r->shift != NULL,
                                        .iterations = pare_quant_iterations(s->options),
                                        .threads = s->inputs->flows.threads};
        without_bias(m, job, was, first);
        if (divided) divide(m, divided + first);
        PARE_TRY(round_group(s->ctx, r, g, &layer));
    }
    return PARE_OK;
}

/* --- the walk through the layers --- */

/* What the jobs after this one will ask for. */
static pare_status forget(pare_quant_scheme *s, int job)
{
    const int left = s->job_count - job - 1;
    const char **names = pare_alloc(s->ctx, 2 * (size_t)left + 1, sizeof *names);
    if (!names) return PARE_MEMORY;
    for (int i = 0; i < left; i++) {
        const pare_quant_job *later = &s->job[job + 1 + i];
        names[i] = later->node->in[later->part.x]->name;
        names[left + i] = later->node->out[0]->name;
    }
    pare_status st = pare_capture_forget(s->inputs->flows.now, names, left);
    if (st == PARE_OK) st = pare_capture_forget(s->inputs->flows.before, names + left, left);
    pare_free(names);
    return st;
}

pare_status pare_quant_round_by_inputs(pare_quant_scheme *s, int j, const pare_tensor *w, int bits,
                                       const float *scale, int64_t scales, int8_t *level,
                                       double *shift, bool *done)
{
    const pare_quant_job *job = &s->job[j];
    const pare_node *node = job->node;
    pare_quant_flows *flows = &s->inputs->flows;
    const pare_value *was = pare_graph_find_own(flows->floats->graph, node->out[0]->name);
    pare_columns columns;
    pare_observer *observer = NULL;
    *done = false;
    if (node->graph->parent || !was || !was->producer) return PARE_OK;
    if (!bias_is_plain(job, was->producer, w->dims[job->part.axis])) return PARE_OK;
    pare_status st = pare_quant_observe(s->ctx, flows, node, node->in[job->part.x]->name, was->name,
                                        &columns, &observer, done);
    const rounding r = {&columns, w, job->part.axis == 0, bits, scale, scales, level, shift};
    if (st == PARE_OK && *done) st = round_groups(s, job, was->producer, &r, observer);
    pare_observer_free(observer);
    if (st == PARE_OK) st = forget(s, j);
    return st == PARE_OK ? st
                         : pare_fail_prefix(s->ctx, st, "%s: node '%s'", s->model->path,
                                            pare_quant_node_name(node));
}
