/* SPDX-License-Identifier: Apache-2.0 */
/* Views of what validate found: a text table, and one self-contained HTML file with table and
   picture. They are made from the facts (facts.schema.json) only. */
#ifndef PARE_TOOLS_REPORT_H
#define PARE_TOOLS_REPORT_H

#include "runtime/base/arena.h"

#include <jansson.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Has a parsed file the parts that the views read? */
bool pare_report_fits(const json_t *facts);

/* comparisons: an array of validate's facts. */
void pare_report_print(pare_arena *arena, const json_t *comparisons, FILE *file);
PARE_NODISCARD pare_status pare_report_write(pare_ctx *ctx, const json_t *comparisons,
                                             const char *path);

/* "resnet" from "zoo/resnet.int8.onnx": the file's name up to its first dot; returns text. */
const char *pare_report_stem(const char *path, char *text, size_t size);

/* The number at a path of keys and one index ("latency_ms.median", "outputs.0.sqnr_db"); missing
   where it is not there or null. */
double pare_report_number(const json_t *json, const char *path, double missing);

#ifdef __cplusplus
}
#endif
#endif
