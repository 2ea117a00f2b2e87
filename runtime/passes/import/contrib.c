/* SPDX-License-Identifier: Apache-2.0 */
/* Operators outside ONNX become standard ones: the table (contrib.inc), the check of inputs and
   attributes against a row, and what rewrites are written with. The walk over the model, which
   gives every tensor its shape on the way, is version_convert.c's. */
#include "runtime/passes/import/contrib.h"

#include "runtime/ops/infer.h"
#include "runtime/ops/ops.h"

#include <stdlib.h>
#include <string.h>

const pare_contrib_op pare_contrib_ops[] = {
#define PARE_CONTRIB(domain, name, fn, least, most, attrs)                                         \
    {PARE_DOMAIN_##domain, #name, pare_contrib_##fn, least, most, attrs},
#include "runtime/passes/import/contrib.inc"
#undef PARE_CONTRIB
};
const int pare_contrib_op_count = (int)(sizeof pare_contrib_ops / sizeof *pare_contrib_ops);

const pare_contrib_op *pare_contrib_op_of(const pare_node *node)
{
    for (int i = 0; i < pare_contrib_op_count; i++) {
        const pare_contrib_op *op = &pare_contrib_ops[i];
        if (!strcmp(op->name, node->op_type) && !strcmp(op->domain, node->domain)) return op;
    }
    return NULL;
}

static pare_status find_any(pare_graph *graph, void *user)
{
    bool *any = user;
    for (int n = 0; n < graph->node_count && !*any; n++)
        *any = pare_contrib_op_of(graph->node[n]) != NULL;
    return PARE_OK;
}

bool pare_contrib_any(pare_graph *graph)
{
    bool any = false;
    return pare_graph_each(graph, find_any, &any) == PARE_OK && any;
}

typedef struct domain_search {
    const char *domain;
    bool found;
} domain_search;

static pare_status find_domain(pare_graph *graph, void *user)
{
    domain_search *s = user;
    for (int n = 0; n < graph->node_count && !s->found; n++)
        s->found = !strcmp(graph->node[n]->domain, s->domain);
    return PARE_OK;
}

void pare_contrib_drop_imports(pare_model *model)
{
    for (int i = 0; i < model->opset_count; i++) {
        domain_search s = {model->opset[i].domain, false};
        if (strcmp(s.domain, PARE_DOMAIN_MICROSOFT) || model->function_count) continue;
        if (pare_graph_each(model->graph, find_domain, &s) != PARE_OK || s.found) continue;
        memmove(model->opset + i, model->opset + i + 1,
                (size_t)(model->opset_count - i - 1) * sizeof *model->opset);
        model->opset_count--;
        i--;
    }
}

/* --- a node against its row --- */

/* The entry of an attribute in a row's list: "name", "name=value" or "name?"; NULL: it has none. */
static const char *entry_of(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
        if (!strncmp(at, name, n) && strchr(" =?", at[n])) return at;
    return NULL;
}

static pare_status check_attr(const pare_node *node, const pare_attr *a, const char *entry)
{
    if (!entry)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "attribute '%s' is not supported", a->name);
    const char *rule = entry + strlen(a->name);
    if (*rule == '?' && (a->kind != PARE_ATTR_INT || a->i < 0 || a->i > 1))
        return PARE_FAIL_NODE(node, INPUT, "attribute '%s' must be 0 or 1", a->name);
    if (*rule == '=' && (a->kind != PARE_ATTR_INT || a->i != strtoll(rule + 1, NULL, 10)))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "attribute '%s' is not supported, expected %lld",
                              a->name, strtoll(rule + 1, NULL, 10));
    return PARE_OK;
}

static pare_status check_attrs(const pare_node *node, const pare_contrib_op *op)
{
    for (int i = 0; i < node->attr_count; i++)
        PARE_TRY(check_attr(node, &node->attr[i], entry_of(op->attrs, node->attr[i].name)));
    return PARE_OK;
}

static pare_status check_inputs(const pare_node *node, const pare_contrib_op *op)
{
    if (node->in_count < op->least)
        return PARE_FAIL_NODE(node, INPUT, "it has %d inputs, expected at least %d", node->in_count,
                              op->least);
    if (op->least && !node->in[0]) return PARE_FAIL_NODE(node, INPUT, "its input 0 is missing");
    for (int i = op->most; i < node->in_count; i++)
        if (node->in[i])
            return PARE_FAIL_NODE(node, UNSUPPORTED, "input %d, '%s', is not supported", i,
                                  node->in[i]->name);
    if (!node->out_count || !node->out[0]) return PARE_FAIL_NODE(node, INPUT, "it has no output");
    return PARE_OK;
}

pare_status pare_contrib_rewrite(pare_node *node)
{
    const pare_contrib_op *op = pare_contrib_op_of(node);
    pare_contrib c = {.node = node};
    PARE_TRY(check_attrs(node, op));
    PARE_TRY(check_inputs(node, op));
    c.like = node->in_count ? node->in[0] : NULL;
    c.base = node->name[0] ? node->name : node->out[0]->name;
    op->rewrite(&c);
    if (c.status == PARE_OK && !strcmp(node->domain, op->domain) &&
        !strcmp(node->op_type, op->name))
        pare_node_remove(node);
    return c.status;
}

/* The node is ONNX's operator of the same name. */
void pare_contrib_same(pare_contrib *c) { c->node->domain = ""; }

/* --- making nodes --- */

bool pare_contrib_has_out(const pare_contrib *c, int i)
{
    return i < c->node->out_count && c->node->out[i] &&
           (c->node->out[i]->user_count || c->node->out[i]->is_output);
}

static const char *fresh_name(pare_contrib *c, const char *suffix)
{
    pare_graph *g = c->node->graph;
    const char *name = pare_arena_printf(&g->model->arena, "%s_%s", c->base, suffix);
    name = name ? pare_graph_fresh_name(g, name) : NULL;
    if (!name) c->status = PARE_MEMORY;
    return name;
}

/* The rewritten node's output i, which it gives away, or a new tensor. */
static pare_value *result(pare_contrib *c, int i, const char *name)
{
    pare_value *v = NULL;
    if (i >= 0 && i < c->node->out_count) v = c->node->out[i];
    if (v)
        pare_node_set_out(c->node, i, NULL);
    else
        c->status = pare_value_new(c->node->graph, &v, name);
    return v;
}

pare_value *pare_contrib_op_new(pare_contrib *c, int to, const char *op_type, pare_value *const *in,
                                int in_count, int out_count)
{
    enum { MOST = 3 };
    pare_value *made[MOST] = {NULL};
    if (c->status != PARE_OK) return NULL;
    const char *name = fresh_name(c, op_type);
    for (int i = 0; i < out_count && c->status == PARE_OK; i++) {
        const char *tensor = i ? fresh_name(c, op_type) : name;
        if (c->status == PARE_OK) made[i] = result(c, to < 0 ? -1 : to + i, tensor);
    }
    if (c->status != PARE_OK) return NULL;
    while (in_count && !in[in_count - 1]) in_count--;
    c->status = pare_node_new(c->node->graph, &c->last, pare_node_index(c->node), op_type, "", name,
                              in, in_count, made, out_count);
    return c->status == PARE_OK ? made[0] : NULL;
}

pare_value *pare_contrib_made(const pare_contrib *c, int i)
{
    return c->status == PARE_OK && i < c->last->out_count ? c->last->out[i] : NULL;
}

void pare_contrib_int(pare_contrib *c, const char *name, int64_t i)
{
    if (c->status == PARE_OK) c->status = pare_node_set_int(c->last, name, i);
}

void pare_contrib_float(pare_contrib *c, const char *name, float f)
{
    if (c->status == PARE_OK) c->status = pare_node_set_float(c->last, name, f);
}

void pare_contrib_list(pare_contrib *c, const char *name, const int64_t *ints, int count)
{
    if (c->status == PARE_OK) c->status = pare_node_set_ints(c->last, name, ints, count);
}

void pare_contrib_copy(pare_contrib *c, const char *names)
{
    for (int i = 0; i < c->node->attr_count && c->status == PARE_OK; i++)
        if (entry_of(names, c->node->attr[i].name))
            c->status = pare_node_set_attr(c->last, &c->node->attr[i]);
}

/* --- constants --- */

pare_value *pare_contrib_constant(pare_contrib *c, const char *suffix, pare_dtype dtype, int rank,
                                  const int64_t *dims, const void *data)
{
    pare_value *v = NULL;
    const char *name = c->status == PARE_OK ? fresh_name(c, suffix) : NULL;
    if (name) c->status = pare_init_new(c->node->graph, &v, name, dtype, rank, dims, data);
    return c->status == PARE_OK ? v : NULL;
}

pare_value *pare_contrib_ints(pare_contrib *c, const int64_t *ints, int count)
{
    return pare_contrib_constant(c, "list", PARE_s64, 1, &(int64_t){count}, ints);
}

pare_value *pare_contrib_number(pare_contrib *c, const pare_value *like, double value)
{
    uint8_t element[8];
    const pare_dtype dtype = c->status == PARE_OK ? like->dtype : PARE_f32;
    if (dtype == PARE_s64) {
        memcpy(element, &(int64_t){(int64_t)value}, sizeof(int64_t));
    } else if (dtype == PARE_s32) {
        memcpy(element, &(int32_t){(int32_t)value}, sizeof(int32_t));
    } else if (pare_type_is_float(dtype) && pare_type(dtype)->from_f32_ref) {
        pare_type(dtype)->from_f32_ref(element, (float)value);
    } else {
        CONTRIB_FAIL(c, UNSUPPORTED, "the type of tensor '%s' is unknown or not supported",
                     like->name);
        return NULL;
    }
    return pare_contrib_constant(c, "number", dtype, 0, NULL, element);
}

/* --- moves --- */

pare_value *pare_contrib_transpose(pare_contrib *c, int to, pare_value *x, const int64_t *perm,
                                   int rank)
{
    pare_value *y = OP_TO(c, to, "Transpose", x);
    pare_contrib_list(c, "perm", perm, rank);
    return y;
}

/* Axes 0, then first .., then the rest: the last axis at 1, or axis 1 at the end. */
static pare_value *move_channels(pare_contrib *c, int to, pare_value *x, int rank, bool last)
{
    int64_t perm[PARE_MAX_RANK] = {0};
    for (int i = 1; i < rank; i++)
        perm[i] = last ? (i + 1 < rank ? i + 1 : 1) : (i == 1 ? rank - 1 : i - 1);
    return pare_contrib_transpose(c, to, x, perm, rank);
}

/* Of the node's first input: where channels are moved, all have it. */
static int channels_rank(pare_contrib *c)
{
    const int rank = c->node->in[0]->shape.rank;
    if (c->status == PARE_OK && rank < 3)
        CONTRIB_FAIL(c, UNSUPPORTED,
                     "input '%s' has rank %d, expected one of 3 or more that is known",
                     c->node->in[0]->name, rank);
    return rank;
}

pare_value *pare_contrib_channels_last(pare_contrib *c, int to, pare_value *x)
{
    const int rank = channels_rank(c);
    return c->status == PARE_OK ? move_channels(c, to, x, rank, true) : NULL;
}

pare_value *pare_contrib_channels_first(pare_contrib *c, pare_value *x)
{
    const int rank = channels_rank(c);
    return c->status == PARE_OK ? move_channels(c, -1, x, rank, false) : NULL;
}

pare_value *pare_contrib_slice(pare_contrib *c, pare_value *x, int64_t axis, int64_t first,
                               int64_t last)
{
    return OP(c, "Slice", x, INTS(c, first), INTS(c, last), INTS(c, axis));
}
