/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of runtime/ops/softmax_codes.h, vector code. */
#ifndef PARE_RUNTIME_CPU_SOFTMAX_CODES_H
#define PARE_RUNTIME_CPU_SOFTMAX_CODES_H

#include "runtime/base/types.h"

/* Codes of softmax(x), a row of n numbers of f32, which become its exponentials. `to`: s8, u8. */
void pare_softmax_codes(uint8_t *y, pare_dtype to, float *x, int64_t n, float scale, float zero);

/* The same as probabilities in place of x, before a short type rounds them. */
void pare_softmax_probabilities(float *x, int64_t n);

#endif
