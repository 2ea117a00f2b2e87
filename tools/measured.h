/* SPDX-License-Identifier: Apache-2.0 */
/* pare inspect --measured: what bench --profile measured of the steps that are predicted. */
#ifndef PARE_TOOLS_MEASURED_H
#define PARE_TOOLS_MEASURED_H

#include "runtime/eval/roofline.h"
#include "tools/options.h"

/* Milliseconds. Of steps in common, both sums have them alone. */
typedef struct pare_measured {
    const char *file, *device; /* in the tool's arena, the device's name escaped */
    double all_ms;             /* of the profile's steps */
    int steps;                 /* of the profile */
    double *ms;                /* by the predicted steps; below 0: the profile lacks it */
    int common;
    double common_ms, predicted_ms;
} pare_measured;

/* Steps are joined by the name of their node, else of their output; the second step of a name by
   the second. PARE_INPUT, and the message names the file: it is no profile, no step of it is one of
   the model's, or one has another shape. */
PARE_NODISCARD pare_status pare_measured_read(pare_tool *tool, pare_measured *out, const char *path,
                                              const pare_model *model, const pare_roofline *r);
/* predicted / measured; 0: nothing was measured. */
double pare_measured_ratio(double predicted_ms, double measured_ms);
json_t *pare_measured_json(const pare_measured *m);
void pare_measured_print(const pare_measured *m);
#endif
