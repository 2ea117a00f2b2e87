/* SPDX-License-Identifier: Apache-2.0 */
/* What element-by-element kernels get: the merged walk and where its operands are. Passed by value.
 */
#ifndef PARE_RUNTIME_CUDA_TENSOR_ITERATOR_H
#define PARE_RUNTIME_CUDA_TENSOR_ITERATOR_H

#include "runtime/ops/tensor_iterator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_cuda_iterator {
    pare_tensor_iterator walk;
    void *data[PARE_ITERATOR_OPERANDS];
} pare_cuda_iterator;

/* Operand 0 is output 0, operands 1.. the inputs 0..inputs-1, stretched to it. */
void pare_cuda_iterator_call(pare_cuda_iterator *out, const pare_call *call, int inputs);

/* Operands of one shape, the output first. */
void pare_cuda_iterator_set(pare_cuda_iterator *out, const pare_view *const *views, int operands);

#ifdef __cplusplus
}
#endif
#endif
