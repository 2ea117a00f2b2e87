/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of products share: places of X's rows, and what follows a sum. */
#ifndef PARE_RUNTIME_CUDA_GEMM_GEMM_CUH
#define PARE_RUNTIME_CUDA_GEMM_GEMM_CUH

#include "runtime/cuda/device/vec.cuh"
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

/* Where product `batch` begins in Y, X and W, in elements. Products are fewer than 2^16: 32 bits
   divide. */
SIMT_INLINE void batch_find(const pare_cuda_gemm_args &p, int batch, int64_t at[3])
{
    unsigned left = (unsigned)batch;
    PARE_UNROLL for (int k = 0; k < 3; k++) at[k] = 0;
    PARE_ROLLED for (int a = p.batch.rank - 1; a >= 0 && left; a--)
    {
        const unsigned size = (unsigned)p.batch.dim[a], whole = left / size;
        const int64_t part = left - whole * size;
        PARE_UNROLL for (int k = 0; k < 3; k++) at[k] += part * p.batch.stride[k][a];
        left = whole;
    }
}

SIMT_INLINE operands operands_of(const pare_cuda_gemm_args &p, int batch, int x_bytes, int y_bytes,
                                 int z_bytes)
{
    operands o;
    int64_t at[3];
    const int64_t constants = (int64_t)batch * p.constants;
    batch_find(p, batch, at);
    o.y = static_cast<char *>(p.y) + at[0] * y_bytes;
    o.z = p.z ? static_cast<const char *>(p.z) + at[0] * z_bytes : NULL;
    o.x = static_cast<const char *>(p.x) + at[1] * x_bytes;
    o.w = static_cast<const char *>(p.w) + at[2] * x_bytes;
    o.x_side = p.x_side ? p.x_side + at[1] / p.x_row : NULL;
    o.w_side = p.w_side ? p.w_side + at[2] / p.w_row : NULL;
    o.bias = p.bias ? static_cast<const char *>(p.bias) + constants * bytes_of(p.bias_type) : NULL;
    o.scale = p.scale ? p.scale + constants : NULL;
    o.shift = p.shift ? p.shift + constants : NULL;
    return o;
}

SIMT_INLINE operands operands_of(const pare_cuda_gemm_args &p, int batch)
{
    return operands_of(p, batch, bytes_of(p.x_type), bytes_of(p.y_type),
                       bytes_of(p.epilogue.z_type));
}

/* Byte i of a word below the 1 of 2^23, whose bits are `exponent`. */
SIMT_INLINE float byte_at(unsigned word, int i, unsigned exponent = 0x4b000000u)
{
    return __uint_as_float(__byte_perm(word, exponent, 0x7440u + (unsigned)i));
}

/* --- what follows a sum: y[at] of row and column --- */

/* What sums of (x - x.zero) (w - w.zero) are less than sums of x w, modulo 2^32. */
SIMT_INLINE unsigned sides_of(const pare_cuda_gemm_args &p, pare_cuda_side x, pare_cuda_side w)
{
    return (unsigned)x.zero * (unsigned)w.sum +
           (unsigned)w.zero * ((unsigned)x.sum - (unsigned)p.depth * (unsigned)x.zero);
}

/* v plus the residual at z[at]; halves are in units of v. */
SIMT_INLINE float residual_add(const pare_epilogue &e, float v, const void *z, int64_t at)
{
    if (e.z_type == PARE_f16 || e.z_type == PARE_bf16) return v + pare_number_at(z, e.z_type, at);
    return pare_epilogue_residual(&e, v, z, at);
}

/* What y[at] becomes, as a float. */
SIMT_INLINE float sum_value(const pare_cuda_gemm_args &p, const operands &o, int sum, int64_t row,
                            int c, int64_t at)
{
    unsigned s = (unsigned)sum;
    if (o.shift) s -= (unsigned)o.shift[c];
    if (o.x_side) s -= sides_of(p, o.x_side[row], o.w_side[c]);
    const float bias = o.bias ? reinterpret_cast<const float *>(o.bias)[c] : 0.0f;
    float v = ((float)(int)s + bias) * o.scale[c];
    v = residual_add(p.epilogue, v, o.z, at);
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

/* Stores y[at]. */
template <typename SUM>
SIMT_INLINE void sum_finish(const pare_cuda_gemm_args &p, const operands &o, SUM sum, int64_t row,
                            int c, int64_t at)
{
    const int bytes = bytes_of(p.y_type);
    bits_store(bytes, o.y + at * bytes, bits_of(p.y_type, sum_value(p, o, sum, row, c, at)));
}

#endif
