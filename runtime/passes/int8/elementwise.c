/* SPDX-License-Identifier: Apache-2.0 */
/* Additions, products, joins and average pools between int8 tensors; functions of one int8 tensor
   become tables (lut.c). From front to back, so that a later node sees earlier results.
 */
#include "runtime/passes/int8/fold_qdq.h"

#include <math.h>
#include <string.h>

static pare_status set_param(pare_node *node, const char *prefix, const pare_qparam *p)
{
    char name[16];
    size_t n = strlen(prefix);
    memcpy(name, prefix, n);
    strcpy(name + n, "_scale");
    PARE_TRY(pare_node_set_float(node, name, p->scale));
    strcpy(name + n, "_zero_point");
    return pare_node_set_int(node, name, p->zero);
}

/* What is between an operator and its Q: nothing, or a clamp. */
typedef struct tail {
    pare_node *clamp, *q;
    pare_qparam y;
    const char *activation;
    float low, high;
} tail;

static bool clamp_bound(const pare_node *node, int i, const char *attr, float missing, float *out)
{
    const pare_value *v = pare_node_in(node, i);
    *out = pare_node_float(node, attr, missing);
    if (!v) return true;
    if (!v->data || v->data->dtype != PARE_f32 || v->data->count != 1) return false;
    *out = *(const float *)v->data->data;
    return true;
}

static bool read_clamp(tail *t)
{
    if (pare_node_is(t->clamp, "Relu")) {
        t->activation = "relu";
        return true;
    }
    t->activation = "clip";
    return pare_node_is(t->clamp, "Clip") && clamp_bound(t->clamp, 1, "min", -INFINITY, &t->low) &&
           clamp_bound(t->clamp, 2, "max", INFINITY, &t->high);
}

/* Is node followed by a Q that nothing else bypasses? */
static bool read_tail(const pare_node *node, tail *t)
{
    *t = (tail){.activation = "none"};
    t->q = pare_qdq_only_q(node->out[0], &t->y);
    if (t->q) return pare_qparam_is_int8(&t->y);
    t->clamp = pare_value_only_user(node->out[0]);
    if (!t->clamp || t->clamp->graph != node->graph ||
        pare_quant_kind_of(t->clamp) != PARE_QUANT_CLAMP || !read_clamp(t))
        return false;
    t->q = pare_qdq_only_q(t->clamp->out[0], &t->y);
    return t->q && pare_qparam_is_int8(&t->y);
}

/* The integer node in the place of node, clamp and Q. */
static pare_status replace(pare_node *node, const tail *t, const char *type, pare_value *const *in,
                           int count, pare_node **out)
{
    pare_graph *graph = node->graph;
    pare_value *y = t->q->out[0];
    pare_node_remove(t->q);
    if (t->clamp) pare_node_remove(t->clamp);
    PARE_TRY(pare_node_new(graph, out, pare_node_index(node), type, PARE_DOMAIN, node->name, in,
                           count, &y, 1));
    pare_node_remove(node);
    PARE_TRY(pare_node_set_int(*out, "to", t->y.dtype));
    if (!strcmp(t->activation, "none")) return PARE_OK;
    PARE_TRY(pare_node_set_string(*out, "activation", t->activation));
    if (strcmp(t->activation, "clip")) return PARE_OK;
    PARE_TRY(pare_node_set_float(*out, "alpha", t->low));
    return pare_node_set_float(*out, "beta", t->high);
}

/* The int8 tensor after a float value, or NULL. */
static pare_value *int8_after(const pare_value *value, pare_qparam *out)
{
    pare_value *q = pare_qdq_after(value, out);
    return q && pare_qparam_is_int8(out) ? q : NULL;
}

static pare_status fold_binary(pare_node *node, const char *type)
{
    pare_qparam a, b;
    tail t;
    pare_node *made;
    if (node->in_count != 2 || !read_tail(node, &t)) return PARE_OK;
    pare_value *in[] = {int8_after(node->in[0], &a), int8_after(node->in[1], &b)};
    if (!in[0] || !in[1]) return PARE_OK;
    PARE_TRY(replace(node, &t, type, in, 2, &made));
    PARE_TRY(set_param(made, "a", &a));
    PARE_TRY(set_param(made, "b", &b));
    return set_param(made, "y", &t.y);
}

/* QConcat: every input with a scale of its own. Inputs after no DQ get their pair here, with the
   output's scale, where another input has one already. */
static pare_status fold_join(pare_node *node)
{
    tail t;
    int n = node->in_count, int8 = 0;
    if (!read_tail(node, &t) || t.clamp) return PARE_OK;
    pare_arena *arena = &node->graph->model->arena;
    pare_value **in = pare_arena_alloc(arena, (size_t)n, sizeof *in);
    float *scale = pare_arena_alloc(arena, (size_t)n + 1, sizeof *scale);
    int64_t *zero = pare_arena_alloc(arena, (size_t)n + 1, sizeof *zero);
    if (!in || !scale || !zero) return PARE_MEMORY;
    for (int i = 0; i < n; i++) {
        pare_qparam p;
        if (!node->in[i] || !(in[i] = int8_after(node->in[i], &p))) continue;
        scale[i] = p.scale;
        zero[i] = p.zero;
        int8++;
    }
    if (int8 < n) return PARE_OK;
    scale[n] = t.y.scale;
    zero[n] = t.y.zero;
    int64_t axis = pare_node_int(node, "axis", 0);
    pare_node *made;
    PARE_TRY(replace(node, &t, "QConcat", in, n, &made));
    PARE_TRY(pare_node_set_int(made, "axis", axis));
    PARE_TRY(pare_node_set_attr(
        made,
        &(pare_attr){.name = "scales", .kind = PARE_ATTR_FLOATS, .floats = scale, .count = n + 1}));
    return pare_node_set_ints(made, "zero_points", zero, n + 1);
}

static pare_status fold_pool(pare_node *node)
{
    bool global = pare_node_is(node, "GlobalAveragePool");
    if (!global && !pare_node_is(node, "AveragePool")) return PARE_OK;
    pare_qparam x;
    tail t;
    pare_value *in = int8_after(node->in[0], &x);
    if (!in || !read_tail(node, &t) || t.clamp) return PARE_OK;
    pare_attr *attr = node->attr;
    int count = node->attr_count;
    pare_node *made;
    PARE_TRY(replace(node, &t, global ? "QGlobalAveragePool" : "QAveragePool", &in, 1, &made));
    for (int i = 0; i < count; i++) PARE_TRY(pare_node_set_attr(made, &attr[i]));
    PARE_TRY(set_param(made, "x", &x));
    return set_param(made, "y", &t.y);
}

static pare_status fold_one(pare_node *node)
{
    bool done = false;
    if (pare_node_is(node, "QuantizeLinear")) return pare_qdq_lut(node, &done);
    switch (pare_quant_kind_of(node)) {
    case PARE_QUANT_SUM:
    case PARE_QUANT_PRODUCT: {
        tail t;
        if (node->in_count == 2 && read_tail(node, &t)) PARE_TRY(pare_qdq_lut(t.q, &done));
        if (done) return PARE_OK;
        return fold_binary(node, pare_quant_kind_of(node) == PARE_QUANT_SUM ? "QAdd" : "QMul");
    }
    case PARE_QUANT_JOIN: return fold_join(node);
    case PARE_QUANT_MEAN: return fold_pool(node);
    default: return PARE_OK;
    }
}

pare_status pare_qdq_elementwise(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) PARE_TRY(fold_one(graph->node[n]));
    return PARE_OK;
}
