/* SPDX-License-Identifier: Apache-2.0 */
/* QDQ graphs into trainable ones and back, with numbers worked out by hand; and the gradient of a
   scale in f64 against differences: where all is clamped they are the gradient, elsewhere the
   straight-through part, minus the sum of dY X / s, is added. */
#include "runtime/ops/ops.h"
#include "runtime/passes/train/fake_quantize.h"
#include "runtime/passes/train/gradient.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void constant(graph_case *g, const char *name, pare_dtype dtype, int rank, int64_t count,
                     const void *data)
{
    pare_value *v;
    assert_int_equal(pare_init_new(g->model->graph, &v, name, dtype, rank, &count, data), PARE_OK);
}

static void pair(graph_case *g, const char *x, float scale, int zero, bool is_signed)
{
    char name[6][40], q[128], dq[128];
    static const char *const suffix[] = {"scale", "zero_point", "quantized", "dequantized"};
    const uint8_t z = (uint8_t)zero;
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%s_%s", x, suffix[i]);
    constant(g, name[0], PARE_f32, 0, 0, &scale);
    constant(g, name[1], is_signed ? PARE_s8 : PARE_u8, 0, 0, &z);
    snprintf(q, sizeof q, "%s %s %s", x, name[0], name[1]);
    snprintf(dq, sizeof dq, "%s %s %s", name[2], name[0], name[1]);
    graph_node(g, "QuantizeLinear", q, name[2]);
    graph_node(g, "DequantizeLinear", dq, name[3]);
}

static const int8_t weights[6] = {100, -127, 3, 0, -50, 127};
static const float weight_scales[2] = {0.5f, 0.25f};

/* y = x w + b: x [1, 3] u8 with zero point 4, w [3, 2] s8, bias s32 or f32. */
static void build(graph_case *g, bool s32)
{
    const float bias_scale[2] = {0.125f, 0.0625f}, bias[2] = {-1.25f, 0.625f};
    const int32_t q[2] = {-10, 1 << 25};
    const int8_t zeros[2] = {0};
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){1, 3});
    pair(g, "x", 0.25f, 4, false);
    pare_value *v;
    assert_int_equal(
        pare_init_new(g->model->graph, &v, "w_quantized", PARE_s8, 2, (int64_t[]){3, 2}, weights),
        PARE_OK);
    constant(g, "w_scale", PARE_f32, 1, 2, weight_scales);
    constant(g, "w_zero_point", PARE_s8, 1, 2, zeros);
    pare_node *dq =
        graph_node(g, "DequantizeLinear", "w_quantized w_scale w_zero_point", "w_dequantized");
    assert_int_equal(pare_node_set_int(dq, "axis", -1), PARE_OK);
    if (s32) {
        constant(g, "b_quantized", PARE_s32, 1, 2, q);
        constant(g, "b_scale", PARE_f32, 1, 2, bias_scale);
        graph_node(g, "DequantizeLinear", "b_quantized b_scale", "b_dequantized");
        assert_int_equal(pare_node_set_int(g->model->graph->node[3], "axis", 0), PARE_OK);
    } else
        constant(g, "b", PARE_f32, 1, 2, bias);
    graph_node(g, "Gemm",
               s32 ? "x_dequantized w_dequantized b_dequantized" : "x_dequantized w_dequantized b",
               "y");
    graph_output(g, "y");
}

/* The file, and the graph made of it. */
static void make(graph_case *file, graph_case *graph, pare_fakes *fakes, const pare_model *f32)
{
    pare_ctx_init(&graph->ctx);
    if (pare_model_clone(&graph->ctx, &graph->model, file->model) != PARE_OK ||
        pare_pass_fake_quantize(graph->model, fakes, f32) != PARE_OK)
        fail_msg("%s", graph->ctx.message);
}

static const pare_fake *fake(const pare_fakes *fakes, const char *tensor)
{
    for (int i = 0; i < fakes->count; i++)
        if (!strcmp(fakes->item[i].tensor, tensor)) return &fakes->item[i];
    fail_msg("%s is not listed", tensor);
    return NULL;
}

static float *floats(const graph_case *g, const char *name)
{
    return (float *)(uintptr_t)graph_value(g, name)->data->data;
}

/* The same to be written to: a tensor of the graph's own, no longer the file's. */
static float *trained(graph_case *g, const char *name)
{
    pare_value *v = graph_value(g, name);
    pare_tensor *t;
    assert_int_equal(pare_tensor_new(g->model, &t, name, v->data->dtype, v->data->rank,
                                     v->data->dims, v->data->data),
                     PARE_OK);
    assert_int_equal(pare_value_set_init(v, t), PARE_OK);
    return floats(g, name);
}

static void the_graph_computes_what_the_file_does(void **state)
{
    const float x[3] = {1.125f, -0.9f, 70};
    (void)state;
    for (int s32 = 0; s32 < 2; s32++) {
        graph_case file, graph;
        pare_fakes fakes;
        float want[2], got[2];
        build(&file, s32);
        make(&file, &graph, &fakes, NULL);
        assert_int_equal(graph_count(&graph, "FakeQuantize"), 2);
        assert_int_equal(graph_count(&graph, "QuantizeLinear"), 0);
        assert_int_equal(graph_count(&graph, "DequantizeLinear"), 0);
        assert_int_equal(fakes.count, 3);
        graph_run(&file, 2, (int64_t[]){1, 3}, x, want, 2);
        graph_run(&graph, 2, (int64_t[]){1, 3}, x, got, 2);
        assert_memory_equal(got, want, sizeof want);
        graph_close(&graph);
        graph_close(&file);
    }
}

static void what_is_listed(void **state)
{
    graph_case file, graph;
    pare_fakes fakes;
    (void)state;
    build(&file, true);
    make(&file, &graph, &fakes, NULL);
    const pare_fake *x = fake(&fakes, "x"), *w = fake(&fakes, "w"), *b = fake(&fakes, "b");
    assert_int_equal(x->kind, PARE_FAKE_ACTIVATION);
    assert_string_equal(x->output, "x_dequantized");
    assert_string_equal(x->scale, "x_scale");
    assert_int_equal(x->low, 0);
    assert_int_equal(x->high, 255);
    assert_true(fabs(x->gradient_scale - 1 / sqrt(3.0 * 255)) < 1e-12);
    assert_int_equal(w->kind, PARE_FAKE_WEIGHT);
    assert_string_equal(w->file_tensor, "w_quantized");
    assert_int_equal(w->low, -127);
    assert_int_equal(w->axis, 1);
    assert_int_equal(w->scales, 2);
    assert_true(fabs(w->gradient_scale - 1 / sqrt(3.0 * 127)) < 1e-12);
    assert_int_equal(b->kind, PARE_FAKE_BIAS);
    assert_int_equal(b->type, PARE_s32);
    assert_string_equal(b->x_scale, "x_scale");
    assert_string_equal(b->w_scale, "w_scale");
    for (int i = 0; i < 6; i++)
        assert_true(floats(&graph, "w")[i] == (float)weights[i] * weight_scales[i % 2]);
    assert_true(floats(&graph, "b")[1] == 0x1p25f * 0.0625f);
    graph_close(&graph);
    graph_close(&file);
}

static void untrained_it_stays(void **state)
{
    (void)state;
    for (int s32 = 0; s32 < 2; s32++) {
        graph_case file, again, graph;
        pare_fakes fakes;
        char text[256];
        build(&file, s32);
        build(&again, s32);
        make(&file, &graph, &fakes, NULL);
        assert_int_equal(pare_pass_qat_export(file.model, graph.model, &fakes), PARE_OK);
        const char *apart = pare_model_compare(file.model, again.model, text, sizeof text);
        if (apart) fail_msg("%s", apart);
        graph_close(&graph);
        graph_close(&again);
        graph_close(&file);
    }
}

/* Masters from a float model: channel 0 as it is, channel 1 of a third of the size (equalized);
   one element of channel 1 that rounds elsewhere is the dequantized one. */
static void masters_come_from_the_float_model(void **state)
{
    graph_case file, graph, f32;
    pare_fakes fakes;
    const float source[6] = {50.1f, -31.75f / 3, 1.4f, 0, -24.9f, 31.8f / 3};
    (void)state;
    build(&file, false);
    graph_open(&f32, 17);
    graph_floats(&f32, "w", 2, (int64_t[]){3, 2}, source);
    make(&file, &graph, &fakes, f32.model);
    const float *w = floats(&graph, "w");
    for (int i = 0; i < 6; i += 2) assert_true(w[i] == source[i]);
    assert_true(fabsf(w[1] + 31.75f) < 0.1f && w[1] != -31.75f);
    assert_int_equal(fake(&fakes, "w")->from_f32, 6);
    assert_int_equal(pare_pass_qat_export(file.model, graph.model, &fakes), PARE_OK);
    assert_memory_equal(graph_value(&file, "w_quantized")->data->data, weights, sizeof weights);
    graph_close(&graph);
    graph_close(&file);
    floats(&f32, "w")[4] = 7; /* channel 0 */
    build(&file, false);
    make(&file, &graph, &fakes, f32.model);
    assert_true(floats(&graph, "w")[4] == -25);
    assert_in_range(fake(&fakes, "w")->from_f32, 3, 5);
    graph_close(&graph);
    graph_close(&f32);
    graph_close(&file);
}

static void masters_of_integers_are_spread(void **state)
{
    const float x[3] = {1.125f, -0.9f, 70};
    graph_case file, graph, other;
    pare_fakes fakes;
    float want[2], got[2];
    (void)state;
    build(&file, false);
    make(&file, &other, &fakes, NULL);
    make(&file, &graph, &fakes, NULL);
    const float *before = floats(&other, "w");
    assert_int_equal(pare_pass_qat_init(graph.model, &fakes, 1), PARE_OK);
    const float *w = floats(&graph, "w");
    for (int i = 0; i < 6; i++) {
        const float steps = (w[i] - before[i]) / weight_scales[i % 2];
        assert_true(fabsf(steps) < 0.5f);
        assert_true(weights[i] ? steps != 0 : w[i] == 0);
    }
    assert_true(w[0] - before[0] != w[2] - before[2]);
    graph_run(&file, 2, (int64_t[]){1, 3}, x, want, 2);
    graph_run(&graph, 2, (int64_t[]){1, 3}, x, got, 2);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(pare_pass_qat_export(file.model, graph.model, &fakes), PARE_OK);
    assert_memory_equal(graph_value(&file, "w_quantized")->data->data, weights, sizeof weights);
    assert_int_equal(pare_pass_qat_init(other.model, &fakes, 1), PARE_OK);
    assert_memory_equal(floats(&other, "w"), w, sizeof weights * sizeof *w);
    graph.ctx.fail_after = 0;
    assert_int_equal(pare_pass_qat_init(graph.model, &fakes, 1), PARE_MEMORY);
    graph.ctx.fail_after = -1;
    graph_close(&graph);
    graph_close(&other);
    graph_close(&file);
}

/* A float model's are where it has them. */
static void masters_of_floats_are_not_spread(void **state)
{
    const float source[6] = {50.1f, -31.75f, 1.4f, 0, -24.9f, 31.8f};
    graph_case file, graph, f32;
    pare_fakes fakes;
    (void)state;
    build(&file, false);
    graph_open(&f32, 17);
    graph_floats(&f32, "w", 2, (int64_t[]){3, 2}, source);
    make(&file, &graph, &fakes, f32.model);
    assert_int_equal(pare_pass_qat_init(graph.model, &fakes, 1), PARE_OK);
    assert_memory_equal(floats(&graph, "w"), source, sizeof source);
    graph_close(&graph);
    graph_close(&f32);
    graph_close(&file);
}

static void trained_numbers_are_rounded(void **state)
{
    graph_case file, graph;
    pare_fakes fakes;
    const int8_t want[6] = {-127, 2, 4, -127, 0, 127};
    (void)state;
    for (int s32 = 0; s32 < 2; s32++) {
        build(&file, s32);
        make(&file, &graph, &fakes, NULL);
        const float w[6] = {-1000, 0.3f, 1.75f, -15.875f, 0.25f, 1e6f}, b[2] = {1.03f, -2.51f};
        memcpy(trained(&graph, "w"), w, sizeof w);
        memcpy(trained(&graph, "b"), b, sizeof b);
        *trained(&graph, "x_scale") = 0.5f;
        trained(&graph, "w_scale")[1] = 0.125f;
        if (pare_pass_qat_export(file.model, graph.model, &fakes) != PARE_OK)
            fail_msg("%s", file.ctx.message);
        assert_memory_equal(graph_value(&file, "w_quantized")->data->data, want, sizeof want);
        assert_true(*floats(&file, "x_scale") == 0.5f);
        assert_true(floats(&file, "w_scale")[1] == 0.125f);
        if (s32) {
            const int32_t *q = graph_value(&file, "b_quantized")->data->data;
            assert_true(floats(&file, "b_scale")[0] == 0.25f);
            assert_true(floats(&file, "b_scale")[1] == 0.0625f);
            assert_int_equal(q[0], 4);
            assert_int_equal(q[1], -40);
        } else {
            assert_true(floats(&file, "b")[0] == 1);
            assert_true(floats(&file, "b")[1] == -2.5f);
        }
        graph_close(&graph);
        graph_close(&file);
    }
}

static void a_large_bias_raises_its_scale(void **state)
{
    graph_case file, graph;
    pare_fakes fakes;
    (void)state;
    build(&file, true);
    make(&file, &graph, &fakes, NULL);
    trained(&graph, "b")[0] = 0x1p29f; /* 2^32 steps of 0.125 */
    assert_int_equal(pare_pass_qat_export(file.model, graph.model, &fakes), PARE_OK);
    assert_true(floats(&file, "w_scale")[0] == 2);
    assert_int_equal(((const int32_t *)graph_value(&file, "b_quantized")->data->data)[0], 1 << 30);
    assert_int_equal(((const int8_t *)graph_value(&file, "w_quantized")->data->data)[0], 25);
    graph_close(&graph);
    graph_close(&file);
}

static void damaged_numbers_are_refused(void **state)
{
    static const struct {
        const char *tensor;
        float value;
    } cases[] = {{"w", NAN}, {"b", INFINITY}, {"x_scale", 0}, {"x_scale", -1}, {"w_scale", NAN}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_case file, graph;
        pare_fakes fakes;
        build(&file, i % 2);
        make(&file, &graph, &fakes, NULL);
        *trained(&graph, cases[i].tensor) = cases[i].value;
        assert_int_equal(pare_pass_qat_export(file.model, graph.model, &fakes), PARE_INPUT);
        assert_non_null(strstr(file.ctx.message, cases[i].tensor));
        graph_close(&graph);
        graph_close(&file);
    }
}

/* A tensor that a pool passes on has one scale; one that only happens to have the same has not. */
static void moved_tensors_share_a_scale(void **state)
{
    graph_case file, graph;
    pare_fakes fakes;
    (void)state;
    graph_open(&file, 17);
    graph_input(&file, "x", PARE_f32, 4, (int64_t[]){1, 1, 4, 4});
    pair(&file, "x", 0.5f, 0, true);
    pare_node *pool = graph_node(&file, "MaxPool", "x_dequantized", "p");
    assert_int_equal(pare_node_set_ints(pool, "kernel_shape", (int64_t[]){2, 2}, 2), PARE_OK);
    pair(&file, "p", 0.5f, 0, true);
    graph_node(&file, "Relu", "p_dequantized", "r");
    pair(&file, "r", 0.5f, 0, true);
    assert_int_equal(
        pare_node_set_int(graph_node(&file, "Concat", "r_dequantized p_dequantized", "c"), "axis",
                          1),
        PARE_OK);
    pair(&file, "c", 0.25f, 0, true);
    graph_node(&file, "Exp", "c_dequantized", "e");
    pair(&file, "e", 0.5f, 0, true);
    graph_output(&file, "e_dequantized");
    make(&file, &graph, &fakes, NULL);
    assert_string_equal(fake(&fakes, "p")->scale, "x_scale");
    assert_string_equal(fake(&fakes, "p")->file_scale, "p_scale");
    assert_string_equal(fake(&fakes, "c")->scale, "c_scale");
    assert_string_equal(fake(&fakes, "e")->scale, "e_scale");
    *trained(&graph, "x_scale") = 0.75f;
    assert_int_equal(pare_pass_qat_export(file.model, graph.model, &fakes), PARE_OK);
    assert_true(*floats(&file, "p_scale") == 0.75f);
    assert_true(*floats(&file, "e_scale") == 0.5f);
    graph_close(&graph);
    graph_close(&file);
}

/* Integers that something else reads are no pair's own. */
static void other_pairs_stay(void **state)
{
    graph_case file, graph;
    pare_fakes fakes;
    (void)state;
    graph_open(&file, 17);
    graph_input(&file, "x", PARE_f32, 1, (int64_t[]){4});
    pair(&file, "x", 0.5f, 0, true);
    graph_output(&file, "x_quantized");
    graph_output(&file, "x_dequantized");
    make(&file, &graph, &fakes, NULL);
    assert_int_equal(fakes.count, 0);
    assert_int_equal(graph_count(&graph, "QuantizeLinear"), 1);
    graph_close(&graph);
    graph_close(&file);
}

static void failing_allocations_are_said(void **state)
{
    bool failed = true;
    (void)state;
    for (long after = 0; failed; after++) {
        graph_case file, graph;
        pare_fakes fakes;
        build(&file, after % 2);
        pare_ctx_init(&graph.ctx);
        assert_int_equal(pare_model_clone(&graph.ctx, &graph.model, file.model), PARE_OK);
        graph.ctx.fail_after = after;
        pare_status st = pare_pass_fake_quantize(graph.model, &fakes, NULL);
        graph.ctx.fail_after = -1;
        failed = st != PARE_OK;
        if (failed) assert_int_equal(st, PARE_MEMORY);
        if (!failed) {
            trained(&graph, "w")[0] = 1;
            file.ctx.fail_after = after % 7;
            st = pare_pass_qat_export(file.model, graph.model, &fakes);
            file.ctx.fail_after = -1;
            assert_true(st == PARE_OK || st == PARE_MEMORY);
        }
        graph_close(&graph);
        graph_close(&file);
    }
}

/* --- the scale's gradient --- */

typedef struct grad_case {
    graph_case g;
    pare_gradient gradient;
    pare_plan *plan;
    pare_runner *runner;
} grad_case;

static const double dy[4] = {0.5, -1.25, 2, 0.75};

/* loss = sum of dy * FakeQuantize(x, s): a gradient by both. */
static void open_grad(grad_case *c, int low, int high)
{
    static const char *const by[] = {"x", "s"};
    pare_node *node;
    pare_value *v;
    graph_open(&c->g, 21);
    graph_input(&c->g, "x", PARE_f64, 1, (int64_t[]){4});
    graph_input(&c->g, "s", PARE_f64, 0, NULL);
    constant(&c->g, "dy", PARE_f64, 1, 4, dy);
    assert_int_equal(pare_value_new(c->g.model->graph, &v, "y"), PARE_OK);
    assert_int_equal(
        pare_node_new(c->g.model->graph, &node, 0, "FakeQuantize", PARE_DOMAIN, "f",
                      (pare_value *[]){graph_value(&c->g, "x"), graph_value(&c->g, "s")}, 2, &v, 1),
        PARE_OK);
    assert_int_equal(pare_node_set_int(node, "to", PARE_s8), PARE_OK);
    assert_int_equal(pare_node_set_int(node, "low", low), PARE_OK);
    assert_int_equal(pare_node_set_int(node, "high", high), PARE_OK);
    graph_node(&c->g, "Mul", "y dy", "p");
    assert_int_equal(pare_node_set_int(graph_node(&c->g, "ReduceSum", "p", "loss"), "keepdims", 0),
                     PARE_OK);
    graph_output(&c->g, "loss");
    const pare_gradient_options options = {
        .loss = PARE_LOSS_TENSOR, .of = "loss", .by = by, .by_count = 2};
    const pare_plan_options run = {.threads = 1, .deterministic = true};
    if (pare_pass_gradient(c->g.model, &c->gradient, &options) != PARE_OK ||
        pare_plan_new(&c->g.ctx, &c->plan, c->g.model, NULL, 0, &run) != PARE_OK ||
        pare_runner_new(&c->g.ctx, &c->runner, c->plan) != PARE_OK)
        fail_msg("%s", c->g.ctx.message);
}

static double run_grad(grad_case *c, const double *x, double s, double *dx, double *ds)
{
    memcpy(pare_runner_input(c->runner, 0).data, x, 4 * sizeof *x);
    *(double *)pare_runner_input(c->runner, 1).data = s;
    assert_int_equal(pare_runner_run(c->runner), PARE_OK);
    if (dx) memcpy(dx, pare_runner_output(c->runner, 1).data, 4 * sizeof *dx);
    if (ds) *ds = *(const double *)pare_runner_output(c->runner, 2).data;
    return *(const double *)pare_runner_output(c->runner, 0).data;
}

static void a_scale_against_differences(void **state)
{
    static const double inside[4] = {0.31, -2.2, 3.77, 1.1}, outside[4] = {50, -60, 99, -41};
    const double h = 1e-6, s = 0.7;
    (void)state;
    for (int clamped = 0; clamped < 2; clamped++) {
        grad_case c;
        const double *x = clamped ? outside : inside;
        double dx[4], ds, through = 0;
        open_grad(&c, -10, 20);
        double more = run_grad(&c, x, s + h, NULL, NULL), less = run_grad(&c, x, s - h, NULL, NULL);
        run_grad(&c, x, s, dx, &ds);
        for (int i = 0; i < 4; i++) {
            assert_true(dx[i] == (clamped ? 0 : dy[i]));
            if (!clamped) through -= dy[i] * x[i] / s;
        }
        if (!(fabs(ds - ((more - less) / (2 * h) + through)) < 1e-7))
            fail_msg("%.12g, expected %.12g", ds, (more - less) / (2 * h) + through);
        pare_runner_free(c.runner);
        pare_plan_free(c.plan);
        graph_close(&c.g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_graph_computes_what_the_file_does),
        cmocka_unit_test(what_is_listed),
        cmocka_unit_test(untrained_it_stays),
        cmocka_unit_test(masters_come_from_the_float_model),
        cmocka_unit_test(masters_of_integers_are_spread),
        cmocka_unit_test(masters_of_floats_are_not_spread),
        cmocka_unit_test(trained_numbers_are_rounded),
        cmocka_unit_test(a_large_bias_raises_its_scale),
        cmocka_unit_test(damaged_numbers_are_refused),
        cmocka_unit_test(moved_tensors_share_a_scale),
        cmocka_unit_test(other_pairs_stay),
        cmocka_unit_test(failing_allocations_are_said),
        cmocka_unit_test(a_scale_against_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
