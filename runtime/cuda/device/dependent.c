/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels may begin before the kernel ahead of them has ended (dependent.cuh). It is asked
   while a stream is captured, from what the capture knows: launches from a graph cost nothing more,
   and what is launched one by one waits for the host, not for a kernel's end. */
#include "runtime/cuda/device/dependent.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_JOINED = 8 };
/* Streams that have joined others and put no such kernel in since: a run has two. */
static _Thread_local cudaStream_t joined[MOST_JOINED];
static _Thread_local int joined_count;

void pare_cuda_capture_begins(void) { joined_count = 0; }

void pare_cuda_stream_joins(cudaStream_t stream)
{
    for (int i = 0; i < joined_count; i++)
        if (joined[i] == stream) return;
    if (joined_count < MOST_JOINED) joined[joined_count++] = stream;
}

/* Once; where there are too many, always. */
static bool has_joined(cudaStream_t stream)
{
    for (int i = 0; i < joined_count && joined_count < MOST_JOINED; i++)
        if (joined[i] == stream) {
            joined[i] = joined[--joined_count];
            return true;
        }
    return joined_count == MOST_JOINED;
}

/* Is what the stream has put in last, and nothing but that, a kernel? Of copies, fills and of
   streams that were joined nothing is promised. A library's kernels end as all do: its own order in
   the stream holds. */
static bool kernel_is_ahead(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status;
    enum cudaGraphNodeType type;
    const cudaGraphNode_t *ahead = NULL;
    const cudaGraphEdgeData *edges = NULL;
    size_t count = 0;
    return cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &ahead, &edges, &count) ==
               cudaSuccess &&
           status == cudaStreamCaptureStatusActive && count == 1 &&
           cudaGraphNodeGetType(ahead[0], &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
}

/* Code that the driver makes of older PTX does not wait, whatever the GPU is. */
static bool code_waits(const void *kernel)
{
    struct cudaFuncAttributes code;
    return cudaFuncGetAttributes(&code, kernel) == cudaSuccess && code.ptxVersion >= 90;
}

bool pare_cuda_dependents_off(void)
{
    const char *wish = getenv("PARE_CUDA_PDL");
    return wish && !strcmp(wish, "0");
}

bool pare_cuda_is_dependent(const void *kernel, cudaStream_t stream)
{
    const bool behind_another = has_joined(stream);
    return !pare_cuda_dependents_off() && !behind_another && kernel_is_ahead(stream) &&
           code_waits(kernel);
}
