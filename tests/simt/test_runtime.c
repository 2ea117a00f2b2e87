/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of CUDA's runtime: what it does right, and what it refuses as the real one does. */
#include "testing.h"
#include "kernels.h"

enum { N = 1000 };

static void copies_are_checked_for_range_and_direction(void **state)
{
    (void)state;
    float host[N] = {1, 2, 3}, *d, back[N];
    CUDA_OK(cudaMalloc((void **)&d, sizeof host));
    CUDA_OK(cudaMemcpy(d, host, sizeof host, cudaMemcpyHostToDevice));
    CUDA_IS(cudaErrorInvalidValue, cudaMemcpy(d + 1, host, sizeof host, cudaMemcpyHostToDevice));
    CUDA_IS(cudaErrorInvalidValue, cudaMemcpy(back, d, sizeof back + 4, cudaMemcpyDeviceToHost));
    CUDA_IS(cudaErrorInvalidValue, cudaMemcpy(host, back, sizeof back, cudaMemcpyDeviceToHost));
    CUDA_IS(cudaErrorInvalidValue, cudaMemcpy(d, host, sizeof host, cudaMemcpyDeviceToDevice));
    CUDA_IS(cudaErrorInvalidValue, cudaMemset(d, 0, sizeof host + 1));
    CUDA_OK(cudaMemcpy(back, d, sizeof back, cudaMemcpyDefault));
    assert_memory_equal(back, host, sizeof host);
    CUDA_IS(cudaErrorInvalidValue, cudaGetLastError());
    CUDA_IS(cudaSuccess, cudaGetLastError());
    CUDA_OK(cudaMemcpy2D(back, 8, d, 4, 4, 3, cudaMemcpyDeviceToHost));
    assert_true(back[0] == 1 && back[2] == 2 && back[4] == 3);
    CUDA_IS(cudaErrorInvalidPitchValue, cudaMemcpy2D(back, 8, d, 4, 8, 3, cudaMemcpyDeviceToHost));
    CUDA_OK(cudaFree(d));
    CUDA_IS(cudaErrorInvalidValue, cudaFree(d));
    (void)cudaGetLastError();
}

static void memory_begins_as_garbage_and_has_a_limit(void **state)
{
    (void)state;
    unsigned char *d, back[64];
    size_t before, total, now;
    CUDA_OK(cudaMemGetInfo(&before, &total));
    CUDA_OK(cudaMalloc((void **)&d, sizeof back));
    CUDA_OK(cudaMemGetInfo(&now, &total));
    assert_int_equal(before - now, sizeof back);
    CUDA_OK(cudaMemcpy(back, d, sizeof back, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < sizeof back; i++) assert_int_equal(back[i], 0xff);
    void *all;
    CUDA_IS(cudaErrorMemoryAllocation, cudaMalloc(&all, total));
    CUDA_IS(cudaErrorMemoryAllocation, cudaGetLastError());
    CUDA_OK(cudaFree(d));
    CUDA_OK(cudaFree(NULL));
}

static void memory_is_shared_by_handles(void **state)
{
    (void)state;
    cudaIpcMemHandle_t handle, broken;
    const unsigned lazy = cudaIpcMemLazyEnablePeerAccess;
    int *d, value = 7, back = 0;
    void *opened, *again;
    CUDA_OK(cudaMalloc((void **)&d, 64));
    CUDA_OK(cudaMemcpy(d, &value, sizeof value, cudaMemcpyHostToDevice));
    CUDA_IS(cudaErrorInvalidValue, cudaIpcGetMemHandle(&handle, &value));
    CUDA_IS(cudaErrorInvalidValue, cudaIpcGetMemHandle(&handle, d + 1));
    CUDA_OK(cudaIpcGetMemHandle(&handle, d));
    CUDA_IS(cudaErrorInvalidValue, cudaIpcCloseMemHandle(d)); /* it is not open */
    CUDA_IS(cudaErrorInvalidValue, cudaIpcOpenMemHandle(&opened, handle, 0));
    memset(&broken, 9, sizeof broken);
    CUDA_IS(cudaErrorInvalidResourceHandle, cudaIpcOpenMemHandle(&opened, broken, lazy));
    CUDA_OK(cudaIpcOpenMemHandle(&opened, handle, lazy));
    CUDA_OK(cudaIpcOpenMemHandle(&again, handle, lazy));
    assert_ptr_equal(opened, again);
    CUDA_OK(cudaMemcpy(&back, opened, sizeof back, cudaMemcpyDeviceToHost));
    assert_int_equal(back, value);
    CUDA_OK(cudaIpcCloseMemHandle(opened));
    CUDA_OK(cudaIpcCloseMemHandle(again));
    CUDA_IS(cudaErrorInvalidValue, cudaIpcCloseMemHandle(again));
    CUDA_OK(cudaFree(d));
    CUDA_IS(cudaErrorMapBufferObjectFailed, cudaIpcOpenMemHandle(&opened, handle, lazy));
    (void)cudaGetLastError();
}

/* Both orders of two streams are made right by an event. */
static void streams_defer_and_events_order_them(void **state)
{
    (void)state;
    cudaStream_t one, two;
    cudaEvent_t ready, later;
    float *x, *y, *pinned, ms;
    CUDA_OK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    CUDA_OK(cudaEventCreate(&ready));
    CUDA_OK(cudaEventCreate(&later));
    CUDA_OK(cudaMalloc((void **)&x, N * 4));
    CUDA_OK(cudaMalloc((void **)&y, N * 4));
    CUDA_OK(cudaMallocHost((void **)&pinned, N * 4));
    CUDA_OK(simt_test_fill(x, N, 2, one));
    CUDA_OK(cudaEventRecord(ready, one));
    if (simt_set.streams == SIMT_LAZY) {
        CUDA_IS(cudaErrorNotReady, cudaEventElapsedTime(&ms, ready, ready));
        assert_int_equal(simt_launches() * 0, 0);
    }
    CUDA_OK(simt_test_fill(y, N, 1, two));
    CUDA_OK(cudaStreamWaitEvent(two, ready, 0));
    CUDA_OK(simt_test_axpy(y, x, N, 3, two));
    CUDA_OK(cudaEventRecord(later, two));
    CUDA_OK(cudaMemcpyAsync(pinned, y, N * 4, cudaMemcpyDeviceToHost, two));
    CUDA_OK(cudaStreamSynchronize(two));
    for (int i = 0; i < N; i++) assert_true(pinned[i] == 7);
    CUDA_OK(cudaEventSynchronize(later));
    CUDA_OK(cudaEventElapsedTime(&ms, ready, later));
    assert_true(ms > 0);
    CUDA_OK(cudaEventQuery(ready));
    CUDA_OK(cudaStreamQuery(one));
    CUDA_OK(cudaFreeHost(pinned));
    CUDA_OK(cudaFree(x));
    CUDA_OK(cudaFree(y));
    CUDA_OK(cudaEventDestroy(ready));
    CUDA_OK(cudaEventDestroy(later));
    CUDA_OK(cudaStreamDestroy(one));
    CUDA_OK(cudaStreamDestroy(two));
    CUDA_IS(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(one));
    CUDA_IS(cudaErrorInvalidResourceHandle, cudaEventRecord(ready, NULL));
    (void)cudaGetLastError();
}

/* x of stream one, as stream two sees it: where nothing orders them, before it is written. */
static float seen_by_another(bool waits)
{
    cudaStream_t one, two;
    cudaEvent_t ready;
    float *x, *pinned;
    CUDA_OK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    CUDA_OK(cudaEventCreate(&ready));
    CUDA_OK(cudaMalloc((void **)&x, N * 4));
    CUDA_OK(cudaMallocHost((void **)&pinned, N * 4));
    CUDA_OK(simt_test_fill(x, N, 1, one));
    CUDA_OK(cudaStreamSynchronize(one));
    CUDA_OK(simt_test_fill(x, N, 2, one));
    CUDA_OK(cudaEventRecord(ready, one));
    if (waits) CUDA_OK(cudaStreamWaitEvent(two, ready, 0));
    CUDA_OK(cudaMemcpyAsync(pinned, x, N * 4, cudaMemcpyDeviceToHost, two));
    CUDA_OK(cudaStreamSynchronize(one));
    CUDA_OK(cudaStreamSynchronize(two));
    const float seen = *pinned;
    CUDA_OK(cudaFreeHost(pinned));
    CUDA_OK(cudaFree(x));
    CUDA_OK(cudaEventDestroy(ready));
    CUDA_OK(cudaStreamDestroy(one));
    CUDA_OK(cudaStreamDestroy(two));
    return seen;
}

static void a_stream_that_does_not_wait_comes_first(void **state)
{
    const simt_streams before = simt_set.streams;
    (void)state;
    simt_set.streams = SIMT_OTHERS;
    assert_true(seen_by_another(false) == 1);
    assert_true(seen_by_another(true) == 2);
    simt_set.streams = before;
}

/* The default stream and blocking streams wait for each other. */
static void the_default_stream_orders_blocking_ones(void **state)
{
    (void)state;
    cudaStream_t s;
    float *x, *y, back[N];
    CUDA_OK(cudaStreamCreate(&s));
    CUDA_OK(cudaMalloc((void **)&x, N * 4));
    CUDA_OK(cudaMalloc((void **)&y, N * 4));
    CUDA_OK(simt_test_fill(x, N, 5, s));
    CUDA_OK(simt_test_fill(y, N, 0, NULL));
    CUDA_OK(simt_test_axpy(y, x, N, 2, NULL));
    CUDA_OK(simt_test_axpy(x, y, N, 1, s));
    CUDA_OK(cudaMemcpy(back, x, sizeof back, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) assert_true(back[i] == 15);
    CUDA_OK(cudaStreamDestroy(s));
    CUDA_OK(cudaFree(x));
    CUDA_OK(cudaFree(y));
}

static void host_function(void *counter)
{
    ++*(int *)counter;
    assert_int_equal(cudaStreamSynchronize(NULL), cudaErrorNotPermitted);
}

static void host_functions_run_in_order_and_call_nothing(void **state)
{
    (void)state;
    int counter = 0;
    CUDA_OK(cudaLaunchHostFunc(NULL, host_function, &counter));
    CUDA_OK(cudaLaunchHostFunc(NULL, host_function, &counter));
    CUDA_OK(cudaDeviceSynchronize());
    assert_int_equal(counter, 2);
    (void)cudaGetLastError();
}

/* y = 1 + 2 * x with x = start, as a graph of two streams. */
static cudaGraph_t capture_two_streams(cudaStream_t one, cudaStream_t two, float *x, float *y,
                                       float start)
{
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    CUDA_OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CUDA_OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CUDA_OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    CUDA_OK(cudaEventRecord(fork, one));
    CUDA_OK(cudaStreamWaitEvent(two, fork, 0));
    CUDA_OK(simt_test_fill(x, N, start, two));
    CUDA_OK(cudaEventRecord(join, two));
    CUDA_OK(simt_test_fill(y, N, 1, one));
    CUDA_OK(cudaStreamWaitEvent(one, join, 0));
    CUDA_OK(simt_test_axpy(y, x, N, 2, one));
    CUDA_OK(cudaStreamEndCapture(one, &graph));
    CUDA_OK(cudaEventDestroy(fork));
    CUDA_OK(cudaEventDestroy(join));
    return graph;
}

static void graphs_replay_and_are_updated(void **state)
{
    (void)state;
    cudaStream_t one, two;
    float *x, *y, back[N];
    cudaGraphExec_t run;
    cudaGraphExecUpdateResultInfo info;
    size_t nodes;
    CUDA_OK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    x = device_copy(NULL, N * 4);
    y = device_copy(NULL, N * 4);
    cudaGraph_t graph = capture_two_streams(one, two, x, y, 10);
    CUDA_OK(cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 3);
    CUDA_OK(cudaGraphInstantiate(&run, graph, 0));
    CUDA_OK(cudaMemcpy(back, y, sizeof back, cudaMemcpyDeviceToHost));
    assert_true(back[0] == 0); /* capture runs nothing */
    CUDA_OK(cudaGraphLaunch(run, one));
    CUDA_OK(cudaGraphLaunch(run, one));
    CUDA_OK(cudaStreamSynchronize(one));
    CUDA_OK(cudaMemcpy(back, y, sizeof back, cudaMemcpyDeviceToHost));
    assert_true(back[N - 1] == 21);
    cudaGraph_t other = capture_two_streams(one, two, x, y, 100);
    CUDA_OK(cudaGraphExecUpdate(run, other, &info));
    assert_int_equal(info.result, cudaGraphExecUpdateSuccess);
    CUDA_OK(cudaGraphLaunch(run, two));
    CUDA_OK(cudaStreamSynchronize(two));
    CUDA_OK(cudaMemcpy(back, y, sizeof back, cudaMemcpyDeviceToHost));
    assert_true(back[0] == 201);
    CUDA_OK(cudaGraphDestroy(other));
    CUDA_OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    CUDA_OK(simt_test_fill(x, N, 0, one));
    CUDA_OK(cudaStreamEndCapture(one, &other));
    CUDA_IS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(run, other, &info));
    assert_int_equal(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    CUDA_OK(cudaGraphDestroy(other));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaGraphExecDestroy(run));
    CUDA_OK(cudaStreamDestroy(one));
    CUDA_OK(cudaStreamDestroy(two));
    CUDA_OK(cudaFree(x));
    CUDA_OK(cudaFree(y));
    (void)cudaGetLastError();
}

static void pools_have_limits_and_stream_order(void **state)
{
    (void)state;
    cudaMemPool_t pool;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice, .id = 0},
                                     .maxSize = 3 * N * 4};
    cudaStream_t s;
    float *x, *y, *z, back[N];
    uint64_t used = 0, high = 0;
    CUDA_OK(cudaMemPoolCreate(&pool, &props));
    CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA_OK(cudaMallocFromPoolAsync((void **)&x, N * 4, pool, s));
    CUDA_OK(cudaMallocFromPoolAsync((void **)&y, N * 4, pool, s));
    CUDA_IS(cudaErrorMemoryAllocation, cudaMallocFromPoolAsync((void **)&z, 2 * N * 4, pool, s));
    assert_null(z);
    CUDA_IS(cudaErrorMemoryAllocation, cudaGetLastError()); /* else the next launch reports it */
    CUDA_OK(simt_test_fill(x, N, 4, s));
    CUDA_OK(simt_test_fill(y, N, 1, s));
    CUDA_OK(simt_test_axpy(y, x, N, 1, s));
    CUDA_OK(cudaFreeAsync(x, s));
    CUDA_IS(cudaErrorInvalidValue, cudaFreeAsync(x, s));
    CUDA_IS(cudaErrorInvalidValue, cudaFree(y));
    CUDA_OK(cudaMemcpyAsync(back, y, sizeof back, cudaMemcpyDeviceToHost, s));
    CUDA_OK(cudaFreeAsync(y, s));
    CUDA_OK(cudaStreamSynchronize(s));
    assert_true(back[7] == 5);
    CUDA_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CUDA_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
    assert_int_equal(used, 0);
    assert_int_equal(high, 2 * N * 4);
    CUDA_OK(cudaMemPoolDestroy(pool));
    CUDA_OK(cudaMallocAsync((void **)&x, 16, s));
    CUDA_OK(cudaFreeAsync(x, s));
    CUDA_OK(cudaStreamDestroy(s));
    (void)cudaGetLastError();
}

static void launches_have_limits(void **state)
{
    (void)state;
    int *y = device_copy(NULL, 4), back;
    CUDA_IS(cudaErrorInvalidConfiguration,
            simt_test_shape(y, (dim3){1, 1, 1}, (dim3){1025, 1, 1}, NULL));
    CUDA_IS(cudaErrorInvalidConfiguration,
            simt_test_shape(y, (dim3){1, 70000, 1}, (dim3){1, 1, 1}, NULL));
    CUDA_IS(cudaErrorInvalidConfiguration,
            simt_test_shape(y, (dim3){0, 1, 1}, (dim3){32, 1, 1}, NULL));
    CUDA_IS(cudaErrorInvalidConfiguration,
            simt_test_shape(y, (dim3){1, 1, 1}, (dim3){1, 1, 65}, NULL));
    CUDA_OK(simt_test_shape(y, (dim3){2, 3, 4}, (dim3){5, 3, 2}, NULL));
    CUDA_IS(cudaErrorInvalidValue, simt_test_wide(y, 20000, 0, NULL));
    CUDA_OK(cudaMemcpy(&back, y, 4, cudaMemcpyDeviceToHost));
    assert_int_equal(back, 24 * 30);
    CUDA_OK(simt_test_wide(y, 20000, 1, NULL));
    CUDA_IS(cudaErrorInvalidValue, simt_test_wide(y, 60000, 1, NULL));
    device_fetch(&back, y, 4);
    assert_int_equal(back, 19999);
    (void)cudaGetLastError();
}

static void the_last_block_may_read_the_others(void **state)
{
    (void)state;
    enum { BLOCKS = 5 };
    int x[N], sum, wanted = 0;
    for (int i = 0; i < N; i++) wanted += x[i] = i % 17;
    int *dx = device_copy(x, sizeof x), *parts = device_copy(NULL, BLOCKS * 4),
        *dsum = device_copy(NULL, 4);
    unsigned *counter = device_copy(NULL, 4);
    CUDA_OK(simt_test_last_block(dx, N, BLOCKS, parts, counter, dsum, NULL));
    device_fetch(&sum, dsum, 4);
    assert_int_equal(sum, wanted);
    CUDA_OK(cudaFree(dx));
    CUDA_OK(cudaFree(parts));
    CUDA_OK(cudaFree(counter));
}

static void calls_fail_on_demand(void **state)
{
    (void)state;
    void *p = (void *)1;
    float *x = device_copy(NULL, N * 4);
    simt_fail_at(2, cudaErrorLaunchFailure, false);
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_IS(cudaErrorLaunchFailure, cudaMemset(x, 0, 4));
    CUDA_OK(cudaMemset(x, 0, 4));
    (void)cudaGetLastError();
    simt_fail_at(1, cudaErrorMemoryAllocation, false);
    CUDA_IS(cudaErrorMemoryAllocation, cudaMalloc(&p, 4));
    CUDA_IS(cudaErrorMemoryAllocation, cudaGetLastError());
    simt_fail_at(1, cudaErrorIllegalAddress, true);
    CUDA_IS(cudaErrorIllegalAddress, simt_test_fill(x, N, 1, NULL));
    CUDA_IS(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    CUDA_IS(cudaErrorIllegalAddress, cudaFree(x)); /* it is released all the same */
    simt_fail_at(0, 0, false);
    (void)cudaGetLastError();
}

static void devices_can_be_absent_or_too_old(void **state)
{
    (void)state;
    int n, version;
    struct cudaDeviceProp props;
    CUDA_OK(cudaGetDeviceProperties(&props, 0));
    assert_int_equal(props.major, 9);
    CUDA_IS(cudaErrorInvalidDevice, cudaSetDevice(1));
    simt_settings kept = simt_set;
    simt_set.devices = 0;
    CUDA_IS(cudaErrorNoDevice, cudaGetDeviceCount(&n));
    assert_int_equal(n, 0);
    simt_set.devices = 1;
    simt_set.driver = 12040;
    CUDA_IS(cudaErrorInsufficientDriver, cudaGetDeviceCount(&n));
    CUDA_OK(cudaDriverGetVersion(&version));
    assert_int_equal(version, 12040);
    simt_set = kept;
    (void)cudaGetLastError();
}

/* --- several devices --- */

enum { DEVICES = 3 };

/* Pools, one on each device, with 4 * N bytes of each, and a stream and an event. */
typedef struct node {
    cudaMemPool_t pool;
    cudaStream_t stream;
    cudaEvent_t event;
    float *x;
} node;

static void nodes_open(node *n)
{
    simt_set.devices = DEVICES;
    for (int i = 0; i < DEVICES; i++) {
        struct cudaMemPoolProps props;
        memset(&props, 0, sizeof props);
        props.allocType = cudaMemAllocationTypePinned;
        props.location.type = cudaMemLocationTypeDevice;
        props.location.id = i;
        CUDA_OK(cudaSetDevice(i));
        CUDA_OK(cudaMemPoolCreate(&n[i].pool, &props));
        CUDA_OK(cudaStreamCreateWithFlags(&n[i].stream, cudaStreamNonBlocking));
        CUDA_OK(cudaEventCreate(&n[i].event));
        CUDA_OK(cudaMallocFromPoolAsync((void **)&n[i].x, N * 4, n[i].pool, n[i].stream));
        CUDA_OK(cudaStreamSynchronize(n[i].stream));
    }
}

static void nodes_close(node *n)
{
    for (int i = 0; i < DEVICES; i++) {
        CUDA_OK(cudaSetDevice(i));
        CUDA_OK(cudaFreeAsync(n[i].x, n[i].stream));
        CUDA_OK(cudaEventDestroy(n[i].event));
        CUDA_OK(cudaStreamDestroy(n[i].stream));
        CUDA_OK(cudaMemPoolDestroy(n[i].pool));
    }
    CUDA_OK(cudaSetDevice(0));
    simt_set.devices = 1;
    (void)cudaGetLastError();
}

/* Work of a device after work of another one, which an event makes it wait for. */
static void peer_copies_go_from_device_to_device(void **state)
{
    (void)state;
    node n[DEVICES];
    float back[N];
    nodes_open(n);
    CUDA_OK(cudaSetDevice(1));
    CUDA_OK(simt_test_fill(n[1].x, N, 3, n[1].stream));
    CUDA_OK(cudaMemcpyPeerAsync(n[2].x, 2, n[1].x, 1, N * 4, n[1].stream));
    CUDA_OK(cudaEventRecord(n[1].event, n[1].stream));
    CUDA_OK(cudaSetDevice(2));
    CUDA_OK(cudaStreamWaitEvent(n[2].stream, n[1].event, 0));
    CUDA_OK(simt_test_axpy(n[2].x, n[2].x, N, 1, n[2].stream));
    CUDA_OK(cudaMemcpyAsync(back, n[2].x, N * 4, cudaMemcpyDeviceToHost, n[2].stream));
    CUDA_OK(cudaStreamSynchronize(n[2].stream));
    for (int i = 0; i < N; i++) assert_true(back[i] == 6);
    CUDA_OK(cudaMemcpyPeerAsync(n[2].x, 2, n[2].x, 2, 0, n[2].stream));
    CUDA_IS(cudaErrorInvalidDevice, cudaMemcpyPeerAsync(n[2].x, 3, n[1].x, 1, 4, n[1].stream));
    CUDA_IS(cudaErrorInvalidValue, cudaMemcpyPeerAsync(n[2].x, 1, n[1].x, 2, 4, n[1].stream));
    CUDA_IS(cudaErrorInvalidValue,
            cudaMemcpyPeerAsync(n[2].x, 2, n[1].x, 1, N * 4 + 1, n[1].stream));
    CUDA_IS(cudaErrorInvalidResourceHandle,
            cudaMemcpyPeerAsync(n[2].x, 2, n[1].x, 1, 4, n[0].stream));
    CUDA_IS(cudaErrorInvalidValue,
            cudaMemcpyAsync(n[2].x, n[1].x, 4, cudaMemcpyDeviceToDevice, n[1].stream));
    nodes_close(n);
}

/* A copy may be put into a stream of another device than the current one, and an event of one is
   not marked in it. */
static void streams_take_work_of_their_device(void **state)
{
    (void)state;
    node n[DEVICES];
    float back[N], ms;
    nodes_open(n);
    CUDA_OK(cudaSetDevice(0));
    CUDA_IS(cudaErrorInvalidResourceHandle, simt_test_fill(n[1].x, N, 3, n[1].stream));
    CUDA_IS(cudaErrorInvalidResourceHandle, cudaMemsetAsync(n[1].x, 0, 4, n[1].stream));
    CUDA_OK(cudaMemcpyAsync(back, n[1].x, N * 4, cudaMemcpyDeviceToHost, n[1].stream));
    CUDA_IS(cudaErrorInvalidResourceHandle, cudaEventRecord(n[0].event, n[1].stream));
    CUDA_OK(cudaEventRecord(n[1].event, n[1].stream));
    CUDA_OK(cudaEventRecord(n[0].event, n[0].stream));
    CUDA_OK(cudaStreamSynchronize(n[0].stream));
    CUDA_OK(cudaStreamSynchronize(n[1].stream));
    CUDA_IS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, n[0].event, n[1].event));
    nodes_close(n);
}

static void pools_are_opened_to_peers(void **state)
{
    (void)state;
    node n[DEVICES];
    int can;
    struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = 2},
                                       .flags = cudaMemAccessFlagsProtReadWrite};
    nodes_open(n);
    CUDA_OK(cudaDeviceCanAccessPeer(&can, 1, 2));
    assert_int_equal(can, 1);
    CUDA_OK(cudaDeviceCanAccessPeer(&can, 2, 2));
    assert_int_equal(can, 0);
    CUDA_IS(cudaErrorInvalidDevice, cudaDeviceCanAccessPeer(&can, 1, DEVICES));
    CUDA_OK(cudaMemPoolSetAccess(n[1].pool, &access, 1));
    access.location.id = DEVICES;
    CUDA_IS(cudaErrorInvalidValue, cudaMemPoolSetAccess(n[1].pool, &access, 1));
    access.location.id = 2;
    simt_set.peers = false;
    CUDA_OK(cudaDeviceCanAccessPeer(&can, 1, 2));
    assert_int_equal(can, 0);
    CUDA_IS(cudaErrorInvalidDevice, cudaMemPoolSetAccess(n[1].pool, &access, 1));
    CUDA_OK(cudaMemcpyPeerAsync(n[2].x, 2, n[1].x, 1, 4, n[1].stream)); /* by way of the host */
    simt_set.peers = true;
    nodes_close(n);
}

/* Each device has as much as SIMT_MEMORY says. */
static void each_device_has_its_memory(void **state)
{
    (void)state;
    const size_t kept = simt_set.memory;
    void *one, *other, *more;
    simt_set.devices = 2;
    simt_set.memory = 1000;
    CUDA_OK(cudaMalloc(&one, 800));
    CUDA_IS(cudaErrorMemoryAllocation, cudaMalloc(&more, 800));
    CUDA_OK(cudaSetDevice(1));
    CUDA_OK(cudaMalloc(&other, 800));
    CUDA_OK(cudaFree(one));
    CUDA_IS(cudaErrorMemoryAllocation, cudaMalloc(&more, 800));
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaMalloc(&one, 800));
    CUDA_OK(cudaFree(one));
    CUDA_OK(cudaFree(other));
    simt_set.memory = kept;
    simt_set.devices = 1;
    (void)cudaGetLastError();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(copies_are_checked_for_range_and_direction),
        device_test(memory_begins_as_garbage_and_has_a_limit),
        device_test(memory_is_shared_by_handles),
        device_test(streams_defer_and_events_order_them),
        device_test(a_stream_that_does_not_wait_comes_first),
        device_test(the_default_stream_orders_blocking_ones),
        device_test(host_functions_run_in_order_and_call_nothing),
        device_test(graphs_replay_and_are_updated),
        device_test(pools_have_limits_and_stream_order),
        device_test(launches_have_limits),
        device_test(the_last_block_may_read_the_others),
        device_test(calls_fail_on_demand),
        device_test(devices_can_be_absent_or_too_old),
        device_test(peer_copies_go_from_device_to_device),
        device_test(streams_take_work_of_their_device),
        device_test(pools_are_opened_to_peers),
        device_test(each_device_has_its_memory),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
