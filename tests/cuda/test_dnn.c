/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and their gradients on cuDNN against the CPU's plain kernels. On the emulated device
   its stub serves, which offers engines of every kind, also such as must not be taken: those give
   wrong sums, or more plans than are expected. On a real device the library does, where it is. */
#include "runtime/cuda/conv/dnn_device.h"
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

/* A window of one to three axes. */
typedef struct window {
    int axes;
    int64_t n, c, m, group, in[3], kernel[3], stride[3], dilation[3], pads[6];
} window;

static const window flat = {2, 2, 6, 8, 1, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
                    strided = {2, 1, 3, 5, 1, {7, 6}, {3, 2}, {3, 2}, {1, 2}, {1, 0, 2, 1}},
                    grouped = {2, 2, 6, 9, 3, {4, 5}, {3, 3}, {2, 1}, {1, 1}, {1, 1, 1, 1}},
                    line = {1, 2, 4, 6, 1, {9}, {3}, {2}, {1}, {1, 1}},
                    cube = {3,         2,         3,         4,         1,
                            {4, 3, 5}, {2, 3, 3}, {1, 1, 2}, {1, 1, 1}, {0, 1, 1, 1, 1, 1}},
                    cubes = {3, 1, 4, 6, 2, {3, 3, 4}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}, {0}};

static int64_t out_of(const window *w, int axis)
{
    const int64_t reach = w->dilation[axis] * (w->kernel[axis] - 1) + 1;
    return (w->in[axis] + w->pads[axis] + w->pads[w->axes + axis] - reach) / w->stride[axis] + 1;
}

static void attributes_set(kernel_case *k, const window *w)
{
    case_set_ints(k, "strides", w->stride, w->axes);
    case_set_ints(k, "dilations", w->dilation, w->axes);
    case_set_ints(k, "pads", w->pads, 2 * w->axes);
    case_set_int(k, "group", w->group);
}

/* Dimensions of X, W, Y. */
static void dims_of(const window *w, int64_t x[5], int64_t f[5], int64_t y[5])
{
    x[0] = y[0] = w->n, x[1] = w->c, y[1] = w->m, f[0] = w->m, f[1] = w->c / w->group;
    for (int i = 0; i < w->axes; i++)
        x[2 + i] = w->in[i], f[2 + i] = w->kernel[i], y[2 + i] = out_of(w, i);
}

static void activation_set(kernel_case *k, const char *word, float low, float high)
{
    assert_int_equal(pare_node_set_string(k->node, "activation", word), PARE_OK);
    if (strcmp(word, "clip")) return;
    case_set_float(k, "alpha", low);
    case_set_float(k, "beta", high);
}

/* Pictures and the output may be N, H, W, C; weights and their gradient are row-major, as plans
   have them. */
static void *input(kernel_case *k, bool nhwc, pare_dtype type, int rank, const int64_t *dims,
                   bool constant)
{
    const bool out = k->nhwc;
    k->nhwc = nhwc;
    void *data = case_input(k, type, rank, dims, constant, 0, 1);
    k->nhwc = out;
    return data;
}

/* So many of the stub's plans; of a real library's any number. */
static void check(kernel_case *k, int plans)
{
    k->only = "cudnn";
    const bool real = !simt_emulated();
    case_run_device(k, real ? 0 : plans);
    if (!real && k->device_runs != plans)
        fail_msg("case %llu: %d plans of cuDNN took it, expected %d", (unsigned long long)k->number,
                 k->device_runs, plans);
    case_close(k);
}

/* --- floats --- */

enum { NO_BIAS, BIAS, BIAS_F32 };

typedef struct dnn_ends {
    int bias;
    bool residual;
    const char *activation; /* NULL: a plain Conv, or none */
    float low, high;
} dnn_ends;

/* constant: W and the bias are. Every sum is exact in f32, so that its order does not count. */
static void forward_check(const window *w, pare_dtype type, bool nhwc, bool constant,
                          const dnn_ends *t, int plans)
{
    static uint64_t seed;
    const bool fused = t->residual || t->activation;
    kernel_case k;
    int64_t x[5], f[5], y[5];
    const int rank = 2 + w->axes;
    dims_of(w, x, f, y);
    case_open(&k, fused ? "pare" : "", fused ? "FusedConv" : "Conv", ++seed);
    k.nhwc = nhwc;
    attributes_set(&k, w);
    case_input(&k, type, rank, x, false, 0, 1);
    input(&k, false, type, rank, f, constant);
    if (t->bias || t->residual)
        case_input(&k,
                   !t->bias              ? PARE_NOTYPE
                   : t->bias == BIAS_F32 ? PARE_f32
                                         : type,
                   1, &w->m, constant, 0, 1);
    if (t->residual) case_input(&k, type, rank, y, false, 0, 1);
    for (int i = 0; i < k.in_count; i++)
        if (k.in[i].dtype != PARE_NOTYPE) case_coarsen(&k, i);
    if (t->activation) activation_set(&k, t->activation, t->low, t->high);
    check(&k, plans);
}

/* Code that is there has two plans; with what it lacks there is one that is compiled, where W is
   computed. */
enum { READY = 2, COMPILED = 1, PLAIN = 1 };

static void forward_convolutions_have_what_follows_in_them(void **state)
{
    static const dnn_ends tails[] = {{NO_BIAS, false, NULL, 0, 0},   {BIAS, false, NULL, 0, 0},
                                     {BIAS, false, "relu", 0, 0},    {NO_BIAS, false, "relu", 0, 0},
                                     {BIAS, true, "relu", 0, 0},     {NO_BIAS, true, NULL, 0, 0},
                                     {BIAS_F32, true, "relu", 0, 0}, {BIAS, false, "clip", -1, 2},
                                     {NO_BIAS, true, "clip", 0, 6}};
    static const int plans[] = {READY, READY,    READY,    READY,   READY,
                                READY, COMPILED, COMPILED, COMPILED};
    (void)state;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        for (int constant = 0; constant < 2; constant++) {
            const int count = constant && plans[i] == COMPILED ? 0 : plans[i];
            forward_check(&flat, PARE_f16, true, constant, &tails[i], count);
            forward_check(&flat, PARE_bf16, false, constant, &tails[i], count);
        }
}

static void windows_are_of_one_to_three_axes(void **state)
{
    static const window *const all[] = {&flat, &strided, &grouped, &line, &cube, &cubes};
    static const dnn_ends relu = {BIAS, false, "relu", 0, 0}, none = {NO_BIAS, false, NULL, 0, 0};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int constant = 0; constant < 2; constant++) {
            forward_check(all[i], PARE_f16, all[i]->axes == 2, constant, &relu, READY);
            forward_check(all[i], PARE_f16, false, constant, &none, READY);
        }
}

/* Engines on tensor cores round f32. */
static void f32_stays_f32(void **state)
{
    static const dnn_ends relu = {BIAS, true, "relu", 0, 0}, clip = {BIAS, false, "clip", 0, 6};
    (void)state;
    forward_check(&flat, PARE_f32, true, true, &relu, PLAIN);
    forward_check(&cube, PARE_f32, false, false, &relu, PLAIN);
    forward_check(&flat, PARE_f32, true, true, &clip, 0);
}

static void other_activations_are_left_to_other_kernels(void **state)
{
    static const dnn_ends silu = {BIAS, false, "silu", 0, 0}, turned = {BIAS, false, "clip", 2, 1};
    (void)state;
    forward_check(&flat, PARE_f16, true, true, &silu, 0);
    forward_check(&flat, PARE_f16, true, true, &turned, 0);
}

/* --- gradients --- */

static void gradient_check(const window *w, pare_dtype type, bool of_weights, bool wide, int plans)
{
    const bool nhwc = w->axes == 2;
    static uint64_t seed;
    kernel_case k;
    int64_t x[5], f[5], y[5];
    const int rank = 2 + w->axes;
    dims_of(w, x, f, y);
    case_open(&k, "pare", of_weights ? "ConvGradWeight" : "ConvGradInput", ++seed);
    attributes_set(&k, w);
    case_set_ints(&k, "shape", of_weights ? f : x, rank);
    if (wide) case_set_int(&k, "output_dtype", 1);
    k.nhwc = nhwc && !of_weights;
    input(&k, nhwc, type, rank, y, false);
    input(&k, nhwc && of_weights, type, rank, of_weights ? x : f, false);
    for (int i = 0; i < 2; i++) case_coarsen(&k, i);
    check(&k, plans);
}

static void gradients_of_all_windows(void **state)
{
    static const window *const all[] = {&flat, &strided, &grouped, &line, &cube, &cubes};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int of_weights = 0; of_weights < 2; of_weights++) {
            gradient_check(all[i], PARE_f16, of_weights, false, READY);
            gradient_check(all[i], PARE_f32, of_weights, false, PLAIN);
        }
    gradient_check(&grouped, PARE_bf16, true, false, READY);
    gradient_check(&grouped, PARE_bf16, true, true, 0); /* f32 of short ones */
}

/* --- integers --- */

typedef struct dnn_integers {
    pare_dtype type, to;
    int x_zero;
    bool constant, residual, biased;
    const char *activation;
    int plans;
} dnn_integers;

static void integer_check(const window *w, const dnn_integers *c)
{
    static uint64_t seed;
    kernel_case k;
    int64_t x[5], f[5], y[5];
    const int rank = 2 + w->axes, low = c->type == PARE_s8 ? -128 : 0;
    dims_of(w, x, f, y);
    case_open(&k, "pare", "FusedConv", ++seed);
    attributes_set(&k, w);
    case_input(&k, c->type, rank, x, false, low, low + 255);
    case_input(&k, PARE_s8, rank, f, c->constant, -127, 127);
    case_input(&k, c->biased ? PARE_s32 : PARE_NOTYPE, 1, &w->m, true, -3000, 3000);
    case_input(&k, c->residual ? PARE_s8 : PARE_NOTYPE, rank, y, false, -128, 127);
    float *scale = case_input(&k, PARE_f32, 1, &w->m, true, 0, 1);
    for (int64_t i = 0; i < w->m; i++) scale[i] = 0.003f + 0.0007f * (float)i;
    case_set_float(&k, "x_scale", 0.04f);
    case_set_int(&k, "x_zero_point", c->x_zero);
    if (c->to != PARE_f32) case_set_float(&k, "y_scale", 0.11f);
    if (c->to != PARE_f32) case_set_int(&k, "y_zero_point", c->to == PARE_u8 ? 117 : -3);
    if (c->residual) case_set_float(&k, "z_scale", 0.07f), case_set_int(&k, "z_zero_point", 5);
    case_set_int(&k, "to", c->to);
    activation_set(&k, c->activation, -1, 3);
    check(&k, c->plans);
}

/* Byte for byte. Those that our own kernels take are left to them. */
static void integers_that_our_kernels_lack(void **state)
{
    static const dnn_integers cases[] = {
        {PARE_s8, PARE_s8, 0, true, false, true, "relu", 1},
        {PARE_s8, PARE_s8, 0, false, true, true, "none", 1},
        {PARE_s8, PARE_u8, 7, true, true, false, "clip", 1},
        {PARE_u8, PARE_u8, 128, true, false, true, "leaky_relu", 1},
        {PARE_u8, PARE_s8, 3, true, true, true, "silu", 1},
        {PARE_u8, PARE_f32, 0, true, false, true, "none", 1},
        {PARE_u8, PARE_s8, 128, false, false, true, "relu", 1},
        {PARE_s8, PARE_s8, 9, false, false, true, "relu", 0}, /* sums of W are not known */
    };
    static const window *const windows[] = {&cube, &cubes};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int w = 0; w < 2; w++) integer_check(windows[w], &cases[i]);
        dnn_integers c = cases[i];
        if (c.constant) c.plans = 0;
        integer_check(&flat, &c);
    }
    integer_check(&line, &(dnn_integers){PARE_s8, PARE_s8, 0, false, false, true, "relu", 1});
}

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

static int warnings;
static void count_warnings(void *user, pare_log_level level, const char *text)
{
    (void)user;
    warnings += level == PARE_LOG_WARNING && strstr(text, "cuDNN failed") != NULL;
}

/* Each call fails once. While plans are made, our own kernels serve, and one warning says so;
   later, the run ends with a message that names the call. */
static void a_call_that_fails(void **state)
{
    static const char *const calls[] = {
        "cudnnCreate",          "cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
        "cudnnBackendFinalize", "cudnnBackendGetAttribute",     "cudnnSetStream",
        "cudnnBackendExecute"};
    int served = 0, ended = 0;
    if (!simt_emulated()) skip();
    (void)state;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (uint64_t n = 1; n<90; n += c> 0 && c < 5 ? 11 : 1) {
            graph_case g;
            pare_device *device;
            pare_plan *plan = NULL;
            pare_runner *runner = NULL;
            net_make(&g);
            g.ctx.log = count_warnings;
            assert_int_equal(pare_cuda_open(&g.ctx, &device, 0, 0), PARE_OK);
            const pare_plan_options options = {.threads = 1, .device = device};
            warnings = 0;
            const uint64_t before = simt_calls_of(calls[c]);
            simt_fail_call(calls[c], n, 1);
            pare_status st = pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options);
            assert_int_equal(st, PARE_OK);
            if (st == PARE_OK) st = pare_runner_new(&g.ctx, &runner, plan);
            if (st == PARE_OK) st = pare_runner_run(runner);
            const bool came = simt_calls_of(calls[c]) >= before + n;
            simt_fail_at(0, 0, false);
            assert_true(warnings <= 1);
            if (came && !warnings && st == PARE_OK)
                fail_msg("%s %d: no one saw it", calls[c], (int)n);
            if (st != PARE_OK) assert_non_null(strstr(g.ctx.message, "cudnn"));
            served += warnings, ended += st != PARE_OK;
            pare_runner_free(runner);
            pare_plan_free(plan);
            pare_device_close(device);
            graph_close(&g);
            if (!came) break;
        }
    assert_true(served > 5 && ended > 1);
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

static int close_device(void **state)
{
    (void)state;
    case_device_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_convolutions_have_what_follows_in_them),
        cmocka_unit_test(windows_are_of_one_to_three_axes),
        cmocka_unit_test(f32_stays_f32),
        cmocka_unit_test(other_activations_are_left_to_other_kernels),
        cmocka_unit_test(gradients_of_all_windows),
        cmocka_unit_test_teardown(integers_that_our_kernels_lack, close_device),
        device_test(recorded_runs_are_the_same),
        device_test(training_may_use_it_where_that_is_allowed),
        device_test(a_call_that_fails),
        device_test(its_version_is_told),
    };
    setenv("SIMT_DNN", "present", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
