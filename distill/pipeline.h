/* SPDX-License-Identifier: Apache-2.0 */
/* A stage of a training by pipeline: its plans, runners and channels (internal to pipeline.c, which
   opens it, and pipeline_batch.c, which runs batches). */
#ifndef PARE_DISTILL_PIPELINE_H
#define PARE_DISTILL_PIPELINE_H

#include "distill/trainer.h"

/* A plan of this stage. */
typedef struct pare_stage_part {
    const pare_plan *plan;
    const pare_feed *feed; /* (inputs) or NULL: of the teacher */
    int received, sent;    /* inputs and outputs that are in messages */
    size_t in, out;        /* bytes of them in a message */
} pare_stage_part;

/* A microbatch between forward and backward. */
typedef struct pare_stage_slot {
    pare_runner *runner; /* of the forward part */
    char *came;          /* a copy of what was received; NULL: nothing is, or it is in the
                            runner's memory on a device */
} pare_stage_slot;

struct pare_train_pipeline {
    pare_ctx *ctx;
    pare_trainer *trainer;
    pare_comm *comm;
    int stage, stages;
    pare_stage_part forward, backward, check,
        teacher;           /* forward: of the last stage, both; plan NULL: none */
    pare_stage_slot *slot; /* (slots) */
    int slots;
    pare_runner *learner; /* makes this rank's gradients: runs the backward part or, in the last
                             stage, the forward part, whose slot has it, too */
    pare_runner *check_runner, *teacher_runner;
    int runs;           /* of the teacher for a microbatch */
    void **given;       /* (wanted) in the last stage: what the teacher gave, */
    size_t given_bytes; /* of all */
    int wanted;
    const void **input; /* (microbatches, student's inputs): where their samples are */
    size_t *sample;     /* (student's inputs): bytes of one sample */
    int inputs;
    bool reads_data; /* a plan of this stage does */
    pare_channel *from_before, *to_next, *from_next, *to_before;
    bool is_open; /* all ranks are */
    pare_pipeline_plan planned;
    size_t *activations; /* (stages) in rank 0 */
    /* of the batch in work */
    pare_batch batch;
    const pare_augmented *augmented;
    const pare_loader_batch *source;
    const float *values;
    pare_status status; /* of this rank; others may have failed */
    bool failed;        /* this rank, or one whose message came */
};

/* Bytes of a tensor in a message. */
size_t pare_stage_tensor_bytes(const pare_value *value);

#endif
