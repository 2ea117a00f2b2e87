/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation's cuDNN for tests. */
#ifndef PARE_SIMT_DNN_TABLE_H
#define PARE_SIMT_DNN_TABLE_H

#include "runtime/cuda/conv/dnn_api.h"

#ifdef __cplusplus
extern "C" {
#endif

void simt_dnn_api(pare_dnn_api *out);

#ifdef __cplusplus
}
#endif
#endif
