/* SPDX-License-Identifier: Apache-2.0 */
/* y[o0, o1, ...] = x[at0[o0], at1[o1], ...]: one thread an element. Reads an entry an axis (small
   tables that stay in the cache), the element, and writes it. */
#include "runtime/cuda/device.cuh"
#include "runtime/cuda/lookup.h"

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) lookup_each(pare_cuda_lookup l)
{
    const T *x = static_cast<const T *>(l.x);
    T *y = static_cast<T *>(l.y);
    PARE_CUDA_EACH (i, l.count) {
        int64_t left = i, to = 0, from = 0;
        for (int a = l.rank - 1; a >= 0; a--) {
            int64_t whole = left / l.dim[a], o = left - whole * l.dim[a];
            to += o * l.y_stride[a];
            from += l.table[l.begin[a] + o];
            left = whole;
        }
        y[to] = x[from];
    }
}

#define LAUNCH(T)                                                                                  \
    SIMT_LAUNCH(lookup_each<T>, pare_cuda_grid(l->count), dim3(PARE_CUDA_BLOCK), 0, stream, *l)

extern "C" cudaError_t pare_cuda_lookup_launch(const pare_cuda_lookup *l, cudaStream_t stream)
{
    if (l->count == 0) return cudaSuccess;
    switch (l->bytes) {
    case 1: LAUNCH(uint8_t); break;
    case 2: LAUNCH(uint16_t); break;
    case 4: LAUNCH(uint32_t); break;
    default: LAUNCH(uint64_t);
    }
    return cudaGetLastError();
}
