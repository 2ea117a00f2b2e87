/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a zoo's results: whose it is, and who works in it. */
#ifndef PARE_TOOLS_ZOO_WORKDIR_H
#define PARE_TOOLS_ZOO_WORKDIR_H

#include "runtime/base/ctx.h"

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
