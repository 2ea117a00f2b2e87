/* SPDX-License-Identifier: Apache-2.0 */
/* Lifts a model to a newer opset by the table's `up` column.

   Plan: nodes in topological order, each lifted and then given its shapes, because some rules need
   the rank or type of their inputs (Softmax, Clip). A rule rewrites its node to the newest form the
   table knows and raises the import itself where that form began later than the version asked for
   (pare_upgrade_opset): all other nodes are in their newest form then, too, so the import holds.
   Nodes that a function brought along with another opset (pare_node.opset) are lifted from that
   one; the model is lifted to the newest of them. Operators outside ONNX that have a row in
   contrib.inc become standard nodes of the newest form on the same way, where the shapes of their
   inputs are known. */
#include "runtime/ops/infer.h"
#include "runtime/passes/import/contrib.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <string.h>

typedef struct lift {
    int64_t from, to;
    int marked; /* nodes with an opset of their own */
} lift;

static int64_t opset_of(const pare_node *node, const lift *l)
{
    return node->opset ? node->opset : l->from;
}

/* Counts what brought its opset along, and raises the opset to reach to the newest. */
static pare_status newest(pare_graph *graph, void *user)
{
    lift *l = user;
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
        l->marked += node->opset != 0;
        if (node->opset > l->to) l->to = node->opset;
    }
    return PARE_OK;
}

static pare_status covered(pare_graph *graph, void *user)
{
    const lift *l = user;
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
        const pare_op *op = node->domain[0] ? NULL : pare_op_of(node);
        const int64_t from = opset_of(node, l);
        if (op && from > op->last && !pare_op_covers(op, from))
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "its form of opset %" PRId64 " is newer than %d, the newest that "
                                  "is understood: export the model at opset %d",
                                  from, op->last, op->last);
        if (op && from < op->first)
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "its form of opset %" PRId64 " is older than %d, the oldest that "
                                  "is understood: export the model at opset 13 or newer",
                                  from, op->first);
        if (!op && !node->domain[0] && from < l->to && !pare_contrib_op_of(node))
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "the operator is unknown; `pare ops` lists those that are known");
    }
    return PARE_OK;
}

static pare_status lift_graph(pare_graph *graph, const lift *l);

static pare_status lift_bodies(pare_node *node, const lift *l)
{
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) PARE_TRY(lift_graph(attr->graph, l));
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            PARE_TRY(lift_graph(attr->graphs[i], l));
    }
    return PARE_OK;
}

/* Lifts each node that was there before; shapes are then inferred for it and for what its rule put
   around it: everything up to the next of the old nodes. */
static pare_status lift_graph(pare_graph *graph, const lift *l)
{
    int count = graph->node_count, at = 0;
    pare_node **old = pare_alloc(graph->model->ctx, (size_t)count + 1, sizeof *old);
    if (!old) return PARE_MEMORY;
    if (count) memcpy(old, graph->node, (size_t)count * sizeof *old);
    pare_status st = PARE_OK;
    for (int n = 0; n < count && st == PARE_OK; n++) {
        const pare_op *op = pare_op_of(old[n]);
        st = lift_bodies(old[n], l);
        if (opset_of(old[n], l) < 6 && !old[n]->domain[0])
            pare_node_remove_attr(old[n], "consumed_inputs");
        if (st == PARE_OK && op && !old[n]->domain[0]) st = op->up(old[n], opset_of(old[n], l));
        if (st == PARE_OK && !op && pare_contrib_op_of(old[n])) st = pare_contrib_rewrite(old[n]);
        old[n]->opset = 0;
        for (; st == PARE_OK && at < graph->node_count && graph->node[at] != old[n + 1]; at++) {
            op = pare_op_of(graph->node[at]);
            if (op) st = pare_op_infer(graph->node[at]);
        }
    }
    pare_free(old);
    return st;
}

static pare_status find_standard(pare_graph *graph, void *user)
{
    bool *found = user;
    for (int n = 0; n < graph->node_count && !*found; n++)
        *found = !pare_contrib_op_of(graph->node[n]);
    return PARE_OK;
}

/* May a model without an import of ONNX's operators be read as one of this opset? Where none of its
   nodes is one of them. */
static bool has_none(pare_model *model)
{
    bool found = false;
    return pare_graph_each(model->graph, find_standard, &found) == PARE_OK && !found;
}

pare_status pare_pass_version_convert(pare_model *model, int64_t version)
{
    const bool contrib = pare_contrib_any(model->graph);
    if (contrib && version < PARE_CONTRIB_OPSET) version = PARE_CONTRIB_OPSET;
    lift l = {.from = pare_model_opset(model, ""), .to = version};
    if (l.from <= 0 && model->ir_version > 0 && model->ir_version < 3)
        l.from = 1; /* imports began with IR 3 */
    if (l.from <= 0 && contrib && has_none(model)) l.from = 1;
    if (l.from <= 0 && model->graph->node_count > 0)
        return PARE_FAIL(model->ctx, INPUT, "%s: the model imports no version of ONNX's operators",
                         model->path);
    PARE_TRY(pare_graph_sort(model->graph));
    PARE_TRY(pare_graph_each(model->graph, newest, &l));
    if (l.marked && l.from > l.to) l.to = l.from;
    PARE_TRY(pare_graph_each(model->graph, covered, &l));
    if (l.from >= l.to && !l.marked && !contrib) return PARE_OK;
    if (l.from < l.to) PARE_TRY(pare_model_set_opset(model, "", l.to));
    PARE_TRY(lift_graph(model->graph, &l));
    if (contrib) pare_contrib_drop_imports(model);
    return PARE_OK;
}

pare_status pare_pass_expand_contrib(pare_model *model)
{
    if (!pare_contrib_any(model->graph)) return PARE_OK;
    PARE_TRY(pare_pass_version_convert(model, PARE_CONTRIB_OPSET));
    PARE_TRY(pare_graph_name_nodes_apart(model->graph));
    pare_model_raise_ir(model);
    return PARE_OK;
}
