/* SPDX-License-Identifier: Apache-2.0 */
/* YOLOv5's Focus: which Slices and convolutions become one convolution, and that it computes the
   same: integers the same bytes. */
#include "runtime/exec/plan.h"
#include "runtime/passes/passes.h"
#include "tests/passes/focus_pieces.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* A net; a test changes one thing of it. */
typedef struct focus_net {
    int64_t n, c, h, w, m, kernel, stride, pad, dilation, step;
    int order[4]; /* pieces: 2 dy + dx */
    bool nested;  /* a Slice of lines, and one of pixels */
    bool int8, used, shown;
} focus_net;

static const focus_net five = {.n = 2,
                               .c = 3,
                               .h = 12,
                               .w = 16,
                               .m = 8,
                               .kernel = 3,
                               .stride = 1,
                               .pad = 1,
                               .dilation = 1,
                               .step = 2,
                               .order = {0, 2, 1, 3}}; /* as YOLOv5 has them */

enum { MOST = 4096 };

static void weights_make(graph_case *g, const focus_net *n)
{
    static float floats[MOST];
    static int8_t codes[MOST];
    pare_value *made;
    const int64_t dims[] = {n->m, 4 * n->c, n->kernel, n->kernel};
    assert_true(dims[0] * dims[1] * dims[2] * dims[3] <= MOST);
    for (int i = 0; i < MOST; i++) {
        codes[i] = (int8_t)(i * 7919 % 255 - 127);
        floats[i] = (float)codes[i] / 64;
    }
    if (n->int8)
        assert_int_equal(pare_init_new(g->model->graph, &made, "w", PARE_s8, 4, dims, codes),
                         PARE_OK);
    else
        graph_floats(g, "w", 4, dims, floats);
}

static void net_make(graph_case *g, const focus_net *n)
{
    pare_value *zero;
    const float scale = 0.02f, weight = 0.01f;
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 4, (int64_t[]){n->n, n->c, n->h, n->w});
    focus_pieces(g, n->order, n->nested, n->step);
    weights_make(g, n);
    pare_node *conv;
    if (n->int8) {
        graph_floats(g, "s", 0, NULL, &scale);
        graph_floats(g, "ws", 0, NULL, &weight);
        assert_int_equal(
            pare_init_new(g->model->graph, &zero, "z", PARE_u8, 0, NULL, (uint8_t[]){30}), PARE_OK);
        graph_node(g, "QuantizeLinear", "joined s z", "q");
        conv = graph_node(g, "FusedConv", "q w - - ws", "y");
        conv->domain = PARE_DOMAIN;
        assert_int_equal(pare_node_set_float(conv, "x_scale", scale), PARE_OK);
        assert_int_equal(pare_node_set_int(conv, "x_zero_point", 30), PARE_OK);
        assert_int_equal(pare_node_set_float(conv, "y_scale", 0.5f), PARE_OK);
        assert_int_equal(pare_node_set_int(conv, "to", PARE_s8), PARE_OK);
    } else {
        conv = graph_node(g, "Conv", "joined w", "y");
    }
    const int64_t p = n->pad;
    assert_int_equal(pare_node_set_ints(conv, "strides", (int64_t[]){n->stride, n->stride}, 2), 0);
    assert_int_equal(pare_node_set_ints(conv, "pads", (int64_t[]){p, p, p + 1, p}, 4), 0);
    assert_int_equal(
        pare_node_set_ints(conv, "dilations", (int64_t[]){n->dilation, n->dilation}, 2), 0);
    if (n->used) graph_node(g, "Identity", n->int8 ? "q" : "joined", "u");
    if (n->used) graph_output(g, "u");
    if (n->shown) graph_output(g, "joined");
    graph_output(g, "y");
}

/* The pass; are there no Slices any more? */
static bool joins(graph_case *g, const char *keep)
{
    const pare_infer_options infer = {.fold = true};
    if (pare_pass_infer(g->model, &infer) != PARE_OK) fail_msg("%s", g->ctx.message);
    const pare_shape before = graph_value(g, "y")->shape;
    assert_int_equal(pare_pass_fuse_focus(g->model, &keep, keep != NULL), PARE_OK);
    if (pare_pass_infer(g->model, &infer) != PARE_OK) fail_msg("%s", g->ctx.message);
    assert_true(pare_shape_equal(&before, &graph_value(g, "y")->shape));
    assert_int_equal(graph_count(g, "Slice") == 0, graph_count(g, "Concat") == 0);
    return graph_count(g, "Slice") == 0;
}

static size_t net_run(graph_case *g, char *y)
{
    pare_plan *plan;
    pare_runner *r;
    const pare_plan_options options = {.threads = 1, .reference = true};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &r, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    const pare_view x = pare_runner_input(r, 0);
    for (int64_t i = 0; i < pare_view_count(&x); i++)
        ((float *)x.data)[i] = (float)(i * 37 % 101) / 25 - 0.5f;
    if (pare_runner_run(r) != PARE_OK) fail_msg("%s", g->ctx.message);
    const pare_view out = pare_runner_output(r, 0);
    const size_t bytes = pare_view_bytes(&out);
    assert_true(bytes > 0 && bytes <= MOST * sizeof(float));
    memcpy(y, out.data, bytes);
    pare_runner_free(r);
    pare_plan_free(plan);
    return bytes;
}

static void the_same_is_computed(void **state)
{
    (void)state;
    static const int orders[][4] = {{0, 2, 1, 3}, {0, 1, 2, 3}, {3, 0, 2, 1}};
    static char apart[MOST * sizeof(float)], joined[MOST * sizeof(float)];
    for (int i = 0; i < 24; i++) {
        graph_case one, two;
        focus_net n = five;
        memcpy(n.order, orders[i % 3], sizeof n.order);
        n.nested = i / 3 % 2, n.int8 = i / 6 % 2;
        n.kernel = i / 12 ? 1 + i % 4 : 3, n.stride = i / 12 ? 1 + i % 2 : 1, n.pad = i % 3;
        net_make(&one, &n);
        net_make(&two, &n);
        assert_true(joins(&two, NULL));
        const size_t bytes = net_run(&one, apart);
        assert_int_equal(net_run(&two, joined), bytes);
        if (n.int8)
            assert_memory_equal(apart, joined, bytes);
        else
            for (size_t k = 0; k < bytes / sizeof(float); k++)
                assert_true(fabsf(((float *)(void *)apart)[k] - ((float *)(void *)joined)[k]) <
                            1e-4f);
        graph_close(&one);
        graph_close(&two);
    }
}

#define STAYS(...)                                                                                 \
    do {                                                                                           \
        graph_case g;                                                                              \
        focus_net n = five;                                                                        \
        __VA_ARGS__;                                                                               \
        net_make(&g, &n);                                                                          \
        assert_false(joins(&g, NULL));                                                             \
        graph_close(&g);                                                                           \
    } while (0)

static void others_stay(void **state)
{
    (void)state;
    graph_case kept;
    STAYS(n.order[1] = 0); /* a pixel twice, another one never */
    STAYS(n.step = 3; n.w = 15);
    STAYS(n.kernel = 5; n.m = 4);
    STAYS(n.dilation = 2);
    STAYS(n.c = 5; n.m = 4);
    STAYS(n.used = true);
    STAYS(n.used = true; n.int8 = true);
    STAYS(n.shown = true);
    static const char *const names[] = {"joined", "p0", "l0"};
    for (int i = 0; i < 3; i++) {
        focus_net n = five;
        n.nested = i == 2;
        net_make(&kept, &n);
        assert_false(joins(&kept, names[i]));
        graph_close(&kept);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_is_computed),
                                       cmocka_unit_test(others_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
