/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/interpreter/object.h"
#include "runtime/base/ctx.h"
#include "runtime/base/size.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct pare_buffer {
    _Alignas(ALIGNMENT) int references; /* the bytes follow */
};

pare_shape pare_view_shape(const pare_view *view)
{
    pare_shape s = {.rank = view->rank};
    for (int i = 0; i < view->rank; i++) s.dim[i] = view->dim[i];
    return s;
}

pare_status pare_object_tensor(pare_ctx *ctx, pare_object *out, pare_dtype dtype,
                               const pare_shape *shape)
{
    char text[256];
    size_t bytes, room;
    int64_t count = pare_shape_count(shape);
    if (dtype == PARE_NOTYPE || !pare_type(dtype)->bits)
        return PARE_FAIL(ctx, UNSUPPORTED, "tensors of type %s cannot be computed with",
                         pare_type(dtype)->name);
    if (count < 0 || !pare_type_bytes(dtype, count, &bytes) ||
        !pare_add_size(bytes, sizeof(pare_buffer) + 2 * ALIGNMENT, &room))
        return PARE_FAIL(ctx, MEMORY, "a tensor of shape %s is too large",
                         pare_shape_text(shape, text, sizeof text));
    pare_buffer *b = aligned_alloc(ALIGNMENT, room / ALIGNMENT * ALIGNMENT);
    if (!b)
        return PARE_FAIL(ctx, MEMORY, "out of memory: %zu bytes for a tensor of shape %s", bytes,
                         pare_shape_text(shape, text, sizeof text));
    b->references = 1;
    *out = (pare_object){.kind = PARE_OBJECT_TENSOR, .buffer = b};
    pare_view_set(&out->view, dtype, shape, false);
    out->view.data = b + 1;
    return PARE_OK;
}

pare_object pare_object_borrow(const pare_view *view)
{
    return (pare_object){.kind = PARE_OBJECT_TENSOR, .view = *view};
}

pare_status pare_object_sequence(pare_ctx *ctx, pare_object *out, int count)
{
    pare_sequence *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->item = pare_alloc(ctx, (size_t)count + 1, sizeof *s->item);
    if (!s->item) {
        pare_free(s);
        return PARE_MEMORY;
    }
    s->references = 1;
    s->count = count;
    *out = (pare_object){.kind = PARE_OBJECT_SEQUENCE, .sequence = s};
    return PARE_OK;
}

pare_object pare_object_hold(const pare_object *object)
{
    if (object->kind == PARE_OBJECT_TENSOR && object->buffer) object->buffer->references++;
    if (object->kind == PARE_OBJECT_SEQUENCE) object->sequence->references++;
    return *object;
}

void pare_object_drop(pare_object *object)
{
    if (object->kind == PARE_OBJECT_TENSOR && object->buffer && !--object->buffer->references)
        free(object->buffer);
    pare_sequence *s = object->kind == PARE_OBJECT_SEQUENCE ? object->sequence : NULL;
    *object = (pare_object){0};
    if (!s || --s->references) return;
    for (int i = 0; i < s->count; i++) pare_object_drop(&s->item[i]);
    pare_free(s->item);
    pare_free(s);
}

/* Elements before the axis, and bytes of one element along it. */
static void around(const pare_view *v, int axis, int64_t *outer, size_t *inner)
{
    *outer = 1;
    *inner = (size_t)pare_type(v->dtype)->bits / 8;
    for (int i = 0; i < axis; i++) *outer *= v->dim[i];
    for (int i = axis + 1; i < v->rank; i++) *inner *= (size_t)v->dim[i];
}

static void copy_rows(char *to, size_t to_step, const char *from, size_t from_step, size_t bytes,
                      int64_t rows)
{
    for (int64_t i = 0; i < rows && bytes; i++)
        memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, bytes);
}

static pare_status joins(const pare_node *node, const pare_object *first, const pare_object *part,
                         int axis, bool fresh)
{
    char a[128], b[128];
    const pare_view *x = &first->view, *y = &part->view;
    bool fits = part->kind == PARE_OBJECT_TENSOR && x->dtype == y->dtype && x->rank == y->rank;
    for (int i = 0; fits && i < x->rank; i++)
        fits = x->dim[i] == y->dim[i] || (i == axis && !fresh);
    if (fits) return PARE_OK;
    if (part->kind != PARE_OBJECT_TENSOR)
        return PARE_FAIL_NODE(node, INPUT, "what it joins is no tensor");
    const pare_shape s = pare_view_shape(x), t = pare_view_shape(y);
    return PARE_FAIL_NODE(node, INPUT, "%s %s and %s %s do not join along axis %d",
                          pare_type(x->dtype)->name, pare_shape_text(&s, a, sizeof a),
                          pare_type(y->dtype)->name, pare_shape_text(&t, b, sizeof b), axis);
}

pare_status pare_object_join(const pare_node *node, pare_object *out, const pare_object *part,
                             int count, int axis, bool fresh, bool backwards)
{
    if (count < 1 || part[0].kind != PARE_OBJECT_TENSOR)
        return PARE_FAIL_NODE(node, INPUT, "there is no tensor to join");
    if (part[0].view.rank + fresh > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "a result of more than %d axes", PARE_MAX_RANK);
    if (pare_type_is_packed(part[0].view.dtype))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "tensors of type %s cannot be joined",
                              pare_type(part[0].view.dtype)->name);
    pare_shape shape = pare_view_shape(&part[0].view);
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
        PARE_TRY(joins(node, &part[0], &part[i], axis, fresh));
        total += fresh ? 1 : part[i].view.dim[axis];
    }
    if (fresh) {
        memmove(&shape.dim[axis + 1], &shape.dim[axis],
                (size_t)(shape.rank - axis) * sizeof *shape.dim);
        shape.rank++;
    }
    shape.dim[axis] = total;
    PARE_TRY(pare_object_tensor(node->graph->model->ctx, out, part[0].view.dtype, &shape));
    int64_t outer;
    size_t inner;
    around(&out->view, axis, &outer, &inner);
    char *to = out->view.data;
    for (int i = 0; i < count; i++) {
        const pare_object *p = &part[backwards ? count - 1 - i : i];
        size_t bytes = inner * (size_t)(fresh ? 1 : p->view.dim[axis]);
        copy_rows(to, inner * (size_t)total, p->view.data, bytes, bytes, outer);
        to += bytes;
    }
    return PARE_OK;
}

pare_status pare_object_part(pare_ctx *ctx, pare_object *out, const pare_object *whole, int axis,
                             int64_t first, int64_t count, bool drop)
{
    pare_shape shape = pare_view_shape(&whole->view);
    int64_t outer;
    size_t inner;
    around(&whole->view, axis, &outer, &inner);
    shape.dim[axis] = count;
    if (drop) {
        memmove(&shape.dim[axis], &shape.dim[axis + 1],
                (size_t)(shape.rank - axis - 1) * sizeof *shape.dim);
        shape.rank--;
    }
    PARE_TRY(pare_object_tensor(ctx, out, whole->view.dtype, &shape));
    copy_rows(out->view.data, inner * (size_t)count,
              (const char *)whole->view.data + inner * (size_t)first,
              inner * (size_t)whole->view.dim[axis], inner * (size_t)count, outer);
    return PARE_OK;
}
