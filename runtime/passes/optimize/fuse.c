/* SPDX-License-Identifier: Apache-2.0 */
/* The fusing pass: runs each rule over all nodes until nothing changes, sweeping in between. Rules
   never look at names of tensors, only at how operators are connected. */
#include "runtime/passes/optimize/fuse.h"
#include "runtime/ops/infer.h"
#include "runtime/passes/passes.h"

#include <math.h>
#include <string.h>

bool pare_fuse_may_vanish(const pare_fuse *f, const pare_value *v)
{
    if (v->is_output || v->is_input || v->is_init || v->graph != f->graph) return false;
    for (int i = 0; i < v->user_count; i++)
        if (v->user[i]->graph != f->graph) return false;
    for (int i = 0; i < v->graph->model->graph->out.count; i++)
        if (v->graph->model->graph->out.item[i] == v) return false;
    for (int i = 0; i < f->keep_count; i++)
        if (!strcmp(f->keep[i], v->name)) return false;
    return true;
}

pare_node *pare_fuse_only_use(const pare_fuse *f, const pare_value *v)
{
    return v && v->user_count == 1 && pare_fuse_may_vanish(f, v) ? v->user[0] : NULL;
}

pare_node *pare_fuse_next(const pare_fuse *f, const pare_value *v, const char *op_type)
{
    pare_node *n = pare_fuse_only_use(f, v);
    return n && pare_node_is(n, op_type) ? n : NULL;
}

pare_node *pare_fuse_maker(const pare_node *node, int i, const char *op_type)
{
    const pare_value *v = pare_node_in(node, i);
    pare_node *n = v && !v->data && v->graph == node->graph ? v->producer : NULL;
    return n && pare_node_is(n, op_type) ? n : NULL;
}

pare_value *pare_fuse_other(const pare_node *node, const pare_value *v)
{
    if (node->in_count != 2 || (node->in[0] != v && node->in[1] != v)) return NULL;
    return node->in[node->in[0] == v];
}

bool pare_fuse_scalar(const pare_value *v, double *out)
{
    if (!v || !v->data || v->data->count != 1 || !pare_type(v->dtype)->to_f32) return false;
    *out = pare_tensor_number(v->data, 0);
    return true;
}

bool pare_fuse_is(const pare_value *v, double wanted)
{
    double x;
    return pare_fuse_scalar(v, &x) && fabs(x - wanted) <= 5e-4 * fabs(wanted);
}

bool pare_fuse_scaled(const pare_node *node, pare_value **v, double *factor)
{
    double s;
    if (pare_node_is(node, "Div") && pare_fuse_scalar(node->in[1], &s) && s != 0) {
        *v = node->in[0];
        *factor = 1 / s;
    } else if (pare_node_is(node, "Mul") && pare_fuse_scalar(node->in[1], &s)) {
        *v = node->in[0];
        *factor = s;
    } else if (pare_node_is(node, "Mul") && pare_fuse_scalar(node->in[0], &s)) {
        *v = node->in[1];
        *factor = s;
    } else {
        return false;
    }
    return !(*v)->data && pare_shape_equal(&(*v)->shape, &node->out[0]->shape);
}

pare_status pare_fuse_replace(pare_node *last, const char *op_type, const char *domain,
                              pare_value *const *in, int in_count, pare_node **out)
{
    pare_graph *g = last->graph;
    pare_value *y = last->out[0];
    const char *name = last->name;
    int at = pare_node_index(last);
    PARE_TRY(pare_node_new(g, out, at, op_type, domain, name, in, in_count, &y, 1));
    pare_node_remove(last);
    y->producer = *out;
    return PARE_OK;
}

pare_status pare_fuse_insert(pare_node *before, const char *op_type, const char *domain,
                             pare_value *const *in, int in_count, const pare_shape *shape,
                             pare_node **out)
{
    pare_graph *g = before->graph;
    const char *name = pare_upgrade_name(before, op_type);
    pare_value *y;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(g, &y, name));
    PARE_TRY(
        pare_node_new(g, out, pare_node_index(before), op_type, domain, name, in, in_count, &y, 1));
    y->dtype = in[0]->dtype;
    y->shape = *shape;
    return PARE_OK;
}

/* x's node makes y from now on, y's does not. */
static void take_over(pare_value *x, pare_value *y)
{
    pare_node *maker = x->producer;
    int i = 0;
    while (maker->out[i] != x) i++;
    pare_node_set_out(maker, i, y);
}

pare_status pare_fuse_bypass(pare_fuse *f, pare_node *node, pare_value *x, bool *changed)
{
    pare_value *y = node->out[0];
    if (pare_fuse_may_vanish(f, y)) {
        if (!y->user_count) return PARE_OK;
        *changed = true;
        return pare_value_replace(y, x, false);
    }
    if (!y->is_output || y->graph != f->graph || !x->producer || !pare_fuse_may_vanish(f, x))
        return PARE_OK;
    *changed = true;
    pare_node_remove(node);
    PARE_TRY(pare_value_replace(x, y, false));
    take_over(x, y);
    return PARE_OK;
}

pare_status pare_fuse_vector(pare_graph *graph, const pare_value *from, pare_value **out)
{
    const char *name = pare_graph_fresh_name(graph, from->name);
    if (!name) return PARE_MEMORY;
    pare_tensor *t = pare_arena_memdup(&graph->model->arena, from->data, sizeof *t);
    int64_t *dims = pare_arena_alloc(&graph->model->arena, 1, sizeof *dims);
    if (!t || !dims) return PARE_MEMORY;
    dims[0] = from->data->count;
    t->rank = 1;
    t->dims = dims;
    t->name = name;
    PARE_TRY(pare_value_new(graph, out, name));
    return pare_value_set_init(*out, t);
}

/* One rule over the nodes as they are; a rule may remove nodes, so the list is copied first and
   removed ones (no inputs, no outputs) are passed over. */
static pare_status rule_run(pare_fuse *f, pare_fuse_fn rule, bool *changed)
{
    pare_ctx *ctx = f->graph->model->ctx;
    int count = f->graph->node_count;
    pare_node **list = pare_alloc(ctx, (size_t)count, sizeof *list);
    if (!list) return PARE_MEMORY;
    if (count) memcpy(list, f->graph->node, (size_t)count * sizeof *list);
    pare_status st = PARE_OK;
    for (int i = 0; i < count && st == PARE_OK; i++)
        if (list[i]->out_count && list[i]->out[0] && list[i]->out[0]->producer == list[i])
            st = rule(f, list[i], changed);
    pare_free(list);
    return st;
}

static void view_of(const pare_value *v, pare_view *out)
{
    *out = (pare_view){0};
    if (!v) return;
    pare_view_set(out, v->dtype, &v->shape, false);
    out->data = v->data ? (void *)v->data->data : NULL;
}

bool pare_fuse_prep(const pare_fuse *f, const pare_node *conv, pare_view *in, pare_view *out,
                    pare_prep *prep)
{
    bool known = conv->in_count >= 2 && conv->in_count <= 5 && conv->in[0] && conv->in[1] &&
                 pare_shape_known(&conv->out[0]->shape);
    for (int i = 0; i < conv->in_count && known; i++)
        known = !conv->in[i] || (pare_shape_known(&conv->in[i]->shape) && conv->in[i]->dtype);
    if (!known) return false;
    for (int i = 0; i < conv->in_count; i++) view_of(conv->in[i], &in[i]);
    view_of(conv->out[0], out);
    *prep = (pare_prep){.ctx = f->graph->model->ctx,
                        .node = conv,
                        .in = in,
                        .out = out,
                        .in_count = conv->in_count,
                        .out_count = 1,
                        .arena = &f->graph->model->arena};
    return true;
}

pare_status pare_fuse_run(pare_graph *graph, const pare_fuse *given, const pare_fuse_fn *rule,
                          size_t count, bool *any)
{
    pare_fuse f = *given;
    f.graph = graph;
    for (size_t r = 0; r < count; r++)
        for (bool changed = true; changed;) {
            changed = false;
            PARE_TRY(rule_run(&f, rule[r], &changed));
            if (changed) pare_graph_sweep(graph);
            *any = *any || changed;
        }
    return PARE_OK;
}

/* Max(x, 0) that QuantizeLinear alone reads is a Relu: files for runtimes that lose a Relu there.
 */
static pare_status relu_of_max(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_value *y = node->out[0];
    if (!pare_node_is(node, "Max") || node->in_count != 2 || !pare_type_is_float(y->dtype) ||
        y->user_count != 1 || !pare_node_is(y->user[0], "QuantizeLinear"))
        return PARE_OK;
    const int at = node->in[0] && node->in[0]->data ? 1 : 0;
    pare_value *x = node->in[at];
    const pare_value *zero = node->in[1 - at];
    if (!x || x->data || !zero || !zero->data || zero->data->count != 1 ||
        pare_tensor_number(zero->data, 0) != 0 || x->shape.rank < zero->shape.rank)
        return PARE_OK;
    const char *name = node->name;
    const int place = pare_node_index(node);
    pare_node_remove(node);
    *changed = true;
    return pare_node_new(f->graph, NULL, place, "Relu", "", name, &x, 1, &y, 1);
}

static pare_status fuse_graph(pare_graph *graph, void *user)
{
    static const pare_fuse_fn rule[] = {pare_fuse_noops,   pare_fuse_shapes, relu_of_max,
                                        pare_fuse_norm,    pare_fuse_gelu,   pare_fuse_attention,
                                        pare_fuse_weighted};
    bool changed = false;
    return pare_fuse_run(graph, user, rule, sizeof rule / sizeof *rule, &changed);
}

static pare_status spread_graph(pare_graph *graph, void *user)
{
    static const pare_fuse_fn rule[] = {pare_fuse_concat};
    bool changed = false;
    return pare_fuse_run(graph, user, rule, 1, &changed);
}

pare_status pare_pass_fuse(pare_model *model, const char *const *keep, int keep_count)
{
    pare_fuse f = {.keep = keep, .keep_count = keep_count};
    return pare_graph_each(model->graph, fuse_graph, &f);
}

pare_status pare_pass_distribute_concat(pare_model *model, const char *const *keep, int keep_count)
{
    pare_fuse f = {.keep = keep, .keep_count = keep_count};
    return pare_graph_each(model->graph, spread_graph, &f);
}
