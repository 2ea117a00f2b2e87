/* SPDX-License-Identifier: Apache-2.0 */
/* What pages of reports share, and the parts of the report's own page. Facts are those of
   facts.schema.json; comparisons: of pare_report_gather. */
#ifndef PARE_TOOLS_REPORT_PAGE_H
#define PARE_TOOLS_REPORT_PAGE_H

#include "tools/text.h"

#include <jansson.h>

void pare_page_begin(pare_text *t, const char *title);
void pare_page_end(pare_text *t);
/* Writes and frees the text as it is. */
PARE_NODISCARD pare_status pare_page_write(pare_text *t, const char *path);

/* Is a picture asked for, by the file's name? */
bool pare_page_is_picture(const char *path);
/* Begins a picture that is alone, to be ended by "</svg>" and pare_page_write. */
void pare_page_picture(pare_text *t, int width, int height);

/* "1,000 samples of test.h5" from facts of samples. */
void pare_page_samples(pare_text *t, const json_t *data);
/* ", on NVIDIA H200 ..." from facts of a device; nothing for the CPU. */
void pare_page_device(pare_text *t, const json_t *device);
/* "2 threads", "the GPU" into text; returns text. */
const char *pare_page_place(const json_t *device, double threads, char *text, size_t size);
/* "64&times;32&times;3" from dims. */
void pare_page_shape(pare_text *t, const json_t *dims);

/* --- parts of the report's page --- */

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
/* Of each diagnosis: what is wrong with a quantized model, and its tensors one by one. */
void pare_parts_diagnoses(pare_text *t, const json_t *facts);
/* Of bench's --profile: what ran when. */
void pare_parts_lanes(pare_text *t, const json_t *facts);
/* How many of the facts are of pare load. */
size_t pare_page_loads(const json_t *facts);
/* Of pare load: latency against offered load, and its rows; the facts may have `source`, the file
   that they were read from, which tells loads of one model at one URL apart. */
void pare_parts_loads(pare_text *t, const json_t *facts);
/* Of pare serve: models that shadow others. */
void pare_parts_shadows(pare_text *t, const json_t *facts);
/* A row for each of the facts: command, what it read and made, how, with what. */
void pare_parts_done(pare_text *t, const json_t *facts);
/* What is not known of which models. */
void pare_parts_missing(pare_text *t, const json_t *comparisons);

/* Accuracy (or SQNR) against latency: a wide and a narrow picture, of which the page shows one, and
   an empty place for the one that a script draws; nothing, and false, where no model has a latency
   beside its accuracy or error. */
bool pare_parts_chart(pare_text *text, const json_t *comparisons);
/* What the script draws: the page's one data island. */
void pare_parts_island(pare_text *text, const json_t *comparisons);
/* The wide picture alone; false, and nothing, where there is nothing to draw. */
bool pare_parts_picture(pare_text *text, const json_t *comparisons);
#endif
