/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated device, as kernels see it: CUDA's keywords, builtins, collectives, atomics and
   scalar functions for a host compiler, and the wrappers of runtime/cuda/device/simt.h with the
   same names. What is not here does not compile. The engine after it is in this folder's sources.
 */
#ifndef PARE_SIMT_DEVICE_H
#define PARE_SIMT_DEVICE_H

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <type_traits>

/* --- keywords --- */

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __restrict__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__  use_SIMT_SHARED_instead
#define SIMT_INLINE static inline
#define SIMT_UNROLL

/* --- where the running thread is --- */

struct simt_position {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    unsigned linear, lane, warp; /* number of the thread in its block or cluster; its parts */
};
extern simt_position simt_here;
#define threadIdx (simt_here.thread)
#define blockIdx  (simt_here.block)
#define blockDim  (simt_here.block_dim)
#define gridDim   (simt_here.grid_dim)
static const int warpSize = 32;

#define SIMT_AT const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* --- engine --- */

enum simt_vote { SIMT_NO_VOTE, SIMT_COUNT, SIMT_AND, SIMT_OR };
/* Runs once for all lanes of `lanes`, on the last of them to arrive; arg[i] is lane i's. */
typedef void simt_collective_fn(unsigned lanes, void *const arg[32]);

int simt_barrier(simt_vote vote, int predicate, const char *file, int line);
void simt_collective(unsigned mask, void *arg, simt_collective_fn *fn, const char *name,
                     const char *file, int line);
[[noreturn]] void simt_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *simt_shared_variable(const void *key, size_t bytes, size_t align, const char *name);
void *simt_shared_dynamic(size_t align);
void simt_acquire_grid(void);
void simt_dependency_wait(SIMT_AT);
unsigned simt_shared_address(const void *p);
void simt_launch(const char *name, const void *function, dim3 grid, dim3 block, size_t shared,
                 cudaStream_t stream, const void *arguments, size_t bytes,
                 void (*run)(const void *arguments), bool dependent);

/* --- shared memory and launches --- */

#define SIMT_SHARED(type, name, dims)                                                              \
    static const char simt_key_##name = 0;                                                         \
    typedef type simt_type_##name dims;                                                            \
    simt_type_##name &name = *static_cast<simt_type_##name *>(simt_shared_variable(                \
        &simt_key_##name, sizeof(simt_type_##name), alignof(simt_type_##name), #name))
#define SIMT_DYN_SHARED_AT(type, name, alignment)                                                  \
    type *name = static_cast<type *>(simt_shared_dynamic(alignment))
#define SIMT_DYN_SHARED(type, name) SIMT_DYN_SHARED_AT(type, name, 128)
#define SIMT_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    simt_launch_kernel(#kernel, kernel, false, grid, block, shared, stream, ##__VA_ARGS__)
#define SIMT_LAUNCH_DEPENDENT(kernel, grid, block, shared, stream, ...)                            \
    simt_launch_kernel(#kernel, kernel, true, grid, block, shared, stream, ##__VA_ARGS__)
#define SIMT_ALLOW_SHARED(kernel, bytes)                                                           \
    cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),                                   \
                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))

/* Arguments become the kernel's own parameter types and are copied as bytes, as a launch does. */
template <class... P> struct simt_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    static void run(const void *call)
    {
        const simt_call *c = static_cast<const simt_call *>(call);
        std::apply(c->kernel, c->arguments);
    }
};
template <class... P, class... A>
static inline void simt_launch_kernel(const char *name, void (*kernel)(P...), bool dependent,
                                      dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                      A... args)
{
    static_assert((std::is_trivially_copyable<P>::value && ...), "a parameter is not plain data");
    simt_call<P...> call = {kernel, std::tuple<P...>(static_cast<P>(args)...)};
    simt_launch(name, reinterpret_cast<const void *>(kernel), grid, block, shared, stream, &call,
                sizeof call, simt_call<P...>::run, dependent);
}

/* --- barriers and fences --- */

static inline void __syncthreads(SIMT_AT) { (void)simt_barrier(SIMT_NO_VOTE, 0, file, line); }
static inline int __syncthreads_count(int predicate, SIMT_AT)
{
    return simt_barrier(SIMT_COUNT, predicate, file, line);
}
static inline int __syncthreads_and(int predicate, SIMT_AT)
{
    return simt_barrier(SIMT_AND, predicate, file, line);
}
static inline int __syncthreads_or(int predicate, SIMT_AT)
{
    return simt_barrier(SIMT_OR, predicate, file, line);
}
static inline void __trap(SIMT_AT) { simt_fault("__trap at %s:%d", file, line); }
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
static inline void simt_dependents_launch(void) {} /* a hint: it orders nothing */

/* --- warp collectives --- */

/* value (4 or 8 bytes) becomes lane `source`'s value. */
void simt_shuffle(unsigned mask, void *value, size_t bytes, unsigned source, const char *file,
                  int line);
unsigned simt_ballot(unsigned mask, int predicate, const char *file, int line);
unsigned simt_match(unsigned mask, uint64_t value, const char *file, int line);
void simt_sync_warp(unsigned mask, const char *file, int line);
enum simt_reduction {
    SIMT_SUM,
    SIMT_MIN,
    SIMT_MAX,
    SIMT_UMIN,
    SIMT_UMAX,
    SIMT_BIT_AND,
    SIMT_BIT_OR,
    SIMT_BIT_XOR
};
unsigned simt_reduce(unsigned mask, unsigned value, simt_reduction how, const char *file, int line);

template <class T>
static inline T simt_shuffled(unsigned mask, T value, unsigned source, const char *file, int line)
{
    static_assert(std::is_trivially_copyable<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "shuffles take 4 or 8 bytes");
    simt_shuffle(mask, &value, sizeof value, source, file, line);
    return value;
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, SIMT_AT)
{
    unsigned w = static_cast<unsigned>(width), me = simt_here.lane;
    return simt_shuffled(mask, value, (me & ~(w - 1)) + (static_cast<unsigned>(lane) & (w - 1)),
                         file, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, SIMT_AT)
{
    unsigned w = static_cast<unsigned>(width), me = simt_here.lane;
    return simt_shuffled(mask, value, me % w + by < w ? me + by : me, file, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, SIMT_AT)
{
    unsigned w = static_cast<unsigned>(width), me = simt_here.lane;
    return simt_shuffled(mask, value, me % w >= by ? me - by : me, file, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, SIMT_AT)
{
    unsigned w = static_cast<unsigned>(width), me = simt_here.lane;
    unsigned to = me ^ static_cast<unsigned>(with);
    return simt_shuffled(mask, value, to / w <= me / w ? to : me, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_AT)
{
    return simt_ballot(mask, predicate, file, line);
}
static inline int __any_sync(unsigned mask, int predicate, SIMT_AT)
{
    return simt_ballot(mask, predicate, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, SIMT_AT)
{
    return simt_ballot(mask, !predicate, file, line) == 0;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value, SIMT_AT)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return simt_match(mask, bits, file, line);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_AT)
{
    simt_sync_warp(mask, file, line);
}

#define SIMT_REDUCE(name, T, how)                                                                  \
    static inline T name(unsigned mask, T value, SIMT_AT)                                          \
    {                                                                                              \
        return static_cast<T>(simt_reduce(mask, static_cast<unsigned>(value), how, file, line));   \
    }
SIMT_REDUCE(__reduce_add_sync, int, SIMT_SUM)
SIMT_REDUCE(__reduce_add_sync, unsigned, SIMT_SUM)
SIMT_REDUCE(__reduce_min_sync, int, SIMT_MIN)
SIMT_REDUCE(__reduce_min_sync, unsigned, SIMT_UMIN)
SIMT_REDUCE(__reduce_max_sync, int, SIMT_MAX)
SIMT_REDUCE(__reduce_max_sync, unsigned, SIMT_UMAX)
SIMT_REDUCE(__reduce_and_sync, unsigned, SIMT_BIT_AND)
SIMT_REDUCE(__reduce_or_sync, unsigned, SIMT_BIT_OR)
SIMT_REDUCE(__reduce_xor_sync, unsigned, SIMT_BIT_XOR)

/* --- atomics: CUDA's overloads, in one list that atomic.cpp defines from --- */

#define SIMT_ATOMICS(X)                                                                            \
    X(atomicAdd, int)                                                                              \
    X(atomicAdd, unsigned)                                                                         \
    X(atomicAdd, unsigned long long)                                                               \
    X(atomicAdd, float)                                                                            \
    X(atomicAdd, double)                                                                           \
    X(atomicSub, int)                                                                              \
    X(atomicSub, unsigned)                                                                         \
    X(atomicExch, int)                                                                             \
    X(atomicExch, unsigned)                                                                        \
    X(atomicExch, unsigned long long)                                                              \
    X(atomicExch, float)                                                                           \
    X(atomicMin, int)                                                                              \
    X(atomicMin, unsigned)                                                                         \
    X(atomicMin, long long)                                                                        \
    X(atomicMin, unsigned long long)                                                               \
    X(atomicMax, int)                                                                              \
    X(atomicMax, unsigned)                                                                         \
    X(atomicMax, long long)                                                                        \
    X(atomicMax, unsigned long long)                                                               \
    X(atomicAnd, int)                                                                              \
    X(atomicAnd, unsigned)                                                                         \
    X(atomicOr, int)                                                                               \
    X(atomicOr, unsigned)                                                                          \
    X(atomicXor, int)                                                                              \
    X(atomicXor, unsigned)
#define SIMT_DECLARE(name, T) T name(T *address, T value);
SIMT_ATOMICS(SIMT_DECLARE)
#undef SIMT_DECLARE
int atomicCAS(int *address, int expected, int value);
unsigned atomicCAS(unsigned *address, unsigned expected, unsigned value);
unsigned long long atomicCAS(unsigned long long *address, unsigned long long expected,
                             unsigned long long value);

#include "simt_scalar.h"

/* --- tensor cores, ldmatrix, asynchronous copies: as runtime/cuda/device/simt.h says --- */

enum simt_operand { SIMT_S8S8, SIMT_U8S8, SIMT_F16, SIMT_BF16, SIMT_S8U8, SIMT_TF32 };
void simt_mma_k32(int d[4], const unsigned a[4], const unsigned b[2], simt_operand type,
                  const char *file, int line);
void simt_mma_k16(float d[4], const unsigned a[4], const unsigned b[2], simt_operand type,
                  const char *file, int line);
void simt_mma_k8(float d[4], const unsigned a[4], const unsigned b[2], simt_operand type,
                 const char *file, int line);
void simt_mma_sp_k64(int d[4], const unsigned a[4], const unsigned b[4], unsigned meta,
                     simt_operand type, const char *file, int line);
void simt_mma_sp_k32(float d[4], const unsigned a[4], const unsigned b[4], unsigned meta,
                     simt_operand type, const char *file, int line);
void simt_ldmatrix(unsigned *r, const void *row, int matrices, bool transposed, const char *file,
                   int line);
void simt_cp_async(void *shared, const void *global, int bytes, int present);
void simt_cp_async_commit(void);
void simt_cp_async_keep(int groups);

#define SIMT_MMA(name, T, function, type)                                                          \
    static inline void name(T d[4], const unsigned a[4], const unsigned b[2], SIMT_AT)             \
    {                                                                                              \
        function(d, a, b, type, file, line);                                                       \
    }
SIMT_MMA(simt_mma_m16n8k32_s8s8, int, simt_mma_k32, SIMT_S8S8)
SIMT_MMA(simt_mma_m16n8k32_u8s8, int, simt_mma_k32, SIMT_U8S8)
SIMT_MMA(simt_mma_m16n8k16_f16, float, simt_mma_k16, SIMT_F16)
SIMT_MMA(simt_mma_m16n8k16_bf16, float, simt_mma_k16, SIMT_BF16)
SIMT_MMA(simt_mma_m16n8k8_tf32, float, simt_mma_k8, SIMT_TF32)

#define SIMT_MMA_SP(name, T, function, type)                                                       \
    static inline void name(T d[4], const unsigned a[4], const unsigned b[4], unsigned meta,       \
                            SIMT_AT)                                                               \
    {                                                                                              \
        function(d, a, b, meta, type, file, line);                                                 \
    }
SIMT_MMA_SP(simt_mma_sp_m16n8k64_s8s8, int, simt_mma_sp_k64, SIMT_S8S8)
SIMT_MMA_SP(simt_mma_sp_m16n8k64_s8u8, int, simt_mma_sp_k64, SIMT_S8U8)
SIMT_MMA_SP(simt_mma_sp_m16n8k32_f16, float, simt_mma_sp_k32, SIMT_F16)
SIMT_MMA_SP(simt_mma_sp_m16n8k32_bf16, float, simt_mma_sp_k32, SIMT_BF16)

#define SIMT_LDMATRIX(name, matrices, transposed)                                                  \
    static inline void name(unsigned r[matrices], const void *row, SIMT_AT)                        \
    {                                                                                              \
        simt_ldmatrix(r, row, matrices, transposed, file, line);                                   \
    }
SIMT_LDMATRIX(simt_ldmatrix_x1, 1, false)
SIMT_LDMATRIX(simt_ldmatrix_x2, 2, false)
SIMT_LDMATRIX(simt_ldmatrix_x4, 4, false)
SIMT_LDMATRIX(simt_ldmatrix_x1_trans, 1, true)
SIMT_LDMATRIX(simt_ldmatrix_x2_trans, 2, true)
SIMT_LDMATRIX(simt_ldmatrix_x4_trans, 4, true)

template <class T> static inline void simt_opaque(T &) {}
static inline float simt_bf16_to_f32(__nv_bfloat16 v) { return __bfloat162float(v); }

static inline void simt_cp_async4(void *shared, const void *global, int present)
{
    simt_cp_async(shared, global, 4, present);
}
static inline void simt_cp_async8(void *shared, const void *global, int present)
{
    simt_cp_async(shared, global, 8, present);
}
static inline void simt_cp_async16(void *shared, const void *global, int present)
{
    simt_cp_async(shared, global, 16, present);
}
static inline void simt_cp_async16_reused(void *shared, const void *global, int present)
{
    simt_cp_async(shared, global, 16, present);
}
template <int N> static inline void simt_cp_async_wait(void) { simt_cp_async_keep(N); }

#endif
