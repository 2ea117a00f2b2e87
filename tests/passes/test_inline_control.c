/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow that is decided goes, names inside bodies, and what inference says of them. */
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* --- bodies --- */

static pare_graph *body_new(graph_case *g, pare_node *node, const char *attr)
{
    pare_graph *b;
    assert_int_equal(pare_graph_new(g->model, &b, g->model->graph), PARE_OK);
    const pare_attr a = {.name = attr, .kind = PARE_ATTR_GRAPH, .graph = b};
    assert_int_equal(pare_node_set_attr(node, &a), PARE_OK);
    return b;
}

static pare_value *body_node(pare_graph *b, const char *op, pare_value *x, const char *out)
{
    pare_value *y;
    assert_int_equal(pare_value_new(b, &y, out), PARE_OK);
    assert_int_equal(pare_node_new(b, NULL, b->node_count, op, "", "", &x, 1, &y, 1), PARE_OK);
    pare_value_set_type(y, PARE_f32, NULL);
    return y;
}

static pare_value *body_input(pare_graph *b, const char *name, pare_dtype dtype)
{
    pare_value *v;
    assert_int_equal(pare_value_new(b, &v, name), PARE_OK);
    pare_value_set_type(v, dtype, NULL);
    v->is_input = true;
    assert_int_equal(pare_values_add(b, &b->in, v), PARE_OK);
    return v;
}

static void body_output(pare_graph *b, pare_value *v)
{
    v->is_output = true;
    assert_int_equal(pare_values_add(b, &b->out, v), PARE_OK);
}

static void condition(graph_case *g, const char *name, bool on)
{
    pare_value *v;
    assert_int_equal(pare_init_new(g->model->graph, &v, name, PARE_bool, 0, NULL, &on), PARE_OK);
}

static void inline_it(graph_case *g)
{
    const pare_infer_options infer = {.fold = true, .lenient = true, .fold_bodies = true};
    if (pare_pass_infer(g->model, &infer) != PARE_OK ||
        pare_pass_inline_control(g->model, &infer, NULL, 0) != PARE_OK ||
        pare_graph_sort(g->model->graph) != PARE_OK)
        fail_msg("%s", g->ctx.message);
}

static void expect(graph_case *g, const float *want)
{
    const float x[3] = {1, -2, 3};
    float y[3];
    graph_run(g, 1, (const int64_t[]){3}, x, y, 3);
    assert_memory_equal(y, want, sizeof y);
}

/* --- If --- */

/* then: h = Neg(x), returned twice, and x itself; else: Abs. Both have an 'h'. */
static pare_node *choice(graph_case *g, bool known)
{
    graph_open(g, 17);
    pare_value *x = graph_input(g, "x", PARE_f32, 1, (const int64_t[]){3});
    if (known)
        condition(g, "c", true);
    else
        graph_input(g, "c", PARE_bool, 0, NULL);
    pare_node *node = graph_node(g, "If", "c", "p q r");
    pare_graph *then = body_new(g, node, "then_branch");
    pare_graph *other = body_new(g, node, "else_branch");
    pare_value *h = body_node(then, "Neg", x, "h"), *k = body_node(other, "Abs", x, "h");
    body_output(then, h);
    body_output(then, h);
    body_output(then, x);
    for (int i = 0; i < 3; i++) body_output(other, k);
    graph_node(g, "Add", "p q", "s");
    graph_node(g, "Sub", "s r", "y");
    graph_output(g, "y");
    return node;
}

static void the_taken_branch_stays(void **state)
{
    (void)state;
    graph_case g;
    choice(&g, true);
    inline_it(&g);
    assert_int_equal(graph_count(&g, "If"), 0);
    assert_int_equal(graph_count(&g, "Abs"), 0);
    assert_int_equal(graph_count(&g, "Neg"), 1);
    assert_int_equal(graph_value(&g, "x")->user_count, 2); /* Neg and the copy */
    expect(&g, (const float[]){-3, 6, -9});
    graph_close(&g);
}

static void an_open_choice_stays(void **state)
{
    (void)state;
    graph_case g;
    choice(&g, false);
    inline_it(&g);
    assert_int_equal(graph_count(&g, "If"), 1);
    graph_close(&g);
}

/* --- Loop --- */

/* turns times h = Neg(h); the scan output is h as it was. */
static void loop(graph_case *g, int64_t turns)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 1, (const int64_t[]){3});
    graph_ints(g, "n", 0, NULL, &turns);
    pare_node *node = graph_node(g, "Loop", "n - x", "u all");
    pare_graph *b = body_new(g, node, "body");
    (void)body_input(b, "i", PARE_s64);
    pare_value *go = body_input(b, "go", PARE_bool), *h = body_input(b, "h", PARE_f32);
    body_output(b, go);
    body_output(b, body_node(b, "Neg", h, "h1"));
    body_output(b, h);
    graph_node(g, "Abs", "u", "y");
    graph_output(g, "y");
}

static void one_turn_is_the_body(void **state)
{
    (void)state;
    graph_case g;
    loop(&g, 1);
    graph_output(&g, "all");
    inline_it(&g);
    assert_int_equal(graph_count(&g, "Loop"), 0);
    assert_int_equal(graph_count(&g, "Neg"), 1);
    assert_int_equal(graph_count(&g, "Unsqueeze"), 1);
    assert_int_equal(graph_value(&g, "all")->shape.rank, 2);
    expect(&g, (const float[]){1, 2, 3});
    graph_close(&g);
}

static void no_turn_gives_the_state(void **state)
{
    (void)state;
    graph_case g;
    loop(&g, 0);
    inline_it(&g);
    assert_int_equal(graph_count(&g, "Loop"), 0);
    assert_int_equal(graph_count(&g, "Neg"), 0);
    expect(&g, (const float[]){1, 2, 3});
    graph_close(&g);
}

/* Two turns stay; what the body is given has a shape, as it does not change. */
static void shapes_of_states_are_found(void **state)
{
    (void)state;
    graph_case g;
    loop(&g, 2);
    inline_it(&g);
    assert_int_equal(graph_count(&g, "Loop"), 1);
    const pare_graph *b = pare_node_attr(g.model->graph->node[0], "body")->graph;
    assert_int_equal(b->in.item[2]->shape.rank, 1);
    assert_int_equal(b->in.item[2]->shape.dim[0], 3);
    assert_int_equal(graph_value(&g, "u")->shape.dim[0], 3);
    assert_int_equal(graph_value(&g, "all")->shape.rank, 2);
    graph_close(&g);
}

/* A state that grows has an unknown size; one that changes its rank has no shape. */
static void shapes_that_change_are_unknown(void **state)
{
    static const struct {
        const char *op;
        int rank;
        int64_t size;
    } cases[] = {{"Concat", 1, -1}, {"NonZero", -1, 0}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case g;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 1, (const int64_t[]){3});
        graph_ints(&g, "n", 0, NULL, (const int64_t[]){2});
        graph_ints(&g, "s", 1, (const int64_t[]){2}, (const int64_t[]){1, 2});
        pare_node *node = graph_node(&g, "Loop", "n - s", "y");
        pare_graph *b = body_new(&g, node, "body");
        (void)body_input(b, "i", PARE_s64);
        pare_value *go = body_input(b, "go", PARE_bool), *h = body_input(b, "h", PARE_s64), *y;
        pare_value *in[] = {h, h};
        pare_node *made;
        assert_int_equal(pare_value_new(b, &y, "h1"), PARE_OK);
        assert_int_equal(pare_node_new(b, &made, 0, cases[i].op, "", "", in, i ? 1 : 2, &y, 1),
                         PARE_OK);
        if (!i) assert_int_equal(pare_node_set_int(made, "axis", 0), PARE_OK);
        body_output(b, go);
        body_output(b, y);
        graph_output(&g, "y");
        inline_it(&g);
        assert_int_equal(h->shape.rank, cases[i].rank);
        if (cases[i].rank > 0) assert_int_equal(h->shape.dim[0], cases[i].size);
        graph_close(&g);
    }
}

/* --- names --- */

static void names_are_told_apart(void **state)
{
    (void)state;
    graph_case g;
    pare_node *node = choice(&g, false);
    pare_graph *then = pare_node_attr(node, "then_branch")->graph;
    node->name = "if_1";
    assert_int_equal(pare_graph_name_apart(g.model->graph), PARE_OK);
    assert_string_equal(then->node[0]->out[0]->name, "if_1/then_branch/h");
    assert_null(pare_graph_find_own(then, "h"));
    pare_value *found = pare_graph_find_any(g.model->graph, "if_1/else_branch/h");
    assert_ptr_equal(found, pare_node_attr(node, "else_branch")->graph->out.item[0]);
    assert_string_equal(pare_node_path(found->producer), "if_1/else_branch/h");
    found->producer->name = "abs";
    assert_string_equal(pare_node_path(found->producer), "if_1/else_branch/abs");
    assert_string_equal(pare_node_path(node), "if_1");
    assert_int_equal(pare_graph_name_apart(g.model->graph), PARE_OK); /* nothing more to do */
    assert_string_equal(found->name, "if_1/else_branch/h");
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_taken_branch_stays),
        cmocka_unit_test(an_open_choice_stays),
        cmocka_unit_test(one_turn_is_the_body),
        cmocka_unit_test(no_turn_gives_the_state),
        cmocka_unit_test(shapes_of_states_are_found),
        cmocka_unit_test(shapes_that_change_are_unknown),
        cmocka_unit_test(names_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
