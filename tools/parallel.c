/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/parallel.h"
#include "formats/onnx.h"
#include "tools/table.h"

#include <string.h>

pare_status pare_parallel_begin(pare_tool *tool, const char *path)
{
    char hash[33];
    uint64_t bytes;
    if (!tool->comm) {
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "one process was started: the model is not cut (mpirun -n N pare %s ...)",
                 tool->command->name);
        return PARE_OK;
    }
    PARE_TRY(pare_onnx_hash(tool->ctx, path, hash, &bytes));
    return pare_comm_same(tool->comm, "model", hash, strlen(hash));
}

/* --- tensor parallelism --- */

/* What a rank gives each of the others in a round of its runs. */
static size_t sent(const pare_plan_sharding *s, int rank, int runs)
{
    return s->shard[rank].sent * (size_t)runs;
}

static pare_status add_facts(pare_tool *tool, const pare_plan_sharding *s,
                             const size_t *activations, int runs)
{
    json_t *shards = json_array();
    for (int r = 0; r < s->shards; r++)
        json_array_append_new(shards, json_pack("{s:I, s:I, s:I}", "weight_bytes",
                                                (json_int_t)s->shard[r].weights, "activation_bytes",
                                                (json_int_t)activations[r] * runs, "sent_bytes",
                                                (json_int_t)sent(s, r, runs)));
    json_t *facts = json_pack("{s:i, s:i, s:I, s:I, s:i, s:o}", "products", s->products, "cut",
                              s->cut, "weight_bytes", (json_int_t)s->weights, "cut_weight_bytes",
                              (json_int_t)s->cut_weights, "runs", runs, "shards", shards);
    return facts && !json_object_set_new(tool->facts, "tensor", facts) ? PARE_OK : PARE_MEMORY;
}

static void print_shards(pare_tool *tool, const pare_plan_sharding *s, const size_t *activations,
                         int runs)
{
    char weights[32], text[32], all[32];
    pare_table table;
    pare_table_init(&table, &tool->arena, "rrrr");
    pare_table_add(&table, "rank|weights|activations|sent");
    for (int r = 0; r < s->shards; r++)
        pare_table_add(&table, "%d|%s|%s|%s", r,
                       pare_bytes_text((double)s->shard[r].weights, weights, sizeof weights),
                       pare_bytes_text((double)(activations[r] * (size_t)runs), text, sizeof text),
                       pare_bytes_text((double)sent(s, r, runs), all, sizeof all));
    pare_table_print(&table, stderr);
    pare_print(stderr,
               "%d of %d products with constant weights are cut, %s of %s of weights; %d run%s at "
               "a time\n",
               s->cut, s->products,
               pare_bytes_text((double)s->cut_weights, weights, sizeof weights),
               pare_bytes_text((double)s->weights, all, sizeof all), runs, runs == 1 ? "" : "s");
}

pare_status pare_shards_show(pare_tool *tool, const pare_plan_sharding *s, size_t activations,
                             int runs)
{
    size_t *all = pare_arena_alloc(&tool->arena, (size_t)s->shards, sizeof *all);
    PARE_TRY(pare_comm_settle(tool->comm, all ? PARE_OK : PARE_MEMORY));
    PARE_TRY(pare_comm_gather(tool->comm, &activations, sizeof activations, all));
    if (!pare_tool_leads(tool)) return PARE_OK;
    if (!tool->common->quiet) print_shards(tool, s, all, runs);
    return add_facts(tool, s, all, runs);
}
