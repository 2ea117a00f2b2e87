/* SPDX-License-Identifier: Apache-2.0 */
/* Programmatic dependent launch (CUDA Programming Guide 4.5; PTX ISA, griddepcontrol; compute
   capability 9.0): a kernel that may begin while the kernel ahead of it in its stream still runs.

       static __global__ void name(...)
       {
           simt_dependency_wait();     // ahead of device memory
           ...                         // what takes long
           simt_dependents_launch();   // the kernel behind may begin
           ...                         // results are stored
       }
       PARE_LAUNCH_DEPENDENT(name, grid, block, shared, stream, ...);

   The wait returns once the kernel ahead, all of its blocks, has ended and its memory is visible.
   For kernels further ahead this rests on one rule: every thread of such a kernel waits before it
   ends, so the kernel ahead has not ended before its own wait returned. Whatever was put into the
   stream before is done behind the wait, and buffers may be written again. A kernel launched in the
   usual way begins when all ahead of it has ended. Ahead of the wait only what no kernel of any run
   writes, weights, may be read, and only by simt_tma_load_constant (simt_sm90.cuh).

   The file is in CUDA_DEPENDENT of sources.cmake, which compiles it for compute capability 9.0: in
   older code both functions are empty, and its kernels are launched in the usual way. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_DEPENDENT_CUH
#define PARE_RUNTIME_CUDA_DEVICE_DEPENDENT_CUH

#include "runtime/cuda/device/dependent.h"
#include "runtime/cuda/device/simt.h"

#ifdef __CUDACC__

SIMT_INLINE void simt_dependency_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* One thread of a block is enough. */
SIMT_INLINE void simt_dependents_launch(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename... P, typename... A>
static inline void simt_launch_dependent(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                         cudaStream_t stream, A... arguments)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    (void)cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}
#define SIMT_LAUNCH_DEPENDENT(kernel, grid, block, shared, stream, ...)                            \
    simt_launch_dependent((kernel), (grid), (block), (shared), (stream), __VA_ARGS__)

#endif

/* The first statement of kernels that take about as long as a launch. */
SIMT_INLINE void pare_dependent_begin(void)
{
    simt_dependency_wait();
    simt_dependents_launch();
}

#define PARE_LAUNCH_DEPENDENT(kernel, grid, block, shared, stream, ...)                            \
    do {                                                                                           \
        if (pare_cuda_is_dependent(reinterpret_cast<const void *>(kernel), (stream)))              \
            SIMT_LAUNCH_DEPENDENT(kernel, grid, block, shared, stream, __VA_ARGS__);               \
        else                                                                                       \
            SIMT_LAUNCH(kernel, grid, block, shared, stream, __VA_ARGS__);                         \
    } while (0)

#endif
