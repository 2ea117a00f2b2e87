// SPDX-License-Identifier: Apache-2.0
// Kernels that put collectives, votes, atomics and scalar functions to use, one result a line.
#include "kernels.h"
#include "runtime/cuda/device/simt.h"

// out (SIMT_TEST_RESULTS, threads)
static __global__ void collectives(int *out)
{
    int n = (int)blockDim.x, t = (int)threadIdx.x, lane = t % 32;
    unsigned mask = 0xffffffffu;
    int row = 0;
#define RESULT(value) out[row++ * n + t] = (value)
    RESULT(__shfl_sync(mask, t * 3, 5));
    RESULT(__shfl_sync(mask, t * 3, lane + 1, 8));
    RESULT(__shfl_up_sync(mask, t, 2));
    RESULT(__shfl_xor_sync(mask, t, 3));
    RESULT(__shfl_down_sync(mask, t, 1, 4));
    RESULT(__reduce_add_sync(mask, t));
    RESULT(__reduce_min_sync(mask, -t));
    RESULT((int)__reduce_max_sync(mask, (unsigned)t));
    RESULT((int)__reduce_xor_sync(mask, 1u << lane));
    RESULT((int)__match_any_sync(mask, lane / 8));
    RESULT((int)(__shfl_sync(mask, (double)t + 0.5, 7) * 2));
    unsigned even = __ballot_sync(mask, lane % 2 == 0);
    int sum = 0; // lanes of a branch among themselves
    if (even >> lane & 1)
        sum = __shfl_sync(even, t, 4);
    else
        sum = -__shfl_sync(~even, t, 5);
    __syncwarp();
    RESULT(sum);
    if (lane < 3) sum = (int)__reduce_add_sync(7u, (unsigned)lane + 1);
    RESULT(sum);
}

// A warp whose upper lanes end early; a block vote. out: 3 a thread of the block
static __global__ void votes(int *out, int threshold)
{
    int t = (int)threadIdx.x, lane = t % 32, n = (int)blockDim.x;
    out[t] = __syncthreads_count(t >= threshold);
    out[n + t] = 2 * __syncthreads_and(t < n) + __syncthreads_or(t == n - 1);
    if (lane >= 24) return;
    out[2 * n + t] =
        (int)__ballot_sync(0x00ffffffu, lane % 3 == 0) * (__any_sync(0x00ffffffu, lane == 23)) -
        __all_sync(0x00ffffffu, lane < 24);
}

static __global__ void atomics(int *out, unsigned long long *wide, float *real)
{
    int t = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&out[0], t);
    atomicSub(&out[1], t);
    atomicMin(&out[2], 7 - t);
    atomicMax(&out[3], t);
    atomicOr(&out[4], 1 << t % 31);
    atomicAnd(&out[5], ~(1 << t % 31));
    atomicXor(&out[6], t);
    for (int old = 0, seen; (seen = atomicCAS(&out[7], old, old + 2)) != old;) old = seen;
    atomicAdd(&wide[0], (unsigned long long)t << 32);
    atomicMax(&wide[1], (unsigned long long)t << 33);
    atomicAdd(real, 0.5f);
    if (t == 9) atomicExch(&out[8], 41);
}

static __global__ void scalar(int *out)
{
    int row = 0;
    out[row++] = __float2int_rn(2.5f) * 100 + __float2int_rn(3.5f) * 10 + __float2int_rn(-0.5f);
    out[row++] = __float2int_rn(3e9f);
    out[row++] = __float2int_rz(-2.9f);
    out[row++] = __dp4a(0x7f80ff02, 0x0180ff03, -1);
    out[row++] = __popc(0xf0f0u) * 100 + __clz(1) - __ffs(8u);
    out[row++] = (int)__byte_perm(0x33221100u, 0x77665544u, 0x7150u);
    out[row++] = __float_as_int(1.0f) + (int)__brev(2u);
    out[row++] = __mulhi(1 << 30, 16) + (int)__umulhi(0x80000000u, 8u);
    out[row++] = max(3, min(9, 4)) + (int)max(2.5f, 1.0f);
    out[row++] =
        (int)(__saturatef(7.0f) * 10 + __fmaf_rn(2.0f, 3.0f, 4.0f) + __fdiv_rn(9.0f, 3.0f));
    out[row++] = __float2int_rn(__half2float(__float2half(1.0f / 3)) * 65536);
    out[row++] = __float2int_rn(__bfloat162float(__float2bfloat16(1.0f / 3)) * 65536);
}

// Shared memory between the lanes of a warp, then between the warps of a block. out: 1 a thread
static __global__ void exchange(int *out)
{
    SIMT_SHARED(int, room, [128]);
    int t = (int)threadIdx.x, lane = t % 32;
    room[t] = t;
    __syncwarp();
    int mate = room[t - lane + (lane + 1) % 32];
    __syncwarp();
    room[t] = mate * 2;
    __syncthreads();
    out[t] = room[127 - t];
}

extern "C" cudaError_t simt_test_collectives(int *out, int threads, cudaStream_t stream)
{
    SIMT_LAUNCH(collectives, dim3(1), dim3((unsigned)threads), 0, stream, out);
    return cudaGetLastError();
}
extern "C" cudaError_t simt_test_votes(int *out, int threads, int threshold, cudaStream_t stream)
{
    SIMT_LAUNCH(votes, dim3(1), dim3((unsigned)threads), 0, stream, out, threshold);
    return cudaGetLastError();
}
extern "C" cudaError_t simt_test_atomics(int *out, unsigned long long *wide, float *real,
                                         cudaStream_t stream)
{
    SIMT_LAUNCH(atomics, dim3(4), dim3(25), 0, stream, out, wide, real);
    return cudaGetLastError();
}
extern "C" cudaError_t simt_test_scalar(int *out, cudaStream_t stream)
{
    SIMT_LAUNCH(scalar, dim3(1), dim3(1), 0, stream, out);
    return cudaGetLastError();
}
extern "C" cudaError_t simt_test_exchange(int *out, cudaStream_t stream)
{
    SIMT_LAUNCH(exchange, dim3(1), dim3(128), 0, stream, out);
    return cudaGetLastError();
}
