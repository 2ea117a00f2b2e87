/* SPDX-License-Identifier: Apache-2.0 */
/* A node that several ranks share, started by mpirun or another launcher. */
#ifndef PARE_TOOLS_ZOO_LAUNCH_H
#define PARE_TOOLS_ZOO_LAUNCH_H

#include "tools/zoo/plan.h"

/* Runs the node's command line in its ranks and waits for them; what they print goes to this
   process's output, which is node->log. Asked to stop, it asks them. PARE_IO: they failed, with
   their last message; PARE_UNSUPPORTED: the launcher cannot be started. */
PARE_NODISCARD pare_status pare_zoo_launch(pare_ctx *ctx, const pare_zoo_node *node);
#endif
