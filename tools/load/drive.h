/* SPDX-License-Identifier: Apache-2.0 */
/* One rate of a load: the generator over a client, with the server's statistics before and after.
 */
#ifndef PARE_TOOLS_LOAD_DRIVE_H
#define PARE_TOOLS_LOAD_DRIVE_H

#include "tools/load/results.h"
#include "tools/progress.h"

typedef struct pare_load_drive {
    pare_tool *tool;
    pare_client *client;
    const pare_load_target *target;
    const pare_load_requests *requests;
    pare_load load; /* without its schedule */
    bool is_poisson;
    uint64_t seed;
    pare_progress bar;
} pare_load_drive;

/* One request alone. PARE_INPUT: the server does not answer it, or answers without the scores that
   labels are compared with; the message is the server's. */
PARE_NODISCARD pare_status pare_load_probe(pare_load_drive *drive);

/* PARE_USAGE: no request of this rate would be counted. */
PARE_NODISCARD pare_status pare_load_rate_check(const pare_load_drive *drive, double per_s);

/* Of a load that was cut short the row has what was found until then, and is_partial; the status
   says why: PARE_INTERRUPTED, or PARE_IO where the server has ended. row is zeros before; freed
   with pare_load_row_free. */
PARE_NODISCARD pare_status pare_load_rate(pare_load_drive *drive, pare_load_row *row, double per_s);
void pare_load_row_free(pare_load_row *row);
#endif
