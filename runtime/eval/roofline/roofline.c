/* SPDX-License-Identifier: Apache-2.0 */
/* A model's steps: the outline of its plan for a GPU, node by node. */
#include "runtime/eval/roofline/internal.h"

struct pare_roofline {
    pare_ctx *ctx;
    pare_arena arena;
    pare_plan *plan;
    pare_roofline_step *step;
    const pare_node **node; /* (count) */
    int count;
    double seconds, saved;
};

static pare_status step_add(pare_roofline *r, const pare_roofline_maker *m, const pare_node *node)
{
    if (pare_op_is_alias(node) || (!m->late && pare_parts_all_joined(m->parts, node)))
        return PARE_OK;
    pare_roofline_step *s = &r->step[r->count];
    PARE_TRY(pare_ctx_poll(r->ctx));
    PARE_TRY(pare_step_predict(m, node, s));
    r->node[r->count++] = node;
    return PARE_OK;
}

static pare_status steps_make(pare_roofline *r, const pare_gpu_spec *spec)
{
    pare_arena scratch;
    pare_parts parts;
    const pare_graph *g = pare_plan_graph(r->plan);
    const int late = pare_plan_step_count(r->plan); /* an outline has no steps but these */
    pare_roofline_maker m = {r->ctx, spec, pare_sass_counts, &scratch, &parts, false};
    r->step = pare_arena_alloc(&r->arena, (size_t)(g->node_count + late) + 1, sizeof *r->step);
    r->node = pare_arena_alloc(&r->arena, (size_t)(g->node_count + late) + 1, sizeof *r->node);
    if (!r->step || !r->node) return PARE_MEMORY;
    pare_arena_init(&scratch, r->ctx);
    pare_status st = pare_roofline_parts(r->ctx, &parts, &scratch, g);
    for (int i = 0; st == PARE_OK && i < g->node_count; i++) st = step_add(r, &m, g->node[i]);
    m.late = true;
    for (int i = 0; st == PARE_OK && i < late; i++)
        st = step_add(r, &m, pare_plan_node(r->plan, i));
    if (st == PARE_OK) st = pare_branches_mark(&m, r->node, r->step, r->count);
    pare_arena_free(&scratch);
    if (st != PARE_OK) return st;
    pare_overlaps_apply(r->step, r->count);
    for (int i = 0; i < r->count; i++) r->seconds += r->step[i].seconds;
    r->saved = pare_branches_save(spec, r->step, r->count);
    return st;
}

pare_status pare_roofline_new(pare_ctx *ctx, pare_roofline **out, const pare_model *model,
                              const pare_input_shape *shapes, int shape_count,
                              const pare_gpu_spec *spec)
{
    const pare_plan_options options = {.threads = 1, .outline = true};
    pare_roofline *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    r->ctx = ctx;
    pare_arena_init(&r->arena, ctx);
    pare_status st = pare_plan_new(ctx, &r->plan, model, shapes, shape_count, &options);
    if (st == PARE_OK) st = steps_make(r, spec);
    if (st == PARE_OK)
        *out = r;
    else
        pare_roofline_free(r);
    return st;
}

void pare_roofline_free(pare_roofline *r)
{
    if (!r) return;
    pare_plan_free(r->plan);
    pare_arena_free(&r->arena);
    pare_free(r);
}

int pare_roofline_count(const pare_roofline *r) { return r->count; }
const pare_roofline_step *pare_roofline_at(const pare_roofline *r, int i) { return &r->step[i]; }
const pare_node *pare_roofline_node(const pare_roofline *r, int i) { return r->node[i]; }
double pare_roofline_seconds(const pare_roofline *r) { return r->seconds - r->saved; }
double pare_roofline_saved(const pare_roofline *r) { return r->saved; }
const pare_plan *pare_roofline_plan(const pare_roofline *r) { return r->plan; }
