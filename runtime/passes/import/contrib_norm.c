/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX Runtime's normalizations with sums inside, RMS normalization (Zhang and Sennrich 2019)
   spelled out, and activations with a bias. */
#include "runtime/passes/import/contrib.h"

static pare_value *in(const pare_contrib *c, int i) { return pare_node_in(c->node, i); }

static void need(pare_contrib *c, int i)
{
    if (c->status == PARE_OK && !in(c, i)) CONTRIB_FAIL(c, INPUT, "its input %d is missing", i);
}

static void set_string(pare_contrib *c, const char *name, const char *text)
{
    if (c->status == PARE_OK) c->status = pare_node_set_string(c->last, name, text);
}

/* --- normalization --- */

/* Over the last axis, to output 0; mean and 1 / deviation are outputs 1 and 2. */
static void layer_norm(pare_contrib *c, pare_value *x, pare_value *scale, pare_value *bias,
                       float epsilon)
{
    pare_value *const inputs[] = {x, scale, bias};
    const bool more =
        c->node->out_count > 2 && (pare_contrib_has_out(c, 1) || pare_contrib_has_out(c, 2));
    pare_contrib_op_new(c, 0, "LayerNormalization", inputs, 3, more ? 3 : 1);
    pare_contrib_int(c, "axis", -1);
    pare_contrib_float(c, "epsilon", epsilon);
}

/* x / sqrt(mean(x^2) + epsilon) * scale over some axes, in f32 where x is shorter; 1 / the root is
   output `deviation`. */
static void rms_norm(pare_contrib *c, pare_value *x, pare_value *scale, pare_value *axes,
                     float epsilon, int deviation)
{
    const pare_dtype type = c->status == PARE_OK ? in(c, 0)->dtype : PARE_f32;
    const bool narrow = type == PARE_f16 || type == PARE_bf16;
    if (c->status == PARE_OK && !pare_type_is_float(type)) {
        CONTRIB_FAIL(c, UNSUPPORTED, "the type of tensor '%s' is unknown or not supported",
                     in(c, 0)->name);
        return;
    }
    if (narrow) {
        x = OP(c, "Cast", x);
        pare_contrib_int(c, "to", PARE_f32);
    }
    pare_value *mean = OP(c, "ReduceMean", OP(c, "Mul", x, x), axes);
    pare_value *small = narrow ? pare_contrib_constant(c, "epsilon", PARE_f32, 0, NULL, &epsilon)
                               : pare_contrib_number(c, in(c, 0), epsilon);
    pare_value *root = OP(c, "Sqrt", OP(c, "Add", mean, small));
    if (pare_contrib_has_out(c, deviation)) OP_TO(c, deviation, "Reciprocal", root);
    pare_value *y = OP(c, "Div", x, root);
    if (narrow) {
        y = OP(c, "Cast", y);
        pare_contrib_int(c, "to", type);
    }
    OP_TO(c, 0, "Mul", y, scale);
}

void pare_contrib_simplified_layer_norm(pare_contrib *c)
{
    const int64_t axis = pare_node_int(c->node, "axis", -1);
    const int rank = in(c, 0)->shape.rank;
    int64_t axes[PARE_MAX_RANK];
    int count = 0;
    need(c, 1);
    if (c->status == PARE_OK && axis >= 0 && rank < 0)
        CONTRIB_FAIL(c, UNSUPPORTED, "the rank of '%s' is unknown, which attribute 'axis' needs",
                     in(c, 0)->name);
    else if (c->status == PARE_OK && (axis >= PARE_MAX_RANK || axis < -PARE_MAX_RANK))
        CONTRIB_FAIL(c, INPUT, "attribute 'axis' is outside the rank");
    if (c->status != PARE_OK) return;
    for (int64_t i = axis < 0 ? axis : axis - rank; i < 0; i++) axes[count++] = i;
    rms_norm(c, in(c, 0), in(c, 1), pare_contrib_ints(c, axes, count),
             pare_node_float(c->node, "epsilon", 1e-5f), 1);
}

/* input + skip + bias; it is output 3. */
static pare_value *skip_sum(pare_contrib *c, pare_value *bias)
{
    need(c, 1), need(c, 2);
    const int to = pare_contrib_has_out(c, 3) ? 3 : -1;
    pare_value *x = OP_TO(c, bias ? -1 : to, "Add", in(c, 0), in(c, 1));
    return bias ? OP_TO(c, to, "Add", x, bias) : x;
}

void pare_contrib_skip_layer_norm(pare_contrib *c)
{
    pare_value *x = skip_sum(c, in(c, 4));
    layer_norm(c, x, in(c, 2), in(c, 3), pare_node_float(c->node, "epsilon", 1e-12f));
}

void pare_contrib_skip_simplified_layer_norm(pare_contrib *c)
{
    pare_value *x = skip_sum(c, in(c, 3)), *axes = INTS(c, -1);
    rms_norm(c, x, in(c, 2), axes, pare_node_float(c->node, "epsilon", 1e-12f), 2);
}

/* Inputs: words, segments or none, three tables (words, positions, segments), scale, bias, a mask
   or none, positions or none. Outputs: the result, the mask's sums, the sum that is normalized. */
void pare_contrib_embed_layer_norm(pare_contrib *c)
{
    const int needed[] = {2, 3, 5, 6};
    for (int i = 0; i < 4; i++) need(c, needed[i]);
    if (c->status == PARE_OK && pare_contrib_has_out(c, 1) && !in(c, 7))
        CONTRIB_FAIL(c, UNSUPPORTED, "output 1, '%s', needs the mask, input 7",
                     c->node->out[1]->name);
    pare_value *place;
    if (in(c, 8)) {
        place = OP(c, "Gather", in(c, 3), in(c, 8));
    } else {
        pare_value *length = OP(c, "Shape", in(c, 0));
        pare_contrib_int(c, "start", 1);
        place = OP(c, "Slice", in(c, 3), INTS(c, 0), length, INTS(c, 0));
    }
    const bool segments = in(c, 1) && in(c, 4);
    const int to = pare_contrib_has_out(c, 2) ? 2 : -1;
    pare_value *x = OP(c, "Gather", in(c, 2), in(c, 0));
    x = OP_TO(c, segments ? -1 : to, "Add", x, place);
    if (segments) x = OP_TO(c, to, "Add", x, OP(c, "Gather", in(c, 4), in(c, 1)));
    if (pare_contrib_has_out(c, 1)) {
        OP_TO(c, 1, "ReduceSum", in(c, 7), INTS(c, 1));
        pare_contrib_int(c, "keepdims", 0);
    }
    pare_value *const inputs[] = {x, in(c, 5), in(c, 6)};
    pare_contrib_op_new(c, 0, "LayerNormalization", inputs, 3, 1);
    pare_contrib_int(c, "axis", -1);
    pare_contrib_float(c, "epsilon", pare_node_float(c->node, "epsilon", 1e-12f));
}

/* --- activations --- */

/* BiasGelu is exact, FastGelu by tanh. */
void pare_contrib_bias_gelu(pare_contrib *c)
{
    pare_value *x = in(c, 1) ? OP(c, "Add", in(c, 0), in(c, 1)) : in(c, 0);
    OP_TO(c, 0, "Gelu", x);
    if (c->node->op_type[0] == 'F') set_string(c, "approximate", "tanh");
}

/* x sigmoid(alpha x) */
void pare_contrib_quick_gelu(pare_contrib *c)
{
    const float alpha = pare_node_float(c->node, "alpha", 1.702f);
    pare_value *x = in(c, 0), *scaled = x;
    if (alpha != 1) scaled = OP(c, "Mul", x, pare_contrib_number(c, x, alpha));
    OP_TO(c, 0, "Mul", x, OP(c, "Sigmoid", scaled));
}

/* x + bias + skip */
void pare_contrib_bias_add(pare_contrib *c)
{
    need(c, 1), need(c, 2);
    OP_TO(c, 0, "Add", OP(c, "Add", in(c, 0), in(c, 1)), in(c, 2));
}
