/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear and DequantizeLinear in one node, for training:
     FakeQuantize (X, scale, zero point) -> Y
     Y = (q - z) s,  q = clamp(rint(X / s) + z, low, high)
   the very numbers of the pair. Attributes: axis (default 1) as theirs; to: the integer type where
   the zero point is absent (default u8); low, high: levels, where they are not the type's own
   (symmetric weights keep to [-127, 127]). X, scale, Y are f32 or f64, the zero point is of the
   integer type and no part of training.

   Its gradient goes straight through the rounding (Bengio, Leonard, Courville 2013, "Estimating or
   propagating gradients through stochastic neurons", arXiv 1308.3432) and is that of learned step
   sizes (Esser, McKinstry, Bablani, Appuswamy, Modha 2020, "Learned step size quantization", arXiv
   1902.08153, equations 3 and 5):
     FakeQuantizeGrad (dY, X, scale, zero point) -> dX, dScale
     dX = dY where X is inside, else 0
     dScale = the sum over the elements of a scale of
              dY (rint(X / s) - X / s) inside, dY (low - z) below, dY (high - z) above
   Inside is what no clamp changes: low <= rint(X / s) + z <= high. (The paper counts the outer half
   of the last levels' steps as outside; then a weight at the end of its range could never come
   back.) The paper's gradient scale 1 / sqrt(N Qp) is not in here: who trains multiplies dScale by
   it. Sums are in double. */
#ifndef PARE_RUNTIME_OPS_FAKE_QUANTIZE_H
#define PARE_RUNTIME_OPS_FAKE_QUANTIZE_H

#include "runtime/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_levels {
    int low, high;
} pare_levels;

/* Lowest and highest integer of FakeQuantize and its gradient; zero: the zero point's type, or
   PARE_NOTYPE where it is absent. false: no type of these (s8, u8, s16, u16). */
bool pare_fake_levels(const pare_node *node, pare_dtype zero, pare_levels *out);

#ifdef __cplusplus
}
#endif
#endif
