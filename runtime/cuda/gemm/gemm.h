/* SPDX-License-Identifier: Apache-2.0 */
/* Y (rows, columns) = epilogue(X (rows, depth) x W (columns, depth)^T), where a row of X is a row
   of a matrix or the patch of a picture under a convolution's window; W is packed. One struct tells
   every kernel of the family what to do; it is passed by value. */
#ifndef PARE_RUNTIME_CUDA_GEMM_GEMM_H
#define PARE_RUNTIME_CUDA_GEMM_GEMM_H

#include "runtime/cuda/device/fast_divisor.h"
#include "runtime/ops/epilogue.h"
#include "runtime/ops/tensor_iterator.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_CUDA_STEP = 64,      /* bytes of depth a tile takes at a time */
    PARE_CUDA_CHUNK = 16,     /* bytes of one copy; packed rows are a multiple */
    PARE_CUDA_MOST_TAPS = 32, /* of a window whose patches tiles copy by chunks */
    PARE_CUDA_MOST_BATCHES = 65535,
    PARE_CUDA_MOST_COLUMNS = 65535 * 64 /* tiles of 64 and more are a grid's y */
};

/* Do a grid and the kernels' 32-bit counts hold a product's columns and depth? */
static inline bool pare_cuda_gemm_counts(int64_t columns, int64_t depth)
{
    return columns <= PARE_CUDA_MOST_COLUMNS && depth <= INT32_MAX / 8;
}

/* Where the rows of X come from. Strides are in elements; channels are together. A transposed
   window (ConvTranspose 11) reads position (row + begin - tap * dilation) / stride where that
   divides. */
typedef struct pare_cuda_picture {
    int height, width, channels; /* of one image; channels of one group */
    int out_height, out_width;
    int kernel_width;
    int stride[2], dilation[2], begin[2];
    bool transposed;
    int64_t image, row, pixel; /* strides of X */
    int taps;                  /* whose patches are copied by chunks; 0: they are gathered */
    pare_cuda_fast_divisor by_width, by_height; /* out_width, out_height */
} pare_cuda_picture;

/* Of a chunk of depth: bytes from the window's first position, and its tap's bit; 0 behind the
 * depth.
 */
typedef struct __attribute__((aligned(8))) pare_cuda_im2col {
    int at;
    unsigned tap;
} pare_cuda_im2col;

/* Of a row of X or of W whose zero point is not in `shift`: the zero point, and the sum of its
   depth. */
typedef struct pare_cuda_side {
    int32_t zero, sum;
} pare_cuda_side;

/* W of an f32 product in 4 or 8 bits (product.h, pare_weight_only). Rows are packed, the first
   number in the lowest bits, and a multiple of 16 bytes apart. Integers are counted from the lowest
   level on: 0 to 15 or 255. */
typedef struct pare_cuda_weights {
    pare_dtype type; /* s4, s8: integers, signed or not; f4e2m1, f8e4m3; none: W is of X's type */
    const float *scale;  /* (columns, groups) */
    const uint8_t *zero; /* (columns, groups) levels that mean 0; NULL: `middle` does, everywhere */
    int middle;
    int group, groups; /* elements of depth that share a scale; how many groups a row has */
} pare_cuda_weights;

/* Tiles of the tensor-core kernel, rows by columns. */
typedef enum pare_cuda_tiling {
    PARE_CUDA_64X64,
    PARE_CUDA_128X64,
    PARE_CUDA_128X128,
    PARE_CUDA_256X128, /* this and those after it: wgmma.h only */
    PARE_CUDA_128X192,
    PARE_CUDA_256X64,
    PARE_CUDA_256X128_4WG, /* four groups of warps multiply, elsewhere two */
    PARE_CUDA_128X256,     /* tcgen.h only, which has 128X64 and 128X128, too */
    PARE_CUDA_32X64,       /* wgmma_swap.h only, which has 64X64 and 128X64, too */
    PARE_CUDA_TILES
} pare_cuda_tiling;

/* Constants of four neighbouring columns of a product of integers (wgmma.h): shift, scale and bias
   of pare_cuda_gemm_args; a bias of -0 changes no sum. */
typedef struct pare_cuda_four_columns {
    int32_t shift[4];
    float scale[4], bias[4];
} pare_cuda_four_columns;

typedef struct pare_cuda_gemm_args {
    const void *x, *w, *z; /* z: residual, laid out as y; or NULL */
    void *y;
    const float *scale;   /* (columns) m of epilogue.h; NULL: factors are floats, not of FP8 */
    const void *bias;     /* or NULL; factors of 8 bits: floats (columns) */
    const int32_t *shift; /* (columns) less of integer sums: z_x * the sum of w's row, less a bias
                             that is an integer; or NULL */
    const pare_cuda_four_columns *four;    /* (columns / 4) the three above once more, or NULL */
    const pare_cuda_side *x_side, *w_side; /* (rows), (columns); both or NULL */
    uint32_t fill;                         /* bytes of what X is outside the picture */
    const pare_cuda_im2col *patch;         /* (pare_cuda_im2col_chunks), where X is by patches */
    void *partial;                         /* splits > 1: (splits, batches, rows, columns) sums */
    int64_t rows;
    int columns, depth;
    int64_t x_row, x_step; /* elements from row to row, and along depth; matrices only */
    int64_t w_row, w_step; /* the same of W; steps are 1 on tensor cores; bytes of `weights` */
    int64_t y_row;
    int64_t bias_row, bias_column; /* elements; float sums only */
    pare_dtype bias_type;
    float alpha, beta; /* float sums: alpha * sum + beta * bias */
    int batches;       /* products side by side: groups, or matrices; operands Y, X, W of: */
    pare_tensor_iterator batch;
    int constants; /* entries of bias, scale and shift from one batch to the next */
    bool picture;
    int copy;   /* bytes that are together and aligned in X: 16, 8 (pieces.h), 4 or 1 */
    int splits; /* of depth; 1: none */
    int lot;    /* elements of Y that are stored at once: 16 or 4 bytes of them, or 1 */
    pare_cuda_tiling tile;
    pare_cuda_weights weights;
    bool few; /* rows: a product of `weights` column by column */
    pare_cuda_picture in;
    pare_dtype x_type, y_type;
    pare_epilogue epilogue; /* of factors of 16 and 32 bits: act and z_type only */
} pare_cuda_gemm_args;

/* Chunks of depth, and those that tiles read ahead. */
static inline size_t pare_cuda_im2col_chunks(int64_t depth_bytes)
{
    return (size_t)(depth_bytes / PARE_CUDA_CHUNK) + 8 * PARE_CUDA_STEP / PARE_CUDA_CHUNK;
}

/* Do tiles copy X by chunks? */
static inline bool pare_cuda_by_chunks(const pare_cuda_gemm_args *p)
{
    return p->copy == PARE_CUDA_CHUNK && (!p->picture || p->in.taps > 0);
}

/* x_type s8 or u8 (W s8), FP8, f16, bf16: tensor cores; f32: plain multiply-adds. */
cudaError_t pare_cuda_gemm_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* On tensor cores by chunks, of integers, FP8 and 16-bit types. */
cudaError_t pare_cuda_gemm_int8_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
cudaError_t pare_cuda_gemm_f8_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
cudaError_t pare_cuda_gemm_half_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
cudaError_t pare_cuda_gemm_f32_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* Of `weights`, with few rows. copy: 16 where X is read four numbers at once, else 1. */
cudaError_t pare_cuda_gemv_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);
/* Y (columns, y_row) = `weights` as f32; y_row is a multiple of 4. */
cudaError_t pare_cuda_widen_weights_launch(const pare_cuda_gemm_args *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
