/* SPDX-License-Identifier: Apache-2.0 */
/* What TensorBoard shows of a training: --tensorboard DIR. Numbers are those of the log: percent
   for agreement and top-1. */
#ifndef PARE_TOOLS_DISTILL_TENSORBOARD_H
#define PARE_TOOLS_DISTILL_TENSORBOARD_H

#include "distill/training.h"
#include "formats/tfevents.h"
#include "tools/options.h"

/* A row for a command whose options have a const char *tensorboard. files: what is written, in
   words. */
#define PARE_TENSORBOARD_ROW(files)                                                                \
    PARE_OPT_FOLDER("tensorboard", "DIR", tensorboard,                                             \
                    "write what TensorBoard shows to " files                                       \
                    ": loss, rate and scores, histograms of weights and gradients")

typedef struct pare_tensorboard {
    pare_ctx *ctx;
    const char *folder;  /* which is there; NULL: nothing is written */
    pare_tfevents *file; /* NULL before the first event, and once one could not be written */
    bool begun;
    double seconds;  /* when the event before was, as pare_seconds */
    int64_t samples; /* trained on until then */
} pare_tensorboard;

/* Makes the folder where it is missing; NULL is fine. PARE_IO: as of pare_folder_make. */
PARE_NODISCARD pare_status pare_tensorboard_prepare(pare_ctx *ctx, const char *folder);

/* Adds an event of a training. The first makes the file. PARE_IO: that cannot be written. A later
   one that cannot is a warning; the file ends before it. */
PARE_NODISCARD pare_status pare_tensorboard_add(pare_tensorboard *tensorboard,
                                                const pare_distill_event *event);
void pare_tensorboard_close(pare_tensorboard *tensorboard);
#endif
