/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of Attention (23, 24) share. */
#ifndef PARE_RUNTIME_OPS_ATTENTION_H
#define PARE_RUNTIME_OPS_ATTENTION_H

#include "runtime/ops/kernel.h"

/* Q, K, V or Y of rank 3, (batch, length, heads x size), as (batch, heads, length, size) of the
   same memory; of rank 4 as it is. */
pare_view pare_attention_heads(const pare_view *x, int64_t heads);

#endif
