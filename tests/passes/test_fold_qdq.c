/* SPDX-License-Identifier: Apache-2.0 */
/* Q/DQ folding: the folded graph has no float product between int8 tensors, and its plan computes
   what the plain kernels compute with the unfolded graph, within one step of the output. */
#include "runtime/passes/passes.h"
#include "tests/passes/qdq_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { C = QDQ_CHANNELS, H = QDQ_SIDE, M = 8, X = QDQ_INPUT };

static bool as_f16;

static int begin_f16(void **state)
{
    (void)state;
    as_f16 = true;
    return 0;
}

static int end_f16(void **state)
{
    (void)state;
    as_f16 = false;
    return 0;
}

/* A scale and a zero point, "name_s" and "name_z". */
static void param(graph_case *g, const char *name, float scale, pare_dtype type, int zero)
{
    char text[64];
    uint8_t z = (uint8_t)zero;
    snprintf(text, sizeof text, "%s_s", name);
    graph_floats(g, text, 0, NULL, &scale);
    snprintf(text, sizeof text, "%s_z", name);
    qdq_bytes(g, text, type, 0, NULL, &z);
}

/* from -> Q -> DQ -> to with new parameters of that name. */
static void pair(graph_case *g, const char *from, const char *to, float scale, pare_dtype type,
                 int zero)
{
    char in[160], q[64];
    param(g, to, scale, type, zero);
    snprintf(q, sizeof q, "%s_q", to);
    snprintf(in, sizeof in, "%s %s_s %s_z", from, to, to);
    graph_node(g, "QuantizeLinear", in, q);
    snprintf(in, sizeof in, "%s %s_s %s_z", q, to, to);
    graph_node(g, "DequantizeLinear", in, to);
}

/* A dequantized constant weight: s8 per channel on axis 0, or u8 with zero point 128 as a whole. */
static void weight(graph_case *g, const char *name, pare_dtype type, int rank, const int64_t *dims,
                   int axis)
{
    char text[64], in[160];
    unsigned seed = 7;
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    uint8_t *w = malloc((size_t)count);
    assert_non_null(w);
    for (int64_t i = 0; i < count; i++)
        w[i] = (uint8_t)(qdq_noise(&seed, -127, 127) + (type == PARE_u8 ? 128 : 0));
    snprintf(text, sizeof text, "%s_w", name);
    qdq_bytes(g, text, type, rank, dims, w);
    free(w);
    snprintf(in, sizeof in, "%s_w %s_s %s_z", name, name, name);
    if (type == PARE_u8) {
        param(g, name, 0.01f, PARE_u8, 128);
        graph_node(g, "DequantizeLinear", in, name);
        return;
    }
    float scale[64];
    int8_t zero[64] = {0};
    for (int64_t i = 0; i < dims[axis]; i++) scale[i] = 0.005f + 0.001f * (float)i;
    snprintf(text, sizeof text, "%s_s", name);
    graph_floats(g, text, 1, &dims[axis], scale);
    snprintf(text, sizeof text, "%s_z", name);
    qdq_bytes(g, text, PARE_s8, 1, &dims[axis], zero);
    pare_node *dq = graph_node(g, "DequantizeLinear", in, name);
    assert_int_equal(pare_node_set_int(dq, "axis", axis), PARE_OK);
}

static void biases(graph_case *g, const char *name)
{
    float b[M];
    for (int i = 0; i < M; i++) b[i] = 0.3f * (float)i - 1;
    graph_floats(g, name, 1, (int64_t[]){M}, b);
}

static void conv(graph_case *g, const char *in, const char *out)
{
    pare_node *n = graph_node(g, "Conv", in, out);
    assert_int_equal(pare_node_set_ints(n, "pads", (int64_t[]){1, 1, 1, 1}, 4), PARE_OK);
    assert_int_equal(pare_node_set_ints(n, "kernel_shape", (int64_t[]){3, 3}, 2), PARE_OK);
}

static void begin(graph_case *g, pare_dtype type)
{
    graph_open(g, 13);
    graph_input(g, "x", PARE_f32, 4, (int64_t[]){1, C, H, H});
    pair(g, "x", "xd", 0.02f, type, type == PARE_u8 ? 120 : 0);
}

/* Nodes of domain pare; nodes of ONNX's that multiply matrices. */
static int folded(graph_case *g, const char *op)
{
    pare_model *m;
    pare_infer_options options = {.fold = true, .keep_dequantize = true};
    assert_int_equal(pare_model_clone(&g->ctx, &m, g->model), PARE_OK);
    if (pare_pass_infer(m, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
    assert_int_equal(pare_pass_fuse(m, NULL, 0), PARE_OK);
    if (pare_pass_infer(m, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
    if (pare_pass_fold_qdq(m, PARE_KEEP_ALL) != PARE_OK) fail_msg("%s", g->ctx.message);
    if (pare_pass_infer(m, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
    int count = 0;
    for (int n = 0; n < m->graph->node_count; n++) {
        const pare_node *node = m->graph->node[n];
        count += !strcmp(node->op_type, op);
        bool product = strstr(node->op_type, "Conv") || strstr(node->op_type, "MatMul") ||
                       !strcmp(node->op_type, "Gemm");
        if (product && node->in[0]->dtype != PARE_s8 && node->in[0]->dtype != PARE_u8)
            fail_msg("%s '%s' is float", node->op_type, node->name);
    }
    pare_model_free(m);
    return count;
}

/* The output, y; as_f16: what is float inside is f16. */
static void finish(graph_case *g)
{
    if (as_f16) qdq_shorten(g, "y", "y32");
    graph_output(g, as_f16 ? "y32" : "y");
}

/* The plain kernels round to f16 between two pairs, too: ties fall to the other side, and where an
   int8 tensor is made of others, one step there may be two here. */
static void same(graph_case *g, float step, int64_t count)
{
    if (as_f16)
        qdq_near(g, step, count, 2.3f, 0.3);
    else
        qdq_same(g, step, count);
}

static void conv_relu(pare_dtype act, pare_dtype w)
{
    graph_case g;
    begin(&g, act);
    weight(&g, "w", w, 4, (int64_t[]){M, C, 3, 3}, 0);
    biases(&g, "b");
    conv(&g, "xd w b", "c");
    graph_node(&g, "Relu", "c", "r");
    pair(&g, "r", "y", 0.05f, act, 0);
    finish(&g);
    assert_int_equal(folded(&g, "FusedConv"), 1);
    assert_int_equal(folded(&g, "Relu"), 0);
    same(&g, 0.05f, M * H * H);
}

static void conv_of_every_type(void **state)
{
    (void)state;
    conv_relu(PARE_s8, PARE_s8);
    conv_relu(PARE_u8, PARE_s8);
    conv_relu(PARE_s8, PARE_u8);
    conv_relu(PARE_u8, PARE_u8);
}

/* u8 weights around 100: w - z needs nine bits. With groups, the input is doubled group by group.
 */
static void weights_with_zero_points(void **state)
{
    (void)state;
    for (int64_t group = 1; group <= C; group *= 2) {
        graph_case g;
        begin(&g, PARE_u8);
        unsigned seed = 5;
        uint8_t w[M * C * 9];
        int64_t dims[] = {M, C / group, 3, 3};
        for (int i = 0; i < M * C * 9; i++) w[i] = (uint8_t)qdq_noise(&seed, 0, 255);
        qdq_bytes(&g, "w_w", PARE_u8, 4, dims, w);
        param(&g, "w", 0.01f, PARE_u8, 100);
        graph_node(&g, "DequantizeLinear", "w_w w_s w_z", "w");
        conv(&g, "xd w", "c");
        pare_node *n = g.model->graph->node[g.model->graph->node_count - 1];
        assert_int_equal(pare_node_set_int(n, "group", group), PARE_OK);
        pair(&g, "c", "y", 0.2f, PARE_u8, 128);
        finish(&g);
        assert_int_equal(folded(&g, "FusedConv"), 1);
        same(&g, 0.2f, M * H * H);
    }
}

/* The operator form: integer input, parameters as inputs, s32 bias. */
static void operator_form_is_folded(void **state)
{
    (void)state;
    graph_case g;
    int32_t b[M] = {300, -200, 100, 0, 5, 6, 7, -800};
    begin(&g, PARE_u8);
    weight(&g, "w", PARE_s8, 4, (int64_t[]){M, C, 3, 3}, 0);
    qdq_bytes(&g, "b", PARE_s32, 1, (int64_t[]){M}, b);
    param(&g, "y", 0.1f, PARE_u8, 128);
    conv(&g, "xd_q xd_s xd_z w_w w_s w_z y_s y_z b", "y_q");
    g.model->graph->node[g.model->graph->node_count - 1]->op_type = "QLinearConv";
    graph_node(&g, "DequantizeLinear", "y_q y_s y_z", "y");
    finish(&g);
    assert_int_equal(folded(&g, "FusedConv"), 1);
    assert_int_equal(folded(&g, "QLinearConv"), 0);
    same(&g, 0.1f, M * H * H);
}

/* TensorRT's placement: the skip is dequantized, the product goes straight into the addition. */
static void residual_is_fused(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, PARE_s8);
    weight(&g, "w", PARE_s8, 4, (int64_t[]){C, C, 3, 3}, 0);
    conv(&g, "xd w", "c");
    graph_node(&g, "Add", "c xd", "a");
    graph_node(&g, "Relu", "a", "r");
    pair(&g, "r", "y", 0.04f, PARE_s8, 0);
    finish(&g);
    assert_int_equal(folded(&g, "FusedConv"), 1);
    assert_int_equal(folded(&g, "Add"), 0);
    same(&g, 0.04f, C * H * H);
}

/* ONNX Runtime's: pairs after both, the addition works on int8. */
static void addition_of_int8(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, PARE_u8);
    weight(&g, "w", PARE_s8, 4, (int64_t[]){C, C, 3, 3}, 0);
    conv(&g, "xd w", "c");
    pair(&g, "c", "cd", 0.05f, PARE_u8, 128);
    graph_node(&g, "Add", "cd xd", "a");
    graph_node(&g, "Relu", "a", "r");
    pair(&g, "r", "y", 0.04f, PARE_u8, 0);
    finish(&g);
    assert_int_equal(folded(&g, "QAdd"), 1);
    assert_int_equal(folded(&g, "Relu"), 0);
    same(&g, 0.04f, C * H * H);
}

/* A weight that is quantized in the graph, as training with fake quantization leaves it; the Q of
   the pooled and flattened tensor moves up to the convolution; the last product has no Q. */
static void pairs_move_and_constants_fold(void **state)
{
    (void)state;
    graph_case g;
    float w[M * 36], b[M];
    begin(&g, PARE_s8);
    weight(&g, "w", PARE_s8, 4, (int64_t[]){C, C, 3, 3}, 0);
    conv(&g, "xd w", "c");
    pare_node *pool = graph_node(&g, "MaxPool", "c", "p");
    assert_int_equal(pare_node_set_ints(pool, "kernel_shape", (int64_t[]){2, 2}, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(pool, "strides", (int64_t[]){2, 2}, 2), PARE_OK);
    graph_node(&g, "Flatten", "p", "f");
    pair(&g, "f", "fd", 0.05f, PARE_s8, 0);
    for (int i = 0; i < M * 36; i++) w[i] = sinf((float)i);
    for (int i = 0; i < M; i++) b[i] = (float)i;
    graph_floats(&g, "v", 2, (int64_t[]){36, M}, w);
    graph_floats(&g, "vb", 1, (int64_t[]){M}, b);
    pair(&g, "v", "vd", 1.0f / 127, PARE_s8, 0);
    graph_node(&g, "MatMul", "fd vd", "m");
    graph_node(&g, "Add", "m vb", "y");
    finish(&g);
    assert_int_equal(folded(&g, "FusedConv"), 1);
    assert_int_equal(folded(&g, "FusedMatMul"), 1);
    assert_int_equal(folded(&g, "QuantizeLinear"), 1); /* of the input */
    assert_int_equal(folded(&g, "DequantizeLinear"), 0);
    same(&g, as_f16 ? 0.2f : 0.05f, M); /* y is not quantized */
}

/* x * Sigmoid(x) with a pair between becomes one table. */
static void functions_become_tables(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, PARE_s8);
    graph_node(&g, "Sigmoid", "xd", "s");
    pair(&g, "s", "sd", 1.0f / 127, PARE_s8, 0);
    graph_node(&g, "Mul", "xd sd", "m");
    pair(&g, "m", "y", 0.02f, PARE_s8, 0);
    finish(&g);
    assert_int_equal(folded(&g, "Table"), 1);
    assert_int_equal(folded(&g, "Mul"), 0);
    same(&g, 0.02f, X);
}

static void join_of_other_scales(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, PARE_u8);
    pair(&g, "x", "xe", 0.05f, PARE_u8, 100);
    pare_node *join = graph_node(&g, "Concat", "xd xe", "j");
    assert_int_equal(pare_node_set_int(join, "axis", 1), PARE_OK);
    pair(&g, "j", "y", 0.04f, PARE_u8, 110);
    finish(&g);
    assert_int_equal(folded(&g, "QConcat"), 1);
    same(&g, 0.04f, 2 * X);
}

static void average_of_int8(void **state)
{
    (void)state;
    graph_case g;
    begin(&g, PARE_u8);
    pare_node *pool = graph_node(&g, "AveragePool", "xd", "p");
    assert_int_equal(pare_node_set_ints(pool, "kernel_shape", (int64_t[]){2, 2}, 2), PARE_OK);
    pair(&g, "p", "y", 0.013f, PARE_u8, 128);
    finish(&g);
    assert_int_equal(folded(&g, "QAveragePool"), 1);
    same(&g, 0.013f, C * 25);
}

/* Softmax along the last axis and LayerNormalization, but not along another axis. */
static void rows_make_codes(void **state)
{
    (void)state;
    float ones[H];
    for (int i = 0; i < H; i++) ones[i] = 1 + 0.1f * (float)i;
    for (int i = 0; i < 3; i++) {
        graph_case g;
        const bool norm = i == 2;
        const float step = norm ? 0.03f : 0.004f;
        begin(&g, PARE_s8);
        graph_floats(&g, "ones", 1, (int64_t[]){H}, ones);
        pare_node *node = norm ? graph_node(&g, "LayerNormalization", "xd ones ones", "p")
                               : graph_node(&g, "Softmax", "xd", "p");
        assert_int_equal(pare_node_set_int(node, "axis", i == 1 ? 1 : 3), PARE_OK);
        pair(&g, "p", "y", step, PARE_u8, norm ? 100 : 0);
        finish(&g);
        assert_int_equal(folded(&g, norm ? "QLayerNormalization" : "QSoftmax"), i != 1);
        same(&g, step, C * H * H);
    }
}

/* Q after a factor moves up to the product. */
static void factor_goes_into_the_scale(void **state)
{
    (void)state;
    graph_case g;
    float half = 0.5f;
    begin(&g, PARE_s8);
    weight(&g, "w", PARE_s8, 4, (int64_t[]){M, C, 3, 3}, 0);
    conv(&g, "xd w", "c");
    graph_floats(&g, "half", 0, NULL, &half);
    graph_node(&g, "Mul", "c half", "m");
    pair(&g, "m", "y", 0.04f, PARE_s8, 0);
    finish(&g);
    assert_int_equal(folded(&g, "Mul"), 0);
    assert_int_equal(folded(&g, "QuantizeLinear"), 1); /* of the input */
    same(&g, 0.04f, M * H * H);
}

/* A float bias between two steps of the sum is not rounded to either: x is 2 steps of 0.5, w 3 of
   0.25, so that a step is 0.125 and y = 0.75 + bias. A bias of s32 is taken as it is. */
static void bias_keeps_its_fraction(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        graph_case g;
        graph_open(&g, 13);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 1});
        pair(&g, "x", "a", 0.5f, PARE_s8, 0);
        qdq_bytes(&g, "w_w", PARE_s8, 2, (int64_t[]){1, 2}, (int8_t[]){3, 3});
        param(&g, "w", 0.25f, PARE_s8, 0);
        graph_node(&g, "DequantizeLinear", "w_w w_s w_z", "w");
        if (whole) {
            qdq_bytes(&g, "b_w", PARE_s32, 1, (int64_t[]){2}, (int32_t[]){5, -70});
            param(&g, "b", 0.125f, PARE_s8, 0);
            graph_node(&g, "DequantizeLinear", "b_w b_s", "b");
        } else {
            graph_floats(&g, "b", 1, (int64_t[]){2}, (float[]){0.0600f, -20.19f});
        }
        graph_node(&g, "Gemm", "a w b", "y");
        finish(&g);
        assert_int_equal(folded(&g, "FusedMatMul"), 1);
        float y[2], x = 0.9f;
        qdq_run(&g, false, &x, y, 2);
        assert_true(fabsf(y[0] - (whole ? 1.375f : 0.81f)) < 1e-6f);
        assert_true(fabsf(y[1] - (whole ? -8.0f : -19.44f)) < 2e-6f);
        graph_close(&g);
    }
}

/* Both factors are int8 activations, of different types. */
static void product_of_activations(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 13);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){1, 2});
    pair(&g, "x", "a", 0.5f, PARE_s8, 0);
    graph_node(&g, "Transpose", "x", "t");
    pair(&g, "t", "b", 0.25f, PARE_u8, 10);
    graph_node(&g, "MatMul", "a b", "y");
    finish(&g);
    assert_int_equal(folded(&g, "FusedMatMul"), 1);
    float y, x[] = {0.8f, -1.3f}; /* a: 2, -3 steps; b: 3, -5 steps: 1 * 0.75 + -1.5 * -1.25 */
    qdq_run(&g, false, x, &y, 1);
    assert_true(fabsf(y - 2.625f) < 1e-6f);
    graph_close(&g);
}

/* xd as (6, 24) times a weight of 12 columns, or 12 rows, and a bias. */
static void twelve_columns(graph_case *g, bool rows)
{
    float b[12];
    for (int i = 0; i < 12; i++) b[i] = 0.4f * (float)i - 2;
    begin(g, PARE_s8);
    graph_ints(g, "flat", 1, (int64_t[]){2}, (int64_t[]){6, 24});
    graph_floats(g, "b", 1, (int64_t[]){12}, b);
    graph_node(g, "Reshape", "xd flat", "x2");
    weight(g, "w", PARE_s8, 2, rows ? (int64_t[]){12, 24} : (int64_t[]){24, 12}, rows ? 0 : 1);
    if (rows) {
        assert_int_equal(pare_node_set_int(graph_node(g, "Gemm", "x2 w b", "p"), "transB", 1),
                         PARE_OK);
        return;
    }
    graph_node(g, "MatMul", "x2 w", "m");
    graph_node(g, "Add", "m b", "p");
}

/* Pairs of other scales after three parts, joined as floats. */
static void three_pairs(graph_case *g)
{
    pair(g, "pa", "a", 0.03f, PARE_s8, 0);
    pair(g, "pb", "b2", 0.035f, PARE_s8, 3);
    pair(g, "pc", "c", 0.04f, PARE_u8, 110);
    pare_node *join = graph_node(g, "Concat", "a b2 c", "y");
    assert_int_equal(pare_node_set_int(join, "axis", 0), PARE_OK);
    finish(g);
    assert_int_equal(folded(g, "FusedMatMul"), 3);
    assert_int_equal(folded(g, "QuantizeLinear"), 1); /* of the input */
    same(g, 0.04f, 72);
}

/* Queries, keys and values of one product, cut by a Split after a Transpose; the middle part is
   transposed once more. */
static void parts_of_a_split_are_products(void **state)
{
    (void)state;
    graph_case g;
    twelve_columns(&g, false);
    graph_ints(&g, "heads", 1, (int64_t[]){5}, (int64_t[]){2, 3, 3, 2, 2});
    graph_ints(&g, "ones", 1, (int64_t[]){3}, (int64_t[]){1, 1, 1});
    graph_ints(&g, "front", 1, (int64_t[]){1}, (int64_t[]){0});
    graph_node(&g, "Reshape", "p heads", "h");
    pare_node *t = graph_node(&g, "Transpose", "h", "t");
    assert_int_equal(pare_node_set_ints(t, "perm", (int64_t[]){2, 0, 3, 1, 4}, 5), PARE_OK);
    graph_node(&g, "Split", "t ones", "s0 s1 s2");
    graph_node(&g, "Squeeze", "s0 front", "pa");
    graph_node(&g, "Squeeze", "s1 front", "k");
    t = graph_node(&g, "Transpose", "k", "kt");
    assert_int_equal(pare_node_set_ints(t, "perm", (int64_t[]){0, 1, 3, 2}, 4), PARE_OK);
    graph_ints(&g, "back", 1, (int64_t[]){4}, (int64_t[]){2, 2, 3, 2});
    graph_node(&g, "Reshape", "kt back", "pb"); /* not a view: it stays */
    graph_node(&g, "Squeeze", "s2 front", "pc");
    three_pairs(&g);
}

/* The same as Gathers of one index each, which merge axes afterwards. */
static void parts_of_gathers_are_products(void **state)
{
    (void)state;
    graph_case g;
    static const char *const out[] = {"pa", "pb", "pc"};
    twelve_columns(&g, true);
    graph_ints(&g, "heads", 1, (int64_t[]){4}, (int64_t[]){6, 3, 1, 4});
    graph_ints(&g, "merged", 1, (int64_t[]){2}, (int64_t[]){12, 2});
    graph_node(&g, "Reshape", "p heads", "h");
    pare_node *t = graph_node(&g, "Transpose", "h", "t");
    assert_int_equal(pare_node_set_ints(t, "perm", (int64_t[]){1, 0, 2, 3}, 4), PARE_OK);
    for (int i = 0; i < 3; i++) {
        char in[32], name[2][16];
        snprintf(name[0], sizeof name[0], "at%d", i);
        snprintf(name[1], sizeof name[1], "g%d", i);
        graph_ints(&g, name[0], 0, NULL, &(int64_t){i == 2 ? -1 : i});
        snprintf(in, sizeof in, "t at%d", i);
        graph_node(&g, "Gather", in, name[1]);
        snprintf(in, sizeof in, "g%d merged", i);
        graph_node(&g, "Reshape", in, out[i]);
    }
    three_pairs(&g);
}

/* Parts of rows, not of columns, are no products. */
static void parts_of_rows_stay(void **state)
{
    (void)state;
    graph_case g;
    twelve_columns(&g, false);
    graph_ints(&g, "three", 1, (int64_t[]){3}, (int64_t[]){2, 2, 2});
    graph_node(&g, "Split", "p three", "pa pb pc");
    pair(&g, "pa", "a", 0.03f, PARE_s8, 0);
    pair(&g, "pb", "b2", 0.035f, PARE_s8, 3);
    pair(&g, "pc", "c", 0.04f, PARE_u8, 110);
    graph_node(&g, "Concat", "a b2 c", "y");
    assert_int_equal(
        pare_node_set_int(g.model->graph->node[g.model->graph->node_count - 1], "axis", 0),
        PARE_OK);
    finish(&g);
    assert_int_equal(folded(&g, "FusedMatMul"), 1);
    same(&g, 0.04f, 72);
}

/* Levels of 4 bits beside int8 tensors: the integer product takes them as bytes. */
static void weights_of_four_bits_are_folded(void **state)
{
    (void)state;
    enum { COUNT = M * C * 9 };
    graph_case g;
    uint8_t w[COUNT / 2], zero[M / 2] = {0};
    float scale[M];
    unsigned seed = 4;
    begin(&g, PARE_u8);
    g.model->opset[0].version = 21;
    for (int i = 0; i < COUNT / 2; i++) w[i] = (uint8_t)qdq_noise(&seed, 0, 255);
    for (int i = 0; i < M; i++) scale[i] = 0.05f + 0.01f * (float)i;
    qdq_bytes(&g, "w_q", PARE_s4, 4, (int64_t[]){M, C, 3, 3}, w);
    graph_floats(&g, "w_s", 1, (int64_t[]){M}, scale);
    qdq_bytes(&g, "w_z", PARE_s4, 1, (int64_t[]){M}, zero);
    pare_node *dq = graph_node(&g, "DequantizeLinear", "w_q w_s w_z", "w");
    assert_int_equal(pare_node_set_int(dq, "axis", 0), PARE_OK);
    biases(&g, "b");
    conv(&g, "xd w b", "c");
    pair(&g, "c", "y", 0.1f, PARE_u8, 128);
    finish(&g);
    assert_int_equal(folded(&g, "FusedConv"), 1);
    same(&g, 0.1f, M * H * H);
}

#define IN_F16(test)                                                                               \
    {                                                                                              \
#test "_in_f16", test, begin_f16, end_f16, NULL                                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_of_every_type),
        cmocka_unit_test(weights_with_zero_points),
        cmocka_unit_test(operator_form_is_folded),
        cmocka_unit_test(residual_is_fused),
        cmocka_unit_test(addition_of_int8),
        cmocka_unit_test(pairs_move_and_constants_fold),
        cmocka_unit_test(functions_become_tables),
        cmocka_unit_test(join_of_other_scales),
        cmocka_unit_test(average_of_int8),
        cmocka_unit_test(rows_make_codes),
        cmocka_unit_test(factor_goes_into_the_scale),
        cmocka_unit_test(bias_keeps_its_fraction),
        cmocka_unit_test(product_of_activations),
        cmocka_unit_test(parts_of_a_split_are_products),
        cmocka_unit_test(parts_of_gathers_are_products),
        cmocka_unit_test(parts_of_rows_stay),
        cmocka_unit_test(weights_of_four_bits_are_folded),
        IN_F16(conv_of_every_type),
        IN_F16(weights_with_zero_points),
        IN_F16(residual_is_fused),
        IN_F16(addition_of_int8),
        IN_F16(pairs_move_and_constants_fold),
        IN_F16(functions_become_tables),
        IN_F16(join_of_other_scales),
        IN_F16(average_of_int8),
        IN_F16(rows_make_codes),
        IN_F16(factor_goes_into_the_scale),
        IN_F16(parts_of_a_split_are_products),
        IN_F16(parts_of_gathers_are_products),
        IN_F16(parts_of_rows_stay),
        IN_F16(weights_of_four_bits_are_folded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
