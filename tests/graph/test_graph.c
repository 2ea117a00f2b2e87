/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/graph/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct fixture {
    pare_ctx ctx;
    pare_model *model;
    pare_graph *graph;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    pare_ctx_init(&f->ctx);
    if (pare_model_new(&f->ctx, &f->model, "test.onnx") != PARE_OK) return 1;
    f->graph = f->model->graph;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    pare_model_free(f->model);
    free(f);
    return 0;
}

static pare_value *value(fixture *f, const char *name)
{
    pare_value *v = pare_graph_find_own(f->graph, name);
    if (!v) assert_int_equal(pare_value_new(f->graph, &v, name), PARE_OK);
    return v;
}

static pare_node *node(fixture *f, const char *op, const char *in, const char *out)
{
    pare_value *x = value(f, in), *y = value(f, out);
    pare_node *n;
    assert_int_equal(pare_node_new(f->graph, &n, f->graph->node_count, op, "", out, &x, 1, &y, 1),
                     PARE_OK);
    return n;
}

static void ends(fixture *f, const char *in, const char *out)
{
    value(f, in)->is_input = true;
    value(f, out)->is_output = true;
    assert_int_equal(pare_values_add(f->graph, &f->graph->in, value(f, in)), PARE_OK);
    assert_int_equal(pare_values_add(f->graph, &f->graph->out, value(f, out)), PARE_OK);
}

static void a_name_is_defined_once(void **state)
{
    fixture *f = *state;
    pare_value *v;
    value(f, "x");
    assert_int_equal(pare_value_new(f->graph, &v, "x"), PARE_INPUT);
    assert_non_null(strstr(f->ctx.message, "test.onnx: tensor 'x'"));
}

static void sort_orders_and_keeps_what_is_sorted(void **state)
{
    fixture *f = *state;
    node(f, "C", "b", "c");
    node(f, "A", "x", "a");
    node(f, "B", "a", "b");
    ends(f, "x", "c");
    assert_int_equal(pare_graph_sort(f->graph), PARE_OK);
    const char *order[] = {"A", "B", "C"};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) assert_string_equal(f->graph->node[i]->op_type, order[i]);
        assert_int_equal(pare_graph_sort(f->graph), PARE_OK);
    }
}

static void a_cycle_is_named(void **state)
{
    fixture *f = *state;
    node(f, "A", "b", "a");
    node(f, "B", "a", "b");
    ends(f, "x", "b");
    assert_int_equal(pare_graph_sort(f->graph), PARE_INPUT);
    assert_non_null(strstr(f->ctx.message, "cycle"));
    assert_non_null(strstr(f->ctx.message, "test.onnx: node '"));
}

static void an_undefined_tensor_is_named(void **state)
{
    fixture *f = *state;
    node(f, "A", "nowhere", "a");
    ends(f, "x", "a");
    assert_int_equal(pare_graph_sort(f->graph), PARE_INPUT);
    assert_non_null(strstr(f->ctx.message, "'nowhere'"));
}

/* A chain longer than any C stack would take. */
static void long_chains_sort(void **state)
{
    fixture *f = *state;
    enum { N = 20000 };
    char in[16], out[16];
    for (int i = N - 1; i >= 0; i--) {
        snprintf(in, sizeof in, "v%d", i);
        snprintf(out, sizeof out, "v%d", i + 1);
        node(f, "Relu", in, out);
    }
    snprintf(out, sizeof out, "v%d", N);
    ends(f, "v0", out);
    assert_int_equal(pare_graph_sort(f->graph), PARE_OK);
    assert_string_equal(f->graph->node[0]->out[0]->name, "v1");
    assert_string_equal(f->graph->node[N - 1]->out[0]->name, out);
}

static void replacing_moves_every_use(void **state)
{
    fixture *f = *state;
    node(f, "A", "x", "a");
    pare_node *twice = node(f, "Add", "a", "b");
    assert_int_equal(pare_node_set_in(twice, 1, value(f, "a")), PARE_OK);
    ends(f, "x", "b");
    pare_value *fresh = value(f, "fresh");
    assert_int_equal(value(f, "a")->user_count, 2);
    assert_int_equal(pare_value_replace(value(f, "a"), fresh, true), PARE_OK);
    assert_int_equal(value(f, "a")->user_count, 0);
    assert_int_equal(fresh->user_count, 2);
    assert_ptr_equal(twice->in[0], fresh);
    assert_ptr_equal(twice->in[1], fresh);
}

static void sweeping_leaves_what_is_read(void **state)
{
    fixture *f = *state;
    int64_t dims[] = {2};
    float data[] = {1, 2};
    pare_value *used, *unused;
    assert_int_equal(pare_init_new(f->graph, &used, "w", PARE_f32, 1, dims, data), PARE_OK);
    assert_int_equal(pare_init_new(f->graph, &unused, "u", PARE_f32, 1, dims, data), PARE_OK);
    pare_node *n = node(f, "Add", "x", "y");
    assert_int_equal(pare_node_set_in(n, 1, used), PARE_OK);
    node(f, "Relu", "y", "dead1");
    node(f, "Relu", "dead1", "dead2");
    ends(f, "x", "y");
    assert_int_equal(pare_graph_sweep(f->graph), 2);
    assert_int_equal(f->graph->node_count, 1);
    assert_int_equal(f->graph->init.count, 1);
    assert_ptr_equal(f->graph->init.item[0], used);
}

static void a_clone_is_equal_and_independent(void **state)
{
    fixture *f = *state;
    pare_model *copy;
    char text[256];
    pare_node *n = node(f, "Conv", "x", "y");
    assert_int_equal(pare_node_set_ints(n, "pads", (int64_t[]){1, 2, 3, 4}, 4), PARE_OK);
    ends(f, "x", "y");
    assert_int_equal(pare_model_clone(&f->ctx, &copy, f->model), PARE_OK);
    assert_null(pare_model_compare(f->model, copy, text, sizeof text));
    assert_int_equal(pare_node_set_int(copy->graph->node[0], "group", 2), PARE_OK);
    assert_non_null(pare_model_compare(f->model, copy, text, sizeof text));
    assert_null(pare_node_attr(n, "group"));
    pare_model_free(copy);
}

/* The first allocation, then the second, ... is refused: each time a status and a message. */
static void clones_survive_every_refused_allocation(void **state)
{
    fixture *f = *state;
    node(f, "A", "x", "a");
    node(f, "B", "a", "b");
    ends(f, "x", "b");
    pare_status st = PARE_MEMORY;
    for (long n = 0; st != PARE_OK; n++) {
        pare_model *copy;
        pare_ctx_clear(&f->ctx);
        f->ctx.fail_after = n;
        st = pare_model_clone(&f->ctx, &copy, f->model);
        f->ctx.fail_after = -1;
        if (st == PARE_OK) {
            assert_true(n > 0);
            pare_model_free(copy);
        } else {
            assert_int_equal(st, PARE_MEMORY);
            assert_non_null(strstr(f->ctx.message, "memory"));
        }
    }
}

static void fresh_names_are_fresh(void **state)
{
    fixture *f = *state;
    value(f, "x");
    value(f, "x_1");
    assert_string_equal(pare_graph_fresh_name(f->graph, "x"), "x_2");
    assert_string_equal(pare_graph_fresh_name(f->graph, "y"), "y");
}

#define WITH_MODEL(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MODEL(a_name_is_defined_once),
        WITH_MODEL(sort_orders_and_keeps_what_is_sorted),
        WITH_MODEL(a_cycle_is_named),
        WITH_MODEL(an_undefined_tensor_is_named),
        WITH_MODEL(long_chains_sort),
        WITH_MODEL(replacing_moves_every_use),
        WITH_MODEL(sweeping_leaves_what_is_read),
        WITH_MODEL(a_clone_is_equal_and_independent),
        WITH_MODEL(clones_survive_every_refused_allocation),
        WITH_MODEL(fresh_names_are_fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
