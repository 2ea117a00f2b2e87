/* SPDX-License-Identifier: Apache-2.0 */
/* What the stubs of cuBLAS and cuBLASLt share: matrices in memory and their product. */
#ifndef PARE_SIMT_BLAS_STUB_H
#define PARE_SIMT_BLAS_STUB_H

#include "engine.h"
#include "runtime/cuda/gemm/blas_api.h"

namespace simt
{

/* rows x cols of a type, element (i, j) at i * row_step + j * col_step; batch matrices apart by
   stride elements. */
struct matrix {
    const void *p;
    int type;
    int64_t rows, cols, row_step, col_step, stride;
};

/* d = finish(alpha[row] * a b + beta c); alpha is one value or one a row of device memory. */
struct product {
    matrix a, b, c, d;
    int64_t batch;
    double alpha, beta;
    const void *alpha_vector; /* of the scale type, or NULL */
    const void *alpha_device, *beta_device;
    bool integer_scale;
    int epilogue;
    const void *bias; /* of D's type */
    bool tf32;        /* factors are rounded to it first */
};

size_t type_bytes(int type); /* 0: not modelled */
/* Element i as a number; rounded to TF32; v rounded to the type. */
double load(const void *p, int type, int64_t i);
double load_tf32(const float *p, int64_t i);
void store(void *p, int type, int64_t i, double v);
matrix transposed(const matrix &m);
/* Bytes from p to the end of the last element. */
size_t matrix_bytes(const matrix &m, int64_t batch);
/* A fault where a device range is too short. */
void need_device(const void *p, size_t bytes, const char *what);
void run_product(const product &x);
/* Queues it; returns a status. */
int queue_product(const product &x, cudaStream_t stream);
int refuse(const char *library, const char *why); /* says why; PARE_BLAS_NOT_SUPPORTED */
int library_property(int which, int *value);      /* a part of the version, 0 to 2; a status */
int injected(int code);                           /* the status for a failure on demand */

} // namespace simt

#endif
