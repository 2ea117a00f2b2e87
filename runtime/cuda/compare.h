/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons and logic: their names, and the launcher of compare.cu. */
#ifndef PARE_RUNTIME_CUDA_COMPARE_H
#define PARE_RUNTIME_CUDA_COMPARE_H

#include "runtime/cuda/walk.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, expression of x, y): the formulas of runtime/cpu/compare.c, for double and int64_t. */
#define PARE_CUDA_COMPARE(X)                                                                       \
    X(equal, x == y)                                                                               \
    X(less, x < y)                                                                                 \
    X(greater, x > y)                                                                              \
    X(less_or_equal, x <= y)                                                                       \
    X(greater_or_equal, x >= y)                                                                    \
    X(and, x &&y)                                                                                  \
    X(or, x || y)                                                                                  \
    X(xor, !x != !y)                                                                               \
    X(not, !x)                                                                                     \
    X(is_nan, x != x)                                                                              \
    X(is_inf, (double)x == INFINITY || (double)x == -INFINITY)                                     \
    X(is_positive_inf, (double)x == INFINITY)                                                      \
    X(is_negative_inf, (double)x == -INFINITY)                                                     \
    X(never, 0)

#define X(name, expr) PARE_CUDA_IS_##name,
typedef enum pare_cuda_compare { PARE_CUDA_COMPARE(X) PARE_CUDA_COMPARE_COUNT } pare_cuda_compare;
#undef X

/* Operands y (bool), x, y of one type, any number or bool; functions of one tensor get it twice. */
cudaError_t pare_cuda_compare_launch(const pare_cuda_walk *w, pare_dtype dtype,
                                     pare_cuda_compare op, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
