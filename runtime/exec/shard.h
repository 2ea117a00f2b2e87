/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of tensor parallelism: shards.c chooses the cuts, shard_trial.c compares the bytes of
   a cut product with the whole one's, shard_model.c makes the model of one process. */
#ifndef PARE_RUNTIME_EXEC_SHARD_H
#define PARE_RUNTIME_EXEC_SHARD_H

#include "runtime/exec/part_model.h"

enum { PARE_SHARD_INPUTS = 8 };

/* How a node is cut. */
typedef struct pare_shard_cut {
    const pare_node *node;
    int shards;
    int64_t *size;             /* (shards) output channels */
    int axis;                  /* of the output */
    int in[PARE_SHARD_INPUTS]; /* the axis of each input that is cut alike; -1: it stays whole */
} pare_shard_cut;

/* Adds the node's part number `shard` to a part of the model; *out: the part of its output. */
PARE_NODISCARD pare_status pare_shard_add(pare_graph *to, const pare_shard_cut *cut, int shard,
                                          pare_arena *arena, pare_value **out);

/* Runs the node whole and in its parts. *same: are these the bytes of that? */
PARE_NODISCARD pare_status pare_shard_trial(const pare_plan *plan, const pare_shard_cut *cut,
                                            bool *same);

/* Leaves of the compiled copy what the shard of the options has. cut: (nodes), by position; those
   without a node stay whole. */
PARE_NODISCARD pare_status pare_shard_model(pare_plan *plan, const pare_shard_cut *cut);

#endif
