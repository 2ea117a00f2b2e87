/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_CUDA_DEVICE_FAULT_H
#define PARE_RUNTIME_CUDA_DEVICE_FAULT_H

#include "runtime/ops/kernel.h"

/* Where a launch notes wrong values, and as which step. */
typedef struct pare_cuda_fault {
    unsigned long long *at; /* NULL: not noted */
    int step;
} pare_cuda_fault;

#endif
