/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of Attention (23, 24) and of pare.FusedAttention share. */
#ifndef PARE_RUNTIME_OPS_ATTENTION_H
#define PARE_RUNTIME_OPS_ATTENTION_H

#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Q, K, V or Y of rank 3, (batch, length, heads x size), as (batch, heads, length, size) of the
   same memory; of rank 4 as it is. */
pare_view pare_attention_heads(const pare_view *x, int64_t heads);

/* --- pare.FusedAttention. Its attribute head_axes gives the axis of the heads in Q, K, V and Y of
       rank 4: 1 (the default), or 2 for (batch, length, heads, size). Its attribute parts says of
       Q, K and V which part of a packed product (batch, length, parts, heads, size) they are; -1
       (the default): a tensor of their own. --- */

enum { PARE_ATTENTION_Q, PARE_ATTENTION_K, PARE_ATTENTION_V, PARE_ATTENTION_Y };

/* Is this operand (batch, length, heads, size)? */
bool pare_attention_is_moved(const pare_node *node, int operand);

/* The shape of an operand as (..., length, size), its heads before them; of Y also back. */
pare_shape pare_attention_shape(const pare_node *node, int operand, const pare_shape *shape);

/* Q, K, V and Y as (..., length, size) of the same memory; mask: NULL where there is none.
   rounded: f16 or bf16 where scale * Q K^T, and then its sum with the mask, are rounded to this
   type, as the operators round them that the node stands for: of a query whose keys a mask takes
   away by the type's lowest number, all sums are alike. It is the node's type also where a kernel
   is given f32 copies. PARE_NOTYPE of other types, and without a mask. */
typedef struct pare_attention_views {
    pare_view q, k, v, y;
    const pare_view *mask;
    pare_dtype rounded;
} pare_attention_views;
pare_attention_views pare_attention_views_of(const pare_node *node, const pare_view *in,
                                             int in_count, const pare_view *y);

/* Elements from the start of v to a head, counted over the axes of y before the last two; axes of v
   of length 1 stretch, missing ones too. */
int64_t pare_attention_head_offset(const pare_view *v, const pare_view *y, int64_t head);

#ifdef __cplusplus
}
#endif

#endif
