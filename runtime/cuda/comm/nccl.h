/* SPDX-License-Identifier: Apache-2.0 */
/* Opens NCCL (nccl_api.h) at run time. */
#ifndef PARE_RUNTIME_CUDA_COMM_NCCL_H
#define PARE_RUNTIME_CUDA_COMM_NCCL_H

#include "runtime/base/ctx.h"
#include "runtime/cuda/comm/nccl_api.h"

/* The functions, and the library's version: 22703 is 2.27.3. PARE_NCCL in the environment names
   folders where it is looked for first. PARE_UNSUPPORTED: it is not there, lacks one of them. It
   stays loaded. */
PARE_NODISCARD pare_status pare_nccl_open(pare_ctx *ctx, pare_nccl_api *out, int *version);

#endif
