/* SPDX-License-Identifier: Apache-2.0 */
/* What the plain and the fast gradients of pools share. */
#ifndef PARE_RUNTIME_CPU_POOL_GRAD_H
#define PARE_RUNTIME_CPU_POOL_GRAD_H

#include "runtime/ops/kernel.h"

/* The pare_window as state. PARE_INPUT: the tensors' shapes contradict each other. */
PARE_NODISCARD pare_status pare_pool_grad_prepare(pare_prep *prep);

/* grad_pool_nhwc.c */
extern const pare_kernel pare_nhwc_max_pool_grad, pare_nhwc_average_pool_grad;

#endif
