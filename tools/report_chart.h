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

#ifdef __cplusplus
}
#endif
#endif
