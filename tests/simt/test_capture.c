/* SPDX-License-Identifier: Apache-2.0 */
/* What calls are refused while streams are captured, of which threads and devices, and what then
   becomes of the captures. */
#include "testing.h"
#include "kernels.h"

#include <pthread.h>

enum { N = 1000 };

static void captures_forbid_what_cannot_be_replayed(void **state)
{
    (void)state;
    cudaStream_t s, plain;
    cudaGraph_t graph;
    cudaEvent_t outside;
    void *p;
    float *x = device_copy(NULL, N * 4);
    CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreate(&plain));
    CUDA_OK(cudaEventCreate(&outside));
    CUDA_OK(cudaEventRecord(outside, plain));
    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaMalloc(&p, 4));
    CUDA_IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph));
    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    CUDA_IS(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(s));
    CUDA_IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph));
    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    CUDA_IS(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(s, outside, 0));
    CUDA_IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph));
    CUDA_OK(cudaStreamBeginCapture(plain, cudaStreamCaptureModeThreadLocal));
    CUDA_IS(cudaErrorStreamCaptureImplicit, simt_test_fill(x, N, 1, NULL));
    CUDA_IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(plain, &graph));
    CUDA_IS(cudaErrorStreamCaptureUnsupported,
            cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal));
    CUDA_IS(cudaErrorIllegalState, cudaStreamEndCapture(s, &graph));
    (void)cudaGetLastError();
    CUDA_OK(cudaEventDestroy(outside));
    CUDA_OK(cudaStreamDestroy(s));
    CUDA_OK(cudaStreamDestroy(plain));
    CUDA_OK(cudaFree(x));
}

/* The type of the one node that the next of a captured stream would run after; -1: there are
   `count` of them. */
static int type_ahead(cudaStream_t s, size_t count)
{
    enum cudaStreamCaptureStatus status;
    enum cudaGraphNodeType type;
    const cudaGraphNode_t *ahead;
    const cudaGraphEdgeData *edges;
    size_t found;
    CUDA_OK(cudaStreamGetCaptureInfo(s, &status, NULL, NULL, &ahead, &edges, &found));
    assert_int_equal(found, count);
    if (found != 1) return -1;
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    assert_int_equal(edges[0].type, cudaGraphDependencyTypeDefault);
    CUDA_OK(cudaGraphNodeGetType(ahead[0], &type));
    return (int)type;
}

static void nothing(void *data) { (void)data; }

/* A graph's edges, of which there are `count`, all of them with no data; room for more stays empty.
 */
static void edges_are_plain(cudaGraph_t graph, size_t count)
{
    enum { ROOM = 8 };
    cudaGraphNode_t from[ROOM], to[ROOM];
    cudaGraphEdgeData data[ROOM];
    size_t found = 0, room = ROOM;
    CUDA_OK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &found));
    assert_int_equal(found, count);
    assert_true(count < ROOM);
    CUDA_OK(cudaGraphGetEdges(graph, from, to, NULL, &room));
    assert_int_equal(room, count);
    assert_true(from[0] && to[0] && from[0] != to[0] && !from[count] && !to[count]);
    room = 1;
    CUDA_OK(cudaGraphGetEdges(graph, from, to, data, &room));
    assert_int_equal(room, 1);
    assert_int_equal(data[0].type, cudaGraphDependencyTypeDefault);
    CUDA_IS(cudaErrorInvalidValue, cudaGraphGetEdges(graph, from, NULL, NULL, &room));
    (void)cudaGetLastError();
}

static void captures_tell_what_comes_before(void **state)
{
    (void)state;
    cudaStream_t s, beside;
    cudaGraph_t graph;
    cudaEvent_t fork, join;
    float *x = device_copy(NULL, N * 4);
    CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    CUDA_OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CUDA_OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    assert_int_equal(type_ahead(s, 0), -1);
    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(type_ahead(s, 0), -1);
    CUDA_OK(simt_test_fill(x, N, 1, s));
    assert_int_equal(type_ahead(s, 1), cudaGraphNodeTypeKernel);
    CUDA_OK(cudaMemsetAsync(x, 0, 4, s));
    assert_int_equal(type_ahead(s, 1), cudaGraphNodeTypeMemset);
    CUDA_OK(cudaLaunchHostFunc(s, nothing, NULL));
    assert_int_equal(type_ahead(s, 1), cudaGraphNodeTypeHost);
    CUDA_OK(cudaMemcpyAsync(x, x + 8, 4, cudaMemcpyDeviceToDevice, s));
    assert_int_equal(type_ahead(s, 1), cudaGraphNodeTypeMemcpy);
    CUDA_OK(cudaEventRecord(fork, s));
    CUDA_OK(cudaStreamWaitEvent(beside, fork, 0));
    CUDA_OK(simt_test_fill(x, N / 2, 1, beside));
    CUDA_OK(simt_test_fill(x + N / 2, N / 2, 1, s));
    CUDA_OK(cudaEventRecord(join, beside));
    CUDA_OK(cudaStreamWaitEvent(s, join, 0));
    assert_int_equal(type_ahead(s, 2), -1);
    CUDA_OK(cudaStreamEndCapture(s, &graph));
    edges_are_plain(graph, 5);
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaEventDestroy(fork));
    CUDA_OK(cudaEventDestroy(join));
    CUDA_OK(cudaStreamDestroy(s));
    CUDA_OK(cudaStreamDestroy(beside));
    CUDA_OK(cudaFree(x));
}

static int synced_device;

static void *allocate(void *answer)
{
    void *p = NULL;
    *(cudaError_t *)answer = cudaMalloc(&p, 4);
    if (p) CUDA_OK(cudaFree(p));
    return NULL;
}

static void *synchronize(void *answer)
{
    CUDA_OK(cudaSetDevice(synced_device));
    *(cudaError_t *)answer = cudaDeviceSynchronize();
    return NULL;
}

/* What a call of another thread answers during a capture, and what the capture's end does. */
static void call_in_capture(enum cudaStreamCaptureMode mode, void *(*call)(void *),
                            cudaError_t answer, cudaError_t end)
{
    cudaStream_t s;
    cudaGraph_t graph;
    pthread_t thread;
    cudaError_t got = cudaErrorUnknown;
    CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamBeginCapture(s, mode));
    assert_int_equal(pthread_create(&thread, NULL, call, &got), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(got, answer);
    assert_int_equal(cudaStreamEndCapture(s, &graph), end);
    if (!end) CUDA_OK(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    CUDA_OK(cudaStreamDestroy(s));
}

/* Unsafe calls of other threads end global captures alone; to wait for a device ends those in its
   streams, of all modes. */
static void captures_are_of_a_thread_and_a_device(void **state)
{
    const cudaError_t refused = cudaErrorStreamCaptureUnsupported,
                      ended = cudaErrorStreamCaptureInvalidated;
    (void)state;
    call_in_capture(cudaStreamCaptureModeThreadLocal, allocate, cudaSuccess, cudaSuccess);
    call_in_capture(cudaStreamCaptureModeRelaxed, allocate, cudaSuccess, cudaSuccess);
    call_in_capture(cudaStreamCaptureModeGlobal, allocate, refused, ended);
    synced_device = 0;
    call_in_capture(cudaStreamCaptureModeThreadLocal, synchronize, refused, ended);
    call_in_capture(cudaStreamCaptureModeGlobal, synchronize, refused, ended);
    if (!simt_emulated()) return;
    simt_set.devices = 2;
    synced_device = 1;
    call_in_capture(cudaStreamCaptureModeThreadLocal, synchronize, cudaSuccess, cudaSuccess);
    call_in_capture(cudaStreamCaptureModeGlobal, synchronize, cudaSuccess, cudaSuccess);
    simt_set.devices = 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(captures_forbid_what_cannot_be_replayed),
        device_test(captures_tell_what_comes_before),
        device_test(captures_are_of_a_thread_and_a_device),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
