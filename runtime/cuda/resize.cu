/* SPDX-License-Identifier: Apache-2.0 */
/* Resize (10 to 19), linear and cubic: y = the sum over the last axis' taps of weight times the sum
   over the one before ... times x, in double and in that order, which is what resizing axis by
   axis, the first one first, computes. One thread an output; reads the product of the axes' taps.
 */
#include "runtime/cuda/number.cuh"
#include "runtime/cuda/resize.h"

SIMT_INLINE double element(const pare_cuda_resizing &r, int64_t at)
{
    return pare_is_float(r.dtype) ? pare_double_at(r.x, r.dtype, at)
                                  : (double)pare_int_at(r.x, r.dtype, at);
}

/* Where the taps of one output begin: per axis that changes its output position; and the offset in
   x of the axes that stay. */
typedef struct place {
    int64_t from, to, o[PARE_MAX_RANK];
    bool outside;
} place;

SIMT_INLINE place place_of(const pare_cuda_resizing &r, int64_t i)
{
    place p = {0, 0, {0}, false};
    int t = r.taps_count - 1;
    for (int a = r.rank - 1; a >= 0; a--) {
        int64_t whole = i / r.dim[a], o = i - whole * r.dim[a];
        p.to += o * r.y_stride[a];
        if (t >= 0 && r.taps[t].axis == a) {
            p.outside = p.outside || r.taps[t].outside[o];
            p.o[t--] = o;
        } else {
            p.from += o * r.x_stride[a];
        }
        i = whole;
    }
    return p;
}

/* A counter of taps, the first axis fastest: a sum that is complete is a term of the next axis'. */
SIMT_INLINE double weigh(const pare_cuda_resizing &r, const place &p)
{
    int k[PARE_MAX_RANK] = {0};
    double sum[PARE_MAX_RANK + 1] = {0};
    for (;;) {
        int64_t at = p.from;
        for (int t = 0; t < r.taps_count; t++) {
            const pare_cuda_taps &s = r.taps[t];
            int64_t tap = s.first[p.o[t]] + k[t];
            at += (tap < 0 ? 0 : tap >= s.n ? s.n - 1 : tap) * r.x_stride[s.axis];
        }
        double term = element(r, at);
        int t = 0;
        for (; t < r.taps_count; t++) {
            const pare_cuda_taps &s = r.taps[t];
            sum[t] += s.weight[p.o[t] * s.count + k[t]] * term;
            if (++k[t] < s.count) break;
            term = sum[t];
            sum[t] = 0;
            k[t] = 0;
        }
        if (t == r.taps_count) return term;
    }
}

SIMT_INLINE void store(const pare_cuda_resizing &r, int64_t at, double v)
{
    if (pare_is_float(r.dtype))
        pare_double_store(r.y, r.dtype, at, v);
    else
        pare_int_store(r.y, r.dtype, at, pare_int_of(rint(v), r.dtype));
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) resize_each(pare_cuda_resizing r)
{
    PARE_CUDA_EACH (i, r.count) {
        place p = place_of(r, i);
        store(r, p.to, p.outside ? r.extrapolation : weigh(r, p));
    }
}

extern "C" cudaError_t pare_cuda_resize_launch(const pare_cuda_resizing *r, cudaStream_t stream)
{
    if (r->count == 0) return cudaSuccess;
    SIMT_LAUNCH(resize_each, pare_cuda_grid(r->count), dim3(PARE_CUDA_BLOCK), 0, stream, *r);
    return cudaGetLastError();
}
