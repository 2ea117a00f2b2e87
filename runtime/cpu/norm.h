/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU's kernels of layer, instance and group normalization share. */
#ifndef PARE_RUNTIME_CPU_NORM_H
#define PARE_RUNTIME_CPU_NORM_H

#include "runtime/ops/kernel.h"

typedef struct pare_norm_stats {
    double mean, inverse; /* 1 / sqrt(variance + epsilon) */
} pare_norm_stats;

typedef struct pare_norm {
    int axis;
    bool rms; /* the mean stays in: RMSNormalization */
    float epsilon;
    int64_t groups;
} pare_norm;

PARE_NODISCARD pare_status pare_norm_prepare(pare_prep *p); /* state: a pare_norm */

/* Of the region's elements at base + offset; the variance from the differences to the mean, which
   is 0 where it stays in. */
pare_norm_stats pare_norm_stats_of(const pare_view *region, int64_t base, double epsilon,
                                   bool centred);
/* LayerNormalization of a row of n neighbours: y and x may be the same; bias may be NULL. */
pare_norm_stats pare_layer_norm_row(float *y, const float *x, const float *scale, const float *bias,
                                    int64_t n, const pare_norm *norm);
/* Are scale and bias dense rows, of x's type or the other one? */
bool pare_layer_factors_fit(const pare_prep *p, int axis, pare_dtype other);
/* Scale or bias, inputs 1 and 2, as f32: its own memory, or widened to buffer; NULL: it is absent.
 */
const float *pare_layer_factor(const pare_call *c, int i, float *buffer);
/* Of n neighbours. */
pare_norm_stats pare_norm_stats_f32(const float *x, int64_t n, double epsilon, bool centred);

#endif
