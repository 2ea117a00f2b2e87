/* SPDX-License-Identifier: Apache-2.0 */
/* --checkpoint DIR of a training: the folder, its file, and what is said about it. */
#ifndef PARE_TOOLS_DISTILL_CHECKPOINT_H
#define PARE_TOOLS_DISTILL_CHECKPOINT_H

#include "distill/distill.h"
#include "tools/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_checkpoint_options {
    const char *folder; /* NULL: none */
    int64_t every;      /* steps; 0: at each validation */
    bool resume;
} pare_checkpoint_options;

/* Rows for a command whose options have a pare_checkpoint_options named checkpoint. */
#define PARE_CHECKPOINT_ROWS(type)                                                                 \
    {"checkpoint",                                                                                 \
     0,                                                                                            \
     PARE_OPTION_FOLDER,                                                                           \
     "DIR",                                                                                        \
     offsetof(type, checkpoint.folder),                                                            \
     0,                                                                                            \
     0,                                                                                            \
     "keep the training in DIR/checkpoint.pare while it runs, for --resume"},                      \
        {"checkpoint-every",                                                                       \
         0,                                                                                        \
         PARE_OPTION_INT,                                                                          \
         "N",                                                                                      \
         offsetof(type, checkpoint.every),                                                         \
         1,                                                                                        \
         1e12,                                                                                     \
         "steps between two checkpoints (one at each look at the held-out samples)"},              \
    {                                                                                              \
        "resume", 0, PARE_OPTION_FLAG, NULL, offsetof(type, checkpoint.resume), 0, 0,              \
            "go on from the checkpoint in DIR, as if nothing had happened"                         \
    }

/* Makes the folder where it is missing. PARE_USAGE: rows without --checkpoint; PARE_IO: a place
   that cannot be written to; PARE_INPUT: one of outputs (NULL: not asked for) is the checkpoint. */
PARE_NODISCARD pare_status pare_checkpoint_prepare(pare_tool *tool,
                                                   const pare_checkpoint_options *options,
                                                   const char *const *outputs, int output_count,
                                                   pare_distill_checkpoint *out);

/* How a stopped training goes on behind a step, on standard error; negative: it cannot. */
void pare_checkpoint_say(const pare_tool *tool, const pare_distill_checkpoint *checkpoint,
                         int64_t step);
/* "resumed" and "checkpoint" of the facts, and lines on standard error: where the training went on,
   and how a stopped one does. */
void pare_checkpoint_report(pare_tool *tool, const pare_distill_checkpoint *checkpoint,
                            const pare_distill_result *result);

#ifdef __cplusplus
}
#endif
#endif
