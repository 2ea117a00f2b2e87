/* SPDX-License-Identifier: Apache-2.0 */
/* A student whose weight goes through FakeQuantize: the weight after it is trained, its scales
   only where they are asked for, and then within bounds. */
#include "distill/weights.h"
#include "runtime/ops/ops.h"
#include "tests/distill/distill_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const pare_distill_scale scales[] = {{"s1", 0.1}};

/* w1 by scales of its own for each column: largest value 127 steps. */
static void fake_quantize(distill_case *c, float *start)
{
    graph_case *g = &c->student;
    pare_value *w = graph_value(g, "w1"), *s, *y;
    pare_node *reader = w->user[0], *made;
    for (int k = 0; k < HIDDEN; k++) {
        float top = 0;
        for (int i = 0; i < WIDTH; i++) {
            float v = c->s.w1[i][k];
            top = v > top ? v : -v > top ? -v : top;
        }
        start[k] = top / 100; /* some are clamped later, none at first */
    }
    s = graph_floats(g, "s1", 1, (int64_t[]){HIDDEN}, start);
    assert_int_equal(pare_value_new(g->model->graph, &y, "w1_fake"), PARE_OK);
    assert_int_equal(pare_node_new(g->model->graph, &made, 0, "FakeQuantize", PARE_DOMAIN, "f",
                                   (pare_value *[]){w, s}, 2, &y, 1),
                     PARE_OK);
    assert_int_equal(pare_node_set_int(made, "to", PARE_s8), PARE_OK);
    assert_int_equal(pare_node_set_int(made, "low", -127), PARE_OK);
    for (int i = 0; i < reader->in_count; i++)
        if (reader->in[i] == w) assert_int_equal(pare_node_set_in(reader, i, y), PARE_OK);
}

static void open_case(distill_case *c, float *start)
{
    distill_open(c, -1, LABELS_NONE);
    fake_quantize(c, start);
    c->options.steps = 8;
}

static void weights_are_trained_and_scales_stay(void **state)
{
    distill_case c;
    float start[HIDDEN];
    (void)state;
    open_case(&c, start);
    distill_expect_ok(&c, NULL);
    assert_memory_equal(distill_weight(&c.student, "s1"), start, sizeof start);
    assert_memory_not_equal(distill_weight(&c.student, "w1"), c.s.w1, sizeof c.s.w1);
    assert_int_equal(c.result.weights, 3);
    assert_true(c.result.after.loss < c.result.before.loss);
    distill_close(&c);
}

static void scales_are_learned(void **state)
{
    distill_case c;
    float start[HIDDEN];
    (void)state;
    open_case(&c, start);
    c.options.scale = scales;
    c.options.scale_count = 1;
    c.options.learning_rate = 0.01;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.weights, 4);
    assert_memory_not_equal(distill_weight(&c.student, "s1"), start, sizeof start);
    distill_close(&c);
}

static void a_scale_stays_within_a_factor_of_16(void **state)
{
    const float start[4] = {1, 2, 0.5f, 4}, want[4] = {0.0625f, 32, 0.5f, 0.25f};
    float now[4] = {-3, 1e9f, 0.5f, 0};
    const pare_tensor t = {.dtype = PARE_f32, .count = 4, .data = start};
    (void)state;
    pare_weights_hold(&(pare_weight){.tensor = &t}, now);
    assert_memory_equal(now, want, sizeof want);
}

static void an_unknown_scale_is_refused(void **state)
{
    static const pare_distill_scale unknown[] = {{"s9", 1}};
    distill_case c;
    float start[HIDDEN];
    (void)state;
    open_case(&c, start);
    c.options.scale = unknown;
    c.options.scale_count = 1;
    distill_expect_refusal(&c, NULL, PARE_INPUT, "'s9'");
    distill_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_trained_and_scales_stay),
        cmocka_unit_test(scales_are_learned),
        cmocka_unit_test(a_scale_stays_within_a_factor_of_16),
        cmocka_unit_test(an_unknown_scale_is_refused),
    };
    return cmocka_run_group_tests(tests, distill_setup, distill_teardown);
}
