/* SPDX-License-Identifier: Apache-2.0 */
/* Dense rows between f32 and the short floats, rounded to nearest even. */
#ifndef PARE_RUNTIME_CPU_HALF_H
#define PARE_RUNTIME_CPU_HALF_H

#include "runtime/base/types.h"

/* half: PARE_f16 or PARE_bf16; count elements; runs on several threads where it pays. */
void pare_widen(float *dst, const void *src, pare_dtype half, int64_t count, int threads);
void pare_narrow(void *dst, const float *src, pare_dtype half, int64_t count, int threads);

#endif
