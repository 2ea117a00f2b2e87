/* SPDX-License-Identifier: Apache-2.0 */
/* Philox 4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw 2011, "Parallel random
   numbers: as easy as 1, 2, 3"): number i of a stream is a function of key, stream and i alone, so
   that results depend neither on threads nor on the order of work. */
#ifndef PARE_RUNTIME_CPU_RANDOM_H
#define PARE_RUNTIME_CPU_RANDOM_H

#include <stdint.h>

enum { PARE_PHILOX_UNSEEDED = 20200101 }; /* the key of operators that say no seed */

typedef struct pare_philox_stream {
    uint64_t key, stream;
} pare_philox_stream;

/* The block of four words for a counter (low word first) and a key. */
static inline void pare_philox(uint32_t x[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * x[0], b = (uint64_t)0xCD9E8D57u * x[2];
        const uint32_t x0 = (uint32_t)(b >> 32) ^ x[1] ^ k0, x2 = (uint32_t)(a >> 32) ^ x[3] ^ k1;
        x[1] = (uint32_t)b;
        x[3] = (uint32_t)a;
        x[0] = x0;
        x[2] = x2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Two numbers of 53 bits in [0, 1): those of element i. */
static inline void pare_philox_pair(const pare_philox_stream *r, int64_t i, double out[2])
{
    uint32_t x[4] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32), (uint32_t)r->stream,
                     (uint32_t)(r->stream >> 32)};
    pare_philox(x, r->key);
    for (int k = 0; k < 2; k++)
        out[k] = (double)(((uint64_t)x[2 * k + 1] << 32 | x[2 * k]) >> 11) * 0x1p-53;
}

/* The first of them. */
static inline double pare_philox_unit(const pare_philox_stream *r, int64_t i)
{
    double pair[2];
    pare_philox_pair(r, i, pair);
    return pair[0];
}

#endif
