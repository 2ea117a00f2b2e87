/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the attributes of nodes of domain pare (fused.h). */
#include "runtime/ops/fused.h"

#include <math.h>
#include <string.h>

pare_status pare_act_read(const pare_node *node, pare_act *out)
{
    static const char *const words[PARE_ACT_COUNT] = {
        "none", "relu",      "clip",        "leaky_relu", "sigmoid",  "tanh",
        "silu", "hardswish", "hardsigmoid", "gelu",       "gelu_tanh"};
    const char *word = pare_node_string(node, "activation", "none");
    for (int i = 0; i < PARE_ACT_COUNT; i++) {
        if (strcmp(word, words[i])) continue;
        out->kind = (pare_act_kind)i;
        bool hard = i == PARE_ACT_HARDSIGMOID, clip = i == PARE_ACT_CLIP;
        out->alpha = out->beta = 0;
        if (hard || clip || i == PARE_ACT_LEAKY_RELU)
            out->alpha = pare_node_float(node, "alpha", hard ? 0.2f : clip ? -INFINITY : 0.01f);
        if (hard || clip) out->beta = pare_node_float(node, "beta", hard ? 0.5f : INFINITY);
        return PARE_OK;
    }
    return PARE_FAIL_NODE(node, UNSUPPORTED, "activation '%s' is not known", word);
}

bool pare_act_is_curved(const pare_act *act) { return act->kind > PARE_ACT_LEAKY_RELU; }

static pare_status scale_read(const pare_node *node, const char *name, float *out)
{
    *out = pare_node_float(node, name, 1);
    if (*out > 0 && isfinite(*out)) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "%s is %g, expected a positive number", name, (double)*out);
}

static pare_status zero_read(const pare_node *node, const char *name, int32_t *out)
{
    int64_t zero = pare_node_int(node, name, 0);
    if (zero < -128 || zero > 255)
        return PARE_FAIL_NODE(node, INPUT, "%s is %lld, expected an 8-bit value", name,
                              (long long)zero);
    *out = (int32_t)zero;
    return PARE_OK;
}

pare_status pare_quant_read(const pare_node *node, pare_quant_args *out)
{
    bool pair = pare_node_attr(node, "a_scale") || pare_node_attr(node, "b_scale");
    PARE_TRY(scale_read(node, pair ? "a_scale" : "x_scale", &out->x_scale));
    PARE_TRY(zero_read(node, pair ? "a_zero_point" : "x_zero_point", &out->x_zero));
    PARE_TRY(scale_read(node, pair ? "b_scale" : "z_scale", &out->z_scale));
    PARE_TRY(zero_read(node, pair ? "b_zero_point" : "z_zero_point", &out->z_zero));
    PARE_TRY(scale_read(node, "y_scale", &out->y_scale));
    PARE_TRY(zero_read(node, "y_zero_point", &out->y_zero));
    PARE_TRY(zero_read(node, "w_zero_point", &out->w_zero));
    const pare_value *x = pare_node_in(node, 0);
    out->to = (pare_dtype)pare_node_int(node, "to", x ? (int64_t)x->dtype : PARE_NOTYPE);
    if (pare_type_is_int8(out->to) || out->to == PARE_f32) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "output type %s, expected s8, u8 or f32",
                          pare_type(out->to)->name);
}
