/* SPDX-License-Identifier: Apache-2.0 */
/* Models with a part whose shapes only a run knows, and with control flow. */
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct run {
    graph_case g;
    pare_plan *plan;
    pare_runner *runner;
} run;

static void plan_open(run *r)
{
    assert_int_equal(pare_plan_new(&r->g.ctx, &r->plan, r->g.model, NULL, 0, NULL), PARE_OK);
    assert_int_equal(pare_runner_new(&r->g.ctx, &r->runner, r->plan), PARE_OK);
}

static void run_close(run *r)
{
    pare_runner_free(r->runner);
    pare_plan_free(r->plan);
    graph_close(&r->g);
}

static pare_status run_once(run *r, const float *x, size_t bytes)
{
    memcpy(pare_runner_input(r->runner, 0).data, x, bytes);
    return pare_runner_run(r->runner);
}

static void expect(const run *r, int i, int rank, const int64_t *dims, const float *want)
{
    const pare_view y = pare_runner_output(r->runner, i);
    int64_t count = 1;
    assert_int_equal(y.rank, rank);
    for (int k = 0; k < rank; k++) {
        assert_int_equal(y.dim[k], dims[k]);
        count *= dims[k];
    }
    for (int64_t k = 0; k < count; k++)
        assert_float_equal(((const float *)y.data)[k], want[k], 1e-6);
}

/* x[4] -> Relu -> NonZero -> Transpose -> GatherND(r) -> y[?]; and early[4] = Neg(x). */
static void picks_open(run *r)
{
    memset(r, 0, sizeof *r);
    graph_open(&r->g, 17);
    graph_input(&r->g, "x", PARE_f32, 1, (const int64_t[]){4});
    graph_node(&r->g, "Relu", "x", "r");
    graph_node(&r->g, "NonZero", "r", "n");
    graph_node(&r->g, "Transpose", "n", "t");
    graph_node(&r->g, "GatherND", "r t", "y");
    graph_node(&r->g, "Neg", "x", "early");
    graph_output(&r->g, "y");
    graph_output(&r->g, "early");
    plan_open(r);
}

static void results_are_as_long_as_the_values_say(void **state)
{
    (void)state;
    run r;
    picks_open(&r);
    assert_true(pare_plan_is_dynamic(r.plan));
    assert_int_equal(pare_plan_output_count(r.plan), 2);
    assert_string_equal(pare_plan_output(r.plan, 0)->name, "y");
    assert_string_equal(pare_plan_output(r.plan, 1)->name, "early");
    const float some[4] = {1, -2, 3, -4}, none[4] = {-1, -1, -1, -1}, all[4] = {5, 6, 7, 8};
    for (int turn = 0; turn < 3; turn++) { /* what was prepared serves again */
        assert_int_equal(run_once(&r, some, sizeof some), PARE_OK);
        expect(&r, 0, 1, (const int64_t[]){2}, (const float[]){1, 3});
        expect(&r, 1, 1, (const int64_t[]){4}, (const float[]){-1, 2, -3, 4});
        assert_int_equal(run_once(&r, none, sizeof none), PARE_OK);
        expect(&r, 0, 1, (const int64_t[]){0}, NULL);
        assert_int_equal(run_once(&r, all, sizeof all), PARE_OK);
        expect(&r, 0, 1, (const int64_t[]){4}, all);
    }
    run_close(&r);
}

/* y = Reshape(x, s), s another input. */
static void a_shape_may_be_an_input(void **state)
{
    (void)state;
    run r;
    memset(&r, 0, sizeof r);
    graph_open(&r.g, 17);
    graph_input(&r.g, "x", PARE_f32, 1, (const int64_t[]){6});
    graph_input(&r.g, "s", PARE_s64, 1, (const int64_t[]){2});
    graph_node(&r.g, "Reshape", "x s", "y");
    graph_node(&r.g, "Neg", "y", "z");
    graph_output(&r.g, "z");
    plan_open(&r);
    const float x[6] = {1, 2, 3, 4, 5, 6}, z[6] = {-1, -2, -3, -4, -5, -6};
    const int64_t shapes[][2] = {{2, 3}, {3, -1}, {6, 1}, {1, 6}, {2, 3}, {-1, 1}, {2, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        memcpy(pare_runner_input(r.runner, 1).data, shapes[i], sizeof shapes[i]);
        assert_int_equal(run_once(&r, x, sizeof x), PARE_OK);
        int64_t a = shapes[i][0], b = shapes[i][1];
        expect(&r, 0, 2, (const int64_t[]){a < 0 ? 6 / b : a, b < 0 ? 6 / a : b}, z);
    }
    memcpy(pare_runner_input(r.runner, 1).data, (const int64_t[]){4, 2}, sizeof shapes[0]);
    assert_int_equal(run_once(&r, x, sizeof x), PARE_INPUT);
    assert_non_null(strstr(r.g.ctx.message, "(Reshape)"));
    memcpy(pare_runner_input(r.runner, 1).data, shapes[0], sizeof shapes[0]); /* it can go on */
    assert_int_equal(run_once(&r, x, sizeof x), PARE_OK);
    expect(&r, 0, 2, (const int64_t[]){2, 3}, z);
    run_close(&r);
}

/* --- bodies --- */

static pare_value *body_value(pare_graph *g, const char *name, pare_dtype dtype, int rank)
{
    pare_value *v;
    assert_int_equal(pare_value_new(g, &v, name), PARE_OK);
    const pare_shape shape = {.rank = rank, .dim = {-1}};
    pare_value_set_type(v, dtype, &shape);
    return v;
}

static void body_set(pare_node *node, const char *attr, pare_graph *body)
{
    const pare_attr a = {.name = attr, .kind = PARE_ATTR_GRAPH, .graph = body};
    assert_int_equal(pare_node_set_attr(node, &a), PARE_OK);
}

/* Loop(trip = 3, state = x[1]): state = Concat(state, x) with x from around; scan = the number of
   the turn. */
static void a_state_grows(void **state)
{
    (void)state;
    run r;
    pare_graph *b;
    memset(&r, 0, sizeof r);
    graph_open(&r.g, 17);
    pare_value *x = graph_input(&r.g, "x", PARE_f32, 1, (const int64_t[]){1});
    graph_ints(&r.g, "trip", 0, NULL, (const int64_t[]){3});
    pare_node *loop = graph_node(&r.g, "Loop", "trip - x", "y k");
    graph_output(&r.g, "y");
    graph_output(&r.g, "k");
    assert_int_equal(pare_graph_new(r.g.model, &b, r.g.model->graph), PARE_OK);
    pare_value *in[] = {body_value(b, "i", PARE_s64, 0), body_value(b, "c", PARE_bool, 0),
                        body_value(b, "s", PARE_f32, 1)};
    pare_value *grown = body_value(b, "grown", PARE_f32, 1);
    pare_value *copied = body_value(b, "copied", PARE_s64, 0);
    for (int i = 0; i < 3; i++) {
        in[i]->is_input = true;
        assert_int_equal(pare_values_add(b, &b->in, in[i]), PARE_OK);
    }
    pare_value *out[] = {in[1], grown, copied};
    for (int i = 0; i < 3; i++) {
        out[i]->is_output = true;
        assert_int_equal(pare_values_add(b, &b->out, out[i]), PARE_OK);
    }
    pare_node *concat;
    pare_value *parts[] = {in[2], x};
    assert_int_equal(pare_node_new(b, &concat, 0, "Concat", "", "cat", parts, 2, &grown, 1),
                     PARE_OK);
    assert_int_equal(pare_node_set_int(concat, "axis", 0), PARE_OK);
    assert_int_equal(pare_node_new(b, NULL, 1, "Identity", "", "id", &in[0], 1, &copied, 1),
                     PARE_OK);
    body_set(loop, "body", b);
    plan_open(&r);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(run_once(&r, &(const float){7}, sizeof(float)), PARE_OK);
        expect(&r, 0, 1, (const int64_t[]){4}, (const float[]){7, 7, 7, 7});
        const pare_view k = pare_runner_output(r.runner, 1);
        assert_int_equal(k.dim[0], 3);
        assert_memory_equal(k.data, ((const int64_t[]){0, 1, 2}), 3 * sizeof(int64_t));
    }
    run_close(&r);
}

static void branch_add(run *r, pare_node *node, const char *attr, const char *op, const char *in,
                       const char *name)
{
    pare_graph *b;
    pare_value *x = graph_value(&r->g, in);
    assert_int_equal(pare_graph_new(r->g.model, &b, r->g.model->graph), PARE_OK);
    pare_value *y = body_value(b, name, PARE_f32, 1);
    y->is_output = true;
    assert_int_equal(pare_values_add(b, &b->out, y), PARE_OK);
    assert_int_equal(pare_node_new(b, NULL, 0, op, "", name, &x, 1, &y, 1), PARE_OK);
    body_set(node, attr, b);
}

/* y = If(ReduceMax(x) > 0, Neg(x), Abs(x)); z = Neg(y). */
static void a_condition_chooses(void **state)
{
    (void)state;
    run r;
    memset(&r, 0, sizeof r);
    graph_open(&r.g, 17);
    graph_input(&r.g, "x", PARE_f32, 1, (const int64_t[]){2});
    graph_floats(&r.g, "zero", 0, NULL, (const float[]){0});
    pare_node *max = graph_node(&r.g, "ReduceMax", "x", "m");
    assert_int_equal(pare_node_set_int(max, "keepdims", 0), PARE_OK);
    graph_node(&r.g, "Greater", "m zero", "c");
    pare_node *node = graph_node(&r.g, "If", "c", "y");
    graph_node(&r.g, "Neg", "y", "z");
    graph_output(&r.g, "z");
    branch_add(&r, node, "then_branch", "Neg", "x", "one");
    branch_add(&r, node, "else_branch", "Abs", "x", "other");
    plan_open(&r);
    assert_int_equal(run_once(&r, (const float[]){2, -3}, 2 * sizeof(float)), PARE_OK);
    expect(&r, 0, 1, (const int64_t[]){2}, (const float[]){2, -3});
    assert_int_equal(run_once(&r, (const float[]){-2, -3}, 2 * sizeof(float)), PARE_OK);
    expect(&r, 0, 1, (const int64_t[]){2}, (const float[]){-2, -3});
    run_close(&r);
}

/* --- observers and profiles --- */

typedef struct seen {
    char names[256];
} seen;

static pare_status note(void *user, const pare_value *value, const pare_view *view)
{
    seen *s = user;
    (void)view;
    strcat(strcat(s->names, " "), value->name);
    return PARE_OK;
}

static void observers_and_profiles_see_it(void **state)
{
    (void)state;
    run r;
    seen s = {""};
    picks_open(&r);
    pare_runner_observe(r.runner, note, &s);
    double times[8];
    assert_in_range(pare_plan_step_count(r.plan), 1, 8);
    for (int i = 0; i < 8; i++) times[i] = -1;
    pare_runner_profile(r.runner, times);
    assert_int_equal(run_once(&r, (const float[]){1, -2, 3, -4}, 4 * sizeof(float)), PARE_OK);
    for (const char *const *name =
             (const char *const[]){" x", " r", " early", " n", " t", " y", NULL};
         *name; name++)
        assert_non_null(strstr(s.names, *name));
    int interpreted = 0;
    for (int i = 0; i < pare_plan_step_count(r.plan); i++) {
        pare_step_info info;
        pare_plan_step(r.plan, i, &info);
        interpreted += !strcmp(info.kernel, "interpreter");
        assert_true(times[i] >= 0);
    }
    assert_int_equal(interpreted, 3);
    run_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_as_long_as_the_values_say),
        cmocka_unit_test(a_shape_may_be_an_input),
        cmocka_unit_test(a_state_grows),
        cmocka_unit_test(a_condition_chooses),
        cmocka_unit_test(observers_and_profiles_see_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
