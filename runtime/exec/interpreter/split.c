/* SPDX-License-Identifier: Apache-2.0 */
/* Parts a graph where shapes stop being known. What a plan can hold stays in it: nodes
   whose tensors all have known shapes and that need nothing else. All others, control flow and what
   reads their results, become the dynamic model, which an interpreter runs after each run of the
   plan. Tensors that cross over are outputs of the plan and inputs of the dynamic model. Both parts
   are fused after it, with the bodies of the dynamic one. */
#include "runtime/exec/plan.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

#include <string.h>

/* What a node's mark says. A DequantizeLinear that a late node reads is there twice, so that both
   parts have integer operators. */
enum { EARLY, LATE, BOTH };

static bool node_late(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    if (pare_node_has_graphs(node) || (op && op->cpu == pare_cpu_interpreter)) return true;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (v && !v->data && v->producer && v->producer->mark == LATE) return true;
    }
    for (int i = 0; i < node->out_count; i++) {
        const pare_value *v = node->out[i];
        if (v && (!pare_shape_known(&v->shape) || v->dtype == PARE_NOTYPE)) return true;
    }
    return false;
}

/* Does a body return the tensor itself? Its node is a late one. */
static bool returned_by_body(const pare_value *v)
{
    if (!v->is_output) return false;
    for (int i = 0; i < v->graph->out.count; i++)
        if (v->graph->out.item[i] == v) return false;
    return true;
}

static bool read_late(const pare_value *v)
{
    if (returned_by_body(v)) return true;
    for (int i = 0; i < v->user_count; i++)
        if (v->user[i]->graph != v->graph || v->user[i]->mark != EARLY) return true;
    return false;
}

static int nodes_mark(pare_graph *g, bool optimise)
{
    int late = 0;
    for (int i = 0; i < g->node_count; i++) {
        g->node[i]->mark = node_late(g->node[i]) ? LATE : EARLY;
        late += g->node[i]->mark;
    }
    for (int i = g->node_count - 1; optimise && late && i >= 0; i--)
        if (g->node[i]->mark == EARLY && pare_node_is(g->node[i], "DequantizeLinear") &&
            read_late(g->node[i]->out[0]))
            g->node[i]->mark = BOTH;
    return late;
}

static bool made_late(const pare_value *v) { return v->producer && v->producer->mark == LATE; }

/* Is the tensor there before the dynamic part runs, and read by it? */
static bool crosses(const pare_value *v)
{
    if (v->data || (v->producer && v->producer->mark != EARLY)) return false;
    return read_late(v);
}

/* --- the dynamic model: a copy without the early nodes --- */

static pare_status input_add(pare_dynamic *d, const pare_value *early, pare_graph *g)
{
    pare_value *v = pare_graph_find_own(g, early->name);
    v->is_input = true;
    return d ? pare_values_add(g, &g->in, v) : PARE_OK;
}

static pare_status inputs_add(pare_dynamic *d, const pare_graph *early)
{
    pare_graph *g = d->model->graph;
    for (int i = 0; i < g->in.count; i++) g->in.item[i]->is_input = false;
    g->in.count = 0;
    for (int i = 0; i < early->in.count; i++)
        if (crosses(early->in.item[i])) PARE_TRY(input_add(d, early->in.item[i], g));
    for (int n = 0; n < early->node_count; n++)
        for (int i = 0; i < early->node[n]->out_count; i++) {
            const pare_value *v = early->node[n]->out[i];
            if (v && crosses(v)) PARE_TRY(input_add(d, v, g));
        }
    return PARE_OK;
}

static pare_status dynamic_model(pare_plan *plan, pare_dynamic *d)
{
    const pare_graph *early = plan->model->graph;
    PARE_TRY(pare_model_clone(plan->ctx, &d->model, plan->model));
    pare_graph *g = d->model->graph;
    for (int i = 0; i < early->node_count; i++) g->node[i]->mark = early->node[i]->mark;
    for (int i = g->out.count - 1; i >= 0; i--) {
        pare_value *v = g->out.item[i];
        if (made_late(v)) continue;
        v->is_output = false;
    }
    int kept = 0;
    for (int i = 0; i < g->out.count; i++)
        if (g->out.item[i]->is_output) g->out.item[kept++] = g->out.item[i];
    g->out.count = kept;
    PARE_TRY(inputs_add(d, early));
    for (int i = g->node_count - 1; i >= 0; i--)
        if (g->node[i]->mark == EARLY) pare_node_remove(g->node[i]);
    const pare_plan_options *o = &plan->options;
    const bool optimise = !o->reference && !o->keep_all;
    const pare_infer_options fold = {
        .fold = true, .keep_dequantize = optimise, .fold_bodies = true};
    PARE_TRY(pare_pass_infer(d->model, &fold));
    pare_graph_sweep(g);
    pare_plan_options host = *o;
    host.device = NULL; /* the CPU interprets it */
    return optimise ? pare_compile_fuse(d->model, &host) : PARE_OK;
}

/* --- the plan's part --- */

/* Where each output of the model comes from, before lists change. */
static pare_status outputs_note(pare_plan *plan, pare_dynamic *d)
{
    const pare_graph *g = plan->model->graph;
    size_t n = (size_t)g->out.count + 1;
    d->output_count = g->out.count;
    d->late = pare_arena_alloc(&plan->arena, n, sizeof *d->late);
    d->at = pare_arena_alloc(&plan->arena, n, sizeof *d->at);
    if (!d->late || !d->at) return PARE_MEMORY;
    int early = 0, late = 0;
    for (int i = 0; i < g->out.count; i++) {
        d->late[i] = made_late(g->out.item[i]);
        d->at[i] = d->late[i] ? late++ : early++;
    }
    return PARE_OK;
}

static pare_status early_outputs(pare_plan *plan, const pare_dynamic *d)
{
    pare_graph *g = plan->model->graph;
    int kept = 0;
    for (int i = 0; i < g->out.count; i++) {
        pare_value *v = g->out.item[i];
        if (made_late(v))
            v->is_output = false;
        else
            g->out.item[kept++] = v;
    }
    g->out.count = kept;
    const pare_values *in = &d->model->graph->in;
    for (int i = 0; i < in->count; i++) {
        pare_value *v = pare_graph_find_own(g, in->item[i]->name);
        v->is_output = true;
        PARE_TRY(pare_values_add(g, &g->out, v));
    }
    for (int i = g->node_count - 1; i >= 0; i--)
        if (g->node[i]->mark == LATE) pare_node_remove(g->node[i]);
    pare_graph_sweep(g);
    return PARE_OK;
}

pare_status pare_dynamic_split(pare_plan *plan)
{
    const pare_plan_options *o = &plan->options;
    if (!nodes_mark(plan->model->graph, !o->reference && !o->keep_all)) return PARE_OK;
    pare_dynamic *d = pare_arena_alloc(&plan->arena, 1, sizeof *d);
    if (!d) return PARE_MEMORY;
    plan->dynamic = d;
    PARE_TRY(outputs_note(plan, d));
    PARE_TRY(dynamic_model(plan, d));
    d->first_input = 0;
    for (int i = 0; i < d->output_count; i++) d->first_input += !d->late[i];
    return early_outputs(plan, d);
}
