/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CUDA_DEVICE_KIND_H
#define PARE_RUNTIME_CUDA_DEVICE_KIND_H

/* A kind of product beside the types (pare_dtype): f32 whose factors are rounded to TF32. */
enum { PARE_CUDA_TF32 = 0x100 };

#endif
