/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CUDA_DEVICE_DEPENDENT_H
#define PARE_RUNTIME_CUDA_DEVICE_DEPENDENT_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* May a kernel that waits (dependent.cuh) be launched so that it begins before the kernel ahead of
   it in the stream has ended? Where CUDA refuses an answer: no, and its error is the next that
   cudaGetLastError gives. */
bool pare_cuda_is_dependent(const void *kernel, cudaStream_t stream);
/* Does PARE_CUDA_PDL forbid it? */
bool pare_cuda_dependents_off(void);

/* Of the calling thread: it begins to capture; a stream waits for what another one did, so that
   what its capture has ahead is no kernel of its own. */
void pare_cuda_capture_begins(void);
void pare_cuda_stream_joins(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
