/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend (device.h): stream-ordered memory from one pool, pinned staging, streams,
 * graphs. */
#ifndef PARE_RUNTIME_CUDA_CUDA_H
#define PARE_RUNTIME_CUDA_CUDA_H

#include "runtime/device/device.h"

/* Opens GPU `index`. memory_limit: bytes its pool may grow to; 0: all of the GPU's.
   PARE_DEVICE where there is no driver, no such GPU, or no code for it, with what to do. */
PARE_NODISCARD pare_status pare_cuda_open(pare_ctx *ctx, pare_device **out, int index,
                                          size_t memory_limit);

/* GPUs this process sees; 0 without a driver, and the reason where why (bytes long) is given. */
int pare_cuda_count(char *why, size_t bytes);

/* "sm_80, sm_90, PTX of compute_80": what this build has code for. Returns text. */
const char *pare_cuda_code(char *text, size_t bytes);

/* Whether a GPU of compute capability major.minor runs this build. */
typedef enum pare_cuda_fit {
    PARE_CUDA_NATIVE,
    PARE_CUDA_BY_PTX, /* the driver compiles it at first use */
    PARE_CUDA_TOO_OLD
} pare_cuda_fit;
pare_cuda_fit pare_cuda_fits(int major, int minor);

/* CUDA's versions, 1000 * major + 10 * minor; the driver's is 0 where there is none. */
void pare_cuda_versions(int *runtime, int *driver);

/* "NVIDIA H200 (sm_90)" and its bytes of memory. */
PARE_NODISCARD pare_status pare_cuda_name(pare_ctx *ctx, int index, char *text, size_t bytes,
                                          size_t *memory);

/* The file that cuBLASLt was found in; PARE_UNSUPPORTED where it is not there (blas.h). */
PARE_NODISCARD pare_status pare_cuda_blas_path(pare_ctx *ctx, char *text, size_t bytes);

/* The version of cuDNN and its file, "9.19.0, /usr/lib/libcudnn.so.9"; PARE_UNSUPPORTED where it is
   not there, or too old (conv/dnn.h). */
PARE_NODISCARD pare_status pare_cuda_dnn_text(pare_ctx *ctx, char *text, size_t bytes);

/* From here on convolutions of a training, gradients too, may come from cuDNN in deterministic
   execution: their sums then depend on its version and on the GPU. */
void pare_cuda_allow_dnn(pare_device *device);
bool pare_cuda_allows_dnn(const pare_device *device);

/* The version of NCCL, "2.27.3"; PARE_UNSUPPORTED where it is not there, or too old (comm/nccl.h).
 */
PARE_NODISCARD pare_status pare_cuda_nccl(pare_ctx *ctx, char *text, size_t bytes);

/* The installed driver, and the libraries that products run on, which it opens (blas.h): "driver
   580.95.05, cuBLAS 13.1.0, cuBLASLt 13.1.0, cuDNN 9.19.0"; "none" for what is not there. */
void pare_cuda_library_versions(pare_ctx *ctx, pare_device *device, char *text, size_t bytes);

extern const pare_backend pare_cuda_backend;

#endif
