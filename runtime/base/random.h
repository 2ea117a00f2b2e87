/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that look random and are a function of where they started: splitmix64 (Steele, Lea, Flood
   2014, "Fast splittable pseudorandom number generators"). */
#ifndef PARE_RUNTIME_BASE_RANDOM_H
#define PARE_RUNTIME_BASE_RANDOM_H

#include <stdint.h>

typedef struct pare_random {
    uint64_t state;
} pare_random;

static inline uint64_t pare_random_next(pare_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* Uniform in 0 .. n - 1, n >= 1, without bias: draws beyond the last whole multiple of n are drawn
   again. */
static inline uint64_t pare_random_below(pare_random *r, uint64_t n)
{
    uint64_t last = UINT64_MAX - (UINT64_MAX % n + 1) % n, x;
    do x = pare_random_next(r);
    while (x > last);
    return x % n;
}

/* Uniform in [0, 1), 53 bits. */
static inline double pare_random_unit(pare_random *r)
{
    return (double)(pare_random_next(r) >> 11) * 0x1p-53;
}
#endif
