/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats: one table (types.inc) makes the enum, the names, the sizes and the conversions.
   The enum's values are ONNX's TensorProto.DataType codes. */
#ifndef PARE_RUNTIME_BASE_TYPES_H
#define PARE_RUNTIME_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_dtype {
    PARE_NOTYPE = 0,
#define PARE_TYPE(name, code, bits, onnx, convertible) PARE_##name = code,
#include "runtime/base/types.inc"
#undef PARE_TYPE
    PARE_DTYPE_COUNT
} pare_dtype;

typedef struct pare_type_info {
    const char *name;                                 /* ours: "f32" */
    const char *onnx_name;                            /* "float" */
    int bits;                                         /* of one element; a string is a pare_bytes */
    float (*to_f32)(const void *element);             /* NULL where not convertible */
    void (*from_f32_ref)(void *element, float value); /* NULL where not convertible */
} pare_type_info;

/* Never NULL; an unknown code gives name "?" and 0 bits. */
const pare_type_info *pare_type(pare_dtype dtype);

/* The type of our name ("s8") or ONNX's ("int8"); PARE_NOTYPE where there is none. */
pare_dtype pare_type_find(const char *name);

/* Bytes of count elements, packed (two 4-bit elements share a byte, the last byte may be half
   full; four of 2 bits); false on a negative count, overflow or a type without a size. */
bool pare_type_bytes(pare_dtype dtype, int64_t count, size_t *out);

/* Integers of 4 and 2 bits, two and four to a byte, the low ones first. */
static inline bool pare_type_is_packed(pare_dtype t)
{
    return t == PARE_s4 || t == PARE_u4 || t == PARE_s2 || t == PARE_u2;
}

/* Number i of a packed type. */
static inline int pare_packed_get(pare_dtype t, const void *data, int64_t i)
{
    const int bits = t == PARE_s4 || t == PARE_u4 ? 4 : 2, each = 8 / bits;
    const int v = ((const uint8_t *)data)[i / each] >> i % each * bits & ((1 << bits) - 1);
    const bool has_sign = t == PARE_s4 || t == PARE_s2;
    return has_sign && v >> (bits - 1) ? v - (1 << bits) : v;
}

static inline bool pare_type_is_float(pare_dtype t)
{
    return t == PARE_f32 || t == PARE_f16 || t == PARE_bf16 || t == PARE_f64;
}

enum { PARE_MAX_RANK = 8 }; /* of tensors that are computed with; stored tensors may have more */

/* A tensor in memory. Strides are in elements, per logical axis: an NHWC tensor keeps the logical
   dims N, C, H, W and strides {HWC, 1, WC, C}. An absent optional input has dtype PARE_NOTYPE. */
typedef struct pare_view {
    pare_dtype dtype;
    int rank;
    int64_t dim[PARE_MAX_RANK];
    int64_t stride[PARE_MAX_RANK];
    void *data; /* while preparing: non-NULL for constants only, and in host memory */
} pare_view;

/* Conversions between f32 and its shorter forms, IEEE 754 round to nearest even; NaN stays NaN. */
float pare_f16_to_f32(uint16_t half);
uint16_t pare_f32_to_f16(float value);
float pare_bf16_to_f32(uint16_t brain);
uint16_t pare_f32_to_bf16(float value);

#ifdef __cplusplus
}
#endif
#endif
