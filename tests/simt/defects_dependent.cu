// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch with planted defects: three kernels in a graph, of which the second
// and the third may begin early; a kernel for those of defects_host.c.
#include "defects.h"
#include "runtime/cuda/device/dependent.cuh"

enum { N = 1000, BLOCK = 128 };
enum dependent_defect { D_RIGHT, D_READS, D_READS_FAR, D_WRITES, D_NEVER, D_LEAVES, D_COPY };

static __global__ void make_numbers(int *x, int *far)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < N) x[i] = i, far[i] = 2 * i;
}

// y = x + far + by, of which nothing ahead writes the last: it may be read before the wait.
template <int BAD>
static __global__ void add_numbers(int *y, const int *x, const int *far, const int *by)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int c = *by;
    int a = 0, b = 0;
    if (BAD == D_LEAVES && i >= N) return;
    if (BAD == D_READS && i < N) a = x[i];
    if (BAD == D_READS_FAR && i < N) b = far[i];
    if (BAD == D_WRITES && i < N) y[i] = 5;
    if (BAD != D_NEVER) simt_dependency_wait();
    if (i >= N) return;
    if (BAD != D_READS) a = x[i];
    if (BAD != D_READS_FAR) b = far[i];
    y[i] = a + b + c;
}

static __global__ void double_numbers(int *x)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    simt_dependency_wait();
    simt_dependents_launch();
    if (i < N) x[i] *= 2;
}

template <int BAD> static cudaError_t capture_kernels(int *x, int *far, int *y, cudaStream_t stream)
{
    const dim3 grid((N + BLOCK - 1) / BLOCK), block(BLOCK);
    SIMT_LAUNCH(make_numbers, grid, block, 0, stream, x, far);
    SIMT_LAUNCH_DEPENDENT(double_numbers, grid, block, 0, stream, x);
    if (BAD == D_COPY) cudaMemsetAsync(far, 0, 4, stream);
    SIMT_LAUNCH_DEPENDENT(add_numbers<BAD>, grid, block, 0, stream, y, x, far, y + N);
    return cudaGetLastError();
}

// more: ints of memory that nothing touches.
template <int BAD> static int run_kernels(int planted, size_t more = 0)
{
    static int y[N];
    int *room = nullptr, bad = 0;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaMalloc((void **)&room, sizeof(int) * (3 * N + 1 + more));
    cudaMemset(room, 0, sizeof(int) * (3 * N + 1));
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaDeviceSynchronize();
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    bad |= (planted ? capture_kernels<BAD> : capture_kernels<D_RIGHT>)(room, room + N, room + 2 * N,
                                                                       stream) != 0;
    bad |= cudaStreamEndCapture(stream, &graph) != 0;
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(y, room + 2 * N, sizeof y, cudaMemcpyDeviceToHost);
    for (int i = 0; i < N; i++) bad |= y[i] != 4 * i;
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    cudaFree(room);
    return bad;
}

// A stream that joins begins with a kernel behind another one's.
static cudaError_t capture_fork(int *x, int *y, bool early, cudaStream_t stream,
                                cudaStream_t beside)
{
    const dim3 grid((N + BLOCK - 1) / BLOCK), block(BLOCK);
    cudaEvent_t fork, join;
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
    SIMT_LAUNCH(make_numbers, grid, block, 0, stream, x, y);
    cudaEventRecord(fork, stream);
    cudaStreamWaitEvent(beside, fork, 0);
    if (early)
        SIMT_LAUNCH_DEPENDENT(double_numbers, grid, block, 0, beside, x);
    else
        SIMT_LAUNCH(double_numbers, grid, block, 0, beside, x);
    SIMT_LAUNCH_DEPENDENT(double_numbers, grid, block, 0, beside, x);
    SIMT_LAUNCH_DEPENDENT(double_numbers, grid, block, 0, stream, y);
    cudaEventRecord(join, beside);
    cudaStreamWaitEvent(stream, join, 0);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    return cudaGetLastError();
}

int defect_dependent_behind_another_stream(int planted)
{
    static int x[2 * N];
    int *room = nullptr, bad = 0;
    cudaStream_t stream, beside;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaMalloc((void **)&room, sizeof x);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    bad |= capture_fork(room, room + N, planted, stream, beside) != 0;
    bad |= cudaStreamEndCapture(stream, &graph) != 0;
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(x, room, sizeof x, cudaMemcpyDeviceToHost);
    for (int i = 0; i < N; i++) bad |= x[i] != 4 * i || x[N + i] != 4 * i;
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(beside);
    cudaStreamDestroy(stream);
    cudaFree(room);
    return bad;
}

template <bool EARLY>
static __global__ void subtract(float *z, const float *x, const float *by, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float a = 0, b = 0;
    if (i < n && by) b = by[i];
    if (EARLY && i < n) a = x[i];
    simt_dependency_wait();
    if (!EARLY && i < n) a = x[i];
    if (i < n) z[i] = a - b;
}

void defect_subtract(float *z, const float *x, const float *by, int n, int early,
                     cudaStream_t stream)
{
    const dim3 grid((unsigned)((n + BLOCK - 1) / BLOCK)), block(BLOCK);
    if (early)
        SIMT_LAUNCH_DEPENDENT(subtract<true>, grid, block, 0, stream, z, x, by, n);
    else
        SIMT_LAUNCH_DEPENDENT(subtract<false>, grid, block, 0, stream, z, x, by, n);
}

int defect_dependent_reads_early(int planted) { return run_kernels<D_READS>(planted); }
int defect_dependent_reads_early_in_much_memory(int planted)
{
    return run_kernels<D_READS>(planted, size_t(17) << 20);
}
int defect_dependent_reads_what_is_far_ahead(int planted)
{
    return run_kernels<D_READS_FAR>(planted);
}
int defect_dependent_writes_early(int planted) { return run_kernels<D_WRITES>(planted); }
int defect_dependent_never_waits(int planted) { return run_kernels<D_NEVER>(planted); }
int defect_dependent_leaves_before_wait(int planted) { return run_kernels<D_LEAVES>(planted); }
int defect_dependent_behind_no_kernel(int planted) { return run_kernels<D_COPY>(planted); }
