/* SPDX-License-Identifier: Apache-2.0 */
/* One text for every backend: a device's compiler makes both versions of a PARE_BOTH function. */
#ifndef PARE_RUNTIME_BASE_BOTH_H
#define PARE_RUNTIME_BASE_BOTH_H

#ifdef __CUDACC__
#define PARE_BOTH static __host__ __device__ inline
#else
#define PARE_BOTH static inline
#endif

#endif
