/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of products share: places of X's rows, and what follows a sum. */
#ifndef PARE_RUNTIME_CUDA_GEMM_GEMM_CUH
#define PARE_RUNTIME_CUDA_GEMM_GEMM_CUH

#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/gemm/gemm.h"

/* Before loops that stay loops. */
#ifdef __CUDACC__
#define PARE_ROLLED _Pragma("unroll 1")
#else
#define PARE_ROLLED
#endif

/* A row of X: where it starts, and of pictures the window's first position (it may are outside). */
typedef struct row_place {
    int64_t at;
    int top, left;
    bool present;
} row_place;

SIMT_INLINE row_place row_find(const pare_cuda_gemm_args &p, int64_t row)
{
    row_place r = {0, 0, 0, row < p.rows};
    if (!r.present) return r;
    if (!p.picture) {
        r.at = row * p.x_row;
        return r;
    }
    int64_t line = row / p.in.out_width, image = line / p.in.out_height;
    const int y = (int)(line - image * p.in.out_height), x = (int)(row - line * p.in.out_width);
    r.at = image * p.in.image;
    r.top = p.in.transposed ? y + p.in.begin[0] : y * p.in.stride[0] - p.in.begin[0];
    r.left = p.in.transposed ? x + p.in.begin[1] : x * p.in.stride[1] - p.in.begin[1];
    return r;
}

/* Element k of a row's depth: how far its tap is from the window's first position. */
typedef struct tap_place {
    int top, left;
    int64_t at;
} tap_place;

SIMT_INLINE tap_place tap_find(const pare_cuda_gemm_args &p, int k)
{
    tap_place t = {0, 0, k * p.x_step};
    if (!p.picture) return t;
    int tap = k / p.in.channels, line = tap / p.in.kernel_width;
    t.top = line * p.in.dilation[0];
    t.left = (tap - line * p.in.kernel_width) * p.in.dilation[1];
    t.at = k - tap * p.in.channels;
    return t;
}

/* The offset of that element in that row; negative where it is outside the picture. */
SIMT_INLINE int64_t element_find(const pare_cuda_gemm_args &p, const row_place &r,
                                 const tap_place &t)
{
    if (!p.picture) return r.at + t.at;
    int top = r.top + t.top, left = r.left + t.left;
    if (p.in.transposed) {
        top = r.top - t.top, left = r.left - t.left;
        if (top < 0 || left < 0 || top % p.in.stride[0] || left % p.in.stride[1]) return -1;
        top /= p.in.stride[0], left /= p.in.stride[1];
    }
    if (top < 0 || top >= p.in.height || left < 0 || left >= p.in.width) return -1;
    return r.at + top * p.in.row + left * p.in.pixel + t.at;
}

/* What one of several products side by side reads and writes. The kernel's argument stays as it is:
   a copy of it that changes would be in memory. */
typedef struct operands {
    const char *x, *w, *z;
    char *y;
    const float *scale;
    const char *bias;
    const int32_t *shift;
    const pare_cuda_side *x_side, *w_side;
} operands;

SIMT_INLINE int bytes_of(pare_dtype type)
{
    return type == PARE_f32 || type == PARE_s32 ? 4 : type == PARE_f16 || type == PARE_bf16 ? 2 : 1;
}

SIMT_INLINE operands operands_of(const pare_cuda_gemm_args &p, int batch)
{
    operands o;
    int64_t at[3];
    const int64_t constants = (int64_t)batch * p.constants;
    pare_iterator_at<3>(p.batch, batch, at);
    o.y = static_cast<char *>(p.y) + at[0] * bytes_of(p.y_type);
    o.z = p.z ? static_cast<const char *>(p.z) + at[0] * bytes_of(p.epilogue.z_type) : NULL;
    o.x = static_cast<const char *>(p.x) + at[1] * bytes_of(p.x_type);
    o.w = static_cast<const char *>(p.w) + at[2] * bytes_of(p.x_type);
    o.x_side = p.x_side ? p.x_side + at[1] / p.x_row : NULL;
    o.w_side = p.w_side ? p.w_side + at[2] / p.w_row : NULL;
    o.bias = p.bias ? static_cast<const char *>(p.bias) + constants * bytes_of(p.bias_type) : NULL;
    o.scale = p.scale ? p.scale + constants : NULL;
    o.shift = p.shift ? p.shift + constants : NULL;
    return o;
}

/* --- what follows a sum: y[at] of row and column --- */

/* Sums of (x - x.zero) (w - w.zero) from sums of x w, modulo 2^32. */
SIMT_INLINE int sum_correct(const pare_cuda_gemm_args &p, const operands &o, int sum, int64_t row,
                            int c)
{
    unsigned s = (unsigned)sum;
    if (o.shift) s -= (unsigned)o.shift[c];
    if (!o.x_side) return (int)s;
    const pare_cuda_side x = o.x_side[row], w = o.w_side[c];
    s -= (unsigned)x.zero * (unsigned)w.sum;
    s -= (unsigned)w.zero * ((unsigned)x.sum - (unsigned)p.depth * (unsigned)x.zero);
    return (int)s;
}

/* What y[at] becomes, as a float. */
SIMT_INLINE float sum_value(const pare_cuda_gemm_args &p, const operands &o, int sum, int64_t row,
                            int c, int64_t at)
{
    sum = sum_correct(p, o, sum, row, c);
    const float bias = o.bias ? reinterpret_cast<const float *>(o.bias)[c] : 0.0f;
    float v = ((float)sum + bias) * o.scale[c];
    v = pare_epilogue_residual(&p.epilogue, v, o.z, at);
    return pare_epilogue_value(&p.epilogue, v);
}

SIMT_INLINE float sum_value(const pare_cuda_gemm_args &p, const operands &o, float sum, int64_t row,
                            int c, int64_t at)
{
    sum *= p.alpha;
    if (o.bias)
        sum += p.beta * pare_number_at(o.bias, p.bias_type, row * p.bias_row + c * p.bias_column);
    if (o.z) sum += pare_number_at(o.z, p.epilogue.z_type, at);
    return pare_act_apply(&p.epilogue.act, sum);
}

/* A number as y's type, in the low bits of a word. */
SIMT_INLINE unsigned bits_of(pare_dtype type, float v)
{
    switch (type) {
    case PARE_s8: return (uint8_t)(int8_t)v;
    case PARE_u8: return (uint8_t)v;
    case PARE_f16: return __half_as_ushort(__float2half_rn(v));
    case PARE_bf16: return __bfloat16_as_ushort(__float2bfloat16_rn(v));
    default: return __float_as_uint(v);
    }
}

/* Stores y[at]. */
template <typename SUM>
SIMT_INLINE void sum_finish(const pare_cuda_gemm_args &p, const operands &o, SUM sum, int64_t row,
                            int c, int64_t at)
{
    const int bytes = bytes_of(p.y_type);
    const unsigned bits = bits_of(p.y_type, sum_value(p, o, sum, row, c, at));
    if (bytes == 1)
        reinterpret_cast<uint8_t *>(o.y)[at] = (uint8_t)bits;
    else if (bytes == 2)
        reinterpret_cast<uint16_t *>(o.y)[at] = (uint16_t)bits;
    else
        reinterpret_cast<uint32_t *>(o.y)[at] = bits;
}

/* The same of a lot's neighbours, which are at a multiple of 16 bytes: one store. The loop is not
   unrolled: it holds every activation. */
template <typename SUM>
SIMT_INLINE void lot_finish(const pare_cuda_gemm_args &p, const operands &o, const SUM *sums,
                            int64_t row, int c, int64_t at)
{
    const int step = bytes_of(p.y_type) * 8;
    uint64_t low = 0, high = 0;
    PARE_ROLLED for (int k = 0; k < p.lot; k++)
    {
        const uint64_t bits = bits_of(p.y_type, sum_value(p, o, sums[k], row, c + k, at + k));
        if (k * step < 64)
            low |= bits << k * step;
        else
            high |= bits << (k * step - 64);
    }
    *reinterpret_cast<uint4 *>(o.y + at * step / 8) =
        make_uint4((unsigned)low, (unsigned)(low >> 32), (unsigned)high, (unsigned)(high >> 32));
}

#endif
