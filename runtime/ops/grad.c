/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/grad.h"
#include "runtime/ops/window.h"

/* --- gradients of values --- */

bool pare_grad_wants(const pare_grad *g, const pare_value *v)
{
    return v && pare_ptr_map_find(&g->wanted, v) >= 0;
}

pare_value *pare_grad_of(const pare_grad *g, const pare_value *v)
{
    return pare_grad_wants(g, v) ? g->grad[pare_ptr_map_find(&g->wanted, v)] : NULL;
}

void pare_grad_want(pare_grad *g, const pare_value *v)
{
    if (g->status != PARE_OK || pare_grad_wants(g, v)) return;
    g->status = pare_ptr_map_put(&g->wanted, v, (int)g->wanted.count);
}

void pare_grad_give(pare_grad *g, const pare_value *v, pare_value *d)
{
    if (!pare_grad_wants(g, v) || g->status != PARE_OK || !d) return;
    pare_value *sum = pare_grad_of(g, v);
    sum = sum ? PARE_EMIT(g, "Add", sum, d) : d;
    g->grad[pare_ptr_map_find(&g->wanted, v)] = sum;
}

void pare_grad_give_sum(pare_grad *g, const pare_value *v, pare_value *d)
{
    if (!pare_grad_wants(g, v) || g->status != PARE_OK || !d) return;
    bool stretched[PARE_MAX_RANK] = {false}, any = false;
    int skip = d->shape.rank - v->shape.rank;
    for (int i = 0; i < d->shape.rank; i++) {
        stretched[i] = i < skip || (v->shape.dim[i - skip] == 1 && d->shape.dim[i] != 1);
        any = any || stretched[i];
    }
    if (any) d = pare_grad_summed(g, d, stretched);
    pare_grad_give(g, v, pare_grad_reshaped(g, d, &v->shape));
}

/* --- nodes --- */

static void note(pare_grad *g, pare_status st)
{
    if (g->status == PARE_OK) g->status = st;
}

static const char *next_name(pare_grad *g)
{
    const char *name = pare_arena_printf(&g->graph->model->arena, "%s/grad%d",
                                         g->base ? g->base : "", g->serial++);
    if (name) name = pare_graph_fresh_name(g->graph, name);
    if (!name) note(g, PARE_MEMORY);
    return name;
}

static pare_status begin(pare_grad *g, pare_node **out, const pare_op *op, pare_value *const *in,
                         int in_count, int out_count)
{
    pare_value *made[4] = {NULL};
    for (int i = 0; i < out_count; i++) {
        const char *name = next_name(g);
        if (!name) return PARE_MEMORY;
        PARE_TRY(pare_value_new(g->graph, &made[i], name));
    }
    return pare_node_new(g->graph, out, g->graph->node_count, op->name, op->domain, made[0]->name,
                         in, in_count, made, out_count);
}

pare_node *pare_grad_begin(pare_grad *g, const char *op, pare_value *const *in, int in_count,
                           int out_count)
{
    pare_node *node = NULL;
    const pare_op *row = pare_op_find("", op);
    if (g->status != PARE_OK) return NULL;
    if (!row) row = pare_op_find(PARE_DOMAIN, op);
    note(g, begin(g, &node, row, in, in_count, out_count));
    return g->status == PARE_OK ? node : NULL;
}

pare_value *pare_grad_end(pare_grad *g, pare_node *node)
{
    if (g->status != PARE_OK) return NULL;
    note(g, pare_op_of(node)->infer(node));
    return g->status == PARE_OK ? node->out[0] : NULL;
}

pare_value *pare_grad_emit(pare_grad *g, const char *op, pare_value *const *in, int in_count)
{
    return pare_grad_end(g, pare_grad_begin(g, op, in, in_count, 1));
}

void pare_grad_int(pare_grad *g, pare_node *node, const char *name, int64_t i)
{
    if (g->status == PARE_OK) note(g, pare_node_set_int(node, name, i));
}

void pare_grad_float(pare_grad *g, pare_node *node, const char *name, float f)
{
    if (g->status == PARE_OK) note(g, pare_node_set_float(node, name, f));
}

void pare_grad_int_list(pare_grad *g, pare_node *node, const char *name, const int64_t *ints,
                        int count)
{
    if (g->status == PARE_OK) note(g, pare_node_set_ints(node, name, ints, count));
}

void pare_grad_string(pare_grad *g, pare_node *node, const char *name, const char *text)
{
    if (g->status == PARE_OK) note(g, pare_node_set_string(node, name, text));
}

void pare_grad_attrs(pare_grad *g, pare_node *node, const pare_node *from)
{
    for (int i = 0; i < from->attr_count && g->status == PARE_OK; i++)
        note(g, pare_node_set_attr(node, &from->attr[i]));
}

void pare_grad_shape(pare_grad *g, pare_node *node, const pare_shape *shape)
{
    pare_grad_int_list(g, node, "shape", shape->dim, shape->rank);
}

/* --- constants --- */

static pare_value *constant(pare_grad *g, pare_dtype dtype, const pare_shape *shape,
                            const void *data)
{
    pare_value *v = NULL;
    const char *name = g->status == PARE_OK ? next_name(g) : NULL;
    if (name) note(g, pare_init_new(g->graph, &v, name, dtype, shape->rank, shape->dim, data));
    return g->status == PARE_OK ? v : NULL;
}

pare_value *pare_grad_number(pare_grad *g, pare_dtype dtype, double number)
{
    double room = number; /* of an f64; shorter types are at its beginning */
    if (dtype != PARE_f64) pare_type(dtype)->from_f32_ref(&room, (float)number);
    return constant(g, dtype, &(pare_shape){.rank = 0}, &room);
}

pare_value *pare_grad_ints(pare_grad *g, const int64_t *ints, int count)
{
    return constant(g, PARE_s64, &(pare_shape){.rank = 1, .dim = {count}}, ints);
}

pare_value *pare_grad_zeros(pare_grad *g, const pare_value *v)
{
    size_t bytes;
    if (g->status != PARE_OK) return NULL;
    if (!pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes)) bytes = 0;
    void *zeros = pare_arena_alloc(&g->graph->model->arena, bytes + 1, 1);
    if (!zeros) note(g, PARE_MEMORY);
    return zeros ? constant(g, v->dtype, &v->shape, zeros) : NULL;
}

/* --- what rules often need --- */

pare_value *pare_grad_scaled(pare_grad *g, pare_value *v, double factor)
{
    if (g->status != PARE_OK || factor == 1) return v;
    return PARE_EMIT(g, "Mul", v, pare_grad_number(g, v->dtype, factor));
}

pare_value *pare_grad_reshaped(pare_grad *g, pare_value *v, const pare_shape *shape)
{
    if (g->status != PARE_OK || pare_shape_equal(&v->shape, shape)) return v;
    pare_value *to = pare_grad_ints(g, shape->dim, shape->rank);
    pare_node *node = pare_grad_begin(g, "Reshape", (pare_value *const[]){v, to}, 2, 1);
    pare_grad_int(g, node, "allowzero", 1);
    return pare_grad_end(g, node);
}

pare_value *pare_grad_permuted(pare_grad *g, pare_value *v, const int *order)
{
    int64_t perm[PARE_MAX_RANK];
    pare_node *node = pare_grad_begin(g, "Transpose", &v, 1, 1);
    for (int i = 0; node && i < v->shape.rank; i++) perm[i] = order[i];
    pare_grad_int_list(g, node, "perm", perm, node ? v->shape.rank : 0);
    return pare_grad_end(g, node);
}

pare_value *pare_grad_summed(pare_grad *g, pare_value *v, const bool axis[PARE_MAX_RANK])
{
    int64_t axes[PARE_MAX_RANK];
    int count = 0;
    if (g->status != PARE_OK) return NULL;
    for (int i = 0; i < v->shape.rank; i++)
        if (axis[i]) axes[count++] = i;
    if (!count) return v;
    return PARE_EMIT(g, "ReduceSum", v, pare_grad_ints(g, axes, count));
}

pare_value *pare_grad_expanded(pare_grad *g, pare_value *v, const pare_shape *shape)
{
    if (g->status != PARE_OK || pare_shape_equal(&v->shape, shape)) return v;
    return PARE_EMIT(g, "Expand", v, pare_grad_ints(g, shape->dim, shape->rank));
}

pare_status pare_infer_shaped_grad(pare_node *node)
{
    pare_value *dy;
    int rank;
    const int64_t *dims = pare_node_ints(node, "shape", &rank);
    pare_shape shape = {.rank = rank};
    PARE_TRY(pare_infer_need(node, 0, &dy));
    if (!dims || rank > PARE_MAX_RANK)
        return PARE_FAIL_NODE(node, INPUT, "attribute shape is missing or too long");
    for (int i = 0; i < rank; i++) shape.dim[i] = dims[i];
    pare_infer_out(node, 0, (pare_dtype)pare_node_int(node, "output_dtype", dy->dtype), &shape);
    return PARE_OK;
}
