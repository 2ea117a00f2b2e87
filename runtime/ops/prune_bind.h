/* SPDX-License-Identifier: Apache-2.0 */
/* What bind functions of the prune column share. Shapes are known to them: nodes with unknown ones
   are stopped before. */
#ifndef PARE_RUNTIME_OPS_PRUNE_BIND_H
#define PARE_RUNTIME_OPS_PRUNE_BIND_H

#include "runtime/ops/infer.h"

/* All units of an axis, each with its own coordinate. */
pare_axis_span pare_axis_all(const pare_value *value, int axis);

/* Two axes of one length fall together index by index. */
PARE_NODISCARD pare_status pare_bind_axes(const pare_prune_units *units, const pare_node *node,
                                          const pare_value *a, int axis_a, const pare_value *b,
                                          int axis_b);
/* Axes first .. first + count - 1 of a against those of b from first_b on; where a's is 1 long it
   is broadcast and binds nothing. */
PARE_NODISCARD pare_status pare_bind_range(const pare_prune_units *units, const pare_node *node,
                                           const pare_value *a, int first, int count,
                                           const pare_value *b, int first_b);
/* a broadcasts to b, aligned at the last axis. */
PARE_NODISCARD pare_status pare_bind_broadcast(const pare_prune_units *units, const pare_node *node,
                                               const pare_value *a, const pare_value *b);
/* An axis, or axes from first on, cannot be pruned. value may be NULL: absent. */
PARE_NODISCARD pare_status pare_block_axis(const pare_prune_units *units, const pare_node *node,
                                           const pare_value *value, int axis, const char *why);
PARE_NODISCARD pare_status pare_block_from(const pare_prune_units *units, const pare_node *node,
                                           const pare_value *value, int first, const char *why);
/* Nor anything the node reads or makes. */
PARE_NODISCARD pare_status pare_block_all(const pare_prune_units *units, const pare_node *node,
                                          const char *why);

/* a is summed over axis_a, b over axis_b, pairwise: the side known before the run reads the other.
 */
PARE_NODISCARD pare_status pare_bind_summed(const pare_prune_units *units, const pare_node *node,
                                            const pare_value *a, int axis_a, const pare_value *b,
                                            int axis_b);

/* Units of an axis that stay, and how many there were. */
int64_t pare_cut_kept(const pare_prune_cut *cut, const pare_value *value, int axis);
bool pare_cut_changed(const pare_prune_cut *cut, const pare_value *value, int axis);

/* Input i of the node as it was, as int64; PARE_INPUT where it is not constant. */
PARE_NODISCARD pare_status pare_cut_ints(const pare_prune_cut *cut, int i, const int64_t **out,
                                         int *count);

/* The column's functions: bind_NAME and cut_NAME (cut_none: nothing to rewrite). */
#define PARE_BIND(name)                                                                            \
    pare_status pare_prune_bind_##name(const pare_node *node, const pare_prune_units *units)
#define PARE_CUT(name) pare_status pare_prune_cut_##name(const pare_prune_cut *cut, pare_node *node)
PARE_BIND(ties);
PARE_BIND(same);
PARE_BIND(stops);
PARE_BIND(conv);
PARE_BIND(conv_transpose);
PARE_BIND(gemm);
PARE_BIND(matmul);
PARE_BIND(along);
PARE_BIND(lrn);
PARE_BIND(cum_sum);
PARE_BIND(trilu);
PARE_BIND(reduce);
PARE_BIND(arg_extreme);
PARE_BIND(pool);
PARE_BIND(layer_norm);
PARE_BIND(batch_norm);
PARE_BIND(instance_norm);
PARE_BIND(group_norm);
PARE_BIND(reshape);
PARE_BIND(transpose);
PARE_BIND(expand);
PARE_BIND(constant_of_shape);
PARE_BIND(concat);
PARE_BIND(split);
PARE_BIND(slice);
PARE_BIND(gather);
PARE_BIND(pad);
PARE_BIND(tile);
PARE_BIND(resize);
PARE_BIND(depth_to_space);
PARE_BIND(space_to_depth);
PARE_CUT(none);
PARE_CUT(conv);
PARE_CUT(group_norm);
PARE_CUT(reshape);
PARE_CUT(expand);
PARE_CUT(constant_of_shape);
PARE_CUT(split);
PARE_CUT(slice);
PARE_CUT(gather);
PARE_CUT(pad);
PARE_CUT(resize);
#undef PARE_BIND
#undef PARE_CUT

#endif
