/* SPDX-License-Identifier: Apache-2.0 */
/* What falls together, what stays and why, and costs: by hand on small graphs. */
#include "tests/prune/prune_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const int64_t picture[] = {1, 3, 4, 4};

static void open_picture(graph_case *g)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 4, picture);
}

static void batch_norm(graph_case *g, const char *in, const char *out, int64_t c)
{
    char name[4][32], inputs[160];
    const char *part[] = {"gamma", "beta", "mean", "var"};
    for (int i = 0; i < 4; i++) {
        snprintf(name[i], sizeof name[i], "%s_%s", part[i], out);
        pare_value *v = PRUNE_WEIGHT(g, name[i], c);
        for (int64_t k = 0; i == 3 && k < c; k++) ((float *)v->data->data)[k] += 2;
    }
    snprintf(inputs, sizeof inputs, "%s %s %s %s %s", in, name[0], name[1], name[2], name[3]);
    graph_node(g, "BatchNormalization", inputs, out);
}

/* conv1 [8, 3, 3, 3], BatchNormalization, Relu, conv2 [5, 8, 1, 1]: one group of 8. */
static void chain(graph_case *g)
{
    open_picture(g);
    prune_conv(g, "x", "a", 3, 8, 3, 1);
    batch_norm(g, "a", "b", 8);
    graph_node(g, "Relu", "b", "c");
    prune_conv(g, "c", "y", 8, 5, 1, 1);
    graph_output(g, "y");
}

static void a_chain_is_one_group(void **state)
{
    (void)state;
    graph_case g;
    chain(&g);
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->group_count, 1);
    assert_int_equal(groups->coupled_count, 8);
    assert_int_equal(groups->group[0].count, 8);
    assert_int_equal(groups->group[0].parts, 1);
    assert_string_equal(groups->group[0].name, "a");
    /* w_a, four of BatchNormalization, w_y; a, b, c */
    assert_int_equal(groups->group[0].slot_count, 9);
    assert_int_equal(groups->coupled[0].channel_count, 9);
    for (int64_t i = 0; i < 8; i++) {
        int c = prune_coupled(&g, groups, "w_a", 0, i);
        assert_true(c >= 0);
        assert_int_equal(prune_coupled(&g, groups, "gamma_b", 0, i), c);
        assert_int_equal(prune_coupled(&g, groups, "var_b", 0, i), c);
        assert_int_equal(prune_coupled(&g, groups, "c", 1, i), c);
        assert_int_equal(prune_coupled(&g, groups, "w_y", 1, i), c);
    }
    assert_string_equal(prune_why(&g, groups, "w_a", 1, 0), "is an input of the model");
    assert_string_equal(prune_why(&g, groups, "w_y", 0, 4), "is an output of the model");
    assert_string_equal(prune_why(&g, groups, "w_a", 2, 1), "is as wide as its window");
    int slot = pare_groups_axis(groups, graph_value(&g, "w_y"), 1, 1);
    assert_int_equal(groups->slot[slot].role, PARE_AXIS_READS);
    slot = pare_groups_axis(groups, graph_value(&g, "gamma_b"), 0, 1);
    assert_int_equal(groups->slot[slot].role, PARE_AXIS_MAKES);
    pare_groups_free(groups);
    graph_close(&g);
}

/* 16 pixels: 8 * 27 * 16 + 5 * 8 * 16 multiply-adds; 216 + 32 + 40 parameters. */
static void costs_follow_the_kept_counts(void **state)
{
    (void)state;
    graph_case g;
    pare_prune_plan *r;
    pare_shape shape;
    chain(&g);
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(pare_prune_plan_new(&g.ctx, &r, groups), PARE_OK);
    assert_true(r->cost.macs == 8 * 27 * 16 + 5 * 8 * 16);
    assert_true(r->cost.params == 216 + 32 + 40);
    assert_true(r->cost.bytes == 4 * (216 + 32 + 40));
    prune_take(&g, r, "w_a", 0, 3, (int64_t[]){0, 3, 7});
    assert_true(r->cost.macs == 5 * 27 * 16 + 5 * 5 * 16);
    assert_true(r->cost.params == 5 * 27 + 5 * 4 + 5 * 5);
    assert_true(pare_prune_plan_macs(r, graph_value(&g, "y")->producer) == 5 * 5 * 16);
    assert_int_equal(pare_prune_plan_shape(r, graph_value(&g, "w_y"), &shape), PARE_OK);
    assert_int_equal(shape.dim[0], 5);
    assert_int_equal(shape.dim[1], 5);
    /* at least two stay, and at least one whatever is asked */
    prune_take(&g, r, "w_a", 0, 2, (int64_t[]){1, 2});
    assert_true(pare_prune_plan_add(r, prune_coupled(&g, groups, "w_a", 0, 4), 2));
    assert_false(pare_prune_plan_add(r, prune_coupled(&g, groups, "w_a", 0, 5), 2));
    assert_true(pare_prune_plan_add(r, prune_coupled(&g, groups, "w_a", 0, 5), 0));
    assert_false(pare_prune_plan_add(r, prune_coupled(&g, groups, "w_a", 0, 6), 0));
    assert_int_equal(r->count, 7);
    for (int c = 0; c < groups->coupled_count; c++) pare_prune_plan_drop(r, c);
    assert_int_equal(r->count, 0);
    assert_true(r->cost.macs == 8 * 27 * 16 + 5 * 8 * 16);
    pare_prune_plan_free(r);
    pare_groups_free(groups);
    graph_close(&g);
}

/* a and b are added: they fall together; what leads to b alone does not. */
static void an_addition_ties(void **state)
{
    (void)state;
    graph_case g;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 6, 1, 1);
    prune_conv(&g, "a", "b", 6, 4, 1, 1);
    prune_conv(&g, "b", "c", 4, 6, 1, 1);
    graph_node(&g, "Add", "a c", "d");
    prune_conv(&g, "d", "y", 6, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->group_count, 2);
    for (int64_t i = 0; i < 6; i++) {
        int c = prune_coupled(&g, groups, "w_a", 0, i);
        assert_int_equal(prune_coupled(&g, groups, "w_c", 0, i), c);
        assert_int_equal(prune_coupled(&g, groups, "w_b", 1, i), c);
        assert_int_equal(prune_coupled(&g, groups, "w_y", 1, i), c);
    }
    assert_int_not_equal(prune_coupled(&g, groups, "w_b", 0, 0),
                         prune_coupled(&g, groups, "w_a", 0, 0));
    pare_groups_free(groups);
    graph_close(&g);
}

/* Concat: channel i of b is channel 4 + i of the joined axis. Split hands the halves on. */
static void joins_and_splits_shift(void **state)
{
    (void)state;
    graph_case g;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    prune_conv(&g, "x", "b", 3, 6, 1, 1);
    assert_int_equal(pare_node_set_int(graph_node(&g, "Concat", "a b", "c"), "axis", 1), PARE_OK);
    PRUNE_INTS(&g, "sizes", 7, 3);
    assert_int_equal(pare_node_set_int(graph_node(&g, "Split", "c sizes", "d e"), "axis", 1),
                     PARE_OK);
    prune_conv(&g, "d", "f", 7, 2, 1, 1);
    prune_conv(&g, "e", "h", 3, 2, 1, 1);
    graph_node(&g, "Add", "f h", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    /* channels of a; of b that go to d; of b that go to e */
    assert_int_equal(groups->group_count, 3);
    for (int64_t i = 0; i < 4; i++)
        assert_int_equal(prune_coupled(&g, groups, "w_a", 0, i),
                         prune_coupled(&g, groups, "w_f", 1, i));
    for (int64_t i = 0; i < 6; i++) {
        int c = prune_coupled(&g, groups, "w_b", 0, i);
        assert_int_equal(prune_coupled(&g, groups, "c", 1, 4 + i), c);
        assert_int_equal(i < 3 ? prune_coupled(&g, groups, "w_f", 1, 4 + i)
                               : prune_coupled(&g, groups, "w_h", 1, i - 3),
                         c);
    }
    pare_groups_free(groups);
    graph_close(&g);
}

/* A flattened picture: 16 rows of the matrix to a channel. */
static void flattened_pixels_go_with_their_channel(void **state)
{
    (void)state;
    graph_case g;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 5, 1, 1);
    graph_node(&g, "Flatten", "a", "b");
    PRUNE_WEIGHT(&g, "w", 80, 7);
    graph_node(&g, "Gemm", "b w", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->coupled_count, 5);
    for (int64_t i = 0; i < 80; i++)
        assert_int_equal(prune_coupled(&g, groups, "w", 0, i),
                         prune_coupled(&g, groups, "w_a", 0, i / 16));
    pare_groups_free(groups);
    graph_close(&g);
}

/* Channels last: the flattened index counts channels fastest, and the picture's sides cannot go. */
static void flattened_channels_may_be_inner(void **state)
{
    (void)state;
    graph_case g;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 5, 1, 1);
    assert_int_equal(pare_node_set_ints(graph_node(&g, "Transpose", "a", "b"), "perm",
                                        (const int64_t[]){0, 2, 3, 1}, 4),
                     PARE_OK);
    PRUNE_INTS(&g, "shape", 1, -1);
    graph_node(&g, "Reshape", "b shape", "c");
    PRUNE_WEIGHT(&g, "w", 80, 7);
    graph_node(&g, "MatMul", "c w", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->coupled_count, 5);
    for (int64_t i = 0; i < 80; i++)
        assert_int_equal(prune_coupled(&g, groups, "w", 0, i),
                         prune_coupled(&g, groups, "w_a", 0, i % 5));
    pare_groups_free(groups);
    graph_close(&g);
}

static void perm(pare_node *node, int64_t a, int64_t b, int64_t c, int64_t d)
{
    assert_int_equal(pare_node_set_ints(node, "perm", (const int64_t[]){a, b, c, d}, 4), PARE_OK);
}

/* x [1, 6, 8]; three heads of 4: q, k, v = x W reshaped [1, 6, 3, 4], scores over q k, out W. */
static void attention(graph_case *g)
{
    const char *const part[] = {"q", "k", "v"};
    char name[5][32], inputs[80];
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 3, (const int64_t[]){1, 6, 8});
    PRUNE_INTS(g, "apart", 0, 0, 3, 4);
    PRUNE_INTS(g, "together", 0, 0, 12);
    for (int i = 0; i < 3; i++) {
        snprintf(name[0], sizeof name[0], "w%s", part[i]);
        snprintf(name[1], sizeof name[1], "b%s", part[i]);
        snprintf(name[2], sizeof name[2], "%s1", part[i]);
        snprintf(name[3], sizeof name[3], "%s2", part[i]);
        snprintf(name[4], sizeof name[4], "%s3", part[i]);
        PRUNE_WEIGHT(g, name[0], 8, 12);
        PRUNE_WEIGHT(g, name[1], 12);
        snprintf(inputs, sizeof inputs, "x %s", name[0]);
        graph_node(g, "MatMul", inputs, name[2]);
        snprintf(inputs, sizeof inputs, "%s %s", name[2], name[1]);
        graph_node(g, "Add", inputs, name[3]);
        snprintf(inputs, sizeof inputs, "%s apart", name[3]);
        graph_node(g, "Reshape", inputs, name[4]);
        bool key = i == 1;
        perm(graph_node(g, "Transpose", name[4], part[i]), 0, 2, key ? 3 : 1, key ? 1 : 3);
    }
    graph_node(g, "MatMul", "q k", "scores");
    graph_node(g, "Softmax", "scores", "weights");
    graph_node(g, "MatMul", "weights v", "o");
    perm(graph_node(g, "Transpose", "o", "p"), 0, 2, 1, 3);
    graph_node(g, "Reshape", "p together", "r");
    PRUNE_WEIGHT(g, "wo", 12, 8);
    graph_node(g, "MatMul", "r wo", "s");
    graph_node(g, "Add", "s x", "y");
    graph_output(g, "y");
}

static void heads_leave_whole(void **state)
{
    (void)state;
    graph_case g;
    attention(&g);
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->group_count, 1);
    assert_int_equal(groups->coupled_count, 3);
    for (int64_t i = 0; i < 12; i++) {
        int head = prune_coupled(&g, groups, "scores", 1, i / 4);
        assert_true(head >= 0);
        assert_int_equal(prune_coupled(&g, groups, "wq", 1, i), head);
        assert_int_equal(prune_coupled(&g, groups, "bk", 0, i), head);
        assert_int_equal(prune_coupled(&g, groups, "wv", 1, i), head);
        assert_int_equal(prune_coupled(&g, groups, "wo", 0, i), head);
    }
    assert_string_equal(prune_why(&g, groups, "k", 2, 0),
                        "sums over it between two activations, so that no weight reads it");
    pare_prune_plan *r;
    assert_int_equal(pare_prune_plan_new(&g.ctx, &r, groups), PARE_OK);
    /* 4 products of x or r with 8 x 12, two of 3 heads: 6 x 6 x 4 */
    assert_true(r->cost.macs == 4 * 6 * 8 * 12 + 2 * 3 * 6 * 6 * 4);
    prune_take(&g, r, "wq", 1, 1, (int64_t[]){5});
    assert_true(r->cost.macs == 4 * 6 * 8 * 8 + 2 * 2 * 6 * 6 * 4);
    pare_model *smaller = prune_compare(&g, r, 3, (const int64_t[]){1, 6, 8}, 48);
    const pare_value *apart = pare_graph_find_own(smaller->graph, "q3")->producer->in[1];
    assert_int_equal(((const int64_t *)apart->data->data)[2], 2);
    assert_int_equal(((const int64_t *)apart->data->data)[3], 4);
    pare_model_free(smaller);
    pare_prune_plan_free(r);
    pare_groups_free(groups);
    graph_close(&g);
}

/* Two groups of 4 channels on both sides of a convolution: equally many must leave each. */
static void groups_of_a_convolution_are_parts(void **state)
{
    (void)state;
    graph_case g;
    pare_prune_plan *r;
    pare_model *never;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 8, 1, 1);
    prune_conv(&g, "a", "b", 8, 6, 3, 2);
    prune_conv(&g, "b", "y", 6, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->group_count, 2);
    assert_int_equal(groups->group[0].parts, 2);
    assert_int_equal(groups->group[1].parts, 2);
    for (int64_t i = 0; i < 8; i++) {
        int c = prune_coupled(&g, groups, "w_a", 0, i);
        assert_int_equal(groups->coupled[c].part, i / 4);
        assert_int_equal(prune_coupled(&g, groups, "w_b", 1, i), c);
    }
    assert_int_equal(pare_prune_plan_new(&g.ctx, &r, groups), PARE_OK);
    assert_true(r->cost.macs == 16 * (3 * 8 + 6 * 4 * 9 + 2 * 6));
    prune_take(&g, r, "w_a", 0, 1, (int64_t[]){1});
    assert_int_equal(pare_prune_remove(&g.ctx, &never, r), PARE_INPUT);
    assert_non_null(
        strstr(g.ctx.message, "group 'a' loses 1 channels in its part 0 and 0 in part 1"));
    prune_take(&g, r, "w_a", 0, 1, (int64_t[]){7});
    prune_take(&g, r, "w_b", 0, 2, (int64_t[]){0, 5});
    assert_true(r->cost.macs == 16 * (3 * 6 + 4 * 3 * 9 + 2 * 4));
    /* each part keeps one of its four */
    prune_take(&g, r, "w_a", 0, 2, (int64_t[]){0, 2});
    assert_false(pare_prune_plan_add(r, prune_coupled(&g, groups, "w_a", 0, 3), 0));
    for (int64_t i = 0; i < 3; i += 2)
        pare_prune_plan_drop(r, prune_coupled(&g, groups, "w_a", 0, i));
    pare_model *smaller = prune_compare(&g, r, 4, picture, 32);
    const pare_shape *w = &pare_graph_find_own(smaller->graph, "w_b")->shape;
    assert_int_equal(w->dim[0], 4);
    assert_int_equal(w->dim[1], 3);
    pare_model_free(smaller);
    pare_prune_plan_free(r);
    pare_groups_free(groups);
    graph_close(&g);
}

/* The groups' channels come from two convolutions: then the same places of both groups go. */
static void mixed_groups_are_tied(void **state)
{
    (void)state;
    graph_case g;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    prune_conv(&g, "x", "b", 3, 4, 1, 1);
    assert_int_equal(pare_node_set_int(graph_node(&g, "Concat", "a b", "c"), "axis", 1), PARE_OK);
    prune_conv(&g, "c", "d", 8, 6, 1, 2);
    prune_conv(&g, "d", "y", 6, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    for (int64_t i = 0; i < 4; i++)
        assert_int_equal(prune_coupled(&g, groups, "w_a", 0, i),
                         prune_coupled(&g, groups, "w_b", 0, i));
    for (int i = 0; i < groups->group_count; i++) assert_int_equal(groups->group[i].parts, 1);
    assert_int_equal(groups->coupled_count, 4 + 3);
    pare_groups_free(groups);
    graph_close(&g);
}

/* A depthwise convolution with two outputs a channel, and its groups afterwards. */
static void depthwise_channels_fall_together(void **state)
{
    (void)state;
    graph_case g;
    pare_prune_plan *r;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    prune_conv(&g, "a", "b", 4, 8, 3, 4);
    prune_conv(&g, "b", "y", 8, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->group_count, 1);
    for (int64_t i = 0; i < 8; i++)
        assert_int_equal(prune_coupled(&g, groups, "w_b", 0, i),
                         prune_coupled(&g, groups, "w_a", 0, i / 2));
    assert_int_equal(pare_prune_plan_new(&g.ctx, &r, groups), PARE_OK);
    prune_take(&g, r, "w_a", 0, 1, (int64_t[]){2});
    pare_model *smaller = prune_compare(&g, r, 4, picture, 32);
    const pare_value *b = pare_graph_find_own(smaller->graph, "b");
    assert_int_equal(pare_node_int(b->producer, "group", 0), 3);
    assert_int_equal(b->shape.dim[1], 6);
    pare_model_free(smaller);
    pare_prune_plan_free(r);
    pare_groups_free(groups);
    graph_close(&g);
}

/* One weight, two convolutions: the inputs of both fall together, and so do the outputs. */
static void a_shared_weight_binds_its_users(void **state)
{
    (void)state;
    graph_case g;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    prune_conv(&g, "x", "b", 3, 4, 1, 1);
    prune_conv(&g, "a", "c", 4, 5, 1, 1);
    graph_node(&g, "Conv", "b w_c", "d");
    prune_conv(&g, "c", "e", 5, 2, 1, 1);
    prune_conv(&g, "d", "f", 5, 2, 1, 1);
    graph_node(&g, "Add", "e f", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(prune_coupled(&g, groups, "w_a", 0, 3),
                     prune_coupled(&g, groups, "w_b", 0, 3));
    assert_int_equal(prune_coupled(&g, groups, "w_e", 1, 2),
                     prune_coupled(&g, groups, "w_f", 1, 2));
    assert_int_equal(groups->coupled_count, 4 + 5);
    pare_groups_free(groups);
    graph_close(&g);
}

/* --- what stays --- */

static bool keeps_a(void *user, const pare_node *node)
{
    (void)user;
    return !strcmp(node->name, "a");
}

static void what_is_kept_says_so(void **state)
{
    (void)state;
    graph_case g;
    const pare_groups_options keep = {.keep = keeps_a}, outputs = {.outputs = true};
    chain(&g);
    pare_groups *groups = prune_groups(&g, &keep);
    assert_int_equal(groups->group_count, 0);
    assert_string_equal(prune_why(&g, groups, "w_y", 1, 0), "is kept as asked");
    pare_groups_free(groups);
    groups = prune_groups(&g, &outputs);
    assert_int_equal(groups->group_count, 2);
    assert_int_equal(prune_coupled(&g, groups, "w_y", 0, 4), prune_coupled(&g, groups, "y", 1, 4));
    pare_groups_free(groups);
    graph_close(&g);
}

static void unknown_operators_stop(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 3, (const int64_t[]){6, 1, 4});
    PRUNE_WEIGHT(&g, "w1", 4, 5);
    graph_node(&g, "MatMul", "x w1", "a");
    PRUNE_WEIGHT(&g, "w", 1, 12, 5);
    PRUNE_WEIGHT(&g, "r", 1, 12, 3);
    graph_node(&g, "NoSuchOperator", "a w r", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->group_count, 0);
    assert_string_equal(prune_why(&g, groups, "w", 1, 0),
                        "is an operator without a rule for pruning");
    assert_string_equal(prune_why(&g, groups, "w1", 1, 0),
                        "is an operator without a rule for pruning");
    pare_groups_free(groups);
    graph_close(&g);
}

static void nested_graphs_stop_what_they_touch(void **state)
{
    (void)state;
    graph_case g;
    pare_graph *body;
    pare_value *out;
    open_picture(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    prune_conv(&g, "a", "b", 4, 5, 1, 1);
    PRUNE_INTS(&g, "flag", 1);
    pare_node *node = graph_node(&g, "If", "flag", "c");
    assert_int_equal(pare_graph_new(g.model, &body, g.model->graph), PARE_OK);
    assert_int_equal(pare_value_new(body, &out, "inside"), PARE_OK);
    pare_value *b = graph_value(&g, "b");
    assert_int_equal(pare_node_new(body, NULL, 0, "Relu", "", "inner", &b, 1, &out, 1), PARE_OK);
    assert_int_equal(pare_values_add(body, &body->out, out), PARE_OK);
    const char *const branches[] = {"then_branch", "else_branch"};
    for (int i = 0; i < 2; i++) {
        const pare_attr branch = {.name = branches[i], .kind = PARE_ATTR_GRAPH, .graph = body};
        assert_int_equal(pare_node_set_attr(node, &branch), PARE_OK);
    }
    prune_conv(&g, "b", "d", 5, 2, 1, 1);
    graph_output(&g, "d");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(groups->group_count, 1);
    assert_true(prune_coupled(&g, groups, "w_a", 0, 0) >= 0);
    assert_string_equal(prune_why(&g, groups, "w_b", 0, 0), "is read inside a nested graph");
    pare_groups_free(groups);
    graph_close(&g);
}

static void a_quantized_model_is_refused(void **state)
{
    (void)state;
    graph_case g;
    open_picture(&g);
    graph_floats(&g, "s", 0, NULL, (const float[]){0.1f});
    pare_value *zero;
    assert_int_equal(pare_init_new(g.model->graph, &zero, "z", PARE_s8, 0, NULL, &(int8_t){0}),
                     PARE_OK);
    graph_node(&g, "QuantizeLinear", "x s z", "q");
    graph_node(&g, "DequantizeLinear", "q s z", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_prune_prepare(&g.ctx, g.model), PARE_INPUT);
    assert_non_null(strstr(g.ctx.message, "prune the float model first, then quantize"));
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_one_group),
        cmocka_unit_test(costs_follow_the_kept_counts),
        cmocka_unit_test(an_addition_ties),
        cmocka_unit_test(joins_and_splits_shift),
        cmocka_unit_test(flattened_pixels_go_with_their_channel),
        cmocka_unit_test(flattened_channels_may_be_inner),
        cmocka_unit_test(heads_leave_whole),
        cmocka_unit_test(groups_of_a_convolution_are_parts),
        cmocka_unit_test(mixed_groups_are_tied),
        cmocka_unit_test(depthwise_channels_fall_together),
        cmocka_unit_test(a_shared_weight_binds_its_users),
        cmocka_unit_test(what_is_kept_says_so),
        cmocka_unit_test(unknown_operators_stop),
        cmocka_unit_test(nested_graphs_stop_what_they_touch),
        cmocka_unit_test(a_quantized_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
