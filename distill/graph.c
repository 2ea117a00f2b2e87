/* SPDX-License-Identifier: Apache-2.0 */
/* Plan: on a copy, weights become inputs before shapes are inferred, so that folding keeps what is
   computed from them; the loss goes after the student's outputs; the gradient pass does the rest.
   What it does not reach becomes constant again. */
#include "distill/graph.h"
#include "runtime/passes/passes.h"

#include <stdio.h>
#include <string.h>

enum { OPSET = 21 };

/* --- a net's inputs and the data --- */

pare_value *pare_inputs_at(const pare_model *model, int i)
{
    const pare_values *in = &model->graph->in;
    for (int k = 0; k < in->count; k++)
        if (!in->item[k]->is_init && i-- == 0) return in->item[k];
    return NULL;
}

int pare_inputs_count(const pare_model *model)
{
    int count = 0;
    while (pare_inputs_at(model, count)) count++;
    return count;
}

int pare_inputs_place(const pare_model *model, const char *name)
{
    const pare_value *v;
    for (int i = 0; (v = pare_inputs_at(model, i)); i++)
        if (!strcmp(v->name, name)) return i;
    return -1;
}

static bool takes(const pare_shape *wanted, const pare_shape *given)
{
    if (wanted->rank < 0) return true;
    if (wanted->rank != given->rank) return false;
    for (int i = 1; i < given->rank; i++)
        if (wanted->dim[i] >= 0 && wanted->dim[i] != given->dim[i]) return false;
    return true;
}

pare_status pare_inputs_set_rows(pare_ctx *ctx, pare_model *model, const pare_data *data,
                                 const int *source, int64_t rows)
{
    pare_value *v;
    char want[256], have[256];
    for (int i = 0; (v = pare_inputs_at(model, i)); i++) {
        pare_shape shape = *pare_data_shape(data, source ? source[i] : i);
        if (!takes(&v->shape, &shape))
            return PARE_FAIL(ctx, INPUT, "%s: input '%s' has shape %s, but a sample is %s",
                             model->path, v->name, pare_shape_text(&v->shape, want, sizeof want),
                             pare_shape_text(&shape, have, sizeof have));
        shape.dim[0] = rows;
        pare_value_set_type(v, v->dtype, &shape);
    }
    return PARE_OK;
}

/* --- weights as inputs --- */

static pare_status open_weight(pare_graph *graph, const pare_weight *w)
{
    pare_value *v = pare_graph_find_own(graph, w->name);
    pare_shape shape = {.rank = w->tensor->rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = w->tensor->dims[i];
    if (v->producer)
        pare_node_remove(v->producer);
    else
        pare_values_remove(&graph->init, v);
    v->data = NULL;
    v->is_init = false;
    v->is_input = true;
    pare_value_set_type(v, PARE_f32, &shape);
    return pare_values_add(graph, &graph->in, v);
}

static pare_status close_weight(pare_graph *graph, const pare_weight *w)
{
    pare_value *v = pare_graph_find_own(graph, w->name);
    if (!v) return PARE_OK;
    pare_values_remove(&graph->in, v);
    v->is_input = false;
    return pare_value_set_init(v, w->tensor);
}

static void clear_outputs(pare_graph *graph, int from)
{
    for (int i = from; i < graph->out.count; i++) graph->out.item[i]->is_output = false;
    graph->out.count = from;
}

static pare_status prepare(pare_train_graph *g, const pare_weights *weights, const pare_data *data,
                           bool norms)
{
    pare_graph *graph = g->model->graph;
    pare_graph_clear_inputs(graph);
    PARE_TRY(pare_inputs_set_rows(g->ctx, g->model, data, NULL, g->rows));
    PARE_TRY(pare_weights_separate(g->model));
    for (int i = 0; i < weights->count; i++) PARE_TRY(open_weight(graph, &weights->item[i]));
    PARE_TRY(pare_graph_sort(graph));
    PARE_TRY(pare_pass_version_convert(g->model, OPSET));
    const int outputs = graph->out.count;
    if (norms) PARE_TRY(pare_pass_train_batchnorm(g->model, &g->norms));
    clear_outputs(graph, outputs); /* the sums come back after the loss */
    return pare_pass_infer(g->model, &(pare_infer_options){.fold = true, .lenient = true});
}

/* --- gradients --- */

/* One line that names up to three of the weights that stay. */
static void warn_frozen(const pare_train_graph *g, const pare_weights *weights, int frozen)
{
    char names[512];
    int shown = 0, at = 0;
    for (int i = 0; i < weights->count && shown < 3; i++) {
        if (g->gradient.gradient[i]) continue;
        at += snprintf(names + at, sizeof names - (size_t)at, "%s'%.120s'", shown ? ", " : "",
                       weights->item[i].name);
        shown++;
    }
    pare_log(g->ctx, PARE_LOG_WARNING,
             "%s: %d weight%s no gradient reaches stay%s as they are: "
             "%s%s",
             g->student->path, frozen, frozen == 1 ? " that" : "s that", frozen == 1 ? "s" : "",
             names, frozen > shown ? " ..." : "");
}

static pare_status choose(pare_train_graph *g, pare_weights *weights)
{
    int frozen = 0, kept = 0;
    bool *keep = pare_alloc(g->ctx, (size_t)weights->count + 1, sizeof *keep);
    if (!keep) return PARE_MEMORY;
    for (int i = 0; i < weights->count; i++) frozen += !(keep[i] = g->gradient.gradient[i]);
    if (frozen && frozen < weights->count) warn_frozen(g, weights, frozen);
    pare_status st = PARE_OK;
    for (int i = 0; i < weights->count && st == PARE_OK; i++)
        if (keep[i])
            g->gradient.gradient[kept++] = g->gradient.gradient[i];
        else
            st = close_weight(g->model->graph, &weights->item[i]);
    if (st == PARE_OK) pare_weights_choose(weights, keep);
    pare_free(keep);
    if (st != PARE_OK || weights->count) return st;
    return PARE_FAIL(g->ctx, INPUT,
                     "%s: there is nothing to train: no f32 weight is reached by a gradient of the "
                     "loss",
                     g->student->path);
}

/* The only outputs beside the loss and gradients. */
static pare_status keep_sums(pare_train_graph *g)
{
    pare_graph *graph = g->model->graph;
    clear_outputs(graph, 0);
    for (int i = 0; i < g->norms.count; i++) {
        pare_value *sums = pare_graph_find_own(graph, g->norms.norm[i].sums);
        sums->is_output = true;
        PARE_TRY(pare_values_add(graph, &graph->out, sums));
    }
    return PARE_OK;
}

static pare_status find_statistics(pare_train_graph *g, pare_weights *weights)
{
    g->norm_count = g->norms.count;
    g->norm = pare_alloc(g->ctx, (size_t)g->norm_count + 1, sizeof *g->norm);
    if (!g->norm) return PARE_MEMORY;
    for (int i = 0; i < g->norm_count; i++) {
        const pare_trained_norm *from = &g->norms.norm[i];
        pare_batchnorm *to = &g->norm[i];
        to->mean0 = from->mean0;
        to->channels = from->mean0->count;
        to->momentum = (double)from->momentum;
        PARE_TRY(pare_weights_add_statistic(weights, g->student, from->mean, &to->mean));
        PARE_TRY(pare_weights_add_statistic(weights, g->student, from->variance, &to->variance));
    }
    return PARE_OK;
}

/* A graph that took another one's place must reach what that reached. */
static pare_status check_reached(const pare_train_graph *g, const pare_weights *weights)
{
    for (int i = 0; i < weights->trained; i++)
        if (!g->gradient.gradient[i])
            return PARE_FAIL(g->ctx, UNSUPPORTED,
                             "%s: weight '%s' has a gradient only while BatchNormalization trains; "
                             "expected the same weights with frozen statistics (--bn train)",
                             g->student->path, weights->item[i].name);
    return PARE_OK;
}

/* The loss times an input, of which gradients are made: they are as much larger, and none of them
   vanishes in f16. */
static pare_status scale_loss(pare_train_graph *g)
{
    pare_graph *graph = g->model->graph;
    const pare_shape scalar = {.rank = 0};
    pare_value *loss = pare_graph_find_own(graph, g->nodes.loss), *scale, *scaled;
    g->loss_scale = pare_graph_fresh_name(graph, "loss_scale");
    if (!g->loss_scale) return PARE_MEMORY;
    PARE_TRY(pare_value_new(graph, &scale, g->loss_scale));
    pare_value_set_type(scale, PARE_f32, &scalar);
    scale->is_input = true;
    PARE_TRY(pare_values_add(graph, &graph->in, scale));
    const char *name = pare_graph_fresh_name(graph, "scaled_loss");
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(graph, &scaled, name));
    pare_value_set_type(scaled, PARE_f32, &loss->shape);
    pare_value *in[] = {loss, scale};
    PARE_TRY(pare_node_new(graph, NULL, graph->node_count, "Mul", "", name, in, 2, &scaled, 1));
    g->nodes.loss = scaled->name;
    return PARE_OK;
}

static pare_status differentiate(pare_train_graph *g, pare_weights *weights, bool later)
{
    const char **by = pare_arena_alloc(&g->model->arena, (size_t)weights->count + 1, sizeof *by);
    if (!by) return PARE_MEMORY;
    for (int i = 0; i < weights->trained; i++) by[i] = weights->item[i].name;
    pare_gradient_options options = {.loss = PARE_LOSS_TENSOR,
                                     .of = g->nodes.loss,
                                     .by = by,
                                     .by_count = weights->trained,
                                     .keep_outputs = true};
    PARE_TRY(keep_sums(g));
    PARE_TRY(pare_pass_gradient(g->model, &g->gradient, &options));
    if (later) return check_reached(g, weights);
    PARE_TRY(choose(g, weights));
    return find_statistics(g, weights);
}

/* Without gradients: the loss and the logits. */
static pare_status set_outputs(pare_train_graph *g)
{
    pare_graph *graph = g->model->graph;
    const char *const name[] = {g->nodes.loss, g->nodes.logits};
    clear_outputs(graph, 0);
    for (int i = 0; i < 2 && name[i]; i++) {
        pare_value *v = pare_graph_find_own(graph, name[i]);
        v->is_output = true;
        PARE_TRY(pare_values_add(graph, &graph->out, v));
    }
    pare_graph_sweep(graph);
    return pare_graph_sort(graph);
}

/* --- the plan --- */

static pare_feed feed_of(const pare_train_graph *g, const pare_weights *weights, const char *name)
{
    const int place = pare_weights_place(weights, name);
    if (place >= 0) return (pare_feed){PARE_FEED_WEIGHT, place};
    for (int k = 0; k < g->nodes.input_count; k++)
        if (g->nodes.input[k] && !strcmp(name, g->nodes.input[k]->name))
            return (pare_feed){PARE_FEED_TEACHER, k};
    if (g->loss_scale && !strcmp(name, g->loss_scale)) return (pare_feed){PARE_FEED_LOSS_SCALE, 0};
    if (g->nodes.labels && !strcmp(name, g->nodes.labels)) return (pare_feed){PARE_FEED_LABELS, 0};
    const int input = pare_inputs_place(g->student, name);
    return (pare_feed){input < 0 ? PARE_FEED_PASSED : PARE_FEED_DATA, input};
}

const void *pare_feed_find(const pare_feeds *from, const pare_feed *feed)
{
    switch (feed->kind) {
    case PARE_FEED_DATA: return from->input[feed->index];
    case PARE_FEED_TEACHER: return from->given[feed->index];
    case PARE_FEED_LABELS: return from->label;
    case PARE_FEED_LOSS_SCALE: return from->loss_scale;
    case PARE_FEED_WEIGHT: return from->values + from->weights->item[feed->index].at;
    case PARE_FEED_PASSED: break;
    }
    return NULL;
}

static int output_place(const pare_train_graph *g, const char *name)
{
    for (int i = 0; name && i < pare_plan_output_count(g->plan); i++)
        if (!strcmp(pare_plan_output(g->plan, i)->name, name)) return i;
    return -1;
}

/* On a device weights are read where they are, and gradients stay; values: the weights' there. */
static pare_status make_plan(const pare_train_graph *g, pare_plan **out,
                             const pare_weights *weights, float *values, pare_plan_options *options)
{
    options->threads = 1;
    options->deterministic = true;
    if (!weights->on_device) return pare_plan_new(g->ctx, out, g->model, NULL, 0, options);
    pare_placed *placed = pare_alloc(g->ctx, 2 * (size_t)weights->count + 1, sizeof *placed);
    if (!placed) return PARE_MEMORY;
    options->device = weights->on_device->device;
    options->placed = placed;
    for (int i = 0; i < weights->count; i++)
        placed[options->placed_count++] =
            (pare_placed){weights->item[i].name, values + weights->item[i].at};
    for (int i = 0; g->learns && i < weights->trained; i++)
        placed[options->placed_count++] = (pare_placed){g->gradient.gradient[i], NULL};
    pare_status st = pare_plan_new(g->ctx, out, g->model, NULL, 0, options);
    pare_free(placed);
    return st;
}

static pare_status find_feeds(const pare_train_graph *g, const pare_weights *weights,
                              const pare_plan *plan, pare_feed **out)
{
    const int count = pare_plan_input_count(plan);
    *out = pare_alloc(g->ctx, (size_t)count + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (int i = 0; i < count; i++) (*out)[i] = feed_of(g, weights, pare_plan_input(plan, i)->name);
    return PARE_OK;
}

/* Once there is a plan. */
static pare_status find_ends(pare_train_graph *g, const pare_weights *weights)
{
    PARE_TRY(find_feeds(g, weights, g->plan, &g->feed));
    g->gradient_at = pare_alloc(g->ctx, (size_t)weights->count + 1, sizeof *g->gradient_at);
    if (!g->gradient_at) return PARE_MEMORY;
    for (int i = 0; g->learns && i < weights->trained; i++)
        g->gradient_at[i] = output_place(g, g->gradient.gradient[i]);
    for (int i = 0; i < g->norm_count; i++)
        g->norm[i].sums = output_place(g, g->norms.norm[i].sums);
    g->loss = output_place(g, g->learns ? g->gradient.loss : g->nodes.loss);
    g->logits = g->learns ? -1 : output_place(g, g->nodes.logits);
    return PARE_OK;
}

pare_status pare_train_graph_plan(pare_train_graph *g, const pare_weights *weights, float *values)
{
    pare_plan_options options = {0};
    PARE_TRY(make_plan(g, &g->plan, weights, values, &options));
    return find_ends(g, weights);
}

/* --- stages --- */

static pare_stage_split split_of(const pare_train_graph *g, const pare_stage_split *split)
{
    pare_stage_split own = *split;
    own.loss = g->learns ? g->gradient.loss : NULL;
    if (!g->learns) own.gradient = NULL;
    return own;
}

static pare_status make_part(const pare_train_graph *g, pare_plan **out,
                             const pare_weights *weights, float *values, const pare_graph_stage *of,
                             int part)
{
    const pare_stage_split own = split_of(g, of->split);
    pare_plan_options options = {.stage = part, .stages = of->stages, .split = &own};
    return make_plan(g, out, weights, values, &options);
}

pare_status pare_train_graph_split(pare_train_graph *g, const pare_stage_split *split, int stages,
                                   bool device)
{
    pare_plan *first;
    const pare_stage_split own = split_of(g, split);
    const pare_plan_options options = {
        .threads = 1, .deterministic = true, .outline = device, .stages = stages, .split = &own};
    PARE_TRY(pare_plan_new(g->ctx, &first, g->model, NULL, 0, &options));
    pare_plan_free(first);
    for (int k = 0; k < split->count; k++)
        if (split->stage[k] < 0)
            return PARE_FAIL(g->ctx, UNSUPPORTED,
                             "%s: weight '%s' is read by no node that the loss needs, so it is of "
                             "no stage",
                             g->student->path, split->weight[k]);
    return PARE_OK;
}

/* Gradients that are constants are made nowhere. */
static pare_status check_gradients(const pare_train_graph *g, const pare_weights *weights)
{
    for (int i = 0; g->learns && i < weights->trained; i++)
        if (g->gradient_at[i] < 0)
            return PARE_FAIL(g->ctx, UNSUPPORTED,
                             "%s: the gradient of weight '%s' is not made in its stage",
                             g->student->path, weights->item[i].name);
    return PARE_OK;
}

pare_status pare_train_graph_plan_stage(pare_train_graph *g, const pare_weights *weights,
                                        float *values, const pare_graph_stage *of)
{
    const bool two = g->learns && of->stage < of->stages - 1;
    if (two) {
        PARE_TRY(make_part(g, &g->before, weights, values, of, of->stage));
        PARE_TRY(find_feeds(g, weights, g->before, &g->feed_before));
    }
    PARE_TRY(make_part(g, &g->plan, weights, values, of,
                       two ? 2 * of->stages - 2 - of->stage : of->stage));
    PARE_TRY(find_ends(g, weights));
    return check_gradients(g, weights);
}

static pare_status append_loss(pare_train_graph *g, pare_teacher *teacher,
                               const pare_graph_options *options)
{
    const pare_graph *graph = g->model->graph;
    const int before = graph->node_count;
    PARE_TRY(pare_loss_append(g->model, teacher, options->loss, &g->nodes));
    g->loss_nodes = graph->node_count - before;
    g->loss_node = pare_arena_memdup(&g->model->arena, graph->node + before,
                                     (size_t)g->loss_nodes * sizeof *g->loss_node);
    return g->loss_node ? PARE_OK : PARE_MEMORY;
}

static pare_status make(pare_train_graph *g, pare_teacher *teacher, pare_weights *weights,
                        const pare_data *data, const pare_graph_options *options)
{
    PARE_TRY(pare_model_clone(g->ctx, &g->model, g->student));
    PARE_TRY(prepare(g, weights, data, options->norms));
    PARE_TRY(append_loss(g, teacher, options));
    const bool half = options->precision == PARE_TRAIN_FP16;
    if (half && options->learn) PARE_TRY(scale_loss(g));
    PARE_TRY(options->learn ? differentiate(g, weights, options->later) : set_outputs(g));
    if (options->precision == PARE_TRAIN_F32) return PARE_OK;
    return pare_precision_store(g->model, half ? PARE_f16 : PARE_bf16, g->loss_node, g->loss_nodes);
}

pare_status pare_train_graph_new(pare_ctx *ctx, pare_train_graph *out, const pare_model *student,
                                 pare_teacher *teacher, pare_weights *weights,
                                 const pare_data *data, const pare_graph_options *options)
{
    *out = (pare_train_graph){
        .ctx = ctx, .student = student, .rows = options->rows, .learns = options->learn};
    return make(out, teacher, weights, data, options);
}

void pare_train_graph_free(pare_train_graph *g)
{
    pare_plan_free(g->plan);
    pare_plan_free(g->before);
    pare_model_free(g->model);
    pare_free(g->feed);
    pare_free(g->feed_before);
    pare_free(g->gradient_at);
    pare_free(g->norm);
    *g = (pare_train_graph){0};
}
