/* SPDX-License-Identifier: Apache-2.0 */
/* A request in the queue of a served model: made and checked by infer_job.c, run by
   served_run.c. */
#ifndef PARE_TOOLS_SERVE_INFER_JOB_H
#define PARE_TOOLS_SERVE_INFER_JOB_H

#include "tools/serve/served.h"

typedef struct pare_shadowed pare_shadowed; /* of shadow.h */
/* Takes the outputs that a job asks for, whose memory lasts until it returns. */
typedef pare_status pare_infer_keep(struct pare_infer_job *job, const pare_infer_tensor *output);

typedef struct pare_sequence pare_sequence; /* of sequences.h */

typedef struct pare_infer_job {
    pare_job job; /* first: the queue knows only this */
    pare_served *served;
    pare_exchange *x;
    pare_infer_request request;
    const pare_infer_tensor **input; /* (input_count) in the model's order */
    pare_infer_wanted *wanted;       /* (wanted_count) outputs to send */
    int *output;                     /* (wanted_count) which of the model's they are; behind
                                        these, as in wanted, the states of its sequence */
    int wanted_count;
    pare_region **source, **target; /* (input_count), (wanted_count) shared memory; NULL: none */
    bool *is_put;                   /* (wanted_count) the run puts it to its target */
    pare_infer_keep *keep;          /* takes the outputs; NULL: they become the reply's body */
    void *pixels;                   /* of its pictures, from malloc; NULL: none yet */
    double seconds[PARE_STAGES];    /* it took, once they are known */
    pare_sequence *sequence;        /* NULL: none */
    void (*done)(pare_exchange *x); /* in place of which the sequence has its own */
    struct pare_infer_job *behind;  /* waits in the same sequence */
    pare_shadowed *copy;     /* for the model that shadows this one; NULL: it is not compared */
    pare_shadowed *shadowed; /* of which this is the run, without a reply; NULL: it is a request */
} pare_infer_job;

/* Is the body a picture alone, without JSON, as HTTP has it? */
bool pare_infer_job_is_picture(const pare_exchange *x);
/* Reads the request in the exchange's body, which is no picture. */
PARE_NODISCARD pare_status pare_infer_job_read(pare_exchange *x, pare_infer_request *out);
/* A request for the model; NULL: what the exchange's body says. The job lives in the exchange's
   arena. It is there after a failure, too, or NULL. regions NULL: shared memory is not served. */
PARE_NODISCARD pare_status pare_infer_job_new(pare_infer_job **out, pare_served *served,
                                              pare_exchange *x, const pare_infer_request *request,
                                              pare_regions *regions);
/* Queues the job, or replies that it could not be made (st) or that the queue is full. Takes the
   caller's reference to the model. */
void pare_infer_job_submit(pare_infer_job *job, pare_served *served, pare_exchange *x,
                           pare_status st);
/* An input as the request brought it, pictures that were decoded since among them. */
const pare_infer_tensor *pare_infer_job_given(const pare_infer_job *job, int input);
/* Makes the reply of the outputs that were asked for, or hands them to `keep`, or compares them
   where the job is the run of a shadow. Makes `copy` where the model has a shadow. */
PARE_NODISCARD pare_status pare_infer_job_answer(pare_infer_job *job,
                                                 const pare_infer_tensor *output);
/* Copies the job's rows of an input to the host's memory; a failure is in ctx. */
PARE_NODISCARD pare_status pare_infer_job_rows(const pare_infer_job *job, int input, void *to,
                                               pare_ctx *ctx);
/* Gives back the memory that it holds, shared and its own: before the exchange's reply. */
void pare_infer_job_release(pare_infer_job *job);
/* Can both be rows of one run? Both are pare_infer_jobs of one model. */
bool pare_infer_job_alike(const pare_job *a, const pare_job *b);
/* The failure in the exchange's context becomes the reply, and the model's reference goes. */
void pare_infer_job_fail(pare_infer_job *job, pare_status st);
#endif
