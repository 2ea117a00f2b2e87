/* SPDX-License-Identifier: Apache-2.0 */
/* First convolutions, of few channels, on a device. Expected: the CPU's plain kernels, bytes equal
   for integers. Each case says how many of the device's kernels must have taken it. */
#include "tests/cuda/product_case.h"
#include "tests/passes/focus_pieces.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* One to four channels, whose neighbours are put together: the stem, where a filter's columns are
   neighbours, and the tile that gathers. */
static void stems_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 48; i += case_apart()) {
        kernel_case k;
        static const pare_dtype types[] = {PARE_f16, PARE_bf16, PARE_s8, PARE_u8};
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        pare_dtype t = types[i / 2 % 4];
        bool int8 = t == PARE_s8 || t == PARE_u8;
        int64_t c = 1 + i % 3 + i / 24, m = i % 5 ? 32 : 70, x[4] = {2, c, 13, 12},
                w[4] = {m, c, 3, 5};
        k.nhwc = true;
        fused_inputs(&k, t, x, w, i % 4 ? 1 : m);
        if (int8) case_set_int(&k, "to", i % 7 ? PARE_s8 : PARE_f32);
        window_set(&k, i, 1);
        case_check_device(&k, i % 2 ? 1 : 2);
    }
}

/* First convolutions whose Y is cut into parts: windows, strides, pads, filters and ends of Y that
   meet the cut and that do not; integers with and without a zero point. */
static void stem_tiles_agree(void **state)
{
    (void)state;
    static const struct {
        int64_t c, m, h, w, kh, kw, stride, pad;
    } cases[] = {
        {3, 64, 31, 38, 7, 7, 2, 3}, {1, 32, 20, 33, 3, 3, 1, 1}, {4, 96, 17, 45, 2, 8, 2, 0},
        {3, 64, 40, 9, 5, 1, 3, 2},  {2, 128, 9, 70, 1, 6, 4, 1}, {3, 64, 24, 44, 7, 7, 2, 3},
        {3, 32, 19, 64, 3, 3, 1, 1}, /* of the last two four pixels begin at words */
    };
    static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
    static const char *const acts[] = {"none", "relu", "clip"};
    for (int i = 0; i < 56; i += case_apart()) {
        kernel_case k;
        const pare_dtype t = types[i % 4];
        const bool int8 = t == PARE_s8 || t == PARE_u8, plain = i / 28;
        const int64_t stride = cases[i % 7].stride, pad = cases[i % 7].pad, m = cases[i % 7].m;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        fused_inputs(&k, t, (int64_t[]){3, cases[i % 7].c, cases[i % 7].h, cases[i % 7].w},
                     (int64_t[]){m, cases[i % 7].c, cases[i % 7].kh, cases[i % 7].kw},
                     i % 3 ? m : 1);
        case_set_ints(&k, "strides", (int64_t[]){stride, stride}, 2);
        case_set_ints(&k, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
        assert_int_equal(pare_node_set_string(k.node, "activation", acts[i % 3]), PARE_OK);
        case_set_float(&k, "alpha", plain ? 0 : int8 ? -3 : -0.5f);
        case_set_float(&k, "beta", plain ? 1000 : int8 ? 11 : 0.75f);
        if (int8) {
            case_set_int(&k, "to", t);
            case_set_int(&k, "x_zero_point", t == PARE_u8 ? 121 : -5);
            case_set_int(&k, "y_zero_point", plain ? 0 : t == PARE_u8 ? 100 : -7);
        }
        case_check_device(&k, 3); /* it, pixels that are widened, and the tile that gathers */
    }
}

/* Numbers that are not finite reach the outputs whose windows hold them, and no others: the
   window's line is shorter than what an instruction takes. */
static void infinities_stay_in_their_windows(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_f16, PARE_bf16};
    for (int i = 0; i < 6; i++) {
        kernel_case k;
        const int64_t kw = (int64_t[]){1, 3, 7}[i / 2], w = 24;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        k.only = "conv_stem";
        fused_inputs(&k, types[i % 2], (int64_t[]){1, 3, 24, w}, (int64_t[]){32, 3, 3, kw}, 32);
        case_put(&k, 0, (10 * w + 13) * 3 + 1, INFINITY);
        case_put(&k, 0, (4 * w + 6) * 3, NAN);
        case_set_ints(&k, "strides", (int64_t[]){2, 2}, 2);
        case_set_ints(&k, "pads", (int64_t[]){1, 1, 1, 1}, 4);
        case_check_device(&k, 1);
    }
}

/* More parts of Y than blocks run at once: a block makes several. */
static void a_block_makes_several_tiles(void **state)
{
    (void)state;
    for (int i = 0; i < (case_is_quick() ? 1 : 2); i++) {
        kernel_case k;
        const pare_dtype t = i ? PARE_f16 : PARE_s8;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        k.only = "conv_stem";
        fused_inputs(&k, t, (int64_t[]){1, 1, 264, 530}, (int64_t[]){32, 1, 2, 2}, 32);
        if (t == PARE_s8) case_set_int(&k, "to", t);
        case_check_device(&k, 1);
    }
}

/* --- YOLOv5's Focus --- */

enum { FOCUS_FILTERS = 32, FOCUS_WEIGHTS = FOCUS_FILTERS * 12 * 9, FOCUS_Y = 2 * 32 * 8 * 12 };

static void focus_make(graph_case *g, pare_dtype type, const char *activation)
{
    static const int order[] = {0, 2, 1, 3};
    static float w[FOCUS_WEIGHTS];
    for (int i = 0; i < FOCUS_WEIGHTS; i++) w[i] = (float)(i * 7919 % 255 - 127) / 1024;
    graph_open(g, 17);
    graph_input(g, "x", type, 4, (int64_t[]){2, 3, 16, 24});
    focus_pieces(g, order, false, 2);
    graph_floats(g, "f", 4, (int64_t[]){FOCUS_FILTERS, 12, 3, 3}, w);
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", "f", "w"), "to", type), PARE_OK);
    pare_node *conv = graph_node(g, "FusedConv", "joined w", "y");
    conv->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_ints(conv, "pads", (int64_t[]){1, 1, 1, 1}, 4), PARE_OK);
    assert_int_equal(pare_node_set_string(conv, "activation", activation), PARE_OK);
    graph_output(g, "y");
}

/* Runs the plan; kernel: the convolution's must hold it, and no Slice may be left. */
static void focus_run(graph_case *g, pare_device *device, const char *kernel, float *y)
{
    pare_plan *plan;
    pare_runner *runner;
    const pare_plan_options options = {.threads = 1, .device = device};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    for (int i = 0; i < pare_plan_step_count(plan) && kernel; i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        assert_string_not_equal(info.op_type, "Slice");
        if (!strcmp(info.op_type, "FusedConv") && !strstr(info.kernel, kernel))
            fail_msg("%s, expected %s", info.kernel, kernel);
    }
    const pare_view x = pare_runner_input(runner, 0);
    const pare_type_info *type = pare_type(x.dtype);
    for (int64_t i = 0; i < pare_view_count(&x); i++)
        type->from_f32_ref((char *)x.data + i * (type->bits / 8), (float)(i * 37 % 101) / 64);
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    const pare_view out = pare_runner_output(runner, 0);
    assert_int_equal(pare_view_count(&out), FOCUS_Y);
    for (int i = 0; i < FOCUS_Y; i++)
        y[i] = type->to_f32((const char *)out.data + i * (type->bits / 8));
    pare_runner_free(runner);
    pare_plan_free(plan);
}

/* Which kernel has the convolution that Focus becomes, by what follows the sums. */
static void focus_has_the_kernel_of_its_activation(void **state)
{
    (void)state;
    static const struct {
        pare_dtype type;
        const char *activation, *kernel;
    } cases[] = {{PARE_f16, "relu", "conv_stem"},
                 {PARE_bf16, "none", "conv_stem"},
                 {PARE_f16, "silu", "conv_widened"},
                 {PARE_f32, "silu", "x64"}};
    static float y[FOCUS_Y], expected[FOCUS_Y];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_case g;
        pare_device *device;
        focus_make(&g, cases[i].type, cases[i].activation);
        if (pare_device_open(&g.ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
        focus_run(&g, device, cases[i].kernel, y);
        focus_run(&g, NULL, NULL, expected);
        const float unit = cases[i].type == PARE_bf16 ? 1.0f / 128 : 1.0f / 1024;
        for (int k = 0; k < FOCUS_Y; k++) /* sums in another order, rounded */
            assert_true(fabsf(y[k] - expected[k]) <= 2 * unit * fmaxf(1, fabsf(expected[k])));
        pare_device_close(device);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stems_agree),
        cmocka_unit_test(stem_tiles_agree),
        cmocka_unit_test(infinities_stay_in_their_windows),
        cmocka_unit_test(a_block_makes_several_tiles),
        cmocka_unit_test(focus_has_the_kernel_of_its_activation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
