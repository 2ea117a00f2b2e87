/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of graph that pare makes, given to NVIDIA's cuDNN itself where that is installed, for
   GPUs that are not there: it takes descriptions of them since 9.8. Each has a plan. What its
   engines compute is not seen. Skipped where the library is absent, or wants to know more of a GPU,
   as 9.28 does; 9.19 takes all. */
#include "runtime/cuda/conv/dnn.h"
#include "runtime/cuda/conv/dnn_plan.h"
#include "runtime/cuda/device/library.h"
#include "tests/cpu/kernel_case.h"
#include "tests/simt/testing.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A100, H200, B200: multiprocessors, and bytes of shared memory that a block may ask for. */
typedef struct gpu {
    const char *name;
    int version, processors, shared;
} gpu;
static const gpu gpus[] = {
    {"A100", 800, 108, 166912}, {"H200", 900, 132, 232448}, {"B200", 1000, 148, 232448}};
enum { GPUS = sizeof gpus / sizeof *gpus };

static pare_dnn_api api;
static bool compiles; /* NVRTC is there */

/* The library's own words for a GPU. NULL where it wants others. */
static void *properties_of(const gpu *g)
{
    char text[1024];
    void *out;
    const int length = snprintf(
        text, sizeof text,
        "{\"deviceVer\":%d,\"multiProcessorCount\":%d,\"warpSize\":32,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
        "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"regsPerBlock\":65536,"
        "\"totalGlobalMem\":80000000000,\"smClockRateKHz\":1980000,\"l2CacheSize\":52428800,"
        "\"maxBlockSize\":[1024,1024,64],\"memClockRateKHz\":2600000,"
        "\"maxGridSize\":[2147483647,65535,65535],\"supportCoopLaunch\":1,\"pciDeviceId\":0,"
        "\"isTccDriver\":0,\"cudaDeviceId\":0,\"driverVer\":13000,\"deviceName\":\"%s\"}",
        g->version, g->processors, g->shared, g->name);
    if (api.make(PARE_DNN_DEVICE_PROPERTIES, &out)) return NULL;
    if (!api.set(out, PARE_DNN_DEVICE_JSON, PARE_DNN_T_CHAR, length, text) && !api.finalize(out))
        return out;
    (void)api.drop(out);
    return NULL;
}

/* --- convolutions --- */

typedef enum direction { FORWARD, OF_INPUT, OF_WEIGHTS } direction;

typedef struct shape {
    int axes;
    int64_t n, c, m, group, in, kernel, stride, pad;
} shape;

/* Of ResNet-50, its first, a depthwise one, one of groups, one of odd channels; along a line and
   over three axes. */
static const shape shapes[] = {{2, 8, 64, 64, 1, 56, 3, 1, 1},  {2, 8, 256, 128, 1, 56, 1, 1, 0},
                               {2, 8, 3, 64, 1, 224, 7, 2, 3},  {2, 8, 64, 64, 64, 56, 3, 1, 1},
                               {2, 8, 64, 128, 4, 28, 3, 2, 1}, {2, 2, 5, 7, 1, 20, 3, 3, 1},
                               {1, 8, 64, 64, 1, 300, 5, 1, 2}, {3, 2, 16, 32, 1, 14, 3, 1, 1},
                               {3, 2, 32, 32, 2, 14, 3, 2, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct library_form {
    const char *activation; /* NULL: a plain Conv */
    pare_dtype bias;        /* PARE_NOTYPE: none */
    bool residual, constant;
} library_form;

static void dims_set(const shape *s, int64_t x[5], int64_t w[5], int64_t y[5])
{
    x[0] = y[0] = s->n, x[1] = s->c, y[1] = w[0] = s->m, w[1] = s->c / s->group;
    for (int i = 2; i < 5; i++) {
        x[i] = s->in, w[i] = s->kernel;
        y[i] = (s->in + 2 * s->pad - s->kernel) / s->stride + 1;
    }
}

static void window_set(kernel_case *k, const shape *s)
{
    int64_t strides[3], pads[6];
    for (int i = 0; i < 3; i++) strides[i] = s->stride;
    for (int i = 0; i < 6; i++) pads[i] = s->pad;
    case_set_ints(k, "strides", strides, s->axes);
    case_set_ints(k, "pads", pads, 2 * s->axes);
    case_set_int(k, "group", s->group);
}

/* As a plan has it: pictures of two axes are N, H, W, C, weights and their gradient row-major. */
static void input(kernel_case *k, pare_dtype type, int rank, const int64_t *dims, bool picture,
                  bool constant)
{
    const bool out = k->nhwc;
    k->nhwc = picture && rank == 4;
    case_input(k, type, rank, dims, constant, 0, 1);
    k->nhwc = out;
}

static void forward_make(kernel_case *k, const shape *s, pare_dtype type, const library_form *f,
                         const int64_t *x, const int64_t *w, const int64_t *y)
{
    const bool int8 = type == PARE_s8 || type == PARE_u8;
    case_open(k, f->activation ? "pare" : "", f->activation ? "FusedConv" : "Conv", 1);
    window_set(k, s);
    k->nhwc = s->axes == 2;
    input(k, type, 2 + s->axes, x, true, false);
    input(k, int8 ? PARE_s8 : type, 2 + s->axes, w, false, f->constant);
    if (f->bias != PARE_NOTYPE || f->residual || int8)
        case_input(k, f->bias, 1, &s->m, int8 || f->constant, 0, 1);
    if (f->residual || int8)
        input(k, f->residual ? type : PARE_NOTYPE, 2 + s->axes, y, true, false);
    if (f->activation)
        assert_int_equal(pare_node_set_string(k->node, "activation", f->activation), PARE_OK);
    case_set_float(k, "alpha", 0), case_set_float(k, "beta", 6);
    if (!int8) return;
    float *scale = case_input(k, PARE_f32, 1, &s->m, true, 1, 1);
    for (int64_t i = 0; i < s->m; i++) scale[i] = 1;
    case_set_int(k, "to", PARE_s8);
    case_set_int(k, "x_zero_point", type == PARE_u8 ? 130 : 0);
}

static void gradient_make(kernel_case *k, const shape *s, pare_dtype type, direction d,
                          const int64_t *x, const int64_t *w, const int64_t *y)
{
    const int rank = 2 + s->axes;
    case_open(k, "pare", d == OF_INPUT ? "ConvGradInput" : "ConvGradWeight", 1);
    window_set(k, s);
    case_set_ints(k, "shape", d == OF_INPUT ? x : w, rank);
    k->nhwc = rank == 4 && d == OF_INPUT;
    input(k, type, rank, y, true, false);
    input(k, type, rank, d == OF_INPUT ? w : x, d != OF_INPUT, false);
}

static bool graph_read(kernel_case *k, bool tf32, pare_dnn_conv *out)
{
    pare_arena arena;
    pare_device device = {.tf32 = tf32};
    pare_view in[10];
    case_infer(k);
    memcpy(in, k->in, sizeof in);
    for (int i = 0; i < k->in_count; i++)
        if (!k->constant[i]) in[i].data = NULL;
    pare_arena_init(&arena, &k->ctx);
    const pare_prep prep = {.ctx = &k->ctx,
                            .node = k->node,
                            .in = in,
                            .out = &k->out,
                            .in_count = k->in_count,
                            .out_count = 1,
                            .threads = 1,
                            .arena = &arena,
                            .device = &device};
    const bool fits = pare_dnn_conv_read(&prep, out);
    pare_arena_free(&arena);
    return fits;
}

typedef struct plan_tally {
    void *properties[GPUS];
    int graphs, plans[GPUS];
} plan_tally;

/* Each GPU has a plan for it. */
static void plans_expect(plan_tally *t, kernel_case *k, bool tf32)
{
    pare_dnn_conv conv;
    if (!graph_read(k, tf32, &conv)) fail_msg("%s is not given to cuDNN", k->node->op_type);
    for (int i = 0; i < GPUS; i++) {
        const pare_dnn_target at = {&api, NULL, t->properties[i]};
        pare_dnn_answers *a;
        if (pare_dnn_ask(&k->ctx, &at, &conv, &a) != PARE_OK)
            fail_msg("%s, graph %d of %s: %s", gpus[i].name, t->graphs, k->node->op_type,
                     k->ctx.message);
        const int count = a->count;
        pare_dnn_answers_free(&api, a);
        if (!count)
            fail_msg("%s, graph %d: %s of %s has no plan", gpus[i].name, t->graphs,
                     k->node->op_type, pare_type(k->in[0].dtype)->name);
        t->plans[i] += count;
    }
    t->graphs++;
    case_close(k);
}

static void forward_expect(plan_tally *t, const shape *s, pare_dtype type, const library_form *f,
                           bool tf32)
{
    kernel_case k;
    int64_t x[5], w[5], y[5];
    dims_set(s, x, w, y);
    forward_make(&k, s, type, f, x, w, y);
    plans_expect(t, &k, tf32);
}

static void gradient_expect(plan_tally *t, const shape *s, pare_dtype type, direction d, bool tf32)
{
    kernel_case k;
    int64_t x[5], w[5], y[5];
    dims_set(s, x, w, y);
    gradient_make(&k, s, type, d, x, w, y);
    plans_expect(t, &k, tf32);
}

/* --- tests --- */

static void print(const char *what, const plan_tally *t)
{
    printf("%s: %d graphs; plans:", what, t->graphs);
    for (int i = 0; i < GPUS; i++) printf(" %s %d", gpus[i].name, t->plans[i]);
    printf("\n");
}

static void setup(plan_tally *t)
{
    *t = (plan_tally){0};
    for (int i = 0; i < GPUS; i++) {
        t->properties[i] = properties_of(&gpus[i]);
        assert_non_null(t->properties[i]);
    }
}

static void end(const char *what, plan_tally *t)
{
    for (int i = 0; i < GPUS; i++) assert_int_equal(api.drop(t->properties[i]), 0);
    print(what, t);
}

static void forward_graphs_have_plans(void **state)
{
    const library_form forms[] = {{NULL, PARE_NOTYPE, false, true},
                                  {NULL, PARE_f16, false, false},
                                  {"relu", PARE_f16, true, true},
                                  {"relu", PARE_NOTYPE, false, true},
                                  {"none", PARE_NOTYPE, true, true}};
    plan_tally t;
    (void)state;
    setup(&t);
    for (int s = 0; s < SHAPES; s++)
        for (int f = 0; f < 5; f++) forward_expect(&t, &shapes[s], PARE_f16, &forms[f], false);
    end("f16", &t);
    setup(&t);
    for (int s = 0; s < SHAPES; s++)
        forward_expect(&t, &shapes[s], PARE_bf16, &(library_form){"relu", PARE_bf16, true, true},
                       false);
    end("bf16", &t);
    for (int tf32 = 0; tf32 < 2; tf32++) {
        setup(&t);
        for (int s = 0; s < SHAPES; s++)
            forward_expect(&t, &shapes[s], PARE_f32, &(library_form){"relu", PARE_f32, true, true},
                           tf32);
        end(tf32 ? "f32, TF32 allowed" : "f32", &t);
    }
}

static void gradient_graphs_have_plans(void **state)
{
    static const pare_dtype types[] = {PARE_f16, PARE_bf16, PARE_f32, PARE_f32};
    static const char *const names[] = {"gradients of f16", "of bf16", "of f32",
                                        "of f32, TF32 allowed"};
    plan_tally t;
    (void)state;
    for (int i = 0; i < 4; i++) {
        setup(&t);
        for (int s = 0; s < SHAPES; s++) {
            gradient_expect(&t, &shapes[s], types[i], OF_INPUT, i == 3);
            gradient_expect(&t, &shapes[s], types[i], OF_WEIGHTS, i == 3);
        }
        end(names[i], &t);
    }
}

static void integer_graphs_have_plans(void **state)
{
    plan_tally t;
    (void)state;
    setup(&t);
    for (int s = 0; s < SHAPES; s++)
        for (int u8 = 0; u8 < 2; u8++) {
            const bool constant = shapes[s].axes == 3;
            if (u8 && !constant) continue; /* their zero point wants constant weights */
            forward_expect(&t, &shapes[s], u8 ? PARE_u8 : PARE_s8,
                           &(library_form){"relu", PARE_s32, false, constant}, false);
        }
    end("s8 and u8", &t);
}

/* Biases and bounds for which there is no code before: compiled for the GPU, a second each. */
static void graphs_that_are_compiled_have_plans(void **state)
{
    plan_tally t;
    (void)state;
    if (!compiles) skip();
    setup(&t);
    forward_expect(&t, &shapes[0], PARE_f16, &(library_form){"clip", PARE_f16, false, false},
                   false);
    forward_expect(&t, &shapes[4], PARE_f16, &(library_form){"relu", PARE_f32, true, false}, false);
    forward_expect(&t, &shapes[1], PARE_bf16, &(library_form){"clip", PARE_f32, true, false},
                   false);
    end("compiled", &t);
}

/* NVRTC, and a driver where there is none: engines that are compiled ask for both by name. */
static bool compiler_load(void)
{
    const pare_library_place driver = {.name = "libcuda.so.1",
                                       .variable = "PARE_CUDNN",
                                       .wheel = "",
                                       .global = true},
                             nvrtc = {.name = "libnvrtc.so.13",
                                      .variable = "PARE_CUDNN",
                                      .wheel = "nvidia/cu13/lib",
                                      .global = true};
    if (!pare_library_open(&driver) && !dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL)) return false;
    return pare_library_open(&nvrtc) != NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward_graphs_have_plans),
                                       cmocka_unit_test(gradient_graphs_have_plans),
                                       cmocka_unit_test(integer_graphs_have_plans),
                                       cmocka_unit_test(graphs_that_are_compiled_have_plans)};
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    compiles = compiler_load();
    if (pare_dnn_open(&ctx, &api) != PARE_OK) {
        printf("SKIP %s\n", ctx.message);
        return 77;
    }
    int version[3] = {0};
    for (int i = 0; i < 3; i++) (void)api.property(PARE_DNN_VERSION_MAJOR + i, &version[i]);
    void *properties = properties_of(&gpus[0]);
    if (!properties) {
        char last[256] = "";
        api.last_error(last, sizeof last);
        printf("SKIP cuDNN %d.%d.%d does not take our description of a GPU: %s\n", version[0],
               version[1], version[2], last);
        return 77;
    }
    (void)api.drop(properties);
    printf("cuDNN %d.%d.%d%s\n", version[0], version[1], version[2],
           compiles ? "" : "; SKIP compiled graphs: libnvrtc.so.13 was not found");
    return cmocka_run_group_tests_name("cuDNN", tests, NULL, NULL);
}
