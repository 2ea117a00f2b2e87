/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of functions of whole rows, and losses with their own; launchers of grad_rows.cu. */
#ifndef PARE_RUNTIME_CUDA_GRAD_ROWS_H
#define PARE_RUNTIME_CUDA_GRAD_ROWS_H

#include "runtime/cuda/fault.h"
#include "runtime/cuda/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* r: x is the softmax's result, y its input's gradient; dy: in the same order. */
cudaError_t pare_cuda_softmax_grad_launch(const pare_cuda_rows *r, const void *dy, bool log_form,
                                          cudaStream_t stream);

/* r: x is LayerNormalization's input, y its gradient or NULL; dense rows. stats (rows, 2): gets
   mean and 1 / deviation. */
cudaError_t pare_cuda_layer_norm_grad_launch(const pare_cuda_rows *r, const void *dy,
                                             const void *scale, double epsilon, double *stats,
                                             cudaStream_t stream);

/* A loss of logits (rows, n), dense: the mean of the rows' losses and, where dx is not NULL, its
   gradient. */
typedef struct pare_cuda_loss {
    const void *x, *teacher; /* teacher: of SoftmaxKL, else NULL */
    const void *labels;      /* of CrossEntropy, `apart` elements from each other; NULL: its own
                                first largest logit */
    void *loss, *dx;
    double *part; /* scratch: (rows) */
    pare_dtype dtype, label_type;
    int64_t rows, n, apart;
    double temperature, part_of_mean; /* 1 / rows */
    pare_cuda_fault fault;
} pare_cuda_loss;

cudaError_t pare_cuda_softmax_kl_launch(const pare_cuda_loss *l, cudaStream_t stream);
cudaError_t pare_cuda_cross_entropy_launch(const pare_cuda_loss *l, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
