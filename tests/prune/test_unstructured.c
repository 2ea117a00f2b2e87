/* SPDX-License-Identifier: Apache-2.0 */
/* Masks of single weights on nets of a few numbers, worked out by hand. */
#include "prune/plan.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* y = (x a) b: a (2, 3) and b (3, 2); names of nodes: first, second. */
static void open_net(graph_case *g)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){-1, 2});
    graph_floats(g, "a", 2, (int64_t[]){2, 3}, (float[]){0.1f, -5, 3, 0.3f, 2, -4});
    graph_floats(g, "b", 2, (int64_t[]){3, 2}, (float[]){-0.2f, 6, 7, 8, 0.4f, -9});
    graph_node(g, "MatMul", "x a", "h");
    graph_node(g, "MatMul", "h b", "y");
    graph_output(g, "y");
    assert_int_equal(pare_prune_prepare(&g->ctx, g->model), PARE_OK);
}

static void prune(graph_case *g, const pare_unstructured_options *options,
                  pare_unstructured_facts *facts)
{
    if (pare_prune_unstructured(&g->ctx, g->model, options, facts) != PARE_OK)
        fail_msg("%s", g->ctx.message);
}

static void check(const graph_case *g, const char *name, const float *want)
{
    const pare_tensor *t = graph_value(g, name)->data;
    assert_memory_equal(t->data, want, t->bytes);
}

static void the_least_of_all_go(void **state)
{
    (void)state;
    graph_case g;
    pare_unstructured_facts facts;
    open_net(&g);
    prune(&g, &(pare_unstructured_options){.sparsity = 0.42}, &facts); /* 5 of 12 */
    check(&g, "a", (float[]){0, -5, 3, 0, 0, -4});
    check(&g, "b", (float[]){0, 6, 7, 8, 0, -9});
    assert_int_equal(facts.count, 12);
    assert_int_equal(facts.zeros, 5);
    assert_int_equal(facts.layer_count, 2);
    assert_int_equal(facts.layer[0].zeros, 3);
    /* rows of outputs: 3 values with 2-byte columns and 4 row starts, 4 values and 3 starts */
    assert_true(facts.layer[0].csr == 3 * 6 + 4 * 4 && facts.layer[1].csr == 4 * 6 + 4 * 3);
    graph_close(&g);
}

static void or_of_each_layer(void **state)
{
    (void)state;
    graph_case g;
    pare_unstructured_facts facts;
    open_net(&g);
    prune(&g, &(pare_unstructured_options){.sparsity = 0.5, .per_layer = true}, &facts);
    check(&g, "a", (float[]){0, -5, 3, 0, 0, -4});
    check(&g, "b", (float[]){0, 0, 7, 8, 0, -9});
    graph_close(&g);
}

/* Equal scores go by their place. */
static void ties_go_first_come(void **state)
{
    (void)state;
    graph_case g;
    pare_unstructured_facts facts;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 2});
    graph_floats(&g, "a", 2, (int64_t[]){2, 3}, (float[]){1, -1, 1, 0, 1, -1});
    graph_node(&g, "MatMul", "x a", "y");
    graph_output(&g, "y");
    prune(&g, &(pare_unstructured_options){.sparsity = 0.5, .score = PARE_SCORE_L2}, &facts);
    check(&g, "a", (float[]){0, 0, 1, 0, 1, -1});
    graph_close(&g);
}

static bool is_first(void *user, const pare_node *node) { return node == user; }

static void what_is_kept_stays(void **state)
{
    (void)state;
    graph_case g;
    pare_unstructured_facts facts;
    open_net(&g);
    pare_unstructured_options o = {
        .sparsity = 0.5, .keep = is_first, .keep_user = g.model->graph->node[0]};
    prune(&g, &o, &facts);
    check(&g, "a", (float[]){0.1f, -5, 3, 0.3f, 2, -4});
    check(&g, "b", (float[]){0, 0, 0, 0, 0, 0});
    assert_string_equal(facts.layer[0].note, "kept as asked");
    o.sparsity = 0.6;
    assert_int_equal(pare_prune_unstructured(&g.ctx, g.model, &o, &facts), PARE_INPUT);
    assert_non_null(strstr(g.ctx.message, "only 6 of them"));
    graph_close(&g);
}

/* Conv (1, 8, 1, 2): groups are channels 0-3 and 4-7 at kernel position 0 and at 1. */
static void n_of_m_input_channels(void **state)
{
    (void)state;
    graph_case g;
    pare_unstructured_facts facts;
    const float w[] = {1, 8, 2, 7, 3, 6, 4, 5, /* channel 4 on */ -1, 2, -3, 4, 5, -6, 7, 8};
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){1, 8, 1, 3});
    graph_floats(&g, "w", 4, (int64_t[]){1, 8, 1, 2}, w);
    graph_floats(&g, "v", 4, (int64_t[]){1, 1, 1, 2}, (float[]){1, 2});
    graph_node(&g, "Conv", "x w", "h");
    graph_node(&g, "Conv", "h v", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_prune_prepare(&g.ctx, g.model), PARE_OK);
    prune(&g, &(pare_unstructured_options){.n = 2, .m = 4}, &facts);
    check(&g, "w", (float[]){0, 8, 0, 7, 3, 0, 4, 0, 0, 0, 0, 0, 5, -6, 7, 8});
    check(&g, "v", (float[]){1, 2});
    assert_string_equal(facts.layer[1].note, "fewer than 4 input channels a group");
    assert_int_equal(pare_prune_unstructured(&g.ctx, g.model,
                                             &(pare_unstructured_options){.n = 1, .m = 3}, &facts),
                     PARE_INPUT);
    assert_non_null(strstr(g.ctx.message, "nothing can be pruned to 1:3"));
    graph_close(&g);
}

/* Random: as many as asked, the same for a seed, others for another. */
static void random_is_repeatable(void **state)
{
    (void)state;
    enum { SIDE = 64 };
    static float w[SIDE * SIDE];
    bool zero[3][SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) w[i] = 1;
    for (int k = 0; k < 3; k++) {
        graph_case g;
        pare_unstructured_facts facts;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, SIDE});
        graph_floats(&g, "w", 2, (int64_t[]){SIDE, SIDE}, w);
        graph_node(&g, "MatMul", "x w", "y");
        graph_output(&g, "y");
        pare_unstructured_options o = {.sparsity = 0.25, .score = PARE_SCORE_RANDOM, .seed = k / 2};
        prune(&g, &o, &facts);
        assert_int_equal(facts.zeros, SIDE * SIDE / 4);
        const float *got = graph_value(&g, "w")->data->data;
        for (int i = 0; i < SIDE * SIDE; i++) zero[k][i] = got[i] == 0;
        graph_close(&g);
    }
    assert_memory_equal(zero[0], zero[1], sizeof zero[0]);
    int both = 0;
    for (int i = 0; i < SIDE * SIDE; i++) both += zero[0][i] && zero[2][i];
    assert_in_range(both, 180, 332); /* 256 expected, 14 the deviation */
}

static void nothing_to_prune(void **state)
{
    (void)state;
    graph_case g;
    pare_unstructured_facts facts;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 2});
    graph_node(&g, "Relu", "x", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_prune_unstructured(&g.ctx, g.model,
                                             &(pare_unstructured_options){.sparsity = 0.5}, &facts),
                     PARE_INPUT);
    assert_non_null(strstr(g.ctx.message, "nothing can be pruned"));
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_of_all_go),   cmocka_unit_test(or_of_each_layer),
        cmocka_unit_test(ties_go_first_come),    cmocka_unit_test(what_is_kept_stays),
        cmocka_unit_test(n_of_m_input_channels), cmocka_unit_test(random_is_repeatable),
        cmocka_unit_test(nothing_to_prune),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
