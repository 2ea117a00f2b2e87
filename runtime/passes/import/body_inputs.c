/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of what a body of Loop or Scan is given, where the file does not say them. A slice has the
   shape of its tensor less the axis. A state begins with the shape of its initial value and may get
   another one from turn to turn: the body is inferred, dims that come out otherwise become unknown,
   until nothing changes. */
#include "runtime/passes/import/body_inputs.h"

typedef struct body {
    pare_node *node;
    pare_graph *graph;
    int first;           /* place of the first state among the node's inputs */
    int in, out, states; /* place of the first state among the body's inputs and outputs */
} body;

static bool may_tell(const pare_value *v) { return v->shape.rank < 0 || v->inferred; }

static void tell(pare_value *v, pare_dtype dtype, const pare_shape *shape)
{
    if (!v->dtype) v->dtype = dtype;
    v->shape = *shape;
    v->inferred = true;
}

/* --- what is known before any turn --- */

static void tell_scalar(pare_value *v, pare_dtype dtype)
{
    if (may_tell(v)) tell(v, dtype, &(pare_shape){.rank = 0});
}

static void tell_slice(const body *b, int i, int slices)
{
    const int at = b->states + i;
    const pare_value *x = pare_node_in(b->node, at);
    pare_value *v = b->graph->in.item[at];
    int count;
    const int64_t *axes = pare_node_ints(b->node, "scan_input_axes", &count);
    if (!x || x->shape.rank < 1 || !may_tell(v) || (axes && count != slices)) return;
    int64_t axis = axes ? axes[i] : 0;
    if (axis < 0) axis += x->shape.rank;
    if (axis < 0 || axis >= x->shape.rank) return;
    pare_shape s = x->shape;
    for (int k = (int)axis; k + 1 < s.rank; k++) s.dim[k] = s.dim[k + 1], s.name[k] = s.name[k + 1];
    s.rank--;
    tell(v, x->dtype, &s);
}

/* --- states --- */

/* What fits both; *changed where that is not a. */
static void widen(pare_shape *a, const pare_shape *b, bool *changed)
{
    if (a->rank < 0) return;
    if (a->rank != b->rank) {
        *a = (pare_shape){.rank = -1};
        *changed = true;
        return;
    }
    for (int k = 0; k < a->rank; k++)
        if (a->dim[k] >= 0 && a->dim[k] != b->dim[k]) {
            a->dim[k] = -1;
            a->name[k] = NULL;
            *changed = true;
        }
}

static int states_begin(const body *b, bool *open)
{
    int count = 0;
    for (int i = 0; i < b->states; i++) {
        pare_value *v = b->graph->in.item[b->in + i];
        const pare_value *x = pare_node_in(b->node, b->first + i);
        open[i] = x && x->shape.rank >= 0 && may_tell(v);
        if (open[i]) tell(v, x->dtype, &x->shape);
        count += open[i];
    }
    return count;
}

static bool states_widen(const body *b, const bool *open)
{
    bool changed = false;
    for (int i = 0; i < b->states; i++)
        if (open[i])
            widen(&b->graph->in.item[b->in + i]->shape, &b->graph->out.item[b->out + i]->shape,
                  &changed);
    return changed;
}

static void states_forget(const body *b, const bool *open)
{
    for (int i = 0; i < b->states; i++)
        if (open[i]) b->graph->in.item[b->in + i]->shape.rank = -1;
}

/* A trial run of a body is one of the bodies in it, too: their number is held down. */
static pare_status states_tell(const body *b, pare_infer_graph_fn infer,
                               const pare_infer_options *options, bool *inferred)
{
    enum { MOST_STATES = 64, MOST_ROUNDS = 2 * PARE_MAX_RANK, MOST_GUESSES = 4 };
    bool open[MOST_STATES], changed = true;
    if (b->states > MOST_STATES || !states_begin(b, open)) return PARE_OK;
    pare_infer_options shapes = *options;
    shapes.fold = false; /* not by what is assumed */
    if (shapes.guesses++ >= MOST_GUESSES) {
        states_forget(b, open);
        return PARE_OK;
    }
    for (int round = 0; changed && round < MOST_ROUNDS; round++) {
        const pare_status st = infer(b->graph, &shapes);
        if (st == PARE_MEMORY) return st;
        if (st != PARE_OK) break; /* the body does not take the shape: only a run says */
        changed = states_widen(b, open);
    }
    *inferred = !changed;
    if (!changed) return PARE_OK;
    pare_ctx_clear(b->graph->model->ctx);
    states_forget(b, open);
    return PARE_OK;
}

pare_status pare_infer_body_inputs(pare_node *node, pare_infer_graph_fn infer,
                                   const pare_infer_options *options, bool *inferred)
{
    *inferred = false;
    const bool loop = pare_node_is(node, "Loop");
    const pare_attr *attr = pare_node_attr(node, "body");
    if ((!loop && !pare_node_is(node, "Scan")) || !attr || attr->kind != PARE_ATTR_GRAPH ||
        attr->ref)
        return PARE_OK;
    body b = {.node = node, .graph = attr->graph, .first = loop ? 2 : 0, .in = loop ? 2 : 0};
    const int64_t slices = loop ? 0 : pare_node_int(node, "num_scan_inputs", -1);
    if (slices < 0 || slices > node->in_count - b.first || b.graph->in.count != node->in_count)
        return PARE_OK;
    b.out = loop;
    b.states = node->in_count - b.first - (int)slices;
    if (b.graph->out.count < b.out + b.states) return PARE_OK;
    if (loop) {
        tell_scalar(b.graph->in.item[0], PARE_s64);
        tell_scalar(b.graph->in.item[1], PARE_bool);
    }
    for (int i = 0; i < slices; i++) tell_slice(&b, i, (int)slices);
    return states_tell(&b, infer, options, inferred);
}
