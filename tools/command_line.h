/* SPDX-License-Identifier: Apache-2.0 */
/* One command line as the program runs it: finds the command, parses its options, runs it, writes
   its facts. The program runs one; a zoo runs one in each of its processes. */
#ifndef PARE_TOOLS_COMMAND_LINE_H
#define PARE_TOOLS_COMMAND_LINE_H

#include "runtime/base/ctx.h"

/* From now on the first SIGINT, SIGTERM or SIGHUP asks the work to stop, which removes what it
   began to write; a second one kills. A file over the size limit is an error of the write, not the
   end of the program. Returns what the signal sets, for ctx->interrupted; it is 0 at first. */
const volatile int *pare_catch_signals(void);

/* words[0..count-1] is what is after "pare" on a command line, PARE_ENDING and its file before the
   command's name where the caller wants to hear of a failure so. Data go to standard output,
   words to standard error; the message of a failure stays in the context, and of several processes
   that a launcher started the first has printed it. */
PARE_NODISCARD pare_status pare_run_argv(pare_ctx *ctx, char *const *words, int count);

/* Prints before and line to standard error. Names come from files: what would move a terminal's
   cursor or end the line is printed as '?'. */
void pare_print_line(const char *before, const char *line);
#endif
