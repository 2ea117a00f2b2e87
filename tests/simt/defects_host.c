/* SPDX-License-Identifier: Apache-2.0 */
/* Host code with planted defects, and the program that runs one:
     simt_defects NAME correct|planted
   Exit 0: the result is right; 1: it is wrong, a call failed or something was not released. */
#include "defects.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "blas_table.h"
#include "emulation.h"

enum { N = 500 };

/* Device memory with n floats of a value. */
static float *make(int n, float value)
{
    float *p = NULL;
    if (cudaMalloc((void **)&p, (size_t)n * sizeof *p)) return NULL;
    defect_fill(p, n, value, NULL);
    cudaDeviceSynchronize();
    return p;
}

/* Waits, and counts values that are not `wanted`; frees. */
static int wrong(float *p, int n, float wanted)
{
    float host[N];
    int bad = 0;
    cudaDeviceSynchronize();
    cudaMemcpy(host, p, (size_t)n * sizeof *p, cudaMemcpyDeviceToHost);
    cudaFree(p);
    for (int i = 0; i < n; i++) bad += host[i] != wanted;
    return bad > 0;
}

static int said(cudaError_t error)
{
    if (error) fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}

int defect_host_reads_device_memory(int planted)
{
    float *p = make(N, 2), value = 0;
    if (planted)
        value = p[3];
    else
        cudaMemcpy(&value, p + 3, sizeof value, cudaMemcpyDeviceToHost);
    return wrong(p, N, 2) + (value != 2);
}

int defect_copy_past_allocation(int planted)
{
    float *p = make(N, 2), host[N + 1] = {0};
    int bad = said(cudaMemcpy(p, host, (size_t)(N + planted) * 4, cudaMemcpyHostToDevice));
    return bad + wrong(p, N, 0);
}

int defect_copy_in_wrong_direction(int planted)
{
    float *p = make(N, 2), host[N] = {0};
    int bad = said(cudaMemcpy(p, host, sizeof host,
                              planted ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice));
    return bad + wrong(p, N, 0);
}

int defect_result_read_too_early(int planted)
{
    float *p = make(N, 2), *host;
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaMallocHost((void **)&host, N * 4);
    defect_fill(p, N, 6, s);
    cudaMemcpyAsync(host, p, N * 4, cudaMemcpyDeviceToHost, s);
    if (!planted) cudaStreamSynchronize(s);
    int bad = host[N - 1] != 6;
    cudaStreamSynchronize(s);
    cudaFreeHost(host);
    cudaStreamDestroy(s);
    return bad + wrong(p, N, 6);
}

int defect_host_buffer_changed_too_early(int planted)
{
    float *p = make(N, 2), *host;
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaMallocHost((void **)&host, N * 4);
    for (int i = 0; i < N; i++) host[i] = 8;
    cudaMemcpyAsync(p, host, N * 4, cudaMemcpyHostToDevice, s);
    if (!planted) cudaStreamSynchronize(s);
    host[1] = 9; /* the next batch */
    cudaStreamSynchronize(s);
    cudaFreeHost(host);
    cudaStreamDestroy(s);
    return wrong(p, N, 8);
}

int defect_host_buffer_freed_too_early(int planted)
{
    float *p = make(N, 2), *host = malloc(N * 4);
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    for (int i = 0; i < N; i++) host[i] = 8;
    cudaMemcpyAsync(p, host, N * 4, cudaMemcpyHostToDevice, s);
    if (planted) free(host);
    cudaStreamSynchronize(s);
    if (!planted) free(host);
    cudaStreamDestroy(s);
    return wrong(p, N, 8);
}

int defect_event_wait_missing(int planted)
{
    float *x = make(N, 1), *y = make(N, 1);
    cudaStream_t one, two;
    cudaEvent_t ready;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    defect_fill(x, N, 10, one);
    cudaEventRecord(ready, one);
    if (!planted) cudaStreamWaitEvent(two, ready, 0);
    defect_add(y, x, N, two);
    cudaStreamSynchronize(two);
    cudaStreamDestroy(one);
    cudaStreamDestroy(two);
    cudaEventDestroy(ready);
    return wrong(y, N, 11) + wrong(x, N, 10);
}

/* x on device 0, its copy and y on device 1, and a stream there. */
typedef struct pair {
    float *x, *copy, *y;
    cudaStream_t first, second;
    cudaEvent_t copied;
} pair;

static void pair_open(pair *p)
{
    simt_set.devices = 2;
    p->x = make(N, 10);
    cudaStreamCreateWithFlags(&p->first, cudaStreamNonBlocking);
    cudaEventCreate(&p->copied);
    cudaSetDevice(1);
    p->copy = make(N, 1);
    p->y = make(N, 1);
    cudaStreamCreateWithFlags(&p->second, cudaStreamNonBlocking);
}

static void pair_copy(const pair *p)
{
    cudaMemcpyPeerAsync(p->copy, 1, p->x, 0, N * 4, p->first);
    cudaEventRecord(p->copied, p->first);
}

/* y: y + 10 */
static int pair_close(pair *p)
{
    cudaStreamSynchronize(p->second);
    cudaStreamDestroy(p->first);
    cudaStreamDestroy(p->second);
    cudaEventDestroy(p->copied);
    const int bad = wrong(p->y, N, 11) + wrong(p->copy, N, 10) + wrong(p->x, N, 10);
    cudaSetDevice(0);
    return bad;
}

int defect_memory_of_another_device(int planted)
{
    pair p;
    pair_open(&p);
    pair_copy(&p);
    cudaStreamWaitEvent(p.second, p.copied, 0);
    defect_add(p.y, planted ? p.x : p.copy, N, p.second);
    return pair_close(&p);
}

int defect_another_device_current(int planted)
{
    pair p;
    pair_open(&p);
    pair_copy(&p);
    cudaStreamWaitEvent(p.second, p.copied, 0);
    if (planted) cudaSetDevice(0);
    defect_add(p.y, p.copy, N, p.second);
    return pair_close(&p);
}

int defect_peer_copy_not_waited_for(int planted)
{
    pair p;
    pair_open(&p);
    pair_copy(&p);
    if (!planted) cudaStreamWaitEvent(p.second, p.copied, 0);
    defect_add(p.y, p.copy, N, p.second);
    return pair_close(&p);
}

int defect_allocation_in_capture(int planted)
{
    float *p = make(N, 2);
    void *extra = NULL;
    cudaStream_t s;
    cudaGraph_t graph = NULL;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    defect_fill(p, N, 3, s);
    int bad = planted ? said(cudaMalloc(&extra, 16)) : 0;
    bad += said(cudaStreamEndCapture(s, &graph));
    if (graph) cudaGraphDestroy(graph);
    cudaFree(extra);
    cudaStreamDestroy(s);
    return bad + wrong(p, N, 2);
}

int defect_capture_not_joined(int planted)
{
    float *p = make(N, 2);
    cudaStream_t one, two;
    cudaEvent_t fork, join;
    cudaGraph_t graph = NULL;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
    cudaEventCreate(&fork);
    cudaEventCreate(&join);
    cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal);
    cudaEventRecord(fork, one);
    cudaStreamWaitEvent(two, fork, 0);
    defect_fill(p, N, 3, two);
    cudaEventRecord(join, two);
    if (!planted) cudaStreamWaitEvent(one, join, 0);
    int bad = said(cudaStreamEndCapture(one, &graph));
    if (graph) cudaGraphDestroy(graph);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(one);
    cudaStreamDestroy(two);
    return bad + wrong(p, N, 2);
}

/* Two branches of a graph, each of which fills memory and adds it to its own result, 2. */
typedef struct branches {
    cudaStream_t one, two;
    cudaEvent_t fork, join;
    float *x[2], *y[2];
} branches;

static void branches_open(branches *b)
{
    cudaStreamCreateWithFlags(&b->one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b->two, cudaStreamNonBlocking);
    cudaEventCreate(&b->fork);
    cudaEventCreate(&b->join);
    for (int i = 0; i < 2; i++) b->x[i] = make(N, 0), b->y[i] = make(N, 2);
}

static int branches_record(const branches *b, int forks, float *second)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaStreamBeginCapture(b->one, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(b->fork, b->one);
    if (forks) cudaStreamWaitEvent(b->two, b->fork, 0);
    defect_fill(b->x[0], N, 3, b->one);
    defect_fill(second, N, 4, b->two);
    defect_add(b->y[0], b->x[0], N, b->one);
    defect_add(b->y[1], second, N, b->two);
    cudaEventRecord(b->join, b->two);
    int bad = said(cudaStreamWaitEvent(b->one, b->join, 0));
    bad += said(cudaStreamEndCapture(b->one, &graph));
    if (graph) bad += said(cudaGraphInstantiate(&exec, graph, 0));
    if (exec) bad += said(cudaGraphLaunch(exec, b->one));
    cudaStreamSynchronize(b->one);
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
    return bad;
}

static int branches_close(const branches *b)
{
    cudaEventDestroy(b->fork);
    cudaEventDestroy(b->join);
    cudaStreamDestroy(b->one);
    cudaStreamDestroy(b->two);
    cudaFree(b->x[0]);
    cudaFree(b->x[1]);
    return wrong(b->y[0], N, 5) + wrong(b->y[1], N, 6);
}

int defect_branch_not_in_capture(int planted)
{
    branches b;
    branches_open(&b);
    const int bad = branches_record(&b, !planted, b.x[1]);
    return bad + branches_close(&b);
}

int defect_branches_share_memory(int planted)
{
    branches b;
    branches_open(&b);
    const int bad = branches_record(&b, 1, b.x[!planted]);
    return bad + branches_close(&b);
}

int defect_pool_memory_after_free(int planted)
{
    float *y = make(N, 1), *x;
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaMallocAsync((void **)&x, N * 4, s);
    defect_fill(x, N, 4, s);
    if (planted) cudaFreeAsync(x, s);
    defect_add(y, x, N, s);
    if (!planted) cudaFreeAsync(x, s);
    cudaStreamSynchronize(s);
    cudaStreamDestroy(s);
    return wrong(y, N, 5);
}

/* The other stream does not know of the allocation, nor its own stream of the use. */
int defect_pool_memory_before_allocation(int planted)
{
    float *x;
    int bad;
    cudaStream_t one, two;
    cudaEvent_t ready;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
    cudaEventCreate(&ready);
    cudaMallocAsync((void **)&x, N * 4, one);
    cudaEventRecord(ready, one);
    if (!planted) cudaStreamWaitEvent(two, ready, 0);
    bad = said(cudaMemsetAsync(x, 0, N * 4, two));
    cudaStreamSynchronize(two);
    cudaFreeAsync(x, one);
    cudaStreamSynchronize(one);
    cudaEventDestroy(ready);
    cudaStreamDestroy(one);
    cudaStreamDestroy(two);
    return bad;
}

int defect_dynamic_shared_not_allowed(int planted)
{
    float *p = make(64, 2);
    defect_launch(p, 64, planted ? 60000 : 40000);
    return said(cudaGetLastError()) + wrong(p, 64, 3);
}

int defect_launch_error_not_looked_at(int planted)
{
    float *p = make(64, 2);
    defect_launch(p, planted ? 2048 : 64, 8192);
    return wrong(p, 64, 3);
}

/* d (16, 8) = a^T b of k s8 values each */
static int multiply_int8(int k, int epilogue)
{
    pare_blas_api api;
    void *lt, *desc, *a, *b, *d, *memory;
    const int transposed = 1;
    const float alpha = 1, beta = 0;
    simt_blas_api(&api);
    cudaMalloc(&memory, 4096);
    cudaMemset(memory, 0, 4096);
    api.lt_create(&lt);
    api.lt_desc_create(&desc, PARE_BLAS_COMPUTE_S32, PARE_BLAS_F32);
    api.lt_desc_set(desc, PARE_LT_DESC_TRANSA, &transposed, sizeof transposed);
    api.lt_desc_set(desc, PARE_LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    api.lt_desc_set(desc, PARE_LT_DESC_BIAS_POINTER, &memory, sizeof memory);
    api.lt_layout_create(&a, PARE_BLAS_S8, (uint64_t)k, 16, k);
    api.lt_layout_create(&b, PARE_BLAS_S8, (uint64_t)k, 8, k);
    api.lt_layout_create(&d, PARE_BLAS_S8, 16, 8, 16);
    int status = api.lt_matmul(lt, desc, &alpha, memory, a, memory, b, &beta, (char *)memory + 2048,
                               d, (char *)memory + 2048, d, NULL, NULL, 0, NULL);
    cudaDeviceSynchronize();
    api.lt_layout_destroy(a);
    api.lt_layout_destroy(b);
    api.lt_layout_destroy(d);
    api.lt_desc_destroy(desc);
    api.lt_destroy(lt);
    cudaFree(memory);
    return status != PARE_BLAS_SUCCESS;
}

int defect_int8_product_with_bias(int planted)
{
    return multiply_int8(32, planted ? PARE_LT_EPILOGUE_BIAS : PARE_LT_EPILOGUE_NONE);
}

int defect_int8_product_odd_depth(int planted)
{
    return multiply_int8(planted ? 30 : 32, PARE_LT_EPILOGUE_NONE);
}

/* A kernel is told that one is ahead of it, where a copy is. */
int defect_dependent_reads_a_copy_early(int planted)
{
    static float x[N];
    float *p = make(N, 2), *y = make(N, 0);
    cudaStream_t s;
    for (int i = 0; i < N; i++) x[i] = 7;
    simt_set.dependent = true;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaMemcpyAsync(p, x, sizeof x, cudaMemcpyHostToDevice, s);
    defect_subtract(y, p, NULL, N, planted, s);
    cudaStreamSynchronize(s);
    cudaStreamDestroy(s);
    return wrong(y, N, 7) + wrong(p, N, 7);
}

/* y: the product of two 8 x 8 matrices of twos, 32 */
static int capture_product(void *blas, const pare_blas_api *api, const float *x, float *y)
{
    enum { SIDE = 8 };
    const float one = 1, zero = 0;
    return api->blas_gemm(blas, 0, 0, SIDE, SIDE, SIDE, &one, x, PARE_BLAS_F32, SIDE, x,
                          PARE_BLAS_F32, SIDE, &zero, y, PARE_BLAS_F32, SIDE, PARE_BLAS_COMPUTE_F32,
                          -1);
}

int defect_dependent_reads_a_product_early(int planted)
{
    enum { COUNT = 8 * 8 };
    pare_blas_api api;
    void *blas;
    float *x = make(COUNT, 2), *y = make(COUNT, 5), *z = make(COUNT, 0), *room = make(COUNT, 0);
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    simt_blas_api(&api);
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    int bad = api.blas_create(&blas) || api.blas_set_stream(blas, s) ||
              api.blas_set_workspace(blas, room, COUNT * sizeof *room);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    bad += capture_product(blas, &api, x, y);
    defect_subtract(z, y, x, COUNT, planted, s);
    bad += said(cudaStreamEndCapture(s, &graph));
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, s);
    cudaStreamSynchronize(s);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    api.blas_destroy(blas);
    cudaStreamDestroy(s);
    cudaFree(room);
    return bad + wrong(z, COUNT, 30) + wrong(y, COUNT, 32) + wrong(x, COUNT, 2);
}

int defect_fork_after_first_call(int planted)
{
    int n = 0, status = 0;
    if (planted) cudaGetDeviceCount(&n);
    pid_t child = fork();
    if (!child) _exit(0);
    waitpid(child, &status, 0);
    return said(cudaGetDeviceCount(&n)) + status;
}

int defect_device_memory_leaks(int planted)
{
    float *p = make(N, 2), *more = make(N, 3);
    if (!planted) cudaFree(more);
    return wrong(p, N, 2);
}

static const struct {
    const char *name;
    int (*run)(int planted);
} all[] = {
#define X(name, schedules, plain, asan, check) {#name, defect_##name},
#include "defects.inc"
#undef X
};

int main(int argc, char **argv)
{
    char text[256];
    for (size_t i = 0; argc == 3 && i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, argv[1])) continue;
        int bad = all[i].run(!strcmp(argv[2], "planted"));
        if (bad) fprintf(stderr, "wrong result\n");
        if (simt_live(text, sizeof text)) fprintf(stderr, "not released: %s\n", text), bad = 1;
        return bad != 0;
    }
    fprintf(stderr, "usage: %s NAME correct|planted\n", argv[0]);
    return 2;
}
