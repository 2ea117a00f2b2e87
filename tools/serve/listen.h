/* SPDX-License-Identifier: Apache-2.0 */
/* A socket that listens. */
#ifndef PARE_TOOLS_SERVE_LISTEN_H
#define PARE_TOOLS_SERVE_LISTEN_H

#include "runtime/base/ctx.h"

/* Listens on the first address of the host where that is possible; *fd is the caller's. port 0: any
   that is free; *bound is the one it has. PARE_IO: it cannot. */
PARE_NODISCARD pare_status pare_listen(pare_ctx *ctx, int *fd, const char *host, int port,
                                       int *bound);

/* How many descriptors the connections of a transport may take: half of what this process may have,
   so that there is room for another's and for files. Raises the process's own limit to the one that
   it is given. */
unsigned pare_listen_most(void);
#endif
