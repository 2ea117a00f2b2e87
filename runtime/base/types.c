/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/types.h"
#include "runtime/base/size.h"

#include <math.h>
#include <string.h>

float pare_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31,
             mantissa = half & 1023;
    float value;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 */
        value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    uint32_t bits = exponent == 31 ? sign | 0x7f800000u | mantissa << 13
                                   : sign | (exponent + 112) << 23 | mantissa << 13;
    memcpy(&value, &bits, 4);
    return value;
}

uint16_t pare_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above: Inf */
    if (magnitude < 0x38800000) {                                  /* below 2^-14: subnormal */
        float scaled;
        memcpy(&scaled, &magnitude, 4);
        return (uint16_t)(sign | (uint16_t)rintf(scaled * 0x1p24f));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

float pare_bf16_to_f32(uint16_t brain)
{
    uint32_t bits = (uint32_t)brain << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

uint16_t pare_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define AS_IS(name, ctype, lo, hi)                                                                 \
    static float name##_to_f32(const void *p)                                                      \
    {                                                                                              \
        ctype v;                                                                                   \
        memcpy(&v, p, sizeof v);                                                                   \
        return (float)v;                                                                           \
    }                                                                                              \
    static void name##_from_f32(void *p, float f)                                                  \
    {                                                                                              \
        double r = rint((double)f);                                                                \
        ctype v = isnan(f) ? 0 : r <= (double)(lo) ? (lo) : r >= (double)(hi) ? (hi) : (ctype)r;   \
        memcpy(p, &v, sizeof v);                                                                   \
    }
AS_IS(u8, uint8_t, 0, UINT8_MAX)
AS_IS(s8, int8_t, INT8_MIN, INT8_MAX)
AS_IS(u16, uint16_t, 0, UINT16_MAX)
AS_IS(s16, int16_t, INT16_MIN, INT16_MAX)
AS_IS(u32, uint32_t, 0, UINT32_MAX)
AS_IS(s32, int32_t, INT32_MIN, INT32_MAX)
AS_IS(u64, uint64_t, 0, UINT64_MAX)
AS_IS(s64, int64_t, INT64_MIN, INT64_MAX)

static float bool_to_f32(const void *p) { return *(const uint8_t *)p ? 1 : 0; }
static void bool_from_f32(void *p, float f) { *(uint8_t *)p = f != 0; }

#define AS_COPY(name, ctype, to, from)                                                             \
    static float name##_to_f32(const void *p)                                                      \
    {                                                                                              \
        ctype v;                                                                                   \
        memcpy(&v, p, sizeof v);                                                                   \
        return to(v);                                                                              \
    }                                                                                              \
    static void name##_from_f32(void *p, float f)                                                  \
    {                                                                                              \
        ctype v = from(f);                                                                         \
        memcpy(p, &v, sizeof v);                                                                   \
    }
AS_COPY(f32, float, (float), (float))
AS_COPY(f64, double, (float), (double))
AS_COPY(f16, uint16_t, pare_f16_to_f32, pare_f32_to_f16)
AS_COPY(bf16, uint16_t, pare_bf16_to_f32, pare_f32_to_bf16)

#define PICK_1(function) function
#define PICK_0(function) NULL

const pare_type_info *pare_type(pare_dtype dtype)
{
    static const pare_type_info table[PARE_DTYPE_COUNT] = {
        [0] = {"?", "undefined", 0, NULL, NULL},
#define PARE_TYPE(name, code, bits, onnx, convertible)                                             \
    [code] = {#name, onnx, bits, PICK_##convertible(name##_to_f32),                                \
              PICK_##convertible(name##_from_f32)},
#include "runtime/base/types.inc"
#undef PARE_TYPE
    };
    return (unsigned)dtype < PARE_DTYPE_COUNT ? &table[dtype] : &table[0];
}

pare_dtype pare_type_find(const char *name)
{
    for (int t = 1; t < PARE_DTYPE_COUNT; t++) {
        const pare_type_info *info = pare_type((pare_dtype)t);
        if (!strcmp(info->name, name) || !strcmp(info->onnx_name, name)) return (pare_dtype)t;
    }
    return PARE_NOTYPE;
}

bool pare_type_bytes(pare_dtype dtype, int64_t count, size_t *out)
{
    size_t bits = (size_t)pare_type(dtype)->bits, total;
    if (!bits || count < 0 || !pare_mul_size((size_t)count, bits, &total)) return false;
    *out = total / 8 + (total % 8 != 0);
    return true;
}
