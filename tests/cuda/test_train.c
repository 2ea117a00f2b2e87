/* SPDX-License-Identifier: Apache-2.0 */
/* What training adds and no finite difference shows, on the device against the CPU's plain kernels:
   FakeQuantize with both of its gradients, convolutions whose weights are computed, weight
   gradients long enough to be cut in parts, tensors in N, H, W, C order, wrong labels. */
#include "runtime/exec/exec.h"
#include "runtime/ops/ops.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <math.h>

enum { MOST_OUTPUTS = 3 };

typedef struct run {
    double *value[MOST_OUTPUTS];
    int64_t count[MOST_OUTPUTS];
    int outputs;
} run;

static double number(const pare_view *v, int64_t i)
{
    return v->dtype == PARE_f64 ? ((const double *)v->data)[i]
                                : (double)((const float *)v->data)[i];
}

/* Normal-like numbers; integers in [-3, 3]. */
static void fill(pare_view *v, uint32_t seed)
{
    for (int64_t i = 0; i < pare_view_count(v); i++) {
        double x = 0;
        for (int k = 0; k < 4; k++) x += (double)test_random(&seed) / 16777216.0 - 0.5;
        if (v->dtype == PARE_f32) ((float *)v->data)[i] = (float)(2 * x);
        if (v->dtype == PARE_s8) ((int8_t *)v->data)[i] = (int8_t)rint(3 * x);
        if (v->dtype == PARE_u8) ((uint8_t *)v->data)[i] = (uint8_t)(128 + (int)rint(3 * x));
    }
}

static void execute(graph_case *g, pare_device *device, run *out)
{
    pare_plan *plan;
    pare_runner *runner;
    pare_plan_options options = {
        .threads = 1, .deterministic = true, .reference = !device, .device = device};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        pare_view v = pare_runner_input(runner, i);
        fill(&v, (uint32_t)i + 1);
    }
    for (int i = 0; device && i < pare_plan_step_count(plan); i++) {
        pare_step_info step;
        pare_plan_step(plan, i, &step);
        if (strncmp(step.kernel, "cuda_", 5)) fail_msg("%s runs %s", step.op_type, step.kernel);
    }
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    out->outputs = pare_plan_output_count(plan);
    for (int o = 0; o < out->outputs; o++) {
        pare_view v = pare_runner_output(runner, o);
        out->count[o] = pare_view_count(&v);
        out->value[o] = malloc((size_t)out->count[o] * sizeof(double) + 1);
        assert_non_null(out->value[o]);
        for (int64_t i = 0; i < out->count[o]; i++) out->value[o][i] = number(&v, i);
    }
    pare_runner_free(runner);
    pare_plan_free(plan);
}

/* Every output within so much of its largest number. */
static void compare(graph_case *g, double tolerance)
{
    pare_device *device;
    run here, there;
    if (pare_device_open(&g->ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g->ctx.message);
    execute(g, NULL, &here);
    execute(g, device, &there);
    for (int o = 0; o < here.outputs; o++) {
        double top = 1e-30;
        for (int64_t i = 0; i < here.count[o]; i++) top = fmax(top, fabs(here.value[o][i]));
        assert_true(here.count[o] == there.count[o] && top > 1e-6);
        for (int64_t i = 0; i < here.count[o]; i++)
            if (!(fabs(here.value[o][i] - there.value[o][i]) <= tolerance * top))
                fail_msg("output %d, element %lld: %.9g, expected %.9g of %g", o, (long long)i,
                         there.value[o][i], here.value[o][i], top);
        free(here.value[o]);
        free(there.value[o]);
    }
    pare_device_close(device);
}

static pare_node *own_node(graph_case *g, const char *op, const char *in, const char *out)
{
    pare_node *node = graph_node(g, op, in, out);
    node->domain = PARE_DOMAIN;
    return node;
}

/* Scales of one, or a number a channel of axis; channels > 5000: several parts of a sum. */
static void levels_and_their_gradients(void **state)
{
    static const struct {
        int64_t dim[4];
        int axis; /* -1: one scale */
        pare_dtype zero;
    } cases[] = {
        {{3, 5, 7, 6}, -1, PARE_s8},       {{3, 5, 7, 6}, 1, PARE_u8},
        {{4, 3, 3, 3}, 0, PARE_NOTYPE},    {{2, 40, 1, 1}, 1, PARE_s8},
        {{3, 5, 40, 20}, -1, PARE_NOTYPE}, {{2, 3, 50, 60}, 1, PARE_s8},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        graph_case g;
        const int64_t scales = cases[k].axis < 0 ? 1 : cases[k].dim[cases[k].axis];
        float scale[40];
        graph_open(&g, 21);
        for (int i = 0; i < scales; i++) scale[i] = 0.004f * (float)(1 + i % 5);
        graph_input(&g, "x", PARE_f32, 4, cases[k].dim);
        graph_input(&g, "dy", PARE_f32, 4, cases[k].dim);
        graph_floats(&g, "s", 1, &scales, scale);
        const bool zero = cases[k].zero != PARE_NOTYPE;
        if (zero) graph_input(&g, "z", cases[k].zero, 1, &scales);
        pare_node *node[2] = {
            own_node(&g, "FakeQuantize", zero ? "x s z" : "x s", "y"),
            own_node(&g, "FakeQuantizeGrad", zero ? "dy x s z" : "dy x s", "dx ds")};
        for (int i = 0; i < 2; i++) {
            if (cases[k].axis >= 0)
                assert_int_equal(pare_node_set_int(node[i], "axis", cases[k].axis), PARE_OK);
            if (!zero) assert_int_equal(pare_node_set_int(node[i], "to", PARE_s8), PARE_OK);
        }
        graph_output(&g, "y");
        graph_output(&g, "dx");
        graph_output(&g, "ds");
        compare(&g, 1e-6);
        graph_close(&g);
    }
}

/* One, two and three window axes; groups, strides, dilations, uneven padding; with a bias or not.
 */
static void convolutions_of_computed_weights(void **state)
{
    static const struct {
        int rank;
        int64_t x[5], w[5];
        const char *attribute;
        int numbers;
        int64_t number[6], group;
        bool bias;
    } cases[] = {
        {4, {2, 5, 9, 7}, {70, 5, 3, 3}, "pads", 4, {1, 0, 2, 1}, 1, true},
        {4, {3, 6, 8, 8}, {8, 3, 3, 2}, "strides", 2, {2, 1}, 2, true},
        {4, {2, 12, 6, 6}, {12, 1, 3, 3}, "dilations", 2, {2, 1}, 12, false},
        {4, {1, 65, 3, 3}, {3, 65, 1, 1}, "strides", 2, {1, 2}, 1, false},
        {3, {2, 3, 17}, {4, 3, 5}, "strides", 1, {3}, 1, true},
        {5, {1, 2, 4, 5, 6}, {3, 2, 2, 3, 2}, "pads", 6, {1, 0, 0, 0, 1, 1}, 1, true},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        graph_case g;
        graph_open(&g, 21);
        graph_input(&g, "x", PARE_f32, cases[k].rank, cases[k].x);
        graph_input(&g, "w", PARE_f32, cases[k].rank, cases[k].w);
        if (cases[k].bias) graph_input(&g, "b", PARE_f32, 1, cases[k].w);
        pare_node *node = graph_node(&g, "Conv", cases[k].bias ? "x w b" : "x w", "y");
        assert_int_equal(
            pare_node_set_ints(node, cases[k].attribute, cases[k].number, cases[k].numbers),
            PARE_OK);
        assert_int_equal(pare_node_set_int(node, "group", cases[k].group), PARE_OK);
        graph_output(&g, "y");
        compare(&g, 1e-5);
        graph_close(&g);
    }
}

/* Sums over 4,500 places of two groups, and the gradient of the picture beside them. */
static void long_weight_gradients(void **state)
{
    const int64_t x[4] = {5, 4, 30, 30}, y[4] = {5, 6, 30, 30}, w[4] = {6, 2, 3, 3};
    graph_case g;
    (void)state;
    graph_open(&g, 21);
    graph_input(&g, "dy", PARE_f32, 4, y);
    graph_input(&g, "x", PARE_f32, 4, x);
    graph_input(&g, "w", PARE_f32, 4, w);
    pare_node *node[2] = {own_node(&g, "ConvGradWeight", "dy x", "dw"),
                          own_node(&g, "ConvGradInput", "dy w", "dx")};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pare_node_set_ints(node[i], "shape", i ? x : w, 4), PARE_OK);
        assert_int_equal(pare_node_set_ints(node[i], "pads", (int64_t[]){1, 1, 1, 1}, 4), PARE_OK);
        assert_int_equal(pare_node_set_int(node[i], "group", 2), PARE_OK);
    }
    graph_output(&g, "dw");
    graph_output(&g, "dx");
    compare(&g, 1e-5);
    graph_close(&g);
}

/* A slice of a batch alone is its own sum. */
static void one_slice_is_its_sum(void **state)
{
    const int64_t dims[2] = {3, 70};
    graph_case g;
    (void)state;
    graph_open(&g, 21);
    graph_input(&g, "a", PARE_f32, 2, dims);
    graph_input(&g, "b", PARE_f32, 1, dims + 1);
    own_node(&g, "SliceSum", "a b", "sa sb");
    graph_output(&g, "sa");
    graph_output(&g, "sb");
    compare(&g, 0);
    graph_close(&g);
}

static void fails_with(graph_case *g, const char *message)
{
    pare_plan *plan;
    pare_runner *runner;
    pare_plan_options options = {.threads = 1, .deterministic = true};
    if (pare_device_open(&g->ctx, &options.device, "cuda") != PARE_OK ||
        pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    pare_view v = pare_runner_input(runner, 0);
    fill(&v, 3);
    assert_int_equal(pare_runner_run(runner), PARE_INPUT);
    assert_non_null(strstr(g->ctx.message, message));
    pare_runner_free(runner);
    pare_plan_free(plan);
    pare_device_close(options.device);
}

static void wrong_values_are_named(void **state)
{
    const int64_t logits[2] = {4, 5}, rows = 4, labels[] = {1, 0, 5, 2}, indices[] = {1, 9, 0, 2};
    graph_case g;
    (void)state;
    graph_open(&g, 21);
    graph_input(&g, "x", PARE_f32, 2, logits);
    graph_ints(&g, "labels", 1, &rows, labels);
    own_node(&g, "CrossEntropy", "x labels", "loss dx");
    graph_output(&g, "loss");
    fails_with(&g, "label 5 is outside the 5 classes of 'x'");
    graph_close(&g);
    graph_open(&g, 21);
    graph_input(&g, "dy", PARE_f32, 2, logits);
    graph_ints(&g, "at", 1, &rows, indices);
    pare_node *node = own_node(&g, "GatherGrad", "dy at", "dx");
    assert_int_equal(pare_node_set_ints(node, "shape", (int64_t[]){7, 5}, 2), PARE_OK);
    graph_output(&g, "dx");
    fails_with(&g, "index 9 is outside an axis of length 7");
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(levels_and_their_gradients), device_test(convolutions_of_computed_weights),
        device_test(long_weight_gradients),      device_test(one_slice_is_its_sum),
        device_test(wrong_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
