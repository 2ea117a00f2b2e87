/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long work on standard error: a bar with rate and time left on a terminal, a plain
   line every few seconds elsewhere, nothing when quiet. */
#ifndef PARE_TOOLS_PROGRESS_H
#define PARE_TOOLS_PROGRESS_H

#include "runtime/base/clock.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct pare_progress {
    FILE *file; /* NULL: quiet */
    bool terminal;
    const char *label, *unit; /* "calibrate", "samples" */
    double start, shown;      /* seconds; shown: when a line was last written */
    int64_t from;             /* done by others before the start: no part of the rate */
    int width;                /* of what is on the terminal's line */
    char note[80];            /* is after the rest: ", loss 0.12" */
} pare_progress;

/* quiet or a NULL file: every call does nothing. */
void pare_progress_begin(pare_progress *progress, FILE *file, bool quiet, const char *label,
                         const char *unit);
/* Fits the callbacks of the library: user is the pare_progress. all 0: unknown. */
void pare_progress_step(void *user, int64_t done, int64_t all);
/* Takes the bar away for other words; the next step may draw it again. */
void pare_progress_clear(pare_progress *progress);
/* Takes the bar away; steps after it do nothing. */
void pare_progress_end(pare_progress *progress);

/* "1h02m", "3m05s", "12s" into text (at least 32 bytes); returns text. */
const char *pare_duration_text(double seconds, char *text, int size);
/* The line without its end: "calibrate  128/512 samples  25 %  210/s  2s left". */
void pare_progress_line(const pare_progress *progress, double now, int64_t done, int64_t all,
                        bool bar, char *text, int size);
#endif
