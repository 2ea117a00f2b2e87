/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and their gradients on cuDNN against the CPU's plain kernels. On the emulated device
   its stub serves, which offers engines of every kind, also such as must not be taken: those give
   wrong sums, or more plans than are expected. On a real device the library does, where it is.
   test_dnn_runs.c has whole nets. */
#include "tests/cpu/kernel_case.h"
#include "tests/simt/testing.h"

#include <math.h>
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

/* The library's ReLU drops it unless told not to. */
static void nan_stays_nan(void **state)
{
    static const char *const words[] = {"relu", "clip"};
    const int64_t x[4] = {1, 2, 4, 4}, f[4] = {3, 2, 1, 1}, m = 3;
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        kernel_case k;
        case_open(&k, "pare", "FusedConv", 1 + i);
        k.nhwc = true;
        case_input(&k, PARE_f16, 4, x, false, 0, 1);
        input(&k, false, PARE_f16, 4, f, false);
        case_input(&k, PARE_f16, 1, &m, false, 0, 1);
        for (int in = 0; in < 3; in++) case_coarsen(&k, in);
        case_put(&k, 0, 5, NAN);
        activation_set(&k, words[i], -1, 2);
        check(&k, i ? COMPILED : READY);
    }
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

/* 1080 factors a sum, the weights as large as they may be, the pixels nearly. The bias takes the
   sum away but for what differs, so that a rounded one is seen. */
static void large_sums_check(pare_dtype type, int x_zero, int weight, int plans)
{
    static uint64_t seed = 100;
    const int64_t x[5] = {1, 40, 3, 3, 3}, f[5] = {2, 40, 3, 3, 3}, m = 2;
    const int low = type == PARE_s8 ? 120 : 248;
    const int mean = (2 * low + 7 - 2 * x_zero) * weight * 540;
    kernel_case k;
    case_open(&k, "pare", "FusedConv", ++seed);
    case_input(&k, type, 5, x, false, low, low + 7);
    case_input(&k, PARE_s8, 5, f, true, weight, weight);
    case_input(&k, PARE_s32, 1, &m, true, -mean - 3000, -mean + 3000);
    case_input(&k, PARE_NOTYPE, 5, NULL, true, 0, 0);
    float *scale = case_input(&k, PARE_f32, 1, &m, true, 0, 1);
    for (int i = 0; i < 2; i++) scale[i] = 0.001f;
    case_set_float(&k, "x_scale", 1);
    case_set_int(&k, "x_zero_point", x_zero);
    case_set_int(&k, "to", PARE_f32);
    activation_set(&k, "none", 0, 0);
    check(&k, plans);
}

/* The stub passes sums through f32, as the library may: where a shift is to be taken off sums that
   may be larger than 2^24, the node is left to others. Without one the epilogue rounds alike. */
static void sums_that_f32_does_not_hold(void **state)
{
    (void)state;
    large_sums_check(PARE_s8, 0, 127, 1);
    large_sums_check(PARE_u8, 128, 127, 1);
    large_sums_check(PARE_s8, -7, 127, 0);
    large_sums_check(PARE_u8, 3, 127, 0);
    large_sums_check(PARE_s8, -7, 121, 1); /* 128 * 121 * 1080 is below 2^24 */
    large_sums_check(PARE_u8, 3, -121, 1);
    large_sums_check(PARE_u8, 3, -122, 0);
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
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(gradients_of_all_windows),
        cmocka_unit_test(integers_that_our_kernels_lack),
        cmocka_unit_test_teardown(sums_that_f32_does_not_hold, close_device),
    };
    setenv("SIMT_DNN", "present", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
