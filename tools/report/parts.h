/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a report's page. comparisons: of pare_report_gather. */
#ifndef PARE_TOOLS_REPORT_PARTS_H
#define PARE_TOOLS_REPORT_PARTS_H

#include "tools/text.h"

#include <jansson.h>

/* A sentence for each model that is compared with another one: those that calibration alone made
   apart from those that were pruned or tuned. */
void pare_parts_verdicts(pare_text *t, const json_t *comparisons, double floor);
/* The table of all models. */
void pare_parts_models(pare_text *t, const json_t *comparisons, bool labels);
/* Layers of models whose steps were timed; of many models none. */
void pare_parts_layers(pare_text *t, const json_t *comparisons);
/* Of what calibrated or quantized: histograms of the tensors that 8 bits cost most, with the chosen
   range. */
void pare_parts_histograms(pare_text *t, const json_t *facts);
/* Memory in use at each step, of models whose steps are known; of many models none. */
void pare_parts_memory(pare_text *t, const json_t *comparisons);
/* Of bench's --profile: what ran when. */
void pare_parts_lanes(pare_text *t, const json_t *facts);
/* A row for each of the facts: command, what it read and made, how, with what. */
void pare_parts_done(pare_text *t, const json_t *facts);
/* What is not known of which models. */
void pare_parts_missing(pare_text *t, const json_t *comparisons);
#endif
