/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of an element-by-element pass over several tensors of one shape and any strides,
   reduced to as few axes as they allow: dense operands become one long axis. */
#ifndef PARE_RUNTIME_OPS_TENSOR_ITERATOR_H
#define PARE_RUNTIME_OPS_TENSOR_ITERATOR_H

#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_ITERATOR_OPERANDS = 5 }; /* an output and up to four inputs */

typedef struct pare_tensor_iterator {
    int operands, rank;                                    /* rank >= 1 */
    int64_t count;                                         /* elements of the output */
    int64_t dim[PARE_MAX_RANK];                            /* outermost first */
    int64_t stride[PARE_ITERATOR_OPERANDS][PARE_MAX_RANK]; /* in elements */
} pare_tensor_iterator;

/* v[0] is the output; the others have its dims (pare_view_stretch). Axes are sorted by the output's
   stride, those of length 1 dropped, neighbours that continue each other in every operand merged.
 */
void pare_iterator_init(pare_tensor_iterator *it, const pare_view *const *v, int operands);

/* in seen with the dims of to, to which it broadcasts: stretched axes have stride 0. */
pare_view pare_view_stretch(const pare_view *in, const pare_view *to);

#ifdef __cplusplus
}
#endif
#endif
