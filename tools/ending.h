/* SPDX-License-Identifier: Apache-2.0 */
/* How a command ended, left in a file for who started it through a launcher: mpirun and srun have
   exit statuses of their own, and each of a command's stands for several failures. */
#ifndef PARE_TOOLS_ENDING_H
#define PARE_TOOLS_ENDING_H

#include "runtime/base/ctx.h"

/* Before the command's name, with the file's: "pare --ending FILE prune ..." */
#define PARE_ENDING "--ending"

/* Writes status and message of a failure, unless there is such a file: of several processes that
   speak the first counts. A file that cannot be written is left out. Allocates nothing, and may be
   called in a signal handler. */
void pare_ending_leave(const char *path, pare_status status, const char *message);

/* Returns the status that the file tells, its message in ctx; PARE_OK where there is none, or no
   whole one. */
pare_status pare_ending_find(pare_ctx *ctx, const char *path);
#endif
