/* SPDX-License-Identifier: Apache-2.0 */
/* What crosses from one stage of a model to the next in a run (internal to eval/): each tensor at a
   multiple of 64. */
#ifndef PARE_RUNTIME_EVAL_STAGE_MESSAGE_H
#define PARE_RUNTIME_EVAL_STAGE_MESSAGE_H

#include "runtime/exec/exec.h"

/* Bytes of the tensors that come to a plan, and of those that leave it. */
size_t pare_stage_bytes_in(const pare_plan *plan);
size_t pare_stage_bytes_out(const pare_plan *plan);

/* The runner's inputs are where the message is, which stays there while it runs. */
void pare_stage_read(pare_runner *runner, const char *message);
/* Copies the runner's outputs. */
void pare_stage_write(const pare_runner *runner, char *message);

#endif
