/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for operators that give back what they are given, element by element:
   - Cast to the type that it has, and of a Cast that lost nothing;
   - Dropout without training; Relu of Relu, Floor of Floor and their like;
   - Concat of one tensor; Slice and Expand that keep the shape; Tile by 1; Pad by nothing;
   - times 1, over 1, minus 0, to the power of 1. */
#include "runtime/ops/infer.h"
#include "runtime/passes/optimize/fuse.h"

#include <string.h>

/* Bits of the integers that the type holds, all of them, beside their sign; 0: no such type. */
static int integer_bits(pare_dtype t, bool *has_sign)
{
    *has_sign = true;
    switch (t) {
    case PARE_s8:
    case PARE_s16:
    case PARE_s32:
    case PARE_s64: return pare_type(t)->bits - 1;
    case PARE_u8:
    case PARE_u16:
    case PARE_u32:
    case PARE_u64: *has_sign = false; return pare_type(t)->bits;
    case PARE_bool: *has_sign = false; return 1;
    case PARE_f64: return 53;
    case PARE_f32: return 24;
    case PARE_f16: return 11;
    case PARE_bf16: return 8;
    default: return 0;
    }
}

/* Does every number of narrow stay what it is as wide? */
static bool holds(pare_dtype wide, pare_dtype narrow)
{
    bool wide_sign, narrow_sign;
    const int have = integer_bits(wide, &wide_sign), need = integer_bits(narrow, &narrow_sign);
    if (!have || !need || wide == PARE_bool) return false;
    if (pare_type_is_float(narrow))
        return wide == PARE_f64 || (wide == PARE_f32 && narrow != PARE_f64);
    return have >= need && (wide_sign || !narrow_sign);
}

static pare_status cast(pare_fuse *f, pare_node *node, bool *changed)
{
    const pare_value *y = node->out[0];
    if (node->in[0]->dtype == y->dtype) return pare_fuse_bypass(f, node, node->in[0], changed);
    const pare_node *before = pare_fuse_maker(node, 0, "Cast");
    if (!before || !before->in[0] || before->in[0]->data) return PARE_OK;
    pare_value *x = before->in[0];
    if (!holds(node->in[0]->dtype, x->dtype)) return PARE_OK;
    if (x->dtype == y->dtype) return pare_fuse_bypass(f, node, x, changed);
    *changed = true;
    return pare_node_set_in(node, 0, x);
}

/* A Dropout that hands its input on and whose mask nothing reads. */
static bool is_still(const pare_node *node)
{
    const pare_value *mask = node->out_count > 1 ? node->out[1] : NULL;
    return !pare_node_drops(node) && !(mask && (mask->user_count || mask->is_output));
}

/* Is every number of the constant this one? */
static bool is_all(const pare_value *v, double wanted)
{
    if (!v || !v->data || !pare_type(v->dtype)->to_f32) return false;
    for (int64_t i = 0; i < v->data->count; i++)
        if (pare_tensor_number(v->data, i) != wanted) return false;
    return true;
}

/* Slice (13) from the first to the last of each of its axes. */
static bool takes_all(const pare_node *node)
{
    const pare_value *end = pare_node_in(node, 2), *step = pare_node_in(node, 4);
    const pare_shape *x = &node->in[0]->shape;
    if (step && !is_all(step, 1)) return false;
    if (pare_shape_known(x) && pare_shape_equal(x, &node->out[0]->shape)) return true;
    if (!is_all(pare_node_in(node, 1), 0) || !end || !end->data) return false;
    for (int64_t i = 0; i < end->data->count; i++)
        if (pare_tensor_number(end->data, i) < INT32_MAX) return false;
    return true;
}

static bool expands_nothing(const pare_node *node)
{
    const pare_value *x = node->in[0], *to = pare_node_in(node, 1);
    if (pare_shape_known(&x->shape) && pare_shape_equal(&x->shape, &node->out[0]->shape))
        return true;
    return is_all(to, 1) && x->shape.rank >= to->data->count;
}

/* A constant of one element beside a tensor of at least as many axes. */
static bool is_neutral(const pare_node *node, double number)
{
    const pare_value *c = pare_node_in(node, 1);
    return c && c->data && c->data->count == 1 && node->in[0]->shape.rank >= c->shape.rank &&
           node->in[0]->dtype == node->out[0]->dtype && is_all(c, number);
}

/* Operators that do nothing the second time. */
static bool is_repeated(const pare_node *node)
{
    static const char *const name[] = {"Relu", "Abs", "Ceil", "Floor", "Round", "Sign"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (pare_node_is(node, name[i])) return pare_fuse_maker(node, 0, name[i]) != NULL;
    return false;
}

static bool does_nothing(const pare_node *node)
{
    if (pare_node_is(node, "Dropout")) return is_still(node);
    if (pare_node_is(node, "Concat")) return node->in_count == 1;
    if (pare_node_is(node, "Slice")) return takes_all(node);
    if (pare_node_is(node, "Expand")) return expands_nothing(node);
    if (pare_node_is(node, "Tile")) return is_all(pare_node_in(node, 1), 1);
    if (pare_node_is(node, "Pad")) return is_all(pare_node_in(node, 1), 0);
    if (pare_node_is(node, "Mul") || pare_node_is(node, "Div") || pare_node_is(node, "Pow"))
        return is_neutral(node, 1);
    if (pare_node_is(node, "Sub")) return is_neutral(node, 0);
    return is_repeated(node);
}

pare_status pare_fuse_noops(pare_fuse *f, pare_node *node, bool *changed)
{
    if (!node->in_count || !node->in[0] || !node->out[0] || node->in[0]->data) return PARE_OK;
    if (pare_node_is(node, "Cast")) return cast(f, node, changed);
    return does_nothing(node) ? pare_fuse_bypass(f, node, node->in[0], changed) : PARE_OK;
}
