/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and products of sizes that come from a file: false where the result does not fit. */
#ifndef PARE_RUNTIME_BASE_SIZE_H
#define PARE_RUNTIME_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool pare_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool pare_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Product of dims (each >= 0) as an element count; false on a negative dim or overflow. */
static inline bool pare_count_dims(const int64_t *dims, int rank, int64_t *out)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(n, dims[i], &n)) return false;
    *out = n;
    return true;
}

static inline size_t pare_align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

#endif
