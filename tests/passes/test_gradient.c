/* SPDX-License-Identifier: Apache-2.0 */
/* Every gradient rule against finite differences: f64, plain kernels, the loss a weighted sum of
   the operator's outputs, within 1e-6 of the tensor's largest gradient; and f32 with the kernels
   that serve against the same. Inputs stay away from ties of Relu, Clip, MaxPool. */
#include "runtime/ops/ops.h"
#include "runtime/passes/gradient.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_INPUTS = 8, MOST_DIMS = 6 };

/* Operands by their first letter: d2x3 floats around 0, p2x3 in [0.5, 1.5], u2x3 in [-0.9, 0.9],
   b2x3 in [1.5, 2.5]; k2x3 as d and c2x3 as p, constants; i1,2 and s1: constants, s64, a vector and
   a scalar;
   "-" absent. Attributes: "axis=i1 pads=l1,1 alpha=f0.5 mode=sx". outputs: how many. */
typedef struct rule_case {
    const char *op, *operands, *attributes;
    int outputs;
} rule_case;

typedef struct bench {
    graph_case g;
    pare_dtype dtype;
    const char *by[MOST_INPUTS];
    int by_count;
    double *x[MOST_INPUTS];
    pare_gradient gradient;
    pare_device *device; /* of the kernels that serve, where tests are built with one */
    pare_plan *plan;
    pare_runner *runner;
    uint64_t seed;
} bench;

static double uniform(bench *b, double low, double high)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(b->seed >> 33) / (double)(1u << 31);
}

static int parse_dims(const char *text, int64_t *dims)
{
    int rank = 0;
    while (*text) {
        char *end;
        dims[rank++] = strtoll(text, &end, 10);
        text = *end ? end + 1 : end;
    }
    return rank;
}

/* Away from 0, +-1, +-3, where functions have ties, by 0.02 and more. */
static double draw(bench *b, char kind)
{
    static const double tie[] = {0, 1, -1, 3, -3};
    if (kind == 'p' || kind == 'c') return uniform(b, 0.5, 1.5);
    if (kind == 'u') return uniform(b, -0.9, 0.9);
    if (kind == 'b') return uniform(b, 1.5, 2.5);
    for (;;) {
        double v = uniform(b, -2, 2) + uniform(b, -2, 2);
        bool near = false;
        for (size_t i = 0; i < sizeof tie / sizeof *tie; i++)
            near = near || fabs(v - tie[i]) < 0.02;
        if (!near) return v;
    }
}

static void add_floats(bench *b, const char *name, char kind, const char *text)
{
    int64_t dims[MOST_DIMS], count = 1;
    int rank = parse_dims(text, dims);
    for (int i = 0; i < rank; i++) count *= dims[i];
    double *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) x[i] = draw(b, kind);
    if (kind == 'k' || kind == 'c') {
        pare_value *v;
        float *narrow = malloc((size_t)count * sizeof *narrow);
        assert_non_null(narrow);
        for (int64_t i = 0; i < count; i++) x[i] = (double)(narrow[i] = (float)x[i]);
        const void *data = b->dtype == PARE_f64 ? (const void *)x : narrow;
        assert_int_equal(pare_init_new(b->g.model->graph, &v, name, b->dtype, rank, dims, data),
                         PARE_OK);
        free(narrow);
        free(x);
        return;
    }
    graph_input(&b->g, name, b->dtype, rank, dims);
    for (int64_t i = 0; i < count; i++) x[i] = (double)(float)x[i];
    b->by[b->by_count] = graph_value(&b->g, name)->name;
    b->x[b->by_count++] = x;
}

static void add_operands(bench *b, const rule_case *c, char *names)
{
    char copy[256], *rest;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", c->operands);
    *names = 0;
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest), n++) {
        int64_t ints[16];
        char name[16] = "-";
        if (*w != '-') snprintf(name, sizeof name, "x%d", n);
        if (*w == 'i' || *w == 's')
            graph_ints(&b->g, name, *w == 'i', (int64_t[]){parse_dims(w + 1, ints)},
                       (parse_dims(w + 1, ints), ints));
        else if (*w != '-')
            add_floats(b, name, *w, w + 1);
        strcat(strcat(names, name), " ");
    }
}

static void set_attribute(pare_node *node, char *text)
{
    char *value = strchr(text, '=');
    int64_t ints[16];
    *value++ = 0;
    pare_status st = *value == 'i'   ? pare_node_set_int(node, text, strtoll(value + 1, NULL, 10))
                     : *value == 'f' ? pare_node_set_float(node, text, strtof(value + 1, NULL))
                     : *value == 's'
                         ? pare_node_set_string(node, text, value + 1)
                         : pare_node_set_ints(node, text, ints, parse_dims(value + 1, ints));
    assert_int_equal(st, PARE_OK);
}

/* loss = the sum over outputs and elements of y * w, w constant in [0.5, 1.5] with a sign. */
static void add_loss(bench *b, int outputs)
{
    char all[64] = "";
    pare_infer_options options = {.fold = false};
    if (pare_pass_infer(b->g.model, &options) != PARE_OK) fail_msg("%s", b->g.ctx.message);
    for (int i = 0; i < outputs; i++) {
        char y[16], w[16], in[40], p[16], s[16];
        snprintf(y, sizeof y, "y%d", i);
        snprintf(w, sizeof w, "w%d", i);
        snprintf(p, sizeof p, "p%d", i);
        snprintf(s, sizeof s, "s%d", i);
        pare_shape shape = graph_value(&b->g, y)->shape;
        char text[128] = "";
        for (int k = 0; k < shape.rank; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", k ? "x" : "",
                     (long long)shape.dim[k]);
        add_floats(b, w, 'k', text);
        snprintf(in, sizeof in, "%s %s", y, w);
        graph_node(&b->g, "Mul", in, p);
        assert_int_equal(pare_node_set_int(graph_node(&b->g, "ReduceSum", p, s), "keepdims", 0),
                         PARE_OK);
        strcat(strcat(all, s), " ");
    }
    graph_node(&b->g, "Sum", all, "loss");
    graph_output(&b->g, "loss");
}

static void build(bench *b, const rule_case *c, pare_dtype dtype)
{
    char names[128], outs[64] = "", copy[256], *rest;
    memset(b, 0, sizeof *b);
    b->dtype = dtype;
    b->seed = 42;
    graph_open(&b->g, 21);
    add_operands(b, c, names);
    for (int i = 0; i < c->outputs; i++) sprintf(outs + strlen(outs), "y%d ", i);
    pare_node *node = graph_node(&b->g, c->op, names, outs);
    if (!pare_op_find("", c->op)) node->domain = PARE_DOMAIN;
    snprintf(copy, sizeof copy, "%s", c->attributes);
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        set_attribute(node, w);
    add_loss(b, c->outputs);
}

/* No step of the gradient's own operators may run on the host beside a device. */
static void expect_kernels_of_the_device(const bench *b)
{
    for (int i = 0; i < pare_plan_step_count(b->plan); i++) {
        pare_step_info step;
        pare_plan_step(b->plan, i, &step);
        if (!pare_op_find("", step.op_type) && strncmp(step.kernel, "cuda_", 5))
            fail_msg("%s runs %s", step.op_type, step.kernel);
    }
}

static void differentiate(bench *b, bool plain)
{
    pare_gradient_options options = {
        .loss = PARE_LOSS_TENSOR, .of = "loss", .by = b->by, .by_count = b->by_count};
    pare_plan_options run = {.threads = 1, .canonical = true, .reference = plain};
#ifdef CASE_DEVICE
    if (!plain && pare_device_open(&b->g.ctx, &b->device, "cuda") != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
    run.device = b->device;
#endif
    if (pare_pass_gradient(b->g.model, &b->gradient, &options) != PARE_OK ||
        pare_plan_new(&b->g.ctx, &b->plan, b->g.model, NULL, 0, &run) != PARE_OK ||
        pare_runner_new(&b->g.ctx, &b->runner, b->plan) != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
    if (b->device) expect_kernels_of_the_device(b);
}

static void put(pare_view *to, int64_t i, double v)
{
    if (to->dtype == PARE_f64)
        ((double *)to->data)[i] = v;
    else
        ((float *)to->data)[i] = (float)v;
}

static double get(const pare_view *from, int64_t i)
{
    return from->dtype == PARE_f64 ? ((const double *)from->data)[i]
                                   : (double)((const float *)from->data)[i];
}

static double loss(bench *b)
{
    if (pare_runner_run(b->runner) != PARE_OK) fail_msg("%s", b->g.ctx.message);
    pare_view out = pare_runner_output(b->runner, 0);
    return get(&out, 0);
}

static void feed(bench *b)
{
    for (int k = 0; k < b->by_count; k++) {
        pare_view to = pare_runner_input(b->runner, k);
        for (int64_t i = 0; i < pare_view_count(&to); i++) put(&to, i, b->x[k][i]);
    }
}

static double *gradient_of(bench *b, int k, int64_t *count)
{
    int at = 1;
    for (int i = 0; i < k; i++) at += b->gradient.gradient[i] != NULL;
    if (!b->gradient.gradient[k]) fail_msg("no gradient reaches input %d", k);
    pare_view out = pare_runner_output(b->runner, at);
    *count = pare_view_count(&out);
    double *all = malloc((size_t)*count * sizeof *all + 1);
    assert_non_null(all);
    for (int64_t i = 0; i < *count; i++) all[i] = get(&out, i);
    return all;
}

static void unbuild(bench *b)
{
    for (int k = 0; k < b->by_count; k++) free(b->x[k]);
    pare_runner_free(b->runner);
    pare_plan_free(b->plan);
    pare_device_close(b->device);
    graph_close(&b->g);
}

static void expect(const rule_case *c, int k, const double *got, const double *want, int64_t count,
                   double allowed)
{
    double top = 0;
    for (int64_t i = 0; i < count; i++) top = fmax(top, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= allowed * top + 1e-30))
            fail_msg("%s(%s; %s) input %d, element %lld: %.12g, expected %.12g (largest %g)", c->op,
                     c->operands, c->attributes, k, (long long)i, got[i], want[i], top);
}

/* Central differences of step h: errors h^2 f''' / 6 and 1e-16 / h, both below 1e-8. */
static void against_differences(bench *b, const rule_case *c, double *const *got,
                                const int64_t *count)
{
    const double h = 5e-5;
    for (int k = 0; k < b->by_count; k++) {
        pare_view to = pare_runner_input(b->runner, k);
        double *want = malloc((size_t)count[k] * sizeof *want + 1);
        assert_non_null(want);
        for (int64_t i = 0; i < count[k]; i++) {
            put(&to, i, b->x[k][i] + h);
            double more = loss(b);
            put(&to, i, b->x[k][i] - h);
            want[i] = (more - loss(b)) / (2 * h);
            put(&to, i, b->x[k][i]);
        }
        expect(c, k, got[k], want, count[k], 1e-6);
        free(want);
    }
}

static void check_rule(const rule_case *c)
{
    bench exact, fast;
    double *want[MOST_INPUTS];
    int64_t count[MOST_INPUTS];
    build(&exact, c, PARE_f64);
    differentiate(&exact, true);
    feed(&exact);
    loss(&exact);
    for (int k = 0; k < exact.by_count; k++) want[k] = gradient_of(&exact, k, &count[k]);
    against_differences(&exact, c, want, count);
    build(&fast, c, PARE_f32);
    differentiate(&fast, false);
    feed(&fast);
    loss(&fast);
    for (int k = 0; k < exact.by_count; k++) {
        double *got = gradient_of(&fast, k, &count[k]);
        expect(c, k, got, want[k], count[k], 2e-5);
        free(got);
        free(want[k]);
    }
    unbuild(&exact);
    unbuild(&fast);
}

static void elementwise(void **state)
{
    static const char *const plain[] = {
        "Relu",    "Abs",      "Neg",      "Erf",     "Sin",         "Cos",
        "Atan",    "Sinh",     "Cosh",     "Asinh",   "LeakyRelu",   "ThresholdedRelu",
        "Elu",     "Celu",     "Selu",     "Sigmoid", "HardSigmoid", "HardSwish",
        "Tanh",    "Softplus", "Softsign", "Gelu",    "Mish",        "Exp",
        "Identity"};
    static const char *const positive[] = {"Sqrt", "Reciprocal", "Log"};
    static const char *const unit[] = {"Tan", "Asin", "Acos", "Atanh"};
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        check_rule(&(rule_case){plain[i], "d3x7", "", 1});
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        check_rule(&(rule_case){positive[i], "p3x7", "", 1});
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
        check_rule(&(rule_case){unit[i], "u3x7", "", 1});
    check_rule(&(rule_case){"Acosh", "b2x5", "", 1});
    check_rule(&(rule_case){"Gelu", "d4x5", "approximate=stanh", 1});
    check_rule(&(rule_case){"LeakyRelu", "d4x5", "alpha=f0.3", 1});
    check_rule(&(rule_case){"Elu", "d4x5", "alpha=f0.7", 1});
    check_rule(&(rule_case){"Celu", "d4x5", "alpha=f0.5", 1});
    check_rule(&(rule_case){"HardSigmoid", "d4x5", "alpha=f0.3 beta=f0.4", 1});
}

static void broadcasting(void **state)
{
    static const rule_case cases[] = {
        {"Add", "d2x3x4 d4", "", 1},     {"Add", "d3x1 d1x5", "", 1},
        {"Sub", "d2x3 d1x3", "", 1},     {"Sub", "d3 d2x3", "", 1},
        {"Mul", "d2x3x4 d3x1", "", 1},   {"Mul", "d2x3 d2x3", "", 1},
        {"Div", "d2x3 p3", "", 1},       {"Div", "d1x3 p2x1", "", 1},
        {"Pow", "p2x3 d2x3", "", 1},     {"Pow", "p2x3 d3", "", 1},
        {"Min", "d2x3 d2x3", "", 1},     {"Max", "d2x3 d3 d2x1", "", 1},
        {"Sum", "d2x3 d3 d2x1", "", 1},  {"Mean", "d2x3 d3 d2x1", "", 1},
        {"PRelu", "d2x3x4 d3x1", "", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_rule(&cases[i]);
}

static void products(void **state)
{
    static const rule_case cases[] = {
        {"MatMul", "d3x4 d4x5", "", 1},
        {"MatMul", "d2x3x4 d4x5", "", 1},
        {"MatMul", "d2x3x4 d2x4x5", "", 1},
        {"MatMul", "d2x1x3x4 d3x4x5", "", 1},
        {"MatMul", "d3x4 d2x4x5", "", 1},
        {"MatMul", "d4 d4x5", "", 1},
        {"MatMul", "d3x4 d4", "", 1},
        {"MatMul", "d4 d4", "", 1},
        {"MatMul", "d4 d2x4x5", "", 1},
        {"MatMul", "d2x3x4 d4", "", 1},
        {"Gemm", "d3x4 d4x5 d5", "", 1},
        {"Gemm", "d3x4 d5x4 d3x1", "transB=i1 alpha=f0.5 beta=f2", 1},
        {"Gemm", "d4x3 d4x5", "transA=i1", 1},
        {"Gemm", "d4x3 d5x4 d3x5", "transA=i1 transB=i1 alpha=f1.5", 1},
        {"Gemm", "d3x4 d4x5 -", "alpha=f2", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_rule(&cases[i]);
}

static void convolutions(void **state)
{
    static const rule_case cases[] = {
        {"Conv", "d2x3x5x6 d4x3x3x3 d4", "pads=l1,1,1,1", 1},
        {"Conv", "d1x3x6x5 d4x3x3x2", "strides=l2,1 pads=l1,0,0,2", 1},
        {"Conv", "d2x4x5x5 d6x2x3x3 d6", "group=i2 pads=l1,1,1,1", 1},
        {"Conv", "d2x6x5x5 d6x1x3x3 d6", "group=i6 strides=l2,2 pads=l1,1,1,1", 1},
        {"Conv", "d2x3x7x7 d2x3x3x3", "dilations=l2,2 pads=l2,2,2,2", 1},
        {"Conv", "d2x5x4x4 d7x5x1x1 d7", "strides=l2,2", 1},
        {"Conv", "d1x2x6x6 d3x2x3x3", "auto_pad=sSAME_UPPER strides=l2,2", 1},
        {"Conv", "d2x3x8 d4x3x3 d4", "pads=l1,1 strides=l2", 1},
        {"Conv", "d1x2x4x4x4 d3x2x2x2x2", "pads=l1,0,0,0,1,0", 1},
        {"ConvTranspose", "d2x3x4x4 d3x2x3x3 d2", "strides=l2,2 pads=l1,1,1,1", 1},
        {"ConvTranspose", "d1x4x3x3 d4x2x3x3",
         "group=i2 strides=l2,2 pads=l1,1,1,1 output_padding=l1,1", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_rule(&cases[i]);
}

static void pools(void **state)
{
    static const rule_case cases[] = {
        {"MaxPool", "d2x3x6x6", "kernel_shape=l2,2 strides=l2,2", 1},
        {"MaxPool", "d2x3x6x5", "kernel_shape=l3,2 strides=l2,1 pads=l1,0,1,1", 1},
        {"MaxPool", "d1x2x7x7", "kernel_shape=l2,2 strides=l2,2 ceil_mode=i1 dilations=l2,2", 1},
        {"MaxPool", "d2x3x9", "kernel_shape=l3 strides=l2", 1},
        {"AveragePool", "d2x3x6x6", "kernel_shape=l3,3 strides=l2,2 pads=l1,1,1,1", 1},
        {"AveragePool", "d1x2x6x6",
         "kernel_shape=l3,3 strides=l2,2 pads=l1,1,1,1 count_include_pad=i1", 1},
        {"AveragePool", "d1x2x7x6", "kernel_shape=l2,3 strides=l2,2 ceil_mode=i1", 1},
        {"GlobalAveragePool", "d2x3x4x5", "", 1},
        {"GlobalMaxPool", "d2x3x4x5", "", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_rule(&cases[i]);
}

static void normalizations(void **state)
{
    static const rule_case cases[] = {
        {"Softmax", "d3x5", "axis=i-1", 1},
        {"Softmax", "d2x4x3", "axis=i1", 1},
        {"LogSoftmax", "d3x5", "axis=i1", 1},
        {"LayerNormalization", "d3x8 d8 d8", "", 1},
        {"LayerNormalization", "d2x3x4x5 d4x5 d4x5", "axis=i2 epsilon=f0.01", 1},
        {"LayerNormalization", "d11x6 d6", "", 1},
        {"BatchNormalization", "d2x3x4x4 d3 d3 k3 c3", "", 1},
        {"BatchNormalization", "d4x3 d3 d3 k3 c3", "epsilon=f0.1", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_rule(&cases[i]);
}

static void reductions(void **state)
{
    static const char *const ops[] = {"ReduceSum",       "ReduceMean",     "ReduceMax",
                                      "ReduceMin",       "ReduceL1",       "ReduceL2",
                                      "ReduceSumSquare", "ReduceLogSumExp"};
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        check_rule(&(rule_case){ops[i], "d2x3x4 i1", "", 1});
        check_rule(&(rule_case){ops[i], "d2x3x4 i0,2", "keepdims=i0", 1});
        check_rule(&(rule_case){ops[i], "d2x3x4", "", 1});
    }
    check_rule(&(rule_case){"ReduceLogSum", "p2x3x4 i-1", "keepdims=i0", 1});
    check_rule(&(rule_case){"ReduceSum", "d2x3", "noop_with_empty_axes=i1", 1});
}

static void moves(void **state)
{
    static const rule_case cases[] = {
        {"Reshape", "d2x6 i3,-1", "", 1},
        {"Flatten", "d2x3x4", "axis=i2", 1},
        {"Squeeze", "d2x1x3 i1", "", 1},
        {"Unsqueeze", "d2x3 i0,3", "", 1},
        {"Transpose", "d2x3x4", "perm=l2,0,1", 1},
        {"Transpose", "d2x3", "", 1},
        {"Concat", "d2x3 d2x1 d2x4", "axis=i1", 1},
        {"Split", "d2x7 i3,4", "axis=i1", 2},
        {"Split", "d6x2", "axis=i0 num_outputs=i3", 3},
        {"Slice", "d4x6 i1,0 i3,5 i0,1 i1,2", "", 1},
        {"Slice", "d5x4 i-1 i-6 i0 i-2", "", 1},
        {"Slice", "d5 i1 i4", "", 1},
        {"Expand", "d3x1 i2,3,4", "", 1},
        {"Tile", "d2x3 i2,3", "", 1},
        {"DepthToSpace", "d1x8x2x3", "blocksize=i2", 1},
        {"DepthToSpace", "d1x8x2x3", "blocksize=i2 mode=sCRD", 1},
        {"SpaceToDepth", "d1x2x4x6", "blocksize=i2", 1},
        {"Pad", "d2x3 i1,0,0,2", "", 1},
        {"Gather", "d4x3 i3,0,3", "", 1},
        {"Gather", "d2x4x3 s-1", "axis=i1", 1},
        {"GatherElements", "d4 i3,0,3", "", 1},
        {"Trilu", "d4x4", "upper=i0", 1},
        {"Dropout", "d2x3", "", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_rule(&cases[i]);
}

/* --- losses --- */

static void losses(void **state)
{
    static const rule_case cases[] = {
        {"CrossEntropy", "d4x5 i1,0,3,4", "", 1},
        {"CrossEntropy", "d4x5", "", 1},
        {"SoftmaxKL", "d4x5 k4x5", "", 1},
        {"SoftmaxKL", "d3x2x17 k3x2x17", "temperature=f4", 1},
        {"SoftmaxKL", "d1x40 k1x40", "temperature=f0.5", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_rule(&cases[i]);
}

static void add_loss_node(bench *b, const char *op, const char *in, const char *out)
{
    graph_node(&b->g, op, in, out)->domain = PARE_DOMAIN;
}

/* Nodes with both outputs, in a weighted sum. */
static void losses_are_weighted(void **state)
{
    const rule_case c = {"CrossEntropy and SoftmaxKL", "", "", 0};
    const int64_t rows = 4, labels[] = {2, 0, 4, 2};
    const float hard = 0.3f, soft = 0.7f;
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        bench b = {.dtype = plain ? PARE_f64 : PARE_f32, .seed = 5};
        int64_t count;
        graph_open(&b.g, 21);
        add_floats(&b, "x", 'd', "4x5");
        add_floats(&b, "teacher", 'k', "4x5");
        graph_ints(&b.g, "labels", 1, &rows, labels);
        graph_floats(&b.g, "a", 0, NULL, &hard);
        graph_floats(&b.g, "b", 0, NULL, &soft);
        add_loss_node(&b, "CrossEntropy", "x labels", "hard dhard");
        add_loss_node(&b, "SoftmaxKL", "x teacher", "soft dsoft");
        graph_node(&b.g, "CastLike", "a x", "a1");
        graph_node(&b.g, "CastLike", "b x", "b1");
        graph_node(&b.g, "Mul", "hard a1", "one");
        graph_node(&b.g, "Mul", "soft b1", "two");
        graph_node(&b.g, "Add", "one two", "loss");
        graph_output(&b.g, "loss");
        differentiate(&b, plain);
        feed(&b);
        loss(&b);
        double *got = gradient_of(&b, 0, &count);
        if (plain) against_differences(&b, &c, &got, &count);
        assert_int_equal(graph_count(&b.g, "CrossEntropy"), 1);
        assert_int_equal(graph_count(&b.g, "SoftmaxKL"), 1);
        free(got);
        unbuild(&b);
    }
}

/* With p = softmax(ln 3 / T, 0) and q = (1/2, 1/2): T^2 (p ln 2p + (1 - p) ln 2(1 - p)). */
static void divergence_is_the_formula_s(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++)
        for (int plain = 0; plain < 2; plain++) {
            graph_case g;
            const float teacher[] = {1.0986122887f, 0, 5, 5}, t = half ? 2 : 1;
            const double p = half ? 0.63397459621556135 : 0.75;
            const double want = (double)(t * t) * (p * log(2 * p) + (1 - p) * log(2 - 2 * p)) / 2;
            float student[] = {3, 3, -1, -1};
            graph_open(&g, 21);
            graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 2});
            graph_floats(&g, "teacher", 2, (int64_t[]){2, 2}, teacher);
            pare_node *node = graph_node(&g, "SoftmaxKL", "x teacher", "loss");
            node->domain = PARE_DOMAIN;
            assert_int_equal(pare_node_set_float(node, "temperature", t), PARE_OK);
            graph_output(&g, "loss");
            pare_plan *plan;
            pare_runner *runner;
            pare_plan_options options = {.threads = 1, .reference = plain};
            if (pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options) != PARE_OK)
                fail_msg("%s", g.ctx.message);
            assert_int_equal(pare_runner_new(&g.ctx, &runner, plan), PARE_OK);
            pare_runner_set_input(runner, 0, student);
            assert_int_equal(pare_runner_run(runner), PARE_OK);
            double got = (double)*(const float *)pare_runner_output(runner, 0).data;
            assert_true(fabs(got - want) < 1e-6);
            pare_runner_free(runner);
            pare_plan_free(plan);
            graph_close(&g);
        }
}

static void refuses(const char *operands, const char *attributes, const char *message)
{
    bench b;
    pare_plan *plan;
    char names[128], copy[64];
    memset(&b, 0, sizeof b);
    b.dtype = PARE_f32;
    graph_open(&b.g, 21);
    const rule_case c = {"SoftmaxKL", operands, attributes, 1};
    add_operands(&b, &c, names);
    pare_node *node = graph_node(&b.g, c.op, names, "y");
    node->domain = PARE_DOMAIN;
    snprintf(copy, sizeof copy, "%s", attributes);
    if (*copy) set_attribute(node, copy);
    graph_output(&b.g, "y");
    assert_int_equal(pare_plan_new(&b.g.ctx, &plan, b.g.model, NULL, 0, NULL), PARE_INPUT);
    assert_string_equal(b.g.ctx.message, message);
    for (int k = 0; k < b.by_count; k++) free(b.x[k]);
    graph_close(&b.g);
}

static void wrong_logits_are_named(void **state)
{
    (void)state;
    refuses("d2x3 k2x4", "",
            "m.onnx: node 'y' (SoftmaxKL): logits 'x0' are [2,3], those of the teacher ('x1') "
            "[2,4]");
    refuses("d2x3 k2x3", "temperature=f0",
            "m.onnx: node 'y' (SoftmaxKL): temperature is 0, it must be above 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise),
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(products),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(pools),
        cmocka_unit_test(normalizations),
        cmocka_unit_test(reductions),
        cmocka_unit_test(moves),
        cmocka_unit_test(losses),
        cmocka_unit_test(losses_are_weighted),
        cmocka_unit_test(divergence_is_the_formula_s),
        cmocka_unit_test(wrong_logits_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
