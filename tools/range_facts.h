/* SPDX-License-Identifier: Apache-2.0 */
/* What ranges a calibration chose, for facts: every tensor with what 8 bits make of it, and
   pictures of the worst. */
#ifndef PARE_TOOLS_RANGE_FACTS_H
#define PARE_TOOLS_RANGE_FACTS_H

#include "calib/calib.h"

#include <jansson.h>

enum { PARE_RANGE_PLOT_BINS = 64, PARE_RANGE_PLOTS = 20 };

/* A histogram in equal bins over [min, max], and the SQNR in dB, 10 log10(sum v^2 / sum (q - v)^2)
   over its exact bins, of rounding to a range's 8 bits. */
typedef struct pare_range_plot {
    double count[PARE_RANGE_PLOT_BINS];
    double sqnr_db; /* Inf: no error; NAN: no value */
} pare_range_plot;

/* low, high: of a range; type: s8, u8 or f8e4m3. */
void pare_range_plot_make(pare_range_plot *out, const pare_histogram *histogram,
                          const pare_range *range, pare_dtype type);

/* Puts "ranges" [{name, low, high, method, sqnr_db}] of all tensors and "histograms" of the 20 of
   least SQNR into facts; fp8: of E4M3, else of the rule's integers. */
PARE_NODISCARD pare_status pare_range_facts(pare_ctx *ctx, json_t *facts, const pare_ranges *ranges,
                                            const pare_range_rule *rule, bool fp8);
#endif
