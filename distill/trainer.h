/* SPDX-License-Identifier: Apache-2.0 */
/* All that one training holds (internal to distill/). */
#ifndef PARE_DISTILL_TRAINER_H
#define PARE_DISTILL_TRAINER_H

#include "distill/held_out.h"
#include "distill/optimizer.h"
#include "distill/schedule.h"
#include "distill/step.h"

typedef struct pare_trainer {
    pare_ctx *ctx;
    pare_distill_options options; /* threads, warmup and validate_every settled */
    const pare_model *teacher_file, *student;
    pare_data *data;
    int64_t rows, batch; /* of a slice, of a batch */
    int microbatch_count;
    int64_t *sample, sample_count; /* that are trained on */
    int64_t *held_sample;
    int64_t steps;
    pare_teacher teacher;
    pare_weights weights;
    pare_train_graph learn, check; /* with gradients; the loss alone */
    pare_train_graph late; /* with gradients and frozen statistics, of PARE_BATCHNORM_HALF; without
                              a plan where there is nothing to freeze */
    pare_microbatches learning, checking;
    pare_held_out held;
    pare_optimizer optimizer;
    pare_schedule schedule;
    pare_loader *stream;
    pare_augmented pictures;
    int estimated; /* BatchNormalization nodes whose statistics are no longer the student's */
} pare_trainer;

/* Makes everything ready but the stream of samples: batch and microbatches, which samples are held
   out, graphs, plans, runners. */
PARE_NODISCARD pare_status pare_trainer_open(pare_trainer *trainer);
/* Opens the stream after so many steps, and tells how much memory the training takes. */
PARE_NODISCARD pare_status pare_trainer_start(pare_trainer *trainer, int64_t step);
/* To be called before every step, whose number is the steps done so far: after half of them the
   statistics of PARE_BATCHNORM_HALF freeze. On failure the trainer can only be freed. */
PARE_NODISCARD pare_status pare_trainer_begin_step(pare_trainer *trainer, int64_t step);
void pare_trainer_free(pare_trainer *trainer);

#endif
