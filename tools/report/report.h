/* SPDX-License-Identifier: Apache-2.0 */
/* Views of what commands found: text tables, CSV, Markdown, and one self-contained HTML file. They
   are made from the facts (facts.schema.json) only. */
#ifndef PARE_TOOLS_REPORT_REPORT_H
#define PARE_TOOLS_REPORT_REPORT_H

#include "runtime/base/arena.h"
#include "tools/text.h"

#include <jansson.h>
#include <stdio.h>

enum { PARE_REPORT_FLOOR = 99 }; /* percent of the first model's top-1 that should be kept */

/* The text tables. comparisons: of pare_report_gather. */
void pare_report_print(pare_arena *arena, const json_t *comparisons, FILE *file);
/* The page, of a path NAME.svg the picture alone. facts: an array, what the comparisons were
   gathered from. */
PARE_NODISCARD pare_status pare_report_write(pare_ctx *ctx, const json_t *facts,
                                             const json_t *comparisons, double floor,
                                             const char *path);
/* The same page with its own heading, a part below it, and one after the verdicts. */
typedef struct pare_report_lead {
    const char *title, *below, *behind; /* HTML all; NULL: none */
} pare_report_lead;
PARE_NODISCARD pare_status pare_report_write_with(pare_ctx *ctx, const json_t *facts,
                                                  const json_t *comparisons, double floor,
                                                  const char *path, const pare_report_lead *lead);
/* The rows of the tables as CSV (the columns of results.h, `written` left empty), and as Markdown
   with the verdicts before them. */
PARE_NODISCARD pare_status pare_report_csv(pare_ctx *ctx, const json_t *comparisons,
                                           const char *path);
PARE_NODISCARD pare_status pare_report_markdown(pare_arena *arena, const json_t *comparisons,
                                                double floor, const char *path);
/* The same without the heading, into text. */
void pare_report_markdown_add(pare_text *t, pare_arena *arena, const json_t *comparisons,
                              double floor);

/* "resnet" from "zoo/resnet.int8.onnx", "net-0.50" from "net-0.50.onnx": the file's name up to the
   first dot that is none of a number; returns text. */
const char *pare_report_stem(const char *path, char *text, size_t size);

/* What is at a path of keys and indices ("latency_ms.median", "outputs.0.sqnr_db"), or NULL. */
const json_t *pare_report_find(const json_t *json, const char *path);
/* The number there; missing where it is not there or null. */
double pare_report_number(const json_t *json, const char *path, double missing);

/* Cells of text tables, "" where the facts lack the number: a number as "%.2f", "%.1f", "%.2g" or
   "%.2fx" say, else "%.3g"; "+0.03 [-0.05, +0.11]"; the median latency in milliseconds, "~" for
   emulated arithmetic, "*" for an unstable one. */
const char *pare_report_text(const json_t *model, const char *path, const char *format, char *text,
                             size_t size);
void pare_report_drop(const json_t *model, char *text, size_t size);
const char *pare_report_latency(const json_t *model, char *text, size_t size);
#endif
