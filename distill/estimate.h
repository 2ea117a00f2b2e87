/* SPDX-License-Identifier: Apache-2.0 */
/* Running statistics before the first step (internal to distill/). */
#ifndef PARE_DISTILL_ESTIMATE_H
#define PARE_DISTILL_ESTIMATE_H

#include "distill/trainer.h"

/* Mean and variance of what every BatchNormalization that trains reads, over options.norm_samples
   of the samples trained on, one layer after the other in the order of the graph: each reads what
   those before it give with their new statistics. They become the weights' where the held-out loss
   is lower with them. */
PARE_NODISCARD pare_status pare_trainer_estimate(pare_trainer *trainer);

#endif
