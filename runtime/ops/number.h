/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of integers and conversions to them, where ONNX leaves room: the definition of correct
   on every backend. Integers of every type are worked with as int64_t and stored by their low bits,
   which makes sums, differences and products wrap around; u64 is its bits. */
#ifndef PARE_RUNTIME_OPS_NUMBER_H
#define PARE_RUNTIME_OPS_NUMBER_H

#include "runtime/base/types.h"
#include "runtime/base/both.h"

/* x / 0 gives 0. */
PARE_BOTH int64_t pare_int_divide(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

/* Mod (13) with fmod = 0 takes the divisor's sign, with fmod = 1 the dividend's; x mod 0 gives 0.
 */
PARE_BOTH int64_t pare_int_modulo(int64_t x, int64_t y)
{
    if (y == 0 || y == -1) return 0;
    int64_t r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

PARE_BOTH int64_t pare_int_remainder(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }

/* A negative power truncates: 1, -1 or 0. */
PARE_BOTH int64_t pare_int_power(int64_t x, int64_t e)
{
    if (e < 0) return x == 1 ? 1 : x == -1 ? (e % 2 ? -1 : 1) : 0;
    uint64_t r = 1, b = (uint64_t)x;
    for (; e > 0; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return (int64_t)r;
}

PARE_BOTH int64_t pare_int_hold(double value, int64_t low, int64_t high)
{
    return value != value          ? 0
           : value <= (double)low  ? low
           : value >= (double)high ? high
                                   : (int64_t)value;
}

/* Cast (25): truncated towards zero and held inside the type; of 4 and 2 bits the low ones are
   kept. NaN gives 0. */
PARE_BOTH int64_t pare_int_of(double value, pare_dtype type)
{
    switch (type) {
    case PARE_s8: return pare_int_hold(value, -128, 127);
    case PARE_u8: return pare_int_hold(value, 0, 255);
    case PARE_s16: return pare_int_hold(value, -32768, 32767);
    case PARE_u16: return pare_int_hold(value, 0, 65535);
    case PARE_s32: return pare_int_hold(value, INT32_MIN, INT32_MAX);
    case PARE_u32: return pare_int_hold(value, 0, UINT32_MAX);
    case PARE_s64: return pare_int_hold(value, INT64_MIN, INT64_MAX);
    case PARE_s4: return ((pare_int_hold(value, INT32_MIN, INT32_MAX) + 8) & 15) - 8;
    case PARE_u4: return pare_int_hold(value, INT32_MIN, INT32_MAX) & 15;
    case PARE_s2: return ((pare_int_hold(value, INT32_MIN, INT32_MAX) + 2) & 3) - 2;
    case PARE_u2: return pare_int_hold(value, INT32_MIN, INT32_MAX) & 3;
    case PARE_bool: return value != 0;
    case PARE_u64:
        return value != value || value <= 0 ? 0
               : value >= 0x1p64            ? (int64_t)UINT64_MAX
                                            : (int64_t)(uint64_t)value;
    default: return 0;
    }
}

#endif
