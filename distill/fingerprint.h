/* SPDX-License-Identifier: Apache-2.0 */
/* What a training is known by (internal to distill/). */
#ifndef PARE_DISTILL_FINGERPRINT_H
#define PARE_DISTILL_FINGERPRINT_H

#include "distill/checkpoint.h"
#include "distill/trainer.h"

/* All that decides what an opened trainer computes, for checkpoints: versions, models, samples
   (which ones, and what is stored of up to 512 of them), every option that reaches the result,
   instruction set, kernels. What changes no result (threads) is not among them. Lives in the arena.
   PARE_INPUT, PARE_IO: data that cannot be read. */
PARE_NODISCARD pare_status pare_fingerprint_make(pare_arena *arena, const pare_trainer *trainer,
                                                 pare_checkpoint *out);

#endif
