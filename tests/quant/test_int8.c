/* SPDX-License-Identifier: Apache-2.0 */
/* INT8 graphs with numbers worked out by hand: scales and zero points, who shares them, weights
   along their axis, biases, alpha and beta, skip inputs. Ranges are smallest and largest value
   (min-max). */
#include "calib/ranges.h"
#include "quant/internal.h"
#include "runtime/passes/passes.h"
#include "tests/quant/quant_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const pare_quant_options s8 = {
    .rule = {.method = PARE_METHOD_MINMAX}, .bias_correction = true, .equalize = true};
static const pare_quant_options u8 = {.rule = {.method = PARE_METHOD_MINMAX},
                                      .unsigned_activations = true,
                                      .target = PARE_TARGET_ONNXRUNTIME,
                                      .bias_correction = true,
                                      .equalize = true};

static const pare_quant_options fp8 = {
    .rule = {.method = PARE_METHOD_MINMAX}, .bias_correction = true, .fp8 = true};

static void quantize(graph_case *g, const span *spans, int count, const pare_quant_options *options)
{
    quantize_with(g, spans, count, options, NULL);
}

static const float *floats_of(const pare_value *v) { return v->data->data; }

static void assert_near(float got, double want)
{
    if (!(fabs((double)got - want) <= 1e-6 * fabs(want)))
        fail_msg("%.9g, not %.9g", (double)got, want);
}

/* x, moved by a Transpose, times w; and a factor of two computed tensors, a, which calibration did
   not see. */
static void moved_and_unseen(graph_case *g)
{
    const float w[] = {127, -1, 2, 254, 0, 4};
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){3, 1});
    graph_input(g, "a", PARE_f32, 2, (int64_t[]){2, 2});
    graph_floats(g, "w", 2, (int64_t[]){3, 2}, w);
    graph_node(g, "Transpose", "x", "moved");
    graph_node(g, "MatMul", "moved w", "p");
    graph_node(g, "MatMul", "p a", "y");
    graph_output(g, "y");
}

/* The one node of an operator that reads this tensor, or NULL. */
static pare_node *reader(const graph_case *g, const char *tensor, const char *op)
{
    const pare_value *v = graph_value(g, tensor);
    for (int i = 0; v && i < v->user_count; i++)
        if (!strcmp(v->user[i]->op_type, op)) return v->user[i];
    return NULL;
}

/* The pair after a tensor has this scale and zero point. */
static void assert_pair(const graph_case *g, const char *tensor, double scale, int zero)
{
    const pare_node *q = reader(g, tensor, "QuantizeLinear");
    if (!q) fail_msg("%s is not quantized", tensor);
    assert_near(floats_of(q->in[1])[0], scale);
    bool is_u8 = q->in[2]->dtype == PARE_u8;
    const void *z = q->in[2]->data->data;
    assert_int_equal(is_u8 ? *(const uint8_t *)z : *(const int8_t *)z, zero);
}

/* --- activations --- */

static void one_product(graph_case *g)
{
    const float w[] = {127, -1, 2, 254, 0, 4};
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){1, 3});
    graph_floats(g, "w", 2, (int64_t[]){3, 2}, w);
    graph_node(g, "MatMul", "x w", "y");
    graph_output(g, "y");
}

/* [-1.27, 0.635]: the larger end over 127; or the whole over 255, and 0 at 1.27 / 1.905 of 255. */
static void scales_and_zero_points(void **state)
{
    (void)state;
    graph_case g;
    const span x[] = {{"x", -1.27f, 0.635f}};
    one_product(&g);
    quantize(&g, x, 1, &s8);
    assert_pair(&g, "x", 0.01, 0);
    graph_close(&g);
    one_product(&g);
    quantize(&g, x, 1, &u8);
    assert_pair(&g, "x", 1.905 / 255, 170);
    graph_close(&g);
}

/* Of FP8 the larger end is 448, of activations and of each output's weights: 448 codes are 0x7e. */
static void fp8_has_scales_of_448(void **state)
{
    (void)state;
    graph_case g;
    one_product(&g);
    quantize(&g, (span[]){{"x", -4.48f, 0.635f}}, 1, &fp8);
    assert_pair(&g, "x", 0.01, 0);
    assert_int_equal(reader(&g, "x", "QuantizeLinear")->in[2]->dtype, PARE_f8e4m3);
    const pare_node *product = graph_value(&g, "y")->producer, *dq = product->in[1]->producer;
    assert_string_equal(dq->op_type, "DequantizeLinear");
    assert_int_equal(dq->in[0]->dtype, PARE_f8e4m3);
    assert_near(floats_of(dq->in[1])[0], 127.0 / 448); /* of 127, 2, 0 and of -1, 254, 4 */
    assert_near(floats_of(dq->in[1])[1], 254.0 / 448);
    const uint8_t *code = dq->in[0]->data->data;
    assert_int_equal(code[0], 0x7e);
    assert_int_equal(code[3], 0x7e);
    assert_int_equal(code[4], 0); /* no -0 */
    graph_close(&g);
}

/* A range on one side of 0 is widened to it. */
static void zero_is_always_inside(void **state)
{
    (void)state;
    graph_case g;
    one_product(&g);
    quantize(&g, (span[]){{"x", 1, 2.55f}}, 1, &u8);
    assert_pair(&g, "x", 0.01, 0);
    graph_close(&g);
    one_product(&g);
    quantize(&g, (span[]){{"x", -2.55f, -1}}, 1, &u8);
    assert_pair(&g, "x", 0.01, 255);
    graph_close(&g);
}

/* Sigmoid's range is [0, 1] whatever was seen, Tanh's [-1, 1]. */
/* A moved tensor has its source's range; the reader of a tensor that nothing is known of stays
   float, and a note says so. */
static void unseen_tensors_stay_float(void **state)
{
    const span spans[] = {{"x", -1.27f, 0.635f}, {"p", -1, 1}};
    const pare_quant_options *const schemes[] = {&s8, &u8};
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case g;
        pare_quant_facts facts = {0};
        moved_and_unseen(&g);
        quantize_with(&g, spans, 2, schemes[i], &facts);
        assert_pair(&g, "moved", i ? 1.905 / 255 : 0.01, i ? 170 : 0);
        assert_null(reader(&g, "a", "QuantizeLinear"));
        assert_int_equal(facts.quantized_nodes, 1);
        assert_int_equal(facts.float_nodes, 1);
        assert_int_equal(facts.note_count, 1);
        assert_non_null(strstr(facts.note[0], "calibration saw nothing of its input"));
        graph_close(&g);
    }
}

static void some_ranges_are_fixed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case g;
        const float w[] = {1, 2, 3, 4};
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
        graph_floats(&g, "w", 2, (int64_t[]){2, 2}, w);
        graph_node(&g, "Sigmoid", "x", "s");
        graph_node(&g, "Tanh", "x", "t");
        graph_node(&g, "MatMul", "s w", "a");
        graph_node(&g, "MatMul", "t w", "b");
        graph_output(&g, "a");
        graph_output(&g, "b");
        quantize(&g, NULL, 0, i ? &u8 : &s8);
        assert_pair(&g, "s", 1.0 / (i ? 255 : 127), 0);
        assert_pair(&g, "t", i ? 2.0 / 255 : 1.0 / 127,
                    i ? 127 : 0); /* 1 / (2 / 255) is just below 127.5 */
        graph_close(&g);
    }
}

/* x, moved, times w; its Tanh times itself moved: OpenVINO quantizes before the move and never
   again, leaves the Tanh's input float, and gives the factors of activations the zero point 128,
   where ONNX Runtime has 170 of [-1.27, 0.635]. */
static void openvino_places_fewer_pairs(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case g;
        const float w[] = {1, 2, 3, 4};
        pare_quant_options o = u8;
        o.target = i ? PARE_TARGET_OPENVINO : PARE_TARGET_ONNXRUNTIME;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 2});
        graph_input(&g, "z", PARE_f32, 2, (int64_t[]){2, 2});
        graph_floats(&g, "w", 2, (int64_t[]){2, 2}, w);
        graph_node(&g, "Transpose", "x", "moved");
        graph_node(&g, "MatMul", "moved w", "p");
        graph_node(&g, "Tanh", "p", "t");
        graph_node(&g, "MatMul", "t z", "y");
        graph_output(&g, "y");
        quantize(&g, (span[]){{"x", -1.27f, 0.635f}, {"p", -1, 1}, {"z", -1.27f, 0.635f}}, 3, &o);
        assert_pair(&g, "x", 1.905 / 255, 170);
        assert_int_equal(reader(&g, "moved", "QuantizeLinear") == NULL, i);
        assert_int_equal(reader(&g, "p", "QuantizeLinear") == NULL, i);
        assert_pair(&g, "z", i ? 0.01 : 1.905 / 255, i ? 128 : 170);
        graph_close(&g);
    }
}

/* What is joined shares the scale of all its ends: [-2, 3.1] is 0.02 with 0 at 100. */
static void a_join_shares_one_scale(void **state)
{
    (void)state;
    graph_case g;
    const float w[] = {1, 2, 3, 4};
    graph_open(&g, 17);
    graph_input(&g, "a", PARE_f32, 2, (int64_t[]){1, 1});
    graph_input(&g, "b", PARE_f32, 2, (int64_t[]){1, 1});
    graph_floats(&g, "w", 2, (int64_t[]){2, 2}, w);
    pare_node *join = graph_node(&g, "Concat", "a b", "c");
    assert_int_equal(pare_node_set_int(join, "axis", 1), PARE_OK);
    graph_node(&g, "MatMul", "c w", "y");
    graph_output(&g, "y");
    quantize(&g, (span[]){{"a", 0, 3.1f}, {"b", -2, 1}, {"c", -1.5f, 3}}, 3, &u8);
    for (int i = 0; i < 3; i++) assert_pair(&g, (const char *[]){"a", "b", "c"}[i], 0.02, 100);
    graph_close(&g);
}

/* A tensor that only moves keeps its source's scale, though fewer of its values were seen. */
static void a_view_shares_its_source_s_scale(void **state)
{
    (void)state;
    graph_case g;
    const float w[] = {1, 2, 3, 4};
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 2});
    graph_floats(&g, "w", 2, (int64_t[]){2, 2}, w);
    graph_node(&g, "Transpose", "x", "t");
    graph_node(&g, "MatMul", "x w", "a");
    graph_node(&g, "MatMul", "t w", "b");
    graph_output(&g, "a");
    graph_output(&g, "b");
    quantize(&g, (span[]){{"t", -0.5f, 0.5f}, {"x", -1, 1.55f}}, 2, &u8);
    assert_pair(&g, "x", 0.01, 100);
    assert_pair(&g, "t", 0.01, 100);
    graph_close(&g);
}

/* Only the skip input of a residual addition is quantized, wherever it is. */
static void the_skip_input_is_quantized(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        graph_case g;
        const float w[] = {1, 2, 3, 4};
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 2});
        graph_floats(&g, "w", 2, (int64_t[]){2, 2}, w);
        graph_node(&g, "MatMul", "x w", "main");
        pare_node *sum = graph_node(&g, "Add", first ? "x main" : "main x", "s");
        graph_node(&g, "MatMul", "s w", "y");
        graph_output(&g, "y");
        quantize(&g, (span[]){{"s", -1, 1}, {"x", -1, 1}}, 2, &s8);
        assert_string_equal(sum->in[first]->name, "main");
        assert_true(pare_node_is(sum->in[!first]->producer, "DequantizeLinear"));
        assert_null(reader(&g, "main", "QuantizeLinear"));
        graph_close(&g);
    }
}

/* --- weights --- */

/* Columns of [3, 2] are channels: their largest are 127 and 4, or 254 for all. As left factor one
   scale serves all. */
static void weights_have_a_scale_per_channel(void **state)
{
    (void)state;
    const float w[] = {127, -1, 2, 4, 0, 4}; /* on the grids: 1, and 4 / 127 is the second's */
    for (int kind = 0; kind < 3; kind++) {   /* per channel, per tensor, left factor */
        graph_case g;
        pare_quant_options options = s8;
        options.per_tensor_weights = kind == 1;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, kind == 2 ? (int64_t[]){2, 1} : (int64_t[]){1, 3});
        graph_floats(&g, "w", 2, (int64_t[]){3, 2}, w);
        graph_node(&g, "MatMul", kind == 2 ? "w x" : "x w", "y");
        graph_output(&g, "y");
        quantize(&g, (span[]){{"x", -1, 1}}, 1, &options);
        const pare_node *y = graph_value(&g, "y")->producer, *dq = y->in[kind != 2]->producer;
        assert_true(pare_node_is(dq, "DequantizeLinear"));
        assert_int_equal(dq->in[0]->dtype, PARE_s8);
        assert_int_equal(dq->in[1]->data->count, kind ? 1 : 2);
        assert_int_equal(dq->in[1]->data->rank, kind ? 0 : 1);
        assert_int_equal(pare_node_int(dq, "axis", -9), kind ? -9 : 1);
        const int8_t *q = dq->in[0]->data->data;
        assert_near(floats_of(dq->in[1])[0], 1);
        assert_true(q[0] == 127 && q[2] == 2 && q[4] == 0);
        if (kind) assert_true(q[1] == -1 && q[3] == 4 && q[5] == 4);
        graph_close(&g);
    }
}

/* Gemm of alpha 2, beta 0.5: the weight's scales are 2 * 1.27 / 127 = 0.02 and 2 * 0.635 / 127 =
   0.01, the bias is rint(0.5 b / (0.01 s_w)) steps: 750.175 and -3850.4 become 750 and -3850. */
static void alpha_and_beta_are_folded(void **state)
{
    (void)state;
    const float w[] = {1.27f, 0, -0.01f, 0.635f, 0.005f, -0.635f}, b[] = {0.30007f, -0.77008f};
    for (int s32 = 0; s32 < 2; s32++) {
        graph_case g;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 3});
        graph_floats(&g, "w", 2, (int64_t[]){2, 3}, w);
        graph_floats(&g, "b", 1, (int64_t[]){2}, b);
        pare_node *n = graph_node(&g, "Gemm", "x w b", "y");
        assert_int_equal(pare_node_set_int(n, "transB", 1), PARE_OK);
        assert_int_equal(pare_node_set_float(n, "alpha", 2), PARE_OK);
        assert_int_equal(pare_node_set_float(n, "beta", 0.5f), PARE_OK);
        graph_output(&g, "y");
        pare_quant_options options = s8;
        if (s32) options.target = PARE_TARGET_ONNXRUNTIME;
        quantize(&g, (span[]){{"x", -1.27f, 1.27f}}, 1, &options);
        assert_true(pare_node_float(n, "alpha", 1) == 1 && pare_node_float(n, "beta", 1) == 1);
        const pare_node *dq = n->in[1]->producer;
        assert_int_equal(pare_node_int(dq, "axis", -9), 0);
        assert_near(floats_of(dq->in[1])[0], 0.02);
        assert_near(floats_of(dq->in[1])[1], 0.01);
        const int8_t want[] = {127, 0, -1, 127, 1, -127};
        assert_memory_equal(dq->in[0]->data->data, want, 6);
        if (s32) {
            dq = n->in[2]->producer;
            const int32_t *q = dq->in[0]->data->data;
            assert_true(q[0] == 750 && q[1] == -3850);
            assert_near(floats_of(dq->in[1])[0], 0.0002);
            assert_near(floats_of(dq->in[1])[1], 0.0001);
            assert_int_equal(pare_node_int(dq, "axis", -9), 0);
        } else {
            assert_near(floats_of(n->in[2])[0], 750 * 0.0002);
            assert_near(floats_of(n->in[2])[1], -3850 * 0.0001);
        }
        graph_close(&g);
    }
}

/* A bias of 1e6 on steps of 1e-8 would be 1e14: the weight's scale grows until it is 2^30. */
static void a_large_bias_raises_its_weight_s_scale(void **state)
{
    (void)state;
    graph_case g;
    const float w[] = {1.27e-4f, 1.27f, 1.27e-4f, 1.27f}, b[] = {1e6f, 1};
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
    graph_floats(&g, "w", 2, (int64_t[]){2, 2}, w);
    graph_floats(&g, "b", 1, (int64_t[]){2}, b);
    pare_node *n = graph_node(&g, "Gemm", "x w b", "y");
    graph_output(&g, "y");
    quantize(&g, (span[]){{"x", -0.0127f, 0.0127f}}, 1, &s8);
    const pare_node *dq = n->in[1]->producer;
    assert_near(floats_of(dq->in[1])[0], 1e6 / (1e-4 * 0x1p30));
    assert_near(floats_of(dq->in[1])[1], 0.01);
    graph_close(&g);
}

/* The file's own f32 weights must be numbers. */
static void what_is_no_number_is_refused(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++)
        for (int bias = 0; bias < 2; bias++) {
            graph_case g;
            float w[] = {1, 2, 3, 4}, b[] = {1, 2};
            *(bias ? &b[1] : &w[3]) = bias ? INFINITY : NAN;
            pare_quant_options options = {.precision =
                                              form ? PARE_PRECISION_BF16 : PARE_PRECISION_FP16,
                                          .bf16_compute = form == 2};
            graph_open(&g, 22);
            graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
            graph_floats(&g, "w", 2, (int64_t[]){2, 2}, w);
            graph_floats(&g, "b", 1, (int64_t[]){2}, b);
            graph_node(&g, "Gemm", "x w b", "y");
            graph_output(&g, "y");
            assert_int_equal(pare_quant_prepare(&g.ctx, g.model, &options, NULL), PARE_OK);
            assert_int_equal(pare_quantize(&g.ctx, g.model, NULL, &options, NULL), PARE_INPUT);
            assert_non_null(strstr(g.ctx.message, bias ? "tensor 'b' holds inf at place 1"
                                                       : "tensor 'w' holds nan at place 3"));
            graph_close(&g);
        }
}

/* The prepared model has a matrix product in its place, with a weight. */
static void einsum_is_a_weighted_node(void **state)
{
    (void)state;
    graph_case g;
    const pare_quant_options options = {0};
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 3, (int64_t[]){-1, 5, 2});
    graph_floats(&g, "w", 3, (int64_t[]){2, 1, 3}, (float[]){1, 2, 3, 4, 5, 6});
    pare_node *node = graph_node(&g, "Einsum", "x w", "y");
    assert_int_equal(pare_node_set_string(node, "equation", "bsd,dhk->bshk"), PARE_OK);
    graph_output(&g, "y");
    assert_int_equal(pare_quant_prepare(&g.ctx, g.model, &options, NULL), PARE_OK);
    assert_int_equal(g.model->graph->node_count, 2);
    const pare_weighted_fn weighted = pare_quant_role_of(g.model->graph->node[0])->weighted;
    pare_weighted parts;
    assert_non_null(weighted);
    assert_int_equal(weighted(g.model->graph->node[0], &parts), PARE_OK);
    assert_true(parts.constant);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_and_zero_points),
        cmocka_unit_test(fp8_has_scales_of_448),
        cmocka_unit_test(zero_is_always_inside),
        cmocka_unit_test(unseen_tensors_stay_float),
        cmocka_unit_test(some_ranges_are_fixed),
        cmocka_unit_test(a_join_shares_one_scale),
        cmocka_unit_test(a_view_shares_its_source_s_scale),
        cmocka_unit_test(the_skip_input_is_quantized),
        cmocka_unit_test(weights_have_a_scale_per_channel),
        cmocka_unit_test(alpha_and_beta_are_folded),
        cmocka_unit_test(a_large_bias_raises_its_weight_s_scale),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(openvino_places_fewer_pairs),
        cmocka_unit_test(einsum_is_a_weighted_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
