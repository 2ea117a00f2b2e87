/* SPDX-License-Identifier: Apache-2.0 */
/* pare.AllGather steps of runners of one plan, of which each process has its own
   (pare_plan_options.gatherer). What several runners have goes in few messages. On a device the
   parts come down and the whole tensor goes up. */
#ifndef PARE_RUNTIME_EXEC_GATHER_H
#define PARE_RUNTIME_EXEC_GATHER_H

#include "runtime/exec/runner.h"

/* A part of a dense tensor: `rows` stretches of `bytes`, `step` apart, from byte `at` on. The part
   alone has them without gaps. */
typedef struct pare_part_rows {
    int64_t rows;
    size_t bytes, step, at;
} pare_part_rows;

/* Indices first .. first + size - 1 of an axis of `whole`. */
pare_part_rows pare_part_rows_of(const pare_view *whole, int axis, int64_t first, int64_t size);

/* Does a process give others parts in this step? */
bool pare_gathers(const pare_plan *plan, const pare_node *node);

/* Room for the parts of `most` runners. */
typedef struct pare_gather pare_gather;
PARE_NODISCARD pare_status pare_gather_open(pare_ctx *ctx, pare_gather **out, const pare_plan *plan,
                                            int most);
void pare_gather_close(pare_gather *gather); /* NULL is fine */

/* Makes the output of this step in `count` runners, whose steps before it are done, or on a device
   in the stream that they share. The failure is in the context. */
PARE_NODISCARD pare_status pare_gather_step(pare_gather *gather, pare_runner *const *runner,
                                            int count, int step);

#endif
