/* SPDX-License-Identifier: Apache-2.0 */
/* What commands found as one list of comparisons, and its views: text tables, CSV, Markdown, and
   one self-contained HTML file. They are made from the facts (facts.schema.json) only. */
#ifndef PARE_TOOLS_REPORT_REPORT_H
#define PARE_TOOLS_REPORT_REPORT_H

#include "runtime/base/arena.h"
#include "tools/table.h"
#include "tools/text.h"

#include <jansson.h>
#include <stdio.h>

enum { PARE_REPORT_FLOOR = 99 }; /* percent of the first model's top-1 that should be kept */

/* --- comparisons --- */

/* facts: an array of objects of facts.schema.json. Returns an array of comparisons, each {command,
   version, data, device, models}: those that validate and prune measured, and one for what another
   command says of models that none of these holds; what other commands say of a model that is there
   (bench its latency, inspect its parameters, profile its steps) goes to it, known by its hash,
   else by its file. What validate compared with one model on the same data and device by the same
   version, told by several facts, is one comparison; drifted: true where the first model's
   latencies are more than 5 % apart. Nothing measured is overwritten. Every model gets what was
   judged: made
   ("original", "calibrated only", "pruned or tuned") and, where it is on the front of accuracy
   against latency among the models on the same data, front: true. */
json_t *pare_report_gather(const json_t *facts);

/* Is there a comparison of several facts in which the first model's latency was not the same? */
bool pare_report_drifted(const json_t *comparisons);

/* All models, one after the other: for (pare_models m = {.of = comparisons}; pare_models_next(&m);)
   model number k of comparison `one`, which is number `group`. */
typedef struct pare_models {
    const json_t *of;
    size_t group, k;
    json_t *one, *model;
} pare_models;
bool pare_models_next(pare_models *m);

/* Gives front: true to each model that no other one on the same data beats in both. */
void pare_report_mark_fronts(json_t *comparisons);

/* Of a model's recipe, NULL: none. */
const char *pare_report_made(const char *recipe);

/* "half.int8 keeps 99.4 % [98.9, 99.8] of the top-1 of resnet: ..." as HTML or Markdown. first:
   what it is compared with. floor: percent of the first model's top-1 that should be kept. */
void pare_report_verdict(pare_text *text, pare_medium medium, const json_t *first,
                         const json_t *model, double floor);
/* The class of that sentence: "good", "bad" or "" (open, or nothing is known). */
const char *pare_report_floor(const json_t *model, double floor);

/* What a model's height on the front is: top-1 in percent, else SQNR in dB, with its interval (NAN:
   none). */
typedef struct pare_report_point {
    double ms, y, low, high, ms_low, ms_high;
} pare_report_point;
pare_report_point pare_report_point_of(const json_t *model, bool labels);
/* Can it be drawn? */
bool pare_report_has_point(const pare_report_point *point);

/* --- views --- */

/* The text tables. */
void pare_report_print(pare_arena *arena, const json_t *comparisons, FILE *file);
/* What pare serve found of models that shadow others, as one table; returns its rows: 0, and
   nothing is printed. facts: as of pare_report_gather. */
size_t pare_report_print_shadows(pare_arena *arena, const json_t *facts, FILE *file);
/* The page, of a path NAME.svg the picture alone. facts: an array, what the comparisons were
   gathered from. lead, of the page: its heading, a part below it, and one after the verdicts, HTML
   all, NULL: none; NULL: the heading of a report. */
typedef struct pare_report_lead {
    const char *title, *below, *after;
} pare_report_lead;
PARE_NODISCARD pare_status pare_report_write(pare_ctx *ctx, const json_t *facts,
                                             const json_t *comparisons, double floor,
                                             const char *path, const pare_report_lead *lead);
/* The page alone, as text. */
void pare_report_page_add(pare_text *t, const json_t *facts, const json_t *comparisons,
                          double floor, const pare_report_lead *lead);
/* The rows of the tables as CSV (the columns of results.h, `written` left empty), and as Markdown
   with the verdicts before them. */
PARE_NODISCARD pare_status pare_report_csv(pare_ctx *ctx, const json_t *comparisons,
                                           const char *path);
PARE_NODISCARD pare_status pare_report_markdown(pare_arena *arena, const json_t *comparisons,
                                                double floor, const char *path);
/* The same without the heading, into text. */
void pare_report_markdown_add(pare_text *t, pare_arena *arena, const json_t *comparisons,
                              double floor);

/* --- what views read --- */

/* "resnet" from "zoo/resnet.int8.onnx", "net-0.50" from "net-0.50.onnx": the file's name up to the
   first dot that is none of a number; returns text. */
const char *pare_report_stem(const char *path, char *text, size_t size);
/* The model's name where it has one, else its file's without the last ending: "half.int8" of
   "out/half.int8.onnx"; returns text. */
const char *pare_report_name(const json_t *model, char *text, size_t size);

/* The name of the tensor that a step makes, an integer twin's without its "_quantized"; returns
   text. */
const char *pare_report_output(const json_t *step, char *text, size_t size);

/* What is at a path of keys and indices ("latency_ms.median", "outputs.0.sqnr_db"), or NULL; a NULL
   path leads nowhere. */
const json_t *pare_report_find(const json_t *json, const char *path);
/* The number there; missing where it is not there or null. */
double pare_report_number(const json_t *json, const char *path, double missing);
/* The words there, or "". */
const char *pare_report_words(const json_t *json, const char *path);
/* Has one of the rows such a number? */
bool pare_report_any(const json_t *rows, const char *path);

/* Cells: "+0.03 [-0.05, +0.11]" of drop and drop_interval; the median latency in milliseconds,
   marked where arithmetic was emulated (~) or the number unstable (*). */
void pare_cell_drop(pare_cell *cell);
void pare_cell_latency(pare_cell *cell);
/* "bad" or "good", or "" where a drop's interval holds zero. */
const char *pare_report_loss(const json_t *model);

/* The page of one diagnosis: facts of pare diagnose. */
PARE_NODISCARD pare_status pare_diagnosis_write(pare_ctx *ctx, const json_t *facts,
                                                const char *path);
#endif
