/* SPDX-License-Identifier: Apache-2.0 */
/* INT8 with the rest in FP16: types at the borders, by target; scales; what stays f32 and why. */
#include "quant/internal.h"
#include "tests/quant/quant_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { N = 4 };

/* x -> first product -> Relu -> Mul by factor -> Tanh -> Softmax -> second product -> y. */
static void build(graph_case *g, float weight, float factor)
{
    float w[N * N], b[N] = {0.5f, -0.25f, 0.125f, 1};
    for (int i = 0; i < N * N; i++) w[i] = weight * (float)(i % 7 - 3) / 3;
    graph_open(g, 19);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){N, N});
    graph_floats(g, "w", 2, (int64_t[]){N, N}, w);
    graph_floats(g, "v", 2, (int64_t[]){N, N}, (float[N * N]){1, 2, 3, 4, 1, 1, 1, 1, -3});
    graph_floats(g, "b", 1, (int64_t[]){N}, b);
    graph_floats(g, "factor", 0, NULL, &factor);
    graph_node(g, "Gemm", "x w b", "p")->name = "first";
    graph_node(g, "Relu", "p", "r")->name = "relu";
    graph_node(g, "Mul", "r factor", "m")->name = "mul";
    graph_node(g, "Tanh", "m", "t")->name = "tanh";
    graph_node(g, "Softmax", "t", "s")->name = "softmax";
    graph_node(g, "MatMul", "s v", "y")->name = "second";
    graph_output(g, "y");
}

static pare_quant_options options_of(pare_quant_target target)
{
    return (pare_quant_options){.rule = {.method = PARE_METHOD_MINMAX},
                                .target = target,
                                .float_fp16 = true,
                                .bias_correction = true};
}

static void quantize(graph_case *g, float largest, const pare_quant_options *o,
                     pare_quant_facts *facts)
{
    const span spans[] = {{"x", -1, 1}, {"p", -3, 3}, {"r", 0, 3}, {"m", 0, largest},
                          {"t", 0, 1},  {"s", 0, 1},  {"y", -4, 4}};
    *facts = (pare_quant_facts){0};
    quantize_with(g, spans, 7, o, facts);
}

static const pare_node *named(const graph_case *g, const char *name)
{
    const pare_graph *graph = g->model->graph;
    for (int n = 0; n < graph->node_count; n++)
        if (!strcmp(graph->node[n]->name, name)) return graph->node[n];
    fail_msg("no node '%s'", name);
    return NULL;
}

static void assert_types(const graph_case *g, const char *node, pare_dtype in, pare_dtype out)
{
    const pare_node *n = named(g, node);
    if (n->in[0]->dtype != in || n->out[0]->dtype != out)
        fail_msg("%s: %s to %s", node, pare_type(n->in[0]->dtype)->name,
                 pare_type(n->out[0]->dtype)->name);
}

/* The outputs against those of the float model, in steps of 4 / 127. */
static void assert_near_float(graph_case *g, float weight, float factor)
{
    graph_case f;
    float x[N * N], y[N * N], want[N * N];
    for (int i = 0; i < N * N; i++) x[i] = (float)(i * 5 % 9 - 4) / 4;
    build(&f, weight, factor);
    graph_run(&f, 2, (int64_t[]){N, N}, x, want, N * N);
    graph_run(g, 2, (int64_t[]){N, N}, x, y, N * N);
    for (int i = 0; i < N * N; i++)
        if (!(fabsf(y[i] - want[i]) < 0.1f))
            fail_msg("element %d: %g, in float %g", i, (double)y[i], (double)want[i]);
    graph_close(&f);
}

/* An f32 input is quantized as it is; from there to the f32 output all is f16. */
static void tensorrt_has_f16_pairs(void **state)
{
    (void)state;
    graph_case g;
    pare_quant_facts facts;
    const pare_quant_options o = options_of(PARE_TARGET_TENSORRT);
    build(&g, 1, 1);
    quantize(&g, 3, &o, &facts);
    assert_types(&g, "x_QuantizeLinear", PARE_f32, PARE_s8);
    assert_types(&g, "x_DequantizeLinear", PARE_s8, PARE_f16);
    assert_types(&g, "w_DequantizeLinear", PARE_s8, PARE_f16);
    assert_types(&g, "first", PARE_f16, PARE_f16);
    assert_int_equal(named(&g, "first")->in[2]->dtype, PARE_f16);
    assert_types(&g, "mul", PARE_f16, PARE_f16);
    assert_types(&g, "s_QuantizeLinear", PARE_f16, PARE_s8);
    assert_types(&g, "second", PARE_f16, PARE_f16);
    assert_int_equal(graph_count(&g, "Cast"), 1);
    assert_int_equal(facts.quantized_nodes, 2);
    assert_int_equal(facts.fp16_nodes, 4);
    assert_near_float(&g, 1, 1);
    graph_close(&g);
}

/* The least f16 number that is not below 1 / 127, for the Q in f32 and the DQ in f16. */
static void scales_are_f16_numbers(void **state)
{
    (void)state;
    graph_case g;
    pare_quant_facts facts;
    const pare_quant_options o = options_of(PARE_TARGET_TENSORRT);
    build(&g, 1, 1);
    quantize(&g, 3, &o, &facts);
    const pare_tensor *q = named(&g, "x_QuantizeLinear")->in[1]->data,
                      *dq = named(&g, "x_DequantizeLinear")->in[1]->data;
    const float s = *(const float *)q->data,
                below = pare_f16_to_f32((uint16_t)(pare_f32_to_f16(s) - 1));
    assert_int_equal(q->dtype, PARE_f32);
    assert_int_equal(dq->dtype, PARE_f16);
    assert_true(s >= 1.0f / 127 && below < 1.0f / 127);
    assert_true(pare_f16_to_f32(*(const uint16_t *)dq->data) == s);
    graph_close(&g);
    assert_true(pare_quant_f16_scale(0.25f) == 0.25f);
    assert_true(pare_quant_f16_scale(0x1p-20f + 0x1p-30f) == 0x1p-20f + 0x1p-24f);
}

/* Pairs and what is fused with them are as without FP16; the rest is f16. */
static void onnxruntime_has_f32_pairs(void **state)
{
    (void)state;
    graph_case g;
    pare_quant_facts facts;
    const pare_quant_options o = options_of(PARE_TARGET_ONNXRUNTIME);
    build(&g, 1, 1);
    quantize(&g, 3, &o, &facts);
    assert_types(&g, "x_QuantizeLinear", PARE_f32, PARE_s8);
    assert_types(&g, "first", PARE_f32, PARE_f32);
    assert_types(&g, "relu", PARE_f32, PARE_f32);
    assert_types(&g, "tanh", PARE_f16, PARE_f16);
    assert_types(&g, "softmax", PARE_f16, PARE_f16);
    assert_types(&g, "s_QuantizeLinear", PARE_f32, PARE_s8);
    assert_types(&g, "second", PARE_f32, PARE_f32);
    assert_near_float(&g, 1, 1);
    graph_close(&g);
}

/* 40,000 is within half of f16's largest number, and the weights' scales are below f16's. */
static void what_f16_cannot_hold_stays_f32(void **state)
{
    (void)state;
    graph_case g;
    pare_quant_facts facts;
    const pare_quant_options o = options_of(PARE_TARGET_TENSORRT);
    build(&g, 1e-6f, 4e4f);
    quantize(&g, 4e4f, &o, &facts);
    assert_types(&g, "first", PARE_f32, PARE_f32);
    assert_types(&g, "w_DequantizeLinear", PARE_s8, PARE_f32);
    assert_types(&g, "mul", PARE_f32, PARE_f32);
    assert_types(&g, "second", PARE_f16, PARE_f16);
    assert_string_equal(facts.overflow_nodes, "mul, tanh");
    graph_close(&g);
}

/* By the places of nodes before pairs are put in. */
static void nodes_stay_f32_for_latency(void **state)
{
    (void)state;
    graph_case g;
    pare_quant_facts facts;
    pare_quant_options o = options_of(PARE_TARGET_TENSORRT);
    static const char *const f32[] = {NULL, NULL, "slow", NULL, NULL, NULL};
    o.f32_for_latency = f32;
    build(&g, 1, 1);
    quantize(&g, 3, &o, &facts);
    assert_types(&g, "mul", PARE_f32, PARE_f32);
    assert_types(&g, "softmax", PARE_f16, PARE_f16);
    assert_string_equal(facts.f32_latency_nodes, "mul");
    assert_int_equal(facts.fp16_nodes, 3);
    assert_near_float(&g, 1, 1);
    graph_close(&g);
}

static void memory_that_runs_out_is_said(void **state)
{
    (void)state;
    graph_case g;
    pare_quant_facts facts;
    const pare_quant_options o = options_of(PARE_TARGET_TENSORRT);
    build(&g, 1, 1);
    quantize(&g, 3, &o, &facts);
    for (long after = 0;; after += 3) {
        pare_session *session = NULL;
        pare_runner *runner;
        const pare_plan_options plan = {.threads = 1};
        const pare_input_shape shape = {"x", {2, {N, N}, {0}}};
        g.ctx.fail_after = after;
        pare_status st = pare_session_new(&g.ctx, &session, g.model, &plan);
        if (st == PARE_OK) st = pare_session_runner(session, &runner, &shape, 1);
        g.ctx.fail_after = -1;
        if (session) pare_session_free(session);
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
        assert_true(after < 10000);
    }
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensorrt_has_f16_pairs),
        cmocka_unit_test(scales_are_f16_numbers),
        cmocka_unit_test(onnxruntime_has_f32_pairs),
        cmocka_unit_test(what_f16_cannot_hold_stays_f32),
        cmocka_unit_test(nodes_stay_f32_for_latency),
        cmocka_unit_test(memory_that_runs_out_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
