/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: types and shapes of RandomUniform, RandomNormal, RandomUniformLike,
   RandomNormalLike, Bernoulli and Multinomial (1, 15, 22). */
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <math.h>

/* The type that an attribute names, or the one that holds where it is missing; floats or, where
   integers are allowed, any number or bool. */
static pare_status result_type(const pare_node *node, pare_dtype missing, bool integers,
                               pare_dtype *out)
{
    const int64_t type = pare_node_int(node, "dtype", missing);
    const bool known = type > 0 && type < PARE_DTYPE_COUNT;
    *out = known ? (pare_dtype)type : PARE_NOTYPE;
    if (!known && type == missing) return PARE_OK; /* the input's type is not known */
    const bool number = *out == PARE_s8 || *out == PARE_u8 || *out == PARE_s16 ||
                        *out == PARE_u16 || *out == PARE_s32 || *out == PARE_u32 ||
                        *out == PARE_s64 || *out == PARE_u64 || *out == PARE_bool;
    if (pare_type_is_float(*out) || (integers && number)) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "its numbers are of type %s, expected %s",
                          known ? pare_type(*out)->name : "?",
                          integers ? "a number or bool" : "f32, f64, f16 or bf16");
}

/* RandomUniform needs low <= high, RandomNormal a scale that is not negative. */
static pare_status check_parameters(const pare_node *node)
{
    const float low = pare_node_float(node, "low", 0), high = pare_node_float(node, "high", 1);
    const float mean = pare_node_float(node, "mean", 0), scale = pare_node_float(node, "scale", 1);
    if (!(low <= high) || !isfinite(high - low))
        return PARE_FAIL_NODE(node, INPUT, "low is %g and high %g, expected a finite range",
                              (double)low, (double)high);
    if (!(scale >= 0) || !isfinite(scale) || !isfinite(mean))
        return PARE_FAIL_NODE(node, INPUT,
                              "mean is %g and scale %g, expected finite numbers, "
                              "scale not negative",
                              (double)mean, (double)scale);
    return PARE_OK;
}

/* RandomUniform, RandomNormal: the shape is an attribute. */
pare_status pare_infer_random(pare_node *node)
{
    int rank;
    const int64_t *dims = pare_node_ints(node, "shape", &rank);
    pare_shape s = {.rank = rank};
    pare_dtype type;
    if (!pare_node_attr(node, "shape"))
        return PARE_FAIL_NODE(node, INPUT, "attribute 'shape' is missing");
    if (rank > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "a rank of %d is above %d", rank, PARE_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return PARE_FAIL_NODE(node, INPUT, "attribute 'shape' has a negative dimension");
        s.dim[i] = dims[i];
    }
    if (pare_shape_count(&s) < 0)
        return PARE_FAIL_NODE(node, INPUT, "the size of attribute 'shape' overflows");
    PARE_TRY(result_type(node, PARE_f32, false, &type));
    PARE_TRY(check_parameters(node));
    pare_infer_out(node, 0, type, &s);
    return PARE_OK;
}

/* RandomUniformLike, RandomNormalLike: the shape is the input's. */
pare_status pare_infer_random_like(pare_node *node)
{
    pare_value *x;
    pare_dtype type;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(result_type(node, x->dtype, false, &type));
    PARE_TRY(check_parameters(node));
    pare_infer_out(node, 0, type, &x->shape);
    return PARE_OK;
}

/* Bernoulli: one draw for each probability. */
pare_status pare_infer_bernoulli(pare_node *node)
{
    pare_value *x;
    pare_dtype type;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(result_type(node, x->dtype, true, &type));
    pare_infer_out(node, 0, type, &x->shape);
    return PARE_OK;
}

/* Multinomial: (batch, classes) -> (batch, sample_size). */
pare_status pare_infer_multinomial(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    const int64_t samples = pare_node_int(node, "sample_size", 1);
    const int64_t type = pare_node_int(node, "dtype", PARE_s32);
    if (x->shape.rank >= 0 && (x->shape.rank != 2 || x->shape.dim[1] == 0))
        return PARE_FAIL_NODE(node, INPUT, "'%s' must have shape [batch,classes] and some classes",
                              x->name);
    if (samples < 1)
        return PARE_FAIL_NODE(node, INPUT, "sample_size is %" PRId64 ", it must be at least 1",
                              samples);
    if (type != PARE_s32 && type != PARE_s64)
        return PARE_FAIL_NODE(node, INPUT, "its numbers must be of type s32 or s64");
    pare_shape s = x->shape.rank < 0 ? pare_shape_unknown(2) : x->shape;
    s.dim[1] = samples;
    s.name[1] = NULL;
    pare_infer_out(node, 0, (pare_dtype)type, &s);
    return PARE_OK;
}
