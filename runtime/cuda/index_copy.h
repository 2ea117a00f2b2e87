/* SPDX-License-Identifier: Apache-2.0 */
/* y = x at positions that a table an axis gives: index_copy.cu. */
#ifndef PARE_RUNTIME_CUDA_INDEX_COPY_H
#define PARE_RUNTIME_CUDA_INDEX_COPY_H

#include "runtime/ops/kernel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_cuda_index_copy {
    const void *x;
    void *y;
    int rank, bytes; /* of an element */
    int64_t count, dim[PARE_MAX_RANK], y_stride[PARE_MAX_RANK];
    const int64_t *table;         /* on the device: offsets in x, axis after axis */
    int64_t begin[PARE_MAX_RANK]; /* of each axis in the table */
    pare_device *device;
} pare_cuda_index_copy;

/* at[a]: (dim of axis a of output 0) positions on axis a of input 0, on the host. State of a kernel
   whose run and release are the two below. */
PARE_NODISCARD pare_status pare_cuda_index_copy_new(pare_prep *prep, int64_t *const *at);
pare_status pare_cuda_index_copy_run(const pare_call *call);
void pare_cuda_index_copy_release(void *state);

#ifdef __cplusplus
}
#endif
#endif
