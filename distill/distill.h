/* SPDX-License-Identifier: Apache-2.0 */
/* Training a student to give what its teacher gives, in floats or with quantization in the loop. */
#ifndef PARE_DISTILL_DISTILL_H
#define PARE_DISTILL_DISTILL_H

#include "distill/qat.h"
#include "distill/training.h"

#endif
