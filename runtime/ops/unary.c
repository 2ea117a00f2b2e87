/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one tensor, element by element: the list of unary.inc, and their gradients. */
#include "runtime/ops/unary.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"

#include <math.h>
#include <string.h>

const pare_unary_row pare_unary_rows[PARE_UNARY_COUNT] = {
#define PARE_UNARY(name, fn, since, q, grad, a, a0, b, b0, f, reads, dx)                           \
    [PARE_UNARY_##name] = {#name, PARE_READS_##reads, {{a, a0}, {b, b0}}},
#define PARE_UNARY_SLOPE(name, a, a0, b, b0, reads, dx)                                            \
    [PARE_UNARY_##name] = {#name, PARE_READS_##reads, {{a, a0}, {b, b0}}},
#include "runtime/ops/unary.inc"
};

/* Selu (1): its constants are shorter than those of (6). */
pare_status pare_upgrade_unary(pare_node *node, int64_t version)
{
    if (version >= 6 || !pare_node_is(node, "Selu")) return PARE_OK;
    PARE_TRY(pare_node_set_float(node, "alpha", pare_node_float(node, "alpha", 1.6732F)));
    return pare_node_set_float(node, "gamma", pare_node_float(node, "gamma", 1.0507F));
}

static pare_unary find(const char *name, size_t length)
{
    int i = 0;
    while (i < PARE_UNARY_COUNT && (strlen(pare_unary_rows[i].name) != length ||
                                    memcmp(pare_unary_rows[i].name, name, length) != 0))
        i++;
    return (pare_unary)i;
}

/* Without a copy of the attribute: kernels ask for it where nothing may be allocated. */
pare_unary pare_unary_of(const pare_node *node)
{
    const bool grad = !strcmp(node->op_type, "UnaryGrad");
    pare_unary row = grad ? PARE_UNARY_COUNT : find(node->op_type, strlen(node->op_type));
    const char *name = grad ? "of" : row == PARE_UNARY_Gelu ? "approximate" : NULL;
    const pare_attr *a = name ? pare_node_attr(node, name) : NULL;
    if (!a || a->kind != PARE_ATTR_STRING) return row;
    if (grad) return find(a->s.data, a->s.size);
    return a->s.size == 4 && !memcmp(a->s.data, "tanh", 4) ? PARE_UNARY_GeluTanh : row;
}

float pare_unary_attr(const pare_node *node, pare_unary row, int i)
{
    const char *name = pare_unary_rows[row].attr[i].name;
    return name ? pare_node_float(node, name, pare_unary_rows[row].attr[i].missing) : 0;
}

static pare_node *unary_begin(pare_grad *g, const pare_node *node, pare_unary row)
{
    pare_unary_reads reads = pare_unary_rows[row].reads;
    pare_value *in[3] = {pare_grad_of(g, node->out[0]), reads == PARE_READS_X ? node->in[0] : NULL,
                         reads == PARE_READS_Y ? node->out[0] : NULL};
    pare_node *made = pare_grad_begin(g, "UnaryGrad", in, 3, 1);
    pare_grad_string(g, made, "of", pare_unary_rows[row].name);
    return made;
}

pare_status pare_grad_unary(pare_grad *g, const pare_node *node)
{
    pare_unary row = pare_unary_of(node);
    pare_node *made = unary_begin(g, node, row);
    for (int i = 0; i < 2; i++)
        if (pare_unary_rows[row].attr[i].name)
            pare_grad_float(g, made, pare_unary_rows[row].attr[i].name,
                            pare_unary_attr(node, row, i));
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

/* Clip (13): limits must be constant. */
pare_status pare_grad_clip(pare_grad *g, const pare_node *node)
{
    static const char *const name[2] = {"low", "high"};
    const float *limit[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        int count = 0;
        if (!pare_node_in(node, 1 + i)) continue;
        PARE_TRY(pare_infer_floats(node, 1 + i, &limit[i], &count));
        if (!limit[i] || count != 1)
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "it has no gradient rule for limits that are computed");
    }
    pare_node *made = unary_begin(g, node, PARE_UNARY_Clip);
    for (int i = 0; i < 2; i++)
        if (limit[i]) pare_grad_float(g, made, name[i], *limit[i]);
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

/* Functions whose derivative is 0 wherever it exists. */
pare_status pare_grad_zero(pare_grad *g, const pare_node *node)
{
    (void)node;
    return g->status;
}

pare_status pare_infer_unary_grad(pare_node *node)
{
    if (pare_unary_of(node) == PARE_UNARY_COUNT)
        return PARE_FAIL_NODE(node, INPUT,
                              "attribute of is '%s', expected an operator with a derivative",
                              pare_node_string(node, "of", ""));
    return pare_infer_same(node);
}
