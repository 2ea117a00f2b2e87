/* SPDX-License-Identifier: Apache-2.0 */
/* Scales and rounding of weights, patterns on node names. */
#include "quant/internal.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static pare_tensor tensor(int rank, const int64_t *dims, const float *data)
{
    pare_tensor t = {.dtype = PARE_f32, .rank = rank, .dims = dims, .count = 1, .data = data};
    for (int i = 0; i < rank; i++) t.count *= dims[i];
    return t;
}

/* Steps of 0.5 up to 127 of them: the largest value is no outlier, so the scale is max / 127 and
   every number keeps itself. Axis 1 of (2, 2): columns are channels. */
static void numbers_on_the_grid_stay(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    float w[] = {63.5f, 1, -10.5f, -127}, scale[2];
    int8_t q[4];
    pare_tensor t = tensor(2, (int64_t[]){2, 2}, w);
    pare_quant_weight_view view = pare_quant_weight_look(&t, 1);
    assert_int_equal(view.channels, 2);
    assert_int_equal(pare_quant_weight_scales(&ctx, &view, 8, scale), PARE_OK);
    assert_true(scale[0] == 0.5f && scale[1] == 1);
    pare_quant_weight_round(&view, scale, 8, q);
    int8_t want[] = {127, 1, -21, -127};
    assert_memory_equal(q, want, 4);
}

/* Ties go to even, what is outside is clamped to 127 and never to -128. */
static void rounding_is_to_even_and_symmetric(void **state)
{
    (void)state;
    float w[] = {0.5f, 1.5f, 2.5f, -0.5f, 300, -300}, scale = 1;
    int8_t q[6], want[] = {0, 2, 2, 0, 127, -127};
    pare_tensor t = tensor(1, (int64_t[]){6}, w);
    pare_quant_weight_view view = pare_quant_weight_look(&t, -1);
    pare_quant_weight_round(&view, &scale, 8, q);
    assert_memory_equal(q, want, 6);
}

/* A large weight is in its file's map wherever it is. */
static void a_weight_may_lie_at_any_address(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    const float w[] = {63.5f, 1, -10.5f, -127};
    float scale[2];
    char bytes[sizeof w + 1];
    int8_t q[4], want[] = {127, 1, -21, -127};
    memcpy(bytes + 1, w, sizeof w);
    pare_tensor t = tensor(2, (int64_t[]){2, 2}, w);
    t.data = bytes + 1;
    pare_quant_weight_view view = pare_quant_weight_look(&t, 1);
    assert_int_equal(pare_quant_weight_scales(&ctx, &view, 8, scale), PARE_OK);
    pare_quant_weight_round(&view, scale, 8, q);
    assert_memory_equal(q, want, 4);
}

static double squared_error(const float *w, int n, float scale)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double e = (double)w[i] - rint((double)w[i] / (double)scale) * (double)scale;
        sum += e * e;
    }
    return sum;
}

/* 4,000 numbers around 30.5 steps and one at 127: a coarser or equal grid is never better than what
   is chosen, and clipping the one outlier pays here. */
static void an_outlier_is_clipped_where_that_pays(void **state)
{
    (void)state;
    enum { N = 4001 };
    static float w[N];
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    for (int i = 0; i < N - 1; i++) w[i] = (i & 1 ? 1.0f : -1.0f) * (30 + 0.5f);
    w[N - 1] = 127;
    pare_tensor t = tensor(1, (int64_t[]){N}, w);
    pare_quant_weight_view view = pare_quant_weight_look(&t, -1);
    float scale;
    assert_int_equal(pare_quant_weight_scales(&ctx, &view, 8, &scale), PARE_OK);
    assert_true(scale < 1);
    assert_true(squared_error(w, N - 1, scale) < 0.2 * squared_error(w, N - 1, 1));
}

static void a_dead_channel_has_a_scale(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    float w[4] = {0, 0, 2, -1}, scale[2];
    pare_tensor t = tensor(2, (int64_t[]){2, 2}, w);
    pare_quant_weight_view view = pare_quant_weight_look(&t, 0);
    assert_int_equal(pare_quant_weight_scales(&ctx, &view, 8, scale), PARE_OK);
    assert_true(scale[0] == 1 && scale[1] > 0);
}

static void patterns_choose_nodes(void **state)
{
    (void)state;
    graph_case g;
    pare_quant_nodes nodes = {0};
    const char *skip[] = {"op:Relu"}, *only[] = {"*first*"}, *wrong[] = {"frist"};
    graph_open(&g, 13);
    graph_input(&g, "x", PARE_f32, 1, (int64_t[]){4});
    graph_node(&g, "Relu", "x", "first");
    graph_node(&g, "Sigmoid", "first", "second");
    graph_node(&g, "Relu", "second", "third");
    for (int i = 0; i < 3; i++) g.model->graph->node[i]->name = "";
    pare_quant_options o = {.skip = skip, .skip_count = 1};
    assert_int_equal(pare_quant_select(g.model, &g.model->arena, &o, &nodes), PARE_OK);
    assert_true(!nodes.chosen[0] && nodes.chosen[1] && !nodes.chosen[2]);
    o = (pare_quant_options){.only = only, .only_count = 1};
    assert_int_equal(pare_quant_select(g.model, &g.model->arena, &o, &nodes), PARE_OK);
    assert_true(nodes.chosen[0] && !nodes.chosen[1] && !nodes.chosen[2]);
    o = (pare_quant_options){.skip = wrong, .skip_count = 1};
    assert_int_equal(pare_quant_select(g.model, &g.model->arena, &o, &nodes), PARE_USAGE);
    assert_non_null(strstr(g.ctx.message, "--skip 'frist' matches no node; near it: 'first'"));
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_on_the_grid_stay),
        cmocka_unit_test(a_weight_may_lie_at_any_address),
        cmocka_unit_test(rounding_is_to_even_and_symmetric),
        cmocka_unit_test(an_outlier_is_clipped_where_that_pays),
        cmocka_unit_test(a_dead_channel_has_a_scale),
        cmocka_unit_test(patterns_choose_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
