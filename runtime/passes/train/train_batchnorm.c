/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/passes/train/train_batchnorm.h"
#include "runtime/ops/ops.h"

/* The initializer that input i is, itself or handed on by Identity; NULL: it is computed. */
static const pare_tensor *statistic(const pare_node *node, int i)
{
    const pare_value *v = pare_node_in(node, i);
    while (v && v->producer && pare_node_is(v->producer, "Identity")) v = v->producer->in[0];
    bool held = v && v->is_init && v->data && v->graph == node->graph;
    return held && (v->dtype == PARE_f32 || v->dtype == PARE_f64) ? v->data : NULL;
}

/* Outputs but Y are read by no one, and each channel (not each element) has its statistics. */
static bool can_train(const pare_node *node)
{
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] && (node->out[i]->user_count || node->out[i]->is_output)) return false;
    return pare_node_int(node, "spatial", 1) && statistic(node, 3) && statistic(node, 4);
}

/* A new value beside the node's output. */
static pare_status value_beside(const pare_node *node, const char *suffix, pare_value **out)
{
    const char *name =
        pare_arena_printf(&node->graph->model->arena, "%s/%s", node->out[0]->name, suffix);
    if (name) name = pare_graph_fresh_name(node->graph, name);
    return name ? pare_value_new(node->graph, out, name) : PARE_MEMORY;
}

static pare_status convert(pare_node *node, pare_trained_norm *out)
{
    pare_graph *g = node->graph;
    pare_value *own, *sums, *y = node->out[0], *x = node->in[0], *mean = node->in[3];
    pare_value *in[] = {x, node->in[1], node->in[2], NULL, mean};
    const float epsilon = pare_node_float(node, "epsilon", 1e-5f);
    const int at = pare_node_index(node);
    *out = (pare_trained_norm){.mean = mean->name,
                               .variance = node->in[4]->name,
                               .mean0 = statistic(node, 3),
                               .momentum = pare_node_float(node, "momentum", 0.9f)};
    PARE_TRY(value_beside(node, "own_sums", &own));
    PARE_TRY(value_beside(node, "sums", &sums));
    in[3] = sums;
    PARE_TRY(pare_node_new(g, NULL, at, "BatchNormStats", PARE_DOMAIN, own->name,
                           (pare_value *const[]){x, mean}, 2, &own, 1));
    PARE_TRY(
        pare_node_new(g, NULL, at + 1, "SliceSum", PARE_DOMAIN, sums->name, &own, 1, &sums, 1));
    pare_node_remove(node);
    PARE_TRY(pare_node_new(g, &node, at + 2, "BatchNormTrain", PARE_DOMAIN, y->name, in, 5, &y, 1));
    PARE_TRY(pare_node_set_float(node, "epsilon", epsilon));
    out->sums = sums->name;
    sums->is_output = true;
    return pare_values_add(g, &g->out, sums);
}

pare_status pare_pass_train_batchnorm(pare_model *model, pare_trained_norms *out)
{
    pare_graph *g = model->graph;
    char title[256];
    *out = (pare_trained_norms){0};
    out->norm = pare_arena_alloc(&model->arena, (size_t)g->node_count + 1, sizeof *out->norm);
    if (!out->norm) return PARE_MEMORY;
    for (int i = 0; i < g->node_count; i++) {
        pare_node *node = g->node[i];
        if (!pare_node_is(node, "BatchNormalization")) continue;
        if (can_train(node))
            PARE_TRY(convert(node, &out->norm[out->count++]));
        else
            pare_log(model->ctx, PARE_LOG_WARNING,
                     "%s: it keeps its running statistics: they are no initializers, or not one "
                     "per channel",
                     pare_node_title(node, title, sizeof title));
    }
    return PARE_OK;
}

void pare_trained_norm_moments(const double *sums, int64_t channels, int64_t channel, double mean0,
                               double *mean, double *variance)
{
    const double n = sums[2 * channels + channel], d = n > 0 ? sums[channel] / n : 0;
    const double v = n > 0 ? sums[channels + channel] / n - d * d : 0;
    *mean = mean0 + d;
    *variance = v < 0 ? 0 : v;
}
