/* SPDX-License-Identifier: Apache-2.0 */
/* What a zoo's work would take, before it is done: each step is run on a few samples, then on
   more, each run in a process of its own, and its time and memory are drawn out to all samples. */
#ifndef PARE_TOOLS_ZOO_FORECAST_H
#define PARE_TOOLS_ZOO_FORECAST_H

#include "tools/zoo/plan.h"
#include "tools/zoo/process.h"

typedef struct pare_zoo_forecast_options {
    const bool *done; /* of each node of the plan: there is nothing to do; NULL: of none */
    int jobs;         /* nodes at once, at least 1 */
    int64_t bytes;    /* memory limit of a step; 0: none */
    double budget;    /* seconds to try steps for; models whose turn does not come then are taken
                         as the mean of those that were tried */
    bool quiet;
    /* Runs a command line in a process of its own: pare_run_argv, or a test's */
    pare_status (*step)(pare_ctx *ctx, char *const *words, int count);
} pare_zoo_forecast_options;

/* What one node would take. */
typedef struct pare_zoo_cost {
    double seconds, cpu_seconds;
    int64_t bytes;       /* resident at most */
    bool tried, known;   /* known and not tried: mean of others, or nothing to do */
    const char *failure; /* its trial did not end well: why; NULL: it did */
} pare_zoo_cost;

typedef struct pare_zoo_forecast {
    pare_zoo_cost *node; /* of each node of the plan */
    double seconds;      /* of all work, one step after the other */
    double cpu_seconds;  /* of all work, over all threads */
    double elapsed;      /* with the jobs that were asked for */
    double spent;        /* seconds that trials took */
    int64_t bytes;       /* of the largest step */
    int models, tried;   /* with work to do; those among them whose steps were tried */
    bool whole;          /* every node is known */
} pare_zoo_forecast;

/* Tries steps in a folder below TMPDIR, which is gone afterwards; nothing else is written. The
   result lives in the arena. PARE_IO: no folder, no process. PARE_INTERRUPTED. A step that fails
   its trial is no failure: nothing after it is known. pare_process_prepare came before. */
PARE_NODISCARD pare_status pare_zoo_forecast_make(pare_arena *arena, pare_zoo_forecast *out,
                                                  const pare_zoo *zoo, const pare_zoo_plan *plan,
                                                  const pare_zoo_forecast_options *options);

/* A table of the tasks on `file`, sums below, and on what they rest. */
PARE_NODISCARD pare_status pare_zoo_forecast_print(pare_arena *arena, FILE *file,
                                                   const pare_zoo_forecast *forecast,
                                                   const pare_zoo *zoo, const pare_zoo_plan *plan,
                                                   const pare_zoo_forecast_options *options);

/* {seconds, elapsed_seconds, cpu_seconds, memory_bytes, tried_models, models, tasks: [{model,
   variant, seconds, memory_bytes, failure}]}; what is not known is null. NULL: out of memory. */
json_t *pare_zoo_forecast_json(const pare_zoo_forecast *forecast, const pare_zoo *zoo,
                               const pare_zoo_plan *plan);

/* --- trials of steps on few samples (probe.c) --- */

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
