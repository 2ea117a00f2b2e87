/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels to floats on the device; the launcher of pixels.cu. */
#ifndef PARE_RUNTIME_CUDA_PIXELS_H
#define PARE_RUNTIME_CUDA_PIXELS_H

#include "runtime/ops/samples.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As pare_sample_table.pixels. */
cudaError_t pare_cuda_pixels_launch(float *y, const uint8_t *x, const pare_pixels *pixels,
                                    int64_t samples, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
