/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of the selftest share. */
#ifndef PARE_TESTS_GPU_SELFTEST_CUH
#define PARE_TESTS_GPU_SELFTEST_CUH

#include "selftest.h"
#include "runtime/cuda/device/simt.h"

/* Metadata of 2:4: eight pairs of ascending places. */
SIMT_INLINE unsigned ascending(unsigned a)
{
    unsigned meta = 0;
    for (int i = 0; i < 8; i++, a /= 6) meta |= (0xed9c84u >> a % 6 * 4 & 15u) << 4 * i;
    return meta;
}

#endif
