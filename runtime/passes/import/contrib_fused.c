/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, convolutions and pools of ONNX Runtime that have transposes, an activation, a
   residual or another order of axes inside. */
#include "runtime/passes/import/contrib.h"

#include <stdio.h>
#include <string.h>

static pare_value *in(const pare_contrib *c, int i) { return pare_node_in(c->node, i); }

/* --- FusedMatMul --- */

/* transBatch moves axis 0 before the last one, trans then swaps the last two. */
static pare_value *arranged(pare_contrib *c, pare_value *x, const char *trans, const char *batch)
{
    const bool swaps = pare_node_int(c->node, trans, 0) != 0;
    const bool moves = pare_node_int(c->node, batch, 0) != 0;
    const int rank = x ? x->shape.rank : 0;
    int64_t perm[PARE_MAX_RANK];
    if (c->status != PARE_OK || (!swaps && !moves)) return x;
    if (rank < 0) {
        CONTRIB_FAIL(c, UNSUPPORTED, "the rank of '%s' is unknown, which attribute '%s' needs",
                     x->name, swaps ? trans : batch);
        return NULL;
    }
    if (rank < 2) return x;
    for (int i = 0; i < rank; i++) perm[i] = i;
    for (int i = 0; moves && i < rank - 1; i++) perm[i] = i + 2 < rank ? i + 1 : 0;
    if (swaps) {
        const int64_t last = perm[rank - 1];
        perm[rank - 1] = perm[rank - 2];
        perm[rank - 2] = last;
    }
    return pare_contrib_transpose(c, -1, x, perm, rank);
}

void pare_contrib_fused_matmul(pare_contrib *c)
{
    const float alpha = pare_node_float(c->node, "alpha", 1);
    if (!in(c, 1)) {
        CONTRIB_FAIL(c, INPUT, "its input 1 is missing");
        return;
    }
    pare_value *a = arranged(c, in(c, 0), "transA", "transBatchA");
    pare_value *b = arranged(c, in(c, 1), "transB", "transBatchB");
    pare_value *y = OP_TO(c, alpha == 1 ? 0 : -1, "MatMul", a, b);
    if (alpha != 1) OP_TO(c, 0, "Mul", y, pare_contrib_number(c, in(c, 0), alpha));
}

/* --- activations --- */

typedef struct activation {
    const char *name;
    const char *attr[2]; /* the operator's, in the order of activation_params */
} activation;

static const activation activations[] = {
    {"Relu", {NULL}},
    {"Tanh", {NULL}},
    {"Sigmoid", {NULL}},
    {"Softplus", {NULL}},
    {"Softsign", {NULL}},
    {"HardSwish", {NULL}},
    {"LeakyRelu", {"alpha"}},
    {"Elu", {"alpha"}},
    {"Selu", {"alpha", "gamma"}},
    {"ThresholdedRelu", {"alpha"}},
    {"HardSigmoid", {"alpha", "beta"}},
};

/* FusedConv: a list. */
static bool listed(const pare_contrib *c, int i, float *out)
{
    const pare_attr *a = pare_node_attr(c->node, "activation_params");
    if (!a || a->kind != PARE_ATTR_FLOATS || i >= a->count) return false;
    *out = a->floats[i];
    return true;
}

/* FusedGemm: activation_alpha and so on. */
static bool named(const pare_contrib *c, const char *attr, float *out)
{
    char name[32];
    snprintf(name, sizeof name, "activation_%s", attr);
    if (!pare_node_attr(c->node, name)) return false;
    *out = pare_node_float(c->node, name, 0);
    return true;
}

static const char *activation_of(const pare_contrib *c)
{
    return pare_node_string(c->node, "activation", "");
}

pare_value *pare_contrib_activation(pare_contrib *c, int to, pare_value *x)
{
    const char *name = activation_of(c);
    float low, high;
    if (!strcmp(name, "Clip")) {
        pare_value *min = listed(c, 0, &low) ? pare_contrib_number(c, in(c, 0), low) : NULL;
        pare_value *max = listed(c, 1, &high) ? pare_contrib_number(c, in(c, 0), high) : NULL;
        return OP_TO(c, to, "Clip", x, min, max);
    }
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        const activation *a = &activations[i];
        if (strcmp(a->name, name)) continue;
        pare_value *y = OP_TO(c, to, name, x);
        for (int k = 0; k < 2 && a->attr[k]; k++)
            if (listed(c, k, &low) || named(c, a->attr[k], &low))
                pare_contrib_float(c, a->attr[k], low);
        return y;
    }
    CONTRIB_FAIL(c, UNSUPPORTED, "attribute 'activation' is '%s', which is not supported", name);
    return NULL;
}

void pare_contrib_fused_gemm(pare_contrib *c)
{
    const bool active = *activation_of(c);
    pare_value *y = OP_TO(c, active ? -1 : 0, "Gemm", in(c, 0), in(c, 1), in(c, 2));
    pare_contrib_copy(c, "alpha beta transA transB");
    if (active) pare_contrib_activation(c, 0, y);
}

/* --- convolutions --- */

static const char conv_attrs[] = "auto_pad dilations group kernel_shape pads strides";

/* y, the residual (input 3) and the activation make output 0. */
static void finish(pare_contrib *c, pare_value *y)
{
    const bool active = *activation_of(c);
    if (in(c, 3)) y = OP_TO(c, active ? -1 : 0, "Add", y, in(c, 3));
    if (active) pare_contrib_activation(c, 0, y);
}

void pare_contrib_fused_conv(pare_contrib *c)
{
    const bool more = *activation_of(c) || in(c, 3);
    pare_value *y = OP_TO(c, more ? -1 : 0, "Conv", in(c, 0), in(c, 1), in(c, 2));
    pare_contrib_copy(c, conv_attrs);
    finish(c, y);
}

void pare_contrib_nhwc_conv(pare_contrib *c)
{
    const bool more = *activation_of(c) || in(c, 3);
    pare_value *y = OP(c, "Conv", pare_contrib_channels_first(c, in(c, 0)), in(c, 1), in(c, 2));
    pare_contrib_copy(c, conv_attrs);
    finish(c, pare_contrib_channels_last(c, more ? -1 : 0, y));
}

void pare_contrib_nhwc_max_pool(pare_contrib *c)
{
    pare_value *y = OP(c, "MaxPool", pare_contrib_channels_first(c, in(c, 0)));
    pare_contrib_copy(c, "auto_pad ceil_mode dilations kernel_shape pads strides");
    pare_contrib_channels_last(c, 0, y);
}
