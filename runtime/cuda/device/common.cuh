/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels share: numbers that compute in float, grids, and offsets of a walk's elements. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_COMMON_CUH
#define PARE_RUNTIME_CUDA_DEVICE_COMMON_CUH

#include "runtime/cuda/device/fast_divisor.h"
#include "runtime/cuda/device/simt.h"
#include "runtime/cuda/tensor_iterator.h"

enum { PARE_CUDA_BLOCK = 256, PARE_CUDA_MOST_BLOCKS = 132 * 16 };

SIMT_INLINE float pare_to_f32(float x) { return x; }
SIMT_INLINE float pare_to_f32(__half x) { return __half2float(x); }
SIMT_INLINE float pare_to_f32(__nv_bfloat16 x) { return simt_bf16_to_f32(x); }

/* Rounds to nearest even; beyond the type's largest becomes infinite. */
SIMT_INLINE void pare_store_f32(float *y, float v) { *y = v; }
SIMT_INLINE void pare_store_f32(__half *y, float v)
{
    const __half h = __float2half_rn(v); /* a store of its own, which the checker sees */
    *y = h;
}
SIMT_INLINE void pare_store_f32(__nv_bfloat16 *y, float v)
{
    const __nv_bfloat16 h = __float2bfloat16_rn(v);
    *y = h;
}

/* The sum over a warp's lanes, in each of them. */
template <class T> SIMT_INLINE T pare_lanes_sum(T v)
{
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

/* Element at of a tensor of f32, f16 or bf16. */
SIMT_INLINE float pare_number_at(const void *data, pare_dtype type, int64_t at)
{
    return type == PARE_f32   ? static_cast<const float *>(data)[at]
           : type == PARE_f16 ? pare_to_f32(static_cast<const __half *>(data)[at])
                              : pare_to_f32(static_cast<const __nv_bfloat16 *>(data)[at]);
}

SIMT_INLINE void pare_number_store(void *data, pare_dtype type, int64_t at, float v)
{
    if (type == PARE_f32)
        static_cast<float *>(data)[at] = v;
    else if (type == PARE_f16)
        pare_store_f32(static_cast<__half *>(data) + at, v);
    else
        pare_store_f32(static_cast<__nv_bfloat16 *>(data) + at, v);
}

/* The nearest number of f32 (v itself), f16 or bf16. */
SIMT_INLINE float pare_number_round(pare_dtype type, float v)
{
    return type == PARE_f32   ? v
           : type == PARE_f16 ? pare_to_f32(__float2half_rn(v))
                              : pare_to_f32(__float2bfloat16_rn(v));
}

/* So many blocks along a grid's x, or along its y or z; 0, which no launch takes, where a grid does
   not hold them: the launch fails, and its message names the node. */
static inline unsigned pare_cuda_blocks(int64_t n) { return n <= INT32_MAX ? (unsigned)n : 0; }
static inline unsigned pare_cuda_blocks_beside(int64_t n) { return n <= 65535 ? (unsigned)n : 0; }

/* Blocks for `count` elements of a grid-stride loop: enough to fill the device, at least one. */
static inline dim3 pare_cuda_grid(int64_t count)
{
    int64_t blocks = (count + PARE_CUDA_BLOCK - 1) / PARE_CUDA_BLOCK;
    if (blocks > PARE_CUDA_MOST_BLOCKS) blocks = PARE_CUDA_MOST_BLOCKS;
    return dim3(blocks < 1 ? 1u : (unsigned)blocks);
}

/* The end of a launcher: the kernel on a grid for `count` elements, none where there are none. */
#define PARE_CUDA_LAUNCH_EACH(kernel, count, ...)                                                  \
    do {                                                                                           \
        if ((count) == 0) return cudaSuccess;                                                      \
        SIMT_LAUNCH(kernel, pare_cuda_grid(count), dim3(PARE_CUDA_BLOCK), 0, stream, __VA_ARGS__); \
        return cudaGetLastError();                                                                 \
    } while (0)

/* Before loops that index what must stay in registers. */
#ifdef __CUDACC__
#define PARE_UNROLL _Pragma("unroll")
#else
#define PARE_UNROLL
#endif

#define PARE_CUDA_EACH(i, count)                                                                   \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,                               \
                 step_##i = (int64_t)gridDim.x * blockDim.x;                                       \
         i < (count); i += step_##i)

SIMT_INLINE int fast_divide(int n, const pare_cuda_fast_divisor &d)
{
    return d.by == 1 ? n : (int)(__umulhi((unsigned)n, d.multiplier) >> d.shift);
}

/* Offsets in elements of element i of the walk, one per operand. */
template <int OPERANDS>
SIMT_INLINE void pare_iterator_at(const pare_tensor_iterator &w, int64_t i, int64_t at[OPERANDS])
{
    for (int k = 0; k < OPERANDS; k++) at[k] = 0;
    for (int a = w.rank - 1; a > 0; a--) {
        int64_t whole = i / w.dim[a], part = i - whole * w.dim[a];
        for (int k = 0; k < OPERANDS; k++) at[k] += part * w.stride[k][a];
        i = whole;
    }
    for (int k = 0; k < OPERANDS; k++) at[k] += i * w.stride[k][0];
}

#endif
