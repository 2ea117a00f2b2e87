/* SPDX-License-Identifier: Apache-2.0 */
/* What bind functions of the prune column share. Shapes are known to them: nodes with unknown ones
   are stopped before. */
#ifndef PARE_RUNTIME_OPS_PRUNE_BIND_H
#define PARE_RUNTIME_OPS_PRUNE_BIND_H

#include "runtime/ops/infer.h"

/* All channels of an axis, each with its own coordinate. */
pare_axis_span pare_axis_all(const pare_value *value, int axis);

/* Two axes of one length fall together index by index. */
PARE_NODISCARD pare_status pare_bind_axes(const pare_prune_binder *binder, const pare_node *node,
                                          const pare_value *a, int axis_a, const pare_value *b,
                                          int axis_b);
/* Axes first .. first + count - 1 of a against those of b from first_b on; where a's is 1 long it
   is broadcast and binds nothing. */
PARE_NODISCARD pare_status pare_bind_range(const pare_prune_binder *binder, const pare_node *node,
                                           const pare_value *a, int first, int count,
                                           const pare_value *b, int first_b);
/* a broadcasts to b, aligned at the last axis. */
PARE_NODISCARD pare_status pare_bind_broadcast(const pare_prune_binder *binder,
                                               const pare_node *node, const pare_value *a,
                                               const pare_value *b);
/* An axis, or axes from first on, cannot be pruned. value may be NULL: absent. */
PARE_NODISCARD pare_status pare_block_axis(const pare_prune_binder *binder, const pare_node *node,
                                           const pare_value *value, int axis, const char *why);
PARE_NODISCARD pare_status pare_block_from(const pare_prune_binder *binder, const pare_node *node,
                                           const pare_value *value, int first, const char *why);
/* Nor anything the node reads or makes. */
PARE_NODISCARD pare_status pare_block_all(const pare_prune_binder *binder, const pare_node *node,
                                          const char *why);

/* a is summed over axis_a, b over axis_b, pairwise: the side known before the run reads the other.
 */
PARE_NODISCARD pare_status pare_bind_summed(const pare_prune_binder *binder, const pare_node *node,
                                            const pare_value *a, int axis_a, const pare_value *b,
                                            int axis_b);

/* Channels of an axis that stay, and how many there were. */
int64_t pare_cut_kept(const pare_prune_cut *cut, const pare_value *value, int axis);
bool pare_cut_changed(const pare_prune_cut *cut, const pare_value *value, int axis);

/* Input i of the node as it was, as int64; PARE_INPUT where it is not constant. */
PARE_NODISCARD pare_status pare_cut_ints(const pare_prune_cut *cut, int i, const int64_t **out,
                                         int *count);

/* Axes of input 0 pass to every output of the same rank but `axis`, which is blocked. */
PARE_NODISCARD pare_status pare_pass_beside(const pare_node *node, const pare_prune_binder *binder,
                                            int64_t axis);
extern const char pare_along[]; /* why such an axis is blocked */

#endif
