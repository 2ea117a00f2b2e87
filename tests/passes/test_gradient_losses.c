/* SPDX-License-Identifier: Apache-2.0 */
/* The losses of training: gradients against finite differences, alone and in a weighted sum; the
   divergence against its formula; logits that do not fit. */
#include "tests/passes/gradient_case.h"
#include "runtime/ops/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void losses(void **state)
{
    static const gradient_rule cases[] = {
        {"CrossEntropy", "d4x5 i1,0,3,4", "", 1},
        {"CrossEntropy", "d4x5", "", 1},
        {"SoftmaxKL", "d4x5 k4x5", "", 1},
        {"SoftmaxKL", "d3x2x17 k3x2x17", "temperature=f4", 1},
        {"SoftmaxKL", "d1x40 k1x40", "temperature=f0.5", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gradient_check(&cases[i]);
}

static void add_loss_node(gradient_bench *b, const char *op, const char *in, const char *out)
{
    graph_node(&b->g, op, in, out)->domain = PARE_DOMAIN;
}

/* Nodes with both outputs, in a weighted sum. */
static void losses_are_weighted(void **state)
{
    const gradient_rule c = {"CrossEntropy and SoftmaxKL", "", "", 0};
    const int64_t rows = 4, labels[] = {2, 0, 4, 2};
    const float hard = 0.3f, soft = 0.7f;
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        gradient_bench b = {.dtype = plain ? PARE_f64 : PARE_f32, .seed = 5};
        int64_t count;
        graph_open(&b.g, 21);
        gradient_add_floats(&b, "x", 'd', "4x5");
        gradient_add_floats(&b, "teacher", 'k', "4x5");
        graph_ints(&b.g, "labels", 1, &rows, labels);
        graph_floats(&b.g, "a", 0, NULL, &hard);
        graph_floats(&b.g, "b", 0, NULL, &soft);
        add_loss_node(&b, "CrossEntropy", "x labels", "hard dhard");
        add_loss_node(&b, "SoftmaxKL", "x teacher", "soft dsoft");
        graph_node(&b.g, "CastLike", "a x", "a1");
        graph_node(&b.g, "CastLike", "b x", "b1");
        graph_node(&b.g, "Mul", "hard a1", "one");
        graph_node(&b.g, "Mul", "soft b1", "two");
        graph_node(&b.g, "Add", "one two", "loss");
        graph_output(&b.g, "loss");
        gradient_open(&b, plain);
        gradient_feed(&b);
        gradient_loss(&b);
        double *got = gradient_of(&b, 0, &count);
        if (plain) gradient_expect_differences(&b, &c, &got, &count);
        assert_int_equal(graph_count(&b.g, "CrossEntropy"), 1);
        assert_int_equal(graph_count(&b.g, "SoftmaxKL"), 1);
        free(got);
        gradient_close(&b);
    }
}

/* With p = softmax(ln 3 / T, 0) and q = (1/2, 1/2): T^2 (p ln 2p + (1 - p) ln 2(1 - p)). */
static void divergence_is_the_formula_s(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++)
        for (int plain = 0; plain < 2; plain++) {
            graph_case g;
            const float teacher[] = {1.0986122887f, 0, 5, 5}, t = half ? 2 : 1;
            const double p = half ? 0.63397459621556135 : 0.75;
            const double want = (double)(t * t) * (p * log(2 * p) + (1 - p) * log(2 - 2 * p)) / 2;
            float student[] = {3, 3, -1, -1};
            graph_open(&g, 21);
            graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 2});
            graph_floats(&g, "teacher", 2, (int64_t[]){2, 2}, teacher);
            pare_node *node = graph_node(&g, "SoftmaxKL", "x teacher", "loss");
            node->domain = PARE_DOMAIN;
            assert_int_equal(pare_node_set_float(node, "temperature", t), PARE_OK);
            graph_output(&g, "loss");
            pare_plan *plan;
            pare_runner *runner;
            pare_plan_options options = {.threads = 1, .reference = plain};
            if (pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options) != PARE_OK)
                fail_msg("%s", g.ctx.message);
            assert_int_equal(pare_runner_new(&g.ctx, &runner, plan), PARE_OK);
            pare_runner_set_input(runner, 0, student);
            assert_int_equal(pare_runner_run(runner), PARE_OK);
            double got = (double)*(const float *)pare_runner_output(runner, 0).data;
            assert_true(fabs(got - want) < 1e-6);
            pare_runner_free(runner);
            pare_plan_free(plan);
            graph_close(&g);
        }
}

static void refuses(const char *operands, const char *attributes, const char *message)
{
    gradient_bench b;
    pare_plan *plan;
    char names[128], copy[64];
    memset(&b, 0, sizeof b);
    b.dtype = PARE_f32;
    graph_open(&b.g, 21);
    const gradient_rule c = {"SoftmaxKL", operands, attributes, 1};
    gradient_add_operands(&b, &c, names);
    pare_node *node = graph_node(&b.g, c.op, names, "y");
    node->domain = PARE_DOMAIN;
    snprintf(copy, sizeof copy, "%s", attributes);
    if (*copy) gradient_set_attribute(node, copy);
    graph_output(&b.g, "y");
    assert_int_equal(pare_plan_new(&b.g.ctx, &plan, b.g.model, NULL, 0, NULL), PARE_INPUT);
    assert_string_equal(b.g.ctx.message, message);
    for (int k = 0; k < b.by_count; k++) free(b.x[k]);
    graph_close(&b.g);
}

static void wrong_logits_are_named(void **state)
{
    (void)state;
    refuses("d2x3 k2x4", "",
            "m.onnx: node 'y' (SoftmaxKL): logits 'x0' are [2,3], those of the teacher ('x1') "
            "[2,4]");
    refuses("d2x3 k2x3", "temperature=f0",
            "m.onnx: node 'y' (SoftmaxKL): temperature is 0, it must be above 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses),
        cmocka_unit_test(losses_are_weighted),
        cmocka_unit_test(divergence_is_the_formula_s),
        cmocka_unit_test(wrong_logits_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
