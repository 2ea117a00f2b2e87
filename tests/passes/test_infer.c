/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes, folded constants, and BatchNormalization folded into what is before it. */
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void infer(graph_case *g, pare_infer_options options)
{
    if (pare_pass_infer(g->model, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
}

/* y = reshape(x, [shape(x)[0], -1]) */
static void flatten_by_shape(graph_case *g, int64_t batch)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 3, (int64_t[]){batch, 3, 4});
    graph_ints(g, "zero", 0, NULL, (int64_t[]){0});
    graph_ints(g, "axes", 1, (int64_t[]){1}, (int64_t[]){0});
    graph_ints(g, "rest", 1, (int64_t[]){1}, (int64_t[]){-1});
    graph_node(g, "Shape", "x", "s");
    graph_node(g, "Gather", "s zero", "n");
    graph_node(g, "Unsqueeze", "n axes", "n1");
    assert_int_equal(pare_node_set_int(graph_node(g, "Concat", "n1 rest", "to"), "axis", 0),
                     PARE_OK);
    graph_node(g, "Reshape", "x to", "y");
    graph_output(g, "y");
}

static void shape_arithmetic_folds(void **state)
{
    (void)state;
    graph_case g;
    flatten_by_shape(&g, 2);
    infer(&g, (pare_infer_options){.fold = true});
    assert_int_equal(g.model->graph->node_count, 1);
    const pare_value *y = graph_value(&g, "y");
    assert_int_equal(y->shape.rank, 2);
    assert_int_equal(y->shape.dim[0], 2);
    assert_int_equal(y->shape.dim[1], 12);
    assert_int_equal(g.model->graph->init.count, 1); /* "to"; what only folded nodes read is gone */
    graph_close(&g);
}

/* A node that draws random numbers stays, whatever its inputs are. */
static void draws_are_not_folded(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_floats(&g, "c", 1, (int64_t[]){2}, (float[]){0.25f, 0.5f});
    graph_node(&g, "Neg", "c", "folds");
    graph_node(&g, "RandomNormalLike", "folds", "drawn");
    graph_node(&g, "Bernoulli", "c", "also");
    graph_node(&g, "Add", "drawn also", "y");
    graph_output(&g, "y");
    infer(&g, (pare_infer_options){.fold = true});
    assert_int_equal(g.model->graph->node_count, 3);
    assert_int_equal(graph_count(&g, "Neg"), 0);
    graph_close(&g);
}

static void unknown_sizes_stay_unknown(void **state)
{
    (void)state;
    graph_case g;
    flatten_by_shape(&g, -1);
    infer(&g, (pare_infer_options){.fold = true});
    assert_int_equal(g.model->graph->node_count, 5);
    const pare_value *y = graph_value(&g, "y");
    assert_int_equal(y->shape.rank, 2);
    assert_int_equal(y->shape.dim[0], -1);
    graph_close(&g);

    graph_open(&g, 17); /* the part of the shape that is known folds */
    graph_input(&g, "x", PARE_f32, 3, (int64_t[]){-1, 3, 4});
    assert_int_equal(pare_node_set_int(graph_node(&g, "Shape", "x", "s"), "start", -2), PARE_OK);
    graph_node(&g, "ConstantOfShape", "s", "y");
    graph_node(&g, "Relu", "y", "z");
    graph_output(&g, "z");
    infer(&g, (pare_infer_options){.fold = true, .fold_limit = 47});
    assert_int_equal(g.model->graph->node_count, 2); /* 48 bytes are above the limit */
    assert_int_equal(((const int64_t *)graph_value(&g, "s")->data->data)[1], 4);
    infer(&g, (pare_infer_options){.fold = true, .fold_limit = 48});
    assert_int_equal(g.model->graph->node_count, 1); /* what makes an output stays */
    graph_close(&g);
}

static void constants_need_no_alignment(void **state)
{
    (void)state;
    graph_case g;
    char bytes[13];
    const float a[3] = {1, 2, 3}, want[3] = {11, 22, 33};
    graph_open(&g, 17);
    pare_value *v = graph_floats(&g, "a", 1, (int64_t[]){3}, a);
    graph_floats(&g, "b", 1, (int64_t[]){3}, (float[]){10, 20, 30});
    memcpy(bytes + 1, a, sizeof a);
    pare_tensor odd = *v->data;
    odd.data = bytes + 1;
    v->data = &odd;
    graph_node(&g, "Add", "a b", "c");
    graph_node(&g, "Relu", "c", "y");
    graph_output(&g, "y");
    infer(&g, (pare_infer_options){.fold = true});
    assert_memory_equal(graph_value(&g, "c")->data->data, want, sizeof want);
    graph_close(&g);
}

static void weights_stay_quantized_when_asked(void **state)
{
    (void)state;
    const int8_t w[2] = {-3, 4};
    const float want[2] = {-1.5f, 2};
    graph_case g;
    pare_value *v;
    graph_open(&g, 17);
    assert_int_equal(pare_init_new(g.model->graph, &v, "w", PARE_s8, 1, (int64_t[]){2}, w),
                     PARE_OK);
    graph_floats(&g, "s", 0, NULL, (float[]){0.5f});
    graph_node(&g, "DequantizeLinear", "w s", "d");
    graph_node(&g, "Relu", "d", "y");
    graph_output(&g, "y");
    infer(&g, (pare_infer_options){.fold = true, .keep_dequantize = true});
    assert_int_equal(g.model->graph->node_count, 2);
    infer(&g, (pare_infer_options){.fold = true});
    assert_int_equal(g.model->graph->node_count, 1);
    assert_memory_equal(graph_value(&g, "d")->data->data, want, sizeof want);
    graph_close(&g);
}

static void contradictions_are_named(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 3});
    graph_input(&g, "z", PARE_f32, 2, (int64_t[]){2, 4});
    graph_node(&g, "Add", "x z", "y");
    graph_output(&g, "y");
    assert_int_equal(pare_pass_infer(g.model, &(pare_infer_options){0}), PARE_INPUT);
    assert_string_equal(g.ctx.message,
                        "m.onnx: node 'y' (Add): shapes [2,3] and [2,4] do not broadcast");
    graph_close(&g);

    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 3});
    graph_node(&g, "NoSuchThing", "x", "y");
    graph_output(&g, "y");
    infer(&g, (pare_infer_options){.lenient = true});
    assert_int_equal(pare_pass_infer(g.model, &(pare_infer_options){0}), PARE_UNSUPPORTED);
    assert_non_null(strstr(g.ctx.message, "m.onnx: node 'y' (NoSuchThing)"));
    graph_close(&g);
}

/* --- BatchNormalization --- */

static void add_batch_norm(graph_case *g, const char *in, const char *out, int64_t channels)
{
    /* s = gamma / sqrt(var) = 1.5, 0.5, -1, 2 ...; t = beta - mean s */
    static const float gamma[4] = {3, 1, -2, 4}, beta[4] = {0.5f, -1, 2, 0},
                       mean[4] = {1, 2, -1, 0}, variance[4] = {4, 4, 4, 4};
    char names[64];
    graph_floats(g, "gamma", 1, &channels, gamma);
    graph_floats(g, "beta", 1, &channels, beta);
    graph_floats(g, "mean", 1, &channels, mean);
    graph_floats(g, "variance", 1, &channels, variance);
    snprintf(names, sizeof names, "%s gamma beta mean variance", in);
    pare_node *n = graph_node(g, "BatchNormalization", names, out);
    assert_int_equal(pare_node_set_float(n, "epsilon", 0), PARE_OK);
}

static void a_convolution_takes_it_in(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){-1, 1, 1, 1});
    graph_floats(&g, "w", 4, (int64_t[]){2, 1, 1, 1}, (float[]){2, 6});
    graph_floats(&g, "b", 1, (int64_t[]){2}, (float[]){1, 4});
    graph_node(&g, "Conv", "x w b", "c");
    add_batch_norm(&g, "c", "y", 2);
    graph_output(&g, "y");
    infer(&g, (pare_infer_options){.fold = true});
    assert_int_equal(pare_pass_fold_batchnorm(g.model), PARE_OK);
    assert_int_equal(g.model->graph->node_count, 1);
    const float *w = graph_value(&g, "w")->data->data, *b = graph_value(&g, "b")->data->data;
    assert_true(w[0] == 3 && w[1] == 3);    /* 2 * 1.5, 6 * 0.5 */
    assert_true(b[0] == 0.5f && b[1] == 0); /* (1 - 1) 1.5 + 0.5, (4 - 2) 0.5 - 1 */
    assert_int_equal(g.model->graph->init.count, 2);
    assert_ptr_equal(graph_value(&g, "y")->producer, g.model->graph->node[0]);
    graph_close(&g);
}

/* The same outputs before and after for every operator it folds into. */
static void outputs_stay_equal(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        int rank;
        int64_t x[4], w[4];
        int group, trans_b;
        float beta;
        int64_t outputs;
    } cases[] = {
        {"Conv", 4, {1, 4, 3, 3}, {4, 2, 2, 2}, 2, 0, 1, 16},
        {"ConvTranspose", 4, {1, 4, 2, 2}, {4, 2, 2, 2}, 2, 0, 1, 36},
        {"ConvTranspose", 4, {1, 2, 2, 2}, {2, 4, 2, 2}, 1, 0, 1, 36},
        {"Gemm", 2, {3, 5}, {5, 4}, 0, 0, 2, 12},
        {"Gemm", 2, {3, 5}, {4, 5}, 0, 1, 1, 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_case g;
        float x[64], w[64], before[36], after[36];
        for (int k = 0; k < 64; k++)
            x[k] = (float)(k * 37 % 11) - 5, w[k] = (float)(k * 29 % 7) - 3;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, cases[i].rank, cases[i].x);
        graph_floats(&g, "w", cases[i].rank, cases[i].w, w);
        graph_floats(&g, "b", 1, (int64_t[]){4}, (float[]){1, -2, 3, 0.5f});
        pare_node *n = graph_node(&g, cases[i].op, "x w b", "c");
        if (cases[i].group)
            assert_int_equal(pare_node_set_int(n, "group", cases[i].group), PARE_OK);
        else {
            assert_int_equal(pare_node_set_int(n, "transB", cases[i].trans_b), PARE_OK);
            assert_int_equal(pare_node_set_float(n, "beta", cases[i].beta), PARE_OK);
        }
        add_batch_norm(&g, "c", "y", 4);
        graph_output(&g, "y");
        infer(&g, (pare_infer_options){.fold = true});
        graph_run(&g, cases[i].rank, cases[i].x, x, before, cases[i].outputs);
        assert_int_equal(pare_pass_fold_batchnorm(g.model), PARE_OK);
        assert_int_equal(g.model->graph->node_count, 1);
        graph_run(&g, cases[i].rank, cases[i].x, x, after, cases[i].outputs);
        for (int64_t k = 0; k < cases[i].outputs; k++)
            assert_true(fabsf(before[k] - after[k]) <= 1e-5f * (1 + fabsf(before[k])));
        graph_close(&g);
    }
}

static void it_stays_where_others_look_in_between(void **state)
{
    (void)state;
    for (int why = 0; why < 2; why++) {
        graph_case g;
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 4, (int64_t[]){1, 1, 1, 1});
        graph_floats(&g, "w", 4, (int64_t[]){2, 1, 1, 1}, (float[]){2, 6});
        graph_node(&g, "Conv", "x w", "c");
        add_batch_norm(&g, "c", "y", 2);
        graph_output(&g, "y");
        if (why)
            graph_output(&g, "c");
        else {
            graph_node(&g, "Relu", "c", "z");
            graph_output(&g, "z");
        }
        infer(&g, (pare_infer_options){.fold = true});
        assert_int_equal(pare_pass_fold_batchnorm(g.model), PARE_OK);
        assert_int_equal(graph_count(&g, "BatchNormalization"), 1);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_arithmetic_folds),
        cmocka_unit_test(draws_are_not_folded),
        cmocka_unit_test(unknown_sizes_stay_unknown),
        cmocka_unit_test(constants_need_no_alignment),
        cmocka_unit_test(weights_stay_quantized_when_asked),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(a_convolution_takes_it_in),
        cmocka_unit_test(outputs_stay_equal),
        cmocka_unit_test(it_stays_where_others_look_in_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
