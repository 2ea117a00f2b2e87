/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN, opened at run time: a gigabyte that a user may not have, and that only convolutions need.
 */
#ifndef PARE_RUNTIME_CUDA_CONV_DNN_H
#define PARE_RUNTIME_CUDA_CONV_DNN_H

#include "runtime/base/ctx.h"
#include "runtime/cuda/conv/dnn_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions. PARE_CUDNN in the environment names folders where the library is looked for first.
   PARE_UNSUPPORTED: it is not there, or lacks one of them. It stays loaded. */
PARE_NODISCARD pare_status pare_dnn_open(pare_ctx *ctx, pare_dnn_api *out);

#ifdef __cplusplus
}
#endif
#endif
