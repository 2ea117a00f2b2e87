/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* x -> Relu -> a -> Relu -> y, all f32[2,3] */
static pare_model *two_relus(pare_ctx *ctx)
{
    pare_model *m;
    pare_value *x, *a, *y;
    assert_int_equal(pare_model_new(ctx, &m, "two.onnx"), PARE_OK);
    pare_graph *g = m->graph;
    assert_int_equal(pare_model_set_opset(m, "", 17), PARE_OK);
    assert_int_equal(pare_value_new(g, &x, "x"), PARE_OK);
    assert_int_equal(pare_value_new(g, &a, "a"), PARE_OK);
    assert_int_equal(pare_value_new(g, &y, "y"), PARE_OK);
    pare_shape shape = {.rank = 2, .dim = {-1, 3}, .name = {"batch"}};
    pare_value_set_type(x, PARE_f32, &shape);
    x->is_input = true;
    y->is_output = true;
    assert_int_equal(pare_values_add(g, &g->in, x), PARE_OK);
    assert_int_equal(pare_values_add(g, &g->out, y), PARE_OK);
    assert_int_equal(pare_node_new(g, NULL, 0, "Relu", "", "r1", &x, 1, &a, 1), PARE_OK);
    assert_int_equal(pare_node_new(g, NULL, 1, "Relu", "", "r2", &a, 1, &y, 1), PARE_OK);
    return m;
}

static const pare_input_shape two_by_three = {"x", {.rank = 2, .dim = {2, 3}}};

static void a_model_runs(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_plan *plan;
    pare_runner *runner;
    pare_ctx_init(&ctx);
    pare_model *m = two_relus(&ctx);
    assert_int_equal(pare_plan_new(&ctx, &plan, m, &two_by_three, 1, NULL), PARE_OK);
    pare_model_free(m); /* the plan has what it needs */
    assert_int_equal(pare_runner_new(&ctx, &runner, plan), PARE_OK);
    const float x[6] = {-1, 2, -3, 4, -5, 6}, expected[6] = {0, 2, 0, 4, 0, 6};
    memcpy(pare_runner_input(runner, 0).data, x, sizeof x);
    assert_int_equal(pare_runner_run(runner), PARE_OK);
    assert_memory_equal(pare_runner_output(runner, 0).data, expected, sizeof expected);

    const float other[6] = {7, -7, 7, -7, 7, -7}, then[6] = {7, 0, 7, 0, 7, 0};
    pare_runner_set_input(runner, 0, other);
    assert_int_equal(pare_runner_run(runner), PARE_OK);
    assert_memory_equal(pare_runner_output(runner, 0).data, then, sizeof then);
    pare_runner_free(runner);
    pare_plan_free(plan);
}

static void a_wrong_shape_is_named(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_plan *plan;
    pare_ctx_init(&ctx);
    pare_model *m = two_relus(&ctx);
    pare_input_shape wrong = {"x", {.rank = 2, .dim = {2, 4}}};
    assert_int_equal(pare_plan_new(&ctx, &plan, m, &wrong, 1, NULL), PARE_INPUT);
    assert_string_equal(ctx.message,
                        "two.onnx: input 'x' has shape [batch,3], but was given [2,4]");
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_plan_new(&ctx, &plan, m, NULL, 0, NULL), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "must be given"));
    pare_ctx_clear(&ctx);
    pare_input_shape stranger = {"z", {.rank = 1, .dim = {1}}};
    assert_int_equal(pare_plan_new(&ctx, &plan, m, &stranger, 1, NULL), PARE_INPUT);
    assert_string_equal(ctx.message, "two.onnx: the model has no input 'z'");
    pare_model_free(m);
}

static void an_unknown_operator_is_named(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_plan *plan;
    pare_ctx_init(&ctx);
    pare_model *m = two_relus(&ctx);
    m->graph->node[1]->op_type = "Frobnicate";
    assert_int_equal(pare_plan_new(&ctx, &plan, m, &two_by_three, 1, NULL), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "two.onnx: node 'r2' (Frobnicate)"));
    pare_model_free(m);
}

static pare_status count_values(void *user, const pare_value *value, const pare_view *view)
{
    char *seen = user;
    assert_int_equal(pare_view_count(view), 6);
    strcat(seen, value->name);
    return PARE_OK;
}

static void observers_see_inputs_and_results(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_plan *plan;
    pare_runner *runner;
    char seen[16] = "";
    pare_ctx_init(&ctx);
    pare_model *m = two_relus(&ctx);
    pare_plan_options options = {.keep_all = true};
    assert_int_equal(pare_plan_new(&ctx, &plan, m, &two_by_three, 1, &options), PARE_OK);
    assert_int_equal(pare_runner_new(&ctx, &runner, plan), PARE_OK);
    memset(pare_runner_input(runner, 0).data, 0, 24);
    pare_runner_observe(runner, count_values, seen);
    assert_int_equal(pare_runner_run(runner), PARE_OK);
    assert_string_equal(seen, "xay");
    pare_runner_free(runner);
    pare_plan_free(plan);
    pare_model_free(m);
}

static void a_session_keeps_a_plan_per_shape(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_session *session;
    pare_runner *a, *b, *again;
    pare_ctx_init(&ctx);
    pare_model *m = two_relus(&ctx);
    pare_input_shape five = {"x", {.rank = 2, .dim = {5, 3}}};
    assert_int_equal(pare_session_new(&ctx, &session, m, NULL), PARE_OK);
    assert_int_equal(pare_session_runner(session, &a, &two_by_three, 1), PARE_OK);
    assert_int_equal(pare_session_runner(session, &b, &five, 1), PARE_OK);
    assert_int_equal(pare_session_runner(session, &again, &two_by_three, 1), PARE_OK);
    assert_ptr_equal(a, again);
    assert_ptr_not_equal(a, b);
    assert_int_equal(pare_runner_output(b, 0).dim[0], 5);
    pare_session_free(session);
    pare_model_free(m);
}

/* Every allocation is refused in turn: a status and a message each time, nothing leaks. */
static void plans_survive_every_refused_allocation(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    pare_model *m = two_relus(&ctx);
    pare_status st = PARE_MEMORY;
    for (long n = 0; st != PARE_OK; n++) {
        pare_plan *plan = NULL;
        pare_runner *runner = NULL;
        pare_ctx_clear(&ctx);
        ctx.fail_after = n;
        st = pare_plan_new(&ctx, &plan, m, &two_by_three, 1, NULL);
        if (st == PARE_OK) st = pare_runner_new(&ctx, &runner, plan);
        ctx.fail_after = -1;
        if (st != PARE_OK) {
            assert_int_equal(st, PARE_MEMORY);
            assert_non_null(strstr(ctx.message, "memory"));
        }
        pare_runner_free(runner);
        pare_plan_free(plan);
    }
    pare_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_runs),
        cmocka_unit_test(a_wrong_shape_is_named),
        cmocka_unit_test(an_unknown_operator_is_named),
        cmocka_unit_test(observers_see_inputs_and_results),
        cmocka_unit_test(a_session_keeps_a_plan_per_shape),
        cmocka_unit_test(plans_survive_every_refused_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
