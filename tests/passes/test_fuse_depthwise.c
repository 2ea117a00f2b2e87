/* SPDX-License-Identifier: Apache-2.0 */
/* Which depthwise convolutions take the pointwise one behind them. What they compute is compared in
   cuda/test_depthwise_pointwise.c. */
#include "runtime/ops/depthwise_pointwise.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* A net of the two; a test changes one thing of it. */
typedef struct pair_net {
    pare_dtype type;
    int64_t n, c, m, side, kernel, window, stride, dilation, pad, group;
    const char *activation, *last;
    bool residual, used, shown, computed, real, wide;
} pair_net;

static const pair_net eight = {.type = PARE_s8,
                               .n = 64,
                               .c = 96,
                               .m = 24,
                               .side = 28,
                               .kernel = 3,
                               .window = 1,
                               .stride = 1,
                               .dilation = 1,
                               .pad = 1,
                               .group = 96,
                               .activation = "relu",
                               .last = "none"};

static void constant(graph_case *g, const char *name, pare_dtype type, int rank,
                     const int64_t *dims, double v)
{
    pare_value *made;
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    const pare_type_info *of = pare_type(type);
    char *data = calloc((size_t)count + 1, 8);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        if (type == PARE_s8)
            ((int8_t *)data)[i] = (int8_t)v;
        else
            of->from_f32_ref(data + i * (of->bits / 8), (float)v);
    }
    assert_int_equal(pare_init_new(g->model->graph, &made, name, type, rank, dims, data), PARE_OK);
    free(data);
}

static void attributes(pare_node *node, int64_t stride, int64_t dilation, int64_t pad,
                       int64_t group, const char *activation)
{
    node->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_ints(node, "strides", (int64_t[]){stride, stride}, 2), 0);
    assert_int_equal(pare_node_set_ints(node, "dilations", (int64_t[]){dilation, dilation}, 2), 0);
    assert_int_equal(pare_node_set_ints(node, "pads", (int64_t[]){pad, pad, pad, pad}, 4), 0);
    assert_int_equal(pare_node_set_int(node, "group", group), 0);
    assert_int_equal(pare_node_set_string(node, "activation", activation), 0);
    assert_int_equal(pare_node_set_float(node, "alpha", 0), 0);
    assert_int_equal(pare_node_set_float(node, "beta", 6), 0);
}

static void net_make(graph_case *g, const pair_net *n)
{
    const bool int8 = pare_type(n->type)->bits == 8;
    const pare_dtype weights = int8 ? PARE_s8 : n->type;
    const int64_t d[] = {n->c, n->c / n->group, n->kernel, n->kernel},
                  w[] = {n->m, n->c, n->window, n->window};
    graph_open(g, 17);
    graph_input(g, "x", n->type, 4, (int64_t[]){n->n, n->c, n->side, n->side});
    constant(g, "d", weights, 4, d, 1);
    constant(g, "b", int8 ? PARE_f32 : n->type, 1, d, 0.5);
    if (n->computed)
        graph_input(g, "w", weights, 4, w);
    else
        constant(g, "w", weights, 4, w, 1);
    if (int8) constant(g, "s", PARE_f32, 0, NULL, 0.01);
    const int64_t far = n->dilation * (n->kernel - 1) + 1,
                  side = (n->side + 2 * n->pad - far) / n->stride + 1;
    if (n->residual) graph_input(g, "z", n->type, 4, (int64_t[]){n->n, n->m, side, side});
    pare_node *first = graph_node(g, "FusedConv", int8 ? "x d b - s" : "x d b", "c");
    pare_node *last = graph_node(g, "FusedConv",
                                 n->residual ? (int8 ? "c w - z s" : "c w - z")
                                 : int8      ? "c w - - s"
                                             : "c w",
                                 "y");
    attributes(first, n->stride, n->dilation, n->pad, n->group, n->activation);
    attributes(last, 1, 1, 0, 1, n->last);
    if (int8 && n->type == PARE_u8) assert_int_equal(pare_node_set_int(first, "to", PARE_u8), 0);
    if (n->real) assert_int_equal(pare_node_set_int(last, "to", PARE_f32), 0);
    if (n->wide) assert_int_equal(pare_node_set_int(first, "to", PARE_u8), 0);
    if (n->used) graph_node(g, "Identity", "c", "u");
    if (n->used) graph_output(g, "u");
    if (n->shown) graph_output(g, "c");
    graph_output(g, "y");
}

/* Are both one node behind the pass? Its shape and type stay. */
static bool joins(const pair_net *n, const char *keep)
{
    graph_case g;
    net_make(&g, n);
    const pare_infer_options infer = {.fold = true};
    if (pare_pass_infer(g.model, &infer) != PARE_OK) fail_msg("%s", g.ctx.message);
    const pare_shape before = graph_value(&g, "y")->shape;
    const pare_dtype type = graph_value(&g, "y")->dtype;
    assert_int_equal(pare_pass_fuse_depthwise(g.model, &keep, keep != NULL), PARE_OK);
    const bool joined = graph_count(&g, "FusedDepthwisePointwise") == 1;
    assert_int_equal(graph_count(&g, "FusedConv"), joined ? 0 : 2);
    if (pare_pass_infer(g.model, &infer) != PARE_OK) fail_msg("%s", g.ctx.message);
    assert_true(pare_shape_equal(&before, &graph_value(&g, "y")->shape));
    assert_int_equal(graph_value(&g, "y")->dtype, type);
    graph_close(&g);
    return joined;
}

static void depthwise_takes_pointwise(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
    static const char *const acts[] = {"relu", "clip", "none"};
    for (int i = 0; i < 36; i++) {
        pair_net n = eight;
        n.n = 128, n.side = 56;
        n.type = types[i % 4], n.activation = acts[i / 4 % 3], n.last = acts[i / 12];
        n.residual = i % 5 == 0;
        if (!joins(&n, NULL)) fail_msg("case %d", i);
    }
    pair_net two = eight;
    two.n = 128, two.side = 56, two.stride = 2;
    assert_true(joins(&two, NULL));
    pair_net large = eight; /* Y alone has more than 4 GB */
    large.n = 16384, large.side = 80, large.c = large.group = 16, large.m = 64;
    assert_true(joins(&large, NULL));
}

/* The residual is read in the order of Y: two inputs and the output are turned, and no more. */
static void residuals_are_channels_last(void **state)
{
    (void)state;
    graph_case g;
    pair_net n = eight;
    n.n = 128, n.side = 56, n.residual = true;
    net_make(&g, &n);
    const pare_infer_options infer = {.fold = true};
    assert_int_equal(pare_pass_infer(g.model, &infer), PARE_OK);
    assert_int_equal(pare_pass_fuse_depthwise(g.model, NULL, 0), PARE_OK);
    assert_int_equal(pare_pass_layout(g.model), PARE_OK);
    assert_int_equal(graph_count(&g, "Reorder"), 3);
    for (int i = 0; i < g.model->graph->node_count; i++) {
        const pare_node *node = g.model->graph->node[i];
        if (strcmp(node->op_type, "FusedDepthwisePointwise") != 0) continue;
        assert_true(node->in[0]->nhwc && node->in[3]->nhwc && node->out[0]->nhwc);
    }
    graph_close(&g);
}

#define STAYS(...)                                                                                 \
    do {                                                                                           \
        pair_net n = eight;                                                                        \
        n.n = 128, n.side = 56;                                                                    \
        __VA_ARGS__;                                                                               \
        assert_false(joins(&n, NULL));                                                             \
    } while (0)

static void others_stay_two_nodes(void **state)
{
    (void)state;
    STAYS(n.type = PARE_f32);
    STAYS(n.stride = 3);
    STAYS(n.stride = 2; n.residual = true);
    STAYS(n.dilation = 2);
    STAYS(n.kernel = 5; n.pad = 2);
    STAYS(n.window = 3);
    STAYS(n.pad = 3);
    STAYS(n.group = 48);
    STAYS(n.c = n.group = 88); /* of 8 bits 16 channels are a chunk */
    STAYS(n.m = 12);
    STAYS(n.n = 1 << 14); /* X is larger than 4 GB */
    STAYS(n.activation = "leaky_relu");
    STAYS(n.last = "sigmoid");
    STAYS(n.used = true);
    STAYS(n.shown = true);
    STAYS(n.computed = true);
    STAYS(n.real = true);
    STAYS(n.wide = true); /* what the first makes is of another type */
    pair_net kept = eight;
    kept.n = 128, kept.side = 56;
    assert_false(joins(&kept, "c"));
}

/* Few blocks leave most of the device idle. */
static void few_stay_two_nodes(void **state)
{
    (void)state;
    STAYS(n.n = 1; n.side = 7; n.c = n.group = 960; n.m = 160);
    STAYS(n.n = 1; n.side = 14; n.c = n.group = 384; n.m = 64);
}

/* Attributes and inputs of the node that the pass makes, each wrong once. */
static void wrong_nodes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t v[4];
        int count;
        const char *message;
    } cases[] = {
        {"depthwise_strides", {0, 1}, 2, "stride"},
        {"depthwise_pads", {1, 1, 1}, 3, "pads"},
        {"strides", {0, 1}, 2, "stride"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_case g;
        pair_net n = eight;
        n.n = 128, n.side = 56;
        net_make(&g, &n);
        const pare_infer_options infer = {.fold = true};
        assert_int_equal(pare_pass_infer(g.model, &infer), PARE_OK);
        assert_int_equal(pare_pass_fuse_depthwise(g.model, NULL, 0), PARE_OK);
        assert_int_equal(graph_count(&g, "FusedDepthwisePointwise"), 1);
        assert_int_equal(pare_node_set_ints(graph_value(&g, "y")->producer, cases[i].name,
                                            cases[i].v, cases[i].count),
                         PARE_OK);
        assert_int_equal(pare_pass_infer(g.model, &infer), PARE_INPUT);
        if (!strstr(g.ctx.message, cases[i].message)) fail_msg("case %zu: %s", i, g.ctx.message);
        graph_close(&g);
    }
}

/* Inputs that are not there, or not pictures: the message names them. */
static void wrong_inputs_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *in, *message;
    } cases[] = {
        {"x w - - - - -", "input 5 is missing"},
        {"x - - - - d -", "input 1 is missing"},
        {"l w - - - d -", "input 0, 'l', has rank 3, expected 4"},
        {"x v - - - d -", "input 1, 'v', has rank 3, expected 4"},
        {"x w - - - e -", "input 5, 'e', has rank 3, expected 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_case g;
        const int64_t x[] = {1, 16, 8, 8}, d[] = {16, 1, 3, 3}, w[] = {8, 16, 1, 1};
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f16, 4, x);
        graph_input(&g, "l", PARE_f16, 3, x);
        constant(&g, "d", PARE_f16, 4, d, 1);
        constant(&g, "e", PARE_f16, 3, d, 1);
        constant(&g, "w", PARE_f16, 4, w, 1);
        constant(&g, "v", PARE_f16, 3, w, 1);
        graph_node(&g, "FusedDepthwisePointwise", cases[i].in, "y")->domain = PARE_DOMAIN;
        graph_output(&g, "y");
        const pare_infer_options infer = {.fold = true};
        assert_int_equal(pare_pass_infer(g.model, &infer), PARE_INPUT);
        if (!strstr(g.ctx.message, cases[i].message)) fail_msg("case %zu: %s", i, g.ctx.message);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depthwise_takes_pointwise),   cmocka_unit_test(others_stay_two_nodes),
        cmocka_unit_test(few_stay_two_nodes),          cmocka_unit_test(wrong_nodes_are_refused),
        cmocka_unit_test(residuals_are_channels_last), cmocka_unit_test(wrong_inputs_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
