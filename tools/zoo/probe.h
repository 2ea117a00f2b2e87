/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of a zoo's steps on few samples, for its forecast. */
#ifndef PARE_TOOLS_ZOO_PROBE_H
#define PARE_TOOLS_ZOO_PROBE_H

#include "tools/zoo/forecast.h"
#include "tools/zoo/process.h"

typedef struct pare_zoo_counted pare_zoo_counted;

typedef struct pare_zoo_probes {
    pare_arena *arena;
    const pare_zoo *zoo;
    const pare_zoo_plan *plan;
    const pare_zoo_forecast_options *options;
    pare_zoo_forecast *forecast;
    char folder[200];
    int judged; /* node of the last judgement that was tried; -1: none yet */
    double samples_seconds, samples_cpu; /* of it: what running samples took */
    pare_zoo_counted *counted;           /* samples of data sets */
    size_t counts, capacity;
} pare_zoo_probes;

/* Begins with arena, zoo, plan, options, forecast, zeros. Makes the folder; close removes it. */
PARE_NODISCARD pare_status pare_zoo_probes_open(pare_zoo_probes *trials);
void pare_zoo_probes_close(pare_zoo_probes *trials);

/* Fills in the forecast of a node; those before it were tried, or are done. What it writes stays
   for those after it. */
PARE_NODISCARD pare_status pare_zoo_probes_node(pare_zoo_probes *trials, int node);

/* Removes what trials of this node wrote. */
void pare_zoo_probes_drop(pare_zoo_probes *trials, int node);
#endif
