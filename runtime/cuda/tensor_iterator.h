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

/* May threads take `width` neighbours along the last axis at once? In each operand they are
   together, at multiples of 16 bytes and of `width` elements, or one for all; in the output
   together. */
bool pare_cuda_iterator_vectorizes(const pare_cuda_iterator *w, int width);
/* A copy of elements of *bytes as one of more bytes, up to 16, where neighbours allow it. */
void pare_cuda_iterator_widen(pare_cuda_iterator *w, int *bytes);

#ifdef __cplusplus
}
#endif

/* In a launcher of (const pare_cuda_iterator *w, ..., cudaStream_t stream): the kernel on a grid
   for all elements, the walk as its first argument; it begins with pare_dependent_begin(). */
#define PARE_ITERATOR_LAUNCH(kernel, ...)                                                          \
    PARE_LAUNCH_DEPENDENT(kernel, pare_cuda_grid(w->walk.count), dim3(PARE_CUDA_BLOCK), 0, stream, \
                          *w, ##__VA_ARGS__)

/* The end of such a launcher: the kernel for elements of `bytes`, 1, 2, 4 or 8. */
#define PARE_ITERATOR_LAUNCH_BYTES(kernel)                                                         \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        if (bytes == 1)                                                                            \
            PARE_ITERATOR_LAUNCH((kernel<uint8_t>));                                               \
        else if (bytes == 2)                                                                       \
            PARE_ITERATOR_LAUNCH((kernel<uint16_t>));                                              \
        else if (bytes == 4)                                                                       \
            PARE_ITERATOR_LAUNCH((kernel<uint32_t>));                                              \
        else if (bytes == 8)                                                                       \
            PARE_ITERATOR_LAUNCH((kernel<uint64_t>));                                              \
        else                                                                                       \
            return cudaErrorInvalidValue;                                                          \
        return cudaGetLastError();                                                                 \
    } while (0)

#endif
