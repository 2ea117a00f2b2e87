/* SPDX-License-Identifier: Apache-2.0 */
/* Which Slices lie in their inputs: by graphs alone, then in plans on the CPU. */
#include "tests/exec/parts_case.h"

#include <math.h>
#include <stdio.h>

/* out = in[from:to:step] of an axis. */
static void slice(parts_case *c, const char *in, const char *out, int64_t axis, int64_t from,
                  int64_t to, int64_t step)
{
    const char *const name[] = {"from", "to", "axis", "step"};
    const int64_t v[] = {from, to, axis, step};
    char all[160], one[32];
    int n = snprintf(all, sizeof all, "%s", in);
    for (int i = 0; i < 4; i++) {
        snprintf(one, sizeof one, "%s_%s", name[i], out);
        graph_ints(&c->g, one, 1, (int64_t[]){1}, &v[i]);
        n += snprintf(all + n, sizeof all - (size_t)n, " %s", one);
    }
    graph_node(&c->g, "Slice", all, out);
}

/* Stretches of one axis lie in what they are cut from, side by side or one over the other; of the
   graph's input, in steps, or what is an output nothing does. */
static void slices(void **state)
{
    (void)state;
    parts_case c;
    parts_open(&c, 4);
    graph_node(&c.g, "Exp", "x", "e");
    slice(&c, "e", "a", 1, 8, 16, 1);
    slice(&c, "e", "b", 1, -12, INT64_MAX, 1);
    slice(&c, "e", "rows", 0, 1, 3, 1);
    slice(&c, "e", "odd", 1, 2, 10, 1);
    slice(&c, "e", "steps", 1, 0, 16, 2);
    slice(&c, "e", "out", 1, 0, 4, 1);
    slice(&c, "x", "of_x", 1, 0, 4, 1);
    slice(&c, "b", "inner", 1, 4, 8, 1);
    slice(&c, "rows", "part", 1, 0, 8, 1);
    const char *const read[] = {"a", "rows", "odd", "steps", "of_x", "inner", "part"};
    for (int i = 0; i < 7; i++) {
        char y[16];
        snprintf(y, sizeof y, "y%d", i);
        graph_node(&c.g, "Neg", read[i], y);
        graph_output(&c.g, y);
    }
    graph_output(&c.g, "out");
    choose(&c, true);
    is_own(&c, "e");
    lies(&c, "a", "e", 32, 64), lies(&c, "b", "e", 16, 64), lies(&c, "rows", "e", 64, 0);
    lies(&c, "inner", "e", 32, 64), lies(&c, "part", "e", 64, 64);
    is_own(&c, "odd"), is_own(&c, "steps"), is_own(&c, "out"), is_own(&c, "of_x");
    assert_true(is_whole(&c, "a") && is_whole(&c, "inner"));
    assert_false(is_whole(&c, "odd"));
    assert_int_equal(pare_parts_joined_bytes(&c.parts, graph_value(&c.g, "rows")->producer),
                     2 * 64);
    parts_close(&c);
}

/* A stretch of a Concat's result is part of it; what a Concat joins is copied there. */
static void slices_and_concats(void **state)
{
    (void)state;
    parts_case c;
    parts_open(&c, 4);
    graph_node(&c.g, "Exp", "x", "a");
    graph_node(&c.g, "Neg", "x", "b");
    concat(&c, "a b", "ab", 1);
    slice(&c, "ab", "middle", 1, 8, 24, 1);
    slice(&c, "ab", "last", 1, 24, 32, 1);
    graph_node(&c.g, "Sin", "middle", "d");
    concat(&c, "last d", "y", 1);
    graph_output(&c.g, "y");
    choose(&c, true);
    lies(&c, "a", "ab", 0, 128), lies(&c, "b", "ab", 64, 128);
    lies(&c, "middle", "ab", 32, 128);
    lies(&c, "last", "y", 0, 96), lies(&c, "d", "y", 32, 96);
    is_own(&c, "ab");
    assert_true(is_whole(&c, "middle") && is_whole(&c, "y"));
    assert_int_equal(pare_parts_joined_bytes(&c.parts, graph_value(&c.g, "last")->producer), 0);
    parts_close(&c);
}

/* What a stretch is cut from is read behind what is computed of the stretch. */
static void slices_on_the_cpu(void **state)
{
    (void)state;
    for (int reference = 0; reference < 2; reference++) {
        parts_case c;
        pare_plan *plan;
        pare_runner *r;
        parts_open(&c, 4);
        graph_node(&c.g, "Exp", "x", "e");
        slice(&c, "e", "rows", 0, 1, 3, 1);
        graph_node(&c.g, "Neg", "rows", "n");
        graph_node(&c.g, "Abs", "e", "z");
        graph_output(&c.g, "n"), graph_output(&c.g, "z");
        const pare_input_shape shape = {"x", {.rank = 2, .dim = {4, 16}}};
        const pare_plan_options options = {.threads = 1, .reference = reference};
        assert_int_equal(pare_plan_new(&c.g.ctx, &plan, c.g.model, &shape, 1, &options), PARE_OK);
        assert_int_equal(pare_plan_step_count(plan), reference ? 4 : 3);
        assert_int_equal(pare_runner_new(&c.g.ctx, &r, plan), PARE_OK);
        float *x = pare_runner_input(r, 0).data;
        for (int i = 0; i < 64; i++) x[i] = (float)i / 64;
        assert_int_equal(pare_runner_run(r), PARE_OK);
        const float *n = pare_runner_output(r, 0).data, *z = pare_runner_output(r, 1).data;
        for (int i = 0; i < 64; i++) assert_true(fabsf(z[i] - expf((float)i / 64)) < 1e-5f);
        for (int i = 0; i < 32; i++) assert_true(n[i] == -z[16 + i]);
        pare_runner_free(r);
        pare_plan_free(plan);
        parts_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices),
        cmocka_unit_test(slices_and_concats),
        cmocka_unit_test(slices_on_the_cpu),
    };
    return cmocka_run_group_tests_name("parts_slice", tests, NULL, NULL);
}
