/* SPDX-License-Identifier: Apache-2.0 */
/* From the gradients of a step to new weights, where the weights are (internal to distill/). */
#ifndef PARE_DISTILL_UPDATE_H
#define PARE_DISTILL_UPDATE_H

#include "distill/trainer.h"

/* Norm of all gradients together, times scale. Gradients of weights that stay zero count for
   nothing. */
PARE_NODISCARD pare_status pare_update_norm(pare_trainer *trainer, double scale, double *out);

typedef struct pare_update_facts {
    int64_t step; /* 0, 1, ... */
    double rate;
    double scale; /* of gradients */
    double norm;  /* of pare_update_norm */
} pare_update_facts;

/* Clips by the norm of all gradients together (Pascanu, Mikolov, Bengio 2013), takes the
   optimizer's step, and the averages after it. */
PARE_NODISCARD pare_status pare_update_weights(pare_trainer *trainer,
                                               const pare_update_facts *facts);

#endif
