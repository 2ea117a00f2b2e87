/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a session, as /proc tells of them: how much memory they hold, and their end. */
#ifndef PARE_TOOLS_ZOO_SESSION_H
#define PARE_TOOLS_ZOO_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Resident bytes of all processes of a session (pages they share count in each). */
int64_t pare_session_bytes(pid_t session);

/* Resident bytes of one process; 0 where it is gone. */
int64_t pare_session_process_bytes(pid_t pid);

/* SIGKILL to every process of a session but the caller, until none is left that lives. */
void pare_session_kill(pid_t session);

/* Kills and reaps what the caller's processes left behind, which was given to it: children that are
   neither of these running ones nor in the session that one of them leads. */
void pare_session_sweep(const pid_t *running, int count);

/* How often the kernel has killed for want of memory since the start; -1: it does not tell. */
long pare_session_oom_kills(void);
#endif
