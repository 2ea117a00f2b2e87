/* SPDX-License-Identifier: Apache-2.0 */
/* One list of comparisons from the facts of any commands, and what is judged about each model. */
#ifndef PARE_TOOLS_REPORT_GATHER_H
#define PARE_TOOLS_REPORT_GATHER_H

#include "tools/text.h"

#include <jansson.h>

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

/* Of a model's recipe, NULL: none. */
const char *pare_report_made(const char *recipe);

/* "half.int8 keeps 99.4 % [98.9, 99.8] of the top-1 of resnet: ..." first: what it is compared
   with. floor: percent of the first model's top-1 that should be kept. */
void pare_report_verdict(pare_text *text, const json_t *first, const json_t *model, double floor);

/* The class of that sentence: "good", "bad" or "" (open, or nothing is known). */
const char *pare_report_floor(const json_t *model, double floor);

/* The model's name where it has one, else its file's without the last ending: "half.int8" of
   "out/half.int8.onnx"; returns text. */
const char *pare_report_name(const json_t *model, char *text, size_t size);

/* What a model's height on the front is: top-1 in percent, else SQNR in dB, with its interval (NAN:
   none). */
typedef struct pare_report_point {
    double ms, y, low, high, ms_low, ms_high;
} pare_report_point;
pare_report_point pare_report_point_of(const json_t *model, bool labels);
#endif
