/* SPDX-License-Identifier: Apache-2.0 */
/* Operators between Casts that compute in the short type: the plain kernels, and a device where the
   tests are built with one, make the same numbers before and after. Factors are eighths of
   magnitude 2 and less, so that sums are exact in f32 in any order. */
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { NUMBERS = 4096 };

typedef struct fold_case {
    graph_case g;
    pare_dtype type;
    int used;           /* of the numbers */
    char parts[128];    /* what is compared */
    int64_t part_count; /* elements of it */
} fold_case;

static void open_case(fold_case *c, pare_dtype type)
{
    *c = (fold_case){.type = type};
    graph_open(&c->g, 21);
    graph_input(&c->g, "numbers", PARE_f32, 1, (int64_t[]){NUMBERS});
}

static pare_node *own(fold_case *c, const char *op, const char *in, const char *out)
{
    pare_node *node = graph_node(&c->g, op, in, out);
    node->domain = PARE_DOMAIN;
    return node;
}

static void cast(fold_case *c, const char *from, const char *to, pare_dtype type)
{
    assert_int_equal(pare_node_set_int(graph_node(&c->g, "Cast", from, to), "to", type), PARE_OK);
}

/* NAME: f32 numbers of these dims. */
static void take(fold_case *c, const char *name, int rank, const int64_t *dims)
{
    char text[64], flat[16], starts[16], ends[16], shape[16];
    int64_t count = 1, first = c->used, last;
    for (int i = 0; i < rank; i++) count *= dims[i];
    last = first + count;
    assert_true(last <= NUMBERS);
    c->used = (int)last;
    snprintf(flat, sizeof flat, "%s.flat", name), snprintf(shape, sizeof shape, "%s.dims", name);
    snprintf(starts, sizeof starts, "%s.from", name), snprintf(ends, sizeof ends, "%s.to", name);
    graph_ints(&c->g, starts, 1, (int64_t[]){1}, &first);
    graph_ints(&c->g, ends, 1, (int64_t[]){1}, &last);
    graph_ints(&c->g, shape, 1, (int64_t[]){rank}, dims);
    snprintf(text, sizeof text, "numbers %s %s", starts, ends);
    graph_node(&c->g, "Slice", text, flat);
    snprintf(text, sizeof text, "%s %s", flat, shape);
    graph_node(&c->g, "Reshape", text, name);
}

/* NAME.w: NAME rounded to the short type, as f32. */
static void store(fold_case *c, const char *name)
{
    char stored[16], wide[16];
    snprintf(stored, sizeof stored, "%s.s", name), snprintf(wide, sizeof wide, "%s.w", name);
    cast(c, name, stored, c->type);
    cast(c, stored, wide, PARE_f32);
}

static void take_stored(fold_case *c, const char *name, int rank, const int64_t *dims)
{
    take(c, name, rank, dims);
    store(c, name);
}

/* The tensor is compared. */
static void compare(fold_case *c, const char *name, int64_t count)
{
    static const int64_t all = -1;
    char text[64], shape[16], flat[16];
    snprintf(shape, sizeof shape, "%s.all", name), snprintf(flat, sizeof flat, "%s.row", name);
    graph_ints(&c->g, shape, 1, (int64_t[]){1}, &all);
    snprintf(text, sizeof text, "%s %s", name, shape);
    graph_node(&c->g, "Reshape", text, flat);
    snprintf(c->parts + strlen(c->parts), sizeof c->parts - strlen(c->parts), "%s ", flat);
    c->part_count += count;
}

static void infer(graph_case *g)
{
    pare_infer_options options;
    pare_infer_options_init(&options);
    if (pare_pass_infer(g->model, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
}

static float *run(fold_case *c)
{
    static float x[NUMBERS];
    float *y = malloc((size_t)c->part_count * sizeof *y);
    unsigned seed = 5;
    assert_non_null(y);
    for (int i = 0; i < NUMBERS; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((int)(seed >> 16) % 33 - 16) / 8;
    }
    infer(&c->g);
    graph_run(&c->g, 1, (int64_t[]){NUMBERS}, x, y, c->part_count);
    return y;
}

/* So many Casts are left. Returns what was computed before; a device folded them. */
static float *fold_only(fold_case *c, int casts)
{
    pare_node *join = graph_node(&c->g, "Concat", c->parts, "y");
    assert_int_equal(pare_node_set_int(join, "axis", 0), PARE_OK);
    graph_output(&c->g, "y");
    float *before = run(c);
    assert_int_equal(pare_pass_fold_casts(c->g.model), PARE_OK);
    infer(&c->g);
    assert_int_equal(graph_count(&c->g, "Cast"), casts);
    return before;
}

/* The same, and all numbers stay. */
static void fold(fold_case *c, int casts)
{
    float *before = fold_only(c, casts), *after = run(c);
    assert_memory_equal(before, after, (size_t)c->part_count * sizeof *before);
    free(before);
    free(after);
}

static pare_dtype type_of(const fold_case *c, const char *name)
{
    return graph_value(&c->g, name)->dtype;
}

static const pare_dtype types[] = {PARE_f16, PARE_bf16};

/* --- operators that have all their tensors short --- */

static void chains_compute_in_the_short_type(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        const float low = 0, high = 6;
        open_case(&c, types[t]);
        graph_floats(&c.g, "low", 0, NULL, &low);
        graph_floats(&c.g, "high", 0, NULL, &high);
        take_stored(&c, "x", 2, (int64_t[]){5, 9});
        graph_node(&c.g, "Sigmoid", "x.w", "r");
        store(&c, "r");
        graph_node(&c.g, "Clip", "x.w low high", "k");
        store(&c, "k");
        graph_node(&c.g, "Mul", "r.w k.w", "m");
        store(&c, "m");
        pare_node *grad = own(&c, "UnaryGrad", "m.w r.w", "d");
        assert_int_equal(pare_node_set_string(grad, "of", "Relu"), PARE_OK);
        store(&c, "d");
        compare(&c, "d.w", 45);
        fold(&c, 2); /* x -> short, d -> f32 */
        assert_int_equal(type_of(&c, "d.s"), types[t]);
        graph_close(&c.g);
    }
}

/* One constant that bf16 holds, and one that it does not. */
static void constants_are_short_where_nothing_is_lost(void **state)
{
    static const float number[] = {0.375f, 0.1f};
    (void)state;
    for (int k = 0; k < 2; k++) {
        fold_case c;
        open_case(&c, PARE_bf16);
        graph_floats(&c.g, "k", 0, NULL, &number[k]);
        take_stored(&c, "x", 1, (int64_t[]){30});
        graph_node(&c.g, "Max", "x.w k", "m");
        store(&c, "m");
        compare(&c, "m.w", 30);
        fold(&c, k ? 4 : 2);
        graph_close(&c.g);
    }
}

/* A vector, a number and a tensor stay f32, on either side. */
static void arithmetic_with_f32_makes_the_short_type(void **state)
{
    const float number = 0.1f;
    (void)state;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        open_case(&c, types[t]);
        graph_floats(&c.g, "k", 0, NULL, &number);
        take_stored(&c, "x", 2, (int64_t[]){6, 16});
        take(&c, "b", 1, (int64_t[]){16}), take(&c, "z", 2, (int64_t[]){6, 16});
        graph_node(&c.g, "Add", "x.w b", "p");
        graph_node(&c.g, "Div", "x.w k", "q");
        graph_node(&c.g, "Sub", "b x.w", "r");
        graph_node(&c.g, "Mul", "z x.w", "s");
        store(&c, "p"), store(&c, "q"), store(&c, "r"), store(&c, "s");
        compare(&c, "p.w", 96), compare(&c, "q.w", 96);
        compare(&c, "r.w", 96), compare(&c, "s.w", 96);
        fold(&c, 5); /* of x, and back of the others */
        assert_int_equal(graph_count(&c.g, "MixedBinary"), 4);
        graph_close(&c.g);
    }
}

/* --- convolutions --- */

static void set_ints(pare_node *node, const char *name, const int64_t *ints, int count)
{
    assert_int_equal(pare_node_set_ints(node, name, ints, count), PARE_OK);
}

static const int64_t pads[] = {1, 1, 1, 1}, px[] = {2, 8, 5, 6}, pw[] = {8, 8, 3, 3};

/* The gradient of weights stays f32, and so does a bias. */
static void convolutions_and_gradients_read_short_tensors(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        open_case(&c, types[t]);
        take_stored(&c, "x", 4, px);
        take_stored(&c, "w", 4, pw);
        take_stored(&c, "g", 4, px);
        take(&c, "b", 1, (int64_t[]){8});
        set_ints(graph_node(&c.g, "Conv", "x.w w.w", "p"), "pads", pads, 4);
        set_ints(graph_node(&c.g, "Conv", "x.w w.w b", "q"), "pads", pads, 4);
        pare_node *dx = own(&c, "ConvGradInput", "g.w w.w", "dx");
        pare_node *dw = own(&c, "ConvGradWeight", "g.w x.w", "dw");
        set_ints(dx, "pads", pads, 4), set_ints(dx, "shape", px, 4);
        set_ints(dw, "pads", pads, 4), set_ints(dw, "shape", pw, 4);
        store(&c, "p"), store(&c, "q"), store(&c, "dx");
        compare(&c, "p.w", 480), compare(&c, "q.w", 480);
        compare(&c, "dx.w", 480), compare(&c, "dw", 576);
        fold(&c, 6); /* of x, w and g, and back of p, q and dx */
        assert_int_equal(type_of(&c, "dw"), PARE_f32);
        assert_int_equal(graph_value(&c.g, "dw")->producer->in[0]->dtype, types[t]);
        assert_string_equal(graph_value(&c.g, "q.s")->producer->op_type, "FusedConv");
        assert_string_equal(graph_value(&c.g, "p.s")->producer->op_type, "Conv");
        graph_close(&c.g);
    }
}

/* What is read in f32 is made so. */
static void a_convolution_whose_sums_are_wanted_stays(void **state)
{
    fold_case c;
    (void)state;
    open_case(&c, PARE_bf16);
    take_stored(&c, "x", 4, px);
    take_stored(&c, "w", 4, pw);
    set_ints(graph_node(&c.g, "Conv", "x.w w.w", "p"), "pads", pads, 4);
    store(&c, "p");
    compare(&c, "p", 480), compare(&c, "p.w", 480);
    fold(&c, 6);
    graph_close(&c.g);
}

/* --- products --- */

static pare_node *gemm(fold_case *c, const char *in, const char *out, bool trans_a, float alpha)
{
    pare_node *node = graph_node(&c->g, "Gemm", in, out);
    assert_int_equal(pare_node_set_int(node, "transA", trans_a), PARE_OK);
    assert_int_equal(pare_node_set_float(node, "alpha", alpha), PARE_OK);
    assert_int_equal(pare_node_set_float(node, "beta", 0.5f), PARE_OK);
    return node;
}

static void products_make_f32_or_the_short_type(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        open_case(&c, types[t]);
        take_stored(&c, "a", 2, (int64_t[]){6, 8});
        take_stored(&c, "b", 2, (int64_t[]){8, 16});
        take_stored(&c, "d", 2, (int64_t[]){6, 16});
        take(&c, "k", 1, (int64_t[]){16});
        graph_node(&c.g, "MatMul", "a.w b.w", "m"); /* rounded */
        graph_node(&c.g, "MatMul", "a.w b.w", "f"); /* as f32 */
        gemm(&c, "a.w b.w k", "r", false, 1);       /* rounded, f32 bias */
        gemm(&c, "a.w d.w", "w", true, 0.5f);       /* as f32 */
        gemm(&c, "a.w b.w", "n", false, 2);         /* rounded */
        store(&c, "m"), store(&c, "r"), store(&c, "n");
        compare(&c, "m.w", 96), compare(&c, "f", 96), compare(&c, "r.w", 96);
        compare(&c, "w", 128), compare(&c, "n.w", 96);
        fold(&c, 6); /* of a, b and d, and back of m, r and n */
        assert_string_equal(graph_value(&c.g, "m.s")->producer->op_type, "MatMul");
        assert_string_equal(graph_value(&c.g, "f")->producer->op_type, "FusedMatMul");
        assert_string_equal(graph_value(&c.g, "r.s")->producer->op_type, "FusedMatMul");
        assert_string_equal(graph_value(&c.g, "w")->producer->op_type, "FusedMatMul");
        assert_string_equal(graph_value(&c.g, "n.s")->producer->op_type, "Gemm");
        assert_int_equal(type_of(&c, "f"), PARE_f32);
        graph_close(&c.g);
    }
}

/* A bias of several rows, and a vector for a factor, have no form beside f32. */
static void products_without_a_form_stay(void **state)
{
    fold_case c;
    (void)state;
    open_case(&c, PARE_bf16);
    take_stored(&c, "a", 2, (int64_t[]){6, 8});
    take_stored(&c, "b", 2, (int64_t[]){8, 16});
    take_stored(&c, "v", 1, (int64_t[]){8});
    take(&c, "k", 2, (int64_t[]){6, 1});
    gemm(&c, "a.w b.w k", "r", false, 1);
    graph_node(&c.g, "MatMul", "a.w v.w", "f");
    compare(&c, "r", 96), compare(&c, "f", 6);
    fold(&c, 6);
    graph_close(&c.g);
}

/* Kernels pack constant weights for products of one type. */
static void products_of_constants_do_not_mix_types(void **state)
{
    float eighths[8 * 8 * 9];
    (void)state;
    for (int i = 0; i < 8 * 8 * 9; i++) eighths[i] = (float)(i * 7 % 33 - 16) / 8;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        open_case(&c, types[t]);
        graph_floats(&c.g, "k", 2, (int64_t[]){8, 16}, eighths);
        graph_floats(&c.g, "w", 4, pw, eighths);
        take_stored(&c, "a", 2, (int64_t[]){6, 8});
        take_stored(&c, "x", 4, px);
        take(&c, "b", 1, (int64_t[]){8});
        graph_node(&c.g, "MatMul", "a.w k", "wide");
        graph_node(&c.g, "MatMul", "a.w k", "p");
        set_ints(graph_node(&c.g, "Conv", "x.w w b", "q"), "pads", pads, 4);
        set_ints(graph_node(&c.g, "Conv", "x.w w", "r"), "pads", pads, 4);
        store(&c, "p"), store(&c, "q"), store(&c, "r");
        compare(&c, "wide", 96), compare(&c, "p.w", 96);
        compare(&c, "q.w", 480), compare(&c, "r.w", 480);
        fold(&c, 5 + 3); /* of a, x, wide's a, q's x and q; what "NAME.w" is compared as */
        assert_int_equal(graph_count(&c.g, "FusedConv") + graph_count(&c.g, "FusedMatMul"), 0);
        assert_int_equal(type_of(&c, "p.s"), types[t]);
        assert_int_equal(graph_value(&c.g, "r.s")->producer->in[0]->dtype, types[t]);
        graph_close(&c.g);
    }
}

/* --- BatchNormalization --- */

/* Its other outputs are of its statistics' types, which it must not change. */
static void training_mode_stays(void **state)
{
    fold_case c;
    const int64_t vector[] = {8};
    (void)state;
    open_case(&c, PARE_bf16);
    take_stored(&c, "x", 4, px);
    take(&c, "s", 1, vector), take(&c, "b", 1, vector), take(&c, "m", 1, vector);
    graph_node(&c.g, "Abs", "m", "v");
    pare_node *norm = graph_node(&c.g, "BatchNormalization", "x.w s b m v", "n rm rv");
    assert_int_equal(pare_node_set_int(norm, "training_mode", 1), PARE_OK);
    store(&c, "n"), store(&c, "rm");
    compare(&c, "n.w", 480), compare(&c, "rm.w", 8);
    fold(&c, 6); /* none goes */
    assert_int_equal(type_of(&c, "rm"), PARE_f32);
    graph_close(&c.g);
}

/* Vectors of channels stay f32; sums are f64. */
static void normalization_reads_short_pictures(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        const int64_t vector[] = {8};
        open_case(&c, types[t]);
        take_stored(&c, "x", 4, px);
        take_stored(&c, "g", 4, px);
        take(&c, "s", 1, vector), take(&c, "b", 1, vector), take(&c, "m", 1, vector);
        graph_node(&c.g, "Mul", "m m", "mm");
        graph_node(&c.g, "Exp", "mm", "v");
        own(&c, "BatchNormStats", "x.w m", "sums");
        own(&c, "BatchNormTrain", "x.w s b sums m", "y1");
        own(&c, "BatchNormGradStats", "g.w x.w sums m", "gs ds db");
        own(&c, "BatchNormGradInput", "g.w x.w s sums m gs", "dx");
        graph_node(&c.g, "BatchNormalization", "x.w s b m v", "y2");
        store(&c, "y1"), store(&c, "dx"), store(&c, "y2");
        compare(&c, "y1.w", 480), compare(&c, "dx.w", 480), compare(&c, "y2.w", 480);
        compare(&c, "ds", 8), compare(&c, "db", 8);
        fold(&c, 5); /* of x and g, and back of y1, dx and y2 */
        assert_int_equal(type_of(&c, "ds"), PARE_f32);
        assert_int_equal(type_of(&c, "y2.s"), types[t]);
        graph_close(&c.g);
    }
}

/* What a bias's gradient is, and a mean that is rounded. */
static void sums_of_short_tensors_may_stay_f32(void **state)
{
    const int64_t axis = 1;
    (void)state;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        open_case(&c, types[t]);
        graph_ints(&c.g, "axes", 1, (int64_t[]){1}, &axis);
        take_stored(&c, "x", 2, (int64_t[]){6, 16});
        graph_node(&c.g, "ReduceSum", "x.w axes", "s");
        graph_node(&c.g, "ReduceMean", "x.w axes", "m");
        store(&c, "m");
        compare(&c, "s", 6), compare(&c, "m.w", 6);
        fold(&c, 2); /* of x, and back of m */
        assert_int_equal(type_of(&c, "s"), PARE_f32);
        assert_int_equal(type_of(&c, "m.s"), types[t]);
        graph_close(&c.g);
    }
}

/* Means of planes of 8 numbers: one is rounded, one stays f32. */
static void means_of_short_planes_may_stay_f32(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        open_case(&c, types[t]);
        take_stored(&c, "x", 4, (int64_t[]){2, 8, 2, 4});
        graph_node(&c.g, "GlobalAveragePool", "x.w", "m");
        graph_node(&c.g, "GlobalAveragePool", "x.w", "n");
        store(&c, "n");
        compare(&c, "m", 16), compare(&c, "n.w", 16);
        fold(&c, 2); /* of x, and back of n */
        assert_int_equal(type_of(&c, "m"), PARE_f32);
        assert_int_equal(type_of(&c, "n.s"), types[t]);
        graph_close(&c.g);
    }
}

/* The plain kernel of the gradient takes no short floats. */
static void rows_are_normalized_in_the_short_type(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        fold_case c;
        const int64_t dims[] = {6, 16}, vector[] = {16};
        open_case(&c, types[t]);
        take_stored(&c, "x", 2, dims), take_stored(&c, "g", 2, dims);
        take(&c, "s", 1, vector), take(&c, "b", 1, vector);
        graph_node(&c.g, "LayerNormalization", "x.w s b", "y1");
        store(&c, "y1");
        compare(&c, "y1.w", 96);
        pare_node *grad = own(&c, "LayerNormGrad", "g.w x.w s", "dx ds db");
        assert_int_equal(pare_node_set_int(grad, "axis", 1), PARE_OK);
        store(&c, "dx");
        compare(&c, "dx.w", 96), compare(&c, "ds", 16), compare(&c, "db", 16);
        free(fold_only(&c, 4)); /* of x and g, and back of y1 and dx */
        assert_int_equal(type_of(&c, "y1.s"), types[t]);
        assert_int_equal(type_of(&c, "ds"), PARE_f32);
        graph_close(&c.g);
    }
}

/* --- what stays --- */

/* x and z are read as f32 by way of `type` and `other`; all Casts stay. */
static void stays(const char *op, const char *in, int64_t count, pare_dtype other)
{
    fold_case c;
    static const int64_t axes = 1;
    open_case(&c, PARE_bf16);
    graph_ints(&c.g, "axes", 1, (int64_t[]){1}, &axes);
    take_stored(&c, "x", 2, (int64_t[]){4, 5});
    take(&c, "z", 2, (int64_t[]){4, 5});
    take(&c, "f", 2, (int64_t[]){4, 5});
    cast(&c, "z", "z.s", other);
    cast(&c, "z.s", "z.w", PARE_f32);
    graph_node(&c.g, op, in, "r");
    store(&c, "r");
    compare(&c, "z.w", 20), compare(&c, "x.w", 20), compare(&c, "r.w", count);
    fold(&c, 6);
    graph_close(&c.g);
}

static void operators_that_are_not_short_stay(void **state)
{
    (void)state;
    stays("Max", "x.w z.w", 20, PARE_f16); /* of two types */
    stays("Max", "x.w f", 20, PARE_bf16);  /* one as it is */
    stays("Pow", "x.w x.w", 20, PARE_bf16);
    stays("ReduceMax", "x.w axes", 4, PARE_bf16);
    stays("CumSum", "x.w axes", 20, PARE_bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_compute_in_the_short_type),
        cmocka_unit_test(constants_are_short_where_nothing_is_lost),
        cmocka_unit_test(arithmetic_with_f32_makes_the_short_type),
        cmocka_unit_test(convolutions_and_gradients_read_short_tensors),
        cmocka_unit_test(a_convolution_whose_sums_are_wanted_stays),
        cmocka_unit_test(products_make_f32_or_the_short_type),
        cmocka_unit_test(products_without_a_form_stay),
        cmocka_unit_test(products_of_constants_do_not_mix_types),
        cmocka_unit_test(training_mode_stays),
        cmocka_unit_test(normalization_reads_short_pictures),
        cmocka_unit_test(sums_of_short_tensors_may_stay_f32),
        cmocka_unit_test(means_of_short_planes_may_stay_f32),
        cmocka_unit_test(rows_are_normalized_in_the_short_type),
        cmocka_unit_test(operators_that_are_not_short_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
