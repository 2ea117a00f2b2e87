/* SPDX-License-Identifier: Apache-2.0 */
/* Y (rows, columns) = epilogue(X (rows, depth) x W (columns, depth)^T), where a row of X is a row of
   a matrix or the patch of a picture under a convolution's window; W is packed. One struct tells
   every kernel of the family what to do; it is passed by value. */
#ifndef PARE_RUNTIME_CUDA_PRODUCT_H
#define PARE_RUNTIME_CUDA_PRODUCT_H

#include "runtime/ops/epilogue.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_CUDA_STEP = 64,  /* bytes of depth a tile takes at a time; packed rows are a multiple */
    PARE_CUDA_CHUNK = 16 /* bytes of one copy */
};

/* Where the rows of X come from. Strides are in elements; channels lie together. */
typedef struct pare_cuda_picture {
    int height, width, channels; /* of one image; channels of one group */
    int out_height, out_width;
    int kernel_width;
    int stride[2], dilation[2], begin[2];
    int64_t image, row, pixel; /* strides of X */
} pare_cuda_picture;

typedef struct pare_cuda_product {
    const void *x, *w, *z; /* z: residual, laid out as y; or NULL */
    void *y;
    const float *scale;   /* (columns) m of epilogue.h; NULL: sums are floats */
    const float *bias;    /* (columns), or NULL */
    const int32_t *shift; /* (columns) taken from integer sums: z_x * the sum of w's row */
    const void *fill;     /* a chunk of what X is outside the picture */
    int64_t rows;
    int columns, depth, depth_bytes; /* depth_bytes: of a packed row of w */
    int64_t x_row, y_row;            /* elements from one row to the next; x_row: matrices only */
    int batches;                     /* products side by side: groups, or a batch of matrices */
    int64_t x_batch, y_batch;        /* elements */
    bool picture, aligned;           /* aligned: every chunk of X starts at a multiple of 16 bytes */
    pare_cuda_picture in;
    pare_dtype x_type, y_type;
    pare_epilogue epilogue; /* of float sums: act and z_type only */
} pare_cuda_product;

/* x_type s8 or u8 (W s8), f16, bf16: tensor cores; f32: plain multiply-adds. w, scale, bias and shift
   of batch b follow those of b - 1. */
cudaError_t pare_cuda_product_launch(const pare_cuda_product *p, cudaStream_t stream);
cudaError_t pare_cuda_product_f32_launch(const pare_cuda_product *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
