/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/tasks.h"

#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/base/version.h"
#include "tools/text.h"
#include "tools/zoo/argv.h"
#include "tools/zoo/work.h"

#include <stdlib.h>
#include <string.h>

int pare_zoo_task_end(const pare_zoo_records *records, const pare_zoo_task *task,
                      pare_outcome *outcome)
{
    for (int i = 0; i < task->node_count; i++) {
        const int node = task->nodes[i];
        *outcome = records->of[node].outcome;
        if (*outcome == PARE_OUTCOME_DONE) continue;
        if (*outcome == PARE_OUTCOME_COUNT) *outcome = PARE_OUTCOME_STOPPED;
        return node;
    }
    return task->nodes[task->node_count - 1];
}

/* A node's command line but for --threads, which only we give: results are the same on any number,
   and who makes the tables may have another one than who ran the node. */
static const char *command_of(pare_arena *arena, const pare_zoo_node *node)
{
    pare_zoo_argv w = {.arena = arena};
    pare_zoo_node plain = {0};
    for (int i = 0; i < node->word_count; i++)
        if (!strcmp(node->words[i], "--threads"))
            i++;
        else
            pare_zoo_argv_add(&w, node->words[i], NULL);
    if (pare_zoo_argv_end(&w, &plain.words, &plain.word_count) != PARE_OK) return NULL;
    return pare_zoo_node_command(arena, &plain);
}

/* The command lines of a task's nodes from the first to the last of `count`, "&&" between them. */
static json_t *commands(pare_arena *arena, const pare_zoo_plan *plan, const int *nodes, int count)
{
    pare_text text = {.ctx = arena->ctx};
    for (int i = 0; i < count; i++) {
        const char *one = command_of(arena, &plan->nodes[nodes[i]]);
        pare_text_add(&text, "%s%s", i ? " && " : "", one ? one : "");
    }
    json_t *json = json_string(text.data ? text.data : "");
    pare_free(text.data);
    return json;
}

/* Bytes of a model with its external data; 0 where there is none. */
static uint64_t bytes_of(pare_ctx *ctx, const char *model)
{
    uint64_t bytes = 0;
    if (pare_onnx_hash(ctx, model, NULL, &bytes) == PARE_OK) return bytes;
    pare_ctx_clear(ctx);
    return 0;
}

static const char *message_of(const pare_zoo_record *r, pare_outcome outcome)
{
    if (outcome == PARE_OUTCOME_DONE) return "";
    if (r->outcome == PARE_OUTCOME_COUNT) return "its turn has not come";
    return r->message ? r->message : "";
}

static json_t *task_json(pare_arena *arena, const pare_zoo *zoo, const pare_zoo_records *records,
                         const pare_zoo_task *task)
{
    const pare_zoo_plan *plan = records->plan;
    pare_outcome outcome;
    const int end = pare_zoo_task_end(records, task, &outcome);
    const bool done = outcome == PARE_OUTCOME_DONE;
    double seconds = 0, cpu_seconds = 0;
    int64_t peak = 0;
    json_t *facts = json_array();
    for (int i = 0; i < task->node_count; i++) {
        const pare_zoo_record *r = &records->of[task->nodes[i]];
        seconds += r->seconds;
        cpu_seconds += r->cpu_seconds;
        if (r->peak_bytes > peak) peak = r->peak_bytes;
        if (r->outcome == PARE_OUTCOME_DONE)
            json_array_append_new(facts, json_string(plan->nodes[task->nodes[i]].facts));
    }
    json_t *message = json_string(message_of(&records->of[end], outcome));
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:o, s:f, s:f, s:I, s:I, s:o}", "model",
        zoo->models[task->model].name, "variant", zoo->variants[task->variant].name, "class",
        pare_outcome_text(outcome), "message", message ? message : json_string("?"), "command",
        done ? commands(arena, plan, task->nodes, task->node_count)
             : commands(arena, plan, &end, 1),
        "seconds", seconds, "cpu_seconds", cpu_seconds, "peak_bytes", (json_int_t)peak, "bytes",
        (json_int_t)(done ? bytes_of(arena->ctx, task->link) : 0), "facts", facts);
}

/* Another run may have made the model again, or someone taken the link away. */
static pare_status link_done(pare_ctx *ctx, const pare_zoo_records *records,
                             const pare_zoo_task *task)
{
    pare_outcome outcome;
    pare_zoo_task_end(records, task, &outcome);
    if (outcome != PARE_OUTCOME_DONE) return PARE_OK;
    const int last = task->nodes[task->node_count - 2];
    return pare_zoo_link(ctx, task->link, records->plan->nodes[last].output);
}

static pare_status add_task(pare_ctx *ctx, json_t *list, const pare_zoo *zoo,
                            const pare_zoo_records *records, const pare_zoo_task *task)
{
    pare_arena arena;
    PARE_TRY(link_done(ctx, records, task));
    pare_arena_init(&arena, ctx);
    json_t *json = task_json(&arena, zoo, records, task);
    pare_arena_free(&arena);
    return json_array_append_new(list, json) ? PARE_FAIL(ctx, MEMORY, "out of memory") : PARE_OK;
}

pare_status pare_zoo_tasks_write(pare_ctx *ctx, const pare_zoo *zoo,
                                 const pare_zoo_records *records, const char *folder)
{
    char path[4096];
    pare_status st = PARE_OK;
    json_t *list = json_array();
    for (int i = 0; st == PARE_OK && i < records->plan->task_count; i++)
        st = add_task(ctx, list, zoo, records, &records->plan->tasks[i]);
    json_t *json = json_pack("{s:i, s:s, s:s, s:O}", "schema", 1, "zoo", zoo->name, "version",
                             PARE_VERSION, "tasks", list);
    snprintf(path, sizeof path, "%s/tasks.json", folder);
    if (st == PARE_OK)
        st = json ? pare_json_write(ctx, json, path) : PARE_FAIL(ctx, MEMORY, "out of memory");
    json_decref(list);
    json_decref(json);
    return st;
}
