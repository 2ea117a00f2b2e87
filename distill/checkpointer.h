/* SPDX-License-Identifier: Apache-2.0 */
/* Where a training is between two steps, and keeping it in checkpoints (internal to distill/).
 */
#ifndef PARE_DISTILL_CHECKPOINTER_H
#define PARE_DISTILL_CHECKPOINTER_H

#include "distill/checkpoint.h"
#include "distill/trainer.h"

/* With the blocks of weights, moments and averages all that decides what comes. As in the file:
   members of 8 bytes, no gaps. */
typedef struct pare_train_state {
    int64_t step;            /* done */
    int64_t told;            /* the last whose event was sent: step, or step - 1 where a stop came
                                between the two; -1: none */
    int64_t since_best;      /* validations */
    int64_t best_step;       /* 0: the student as it came */
    int64_t estimated;       /* BatchNormalization nodes that began with statistics made again */
    double loss, norm, rate; /* of the last step */
    double loss_scale;       /* FP16: for the next step; else 1 */
    int64_t good, skipped; /* FP16: steps since it was halved or doubled; that changed no weight */
    pare_distill_score before, best;
    pare_hash data; /* sum over the samples trained on, with the times each was read */
} pare_train_state;

typedef struct pare_checkpointer {
    const pare_trainer *trainer;
    pare_train_state *state;
    pare_arena arena;
    pare_checkpoint checkpoint; /* facts, and where the state is */
    pare_checkpoint_blob blob[6];
    int64_t resumed; /* the step it continued from; -1: from the beginning */
    int64_t kept;    /* step of the checkpoint in the file; -1: none */
    bool failing;    /* the last write failed */
} pare_checkpointer;

/* For a trainer that is open, and its state. Asked to resume, it reads the checkpoint, if there is
   one. A trainer whose options name no checkpoint gets a keeper that does nothing. Fails as
   pare_checkpoint_read, pare_fingerprint_make. */
PARE_NODISCARD pare_status pare_checkpointer_open(pare_checkpointer *keeper,
                                                  const pare_trainer *trainer,
                                                  pare_train_state *state);
void pare_checkpointer_free(pare_checkpointer *keeper);

/* Fails where a checkpoint is in the way of a training that does not resume. */
PARE_NODISCARD pare_status pare_checkpointer_check(pare_ctx *ctx,
                                                   const pare_distill_checkpoint *checkpoint);

/* Writes a checkpoint, unless the file holds this step. A disk that is full, or no place to write
   to any more, is a warning, one until it is over. */
PARE_NODISCARD pare_status pare_checkpointer_save(pare_checkpointer *keeper);

#endif
