/* SPDX-License-Identifier: Apache-2.0 */
/* Short floats in a training graph (internal to distill/). */
#ifndef PARE_DISTILL_PRECISION_H
#define PARE_DISTILL_PRECISION_H

#include "distill/distill.h"

/* Can training run in it there (NULL: on the CPU)? PARE_UNSUPPORTED where not. */
PARE_NODISCARD pare_status pare_precision_check(pare_ctx *ctx, pare_train_precision precision,
                                                const pare_device *device);

/* Tensors of rank 2 and more that a node of the finished training graph makes and another one reads
   are stored as `type` (bf16, f16), weights and inputs of the data are read through it: a Cast
   after what makes them, and one back in front of each reader, which computes in f32. What stays
   f32: what the operator table says does, outputs of the graph and the sums that make them, and
   what the nodes of the loss make, which read what is stored. */
PARE_NODISCARD pare_status pare_precision_store(pare_model *model, pare_dtype type,
                                                pare_node *const *loss, int loss_count);

#endif
