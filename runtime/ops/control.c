/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that the interpreter runs (exec/interpreter): control flow, sequences and optionals. */
#include "runtime/ops/infer.h"

/* If: both branches give the same types; dims that differ are not known. */
pare_status pare_infer_if(pare_node *node)
{
    const pare_attr *then = pare_node_attr(node, "then_branch"),
                    *other = pare_node_attr(node, "else_branch");
    if (!then || !other || then->kind != PARE_ATTR_GRAPH || other->kind != PARE_ATTR_GRAPH)
        return PARE_FAIL_NODE(node, INPUT, "then_branch or else_branch is missing");
    const pare_values *a = &then->graph->out, *b = &other->graph->out;
    if (a->count != node->out_count || b->count != node->out_count)
        return PARE_FAIL_NODE(node, INPUT, "its branches have %d and %d outputs, expected %d",
                              a->count, b->count, node->out_count);
    for (int i = 0; i < node->out_count; i++) {
        const pare_value *x = a->item[i], *y = b->item[i];
        if (x->dtype && y->dtype && x->dtype != y->dtype)
            return PARE_FAIL_NODE(node, INPUT, "output %d is %s in one branch and %s in the other",
                                  i, pare_type(x->dtype)->name, pare_type(y->dtype)->name);
        pare_shape s = x->shape.rank == y->shape.rank ? x->shape : pare_shape_unknown(-1);
        for (int k = 0; k < s.rank; k++)
            if (x->shape.dim[k] != y->shape.dim[k]) {
                s.dim[k] = -1;
                s.name[k] = NULL;
            }
        pare_infer_out(node, i, x->dtype ? x->dtype : y->dtype, &s);
    }
    return PARE_OK;
}

/* Loop and Scan: outputs have the types of the body's (Loop's begin with its condition). The number
   of turns gives scan outputs an axis that is not known here, and states may change their shape:
   shapes are what the file says. */
pare_status pare_infer_loop(pare_node *node)
{
    const pare_attr *body = pare_node_attr(node, "body");
    if (!body || body->kind != PARE_ATTR_GRAPH)
        return PARE_FAIL_NODE(node, INPUT, "body is missing");
    const pare_values *y = &body->graph->out;
    int first = pare_node_is(node, "Loop");
    if (y->count != node->out_count + first)
        return PARE_FAIL_NODE(node, INPUT, "its body has %d outputs, expected %d", y->count,
                              node->out_count + first);
    for (int i = 0; i < node->out_count; i++) {
        const pare_value *inner = y->item[i + first];
        pare_shape told = node->out[i] ? node->out[i]->shape : pare_shape_unknown(-1);
        if (inner->dtype) pare_infer_out(node, i, inner->dtype, &told);
    }
    return PARE_OK;
}

/* Sequences and optionals, and tensors taken from them: only a run knows. */
pare_status pare_infer_opaque(pare_node *node)
{
    const pare_shape unknown = {.rank = -1};
    for (int i = 0; i < node->out_count; i++) pare_infer_out(node, i, PARE_NOTYPE, &unknown);
    return PARE_OK;
}

/* SequenceLength (11), OptionalHasElement (15, 18): one number. */
pare_status pare_infer_sequence_length(pare_node *node)
{
    pare_infer_out(node, 0, PARE_s64, &(pare_shape){.rank = 0});
    return PARE_OK;
}

pare_status pare_infer_optional_has(pare_node *node)
{
    pare_infer_out(node, 0, PARE_bool, &(pare_shape){.rank = 0});
    return PARE_OK;
}

/* No plan chooses it: the name that tables print for these rows. */
static bool never(const pare_prep *p)
{
    (void)p;
    return false;
}

static const pare_kernel interpreter = {.name = "interpreter", .can = never};
const pare_kernel *const pare_cpu_interpreter[] = {&interpreter, NULL};
