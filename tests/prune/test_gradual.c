/* SPDX-License-Identifier: Apache-2.0 */
/* Pruning in steps: how far each goes, and trained weights on their way back. */
#include "tests/prune/prune_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12)) fail_msg("%.15g, expected %.15g", got, want);
}

/* By hand: 0.8 (1 - (3/4)^3), 0.8 (1 - (1/2)^3) ... */
static void sparsity_follows_a_cubic(void **state)
{
    (void)state;
    near(pare_prune_sparsity_at(0, 0.8, 1, 4), 0.4625);
    near(pare_prune_sparsity_at(0, 0.8, 2, 4), 0.7);
    near(pare_prune_sparsity_at(0, 0.8, 3, 4), 0.7875);
    near(pare_prune_sparsity_at(0.4, 0.8, 2, 4), 0.75);
    for (int64_t steps = 1; steps < 9; steps++) {
        assert_true(pare_prune_sparsity_at(0.1, 0.7, steps, steps) == 0.7);
        for (int64_t i = 1; i <= steps; i++) {
            double before = i > 1 ? pare_prune_sparsity_at(0.1, 0.7, i - 1, steps) : 0.1;
            assert_true(pare_prune_sparsity_at(0.1, 0.7, i, steps) > before);
            near(pare_prune_sparsity_at(0.9, 0.7, i, steps), 0.7);
        }
    }
}

static void costs_fall_by_equal_factors(void **state)
{
    (void)state;
    near(pare_prune_cost_at(1000, 125, 1, 3), 500);
    near(pare_prune_cost_at(1000, 125, 2, 3), 250);
    assert_true(pare_prune_cost_at(1000, 125, 3, 3) == 125);
    assert_true(pare_prune_cost_at(1000, 125, 1, 1) == 125);
    assert_true(pare_prune_cost_at(0, 125, 1, 2) == 125);
}

static void zeros_are_counted(void **state)
{
    graph_case g;
    double sparsity;
    (void)state;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (const int64_t[]){-1, 2});
    graph_floats(&g, "w", 2, (const int64_t[]){2, 3}, (const float[]){0, 1, 2, -0.0f, 4, 5});
    graph_floats(&g, "b", 1, (const int64_t[]){3}, (const float[]){0, 0, 0});
    graph_node(&g, "Gemm", "x w b", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_prune_sparsity(&g.ctx, g.model, &sparsity), PARE_OK);
    near(sparsity, 1.0 / 3);
    graph_close(&g);
}

/* A second step's removal: what the first one's smaller model learnt is in the dense model, which
   then gives the same smaller model again. */
static void weights_come_back(void **state)
{
    graph_case g;
    pare_prune_plan *r;
    pare_model *smaller, *again;
    (void)state;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, (const int64_t[]){-1, 3, 4, 4});
    prune_conv(&g, "x", "a", 3, 4, 1, 1);
    prune_conv(&g, "a", "y", 4, 2, 3, 1);
    graph_output(&g, "y");
    pare_groups *groups = prune_groups(&g, NULL);
    assert_int_equal(pare_prune_plan_new(&g.ctx, &r, groups), PARE_OK);
    prune_take(&g, r, "w_a", 0, 2, (int64_t[]){0, 2});
    assert_int_equal(pare_prune_remove(&g.ctx, &smaller, r), PARE_OK);
    float old[12];
    memcpy(old, graph_value(&g, "w_a")->data->data, sizeof old);
    float *w_a = (float *)(uintptr_t)pare_graph_find_own(smaller->graph, "w_a")->data->data;
    float *w_y = (float *)(uintptr_t)pare_graph_find_own(smaller->graph, "w_y")->data->data;
    for (int i = 0; i < 6; i++) w_a[i] = 100 + (float)i;
    for (int i = 0; i < 36; i++) w_y[i] = 200 + (float)i;
    pare_status st;
    for (long n = 0;; n++) {
        pare_ctx_clear(&g.ctx);
        g.ctx.fail_after = n;
        st = pare_prune_put_back(r, smaller);
        if (st != PARE_MEMORY) break;
        assert_true(*g.ctx.message);
    }
    g.ctx.fail_after = -1;
    assert_int_equal(st, PARE_OK);
    const float *a = graph_value(&g, "w_a")->data->data, *y = graph_value(&g, "w_y")->data->data;
    for (int i = 0; i < 12; i++) {
        int row = i / 3;
        assert_true(a[i] == (row % 2 ? 100 + (float)(row / 2 * 3 + i % 3) : old[i]));
    }
    for (int i = 0; i < 72; i++) {
        int row = i / 36, channel = i / 9 % 4;
        float there = 200 + (float)(row * 18 + channel / 2 * 9 + i % 9);
        assert_true(y[i] == (channel % 2 ? there : 0));
    }
    assert_int_equal(pare_prune_remove(&g.ctx, &again, r), PARE_OK);
    assert_memory_equal(pare_graph_find_own(again->graph, "w_y")->data->data, w_y,
                        36 * sizeof *w_y);
    pare_model_free(again);
    pare_model_free(smaller);
    pare_prune_plan_free(r);
    pare_groups_free(groups);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparsity_follows_a_cubic), cmocka_unit_test(costs_fall_by_equal_factors),
        cmocka_unit_test(zeros_are_counted), cmocka_unit_test(weights_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
