/* SPDX-License-Identifier: Apache-2.0 */
/* How a run uses the device: what it calls, what it records, what it says about time. */
#include "formats/onnx.h"
#include "runtime/cuda/calib/calib.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/device/dependent.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/gemm/gemm.h"
#include "runtime/exec/exec.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <math.h>

typedef struct fixture {
    pare_ctx ctx;
    pare_device *device;
    pare_plan *plan;
} fixture;

static void check(fixture *f, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", f->ctx.message);
}

static void open_model(fixture *f, const pare_model *m, const pare_input_shape *shape)
{
    pare_plan_options options = {.threads = 1, .device = f->device};
    check(f, pare_plan_new(&f->ctx, &f->plan, m, shape, 1, &options));
}

static void open_zoo(fixture *f, const char *path)
{
    pare_model *m;
    pare_input_shape shape = {"input", {.rank = 4, .dim = {1, 1, 28, 28}}};
    pare_ctx_init(&f->ctx);
    check(f, pare_cuda_open(&f->ctx, &f->device, 0, 0));
    check(f, pare_onnx_read(&f->ctx, &m, path));
    open_model(f, m, &shape);
    pare_model_free(m);
}

static void close_all(fixture *f)
{
    pare_plan_free(f->plan);
    pare_device_close(f->device);
}

static pare_runner *runner_new(fixture *f)
{
    pare_runner *r;
    check(f, pare_runner_new(&f->ctx, &r, f->plan));
    pare_view x = pare_runner_input(r, 0);
    for (int64_t i = 0; i < pare_view_count(&x); i++)
        ((float *)x.data)[i] = (float)(i * 37 % 101) / 50 - 1;
    return r;
}

/* Calls of the runtime that a piece of work may not make while it runs. */
static uint64_t forbidden(void)
{
    static const char *const names[] = {"cudaMalloc",
                                        "cudaMallocAsync",
                                        "cudaMallocFromPoolAsync",
                                        "cudaMallocHost",
                                        "cudaHostAlloc",
                                        "cudaFree",
                                        "cudaFreeAsync",
                                        "cudaFreeHost",
                                        "cudaStreamSynchronize",
                                        "cudaDeviceSynchronize",
                                        "cudaEventSynchronize",
                                        "cudaEventCreate",
                                        "cudaStreamCreate",
                                        "cudaStreamBeginCapture",
                                        "cudaGraphInstantiate",
                                        "cudaMemcpy",
                                        "cudaMemset"};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) sum += simt_calls_of(names[i]);
    return sum;
}

/* From the third run on: one copy in, one graph, one copy out, and one wait by the one who wants
   the result. */
static void a_played_run_allocates_and_waits_for_nothing(void **state)
{
    (void)state;
    fixture f;
    open_zoo(&f, "datasets/zoo/cnn.onnx");
    pare_runner *r = runner_new(&f);
    check(&f, pare_runner_run(r));
    check(&f, pare_runner_run(r));
    uint64_t bad = forbidden(), launches = simt_calls_of("launch");
    uint64_t copies = simt_calls_of("cudaMemcpyAsync"), graphs = simt_calls_of("cudaGraphLaunch");
    uint64_t all = simt_calls(), choices = simt_calls_of("cudaSetDevice");
    check(&f, pare_runner_start(r));
    assert_int_equal(forbidden(), bad);
    assert_int_equal(simt_calls_of("launch"), launches);
    assert_int_equal(simt_calls_of("cudaMemcpyAsync"), copies + 2);
    assert_int_equal(simt_calls_of("cudaGraphLaunch"), graphs + 1);
    assert_int_equal(simt_calls() - all, 3 + simt_calls_of("cudaSetDevice") - choices);
    check(&f, pare_runner_wait(r));
    assert_int_equal(forbidden(), bad + 1);
    pare_runner_free(r);
    close_all(&f);
}

/* The graph is captured once, whatever number of runs follows. */
static void a_shape_is_recorded_once(void **state)
{
    (void)state;
    fixture f;
    open_zoo(&f, "datasets/zoo/mlp.onnx");
    pare_runner *r = runner_new(&f);
    uint64_t before = simt_calls_of("cudaGraphInstantiate");
    for (int i = 0; i < 5; i++) check(&f, pare_runner_run(r));
    assert_int_equal(simt_calls_of("cudaGraphInstantiate"), before + 1);
    pare_runner_free(r);
    close_all(&f);
}

enum { CNN_OUTPUTS = 10 };

/* Dependents among the kernels of a net's third run, which plays what the second has recorded, on
   sm_major with PARE_CUDA_PDL as wished (NULL: not set); y: what it computes. */
static uint64_t dependents_of(int major, const char *wish, float *y)
{
    fixture f;
    simt_set.major = major;
    if (wish) setenv("PARE_CUDA_PDL", wish, 1);
    open_zoo(&f, "datasets/zoo/cnn.onnx");
    pare_runner *r = runner_new(&f);
    for (int i = 0; i < 2; i++) check(&f, pare_runner_run(r));
    const uint64_t before = simt_dependents();
    check(&f, pare_runner_run(r));
    const pare_view out = pare_runner_output(r, 0);
    assert_int_equal(pare_view_count(&out), CNN_OUTPUTS);
    memcpy(y, out.data, CNN_OUTPUTS * sizeof *y);
    pare_runner_free(r);
    close_all(&f);
    unsetenv("PARE_CUDA_PDL");
    simt_set.major = 9;
    return simt_dependents() - before;
}

/* From compute capability 9.0 on, unless it is turned off, kernels of a recorded run may begin
   before those ahead of them have ended, and compute the same. */
static void recorded_kernels_may_begin_early(void **state)
{
    float y[CNN_OUTPUTS], other[CNN_OUTPUTS];
    (void)state;
    if (!simt_emulated()) skip();
    assert_true(dependents_of(9, NULL, y) > 2);
    assert_int_equal(dependents_of(9, "0", other), 0);
    assert_memory_equal(y, other, sizeof y);
    assert_int_equal(dependents_of(8, NULL, other), 0);
    assert_memory_equal(y, other, sizeof y);
    assert_true(dependents_of(9, "1", other) > 2);
}

/* May the next kernel begin early? `kernel` is only asked about. */
static bool may(const pare_stream *s)
{
    static const char kernel;
    return pare_cuda_is_dependent(&kernel, pare_cuda_stream(s));
}

static void open_stream(fixture *f, pare_stream **s)
{
    pare_ctx_init(&f->ctx);
    f->plan = NULL;
    check(f, pare_cuda_open(&f->ctx, &f->device, 0, 0));
    check(f, f->device->streams->open(&f->ctx, f->device, s));
}

/* Puts a kernel into a capture that is never launched. */
static void put_kernel(const pare_stream *s)
{
    const pare_pixels p = {.channels = 1, .inner = 1, .rows = 1, .columns = 1, .count = 1};
    CUDA_OK(pare_cuda_pixels_launch(NULL, NULL, &p, 1, pare_cuda_stream(s)));
}

static void only_a_streams_own_kernel_is_overlapped(void **state)
{
    (void)state;
    fixture f;
    pare_stream *s, *beside;
    pare_event *fork, *join;
    pare_captured_graph *graph;
    void *room;
    if (!simt_emulated()) skip();
    open_stream(&f, &s);
    const pare_stream_table *t = f.device->streams;
    check(&f, t->open(&f.ctx, f.device, &beside));
    check(&f, t->event_open(&f.ctx, f.device, &fork));
    check(&f, t->event_open(&f.ctx, f.device, &join));
    check(&f, f.device->backend->alloc(&f.ctx, f.device, &room, 4));
    assert_false(may(s)); /* is not captured */
    check(&f, t->capture_begin(&f.ctx, s));
    assert_false(may(s)); /* is the first */
    put_kernel(s);
    assert_true(may(s));
    check(&f, f.device->backend->fill(&f.ctx, s, room, 0, 4));
    assert_false(may(s));
    put_kernel(s);
    check(&f, t->event_mark(&f.ctx, s, fork));
    check(&f, t->event_wait(&f.ctx, beside, fork));
    assert_false(may(beside)); /* the other stream's kernel */
    assert_true(may(s));
    put_kernel(beside);
    assert_true(may(beside));
    check(&f, t->event_mark(&f.ctx, beside, join));
    check(&f, t->event_wait(&f.ctx, s, join));
    for (int i = 0; i < 2; i++) assert_false(may(s)); /* two kernels are ahead */
    put_kernel(s);
    assert_true(may(s));
    check(&f, t->capture_end(&f.ctx, s, &graph));
    t->drop(graph);
    f.device->backend->free(f.device, room);
    t->event_close(fork);
    t->event_close(join);
    t->close(beside);
    t->close(s);
    close_all(&f);
}

/* Puts a kernel that may begin early into a capture that is never launched. */
static void put_product(const pare_stream *s)
{
    const pare_cuda_gemm_args p = {
        .rows = 1, .columns = 1, .depth = 1, .weights = {.type = PARE_s8, .groups = 1}};
    CUDA_OK(pare_cuda_gemv_launch(&p, pare_cuda_stream(s)));
}

/* The edges of a captured row of kernels, all but the first of which may begin early: they leave
   the kernel ahead where it lets the next one begin, not at its end. */
static void captured_edges_are_programmatic(void **state)
{
    enum { KERNELS = 3, EDGES = KERNELS - 1 };
    (void)state;
    fixture f;
    pare_stream *s;
    cudaGraph_t graph;
    cudaGraphNode_t from[KERNELS], to[KERNELS];
    cudaGraphEdgeData data[KERNELS];
    size_t count = KERNELS;
    int major;
    open_stream(&f, &s);
    CUDA_OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    check(&f, f.device->streams->capture_begin(&f.ctx, s));
    for (int i = 0; i < KERNELS; i++) put_product(s);
    CUDA_OK(cudaStreamEndCapture(pare_cuda_stream(s), &graph));
    CUDA_OK(cudaGraphGetEdges(graph, from, to, data, &count));
    if (major >= 9) CUDA_IS(cudaErrorLossyQuery, cudaGraphGetEdges(graph, from, to, NULL, &count));
    CUDA_OK(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    f.device->streams->close(s);
    close_all(&f);
    assert_int_equal(count, EDGES);
    for (int i = 0; i < EDGES; i++) {
        assert_int_equal(data[i].type, major < 9 ? cudaGraphDependencyTypeDefault
                                                 : cudaGraphDependencyTypeProgrammatic);
        assert_int_equal(data[i].from_port, major < 9 ? cudaGraphKernelNodePortDefault
                                                      : cudaGraphKernelNodePortProgrammatic);
    }
}

/* Another stream that waits for a mark reads what the steps before it have made, in runs that are
   not recorded, that are, and that are played; recordings are cut after marked steps. */
static void another_stream_follows_marks(void **state)
{
    enum { RUNS = 4, CLASSES = 10 };
    (void)state;
    fixture f;
    open_zoo(&f, "datasets/zoo/mlp.onnx");
    const pare_stream_table *streams = f.device->streams;
    const int last = pare_plan_output_made(f.plan, 0);
    pare_step_mark mark[] = {{last, NULL}, {0, NULL}};
    pare_stream *other;
    float *seen;
    assert_int_equal(last, pare_plan_step_count(f.plan) - 1);
    for (int i = 0; i < 2; i++) check(&f, streams->event_open(&f.ctx, f.device, &mark[i].event));
    check(&f, streams->open(&f.ctx, f.device, &other));
    check(&f, streams->pin(&f.ctx, f.device, (void **)&seen, CLASSES * sizeof *seen));
    pare_runner *r = runner_new(&f);
    pare_runner_mark(r, mark, 2);
    const uint64_t made = simt_calls_of("cudaGraphInstantiate");
    for (int run = 0; run < RUNS; run++) {
        memset(seen, 0xff, CLASSES * sizeof *seen);
        const uint64_t marks = simt_calls_of("cudaEventRecord");
        check(&f, pare_runner_start(r));
        assert_int_equal(simt_calls_of("cudaEventRecord"), marks + 2);
        check(&f, streams->event_wait(&f.ctx, other, mark[0].event));
        check(&f, f.device->backend->download(&f.ctx, other, seen, pare_runner_output_there(r, 0),
                                              CLASSES * sizeof *seen));
        check(&f, f.device->backend->sync(&f.ctx, other));
        check(&f, pare_runner_wait(r));
        assert_memory_equal(seen, pare_runner_output(r, 0).data, CLASSES * sizeof *seen);
    }
    /* the first step is launched as it is, the others are one graph */
    assert_int_equal(simt_calls_of("cudaGraphInstantiate"), made + (last > 1));
    pare_runner_free(r);
    for (int i = 0; i < 2; i++) streams->event_close(mark[i].event);
    streams->unpin(f.device, seen);
    streams->close(other);
    close_all(&f);
}

/* Phases are timed by four events around the copies and the graph, which stays in use. */
static void phases_are_timed_around_the_graph(void **state)
{
    (void)state;
    fixture f;
    pare_phase_times t = {-1, -1, -1};
    open_zoo(&f, "datasets/zoo/mlp.onnx");
    pare_runner *r = runner_new(&f);
    for (int i = 0; i < 3; i++) check(&f, pare_runner_run(r));
    const uint64_t marks = simt_calls_of("cudaEventRecord"),
                   graphs = simt_calls_of("cudaGraphLaunch");
    pare_runner_time_phases(r, &t);
    check(&f, pare_runner_run(r));
    assert_int_equal(simt_calls_of("cudaEventRecord"), marks + 4);
    assert_int_equal(simt_calls_of("cudaGraphLaunch"), graphs + 1);
    assert_true(t.copy_in >= 0 && t.compute >= 0 && t.copy_out >= 0);
    pare_runner_time_phases(r, NULL);
    check(&f, pare_runner_run(r));
    assert_int_equal(simt_calls_of("cudaEventRecord"), marks + 4);
    pare_runner_free(r);
    close_all(&f);
}

/* Two runners of one plan, both in progress at once, give what one gives. */
static void two_runners_share_a_plan(void **state)
{
    (void)state;
    fixture f;
    float alone[10];
    open_zoo(&f, "datasets/zoo/mlp.onnx");
    pare_runner *a = runner_new(&f), *b = runner_new(&f);
    check(&f, pare_runner_run(a));
    memcpy(alone, pare_runner_output(a, 0).data, sizeof alone);
    for (int i = 0; i < 3; i++) {
        memset(pare_runner_output(b, 0).data, 0, sizeof alone);
        check(&f, pare_runner_start(a));
        check(&f, pare_runner_start(b));
        check(&f, pare_runner_wait(b));
        check(&f, pare_runner_wait(a));
        assert_memory_equal(pare_runner_output(a, 0).data, alone, sizeof alone);
        assert_memory_equal(pare_runner_output(b, 0).data, alone, sizeof alone);
    }
    pare_runner_free(a);
    pare_runner_free(b);
    close_all(&f);
}

/* A step in f64, which no kernel of the device takes, between two stretches that are recorded. */
static void steps_on_the_host_part_recordings(void **state)
{
    (void)state;
    static const float x[6] = {-4, 9, 0.25f, -1, 2, -0.5f};
    float y[6];
    graph_case g;
    fixture f;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 3});
    graph_node(&g, "Neg", "x", "a");
    graph_node(&g, "Abs", "a", "b");
    pare_node *up = graph_node(&g, "Cast", "b", "c");
    graph_node(&g, "Sqrt", "c", "d");
    pare_node *down = graph_node(&g, "Cast", "d", "e");
    graph_node(&g, "Neg", "e", "f");
    graph_node(&g, "Exp", "f", "y");
    graph_output(&g, "y");
    pare_attr to_f64 = {.name = "to", .kind = PARE_ATTR_INT, .i = 11};
    pare_attr to_f32 = {.name = "to", .kind = PARE_ATTR_INT, .i = 1};
    assert_int_equal(pare_node_set_attr(up, &to_f64), PARE_OK);
    assert_int_equal(pare_node_set_attr(down, &to_f32), PARE_OK);
    pare_ctx_init(&f.ctx);
    check(&f, pare_cuda_open(&f.ctx, &f.device, 0, 0));
    pare_input_shape shape = {"x", {.rank = 2, .dim = {2, 3}}};
    open_model(&f, g.model, &shape);
    pare_runner *r;
    check(&f, pare_runner_new(&f.ctx, &r, f.plan));
    for (int run = 0; run < 4; run++) {
        uint64_t graphs = simt_calls_of("cudaGraphLaunch");
        for (int i = 0; i < 6; i++) ((float *)pare_runner_input(r, 0).data)[i] = x[i] + (float)run;
        check(&f, pare_runner_run(r));
        assert_int_equal(simt_calls_of("cudaGraphLaunch") - graphs, run ? 2 : 0);
        memcpy(y, pare_runner_output(r, 0).data, sizeof y);
        for (int i = 0; i < 6; i++)
            assert_float_equal(y[i], expf(-sqrtf(fabsf(x[i] + (float)run))), 1e-6f);
    }
    pare_runner_free(r);
    close_all(&f);
    graph_close(&g);
}

/* Dropout at inference: its input, and a mask of ones. */
static void dropout_drops_nothing(void **state)
{
    (void)state;
    graph_case g;
    fixture f;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 1, (int64_t[]){5});
    graph_node(&g, "Neg", "x", "a");
    graph_node(&g, "Dropout", "a", "y mask");
    graph_output(&g, "y");
    graph_output(&g, "mask");
    pare_ctx_init(&f.ctx);
    check(&f, pare_cuda_open(&f.ctx, &f.device, 0, 0));
    pare_input_shape shape = {"x", {.rank = 1, .dim = {5}}};
    open_model(&f, g.model, &shape);
    pare_runner *r = runner_new(&f);
    check(&f, pare_runner_run(r));
    const float *x = pare_runner_input(r, 0).data, *y = pare_runner_output(r, 0).data;
    for (int i = 0; i < 5; i++) assert_float_equal(y[i], -x[i], 0);
    assert_memory_equal(pare_runner_output(r, 1).data, "\1\1\1\1\1", 5);
    pare_runner_free(r);
    close_all(&f);
    graph_close(&g);
}

/* Spans: inputs before steps before outputs, none within another, all of them named. */
static void a_timeline_shows_copies_and_steps(void **state)
{
    (void)state;
    fixture f;
    pare_timeline *t;
    open_zoo(&f, "datasets/zoo/mlp.onnx");
    pare_runner *r = runner_new(&f);
    int steps = pare_plan_step_count(f.plan);
    check(&f, pare_timeline_new(&f.ctx, &t, f.device));
    pare_runner_trace(r, t, 3);
    check(&f, pare_runner_run(r));
    pare_runner_trace(r, NULL, 0);
    check(&f, pare_runner_run(r));
    check(&f, pare_timeline_read(t));
    assert_int_equal(pare_timeline_count(t), steps + 2);
    double at = 0;
    for (int i = 0; i < steps + 2; i++) {
        const pare_span *s = pare_timeline_span(t, i);
        assert_int_equal(s->track, 3);
        assert_int_equal(s->lane, i == 0       ? PARE_LANE_IN
                                  : i <= steps ? PARE_LANE_COMPUTE
                                               : PARE_LANE_OUT);
        assert_int_equal(s->step, i == 0 || i > steps ? -1 : i - 1);
        assert_true(s->start >= at && s->seconds > 0 && s->bytes > 0 && s->name[0]);
        at = s->start + s->seconds;
    }
    assert_int_equal(pare_timeline_span(t, 0)->bytes, 28 * 28 * 4);
    assert_string_equal(pare_timeline_span(t, 0)->name, "input");
    assert_int_equal(pare_timeline_span(t, steps + 1)->bytes, 10 * 4);
    pare_timeline_free(t);
    pare_runner_free(r);
    close_all(&f);
}

/* Work fails while it is waited for: the message says between which nodes, and how to find the one.
 */
static void a_lost_device_is_told_with_the_nodes_of_the_run(void **state)
{
    (void)state;
    fixture f;
    open_zoo(&f, "datasets/zoo/mlp.onnx");
    pare_runner *r = runner_new(&f);
    check(&f, pare_runner_start(r));
    simt_fail_at(1, cudaErrorLaunchFailure, true);
    assert_int_equal(pare_runner_wait(r), PARE_DEVICE);
    simt_fail_at(0, 0, false);
    const char *const words[] = {"mlp.onnx: node '/2/Relu' (FusedMatMul)",
                                 " to node '/5/Gemm' (Gemm)", "tensor 'logits'",
                                 "CUDA_LAUNCH_BLOCKING=1", "cudaErrorLaunchFailure"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(f.ctx.message, words[i]))
            fail_msg("'%s' is not in: %s", words[i], f.ctx.message);
    pare_ctx_clear(&f.ctx);
    pare_runner_free(r);
    close_all(&f);
}

/* Data that are on the device are neither brought up nor down, by the recorded graph as well. */
static void what_is_there_is_left(void **state)
{
    (void)state;
    fixture f;
    void *there;
    float right[10], logits[10];
    open_zoo(&f, "datasets/zoo/mlp.onnx");
    pare_runner *r = runner_new(&f);
    for (int i = 0; i < 3; i++) check(&f, pare_runner_run(r));
    pare_view x = pare_runner_input(r, 0), y = pare_runner_output(r, 0);
    memcpy(right, y.data, sizeof right);
    const size_t bytes = (size_t)pare_view_count(&x) * sizeof(float);
    check(&f, pare_device_copy(&f.ctx, f.device, &there, x.data, bytes));
    pare_stream *stream = pare_runner_stream(r);
    pare_runner_leave_input(r, 0, true);
    pare_runner_leave_output(r, 0, true);
    memset(x.data, 0, bytes);
    memset(y.data, 0, sizeof right);
    const uint64_t copies = simt_calls_of("cudaMemcpyAsync");
    check(&f, f.device->sharing->copy(&f.ctx, stream, pare_runner_input_there(r, 0), there, bytes));
    check(&f, pare_runner_run(r));
    if (simt_emulated()) assert_int_equal(simt_calls_of("cudaMemcpyAsync"), copies + 1);
    assert_true(((float *)y.data)[0] == 0);
    const pare_backend *b = f.device->backend;
    check(&f, b->download(&f.ctx, stream, logits, pare_runner_output_there(r, 0), sizeof logits));
    check(&f, b->sync(&f.ctx, stream));
    assert_memory_equal(logits, right, sizeof right);
    pare_runner_leave_input(r, 0, false);
    pare_runner_leave_output(r, 0, false);
    check(&f, pare_runner_run(r)); /* of zeros */
    assert_memory_not_equal(y.data, right, sizeof right);
    b->free(f.device, there);
    pare_runner_free(r);
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(a_played_run_allocates_and_waits_for_nothing),
        device_test(a_shape_is_recorded_once),
        device_test(recorded_kernels_may_begin_early),
        device_test(only_a_streams_own_kernel_is_overlapped),
        device_test(captured_edges_are_programmatic),
        device_test(another_stream_follows_marks),
        device_test(phases_are_timed_around_the_graph),
        device_test(two_runners_share_a_plan),
        device_test(steps_on_the_host_part_recordings),
        device_test(dropout_drops_nothing),
        device_test(a_timeline_shows_copies_and_steps),
        device_test(what_is_there_is_left),
        device_test(a_lost_device_is_told_with_the_nodes_of_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
