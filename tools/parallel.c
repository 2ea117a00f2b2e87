/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/parallel.h"
#include "formats/onnx.h"
#include "tools/stages.h"
#include "tools/table.h"

#include <string.h>

void pare_parallel_begin(pare_tool *tool)
{
    if (!tool->comm)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "one process was started: the model is not cut (mpirun -n N pare %s ...)",
                 tool->command->name);
}

pare_status pare_parallel_same(pare_tool *tool, const char *path)
{
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_onnx_hash(tool->ctx, path, hash, &bytes));
    return pare_comm_same(tool->comm, "model", hash, strlen(hash));
}

/* --- tensor parallelism --- */

/* What a rank gives each of the others in a round of its runs. */
static size_t sent(const pare_shared_plan *plan, int rank)
{
    return plan->tensor->shard[rank].sent * (size_t)plan->runs;
}

static size_t activations(const pare_shared_plan *plan, int rank)
{
    return plan->activations[rank] * (size_t)plan->runs;
}

static json_t *shards_json(const pare_shared_plan *plan)
{
    const pare_plan_sharding *s = plan->tensor;
    json_t *shards = json_array();
    for (int r = 0; r < s->shards; r++)
        json_array_append_new(shards, json_pack("{s:I, s:I, s:I}", "weight_bytes",
                                                (json_int_t)s->shard[r].weights, "activation_bytes",
                                                (json_int_t)activations(plan, r), "sent_bytes",
                                                (json_int_t)sent(plan, r)));
    return json_pack("{s:i, s:i, s:I, s:I, s:i, s:o}", "products", s->products, "cut", s->cut,
                     "weight_bytes", (json_int_t)s->weights, "cut_weight_bytes",
                     (json_int_t)s->cut_weights, "runs", plan->runs, "shards", shards);
}

static void print_shards(pare_tool *tool, const pare_shared_plan *plan)
{
    char weights[32], text[32], all[32];
    const pare_plan_sharding *s = plan->tensor;
    pare_table table;
    pare_table_init(&table, &tool->arena, "rrrr");
    pare_table_add(&table, "rank|weights|activations|sent");
    for (int r = 0; r < s->shards; r++)
        pare_table_add(&table, "%d|%s|%s|%s", r,
                       pare_bytes_text((double)s->shard[r].weights, weights, sizeof weights),
                       pare_bytes_text((double)activations(plan, r), text, sizeof text),
                       pare_bytes_text((double)sent(plan, r), all, sizeof all));
    pare_table_print(&table, stderr);
    pare_print(stderr,
               "%d of %d products with constant weights are cut, %s of %s of weights; %d run%s at "
               "a time\n",
               s->cut, s->products,
               pare_bytes_text((double)s->cut_weights, weights, sizeof weights),
               pare_bytes_text((double)s->weights, all, sizeof all), plan->runs,
               plan->runs == 1 ? "" : "s");
}

/* --- both --- */

void pare_parallel_print(pare_tool *tool, const pare_shared_plan *plan)
{
    if (!pare_tool_leads(tool) || tool->common->quiet) return;
    if (plan->pipeline) pare_stages_print(tool, plan->pipeline);
    if (plan->tensor) print_shards(tool, plan);
}

pare_status pare_parallel_facts(json_t *facts, const pare_shared_plan *plan)
{
    json_t *json = NULL;
    if (!plan->pipeline && !plan->tensor) return PARE_OK;
    if (plan->tensor)
        json = shards_json(plan);
    else if (plan->pipeline->activations)
        json = pare_stages_json(plan->pipeline);
    else
        return PARE_OK; /* rank 0 has the facts */
    return !json || json_object_set_new(facts, plan->tensor ? "tensor" : "pipeline", json)
               ? PARE_MEMORY
               : PARE_OK;
}
