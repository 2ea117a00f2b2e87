/* SPDX-License-Identifier: Apache-2.0 */
/* Biases of operators whose input and weight are fake-quantized. */
#ifndef PARE_RUNTIME_PASSES_TRAIN_QAT_BIAS_H
#define PARE_RUNTIME_PASSES_TRAIN_QAT_BIAS_H

#include "runtime/passes/train/qat_weights.h"

/* s32 biases after a DequantizeLinear become f32 constants; these and float ones are listed. */
PARE_NODISCARD pare_status pare_qat_biases(pare_qat_pass *p);

#endif
