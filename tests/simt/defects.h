/* SPDX-License-Identifier: Apache-2.0 */
/* Small programs, each in a correct form and in one with a planted defect (defects.inc). */
#ifndef PARE_SIMT_DEFECTS_H
#define PARE_SIMT_DEFECTS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0: the result is right; 1: it is wrong. A defect may also end the process. */
#define X(name, schedules, plain, asan, check) int defect_##name(int planted);
#include "defects.inc"
#undef X

/* For host defects: y[i] = value; y[i] += x[i]; a launch that may be too large. */
void defect_fill(float *y, int n, float value, cudaStream_t stream);
void defect_add(float *y, const float *x, int n, cudaStream_t stream);
void defect_launch(float *y, unsigned threads, unsigned shared);
/* A dependent: z[i] = x[i] - by[i] (NULL: 0), which it reads before it waits; early: x, too. */
void defect_subtract(float *z, const float *x, const float *by, int n, int early,
                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
