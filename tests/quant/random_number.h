/* SPDX-License-Identifier: Apache-2.0 */
/* Repeatable numbers around 0, roughly normal: the sum of four uniform ones in [-0.5, 0.5). */
#ifndef PARE_TESTS_QUANT_RANDOM_NUMBER_H
#define PARE_TESTS_QUANT_RANDOM_NUMBER_H

#include <stdint.h>

static inline double random_number(uint64_t *seed)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*seed >> 40) * 0x1p-24 - 0.5;
    }
    return sum;
}

#endif
