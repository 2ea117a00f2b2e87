/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation's NCCL for tests. */
#ifndef PARE_SIMT_NCCL_TABLE_H
#define PARE_SIMT_NCCL_TABLE_H

#include "runtime/cuda/comm/nccl_api.h"

#ifdef __cplusplus
extern "C" {
#endif

void simt_nccl_api(pare_nccl_api *out);

#ifdef __cplusplus
}
#endif
#endif
