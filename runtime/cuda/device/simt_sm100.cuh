/* SPDX-License-Identifier: Apache-2.0 */
/* Wrappers of instructions that compute capability 10.0 has beside those of simt_sm90.cuh (its
   barriers and copies of boxes, not its products): products that one thread begins, whose sums are
   in tensor memory, 128 lanes of 512 columns of 4 bytes a multiprocessor. For files that are
   compiled for sm_100a only. PTX ISA, chapter "TensorCore 5th Generation Family Instructions".

   Rules, most of them faults of the emulation:
   - one warp allocates columns, which every block gives back by the same warp before it ends; their
     address is read behind a barrier of the block;
   - products of a thread are computed in order, after they began; who waited for a barrier that
     simt_tcgen_commit arrives at may read the sums of all products before it, and write their
     operands;
   - a warp reads the quarter of lanes that its number modulo 4 names;
   - simt_tcgen_fence_after stands between a wait for others and what touches tensor memory,
     simt_tcgen_fence_before between that and telling others. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_SIMT_SM100_CUH
#define PARE_RUNTIME_CUDA_DEVICE_SIMT_SM100_CUH

#include "runtime/base/both.h"
#include "runtime/cuda/device/simt_sm90.cuh"

/* Types of a product's factors; the second factor of bytes is signed. */
enum simt_tcgen_kind {
    SIMT_TCGEN_S8,
    SIMT_TCGEN_U8,
    SIMT_TCGEN_F16,
    SIMT_TCGEN_BF16,
    SIMT_TCGEN_E4M3,
    SIMT_TCGEN_E5M2
};

/* The instruction descriptor of 128 rows by so many columns: "Instruction descriptor", table of
   .kind::f16, .kind::f8f6f4 and .kind::i8. Depth is along both factors' rows. */
PARE_BOTH constexpr unsigned simt_tcgen_descriptor(simt_tcgen_kind kind, int columns)
{
    const bool integer = kind == SIMT_TCGEN_S8 || kind == SIMT_TCGEN_U8;
    const unsigned sums = integer ? 2 : 1; /* s32, f32 */
    const unsigned b = integer || kind == SIMT_TCGEN_BF16 || kind == SIMT_TCGEN_E5M2;
    const unsigned a = kind == SIMT_TCGEN_U8 ? 0 : b;
    return sums << 4 | a << 7 | b << 10 | (unsigned)columns / 8 << 17 | 128u / 16 << 24;
}

/* The factor whose rows are BYTES of depth, swizzled over them, eight rows a group; 32 bytes on
   along the depth it is 2 more. "Shared memory descriptor". */
template <int BYTES> SIMT_INLINE uint64_t simt_tcgen_matrix(unsigned at)
{
    static_assert(BYTES == 128 || BYTES == 64, "swizzles");
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(8 * BYTES >> 4) << 32 |
           (uint64_t)1 << 46 | (uint64_t)(BYTES == 128 ? 2 : 4) << 61;
}

#ifndef __CUDACC__
#include <simt_sm100.h>
#else

/* --- tensor memory --- */

/* COLUMNS, a power of two from 32 on; the address is left in shared memory, at `to`. A whole warp.
 */
template <int COLUMNS> SIMT_INLINE void simt_tmem_allocate(unsigned to)
{
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
                 "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(to),
                 "n"(COLUMNS)
                 : "memory");
}

template <int COLUMNS> SIMT_INLINE void simt_tmem_free(unsigned at)
{
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(at), "n"(COLUMNS)
                 : "memory");
}

/* 32 columns from `at` on of a warp's lanes, a row a thread; at: the first of its lanes in the
   upper 16 bits. */
SIMT_INLINE void simt_tmem_load(int (&d)[32], unsigned at)
{
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {" REGISTERS_32 "}, [%32];\n"
                 "tcgen05.wait::ld.sync.aligned;"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]),
                   "=r"(d[6]), "=r"(d[7]), "=r"(d[8]), "=r"(d[9]), "=r"(d[10]), "=r"(d[11]),
                   "=r"(d[12]), "=r"(d[13]), "=r"(d[14]), "=r"(d[15]), "=r"(d[16]), "=r"(d[17]),
                   "=r"(d[18]), "=r"(d[19]), "=r"(d[20]), "=r"(d[21]), "=r"(d[22]), "=r"(d[23]),
                   "=r"(d[24]), "=r"(d[25]), "=r"(d[26]), "=r"(d[27]), "=r"(d[28]), "=r"(d[29]),
                   "=r"(d[30]), "=r"(d[31])
                 : "r"(at)
                 : "memory");
}
SIMT_INLINE void simt_tmem_load(float (&d)[32], unsigned at)
{
    int bits[32];
    simt_tmem_load(bits, at);
    SIMT_UNROLL for (int i = 0; i < 32; i++) d[i] = __int_as_float(bits[i]);
}

SIMT_INLINE void simt_tcgen_fence_before(void)
{
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
SIMT_INLINE void simt_tcgen_fence_after(void)
{
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

/* --- products --- */

/* 128 rows of a by the columns that `what`, a descriptor of KIND, says, over 32 bytes of depth;
   add: to what the sums at `sums` are. */
template <simt_tcgen_kind KIND>
SIMT_INLINE void simt_tcgen_multiply(unsigned sums, uint64_t a, uint64_t b, unsigned what, bool add)
{
#define SIMT_TCGEN(kind)                                                                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"                                       \
                 "tcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, p;\n}\n" ::"r"(sums),  \
                 "l"(a), "l"(b), "r"(what), "r"((int)add)                                          \
                 : "memory")
    if constexpr (KIND == SIMT_TCGEN_S8 || KIND == SIMT_TCGEN_U8)
        SIMT_TCGEN("i8");
    else if constexpr (KIND == SIMT_TCGEN_F16 || KIND == SIMT_TCGEN_BF16)
        SIMT_TCGEN("f16");
    else
        SIMT_TCGEN("f8f6f4");
#undef SIMT_TCGEN
}

/* Arrives once all products that this thread began are computed. */
SIMT_INLINE void simt_tcgen_commit(unsigned bar)
{
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar)
        : "memory");
}

#endif

#endif
