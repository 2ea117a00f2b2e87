/* SPDX-License-Identifier: Apache-2.0 */
/* Latency of one plan: warm-up, many runs, and whether the number can be trusted. */
#ifndef PARE_TOOLS_MEASURE_H
#define PARE_TOOLS_MEASURE_H

#include "runtime/exec/exec.h"

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_measure_options {
    double warm_up;     /* milliseconds */
    double duration;    /* seconds, at least */
    int64_t iterations; /* runs, at least */
} pare_measure_options;

typedef struct pare_times {
    double *ms; /* (count) milliseconds in order of time; freed with pare_times_free */
    size_t count, capacity;
    double wall;   /* seconds all of them took */
    double waited; /* seconds that threads were ready meanwhile but had no core; a sum over them */
    int windows;   /* measured until the last three agreed, those left out too; 0: no windows */
    double apart;  /* how far the medians of the last three lie apart, over their median */
} pare_times;

/* Measuring goes on, window by window, until the medians of the last three agree within 2 % or
   there were as many windows as allowed (steady state by the variation of the last few: Georges,
   Buytaert, Eeckhout 2007, OOPSLA). What came before the windows that agree is then left out. */
enum { PARE_WINDOWS = 16 };
typedef struct pare_windows {
    int count;
    size_t end[PARE_WINDOWS]; /* runs by the end of each */
    double wall[PARE_WINDOWS], waited[PARE_WINDOWS], median[PARE_WINDOWS];
} pare_windows;

/* Notes that another window of times ends here. */
PARE_NODISCARD pare_status pare_windows_note(pare_ctx *ctx, pare_windows *windows,
                                             const pare_times *times);
/* Do the last three agree? */
bool pare_windows_agree(const pare_windows *windows);
/* The first of the windows at the end that agree: at most count - 3, and 0 where none do. */
int pare_windows_first(const pare_windows *windows);
/* Takes the runs of the windows before `first` out of times, and says in them what was found. */
void pare_windows_cut(const pare_windows *windows, int first, pare_times *times);

/* Fills the runner's inputs: floats with repeatable values in [0, 1), integers with 0. */
void pare_measure_fill(pare_runner *runner);

/* Runs until duration and iterations are both reached (at most 2^24 runs); times add up. */
PARE_NODISCARD pare_status pare_measure(pare_ctx *ctx, pare_runner *runner,
                                        const pare_measure_options *options, pare_times *times);
/* The two halves of it: runs that are not counted, then those that are. */
PARE_NODISCARD pare_status pare_measure_warm(pare_ctx *ctx, pare_runner *runner,
                                             const pare_measure_options *options);
PARE_NODISCARD pare_status pare_measure_timed(pare_ctx *ctx, pare_runner *runner,
                                              const pare_measure_options *options,
                                              pare_times *times);
void pare_times_free(pare_times *times);
/* Two runners in turn, so that what else goes on hits both alike. A number is the mean of as many
   runs on end as last some milliseconds, behind one that is not counted: what a runner's own runs
   leave warm stays so, as where a model runs alone. Which of the two begins changes from pair to
   pair. Warms both first; times add up, as pare_measure's. */
PARE_NODISCARD pare_status pare_measure_pairs(pare_ctx *ctx, pare_runner *a, pare_runner *b,
                                              const pare_measure_options *options,
                                              pare_times *times_a, pare_times *times_b);
/* Median of the pairs' ratios a : b; NAN where there is none. */
PARE_NODISCARD pare_status pare_times_ratio(pare_ctx *ctx, const pare_times *a, const pare_times *b,
                                            double *out);
/* Milliseconds: this percentile. */
PARE_NODISCARD pare_status pare_times_percentile(pare_ctx *ctx, const pare_times *times, double q,
                                                 double *out);

/* {latency_ms: {median, mean, min, max, p90, p95, p99, ...}, latency_interval, runs,
   throughput_per_s, coefficient_of_variation, drift, stable, notes: [...]}, of windows also windows
   and settled; percentiles: (count) in [0, 100], of which those are left out that need more runs
   (pare_stats_needed; a note says how many). latency_interval: of the median
   (pare_resample_median), where there are enough runs. NULL with the message set. */
json_t *pare_times_json(pare_ctx *ctx, const pare_times *times, double batch,
                        const double *percentiles, int percentile_count);

/* Does the plan compute matrix products or convolutions in f16 or bf16? On the CPU these are
   emulated: the accuracy is that of hardware that has them, the latency is not. */
bool pare_plan_emulates(const pare_plan *plan);

/* Greatest resident size of this process so far, bytes. */
int64_t pare_peak_memory(void);

#ifdef __cplusplus
}
#endif
#endif
