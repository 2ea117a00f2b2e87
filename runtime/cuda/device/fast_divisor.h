/* SPDX-License-Identifier: Apache-2.0 */
/* Division of positions without a division. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_FAST_DIVISOR_H
#define PARE_RUNTIME_CUDA_DEVICE_FAST_DIVISOR_H

#include <stdint.h>

/* A positive divisor of numbers below 2^31: n / by = (n * multiplier >> 32) >> shift, but for 1
   (Warren, Hacker's Delight, 2nd edition, 10-9). */
typedef struct pare_cuda_fast_divisor {
    int by, shift;
    unsigned multiplier;
} pare_cuda_fast_divisor;

static inline pare_cuda_fast_divisor pare_cuda_fast_divisor_of(int by)
{
    pare_cuda_fast_divisor d = {by, -1, 0};
    while (d.shift < 30 && (int64_t)1 << (d.shift + 1) < by) d.shift++;
    if (by > 1)
        d.multiplier =
            (uint32_t)((((uint64_t)1 << (32 + d.shift)) + (uint64_t)by - 1) / (uint64_t)by);
    return d;
}

#endif
