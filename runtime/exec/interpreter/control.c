/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow: If (1 .. 25), Loop (1 .. 25), Scan (9 .. 25), SequenceMap (17). */
#include "runtime/exec/interpreter/interpreter.h"

#include <inttypes.h>
#include <string.h>

static pare_status body_find(const pare_item *item, const char *attr, int in, int out,
                             pare_scope **body)
{
    *body = pare_item_body(item, attr);
    if (!*body) return PARE_FAIL_NODE(item->node, INPUT, "%s is missing", attr);
    if ((*body)->in_count != in || (*body)->out_count != out)
        return PARE_FAIL_NODE(item->node, INPUT,
                              "%s has %d inputs and %d outputs, expected %d and %d", attr,
                              (*body)->in_count, (*body)->out_count, in, out);
    return PARE_OK;
}

static pare_object body_out(pare_interpreter *it, const pare_scope *body, int i)
{
    return pare_object_hold(&it->slot[body->out[i]]);
}

/* A condition in a tensor of one bool. */
static pare_status condition(const pare_node *node, const pare_object *x, bool *out)
{
    if (x->kind != PARE_OBJECT_TENSOR || x->view.dtype != PARE_bool ||
        pare_view_count(&x->view) != 1)
        return PARE_FAIL_NODE(node, INPUT, "its condition must be one bool");
    *out = *(const uint8_t *)x->view.data != 0;
    return PARE_OK;
}

static pare_status run_if(pare_interpreter *it, pare_item *item)
{
    const pare_object *cond;
    pare_scope *body;
    bool then = false;
    PARE_TRY(pare_item_tensor(it, item, 0, &cond));
    PARE_TRY(condition(item->node, cond, &then));
    PARE_TRY(
        body_find(item, then ? "then_branch" : "else_branch", 0, item->node->out_count, &body));
    PARE_TRY(pare_scope_run(it, body));
    for (int i = 0; i < item->node->out_count; i++)
        pare_item_give(it, item, i, body_out(it, body, i));
    return PARE_OK;
}

/* --- tensors that a loop collects, one from each turn --- */

typedef struct collected {
    pare_object *item;
    int count;
    size_t capacity;
} collected;

static void collected_free(collected *c, int count)
{
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < c[i].count; k++) pare_object_drop(&c[i].item[k]);
        pare_free(c[i].item);
    }
    pare_free(c);
}

static pare_status collect(pare_interpreter *it, const pare_node *node, collected *c,
                           pare_object object)
{
    if (c->count < INT32_MAX &&
        pare_grow(it->ctx, &c->item, &c->capacity, (size_t)c->count, sizeof *c->item)) {
        c->item[c->count++] = object;
        return object.kind == PARE_OBJECT_TENSOR
                   ? PARE_OK
                   : PARE_FAIL_NODE(node, INPUT, "a scan output of its body is no tensor");
    }
    pare_object_drop(&object);
    return PARE_MEMORY;
}

/* A scan output of no turns: its elements have the shape that the file gives, unknown dims 0. */
static pare_status collected_none(pare_interpreter *it, const pare_node *node,
                                  const pare_value *element, int axis, pare_object *out)
{
    pare_shape shape = element->shape;
    if (shape.rank < 0) shape.rank = 0;
    if (shape.rank == PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "a result of more than %d axes", PARE_MAX_RANK);
    for (int i = 0; i < shape.rank; i++)
        if (shape.dim[i] < 0) shape.dim[i] = 0;
    if (axis > shape.rank) axis = shape.rank;
    memmove(&shape.dim[axis + 1], &shape.dim[axis],
            (size_t)(shape.rank - axis) * sizeof *shape.dim);
    shape.dim[axis] = 0;
    shape.rank++;
    return pare_object_tensor(it->ctx, out, element->dtype ? element->dtype : PARE_f32, &shape);
}

/* --- Loop --- */

static pare_status scalar(pare_interpreter *it, pare_dtype dtype, int64_t value, pare_object *out)
{
    const pare_shape shape = {.rank = 0};
    PARE_TRY(pare_object_tensor(it->ctx, out, dtype, &shape));
    if (dtype == PARE_bool)
        *(uint8_t *)out->view.data = value != 0;
    else
        *(int64_t *)out->view.data = value;
    return PARE_OK;
}

/* One turn: the body's inputs are set but for the number of the turn; its outputs become them. */
static pare_status loop_turn(pare_interpreter *it, const pare_item *item, pare_scope *body,
                             int64_t turn, int states, collected *scan, bool *again)
{
    pare_object number;
    PARE_TRY(scalar(it, PARE_s64, turn, &number));
    pare_slot_set(it, body->in[0], number);
    PARE_TRY(pare_scope_run(it, body));
    PARE_TRY(condition(item->node, &it->slot[body->out[0]], again));
    for (int i = 1 + states; i < body->out_count; i++)
        PARE_TRY(collect(it, item->node, &scan[i - 1 - states], body_out(it, body, i)));
    /* all are read before one is set: an output may be another input */
    pare_object *next = pare_alloc(it->ctx, (size_t)states + 1, sizeof *next);
    if (!next) return PARE_MEMORY;
    for (int i = 0; i <= states; i++) next[i] = body_out(it, body, i);
    for (int i = 0; i <= states; i++) pare_slot_set(it, body->in[1 + i], next[i]);
    pare_free(next);
    return PARE_OK;
}

static pare_status loop_turns(pare_interpreter *it, pare_item *item, pare_scope *body, int states,
                              collected *scan)
{
    const pare_object *cond = pare_item_in(it, item, 1);
    int64_t most;
    bool again = true;
    pare_object start;
    PARE_TRY(pare_item_int(it, item, 0, INT64_MAX, &most));
    if (cond) PARE_TRY(condition(item->node, cond, &again));
    PARE_TRY(scalar(it, PARE_bool, again, &start));
    pare_slot_set(it, body->in[1], start);
    for (int i = 0; i < states; i++) {
        const pare_object *x = pare_item_in(it, item, 2 + i);
        if (!x) return PARE_FAIL_NODE(item->node, INPUT, "input %d is missing", 2 + i);
        pare_slot_set(it, body->in[2 + i], pare_object_hold(x));
    }
    for (int64_t turn = 0; turn < most && again; turn++)
        PARE_TRY(loop_turn(it, item, body, turn, states, scan, &again));
    for (int i = 0; i < states; i++)
        pare_item_give(it, item, i, pare_object_hold(&it->slot[body->in[2 + i]]));
    return PARE_OK;
}

static pare_status run_loop(pare_interpreter *it, pare_item *item)
{
    const pare_node *n = item->node;
    pare_scope *body;
    int states = n->in_count - 2, scans = n->out_count - states;
    if (states < 0 || scans < 0)
        return PARE_FAIL_NODE(n, INPUT, "it has %d inputs and %d outputs", n->in_count,
                              n->out_count);
    PARE_TRY(body_find(item, "body", 2 + states, 1 + n->out_count, &body));
    collected *scan = pare_alloc(it->ctx, (size_t)scans + 1, sizeof *scan);
    if (!scan) return PARE_MEMORY;
    pare_status st = loop_turns(it, item, body, states, scan);
    for (int i = 0; i < scans && st == PARE_OK; i++) {
        pare_object y;
        st = scan[i].count ? pare_object_join(n, &y, scan[i].item, scan[i].count, 0, true, false)
                           : collected_none(it, n, body->graph->out.item[1 + states + i], 0, &y);
        if (st == PARE_OK) pare_item_give(it, item, states + i, y);
    }
    collected_free(scan, scans);
    return st;
}

/* --- Scan --- */

typedef struct scan {
    const pare_node *node;
    pare_scope *body;
    int states, inputs, outputs;
    int64_t turns;
    collected *made;
} scan;

static int64_t listed(const pare_node *node, const char *attr, int i)
{
    int count;
    const int64_t *list = pare_node_ints(node, attr, &count);
    return i < count ? list[i] : 0;
}

static pare_status scan_axis(const pare_node *node, const char *attr, int i, int rank, int *out)
{
    int64_t axis = listed(node, attr, i);
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank)
        return PARE_FAIL_NODE(node, INPUT, "%s: axis %" PRId64 " is outside a tensor of rank %d",
                              attr, listed(node, attr, i), rank);
    *out = (int)axis;
    return PARE_OK;
}

static pare_status scan_length(pare_interpreter *it, const pare_item *item, scan *s)
{
    s->turns = -1;
    for (int i = 0; i < s->inputs; i++) {
        const pare_object *x;
        int axis = 0;
        PARE_TRY(pare_item_tensor(it, item, s->states + i, &x));
        PARE_TRY(scan_axis(s->node, "scan_input_axes", i, x->view.rank, &axis));
        if (s->turns >= 0 && x->view.dim[axis] != s->turns)
            return PARE_FAIL_NODE(s->node, INPUT,
                                  "its scan inputs have %" PRId64 " and %" PRId64 " elements",
                                  s->turns, x->view.dim[axis]);
        s->turns = x->view.dim[axis];
    }
    return PARE_OK;
}

static pare_status scan_turn(pare_interpreter *it, const pare_item *item, const scan *s,
                             int64_t turn)
{
    for (int i = 0; i < s->inputs; i++) {
        const pare_object *x;
        pare_object part;
        int axis = 0;
        PARE_TRY(pare_item_tensor(it, item, s->states + i, &x));
        PARE_TRY(scan_axis(s->node, "scan_input_axes", i, x->view.rank, &axis));
        int64_t at = listed(s->node, "scan_input_directions", i) ? s->turns - 1 - turn : turn;
        PARE_TRY(pare_object_part(it->ctx, &part, x, axis, at, 1, true));
        pare_slot_set(it, s->body->in[s->states + i], part);
    }
    PARE_TRY(pare_scope_run(it, s->body));
    for (int i = 0; i < s->outputs; i++)
        PARE_TRY(collect(it, s->node, &s->made[i], body_out(it, s->body, s->states + i)));
    pare_object *next = pare_alloc(it->ctx, (size_t)s->states + 1, sizeof *next);
    if (!next) return PARE_MEMORY;
    for (int i = 0; i < s->states; i++) next[i] = body_out(it, s->body, i);
    for (int i = 0; i < s->states; i++) pare_slot_set(it, s->body->in[i], next[i]);
    pare_free(next);
    return PARE_OK;
}

static pare_status scan_turns(pare_interpreter *it, const pare_item *item, scan *s)
{
    PARE_TRY(scan_length(it, item, s));
    for (int i = 0; i < s->states; i++) {
        const pare_object *x = pare_item_in(it, item, i);
        if (!x) return PARE_FAIL_NODE(s->node, INPUT, "input %d is missing", i);
        pare_slot_set(it, s->body->in[i], pare_object_hold(x));
    }
    for (int64_t turn = 0; turn < s->turns; turn++) PARE_TRY(scan_turn(it, item, s, turn));
    for (int i = 0; i < s->states; i++)
        pare_item_give(it, item, i, pare_object_hold(&it->slot[s->body->in[i]]));
    for (int i = 0; i < s->outputs; i++) {
        const collected *c = &s->made[i];
        const pare_value *element = s->body->graph->out.item[s->states + i];
        int rank = c->count ? c->item[0].view.rank : element->shape.rank, axis = 0;
        pare_object y;
        bool backwards = listed(s->node, "scan_output_directions", i);
        PARE_TRY(scan_axis(s->node, "scan_output_axes", i, (rank < 0 ? 0 : rank) + 1, &axis));
        PARE_TRY(c->count ? pare_object_join(s->node, &y, c->item, c->count, axis, true, backwards)
                          : collected_none(it, s->node, element, axis, &y));
        pare_item_give(it, item, s->states + i, y);
    }
    return PARE_OK;
}

static pare_status run_scan(pare_interpreter *it, pare_item *item)
{
    scan s = {.node = item->node};
    int64_t inputs = pare_node_int(s.node, "num_scan_inputs", 0);
    if (inputs < 1 || inputs > s.node->in_count || s.node->in_count - inputs > s.node->out_count)
        return PARE_FAIL_NODE(s.node, INPUT, "num_scan_inputs is %" PRId64 " of %d inputs", inputs,
                              s.node->in_count);
    s.inputs = (int)inputs;
    s.states = s.node->in_count - s.inputs;
    s.outputs = s.node->out_count - s.states;
    PARE_TRY(body_find(item, "body", s.node->in_count, s.node->out_count, &s.body));
    s.made = pare_alloc(it->ctx, (size_t)s.outputs + 1, sizeof *s.made);
    if (!s.made) return PARE_MEMORY;
    pare_status st = scan_turns(it, item, &s);
    collected_free(s.made, s.outputs);
    return st;
}

/* --- SequenceMap --- */

static pare_status map_turn(pare_interpreter *it, const pare_item *item, pare_scope *body, int at,
                            pare_object *made)
{
    for (int i = 0; i < item->node->in_count; i++) {
        const pare_object *x = pare_item_in(it, item, i);
        if (!x) return PARE_FAIL_NODE(item->node, INPUT, "input %d is missing", i);
        if (x->kind == PARE_OBJECT_SEQUENCE && at >= x->sequence->count)
            return PARE_FAIL_NODE(item->node, INPUT, "sequence '%s' is shorter than the first",
                                  item->node->in[i]->name);
        const pare_object *one = x->kind == PARE_OBJECT_SEQUENCE ? &x->sequence->item[at] : x;
        pare_slot_set(it, body->in[i], pare_object_hold(one));
    }
    PARE_TRY(pare_scope_run(it, body));
    for (int i = 0; i < item->node->out_count; i++)
        made[i].sequence->item[at] = body_out(it, body, i);
    return PARE_OK;
}

static pare_status run_map(pare_interpreter *it, pare_item *item)
{
    const pare_node *n = item->node;
    const pare_object *first;
    pare_scope *body;
    PARE_TRY(pare_item_sequence(it, item, 0, &first));
    PARE_TRY(body_find(item, "body", n->in_count, n->out_count, &body));
    pare_object *made = pare_alloc(it->ctx, (size_t)n->out_count + 1, sizeof *made);
    if (!made) return PARE_MEMORY;
    pare_status st = PARE_OK;
    for (int i = 0; i < n->out_count && st == PARE_OK; i++)
        st = pare_object_sequence(it->ctx, &made[i], first->sequence->count);
    for (int k = 0; st == PARE_OK && k < first->sequence->count; k++)
        st = map_turn(it, item, body, k, made);
    for (int i = 0; i < n->out_count; i++)
        if (st == PARE_OK)
            pare_item_give(it, item, i, made[i]);
        else
            pare_object_drop(&made[i]);
    pare_free(made);
    return st;
}

pare_handler pare_control_handler(const pare_node *node)
{
    if (pare_node_is(node, "If")) return run_if;
    if (pare_node_is(node, "Loop")) return run_loop;
    if (pare_node_is(node, "Scan")) return run_scan;
    return pare_node_is(node, "SequenceMap") ? run_map : NULL;
}
