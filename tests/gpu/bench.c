/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_bench: kernels on a GPU over the shapes of ResNet-50 and BERT-base (He et al. 2015; Devlin et
   al. 2018, sequences of 128 tokens) in INT8, FP16 and FP32, cuBLASLt on the same, and memory-bound
   work. Runs are captured into a graph, timed by events, inputs random and taken in turn. */
#include "tests/gpu/bench.h"
#include "runtime/base/f8.h"
#include "runtime/cuda/gemm/blas.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/exec/exec.h"
#ifdef BENCH_STUB
#include "tests/simt/blas_table.h"
#endif

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

pare_status bench_cuda(bench *b, cudaError_t error, const char *call)
{
    if (error == cudaSuccess) return PARE_OK;
    (void)cudaGetLastError();
    return PARE_FAIL(&b->ctx, DEVICE, "%.40s: %s", call, cudaGetErrorString(error));
}

bool bench_may_start(bench *b)
{
    bool may = now() < b->end;
    b->late += !may;
    return may;
}

/* --- timing --- */

enum { MOST_SAMPLES = 41, MOST_RUNS = 64 };

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static pare_status runs_seconds(bench *b, cudaGraphExec_t graph, int runs, double *out)
{
    float ms;
    BENCH_CUDA(b, cudaEventRecord(b->from, b->stream));
    BENCH_CUDA(b, cudaGraphLaunch(graph, b->stream));
    BENCH_CUDA(b, cudaEventRecord(b->to, b->stream));
    BENCH_CUDA(b, cudaEventSynchronize(b->to));
    BENCH_CUDA(b, cudaEventElapsedTime(&ms, b->from, b->to));
    *out = 1e-3 * (double)ms / runs;
    return PARE_OK;
}

static pare_status graph_new(bench *b, bench_fn *fn, void *user, int runs, cudaGraphExec_t *out)
{
    cudaGraph_t graph;
    pare_status st = PARE_OK;
    BENCH_CUDA(b, cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < runs && !st; i++) st = fn(b, user, i);
    cudaError_t error = cudaStreamEndCapture(b->stream, &graph);
    if (st) return st;
    BENCH_CUDA(b, error);
    error = cudaGraphInstantiate(out, graph, 0);
    (void)cudaGraphDestroy(graph);
    return bench_cuda(b, error, "cudaGraphInstantiate");
}

/* Enough runs a sample to fill a millisecond. */
static pare_status samples_take(bench *b, bench_fn *fn, void *user, int runs, double *all,
                                int count)
{
    cudaGraphExec_t graph;
    double unused;
    PARE_TRY(graph_new(b, fn, user, runs, &graph));
    pare_status st = runs_seconds(b, graph, runs, &unused);
    for (int i = 0; i < count && !st; i++) st = runs_seconds(b, graph, runs, &all[i]);
    (void)cudaGraphExecDestroy(graph);
    return st;
}

pare_status bench_measure(bench *b, bench_fn *fn, void *user, bench_times *out)
{
    double all[MOST_SAMPLES], first;
    int count = b->tiny ? 3 : b->longer ? MOST_SAMPLES : 11;
    PARE_TRY(fn(b, user, 0)); /* libraries load and choose before anything is captured */
    BENCH_CUDA(b, cudaStreamSynchronize(b->stream));
    PARE_TRY(samples_take(b, fn, user, b->tiny ? 2 : 4, &first, 1));
    int runs = first > 0 ? (int)(1e-3 / first) : 1;
    runs = b->tiny ? 2 : runs < 1 ? 1 : runs > MOST_RUNS ? MOST_RUNS : runs;
    PARE_TRY(samples_take(b, fn, user, runs, all, count));
    qsort(all, (size_t)count, sizeof *all, by_value);
    out->median = 1e6 * all[count / 2];
    out->min = 1e6 * all[0];
    out->spread =
        all[count / 2] > 0 ? 100 * (all[count * 9 / 10] - all[count / 10]) / all[count / 2] : 0;
    return PARE_OK;
}

/* --- data --- */

static int tile_of(pare_dtype type)
{
    return type == PARE_s8 ? 0 : type == PARE_f16 ? 1 : type == PARE_f32 ? 2 : 3;
}

/* Sums of two uniform numbers from -1 to 1, as FP8 times 200, or bytes. */
static pare_status tiles_fill(bench *b)
{
    const pare_dtype types[] = {PARE_s8, PARE_f16, PARE_f32, PARE_f8e4m3};
    uint64_t state = 7;
    for (int t = 0; t < 4; t++) {
        const pare_type_info *type = pare_type(types[t]);
        int bytes = type->bits / 8;
        b->tile[t] = pare_alloc(&b->ctx, BENCH_TILE, 1);
        if (!b->tile[t]) return PARE_MEMORY;
        for (int i = 0; i < BENCH_TILE; i += bytes) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            float v = (float)(state >> 40) * 0x1p-24f + (float)(state >> 16 & 0xffffff) * 0x1p-24f;
            if (t == 0)
                b->tile[t][i] = (char)(state >> 32);
            else if (types[t] == PARE_f8e4m3)
                b->tile[t][i] = (char)pare_f8e4m3_code((v - 1) * 200);
            else
                type->from_f32_ref(b->tile[t] + i, v - 1);
        }
    }
    return PARE_OK;
}

void bench_fill(const bench *b, void *out, pare_dtype type, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += BENCH_TILE)
        memcpy((char *)out + at, b->tile[tile_of(type)],
               bytes - at < BENCH_TILE ? bytes - at : BENCH_TILE);
}

pare_status bench_random(bench *b, void **out, pare_dtype type, size_t bytes)
{
    BENCH_CUDA(b, cudaMalloc(out, bytes ? bytes : 1));
    for (size_t at = 0; at < bytes; at += BENCH_TILE) {
        size_t part = bytes - at < BENCH_TILE ? bytes - at : BENCH_TILE;
        cudaError_t error =
            cudaMemcpy((char *)*out + at, b->tile[tile_of(type)], part, cudaMemcpyHostToDevice);
        if (error) {
            (void)cudaFree(*out);
            return bench_cuda(b, error, "cudaMemcpy");
        }
    }
    return PARE_OK;
}

/* --- results --- */

void bench_line(bench *b, const char *suite, const char *name, int64_t batch, const char *type,
                const char *who, const bench_times *times, double amount, bool bytes)
{
    double rate = times->median > 0 ? amount / times->median * (bytes ? 1e-3 : 1e-6) : 0;
    fprintf(b->csv, "%s,%s,%lld,%s,%s,%.3f,%.3f,%.1f,%.3f,%s,\n", suite, name, (long long)batch,
            type, who, times->median, times->min, times->spread, rate, bytes ? "GB/s" : "Top/s");
    fflush(b->csv);
    b->cases++;
}

void bench_failed(bench *b, const char *suite, const char *name, int64_t batch, const char *type,
                  const char *who)
{
    for (char *c = b->ctx.message; *c; c++)
        if (*c == ',' || *c == '"' || *c == '\n') *c = ';';
    fprintf(b->csv, "%s,%s,%lld,%s,%s,,,,,,failed: %s\n", suite, name, (long long)batch, type, who,
            b->ctx.message);
    fflush(b->csv);
    pare_ctx_clear(&b->ctx);
    b->failed++;
}

/* --- products --- */

/* ResNet-50's distinct convolutions: side and channels of the input, kernel, stride, filters. */
static const int convolutions[][5] = {
    {224, 3, 7, 2, 64},    {56, 64, 1, 1, 64},    {56, 64, 3, 1, 64},   {56, 64, 1, 1, 256},
    {56, 256, 1, 1, 64},   {56, 256, 1, 1, 128},  {56, 128, 3, 2, 128}, {56, 256, 1, 2, 512},
    {28, 128, 3, 1, 128},  {28, 128, 1, 1, 512},  {28, 512, 1, 1, 128}, {28, 512, 1, 1, 256},
    {28, 256, 3, 2, 256},  {28, 512, 1, 2, 1024}, {14, 256, 3, 1, 256}, {14, 256, 1, 1, 1024},
    {14, 1024, 1, 1, 256}, {14, 1024, 1, 1, 512}, {14, 512, 3, 2, 512}, {14, 1024, 1, 2, 2048},
    {7, 512, 3, 1, 512},   {7, 512, 1, 1, 2048},  {7, 2048, 1, 1, 512},
};
/* Products: rows a sample, depth, columns: BERT's projections and feed-forward, ResNet-50's head */
static const int matrices[][3] = {
    {128, 768, 768}, {128, 768, 3072}, {128, 3072, 768}, {1, 2048, 1000}};
static const int tiny_convolutions[][5] = {{6, 3, 3, 2, 8}, {4, 16, 1, 1, 16}};
static const int tiny_matrices[][3] = {{8, 32, 16}};

static void product_run(bench *b, const char *suite, const bench_product *p)
{
    static const pare_dtype types[] = {PARE_s8, PARE_f8e4m3, PARE_f16, PARE_f32};
    for (int t = 0; t < 4; t++) {
        if (!bench_may_start(b)) continue;
        bench_ours(b, suite, p, types[t]);
        if (!p->side || (p->kernel == 1 && p->stride == 1)) bench_blas(b, suite, p, types[t]);
    }
}

static void training_run(bench *b, const bench_product *p)
{
    for (int t = 0; t < 3; t++)
        if (bench_may_start(b)) bench_train(b, "train", p, t ? PARE_f32 : PARE_f16, t == 2);
}

enum { NAME = 64 };

static bench_product convolution_of(const int *c, int64_t batch, char name[NAME])
{
    const int64_t out = (c[0] + c[2] / 2 * 2 - c[2]) / c[3] + 1;
    snprintf(name, NAME, "conv%dx%d/%d %dx%d %d-%d", c[2], c[2], c[3], c[0], c[0], c[1], c[4]);
    return (bench_product){
        name, batch * out * out, (int64_t)c[1] * c[2] * c[2], c[4], c[0], c[1], c[2], c[3], batch,
        false};
}

static void convolution_run(bench *b, const char *suite, const int *c, int64_t batch)
{
    char name[NAME];
    bench_product p = convolution_of(c, batch, name);
    if (!strcmp(suite, "train"))
        training_run(b, &p);
    else
        product_run(b, suite, &p);
}

static void matrix_run(bench *b, const int *m, int64_t batch)
{
    char name[NAME];
    bench_product p = {name, batch * m[0], m[1], m[2], 0, 0, 0, 0, batch, false};
    snprintf(name, sizeof name, "matmul %d-%d", m[1], m[2]);
    product_run(b, "matmul", &p);
}

/* 2:4 on the kernels for it, against the same product dense on ours and on cuBLASLt: the same case,
   so that ratios.awk sets our best, whichever that is, beside the library's. */
static void sparse_product_run(bench *b, bench_product *p)
{
    static const pare_dtype types[] = {PARE_s8, PARE_f16};
    p->sparse = true;
    for (int t = 0; t < 2; t++) {
        if (!bench_may_start(b)) continue;
        bench_ours(b, "sparse", p, types[t]);
        if (!p->side || (p->kernel == 1 && p->stride == 1)) bench_blas(b, "sparse", p, types[t]);
    }
}

/* A square product, BERT's feed-forward, and convolutions of ResNet-50. */
static void sparse_run(bench *b)
{
    static const int forward[][3] = {{128, 768, 3072}, {128, 3072, 768}},
                     windows[][5] = {{28, 128, 3, 1, 128},
                                     {14, 256, 3, 1, 256},
                                     {14, 1024, 1, 1, 256}},
                     tiny_window[5] = {4, 16, 3, 1, 16};
    const int64_t side = b->tiny ? 64 : 4096, batch = b->tiny ? 2 : 32;
    const int products = b->tiny ? 0 : 2, convs = b->tiny ? 1 : 3;
    char name[NAME], window[NAME];
    bench_product p = {name, side, side, side, 0, 0, 0, 0, 1, true};
    snprintf(name, sizeof name, "2:4 matmul %lld", (long long)side);
    sparse_product_run(b, &p);
    for (int i = 0; i < products; i++) {
        const int *m = forward[i];
        snprintf(name, sizeof name, "2:4 matmul %d-%d", m[1], m[2]);
        p = (bench_product){name, batch * m[0], m[1], m[2], 0, 0, 0, 0, batch, true};
        sparse_product_run(b, &p);
    }
    for (int i = 0; i < convs; i++) {
        p = convolution_of(b->tiny ? tiny_window : windows[i], batch, window);
        snprintf(name, sizeof name, "2:4 %.59s", window);
        p.name = name;
        sparse_product_run(b, &p);
    }
}

static const int long_batches[] = {1, 8, 32, 128}, short_batches[] = {1, 32}, tiny_batches[] = {2};

static const int *batches(const bench *b, int *count)
{
    *count = b->tiny ? 1 : b->longer ? 4 : 2;
    return b->tiny ? tiny_batches : b->longer ? long_batches : short_batches;
}

static void convolutions_run(bench *b, const char *suite)
{
    int count;
    const int *batch = batches(b, &count);
    const int(*list)[5] = b->tiny ? tiny_convolutions : convolutions;
    int n = (int)(b->tiny ? sizeof tiny_convolutions : sizeof convolutions) / (int)sizeof *list;
    for (int i = 0; i < count; i++)
        for (int c = 0; c < n; c++) convolution_run(b, suite, list[c], batch[i]);
}

static void matrices_run(bench *b)
{
    int count;
    const int *batch = batches(b, &count);
    const int(*list)[3] = b->tiny ? tiny_matrices : matrices;
    int n = (int)(b->tiny ? sizeof tiny_matrices : sizeof matrices) / (int)sizeof *list;
    for (int i = 0; i < count; i++)
        for (int m = 0; m < n; m++) matrix_run(b, list[m], batch[i]);
}

/* --- the program --- */

static pare_status bench_open(bench *b)
{
    PARE_TRY(pare_device_open(&b->ctx, &b->device, "cuda"));
    b->stream = pare_cuda_stream(b->device->setup);
    BENCH_CUDA(b, cudaEventCreate(&b->from));
    BENCH_CUDA(b, cudaEventCreate(&b->to));
    BENCH_CUDA(b, cudaMalloc(&b->workspace, BENCH_WORKSPACE));
    return tiles_fill(b);
}

/* Without cuBLASLt the rest continues. */
static pare_blas *blas_open(bench *b, const char *folders)
{
#ifdef BENCH_STUB
    static pare_blas_api table;
    simt_blas_api(&table);
    pare_blas *blas = NULL;
    (void)folders;
    b->blas = &table;
#else
    pare_blas *blas;
    if (pare_blas_open(&b->ctx, &blas, folders)) {
        printf("SKIP cublaslt: %s\n", b->ctx.message);
        pare_ctx_clear(&b->ctx);
        return NULL;
    }
    b->blas = &blas->api;
#endif
    if (b->blas->lt_create(&b->lt)) {
        printf("SKIP cublaslt: cublasLtCreate failed\n");
        b->blas = NULL;
    }
    return blas;
}

static void info_print(const bench *b)
{
    struct cudaDeviceProp facts;
    int driver = 0, runtime = 0;
    if (cudaGetDeviceProperties(&facts, 0)) return;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    printf("device=%s\nsm=%d%d\nmultiprocessors=%d\nmemory_bytes=%zu\ncuda_driver=%d\n"
           "cuda_runtime=%d\n",
           facts.name, facts.major, facts.minor, facts.multiProcessorCount, facts.totalGlobalMem,
           driver, runtime);
    (void)b;
}

static void suites_run(bench *b, char **suites, int count)
{
    for (int i = 0; i < count; i++) {
        int before = b->failed, cases = b->cases, late = b->late;
        if (!strcmp(suites[i], "rounding")) {
            bench_rounding(b);
            continue;
        }
        if (!strcmp(suites[i], "conv") || !strcmp(suites[i], "train"))
            convolutions_run(b, suites[i]);
        if (!strcmp(suites[i], "matmul")) matrices_run(b);
        if (!strcmp(suites[i], "sparse")) sparse_run(b);
        if (!strcmp(suites[i], "memory")) bench_memory(b);
        const char *word = b->failed > before ? "FAIL" : b->cases > cases ? "PASS" : "SKIP";
        printf("%s %s: %d measured, %d failed, %d not started for want of time\n", word, suites[i],
               b->cases - cases, b->failed - before, b->late - late);
        fflush(stdout);
    }
}

static void bench_close(bench *b, pare_blas *blas)
{
    if (b->blas) (void)b->blas->lt_destroy(b->lt);
#ifdef BENCH_STUB
    (void)blas;
#else
    pare_blas_close(blas);
#endif
    (void)cudaFree(b->workspace);
    (void)cudaEventDestroy(b->from);
    (void)cudaEventDestroy(b->to);
    for (int t = 0; t < 4; t++) pare_free(b->tile[t]);
    pare_device_close(b->device);
}

static const char usage[] =
    "usage: gpu_bench [--csv FILE] [--tiny | --long] [--seconds S] [--libraries DIR:DIR...]\n"
    "                 [--info] rounding|conv|train|matmul|sparse|memory...\n";
static const struct option options[] = {{"csv", 1, NULL, 'c'},
                                        {"tiny", 0, NULL, 't'},
                                        {"long", 0, NULL, 'l'},
                                        {"seconds", 1, NULL, 's'},
                                        {"libraries", 1, NULL, 'b'},
                                        {"info", 0, NULL, 'i'},
                                        {0}};

int main(int argc, char **argv)
{
    static bench b;
    const char *folders = NULL, *csv = NULL;
    bool info = false;
    b.end = now() + 1e9;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'c')
            csv = optarg;
        else if (o == 't')
            b.tiny = true;
        else if (o == 'l')
            b.longer = true;
        else if (o == 's')
            b.end = now() + atof(optarg);
        else if (o == 'b')
            folders = optarg;
        else if (o == 'i')
            info = true;
        else
            return fputs(usage, stderr), 2;
    }
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error || !devices) {
        printf("SKIP: no GPU: %s\n", error ? cudaGetErrorString(error) : "none is visible");
        return 77;
    }
    pare_ctx_init(&b.ctx);
    b.csv = csv ? fopen(csv, "a") : stdout;
    pare_status st = b.csv ? bench_open(&b) : PARE_FAIL(&b.ctx, IO, "%s: cannot be written", csv);
    if (st) {
        printf("FAIL gpu_bench: %s\n", b.ctx.message);
        return 1;
    }
    if (info) info_print(&b);
    pare_blas *blas = optind < argc ? blas_open(&b, folders) : NULL;
    suites_run(&b, argv + optind, argc - optind);
    bench_close(&b, blas);
    if (csv && fclose(b.csv)) return 1;
    return b.failed > 0;
}
