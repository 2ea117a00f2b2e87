/* SPDX-License-Identifier: Apache-2.0 */
/* What targets take: one quantized product with one thing changed at a time, what each target says
   of it, and that a repair changes no output. */
#include "quant/internal.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 2, K = 4, OUTPUTS = 4 };

/* The product of x (2, 4) and w (4, 4) with a bias, all quantized. What is 0 is as TensorRT wants
   it. */
typedef struct planted {
    const char *op;                       /* NULL: Gemm */
    int64_t opset;                        /* 0: 21 */
    pare_dtype x_type, w_type, bias_type; /* 0: s8, s8, f32 */
    int x_zero, w_zero;
    float x_scale, bias_scale; /* 0: 0.5, 0.5 * the weight's */
    int x_channels;            /* 0: one scale */
    int w_axis;                /* of Gemm's (K, N): 0: 1; -1: 0 */
    int block;
    bool float_x, computed_scale, relu; /* relu: before x's pair */
} planted;

static void constant(graph_case *g, const char *name, pare_dtype type, int rank,
                     const int64_t *dims, const void *data)
{
    pare_value *v;
    assert_int_equal(pare_init_new(g->model->graph, &v, name, type, rank, dims, data), PARE_OK);
}

static void fill(graph_case *g, const char *name, pare_dtype type, int64_t count, int value)
{
    uint8_t bytes[16] = {0};
    int32_t words[4] = {value, value, value, value};
    memset(bytes, value, (size_t)count);
    if (pare_type_is_packed(type)) memset(bytes, (value & 15) * 17, sizeof bytes);
    constant(g, name, type, count > 1, &count, type == PARE_s32 ? (void *)words : bytes);
}

static void scales(graph_case *g, const char *name, int64_t count, float first)
{
    float s[16];
    for (int i = 0; i < 16; i++) s[i] = first * (float)(1 + i % 4);
    graph_floats(g, name, count > 1, &count, s);
}

static void quantized_x(graph_case *g, const planted *p)
{
    const int64_t n = p->x_channels ? p->x_channels : 1;
    scales(g, "xs", n, p->x_scale != 0 ? p->x_scale : 0.5f);
    fill(g, "xz", p->x_type ? p->x_type : PARE_s8, n, p->x_zero);
    if (p->computed_scale) graph_node(g, "ReduceMax", "x", "xm");
    if (p->relu) graph_node(g, "Relu", "x", "r");
    const char *in = p->computed_scale ? "x xm xz" : p->relu ? "r xs xz" : "x xs xz";
    if (p->computed_scale)
        assert_int_equal(pare_node_set_int(graph_value(g, "xm")->producer, "keepdims", 0), PARE_OK);
    graph_node(g, "QuantizeLinear", in, "xq");
    graph_node(g, "DequantizeLinear", p->computed_scale ? "xq xm xz" : "xq xs xz", "xd");
}

static void quantized_w(graph_case *g, const planted *p)
{
    const pare_dtype type = p->w_type ? p->w_type : PARE_s8;
    const int64_t dims[] = {K, OUTPUTS}, blocks[] = {2, OUTPUTS};
    uint8_t level[K * OUTPUTS];
    for (int i = 0; i < K * OUTPUTS; i++) level[i] = (uint8_t)(p->w_zero + i * 7 % 23 - 11);
    constant(g, "wq", type, 2, dims, level);
    float s[8] = {0.1f, 0.2f, 0.3f, 0.4f, 0.1f, 0.2f, 0.3f, 0.4f};
    graph_floats(g, "ws", p->block ? 2 : 1, p->block ? blocks : (int64_t[]){OUTPUTS}, s);
    fill(g, "wz", type, p->block ? 8 : OUTPUTS, p->w_zero);
    if (p->block) graph_node(g, "Reshape", "wz shape", "wzb");
    pare_node *dq = graph_node(g, "DequantizeLinear", p->block ? "wq ws wzb" : "wq ws wz", "wd");
    const int axis = p->w_axis < 0 || p->block ? 0 : 1;
    assert_int_equal(pare_node_set_int(dq, "axis", axis), PARE_OK);
    if (p->block) assert_int_equal(pare_node_set_int(dq, "block_size", p->block), PARE_OK);
}

static void make(graph_case *g, const planted *p)
{
    const int32_t bias[] = {3, -4, 5, -6};
    const float numbers[] = {0.15f, -0.4f, 0.75f, -1.2f};
    const char *op = p->op ? p->op : "Gemm";
    graph_open(g, p->opset ? p->opset : 21);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){ROWS, K});
    graph_ints(g, "shape", 1, (int64_t[]){2}, (int64_t[]){2, OUTPUTS});
    if (!p->float_x) quantized_x(g, p);
    quantized_w(g, p);
    if (p->bias_type == PARE_s32) {
        constant(g, "bq", PARE_s32, 1, (int64_t[]){OUTPUTS}, bias);
        scales(g, "bs", OUTPUTS, p->bias_scale != 0 ? p->bias_scale : 0.05f);
        pare_node *dq = graph_node(g, "DequantizeLinear", "bq bs", "b");
        assert_int_equal(pare_node_set_int(dq, "axis", 0), PARE_OK);
    } else if (!strcmp(op, "Gemm")) {
        graph_floats(g, "b", 1, (int64_t[]){OUTPUTS}, numbers);
    }
    const char *x = p->float_x ? "x" : "xd";
    char in[32];
    snprintf(in, sizeof in, "%s wd%s", x, strcmp(op, "Gemm") ? "" : " b");
    graph_node(g, op, in, "y");
    graph_output(g, "y");
}

static pare_target_report *check(graph_case *g, pare_quant_target target)
{
    pare_target_report *report;
    if (pare_target_check(&g->ctx, g->model, target, &report) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    return report;
}

/* What the target says of this rule in the model: the verdict of its only finding. */
static pare_target_verdict verdict(graph_case *g, pare_quant_target target, pare_target_rule rule,
                                   const char *tensor)
{
    pare_target_report *report = check(g, target);
    pare_target_verdict is = PARE_TAKEN;
    for (int i = 0; i < report->count; i++) {
        const pare_target_finding *f = &report->finding[i];
        if (f->rule != rule) continue;
        assert_string_equal(f->tensor, tensor);
        assert_true(*tensor == 0 || *f->node);
        is = f->verdict;
    }
    pare_target_report_free(report);
    return is;
}

static void a_plain_file_is_taken_by_all(void **state)
{
    (void)state;
    for (int target = 0; target < PARE_TARGET_COUNT; target++) {
        graph_case g;
        make(&g, &(planted){0});
        pare_target_report *report = check(&g, (pare_quant_target)target);
        assert_int_equal(report->count, 0);
        pare_target_report_free(report);
        graph_close(&g);
    }
}

static void each_rule_is_said_where_it_is_broken(void **state)
{
    (void)state;
    enum { NO = PARE_REFUSED, NOTE = PARE_NOTED, YES = PARE_TAKEN };
    static const struct {
        planted p;
        pare_target_rule rule;
        const char *tensor;
        int says[PARE_TARGET_COUNT]; /* TensorRT, ONNX Runtime, OpenVINO */
    } cases[] = {
        {{.op = "MatMul", .opset = 25}, PARE_RULE_OPSET, "", {NO, YES, YES}},
        {{.x_scale = -1}, PARE_RULE_SCALE, "x", {NO, NO, NO}},
        {{.computed_scale = true}, PARE_RULE_COMPUTED_SCALE, "x", {NO, NOTE, NOTE}},
        {{.x_type = PARE_u8}, PARE_RULE_ACTIVATION_TYPE, "x", {NO, YES, YES}},
        {{.x_type = PARE_s4}, PARE_RULE_ACTIVATION_TYPE, "x", {NO, NOTE, NOTE}},
        {{.x_type = PARE_f8e5m2}, PARE_RULE_ACTIVATION_TYPE, "x", {NO, NOTE, NO}},
        {{.x_zero = 3}, PARE_RULE_ZERO_POINT, "x", {NO, YES, YES}},
        {{.x_channels = K}, PARE_RULE_CHANNEL_ACTIVATION, "x", {NO, NOTE, YES}},
        {{.w_type = PARE_u8, .w_zero = 100}, PARE_RULE_WEIGHT_TYPE, "wq", {NO, YES, YES}},
        {{.w_zero = 3}, PARE_RULE_WEIGHT_ZERO_POINT, "wq", {NO, YES, YES}},
        {{.w_axis = -1}, PARE_RULE_WEIGHT_AXIS, "wq", {NO, NO, NO}},
        {{.w_type = PARE_s4}, PARE_RULE_INT4, "wq", {NO, YES, YES}},
        {{.w_type = PARE_s4}, PARE_RULE_WEIGHT_TYPE, "wq", {YES, NOTE, NOTE}},
        {{.w_type = PARE_s4, .float_x = true}, PARE_RULE_INT4, "wq", {NO, YES, YES}},
        {{.w_type = PARE_s4, .float_x = true, .block = 2}, PARE_RULE_INT4, "wq", {YES, YES, YES}},
        {{.float_x = true}, PARE_RULE_WEIGHTS_ALONE, "wq", {NOTE, YES, YES}},
        {{.bias_type = PARE_s32}, PARE_RULE_S32_BIAS, "bq", {NO, YES, YES}},
        {{.x_type = PARE_f8e4m3, .relu = true}, PARE_RULE_RELU, "r", {YES, NO, YES}},
        {{.x_type = PARE_f8e5m2, .relu = true}, PARE_RULE_RELU, "r", {YES, NO, YES}},
        {{.x_type = PARE_s4, .relu = true}, PARE_RULE_RELU, "r", {YES, NO, YES}},
        {{.relu = true}, PARE_RULE_RELU, "r", {YES, YES, YES}},
        {{.x_type = PARE_f8e4m3}, PARE_RULE_RELU, "x", {YES, YES, YES}},
        {{.bias_type = PARE_s32}, PARE_RULE_BIAS_SCALE, "bq", {YES, YES, YES}},
        {{.bias_type = PARE_s32, .bias_scale = 0.06f}, PARE_RULE_BIAS_SCALE, "bq", {YES, NO, YES}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int target = 0; target < PARE_TARGET_COUNT; target++) {
            graph_case g;
            make(&g, &cases[i].p);
            const int got = verdict(&g, (pare_quant_target)target, cases[i].rule, cases[i].tensor);
            if (got != cases[i].says[target])
                fail_msg(
                    "case %zu, rule %s, %s: %d, not %d", i, pare_target_rule_name(cases[i].rule),
                    pare_target_of((pare_quant_target)target)->name, got, cases[i].says[target]);
            graph_close(&g);
        }
}

/* QLinearMatMul, which TensorRT does not have. */
static void integer_operators(void **state)
{
    (void)state;
    graph_case g;
    make(&g, &(planted){.op = "MatMul"});
    scales(&g, "one", 1, 0.1f);
    fill(&g, "none", PARE_s8, 1, 0);
    graph_node(&g, "QLinearMatMul", "xq xs xz wq one none one none", "z");
    graph_output(&g, "z");
    assert_int_equal(verdict(&g, PARE_TARGET_TENSORRT, PARE_RULE_OPERATOR, "z"), PARE_REFUSED);
    assert_int_equal(verdict(&g, PARE_TARGET_ONNXRUNTIME, PARE_RULE_OPERATOR, "z"), PARE_TAKEN);
    graph_close(&g);
}

/* An LSTM of dequantized weights. */
static void recurrent_weights(void **state)
{
    (void)state;
    static const int says[] = {PARE_NOTED, PARE_TAKEN, PARE_REFUSED};
    const int8_t levels[16] = {1, -2, 3};
    graph_case g;
    make(&g, &(planted){0});
    graph_input(&g, "s", PARE_f32, 3, (int64_t[]){2, 1, 1});
    scales(&g, "ls", 1, 0.1f);
    constant(&g, "lw", PARE_s8, 3, (int64_t[]){1, 4, 1}, levels);
    graph_node(&g, "DequantizeLinear", "lw ls", "ld");
    pare_node *lstm = graph_node(&g, "LSTM", "s ld ld", "z");
    assert_int_equal(pare_node_set_int(lstm, "hidden_size", 1), PARE_OK);
    graph_output(&g, "z");
    for (int t = 0; t < PARE_TARGET_COUNT; t++)
        assert_int_equal(verdict(&g, (pare_quant_target)t, PARE_RULE_RECURRENT_WEIGHT, "lw"),
                         says[t]);
    graph_close(&g);
}

/* x + product, both quantized; and 7 bits are enough for sums of 16 bits. */
static void additions_and_sums(void **state)
{
    (void)state;
    graph_case g;
    make(&g, &(planted){.op = "MatMul", .x_type = PARE_u8});
    scales(&g, "ys", 1, 1);
    fill(&g, "yz", PARE_s8, 1, 0);
    graph_node(&g, "QuantizeLinear", "y ys yz", "yq");
    graph_node(&g, "DequantizeLinear", "yq ys yz", "yd");
    graph_node(&g, "Add", "xd yd", "sum");
    assert_int_equal(pare_values_add(g.model->graph, &g.model->graph->out, graph_value(&g, "sum")),
                     PARE_OK);
    graph_value(&g, "sum")->is_output = true;
    graph_value(&g, "y")->is_output = false;
    pare_values_remove(&g.model->graph->out, graph_value(&g, "y"));
    assert_int_equal(verdict(&g, PARE_TARGET_TENSORRT, PARE_RULE_RESIDUAL, "y"), PARE_NOTED);
    assert_int_equal(verdict(&g, PARE_TARGET_OPENVINO, PARE_RULE_RESIDUAL, "y"), PARE_TAKEN);
    assert_int_equal(verdict(&g, PARE_TARGET_ONNXRUNTIME, PARE_RULE_SATURATION, "y"), PARE_TAKEN);
    ((int8_t *)(uintptr_t)graph_value(&g, "wq")->data->data)[3] = 127;
    assert_int_equal(verdict(&g, PARE_TARGET_ONNXRUNTIME, PARE_RULE_SATURATION, "y"), PARE_NOTED);
    graph_close(&g);
}

/* --- repairs --- */

static const float sample[ROWS * K] = {0.3f, -7.1f, 100, -100, 4.25f, 0.5f, -0.75f, 12};

static void repaired(const planted *p, pare_quant_target target, int changes, int remain)
{
    float before[ROWS * OUTPUTS], after[ROWS * OUTPUTS];
    graph_case g;
    int changed;
    make(&g, p);
    graph_run(&g, 2, (int64_t[]){ROWS, K}, sample, before, ROWS * OUTPUTS);
    assert_int_equal(pare_target_repair(g.model, target, &changed), PARE_OK);
    assert_int_equal(changed, changes);
    pare_target_report *report = check(&g, target);
    assert_int_equal(report->refused, remain);
    pare_target_report_free(report);
    graph_run(&g, 2, (int64_t[]){ROWS, K}, sample, after, ROWS * OUTPUTS);
    assert_memory_equal(before, after, sizeof before);
    graph_close(&g);
}

static void repairs_change_no_output(void **state)
{
    (void)state;
    repaired(&(planted){.x_type = PARE_u8, .x_zero = 128}, PARE_TARGET_TENSORRT, 1, 0);
    repaired(&(planted){.w_type = PARE_u8, .w_zero = 128}, PARE_TARGET_TENSORRT, 1, 0);
    repaired(&(planted){.bias_type = PARE_s32}, PARE_TARGET_TENSORRT, 1, 0);
    repaired(&(planted){.x_type = PARE_u8,
                        .x_zero = 128,
                        .w_type = PARE_u8,
                        .w_zero = 128,
                        .bias_type = PARE_s32},
             PARE_TARGET_TENSORRT, 3, 0);
    repaired(&(planted){.bias_type = PARE_s32, .bias_scale = 0.06f}, PARE_TARGET_ONNXRUNTIME, 1, 0);
    repaired(&(planted){.bias_type = PARE_s32}, PARE_TARGET_ONNXRUNTIME, 0, 0);
    repaired(&(planted){.x_type = PARE_f8e4m3, .relu = true}, PARE_TARGET_ONNXRUNTIME, 1, 0);
    repaired(&(planted){.x_type = PARE_f8e4m3, .relu = true}, PARE_TARGET_TENSORRT, 0, 0);
}

/* Another zero point is another range in s8: type and zero point remain. */
static void what_cannot_be_repaired_remains(void **state)
{
    (void)state;
    repaired(&(planted){.x_type = PARE_u8, .x_zero = 100}, PARE_TARGET_TENSORRT, 0, 2);
    repaired(&(planted){.x_zero = 5, .w_zero = 3}, PARE_TARGET_TENSORRT, 0, 2);
}

/* --- one table for writing and checking --- */

static void options_that_a_target_does_not_take(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    pare_quant_options o;
    pare_quant_options_init(&o);
    assert_int_equal(pare_target_allows(&ctx, &o), PARE_OK);
    o.weight_bits = 4;
    assert_int_equal(pare_target_allows(&ctx, &o), PARE_USAGE);
    assert_non_null(strstr(ctx.message, "--target onnxruntime"));
    assert_non_null(strstr(ctx.message, "w4a16"));
    pare_ctx_clear(&ctx);
    o.target = PARE_TARGET_ONNXRUNTIME;
    assert_int_equal(pare_target_allows(&ctx, &o), PARE_OK);
    o = (pare_quant_options){.unsigned_activations = true};
    assert_int_equal(pare_target_allows(&ctx, &o), PARE_USAGE);
    pare_ctx_clear(&ctx);
    o.target = PARE_TARGET_OPENVINO;
    assert_int_equal(pare_target_allows(&ctx, &o), PARE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_file_is_taken_by_all),
        cmocka_unit_test(each_rule_is_said_where_it_is_broken),
        cmocka_unit_test(integer_operators),
        cmocka_unit_test(recurrent_weights),
        cmocka_unit_test(additions_and_sums),
        cmocka_unit_test(repairs_change_no_output),
        cmocka_unit_test(what_cannot_be_repaired_remains),
        cmocka_unit_test(options_that_a_target_does_not_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
