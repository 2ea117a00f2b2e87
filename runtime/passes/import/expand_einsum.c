/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum (12) of one or two float inputs into operators with fast kernels, which quantize:
     one input                   ReduceSum, Transpose
     no label summed over both   Transpose, Unsqueeze, Mul
     a matrix product            (batch, M, K) x (batch, K, N) by Transpose, Reshape and MatMul
   Labels of one input that the output lacks are summed first. What has repeated letters, stretched
   axes, more inputs, or too many unknown sizes stays as it is. */
#include "runtime/ops/einsum.h"
#include "runtime/ops/infer.h"
#include "runtime/passes/passes.h"

#include <string.h>

/* A tensor and the labels of its axes. */
typedef struct operand {
    pare_value *v;
    pare_einsum_term t;
} operand;

typedef struct expansion {
    pare_node *node;
    pare_einsum e;
    pare_node *last; /* the newest node, which makes the newest operand */
} expansion;

/* Labels that belong together: of both inputs and the output, of both, of one and the output. */
typedef struct groups {
    pare_einsum_term batch, k, m, n;
} groups;

static void add(pare_einsum_term *t, int label) { t->label[t->rank++] = label; }

static bool has(const pare_einsum_term *t, int label) { return pare_einsum_find(t, label) >= 0; }

/* --- making nodes --- */

/* A node before the Einsum that reads a and b (or NULL), and the type and shape of what it makes.
 */
static pare_status emit(expansion *x, const char *op_type, pare_value *a, pare_value *b,
                        const char *attr, const int64_t *ints, int count, pare_value **out)
{
    pare_value *in[] = {a, b}, *made;
    const char *name = pare_upgrade_name(x->node, op_type);
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(x->node->graph, &made, name));
    PARE_TRY(pare_node_new(x->node->graph, &x->last, pare_node_index(x->node), op_type, "", name,
                           in, b ? 2 : 1, &made, 1));
    if (attr && ints) PARE_TRY(pare_node_set_ints(x->last, attr, ints, count));
    if (attr && !ints) PARE_TRY(pare_node_set_int(x->last, attr, 0));
    *out = made;
    return pare_op_of(x->last)->infer(x->last);
}

/* The same with a list of integers as second input. */
static pare_status emit_ints(expansion *x, const char *op_type, operand *o, const char *attr,
                             const int64_t *ints, int count)
{
    const char *name = pare_upgrade_name(x->node, "einsum");
    const int64_t dims = count;
    pare_value *list;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(x->node->graph, &list, name, PARE_s64, 1, &dims, ints));
    return emit(x, op_type, o->v, list, attr, NULL, 0, &o->v);
}

/* Sums over the labels that neither the other input nor the output has. */
static pare_status reduce(expansion *x, operand *o, const pare_einsum_term *other)
{
    int64_t axes[PARE_MAX_RANK];
    pare_einsum_term left = {0};
    int count = 0;
    for (int i = 0; i < o->t.rank; i++) {
        const int label = o->t.label[i];
        if (has(&x->e.out, label) || (other && has(other, label)))
            add(&left, label);
        else
            axes[count++] = i;
    }
    o->t = left;
    return count ? emit_ints(x, "ReduceSum", o, "keepdims", axes, count) : PARE_OK;
}

/* Axes in the order of `to`, which has the same labels. */
static pare_status transpose(expansion *x, operand *o, const pare_einsum_term *to)
{
    int64_t perm[PARE_MAX_RANK];
    bool moved = false;
    for (int i = 0; i < to->rank; i++) {
        perm[i] = pare_einsum_find(&o->t, to->label[i]);
        moved = moved || perm[i] != i;
    }
    o->t = *to;
    return moved ? emit(x, "Transpose", o->v, NULL, "perm", perm, to->rank, &o->v) : PARE_OK;
}

/* The newest node makes the Einsum's output. */
static pare_status finish(expansion *x, pare_value *made)
{
    pare_value *y = x->node->out[0];
    if (!x->last) PARE_TRY(emit(x, "Identity", made, NULL, NULL, NULL, 0, &made));
    pare_node_remove(x->node);
    pare_node_set_out(x->last, 0, y);
    return PARE_OK;
}

/* --- products without a sum --- */

/* The labels that an input has, in the output's order, with axes of length 1 for the others
   between them. */
static pare_status spread(expansion *x, operand *o)
{
    pare_einsum_term order = {0};
    int64_t axes[PARE_MAX_RANK];
    int count = 0;
    for (int i = 0; i < x->e.out.rank; i++) {
        if (has(&o->t, x->e.out.label[i])) {
            add(&order, x->e.out.label[i]);
        } else if (order.rank) {
            axes[count] = order.rank + count;
            count++;
        }
    }
    PARE_TRY(transpose(x, o, &order));
    return count ? emit_ints(x, "Unsqueeze", o, NULL, axes, count) : PARE_OK;
}

static pare_status multiply(expansion *x, operand *a, operand *b)
{
    pare_value *y;
    PARE_TRY(spread(x, a));
    PARE_TRY(spread(x, b));
    PARE_TRY(emit(x, "Mul", a->v, b->v, NULL, NULL, 0, &y));
    return finish(x, y);
}

/* --- matrix products --- */

static groups group(const expansion *x, const operand *a, const operand *b)
{
    groups g = {0};
    for (int i = 0; i < x->e.out.rank; i++) {
        const int label = x->e.out.label[i];
        const bool in_a = has(&a->t, label), in_b = has(&b->t, label);
        add(in_a && in_b ? &g.batch : in_a ? &g.m : &g.n, label);
    }
    for (int i = 0; i < a->t.rank; i++)
        if (!has(&x->e.out, a->t.label[i])) add(&g.k, a->t.label[i]);
    return g;
}

/* The length of some labels as one axis; -1: not known. */
static int64_t merged(const expansion *x, const pare_einsum_term *t)
{
    int64_t product = 1;
    for (int i = 0; i < t->rank; i++) {
        const int64_t d = x->e.dim[t->label[i]];
        if (d < 0 || __builtin_mul_overflow(product, d, &product)) return -1;
    }
    return product;
}

/* A Reshape's list of lengths: batch axes are copied (0), and one length may be unknown (-1). */
typedef struct lengths {
    int64_t dim[2 * PARE_MAX_RANK];
    int count;
} lengths;

static void append_copied(lengths *l, int count)
{
    while (count--) l->dim[l->count++] = 0;
}

static void append_each(const expansion *x, lengths *l, const pare_einsum_term *t)
{
    for (int i = 0; i < t->rank; i++) l->dim[l->count++] = x->e.dim[t->label[i]];
}

static bool is_clear(const lengths *l)
{
    int unknown = 0;
    for (int i = 0; i < l->count; i++) unknown += l->dim[i] < 0;
    return unknown <= 1 && l->count <= PARE_MAX_RANK;
}

/* The shapes of both matrices and of their product. Without batch axes those of M stay apart. */
typedef struct shapes {
    lengths a, b, y;
    bool apart;
} shapes;

static shapes shapes_of(const expansion *x, const groups *g)
{
    shapes s = {.apart = !g->batch.rank && g->m.rank > 0};
    const int64_t k = merged(x, &g->k);
    append_copied(&s.a, s.apart ? g->m.rank : g->batch.rank);
    if (!s.apart) s.a.dim[s.a.count++] = merged(x, &g->m);
    s.a.dim[s.a.count++] = k;
    append_copied(&s.b, g->batch.rank);
    s.b.dim[s.b.count++] = k;
    s.b.dim[s.b.count++] = merged(x, &g->n);
    append_copied(&s.y, s.apart ? g->m.rank : g->batch.rank);
    if (!s.apart) append_each(x, &s.y, &g->m);
    append_each(x, &s.y, &g->n);
    return s;
}

static void join(pare_einsum_term *to, const pare_einsum_term *from)
{
    for (int i = 0; i < from->rank; i++) add(to, from->label[i]);
}

static pare_status product(expansion *x, operand *a, operand *b, const groups *g)
{
    const shapes s = shapes_of(x, g);
    pare_einsum_term left = g->batch, right = g->batch, both = g->batch;
    join(&left, &g->m), join(&left, &g->k);
    join(&right, &g->k), join(&right, &g->n);
    join(&both, &g->m), join(&both, &g->n);
    PARE_TRY(transpose(x, a, &left));
    PARE_TRY(transpose(x, b, &right));
    if (s.a.count != left.rank || (!s.apart && g->m.rank != 1))
        PARE_TRY(emit_ints(x, "Reshape", a, NULL, s.a.dim, s.a.count));
    if (s.b.count != right.rank || g->n.rank != 1)
        PARE_TRY(emit_ints(x, "Reshape", b, NULL, s.b.dim, s.b.count));
    operand y = {.t = both};
    PARE_TRY(emit(x, "MatMul", a->v, b->v, NULL, NULL, 0, &y.v));
    if (g->n.rank != 1 || (!s.apart && g->m.rank != 1))
        PARE_TRY(emit_ints(x, "Reshape", &y, NULL, s.y.dim, s.y.count));
    PARE_TRY(transpose(x, &y, &x->e.out));
    return finish(x, y.v);
}

/* --- which ones --- */

/* No letter twice in a term, no axis of length 1 or unknown against a longer one, none empty. */
static bool is_plain(const expansion *x)
{
    const pare_einsum *e = &x->e;
    for (int i = 0; i < e->inputs; i++) {
        const pare_value *v = x->node->in[i];
        if (!pare_type_is_float(v->dtype) || v->shape.rank != e->in[i].rank) return false;
        for (int k = 0; k < e->in[i].rank; k++) {
            const int label = e->in[i].label[k];
            const int64_t d = v->shape.dim[k], whole = e->dim[label];
            if (pare_einsum_find(&e->in[i], label) != k || d == 0) return false;
            if (d != whole && (d == 1 || whole == 1)) return false;
        }
    }
    return true;
}

static pare_status expand(pare_node *node, bool *changed)
{
    expansion x = {.node = node};
    bool known;
    PARE_TRY(pare_einsum_of(node, &x.e, &known));
    if (!known || x.e.inputs > 2 || !is_plain(&x)) return PARE_OK;
    operand a = {node->in[0], x.e.in[0]}, b = {NULL, {0}};
    if (x.e.inputs == 1) {
        *changed = true;
        PARE_TRY(reduce(&x, &a, NULL));
        PARE_TRY(transpose(&x, &a, &x.e.out));
        return finish(&x, a.v);
    }
    b = (operand){node->in[1], x.e.in[1]};
    bool summed = false;
    operand rest = {NULL, {0}}; /* a without the labels that reduce takes */
    for (int i = 0; i < a.t.rank; i++) {
        const bool in_b = has(&b.t, a.t.label[i]), kept = has(&x.e.out, a.t.label[i]);
        if (in_b || kept) add(&rest.t, a.t.label[i]);
        summed = summed || (in_b && !kept);
    }
    const groups g = group(&x, &rest, &b);
    const shapes s = shapes_of(&x, &g);
    if (summed && !(is_clear(&s.a) && is_clear(&s.b) && is_clear(&s.y))) return PARE_OK;
    *changed = true;
    PARE_TRY(reduce(&x, &a, &x.e.in[1]));
    PARE_TRY(reduce(&x, &b, &x.e.in[0]));
    return summed ? product(&x, &a, &b, &g) : multiply(&x, &a, &b);
}

static pare_status expand_graph(pare_graph *graph, void *user)
{
    for (int n = 0; n < graph->node_count; n++)
        if (pare_node_is(graph->node[n], "Einsum")) PARE_TRY(expand(graph->node[n], user));
    return PARE_OK;
}

pare_status pare_pass_expand_einsum(pare_model *model, bool *changed)
{
    *changed = false;
    return pare_graph_each(model->graph, expand_graph, changed);
}
