/* SPDX-License-Identifier: Apache-2.0 */
/* Training in bf16: close to f32, the same whatever the threads, with f32 weights; and what is
   rounded. */
#include "distill/graph.h"
#include "tests/distill/distill_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void train(distill_case *c, pare_train_precision precision, int threads)
{
    distill_open(c, -1, LABELS_NONE);
    c->options.precision = precision;
    c->options.threads = threads;
    c->options.epochs = 100;
    c->options.learning_rate = 0.02;
    distill_expect_ok(c, NULL);
}

static void it_learns_as_in_f32(void **state)
{
    distill_case full, half;
    (void)state;
    train(&full, PARE_TRAIN_F32, 1);
    train(&half, PARE_TRAIN_BF16, 1);
    assert_true(half.result.before.loss == full.result.before.loss); /* held out: in f32 */
    assert_true(half.result.after.loss < 0.03 * half.result.before.loss);
    assert_true(fabs(half.result.after.loss - full.result.after.loss) <
                0.01 * full.result.before.loss);
    assert_memory_not_equal(distill_weight(&half.student, "w1"),
                            distill_weight(&full.student, "w1"), sizeof full.s.w1);
    distill_close(&full);
    distill_close(&half);
}

static void threads_do_not_matter(void **state)
{
    distill_case c[3];
    (void)state;
    for (int k = 0; k < 3; k++) {
        train(&c[k], PARE_TRAIN_BF16, k + 1);
        assert_memory_equal(distill_weight(&c[k].student, "w1"),
                            distill_weight(&c[0].student, "w1"), sizeof c[0].s.w1);
    }
    for (int k = 0; k < 3; k++) distill_close(&c[k]);
}

/* A step smaller than bf16 can tell from the weights still counts. */
static void weights_stay_f32(void **state)
{
    distill_case c;
    float moved = 0;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.precision = PARE_TRAIN_BF16;
    c.options.learning_rate = 1e-5;
    c.options.weight_decay = 0;
    c.options.warmup = 0;
    c.options.steps = 1;
    distill_expect_ok(&c, NULL);
    assert_int_equal(c.result.best_step, 1);
    const float *w1 = distill_weight(&c.student, "w1");
    for (int i = 0; i < WIDTH * HIDDEN; i++)
        moved = fmaxf(moved, fabsf(w1[i] - (&c.s.w1[0][0])[i]));
    assert_true(moved > 0.5e-5f && moved < 2e-5f);
    distill_close(&c);
}

static void fp16_is_for_gpus(void **state)
{
    distill_case c;
    (void)state;
    distill_open(&c, -1, LABELS_NONE);
    c.options.precision = PARE_TRAIN_FP16;
    distill_expect_refusal(&c, NULL, PARE_UNSUPPORTED, "GPU");
    distill_close(&c);
}

/* The dtype that node `name`'s input i was read through, a Cast back to f32. */
static pare_dtype read_as(const graph_case *g, const char *name, int i)
{
    const pare_value *v = pare_node_in(graph_value(g, name)->producer, i);
    assert_int_equal(v->dtype, PARE_f32);
    if (!v->producer || !pare_node_is(v->producer, "Cast")) return PARE_f32;
    return v->producer->in[0]->dtype;
}

/* x, w and z are stored short, h's reader is of the loss and reads that, too; y, an output, and the
   bias are not; nor is what only a sum makes an output of. */
static void the_graph_is_rounded_where_it_says(void **state)
{
    graph_case g;
    float b[HIDDEN] = {0};
    (void)state;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){4, WIDTH});
    graph_input(&g, "w", PARE_f32, 2, (int64_t[]){WIDTH, HIDDEN});
    graph_floats(&g, "b", 1, (int64_t[]){HIDDEN}, b);
    graph_node(&g, "Gemm", "x w b", "z");
    graph_node(&g, "Relu", "z", "h");
    graph_node(&g, "Mul", "h h", "l"); /* the loss */
    graph_node(&g, "Neg", "l", "d");
    graph_node(&g, "Neg", "h", "part");
    graph_node(&g, "Add", "part z", "y");
    graph_output(&g, "y");
    graph_output(&g, "d");
    for (int i = 0; i < g.model->graph->node_count; i++)
        for (int o = 0; o < g.model->graph->node[i]->out_count; o++)
            pare_value_set_type(g.model->graph->node[i]->out[o], PARE_f32,
                                &(pare_shape){2, {4, HIDDEN}, {0}});
    pare_node *loss = graph_value(&g, "l")->producer;
    assert_int_equal(pare_precision_store(g.model, PARE_bf16, &loss, 1), PARE_OK);
    assert_int_equal(read_as(&g, "z", 0), PARE_bf16);
    assert_int_equal(read_as(&g, "z", 1), PARE_bf16);
    assert_int_equal(read_as(&g, "z", 2), PARE_f32);
    assert_int_equal(read_as(&g, "h", 0), PARE_bf16);
    assert_int_equal(read_as(&g, "l", 0), PARE_bf16);
    assert_int_equal(read_as(&g, "l", 1), PARE_bf16);
    assert_int_equal(read_as(&g, "d", 0), PARE_f32);
    assert_int_equal(read_as(&g, "y", 0), PARE_f32);
    assert_int_equal(read_as(&g, "y", 1), PARE_bf16);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns_as_in_f32),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(weights_stay_f32),
        cmocka_unit_test(fp16_is_for_gpus),
        cmocka_unit_test(the_graph_is_rounded_where_it_says),
    };
    return cmocka_run_group_tests(tests, distill_setup, distill_teardown);
}
