/* SPDX-License-Identifier: Apache-2.0 */
/* Conv, MatMul, Gemm + bias + residual Add + activation become pare.FusedConv and pare.FusedMatMul:
   y = act(product + bias + z). Each step is taken where nothing else reads the tensor between. */
#include "runtime/ops/infer.h"
#include "runtime/ops/window.h"
#include "runtime/passes/optimize/fuse.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct chain {
    pare_node *node, *last;      /* the product, and the last node taken */
    pare_value *bias, *residual; /* [channels] or NULL; y's shape or NULL */
    const pare_value *bias_wide; /* a constant bias of another shape: made a vector at the end */
    const char *activation;      /* or NULL */
    float alpha, beta, factor;   /* of the activation; of the product (Gemm) */
    bool has_alpha, has_beta;
    int axis; /* of y: the channels */
    int64_t channels;
} chain;

/* --- the product --- */

static bool start_conv(pare_node *node, chain *c)
{
    const pare_shape *y = &node->out[0]->shape;
    if (y->rank < 3 || node->in[1]->shape.rank < 3 || node->in[1]->shape.dim[0] < 1) return false;
    c->axis = 1;
    c->channels = node->in[1]->shape.dim[0];
    c->bias = pare_node_in(node, 2);
    return true;
}

static bool start_matmul(pare_node *node, chain *c)
{
    const pare_shape *y = &node->out[0]->shape;
    if (y->rank < 2 || node->in[0]->shape.rank < 2 || node->in[1]->shape.rank < 2) return false;
    c->axis = y->rank - 1;
    c->channels = y->dim[c->axis];
    return c->channels > 0;
}

/* Gemm 13: alpha * A B + beta * C, where C is a bias along the last axis or a whole residual. */
static bool start_gemm(pare_node *node, chain *c)
{
    pare_value *bias = pare_node_in(node, 2);
    if (!start_matmul(node, c)) return false;
    c->factor = pare_node_float(node, "alpha", 1);
    if (!bias) return true;
    if (pare_node_float(node, "beta", 1) != 1) return false;
    int64_t count = pare_shape_count(&bias->shape);
    if (pare_shape_equal(&bias->shape, &node->out[0]->shape) && bias->shape.dim[0] > 1) {
        if (bias->data) return false;
        c->residual = bias;
    } else if (count == c->channels && bias->shape.rank == 1) {
        c->bias = bias;
    } else if (count == c->channels && bias->shape.dim[bias->shape.rank - 1] == count &&
               bias->data) {
        c->bias_wide = bias;
    } else {
        return false;
    }
    return true;
}

static bool start(pare_node *node, chain *c)
{
    *c = (chain){.node = node, .last = node, .factor = 1};
    if (node->in_count < 2 || !node->in[0] || !node->in[1] || node->in[0]->data ||
        !pare_type_is_float(node->in[0]->dtype) || node->in[0]->dtype == PARE_f64)
        return false;
    if (pare_node_is(node, "Conv")) return start_conv(node, c);
    if (pare_node_is(node, "MatMul")) return start_matmul(node, c);
    return pare_node_is(node, "Gemm") && start_gemm(node, c);
}

/* --- what follows --- */

/* A constant that holds one value for each channel, broadcast over every other axis of y. */
static bool is_channel_constant(const chain *c, const pare_value *v)
{
    int rank = c->node->out[0]->shape.rank;
    if (!v->data || v->shape.rank < 0 || v->shape.rank > rank || v->data->count != c->channels ||
        v->dtype != c->node->out[0]->dtype)
        return false;
    int axis = c->axis - (rank - v->shape.rank);
    return c->channels == 1 || (axis >= 0 && v->shape.dim[axis] == c->channels);
}

static void take_bias(const pare_fuse *f, chain *c)
{
    pare_node *add = pare_fuse_next(f, c->last->out[0], "Add");
    if (!add || c->bias || c->bias_wide || c->residual) return;
    const pare_value *other = pare_fuse_other(add, c->last->out[0]);
    if (!is_channel_constant(c, other) ||
        !pare_shape_equal(&add->out[0]->shape, &c->last->out[0]->shape))
        return;
    c->bias_wide = other;
    c->last = add;
}

static void take_residual(const pare_fuse *f, chain *c)
{
    pare_value *y = c->last->out[0];
    pare_node *add = pare_fuse_next(f, y, "Add");
    pare_value *z = add ? pare_fuse_other(add, y) : NULL;
    if (!z || z == y || z->data || c->residual || z->dtype != y->dtype || z->graph != f->graph ||
        !pare_shape_known(&y->shape) || !pare_shape_equal(&z->shape, &y->shape))
        return;
    c->residual = z;
    c->last = add;
}

static void set_activation(chain *c, pare_node *last, const char *word)
{
    c->activation = word;
    c->last = last;
}

/* y * Sigmoid(y), y * HardSigmoid(y; 1/6, 1/2): two uses, joined at once. */
static bool take_gated(const pare_fuse *f, chain *c)
{
    pare_value *y = c->last->out[0];
    if (y->user_count != 2 || !pare_fuse_may_vanish(f, y)) return false;
    int at = pare_node_is(y->user[0], "Mul") ? 0 : 1;
    pare_node *mul = y->user[at], *gate = y->user[1 - at];
    bool silu = pare_node_is(gate, "Sigmoid");
    bool hard = pare_node_is(gate, "HardSigmoid") &&
                fabsf(pare_node_float(gate, "alpha", 0.2f) - 1.f / 6) < 1e-4f &&
                fabsf(pare_node_float(gate, "beta", 0.5f) - 0.5f) < 1e-4f;
    if (!pare_node_is(mul, "Mul") || (!silu && !hard) || mul == gate) return false;
    if (pare_fuse_next(f, gate->out[0], "Mul") != mul || pare_fuse_other(mul, y) != gate->out[0])
        return false;
    set_activation(c, mul, silu ? "silu" : "hardswish");
    return true;
}

static bool clip_bounds(const pare_node *clip, chain *c)
{
    double low = -FLT_MAX, high = FLT_MAX;
    if (pare_node_in(clip, 1) && !pare_fuse_scalar(clip->in[1], &low)) return false;
    if (pare_node_in(clip, 2) && !pare_fuse_scalar(clip->in[2], &high)) return false;
    c->alpha = (float)low;
    c->beta = (float)high;
    c->has_alpha = c->has_beta = true;
    return true;
}

static void take_activation(const pare_fuse *f, chain *c)
{
    static const char *const plain[][2] = {
        {"Relu", "relu"}, {"Sigmoid", "sigmoid"}, {"Tanh", "tanh"}, {"HardSwish", "hardswish"}};
    pare_node *n = pare_fuse_only_use(f, c->last->out[0]);
    if (!n) {
        (void)take_gated(f, c);
        return;
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (pare_node_is(n, plain[i][0])) {
            set_activation(c, n, plain[i][1]);
            return;
        }
    if (pare_node_is(n, "Gelu")) {
        bool tanh = !strcmp(pare_node_string(n, "approximate", "none"), "tanh");
        set_activation(c, n, tanh ? "gelu_tanh" : "gelu");
    } else if (c->factor != 1) {
        return; /* alpha is taken */
    } else if (pare_node_is(n, "Clip") && n->in[0] == c->last->out[0] && clip_bounds(n, c)) {
        set_activation(c, n, "clip");
    } else if (pare_node_is(n, "LeakyRelu")) {
        c->alpha = pare_node_float(n, "alpha", 0.01f);
        c->has_alpha = true;
        set_activation(c, n, "leaky_relu");
    } else if (pare_node_is(n, "HardSigmoid")) {
        c->alpha = pare_node_float(n, "alpha", 0.2f);
        c->beta = pare_node_float(n, "beta", 0.5f);
        c->has_alpha = c->has_beta = true;
        set_activation(c, n, "hardsigmoid");
    }
}

/* --- the fused node --- */

static pare_status write_window(const pare_node *from, pare_node *to)
{
    pare_window w;
    int64_t strides[3], dilations[3], kernel[3], pads[6];
    PARE_TRY(pare_window_read(from, &from->in[0]->shape, from->in[1]->shape.dim + 2, &w));
    int first = 3 - w.nd;
    for (int i = 0; i < w.nd; i++) {
        strides[i] = w.stride[first + i];
        dilations[i] = w.dilation[first + i];
        kernel[i] = w.kernel[first + i];
        pads[i] = w.begin[first + i];
        pads[w.nd + i] = w.end[first + i];
    }
    PARE_TRY(pare_node_set_ints(to, "strides", strides, w.nd));
    PARE_TRY(pare_node_set_ints(to, "dilations", dilations, w.nd));
    PARE_TRY(pare_node_set_ints(to, "kernel_shape", kernel, w.nd));
    PARE_TRY(pare_node_set_ints(to, "pads", pads, 2 * w.nd));
    return pare_node_set_int(to, "group", pare_node_int(from, "group", 1));
}

static pare_status write_attributes(const chain *c, const pare_node *from, pare_node *to)
{
    if (pare_node_is(from, "Conv")) {
        PARE_TRY(write_window(from, to));
    } else {
        PARE_TRY(pare_node_set_int(to, "transA", pare_node_int(from, "transA", 0)));
        PARE_TRY(pare_node_set_int(to, "transB", pare_node_int(from, "transB", 0)));
    }
    if (c->factor != 1) PARE_TRY(pare_node_set_float(to, "alpha", c->factor));
    if (c->has_alpha) PARE_TRY(pare_node_set_float(to, "alpha", c->alpha));
    if (c->has_beta) PARE_TRY(pare_node_set_float(to, "beta", c->beta));
    return pare_node_set_string(to, "activation", c->activation ? c->activation : "none");
}

static pare_status emit(chain *c)
{
    pare_graph *g = c->node->graph;
    pare_node source = *c->node, *fresh; /* its attributes outlive it in the arena */
    pare_value *in[] = {source.in[0], source.in[1], c->bias, c->residual};
    if (c->bias_wide) {
        PARE_TRY(pare_fuse_vector(g, c->bias_wide, &in[2]));
    }
    bool conv = pare_node_is(c->node, "Conv");
    int count = in[3] ? 4 : in[2] ? 3 : 2;
    PARE_TRY(pare_fuse_replace(c->last, conv ? "FusedConv" : "FusedMatMul", PARE_DOMAIN, in, count,
                               &fresh));
    return write_attributes(c, &source, fresh);
}

/* A residual computed after the product's own place is fine (the fused node is where the last
   one was), but not one that is computed from the product itself: the chain's tensors have one
   reader, so that cannot be. */
pare_status pare_fuse_weighted(pare_fuse *f, pare_node *node, bool *changed)
{
    chain c;
    if (!start(node, &c)) return PARE_OK;
    bool conv = pare_node_is(node, "Conv");
    if (conv && strcmp(pare_node_string(node, "auto_pad", "NOTSET"), "NOTSET") &&
        !pare_shape_known(&node->in[0]->shape))
        return PARE_OK;
    take_bias(f, &c);
    take_residual(f, &c);
    take_activation(f, &c);
    if (c.last == node) return PARE_OK;
    *changed = true;
    return emit(&c);
}
