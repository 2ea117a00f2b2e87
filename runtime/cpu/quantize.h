/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CPU_QUANTIZE_H
#define PARE_RUNTIME_CPU_QUANTIZE_H

#include "runtime/base/types.h"

/* QuantizeLinear (25) of n neighbours with one scale to s8 or u8: clamp(rint(x / scale) + zero). */
void pare_quantize_codes(void *y, pare_dtype type, const float *x, int64_t n, float scale,
                         float zero);

#endif
