/* SPDX-License-Identifier: Apache-2.0 */
/* What a training says while it runs: progress on standard error, a line of JSON for every step,
   TensorBoard's file. */
#ifndef PARE_TOOLS_DISTILL_LOG_H
#define PARE_TOOLS_DISTILL_LOG_H

#include "distill/training.h"
#include "tools/distill/tensorboard.h"
#include "tools/options.h"
#include "tools/progress.h"

#include <sys/types.h>

typedef struct pare_distill_log {
    pare_tool *tool;
    const char *path; /* NULL: none is written */
    FILE *file;       /* NULL before the first event, and once a line could not be written */
    off_t good;       /* bytes of whole lines; -1: none yet, or no file that can be cut */
    bool begun;
    pare_tensorboard tensorboard;
    pare_progress bar;
    pare_distill_score score; /* the latest; loss negative: none yet */
    double start;             /* of the first event, as pare_seconds */
    int64_t seen;             /* samples before it */
    int64_t samples;          /* trained on since then */
    double seconds;           /* from start to the latest step */
} pare_distill_log;

/* path NULL: no file. Else the first event makes it, or, of a training that continues, cuts it back
   to where that continues. tensorboard: a folder for a file of this training's, which is there;
   NULL: none. */
void pare_distill_log_open(pare_distill_log *log, pare_tool *tool, const char *path,
                           const char *tensorboard);
/* A pare_distill_event_fn; user is the log. PARE_IO: the first line cannot be written; a later one
   is not worth a training: a warning, and the log ends with the whole lines that it has.
   TensorBoard's file is handled alike. PARE_INPUT: what is to be cut back is no log. Lines hold no
   clock, so that the same training writes the same log. */
PARE_NODISCARD pare_status pare_distill_log_event(void *user, const pare_distill_event *event);
PARE_NODISCARD pare_status pare_distill_log_close(pare_distill_log *log);

/* {loss, agreement, top1}: percent; what there is. */
json_t *pare_distill_score_json(const pare_distill_score *score);
/* Names of weights whose zeros stay: [name, ...]. */
json_t *pare_distill_zeros_json(const char *const *name, int count);
/* "loss 0.0312, agreement 97.50 %, top-1 91.20 %"; returns text. */
const char *pare_distill_score_text(const pare_distill_score *score, char *text, size_t size);
#endif
