/* SPDX-License-Identifier: Apache-2.0 */
/* The options that decide a training, for every command that has one: their rows, what they become,
   how they are in a recipe and in the facts. */
#ifndef PARE_TOOLS_DISTILL_TRAINING_H
#define PARE_TOOLS_DISTILL_TRAINING_H

#include "distill/distill.h"
#include "tools/options.h"

/* A negative number, and 0 of batch and accumulate: as distill.h has it. */
typedef struct pare_training_options {
    const char *loss, *augment;
    double rate, momentum, decay, clip, average;
    int64_t batch, accumulate, warmup, norm_samples;
    int optimizer, schedule, batchnorm;
} pare_training_options;

#define PARE_TRAINING_DEFAULTS                                                                     \
    {                                                                                              \
        .rate = -1, .momentum = -1, .decay = -1, .warmup = -1, .norm_samples = -1, .batchnorm = -1 \
    }

/* Rows for a command whose options have a pare_training_options `field`. prefix: what their names
   begin with; where: what their help begins with; own_...: the values without them. */
#define PARE_TRAINING_ROWS(type, field, prefix, where, own_loss, own_rate, own_norms)              \
    {prefix "loss",                                                                                \
     0,                                                                                            \
     PARE_OPTION_TEXT,                                                                             \
     "TERM,...",                                                                                   \
     offsetof(type, field.loss),                                                                   \
     0,                                                                                            \
     0,                                                                                            \
     where "what is made small: kl:TEMPERATURE, mse, cosine, feature:NAME[=TEACHER'S], ce (with "  \
           "labels); TERM*W weighs one (" own_loss ")"},                                           \
        {prefix "lr",                                                                              \
         0,                                                                                        \
         PARE_OPTION_REAL,                                                                         \
         "F",                                                                                      \
         offsetof(type, field.rate),                                                               \
         0,                                                                                        \
         1e3,                                                                                      \
         where "highest learning rate (" own_rate ")"},                                            \
        {prefix "schedule",                                                                        \
         0,                                                                                        \
         PARE_OPTION_CHOICE,                                                                       \
         "cosine|step|constant",                                                                   \
         offsetof(type, field.schedule),                                                           \
         0,                                                                                        \
         0,                                                                                        \
         where "what becomes of it (cosine, down to 0)"},                                          \
        {prefix "warmup",                                                                          \
         0,                                                                                        \
         PARE_OPTION_INT,                                                                          \
         "N",                                                                                      \
         offsetof(type, field.warmup),                                                             \
         0,                                                                                        \
         1e12,                                                                                     \
         where "steps over which it rises from 0 (2 % of them)"},                                  \
        {prefix "optimizer",                                                                       \
         0,                                                                                        \
         PARE_OPTION_CHOICE,                                                                       \
         "adamw|sgd",                                                                              \
         offsetof(type, field.optimizer),                                                          \
         0,                                                                                        \
         0,                                                                                        \
         where "how a step is made of gradients (adamw)"},                                         \
        {prefix "momentum",   0, PARE_OPTION_REAL, "F", offsetof(type, field.momentum), 0, 1,      \
         where "of sgd (0.9)"},                                                                    \
        {prefix "decay",                                                                           \
         0,                                                                                        \
         PARE_OPTION_REAL,                                                                         \
         "F",                                                                                      \
         offsetof(type, field.decay),                                                              \
         0,                                                                                        \
         1,                                                                                        \
         where "weight decay apart from the gradient, of weights of two axes and more (0.01)"},    \
        {prefix "clip",                                                                            \
         0,                                                                                        \
         PARE_OPTION_REAL,                                                                         \
         "F",                                                                                      \
         offsetof(type, field.clip),                                                               \
         0,                                                                                        \
         1e9,                                                                                      \
         where "largest norm of all gradients together; 0: no limit (0)"},                         \
        {prefix "ema",                                                                             \
         0,                                                                                        \
         PARE_OPTION_REAL,                                                                         \
         "F",                                                                                      \
         offsetof(type, field.average),                                                            \
         0,                                                                                        \
         1,                                                                                        \
         where "result is a running mean of the weights that keeps this share at each step; 0: "   \
               "none (0)"},                                                                        \
        {prefix "batch",                                                                           \
         0,                                                                                        \
         PARE_OPTION_INT,                                                                          \
         "N",                                                                                      \
         offsetof(type, field.batch),                                                              \
         1,                                                                                        \
         65536,                                                                                    \
         where "samples of one batch (128)"},                                                      \
        {prefix "accumulate",                                                                      \
         0,                                                                                        \
         PARE_OPTION_INT,                                                                          \
         "N",                                                                                      \
         offsetof(type, field.accumulate),                                                         \
         1,                                                                                        \
         65536,                                                                                    \
         where "batches whose gradients make one step (1)"},                                       \
        {prefix "bn",                                                                              \
         0,                                                                                        \
         PARE_OPTION_CHOICE,                                                                       \
         "train|frozen|half",                                                                      \
         offsetof(type, field.batchnorm),                                                          \
         0,                                                                                        \
         0,                                                                                        \
         where "BatchNormalization with the statistics of each batch, or with the file's, or "     \
               "frozen after half of the steps (" own_norms ")"},                                  \
        {prefix "bn-estimate",                                                                     \
         0,                                                                                        \
         PARE_OPTION_INT,                                                                          \
         "N",                                                                                      \
         offsetof(type, field.norm_samples),                                                       \
         0,                                                                                        \
         1e9,                                                                                      \
         where "samples from which statistics of BatchNormalization are estimated again before "   \
               "the first step, for use where the held-out loss is lower with them; 0: none "      \
               "(512)"},                                                                           \
    {                                                                                              \
        prefix "augment", 0, PARE_OPTION_TEXT, "flip,shift:N,mixup:A",                             \
            offsetof(type, field.augment), 0, 0,                                                   \
            where "change training images, for student and teacher alike: mirrored, moved, mixed " \
                  "(nothing)"                                                                      \
    }

/* Fails where one of them was given that does nothing beside the others. */
PARE_NODISCARD pare_status pare_training_check(pare_tool *tool,
                                               const pare_training_options *options,
                                               const char *prefix);

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
#endif
