/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CUDA_DEVICE_STREAM_H
#define PARE_RUNTIME_CUDA_DEVICE_STREAM_H

#include "runtime/device/device.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const pare_stream_table pare_cuda_streams;
extern const pare_sharing_table pare_cuda_sharing; /* sharing.c */
extern const pare_peer_table pare_cuda_peers;      /* peers.c */

cudaStream_t pare_cuda_stream(const pare_stream *stream);

/* nvtx.c */
void pare_cuda_range_begin(const char *name);
void pare_cuda_range_end(void);

#ifdef __cplusplus
}
#endif
#endif
