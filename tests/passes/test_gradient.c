/* SPDX-License-Identifier: Apache-2.0 */
/* Every gradient rule against finite differences: f64, plain kernels, the loss a weighted sum of
   the operator's outputs, within 1e-6 of the tensor's largest gradient; and f32 with the kernels
   that serve against the same. Inputs stay away from ties of Relu, Clip, MaxPool. */
#include "tests/passes/gradient_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void elementwise(void **state)
{
    static const char *const plain[] = {
        "Relu",   "Abs",      "Neg",      "Erf",      "Sin",         "Cos",
        "Atan",   "Sinh",     "Cosh",     "Asinh",    "LeakyRelu",   "ThresholdedRelu",
        "Elu",    "Celu",     "Selu",     "Sigmoid",  "HardSigmoid", "HardSwish",
        "Shrink", "Tanh",     "Softplus", "Softsign", "Gelu",        "Mish",
        "Exp",    "Identity", "Swish"};
    static const char *const positive[] = {"Sqrt", "Reciprocal", "Log"};
    static const char *const unit[] = {"Tan", "Asin", "Acos", "Atanh"};
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        gradient_check(&(gradient_rule){plain[i], "d3x7", "", 1});
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        gradient_check(&(gradient_rule){positive[i], "p3x7", "", 1});
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
        gradient_check(&(gradient_rule){unit[i], "u3x7", "", 1});
    gradient_check(&(gradient_rule){"Acosh", "b2x5", "", 1});
    gradient_check(&(gradient_rule){"Gelu", "d4x5", "approximate=stanh", 1});
    gradient_check(&(gradient_rule){"LeakyRelu", "d4x5", "alpha=f0.3", 1});
    gradient_check(&(gradient_rule){"Elu", "d4x5", "alpha=f0.7", 1});
    gradient_check(&(gradient_rule){"Celu", "d4x5", "alpha=f0.5", 1});
    gradient_check(&(gradient_rule){"HardSigmoid", "d4x5", "alpha=f0.3 beta=f0.4", 1});
}

static void broadcasting(void **state)
{
    static const gradient_rule cases[] = {
        {"Add", "d2x3x4 d4", "", 1},      {"Add", "d3x1 d1x5", "", 1},
        {"Sub", "d2x3 d1x3", "", 1},      {"Sub", "d3 d2x3", "", 1},
        {"Mul", "d2x3x4 d3x1", "", 1},    {"Mul", "d2x3 d2x3", "", 1},
        {"Div", "d2x3 p3", "", 1},        {"Div", "d1x3 p2x1", "", 1},
        {"Pow", "p2x3 d2x3", "", 1},      {"Pow", "p2x3 d3", "", 1},
        {"Min", "d2x3 d2x3", "", 1},      {"Max", "d2x3 d3 d2x1", "", 1},
        {"Sum", "d2x3 d3 d2x1", "", 1},   {"Mean", "d2x3 d3 d2x1", "", 1},
        {"PRelu", "d2x3x4 d3x1", "", 1},  {"Where", "m2x3 d2x3 d3", "", 1},
        {"Where", "m3x1 d1 d3x4", "", 1}, {"Clip", "d3x7 - c", "", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gradient_check(&cases[i]);
}

static void products(void **state)
{
    static const gradient_rule cases[] = {
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gradient_check(&cases[i]);
}

/* By the operators that they are rewritten to. */
static void einsums(void **state)
{
    static const gradient_rule cases[] = {
        {"Einsum", "d3x4 d4x5", "equation=sij,jk->ki", 1},
        {"Einsum", "d2x3x4 d4x2x5", "equation=sbsd,dhk->bshk", 1},
        {"Einsum", "d2x4x3x5 d2x6x3x5", "equation=sbqhd,bkhd->bhqk", 1},
        {"Einsum", "d2x3 d3", "equation=s...i,i->...i", 1},
        {"Einsum", "d2x3x4", "equation=sabc->ca", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gradient_check(&cases[i]);
}

static void convolutions(void **state)
{
    static const gradient_rule cases[] = {
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gradient_check(&cases[i]);
}

static void pools(void **state)
{
    static const gradient_rule cases[] = {
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gradient_check(&cases[i]);
}

static void normalizations(void **state)
{
    static const gradient_rule cases[] = {
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gradient_check(&cases[i]);
}

static void reductions(void **state)
{
    static const char *const ops[] = {"ReduceSum",       "ReduceMean",     "ReduceMax",
                                      "ReduceMin",       "ReduceL1",       "ReduceL2",
                                      "ReduceSumSquare", "ReduceLogSumExp"};
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        gradient_check(&(gradient_rule){ops[i], "d2x3x4 i1", "", 1});
        gradient_check(&(gradient_rule){ops[i], "d2x3x4 i0,2", "keepdims=i0", 1});
        gradient_check(&(gradient_rule){ops[i], "d2x3x4", "", 1});
    }
    gradient_check(&(gradient_rule){"ReduceLogSum", "p2x3x4 i-1", "keepdims=i0", 1});
    gradient_check(&(gradient_rule){"ReduceSum", "d2x3", "noop_with_empty_axes=i1", 1});
}

static void moves(void **state)
{
    static const gradient_rule cases[] = {
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
        {"GatherND", "d4x3 i2", "", 1},
        {"GatherND", "d4x3 i2,1", "", 1},
        {"CastLike", "d2x3 k1", "", 1},
        {"Trilu", "d4x4", "upper=i0", 1},
        {"Dropout", "d2x3", "", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gradient_check(&cases[i]);
}

static const char *const steps[] = {"Sign", "Floor", "Ceil", "Round"};

/* Functions that are constant between their steps have gradient 0: of x + f(x) it is that of x. */
static void steps_have_gradient_0(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        gradient_bench b = {.dtype = PARE_f64, .seed = 3};
        const gradient_rule c = {steps[i], "d3x7", "", 1};
        int64_t count;
        graph_open(&b.g, 21);
        gradient_add_floats(&b, "x", 'd', "3x7");
        graph_node(&b.g, c.op, "x", "step");
        graph_node(&b.g, "Add", "x step", "y");
        assert_int_equal(
            pare_node_set_int(graph_node(&b.g, "ReduceSum", "y", "loss"), "keepdims", 0), PARE_OK);
        graph_output(&b.g, "loss");
        gradient_open(&b, true);
        gradient_feed(&b);
        gradient_loss(&b);
        double *got = gradient_of(&b, 0, &count);
        gradient_expect_differences(&b, &c, &got, &count);
        for (int64_t k = 0; k < count; k++) assert_true(got[k] == 1);
        free(got);
        gradient_close(&b);
    }
}

/* Every row of the operator table that claims a gradient rule has a case: above, or where
   the second word says. */
static void every_rule_has_a_case(void **state)
{
    static const char *const elsewhere[][2] = {
        {"Cast", "the rule is CastLike's"},      {"CrossEntropy", "passes_gradient_losses"},
        {"SoftmaxKL", "passes_gradient_losses"}, {"BatchNormTrain", "passes_train_batchnorm"},
        {"SliceSum", "passes_train_batchnorm"},  {"FakeQuantize", "passes_fake_quantize"},
    };
    int missing = 0;
    (void)state;
    for (int i = 0; i < PARE_OP_COUNT; i++) {
        const pare_op *op = &pare_ops[i];
        bool known = op->grad == pare_grad_none || gradient_was_checked(op);
        for (size_t k = 0; k < sizeof elsewhere / sizeof *elsewhere; k++)
            known = known || !strcmp(op->name, elsewhere[k][0]);
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
            known = known || !strcmp(op->name, steps[k]);
        if (known) continue;
        print_error("row %s: it claims a gradient, and no case checks it\n", op->name);
        missing++;
    }
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise),
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(products),
        cmocka_unit_test(einsums),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(pools),
        cmocka_unit_test(normalizations),
        cmocka_unit_test(reductions),
        cmocka_unit_test(moves),
        cmocka_unit_test(steps_have_gradient_0),
        cmocka_unit_test(every_rule_has_a_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
