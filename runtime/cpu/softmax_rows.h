/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CPU_SOFTMAX_ROWS_H
#define PARE_RUNTIME_CPU_SOFTMAX_ROWS_H

#include <stdint.h>

/* Softmax of each of `rows` rows of n floats, in place. */
void pare_softmax_rows(float *x, int64_t rows, int64_t n);

#endif
