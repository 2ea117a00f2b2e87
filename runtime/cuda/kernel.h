/* SPDX-License-Identifier: Apache-2.0 */
/* What the host halves of kernel families share: types they take, and how a launch ends. A family
   is one STEM.cu: kernels, launchers, pare_kernel tables. */
#ifndef PARE_RUNTIME_CUDA_KERNEL_H
#define PARE_RUNTIME_CUDA_KERNEL_H

#include "runtime/cuda/device/error.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types that compute in float. */
static inline bool pare_cuda_is_float(pare_dtype dtype)
{
    return dtype == PARE_f32 || dtype == PARE_f16 || dtype == PARE_bf16;
}

static inline bool pare_cuda_is_int(pare_dtype dtype)
{
    return dtype == PARE_s8 || dtype == PARE_u8 || dtype == PARE_s16 || dtype == PARE_u16 ||
           dtype == PARE_s32 || dtype == PARE_u32 || dtype == PARE_s64 || dtype == PARE_u64;
}

/* Floats, f64 among them, and integers. */
static inline bool pare_cuda_is_number(pare_dtype dtype)
{
    return pare_type_is_float(dtype) || pare_cuda_is_int(dtype);
}

/* can(): input 0 is such a type, and so are the other `inputs - 1`. */
bool pare_cuda_can_float(const pare_prep *prep, int inputs);

/* Bytes of one element; 0 for types of less than a byte and strings. */
int pare_cuda_bytes(pare_dtype dtype);

/* Strides of N, C and three window axes of a tensor of rank 3 to 5; of a missing one 0. */
void pare_cuda_strides(const pare_view *v, int64_t stride[5]);

/* A copy on the device between two views of one shape. */
PARE_NODISCARD pare_status pare_cuda_copy(const pare_call *call, const pare_view *dst,
                                          const pare_view *src);

/* prepare(): a copy of host bytes on the device, complete on return, which counts as kept. Freed
   with backend->free. */
PARE_NODISCARD pare_status pare_cuda_copy_kept(pare_prep *prep, void **out, const void *data,
                                               size_t bytes);

/* The state of a kernel that keeps memory of the device, and its release(). */
typedef struct pare_cuda_kept {
    pare_device *device;
    void *data;
} pare_cuda_kept;
/* With a copy of host memory; becomes the node's state. */
PARE_NODISCARD pare_status pare_cuda_keep(pare_prep *prep, const void *data, size_t bytes);
void pare_cuda_kept_release(void *state);

/* The status of a launch; a failure names the node and the launcher. */
PARE_NODISCARD pare_status pare_cuda_launched(const pare_call *call, cudaError_t error,
                                              const char *launcher);

#define PARE_CUDA_LAUNCH(call, launcher, ...)                                                      \
    pare_cuda_launched((call), launcher(__VA_ARGS__, pare_cuda_stream((call)->stream)), #launcher)

#ifdef __cplusplus
}
#endif
#endif
