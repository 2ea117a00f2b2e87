/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of channels: what they keep, by hand, and that the model computes the same afterwards. */
#include "prune/unstructured.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void permute(graph_case *g, int n, int m, pare_unstructured_facts *facts)
{
    pare_unstructured_options options = {.n = n, .m = m};
    pare_arena arena;
    pare_arena_init(&arena, &g->ctx);
    *facts = (pare_unstructured_facts){0};
    pare_prunables all = {
        .ctx = &g->ctx, .model = g->model, .arena = &arena, .options = &options, .facts = facts};
    assert_int_equal(pare_prune_prepare(&g->ctx, g->model), PARE_OK);
    assert_int_equal(pare_prunables_find(&all), PARE_OK);
    if (pare_prunables_permute(&all) != PARE_OK) fail_msg("%s", g->ctx.message);
    pare_arena_free(&arena);
}

/* One output reads 9 8 7 6 | 1 2 3 4: 2:4 keeps 9 + 8 + 4 + 3; with 9 8 against two of 1 2 3 4, and
   7 6 against the other two, 30. */
static void the_best_order_by_hand(void **state)
{
    (void)state;
    graph_case g;
    pare_unstructured_facts facts;
    float first[16];
    for (int i = 0; i < 16; i++) first[i] = (float)(i % 8) + (i < 8 ? 0.5f : -3);
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
    graph_floats(&g, "a", 2, (int64_t[]){2, 8}, first);
    graph_floats(&g, "b", 2, (int64_t[]){8, 1}, (float[]){9, -8, 7, 6, 1, -2, 3, 4});
    graph_node(&g, "MatMul", "x a", "h");
    graph_node(&g, "Relu", "h", "r");
    graph_node(&g, "MatMul", "r b", "y");
    graph_output(&g, "y");
    float before, after;
    const float x[] = {1, -0.5f};
    graph_run(&g, 2, (int64_t[]){1, 2}, x, &before, 1);
    permute(&g, 2, 4, &facts);
    assert_int_equal(facts.reordered, 1);
    assert_true(facts.kept_before == 24 && facts.kept_after == 30);
    graph_run(&g, 2, (int64_t[]){1, 2}, x, &after, 1);
    assert_true(fabsf(after - before) < 1e-5f);
    const float *b = graph_value(&g, "b")->data->data;
    double kept = 0;
    for (int p = 0; p < 8; p += 4) {
        float low = INFINITY, next = INFINITY, sum = 0;
        for (int i = p; i < p + 4; i++) {
            float w = fabsf(b[i]);
            sum += w;
            if (w < low)
                next = low, low = w;
            else if (w < next)
                next = w;
        }
        kept += (double)(sum - low - next);
    }
    assert_true(kept == 30);
    graph_close(&g);
}

enum { CHANNELS = 8, SIDE = 4, CLASSES = 4 };

static pare_value *noise(graph_case *g, const char *name, int rank, const int64_t *dims,
                         uint64_t seed)
{
    static float data[CHANNELS * SIDE * SIDE * CLASSES];
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        data[i] = (float)(int32_t)(seed >> 32) * 0x1p-32f;
    }
    return graph_floats(g, name, rank, dims, data);
}

/* A residual ties the channels of two convolutions; the Gemm reads them flattened. */
static void a_residual_is_ordered_as_one(void **state)
{
    (void)state;
    graph_case g;
    pare_unstructured_facts facts;
    const int64_t dims[] = {1, 3, SIDE, SIDE}, flat[] = {CHANNELS * SIDE * SIDE, CLASSES};
    float x[3 * SIDE * SIDE], before[CLASSES], after[CLASSES], old[CHANNELS * 3];
    for (int i = 0; i < 3 * SIDE * SIDE; i++) x[i] = cosf((float)i);
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, dims);
    noise(&g, "a", 4, (int64_t[]){CHANNELS, 3, 1, 1}, 1);
    noise(&g, "c", 1, (int64_t[]){CHANNELS}, 2);
    noise(&g, "b", 4, (int64_t[]){CHANNELS, CHANNELS, 1, 3}, 3);
    noise(&g, "d", 2, flat, 4);
    graph_node(&g, "Conv", "x a c", "h");
    graph_node(&g, "Relu", "h", "r");
    pare_node *second = graph_node(&g, "Conv", "r b", "s");
    assert_int_equal(pare_node_set_ints(second, "pads", (int64_t[]){0, 1, 0, 1}, 4), PARE_OK);
    graph_node(&g, "Add", "s r", "t");
    graph_node(&g, "Flatten", "t", "f");
    graph_node(&g, "Gemm", "f d", "y");
    graph_output(&g, "y");
    graph_run(&g, 4, dims, x, before, CLASSES);
    memcpy(old, graph_value(&g, "a")->data->data, sizeof old);
    permute(&g, 2, 4, &facts);
    assert_int_equal(facts.reordered, 1);
    assert_true(facts.kept_after > facts.kept_before);
    assert_memory_not_equal(old, graph_value(&g, "a")->data->data, sizeof old);
    graph_run(&g, 4, dims, x, after, CLASSES);
    for (int i = 0; i < CLASSES; i++) assert_true(fabsf(after[i] - before[i]) < 1e-5f);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_order_by_hand),
        cmocka_unit_test(a_residual_is_ordered_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
