/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of the selftest for compute capability 9.0 and 10.0 share. The inputs are taken for
   a tensor of bytes, rows of 64. */
#ifndef PARE_TESTS_GPU_SELFTEST_SM90_CUH
#define PARE_TESTS_GPU_SELFTEST_SM90_CUH

#include "selftest.cuh"
#include "runtime/cuda/device/simt_f8.cuh"
#include "runtime/cuda/device/simt_sm90.cuh"

enum {
    N = SELFTEST_THREADS,
    HALF = SELFTEST_BLOCK / 2,
    ROW = 64,
    TILE = 64 * ROW,
    ROWS = N * SELFTEST_INPUTS * 4 / ROW
};

#define THREAD const int t = (int)(blockIdx.x * blockDim.x + threadIdx.x), block = (int)blockIdx.x

static const dim3 blocks(N / SELFTEST_BLOCK), threads(SELFTEST_BLOCK);
enum { SHARED = 2 * TILE + 192 * ROW + 16 };

SIMT_INLINE unsigned barrier_set(unsigned bar)
{
    if (threadIdx.x == 0) {
        simt_mbar_init(bar, 1);
        simt_mbar_publish();
    }
    __syncthreads();
    return bar;
}

template <typename F> static inline F encoder(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how;
    (void)cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how);
    return reinterpret_cast<F>(found);
}

static inline bool map_rows(CUtensorMap *map, const void *at, unsigned columns, unsigned rows,
                            unsigned box)
{
    const auto encode = encoder<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
    const cuuint64_t dims[2] = {columns, rows}, strides[1] = {ROW};
    const cuuint32_t boxes[2] = {ROW, box}, ones[2] = {1, 1};
    return encode && encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void *>(at), dims,
                            strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Two integers from -16 to 15 as f16 or bf16.
SIMT_INLINE unsigned pair_of(unsigned a, bool bf16)
{
    const float low = (float)((int)(a >> 3 & 31u) - 16), high = (float)((int)(a >> 19 & 31u) - 16);
    return bf16 ? (unsigned)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16 |
                      __bfloat16_as_ushort(__float2bfloat16_rn(low))
                : (unsigned)__half_as_ushort(__float2half_rn(high)) << 16 |
                      __half_as_ushort(__float2half_rn(low));
}

// Four integers from -4 to 3 as FP8: 14 bits hold their sums.
template <bool E5M2> SIMT_INLINE unsigned four_of(unsigned a)
{
    float v[4];
    for (int i = 0; i < 4; i++) v[i] = (float)((int)(a >> (8 * i + 3) & 7u) - 4);
    return simt_floats_to_f8<E5M2>(v);
}

// Sums of floats are integers.
template <typename SUM, int COUNT> SIMT_INLINE uint64_t sums_hash(const SUM (&sums)[COUNT])
{
    uint64_t all = 0;
    for (int i = 0; i < COUNT; i++) all = all * 31 + (unsigned)(int)sums[i];
    return all;
}

#endif
