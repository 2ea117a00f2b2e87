/* SPDX-License-Identifier: Apache-2.0 */
/* One stage of a compiled graph as a model of its own (part_model.h). Tensors that a stage only
   passes on are inputs and outputs of it that no node reads. */
#include "runtime/exec/part_model.h"

static pare_status fill(pare_graph *to, const pare_graph *from, const pare_plan_stage *s,
                        pare_arena *arena)
{
    pare_value **list;
    int count;
    PARE_TRY(pare_graph_crossing(from, s->first, arena, &list, &count));
    PARE_TRY(pare_part_ends(to, &to->in, list, count));
    for (int i = s->first; i < s->first + s->count; i++)
        PARE_TRY(pare_part_copy(to, from->node[i], arena));
    PARE_TRY(pare_graph_crossing(from, s->first + s->count, arena, &list, &count));
    return pare_part_ends(to, &to->out, list, count);
}

pare_status pare_stage_take(pare_plan *plan)
{
    const int count = plan->options.stages;
    pare_model *stage = NULL;
    pare_arena arena;
    if (plan->dynamic) return pare_part_refuse(plan, "stages");
    plan->as_made = true;
    plan->stage = pare_arena_alloc(&plan->arena, (size_t)count, sizeof *plan->stage);
    if (!plan->stage) return PARE_MEMORY;
    const pare_cut_options how = {.stages = count,
                                  .device = plan->options.device || plan->options.outline,
                                  .weights = plan->options.stage_weights};
    PARE_TRY(pare_graph_cut(plan->model->graph, &how, plan->stage));
    pare_arena_init(&arena, plan->ctx);
    pare_status st = pare_part_new(&stage, plan->model);
    if (st == PARE_OK)
        st = fill(stage->graph, plan->model->graph, &plan->stage[plan->options.stage], &arena);
    if (st == PARE_OK) st = pare_part_take(plan, stage);
    if (st != PARE_OK) pare_model_free(stage);
    pare_arena_free(&arena);
    return st;
}
