/* SPDX-License-Identifier: Apache-2.0 */
/* Which axes a reduction runs over; shape rule and kernels read it here. */
#ifndef PARE_RUNTIME_OPS_REDUCE_H
#define PARE_RUNTIME_OPS_REDUCE_H

#include "runtime/ops/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_reduce {
    bool axis[PARE_MAX_RANK]; /* reduced */
    bool keepdims;
    bool known; /* false: the axes are computed while running, axis says nothing */
    bool noop;  /* no axes and noop_with_empty_axes: the input as it is */
} pare_reduce;

/* For input 0 of this rank: axes from constant input 1 or the older attribute; none given: all. */
PARE_NODISCARD pare_status pare_reduce_read(const pare_node *node, int rank, pare_reduce *out);

/* The result's type, also of GlobalAveragePool: x's; f32 of a short float where a pass says so
   (`output_dtype`). */
pare_dtype pare_reduce_output_type(const pare_node *node, const pare_value *x);

/* The same from axes read elsewhere. */
PARE_NODISCARD pare_status pare_reduce_set(const pare_node *node, const int64_t *axes, int count,
                                           int rank, pare_reduce *out);

#ifdef __cplusplus
}
#endif
#endif
