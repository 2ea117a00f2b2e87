/* SPDX-License-Identifier: Apache-2.0 */
/* Part of a compiled graph as a model of its own: a stage, one of several ranks' share of every
   node, or one node. Its weights are copies, but for those in the map of the file, so that what the
   part does not read can be freed. */
#ifndef PARE_RUNTIME_EXEC_PART_MODEL_H
#define PARE_RUNTIME_EXEC_PART_MODEL_H

#include "runtime/exec/plan.h"

/* An empty model with the same file behind it, whose map stays while it lives; freed by
   pare_model_free, after a failure, too. */
PARE_NODISCARD pare_status pare_part_new(pare_model **out, const pare_model *compiled);

/* The part's own value of that name, made at the first call. PARE_UNSUPPORTED: constant strings. */
PARE_NODISCARD pare_status pare_part_value(pare_graph *to, const pare_value *from,
                                           pare_value **out);

/* The node behind the others, with these inputs and outputs, as many as it has. */
PARE_NODISCARD pare_status pare_part_node(pare_graph *to, const pare_node *from,
                                          pare_value *const *in, pare_value *const *out);
/* The node with the part's own values of its inputs and outputs. */
PARE_NODISCARD pare_status pare_part_copy(pare_graph *to, const pare_node *from, pare_arena *arena);

/* Makes the part's own values its inputs (list is &to->in) or outputs (&to->out). */
PARE_NODISCARD pare_status pare_part_ends(pare_graph *to, pare_values *list,
                                          pare_value *const *from, int count);

/* The plan's model from here on, in place of the compiled one, which is freed. */
PARE_NODISCARD pare_status pare_part_take(pare_plan *plan, pare_model *part);

/* Names the first node of a plan's dynamic part, which cannot be cut into "stages". */
PARE_NODISCARD pare_status pare_part_refuse(const pare_plan *plan, const char *into);

#endif
