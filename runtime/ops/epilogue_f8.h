/* SPDX-License-Identifier: Apache-2.0 */
/* What follows a sum of products of FP8, as epilogue.h says it of integers, in the same order, but
   for its ends: the sum is a float, no zero points are there, and y in FP8 is rounded to nearest
   even, what is too large to the largest finite number (QuantizeLinear 19, saturate 1).

   The sum itself is exact in the plain kernels: products of E4M3 are multiples of 2^-18 below 2^18,
   so that double holds any sum of 2^17 of them, which is rounded to f32 once. All others add in
   f32, and wgmma of compute capability 9.0 keeps 14 bits of what it adds within 32 products
   (DeepSeek-V3, arXiv 2412.19437, section 3.3.2; SageAttention2, arXiv 2411.10958): floats that are
   made of sums are equal within an error that grows with the depth, codes within a step. */
#ifndef PARE_RUNTIME_OPS_EPILOGUE_F8_H
#define PARE_RUNTIME_OPS_EPILOGUE_F8_H

#include "runtime/base/f8.h"
#include "runtime/ops/epilogue.h"

/* v plus a residual's number z, of FP8 in its steps, of floats as it is. */
PARE_BOTH float pare_f8_residual(const pare_epilogue *e, float v, float z)
{
    return e->real ? v + z * e->z_scale : fmaf(z, e->z_scale, v);
}

/* What y is rounded from. */
PARE_BOTH float pare_f8_finish(const pare_epilogue *e, float v)
{
    if (e->act.kind != PARE_ACT_NONE) v = pare_act_apply(&e->act, v);
    return e->curved ? v / e->y_scale : v;
}

#endif
