/* SPDX-License-Identifier: Apache-2.0 */
/* The teacher while a student learns: an ordinary inference plan for the rows of a slice,
   deterministic and of one thread, run by the thread that loads a slice (internal to distill/).
   Order: open, want ..., ready, run ... */
#ifndef PARE_DISTILL_TEACHER_H
#define PARE_DISTILL_TEACHER_H

#include "distill/distill.h"
#include "runtime/exec/batch.h"

typedef struct pare_teacher {
    pare_ctx *ctx;
    const pare_model *file; /* as it was given */
    pare_model *model;      /* shapes known for `part` rows */
    pare_plan *plan;
    int *source;        /* (its inputs): which of the student's */
    int64_t rows, part; /* of a slice; of one run, which divides them */
    pare_value **wanted;
    int wanted_count;
    size_t wanted_capacity;
    int *input;          /* (plan's inputs): which of its inputs */
    int *output;         /* (wanted): the plan's output */
    pare_replicas *pool; /* a replica for each thread that loads microbatches */
} pare_teacher;

/* The teacher for microbatches of so many rows, a multiple of its own fixed batch. */
PARE_NODISCARD pare_status pare_teacher_open(pare_ctx *ctx, pare_teacher *out,
                                             const pare_model *teacher, const pare_model *student,
                                             const pare_data *data, int64_t rows);
void pare_teacher_free(pare_teacher *teacher);

/* The place of a tensor of its model among those it gives; asked twice, the same. */
PARE_NODISCARD pare_status pare_teacher_want(pare_teacher *teacher, pare_value *value, int *out);
/* Shape of a wanted tensor for the rows of a slice. */
void pare_teacher_shape(const pare_teacher *teacher, int wanted, pare_shape *out);

/* Makes the plan, and runners for so many threads; device: NULL is the CPU. */
PARE_NODISCARD pare_status pare_teacher_ready(pare_teacher *teacher, int threads,
                                              pare_device *device);

/* Runs a slice on the calling thread, which is this worker of those that load microbatches.
   input[i]: rows of the student's input i; output[k] gets wanted tensor k, dense. A failure is told
   in ctx.
 */
PARE_NODISCARD pare_status pare_teacher_run(pare_teacher *teacher, int worker, pare_ctx *ctx,
                                            const void *const *input, void *const *output);

#endif
