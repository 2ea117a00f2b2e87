/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation of runtime/cuda/device/simt_sm100.cuh: the same names (tcgen.cpp). */
#ifndef PARE_SIMT_SM100_H
#define PARE_SIMT_SM100_H

#include "simt_sm90.h"

void simt_tmem_take(int columns, unsigned to, const char *file, int line);
void simt_tmem_give(int columns, unsigned at, const char *file, int line);
template <int COLUMNS> static inline void simt_tmem_allocate(unsigned to, SIMT_AT)
{
    simt_tmem_take(COLUMNS, to, file, line);
}
template <int COLUMNS> static inline void simt_tmem_free(unsigned at, SIMT_AT)
{
    simt_tmem_give(COLUMNS, at, file, line);
}
void simt_tmem_read(void *d, unsigned at, const char *file, int line); /* 32 words */
template <typename SUM> static inline void simt_tmem_load(SUM (&d)[32], unsigned at, SIMT_AT)
{
    static_assert(sizeof(SUM) == 4, "sums");
    simt_tmem_read(d, at, file, line);
}
void simt_tcgen_fence_before(void);
void simt_tcgen_fence_after(void);

void simt_tcgen_begin(simt_tcgen_kind kind, unsigned sums, uint64_t a, uint64_t b, unsigned what,
                      bool add, const char *file, int line);
template <simt_tcgen_kind KIND>
static inline void simt_tcgen_multiply(unsigned sums, uint64_t a, uint64_t b, unsigned what,
                                       bool add, SIMT_AT)
{
    simt_tcgen_begin(KIND, sums, a, b, what, add, file, line);
}
void simt_tcgen_commit(unsigned bar, SIMT_AT);

#endif
