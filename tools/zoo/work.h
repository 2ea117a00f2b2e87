/* SPDX-License-Identifier: Apache-2.0 */
/* What the process of a node does: its folder, its command, the hashes of what came out. */
#ifndef PARE_TOOLS_ZOO_WORK_H
#define PARE_TOOLS_ZOO_WORK_H

#include "runtime/base/ctx.h"
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

/* --- the folder: whose it is, and who works in it --- */

typedef enum pare_zoo_holder {
    PARE_ZOO_ALONE, /* no one else works in the folder */
    PARE_ZOO_BESIDE /* others of this kind do, too: tasks of a batch system */
} pare_zoo_holder;

/* Makes the folder and what is in it where it is missing, and holds its lock until *lock is
   closed. PARE_INPUT: it is another zoo's or another version's, or none of a zoo; it holds work and
   resume is false; another process works in it. PARE_IO: it cannot be made. */
PARE_NODISCARD pare_status pare_zoo_workdir_open(pare_ctx *ctx, int *lock, const char *folder,
                                                 const char *name, pare_zoo_holder holder,
                                                 bool resume);
#endif
