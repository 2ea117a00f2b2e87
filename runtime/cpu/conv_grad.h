/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of a convolution's gradients share. */
#ifndef PARE_RUNTIME_CPU_CONV_GRAD_H
#define PARE_RUNTIME_CPU_CONV_GRAD_H

#include "runtime/cpu/conv.h"

/* The geometry of the forward convolution of a ConvGradInput or (weight) a ConvGradWeight. */
PARE_NODISCARD pare_status pare_conv_grad_read(const pare_prep *prep, bool weight, pare_conv *out);

#endif
