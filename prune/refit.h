/* SPDX-License-Identifier: Apache-2.0 */
/* Refit without training: after channels were removed the weights that stay are fitted to what the
   dense model computes, layer after layer from the input. */
#ifndef PARE_PRUNE_REFIT_H
#define PARE_PRUNE_REFIT_H

#include "prune/score.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a prepared model one that can be refitted, before its groups are found: BatchNormalization
   is folded into what is before it, and every layer gets a bias of its own where it can take one.
   The model computes what it did. */
PARE_NODISCARD pare_status pare_refit_prepare(pare_ctx *ctx, pare_model *model);

/* Fits the layers of removal->groups->model (which is changed in place: weights that read what is
   removed become 0, the others and biases what was fitted) that read something removed or changed,
   to what `reference`, the dense model prepared in the same way, computes. facts: of layers that
   changed; in the model's arena. */
PARE_NODISCARD pare_status pare_refit_run(pare_ctx *ctx, const pare_prune_plan *removal,
                                          const pare_model *reference, const pare_score_data *data,
                                          pare_unstructured_facts *facts);

#ifdef __cplusplus
}
#endif
#endif
