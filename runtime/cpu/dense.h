/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels that sum over windows work on dense row-major doubles: every f32, f16, bf16 and
   integer product and their sums up to 2^53 are exact there, so the order of summation cannot be
   seen and one loop serves all types. */
#ifndef PARE_RUNTIME_CPU_DENSE_H
#define PARE_RUNTIME_CPU_DENSE_H

#include "runtime/ops/kernel.h"

/* Types that can be loaded: the floats and integers of up to 32 bits, bool. */
bool pare_dense_can(pare_dtype dtype);

/* The view at index of an axis: that axis gets length 1, data moves (where it is set). */
pare_view pare_view_at(const pare_view *view, int axis, int64_t index);

/* All elements of a view, row-major, minus zero_point. */
void pare_dense_load(double *dst, const pare_view *src, double zero_point);

/* The reverse. Floats are rounded through f32 (f64 apart), integers must be in range. */
void pare_dense_store(const pare_view *dst, const double *src);

#endif
