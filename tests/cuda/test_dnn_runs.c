/* SPDX-License-Identifier: Apache-2.0 */
/* Nets with convolutions on cuDNN, its stub on the emulated device: runs that are recorded, several
   runners of one plan, calls that fail, and what a device keeps of the library's answers. */
#include "runtime/cuda/conv/dnn_kept.h"
#include "runtime/cuda/cuda.h"
#include "runtime/exec/exec.h"
#include "tests/cpu/kernel_case.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* --- plans and runs --- */

static void spread(pare_view *v, uint32_t seed)
{
    for (int64_t i = 0; i < pare_view_count(v); i++) {
        const int step = (int)(test_random(&seed) % 17) - 8;
        if (v->dtype == PARE_f32)
            ((float *)v->data)[i] = (float)step / 4;
        else
            ((int8_t *)v->data)[i] = (int8_t)step;
    }
}

/* Two convolutions over three axes, so that a run is recorded. */
static void net_make(graph_case *g)
{
    const int64_t x[5] = {2, 4, 4, 3, 5}, w[5] = {4, 4, 3, 3, 3}, pads[6] = {1, 1, 1, 1, 1, 1};
    static const char *const in[] = {"x w", "h w"}, *const out[] = {"h", "y"};
    static float values[4 * 4 * 27];
    for (int i = 0; i < 4 * 4 * 27; i++) values[i] = (float)(i * 7 % 13 - 6) / 8;
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 5, x);
    graph_floats(g, "w", 5, w, values);
    for (int i = 0; i < 2; i++) {
        pare_node *n = graph_node(g, "Conv", in[i], out[i]);
        assert_int_equal(pare_node_set_ints(n, "pads", pads, 6), PARE_OK);
    }
    graph_output(g, "y");
}

/* What each run of a plan gives; steps: of them so many are cuDNN's. */
static void net_run(graph_case *g, pare_device *device, bool deterministic, int steps, float *y,
                    int64_t count)
{
    pare_plan *plan;
    pare_runner *runner;
    const pare_plan_options options = {
        .threads = 1, .deterministic = deterministic, .reference = !device, .device = device};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    int seen = 0;
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info step;
        pare_plan_step(plan, i, &step);
        seen += !strncmp(step.kernel, "cudnn_conv_", 11);
    }
    if (device && simt_emulated()) assert_int_equal(seen, steps);
    for (int run = 0; run < 3; run++) {
        pare_view x = pare_runner_input(runner, 0);
        spread(&x, (uint32_t)run % 2 + 1);
        if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
        pare_view v = pare_runner_output(runner, 0);
        assert_int_equal(pare_view_count(&v), count);
        if (run == 0) memcpy(y, v.data, (size_t)count * sizeof *y);
        if (run == 2) assert_memory_equal(y, v.data, (size_t)count * sizeof *y);
    }
    pare_runner_free(runner);
    pare_plan_free(plan);
}

enum { NET = 2 * 4 * 4 * 3 * 5 };

static void recorded_runs_are_the_same(void **state)
{
    (void)state;
    graph_case g;
    pare_device *device;
    float want[NET], got[NET];
    net_make(&g);
    net_run(&g, NULL, false, 0, want, NET);
    assert_int_equal(pare_cuda_open(&g.ctx, &device, 0, 0), PARE_OK);
    net_run(&g, device, false, 2, got, NET);
    for (int i = 0; i < NET; i++) assert_float_equal(want[i], got[i], 1e-3);
    net_run(&g, device, true, 0, got, NET); /* deterministic: our own */
    pare_device_close(device);
    graph_close(&g);
}

/* Weights that are computed. */
static void training_may_use_it_where_that_is_allowed(void **state)
{
    (void)state;
    graph_case g;
    pare_device *device;
    const int64_t x[4] = {2, 3, 6, 6}, w[4] = {4, 3, 3, 3};
    float want[2 * 4 * 4 * 4], got[2 * 4 * 4 * 4];
    graph_open(&g, 21);
    graph_input(&g, "x", PARE_f32, 4, x);
    graph_input(&g, "w", PARE_f32, 4, w);
    graph_node(&g, "Conv", "x w", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_cuda_open(&g.ctx, &device, 0, 0), PARE_OK);
    net_run(&g, device, true, 0, want, 128);
    pare_cuda_allow_dnn(device);
    net_run(&g, device, true, 1, got, 128);
    for (int i = 0; i < 128; i++) assert_float_equal(want[i], got[i], 1e-4);
    pare_device_close(device);
    graph_close(&g);
}

/* Sums of floats do not depend on whether an engine can be compiled. */
static void training_compiles_nothing_where_runs_are_to_be_repeated(void **state)
{
    (void)state;
    graph_case g;
    pare_device *device;
    pare_dnn_conv conv;
    const pare_shape x = {.rank = 4, .dim = {2, 3, 6, 6}}, w = {.rank = 4, .dim = {4, 3, 3, 3}},
                     y = {.rank = 4, .dim = {2, 4, 4, 4}};
    pare_view in[2] = {0}, out = {0};
    graph_open(&g, 21);
    graph_input(&g, "x", PARE_f16, 4, x.dim);
    graph_input(&g, "w", PARE_f16, 4, w.dim);
    pare_node *n = graph_node(&g, "Conv", "x w", "y");
    assert_int_equal(pare_cuda_open(&g.ctx, &device, 0, 0), PARE_OK);
    pare_cuda_allow_dnn(device);
    pare_view_set(&in[0], PARE_f16, &x, false);
    pare_view_set(&in[1], PARE_f16, &w, false);
    pare_view_set(&out, PARE_f16, &y, false);
    pare_prep prep = {.ctx = &g.ctx,
                      .node = n,
                      .in = in,
                      .out = &out,
                      .in_count = 2,
                      .out_count = 1,
                      .threads = 1,
                      .device = device};
    assert_true(pare_dnn_conv_read(&prep, &conv));
    assert_true(conv.compiles);
    prep.deterministic = true;
    assert_true(pare_dnn_conv_read(&prep, &conv));
    assert_false(conv.compiles);
    pare_device_close(device);
    graph_close(&g);
}

/* --- several runners --- */

static void input_spread(pare_runner *runner, uint32_t seed)
{
    pare_view x = pare_runner_input(runner, 0);
    spread(&x, seed);
}

/* cuDNN's plans are for one thread at a time: each runner has its own, and leaves it to the next
   one. Runs make no descriptors. */
static void each_runner_has_a_plan_of_its_own(void **state)
{
    (void)state;
    enum { RUNNERS = 3 };
    graph_case g;
    pare_device *device;
    pare_plan *plan;
    pare_runner *runner[RUNNERS];
    float want[NET];
    char before[256] = "", after[256] = "";
    net_make(&g);
    assert_int_equal(pare_cuda_open(&g.ctx, &device, 0, 0), PARE_OK);
    const pare_plan_options options = {.threads = 1, .device = device};
    assert_int_equal(pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options), PARE_OK);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < RUNNERS; i++)
            assert_int_equal(pare_runner_new(&g.ctx, &runner[i], plan), PARE_OK);
        const uint64_t made = simt_calls_of("cudnnBackendCreateDescriptor"),
                       ran = simt_calls_of("cudnnBackendExecute"),
                       moved = simt_calls_of("cuDNN plans that moved");
        for (int run = 0; run < 3 * RUNNERS; run++) {
            pare_runner *r = runner[run % RUNNERS];
            input_spread(r, 1);
            if (pare_runner_run(r) != PARE_OK) fail_msg("%s", g.ctx.message);
            const void *y = pare_runner_output(r, 0).data;
            if (!run && !again) memcpy(want, y, sizeof want);
            assert_memory_equal(want, y, sizeof want);
        }
        assert_int_equal(simt_calls_of("cudnnBackendCreateDescriptor"), made);
        if (simt_emulated()) assert_true(simt_calls_of("cudnnBackendExecute") > ran);
        if (!again) assert_int_equal(simt_calls_of("cuDNN plans that moved"), moved);
        for (int i = 0; i < RUNNERS; i++) pare_runner_free(runner[i]);
        simt_live(again ? after : before, sizeof before);
    }
    assert_string_equal(before, after); /* plans were taken again */
    pare_plan_free(plan);
    pare_device_close(device);
    graph_close(&g);
}

/* --- calls that fail --- */

static int warnings, left_out;
static void count_warnings(void *user, pare_log_level level, const char *text)
{
    (void)user;
    warnings += level == PARE_LOG_WARNING && strstr(text, "cuDNN failed") != NULL;
    left_out += strstr(text, "an engine of cuDNN is left out") != NULL;
    left_out += level == PARE_LOG_WARNING && !strncmp(text, "cudnn_conv_", 11);
}

typedef struct dnn_attempt {
    pare_status planned, ran;
    bool came; /* the call that fails */
} dnn_attempt;

static void count_timed(void *user, const pare_node *node, const pare_kernel *kernel,
                        double seconds)
{
    (void)node, (void)seconds;
    *(int *)user += !strncmp(kernel->name, "cudnn_conv_", 11);
}

/* The net's plan and a run, of which call n of that name fails; timed: the tuner chooses, and
   counts cuDNN's trials there. */
static dnn_attempt attempt(const char *call, uint64_t n, int code, int *timed, float y[NET])
{
    graph_case g;
    pare_device *device;
    pare_plan *plan = NULL;
    pare_runner *runner = NULL;
    dnn_attempt a = {PARE_OK, PARE_OK, false};
    net_make(&g);
    g.ctx.log = count_warnings;
    assert_int_equal(pare_cuda_open(&g.ctx, &device, 0, 0), PARE_OK);
    const pare_plan_options options = {.threads = 1,
                                       .device = device,
                                       .tune = timed != NULL,
                                       .timed = timed ? count_timed : NULL,
                                       .timed_user = timed};
    warnings = left_out = 0;
    const uint64_t before = simt_calls_of(call);
    simt_fail_call(call, n, code);
    a.planned = pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options);
    a.ran = a.planned;
    if (a.ran == PARE_OK) a.ran = pare_runner_new(&g.ctx, &runner, plan);
    if (a.ran == PARE_OK) input_spread(runner, 1);
    if (a.ran == PARE_OK) a.ran = pare_runner_run(runner);
    if (a.ran == PARE_OK) memcpy(y, pare_runner_output(runner, 0).data, NET * sizeof *y);
    a.came = simt_calls_of(call) >= before + n;
    simt_fail_at(0, 0, false);
    if (a.ran != PARE_OK) assert_non_null(strstr(g.ctx.message, "cudnn"));
    pare_runner_free(runner);
    pare_plan_free(plan);
    pare_device_close(device);
    graph_close(&g);
    return a;
}

static void expected_make(float want[NET])
{
    graph_case g;
    net_make(&g);
    net_run(&g, NULL, false, 0, want, NET);
    graph_close(&g);
}

static void same(const float *want, const float *got)
{
    for (int i = 0; i < NET; i++) assert_float_equal(want[i], got[i], 1e-3);
}

static const char *const calls[] = {
    "cudnnCreate",          "cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
    "cudnnBackendFinalize", "cudnnBackendGetAttribute",     "cudnnSetStream",
    "cudnnBackendExecute"};
enum { CALLS = sizeof calls / sizeof *calls, FAILURE = 1 };

/* Each call fails once. While plans are made, an engine is left out, or all of cuDNN, which one
   warning says, and our own kernels serve; later, the run ends with a message that names the call.
 */
static void a_call_that_fails(void **state)
{
    int warned = 0, fewer = 0, ended = 0;
    float want[NET], got[NET];
    if (!simt_emulated()) skip();
    (void)state;
    expected_make(want);
    for (int c = 0; c < CALLS; c++)
        for (uint64_t n = 1; n<90; n += c> 0 && c < 5 ? 7 : 1) {
            const dnn_attempt a = attempt(calls[c], n, FAILURE, NULL, got);
            assert_int_equal(a.planned, PARE_OK);
            assert_true(warnings <= 1);
            if (a.came && !warnings && !left_out && a.ran == PARE_OK)
                fail_msg("%s %d: no one saw it", calls[c], (int)n);
            if (a.ran == PARE_OK) same(want, got);
            warned += warnings, fewer += left_out, ended += a.ran != PARE_OK;
            if (!a.came) break;
        }
    assert_true(warned > 5 && fewer > 1 && ended > 1);
}

/* The tuner tries cuDNN's plans, and leaves out what fails there: a plan is made, and the run is
   right. Without memory it goes on as with any kernel. */
static void a_call_that_fails_in_a_trial(void **state)
{
    int timed = 0, out = 0;
    const int apart = case_apart();
    float want[NET], got[NET];
    if (!simt_emulated()) skip();
    (void)state;
    expected_make(want);
    const dnn_attempt whole = attempt("cudnnCreate", 1 << 20, FAILURE, &timed, got);
    assert_int_equal(whole.ran, PARE_OK);
    assert_true(timed > 0 && !warnings && !left_out);
    same(want, got);
    for (int c = 0; c < CALLS; c++)
        for (uint64_t n = 1; n < 400; n += (uint64_t)apart * (c > 0 && c < 5 ? 23 : 1)) {
            int some = 0;
            const dnn_attempt a = attempt(calls[c], n, FAILURE, &some, got);
            assert_int_equal(a.planned, PARE_OK);
            if (a.ran == PARE_OK) same(want, got);
            out += left_out;
            if (!a.came) break;
        }
    assert_true(out > 3 / apart);
    assert_int_equal(attempt("cudnnBackendExecute", 1, 2, &timed, got).ran, PARE_OK);
    assert_int_equal(left_out, 0);
    same(want, got);
}

/* --- what a device keeps --- */

static int descriptors(void)
{
    char text[256] = "";
    simt_live(text, sizeof text);
    const char *at = strstr(text, "cuDNN descriptors");
    if (!at) return 0;
    while (at > text && at[-1] != ',') at--;
    const char *digit = at + strcspn(at, "0123456789");
    return atoi(digit);
}

/* Ever new shapes, as a server sees them: what no plan uses is let go. */
static void answers_of_old_shapes_go(void **state)
{
    (void)state;
    enum { SHAPES = PARE_DNN_UNUSED + 12 };
    graph_case g;
    pare_device *device;
    const int64_t w[4] = {2, 2, 3, 3};
    int full = 0;
    if (!simt_emulated()) skip();
    pare_ctx_init(&g.ctx);
    assert_int_equal(pare_cuda_open(&g.ctx, &device, 0, 0), PARE_OK);
    for (int i = 0; i < SHAPES; i++) {
        const int64_t x[4] = {1, 2, 3, 3 + i};
        pare_plan *plan;
        graph_open(&g, 21);
        graph_input(&g, "x", PARE_f32, 4, x);
        graph_input(&g, "w", PARE_f32, 4, w);
        graph_node(&g, "Conv", "x w", "y");
        graph_output(&g, "y");
        const pare_plan_options options = {.threads = 1, .device = device};
        assert_int_equal(pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options), PARE_OK);
        pare_plan_free(plan);
        graph_close(&g);
        if (i == PARE_DNN_UNUSED) full = descriptors();
    }
    assert_true(full > PARE_DNN_UNUSED);
    assert_int_equal(descriptors(), full);
    pare_device_close(device);
    assert_int_equal(descriptors(), 0);
}

static void its_version_is_told(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_device *device;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_cuda_open(&ctx, &device, 0, 0), PARE_OK);
    char text[128];
    pare_cuda_library_versions(&ctx, device, text, sizeof text);
    if (simt_emulated()) assert_non_null(strstr(text, ", cuDNN 9.19.0"));
    pare_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(recorded_runs_are_the_same),
        device_test(training_may_use_it_where_that_is_allowed),
        device_test(training_compiles_nothing_where_runs_are_to_be_repeated),
        device_test(each_runner_has_a_plan_of_its_own),
        device_test(a_call_that_fails),
        device_test(a_call_that_fails_in_a_trial),
        device_test(answers_of_old_shapes_go),
        device_test(its_version_is_told),
    };
    setenv("SIMT_DNN", "present", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
