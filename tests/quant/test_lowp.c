/* SPDX-License-Identifier: Apache-2.0 */
/* FP16 graphs in memory: types at every border, one Cast a tensor, however many there are. */
#include "quant/internal.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { PAIRS = 20 };

/* x -> Abs -> Pow -> Abs -> Pow ... -> y: every border between f16 and f32 is a Cast. The first Abs
   reads the Cast of x; each tensor between has one reader of the other type. */
static void every_border_has_one_cast(void **state)
{
    (void)state;
    graph_case g;
    const float one[] = {1}, x[] = {-1.5f, 0.25f, 3, -1000};
    float y[4];
    char from[32] = "x", to[32], both[64];
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 1, (int64_t[]){4});
    graph_floats(&g, "one", 0, NULL, one);
    for (int i = 0; i < PAIRS; i++) {
        snprintf(to, sizeof to, "a%d", i);
        graph_node(&g, "Abs", from, to);
        snprintf(both, sizeof both, "%s one", to);
        snprintf(from, sizeof from, "p%d", i);
        graph_node(&g, "Pow", both, from);
    }
    graph_output(&g, from);
    assert_int_equal(pare_pass_infer(g.model, &(pare_infer_options){0}), PARE_OK);
    pare_quant_facts facts = {0};
    const pare_quant_options options = {.precision = PARE_PRECISION_FP16};
    if (pare_quantize(&g.ctx, g.model, NULL, &options, &facts) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    assert_true(facts.quantized_nodes == PAIRS && facts.float_nodes == PAIRS);
    assert_null(facts.overflow_nodes);
    assert_int_equal(graph_count(&g, "Cast"), 2 * PAIRS);
    for (int n = 0; n < g.model->graph->node_count; n++) {
        const pare_node *node = g.model->graph->node[n];
        if (pare_node_is(node, "Abs"))
            assert_true(node->in[0]->dtype == PARE_f16 && node->out[0]->dtype == PARE_f16);
        if (pare_node_is(node, "Pow"))
            assert_true(node->in[0]->dtype == PARE_f32 && node->out[0]->dtype == PARE_f32);
    }
    graph_run(&g, 1, (int64_t[]){4}, x, y, 4);
    for (int i = 0; i < 4; i++) assert_true(y[i] == fabsf(x[i]));
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_border_has_one_cast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
