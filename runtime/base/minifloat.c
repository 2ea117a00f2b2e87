/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/minifloat.h"

#include <math.h>
#include <string.h>

typedef struct format {
    int exponent, mantissa, bias; /* bits, bits, of the exponent */
    int inf, nan;                 /* codes of +Inf and NaN without the sign; -1: none */
    bool unsigned_zero;           /* one zero, and one NaN, which has the sign's bit alone */
    float largest;
} format;

static const format *format_of(pare_dtype dtype)
{
    static const format e4m3 = {4, 3, 7, -1, 0x7f, false, 448},
                        e4m3fnuz = {4, 3, 8, -1, 0x80, true, 240},
                        e5m2 = {5, 2, 15, 0x7c, 0x7e, false, 57344},
                        e5m2fnuz = {5, 2, 16, -1, 0x80, true, 57344},
                        e2m1 = {2, 1, 1, -1, -1, false, 6};
    switch (dtype) {
    case PARE_f8e4m3: return &e4m3;
    case PARE_f8e4m3fnuz: return &e4m3fnuz;
    case PARE_f8e5m2: return &e5m2;
    case PARE_f8e5m2fnuz: return &e5m2fnuz;
    case PARE_f4e2m1: return &e2m1;
    default: return NULL;
    }
}

bool pare_is_minifloat(pare_dtype dtype) { return dtype == PARE_f8e8m0 || format_of(dtype); }

/* --- powers of two --- */

enum { E8M0_NAN = 255, E8M0_MOST = 254 };

static float e8m0_to_f32(uint8_t code) { return code == E8M0_NAN ? NAN : ldexpf(1, code - 127); }

/* Of a negative number ONNX says nothing: it gives NaN here. */
static uint8_t e8m0_from_f32(float value, bool saturate, pare_minifloat_round round)
{
    int exponent;
    if (isnan(value) || value < 0) return E8M0_NAN;
    if (isinf(value)) return saturate ? E8M0_MOST : E8M0_NAN;
    if (value == 0) return saturate ? 0 : E8M0_NAN;
    const float part = frexpf(value, &exponent) * 2; /* 1 <= part < 2 */
    int code = exponent - 1 + 127;
    if (round == PARE_ROUND_UP ? part > 1 : round == PARE_ROUND_NEAREST && part >= 1.5f) code++;
    if (code < 0) return saturate ? 0 : E8M0_NAN;
    if (code > E8M0_MOST) return saturate ? E8M0_MOST : E8M0_NAN;
    return (uint8_t)code;
}

/* --- the others --- */

static int sign_bit(const format *f) { return 1 << (f->exponent + f->mantissa); }

float pare_minifloat_to_f32(pare_dtype dtype, uint8_t code)
{
    const format *f = format_of(dtype);
    if (dtype == PARE_f8e8m0) return e8m0_to_f32(code);
    if (!f) return NAN;
    const int sign = code & sign_bit(f), rest = code & (sign_bit(f) - 1);
    const int exponent = rest >> f->mantissa, mantissa = rest & ((1 << f->mantissa) - 1);
    if (f->unsigned_zero ? code == f->nan : f->nan >= 0 && rest >= f->nan) return NAN;
    if (f->inf >= 0 && rest >= f->inf) return rest > f->inf ? NAN : sign ? -INFINITY : INFINITY;
    const int digits = exponent ? mantissa | 1 << f->mantissa : mantissa;
    const float value = ldexpf((float)digits, (exponent ? exponent : 1) - f->bias - f->mantissa);
    return sign ? -value : value;
}

/* The code of a finite number that fits, without its sign: rounded to nearest even. */
static int round_code(const format *f, float value)
{
    int exponent;
    frexpf(value, &exponent);
    exponent -= 1;
    if (exponent < 1 - f->bias) exponent = 1 - f->bias; /* subnormal */
    const int digits = (int)rintf(ldexpf(value, f->mantissa - exponent)), one = 1 << f->mantissa;
    return digits < one ? digits : ((exponent + f->bias) << f->mantissa) + digits - one;
}

uint8_t pare_minifloat_from_f32(pare_dtype dtype, float value, bool saturate,
                                pare_minifloat_round round)
{
    const format *f = format_of(dtype);
    if (dtype == PARE_f8e8m0) return e8m0_from_f32(value, saturate, round);
    if (!f) return 0;
    const int sign = signbit(value) ? sign_bit(f) : 0;
    const int most = round_code(f, f->largest);
    if (isnan(value) && f->nan < 0) return (uint8_t)sign_bit(f); /* no code: -0 */
    if (isnan(value)) return (uint8_t)(f->unsigned_zero ? f->nan : f->nan | sign);
    const float size = fabsf(value);
    const int code = isinf(size) ? most + 1 : round_code(f, size);
    if (code <= most) return (uint8_t)(f->unsigned_zero && !code ? 0 : code | sign);
    if (saturate || f->nan < 0) return (uint8_t)(most | sign);
    return (uint8_t)(f->unsigned_zero ? f->nan : (f->inf >= 0 ? f->inf : f->nan) | sign);
}
