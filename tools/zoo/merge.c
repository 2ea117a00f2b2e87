/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a zoo: tasks.json, then tables and reports of the facts it names. */
#include "tools/zoo/tables.h"

#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/base/version.h"
#include "tools/facts.h"
#include "tools/report/page.h"
#include "tools/report/report.h"
#include "tools/table.h"
#include "tools/text.h"
#include "tools/zoo/work.h"

#include <stdlib.h>
#include <string.h>

/* --- tasks.json --- */

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
    json_t *json = pare_json_text(text.data ? text.data : "");
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

/* A path that is opened again stays as it is where JSON can hold it. */
static json_t *path_json(const char *path)
{
    json_t *json = json_string(path);
    return json ? json : pare_json_text(path);
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
            json_array_append_new(facts, path_json(plan->nodes[task->nodes[i]].facts));
    }
    return json_pack(
        "{s:o, s:o, s:s, s:o, s:o, s:f, s:f, s:I, s:I, s:o}", "model",
        pare_json_text(zoo->models[task->model].name), "variant",
        pare_json_text(zoo->variants[task->variant].name), "class", pare_outcome_text(outcome),
        "message", pare_json_text(message_of(&records->of[end], outcome)), "command",
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
    json_t *json = json_pack("{s:i, s:o, s:s, s:O}", "schema", 1, "zoo", pare_json_text(zoo->name),
                             "version", PARE_VERSION, "tasks", list);
    snprintf(path, sizeof path, "%s/tasks.json", folder);
    if (st == PARE_OK)
        st = json ? pare_json_write(ctx, json, path) : PARE_FAIL(ctx, MEMORY, "out of memory");
    json_decref(list);
    json_decref(json);
    return st;
}

typedef struct merge {
    pare_arena arena;
    const pare_zoo *zoo;
    const char *folder;
    json_t *tasks;   /* of tasks.json */
    json_t *by_path; /* facts that were read */
    json_t *facts;   /* the same in the order of the tasks, validate's of a task first */
    json_t *summary;
} merge;

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* --- reading --- */

static pare_status read_tasks(merge *m)
{
    pare_ctx *ctx = m->arena.ctx;
    const char *path = pare_arena_printf(&m->arena, "%s/tasks.json", m->folder);
    json_t *json, *task;
    size_t i;
    if (!path) return PARE_MEMORY;
    PARE_TRY(pare_json_read(ctx, &json, path));
    const char *name = text_of(json, "zoo");
    m->tasks = json_incref(json_object_get(json, "tasks"));
    const bool known = json_integer_value(json_object_get(json, "schema")) == 1;
    json_t *own = pare_json_text(m->zoo->name);
    pare_status st = own ? PARE_OK : PARE_FAIL(ctx, MEMORY, "out of memory");
    if (!known || !json_is_array(m->tasks))
        st = PARE_FAIL(ctx, INPUT, "%s: holds no tasks of a zoo that this version knows", path);
    else if (own && strcmp(name, json_string_value(own)) != 0)
        st = PARE_FAIL(ctx, INPUT, "%s: holds tasks of the zoo '%s', expected '%s'", path, name,
                       m->zoo->name);
    json_array_foreach(m->tasks, i, task)
    {
        if (st == PARE_OK &&
            (!*text_of(task, "model") || !*text_of(task, "variant") || !*text_of(task, "class")))
            st = PARE_FAIL(ctx, INPUT, "%s: tasks[%zu] lacks model, variant or class", path, i);
    }
    json_decref(own);
    json_decref(json);
    return st;
}

/* What a page over several networks does not show: it would fill the memory of thousands. */
static void lighten(json_t *facts)
{
    json_t *row;
    size_t i;
    json_object_del(facts, "histograms");
    json_object_del(facts, "ranges");
    json_array_foreach(json_object_get(facts, "smaller"), i, row)
    {
        json_object_del(row, "layers");
        json_object_del(row, "groups");
    }
    json_array_foreach(json_object_get(facts, "sparse"), i, row) json_object_del(row, "layers");
}

/* The facts at a path, read once; steps that tasks share are one file. NULL with the message set.
 */
static json_t *facts_at(merge *m, const char *path)
{
    json_t *facts = json_object_get(m->by_path, path);
    if (facts) return facts;
    if (pare_facts_read(m->arena.ctx, &facts, path) != PARE_OK) return NULL;
    if (m->zoo->model_count > 1) lighten(facts);
    json_object_set_new(m->by_path, path, facts);
    return facts;
}

/* Models of validate's facts go by the names of the zoo. */
static void put_names(json_t *facts, const json_t *task)
{
    json_t *models = json_object_get(facts, "models");
    json_object_set(json_array_get(models, 0), "name", json_object_get(task, "model"));
    json_object_set_new(json_array_get(models, 1), "name",
                        json_sprintf("%s.%s", text_of(task, "model"), text_of(task, "variant")));
}

/* Facts of the steps of a task, validate's last; empty where it is not done. False: one of them
   cannot be read, and the message says why. */
static bool read_chain(merge *m, const json_t *task, json_t *chain)
{
    const json_t *paths = json_object_get(task, "facts");
    json_t *path;
    size_t i;
    if (strcmp(text_of(task, "class"), "done") != 0) return true;
    json_array_foreach((json_t *)paths, i, path)
    {
        json_t *facts = facts_at(m, json_string_value(path) ? json_string_value(path) : "");
        if (!facts || json_array_append(chain, facts)) return false;
    }
    const json_t *last = json_array_get(chain, json_array_size(chain) - 1);
    if (json_array_size(json_object_get(last, "models")) >= 2) return true;
    (void)PARE_FAIL(m->arena.ctx, INPUT, "%s.%s: its facts hold no comparison",
                    text_of(task, "model"), text_of(task, "variant"));
    return false;
}

/* --- the summary --- */

/* validate's facts first, then those of the steps that no task before had. */
static void keep_chain(merge *m, json_t *chain, const json_t *task, json_t *seen)
{
    const json_t *paths = json_object_get(task, "facts");
    const size_t count = json_array_size(chain);
    if (count) {
        put_names(json_array_get(chain, count - 1), task);
        json_array_append(m->facts, json_array_get(chain, count - 1));
    }
    for (size_t i = 0; i + 1 < count; i++) {
        const char *path = json_string_value(json_array_get(paths, i));
        if (json_object_get(seen, path)) continue;
        json_object_set_new(seen, path, json_true());
        json_array_append(m->facts, json_array_get(chain, i));
    }
}

static json_t *row_of(merge *m, const json_t *task, json_t *seen)
{
    json_t *chain = json_array();
    const bool whole = read_chain(m, task, chain);
    json_t *row = pare_zoo_row(&m->zoo->goals, task, whole ? chain : NULL);
    if (whole) {
        keep_chain(m, chain, task, seen);
    } else {
        json_object_set_new(row, "class", json_string("failed"));
        json_object_set_new(row, "message", pare_json_text(m->arena.ctx->message));
        pare_ctx_clear(m->arena.ctx);
    }
    json_decref(chain);
    return row;
}

static pare_status summarize(merge *m)
{
    json_t *rows = json_array(), *seen = json_object(), *task;
    const pare_zoo_goals *goals = &m->zoo->goals;
    size_t i;
    json_array_foreach(m->tasks, i, task) json_array_append_new(rows, row_of(m, task, seen));
    json_decref(seen);
    json_t *best = pare_zoo_best(rows, goals), *ranking = pare_zoo_ranking(rows, goals);
    m->summary =
        json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "command", "zoo",
                  "version", PARE_VERSION, "name", pare_json_text(m->zoo->name), "goals",
                  pare_zoo_goals_json(goals), "tasks", rows, "ranking", ranking, "best", best);
    return m->summary ? PARE_OK : PARE_FAIL(m->arena.ctx, MEMORY, "out of memory");
}

/* Comparisons of what validate measured; models between two steps are no result. */
static json_t *gather(const merge *m)
{
    json_t *comparisons = pare_report_gather(m->facts);
    for (size_t i = json_array_size(comparisons); i-- > 0;)
        if (strcmp(text_of(json_array_get(comparisons, i), "command"), "validate") != 0)
            json_array_remove(comparisons, i);
    return comparisons;
}

/* --- what is written --- */

static const char *path_of(merge *m, const char *name)
{
    return pare_arena_printf(&m->arena, "%s/%s", m->folder, name);
}

static pare_status write_page(merge *m, const json_t *comparisons)
{
    pare_text title = {.ctx = m->arena.ctx}, section = title, failed = title;
    const char *path = path_of(m, "report.html");
    pare_text_html(&title, "Zoo %s", m->zoo->name);
    pare_zoo_section(&section, m->summary);
    pare_zoo_failed_section(&failed, m->summary);
    pare_status st =
        !path || title.failed || section.failed || failed.failed ? PARE_MEMORY : PARE_OK;
    if (st == PARE_OK)
        st = pare_report_write(m->arena.ctx, m->facts, comparisons, PARE_REPORT_FLOOR, path,
                               &(pare_report_lead){title.data, section.data, failed.data});
    pare_free(title.data);
    pare_free(section.data);
    pare_free(failed.data);
    return st;
}

static pare_status write_texts(merge *m, const json_t *comparisons)
{
    pare_text csv = {.ctx = m->arena.ctx}, down = csv;
    const char *results = path_of(m, "results.csv"), *report = path_of(m, "report.md");
    pare_zoo_csv(&csv, m->summary, m->folder);
    pare_text_put(&down, PARE_MARKDOWN, "# Zoo %s\n", m->zoo->name);
    pare_zoo_markdown(&down, &m->arena, m->summary);
    pare_text_add(&down, "\n## Every model\n\n");
    pare_report_markdown_add(&down, &m->arena, comparisons, PARE_REPORT_FLOOR);
    const pare_status st = results && report ? pare_page_write(&csv, results) : PARE_MEMORY;
    if (st == PARE_OK) return pare_page_write(&down, report);
    pare_free(down.data);
    return st;
}

static pare_status write_all(merge *m, const json_t *comparisons, FILE *file)
{
    const char *path = path_of(m, "summary.json");
    PARE_TRY(path ? pare_json_write(m->arena.ctx, m->summary, path) : PARE_MEMORY);
    PARE_TRY(write_texts(m, comparisons));
    PARE_TRY(write_page(m, comparisons));
    if (!file) return PARE_OK;
    pare_report_print(&m->arena, comparisons, file);
    pare_zoo_print(&m->arena, m->summary, file);
    return PARE_OK;
}

pare_status pare_zoo_merge(pare_ctx *ctx, const pare_zoo *zoo, const char *folder, FILE *file)
{
    merge m = {.zoo = zoo, .folder = folder, .by_path = json_object(), .facts = json_array()};
    json_t *comparisons = NULL;
    pare_arena_init(&m.arena, ctx);
    pare_status st = read_tasks(&m);
    if (st == PARE_OK) st = summarize(&m);
    if (st == PARE_OK) comparisons = gather(&m);
    if (st == PARE_OK) st = write_all(&m, comparisons, file);
    json_decref(comparisons);
    json_decref(m.summary);
    json_decref(m.facts);
    json_decref(m.by_path);
    json_decref(m.tasks);
    pare_arena_free(&m.arena);
    return st;
}
