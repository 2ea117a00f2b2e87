/* SPDX-License-Identifier: Apache-2.0 */
/* Fusing and memory order change how a model is computed, not what: every graph here runs with the
   plain kernels as it was written and with both passes, and the nodes left are counted. */
#include "formats/onnx.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define DIMS(...)                                                                                  \
    (const int64_t[]) { __VA_ARGS__ }

static float *noise(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(int32_t)(seed >> 32) * 0x1p-31f;
    }
    return x;
}

static void weight(graph_case *g, const char *name, int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    float *x = noise(n, (uint64_t)name[0] * 31 + (uint64_t)n);
    graph_floats(g, name, rank, dims, x);
    free(x);
}

static void scalar(graph_case *g, const char *name, float value)
{
    graph_floats(g, name, 0, NULL, &value);
}

/* Output 0 of the model for its input shapes as written; plain kernels, no fusing. */
static float *outputs(pare_ctx *ctx, const pare_model *m, const pare_input_shape *shape, int shapes,
                      const float *x, int64_t *count)
{
    pare_plan *plan;
    pare_runner *runner;
    const pare_plan_options options = {.threads = 2, .reference = true};
    if (pare_plan_new(ctx, &plan, m, shape, shapes, &options) != PARE_OK)
        fail_msg("%s", ctx->message);
    assert_int_equal(pare_runner_new(ctx, &runner, plan), PARE_OK);
    pare_view in = pare_runner_input(runner, 0), out;
    memcpy(in.data, x, pare_view_bytes(&in));
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", ctx->message);
    out = pare_runner_output(runner, 0);
    *count = pare_view_count(&out);
    float *y = malloc(pare_view_bytes(&out) + 4);
    memcpy(y, out.data, pare_view_bytes(&out));
    pare_runner_free(runner);
    pare_plan_free(plan);
    return y;
}

/* Prepares as a plan does, then fuses and orders. */
static void passes(pare_ctx *ctx, pare_model *m, const char *const *keep, int keep_count)
{
    const pare_infer_options fold = {.fold = true};
    pare_status st = pare_graph_sort(m->graph);
    if (!st) st = pare_pass_version_convert(m, 18);
    if (!st) st = pare_pass_infer(m, &fold);
    if (!st) st = pare_pass_fold_batchnorm(m);
    if (!st) st = pare_pass_infer(m, &fold);
    if (!st) st = pare_pass_fuse(m, keep, keep_count);
    if (!st) st = pare_pass_infer(m, &fold);
    if (!st) st = pare_pass_distribute_concat(m, keep, keep_count);
    if (!st) st = pare_pass_layout(m);
    if (!st) st = pare_pass_layout(m); /* once more changes nothing */
    if (st) fail_msg("%s", ctx->message);
}

/* Both ways give one answer, to this part of its largest value. */
static void near_answer(graph_case *g, const char *const *keep, int keep_count, float part)
{
    int64_t n, k, inputs = pare_shape_count(&g->model->graph->in.item[0]->shape);
    float *x = noise(inputs, 5), high = 0;
    float *before = outputs(&g->ctx, g->model, NULL, 0, x, &n);
    passes(&g->ctx, g->model, keep, keep_count);
    float *after = outputs(&g->ctx, g->model, NULL, 0, x, &k);
    assert_int_equal(n, k);
    for (int64_t i = 0; i < n; i++) high = fabsf(before[i]) > high ? fabsf(before[i]) : high;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(before[i] - after[i]) <= part * high))
            fail_msg("element %d: %g before, %g after", (int)i, (double)before[i],
                     (double)after[i]);
    free(x);
    free(before);
    free(after);
}

static void same_answer(graph_case *g, const char *const *keep, int keep_count)
{
    near_answer(g, keep, keep_count, 1e-5f);
}

static pare_node *activated(graph_case *g)
{
    for (int i = 0; i < g->model->graph->node_count; i++)
        if (pare_node_attr(g->model->graph->node[i], "activation")) return g->model->graph->node[i];
    return NULL;
}

/* Conv + bias Add + residual Add + Relu between row-major ends: one node and two Reorders. */
static void conv_takes_what_follows(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, DIMS(2, 3, 5, 4));
    weight(&g, "w", 4, DIMS(3, 3, 3, 3));
    weight(&g, "b", 4, DIMS(1, 3, 1, 1));
    pare_node *n = graph_node(&g, "Conv", "x w", "c");
    assert_int_equal(pare_node_set_string(n, "auto_pad", "SAME_UPPER"), PARE_OK);
    graph_node(&g, "Add", "b c", "d");
    graph_node(&g, "Add", "x d", "e");
    graph_node(&g, "Relu", "e", "y");
    graph_output(&g, "y");
    same_answer(&g, NULL, 0);
    assert_int_equal(g.model->graph->node_count, 3);
    assert_int_equal(graph_count(&g, "Reorder"), 2);
    n = activated(&g);
    assert_string_equal(n->op_type, "FusedConv");
    assert_string_equal(pare_node_string(n, "activation", ""), "relu");
    assert_int_equal(n->in_count, 4);
    assert_int_equal(n->in[2]->shape.rank, 1);
    graph_close(&g);
}

/* A kept tensor stays a tensor: what comes after it is not fused in. */
static void kept_names_survive(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, DIMS(3, 4));
    weight(&g, "w", 2, DIMS(4, 5));
    weight(&g, "b", 1, DIMS(5));
    graph_node(&g, "MatMul", "x w", "m");
    graph_node(&g, "Add", "m b", "a");
    graph_node(&g, "Tanh", "a", "y");
    graph_output(&g, "y");
    same_answer(&g, (const char *const[]){"a"}, 1);
    assert_int_equal(graph_count(&g, "FusedMatMul"), 1);
    assert_int_equal(graph_count(&g, "Tanh"), 1);
    assert_non_null(graph_value(&g, "a")->producer);
    graph_close(&g);
}

static void activations(void **state)
{
    (void)state;
    static const char *const word[] = {"silu",       "hardswish", "clip",
                                       "leaky_relu", "gelu",      "gelu_tanh"};
    for (int k = 0; k < 6; k++) {
        graph_case g;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, DIMS(3, 4));
        weight(&g, "w", 2, DIMS(5, 4));
        weight(&g, "b", 1, DIMS(5));
        assert_int_equal(pare_node_set_int(graph_node(&g, "Gemm", "x w b", "m"), "transB", 1),
                         PARE_OK);
        if (k == 0) {
            graph_node(&g, "Sigmoid", "m", "s");
            graph_node(&g, "Mul", "s m", "y");
        } else if (k == 1) {
            pare_node *n = graph_node(&g, "HardSigmoid", "m", "s");
            assert_int_equal(pare_node_set_float(n, "alpha", 1.f / 6), PARE_OK);
            graph_node(&g, "Mul", "m s", "y");
        } else if (k == 2) {
            scalar(&g, "low", -.25f);
            graph_node(&g, "Clip", "m low", "y");
        } else if (k == 3) {
            assert_int_equal(
                pare_node_set_float(graph_node(&g, "LeakyRelu", "m", "y"), "alpha", .3f), 0);
        } else if (k == 4) { /* (m * 0.5) * (1 + erf(m / sqrt 2)) */
            scalar(&g, "r", 1.41421356f);
            scalar(&g, "one", 1);
            scalar(&g, "half", .5f);
            graph_node(&g, "Div", "m r", "d");
            graph_node(&g, "Erf", "d", "e");
            graph_node(&g, "Add", "one e", "p");
            graph_node(&g, "Mul", "half m", "h");
            graph_node(&g, "Mul", "h p", "y");
        } else {
            scalar(&g, "three", 3);
            scalar(&g, "c", .044715f);
            scalar(&g, "s", .79788456f);
            scalar(&g, "one", 1);
            scalar(&g, "half", .5f);
            graph_node(&g, "Pow", "m three", "cube");
            graph_node(&g, "Mul", "cube c", "q");
            graph_node(&g, "Add", "m q", "sum");
            graph_node(&g, "Mul", "sum s", "arg");
            graph_node(&g, "Tanh", "arg", "t");
            graph_node(&g, "Add", "t one", "p");
            graph_node(&g, "Mul", "m p", "mp");
            graph_node(&g, "Mul", "mp half", "y");
        }
        graph_output(&g, "y");
        same_answer(&g, NULL, 0);
        assert_int_equal(g.model->graph->node_count, 1);
        assert_string_equal(pare_node_string(activated(&g), "activation", ""), word[k]);
        graph_close(&g);
    }
}

static void norm_is_recognized(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 13);
    graph_input(&g, "x", PARE_f32, 3, DIMS(2, 3, 8));
    scalar(&g, "two", 2);
    scalar(&g, "epsilon", 1e-5f);
    weight(&g, "g", 1, DIMS(8));
    weight(&g, "h", 1, DIMS(8));
    assert_int_equal(
        pare_node_set_ints(graph_node(&g, "ReduceMean", "x", "m"), "axes", DIMS(-1), 1), 0);
    graph_node(&g, "Sub", "x m", "d");
    graph_node(&g, "Pow", "d two", "p");
    assert_int_equal(
        pare_node_set_ints(graph_node(&g, "ReduceMean", "p", "v"), "axes", DIMS(-1), 1), 0);
    graph_node(&g, "Add", "v epsilon", "e");
    graph_node(&g, "Sqrt", "e", "s");
    graph_node(&g, "Div", "d s", "n");
    graph_node(&g, "Mul", "n g", "k");
    graph_node(&g, "Add", "k h", "y");
    graph_output(&g, "y");
    same_answer(&g, NULL, 0);
    assert_int_equal(g.model->graph->node_count, 1);
    assert_int_equal(graph_count(&g, "LayerNormalization"), 1);
    graph_close(&g);
}

/* Two branches, Concat, MaxPool, Conv + Relu with this many filters over their 16 channels. */
static void branches(graph_case *g, int64_t filters)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 4, DIMS(2, 4, 7, 6));
    weight(g, "u", 4, DIMS(6, 4, 1, 1));
    weight(g, "v", 4, DIMS(10, 4, 1, 1));
    weight(g, "w", 4, DIMS(filters, 16, 3, 2));
    weight(g, "b", 1, DIMS(filters));
    graph_node(g, "Conv", "x u", "p");
    graph_node(g, "Relu", "p", "pr");
    graph_node(g, "Conv", "x v", "q");
    graph_node(g, "Relu", "q", "qr");
    assert_int_equal(pare_node_set_int(graph_node(g, "Concat", "pr qr", "c"), "axis", -3), PARE_OK);
    pare_node *pool = graph_node(g, "MaxPool", "c", "m");
    assert_int_equal(pare_node_set_ints(pool, "kernel_shape", DIMS(3, 3), 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(pool, "strides", DIMS(2, 2), 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(pool, "pads", DIMS(1, 0, 1, 1), 4), PARE_OK);
    pare_node *conv = graph_node(g, "Conv", "m w b", "n");
    assert_int_equal(pare_node_set_ints(conv, "pads", DIMS(1, 0, 1, 0), 4), PARE_OK);
    graph_node(g, "Relu", "n", "y");
    graph_output(g, "y");
}

/* The pool goes in front of the Concat, the convolution becomes two where that writes less than the
   Concat; a kept Concat stays as it was. */
static void concat_is_spread(void **state)
{
    (void)state;
    static const char *const kept[] = {"c"};
    static const struct {
        int64_t filters;
        int keep, concats, pools, convs;
    } row[] = {{8, 0, 0, 2, 4}, {9, 0, 1, 2, 3}, {8, 1, 1, 1, 3}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        graph_case g;
        branches(&g, row[i].filters);
        same_answer(&g, kept, row[i].keep);
        assert_int_equal(graph_count(&g, "Concat"), row[i].concats);
        assert_int_equal(graph_count(&g, "MaxPool"), row[i].pools);
        assert_int_equal(graph_count(&g, "FusedConv"), row[i].convs);
        graph_close(&g);
    }
}

/* Heads [2, 3, 5, 4] attend to themselves through K^T = Transpose(0, 2, 3, 1) of [2, 5, 3, 4]. */
static void attention_is_recognized(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, DIMS(2, 5, 3, 4));
    scalar(&g, "root", 2);
    weight(&g, "mask", 4, DIMS(2, 1, 1, 5));
    assert_int_equal(
        pare_node_set_ints(graph_node(&g, "Transpose", "x", "q"), "perm", DIMS(0, 2, 1, 3), 4), 0);
    assert_int_equal(
        pare_node_set_ints(graph_node(&g, "Transpose", "x", "k"), "perm", DIMS(0, 2, 3, 1), 4), 0);
    assert_int_equal(
        pare_node_set_ints(graph_node(&g, "Transpose", "x", "v"), "perm", DIMS(0, 2, 1, 3), 4), 0);
    graph_node(&g, "MatMul", "q k", "s");
    graph_node(&g, "Div", "s root", "d");
    graph_node(&g, "Add", "mask d", "a");
    assert_int_equal(pare_node_set_int(graph_node(&g, "Softmax", "a", "p"), "axis", -1), 0);
    graph_node(&g, "MatMul", "p v", "y");
    graph_output(&g, "y");
    same_answer(&g, NULL, 0);
    assert_int_equal(graph_count(&g, "FusedAttention"), 1);
    assert_int_equal(g.model->graph->node_count, 1); /* heads are read where they lie */
    graph_close(&g);
}

static void transposed(graph_case *g, const char *x, const char *y, const int64_t *perm)
{
    assert_int_equal(pare_node_set_ints(graph_node(g, "Transpose", x, y), "perm", perm, 4), 0);
}

/* Attention of [2, 5, 3, 4] in this type to keys that are twice as many and values twice as wide.
   Bit i of moved: nothing stands between operand i and the Transpose of its heads. */
static void heads_graph(graph_case *g, pare_dtype type, int moved)
{
    static const char *const name[] = {"q", "k", "v"};
    graph_open(g, 17);
    graph_input(g, "input", PARE_f32, 4, DIMS(2, 5, 3, 8));
    scalar(g, "third", 0.3f);
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", "input", "xq"), "to", type), 0);
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", "third", "scale"), "to", type), 0);
    graph_node(g, "Sin", "xq", "sine");
    assert_int_equal(pare_node_set_int(graph_node(g, "Concat", "xq sine", "xk"), "axis", 1), 0);
    assert_int_equal(pare_node_set_int(graph_node(g, "Concat", "xk xk", "xv"), "axis", 3), 0);
    for (int i = 0; i < 3; i++) {
        char from[8], to[8];
        snprintf(from, sizeof from, "x%s", name[i]);
        snprintf(to, sizeof to, moved >> i & 1 ? "%s" : "t%s", name[i]);
        transposed(g, from, to, DIMS(0, 2, 1, 3));
        if (!(moved >> i & 1)) graph_node(g, "Tanh", to, name[i]);
    }
    graph_node(g, "Mul", "q scale", "qs");
    transposed(g, "k", "kt", DIMS(0, 1, 3, 2));
    graph_node(g, "MatMul", "qs kt", "s");
    graph_node(g, "Softmax", "s", "p");
    graph_node(g, "MatMul", "p v", "h");
    transposed(g, "h", "yt", DIMS(0, 2, 1, 3));
    if (!(moved >> 3 & 1)) graph_node(g, "Tanh", "h", "other");
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", "yt", "y"), "to", PARE_f32), 0);
    graph_output(g, "y");
    if (!(moved >> 3 & 1)) graph_output(g, "other");
}

static void heads_are(const graph_case *g, int moved)
{
    const pare_graph *graph = g->model->graph;
    const pare_node *n = NULL;
    int count = 0;
    for (int i = 0; i < graph->node_count; i++)
        if (!strcmp(graph->node[i]->op_type, "FusedAttention")) n = graph->node[i];
    assert_non_null(n);
    const int64_t *axes = pare_node_ints(n, "head_axes", &count);
    assert_int_equal(count, moved ? 4 : 0);
    for (int i = 0; i < count; i++) assert_int_equal(axes[i], 1 + (moved >> i & 1));
}

/* Each of Q, K, V and Y before the Transpose of its heads or behind it, all 16 ways. */
static void heads_are_read_where_they_lie(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        const bool half = i >= 16;
        graph_case g;
        heads_graph(&g, half ? PARE_f16 : PARE_f32, i % 16);
        near_answer(&g, NULL, 0, half ? 2e-3f : 1e-5f);
        heads_are(&g, i % 16);
        int left = 4;
        for (int bit = 0; bit < 4; bit++) left -= i >> bit & 1;
        assert_int_equal(graph_count(&g, "Transpose"), left);
        graph_close(&g);
    }
}

/* Part k of t's first axis: by a Gather (how 2), a Slice (1), or an output of a Split that is
 * there. */
static void take_part(graph_case *g, int how, const char *name, int64_t k)
{
    char first[8], end[8], one[8], in[32];
    const int64_t next = k + 1;
    snprintf(first, sizeof first, "at_%s", name);
    snprintf(end, sizeof end, "end_%s", name);
    snprintf(one, sizeof one, "one_%s", name);
    graph_ints(g, first, how == 1, &(int64_t){1}, &k);
    if (how == 2) {
        snprintf(in, sizeof in, "t %s", first);
        graph_node(g, "Gather", in, name);
        return;
    }
    graph_ints(g, end, 1, &(int64_t){1}, &next);
    snprintf(in, sizeof in, "t %s %s axis", first, end);
    if (how == 1) graph_node(g, "Slice", in, one);
    snprintf(in, sizeof in, "%s axis", one);
    graph_node(g, "Squeeze", in, name);
}

/* One product of Q, K and V whose parts come first by a Transpose and are taken from there:
   attention reads the product. V, which others read too in half of the cases, is made for them. */
static void parts_of_a_product_are_read_there(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        graph_case g;
        int64_t zero = 0;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 5, DIMS(2, 5, 3, 2, 4));
        scalar(&g, "third", 0.3f);
        graph_ints(&g, "axis", 1, DIMS(1), &zero);
        pare_node *t = graph_node(&g, "Transpose", "x", "t");
        assert_int_equal(pare_node_set_ints(t, "perm", DIMS(2, 0, 3, 1, 4), 5), 0);
        if (i % 3 == 0) graph_node(&g, "Split", "t", "one_q one_k one_v");
        take_part(&g, i % 3, "q", 0);
        take_part(&g, i % 3, "k", 1);
        take_part(&g, i % 3, "v", 2);
        graph_node(&g, "Mul", "q third", "qs");
        transposed(&g, "k", "kt", DIMS(0, 1, 3, 2));
        graph_node(&g, "MatMul", "qs kt", "s");
        graph_node(&g, "Softmax", "s", "p");
        graph_node(&g, "MatMul", "p v", "h");
        transposed(&g, "h", "y", DIMS(0, 2, 1, 3));
        graph_output(&g, "y");
        if (i >= 3) graph_node(&g, "Tanh", "v", "other");
        if (i >= 3) graph_output(&g, "other");
        same_answer(&g, NULL, 0);
        assert_int_equal(graph_count(&g, "FusedAttention"), 1);
        assert_int_equal(graph_count(&g, "Transpose"), i >= 3);
        if (i < 3) assert_int_equal(g.model->graph->node_count, 1);
        graph_close(&g);
    }
}

/* What no tensor was taken from, a Squeeze of random numbers, is V as it is. */
static void parts_of_no_tensor_are_left(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "q", PARE_f32, 4, DIMS(2, 2, 5, 4));
    graph_input(&g, "kt", PARE_f32, 4, DIMS(2, 2, 4, 5));
    graph_ints(&g, "axis", 1, DIMS(1), &(int64_t){0});
    pare_node *random = graph_node(&g, "RandomNormal", "", "one");
    assert_int_equal(pare_node_set_ints(random, "shape", DIMS(1, 2, 2, 5, 4), 5), 0);
    assert_int_equal(pare_node_set_float(random, "seed", 1), 0);
    graph_node(&g, "Squeeze", "one axis", "v");
    graph_node(&g, "MatMul", "q kt", "s");
    graph_node(&g, "Softmax", "s", "p");
    graph_node(&g, "MatMul", "p v", "y");
    graph_output(&g, "y");
    same_answer(&g, NULL, 0);
    assert_int_equal(graph_count(&g, "FusedAttention"), 1);
    graph_close(&g);
}

/* A tensor that is kept, or a graph output, stays; one that others read too is read past. */
static void heads_that_are_seen_stay(void **state)
{
    (void)state;
    static const struct {
        const char *seen;
        int moved;
    } row[] = {{"q", 14}, {"kt", 13}, {"v", 11}, {"h", 7}, {"yt", 15}};
    for (int i = 0; i < 10; i++) {
        const char *seen = row[i / 2].seen;
        graph_case g;
        heads_graph(&g, PARE_f32, 15);
        if (i % 2) graph_output(&g, seen);
        same_answer(&g, &seen, 1 - i % 2);
        assert_int_equal(graph_count(&g, "FusedAttention"), 1);
        assert_non_null(graph_value(&g, seen)->producer);
        heads_are(&g, row[i / 2].moved);
        graph_close(&g);
    }
    graph_case g;
    heads_graph(&g, PARE_f32, 15);
    graph_node(&g, "Tanh", "v", "more");
    graph_output(&g, "more");
    same_answer(&g, NULL, 0);
    heads_are(&g, 15);
    assert_int_equal(graph_count(&g, "Transpose"), 1);
    graph_close(&g);
}

/* Two Transposes that undo each other go, one that moves a single channel is a Reshape, and the one
   that reads channels-last what a Conv wrote channels-last is a View. */
static void moves_that_move_nothing(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, DIMS(1, 1, 6, 5));
    weight(&g, "w", 4, DIMS(7, 1, 3, 3));
    assert_int_equal(
        pare_node_set_ints(graph_node(&g, "Transpose", "x", "a"), "perm", DIMS(0, 2, 3, 1), 4), 0);
    assert_int_equal(
        pare_node_set_ints(graph_node(&g, "Transpose", "a", "b"), "perm", DIMS(0, 3, 1, 2), 4), 0);
    graph_node(&g, "Conv", "b w", "c");
    assert_int_equal(
        pare_node_set_ints(graph_node(&g, "Transpose", "c", "d"), "perm", DIMS(0, 2, 3, 1), 4), 0);
    graph_node(&g, "Tanh", "d", "y");
    graph_output(&g, "y");
    same_answer(&g, NULL, 0);
    assert_int_equal(graph_count(&g, "Transpose"), 0);
    assert_int_equal(graph_count(&g, "Reorder"), 0);
    assert_int_equal(graph_count(&g, "View"), 1);
    assert_int_equal(g.model->graph->node_count, 3);
    graph_close(&g);
}

/* Max(x, 0) is a Relu where QuantizeLinear alone reads it, and is left beside other bounds. */
static void a_max_before_codes_is_a_relu(void **state)
{
    (void)state;
    static const float bounds[] = {0, 0, 1, 0}, scale = 0.5f;
    static const char *const reader[] = {"QuantizeLinear", "QuantizeLinear", "QuantizeLinear",
                                         "Abs"};
    for (int i = 0; i < 4; i++) {
        const int relus = i < 2;
        graph_case g;
        graph_open(&g, 19);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 3});
        graph_floats(&g, "c", 0, NULL, &bounds[i]);
        graph_floats(&g, "s", 0, NULL, &scale);
        graph_node(&g, "Max", i == 1 ? "c x" : "x c", "m");
        graph_node(&g, reader[i], i < 3 ? "m s" : "m", "y");
        graph_output(&g, "y");
        passes(&g.ctx, g.model, NULL, 0);
        assert_int_equal(graph_count(&g, "Relu"), relus);
        assert_int_equal(graph_count(&g, "Max"), 1 - relus);
        graph_close(&g);
    }
}

/* The sample nets: the same logits for 3 images, and products left with their epilogues. */
static void sample_nets(void **state)
{
    (void)state;
    static const char *const net[] = {"mlp", "cnn", "resnet", "mobilenet", "vit"};
    static const int fused[] = {2, 3, 13, 20, 20}; /* a Relu, Clip, Gelu or Add each */
    for (int k = 0; k < 5; k++) {
        pare_ctx ctx;
        pare_model *m, *f;
        char path[64];
        int64_t n, after_n;
        pare_ctx_init(&ctx);
        snprintf(path, sizeof path, "datasets/zoo/%s.onnx", net[k]);
        if (pare_onnx_read(&ctx, &m, path) != PARE_OK) fail_msg("%s", ctx.message);
        pare_input_shape in = {m->graph->in.item[0]->name, m->graph->in.item[0]->shape};
        for (int i = 0; i < in.shape.rank; i++)
            if (in.shape.dim[i] < 0) in.shape.dim[i] = 3;
        assert_int_equal(pare_model_clone(&ctx, &f, m), PARE_OK);
        f->graph->in.item[0]->shape = in.shape;
        float *x = noise(pare_shape_count(&in.shape), 9), high = 0;
        float *before = outputs(&ctx, m, &in, 1, x, &n);
        passes(&ctx, f, NULL, 0);
        float *after = outputs(&ctx, f, &in, 1, x, &after_n);
        assert_int_equal(n, after_n);
        for (int64_t i = 0; i < n; i++) high = fabsf(before[i]) > high ? fabsf(before[i]) : high;
        for (int64_t i = 0; i < n; i++) assert_true(fabsf(before[i] - after[i]) <= 1e-5f * high);
        graph_case g = {.model = f};
        int products = graph_count(&g, "FusedConv") + graph_count(&g, "FusedMatMul");
        if (products != fused[k])
            fail_msg("%s: %d fused products, expected %d", net[k], products, fused[k]);
        assert_int_equal(graph_count(&g, "FusedAttention"), k == 4 ? 5 : 0);
        free(x);
        free(before);
        free(after);
        pare_model_free(f);
        pare_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_takes_what_follows),
        cmocka_unit_test(kept_names_survive),
        cmocka_unit_test(activations),
        cmocka_unit_test(norm_is_recognized),
        cmocka_unit_test(attention_is_recognized),
        cmocka_unit_test(heads_are_read_where_they_lie),
        cmocka_unit_test(heads_that_are_seen_stay),
        cmocka_unit_test(parts_of_a_product_are_read_there),
        cmocka_unit_test(parts_of_no_tensor_are_left),
        cmocka_unit_test(concat_is_spread),
        cmocka_unit_test(moves_that_move_nothing),
        cmocka_unit_test(a_max_before_codes_is_a_relu),
        cmocka_unit_test(sample_nets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
