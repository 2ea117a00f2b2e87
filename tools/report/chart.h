/* SPDX-License-Identifier: Apache-2.0 */
/* The report's picture: accuracy (or SQNR) against latency, as SVG. */
#ifndef PARE_TOOLS_REPORT_CHART_H
#define PARE_TOOLS_REPORT_CHART_H

#include "tools/text.h"

#include <jansson.h>

/* comparisons: of pare_report_gather. */

/* A wide and a narrow picture, of which the page shows one, and an empty place for the one that a
   script draws; nothing, and false, where no model has a latency beside its accuracy or error. */
bool pare_chart_add(pare_text *text, const json_t *comparisons);

/* The points of the front, [[ms, y]] from the quickest on, of each data set. */
json_t *pare_chart_fronts(const json_t *comparisons, bool labels);

/* What the script draws: the page's one data island. */
void pare_chart_island(pare_text *text, const json_t *comparisons);
/* The wide one as a file of its own. PARE_INPUT: there is nothing to draw. */
PARE_NODISCARD pare_status pare_chart_write(pare_ctx *ctx, const json_t *comparisons,
                                            const char *path);
#endif
