/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that the interpreter runs (exec/interpreter): control flow, sequences and optionals. */
#include "runtime/ops/infer.h"

/* What fits both. */
static pare_shape either(const pare_shape *a, const pare_shape *b)
{
    pare_shape s = a->rank == b->rank ? *a : pare_shape_unknown(-1);
    for (int k = 0; k < s.rank; k++)
        if (a->dim[k] != b->dim[k]) {
            s.dim[k] = -1;
            s.name[k] = NULL;
        }
    return s;
}

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
        const pare_shape s = either(&x->shape, &y->shape);
        pare_infer_out(node, i, x->dtype ? x->dtype : y->dtype, &s);
    }
    return PARE_OK;
}

/* One element after the other on a new first axis of unknown size. */
static pare_shape stacked(const pare_shape *element)
{
    if (element->rank < 0 || element->rank >= PARE_MAX_RANK) return pare_shape_unknown(-1);
    pare_shape s = {.rank = element->rank + 1, .dim = {-1}};
    for (int k = 0; k < element->rank; k++) {
        s.dim[k + 1] = element->dim[k];
        s.name[k + 1] = element->name[k];
    }
    return s;
}

/* Loop and Scan: outputs have the types of the body's (Loop's begin with its condition). Shapes are
   what the file says. Where it does not, a state has that of its initial value as far as the body
   keeps it, and a scan output one axis more than its element. */
pare_status pare_infer_loop(pare_node *node)
{
    const pare_attr *body = pare_node_attr(node, "body");
    if (!body || body->kind != PARE_ATTR_GRAPH)
        return PARE_FAIL_NODE(node, INPUT, "body is missing");
    const pare_values *y = &body->graph->out;
    const int first = pare_node_is(node, "Loop");
    const int states = first ? node->in_count - 2
                             : node->in_count - (int)pare_node_int(node, "num_scan_inputs", 0);
    const bool axes_are_told = pare_node_attr(node, "scan_output_axes") != NULL;
    if (y->count != node->out_count + first)
        return PARE_FAIL_NODE(node, INPUT, "its body has %d outputs, expected %d", y->count,
                              node->out_count + first);
    if (states > node->out_count)
        return PARE_FAIL_NODE(node, INPUT, "it has %d states and %d outputs, expected one a state",
                              states, node->out_count);
    for (int i = 0; i < node->out_count; i++) {
        const pare_value *inner = y->item[i + first];
        if (!node->out[i] || !inner->dtype) continue;
        pare_shape told = node->out[i]->shape;
        if (told.rank < 0 || node->out[i]->inferred) {
            const pare_value *start = i < states ? pare_node_in(node, i + 2 * first) : NULL;
            told = start           ? either(&start->shape, &inner->shape)
                   : i < states    ? pare_shape_unknown(-1)
                   : axes_are_told ? pare_shape_unknown(-1)
                                   : stacked(&inner->shape);
            node->out[i]->inferred = true;
        }
        pare_infer_out(node, i, inner->dtype, &told);
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
