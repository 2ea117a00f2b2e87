/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit elements: sums and products of two tensors, tables, QuantizeLinear and DequantizeLinear.
   Each reads its operands once and writes its output once. Arithmetic is that of runtime/cpu, step
   by step: fmaf where it stands, true divisions, ties to even. */
#include "runtime/cuda/device.cuh"
#include "runtime/cuda/integer.h"

SIMT_INLINE int code_at(const void *data, pare_dtype type, int64_t at)
{
    return type == PARE_s8   ? static_cast<const int8_t *>(data)[at]
           : type == PARE_u8 ? static_cast<const uint8_t *>(data)[at]
                             : static_cast<const int32_t *>(data)[at];
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    pair_each(pare_cuda_walk w, pare_int8_pair p)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[3];
        pare_walk_at<3>(w.walk, i, at);
        float a = (float)(code_at(w.data[1], p.a_type, at[1]) - p.a_zero);
        float b = (float)(code_at(w.data[2], p.b_type, at[2]) - p.b_zero);
        float v = p.product ? (a * b) * p.a_factor : fmaf(b, p.b_factor, a * p.a_factor);
        pare_epilogue_store(&p.epilogue, v, w.data[0], at[0]);
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    table_each(pare_cuda_walk w, const uint8_t *table)
{
    const uint8_t *x = static_cast<const uint8_t *>(w.data[1]);
    uint8_t *y = static_cast<uint8_t *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_walk_at<2>(w.walk, i, at);
        y[at[0]] = table[x[at[1]]];
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    quantize_each(pare_cuda_walk w, pare_dtype y_type, pare_dtype x_type, bool zeroed)
{
    const float low = y_type == PARE_s8 ? -128.0f : 0.0f,
                high = y_type == PARE_s8 ? 127.0f : 255.0f;
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[4];
        pare_walk_at<4>(w.walk, i, at);
        float q = rintf(pare_number_at(w.data[1], x_type, at[1]) /
                        pare_number_at(w.data[2], x_type, at[2]));
        if (zeroed) q += (float)code_at(w.data[3], y_type, at[3]);
        q = q > low ? q : low; /* NaN becomes the lowest */
        q = q < high ? q : high;
        if (y_type == PARE_s8)
            static_cast<int8_t *>(w.data[0])[at[0]] = (int8_t)q;
        else
            static_cast<uint8_t *>(w.data[0])[at[0]] = (uint8_t)q;
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    dequantize_each(pare_cuda_walk w, pare_dtype y_type, pare_dtype x_type, bool zeroed)
{
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[4];
        pare_walk_at<4>(w.walk, i, at);
        int v = code_at(w.data[1], x_type, at[1]);
        if (zeroed) v -= code_at(w.data[3], x_type, at[3]);
        pare_number_store(w.data[0], y_type, at[0],
                          (float)v * pare_number_at(w.data[2], y_type, at[2]));
    }
}

/* scale = (high - low) / 255; zero point = -low / scale, rounded and held in u8. One thread. */
static __global__ void dynamic_scale(const float *range, float *scale, uint8_t *zero)
{
    float step = (range[1] - range[0]) / 255;
    if (step == 0) step = 1; /* all zeros: any scale keeps them */
    const float z = rintf(-range[0] / step);
    *scale = step;
    *zero = (uint8_t)(z > 0 ? z < 255 ? z : 255 : 0);
}

/* --- launchers --- */

#define LAUNCH(kernel, ...)                                                                        \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        SIMT_LAUNCH(kernel, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, *w,   \
                    __VA_ARGS__);                                                                  \
        return cudaGetLastError();                                                                 \
    } while (0)

extern "C" cudaError_t pare_cuda_pair_launch(const pare_cuda_walk *w, const pare_int8_pair *pair,
                                             cudaStream_t stream)
{
    LAUNCH(pair_each, *pair);
}

extern "C" cudaError_t pare_cuda_table_launch(const pare_cuda_walk *w, const void *table,
                                              cudaStream_t stream)
{
    LAUNCH(table_each, static_cast<const uint8_t *>(table));
}

extern "C" cudaError_t pare_cuda_quantize_launch(const pare_cuda_walk *w, pare_dtype y_type,
                                                 pare_dtype x_type, bool zeroed,
                                                 cudaStream_t stream)
{
    LAUNCH(quantize_each, y_type, x_type, zeroed);
}

extern "C" cudaError_t pare_cuda_dequantize_launch(const pare_cuda_walk *w, pare_dtype y_type,
                                                   pare_dtype x_type, bool zeroed,
                                                   cudaStream_t stream)
{
    LAUNCH(dequantize_each, y_type, x_type, zeroed);
}

extern "C" cudaError_t pare_cuda_dynamic_launch(const float *range, float *scale, uint8_t *zero,
                                                cudaStream_t stream)
{
    SIMT_LAUNCH(dynamic_scale, dim3(1), dim3(1), 0, stream, range, scale, zero);
    return cudaGetLastError();
}
