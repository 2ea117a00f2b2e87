/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CUDA_SAMPLES_H
#define PARE_RUNTIME_CUDA_SAMPLES_H

#include "runtime/ops/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const pare_sample_table pare_cuda_samples;

#ifdef __cplusplus
}
#endif
#endif
