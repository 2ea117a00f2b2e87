/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over any axes of tensors in any memory order: their description, the launcher of
   reduce.cu, and how other families (norm.cu, quantize.cu) set one up. */
#ifndef PARE_RUNTIME_CUDA_REDUCE_H
#define PARE_RUNTIME_CUDA_REDUCE_H

#include "runtime/ops/tensor_iterator.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first ten are ONNX's Reduce*, in the order of their names. */
typedef enum pare_cuda_reduction {
    PARE_CUDA_SUM,
    PARE_CUDA_MEAN,
    PARE_CUDA_MAX,
    PARE_CUDA_MIN,
    PARE_CUDA_PROD,
    PARE_CUDA_L1,
    PARE_CUDA_L2,
    PARE_CUDA_SUM_SQUARE,
    PARE_CUDA_LOG_SUM,
    PARE_CUDA_LOG_SUM_EXP,
    PARE_CUDA_ARG_MAX, /* position in the region, s64 */
    PARE_CUDA_ARG_MIN,
    PARE_CUDA_INVERSE_DEVIATION, /* 1 / sqrt(sum (x - mean)^2 / n + epsilon); floats only, as RANGE
                                  */
    PARE_CUDA_RANGE              /* y and the element after it: min(x, 0), max(x, 0), NaN ignored */
} pare_cuda_reduction;

/* One output per element of `kept`, of all elements of `region`. */
typedef struct pare_cuda_reduce {
    const void *x;
    void *y;
    void *part;                  /* (parts, outputs) of 16 bytes where parts > 1 */
    const double *mean;          /* INVERSE_DEVIATION: at y's offsets */
    pare_tensor_iterator kept;   /* operands y, x */
    pare_tensor_iterator region; /* operand x */
    pare_cuda_reduction kind;
    pare_dtype x_type, y_type; /* floats to floats, integers and bool to integers; indices to s64 */
    bool last;                 /* of equal minmax_only the last, not the first */
    float p;                   /* epsilon of INVERSE_DEVIATION */
    int64_t start;             /* of maxima and minima of integers */
    bool columns;              /* neighbouring outputs, not elements, are neighbours in memory */
    int warps;                 /* that one output is computed by: 1 or 8 */
    int parts;                 /* the region is cut into, joined by a second kernel */
    int64_t chunk;             /* elements of one part */
} pare_cuda_reduce;

cudaError_t pare_cuda_reduce_launch(const pare_cuda_reduce *r, cudaStream_t stream);

/* Fills walks, types, geometry: x's axes with their flag set are reduced; y has x's other axes in
   their order. deterministic: the order of additions depends on the region alone, not on the number
   of outputs. */
void pare_cuda_reduce_set(pare_cuda_reduce *r, pare_cuda_reduction kind, const pare_view *x,
                          const bool *axis, const pare_view *y, bool deterministic);

/* Bytes of `part`. */
size_t pare_cuda_reduce_scratch(const pare_cuda_reduce *r);

/* Steps of kernels that are one reduction of input 0: the node's state, its description with
   output 0 and scratch, its launch. */
PARE_NODISCARD pare_status pare_cuda_reduce_new(pare_prep *prep, pare_cuda_reduce **out);
void pare_cuda_reduce_into(pare_prep *prep, pare_cuda_reduce *r, pare_cuda_reduction kind,
                           const bool *axis);
PARE_NODISCARD pare_status pare_cuda_reduce_run(const pare_call *call);

/* May x be reduced this way? */
bool pare_cuda_reduce_takes(pare_cuda_reduction kind, pare_dtype x);

/* The axes of v whose flag is `flagged`, in their order. */
pare_view pare_cuda_axes(const pare_view *v, const bool *axis, bool flagged);

#ifdef __cplusplus
}
#endif
#endif
