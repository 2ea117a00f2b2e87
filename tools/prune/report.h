/* SPDX-License-Identifier: Apache-2.0 */
/* What pruning cost: the models written against the one they came from, as a table, one HTML file
   and a picture. Views are made from the facts (facts.schema.json) only. */
#ifndef PARE_TOOLS_PRUNE_REPORT_H
#define PARE_TOOLS_PRUNE_REPORT_H

#include "prune/plan.h"
#include "tools/prune/prune.h"
#include "tools/text.h"

#include <stdio.h>

/* The last part of pare prune: where --report or a sweep with --data asks, compares the models,
   prints the table, writes the report. rows: of the facts, one per file; layers get their times.
   seen: the samples that pruning used; data NULL: none. */
PARE_NODISCARD pare_status pare_prune_finish(pare_tool *tool, const pare_prune_options *o,
                                             const pare_source *seen, json_t *rows);

/* Puts "compared" into the facts: the model and those of the rows on samples that pruning did not
   see; with --report latency and the time of each layer, too. */
PARE_NODISCARD pare_status pare_prune_compare(pare_tool *tool, const pare_prune_options *o,
                                              const pare_source *seen, json_t *rows);

/* The held-out errors of a refit into a layer's facts. */
void pare_prune_put_held(json_t *row, const pare_unstructured_layer *layer);
/* Bytes of the file as zlib packs it. */
PARE_NODISCARD pare_status pare_prune_zipped(pare_ctx *ctx, const char *path, double *out);

/* --- views --- */

/* Has a parsed file the parts of pruning that the views read? */
bool pare_prune_fits(const json_t *facts);
/* The table into the file, and the page or picture at path (NULL: none). */
PARE_NODISCARD pare_status pare_prune_show(pare_tool *tool, const json_t *facts, FILE *file,
                                           const char *path);

/* The rows of the facts: of channels or of single weights. */
json_t *pare_prune_rows(const json_t *facts, bool *channels);
/* Parts of the multiply-adds and parameters that row k left, in percent; of single weights those
   that are not 0. NAN where they are not there. */
double pare_prune_left(const json_t *row, const char *what);

/* Which samples were compared: "that pruning did not see". */
const char *pare_prune_seen_text(const json_t *facts);

/* The table of models into a page. */
void pare_prune_models_add(pare_text *text, const json_t *facts);
void pare_prune_page_add(pare_text *text, const json_t *facts);
/* Accuracy (or agreement, or SQNR) against what is left, a panel for each measure, into a page or
   as a picture of its own; nothing, and false, where fewer than two pruned models were compared. */
void pare_prune_chart_add(pare_text *text, const json_t *facts);
bool pare_prune_picture_add(pare_text *text, const json_t *facts);
#endif
