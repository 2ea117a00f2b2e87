/* SPDX-License-Identifier: Apache-2.0 */
/* Integer products that make f16 or bf16 themselves: the Casts around them go, and the plain
   kernels compute the same numbers. Products whose f32 is wanted stay. */
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"
#include "tests/passes/qdq_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 5, DEPTH = QDQ_WIDTH, COLUMNS = DEPTH, COUNT = ROWS * COLUMNS };

static void cast(graph_case *g, const char *from, const char *to, pare_dtype type)
{
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", from, to), "to", type), PARE_OK);
}

/* x -> q (s8) -> product to f32 plus `residual`, p -> short -> y; h: x in the short type, h32: that
   again in f32. */
static pare_node *product_make(graph_case *g, pare_dtype type, const char *residual)
{
    int8_t w[DEPTH * COLUMNS], zero = 0;
    float scale = 0.03f;
    char in[64];
    unsigned seed = 3;
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){ROWS, DEPTH});
    for (int i = 0; i < DEPTH * COLUMNS; i++) w[i] = (int8_t)qdq_noise(&seed, -127, 127);
    qdq_bytes(g, "w", PARE_s8, 2, (int64_t[]){DEPTH, COLUMNS}, w);
    qdq_bytes(g, "z", PARE_s8, 0, NULL, &zero);
    graph_floats(g, "s", 0, NULL, &scale);
    graph_floats(g, "ws", 1, (int64_t[]){1}, &scale);
    graph_node(g, "QuantizeLinear", "x s z", "q");
    cast(g, "x", "h", type);
    cast(g, "h", "h32", PARE_f32);
    snprintf(in, sizeof in, "q w - %s ws", residual);
    pare_node *p = graph_node(g, "FusedMatMul", in, "p");
    p->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_float(p, "x_scale", scale), PARE_OK);
    assert_int_equal(pare_node_set_int(p, "to", PARE_f32), PARE_OK);
    cast(g, "p", "short", type);
    cast(g, "short", "y", PARE_f32);
    graph_output(g, "y");
    return p;
}

static void infer(graph_case *g)
{
    pare_infer_options options;
    pare_infer_options_init(&options);
    assert_int_equal(pare_pass_infer(g->model, &options), PARE_OK);
}

static void run(graph_case *g, float *y)
{
    float x[ROWS * DEPTH];
    unsigned seed = 7;
    for (int i = 0; i < ROWS * DEPTH; i++) x[i] = (float)qdq_noise(&seed, -999, 999) * 0.0037f;
    infer(g);
    graph_run(g, 2, (int64_t[]){ROWS, DEPTH}, x, y, COUNT);
}

/* Runs before and after; `casts` are left. */
static void narrow(graph_case *g, int casts)
{
    float y[2][COUNT];
    run(g, y[0]);
    assert_int_equal(pare_pass_narrow_products(g->model), PARE_OK);
    run(g, y[1]);
    assert_int_equal(graph_count(g, "Cast"), casts);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    graph_close(g);
}

static void products_make_short_types(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_f16, PARE_bf16};
    for (int t = 0; t < 2; t++) {
        graph_case g;
        product_make(&g, types[t], "h32");
        narrow(&g, 2); /* x -> h, short -> y */
        product_make(&g, types[t], "-");
        narrow(&g, 1);
        product_make(&g, types[t], "x"); /* a residual of f32 stays */
        narrow(&g, 1);
    }
}

/* A second product of the same factors that adds the first's f32 sum. */
static void second_make(graph_case *g)
{
    pare_node *p = graph_node(g, "FusedMatMul", "q w - p ws", "p2");
    p->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_float(p, "x_scale", 0.03f), PARE_OK);
    assert_int_equal(pare_node_set_int(p, "to", PARE_f32), PARE_OK);
    cast(g, "p2", "short2", PARE_f16);
    cast(g, "short2", "y2", PARE_f32);
}

/* A sum that the file keeps in f32 is added in f32, though a Cast reads it, too. */
static void sums_in_f32_stay(void **state)
{
    (void)state;
    graph_case g;
    product_make(&g, PARE_f16, "h32");
    second_make(&g);
    pare_value *y = graph_value(&g, "y");
    pare_values_remove(&g.model->graph->out, y);
    graph_output(&g, "y2"); /* which is compared */
    graph_output(&g, "y");
    narrow(&g, 5); /* but p2 -> short2 */
}

/* The stream is rounded at each product before products make f16, and after. */
static void streams_of_residuals_stay(void **state)
{
    (void)state;
    graph_case g;
    const pare_infer_options options = {.fold = true, .keep_dequantize = true};
    qdq_stream(&g, ROWS);
    assert_int_equal(pare_pass_infer(g.model, &options), PARE_OK);
    assert_int_equal(pare_pass_fuse(g.model, NULL, 0), PARE_OK);
    assert_int_equal(pare_pass_infer(g.model, &options), PARE_OK);
    assert_int_equal(pare_pass_fold_qdq(g.model, PARE_KEEP_ALL), PARE_OK);
    assert_int_equal(graph_count(&g, "FusedMatMul"), 3);
    assert_int_equal(graph_count(&g, "Add"), 0);
    narrow(&g, 2); /* of x and y */
}

static void wanted_floats_stay(void **state)
{
    (void)state;
    graph_case g;
    product_make(&g, PARE_f16, "-");
    graph_node(&g, "Relu", "p", "read");
    graph_output(&g, "read");
    narrow(&g, 2); /* what nothing reads is gone */
    product_make(&g, PARE_f16, "-");
    graph_output(&g, "p");
    narrow(&g, 2);
}

/* output_dtype beside other results. */
static void other_types_are_refused(void **state)
{
    (void)state;
    static const pare_dtype to[][2] = {
        {PARE_s8, PARE_f16}, {PARE_f32, PARE_f64}, {PARE_f32, PARE_s8}};
    for (int i = 0; i < 3; i++) {
        graph_case g;
        pare_infer_options options;
        pare_infer_options_init(&options);
        pare_node *p = product_make(&g, PARE_f16, "-");
        assert_int_equal(pare_node_set_int(p, "to", to[i][0]), PARE_OK);
        assert_int_equal(pare_node_set_int(p, "output_dtype", to[i][1]), PARE_OK);
        assert_int_equal(pare_pass_infer(g.model, &options), PARE_INPUT);
        assert_non_null(strstr(g.ctx.message, "output_dtype"));
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_make_short_types), cmocka_unit_test(sums_in_f32_stay),
        cmocka_unit_test(streams_of_residuals_stay), cmocka_unit_test(wanted_floats_stay),
        cmocka_unit_test(other_types_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
