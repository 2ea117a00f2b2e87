/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator means for structured pruning: the `prune` column of the table.

   Each index along an axis of a tensor is a channel. A node binds channels of its inputs and
   outputs that can only be removed together, blocks those that cannot be removed at all, and says
   which constants make or read them. bind() says so to a sink; cut() rewrites what the node's
   attributes and integer constants say about extents, after channels were removed. Both see shapes
   without unknown dims. */
#ifndef PARE_RUNTIME_OPS_PRUNE_H
#define PARE_RUNTIME_OPS_PRUNE_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How channels run through an operator: the words of the column. */
typedef enum pare_prune_kind {
    PARE_PRUNE_STOPS, /* nothing it touches can be pruned */
    PARE_PRUNE_MAKES, /* a weight reads the channels of one side and makes those of the other */
    PARE_PRUNE_TIES,  /* element by element: inputs and output share their channels */
    PARE_PRUNE_JOINS, /* output channels are the inputs' one after the other */
    PARE_PRUNE_PASS, /* output channels are the input's, element by element or (MAPS) by an axis map
                      */
    PARE_PRUNE_WORKS /* passes along every axis but those it computes along, which are blocked */
} pare_prune_kind;

/* Channels of one axis, with a coordinate each: channel start + k has coordinate (k / inner) %
   count, k < length. Two spans that are bound agree in count; channels of equal coordinates fall
   together. parts: 1, but for the weight of a convolution with groups, whose input channels (Conv
   axis 1, ConvTranspose: the output channels, axis 1) are parts times as many as the axis is long:
   channel u is in part u / dim at index u % dim. */
typedef struct pare_axis_span {
    const pare_value *value;
    int axis;
    int64_t parts, start, length, inner, count;
} pare_axis_span;

typedef struct pare_prune_binder pare_prune_binder;

/* Where bind functions speak to. What is said about axes of extent 1, which have no channels, is
   ignored. */
struct pare_prune_binder {
    void *user;
    pare_status (*bind)(void *user, const pare_node *node, const pare_axis_span *a,
                        const pare_axis_span *b);
    /* These channels cannot be removed; why, after the node's name: "computes along this axis". The
       text is kept as it is. */
    pare_status (*block)(void *user, const pare_node *node, const pare_axis_span *span,
                         const char *why);
    /* A product sums over this axis of a value that is known before the model runs. */
    pare_status (*reads)(void *user, const pare_node *node, const pare_value *value, int axis,
                         int64_t parts);
    /* Of each of `blocks` equal consecutive blocks of an axis equally many channels must stay. */
    pare_status (*even)(void *user, const pare_node *node, const pare_value *value, int axis,
                        int64_t blocks);
    /* The node makes factor * (product of these axes' channels) multiply-adds. */
    pare_status (*work)(void *user, const pare_node *node, double factor,
                        const pare_axis_span *axes, int count);
    /* The node can bind in `count` ways: which one now? -1: in none, say nothing of this part. part
       tells questions of one node apart. What is bound until the next question belongs to it. */
    int (*choose)(void *user, const pare_node *node, int part, int count);
    /* Is the value known before the model runs (constant, or made from constants only)? */
    bool (*constant)(void *user, const pare_value *value);
};

typedef pare_status (*pare_prune_bind_fn)(const pare_node *node, const pare_prune_binder *binder);

/* What cut functions ask. `before` is the node with shapes and integer inputs as they were; `again`
   the same with other sizes for the dims that the model leaves open (NULL: it leaves none open).
   node is the one to rewrite; its integer inputs may be computed while the model runs. */
typedef struct pare_prune_cut {
    void *user;
    const pare_node *before, *again;
    /* Of channels start .. start + length - 1 of an axis, how many stay. value: of `before`. */
    int64_t (*kept)(void *user, const pare_value *value, int axis, int64_t start, int64_t length);
    /* Elements of integer input i become ints where `changed`; the others stay. */
    pare_status (*set_ints)(void *user, pare_node *node, int i, const int64_t *ints,
                            const bool *changed, int count);
} pare_prune_cut;

typedef pare_status (*pare_prune_cut_fn)(const pare_prune_cut *cut, pare_node *node);

typedef struct pare_prune_role {
    pare_prune_kind kind;
    pare_prune_bind_fn bind;
    pare_prune_cut_fn cut;
} pare_prune_role;

#ifdef __cplusplus
}
#endif
#endif
