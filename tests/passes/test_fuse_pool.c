/* SPDX-License-Identifier: Apache-2.0 */
/* Which first convolutions take the MaxPool behind them. What they compute is compared in
   cuda/test_stem_pool.c. */
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* A net of one convolution and one pool; a test changes one thing of it. */
typedef struct pool_net {
    pare_dtype type;
    int64_t x[4], w[4], stride, dilation, pool, pool_stride, pool_dilation, pad, behind;
    int64_t ceil;
    const char *activation;
    float alpha, beta, scale, bias;
    bool residual, indices, used, shown, computed, real;
} pool_net;

static const pool_net eight = {.type = PARE_u8,
                               .x = {2, 3, 21, 30},
                               .w = {32, 3, 7, 7},
                               .stride = 2,
                               .dilation = 1,
                               .pool = 3,
                               .pool_stride = 2,
                               .pool_dilation = 1,
                               .pad = 1,
                               .activation = "relu",
                               .beta = 6,
                               .scale = 0.01f,
                               .bias = 1};

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

static void net_make(graph_case *g, const pool_net *n)
{
    const bool int8 = pare_type(n->type)->bits == 8;
    const int64_t pads[] = {3, 3, 3, 3},
                  pool_pads[] = {n->pad, n->pad, n->pad + n->behind, n->pad + n->behind};
    graph_open(g, 17);
    graph_input(g, "x", n->type, 4, n->x);
    if (n->computed)
        graph_input(g, "w", int8 ? PARE_s8 : n->type, 4, n->w);
    else
        constant(g, "w", int8 ? PARE_s8 : n->type, 4, n->w, 1);
    constant(g, "b", int8 ? PARE_f32 : n->type, 1, n->w, n->bias);
    if (int8) constant(g, "s", PARE_f32, 1, n->w, n->scale);
    const int64_t h = (n->x[2] + 6 - n->dilation * (n->w[2] - 1) - 1) / n->stride + 1,
                  w = (n->x[3] + 6 - n->dilation * (n->w[3] - 1) - 1) / n->stride + 1;
    if (n->residual) graph_input(g, "z", n->type, 4, (int64_t[]){n->x[0], n->w[0], h, w});
    pare_node *conv = graph_node(g, "FusedConv",
                                 n->residual ? (int8 ? "x w b z s" : "x w b z")
                                 : int8      ? "x w b - s"
                                             : "x w b",
                                 "c"),
              *pool = graph_node(g, "MaxPool", "c", n->indices ? "y i" : "y");
    conv->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_ints(conv, "strides", (int64_t[]){n->stride, n->stride}, 2), 0);
    assert_int_equal(
        pare_node_set_ints(conv, "dilations", (int64_t[]){n->dilation, n->dilation}, 2), 0);
    assert_int_equal(pare_node_set_ints(conv, "pads", pads, 4), 0);
    assert_int_equal(pare_node_set_string(conv, "activation", n->activation), 0);
    assert_int_equal(pare_node_set_float(conv, "alpha", n->alpha), 0);
    assert_int_equal(pare_node_set_float(conv, "beta", n->beta), 0);
    if (n->real) assert_int_equal(pare_node_set_int(conv, "to", PARE_f32), 0);
    assert_int_equal(pare_node_set_ints(pool, "kernel_shape", (int64_t[]){n->pool, n->pool}, 2), 0);
    assert_int_equal(
        pare_node_set_ints(pool, "strides", (int64_t[]){n->pool_stride, n->pool_stride}, 2), 0);
    assert_int_equal(
        pare_node_set_ints(pool, "dilations", (int64_t[]){n->pool_dilation, n->pool_dilation}, 2),
        0);
    assert_int_equal(pare_node_set_ints(pool, "pads", pool_pads, 4), 0);
    assert_int_equal(pare_node_set_int(pool, "ceil_mode", n->ceil), 0);
    if (n->used) graph_node(g, "Identity", "c", "u");
    if (n->used) graph_output(g, "u");
    if (n->shown) graph_output(g, "c");
    graph_output(g, "y");
    if (n->indices) graph_output(g, "i");
}

/* Are both one node behind the pass? Then its shape is the pool's. */
static bool joins(const pool_net *n, const char *keep)
{
    graph_case g;
    net_make(&g, n);
    const pare_infer_options infer = {.fold = true};
    if (pare_pass_infer(g.model, &infer) != PARE_OK) fail_msg("%s", g.ctx.message);
    const pare_shape before = graph_value(&g, "y")->shape;
    assert_int_equal(pare_pass_fuse_pool(g.model, &keep, keep != NULL), PARE_OK);
    const bool joined = graph_count(&g, "FusedConvPool") == 1;
    assert_int_equal(graph_count(&g, "MaxPool"), !joined);
    if (pare_pass_infer(g.model, &infer) != PARE_OK) fail_msg("%s", g.ctx.message);
    assert_true(pare_shape_equal(&before, &graph_value(&g, "y")->shape));
    graph_close(&g);
    return joined;
}

static void first_convolutions_take_their_pool(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_f16, PARE_bf16};
    static const char *const acts[] = {"relu", "clip", "none"};
    for (int t = 0; t < 4; t++)
        for (int a = 0; a < 3; a++) {
            pool_net n = eight;
            n.type = types[t];
            n.activation = acts[a];
            assert_int_equal(joins(&n, NULL), t < 2 || a < 2);
        }
    for (int64_t ceil = 0; ceil < 2; ceil++)
        for (int64_t width = 27; width < 33; width++)
            for (int64_t pad = 0; pad < 2; pad++) {
                pool_net n = eight;
                n.x[3] = width, n.ceil = ceil, n.pad = pad, n.pool = 2 + width % 2;
                assert_true(joins(&n, NULL));
            }
}

#define STAYS(...)                                                                                 \
    do {                                                                                           \
        pool_net n = eight;                                                                        \
        __VA_ARGS__;                                                                               \
        assert_false(joins(&n, NULL));                                                             \
    } while (0)

static void others_stay_two_nodes(void **state)
{
    (void)state;
    STAYS(n.type = PARE_f32);
    STAYS(n.stride = 1);
    STAYS(n.dilation = 2);
    STAYS(n.w[0] = 48);
    STAYS(n.w[2] = 9);
    STAYS(n.w[3] = 9);
    STAYS(n.x[1] = n.w[1] = 5);
    STAYS(n.pool = 4);
    STAYS(n.pool = 1; n.pad = 0);
    STAYS(n.pool_stride = 1);
    STAYS(n.pool_dilation = 2);
    STAYS(n.pad = 3; n.pool = 3); /* a window that sees no position */
    STAYS(n.pad = -1);
    STAYS(n.pad = 0; n.behind = -1);
    STAYS(n.activation = "leaky_relu"; n.alpha = 0.1f);
    STAYS(n.activation = "clip"; n.alpha = 7);
    STAYS(n.residual = true);
    STAYS(n.indices = true);
    STAYS(n.used = true);
    STAYS(n.shown = true);
    STAYS(n.computed = true);
    STAYS(n.real = true);
    STAYS(n.scale = -0.01f);
    STAYS(n.scale = NAN);
    STAYS(n.bias = INFINITY);
    STAYS(n.type = PARE_f16; n.bias = -INFINITY);
    STAYS(n.type = PARE_f16; n.activation = "clip"; n.alpha = -1);
    STAYS(n.type = PARE_f16; n.activation = "clip"; n.alpha = -0.0f);
    assert_false(joins(&eight, "c"));
}

/* Attributes of the node that the pass makes, each wrong once. */
static void wrong_pools_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t v[4];
        int count;
        const char *message;
    } cases[] = {
        {"pool_kernel", {3}, 1, "pool_kernel must be 2 numbers from 1 on"},
        {"pool_kernel", {3, 0}, 2, "pool_kernel must be 2 numbers from 1 on"},
        {"pool_kernel", {3, 99}, 2, "a pool's window of 99 does not fit into 15"},
        {"pool_strides", {0, 2}, 2, "pool_strides must be 2 numbers from 1 on"},
        {"pool_pads", {1, 1, 1}, 3, "pool_pads must be 4 numbers from 0 on"},
        {"pool_pads", {1, 1, 1, -1}, 4, "pool_pads must be 4 numbers from 0 on"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_case g;
        net_make(&g, &eight);
        const pare_infer_options infer = {.fold = true};
        assert_int_equal(pare_pass_infer(g.model, &infer), PARE_OK);
        assert_int_equal(pare_pass_fuse_pool(g.model, NULL, 0), PARE_OK);
        assert_int_equal(pare_node_set_ints(graph_value(&g, "y")->producer, cases[i].name,
                                            cases[i].v, cases[i].count),
                         PARE_OK);
        assert_int_equal(pare_pass_infer(g.model, &infer), PARE_INPUT);
        if (!strstr(g.ctx.message, cases[i].message)) fail_msg("case %zu: %s", i, g.ctx.message);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_convolutions_take_their_pool),
                                       cmocka_unit_test(others_stay_two_nodes),
                                       cmocka_unit_test(wrong_pools_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
