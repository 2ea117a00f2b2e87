/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are trained on a device: the blocks of weights.h there, and what is done to all of
   them at once. The host's blocks are copies, made where someone reads them: for validation, for a
   checkpoint, for the result; of running statistics the host's are the ones that follow (internal
   to distill/). */
#ifndef PARE_DISTILL_DEVICE_WEIGHTS_H
#define PARE_DISTILL_DEVICE_WEIGHTS_H

#include "distill/weights.h"
#include "runtime/ops/training.h"

typedef struct pare_device_weights {
    pare_ctx *ctx;
    pare_device *device;
    const pare_weights *weights;
    size_t trained; /* floats of a block that are trained; after them statistics */
    size_t bytes;   /* of the device's memory */
    float *floats;  /* all blocks */
    void *tables;   /* masks, tensors, pieces, room for sums */
    double *seen;   /* host's copy of a sum */
    float *check;   /* what held-out samples are run with */
    pare_train_blocks blocks;
    bool sent; /* the device's weights are the ones that count */
} pare_device_weights;

/* For weights whose blocks are open, at their first values. */
PARE_NODISCARD pare_status pare_device_weights_open(pare_ctx *ctx, pare_device_weights **out,
                                                    pare_device *device,
                                                    const pare_weights *weights);
void pare_device_weights_free(pare_device_weights *there);

/* Weights, moments, averages and statistics of the host. */
PARE_NODISCARD pare_status pare_device_weights_upload(pare_device_weights *there);
PARE_NODISCARD pare_status pare_device_weights_upload_statistics(pare_device_weights *there);
/* Back to the host: weights and averages, with moments where wanted. Nothing before they were sent.
 */
PARE_NODISCARD pare_status pare_device_weights_download(pare_device_weights *there, bool moments);
/* Values for held-out samples, from the host. */
PARE_NODISCARD pare_status pare_device_weights_check(pare_device_weights *there,
                                                     const float *values);

/* After what is in the stream: the gradients' sum of squares, as pare_training_table.squares. */
PARE_NODISCARD pare_status pare_device_weights_squares(pare_device_weights *there,
                                                       pare_stream *stream, double *out);
/* One step, complete on return. */
PARE_NODISCARD pare_status pare_device_weights_step(pare_device_weights *there, pare_stream *stream,
                                                    const pare_train_rule *rule, float part);

#endif
