/* SPDX-License-Identifier: Apache-2.0 */
/* Simplifying: which nodes go, which stay, and the values before and after. */
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 512 };

static void simplify(graph_case *g)
{
    if (pare_pass_simplify(g->model, NULL, 0) != PARE_OK) fail_msg("%s", g->ctx.message);
}

static void input(graph_case *g) { graph_input(g, "x", PARE_f32, 3, (const int64_t[]){-1, 4, 6}); }

/* Simplifies, and compares with the values of before; x is [3,4,6]. */
static void check(graph_case *g, int nodes)
{
    static float x[72], before[MOST], after[MOST];
    const int64_t dims[] = {3, 4, 6};
    for (int i = 0; i < 72; i++) x[i] = (float)(i * 37 % 72) / 16 - 2;
    graph_output(g, "y");
    graph_run(g, 3, dims, x, before, 72);
    simplify(g);
    assert_int_equal(g->model->graph->node_count, nodes);
    graph_run(g, 3, dims, x, after, 72);
    assert_memory_equal(before, after, sizeof x);
    graph_close(g);
}

/* --- one rule each: node and its constants; "Neg" keeps the ends apart from the graph's --- */

typedef struct one {
    const char *op, *in; /* in: "a" and the constants c and d */
    int c[4], c_count;
    int d[4], d_count;
    int nodes; /* that are left, both Neg among them */
} one;

static const one ones[] = {
    {"Identity", "a", {0}, 0, {0}, 0, 2},
    {"Dropout", "a", {0}, 0, {0}, 0, 2},
    {"Concat", "a", {0}, 0, {0}, 0, 2},
    {"Expand", "a c", {1, 1}, 2, {0}, 0, 2},
    {"Expand", "a c", {1, 1, 1, 1}, 4, {0}, 0, 3},
    {"Tile", "a c", {1, 1, 1}, 3, {0}, 0, 2},
    {"Slice", "a c d", {0, 0}, 2, {INT32_MAX, INT32_MAX}, 2, 2},
    {"Slice", "a c d", {0, 1}, 2, {INT32_MAX, INT32_MAX}, 2, 3},
    {"Reshape", "a c", {0, 4, 6}, 3, {0}, 0, 2},
    {"Reshape", "a c", {-1, 4, 6}, 3, {0}, 0, 2},
    {"Reshape", "a c", {0, 6, 4}, 3, {0}, 0, 3},
    {"Transpose", "a", {0}, 0, {0}, 0, 3},
};

static void one_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        const one *o = &ones[i];
        graph_case g;
        graph_open(&g, 17);
        int64_t c[4], d[4];
        for (int k = 0; k < 4; k++) c[k] = o->c[k], d[k] = o->d[k];
        input(&g);
        if (o->c_count) graph_ints(&g, "c", 1, (const int64_t[]){o->c_count}, c);
        if (o->d_count) graph_ints(&g, "d", 1, (const int64_t[]){o->d_count}, d);
        graph_node(&g, "Neg", "x", "a");
        pare_node *n = graph_node(&g, o->op, o->in, "b");
        if (!strcmp(o->op, "Concat")) assert_int_equal(pare_node_set_int(n, "axis", 1), PARE_OK);
        graph_node(&g, "Neg", "b", "y");
        graph_output(&g, "y");
        simplify(&g);
        if (g.model->graph->node_count != o->nodes)
            fail_msg("%s, case %zu: %d nodes are left, expected %d", o->op, i,
                     g.model->graph->node_count, o->nodes);
        graph_close(&g);
    }
}

static void neutral_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        float number;
        int nodes;
    } rows[] = {{"Mul", 1, 2},
                {"Div", 1, 2},
                {"Pow", 1, 2},
                {"Sub", 0, 2},
                {"Mul", 2, 3},
                {"Add", 0, 3},
                /* -0 + 0 is 0 */ {"Sub", 1, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        graph_case g;
        graph_open(&g, 17);
        input(&g);
        graph_floats(&g, "c", 0, NULL, &rows[i].number);
        graph_node(&g, "Neg", "x", "a");
        graph_node(&g, rows[i].op, "a c", "b");
        graph_node(&g, "Exp", "b", "y");
        check(&g, rows[i].nodes);
    }
}

/* --- casts --- */

static pare_node *cast(graph_case *g, const char *in, const char *out, pare_dtype to)
{
    pare_node *n = graph_node(g, "Cast", in, out);
    assert_int_equal(pare_node_set_int(n, "to", to), PARE_OK);
    return n;
}

static void casts(void **state)
{
    (void)state;
    static const struct {
        pare_dtype between;
        int nodes;
    } rows[] = {{PARE_f32, 2}, {PARE_f64, 2}, {PARE_f16, 4}, {PARE_s32, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        graph_case g;
        graph_open(&g, 17);
        input(&g);
        graph_node(&g, "Neg", "x", "a");
        cast(&g, "a", "b", rows[i].between);
        cast(&g, "b", "c", PARE_f32);
        graph_node(&g, "Exp", "c", "y");
        check(&g, rows[i].nodes);
    }
}

/* --- chains --- */

static pare_node *transpose(graph_case *g, const char *in, const char *out, int a, int b, int c)
{
    pare_node *n = graph_node(g, "Transpose", in, out);
    const int64_t perm[] = {a, b, c};
    assert_int_equal(pare_node_set_ints(n, "perm", perm, 3), PARE_OK);
    return n;
}

static void transposes_cancel(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    input(&g);
    transpose(&g, "x", "a", 1, 2, 0);
    transpose(&g, "a", "b", 2, 0, 1);
    graph_node(&g, "Exp", "b", "y");
    check(&g, 1);
    graph_open(&g, 17);
    input(&g);
    transpose(&g, "x", "a", 1, 2, 0);
    transpose(&g, "a", "b", 1, 0, 2);
    graph_node(&g, "Exp", "b", "y");
    check(&g, 2);
}

static void reshapes_of_reshapes(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    input(&g);
    graph_ints(&g, "two", 1, (const int64_t[]){1}, (const int64_t[]){2});
    graph_ints(&g, "flat", 1, (const int64_t[]){2}, (const int64_t[]){-1, 24});
    graph_ints(&g, "back", 1, (const int64_t[]){3}, (const int64_t[]){-1, 4, 6});
    graph_node(&g, "Exp", "x", "a");
    graph_node(&g, "Unsqueeze", "a two", "b");
    graph_node(&g, "Reshape", "b flat", "c");
    graph_node(&g, "Reshape", "c back", "d");
    graph_node(&g, "Neg", "d", "y");
    check(&g, 2);
}

/* The last node makes the graph's output: the node before it does. */
static void output_keeps_its_name(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    input(&g);
    graph_node(&g, "Exp", "x", "a");
    graph_node(&g, "Neg", "a", "b");
    graph_node(&g, "Identity", "b", "y");
    check(&g, 2);
    graph_open(&g, 17); /* two names of one tensor: one of them stays a copy */
    input(&g);
    graph_node(&g, "Exp", "x", "b");
    graph_node(&g, "Identity", "b", "y");
    graph_node(&g, "Identity", "b", "z");
    graph_output(&g, "z");
    check(&g, 2);
    graph_open(&g, 17); /* an input as output */
    input(&g);
    graph_node(&g, "Identity", "x", "y");
    check(&g, 1);
}

/* --- shape arithmetic of an open batch --- */

/* x -> Shape -> Gather(0) -> Unsqueeze -> Concat(., 24) -> Reshape(x, .) */
static void open_batch(void **state)
{
    (void)state;
    for (int with_slice = 0; with_slice < 2; with_slice++) {
        graph_case g;
        graph_open(&g, 17);
        input(&g);
        graph_ints(&g, "zero", 0, NULL, (const int64_t[]){0});
        graph_ints(&g, "axes", 1, (const int64_t[]){1}, (const int64_t[]){0});
        graph_ints(&g, "one", 1, (const int64_t[]){1}, (const int64_t[]){1});
        graph_ints(&g, "rest", 1, (const int64_t[]){1}, (const int64_t[]){24});
        graph_node(&g, "Exp", "x", "e");
        graph_node(&g, "Shape", "x", "s");
        if (with_slice) {
            graph_node(&g, "Slice", "s axes one", "u");
        } else {
            graph_node(&g, "Gather", "s zero", "n");
            graph_node(&g, "Unsqueeze", "n axes", "u");
        }
        pare_node *join = graph_node(&g, "Concat", "u rest", "t");
        assert_int_equal(pare_node_set_int(join, "axis", 0), PARE_OK);
        graph_node(&g, "Reshape", "e t", "r");
        graph_node(&g, "Neg", "r", "y");
        check(&g, 3);
    }
}

/* Two sizes that nothing is known of stay computed. */
static void two_open_sizes(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    input(&g);
    graph_input(&g, "n", PARE_s64, 1, (const int64_t[]){1});
    graph_input(&g, "m", PARE_s64, 1, (const int64_t[]){1});
    pare_node *join = graph_node(&g, "Concat", "n m", "t");
    assert_int_equal(pare_node_set_int(join, "axis", 0), PARE_OK);
    graph_node(&g, "Reshape", "x t", "y");
    graph_output(&g, "y");
    simplify(&g);
    assert_int_equal(graph_count(&g, "Concat"), 1);
    assert_non_null(graph_value(&g, "t")->producer);
    graph_close(&g);
}

/* --- duplicates --- */

static void equal_constants_and_nodes(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    const float w[6] = {1, 2, 3, 4, 5, 6}, other[6] = {1, 2, 3, 4, 5, 7};
    input(&g);
    graph_floats(&g, "w1", 1, (const int64_t[]){6}, w);
    graph_floats(&g, "w2", 1, (const int64_t[]){6}, w);
    graph_floats(&g, "w3", 1, (const int64_t[]){6}, other);
    graph_node(&g, "Mul", "x w1", "a");
    graph_node(&g, "Mul", "x w2", "b");
    graph_node(&g, "Mul", "x w3", "c");
    graph_node(&g, "Exp", "a", "d");
    graph_node(&g, "Exp", "b", "e");
    graph_node(&g, "Add", "d e", "f");
    graph_node(&g, "Add", "f c", "y");
    check(&g, 5);
}

/* Attributes differ; random numbers are drawn twice. */
static void what_is_not_equal(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    input(&g);
    transpose(&g, "x", "a", 1, 2, 0);
    transpose(&g, "x", "b", 1, 0, 2);
    graph_node(&g, "RandomUniformLike", "x", "r1");
    graph_node(&g, "RandomUniformLike", "x", "r2");
    graph_output(&g, "a");
    graph_output(&g, "b");
    graph_output(&g, "r1");
    graph_output(&g, "r2");
    simplify(&g);
    assert_int_equal(g.model->graph->node_count, 4);
    graph_close(&g);
}

/* --- what goes, and what stays in the file --- */

static void dead_parts(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    input(&g);
    graph_floats(&g, "unread", 1, (const int64_t[]){1}, (const float[]){3});
    graph_node(&g, "Exp", "x", "dead");
    graph_node(&g, "Neg", "x", "y");
    check(&g, 1);
}

/* A constant above 64 KiB stays what a small node makes of a small constant. */
static void large_results_stay_nodes(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    input(&g);
    graph_ints(&g, "to", 1, (const int64_t[]){2}, (const int64_t[]){200, 200});
    graph_floats(&g, "one", 0, NULL, (const float[]){1});
    graph_node(&g, "Expand", "one to", "large");
    graph_node(&g, "ReduceSum", "large", "s");
    graph_node(&g, "Mul", "x s", "y");
    graph_output(&g, "y");
    simplify(&g);
    assert_int_equal(graph_count(&g, "Expand"), 1);
    graph_close(&g);
}

static void old_opsets_are_lifted(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 9);
    input(&g);
    graph_node(&g, "Exp", "x", "a");
    graph_node(&g, "Identity", "a", "y");
    check(&g, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rule),
        cmocka_unit_test(neutral_numbers),
        cmocka_unit_test(casts),
        cmocka_unit_test(transposes_cancel),
        cmocka_unit_test(reshapes_of_reshapes),
        cmocka_unit_test(output_keeps_its_name),
        cmocka_unit_test(open_batch),
        cmocka_unit_test(two_open_sizes),
        cmocka_unit_test(equal_constants_and_nodes),
        cmocka_unit_test(what_is_not_equal),
        cmocka_unit_test(dead_parts),
        cmocka_unit_test(large_results_stay_nodes),
        cmocka_unit_test(old_opsets_are_lifted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
