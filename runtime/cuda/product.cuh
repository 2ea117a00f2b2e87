/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of products share: places of X's rows, and what follows a sum. */
#ifndef PARE_RUNTIME_CUDA_PRODUCT_CUH
#define PARE_RUNTIME_CUDA_PRODUCT_CUH

#include "runtime/cuda/device.cuh"
#include "runtime/cuda/product.h"

/* A row of X: where it starts, and for pictures the window's first position, which may lie outside. */
typedef struct row_place {
    int64_t at;
    int top, left;
    bool present;
} row_place;

SIMT_INLINE row_place row_find(const pare_cuda_product &p, int64_t row)
{
    row_place r = {0, 0, 0, row < p.rows};
    if (!r.present) return r;
    if (!p.picture) {
        r.at = row * p.x_row;
        return r;
    }
    int64_t line = row / p.in.out_width, image = line / p.in.out_height;
    r.at = image * p.in.image;
    r.top = (int)(line - image * p.in.out_height) * p.in.stride[0] - p.in.begin[0];
    r.left = (int)(row - line * p.in.out_width) * p.in.stride[1] - p.in.begin[1];
    return r;
}

/* The offset of element k of a row; negative where it lies outside the picture. */
SIMT_INLINE int64_t element_find(const pare_cuda_product &p, const row_place &r, int k)
{
    if (!p.picture) return r.at + k;
    int tap = k / p.in.channels, line = tap / p.in.kernel_width;
    int top = r.top + line * p.in.dilation[0];
    int left = r.left + (tap - line * p.in.kernel_width) * p.in.dilation[1];
    if (top < 0 || top >= p.in.height || left < 0 || left >= p.in.width) return -1;
    return r.at + top * p.in.row + left * p.in.pixel + (k - tap * p.in.channels);
}

/* --- what follows a sum: y[at] of column c --- */

SIMT_INLINE void sum_finish(const pare_cuda_product &p, int sum, int c, int64_t at)
{
    float v = ((float)(sum - p.shift[c]) + (p.bias ? p.bias[c] : 0.0f)) * p.scale[c];
    v = pare_epilogue_residual(&p.epilogue, v, p.z, at);
    pare_epilogue_store(&p.epilogue, v, p.y, at);
}

SIMT_INLINE void sum_finish(const pare_cuda_product &p, float sum, int c, int64_t at)
{
    if (p.bias) sum += p.bias[c];
    if (p.z) sum += pare_number_at(p.z, p.epilogue.z_type, at);
    sum = pare_act_apply(&p.epilogue.act, sum);
    pare_number_store(p.y, p.y_type, at, sum);
}

/* The product of one batch. */
SIMT_INLINE void batch_enter(pare_cuda_product &p, int batch, int x_bytes, int y_bytes, int z_bytes)
{
    int64_t columns = (int64_t)batch * p.columns;
    p.x = static_cast<const char *>(p.x) + batch * p.x_batch * x_bytes;
    p.w = static_cast<const char *>(p.w) + columns * p.depth_bytes;
    p.y = static_cast<char *>(p.y) + batch * p.y_batch * y_bytes;
    if (p.z) p.z = static_cast<const char *>(p.z) + batch * p.y_batch * z_bytes;
    if (p.scale) p.scale += columns;
    if (p.bias) p.bias += columns;
    if (p.shift) p.shift += columns;
}

SIMT_INLINE int bytes_of(pare_dtype type)
{
    return type == PARE_f32 ? 4 : type == PARE_f16 || type == PARE_bf16 ? 2 : 1;
}

#endif
