/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of fused nodes, one value at a time: the definition of correct. */
#ifndef PARE_RUNTIME_CPU_ACT_H
#define PARE_RUNTIME_CPU_ACT_H

#include "runtime/ops/fused.h"

float pare_act_apply(const pare_act *act, float x);

#endif
