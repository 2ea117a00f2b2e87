/* SPDX-License-Identifier: Apache-2.0 */
/* The student's weights while they are trained: f32 master copies, their gradients and what the
   optimizer keeps, each kind in one block of floats (internal to distill/). */
#ifndef PARE_DISTILL_WEIGHTS_H
#define PARE_DISTILL_WEIGHTS_H

#include "distill/training.h"
#include "runtime/device/training.h"

enum { PARE_WEIGHT_ALIGN = 16 }; /* floats: where a tensor may begin in a block */

typedef struct pare_weight {
    const char *name;          /* of the tensor in the student's graph */
    const pare_tensor *tensor; /* of its file */
    size_t at;                 /* where it begins in a block */
    uint8_t *zero;             /* (count): elements that stay 0; NULL: none */
    bool decays;               /* rank 2 and more */
    bool copied; /* by an Identity, of a tensor that others may read, too: the student that was
                    trained has it as an initializer */
    double gradient_scale; /* of a scale that is learned; else 0 */
} pare_weight;

typedef struct pare_weights {
    pare_ctx *ctx;
    pare_weight *item;
    int trained; /* the first so many; after them running statistics of BatchNormalization */
    int count;
    size_t capacity;
    size_t floats; /* of a block; the gaps between tensors stay 0 */
    float *value, *gradient;
    int microbatches, batches;   /* of a batch, of a step; 0: one. Set before the blocks are made */
    int levels;                  /* at which sums of gradients over them wait */
    float *waiting;              /* (levels) blocks; NULL: none, or they are on the device */
    float *exp_avg, *exp_avg_sq; /* moments; SGD: the momentum buffer, and none */
    float *ema;                  /* of the weights; NULL: none */
    float *best;                 /* what was validated as best */
    struct pare_device_weights *on_device; /* where they are trained on a device; NULL: here */
} pare_weights;

/* The constants that can be weights: f32, of rank 1 and more, initializers or results of Constant
   nodes of more than one element, and not what an operator reads as a setting (Resize's scales) or
   as statistics (BatchNormalization's mean and variance). A warning names those of rank 2 and more
   that are of another float type. The student must outlive them. */
PARE_NODISCARD pare_status pare_weights_find(pare_ctx *ctx, pare_weights *out,
                                             const pare_model *student);
/* Adds the scales that are to be learned. PARE_INPUT: a name that is no f32 constant. */
PARE_NODISCARD pare_status pare_weights_add_scales(pare_weights *weights, const pare_model *student,
                                                   const pare_distill_options *options);
/* Holds a learned scale within a factor of 16 of what it was. */
void pare_weights_hold(const pare_weight *weight, float *value);
void pare_weights_free(pare_weights *weights);

/* Appends a running statistic of BatchNormalization, by its name in the student, where it is f32;
 *out: its place, -1 where it is not. */
PARE_NODISCARD pare_status pare_weights_add_statistic(pare_weights *weights,
                                                      const pare_model *student, const char *name,
                                                      int *out);

/* Its place in the list, or -1. */
int pare_weights_place(const pare_weights *weights, const char *name);
/* Keeps those for which keep is true. */
void pare_weights_choose(pare_weights *weights, const bool *keep);
/* Gives each its place in a block. */
void pare_weights_lay_out(pare_weights *weights);
/* Makes the blocks, on options->device, too; values are the student's. */
PARE_NODISCARD pare_status pare_weights_open(pare_weights *weights,
                                             const pare_distill_options *options);

/* Floats of a block that are trained; after them statistics. */
size_t pare_weights_trained_floats(const pare_weights *weights);

/* Notes the running statistics, and takes them back to what was noted. */
void pare_weights_note_statistics(pare_weights *weights);
void pare_weights_restore_statistics(pare_weights *weights);

/* Has it rank 2 or more, and is at least this part of it 0, and some of it? */
bool pare_weight_is_sparse(const pare_weight *weight, double from);
/* Those that are keep their zeros. */
PARE_NODISCARD pare_status pare_weights_keep_sparsity(pare_weights *weights, double from);
/* An info line for each that is. */
void pare_weights_log_sparsity(const pare_weights *weights, double from, const char *path);

/* Frees all blocks but the best. */
void pare_weights_keep_best(pare_weights *weights);

/* New tensors with the contents of a block, and putting them into the student, which cannot fail:
   a student is changed whole or not at all. The student must be the one they were found in. */
PARE_NODISCARD pare_status pare_weights_pack(const pare_weights *weights, pare_model *student,
                                             const float *block, pare_tensor ***out);
/* The same one by one: an empty list, then the tensor of each weight, from its floats. */
PARE_NODISCARD pare_status pare_weights_pack_list(const pare_weights *weights, pare_model *student,
                                                  pare_tensor ***out);
PARE_NODISCARD pare_status pare_weights_pack_one(const pare_weight *weight, pare_model *student,
                                                 const float *x, pare_tensor **out);
void pare_weights_store(const pare_weights *weights, pare_model *student, pare_tensor **tensors);

/* Vectors that Identity nodes hand on become initializers of their own, in place: exporters write
   tensors of equal content so, and what is equal in the file (the scales of two
   BatchNormalizations, or a bias and a mean) need not stay equal. */
PARE_NODISCARD pare_status pare_weights_separate(pare_model *model);

/* --- on a device --- */

/* The blocks there, and what is done to all of them at once. The host's blocks are copies, made
   where they are read: for validation, for a checkpoint, for the result; of running statistics
   the host's are the ones that follow. */
typedef struct pare_device_weights {
    pare_ctx *ctx;
    pare_device *device;
    const pare_weights *weights;
    size_t trained; /* floats of a block */
    size_t bytes;   /* of the device's memory */
    float *floats;  /* all blocks */
    void *tables;   /* masks, tensors, pieces, room for sums */
    double *seen;   /* (chunks + 1) host's copy of blocks.sum */
    float *check;   /* what held-out samples are run with */
    pare_train_blocks blocks;
    bool sent; /* the device's weights are the ones that count */
} pare_device_weights;

/* For weights whose blocks are open, at their first values. */
PARE_NODISCARD pare_status pare_device_weights_open(pare_ctx *ctx, pare_device_weights **out,
                                                    pare_device *device,
                                                    const pare_weights *weights);
void pare_device_weights_free(pare_device_weights *on_device);

/* Weights, moments, averages and statistics of the host. */
PARE_NODISCARD pare_status pare_device_weights_upload(pare_device_weights *on_device);
PARE_NODISCARD pare_status pare_device_weights_upload_statistics(pare_device_weights *on_device);
/* Back to the host: weights and averages, with moments where wanted. Nothing before they were sent.
 */
PARE_NODISCARD pare_status pare_device_weights_download(pare_device_weights *on_device,
                                                        bool moments);
/* The gradients of the last step. */
PARE_NODISCARD pare_status pare_device_weights_download_gradients(pare_device_weights *on_device);
/* Values for held-out samples, from the host. */
PARE_NODISCARD pare_status pare_device_weights_check(pare_device_weights *on_device,
                                                     const float *values);

/* After what is in the stream: the gradients' sum of squares, as pare_training_table.squares. */
PARE_NODISCARD pare_status pare_device_weights_squares(pare_device_weights *on_device,
                                                       pare_stream *stream, double *out);
/* The same of each chunk: (chunks), the caller's until the next call. */
PARE_NODISCARD pare_status pare_device_weights_chunk_squares(pare_device_weights *on_device,
                                                             pare_stream *stream,
                                                             const double **out);
/* Chunks of a weight. */
int pare_weight_chunks(const pare_weight *weight);
/* One step, complete on return. */
PARE_NODISCARD pare_status pare_device_weights_step(pare_device_weights *on_device,
                                                    pare_stream *stream,
                                                    const pare_train_rule *rule, float part);

#endif
