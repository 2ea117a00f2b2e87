/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in regions of the GPU that computes them: they are copied there, by work in the runner's
   stream, and the runner brings them neither up nor down. */
#ifndef PARE_TOOLS_SERVE_DIRECT_H
#define PARE_TOOLS_SERVE_DIRECT_H

#include "tools/serve/infer_job.h"

/* Where the job's rows of an input are, in the GPU that reads them, and where its output i is to
   go, in the one that makes it; NULL: neither is there. */
const void *pare_direct_source(const pare_infer_job *job, int input, const pare_site *site);
void *pare_direct_target(const pare_infer_job *job, int i, const pare_site *site);

/* Are they in a body from which GPUs copy by themselves? */
bool pare_direct_is_pinned(const pare_infer_job *job, int input);

/* Puts the job's rows of an input to the GPU. staging: pinned memory of as many bytes, for rows
   that are in neither. */
PARE_NODISCARD pare_status pare_direct_load(const pare_infer_job *job, int input,
                                            const pare_site *site, void *there, void *staging,
                                            pare_replica *replica);
/* In the memory of the runner's GPU. */
PARE_NODISCARD pare_status pare_direct_copy(pare_runner *runner, void *to, const void *from,
                                            size_t bytes);
/* Waits for what was put into the streams of its first and last runner, also after a failure (st),
   which stays the message. On the CPU nothing was. */
PARE_NODISCARD pare_status pare_direct_end(pare_replica *replica, pare_status st);
#endif
