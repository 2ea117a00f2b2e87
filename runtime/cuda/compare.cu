/* SPDX-License-Identifier: Apache-2.0 */
/* Equal, Less, And, Not, IsNaN and their kin: one thread an element, truth is one byte. Floats are
   compared as doubles, integers as int64_t; u64 with its top bit turned, which keeps its order. */
#include "runtime/cuda/compare.h"
#include "runtime/cuda/number.cuh"

template <class R> SIMT_INLINE bool compare(int op, R x, R y)
{
    switch (op) {
#define X(name, expr)                                                                              \
    case PARE_CUDA_IS_##name: return expr;
        PARE_CUDA_COMPARE(X)
#undef X
    }
    return false;
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    compare_each(pare_cuda_walk w, pare_dtype type, int op)
{
    uint8_t *out = static_cast<uint8_t *>(w.data[0]);
    int64_t turn = type == PARE_u64 ? INT64_MIN : 0;
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        if (pare_is_float(type))
            out[at[0]] = compare(op, pare_double_at(w.data[1], type, at[1]),
                                 pare_double_at(w.data[2], type, at[2]));
        else
            out[at[0]] = compare(op, pare_int_at(w.data[1], type, at[1]) ^ turn,
                                 pare_int_at(w.data[2], type, at[2]) ^ turn);
    }
}

extern "C" cudaError_t pare_cuda_compare_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                                pare_cuda_compare op, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    SIMT_LAUNCH(compare_each, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, *w,
                dtype, (int)op);
    return cudaGetLastError();
}
