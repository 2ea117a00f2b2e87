/* SPDX-License-Identifier: Apache-2.0 */
/* What a zoo becomes: goals, the summary, its tables and page, the difference of two. */
#ifndef PARE_TOOLS_ZOO_TABLES_H
#define PARE_TOOLS_ZOO_TABLES_H

#include "tools/options.h"
#include "tools/report/report.h"
#include "tools/text.h"
#include "tools/zoo/file.h"
#include "tools/zoo/journal.h"

/* --- did a variant reach what the zoo wants of it? --- */

/* Those that are set, as the zoo's file has them. */
json_t *pare_zoo_goals_json(const pare_zoo_goals *goals);

/* What was missed, [] where nothing was: [{goal, wanted, got, by}]; by: how far got is on the wrong
   side, above zero; got and by null: it was not measured. row: of pare_zoo_row. chain: the facts of
   the steps that made the variant; a pruning that could not reach its own target counts as goal
   "prune --macs" (--params, --size, --latency), in parts of the model before it. */
json_t *pare_zoo_goals_missed(const pare_zoo_goals *goals, const json_t *row, const json_t *chain);

/* "drop 0.83 points, at most 0.5 wanted (0.33 over)" of one that was missed; returns text. */
const char *pare_zoo_goal_text(const json_t *missed, char *text, size_t size);

/* --- what became of a zoo, as one JSON object: summary.json, from which all its views are made,
   and which --diff reads again --- */

/* The summary's row of a task: what tasks.json says of it, and of one that is done what validate
   measured: model and variant as words, file, hash, bytes, smaller (times), top1, drop, sqnr_db,
   latency_ms, speed_up ... with their intervals. A goal that was missed makes its class "goal
   missed", with the goals and a message. task: of tasks.json. chain: the facts of its steps,
   validate's last; NULL or empty: it is not done. */
json_t *pare_zoo_row(const pare_zoo_goals *goals, const json_t *task, const json_t *chain);

/* [{model, best: variant or null}] in the order of rows, whose best ones get best: true. A row is
   good where it reaches all goals and, where none says how much may be lost, does not surely miss
   the report's floor. The best of a model is the fastest of the good ones; of those whose speed-up
   intervals reach the fastest's the one that drops least, then the smallest. Without latencies it
   is the smallest, then the one that drops least. */
json_t *pare_zoo_best(json_t *rows, const pare_zoo_goals *goals);

/* The variants over all models, the best first: by how many rows are good, then by size, then by
   mean drop, then in the order of the zoo's file: no time decides. rows: with best already marked.
   Each {variant, tasks, done, met, mean_drop, worst_drop, worst_model, mean_sqnr_db, smaller,
   speed_up, best, seconds, peak_bytes}. done: measured; met: good; smaller and speed_up: geometric
   means; best: of how many models it is the best; seconds: mean; peak_bytes: the highest. */
json_t *pare_zoo_ranking(const json_t *rows, const pare_zoo_goals *goals);

/* Reads a folder's summary.json. PARE_INPUT: there is none, it is cut, or of another schema. */
PARE_NODISCARD pare_status pare_zoo_summary_read(pare_ctx *ctx, json_t **out, const char *folder);

/* Views of a zoo's summary. summary: of pare_zoo_summary_read. */

/* Ranking, then what failed, as text. */
void pare_zoo_print(pare_arena *arena, const json_t *summary, FILE *file);
/* The same as Markdown, with the best variant of each model. */
void pare_zoo_markdown(pare_text *t, pare_arena *arena, const json_t *summary);
/* The same as two parts of the report's page: ranking and best, which come before the verdicts, and
   what failed. */
void pare_zoo_section(pare_text *t, const json_t *summary);
void pare_zoo_failed_section(pare_text *t, const json_t *summary);
/* A row for each task, in the plan's order; what a stopwatch or a meter decides is in the last
   columns, from latency_ms on. folder: of the zoo; files in it are named from there. */
void pare_zoo_csv(pare_text *t, const json_t *summary, const char *folder);

/* "12 of 15 tasks reach the goals; 1 crash, 2 goal missed" into text; returns text. */
const char *pare_zoo_outcome(const json_t *summary, char *text, size_t size);

/* --- what changed from one run of a zoo to another --- */

/* Two summaries (of pare_zoo_summary_read), task by task: {regressions, improvements: [{model,
   variant, what, text}], only_before, only_after: [{model, variant}], equal, failing, notes:
   [text]}. what: "class" (a failure now, or no more), "goal", "drop" and "sqnr_db" (outside the
   interval it had), "latency_ms" (the intervals do not touch), "bytes". Findings are in that
   order, those of one kind in that of the tasks. equal: tasks without a finding; failing: those of
   them that fail in both. Accuracy on other data, latency on another device and goals that were
   changed are not compared, which notes say. NULL: out of memory. */
json_t *pare_zoo_compare(const json_t *before, const json_t *after);

/* Regressions first; before and after: the folders' names. */
void pare_zoo_diff_print(pare_arena *arena, const json_t *diff, const char *before,
                         const char *after, FILE *file);

/* pare zoo --diff: prints, puts {before, after, diff} into the tool's facts. PARE_INPUT where there
   are regressions (the facts of --json are written all the same), or a folder holds no whole
   summary of this schema. */
PARE_NODISCARD pare_status pare_zoo_diff(pare_tool *tool, const char *before, const char *after);

/* --- the end of a zoo: what its tasks found becomes tables and one report --- */

/* The node that ended a task, or its last; *outcome: done, what that node came to, or stopped where
   the task's turn has not come. */
int pare_zoo_task_end(const pare_zoo_records *records, const pare_zoo_task *task,
                      pare_outcome *outcome);

/* {schema, zoo, version, tasks: [{model, variant, class, message, command, seconds, cpu_seconds,
   peak_bytes, bytes, facts: [paths]}]} in the plan's order, and the links of those that are done.
   command: of the node that failed; of a done task all of them. seconds and cpu_seconds are sums,
   peak_bytes the most; bytes: of the variant's file. */
PARE_NODISCARD pare_status pare_zoo_tasks_write(pare_ctx *ctx, const pare_zoo *zoo,
                                                const pare_zoo_records *records,
                                                const char *folder);

/* Reads tasks.json of the zoo's folder and the facts it names, and writes summary.json,
   results.csv, report.md and report.html beside it. They depend on the facts alone, not on the
   order in which they came to be. The tables go to file, NULL: nowhere: what pare report prints,
   then the ranking, then what failed. Facts that cannot be read make their task "failed" and no
   other. PARE_INPUT: tasks.json is no list of tasks of this zoo. */
PARE_NODISCARD pare_status pare_zoo_merge(pare_ctx *ctx, const pare_zoo *zoo, const char *folder,
                                          FILE *file);
#endif
