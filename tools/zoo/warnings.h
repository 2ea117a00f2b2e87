/* SPDX-License-Identifier: Apache-2.0 */
/* What steps warn of in their logs, told to who runs the zoo. */
#ifndef PARE_TOOLS_ZOO_WARNINGS_H
#define PARE_TOOLS_ZOO_WARNINGS_H

#include "tools/progress.h"
#include "tools/zoo/plan.h"

enum { PARE_ZOO_WARNINGS = 20 };

/* Warnings of a node's log, each after the names of its model, variant and command; the progress's
   line is taken away for them. *told counts them over all nodes: after the first PARE_ZOO_WARNINGS
   one line says where the others are. */
void pare_zoo_warnings_tell(pare_ctx *ctx, pare_progress *progress, const pare_zoo *zoo,
                            const pare_zoo_node *node, int *told);
#endif
