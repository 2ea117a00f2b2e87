/* SPDX-License-Identifier: Apache-2.0 */
/* Channels of a graph and what binds them: the inside of pare_groups_new.

   The analysed graph is a copy (the *sized* model) in which every dim is known and shape arithmetic
   is folded. Every axis longer than 1 is a slot; its channels are consecutive numbers in one array,
   on which a union-find joins those that fall together. A set carries the first reason that blocks
   one of its channels. */
#ifndef PARE_PRUNE_CHANNELS_H
#define PARE_PRUNE_CHANNELS_H

#include "prune/plan.h"
#include "runtime/base/ptr_map.h"
#include "runtime/ops/ops.h"

typedef struct pare_channel_set_axis {
    pare_value *value; /* of the sized model */
    int axis;
    int64_t parts, extent;
    int32_t first;           /* its first channel */
    const pare_node *spoken; /* the last node that said something of it */
    bool reads, constant;    /* constant: an initializer of both models */
    const pare_node *node;   /* makes the value; of constants: uses it first */
} pare_channel_set_axis;

/* A node that can bind in several ways. bound: the channels of the first bind of its present way.
 */
typedef struct pare_channel_question {
    const pare_node *node;
    int part, count, way;
    unsigned possible; /* bit w: way w is not ruled out */
    pare_axis_span bound;
    bool has_bound;
} pare_channel_question;

typedef struct pare_channel_even {
    int slot, question;
    int64_t blocks;
} pare_channel_even;

/* A node's multiply-adds: factor times the channels of these slots. */
typedef struct pare_channel_work {
    const pare_node *node;
    double factor;
    int slot[PARE_MAX_RANK + 1], count;
} pare_channel_work;

typedef enum pare_channel_mode {
    PARE_CHANNELS_DECLARE, /* only find which weights have parts, and constants */
    PARE_CHANNELS_NEUTRAL, /* bind all that has one way */
    PARE_CHANNELS_PROBE,   /* rule out ways whose channels are blocked already */
    PARE_CHANNELS_BIND     /* bind the questions' present ways */
} pare_channel_mode;

typedef struct pare_channel_sets {
    pare_ctx *ctx;
    pare_arena *arena;
    const pare_model *model; /* the prepared one */
    pare_model *sized;
    const pare_groups_options *options;
    struct pare_channel_entry *entry; /* (entry_count): of a value, its slots */
    size_t entry_count;
    pare_ptr_map places; /* value -> its entry */
    pare_channel_set_axis *slot;
    int slot_count;
    size_t slot_capacity;
    int32_t channel_count;
    int32_t *parent, *blocked; /* (channel_count): blocked is of roots: a block's number, or -1 */
    int32_t *base_parent, *base_blocked;
    pare_block *block;
    size_t block_count, base_block_count, block_capacity;
    pare_channel_question *question;
    size_t question_count, question_capacity;
    pare_channel_even *even;
    size_t even_count, even_capacity;
    pare_channel_work *work;
    size_t work_count, work_capacity;
    pare_channel_mode mode;
    int asked;      /* the question whose binds follow, or -1 */
    int32_t *place; /* scratch: the set of each coordinate */
    int64_t place_count;
    pare_prune_binder sink;
} pare_channel_sets;

/* Registers slots and binds everything that has one way. */
PARE_NODISCARD pare_status pare_channel_sets_init(pare_channel_sets *sets);
/* Runs the bind functions of the nodes that ask. */
PARE_NODISCARD pare_status pare_channel_sets_ask(pare_channel_sets *sets, pare_channel_mode mode);
/* Answers the questions: prefers outer factors, and ways that leave more channels free. */
PARE_NODISCARD pare_status pare_channel_sets_choose(pare_channel_sets *sets);
/* Binds the questions' present ways again. */
PARE_NODISCARD pare_status pare_channel_sets_rebind(pare_channel_sets *sets);

int32_t pare_channel_sets_find(pare_channel_sets *sets, int32_t channel); /* the channel's set */
/* The slot of an axis of a value of the sized model, or -1. */
int pare_channel_sets_find_axis(const pare_channel_sets *sets, const pare_value *value, int axis);
bool pare_channel_sets_constant(const pare_channel_sets *sets, const pare_value *value);
/* Blocks all channels of a value. */
PARE_NODISCARD pare_status pare_channel_sets_block(pare_channel_sets *sets, const pare_node *node,
                                                   const pare_value *value, const char *why);

/* sized_model.c: the copy with every dim known, by options or as said there; open: whether the
   model left any dim open; larger: with other sizes for these, *out is NULL where it takes no
   others. */
PARE_NODISCARD pare_status pare_sized_new(pare_ctx *ctx, pare_model **out, const pare_model *model,
                                          const pare_groups_options *options, bool larger,
                                          bool *open);

#endif
