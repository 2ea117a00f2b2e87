/* SPDX-License-Identifier: Apache-2.0 */
/* LayerNormalization (ONNX 17) spelled out: d = x - mean(x); y = d / sqrt(mean(d * d) + epsilon),
   then * scale and + bias; means over the trailing axes. */
#include "runtime/ops/infer.h"
#include "runtime/passes/optimize/fuse.h"

#include <string.h>

/* First of the trailing axes that a ReduceMean with keepdims averages; -1 where it is another one.
 */
static int mean_axis(const pare_node *mean)
{
    const int64_t *axes;
    int count, rank = mean->in[0]->shape.rank;
    bool known, seen[PARE_MAX_RANK];
    if (rank < 1 || !pare_node_int(mean, "keepdims", 1)) return -1;
    if (pare_infer_ints_or_attr(mean, 1, "axes", &axes, &count, &known) != PARE_OK || !axes)
        return -1;
    if (pare_infer_axes(mean, axes, count, rank, seen) != PARE_OK || count < 1) return -1;
    for (int i = rank - count; i < rank; i++)
        if (!seen[i]) return -1;
    return rank - count;
}

/* d = x - ReduceMean(x)? */
static bool centred(const pare_node *sub, int *axis)
{
    const pare_node *mean = pare_fuse_maker(sub, 1, "ReduceMean");
    if (!mean || mean->in[0] != sub->in[0]) return false;
    *axis = mean_axis(mean);
    return *axis >= 0;
}

/* d * d, as Pow(d, 2) or Mul(d, d); d or NULL. */
static pare_value *squared(const pare_node *node)
{
    if (pare_node_is(node, "Pow") && pare_fuse_is(node->in[1], 2)) return node->in[0];
    return pare_node_is(node, "Mul") && node->in[0] == node->in[1] ? node->in[0] : NULL;
}

typedef struct norm {
    pare_value *x, *scale, *bias;
    pare_node *last; /* what makes the normalized tensor */
    double epsilon;
    int axis;
} norm;

/* sqrt(mean(d * d) + epsilon) of the d that sub makes (or an equal one). */
static bool deviation(const pare_node *sqrt, const pare_node *sub, norm *n)
{
    const pare_node *add = pare_fuse_maker(sqrt, 0, "Add");
    int at = add && add->in[0]->data ? 1 : 0, axis = -1;
    if (!add || !pare_fuse_scalar(add->in[1 - at], &n->epsilon)) return false;
    const pare_node *mean = pare_fuse_maker(add, at, "ReduceMean");
    if (!mean || mean_axis(mean) != n->axis || !mean->in[0]->producer) return false;
    const pare_value *d = squared(mean->in[0]->producer);
    if (!d || !d->producer) return false;
    if (d->producer == sub) return true;
    return pare_node_is(d->producer, "Sub") && d->producer->in[0] == n->x &&
           centred(d->producer, &axis) && axis == n->axis;
}

static bool is_affine(const pare_value *v, const norm *n)
{
    int rank = n->x->shape.rank - n->axis;
    if (!v || !v->data || v->shape.rank != rank || v->dtype != n->x->dtype) return false;
    return !memcmp(v->shape.dim, n->x->shape.dim + n->axis, (size_t)rank * sizeof *v->shape.dim);
}

static bool match(const pare_fuse *f, pare_node *div, norm *n)
{
    pare_node *sub = pare_fuse_maker(div, 0, "Sub"), *sqrt = pare_fuse_maker(div, 1, "Sqrt");
    if (!sub || !sqrt || !centred(sub, &n->axis)) return false;
    n->x = sub->in[0];
    n->last = div;
    n->scale = n->bias = NULL;
    if (!deviation(sqrt, sub, n)) return false;
    pare_node *mul = pare_fuse_next(f, div->out[0], "Mul");
    if (!mul || !is_affine(pare_fuse_other(mul, div->out[0]), n)) return true;
    n->scale = pare_fuse_other(mul, div->out[0]);
    n->last = mul;
    pare_node *add = pare_fuse_next(f, mul->out[0], "Add");
    if (!add || !is_affine(pare_fuse_other(add, mul->out[0]), n)) return true;
    n->bias = pare_fuse_other(add, mul->out[0]);
    n->last = add;
    return true;
}

/* Every tensor between x and last may vanish once nothing else reads it; a kept one simply stays,
   made by its own nodes. */
pare_status pare_fuse_norm(pare_fuse *f, pare_node *node, bool *changed)
{
    norm n;
    if (!pare_node_is(node, "Div") || node->in_count != 2 || !match(f, node, &n)) return PARE_OK;
    int rank = n.x->shape.rank - n.axis;
    int64_t count = pare_shape_product(&n.x->shape, n.axis, n.x->shape.rank);
    if (n.x->dtype != PARE_f32 || count < 1) return PARE_OK;
    if (!n.scale) {
        float *ones = pare_arena_alloc(&f->graph->model->arena, (size_t)count, sizeof *ones);
        const char *name = pare_upgrade_name(node, "ones");
        if (!ones || !name) return PARE_MEMORY;
        for (int64_t i = 0; i < count; i++) ones[i] = 1;
        PARE_TRY(
            pare_init_new(f->graph, &n.scale, name, PARE_f32, rank, n.x->shape.dim + n.axis, ones));
    }
    pare_value *in[] = {n.x, n.scale, n.bias};
    pare_node *fresh;
    PARE_TRY(pare_fuse_replace(n.last, "LayerNormalization", "", in, n.bias ? 3 : 2, &fresh));
    PARE_TRY(pare_node_set_int(fresh, "axis", n.axis));
    PARE_TRY(pare_node_set_float(fresh, "epsilon", (float)n.epsilon));
    *changed = true;
    return PARE_OK;
}
