/* SPDX-License-Identifier: Apache-2.0 */
/* y[n, p, m] = finish(sum over taps t and channels c of the group:
                       (x[n, p + t, c] - x_zero) * w[t, c, m])
   with channels innermost everywhere. Neighbouring threads hold neighbouring filters:
   weights and, of depthwise convolutions, pixels are read in rows. A pixel is read once a tap, from
   cache but for the first. Sums run over taps, then channels, each step one fused multiply-add. */
#include "runtime/cuda/direct.h"
#include "runtime/cuda/product.cuh"

/* A type's sum and its weight. */
template <typename T> struct direct_of {
    typedef float sum;
    typedef T weight;
};
template <> struct direct_of<int8_t> {
    typedef int sum;
    typedef int16_t weight;
};
template <> struct direct_of<uint8_t> {
    typedef int sum;
    typedef int16_t weight;
};

template <typename T> SIMT_INLINE float step(float sum, T x, T w, int)
{
    return fmaf(pare_to_f32(x), pare_to_f32(w), sum);
}
SIMT_INLINE int step(int sum, int x, int16_t w, int zero) { return sum + (x - zero) * w; }

/* V neighbours that are aligned to all of them. */
template <typename T, int V> struct alignas(sizeof(T) * V) lot {
    T of[V];
};

SIMT_INLINE int direct_zero(const pare_cuda_direct &d)
{
    if (!d.x_zero) return d.x_zero_value;
    return d.p.x_type == PARE_s8 ? *static_cast<const int8_t *>(d.x_zero)
                                 : *static_cast<const uint8_t *>(d.x_zero);
}

/* V filters from c on, of one output position. */
template <typename T, int V> static __global__ void direct_each(pare_cuda_direct d)
{
    typedef typename direct_of<T>::weight weight;
    const pare_cuda_product &p = d.p;
    const operands o = operands_of(p, 0);
    const int lots = p.columns / V, zero = direct_zero(d);
    PARE_CUDA_EACH (i, p.rows * lots) {
        const int64_t row = i / lots;
        const int c = (int)(i - row * lots) * V, first = c / d.group_columns * p.in.channels;
        const row_place place = row_find(p, row);
        typename direct_of<T>::sum sum[V];
        PARE_UNROLL for (int v = 0; v < V; v++) sum[v] = 0;
        for (int tap = 0; tap < d.taps; tap++) {
            int64_t at = element_find(p, place, tap_find(p, tap * p.in.channels));
            if (at < 0) continue;
            const T *x = reinterpret_cast<const T *>(o.x) + at + first;
            const weight *w = reinterpret_cast<const weight *>(o.w) +
                              (int64_t)tap * p.in.channels * p.columns + c;
            for (int k = 0; k < p.in.channels; k++, x++, w += p.columns) {
                const lot<T, V> xs = *reinterpret_cast<const lot<T, V> *>(x);
                const lot<weight, V> ws = *reinterpret_cast<const lot<weight, V> *>(w);
                PARE_UNROLL for (int v = 0; v < V; v++) sum[v] =
                    step(sum[v], xs.of[v], ws.of[v], zero);
            }
        }
        PARE_UNROLL for (int v = 0; v < V; v++)
            sum_finish(p, o, sum[v], row, c + v, row * p.y_row + c + v);
    }
}

template <typename T> static cudaError_t type_launch(const pare_cuda_direct *d, cudaStream_t stream)
{
    const int v = d->four ? 4 : 1;
    dim3 grid = pare_cuda_grid(d->p.rows * (d->p.columns / v));
    if (d->four)
        SIMT_LAUNCH((direct_each<T, 4>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *d);
    else
        SIMT_LAUNCH((direct_each<T, 1>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *d);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_direct_launch(const pare_cuda_direct *d, cudaStream_t stream)
{
    if (d->p.rows == 0 || d->p.columns == 0) return cudaSuccess;
    switch (d->p.x_type) {
    case PARE_f32: return type_launch<float>(d, stream);
    case PARE_f16: return type_launch<__half>(d, stream);
    case PARE_bf16: return type_launch<__nv_bfloat16>(d, stream);
    case PARE_s8: return type_launch<int8_t>(d, stream);
    case PARE_u8: return type_launch<uint8_t>(d, stream);
    default: return cudaErrorInvalidValue;
    }
}
