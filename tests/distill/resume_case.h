/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings that are cut off and continue, and what they say on the way. */
#ifndef PARE_TESTS_DISTILL_RESUME_CASE_H
#define PARE_TESTS_DISTILL_RESUME_CASE_H

#include "tests/distill/distill_case.h"

#include <sys/resource.h>
#include <sys/types.h>

enum { STEPS = 12, ROWS = 1024 };

/* For a group of tests, distill_setup among them: a folder, and the checkpoint's path in it. */
extern char resume_folder[], resume_path[64];
int resume_setup(void **state);
int resume_teardown(void **state);

/* An event, every member 8 bytes. */
typedef struct resume_row {
    int64_t step, scored, best;
    double rate, loss, norm, epoch;
    pare_distill_score score;
} resume_row;

typedef struct resume_run {
    distill_case c;
    resume_row row[ROWS];      /* by step */
    int64_t last;              /* step of the last event; -1: none */
    int64_t first;             /* of the first one of a run */
    int64_t stop_in;           /* step whose event fails as a stop does; -1: none */
    int64_t kill_at, limit_at; /* -1: never; from limit_at on, files have no room for 4 steps */
    int64_t events;            /* of a run */
    useconds_t timer;          /* microseconds from the first event to a stop; 0: none */
} resume_run;

typedef void (*resume_settings)(distill_case *c);

/* A run of its own, as another process would make it; what r noted before stays. */
void resume_open(resume_run *r, resume_settings set, int threads);
/* A first run: no checkpoint is there, and none is asked for. */
void resume_begin(resume_run *r, resume_settings set);
/* The run after r's, which it closes, from the checkpoint on. */
void resume_go_on(resume_run *r, resume_settings set, int threads);
/* Weights, events and what is known of the run. */
void resume_same(const resume_run *a, const resume_run *b);

/* STEPS steps of AdamW, with an average, a clip and validations every second step. */
void resume_adamw(distill_case *c);

/* What a run's timer needs: off, no alarm is in progress. */
void resume_alarms(bool on);
/* No file grows beyond this. */
void resume_limit_files(rlim_t bytes);

#endif
