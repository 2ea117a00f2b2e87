/* SPDX-License-Identifier: Apache-2.0 */
/* Concat without copies: a tensor that a Concat joins is made where its part of the result is.
   Before the axis there are rows: of one row a part is a stretch of the result, of several it has
   the result's distance from row to row, the pitch (N, H, W, C pictures joined over channels: a row
   is a pixel). Parts of parts are parts of the outermost result. A Concat whose inputs already lie
   side by side in another one's result is a part of that.

   What a Split makes is parts of its input, where these are not joined elsewhere; where they are,
   side by side, its input is made there. What a Slice makes of a stretch of one axis, whose bounds
   are constants, is a part of its input, too.

   A tensor has memory of its own, and is copied, where it is a graph's input or output, constant,
   requantized (pare.QConcat), joined a second time, or read by another graph; a Split or Slice
   copies of these and of what only shows another tensor's bytes. */
#ifndef PARE_RUNTIME_EXEC_PARTS_H
#define PARE_RUNTIME_EXEC_PARTS_H

#include "runtime/base/ptr_map.h"
#include "runtime/ops/ops.h"

typedef struct pare_concat_part {
    const pare_value *whole; /* in whose memory it lies; no part itself. NULL: nothing is a part */
    const pare_value *lies;  /* whose strides, as a tensor of its own, it has */
    int axis;                /* along which it is joined; of parts with a pitch */
    size_t at;               /* bytes from the beginning of whole */
    size_t width;            /* bytes of a row */
    size_t pitch;            /* bytes from row to row; 0: there is one */
} pare_concat_part;

/* All of a graph. It lives in an arena. */
typedef struct pare_parts {
    pare_arena *arena;
    pare_ptr_map of;   /* value -> index */
    pare_ptr_map held; /* value -> how many parts lie in it */
    pare_ptr_map last; /* value with parts -> the last position at which something reads one */
    pare_concat_part *part;
    const pare_value **value; /* (count) */
    int count;
    size_t capacity, value_capacity;
    size_t looked; /* at so many positions choosing has, for what is alive there */
} pare_parts;

typedef struct pare_parts_rules {
    /* Bytes of which a tensor of its own begins at a multiple. A part of one row that does, too, is
       like any other tensor. Others must begin at a multiple of 16 bytes, as their rows. */
    size_t align;
    /* Does the node's kernel take its tensors where they are now, at a multiple of 16 bytes and
       with a pitch, and make the same bytes? NULL: no kernel does. */
    bool (*takes)(void *user, const pare_node *node, const pare_parts *parts);
    void *user;
} pare_parts_rules;

enum { PARE_PART_ALIGN = 16 };

/* Chooses the parts of a sorted graph; marks of its nodes become their positions. A Concat whose
   parts would make the most that is alive at once grow by more than a quarter and 4 MB copies.
   PARE_MEMORY, PARE_INTERRUPTED. */
PARE_NODISCARD pare_status pare_parts_choose(pare_ctx *ctx, pare_parts *out, pare_arena *arena,
                                             const pare_graph *graph,
                                             const pare_parts_rules *rules);

/* Where v lies in another tensor; NULL: nowhere. */
const pare_concat_part *pare_parts_find(const pare_parts *parts, const pare_value *v);
/* The same bytes as v's, of one row, under another shape: y is there, too. PARE_MEMORY. */
PARE_NODISCARD pare_status pare_parts_alias(pare_parts *parts, const pare_value *v,
                                            const pare_value *y);

/* v's view: its strides where it lies. */
void pare_parts_view(const pare_parts *parts, const pare_value *v, pare_view *out);

/* Is the input of a Concat or QConcat, or the output of a Split or Slice, where its part of the
   output, or of the input, is? False of other nodes. */
bool pare_parts_joined(const pare_parts *parts, const pare_node *node, int piece);
/* Are all? Then nothing runs. */
bool pare_parts_all_joined(const pare_parts *parts, const pare_node *node);
/* Bytes of those that are: the node neither reads nor writes them. */
size_t pare_parts_joined_bytes(const pare_parts *parts, const pare_node *node);

/* The last position (mark) at which something reads v, itself or under another shape, or, of what
   has parts, one of them; -1: nothing does. The graph's end where it is an output. */
int pare_parts_last_use(const pare_parts *parts, const pare_value *v);

#endif
