/* SPDX-License-Identifier: Apache-2.0 */
/* --checkpoint DIR of a training: its options, and what is said about it (distill.h has the rest).
 */
#ifndef PARE_TOOLS_DISTILL_CHECKPOINT_H
#define PARE_TOOLS_DISTILL_CHECKPOINT_H

#include "distill/distill.h"
#include "tools/options.h"

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
