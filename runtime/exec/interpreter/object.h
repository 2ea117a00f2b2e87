/* SPDX-License-Identifier: Apache-2.0 */
/* What a name holds while a graph is interpreted: nothing, a tensor, or a sequence. Tensors and
   sequences are counted references and never changed once they are made; one thread at a time. */
#ifndef PARE_RUNTIME_EXEC_INTERPRETER_OBJECT_H
#define PARE_RUNTIME_EXEC_INTERPRETER_OBJECT_H

#include "runtime/ops/kernel.h"

typedef enum pare_object_kind {
    PARE_OBJECT_NONE, /* nothing yet, or an empty optional */
    PARE_OBJECT_TENSOR,
    PARE_OBJECT_SEQUENCE
} pare_object_kind;

typedef struct pare_buffer pare_buffer;
typedef struct pare_sequence pare_sequence;

typedef struct pare_object {
    pare_object_kind kind;
    pare_view view;          /* TENSOR: row-major */
    pare_buffer *buffer;     /* TENSOR: what keeps view.data; NULL: somebody else does */
    pare_sequence *sequence; /* SEQUENCE */
} pare_object;

struct pare_sequence {
    int references, count;
    pare_object *item; /* (count) */
};

/* A new tensor with memory for its elements. PARE_UNSUPPORTED: a type without numbers. */
PARE_NODISCARD pare_status pare_object_tensor(pare_ctx *ctx, pare_object *out, pare_dtype dtype,
                                              const pare_shape *shape);
/* A tensor in the memory of others, which must outlive it. */
pare_object pare_object_borrow(const pare_view *view);
/* A new sequence of so many empty objects. */
PARE_NODISCARD pare_status pare_object_sequence(pare_ctx *ctx, pare_object *out, int count);

/* One more reference. */
pare_object pare_object_hold(const pare_object *object);
/* One less; *object is NONE afterwards. */
void pare_object_drop(pare_object *object);

/* The shape of a view. */
pare_shape pare_view_shape(const pare_view *view);

/* Tensors of one type and shape but for their lengths along the axis, joined there; with `fresh`
   the axis is a new one, which each fills once. backwards: the last comes first. */
PARE_NODISCARD pare_status pare_object_join(const pare_node *node, pare_object *out,
                                            const pare_object *part, int count, int axis,
                                            bool fresh, bool backwards);
/* Elements [first, first + count) along the axis; drop: the axis, of one element, goes. */
PARE_NODISCARD pare_status pare_object_part(pare_ctx *ctx, pare_object *out,
                                            const pare_object *whole, int axis, int64_t first,
                                            int64_t count, bool drop);

#endif
