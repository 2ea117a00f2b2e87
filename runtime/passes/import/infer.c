/* SPDX-License-Identifier: Apache-2.0 */
/* Types and shapes of every tensor, and constants folded on the way: a node whose inputs are all
   constant is run by its plain kernel, and its results become initializers. Shape and Size fold as
   soon as the dims they give are known. */
#include "runtime/ops/infer.h"
#include "runtime/passes/import/fold_constants.h"
#include "runtime/passes/passes.h"

static pare_status infer_graph(pare_graph *graph, const pare_infer_options *options);

/* Bodies of If, Loop and Scan: their inputs may stay unknown, and nothing is folded in them. */
static pare_status infer_bodies(pare_node *node)
{
    const pare_infer_options body = {.lenient = true};
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) PARE_TRY(infer_graph(attr->graph, &body));
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            PARE_TRY(infer_graph(attr->graphs[i], &body));
    }
    return PARE_OK;
}

static pare_status infer_node(pare_node *node, const pare_infer_options *options)
{
    const pare_op *op = pare_op_of(node);
    PARE_TRY(infer_bodies(node));
    if (op) return op->infer(node);
    if (options->lenient) return PARE_OK;
    return PARE_FAIL_NODE(node, UNSUPPORTED, "operator '%s%s%s' is not supported", node->domain,
                          node->domain[0] ? "::" : "", node->op_type);
}

static pare_status infer_graph(pare_graph *graph, const pare_infer_options *options)
{
    for (int n = 0; n < graph->node_count;) {
        pare_node *node = graph->node[n];
        bool folded = false;
        PARE_TRY(infer_node(node, options));
        if (options->fold) PARE_TRY(pare_fold_node(node, options, &folded));
        n += !folded;
    }
    return PARE_OK;
}

pare_status pare_pass_infer(pare_model *model, const pare_infer_options *options)
{
    PARE_TRY(pare_graph_sort(model->graph));
    return infer_graph(model->graph, options);
}
