/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong values in data, noted as kernel.h says. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_FAULT_CUH
#define PARE_RUNTIME_CUDA_DEVICE_FAULT_CUH

#include "runtime/cuda/device/fault.h"
#include "runtime/cuda/device/simt.h"

SIMT_INLINE void pare_fault_note(const pare_cuda_fault &fault, int64_t value)
{
    if (!fault.at) return;
    int64_t most = PARE_FAULT_ZERO - 1;
    int64_t held = value < -most ? -most : value > most ? most : value;
    atomicMin(fault.at, (unsigned long long)fault.step << PARE_FAULT_BITS |
                            (unsigned long long)(held + PARE_FAULT_ZERO));
}

/* Makes an index into an axis of n, counted from the end where negative, a position. False, and
   noted, where it is outside. */
SIMT_INLINE bool pare_index_of(const pare_cuda_fault &fault, int64_t n, int64_t *i)
{
    bool inside = *i >= -n && *i < n;
    if (!inside) pare_fault_note(fault, *i);
    if (*i < 0) *i += n;
    return inside;
}

#endif
