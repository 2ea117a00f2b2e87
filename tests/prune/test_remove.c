/* SPDX-License-Identifier: Apache-2.0 */
/* Removals: what nodes and constants of the smaller model say, and that it computes what the masked
   dense model computes. */
#include "tests/prune/prune_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* x [batch, 3, 4, 4], batch open. */
static void open_batch(graph_case *g)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 4, (const int64_t[]){-1, 3, 4, 4});
}

static pare_prune_plan *removal_of(graph_case *g, pare_groups *groups)
{
    pare_prune_plan *r;
    assert_int_equal(pare_prune_plan_new(&g->ctx, &r, groups), PARE_OK);
    return r;
}

static const int64_t *ints_of(const pare_model *model, const char *node, int input, int64_t count)
{
    const pare_value *v = pare_graph_find_own(model->graph, node);
    assert_non_null(v);
    const pare_value *in = pare_node_in(v->producer, input);
    assert_true(in && in->data && in->data->dtype == PARE_s64);
    assert_int_equal(in->data->count, count);
    return in->data->data;
}

static void set_axis(pare_node *node, int64_t axis)
{
    assert_int_equal(pare_node_set_int(node, "axis", axis), PARE_OK);
}

static const int64_t two[] = {2, 3, 4, 4};

/* Compares and frees all but the case. */
static void finish(graph_case *g, pare_groups *groups, pare_prune_plan *r, pare_model *smaller)
{
    pare_model_free(smaller);
    pare_prune_plan_free(r);
    pare_groups_free(groups);
    graph_close(g);
}

/* Einsum's are those of the matrix products that it becomes. */
static void weights_of_einsum_lose_their_slices(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 3});
    PRUNE_WEIGHT(&g, "w_a", 4, 3);
    PRUNE_WEIGHT(&g, "w_y", 4, 2);
    pare_node *first = graph_node(&g, "Einsum", "x w_a", "a");
    graph_node(&g, "Relu", "a", "r");
    pare_node *second = graph_node(&g, "Einsum", "r w_y", "y");
    assert_int_equal(pare_node_set_string(first, "equation", "bd,fd->bf"), PARE_OK);
    assert_int_equal(pare_node_set_string(second, "equation", "bf,fc->bc"), PARE_OK);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "a", 1, 2, (int64_t[]){0, 2});
    pare_model *smaller = prune_compare(&g, r, 2, two, 2 * 2);
    const pare_node *node = pare_graph_find_own(smaller->graph, "y")->producer;
    assert_string_equal(node->op_type, "MatMul");
    assert_int_equal(node->in[1]->data->dims[0], 2);
    finish(&g, groups, r, smaller);
}

static void weights_lose_their_slices(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    prune_conv(&g, "a", "y", 4, 2, 3, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "w_a", 0, 2, (int64_t[]){0, 2});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 2 * 16), *masked;
    const float *old = graph_value(&g, "w_y")->data->data;
    const pare_tensor *w = pare_graph_find_own(smaller->graph, "w_y")->data;
    assert_int_equal(w->dims[1], 2);
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < 9; k++) {
            assert_true(((const float *)w->data)[m * 18 + k] == old[m * 36 + 9 + k]);
            assert_true(((const float *)w->data)[m * 18 + 9 + k] == old[m * 36 + 27 + k]);
        }
    assert_int_equal(pare_prune_masked(&g.ctx, &masked, r), PARE_OK);
    const float *zero = pare_graph_find_own(masked->graph, "w_y")->data->data;
    for (int i = 0; i < 72; i++)
        assert_true(zero[i] == (i / 9 % 4 == 0 || i / 9 % 4 == 2 ? 0 : old[i]));
    assert_true(pare_graph_find_own(masked->graph, "w_a")->data->data ==
                graph_value(&g, "w_a")->data->data);
    pare_model_free(masked);
    finish(&g, groups, r, smaller);
}

/* A Reshape whose shape the model computes from its batch, as exporters write .view(n, c, h * w).
 */
static void computed_shapes_are_written_out(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    PRUNE_INTS(&g, "zero", 0);
    PRUNE_INTS(&g, "tail", 4, 16);
    graph_node(&g, "Shape", "a", "s");
    graph_node(&g, "Gather", "s zero", "n");
    set_axis(graph_node(&g, "Concat", "n tail", "shape"), 0);
    graph_node(&g, "Reshape", "a shape", "b");
    PRUNE_WEIGHT(&g, "w", 5, 4);
    graph_node(&g, "MatMul", "w b", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "w_a", 0, 1, (int64_t[]){3});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 5 * 16);
    const int64_t *shape = ints_of(smaller, "b", 1, 3);
    assert_int_equal(shape[0], 0);
    assert_int_equal(shape[1], 3);
    assert_int_equal(shape[2], 16);
    assert_null(pare_graph_find_own(smaller->graph, "n")->producer);
    finish(&g, groups, r, smaller);
}

/* Expand to the batch: its size is known only while the model runs, so that it is picked from
 * there. */
static void open_elements_are_picked(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    PRUNE_INTS(&g, "zero", 0);
    PRUNE_INTS(&g, "tail", 4, 4, 4);
    PRUNE_WEIGHT(&g, "c", 1, 4, 1, 1);
    graph_node(&g, "Shape", "x", "s");
    graph_node(&g, "Gather", "s zero", "n");
    set_axis(graph_node(&g, "Concat", "n tail", "shape"), 0);
    graph_node(&g, "Expand", "c shape", "e");
    set_axis(graph_node(&g, "Concat", "a e", "j"), 1);
    graph_node(&g, "Add", "a e", "k");
    prune_conv(&g, "j", "l", 8, 2, 1, 1);
    prune_conv(&g, "k", "m", 4, 2, 1, 1);
    graph_node(&g, "Add", "l m", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "w_a", 0, 2, (int64_t[]){0, 3});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 2 * 16);
    assert_int_equal(pare_graph_find_own(smaller->graph, "c")->shape.dim[1], 2);
    const pare_value *to = pare_graph_find_own(smaller->graph, "e")->producer->in[1];
    assert_string_equal(to->producer->op_type, "Where");
    finish(&g, groups, r, smaller);
}

/* Slices with ends far after and negative starts, and a Split without sizes. */
static void parts_keep_their_channels(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 6, 1, 1);
    PRUNE_INTS(&g, "one", 1);
    PRUNE_INTS(&g, "start", -4);
    PRUNE_INTS(&g, "far", INT64_MAX);
    graph_node(&g, "Slice", "a start far one", "b");
    set_axis(graph_node(&g, "Split", "b", "c d"), 1);
    prune_conv(&g, "a", "e", 6, 3, 1, 1);
    prune_conv(&g, "c", "f", 2, 3, 1, 1);
    prune_conv(&g, "d", "h", 2, 3, 1, 1);
    graph_node(&g, "Sum", "e f h", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "w_a", 0, 2, (int64_t[]){0, 3});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 3 * 16);
    assert_int_equal(ints_of(smaller, "b", 1, 1)[0], 1);
    assert_int_equal(ints_of(smaller, "b", 2, 1)[0], 4);
    assert_int_equal(ints_of(smaller, "c", 1, 2)[0], 1);
    assert_int_equal(ints_of(smaller, "c", 1, 2)[1], 2);
    /* a slot that would lose its last channel stays */
    assert_false(pare_prune_plan_add(r, prune_coupled(&g, groups, "w_a", 0, 2), 0));
    finish(&g, groups, r, smaller);
}

/* The short cut of a residual net pads its channels with zeros on both sides. */
static void padded_channels_can_go(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    PRUNE_INTS(&g, "pads", 0, 2, 0, 0, 0, 2, 0, 0);
    graph_node(&g, "Pad", "a pads", "b");
    prune_conv(&g, "a", "c", 4, 8, 3, 1);
    graph_node(&g, "Add", "b c", "d");
    prune_conv(&g, "d", "y", 8, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "w_c", 0, 3, (int64_t[]){1, 3, 7});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 2 * 16);
    const int64_t *pads = ints_of(smaller, "b", 1, 8);
    assert_int_equal(pads[1], 1);
    assert_int_equal(pads[5], 1);
    assert_int_equal(pare_graph_find_own(smaller->graph, "w_a")->shape.dim[0], 3);
    finish(&g, groups, r, smaller);
}

/* The model divides by its number of channels, which it reads from a shape: that number stays. */
static void numbers_made_of_extents_stay(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    PRUNE_INTS(&g, "one", 1);
    graph_node(&g, "Shape", "a", "s");
    graph_node(&g, "Gather", "s one", "n");
    assert_int_equal(pare_node_set_int(graph_node(&g, "Cast", "n", "f"), "to", PARE_f32), PARE_OK);
    graph_node(&g, "Div", "a f", "b");
    prune_conv(&g, "b", "y", 4, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "w_a", 0, 2, (int64_t[]){1, 2});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 2 * 16);
    const pare_value *by = pare_graph_find_own(smaller->graph, "b")->producer->in[1];
    assert_true(by->data && *(const float *)by->data->data == 4.0f);
    finish(&g, groups, r, smaller);
}

/* A list of channels by number; those that stay have other numbers now. */
static void numbers_of_channels_move(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 5, 1, 1);
    PRUNE_INTS(&g, "at", 4, 0, 2, -4);
    set_axis(graph_node(&g, "Gather", "a at", "b"), 1);
    prune_conv(&g, "b", "y", 4, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "w_a", 0, 1, (int64_t[]){0});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 2 * 16);
    const int64_t *at = ints_of(smaller, "b", 1, 3);
    assert_int_equal(at[0], 3);
    assert_int_equal(at[1], 1);
    assert_int_equal(at[2], 0);
    finish(&g, groups, r, smaller);
}

/* Everything else of the model stays: names, order, what is not cut. */
static void the_rest_stays(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    graph_node(&g, "Relu", "a", "b");
    prune_conv(&g, "b", "c", 4, 4, 1, 1);
    prune_conv(&g, "c", "y", 4, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    pare_model *same;
    char text[256];
    assert_int_equal(pare_prune_remove(&g.ctx, &same, r), PARE_OK);
    assert_null(pare_model_compare(g.model, same, text, sizeof text));
    pare_model_free(same);
    prune_take(&g, r, "w_a", 0, 1, (int64_t[]){0});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 2 * 16);
    assert_int_equal(smaller->graph->node_count, g.model->graph->node_count);
    assert_int_equal(smaller->graph->init.count, g.model->graph->init.count);
    for (int i = 0; i < smaller->graph->node_count; i++)
        assert_string_equal(smaller->graph->node[i]->name, g.model->graph->node[i]->name);
    assert_true(pare_graph_find_own(smaller->graph, "w_y")->data->data ==
                graph_value(&g, "w_y")->data->data);
    assert_int_equal(pare_graph_find_own(smaller->graph, "b")->shape.dim[1], 3);
    assert_int_equal(pare_graph_find_own(smaller->graph, "b")->shape.dim[0], -1);
    finish(&g, groups, r, smaller);
}

/* "4*n" was computed from a count of channels: the smaller model no longer says it. */
static void computed_symbols_are_forgotten(void **state)
{
    (void)state;
    graph_case g;
    open_batch(&g);
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    prune_conv(&g, "a", "y", 4, 2, 1, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_value *a = graph_value(&g, "a");
    assert_int_equal(a->shape.dim[0], -1);
    a->shape.name[0] = "4*n";
    a->origin = (pare_bytes){"a: 4*n", 6};
    pare_prune_plan *r = removal_of(&g, groups);
    prune_take(&g, r, "w_a", 0, 1, (int64_t[]){0});
    pare_model *smaller = prune_compare(&g, r, 4, two, 2 * 2 * 16);
    const pare_value *now = pare_graph_find_own(smaller->graph, "a");
    assert_null(now->shape.name[0]);
    assert_int_equal(now->origin.size, 0);
    finish(&g, groups, r, smaller);
}

/* A matrix too large to be folded that is transposed while the model runs, and one that is made of
   a single number: both are cut where they come from. */
static void made_weights_are_cut_where_they_are_made(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (const int64_t[]){-1, 80});
    PRUNE_WEIGHT(&g, "w", 300, 80);
    PRUNE_INTS(&g, "shape", 300, 200);
    PRUNE_WEIGHT(&g, "w_y", 200, 3);
    assert_int_equal(pare_node_set_ints(graph_node(&g, "Transpose", "w", "v"), "perm",
                                        (const int64_t[]){1, 0}, 2),
                     PARE_OK);
    graph_node(&g, "MatMul", "x v", "a");
    pare_tensor *one;
    assert_int_equal(
        pare_tensor_new(g.model, &one, "", PARE_f32, 1, &(int64_t){1}, &(float){0.25f}), PARE_OK);
    const pare_attr value = {.name = "value", .kind = PARE_ATTR_TENSOR, .tensor = one};
    assert_int_equal(pare_node_set_attr(graph_node(&g, "ConstantOfShape", "shape", "m"), &value),
                     PARE_OK);
    graph_node(&g, "MatMul", "a m", "b");
    graph_node(&g, "MatMul", "b w_y", "y");
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    pare_prune_plan *r = removal_of(&g, groups);
    assert_int_equal(groups->coupled_count, 300 + 200);
    prune_take(&g, r, "w", 0, 2, (int64_t[]){7, 299});
    prune_take(&g, r, "w_y", 0, 1, (int64_t[]){1});
    pare_model *smaller = prune_compare(&g, r, 2, (const int64_t[]){2, 80}, 2 * 3);
    assert_int_equal(ints_of(smaller, "m", 0, 2)[0], 298);
    assert_int_equal(ints_of(smaller, "m", 0, 2)[1], 199);
    finish(&g, groups, r, smaller);
}

/* Every allocation of a whole pruning fails in turn: a status and a message, nothing lost. */
static void failing_allocations_are_said(void **state)
{
    (void)state;
    bool failed = true;
    for (long after = 0; failed; after += after < 200 ? 1 : 97) {
        graph_case g;
        pare_groups *groups = NULL;
        pare_prune_plan *r = NULL;
        pare_model *smaller = NULL, *masked = NULL;
        open_batch(&g);
        prune_conv(&g, "x", "a", 3, 8, 1, 1);
        prune_conv(&g, "a", "b", 8, 8, 3, 2);
        prune_conv(&g, "b", "y", 8, 2, 1, 1);
        graph_output(&g, "y");
        g.ctx.fail_after = after;
        pare_status st = pare_prune_prepare(&g.ctx, g.model);
        if (st == PARE_OK) st = pare_groups_new(&g.ctx, &groups, g.model, NULL);
        if (st == PARE_OK) st = pare_prune_plan_new(&g.ctx, &r, groups);
        if (st == PARE_OK) {
            pare_prune_plan_add(r, groups->group[0].first, 1);
            pare_prune_plan_add(r, groups->group[0].first + 4, 1);
            st = pare_prune_remove(&g.ctx, &smaller, r);
        }
        if (st == PARE_OK) st = pare_prune_masked(&g.ctx, &masked, r);
        failed = st != PARE_OK;
        if (failed) assert_int_equal(st, PARE_MEMORY);
        if (failed) assert_true(*g.ctx.message);
        pare_model_free(masked);
        finish(&g, groups, r, smaller);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_einsum_lose_their_slices),
        cmocka_unit_test(weights_lose_their_slices),
        cmocka_unit_test(computed_shapes_are_written_out),
        cmocka_unit_test(open_elements_are_picked),
        cmocka_unit_test(parts_keep_their_channels),
        cmocka_unit_test(padded_channels_can_go),
        cmocka_unit_test(numbers_made_of_extents_stay),
        cmocka_unit_test(numbers_of_channels_move),
        cmocka_unit_test(the_rest_stays),
        cmocka_unit_test(computed_symbols_are_forgotten),
        cmocka_unit_test(made_weights_are_cut_where_they_are_made),
        cmocka_unit_test(failing_allocations_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
