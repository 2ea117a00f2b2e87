/* SPDX-License-Identifier: Apache-2.0 */
/* Work that memory bounds: a copy on the device, calibration's histogram with its range, and the
   range alone (min-max). */
#include "runtime/cuda/calib/calib.h"
#include "tests/gpu/bench.h"

typedef struct streaming {
    void *values, *other;
    pare_histogram_dev_bins *histogram;
    pare_dtype type;
    int64_t n;
    size_t bytes;
    int blocks;
} streaming;

static pare_status histogram_once(bench *b, void *user, int run)
{
    streaming *s = user;
    (void)run;
    BENCH_CUDA(b, pare_cuda_histogram_add(&s->histogram->histogram, true, s->type, s->values, s->n,
                                          s->blocks, b->stream));
    return PARE_OK;
}

static pare_status range_once(bench *b, void *user, int run)
{
    streaming *s = user;
    (void)run;
    BENCH_CUDA(b, pare_cuda_histogram_add(&s->histogram->histogram, false, s->type, s->values, s->n,
                                          s->blocks, b->stream));
    return PARE_OK;
}

static pare_status copy_once(bench *b, void *user, int run)
{
    streaming *s = user;
    (void)run;
    BENCH_CUDA(b,
               cudaMemcpyAsync(s->other, s->values, s->bytes, cudaMemcpyDeviceToDevice, b->stream));
    return PARE_OK;
}

static void streaming_line(bench *b, streaming *s, bench_fn *fn, const char *name, const char *who,
                           int passes)
{
    bench_times times;
    const char *type = pare_type(s->type)->name;
    if (!bench_may_start(b)) return;
    if (bench_measure(b, fn, s, &times))
        bench_failed(b, "memory", name, s->n, type, who);
    else
        bench_line(b, "memory", name, s->n, type, who, &times, passes * (double)s->bytes, true);
}

static pare_status streaming_run(bench *b, streaming *s)
{
    PARE_TRY(bench_random(b, &s->values, s->type, s->bytes));
    BENCH_CUDA(b, cudaMalloc(&s->other, s->bytes));
    BENCH_CUDA(b, cudaMalloc((void **)&s->histogram, sizeof *s->histogram));
    BENCH_CUDA(b, pare_cuda_histogram_clear(s->histogram, sizeof *s->histogram, 1, b->stream));
    streaming_line(b, s, copy_once, "copy", "cudaMemcpy", 2);
    streaming_line(b, s, histogram_once, "histogram and range", "pare", 1);
    streaming_line(b, s, range_once, "range", "pare", 1);
    return PARE_OK;
}

void bench_memory(bench *b)
{
    static const pare_dtype types[] = {PARE_f32, PARE_f16};
    struct cudaDeviceProp facts;
    if (bench_cuda(b, cudaGetDeviceProperties(&facts, 0), "cudaGetDeviceProperties")) {
        bench_failed(b, "memory", "device", 0, "", "");
        return;
    }
    for (int t = 0; t < 2; t++) {
        streaming s = {.type = types[t], .blocks = 2 * facts.multiProcessorCount};
        s.n = b->tiny ? 5000 : b->longer ? 1 << 30 : 1 << 28;
        s.bytes = (size_t)s.n * (size_t)(pare_type(s.type)->bits / 8);
        if (streaming_run(b, &s))
            bench_failed(b, "memory", "memory", s.n, pare_type(s.type)->name, "");
        (void)cudaFree(s.values);
        (void)cudaFree(s.other);
        (void)cudaFree(s.histogram);
    }
}
