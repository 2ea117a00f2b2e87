/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of gpu_bench share: the device, a clock of events, random data, lines of CSV. */
#ifndef PARE_TESTS_GPU_BENCH_H
#define PARE_TESTS_GPU_BENCH_H

#include "runtime/base/ctx.h"
#include "runtime/base/types.h"
#include "runtime/cuda/gemm/blas_api.h"
#include "runtime/device/device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

typedef struct bench {
    pare_ctx ctx;
    pare_device *device;
    cudaStream_t stream;
    cudaEvent_t from, to;
    const pare_blas_api *blas; /* NULL: cuBLASLt is not there */
    void *lt, *workspace;
    FILE *csv;
    bool tiny, longer;       /* tiny: shapes for the emulation */
    double end;              /* of monotonic time; no case starts afterwards */
    int cases, failed, late; /* late: cases that time did not allow */
    char *tile[4];           /* random numbers as s8, f16, f32, f8e4m3: BENCH_TILE bytes each */
} bench;

enum { BENCH_TILE = 8 << 20, BENCH_SETS = 4, BENCH_WORKSPACE = 32 << 20 };

/* y (rows, columns) = x (rows, depth) w: a matrix, or a picture under a window. */
typedef struct bench_product {
    const char *name;
    int64_t rows, depth, columns;       /* depth: of all taps */
    int side, channels, kernel, stride; /* side 0: a matrix */
    int64_t batch;
    bool sparse; /* of each four weights along depth two are 0 */
} bench_product;

/* Microseconds of one run: median and least over samples, and what is between their 10th and 90th
   percentile, as a percentage of the median. */
typedef struct bench_times {
    double median, min, spread;
} bench_times;

/* Enqueues run number `run` on the stream. */
typedef pare_status bench_fn(bench *b, void *user, int run);

PARE_NODISCARD pare_status bench_cuda(bench *b, cudaError_t error, const char *call);
#define BENCH_CUDA(b, call) PARE_TRY(bench_cuda((b), (call), #call))

PARE_NODISCARD pare_status bench_measure(bench *b, bench_fn *fn, void *user, bench_times *out);
bool bench_may_start(bench *b);

/* Device memory full of random numbers of one of tile's types, freed with cudaFree. */
PARE_NODISCARD pare_status bench_random(bench *b, void **out, pare_dtype type, size_t bytes);
/* Random numbers of this type on the host. */
void bench_fill(const bench *b, void *out, pare_dtype type, size_t bytes);

/* A line of results: amount is what one run does, in units of which 1e12 (operations) or 1e9
   (bytes) a second are one of the line's unit. */
void bench_line(bench *b, const char *suite, const char *name, int64_t batch, const char *type,
                const char *who, const bench_times *times, double amount, bool bytes);
/* The same for a case that failed; takes the message. */
void bench_failed(bench *b, const char *suite, const char *name, int64_t batch, const char *type,
                  const char *who);

/* Our kernels, each that takes the product, and cuBLASLt's best of 8. */
void bench_ours(bench *b, const char *suite, const bench_product *p, pare_dtype type);
/* Conv of computed weights and both gradients, on the kernel that a plan takes; f32 as TF32, too.
 */
void bench_train(bench *b, const char *suite, const bench_product *p, pare_dtype type, bool tf32);
void bench_blas(bench *b, const char *suite, const bench_product *p, pare_dtype type);
void bench_memory(bench *b);
/* Says how cuBLASLt rounds an s8 result. */
void bench_rounding(bench *b);

#endif
