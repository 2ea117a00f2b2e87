/* SPDX-License-Identifier: Apache-2.0 */
/* Wrappers of instructions that compute capability 9.0 alone has, for files that are compiled for
   sm_90a only: barriers that count bytes, copies of boxes by tensor maps, products of 64 rows by a
   group of four warps. PTX ISA, chapters "mbarrier", "cp.async.bulk.tensor" and "wgmma". Addresses
   of shared memory are 32 bits (simt_shared_address). As simt.h: PTX under nvcc, the emulation's
   functions elsewhere (tests/simt/simt_sm90.h).

   Rules, most of them faults of the emulation:
   - a barrier is used after simt_mbar_publish of who set it and a barrier of the block; a phase
     completes once all threads that it counts arrived and all bytes that they expect are there;
   - bytes of a box are read by threads that waited for the phase that counts them, or by products
     that such threads begin; no block ends before its copies;
   - what threads write to shared memory is read by simt_tma_store and by products after
     simt_fence_async of the writer, and a barrier;
   - what a store reads may change after simt_tma_store_wait_read of who began it; no thread leaves
     before it waited;
   - simt_wgmma_fence stands before products whose sums threads have touched, and behind what makes
     the metadata of sparse ones, which no fault checks: ptxas of CUDA 13.0 puts it there itself;
     sums may be touched, and operands change, after simt_wgmma_wait of all four warps;
   - simt_cluster_load reads what another block of the cluster wrote ahead of a barrier of the
     cluster, and that block ends behind another one. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_SIMT_SM90_CUH
#define PARE_RUNTIME_CUDA_DEVICE_SIMT_SM90_CUH

#include "runtime/cuda/device/simt.h"

#include <cuda.h>

#ifndef __CUDACC__
#include <simt_sm90.h>
#else

/* Cycles a barrier is waited for, several seconds: then the kernel fails. */
#define SIMT_PATIENCE (1ll << 34)

/* --- barriers --- */

/* Of 8 bytes; count: arrivals of a phase. */
SIMT_INLINE void simt_mbar_init(unsigned bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

SIMT_INLINE bool simt_mbar_try(unsigned bar, unsigned parity)
{
    unsigned ok;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(ok)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return ok != 0;
}

/* Waits until the phase of this parity, 0 for the first, has completed. */
SIMT_INLINE void simt_mbar_wait(unsigned bar, unsigned parity)
{
    if (simt_mbar_try(bar, parity)) return;
    const long long begin = clock64();
    while (!simt_mbar_try(bar, parity))
        if (clock64() - begin > SIMT_PATIENCE) __trap();
}

/* Arrives, and has the phase wait for so many bytes. */
SIMT_INLINE void simt_mbar_expect(unsigned bar, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

SIMT_INLINE void simt_mbar_arrive(unsigned bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Barriers that this thread set are seen by copies. */
SIMT_INLINE void simt_mbar_publish(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
}

/* A barrier of 128 threads; id: 1 to 15. */
SIMT_INLINE void simt_sync_group(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }

/* A group of four warps gives registers of its threads back, or waits for more, up to COUNT each.
 */
template <int COUNT> SIMT_INLINE void simt_registers_give(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> SIMT_INLINE void simt_registers_take(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* --- clusters: blocks that run together and read each other's shared memory --- */

SIMT_INLINE int simt_cluster_rank(void)
{
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

SIMT_INLINE int simt_cluster_size(void)
{
    int size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

/* A barrier of all threads of a cluster, in two parts, each of whole warps. */
SIMT_INLINE void simt_cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
SIMT_INLINE void simt_cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* 16 bytes of block `rank`, which are at `at` in this one. */
template <typename T> SIMT_INLINE void simt_cluster_load(T (&to)[4], unsigned at, int rank)
{
    static_assert(sizeof(T) == 4, "16 bytes");
    unsigned there, word[4];
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(there)
                 : "memory");
    SIMT_UNROLL for (int i = 0; i < 4; i++) memcpy(&to[i], &word[i], 4);
}

/* dependent: the kernel may begin early (dependent.cuh). cluster: blocks along x. */
template <typename... P, typename... A>
static inline void simt_launch_cluster(void (*kernel)(P...), bool dependent, int cluster, dim3 grid,
                                       dim3 block, size_t shared, cudaStream_t stream,
                                       A... arguments)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = (unsigned)cluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = dependent ? 2 : 1;
    (void)cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}
#define SIMT_LAUNCH_CLUSTER(kernel, dependent, cluster, grid, block, shared, stream, ...)          \
    simt_launch_cluster((kernel), (dependent), (cluster), (grid), (block), (shared), (stream),     \
                        __VA_ARGS__)

/* --- copies of boxes --- */

SIMT_INLINE void simt_tma_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* The box at (x, y), x being the dimension of neighbours; what is outside of the tensor is 0. */
SIMT_INLINE void simt_tma_load(unsigned to, const CUtensorMap *map, unsigned bar, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y)
                 : "memory");
}

/* The same of memory that no kernel of this run writes: it may be read ahead of
   simt_dependency_wait. */
SIMT_INLINE void simt_tma_load_constant(unsigned to, const CUtensorMap *map, unsigned bar, int x,
                                        int y)
{
    simt_tma_load(to, map, bar, x, y);
}

/* Positions from (image n, line h, pixel w) on, of each the pixel (right, down) of it. */
SIMT_INLINE void simt_tma_load_im2col(unsigned to, const CUtensorMap *map, unsigned bar,
                                      int channel, int w, int h, int n, int right, int down)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
        "l"(map), "r"(bar), "r"(channel), "r"(w), "r"(h), "r"(n), "h"((uint16_t)right),
        "h"((uint16_t)down)
        : "memory");
}

/* What this thread wrote is seen by the stores that follow a barrier. */
SIMT_INLINE void simt_fence_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

SIMT_INLINE void simt_tma_store(const CUtensorMap *map, unsigned from, int x, int y)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
        "r"(from), "r"(x), "r"(y)
        : "memory");
}

SIMT_INLINE void simt_tma_store_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* This thread's stores have read what they store. */
SIMT_INLINE void simt_tma_store_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

SIMT_INLINE void simt_tma_store_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* --- products --- */

SIMT_INLINE void simt_wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SIMT_INLINE void simt_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> SIMT_INLINE void simt_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Sums are read and written before here, or behind here. */
template <int COUNT> SIMT_INLINE void simt_wgmma_order(int (&d)[COUNT])
{
    SIMT_UNROLL for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(d[i])::"memory");
}
template <int COUNT> SIMT_INLINE void simt_wgmma_order(float (&d)[COUNT])
{
    SIMT_UNROLL for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define REGISTERS_32                                                                               \
    REGISTERS_16                                                                                   \
    ", "                                                                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64                                                                               \
    REGISTERS_32                                                                                   \
    ", "                                                                                           \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_96                                                                               \
    REGISTERS_64                                                                                   \
    ", "                                                                                           \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGISTERS_128                                                                              \
    REGISTERS_96                                                                                   \
    ", "                                                                                           \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "   \
    "%127"
#define SUMS_8(in, i)                                                                              \
    in(d[i]), in(d[i + 1]), in(d[i + 2]), in(d[i + 3]), in(d[i + 4]), in(d[i + 5]), in(d[i + 6]),  \
        in(d[i + 7])
#define SUMS_16(in)  SUMS_8(in, 0), SUMS_8(in, 8)
#define SUMS_32(in)  SUMS_16(in), SUMS_8(in, 16), SUMS_8(in, 24)
#define SUMS_64(in)  SUMS_32(in), SUMS_8(in, 32), SUMS_8(in, 40), SUMS_8(in, 48), SUMS_8(in, 56)
#define SUMS_96(in)  SUMS_64(in), SUMS_8(in, 64), SUMS_8(in, 72), SUMS_8(in, 80), SUMS_8(in, 88)
#define SUMS_128(in) SUMS_96(in), SUMS_8(in, 96), SUMS_8(in, 104), SUMS_8(in, 112), SUMS_8(in, 120)
#define WORD(d)      "+r"(d)
#define FLOAT(d)     "+f"(d)

enum simt_wgmma_signs { SIMT_S8S8, SIMT_U8S8, SIMT_S8U8 }; /* of a, of b */
template <simt_wgmma_signs SIGNS, int COUNT> struct simt_wgmma_int;
template <bool BF16, int COUNT> struct simt_wgmma_float;
template <bool E5M2, int COUNT> struct simt_wgmma_fp8;
#define SIMT_WGMMA(of, first, sum, in, columns, types, count, a_at, b_at, add_at, tail)            \
    template <> struct of<first, count> {                                                          \
        static __device__ __forceinline__ void run(sum (&d)[count], uint64_t a, uint64_t b,        \
                                                   int add)                                        \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_at ", 0;\n"                     \
                         "wgmma.mma_async.sync.aligned.m64n" #columns types " {" REGISTERS_##count \
                         "}, %" #a_at ", %" #b_at ", p" tail ";\n}\n"                              \
                         : SUMS_##count(in)                                                        \
                         : "l"(a), "l"(b), "r"(add));                                              \
        }                                                                                          \
    };
#define SIMT_WGMMA_TYPES(columns, count, a_at, b_at, add_at)                                       \
    SIMT_WGMMA(simt_wgmma_int, SIMT_S8S8, int, WORD, columns, "k32.s32.s8.s8", count, a_at, b_at,  \
               add_at, "")                                                                         \
    SIMT_WGMMA(simt_wgmma_int, SIMT_U8S8, int, WORD, columns, "k32.s32.u8.s8", count, a_at, b_at,  \
               add_at, "")                                                                         \
    SIMT_WGMMA(simt_wgmma_float, false, float, FLOAT, columns, "k16.f32.f16.f16", count, a_at,     \
               b_at, add_at, ", 1, 1, 0, 0")                                                       \
    SIMT_WGMMA(simt_wgmma_float, true, float, FLOAT, columns, "k16.f32.bf16.bf16", count, a_at,    \
               b_at, add_at, ", 1, 1, 0, 0")                                                       \
    SIMT_WGMMA(simt_wgmma_fp8, false, float, FLOAT, columns, "k32.f32.e4m3.e4m3", count, a_at,     \
               b_at, add_at, ", 1, 1")                                                             \
    SIMT_WGMMA(simt_wgmma_fp8, true, float, FLOAT, columns, "k32.f32.e5m2.e5m2", count, a_at,      \
               b_at, add_at, ", 1, 1")
SIMT_WGMMA_TYPES(32, 16, 16, 17, 18)
SIMT_WGMMA_TYPES(64, 32, 32, 33, 34)
SIMT_WGMMA_TYPES(128, 64, 64, 65, 66)
SIMT_WGMMA_TYPES(192, 96, 96, 97, 98)
#define SIMT_WGMMA_S8U8(columns, count, a_at, b_at, add_at)                                        \
    SIMT_WGMMA(simt_wgmma_int, SIMT_S8U8, int, WORD, columns, "k32.s32.s8.u8", count, a_at, b_at,  \
               add_at, "")
SIMT_WGMMA_S8U8(32, 16, 16, 17, 18)
SIMT_WGMMA_S8U8(64, 32, 32, 33, 34)
SIMT_WGMMA_S8U8(128, 64, 64, 65, 66)

/* d (64 x 2 COUNT, s32) = a (64 x 32) b (2 COUNT x 32)^T, plus d where add is not 0. A thread's
   sums: number i of lane l of warp w is of row 16 w + l / 4 + 8 (i / 2 % 2), column
   8 (i / 4) + 2 (l % 4) + i % 2. */
template <bool A_UNSIGNED, int COUNT>
SIMT_INLINE void simt_wgmma_k32(int (&d)[COUNT], uint64_t a, uint64_t b, int add)
{
    simt_wgmma_int<A_UNSIGNED ? SIMT_U8S8 : SIMT_S8S8, COUNT>::run(d, a, b, add);
}

/* The same with b of 8 bits without sign. */
template <int COUNT>
SIMT_INLINE void simt_wgmma_k32_s8u8(int (&d)[COUNT], uint64_t a, uint64_t b, int add)
{
    simt_wgmma_int<SIMT_S8U8, COUNT>::run(d, a, b, add);
}

/* The same of 16 numbers of f16 or bf16, also 32 bytes: sums of f32. */
template <bool BF16, int COUNT>
SIMT_INLINE void simt_wgmma_k16(float (&d)[COUNT], uint64_t a, uint64_t b, int add)
{
    simt_wgmma_float<BF16, COUNT>::run(d, a, b, add);
}

/* The same of 32 numbers of FP8: sums of f32 in which 14 bits are kept, of each number that is
   added and of what is added to, counted from the largest of them (ops/epilogue_f8.h). */
template <bool E5M2, int COUNT>
SIMT_INLINE void simt_wgmma_f8(float (&d)[COUNT], uint64_t a, uint64_t b, int add)
{
    simt_wgmma_fp8<E5M2, COUNT>::run(d, a, b, add);
}

/* --- products whose a is of 2:4 --- */

template <bool B_UNSIGNED, int COUNT> struct simt_wgmma_sp_int;
template <bool BF16, int COUNT> struct simt_wgmma_sp_float;
#define SIMT_WGMMA_SP(of, first, sum, in, columns, types, count, a_at, b_at, meta_at, add_at,      \
                      tail)                                                                        \
    template <> struct of<first, count> {                                                          \
        static __device__ __forceinline__ void run(sum (&d)[count], uint64_t a, uint64_t b,        \
                                                   unsigned meta, int add)                         \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_at ", 0;\n"                     \
                         "wgmma.mma_async.sp.sync.aligned.m64n" #columns types                     \
                         " {" REGISTERS_##count "}, %" #a_at ", %" #b_at ", %" #meta_at            \
                                                ", 0, p" tail ";\n}\n"                             \
                         : SUMS_##count(in)                                                        \
                         : "l"(a), "l"(b), "r"(meta), "r"(add));                                   \
        }                                                                                          \
    };
#define SIMT_WGMMA_SP_TYPES(columns, count, a_at, b_at, meta_at, add_at)                           \
    SIMT_WGMMA_SP(simt_wgmma_sp_int, false, int, WORD, columns, "k64.s32.s8.s8", count, a_at,      \
                  b_at, meta_at, add_at, "")                                                       \
    SIMT_WGMMA_SP(simt_wgmma_sp_int, true, int, WORD, columns, "k64.s32.s8.u8", count, a_at, b_at, \
                  meta_at, add_at, "")                                                             \
    SIMT_WGMMA_SP(simt_wgmma_sp_float, false, float, FLOAT, columns, "k32.f32.f16.f16", count,     \
                  a_at, b_at, meta_at, add_at, ", 1, 1, 0, 0")                                     \
    SIMT_WGMMA_SP(simt_wgmma_sp_float, true, float, FLOAT, columns, "k32.f32.bf16.bf16", count,    \
                  a_at, b_at, meta_at, add_at, ", 1, 1, 0, 0")
SIMT_WGMMA_SP_TYPES(128, 64, 64, 65, 66, 67)
SIMT_WGMMA_SP_TYPES(256, 128, 128, 129, 130, 131)

/* d (64 x 2 COUNT, s32) = a (64 x 64, s8, 2:4) b (2 COUNT x 64)^T, plus d where add is not 0. Rows
   of a have the 32 numbers that are kept; meta says where they were, of warp w those of rows 16 w
   to 15 on, as mma.sp of simt.h has it: PTX ISA, "Asynchronous Warpgroup Level
   Multiply-and-Accumulate Operation using wgmma.mma_async.sp instruction"; the sparsity selector is
   0. */
template <bool B_UNSIGNED, int COUNT>
SIMT_INLINE void simt_wgmma_sp_k64(int (&d)[COUNT], uint64_t a, uint64_t b, unsigned meta, int add)
{
    simt_wgmma_sp_int<B_UNSIGNED, COUNT>::run(d, a, b, meta, add);
}

/* The same of 32 numbers of f16 or bf16, of which 16 are kept. */
template <bool BF16, int COUNT>
SIMT_INLINE void simt_wgmma_sp_k32(float (&d)[COUNT], uint64_t a, uint64_t b, unsigned meta,
                                   int add)
{
    simt_wgmma_sp_float<BF16, COUNT>::run(d, a, b, meta, add);
}

#endif

/* The operand whose rows are BYTES of depth, swizzled over them, eight rows a group. */
template <int BYTES> SIMT_INLINE uint64_t simt_wgmma_matrix(unsigned at)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(8 * BYTES >> 4) << 32 |
           (uint64_t)(BYTES == 128 ? 1 : 2) << 62;
}

#endif
