/* SPDX-License-Identifier: Apache-2.0 */
/* How far a model that shadows another is from it: counts, agreement, errors, times. Any thread may
   call. */
#ifndef PARE_TOOLS_SERVE_SHADOW_STATS_H
#define PARE_TOOLS_SERVE_SHADOW_STATS_H

#include "runtime/eval/stats.h"
#include "tools/serve/protocol.h"
#include "tools/serve/stats.h"

/* Times by their logarithm, 16 bins an octave from 1 µs: a percentile is right within 2.2 %. */
enum { PARE_TIME_BINS = 512 };
typedef struct pare_time_bins {
    uint64_t count, bin[PARE_TIME_BINS];
    double seconds; /* their sum */
} pare_time_bins;

void pare_time_bins_add(pare_time_bins *bins, double seconds);
/* Seconds; q in [0, 100]; 0 where there are none. */
double pare_time_bins_percentile(const pare_time_bins *bins, double q);

/* Of one output: errors against the first model's. */
typedef struct pare_shadow_output {
    char *name;
    pare_error_stats error;  /* of types with numbers */
    uint64_t requests, same; /* same: all its bytes are the first model's */
} pare_shadow_output;

typedef struct pare_shadow_stats {
    pthread_mutex_t lock;
    uint64_t offered;                   /* requests that the first model answered */
    uint64_t compared, dropped, failed; /* of those that were chosen */
    int64_t samples, agreed; /* rows of the first output that are scores of classes; those whose
                                first class is the first model's */
    pare_time_bins whole[2], compute[2]; /* of the first model, of the other */
    pare_shadow_output *output;
    size_t output_count, output_capacity;
    char why[512]; /* the last one failed; "": none has */
} pare_shadow_stats;

void pare_shadow_stats_init(pare_shadow_stats *stats);
void pare_shadow_stats_free(pare_shadow_stats *stats);

/* A request was answered. Is it to be compared? Of every n a share are, to within one. */
bool pare_shadow_stats_offer(pare_shadow_stats *stats, double share);
void pare_shadow_stats_drop(pare_shadow_stats *stats);
void pare_shadow_stats_fail(pare_shadow_stats *stats, const char *why);
/* Both answers of one request: (count) tensors of the same names and shapes. top: that of them
   which is the model's first output, or -1. batched: the first axis counts samples. PARE_MEMORY. */
PARE_NODISCARD pare_status pare_shadow_stats_compare(pare_shadow_stats *stats, pare_ctx *ctx,
                                                     const pare_infer_tensor *first,
                                                     const pare_infer_tensor *other, int count,
                                                     int top, bool batched);
/* Seconds of both: (PARE_STAGES). */
void pare_shadow_stats_times(pare_shadow_stats *stats, const double *first, const double *other);

/* What "shadows" of the facts holds of a pair, but for its names; NULL: memory is out. */
json_t *pare_shadow_stats_json(pare_shadow_stats *stats);
#endif
