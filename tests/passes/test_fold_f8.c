/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of FP8 around products fold as those of int8 do; nothing else takes their codes; types do
   not mix. */
#include "runtime/base/f8.h"
#include "runtime/passes/passes.h"
#include "tests/passes/qdq_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 5, DEPTH = 12, COLUMNS = 8 };

/* from -> Q -> DQ -> to, a scale and a zero point of that name. */
static void pair(graph_case *g, const char *from, const char *to, float scale, pare_dtype type)
{
    char name[64], in[160], q[64];
    const uint8_t zero = 0;
    snprintf(name, sizeof name, "%s_s", to);
    graph_floats(g, name, 0, NULL, &scale);
    snprintf(name, sizeof name, "%s_z", to);
    qdq_bytes(g, name, type, 0, NULL, &zero);
    snprintf(q, sizeof q, "%s_q", to);
    snprintf(in, sizeof in, "%s %s_s %s_z", from, to, to);
    graph_node(g, "QuantizeLinear", in, q);
    snprintf(in, sizeof in, "%s %s_s %s_z", q, to, to);
    graph_node(g, "DequantizeLinear", in, to);
}

/* A dequantized constant with a scale a column, whose zero points are this code. */
static void weight_around(graph_case *g, const char *name, pare_dtype type, uint8_t zero_code)
{
    char text[64], in[160];
    uint8_t code[DEPTH * COLUMNS], zero[COLUMNS];
    float scale[COLUMNS];
    unsigned seed = 7;
    memset(zero, zero_code, sizeof zero);
    for (int i = 0; i < DEPTH * COLUMNS; i++)
        code[i] = pare_type_is_f8(type) ? pare_f8_code(type, (float)qdq_noise(&seed, -200, 200))
                                        : (uint8_t)qdq_noise(&seed, -127, 127);
    for (int i = 0; i < COLUMNS; i++) scale[i] = 0.001f * (float)(i + 1);
    snprintf(text, sizeof text, "%s_w", name);
    qdq_bytes(g, text, type, 2, (int64_t[]){DEPTH, COLUMNS}, code);
    snprintf(text, sizeof text, "%s_s", name);
    graph_floats(g, text, 1, (int64_t[]){COLUMNS}, scale);
    snprintf(text, sizeof text, "%s_z", name);
    qdq_bytes(g, text, type, 1, (int64_t[]){COLUMNS}, zero);
    snprintf(in, sizeof in, "%s_w %s_s %s_z", name, name, name);
    assert_int_equal(pare_node_set_int(graph_node(g, "DequantizeLinear", in, name), "axis", 1),
                     PARE_OK);
}

static void weight(graph_case *g, const char *name, pare_dtype type)
{
    weight_around(g, name, type, 0);
}

static void begin(graph_case *g, pare_dtype type)
{
    graph_open(g, 19);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){ROWS, DEPTH});
    pair(g, "x", "xd", 0.02f, type);
}

/* The folded graph. */
static pare_model *folded(graph_case *g)
{
    pare_model *m;
    const pare_infer_options options = {.fold = true, .keep_dequantize = true};
    assert_int_equal(pare_model_clone(&g->ctx, &m, g->model), PARE_OK);
    if (pare_pass_infer(m, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
    assert_int_equal(pare_pass_fuse(m, NULL, 0), PARE_OK);
    if (pare_pass_infer(m, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
    if (pare_pass_fold_qdq(m, PARE_KEEP_ALL) != PARE_OK) fail_msg("%s", g->ctx.message);
    if (pare_pass_infer(m, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
    return m;
}

/* Nodes of this operator whose first input has the type; PARE_NOTYPE: any. */
static int count_of(const pare_model *m, const char *op, pare_dtype type)
{
    int count = 0;
    for (int n = 0; n < m->graph->node_count; n++) {
        const pare_node *node = m->graph->node[n];
        count += !strcmp(node->op_type, op) && (!type || node->in[0]->dtype == type);
    }
    return count;
}

static void product(pare_dtype type)
{
    graph_case g;
    const float bias[COLUMNS] = {1, -2, 3};
    begin(&g, type);
    weight(&g, "w", type);
    graph_floats(&g, "b", 1, (int64_t[]){COLUMNS}, bias);
    graph_node(&g, "MatMul", "xd w", "p");
    graph_node(&g, "Add", "p b", "s");
    graph_node(&g, "Relu", "s", "r");
    pair(&g, "r", "y", 0.05f, type);
    graph_output(&g, "y");
    pare_model *m = folded(&g);
    assert_int_equal(count_of(m, "FusedMatMul", type), 1);
    assert_int_equal(count_of(m, "QuantizeLinear", PARE_NOTYPE), 1);
    assert_int_equal(count_of(m, "DequantizeLinear", PARE_NOTYPE), 1);
    pare_model_free(m);
    float x[ROWS * DEPTH], want[ROWS * COLUMNS], got[ROWS * COLUMNS];
    unsigned seed = 3;
    for (int i = 0; i < ROWS * DEPTH; i++) x[i] = (float)qdq_noise(&seed, -400, 400) * 0.01f;
    qdq_run(&g, true, x, want, ROWS * COLUMNS);
    qdq_run(&g, false, x, got, ROWS * COLUMNS);
    const float step = type == PARE_f8e4m3 ? 0.125f : 0.25f;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(got[i] >= want[i] * (1 - step) - 1e-4f &&
                    got[i] <= want[i] * (1 + step) + 1e-4f);
    graph_close(&g);
}

static void products_fold(void **state)
{
    (void)state;
    product(PARE_f8e4m3);
    product(PARE_f8e5m2);
}

/* Of two types each is dequantized, and the product is of floats; so are outputs that saturate to
   Inf, and additions. */
static void others_stay_float(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, PARE_f8e4m3);
    weight(&g, "w", PARE_f8e5m2);
    weight(&g, "v", PARE_s8);
    graph_node(&g, "MatMul", "xd w", "p");
    graph_node(&g, "MatMul", "xd v", "r");
    pair(&g, "p", "pd", 0.05f, PARE_f8e4m3);
    pair(&g, "r", "rd", 0.05f, PARE_f8e4m3);
    graph_node(&g, "Add", "pd rd", "s");
    pair(&g, "s", "y", 0.1f, PARE_f8e4m3);
    graph_output(&g, "y");
    pare_model *m = folded(&g);
    assert_int_equal(count_of(m, "FusedMatMul", PARE_f8e4m3), 0);
    assert_int_equal(count_of(m, "QAdd", PARE_NOTYPE), 0);
    assert_int_equal(count_of(m, "Add", PARE_f32), 1);
    pare_model_free(m);
    graph_close(&g);
}

/* x, its pair and p, the product with w, all of E4M3. */
static void begin_product(graph_case *g)
{
    begin(g, PARE_f8e4m3);
    weight(g, "w", PARE_f8e4m3);
    graph_node(g, "MatMul", "xd w", "p");
}

/* An int8 output behind a product of FP8 is quantized by itself. */
static void outputs_of_integers_stay_apart(void **state)
{
    (void)state;
    graph_case g;
    begin_product(&g);
    pair(&g, "p", "y", 0.05f, PARE_s8);
    graph_output(&g, "y");
    pare_model *m = folded(&g);
    assert_int_equal(count_of(m, "FusedMatMul", PARE_f8e4m3), 1);
    assert_int_equal(count_of(m, "QuantizeLinear", PARE_f32), 2);
    pare_model_free(m);
    graph_close(&g);
}

/* A Q that does not saturate keeps its Inf: it is no part of a product. */
static void codes_that_do_not_saturate_stay_apart(void **state)
{
    (void)state;
    graph_case g;
    begin_product(&g);
    pair(&g, "p", "y", 0.05f, PARE_f8e4m3);
    for (int n = 0; n < g.model->graph->node_count; n++) {
        pare_node *node = g.model->graph->node[n];
        if (!strcmp(node->op_type, "QuantizeLinear") && !strcmp(node->in[0]->name, "p"))
            assert_int_equal(pare_node_set_int(node, "saturate", 0), PARE_OK);
    }
    graph_output(&g, "y");
    pare_model *m = folded(&g);
    assert_int_equal(count_of(m, "FusedMatMul", PARE_f8e4m3), 1);
    assert_int_equal(count_of(m, "QuantizeLinear", PARE_f32), 2);
    pare_model_free(m);
    graph_close(&g);
}

/* Pairs move through what moves elements, and not through a MaxPool. */
static void pairs_move(void **state)
{
    (void)state;
    graph_case g;
    begin_product(&g);
    graph_node(&g, "Transpose", "p", "t");
    pair(&g, "t", "y", 0.05f, PARE_f8e4m3);
    graph_output(&g, "y");
    pare_model *m = folded(&g);
    assert_int_equal(count_of(m, "Transpose", PARE_f8e4m3), 1);
    assert_int_equal(count_of(m, "QuantizeLinear", PARE_f32), 1);
    pare_model_free(m);
    graph_close(&g);
}

/* -0 is a zero point of 0, and codes of constants have no -0. */
static void minus_0_is_0(void **state)
{
    (void)state;
    graph_case g;
    const float c[DEPTH * COLUMNS] = {-0.0f, -448, 1}, scale = 1;
    const uint8_t zero = 0;
    begin(&g, PARE_f8e4m3);
    weight_around(&g, "w", PARE_f8e4m3, 0x80);
    graph_node(&g, "MatMul", "xd w", "p");
    graph_output(&g, "p");
    graph_floats(&g, "c", 2, (int64_t[]){DEPTH, COLUMNS}, c);
    graph_floats(&g, "cs", 0, NULL, &scale);
    qdq_bytes(&g, "cz", PARE_f8e4m3, 0, NULL, &zero);
    graph_node(&g, "QuantizeLinear", "c cs cz", "cq");
    graph_node(&g, "DequantizeLinear", "cq cs cz", "cd");
    graph_node(&g, "MatMul", "xd cd", "y");
    graph_output(&g, "y");
    pare_model *m = folded(&g);
    assert_int_equal(count_of(m, "FusedMatMul", PARE_f8e4m3), 2);
    for (int n = 0; n < m->graph->node_count; n++) {
        const pare_node *node = m->graph->node[n];
        if (strcmp(node->op_type, "FusedMatMul") || strcmp(node->out[0]->name, "y")) continue;
        const uint8_t *code = node->in[1]->data->data;
        assert_int_equal(code[0], 0);
        assert_int_equal(code[1], 0xfe);
        assert_int_equal(code[2], 0x38);
    }
    pare_model_free(m);
    graph_close(&g);
}

/* Windows of three axes stay float, which GPUs have kernels for; those of two do not. */
static void windows_of_three_axes_stay_float(void **state)
{
    (void)state;
    for (int axes = 2; axes <= 3; axes++) {
        graph_case g;
        const int64_t x[] = {1, 4, 5, 5, 5}, w[] = {8, 4, 1, 1, 1}, one = 1;
        const float scale = 0.5f;
        const uint8_t zero = 0;
        uint8_t code[32];
        for (int i = 0; i < 32; i++) code[i] = (uint8_t)(0x30 + i % 8);
        graph_open(&g, 19);
        graph_input(&g, "x", PARE_f32, 2 + axes, x);
        pair(&g, "x", "xd", 0.02f, PARE_f8e4m3);
        qdq_bytes(&g, "wq", PARE_f8e4m3, 2 + axes, w, code);
        graph_floats(&g, "ws", 1, &one, &scale);
        qdq_bytes(&g, "wz", PARE_f8e4m3, 1, &one, &zero);
        graph_node(&g, "DequantizeLinear", "wq ws wz", "w");
        graph_node(&g, "Conv", "xd w", "y");
        graph_output(&g, "y");
        pare_model *m = folded(&g);
        assert_int_equal(count_of(m, "FusedConv", PARE_f8e4m3), axes == 2);
        pare_model_free(m);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_fold),
        cmocka_unit_test(others_stay_float),
        cmocka_unit_test(outputs_of_integers_stay_apart),
        cmocka_unit_test(codes_that_do_not_saturate_stay_apart),
        cmocka_unit_test(pairs_move),
        cmocka_unit_test(minus_0_is_0),
        cmocka_unit_test(windows_of_three_axes_stay_float),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
