/* SPDX-License-Identifier: Apache-2.0 */
/* Elements read and written at positions that a tensor of indices names: launchers of gather.cu. */
#ifndef PARE_RUNTIME_CUDA_GATHER_H
#define PARE_RUNTIME_CUDA_GATHER_H

#include "runtime/cuda/fault.h"
#include "runtime/cuda/walk.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Axes of a tensor that indices name: index k counts along an axis of n[k], its elements step[k]
   apart; the indices of one element lie `apart` elements from each other. */
typedef struct pare_cuda_axes {
    pare_dtype type; /* of the indices */
    int count;
    int64_t apart, n[PARE_MAX_RANK], step[PARE_MAX_RANK];
    pare_cuda_fault fault;
} pare_cuda_axes;

/* Operands y, x, index, all with y's dims: y = x[+ where the indices point], elements of `bytes`.
 */
cudaError_t pare_cuda_gather_launch(const pare_cuda_walk *w, const pare_cuda_axes *axes, int bytes,
                                    cudaStream_t stream);

typedef enum pare_cuda_scatter_kind {
    PARE_CUDA_SCATTER_NONE,
    PARE_CUDA_SCATTER_ADD,
    PARE_CUDA_SCATTER_MUL,
    PARE_CUDA_SCATTER_MIN,
    PARE_CUDA_SCATTER_MAX
} pare_cuda_scatter_kind;

/* Updates in lines: those of one line may meet in one element of y and are applied in order, those
   of different lines never do. Operands of each walk: y (without the indexed axes), update, index.
 */
typedef struct pare_cuda_scatter {
    pare_cuda_walk line, along;
    pare_cuda_axes axes;
    pare_cuda_scatter_kind kind;
    pare_dtype dtype;
    int bytes;
} pare_cuda_scatter;

cudaError_t pare_cuda_scatter_launch(const pare_cuda_scatter *s, cudaStream_t stream);

/* Operands y, index, position along the new axis (no data: offsets count): y = values[index,
   wrapped, is the position], values: (2), `apart` elements between them. */
cudaError_t pare_cuda_one_hot_launch(const pare_cuda_walk *w, pare_dtype index_type, int64_t depth,
                                     const void *values, int64_t apart, int bytes,
                                     cudaStream_t stream);

/* Operands y, x, length, position along the time axis (no data): y = x at the mirrored position
   where that is within the length. time: length of that axis, step: between its elements in x. */
cudaError_t pare_cuda_reverse_launch(const pare_cuda_walk *w, pare_dtype length_type, int64_t time,
                                     int64_t step, const pare_cuda_fault *fault, int bytes,
                                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
