/* SPDX-License-Identifier: Apache-2.0 */
/* The options that decide a training, for every command that has one: their rows, what they become,
   how they are in a recipe and in the facts. */
#ifndef PARE_TOOLS_DISTILL_TRAINING_H
#define PARE_TOOLS_DISTILL_TRAINING_H

#include "distill/training.h"
#include "tools/options.h"

/* A negative number, and 0 of batch and accumulate: as distill/training.h has it. */
typedef struct pare_training_options {
    const char *loss, *augment;
    double learning_rate, momentum, weight_decay, grad_clip_norm, ema_decay;
    int64_t batch, accumulate, warmup, bn_recalib_samples;
    int optimizer, schedule, batchnorm;
} pare_training_options;

#define PARE_TRAINING_DEFAULTS                                                                     \
    {                                                                                              \
        .learning_rate = -1, .momentum = -1, .weight_decay = -1, .warmup = -1,                     \
        .bn_recalib_samples = -1, .batchnorm = -1                                                  \
    }

/* Rows for a command whose OPTIONS have a pare_training_options `field`. own_...: the values
   without them. */
#define PARE_TRAINING_ROWS(field, own_loss, own_rate, own_norms)                                   \
    PARE_OPT_TEXT("loss", "TERM,...", field.loss,                                                  \
                  "terms to minimize: kl:TEMPERATURE, mse, cosine, feature:NAME[=TEACHER'S], ce "  \
                  "(with labels); TERM*W weights one (" own_loss ")"),                             \
        PARE_OPT_REAL("lr", "F", field.learning_rate, 0, 1e3,                                      \
                      "highest learning rate (" own_rate ")"),                                     \
        PARE_OPT_CHOICE("schedule", "cosine|step|constant", field.schedule,                        \
                        "how the learning rate changes (cosine, down to 0)"),                      \
        PARE_OPT_INT("warmup", "N", field.warmup, 0, 1e12,                                         \
                     "steps over which the learning rate rises from 0 (2 % of them)"),             \
        PARE_OPT_CHOICE("optimizer", "adamw|sgd", field.optimizer, "the optimizer (adamw)"),       \
        PARE_OPT_REAL("momentum", "F", field.momentum, 0, 1, "momentum of sgd (0.9)"),             \
        PARE_OPT_REAL("decay", "F", field.weight_decay, 0, 1,                                      \
                      "decoupled weight decay of weights of two axes and more (0.01)"),            \
        PARE_OPT_REAL("clip", "F", field.grad_clip_norm, 0, 1e9,                                   \
                      "clip the norm of all gradients together; 0: no limit (0)"),                 \
        PARE_OPT_REAL("ema", "F", field.ema_decay, 0, 1,                                           \
                      "result is a running mean of the weights that keeps this share at each "     \
                      "step; 0: none (0)"),                                                        \
        PARE_OPT_INT("batch", "N", field.batch, 1, 65536, "samples of one batch (128)"),           \
        PARE_OPT_INT("accumulate", "N", field.accumulate, 1, 65536,                                \
                     "batches whose gradients make one step (1)"),                                 \
        PARE_OPT_CHOICE("bn", "train|frozen|half", field.batchnorm,                                \
                        "BatchNormalization with the statistics of each batch, or with the "       \
                        "file's, or frozen after half of the steps (" own_norms ")"),              \
        PARE_OPT_INT(                                                                              \
            "bn-estimate", "N", field.bn_recalib_samples, 0, 1e9,                                  \
            "samples from which statistics of BatchNormalization are estimated again before the "  \
            "first step, for use where the held-out loss is lower with them; 0: none (512)"),      \
        PARE_OPT_TEXT("augment", "flip,shift:N,mixup:A", field.augment,                            \
                      "change training images, for student and teacher alike: mirrored, moved, "   \
                      "mixed (nothing)")

/* The same options as one word, "kl:2,lr=1e-3,epochs=1": terms of the loss, and KEY=VALUE of the
   rows above and of epochs (1). Words of augment are separated by +. */
typedef struct pare_training_spec {
    pare_training_options training;
    double epochs;
} pare_training_spec;

/* PARE_USAGE: a key that is none or is given twice, a value that does not fit. */
PARE_NODISCARD pare_status pare_training_parse(pare_tool *tool, const char *text,
                                               pare_training_spec *out);

/* The list's epochs, 1 without the key; the list with others. NULL: out of memory. */
double pare_training_epochs(const char *text);
const char *pare_training_with_epochs(pare_arena *arena, const char *text, double epochs);

/* Fails where a word of the loss or of augment is none, and where one of them was given that does
   nothing beside the others. in_spec: as
   pare_training_parse takes them. */
PARE_NODISCARD pare_status pare_training_check(pare_tool *tool,
                                               const pare_training_options *options, bool in_spec);

/* Puts them over what *out has; without a loss among them own_loss is taken. *loss: its words,
   which live as long as the command. */
PARE_NODISCARD pare_status pare_training_read(pare_tool *tool, const pare_training_options *options,
                                              const char *own_loss, pare_distill_options *out,
                                              const char **loss);

/* What decides the result, after `head`: "loss=kl:2 optimizer=adamw lr=0.001 ...". In the arena;
   NULL: out of memory. */
const char *pare_training_recipe(pare_arena *arena, const char *head, const char *loss,
                                 const pare_training_options *options,
                                 const pare_distill_options *used,
                                 const pare_distill_result *result);

/* {end, steps, best_step, resumed (where it was), zeros_kept (where there are some), before, after}
 */
json_t *pare_training_json(const pare_distill_result *result);

/* --- --checkpoint DIR of a training: its options, and what is said about it --- */

typedef struct pare_checkpoint_options {
    const char *folder; /* NULL: none */
    int64_t every;      /* steps; 0: at each validation */
    bool resume;
} pare_checkpoint_options;

/* Rows for a command whose options have a pare_checkpoint_options named checkpoint. files: what is
   kept in DIR, in words. */
#define PARE_CHECKPOINT_ROWS(files)                                                                \
    PARE_OPT_FOLDER("checkpoint", "DIR", checkpoint.folder,                                        \
                    "keep the training in " files " while it runs, for --resume"),                 \
        PARE_OPT_INT("checkpoint-every", "N", checkpoint.every, 1, 1e12,                           \
                     "steps between two checkpoints (one at each look at the held-out samples)"),  \
        PARE_OPT_FLAG("resume", checkpoint.resume,                                                 \
                      "continue from the checkpoint in DIR, as if nothing had happened")

/* Makes the folder where it is missing. PARE_USAGE: rows without --checkpoint; PARE_IO: a place
   that cannot be written to. */
PARE_NODISCARD pare_status pare_checkpoint_prepare(pare_tool *tool,
                                                   const pare_checkpoint_options *options);
/* A training's checkpoint, DIR/name. PARE_INPUT: one of outputs (NULL: not asked for) is it. */
PARE_NODISCARD pare_status pare_checkpoint_at(pare_tool *tool,
                                              const pare_checkpoint_options *options,
                                              const char *name, const char *const *outputs,
                                              int output_count, pare_distill_checkpoint *out);

/* A line on standard error where there is nothing to resume from yet. */
void pare_checkpoint_log_none(const pare_tool *tool, const pare_distill_checkpoint *checkpoint);
/* How a stopped training continues after a step, on standard error; negative: it cannot. */
void pare_checkpoint_log(const pare_tool *tool, const pare_distill_checkpoint *checkpoint,
                         int64_t step);
/* "checkpoint" of the facts, and a line on standard error: how a stopped training continues, or
   that an ended one had nothing left to do. */
void pare_checkpoint_report(pare_tool *tool, const pare_distill_checkpoint *checkpoint,
                            const pare_distill_result *result);

#endif
