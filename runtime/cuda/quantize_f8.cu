/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear and DequantizeLinear (19) of FP8, per tensor or along an axis:
     y = code(x / scale)     a true division, to nearest even, saturating
     y = number(x) * scale
   NaN becomes a NaN: on the host with its sign, on devices as their instruction has it.
   Each reads its operands once and writes its output once, four neighbours a thread where they lie
   together. The host half is quantize.cu's. */
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/simt_f8.cuh"
#include "runtime/cuda/device/vec_number.cuh"
#include "runtime/cuda/quantize_f8.h"

/* W: 4, or 1. */
template <int W, bool E5M2>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    quantize_f8(pare_cuda_iterator w, pare_dtype x_type, pare_dtype s_type)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[3];
        float x[W], scale[W], v[4];
        uint8_t y[W];
        pare_iterator_at<3>(w.walk, i * W, at);
        vec_load_floats<W>(w.data[1], x_type, at[1], iterator_step(w, 1), x);
        vec_load_floats<W>(w.data[2], s_type, at[2], iterator_step(w, 2), scale);
        PARE_UNROLL for (int k = 0; k < 4; k++) v[k] = x[k % W] / scale[k % W] + 0.0f;
        const unsigned codes = simt_floats_to_f8<E5M2>(v);
        PARE_UNROLL for (int k = 0; k < W; k++) y[k] = (uint8_t)(codes >> 8 * k);
        vec_store<W>(static_cast<uint8_t *>(w.data[0]), at[0], y);
    }
}

template <int W, bool E5M2>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    dequantize_f8(pare_cuda_iterator w, pare_dtype y_type, pare_dtype s_type)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[3];
        float scale[W], v[4];
        uint8_t x[W];
        unsigned codes = 0;
        pare_iterator_at<3>(w.walk, i * W, at);
        vec_load<W>(static_cast<const uint8_t *>(w.data[1]), at[1], iterator_step(w, 1), x);
        vec_load_floats<W>(w.data[2], s_type, at[2], iterator_step(w, 2), scale);
        PARE_UNROLL for (int k = 0; k < W; k++) codes |= (unsigned)x[k] << 8 * k;
        simt_f8_to_floats<E5M2>(codes, v);
        PARE_UNROLL for (int k = 0; k < 4; k++) v[k] *= scale[k % W];
        vec4_store(y_type, static_cast<char *>(w.data[0]), at[0], v, W, W == 4);
    }
}

/* --- launchers --- */

#define LAUNCH(kernel, e5m2, ...)                                                                  \
    do {                                                                                           \
        PARE_ITERATOR_LAUNCH_VEC(4, (kernel<4, e5m2>), (kernel<1, e5m2>), __VA_ARGS__);            \
        return cudaGetLastError();                                                                 \
    } while (0)

extern "C" cudaError_t pare_cuda_quantize_f8_launch(const pare_cuda_iterator *w, pare_dtype y_type,
                                                    pare_dtype x_type, pare_dtype s_type,
                                                    cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    if (y_type == PARE_f8e4m3) LAUNCH(quantize_f8, false, x_type, s_type);
    LAUNCH(quantize_f8, true, x_type, s_type);
}

extern "C" cudaError_t pare_cuda_dequantize_f8_launch(const pare_cuda_iterator *w,
                                                      pare_dtype y_type, pare_dtype x_type,
                                                      pare_dtype s_type, cudaStream_t stream)
{
    if (w->walk.count == 0) return cudaSuccess;
    if (x_type == PARE_f8e4m3) LAUNCH(dequantize_f8, false, y_type, s_type);
    LAUNCH(dequantize_f8, true, y_type, s_type);
}
