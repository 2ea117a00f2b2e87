/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/stages.h"
#include "tools/table.h"

#include <math.h>

/* Bytes of a microbatch, which is several runs. */
static size_t of_microbatch(const pare_pipeline_plan *plan, size_t bytes)
{
    return bytes * (size_t)plan->runs;
}

static double all_costs(const pare_pipeline_plan *plan)
{
    double sum = 0;
    for (int i = 0; i < plan->stages; i++) sum += plan->stage[i].cost;
    return sum;
}

static json_t *stage_json(const pare_pipeline_plan *plan, int i)
{
    const pare_plan_stage *s = &plan->stage[i];
    return json_pack("{s:i, s:I, s:I, s:I, s:f, s:f}", "nodes", s->steps, "weight_bytes",
                     (json_int_t)s->weights, "activation_bytes",
                     (json_int_t)of_microbatch(plan, plan->activations[i]), "sent_bytes",
                     (json_int_t)of_microbatch(plan, s->sent), "macs", s->macs * plan->runs,
                     "share", s->cost / fmax(all_costs(plan), 1));
}

json_t *pare_stages_list(const pare_pipeline_plan *plan)
{
    json_t *stages = json_array();
    for (int i = 0; i < plan->stages; i++) json_array_append_new(stages, stage_json(plan, i));
    return stages;
}

json_t *pare_stages_json(const pare_pipeline_plan *plan)
{
    return json_pack("{s:I, s:i, s:f, s:f, s:o}", "microbatches", (json_int_t)plan->microbatches,
                     "microbatch", plan->samples, "bubble", plan->bubble, "bubble_equal",
                     plan->bubble_equal, "stages", pare_stages_list(plan));
}

void pare_stages_print_table(pare_tool *tool, const pare_pipeline_plan *plan)
{
    pare_table table;
    const double all = fmax(all_costs(plan), 1);
    pare_table_init(&table, &tool->arena, "rrrrrr");
    pare_table_add(&table, "stage|nodes|weights|activations|sent|cost");
    for (int i = 0; i < plan->stages; i++) {
        char weights[32], activations[32], sent[32];
        const pare_plan_stage *s = &plan->stage[i];
        pare_table_add(&table, "%d|%d|%s|%s|%s|%.1f %%", i, s->steps,
                       pare_bytes_text((double)s->weights, weights, sizeof weights),
                       pare_bytes_text((double)of_microbatch(plan, plan->activations[i]),
                                       activations, sizeof activations),
                       pare_bytes_text((double)of_microbatch(plan, s->sent), sent, sizeof sent),
                       100 * s->cost / all);
    }
    pare_table_print(&table, stderr);
}

void pare_stages_print(pare_tool *tool, const pare_pipeline_plan *plan)
{
    pare_stages_print_table(tool, plan);
    pare_print(stderr,
               "%lld microbatch%s of %d sample%s; stages wait for %.1f %% of the time, equal ones "
               "would for %.1f %%\n",
               (long long)plan->microbatches, plan->microbatches == 1 ? "" : "es", plan->samples,
               plan->samples == 1 ? "" : "s", 100 * plan->bubble, 100 * plan->bubble_equal);
}
