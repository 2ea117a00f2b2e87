/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps of a product's operands on compute capability 9.0: rows of matrices, patches of
   pictures. All types are bytes to them. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_MAPS_CUH
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_MAPS_CUH

#include "runtime/cuda/device/simt_sm90.cuh"
#include "runtime/cuda/gemm/gemm.h"

constexpr int bytes_of_type(int type)
{
    return type == PARE_f32 ? 4 : type == PARE_f16 || type == PARE_bf16 ? 2 : 1;
}

typedef decltype(&cuTensorMapEncodeTiled) tiled_encoder;
typedef decltype(&cuTensorMapEncodeIm2col) im2col_encoder;

static void *driver_find(const char *name)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult how;
    if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how) !=
        cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return how == cudaDriverEntryPointSuccess ? found : NULL;
}

static tiled_encoder tiled_find(void)
{
    static const tiled_encoder found =
        reinterpret_cast<tiled_encoder>(driver_find("cuTensorMapEncodeTiled"));
    return found;
}

static im2col_encoder im2col_find(void)
{
    static const im2col_encoder found =
        reinterpret_cast<im2col_encoder>(driver_find("cuTensorMapEncodeIm2col"));
    return found;
}

static CUtensorMapSwizzle swizzle_of(int bytes)
{
    return bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
}

/* (rows, columns) bytes, rows `pitch` apart, in boxes of so many. */
static bool map_boxes(CUtensorMap *map, const void *at, int64_t rows, int64_t columns,
                      int64_t pitch, int box_rows, int box_columns, CUtensorMapSwizzle swizzle)
{
    const cuuint64_t dims[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t strides[1] = {(cuuint64_t)pitch};
    const cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows};
    const cuuint32_t ones[2] = {1, 1};
    return tiled_find()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void *>(at), dims,
                        strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* The same as wgmma reads them. */
static bool map_rows(CUtensorMap *map, const void *at, int64_t rows, int64_t columns, int64_t pitch,
                     int box_rows, int box_columns)
{
    return map_boxes(map, at, rows, columns, pitch, box_rows, box_columns, swizzle_of(box_columns));
}

/* How far the last position of a window, and `stride` behind it, is from a picture's end. */
static int corner_of(const pare_cuda_picture &in, int axis)
{
    const int out = axis ? in.out_width : in.out_height, size = axis ? in.width : in.height;
    return out * in.stride[axis] - size - in.begin[axis];
}

/* A window's positions in a picture; what is outside is 0. */
static bool map_pixels(CUtensorMap *map, const pare_cuda_gemm_args &p, int box_pixels,
                       int box_bytes)
{
    const pare_cuda_picture &in = p.in;
    const int64_t images = p.rows / ((int64_t)in.out_height * in.out_width);
    const int64_t row = in.height > 1 ? in.row : in.width * in.pixel,
                  bytes = bytes_of_type(p.x_type);
    const int64_t image = images > 1 ? in.image : in.height * row;
    const cuuint64_t dims[4] = {(cuuint64_t)(in.channels * bytes), (cuuint64_t)in.width,
                                (cuuint64_t)in.height, (cuuint64_t)images};
    const cuuint64_t strides[3] = {(cuuint64_t)(in.pixel * bytes), (cuuint64_t)(row * bytes),
                                   (cuuint64_t)(image * bytes)};
    const int low[2] = {-in.begin[1], -in.begin[0]}, high[2] = {corner_of(in, 1), corner_of(in, 0)};
    const cuuint32_t apart[4] = {1, (cuuint32_t)in.stride[1], (cuuint32_t)in.stride[0], 1};
    return im2col_find()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void *>(p.x), dims,
                         strides, low, high, (cuuint32_t)box_bytes, (cuuint32_t)box_pixels, apart,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box_bytes),
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#endif
