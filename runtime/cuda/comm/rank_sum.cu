/* SPDX-License-Identifier: Apache-2.0 */
/* The additions of a sum over ranks (runtime/base/rank_sum.h): to[i] += from[i]. Bytes moved: three
   times those of an array. The loop of runtime/comm/comm.c defines it, where ranks' processors add.
 */
#include "runtime/cuda/comm/rank_sum.h"
#include "runtime/cuda/device/common.cuh"

template <typename T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    rank_add(T *to, const T *from, int64_t count)
{
    PARE_CUDA_EACH (i, count) to[i] += from[i];
}

extern "C" cudaError_t pare_cuda_rank_add(pare_dtype dtype, void *to, const void *from,
                                          int64_t count, cudaStream_t stream)
{
    if (dtype == PARE_f64)
        PARE_CUDA_LAUNCH_EACH(rank_add<double>, count, static_cast<double *>(to),
                              static_cast<const double *>(from), count);
    PARE_CUDA_LAUNCH_EACH(rank_add<float>, count, static_cast<float *>(to),
                          static_cast<const float *>(from), count);
}
