/* SPDX-License-Identifier: Apache-2.0 */
/* Which inputs of Concats are parts of their results, and results of Splits, by graphs alone; then
   plans on the CPU: the same bytes as those of the plain kernels, and what is still copied. */
#include "tests/exec/parts_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- graphs --- */

static void stretches_and_rows(void **state)
{
    (void)state;
    for (int axis = 0; axis < 2; axis++) {
        parts_case c;
        parts_open(&c, 4);
        graph_node(&c.g, "Exp", "x", "a");
        graph_node(&c.g, "Neg", "x", "b");
        concat(&c, "a b", "y", axis);
        graph_output(&c.g, "y");
        choose(&c, axis == 1);
        lies(&c, "a", "y", 0, axis ? 128 : 0);
        lies(&c, "b", "y", axis ? 64 : 256, axis ? 128 : 0);
        assert_true(is_whole(&c, "y"));
        is_own(&c, "y");
        pare_view v;
        pare_parts_view(&c.parts, graph_value(&c.g, "b"), &v);
        assert_int_equal(v.stride[0], axis ? 32 : 16);
        parts_close(&c);
    }
}

static void rows_apart_need_kernels_that_take_them(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        parts_case c;
        parts_open(&c, 4);
        if (which == 1) c.refuses = "Exp";
        if (which == 2) c.refuses = "Sin"; /* a reader */
        graph_node(&c.g, "Exp", "x", "a");
        graph_node(&c.g, "Neg", "x", "b");
        graph_node(&c.g, "Sin", "a", "z");
        concat(&c, "a b", "y", 1);
        graph_output(&c.g, "y");
        graph_output(&c.g, "z");
        choose(&c, which > 0);
        is_own(&c, "a");
        if (which)
            lies(&c, "b", "y", 64, 128);
        else
            is_own(&c, "b");
        assert_false(is_whole(&c, "y"));
        parts_close(&c);
    }
}

/* The graph's input, what it returns, itself or under another shape, a constant, a second place. */
static void what_keeps_memory_of_its_own(void **state)
{
    (void)state;
    parts_case c;
    float k[16] = {0};
    parts_open(&c, 1);
    graph_floats(&c.g, "k", 2, (int64_t[]){1, 16}, k);
    graph_ints(&c.g, "flat", 1, (int64_t[]){1}, (int64_t[]){-1});
    graph_node(&c.g, "Exp", "x", "a");
    graph_node(&c.g, "Neg", "x", "b");
    graph_node(&c.g, "Sin", "x", "d");
    graph_node(&c.g, "Reshape", "d flat", "z");
    concat(&c, "x a b k d b", "y", 1);
    graph_output(&c.g, "y");
    graph_output(&c.g, "a");
    graph_output(&c.g, "z");
    choose(&c, true);
    is_own(&c, "x"), is_own(&c, "a"), is_own(&c, "k"), is_own(&c, "d"), is_own(&c, "z");
    lies(&c, "b", "y", 2 * 64, 0);
    const pare_node *node = graph_value(&c.g, "y")->producer;
    for (int i = 0; i < 6; i++) assert_int_equal(pare_parts_joined(&c.parts, node, i), i == 2);
    parts_close(&c);
}

/* Rows of 48 bytes begin at multiples of 16, of 40 bytes they do not. */
static void parts_that_are_not_aligned(void **state)
{
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        parts_case c;
        parts_open(&c, 4);
        const int64_t first = odd ? 10 : 12;
        graph_ints(&c.g, "sizes", 1, (int64_t[]){2}, (int64_t[]){first, 16 - first});
        pare_node *node = graph_node(&c.g, "Split", "x sizes", "a b");
        assert_int_equal(pare_node_set_int(node, "axis", 1), PARE_OK);
        concat(&c, "b a", "y", 1);
        graph_output(&c.g, "y");
        choose(&c, true);
        if (odd)
            is_own(&c, "a"), is_own(&c, "b");
        else
            lies(&c, "b", "y", 0, 64), lies(&c, "a", "y", 16, 64);
        parts_close(&c);
    }
}

/* Of Concats of all before the longest holds all; of nested ones the outermost. */
static void concats_of_concats(void **state)
{
    (void)state;
    for (int nested = 0; nested < 2; nested++) {
        parts_case c;
        parts_open(&c, 4);
        graph_node(&c.g, "Exp", "x", "a");
        graph_node(&c.g, "Neg", "a", "b");
        concat(&c, "a b", "ab", 1);
        graph_node(&c.g, "Sin", "ab", "d");
        concat(&c, nested ? "ab d" : "a b d", "y", 1);
        graph_output(&c.g, "y");
        choose(&c, true);
        lies(&c, "a", "y", 0, 256);
        lies(&c, "b", "y", 64, 256);
        lies(&c, "ab", "y", 0, 256);
        lies(&c, "d", "y", 128, 256);
        assert_true(is_whole(&c, "ab") && is_whole(&c, "y"));
        assert_int_equal(pare_parts_last_use(&c.parts, graph_value(&c.g, "y")),
                         c.g.model->graph->node_count);
        parts_close(&c);
    }
}

static void split(parts_case *c, const char *in, const char *out)
{
    char both[64];
    snprintf(both, sizeof both, "%s halves", in);
    graph_ints(&c->g, "halves", 1, (int64_t[]){2}, (int64_t[]){8, 8});
    assert_int_equal(pare_node_set_int(graph_node(&c->g, "Split", both, out), "axis", 1), PARE_OK);
}

static void splits(void **state)
{
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        parts_case c;
        parts_open(&c, 4);
        graph_node(&c.g, "Exp", "x", "e");
        split(&c, "e", "a b");
        graph_node(&c.g, "Sin", "a", "y");
        graph_node(&c.g, "Neg", "b", "z");
        graph_output(&c.g, "y"), graph_output(&c.g, "z"), graph_output(&c.g, "e");
        if (seen) graph_output(&c.g, "b");
        choose(&c, true);
        const pare_node *node = graph_value(&c.g, "a")->producer;
        lies(&c, "a", "e", 0, 64);
        is_own(&c, "e");
        assert_int_equal(pare_parts_all_joined(&c.parts, node), !seen);
        assert_int_equal(pare_parts_joined_bytes(&c.parts, node), seen ? 128 : 256);
        if (seen)
            is_own(&c, "b");
        else
            lies(&c, "b", "e", 32, 64);
        assert_int_equal(pare_parts_last_use(&c.parts, graph_value(&c.g, "e")),
                         c.g.model->graph->node_count);
        parts_close(&c);
    }
}

/* What is split and joined again (YOLO's C2f) is made in the Concat; of a graph's input, and of
   what shows another tensor's bytes, nothing is. */
static void splits_and_concats(void **state)
{
    (void)state;
    for (int input = 0; input < 3; input++) {
        parts_case c;
        parts_open(&c, 4);
        graph_ints(&c.g, "same", 1, (int64_t[]){2}, (int64_t[]){4, 16});
        graph_node(&c.g, "Exp", "x", "e");
        if (input == 2) graph_node(&c.g, "Reshape", "e same", "r");
        split(&c, input == 2 ? "r" : input ? "x" : "e", "a b");
        graph_node(&c.g, "Neg", "b", "d");
        concat(&c, "a b d", "y", 1);
        graph_output(&c.g, "y");
        choose(&c, true);
        lies(&c, "a", "y", 0, 96);
        lies(&c, "b", "y", 32, 96);
        lies(&c, "d", "y", 64, 96);
        const pare_node *node = graph_value(&c.g, "a")->producer;
        if (input)
            is_own(&c, "x"), is_own(&c, "e");
        else
            lies(&c, "e", "y", 0, 96);
        assert_int_equal(pare_parts_all_joined(&c.parts, node), !input);
        parts_close(&c);
    }
}

/* Rows of the inner one are not those of the outer one. */
static void a_concat_along_another_axis(void **state)
{
    (void)state;
    parts_case c;
    parts_open(&c, 4);
    graph_node(&c.g, "Exp", "x", "a");
    graph_node(&c.g, "Neg", "x", "b");
    graph_node(&c.g, "Sin", "x", "d");
    concat(&c, "a b", "ab", 0);
    concat(&c, "d d", "dd", 0);
    concat(&c, "ab dd", "y", 1);
    graph_output(&c.g, "y");
    choose(&c, true);
    lies(&c, "ab", "y", 0, 128);
    is_own(&c, "a"), is_own(&c, "b"), is_own(&c, "d");
    parts_close(&c);
}

/* Under another shape, of one row; the rows of the Concat inside it are others. */
static void another_shape(void **state)
{
    (void)state;
    parts_case c;
    parts_open(&c, 4);
    graph_ints(&c.g, "flat", 1, (int64_t[]){1}, (int64_t[]){-1});
    graph_node(&c.g, "Exp", "x", "a");
    graph_node(&c.g, "Neg", "x", "b");
    concat(&c, "a b", "ab", 1);
    graph_node(&c.g, "Reshape", "ab flat", "line");
    graph_node(&c.g, "Reshape", "x flat", "head");
    graph_node(&c.g, "Sin", "head", "first");
    concat(&c, "first line", "y", 0);
    graph_output(&c.g, "y");
    choose(&c, true);
    lies(&c, "first", "y", 0, 0);
    lies(&c, "line", "y", 256, 0);
    lies(&c, "ab", "y", 256, 0);
    lies(&c, "a", "y", 256, 128);
    lies(&c, "b", "y", 256 + 64, 128);
    is_own(&c, "head");
    parts_close(&c);
}

/* A small tensor that is made early and joined to a large one late: the large one's memory would be
   held beside two that are as large. */
static void memory_may_not_grow_much(void **state)
{
    (void)state;
    for (int large = 0; large < 2; large++) {
        parts_case c;
        parts_open(&c, 1);
        graph_ints(&c.g, "times", 1, (int64_t[]){2}, (int64_t[]){large ? 1 << 18 : 64, 1});
        graph_ints(&c.g, "one", 1, (int64_t[]){1}, (int64_t[]){0});
        graph_node(&c.g, "Exp", "x", "a");
        graph_node(&c.g, "Tile", "a times", "b");
        graph_node(&c.g, "Neg", "b", "d");
        graph_node(&c.g, "ReduceSum", "d one", "e");
        graph_node(&c.g, "Add", "e a", "f");
        graph_node(&c.g, "Tile", "f times", "h");
        concat(&c, "a h", "y", 0);
        graph_node(&c.g, "ReduceSum", "y one", "z");
        graph_output(&c.g, "z");
        choose(&c, true);
        if (large)
            is_own(&c, "a"), is_own(&c, "h");
        else
            lies(&c, "a", "y", 0, 0), lies(&c, "h", "y", 64, 0);
        parts_close(&c);
    }
}

/* What is joined is split and added, so many times in a row. */
static void blocks(parts_case *c, int count)
{
    char in[64] = "x", node_in[160], node_out[160];
    for (int i = 0; i < count; i++) {
        snprintf(node_out, sizeof node_out, "a%d", i);
        graph_node(&c->g, "Neg", in, node_out);
        snprintf(node_out, sizeof node_out, "b%d", i);
        graph_node(&c->g, "Abs", in, node_out);
        snprintf(node_in, sizeof node_in, "a%d b%d", i, i);
        snprintf(node_out, sizeof node_out, "ab%d", i);
        concat(c, node_in, node_out, 1);
        snprintf(node_in, sizeof node_in, "ab%d halves", i);
        snprintf(node_out, sizeof node_out, "d%d e%d", i, i);
        assert_int_equal(
            pare_node_set_int(graph_node(&c->g, "Split", node_in, node_out), "axis", 1), PARE_OK);
        snprintf(node_in, sizeof node_in, "d%d e%d", i, i);
        snprintf(in, sizeof in, "y%d", i);
        graph_node(&c->g, "Add", node_in, in);
    }
    graph_output(&c->g, in);
}

/* What choosing takes does not grow with the square of what is joined: of each block it looks only
   at where the block's tensors live, 5 positions. */
static void thousands_of_joints(void **state)
{
    enum { BLOCKS = 2000 };
    (void)state;
    parts_case c;
    pare_plan *plan;
    parts_open(&c, 1);
    graph_ints(&c.g, "halves", 1, (int64_t[]){2}, (int64_t[]){16, 16});
    blocks(&c, BLOCKS);
    choose(&c, false);
    assert_in_range(c.parts.looked, BLOCKS, 16 * BLOCKS);
    lies(&c, "b0", "ab0", 64, 0);
    lies(&c, "d1999", "ab1999", 0, 0);
    assert_true(is_whole(&c, "ab1000"));
    const pare_input_shape shape = {"x", {.rank = 2, .dim = {1, 16}}};
    const pare_plan_options options = {.threads = 1};
    assert_int_equal(pare_plan_new(&c.g.ctx, &plan, c.g.model, &shape, 1, &options), PARE_OK);
    assert_int_equal(pare_plan_step_count(plan), 3 * BLOCKS);
    pare_plan_free(plan);
    parts_close(&c);
}

static void someone_asks_for_a_stop(void **state)
{
    (void)state;
    const volatile int stop = 1;
    const pare_parts_rules rules = {.align = 64};
    parts_case c;
    parts_open(&c, 1);
    graph_ints(&c.g, "halves", 1, (int64_t[]){2}, (int64_t[]){16, 16});
    blocks(&c, 1);
    choose(&c, false);
    c.g.ctx.interrupted = &stop;
    assert_int_equal(pare_parts_choose(&c.g.ctx, &c.parts, &c.arena, c.g.model->graph, &rules),
                     PARE_INTERRUPTED);
    parts_close(&c);
}

/* --- plans --- */

static size_t copied(const pare_plan *p)
{
    size_t bytes = 0;
    for (int i = 0; i < pare_plan_step_count(p); i++) {
        pare_step_info info;
        pare_plan_step(p, i, &info);
        if (!strcmp(info.op_type, "Concat")) bytes += info.bytes_out;
    }
    return bytes;
}

/* Of what the Concat joins nothing is made beside its result; behind it positions of nodes and
   steps differ. */
static void what_is_alive(void **state)
{
    (void)state;
    const struct {
        const char *op;
        size_t tensors;
    } expected[] = {{"Exp", 2}, {"Neg", 2}, {"Sin", 4}, {"Cos", 4}, {"Mul", 4}};
    const pare_input_shape shape = {"x", {.rank = 2, .dim = {1, 16}}};
    const pare_plan_options options = {.threads = 1};
    parts_case c;
    pare_plan *plan;
    parts_open(&c, 1);
    graph_node(&c.g, "Exp", "x", "a");
    graph_node(&c.g, "Neg", "x", "b");
    concat(&c, "a b", "y", 0);
    graph_node(&c.g, "Sin", "y", "d");
    graph_node(&c.g, "Cos", "y", "f");
    graph_node(&c.g, "Mul", "d f", "z");
    graph_output(&c.g, "z");
    assert_int_equal(pare_plan_new(&c.g.ctx, &plan, c.g.model, &shape, 1, &options), PARE_OK);
    assert_int_equal(pare_plan_step_count(plan), 5);
    for (int i = 0; i < 5; i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        assert_string_equal(info.op_type, expected[i].op);
        assert_int_equal(info.live - plan->step[i].scratch, expected[i].tensors * 64);
    }
    pare_plan_free(plan);
    parts_close(&c);
}

/* The largest tensor may be one that no step makes: a Concat in place of parts. */
static void the_largest_is_a_whole(void **state)
{
    (void)state;
    const pare_input_shape shape = {"x", {.rank = 2, .dim = {1, 16}}};
    const pare_plan_options options = {.threads = 1};
    parts_case c;
    pare_plan *plan;
    char text[256];
    parts_open(&c, 1);
    graph_node(&c.g, "Exp", "x", "a");
    graph_node(&c.g, "Neg", "x", "b");
    concat(&c, "a b", "y", 1);
    graph_node(&c.g, "ReduceMax", "y", "z");
    graph_output(&c.g, "z");
    assert_int_equal(pare_plan_new(&c.g.ctx, &plan, c.g.model, &shape, 1, &options), PARE_OK);
    assert_int_equal(pare_plan_step_count(plan), 3);
    pare_plan_largest(plan, text, sizeof text);
    assert_non_null(strstr(text, "; the largest is tensor 'y' [1,32] of node '"));
    assert_non_null(strstr(text, "' (Concat), 128 bytes"));
    pare_plan_free(plan);
    parts_close(&c);
}

/* (2, 16) rows joined over axis 0, under other shapes, in two orders. */
static void a_plan_on_the_cpu(void **state)
{
    (void)state;
    for (int reference = 0; reference < 2; reference++) {
        parts_case c;
        pare_plan *plan;
        pare_runner *r;
        parts_open(&c, 2);
        graph_ints(&c.g, "flat", 1, (int64_t[]){1}, (int64_t[]){-1});
        graph_node(&c.g, "Exp", "x", "a");
        graph_node(&c.g, "Neg", "a", "b");
        graph_node(&c.g, "Reshape", "a flat", "fa");
        graph_node(&c.g, "Reshape", "b flat", "fb");
        concat(&c, "fa fb", "ab", 0);
        graph_node(&c.g, "Sin", "ab", "d");
        concat(&c, "fb ab d fb", "y", 0);
        graph_output(&c.g, "y");
        const pare_input_shape shape = {"x", {.rank = 2, .dim = {2, 16}}};
        const pare_plan_options options = {.threads = 1, .reference = reference};
        assert_int_equal(pare_plan_new(&c.g.ctx, &plan, c.g.model, &shape, 1, &options), PARE_OK);
        /* of fb the first place is in y: it is copied to the last one, and into ab */
        assert_int_equal(copied(plan), reference ? 256 + 768 : 128 + 128);
        assert_int_equal(pare_runner_new(&c.g.ctx, &r, plan), PARE_OK);
        for (int run = 0; run < 2; run++) {
            float *x = pare_runner_input(r, 0).data;
            for (int i = 0; i < 32; i++) x[i] = (float)(i + run) / 32;
            assert_int_equal(pare_runner_run(r), PARE_OK);
            const float *y = pare_runner_output(r, 0).data;
            for (int i = 0; i < 32; i++) {
                const float a = expf((float)(i + run) / 32);
                assert_true(fabsf(y[i] + a) < 1e-5f && y[i] == y[64 + i] && y[i] == -y[32 + i]);
                assert_true(fabsf(y[96 + i] - sinf(a)) < 1e-5f && y[160 + i] == y[i]);
                assert_true(fabsf(y[128 + i] + sinf(a)) < 1e-5f);
            }
        }
        pare_runner_free(r);
        pare_plan_free(plan);
        parts_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stretches_and_rows),
        cmocka_unit_test(rows_apart_need_kernels_that_take_them),
        cmocka_unit_test(what_keeps_memory_of_its_own),
        cmocka_unit_test(parts_that_are_not_aligned),
        cmocka_unit_test(concats_of_concats),
        cmocka_unit_test(splits),
        cmocka_unit_test(splits_and_concats),
        cmocka_unit_test(a_concat_along_another_axis),
        cmocka_unit_test(another_shape),
        cmocka_unit_test(memory_may_not_grow_much),
        cmocka_unit_test(thousands_of_joints),
        cmocka_unit_test(someone_asks_for_a_stop),
        cmocka_unit_test(what_is_alive),
        cmocka_unit_test(the_largest_is_a_whole),
        cmocka_unit_test(a_plan_on_the_cpu),
    };
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
