/* SPDX-License-Identifier: Apache-2.0 */
/* A node that several ranks share, started by mpirun or another launcher. */
#ifndef PARE_TOOLS_ZOO_LAUNCH_H
#define PARE_TOOLS_ZOO_LAUNCH_H

#include "tools/zoo/plan.h"

/* Runs the node's command line in its ranks and waits for them; what they print goes to this
   process's output, which is node->log. Asked to stop, it asks them. Where they failed it returns
   what one process would, with their message; PARE_IO: the launcher failed, or cannot be started.
   Where a rank was ended by a signal it ends the calling process by the same. */
PARE_NODISCARD pare_status pare_zoo_launch(pare_ctx *ctx, const pare_zoo_node *node);
#endif
