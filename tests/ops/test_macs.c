/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply-adds of a node by values computed by hand, and pruning's costs of a dense model held to
   the same number. */
#include "runtime/ops/infer.h"
#include "runtime/ops/ops.h"
#include "tests/prune/prune_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct row {
    const char *op, *domain;
    int in_count;
    int64_t in[6][6]; /* rank, dims; rank 0: absent */
    int64_t out[6];
    const char *attr; /* set to 1, or NULL */
    double macs;
} row;

static const row rows[] = {
    /* 16 x 8 x 8 outputs, 3 x 3 x 3 each */
    {"Conv", "", 2, {{4, 1, 3, 8, 8}, {4, 16, 3, 3, 3}}, {4, 1, 16, 8, 8}, NULL, 1024 * 27},
    /* 4 groups: 12 x 3 x 3 outputs, 2 x 3 x 3 each */
    {"Conv", "", 2, {{4, 1, 8, 5, 5}, {4, 12, 2, 3, 3}}, {4, 1, 12, 3, 3}, NULL, 108 * 18},
    {"FusedConv", "pare", 2, {{4, 1, 8, 5, 5}, {4, 12, 2, 3, 3}}, {4, 1, 12, 3, 3}, NULL, 108 * 18},
    /* 1 x 8 x 8 positions of 16 filters ahead of the pool */
    {"FusedConvPool",
     "pare",
     2,
     {{4, 1, 3, 10, 10}, {4, 16, 3, 3, 3}},
     {4, 1, 16, 4, 4},
     NULL,
     1024 * 27},
    /* 16 x 4 x 4 positions of 3 x 3 taps, and of each 24 filters */
    {"FusedDepthwisePointwise",
     "pare",
     6,
     {{4, 1, 16, 4, 4}, {4, 24, 16, 1, 1}, {0}, {0}, {0}, {4, 16, 1, 3, 3}},
     {4, 1, 24, 4, 4},
     NULL,
     16 * 16 * 9 + 16 * 16 * 24},
    {"ConvInteger", "", 2, {{3, 2, 1, 6}, {3, 4, 1, 3}}, {3, 2, 4, 4}, NULL, 32 * 3},
    {"QLinearConv",
     "",
     4,
     {{3, 2, 1, 6}, {1, 1}, {1, 1}, {3, 4, 1, 3}},
     {3, 2, 4, 4},
     NULL,
     32 * 3},
    /* stride 2: 8 x 4 x 4 inputs, 5 x 3 x 3 each, whatever the output's size */
    {"ConvTranspose", "", 2, {{4, 1, 8, 4, 4}, {4, 8, 5, 3, 3}}, {4, 1, 5, 9, 9}, NULL, 128 * 45},
    /* 2 groups of 3 outputs: 8 x 4 x 4 inputs, 3 x 2 x 2 each */
    {"ConvTranspose", "", 2, {{4, 1, 8, 4, 4}, {4, 8, 3, 2, 2}}, {4, 1, 6, 8, 8}, NULL, 128 * 12},
    {"Gemm", "", 2, {{2, 2, 5}, {2, 5, 7}}, {2, 2, 7}, NULL, 14 * 5},
    {"Gemm", "", 2, {{2, 5, 2}, {2, 5, 7}}, {2, 2, 7}, "transA", 14 * 5},
    {"FusedMatMul", "pare", 2, {{2, 5, 2}, {2, 7, 5}}, {2, 2, 7}, "transA", 14 * 5},
    {"MatMul", "", 2, {{3, 2, 3, 4}, {3, 2, 4, 5}}, {3, 2, 3, 5}, NULL, 30 * 4},
    {"MatMul", "", 2, {{1, 4}, {2, 4, 5}}, {1, 5}, NULL, 5 * 4},
    {"MatMulInteger", "", 2, {{2, 3, 4}, {2, 4, 5}}, {2, 3, 5}, NULL, 15 * 4},
    {"QLinearMatMul", "", 4, {{2, 3, 4}, {1, 1}, {1, 1}, {2, 4, 5}}, {2, 3, 5}, NULL, 15 * 4},
    /* 2 heads: 6 x 9 scores of 4, 6 x 3 sums of 9 */
    {"FusedAttention",
     "pare",
     3,
     {{4, 1, 2, 6, 4}, {4, 1, 2, 9, 4}, {4, 1, 2, 9, 3}},
     {4, 1, 2, 6, 3},
     NULL,
     108 * 4 + 36 * 9},
    {"Relu", "", 1, {{2, 3, 4}}, {2, 3, 4}, NULL, 0},
    {"MatMul", "", 2, {{2, -1, 4}, {2, 4, 5}}, {2, -1, 5}, NULL, -1},
    {"Conv", "", 2, {{4, 1, 3, 8, 8}, {4, 16, -1, 3, 3}}, {4, 1, 16, 8, 8}, NULL, -1},
};

static void every_form_counts_as_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        graph_case g;
        char names[32] = "";
        graph_open(&g, 17);
        for (int k = 0; k < r->in_count; k++) {
            const char name[] = {(char)('a' + k), 0};
            graph_input(&g, name, PARE_f32, (int)r->in[k][0], r->in[k] + 1);
            snprintf(names + 2 * k, sizeof names - 2 * (size_t)k, "%s ", name);
        }
        pare_node *node = graph_node(&g, r->op, names, "y");
        node->domain = r->domain;
        pare_shape shape = {.rank = (int)r->out[0]};
        for (int d = 0; d < shape.rank; d++) shape.dim[d] = r->out[d + 1];
        pare_value_set_type(graph_value(&g, "y"), PARE_f32, &shape);
        if (r->attr) assert_int_equal(pare_node_set_int(node, r->attr, 1), PARE_OK);
        double got = pare_node_macs(node);
        if (got != r->macs) fail_msg("row %zu, %s: %g, expected %g", i, r->op, got, r->macs);
        graph_close(&g);
    }
}

/* 6 x 9 scores of 4 and 6 x 3 sums of 9 for 2 heads, wherever the axis of these is. */
static void heads_may_come_behind_the_sequence(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        graph_case g;
        int64_t axes[4], dims[4][4] = {{1, 2, 6, 4}, {1, 2, 9, 4}, {1, 2, 9, 3}, {1, 2, 6, 3}};
        for (int k = 0; k < 4; k++) {
            const int64_t length = dims[k][2];
            axes[k] = 1 + (i >> k & 1);
            dims[k][axes[k]] = 2;
            dims[k][3 - axes[k]] = length;
        }
        graph_open(&g, 17);
        graph_input(&g, "a", PARE_f32, 4, dims[0]);
        graph_input(&g, "b", PARE_f32, 4, dims[1]);
        graph_input(&g, "c", PARE_f32, 4, dims[2]);
        pare_node *node = graph_node(&g, "FusedAttention", "a b c", "y");
        node->domain = PARE_DOMAIN;
        assert_int_equal(pare_node_set_ints(node, "head_axes", axes, 4), PARE_OK);
        assert_int_equal(pare_infer_attention(node), PARE_OK);
        const pare_shape *y = &graph_value(&g, "y")->shape;
        assert_int_equal(y->rank, 4);
        for (int d = 0; d < 4; d++) assert_int_equal(y->dim[d], dims[3][d]);
        assert_true(pare_node_macs(node) == 108 * 4 + 36 * 9);
        graph_close(&g);
    }
}

/* 9 x 9 scores of 4 and 9 x 4 sums of 9 for 2 heads of a product of three parts. */
static void parts_of_a_product_count_once(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "a", PARE_f32, 5, (int64_t[]){1, 9, 3, 2, 4});
    pare_node *node = graph_node(&g, "FusedAttention", "a a a", "y");
    node->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_ints(node, "parts", (int64_t[]){0, 1, 2}, 3), PARE_OK);
    assert_int_equal(pare_infer_attention(node), PARE_OK);
    const pare_shape wanted = {.rank = 4, .dim = {1, 2, 9, 4}};
    assert_true(pare_shape_equal(&graph_value(&g, "y")->shape, &wanted));
    assert_true(pare_node_macs(node) == 2 * 9 * 9 * 4 * 2);
    assert_int_equal(pare_node_set_ints(node, "parts", (int64_t[]){0, 1, 3}, 3), PARE_OK);
    assert_int_equal(pare_infer_attention(node), PARE_INPUT);
    graph_close(&g);
}

static void einsum_multiplies_over_all_labels(void **state)
{
    static const struct {
        const char *equation, *in;
        double macs;
    } einsum[] = {{"bij,jk->bik", "a b", 2 * 3 * 4 * 5},
                  {"bij,jk,k->b", "a b c", 2. * 2 * 3 * 4 * 5},
                  {"bij->ji", "a", 0}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        graph_case g;
        graph_open(&g, 17);
        graph_input(&g, "a", PARE_f32, 3, (int64_t[]){2, 3, 4});
        graph_input(&g, "b", PARE_f32, 2, (int64_t[]){4, 5});
        graph_input(&g, "c", PARE_f32, 1, (int64_t[]){5});
        pare_node *node = graph_node(&g, "Einsum", einsum[i].in, "y");
        assert_int_equal(pare_node_set_string(node, "equation", einsum[i].equation), PARE_OK);
        assert_true(pare_node_macs(node) == einsum[i].macs);
        graph_close(&g);
    }
}

/* Pruning counts in products of kept channels: with all of them the number is the same. */
static void pruning_counts_the_same(void **state)
{
    (void)state;
    graph_case g;
    pare_prune_plan *r;
    double sum = 0;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){1, 3, 8, 8});
    prune_conv(&g, "x", "a", 3, 8, 3, 1);
    prune_conv(&g, "a", "b", 8, 8, 3, 8);
    prune_conv(&g, "b", "c", 8, 12, 3, 2);
    PRUNE_WEIGHT(&g, "w_t", 12, 5, 2, 2);
    pare_node *t = graph_node(&g, "ConvTranspose", "c w_t", "t");
    assert_int_equal(pare_node_set_ints(t, "strides", (int64_t[]){2, 2}, 2), PARE_OK);
    assert_int_equal(pare_node_set_int(t, "group", 2), PARE_OK);
    graph_node(&g, "GlobalAveragePool", "t", "p");
    graph_node(&g, "Flatten", "p", "f");
    PRUNE_WEIGHT(&g, "w_m", 10, 9);
    graph_node(&g, "MatMul", "f w_m", "m");
    PRUNE_WEIGHT(&g, "w_y", 9, 7);
    graph_node(&g, "Gemm", "m w_y", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(pare_prune_plan_new(&g.ctx, &r, groups), PARE_OK);
    const pare_graph *sized = groups->model->graph;
    const double by_hand[] = {8 * 64 * 27, 8 * 64 * 9, 12 * 64 * 36, 12 * 64 * 20, 90, 63};
    int n = 0;
    for (int i = 0; i < sized->node_count; i++) {
        double macs = pare_prune_plan_macs(r, sized->node[i]);
        sum += macs;
        if (macs > 0) assert_true(macs == by_hand[n++]);
    }
    assert_int_equal(n, 6);
    assert_true(r->cost.macs == sum);
    pare_prune_plan_free(r);
    pare_groups_free(groups);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_counts_as_by_hand),
        cmocka_unit_test(heads_may_come_behind_the_sequence),
        cmocka_unit_test(parts_of_a_product_count_once),
        cmocka_unit_test(einsum_multiplies_over_all_labels),
        cmocka_unit_test(pruning_counts_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
