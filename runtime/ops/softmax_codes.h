/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax (13) whose probabilities are quantized, exactly as the runtime defines it (one rounding
   each, in this order). Of a row x with the largest number `top`, from which `top` is taken first
   where it is 2^16 or more, of either sign:
     e = 2^(x log2 e - base), base = ceil(top log2 e)     pare_softmax_power
     total = sum of rint(2^23 e)        whole numbers: no order of adding them changes it
   of a row of more than PARE_SOFTMAX_SHORT numbers
     total = 2^-17 * sum of floor(2^40 e)
   of f32
     c = 2^23 / (total * scale)
     y = zero + min(rint(e * c), high - zero)             e * c is not rounded before
   of f16 and bf16, whose operators round the probability
     p = e * (2^23 / total), rounded to the type; y = QuantizeLinear(p)
   NaN counts as -infinity. A row whose largest number is infinite has no probabilities: all are 0.
   Within one code of the operators one by one. This is the definition of correct on every backend,
   and on the CPU and the GPU the code itself. */
#ifndef PARE_RUNTIME_OPS_SOFTMAX_CODES_H
#define PARE_RUNTIME_OPS_SOFTMAX_CODES_H

#include "runtime/base/both.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PARE_SOFTMAX_UNIT  8388608.0f  /* 2^23: one step of a sum is 2^-23 */
#define PARE_SOFTMAX_ROUND 12582912.0f /* 1.5 * 2^23: a float's last bit is worth 1 there */
#define PARE_SOFTMAX_LOG2E 1.44269504f

/* A part is off by at most 2^-24, and the largest e is above 1/2: so many parts change a sum by at
   most one in 2^9, and a probability by half a code of 255. Longer rows have steps of 2^-40, of
   which 64 bits hold sums of 2^24 numbers. */
enum { PARE_SOFTMAX_SHORT = 16384 };
#define PARE_SOFTMAX_LONG_UNIT 1099511627776.0f /* 2^40 */

/* What is taken from a row: 0 but of rows that a mask took away whole. Of no row is it -infinity,
   which is taken for as low as numbers get. */
PARE_BOTH bool pare_softmax_is_near(float top) { return fabsf(top) < 65536.0f; }
PARE_BOTH float pare_softmax_less(float top)
{
    return pare_softmax_is_near(top) || top == -INFINITY ? 0.0f : top;
}

/* For pare_softmax_power. e^-40 is the least exponential, which no sum and no code sees; that of
   NaN is it, too. */
PARE_BOTH float pare_softmax_low(float top)
{
    return (pare_softmax_is_near(top) ? top : 0.0f) - 40.0f;
}
PARE_BOTH float pare_softmax_round(float top)
{
    const float base = pare_softmax_is_near(top) ? ceilf(top * PARE_SOFTMAX_LOG2E) : 0.0f;
    return PARE_SOFTMAX_ROUND - base;
}

PARE_BOTH uint32_t pare_softmax_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* e. x log2 e = n + f, |f| <= 1/2: adding `round` rounds, and leaves n - base in the low bits. 2^f
   by the polynomial of degree 4 whose largest relative error is least: 4 parts in a million. */
PARE_BOTH float pare_softmax_power(float x, float low, float round)
{
#ifdef __CUDA_ARCH__
    const float v = fmaxf(x, low); /* the same in one instruction */
#else
    const float v = x > low ? x : low;
#endif
    const float t = fmaf(v, PARE_SOFTMAX_LOG2E, round);
    const float f = fmaf(v, PARE_SOFTMAX_LOG2E, round - t);
    float p = 0.0097829126f;
    p = fmaf(p, f, 0.055976884f);
    p = fmaf(p, f, 0.24020711f);
    p = fmaf(p, f, 0.6931136f);
    p = fmaf(p, f, 1.0f);
    const uint32_t bits = pare_softmax_bits(p) + (pare_softmax_bits(t) << 23);
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* rint(2^23 e) of e from 0 to 1, given as 1 + e. 511 of them fit into 32 bits. */
PARE_BOTH uint32_t pare_softmax_part(float one_and_e)
{
    return pare_softmax_bits(one_and_e) - pare_softmax_bits(1.0f);
}

/* A number's part of the sum of a row of n. e: as pare_softmax_power gives it. */
PARE_BOTH uint64_t pare_softmax_part_of(float e, int64_t n)
{
    return n > PARE_SOFTMAX_SHORT ? (uint64_t)(e * PARE_SOFTMAX_LONG_UNIT)
                                  : pare_softmax_part(1.0f + e);
}

/* total of a row of n, whose parts add up to `sum`. */
PARE_BOTH float pare_softmax_total(uint64_t sum, int64_t n)
{
    return n > PARE_SOFTMAX_SHORT ? (float)sum * (PARE_SOFTMAX_UNIT / PARE_SOFTMAX_LONG_UNIT)
                                  : (float)sum;
}

/* c; 0 where top is not finite. f16, bf16: scale 1. */
PARE_BOTH float pare_softmax_factor(float top, float total, float scale)
{
    return top - top == 0.0f ? PARE_SOFTMAX_UNIT / (total * scale) : 0.0f;
}

/* y - zero, as a float; most: high - zero. */
PARE_BOTH float pare_softmax_step(float e, float c, float most)
{
    const float t = fmaf(e, c, PARE_SOFTMAX_ROUND), end = PARE_SOFTMAX_ROUND + most;
    return (t < end ? t : end) - PARE_SOFTMAX_ROUND;
}

#endif
