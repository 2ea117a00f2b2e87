/* SPDX-License-Identifier: Apache-2.0 */
/* The header that kernels include; those of compute capability 9.0 alone have simt_sm90.cuh, too.
   Under nvcc it is a thin alias of CUDA; under g++ and clang++ it is an emulation of the device
   (tests/simt, test code, never part of the product), so that every kernel runs, and is checked, on
   machines without a GPU.

   A kernel file, NAME.cu:

       #include "runtime/cuda/device/simt.h"
       static __global__ void __launch_bounds__(256) add_f32(const float *a, float *y, int64_t n)
       {
           SIMT_SHARED(float, part, [8][32]);        // __shared__ float part[8][32];
           ...
       }
       extern "C" cudaError_t pare_cuda_add(..., cudaStream_t stream)
       {
           SIMT_LAUNCH(add_f32, dim3(grid), dim3(256), 0, stream, a, y, n);
           return cudaGetLastError();
       }

   Templates in parentheses: SIMT_LAUNCH((sum<float, 4>), ...). Dynamic shared memory is
   SIMT_DYN_SHARED(T, name), aligned to 128 bytes or as SIMT_DYN_SHARED_AT says; above 48 KiB the
   launcher first calls SIMT_ALLOW_SHARED(kernel, bytes).

   Rules, most of them faults of the emulation:
   - shared variables inside functions only and through the macros; launches through SIMT_LAUNCH;
     no inline assembly outside these files; 64-bit atomics on unsigned long long;
   - no return before a later barrier; a barrier is reached by all threads at the same line;
     _sync masks name the lanes that take part; lanes that talk through shared memory need
     __syncwarp();
   - what cp.async copies may be read after simt_cp_async_wait and a barrier, its source may not
     change before the wait, and no thread leaves with a copy it never waited for;
   - blocks never wait for each other; a block that counted itself the last one calls
     simt_acquire_grid() before it reads what the others wrote;
   - half numbers are converted, computed in float and converted back (pairs may be added as they
     are, which rounds alike); where the CPU's bits must be met, fmaf is written out and the file is
     compiled without contraction. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_SIMT_H
#define PARE_RUNTIME_CUDA_DEVICE_SIMT_H

#ifndef __CUDACC__
#include <simt_device.h>
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define SIMT_SHARED(type, name, dims) __shared__ type name dims
#define SIMT_DYN_SHARED_AT(type, name, alignment)                                                  \
    extern __shared__ __align__(alignment)                                                         \
    unsigned char simt_dynamic_##alignment[];                                                      \
    type *name = reinterpret_cast<type *>(simt_dynamic_##alignment)
#define SIMT_DYN_SHARED(type, name) SIMT_DYN_SHARED_AT(type, name, 128)
#define SIMT_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define SIMT_ALLOW_SHARED(kernel, bytes)                                                           \
    cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,      \
                         (int)(bytes))
#define SIMT_INLINE static __device__ __forceinline__
#define SIMT_UNROLL _Pragma("unroll") /* before a loop */

/* What other blocks wrote before they counted themselves is visible afterwards. */
SIMT_INLINE void simt_acquire_grid(void) { __threadfence(); }

SIMT_INLINE unsigned simt_shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* A pointer or number stays as it is in registers: a compiler would make it again of its parts in
   every turn of a loop. */
template <typename T> SIMT_INLINE void simt_opaque(T *&p) { asm volatile("" : "+l"(p)); }
SIMT_INLINE void simt_opaque(int &v) { asm volatile("" : "+r"(v)); }
SIMT_INLINE void simt_opaque(unsigned &v) { asm volatile("" : "+r"(v)); }

/* --- bytes and bits of words: PTX ISA, cvt.pack, prmt and lop3 --- */

/* Each number at the nearest that 8 bits without sign hold, the first in the lowest byte. */
SIMT_INLINE unsigned simt_saturate_u8x4(const int v[4])
{
    unsigned upper, all;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(upper) : "r"(v[3]), "r"(v[2]));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(v[1]), "r"(v[0]), "r"(upper));
    return all;
}

/* As __byte_perm; a nibble of 8 and more: the sign of byte nibble - 8, in all of its bits. */
SIMT_INLINE unsigned simt_permute_bytes(unsigned a, unsigned b, unsigned selector)
{
    unsigned r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

/* a ^ b where `where` has ones, elsewhere a | b. */
SIMT_INLINE unsigned simt_xor_or(unsigned a, unsigned b, unsigned where)
{
    unsigned r;
    asm("lop3.b32 %0, %1, %2, %3, 0x7c;" : "=r"(r) : "r"(a), "r"(b), "r"(where));
    return r;
}

/* As __bfloat162float, by moving bits on all GPUs: from compute capability 9.0 on that one
   converts, which takes an instruction more of each second number of a word. */
SIMT_INLINE float simt_bf16_to_f32(__nv_bfloat16 v)
{
    float r;
    asm("mov.b32 %0, {0, %1};" : "=f"(r) : "h"(__bfloat16_as_ushort(v)));
    return r;
}

/* --- tensor cores: PTX ISA, "Matrix fragments for mma.m16n8k32", "... m16n8k16" and
   "... m16n8k8" --- */

/* d (16 x 8, s32) += a (16 x 32, row) * b (32 x 8, column) */
#define SIMT_MMA_K32(name, a_type, b_type)                                                         \
    SIMT_INLINE void name(int d[4], const unsigned a[4], const unsigned b[2])                      \
    {                                                                                              \
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." a_type "." b_type ".s32 "            \
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                       \
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));          \
    }
SIMT_MMA_K32(simt_mma_m16n8k32_s8s8, "s8", "s8")
SIMT_MMA_K32(simt_mma_m16n8k32_u8s8, "u8", "s8")

/* d (16 x 8, f32) += a (16 x 16, row) * b (16 x 8, column) */
#define SIMT_MMA_K16(name, type)                                                                   \
    SIMT_INLINE void name(float d[4], const unsigned a[4], const unsigned b[2])                    \
    {                                                                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                \
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                       \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));          \
    }
SIMT_MMA_K16(simt_mma_m16n8k16_f16, "f16")
SIMT_MMA_K16(simt_mma_m16n8k16_bf16, "bf16")

/* The bits of the nearest TF32 (10 bits behind the point, the others 0), ties away from 0. */
SIMT_INLINE unsigned simt_to_tf32(float v)
{
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

/* d (16 x 8, f32) += a (16 x 8, row) * b (8 x 8, column), of simt_to_tf32's numbers */
SIMT_INLINE void simt_mma_m16n8k8_tf32(float d[4], const unsigned a[4], const unsigned b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* --- tensor cores, 2:4 sparse: PTX ISA, "Matrix fragments for sparse mma.m16n8k64" (8-bit) and
   "... m16n8k32" (16-bit). Of each four neighbours in a row of a two are kept; a holds those, as a
   dense fragment of half the depth would. meta has two bits for the place of each kept number, the
   first of a pair below the second, lower bits first. Lane l, g = l / 4, t = l % 4: 8-bit, row g +
   8 (t % 2), depth 32 (t / 2) to 31 on; 16-bit, t < 2 only, depth 16 t to 15 on, row g in the lower
   half of the word and g + 8 in the upper. --- */

/* d (16 x 8, s32) += a (16 x 64, row, 2:4) * b (64 x 8, column) */
#define SIMT_MMA_SP_K64(name, b_type)                                                              \
    SIMT_INLINE void name(int d[4], const unsigned a[4], const unsigned b[4], unsigned meta)       \
    {                                                                                              \
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8." b_type       \
                     ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, "    \
                     "0x0;"                                                                        \
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),           \
                       "r"(b[2]), "r"(b[3]), "r"(meta));                                           \
    }
SIMT_MMA_SP_K64(simt_mma_sp_m16n8k64_s8s8, "s8")
SIMT_MMA_SP_K64(simt_mma_sp_m16n8k64_s8u8, "u8")

/* d (16 x 8, f32) += a (16 x 32, row, 2:4) * b (32 x 8, column) */
#define SIMT_MMA_SP_K32(name, type)                                                                \
    SIMT_INLINE void name(float d[4], const unsigned a[4], const unsigned b[4], unsigned meta)     \
    {                                                                                              \
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32." type "." type   \
                     ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, "    \
                     "0x0;"                                                                        \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),           \
                       "r"(b[2]), "r"(b[3]), "r"(meta));                                           \
    }
SIMT_MMA_SP_K32(simt_mma_sp_m16n8k32_f16, "f16")
SIMT_MMA_SP_K32(simt_mma_sp_m16n8k32_bf16, "bf16")

/* --- ldmatrix: 1, 2 or 4 matrices of 8 rows of 16 bytes; lane 8m + i points to row i of matrix m,
   which must be 16-byte aligned shared memory; lanes beyond the last matrix point nowhere --- */

#define SIMT_LDMATRIX_X1(name, trans)                                                              \
    SIMT_INLINE void name(unsigned r[1], const void *row)                                          \
    {                                                                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 {%0}, [%1];"               \
                     : "=r"(r[0])                                                                  \
                     : "r"(simt_shared_address(row))                                               \
                     : "memory");                                                                  \
    }
#define SIMT_LDMATRIX_X2(name, trans)                                                              \
    SIMT_INLINE void name(unsigned r[2], const void *row)                                          \
    {                                                                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 {%0,%1}, [%2];"            \
                     : "=r"(r[0]), "=r"(r[1])                                                      \
                     : "r"(simt_shared_address(row))                                               \
                     : "memory");                                                                  \
    }
#define SIMT_LDMATRIX_X4(name, trans)                                                              \
    SIMT_INLINE void name(unsigned r[4], const void *row)                                          \
    {                                                                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0,%1,%2,%3}, [%4];"      \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                              \
                     : "r"(simt_shared_address(row))                                               \
                     : "memory");                                                                  \
    }
SIMT_LDMATRIX_X1(simt_ldmatrix_x1, "")
SIMT_LDMATRIX_X2(simt_ldmatrix_x2, "")
SIMT_LDMATRIX_X4(simt_ldmatrix_x4, "")
SIMT_LDMATRIX_X1(simt_ldmatrix_x1_trans, ".trans")
SIMT_LDMATRIX_X2(simt_ldmatrix_x2_trans, ".trans")
SIMT_LDMATRIX_X4(simt_ldmatrix_x4_trans, ".trans")

/* --- asynchronous copies from global to shared memory: of `bytes` bytes the first `present` are
   read, the rest becomes zero; both addresses are aligned to the size --- */

#define SIMT_CP_ASYNC(name, bytes, cache)                                                          \
    SIMT_INLINE void name(void *shared, const void *global, int present)                           \
    {                                                                                              \
        asm volatile("cp.async." cache ".shared.global [%0], [%1], " bytes                         \
                     ", %2;" ::"r"(simt_shared_address(shared)),                                   \
                     "l"(global), "r"(present)                                                     \
                     : "memory");                                                                  \
    }
SIMT_CP_ASYNC(simt_cp_async4, "4", "ca")
SIMT_CP_ASYNC(simt_cp_async8, "8", "ca")
SIMT_CP_ASYNC(simt_cp_async16, "16", "cg")
SIMT_CP_ASYNC(simt_cp_async16_reused, "16", "ca") /* L1 keeps it for who reads it again */

SIMT_INLINE void simt_cp_async_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most N of this thread's committed groups are in flight. */
template <int N> SIMT_INLINE void simt_cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
#endif
