/* SPDX-License-Identifier: Apache-2.0 */
/* The loss as nodes after the student's (internal to distill/). */
#ifndef PARE_DISTILL_LOSS_H
#define PARE_DISTILL_LOSS_H

#include "distill/teacher.h"

typedef struct pare_loss_nodes {
    const char *loss;   /* one f32: the mean over the rows of a slice */
    const char *labels; /* the s64 input (rows), or NULL */
    const char *logits; /* (samples, classes, 1 ...), what top-1 is taken of; NULL: the first output
                           is no classifier's */
    int teacher_logits; /* the teacher's, among the tensors wanted of it; -1 */
    int64_t classes;
    pare_value **input; /* (input_count): the graph's input for each tensor of the teacher; NULL:
                           the loss does not read it */
    size_t input_capacity;
    int input_count;
} pare_loss_nodes;

/* Puts the loss after a student whose shapes are inferred for the rows of a slice; what it wants
   of the teacher is asked of it. PARE_INPUT: what the terms compare is
   missing in a net or does not match. */
PARE_NODISCARD pare_status pare_loss_append(pare_model *student, pare_teacher *teacher,
                                            const pare_distill_loss *loss, pare_loss_nodes *out);

#endif
