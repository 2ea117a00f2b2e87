/* SPDX-License-Identifier: Apache-2.0 */
/* One stage of a compiled graph as a model of its own (part_model.h). Tensors that a stage only
   passes on are inputs and outputs of it that no node reads. */
#include "runtime/exec/part_model.h"

static pare_status fill(pare_graph *to, const pare_stage_parts *p, pare_arena *arena)
{
    PARE_TRY(pare_part_ends(to, &to->in, p->in, p->in_count));
    for (int i = 0; i < p->node_count; i++) PARE_TRY(pare_part_copy(to, p->node[i], arena));
    return pare_part_ends(to, &to->out, p->out, p->out_count);
}

pare_status pare_stage_replace(pare_plan *plan, const pare_stage_parts *parts)
{
    pare_model *stage = NULL;
    pare_arena arena;
    pare_arena_init(&arena, plan->ctx);
    pare_status st = pare_part_new(&stage, plan->model);
    if (st == PARE_OK) st = fill(stage->graph, parts, &arena);
    if (st == PARE_OK) st = pare_part_take(plan, stage);
    if (st != PARE_OK) pare_model_free(stage);
    pare_arena_free(&arena);
    return st;
}

pare_status pare_stage_cut(pare_plan *plan, int nodes)
{
    const pare_plan_options *o = &plan->options;
    const pare_cut_options how = {.stages = o->stages,
                                  .device = o->device || o->outline,
                                  .weights = o->stage_weights,
                                  .nodes = nodes,
                                  .split = o->split};
    if (plan->dynamic) return pare_part_refuse(plan, "stages");
    plan->as_made = true;
    plan->stage = pare_arena_alloc(&plan->arena, (size_t)o->stages, sizeof *plan->stage);
    return plan->stage ? pare_graph_cut(plan->model->graph, &how, plan->stage) : PARE_MEMORY;
}

static pare_status take(pare_plan *plan, pare_arena *arena)
{
    const pare_graph *g = plan->model->graph;
    const pare_plan_stage *s = &plan->stage[plan->options.stage];
    pare_stage_parts p = {.node = g->node + s->first, .node_count = s->count};
    PARE_TRY(pare_graph_crossing(g, s->first, arena, &p.in, &p.in_count));
    PARE_TRY(pare_graph_crossing(g, s->first + s->count, arena, &p.out, &p.out_count));
    return pare_stage_replace(plan, &p);
}

pare_status pare_stage_take(pare_plan *plan)
{
    pare_arena arena;
    PARE_TRY(pare_stage_cut(plan, 0));
    pare_arena_init(&arena, plan->ctx);
    const pare_status st = take(plan, &arena);
    pare_arena_free(&arena);
    return st;
}
