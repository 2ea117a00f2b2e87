/* SPDX-License-Identifier: Apache-2.0 */
/* What the process of a node does: its folder, its command, the hashes of what came out. */
#ifndef PARE_TOOLS_ZOO_WORK_H
#define PARE_TOOLS_ZOO_WORK_H

#include "tools/zoo/plan.h"

typedef struct pare_zoo_work {
    const pare_zoo_node *node;
    const char *input; /* of validate: the model that the link is made of; else NULL */
    const char *link;
    /* Runs a command line: pare_run_argv, or a test's. */
    pare_status (*run)(pare_ctx *ctx, char *const *words, int count);
} pare_zoo_work;

/* user: a pare_zoo_work. Where it is done the context's message is "MODEL FACTS", both hashes, "-"
   for one of no file. */
PARE_NODISCARD pare_status pare_zoo_work_do(pare_ctx *ctx, void *user);

/* Reads that message; false where it is none. */
bool pare_zoo_work_hashes(const char *message, char model[33], char facts[33]);

/* Takes the checkpoints of a node's trainings away, once nothing has to continue from them. */
void pare_zoo_drop_checkpoints(const pare_zoo_node *node);

/* Makes link another name of a model, with its external data: a hard link, or a copy where the file
   system has none. What was there is replaced. */
PARE_NODISCARD pare_status pare_zoo_link(pare_ctx *ctx, const char *link, const char *model);
#endif
