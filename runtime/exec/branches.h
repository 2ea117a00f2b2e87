/* SPDX-License-Identifier: Apache-2.0 */
/* Branches: regions of a list of steps, in each of which some run in a second stream of the device
   beside the others. A region is a stretch of steps that follow one another in the list. It is
   parted into two sets, each in the order of the list, such that no step of one set writes what a
   step of the other reads or writes. The second stream begins where all steps before the region
   have run, and all steps after it follow both sets. */
#ifndef PARE_RUNTIME_EXEC_BRANCHES_H
#define PARE_RUNTIME_EXEC_BRANCHES_H

#include "runtime/exec/plan.h"

enum { PARE_BRANCH_REACH = 64 }; /* steps of a region at most */

/* What a fork and its join are taken to cost on a GPU; not measured. */
#define PARE_BRANCH_SECONDS 2e-6

typedef struct pare_branch_step {
    double macs, bytes; /* multiply-adds; bytes that it reads and writes */
    double outputs;     /* elements of its first output */
    pare_dtype type;    /* it multiplies in */
    uint64_t after;     /* bit k: it and step i - 1 - k run in their order: one of them writes what
                           the other reads or writes */
    bool alone;         /* it is in no region: the host has a part in it */
    bool first_stream;  /* it cannot run in the second one */
    int region;         /* out: the number of its region, -1: none */
    bool side;          /* out: it runs in the second stream */
} pare_branch_step;

/* Chooses the regions by which the list ends the soonest, by sizes alone: the same list has the
   same regions. A step takes 5 us where it multiplies and 2 us where not, or, where that is more,
   what its bytes and multiply-adds take of a whole GPU, multiply-adds of f32 of the part that its
   outputs fill. Two sets side by side take the longest of
   either and of what all their bytes and multiply-adds take, and PARE_BRANCH_SECONDS. So steps that
   fill the device gain nothing, and have no region. PARE_MEMORY. */
PARE_NODISCARD pare_status pare_branches_choose(pare_ctx *ctx, pare_branch_step *step, int count);

/* Of a plan on a device, whose steps are made: chooses regions, and plans its memory such that the
   two sets of a region share none. Where that takes too much more (a quarter and 16 MB), there are
   no regions. plan->single keeps the memory of one stream, which runners have where the device does
   not grant the other. PARE_MEMORY. */
PARE_NODISCARD pare_status pare_branches_place(pare_plan *plan);

#endif
