/* SPDX-License-Identifier: Apache-2.0 */
/* From a model as it was read to a graph the kernels can run: newest operator forms, concrete
   shapes, constants folded, nodes fused, memory order chosen. */
#include "runtime/exec/plan.h"
#include "runtime/passes/passes.h"

#include <string.h>

enum { RUNTIME_OPSET = 21 }; /* kernels read the forms of this opset or newer */

const pare_shape *pare_input_shape_find(const pare_input_shape *shapes, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(shapes[i].name, name)) return &shapes[i].shape;
    return NULL;
}

static pare_status input_shape_set(pare_plan *plan, pare_value *v, const pare_shape *given)
{
    char text[256], wanted[256];
    const char *path = plan->model->path;
    if (given) {
        bool fits = v->shape.rank < 0 || v->shape.rank == given->rank;
        for (int i = 0; fits && i < v->shape.rank; i++)
            fits = v->shape.dim[i] < 0 || v->shape.dim[i] == given->dim[i];
        if (!fits)
            return PARE_FAIL(plan->ctx, INPUT, "%s: input '%s' has shape %s, but was given %s",
                             path, v->name, pare_shape_text(&v->shape, wanted, sizeof wanted),
                             pare_shape_text(given, text, sizeof text));
        v->shape = *given;
    }
    if (!pare_shape_known(&v->shape))
        return PARE_FAIL(plan->ctx, INPUT,
                         "%s: input '%s' has shape %s: its unknown sizes must be given", path,
                         v->name, pare_shape_text(&v->shape, text, sizeof text));
    if (v->dtype == PARE_NOTYPE)
        return PARE_FAIL(plan->ctx, UNSUPPORTED, "%s: input '%s' is not a tensor", path, v->name);
    if (pare_shape_count(&v->shape) < 0)
        return PARE_FAIL(plan->ctx, INPUT, "%s: input '%s': the size of %s overflows", path,
                         v->name, pare_shape_text(&v->shape, text, sizeof text));
    return PARE_OK;
}

static pare_status inputs_set(pare_plan *plan, const pare_input_shape *shapes, int count)
{
    pare_graph *g = plan->model->graph;
    for (int i = 0; i < count; i++) {
        const pare_value *v = pare_graph_find_own(g, shapes[i].name);
        if (!v || !v->is_input)
            return PARE_FAIL(plan->ctx, INPUT, "%s: the model has no input '%s'", plan->model->path,
                             shapes[i].name);
    }
    plan->input = pare_arena_alloc(&plan->arena, (size_t)g->in.count + 1, sizeof *plan->input);
    if (!plan->input) return PARE_MEMORY;
    for (int i = 0; i < g->in.count; i++) {
        pare_value *v = g->in.item[i];
        if (v->is_init) continue;
        PARE_TRY(input_shape_set(plan, v, pare_input_shape_find(shapes, count, v->name)));
        plan->input[plan->input_count++] = v;
    }
    return PARE_OK;
}

static pare_status kept_exist(pare_plan *plan)
{
    for (int i = 0; i < plan->options.keep_count; i++)
        if (!pare_graph_find_any(plan->model->graph, plan->options.keep[i]))
            return PARE_FAIL(plan->ctx, INPUT, "%s: there is no tensor '%s' to observe",
                             plan->model->path, plan->options.keep[i]);
    return PARE_OK;
}

pare_status pare_compile_fuse(pare_model *m, const pare_plan_options *o)
{
    const pare_infer_options first = {.fold = true, .keep_dequantize = true, .fold_bodies = true};
    const pare_infer_options again = {.fold = true, .fold_bodies = true};
    bool changed;
    PARE_TRY(pare_pass_deduplicate(m, o->keep, o->keep_count, &changed));
    if (!o->keep_count) PARE_TRY(pare_pass_fold_batchnorm(m));
    PARE_TRY(pare_pass_fuse(m, o->keep, o->keep_count));
    PARE_TRY(pare_pass_infer(m, &first));
    /* integer forms of what was fused */
    const bool device = o->device || o->outline;
    PARE_TRY(pare_pass_fold_qdq(m, device ? PARE_KEEP_ALL : PARE_KEEP_INTEGERS));
    if (device && !o->keep_count) PARE_TRY(pare_pass_narrow_products(m));
    if (device && !o->keep_count) PARE_TRY(pare_pass_fold_casts(m));
    return pare_pass_infer(m, &again);
}

/* What only kernels of a device have. */
static pare_status fuse_for_device(pare_model *m, const pare_plan_options *o)
{
    const pare_infer_options again = {.fold = true, .fold_bodies = true};
    PARE_TRY(pare_pass_fuse_focus(m, o->keep, o->keep_count));
    PARE_TRY(pare_pass_infer(m, &again));
    PARE_TRY(pare_pass_fuse_pool(m, o->keep, o->keep_count));
    PARE_TRY(pare_pass_fuse_q_attention(m, o->keep, o->keep_count));
    return pare_pass_fuse_depthwise(m, o->keep, o->keep_count);
}

pare_status pare_compile(pare_plan *plan, const pare_input_shape *shapes, int count)
{
    pare_model *m = plan->model;
    const pare_plan_options *o = &plan->options;
    bool expanded = false;
    bool optimise = !o->reference && !o->keep_all;
    pare_infer_options first = {.fold = true, .keep_dequantize = optimise, .fold_bodies = true};
    pare_infer_options again = {.fold = true};
    PARE_TRY(pare_graph_sort(m->graph));
    PARE_TRY(inputs_set(plan, shapes, count));
    PARE_TRY(pare_pass_version_convert(m, RUNTIME_OPSET));
    PARE_TRY(pare_pass_infer(m, &first));
    if (!o->reference) PARE_TRY(pare_pass_expand_einsum(m, &expanded));
    if (expanded) PARE_TRY(pare_pass_infer(m, &first));
    PARE_TRY(kept_exist(plan));
    PARE_TRY(pare_pass_inline_control(m, &first, o->keep, o->keep_count));
    pare_graph_sweep(m->graph);
    PARE_TRY(pare_dynamic_split(plan));
    if (optimise) {
        PARE_TRY(pare_compile_fuse(m, o));
        /* a device's Concats are made in place (parts.h) */
        if (!o->deterministic && !o->device && !o->outline)
            PARE_TRY(pare_pass_distribute_concat(m, o->keep, o->keep_count));
        if (o->device || o->outline) PARE_TRY(fuse_for_device(m, o));
    }
    if (!o->reference) {
        PARE_TRY(pare_pass_layout(m));
        PARE_TRY(pare_pass_infer(m, &again));
    }
    PARE_TRY(pare_graph_sort(m->graph));
    pare_graph_sweep(m->graph);
    return PARE_OK;
}
