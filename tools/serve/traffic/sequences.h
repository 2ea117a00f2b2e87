/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences: requests that belong together. Those of one sequence run one after the other, those of
   different ones in one batch; the model's states are kept between them. A sequence begins with a
   request that says so, and ends with one that says so, with one that fails, or when it is idle for
   too long. */
#ifndef PARE_TOOLS_SERVE_SEQUENCES_H
#define PARE_TOOLS_SERVE_SEQUENCES_H

#include "tools/serve/infer_job.h"

/* For a model whose configuration has sequences: marks the inputs and outputs that are the server's
   own. PARE_INPUT: the model does not have what the configuration says. */
PARE_NODISCARD pare_status pare_sequences_new(pare_served *served);
void pare_sequences_free(pare_sequences *sequences); /* no job is left; NULL is fine */

/* Makes room for the server's own inputs and adds the states to the job's outputs, behind those
   that are sent. */
PARE_NODISCARD pare_status pare_sequences_extend(pare_infer_job *job);
/* Queues a job behind those of its sequence. The next of these runs when its reply has been made,
   so that replies come in order. PARE_INPUT: it has no place in one; the job is still
   the caller's. PARE_MEMORY, with the exchange's retry_after: as many as may are waiting. */
PARE_NODISCARD pare_status pare_sequences_push(pare_infer_job *job);
/* The job's states were computed: (state_count) tensors. */
PARE_NODISCARD pare_status pare_sequences_keep(const pare_infer_job *job,
                                               const pare_infer_tensor *state);

int pare_sequences_state_count(const pare_sequences *sequences); /* NULL: 0 */
/* Sequences that have begun and not ended. */
int64_t pare_sequences_count(pare_sequences *sequences);
const pare_sequence_config *pare_sequences_config(const pare_sequences *sequences);
#endif
