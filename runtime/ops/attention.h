/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of Attention (23, 24), pare.FusedAttention and pare.QAttention share. */
#ifndef PARE_RUNTIME_OPS_ATTENTION_H
#define PARE_RUNTIME_OPS_ATTENTION_H

#include "runtime/ops/epilogue.h"
#include "runtime/ops/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Q, K, V or Y of rank 3, (batch, length, heads x size), as (batch, heads, length, size) of the
   same memory; of rank 4 as it is. */
pare_view pare_attention_heads(const pare_view *x, int64_t heads);

/* --- pare.FusedAttention and pare.QAttention. The attribute head_axes gives the axis of the heads
   in Q, K, V and Y of rank 4: 1 (the default), or 2 for (batch, length, heads, size). The attribute
       parts says of Q, K and V which part of a packed product (batch, length, parts, heads, size)
       they are; -1 (the default): a tensor of their own. --- */

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

/* --- pare.QAttention (Q, K, V, mask): Q, K and V of 8 bits, a mask of f32 or none. One rounding
       each, in this order, the same bytes on every backend:
         score = (float)sum((q - q_zero) * (k - k_zero)) * scale, + mask
         p     = min(rint(softmax(score) / p_scale), p_steps)      softmax_codes.h, without the zero
         y     = epilogue.h of sum(p * (v - v_zero)) and m = p_scale * v_scale, by y_scale,
                 y_zero_point, `to` and output_dtype as FusedMatMul has them
       These are FusedMatMul, Add, QSoftmax and FusedMatMul one after the other. --- */

typedef struct pare_q_attention {
    float scale;
    int32_t q_zero, k_zero, v_zero;
    float p_scale, p_steps;
    float m;
    pare_epilogue epilogue;
} pare_q_attention;

/* PARE_INPUT: Q, K or V is not of 8 bits, an attribute is no positive number or no 8-bit value, or
   the mask is not f32. */
PARE_NODISCARD pare_status pare_q_attention_read(const pare_node *node, pare_q_attention *out);

/* Has the GPU's kernel (runtime/cuda/attention_int8.cu) operands of these shapes, strides and
   probabilities? Heads of whole chunks of 16 bytes, as many keys as a block holds in shared memory,
   and steps that 7 or 8 bits end. */
bool pare_q_attention_fits(const pare_attention_views *x, const pare_q_attention *a);

/* How that kernel divides its work. A warp has 16 queries and up to 128 keys; a block's slices *
   groups warps share a head's keys by slices, and as many queries as groups have. */
enum {
    PARE_Q_ATTENTION_QUERIES = 16,
    PARE_Q_ATTENTION_KEYS = 128,
    PARE_Q_ATTENTION_WARPS = 16 /* of a block, at most */
};
typedef struct pare_q_attention_blocks {
    int slices, groups;
    int slice;  /* keys of each slice, in whole sixteens */
    int blocks; /* of a head */
} pare_q_attention_blocks;
/* wide: heads of more than 64 columns, whose blocks have half as many warps. */
bool pare_q_attention_is_wide(const pare_attention_views *x);
pare_q_attention_blocks pare_q_attention_blocks_of(int64_t heads, int queries, int keys, bool wide);
int pare_q_attention_slice(int keys, int slices);
/* Rows of K or V in a block's shared memory: those of all slices, and what the last one's ldmatrix
   reads behind them. */
PARE_BOTH int pare_q_attention_rows(int slice, int slices) { return slice * slices + 16; }
/* V comes over K where both would take more than 96 KiB. */
bool pare_q_attention_in_turn(const pare_q_attention_blocks *b, int depth);
/* A block's shared memory in bytes. depth: the kernel's, 32, 64 or 128. */
size_t pare_q_attention_shared(const pare_q_attention_blocks *b, int depth);

#ifdef __cplusplus
}
#endif

#endif
