/* SPDX-License-Identifier: Apache-2.0 */
/* MaxPool (12), AveragePool (19), their global forms and the 8-bit averages of pare.QAveragePool:
   one thread an output, channels fastest, walking its window clipped to the tensor. Padding is
   never a candidate of a maximum; NaN wins. Reads each element once a window it lies in. */
#include "runtime/cuda/device.cuh"
#include "runtime/cuda/pool.h"

/* Taps of one output position on one axis: the first inside the tensor, their number, and the
   number inside the padded tensor. */
typedef struct span {
    int first, taps, padded;
} span;

SIMT_INLINE span span_of(const pare_cuda_pool &p, int axis, int at)
{
    int start = at * p.stride[axis] - p.begin[axis], d = p.dilation[axis];
    int skip = start < 0 ? (-start + d - 1) / d : 0;
    int room = p.in[axis] - start, reach = p.in[axis] + p.end[axis] - start;
    int last = room <= 0 ? 0 : (room + d - 1) / d, padded = (reach + d - 1) / d;
    if (last > p.kernel[axis]) last = p.kernel[axis];
    if (padded > p.kernel[axis]) padded = p.kernel[axis];
    span s = {start + skip * d, last > skip ? last - skip : 0, padded};
    return s;
}

/* An output's place: offsets of its plane in x and of itself in y, and its spans. */
typedef struct place {
    int64_t x, y;
    span at[3];
} place;

SIMT_INLINE place place_of(const pare_cuda_pool &p, int64_t i)
{
    /* order of outputs: N, spatial axes, C, so that neighbours are channels */
    int64_t c = i % p.dim[1], left = i / p.dim[1];
    place r;
    r.x = c * p.x_stride[1];
    r.y = c * p.y_stride[1];
    for (int a = 2; a >= 0; a--) {
        int at = (int)(left % p.dim[2 + a]);
        left /= p.dim[2 + a];
        r.at[a] = span_of(p, a, at);
        r.x += r.at[a].first * p.x_stride[2 + a];
        r.y += at * p.y_stride[2 + a];
    }
    r.x += left * p.x_stride[0];
    r.y += left * p.y_stride[0];
    return r;
}

#define EACH_TAP(r, at)                                                                            \
    for (int d_ = 0; d_ < (r).at[0].taps; d_++)                                                    \
        for (int h_ = 0; h_ < (r).at[1].taps; h_++)                                                \
            for (int w_ = 0; w_ < (r).at[2].taps; w_++)                                            \
                for (int64_t at = (r).x + (int64_t)d_ * p.dilation[0] * p.x_stride[2] +            \
                                  (int64_t)h_ * p.dilation[1] * p.x_stride[3] +                    \
                                  (int64_t)w_ * p.dilation[2] * p.x_stride[4],                     \
                             once_ = 1;                                                            \
                     once_; once_ = 0)

SIMT_INLINE int divisor(const pare_cuda_pool &p, const place &r)
{
    int n = 1;
    for (int a = 0; a < 3; a++) n *= p.include_pad ? r.at[a].padded : r.at[a].taps;
    return n;
}

template <bool POWERS> /* LpPool: a kernel of its own, since powers take many registers */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) pool_floats(pare_cuda_pool p)
{
    PARE_CUDA_EACH (i, p.count) {
        place r = place_of(p, i);
        float best = -INFINITY;
        double sum = 0;
        EACH_TAP(r, at)
        {
            float v = pare_number_at(p.x, p.dtype, at);
            if (v > best || v != v) best = v;
            sum += (double)(POWERS ? powf(fabsf(v), p.p) : v);
        }
        int n = divisor(p, r);
        if (POWERS) best = (float)pow(sum, 1 / (double)p.p);
        if (p.kind == PARE_CUDA_POOL_AVERAGE) best = n ? (float)(sum / n) : 0;
        pare_number_store(p.y, p.dtype, r.y, best);
    }
}

/* s8 and u8: T is the element. */
template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) pool_bytes(pare_cuda_pool p)
{
    const T *x = static_cast<const T *>(p.x);
    PARE_CUDA_EACH (i, p.count) {
        place r = place_of(p, i);
        int best = (T)-1 > 0 ? 0 : -128, sum = 0;
        EACH_TAP(r, at)
        {
            int v = x[at];
            best = v > best ? v : best;
            sum += v - p.zero;
        }
        if (p.kind == PARE_CUDA_POOL_MAX) {
            static_cast<T *>(p.y)[r.y] = (T)best;
            continue;
        }
        int n = divisor(p, r);
        pare_epilogue_store(&p.epilogue, ((float)sum * p.factor) / (float)(n > 0 ? n : 1), p.y,
                            r.y);
    }
}

extern "C" cudaError_t pare_cuda_pool_launch(const pare_cuda_pool *p, cudaStream_t stream)
{
    if (p->count == 0) return cudaSuccess;
    dim3 grid = pare_cuda_grid(p->count), block(PARE_CUDA_BLOCK);
    if (p->dtype == PARE_s8)
        SIMT_LAUNCH(pool_bytes<int8_t>, grid, block, 0, stream, *p);
    else if (p->dtype == PARE_u8)
        SIMT_LAUNCH(pool_bytes<uint8_t>, grid, block, 0, stream, *p);
    else if (p->kind == PARE_CUDA_POOL_LP)
        SIMT_LAUNCH(pool_floats<true>, grid, block, 0, stream, *p);
    else
        SIMT_LAUNCH(pool_floats<false>, grid, block, 0, stream, *p);
    return cudaGetLastError();
}
