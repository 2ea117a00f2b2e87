/* SPDX-License-Identifier: Apache-2.0 */
/* The report's picture: accuracy (or SQNR) against latency, as SVG. */
#ifndef PARE_TOOLS_REPORT_CHART_H
#define PARE_TOOLS_REPORT_CHART_H

#include "tools/text.h"

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A wide and a narrow picture, of which the page shows one; nothing where no model has a latency.
 */
void pare_chart_add(pare_text *text, const json_t *comparisons);
/* The wide one as a file of its own. PARE_INPUT: there is nothing to draw. */
PARE_NODISCARD pare_status pare_chart_write(pare_ctx *ctx, const json_t *comparisons,
                                            const char *path);

#ifdef __cplusplus
}
#endif
#endif
