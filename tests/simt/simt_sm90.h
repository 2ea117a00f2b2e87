/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation of runtime/cuda/device/simt_sm90.cuh: the same names, which hand their place in the
   source on. Rules: there. */
#ifndef PARE_SIMT_SM90_H
#define PARE_SIMT_SM90_H

#include "simt_f8.h"

#include <cuda.h>

/* --- barriers (mbarrier.cpp, block.cpp) --- */

void simt_mbar_init(unsigned bar, int count, SIMT_AT);
void simt_mbar_wait(unsigned bar, unsigned parity, SIMT_AT);
void simt_mbar_expect(unsigned bar, unsigned bytes, SIMT_AT);
void simt_mbar_arrive(unsigned bar, SIMT_AT);
void simt_mbar_publish(void);
void simt_sync_group(int id, SIMT_AT);
void simt_set_registers(int count, const char *file, int line);
template <int COUNT> static inline void simt_registers_give(SIMT_AT)
{
    simt_set_registers(COUNT, file, line);
}
template <int COUNT> static inline void simt_registers_take(SIMT_AT)
{
    simt_set_registers(COUNT, file, line);
}

/* --- clusters (cluster.cpp, device.cpp) --- */

int simt_cluster_rank(void);
int simt_cluster_size(void);
void simt_cluster_arrive(SIMT_AT);
void simt_cluster_wait(SIMT_AT);
void simt_cluster_read(void *to, unsigned at, int rank, const char *file, int line);
template <typename T>
static inline void simt_cluster_load(T (&to)[4], unsigned at, int rank, SIMT_AT)
{
    static_assert(sizeof(T) == 4, "16 bytes");
    simt_cluster_read(to, at, rank, file, line);
}
void simt_launch_clusters(const char *name, const void *function, unsigned cluster, dim3 grid,
                          dim3 block, size_t shared, cudaStream_t stream, const void *arguments,
                          size_t bytes, void (*run)(const void *arguments), bool dependent);
template <class... P, class... A>
static inline void simt_launch_cluster(const char *name, void (*kernel)(P...), bool dependent,
                                       int cluster, dim3 grid, dim3 block, size_t shared,
                                       cudaStream_t stream, A... args)
{
    simt_call<P...> call = {kernel, std::tuple<P...>(static_cast<P>(args)...)};
    simt_launch_clusters(name, reinterpret_cast<const void *>(kernel),
                         static_cast<unsigned>(cluster), grid, block, shared, stream, &call,
                         sizeof call, simt_call<P...>::run, dependent);
}
#define SIMT_LAUNCH_CLUSTER(kernel, dependent, cluster, grid, block, shared, stream, ...)          \
    simt_launch_cluster(#kernel, kernel, dependent, cluster, grid, block, shared, stream,          \
                        ##__VA_ARGS__)

/* --- copies of boxes (box.cpp) --- */

void simt_tma_prefetch(const CUtensorMap *map, SIMT_AT);
void simt_tma_load(unsigned to, const CUtensorMap *map, unsigned bar, int x, int y, SIMT_AT);
/* Of memory that no kernel of this run writes: it may be read ahead of simt_dependency_wait. */
void simt_tma_load_constant(unsigned to, const CUtensorMap *map, unsigned bar, int x, int y,
                            SIMT_AT);
void simt_tma_load_im2col(unsigned to, const CUtensorMap *map, unsigned bar, int channel, int w,
                          int h, int n, int right, int down, SIMT_AT);
void simt_fence_async(void);
void simt_tma_store(const CUtensorMap *map, unsigned from, int x, int y, SIMT_AT);
void simt_tma_store_commit(void);
void simt_tma_store_wait_read(void);
void simt_tma_store_wait(void);

/* --- products (wgmma.cpp) --- */

/* A number of SIMT_F16 or SIMT_BF16. */
static inline float simt_half(uint16_t bits, simt_operand type)
{
    if (type == SIMT_BF16) return simt_bits<float>(static_cast<uint32_t>(bits) << 16);
    __half_raw raw;
    raw.x = bits;
    return __half2float(__half(raw));
}
void simt_wgmma_fence(SIMT_AT);
void simt_wgmma_commit(SIMT_AT);
void simt_wgmma_keep(int groups, const char *file, int line);
void simt_wgmma(void *d, int count, uint64_t a, uint64_t b, simt_operand type, int add,
                const char *file, int line);
void simt_wgmma_sp(void *d, int count, uint64_t a, uint64_t b, unsigned meta, simt_operand type,
                   int add, const char *file, int line);
template <int LEFT> static inline void simt_wgmma_wait(SIMT_AT)
{
    simt_wgmma_keep(LEFT, file, line);
}
template <typename SUM, int COUNT> static inline void simt_wgmma_order(SUM (&)[COUNT]) {}
template <bool A_UNSIGNED, int COUNT>
static inline void simt_wgmma_k32(int (&d)[COUNT], uint64_t a, uint64_t b, int add, SIMT_AT)
{
    static_assert(COUNT % 4 == 0 && COUNT <= 128, "of 8 to 256 columns, in eights");
    simt_wgmma(d, COUNT, a, b, A_UNSIGNED ? SIMT_U8S8 : SIMT_S8S8, add, file, line);
}
template <int COUNT>
static inline void simt_wgmma_k32_s8u8(int (&d)[COUNT], uint64_t a, uint64_t b, int add, SIMT_AT)
{
    static_assert(COUNT % 4 == 0 && COUNT <= 128, "of 8 to 256 columns, in eights");
    simt_wgmma(d, COUNT, a, b, SIMT_S8U8, add, file, line);
}
template <bool BF16, int COUNT>
static inline void simt_wgmma_k16(float (&d)[COUNT], uint64_t a, uint64_t b, int add, SIMT_AT)
{
    static_assert(COUNT % 4 == 0 && COUNT <= 128, "of 8 to 256 columns, in eights");
    simt_wgmma(d, COUNT, a, b, BF16 ? SIMT_BF16 : SIMT_F16, add, file, line);
}
template <bool B_UNSIGNED, int COUNT>
static inline void simt_wgmma_sp_k64(int (&d)[COUNT], uint64_t a, uint64_t b, unsigned meta,
                                     int add, SIMT_AT)
{
    static_assert(COUNT % 4 == 0 && COUNT <= 128, "of 8 to 256 columns, in eights");
    simt_wgmma_sp(d, COUNT, a, b, meta, B_UNSIGNED ? SIMT_S8U8 : SIMT_S8S8, add, file, line);
}
template <bool BF16, int COUNT>
static inline void simt_wgmma_sp_k32(float (&d)[COUNT], uint64_t a, uint64_t b, unsigned meta,
                                     int add, SIMT_AT)
{
    static_assert(COUNT % 4 == 0 && COUNT <= 128, "of 8 to 256 columns, in eights");
    simt_wgmma_sp(d, COUNT, a, b, meta, BF16 ? SIMT_BF16 : SIMT_F16, add, file, line);
}
template <bool E5M2, int COUNT>
static inline void simt_wgmma_f8(float (&d)[COUNT], uint64_t a, uint64_t b, int add, SIMT_AT)
{
    static_assert(COUNT % 4 == 0 && COUNT <= 128, "of 8 to 256 columns, in eights");
    simt_wgmma(d, COUNT, a, b, E5M2 ? SIMT_E5M2 : SIMT_E4M3, add, file, line);
}

#endif
