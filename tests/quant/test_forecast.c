/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings that quantization gives of what it can see in the numbers, and what is too small for
   f16: one fault planted at a time, and none in a plain product. */
#include "runtime/passes/passes.h"
#include "tests/quant/quant_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const pare_quant_options s8 = {.rule = {.method = PARE_METHOD_MINMAX}};
static const pare_quant_options f16 = {.precision = PARE_PRECISION_FP16};

/* x (1, 2) times w (2, 2) and a bias; w's columns are the outputs. */
static void product(graph_case *g, const float *w, const float *bias)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){1, 2});
    graph_floats(g, "w", 2, (int64_t[]){2, 2}, w);
    graph_floats(g, "b", 1, (int64_t[]){2}, bias);
    pare_node *gemm = graph_node(g, "Gemm", "x w b", "y");
    gemm->name = "gemm";
    graph_output(g, "y");
}

/* The only warning: its fault, its node and tensor, and these words. */
static void assert_warning(const pare_quant_facts *facts, const char *begin, const char *words)
{
    if (facts->warning_count != 1) fail_msg("%d warnings", facts->warning_count);
    if (strncmp(facts->warning[0], begin, strlen(begin)) != 0 || !strstr(facts->warning[0], words))
        fail_msg("%s", facts->warning[0]);
}

static void a_plain_product_gives_none(void **state)
{
    (void)state;
    const float w[] = {1, 2, 3, 4}, bias[] = {0.5f, 1e-9f};
    const pare_quant_options *const options[] = {&s8, &f16};
    for (int i = 0; i < 2; i++) {
        graph_case g;
        pare_quant_facts facts = {0};
        product(&g, w, bias);
        quantize_with(&g, (span[]){{"x", -1, 1}, {"y", -2, 2}}, 2, options[i], &facts);
        assert_int_equal(facts.warning_count, 0);
        assert_int_equal(facts.underflow_count, 0);
        graph_close(&g);
    }
}

/* Output 1's weights are below half a step of output 0's. */
static void one_scale_kills_an_output(void **state)
{
    (void)state;
    const float w[] = {127, 0.4f, -127, 0.1f}, bias[] = {0, 0};
    pare_quant_options o = s8;
    graph_case g;
    pare_quant_facts facts = {0};
    product(&g, w, bias);
    quantize_with(&g, (span[]){{"x", -1, 1}}, 1, &o, &facts);
    assert_int_equal(facts.warning_count, 0);
    graph_close(&g);
    o.per_tensor_weights = true;
    facts = (pare_quant_facts){0};
    product(&g, w, bias);
    quantize_with(&g, (span[]){{"x", -1, 1}}, 1, &o, &facts);
    assert_warning(&facts, "dead-channel: node 'gemm', tensor 'w': all weights of output 1",
                   "--weights channel");
    graph_close(&g);
}

/* Steps of 1 / 127 times 1 / 127 hold 2^30 of them up to 66,571; the bias has 40 times that. */
static void a_bias_beyond_int32(void **state)
{
    (void)state;
    const float w[] = {1, 1, 1, -1}, bias[] = {0, 40 * 66571.0f};
    graph_case g;
    pare_quant_facts facts = {0};
    product(&g, w, bias);
    quantize_with(&g, (span[]){{"x", -1, 1}}, 1, &s8, &facts);
    assert_warning(&facts, "bias-overflow: node 'gemm', tensor 'w': ", "output 1");
    assert_non_null(strstr(facts.warning[0], "40 times"));
    graph_close(&g);
}

static void a_tensor_of_one_number(void **state)
{
    (void)state;
    const float w[] = {1, 2, 3, 4}, bias[] = {0, 0};
    graph_case g;
    pare_quant_facts facts = {0};
    product(&g, w, bias);
    quantize_with(&g, (span[]){{"x", 0.25f, 0.25f}}, 1, &s8, &facts);
    assert_warning(&facts, "constant-tensor: input 'x': calibration saw 0.25",
                   "data that vary");
    graph_close(&g);
}

/* The same square matrix, once transposed: other outputs, other scales; and read by a Gather. */
static void a_weight_with_two_uses(void **state)
{
    (void)state;
    const float w[] = {1, 2, 3, 4}, bias[] = {0, 0};
    for (int i = 0; i < 2; i++) {
        graph_case g;
        pare_quant_facts facts = {0};
        product(&g, w, bias);
        graph_input(&g, "row", PARE_s64, 1, (int64_t[]){1});
        pare_node *other =
            i ? graph_node(&g, "Gather", "w row", "z") : graph_node(&g, "Gemm", "x w", "z");
        other->name = "other";
        if (!i) assert_int_equal(pare_node_set_int(other, "transB", 1), PARE_OK);
        graph_output(&g, "z");
        quantize_with(&g, (span[]){{"x", -1, 1}}, 1, &s8, &facts);
        assert_warning(&facts,
                       i ? "shared-weight: node 'gemm', tensor 'w': node 'other'"
                         : "shared-weight: node 'other', tensor 'w': node 'gemm'",
                       i ? "in float" : "once more");
        graph_close(&g);
    }
}

/* --- f16 --- */

/* Below 2^-14 = 6.1e-5 throughout; 2^-14 itself is a normal number. */
static void small_tensors_stay_f32(void **state)
{
    (void)state;
    const float w[] = {1, 2, 3, 4}, bias[] = {0, 0};
    const struct {
        float high;
        int nodes;
    } cases[] = {{0x1p-14f, 0}, {0x1.fp-15f, 1}, {0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_case g;
        pare_quant_facts facts = {0};
        product(&g, w, bias);
        graph_node(&g, "Relu", "y", "z")->name = "relu";
        graph_node(&g, "Abs", "z", "u")->name = "abs";
        graph_node(&g, "Neg", "x", "v");
        graph_output(&g, "u");
        graph_output(&g, "v");
        const span spans[] = {
            {"x", -1, 1}, {"y", -3, 0.1f}, {"z", 0, 0.1f}, {"u", 0, cases[i].high}};
        quantize_with(&g, spans, 4, &f16, &facts);
        assert_int_equal(facts.underflow_count, cases[i].nodes);
        if (cases[i].nodes) assert_string_equal(facts.underflow_nodes, "abs");
        assert_int_equal(graph_value(&g, "v")->dtype, PARE_f32); /* an output */
        assert_int_equal(facts.warning_count, 0);
        graph_close(&g);
    }
}

/* 1e-7 is 1.7 steps of f16, 1e-5 is 168 of them. Data say that the node stays f32; without, a
   warning says what happens. */
static void constants_that_f16_loses(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const float w[] = {1, 2, 3, 4}, bias[] = {0, 0}, epsilon = i == 2 ? 1e-5f : 1e-7f;
        graph_case g;
        pare_quant_facts facts = {0};
        product(&g, w, bias);
        graph_floats(&g, "epsilon", 0, NULL, &epsilon);
        graph_node(&g, "Add", "y epsilon", "z")->name = "sum";
        graph_output(&g, "z");
        assert_int_equal(pare_pass_infer(g.model, &(pare_infer_options){.fold = true}), PARE_OK);
        if (i)
            quantize_with(&g, (span[]){{"x", -1, 1}}, 1, &f16, &facts);
        else if (pare_quantize(&g.ctx, g.model, NULL, &f16, &facts) != PARE_OK)
            fail_msg("%s", g.ctx.message);
        assert_int_equal(facts.underflow_count, i == 1);
        assert_int_equal(facts.warning_count, i == 0);
        if (i == 0)
            assert_warning(&facts, "f16-underflow: node 'sum', tensor 'epsilon': ", "--data");
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_product_gives_none), cmocka_unit_test(one_scale_kills_an_output),
        cmocka_unit_test(a_bias_beyond_int32),        cmocka_unit_test(a_tensor_of_one_number),
        cmocka_unit_test(a_weight_with_two_uses),     cmocka_unit_test(small_tensors_stay_f32),
        cmocka_unit_test(constants_that_f16_loses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
