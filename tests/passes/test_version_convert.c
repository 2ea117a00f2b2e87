/* SPDX-License-Identifier: Apache-2.0 */
/* Lifting: older forms give the values their own version defines, worked out by hand. */
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void lift(graph_case *g, int64_t version)
{
    if (pare_pass_version_convert(g->model, version) != PARE_OK) fail_msg("%s", g->ctx.message);
}

static int64_t opset(const graph_case *g) { return pare_model_opset(g->model, ""); }

/* Softmax 11 with axis 1 normalizes all 6 numbers of a sample together. */
static void softmax_flattens(int64_t batch)
{
    graph_case g;
    graph_open(&g, 11);
    graph_input(&g, "x", PARE_f32, 3, (int64_t[]){batch, 3, 2});
    graph_node(&g, "Softmax", "x", "y");
    graph_output(&g, "y");
    lift(&g, 13);
    assert_int_equal(opset(&g), 13);
    assert_int_equal(graph_count(&g, "Flatten"), 1);
    assert_int_equal(graph_count(&g, "Reshape"), 1);
    assert_int_equal(graph_count(&g, "Shape"), batch < 0);
    /* e^x = 1 2 3 4 5 6 and 1 1 1 1 1 1 */
    float x[12] = {0}, y[12];
    for (int i = 0; i < 6; i++) x[i] = logf((float)(i + 1));
    graph_run(&g, 3, (int64_t[]){2, 3, 2}, x, y, 12);
    for (int i = 0; i < 12; i++) {
        float want = i < 6 ? (float)(i + 1) / 21 : 1.0f / 6;
        assert_true(fabsf(y[i] - want) < 1e-6f);
    }
    graph_close(&g);
}

static void old_softmax_flattens(void **state)
{
    (void)state;
    softmax_flattens(2);
    softmax_flattens(-1);
}

static void old_softmax_of_one_axis_only_names_it(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 9);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){-1, 10, 1, 1});
    pare_node *n = graph_node(&g, "Softmax", "x", "y");
    graph_output(&g, "y");
    lift(&g, 13);
    assert_int_equal(g.model->graph->node_count, 1);
    assert_int_equal(pare_node_int(n, "axis", -1), 1);
    graph_close(&g);
}

static void clip_takes_its_limits_as_inputs(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 6 + 1);
    graph_input(&g, "x", PARE_f32, 1, (int64_t[]){4});
    pare_node *n = graph_node(&g, "Clip", "x", "y");
    assert_int_equal(pare_node_set_float(n, "max", 6), PARE_OK);
    graph_output(&g, "y");
    lift(&g, 13);
    assert_null(pare_node_attr(n, "max"));
    assert_int_equal(n->in_count, 3);
    assert_null(n->in[1]);
    const float x[4] = {-9, 0, 6, 7}, want[4] = {-9, 0, 6, 6};
    float y[4];
    graph_run(&g, 1, (int64_t[]){4}, x, y, 4);
    assert_memory_equal(y, want, sizeof y);
    graph_close(&g);
}

static void reductions_raise_the_opset_where_their_form_is_newer(void **state)
{
    (void)state;
    const float x[6] = {1, 2, 3, 4, 5, 6}, mean[2] = {2, 5}, sum[3] = {5, 7, 9};
    float y[3];
    graph_case g;
    graph_open(&g, 11);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 3});
    pare_node *n = graph_node(&g, "ReduceMean", "x", "y");
    assert_int_equal(pare_node_set_ints(n, "axes", (int64_t[]){-1}, 1), PARE_OK);
    graph_output(&g, "y");
    graph_run(&g, 2, (int64_t[]){2, 3}, x, y, 2);
    assert_memory_equal(y, mean, sizeof mean);
    lift(&g, 13);
    assert_int_equal(opset(&g), 18);
    assert_int_equal(n->in_count, 2);
    graph_run(&g, 2, (int64_t[]){2, 3}, x, y, 2);
    assert_memory_equal(y, mean, sizeof mean);
    graph_close(&g);

    graph_open(&g, 11);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 3});
    n = graph_node(&g, "ReduceSum", "x", "y");
    assert_int_equal(pare_node_set_ints(n, "axes", (int64_t[]){0}, 1), PARE_OK);
    graph_output(&g, "y");
    lift(&g, 13);
    assert_int_equal(opset(&g), 13);
    graph_run(&g, 2, (int64_t[]){2, 3}, x, y, 3);
    assert_memory_equal(y, sum, sizeof sum);
    graph_close(&g);
}

static void top_k_and_dropout_take_inputs(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 9);
    graph_input(&g, "x", PARE_f32, 1, (int64_t[]){5});
    pare_node *drop = graph_node(&g, "Dropout", "x", "d");
    assert_int_equal(pare_node_set_float(drop, "ratio", 0.25f), PARE_OK);
    pare_node *n = graph_node(&g, "TopK", "d", "y i");
    assert_int_equal(pare_node_set_int(n, "k", 2), PARE_OK);
    graph_output(&g, "y");
    lift(&g, 13);
    assert_null(pare_node_attr(n, "k"));
    assert_null(pare_node_attr(drop, "ratio"));
    const float x[5] = {3, 9, 1, 9.5f, 2}, want[2] = {9.5f, 9};
    float y[2];
    graph_run(&g, 1, (int64_t[]){5}, x, y, 2);
    assert_memory_equal(y, want, sizeof y);
    graph_close(&g);
}

/* Two groups of two channels, two numbers each: normalized to -1 and 1 steps, then scaled by group.
 */
static void group_norm_is_spread_over_channels(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 18);
    graph_input(&g, "x", PARE_f32, 3, (int64_t[]){1, 4, 1});
    graph_floats(&g, "s", 1, (int64_t[]){2}, (float[]){2, 3});
    graph_floats(&g, "b", 1, (int64_t[]){2}, (float[]){10, 20});
    pare_node *n = graph_node(&g, "GroupNormalization", "x s b", "y");
    assert_int_equal(pare_node_set_int(n, "num_groups", 2), PARE_OK);
    assert_int_equal(pare_node_set_float(n, "epsilon", 0), PARE_OK);
    graph_output(&g, "y");
    const float x[4] = {1, 3, 10, 30}, want[4] = {8, 12, 17, 23};
    float y[4];
    graph_run(&g, 3, (int64_t[]){1, 4, 1}, x, y, 4);
    assert_memory_equal(y, want, sizeof y);
    lift(&g, 21);
    assert_int_equal(n->in[1]->shape.dim[0], 4);
    graph_run(&g, 3, (int64_t[]){1, 4, 1}, x, y, 4);
    assert_memory_equal(y, want, sizeof y);
    graph_close(&g);
}

/* Add 6: the axes of a computed input 1 are those of input 0 from `axis` on. */
static void an_old_add_appends_axes(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 6);
    graph_input(&g, "x", PARE_f32, 3, (int64_t[]){-1, 2, 2});
    pare_node *mean = graph_node(&g, "ReduceMean", "x", "m");
    assert_int_equal(pare_node_set_ints(mean, "axes", (int64_t[]){0, 2}, 2), PARE_OK);
    assert_int_equal(pare_node_set_int(mean, "keepdims", 0), PARE_OK);
    pare_node *add = graph_node(&g, "Add", "x m", "y");
    assert_int_equal(pare_node_set_int(add, "broadcast", 1), PARE_OK);
    assert_int_equal(pare_node_set_int(add, "axis", 1), PARE_OK);
    graph_output(&g, "y");
    lift(&g, 13);
    assert_int_equal(graph_count(&g, "Unsqueeze"), 1);
    assert_null(pare_node_attr(add, "axis"));
    assert_null(pare_node_attr(add, "broadcast"));
    const float x[4] = {1, 3, 10, 30}, want[4] = {3, 5, 30, 50};
    float y[4];
    graph_run(&g, 3, (int64_t[]){1, 2, 2}, x, y, 4);
    assert_memory_equal(y, want, sizeof y);
    graph_close(&g);
}

/* LayerNormalization began with opset 17; tools write it into older models. */
static void layer_norm_raises_the_opset(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 11);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
    graph_floats(&g, "s", 1, (int64_t[]){2}, (float[]){2, 3});
    graph_node(&g, "LayerNormalization", "x s", "y");
    graph_output(&g, "y");
    lift(&g, 13);
    assert_int_equal(opset(&g), 17);
    float y[2];
    graph_run(&g, 2, (int64_t[]){1, 2}, (const float[]){-100, 100}, y, 2);
    assert_true(fabsf(y[0] + 2) < 1e-5f && fabsf(y[1] - 3) < 1e-5f);
    graph_close(&g);
}

/* --- refusals --- */

static void refused(graph_case *g, int64_t version, const char *words)
{
    assert_int_equal(pare_pass_version_convert(g->model, version), PARE_UNSUPPORTED);
    if (!strstr(g->ctx.message, words)) fail_msg("%s", g->ctx.message);
    graph_close(g);
}

static void refusals_name_the_node(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 11);
    graph_input(&g, "x", PARE_f32, 1, (int64_t[]){4});
    graph_node(&g, "NoSuchThing", "x", "y");
    graph_output(&g, "y");
    refused(&g, 13, "m.onnx: node 'y' (NoSuchThing): the operator is unknown");

    graph_open(&g, 99);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){1, 1, 2, 2});
    graph_node(&g, "SpaceToDepth", "x", "y");
    graph_output(&g, "y");
    refused(&g, 13, "m.onnx: node 'y' (SpaceToDepth): its form of opset 99 is newer than 25");

    graph_open(&g, 8);
    graph_input(&g, "x", PARE_f32, 3, (int64_t[]){1, 2, 3});
    for (int i = 0; i < 4; i++)
        graph_floats(&g, (const char *[]){"s", "b", "m", "v"}[i], 1, (int64_t[]){2},
                     (float[]){1, 1});
    pare_node *n = graph_node(&g, "BatchNormalization", "x s b m v", "y");
    assert_int_equal(pare_node_set_int(n, "spatial", 0), PARE_OK);
    graph_output(&g, "y");
    refused(&g, 13, "m.onnx: node 'y' (BatchNormalization): spatial = 0");

    graph_open(&g, 1);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
    graph_node(&g, "Tile", "x x x", "y");
    graph_output(&g, "y");
    refused(&g, 13, "m.onnx: node 'y' (Tile): its form of opset 1");

    graph_open(&g, 6);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
    n = graph_node(&g, "Add", "x x", "y");
    assert_int_equal(pare_node_set_int(n, "broadcast", 1), PARE_OK);
    assert_int_equal(pare_node_set_int(n, "axis", 1), PARE_OK);
    graph_output(&g, "y");
    assert_int_equal(pare_pass_version_convert(g.model, 13), PARE_INPUT);
    assert_non_null(strstr(g.ctx.message, "m.onnx: node 'y' (Add): axis 1 leaves no room"));
    graph_close(&g);

    graph_open(&g, 1);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
    n = graph_node(&g, "Cast", "x", "y");
    assert_int_equal(pare_node_set_string(n, "to", "FLOAT99"), PARE_OK);
    graph_output(&g, "y");
    assert_int_equal(pare_pass_version_convert(g.model, 13), PARE_INPUT);
    assert_non_null(strstr(g.ctx.message, "m.onnx: node 'y' (Cast): attribute 'to' names no type"));
    graph_close(&g);
}

static void an_opset_beyond_the_known_ones_holds_what_was_not_redefined(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 99);
    graph_input(&g, "x", PARE_f32, 1, (int64_t[]){4});
    graph_node(&g, "Relu", "x", "y");
    graph_output(&g, "y");
    lift(&g, 21);
    assert_int_equal(opset(&g), 99);
    const float x[4] = {-1, 0, 1, 2}, want[4] = {0, 0, 1, 2};
    float y[4];
    graph_run(&g, 1, (int64_t[]){4}, x, y, 4);
    assert_memory_equal(y, want, sizeof y);
    graph_close(&g);
}

static void a_new_enough_model_stays_as_it_is(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 13);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 3});
    pare_node *n = graph_node(&g, "ReduceMean", "x", "y");
    assert_int_equal(pare_node_set_ints(n, "axes", (int64_t[]){1}, 1), PARE_OK);
    graph_node(&g, "NoSuchThing", "y", "z");
    graph_output(&g, "z");
    lift(&g, 13);
    assert_non_null(pare_node_attr(n, "axes"));
    assert_int_equal(opset(&g), 13);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_softmax_flattens),
        cmocka_unit_test(old_softmax_of_one_axis_only_names_it),
        cmocka_unit_test(clip_takes_its_limits_as_inputs),
        cmocka_unit_test(reductions_raise_the_opset_where_their_form_is_newer),
        cmocka_unit_test(top_k_and_dropout_take_inputs),
        cmocka_unit_test(group_norm_is_spread_over_channels),
        cmocka_unit_test(an_old_add_appends_axes),
        cmocka_unit_test(layer_norm_raises_the_opset),
        cmocka_unit_test(refusals_name_the_node),
        cmocka_unit_test(an_opset_beyond_the_known_ones_holds_what_was_not_redefined),
        cmocka_unit_test(a_new_enough_model_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
