/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences (11 .. 25) and optionals (15 .. 25). An optional is what it holds, or nothing. */
#include "runtime/exec/interpreter/interpreter.h"

#include <inttypes.h>

/* A position in a sequence of so many, counted from the end where negative. */
static pare_status position(const pare_node *node, int64_t at, int64_t count, int64_t last,
                            int *out)
{
    int64_t from = at < 0 ? at + count : at;
    if (from < 0 || from > last)
        return PARE_FAIL_NODE(node, INPUT, "position %" PRId64 " is outside a sequence of %" PRId64,
                              at, count);
    *out = (int)from;
    return PARE_OK;
}

static pare_status run_empty(pare_interpreter *it, pare_item *item)
{
    pare_object s;
    PARE_TRY(pare_object_sequence(it->ctx, &s, 0));
    pare_item_give(it, item, 0, s);
    return PARE_OK;
}

static pare_status run_construct(pare_interpreter *it, pare_item *item)
{
    pare_object s;
    for (int i = 0; i < item->node->in_count; i++)
        if (!pare_item_in(it, item, i))
            return PARE_FAIL_NODE(item->node, INPUT, "input %d is missing", i);
    PARE_TRY(pare_object_sequence(it->ctx, &s, item->node->in_count));
    for (int i = 0; i < item->node->in_count; i++)
        s.sequence->item[i] = pare_object_hold(pare_item_in(it, item, i));
    pare_item_give(it, item, 0, s);
    return PARE_OK;
}

static pare_status run_at(pare_interpreter *it, pare_item *item)
{
    const pare_object *s;
    int64_t at;
    int i = 0;
    PARE_TRY(pare_item_sequence(it, item, 0, &s));
    PARE_TRY(pare_item_int(it, item, 1, 0, &at));
    PARE_TRY(position(item->node, at, s->sequence->count, s->sequence->count - 1, &i));
    pare_item_give(it, item, 0, pare_object_hold(&s->sequence->item[i]));
    return PARE_OK;
}

static pare_status run_erase(pare_interpreter *it, pare_item *item)
{
    const pare_object *s;
    pare_object y;
    int64_t at;
    int gone = 0;
    PARE_TRY(pare_item_sequence(it, item, 0, &s));
    const int count = s->sequence->count;
    PARE_TRY(pare_item_int(it, item, 1, count - 1, &at));
    PARE_TRY(position(item->node, at, count, count - 1, &gone));
    PARE_TRY(pare_object_sequence(it->ctx, &y, count - 1));
    for (int i = 0; i < count - 1; i++)
        y.sequence->item[i] = pare_object_hold(&s->sequence->item[i + (i >= gone)]);
    pare_item_give(it, item, 0, y);
    return PARE_OK;
}

static pare_status run_insert(pare_interpreter *it, pare_item *item)
{
    const pare_object *s, *x;
    pare_object y;
    int64_t at;
    int to = 0;
    PARE_TRY(pare_item_sequence(it, item, 0, &s));
    PARE_TRY(pare_item_tensor(it, item, 1, &x));
    const int count = s->sequence->count;
    PARE_TRY(pare_item_int(it, item, 2, count, &at));
    PARE_TRY(position(item->node, at, count, count, &to));
    PARE_TRY(pare_object_sequence(it->ctx, &y, count + 1));
    for (int i = 0; i < count; i++)
        y.sequence->item[i + (i >= to)] = pare_object_hold(&s->sequence->item[i]);
    y.sequence->item[to] = pare_object_hold(x);
    pare_item_give(it, item, 0, y);
    return PARE_OK;
}

static pare_status give_number(pare_interpreter *it, pare_item *item, pare_dtype dtype, int64_t n)
{
    const pare_shape shape = {.rank = 0};
    pare_object y;
    PARE_TRY(pare_object_tensor(it->ctx, &y, dtype, &shape));
    if (dtype == PARE_bool)
        *(uint8_t *)y.view.data = n != 0;
    else
        *(int64_t *)y.view.data = n;
    pare_item_give(it, item, 0, y);
    return PARE_OK;
}

static pare_status run_length(pare_interpreter *it, pare_item *item)
{
    const pare_object *s;
    PARE_TRY(pare_item_sequence(it, item, 0, &s));
    return give_number(it, item, PARE_s64, s->sequence->count);
}

static pare_status run_concat(pare_interpreter *it, pare_item *item)
{
    const pare_node *n = item->node;
    const pare_object *s;
    pare_object y;
    const bool fresh = pare_node_int(n, "new_axis", 0);
    PARE_TRY(pare_item_sequence(it, item, 0, &s));
    const int count = s->sequence->count;
    int rank = count ? s->sequence->item[0].view.rank + fresh : 1;
    int64_t axis = pare_node_int(n, "axis", 0);
    if (!pare_node_attr(n, "axis")) return PARE_FAIL_NODE(n, INPUT, "axis is missing");
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank)
        return PARE_FAIL_NODE(n, INPUT, "axis %" PRId64 " is outside a tensor of rank %d",
                              pare_node_int(n, "axis", 0), rank);
    PARE_TRY(pare_object_join(n, &y, s->sequence->item, count, (int)axis, fresh, false));
    pare_item_give(it, item, 0, y);
    return PARE_OK;
}

/* --- SplitToSequence (11 .. 24) --- */

typedef struct splits {
    int64_t *length;
    int count;
    bool drop; /* the axis goes */
} splits;

static int64_t number(const pare_view *v, int64_t i)
{
    return v->dtype == PARE_s32 ? ((const int32_t *)v->data)[i] : ((const int64_t *)v->data)[i];
}

static pare_status splits_equal(const pare_node *node, splits *s, int64_t whole, int64_t each,
                                pare_arena *arena)
{
    if (each < 1)
        return PARE_FAIL_NODE(node, INPUT, "it splits into parts of %" PRId64 " elements", each);
    const int64_t count = whole / each + (whole % each != 0);
    if (count > INT32_MAX / 2) return PARE_FAIL_NODE(node, UNSUPPORTED, "it makes too many parts");
    s->count = (int)count;
    s->length = pare_arena_alloc(arena, (size_t)count + 1, sizeof *s->length);
    if (!s->length) return PARE_MEMORY;
    for (int i = 0; i < s->count; i++)
        s->length[i] = i < s->count - 1 || whole % each == 0 ? each : whole % each;
    return PARE_OK;
}

static pare_status splits_listed(const pare_node *node, splits *s, int64_t whole,
                                 const pare_view *list, pare_arena *arena)
{
    int64_t total = 0;
    s->count = (int)list->dim[0];
    s->length = pare_arena_alloc(arena, (size_t)s->count + 1, sizeof *s->length);
    if (!s->length) return PARE_MEMORY;
    for (int i = 0; i < s->count; i++) {
        s->length[i] = number(list, i);
        if (s->length[i] < 0 || s->length[i] > whole - total)
            return PARE_FAIL_NODE(node, INPUT, "its parts do not add up to %" PRId64, whole);
        total += s->length[i];
    }
    if (total != whole)
        return PARE_FAIL_NODE(node, INPUT, "its parts add up to %" PRId64 ", not to %" PRId64,
                              total, whole);
    return PARE_OK;
}

static pare_status splits_find(const pare_item *item, const pare_object *split, int64_t whole,
                               splits *s, pare_arena *arena)
{
    const pare_node *n = item->node;
    const pare_view *v = split ? &split->view : NULL;
    s->drop = !split && !pare_node_int(n, "keepdims", 1);
    if (!split) return splits_equal(n, s, whole, 1, arena);
    if (split->kind != PARE_OBJECT_TENSOR || v->rank > 1 ||
        (v->dtype != PARE_s64 && v->dtype != PARE_s32) || (v->rank && v->dim[0] > INT32_MAX / 2))
        return PARE_FAIL_NODE(n, INPUT, "split must be an integer or a list of them");
    return v->rank ? splits_listed(n, s, whole, v, arena)
                   : splits_equal(n, s, whole, number(v, 0), arena);
}

static pare_status split(pare_interpreter *it, pare_item *item, pare_arena *arena)
{
    const pare_node *n = item->node;
    const pare_object *x;
    pare_object y;
    splits s = {0};
    PARE_TRY(pare_item_tensor(it, item, 0, &x));
    int axis = pare_node_axis(n, 0, x->view.rank);
    if (axis < 0 || axis >= x->view.rank)
        return PARE_FAIL_NODE(n, INPUT, "axis %" PRId64 " is outside a tensor of rank %d",
                              pare_node_int(n, "axis", 0), x->view.rank);
    PARE_TRY(splits_find(item, pare_item_in(it, item, 1), x->view.dim[axis], &s, arena));
    PARE_TRY(pare_object_sequence(it->ctx, &y, s.count));
    int64_t first = 0;
    pare_status st = PARE_OK;
    for (int i = 0; i < s.count && st == PARE_OK; first += s.length[i], i++)
        st = pare_object_part(it->ctx, &y.sequence->item[i], x, axis, first, s.length[i], s.drop);
    if (st == PARE_OK)
        pare_item_give(it, item, 0, y);
    else
        pare_object_drop(&y);
    return st;
}

static pare_status run_split(pare_interpreter *it, pare_item *item)
{
    pare_arena arena;
    pare_arena_init(&arena, it->ctx);
    pare_status st = split(it, item, &arena);
    pare_arena_free(&arena);
    return st;
}

/* --- optionals, and Identity of whatever there is --- */

static pare_status run_pass(pare_interpreter *it, pare_item *item)
{
    const pare_object *x = pare_item_in(it, item, 0);
    pare_item_give(it, item, 0, x ? pare_object_hold(x) : (pare_object){0});
    return PARE_OK;
}

static pare_status run_has(pare_interpreter *it, pare_item *item)
{
    const pare_object *x = pare_item_in(it, item, 0);
    return give_number(it, item, PARE_bool, x && x->kind != PARE_OBJECT_NONE);
}

static pare_status run_get(pare_interpreter *it, pare_item *item)
{
    const pare_object *x = pare_item_in(it, item, 0);
    if (!x || x->kind == PARE_OBJECT_NONE)
        return PARE_FAIL_NODE(item->node, INPUT, "the optional is empty");
    return run_pass(it, item);
}

pare_handler pare_sequence_handler(const pare_node *node)
{
    static const struct {
        const char *op_type;
        pare_handler handler;
    } rows[] = {
        {"SequenceEmpty", run_empty},
        {"SequenceConstruct", run_construct},
        {"SequenceAt", run_at},
        {"SequenceErase", run_erase},
        {"SequenceInsert", run_insert},
        {"SequenceLength", run_length},
        {"ConcatFromSequence", run_concat},
        {"SplitToSequence", run_split},
        {"Identity", run_pass},
        {"Optional", run_pass},
        {"OptionalHasElement", run_has},
        {"OptionalGetElement", run_get},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pare_node_is(node, rows[i].op_type)) return rows[i].handler;
    return NULL;
}
