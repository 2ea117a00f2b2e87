/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/passes/passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct rig {
    pare_ctx ctx;
    pare_model *model;
    char said[4096]; /* one problem a line */
    int count;
} rig;

static int setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    pare_ctx_init(&r->ctx);
    *state = r;
    if (pare_model_new(&r->ctx, &r->model, "folder/m.onnx")) return -1;
    return pare_model_set_opset(r->model, "", 17);
}

static int teardown(void **state)
{
    rig *r = *state;
    pare_model_free(r->model);
    free(r);
    return 0;
}

static pare_value *value(rig *r, const char *name)
{
    pare_value *v = pare_graph_find(r->model->graph, name);
    if (!v) assert_int_equal(pare_value_new(r->model->graph, &v, name), PARE_OK);
    return v;
}

static void input(rig *r, const char *name, int64_t dim)
{
    pare_value *v = value(r, name);
    pare_shape shape = {.rank = 1, .dim = {dim}};
    pare_value_set_type(v, PARE_f32, &shape);
    v->is_input = true;
    assert_int_equal(pare_values_add(r->model->graph, &r->model->graph->in, v), PARE_OK);
}

/* in: up to two names */
static pare_node *node(rig *r, const char *op, const char *domain, const char *name, const char *in,
                       const char *second, const char *out)
{
    pare_value *from[2] = {value(r, in), second ? value(r, second) : NULL}, *to = value(r, out);
    pare_graph *g = r->model->graph;
    pare_node *n;
    assert_int_equal(
        pare_node_new(g, &n, g->node_count, op, domain, name, from, second ? 2 : 1, &to, 1),
        PARE_OK);
    return n;
}

static void note(void *user, const char *problem)
{
    rig *r = user;
    size_t used = strlen(r->said);
    snprintf(r->said + used, sizeof r->said - used, "%s\n", problem);
}

static void check(rig *r)
{
    r->said[0] = 0;
    assert_int_equal(pare_pass_check(r->model, note, r, &r->count), PARE_OK);
    assert_string_equal(r->ctx.message, "");
}

static void a_good_model_has_none(void **state)
{
    rig *r = *state;
    input(r, "x", 4);
    node(r, "Relu", "", "b", "t", NULL, "y"); /* order does not matter */
    node(r, "Add", "", "a", "x", "x", "t");
    check(r);
    assert_string_equal(r->said, "");
    assert_int_equal(r->count, 0);
}

/* b and c feed each other; a is before the cycle and d after it. e reads itself. */
static void cycles_are_named(void **state)
{
    rig *r = *state;
    input(r, "x", 4);
    node(r, "Relu", "", "a", "x", NULL, "ta");
    node(r, "Add", "", "b", "ta", "tc", "tb");
    node(r, "Relu", "", "c", "tb", NULL, "tc");
    node(r, "Relu", "", "d", "tc", NULL, "td");
    node(r, "Relu", "", "e", "te", NULL, "te");
    check(r);
    assert_string_equal(r->said,
                        "node 'b' (Add): it is on a cycle: its output leads back to its input\n"
                        "node 'c' (Relu): it is on a cycle: its output leads back to its input\n"
                        "node 'e' (Relu): it is on a cycle: its output leads back to its input\n");
}

static void all_kinds_come_at_once(void **state)
{
    rig *r = *state;
    input(r, "x", 4);
    node(r, "Relu", "", "a", "nowhere", NULL, "ta");
    node(r, "Magic", "", "b", "x", NULL, "tb");
    node(r, "Relu", "my", "", "x", NULL, "tc");
    assert_int_equal(pare_values_add(r->model->graph, &r->model->graph->out, value(r, "lost")),
                     PARE_OK);
    check(r);
    assert_string_equal(
        r->said,
        "node 'a' (Relu): it reads tensor 'nowhere', which nothing defines\n"
        "output 'lost' is computed by no node\n"
        "node 'b' (Magic): the operator is unknown; `pare ops` lists those that are known\n"
        "node 'tc' (Relu): the model imports no opset of its domain 'my'\n"
        "node 'tc' (Relu): the operator of domain my is unknown; `pare ops` lists those that are "
        "known\n");
    assert_int_equal(r->count, 5);
}

static void opsets_are_checked(void **state)
{
    rig *r = *state;
    input(r, "x", 4);
    node(r, "Relu", "", "a", "x", NULL, "r");
    node(r, "Mod", "", "b", "r", "x", "y");
    assert_int_equal(pare_model_set_opset(r->model, "", 99), PARE_OK);
    check(r);
    assert_int_equal(r->count, 1);
    assert_non_null(strstr(r->said, "node 'b' (Mod): its form of opset 99 is not known"));
    r->model->opset_count = 0;
    check(r);
    assert_string_equal(r->said, "the model imports no version of ONNX's operators\n");
}

static void shapes_are_checked_last(void **state)
{
    rig *r = *state;
    input(r, "x", 4);
    input(r, "z", 5);
    node(r, "Add", "", "sum", "x", "z", "y");
    check(r);
    assert_int_equal(r->count, 1);
    assert_non_null(strstr(r->said, "node 'sum' (Add): "));
    assert_null(strstr(r->said, "m.onnx"));
    assert_int_equal(r->model->graph->node_count, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_good_model_has_none), TEST(cycles_are_named),        TEST(all_kinds_come_at_once),
        TEST(opsets_are_checked),    TEST(shapes_are_checked_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
