/* SPDX-License-Identifier: Apache-2.0 */
/* Dense rows between f32 and the short floats, rounded to nearest even. */
#ifndef PARE_RUNTIME_CPU_FLOAT16_H
#define PARE_RUNTIME_CPU_FLOAT16_H

#include "runtime/base/types.h"

/* type: PARE_f16 or PARE_bf16; count elements; runs on several threads where it pays. */
void pare_widen(float *dst, const void *src, pare_dtype type, int64_t count, int threads);
void pare_narrow(void *dst, const float *src, pare_dtype type, int64_t count, int threads);

/* Each of x becomes the nearest number of the type. */
void pare_round_to(float *x, pare_dtype type, int64_t count);

#endif
