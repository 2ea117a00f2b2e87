/* SPDX-License-Identifier: Apache-2.0 */
/* Integer products around a QSoftmax become pare.QAttention, where a GPU's kernel takes it: Q K^T
   as f32, a mask added to it or not, QSoftmax, the product with V. All bytes stay the same. */
#include "runtime/ops/attention.h"
#include "runtime/passes/optimize/fuse_attention.h"
#include "runtime/passes/passes.h"

#include <math.h>
#include <string.h>

static bool is_ours(const pare_node *node, const char *op_type)
{
    return node && !strcmp(node->domain, PARE_DOMAIN) && !strcmp(node->op_type, op_type);
}

/* A product of two int8 tensors as they are, with one scale and nothing behind it. *scale: that of
   its second factor. */
static bool is_product(const pare_node *node, float *scale)
{
    if (!is_ours(node, "FusedMatMul") || pare_node_in(node, 2) || pare_node_in(node, 3) ||
        strcmp(pare_node_string(node, "activation", "none"), "none") ||
        pare_node_int(node, "transA", 0) || pare_node_int(node, "transB", 0))
        return false;
    for (int i = 0; i < 2; i++)
        if (!node->in[i] || !pare_type_is_int8(node->in[i]->dtype)) return false;
    const pare_value *w = pare_node_in(node, 4);
    *scale = 1;
    if (!w) return true;
    if (!w->data || w->data->dtype != PARE_f32 || w->data->count != 1) return false;
    *scale = *(const float *)w->data->data;
    return true;
}

/* The product of the scores, through the Add of a mask or not. */
static pare_node *scores_of(const pare_fuse *f, pare_node *softmax, pare_value **mask, float *scale)
{
    pare_value *x = softmax->in[0];
    pare_node *maker = x->producer;
    *mask = NULL;
    if (pare_fuse_only_use(f, x) != softmax || x->dtype != PARE_f32 || !maker) return NULL;
    if (!pare_node_is(maker, "Add")) return is_product(maker, scale) ? maker : NULL;
    for (int i = 0; i < 2; i++) {
        pare_value *sum = maker->in[i], *other = maker->in[1 - i];
        if (!is_product(sum->producer, scale) || pare_fuse_only_use(f, sum) != maker ||
            !pare_shape_equal(&sum->shape, &x->shape) || other->shape.rank > x->shape.rank)
            continue;
        *mask = other;
        return sum->producer;
    }
    return NULL;
}

static bool same_leading(const pare_shape *a, const pare_shape *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)(a->rank - 2) * sizeof *a->dim);
}

/* Elements that 32 bits count, also as one of a packed product's parts: then strides and numbers of
   heads and blocks are below 2^31, too. */
enum { MOST_PARTS = 16 };
static bool is_near(const pare_shape *s)
{
    return pare_shape_known(s) && pare_shape_count(s) <= INT32_MAX / MOST_PARTS;
}

/* Does the kernel take heads of these sizes? Wherever they lie, rows are as far apart as whole
   heads. */
static bool kernel_takes(const pare_attention_found *a, const pare_q_attention *q)
{
    pare_attention_views x = {.mask = NULL};
    pare_shape k = a->k_transposed->shape, y = a->q->shape;
    const int r = y.rank;
    k.dim[r - 1] = a->k_transposed->shape.dim[r - 2];
    k.dim[r - 2] = a->k_transposed->shape.dim[r - 1];
    y.dim[r - 1] = a->v->shape.dim[r - 1];
    if (!is_near(&a->q->shape) || !is_near(&k) || !is_near(&a->v->shape) || !is_near(&y) ||
        (a->mask && !is_near(&a->mask->shape)))
        return false;
    pare_view_set(&x.q, PARE_s8, &a->q->shape, false);
    pare_view_set(&x.k, PARE_s8, &k, false);
    pare_view_set(&x.v, PARE_s8, &a->v->shape, false);
    pare_view_set(&x.y, PARE_s8, &y, false);
    return pare_q_attention_fits(&x, q);
}

static pare_status copy_int(const pare_node *from, const char *name, pare_node *to, const char *as)
{
    return pare_node_attr(from, name) ? pare_node_set_int(to, as, pare_node_int(from, name, 0))
                                      : PARE_OK;
}

/* What the three nodes say. values: the product with V, which the node stands in place of. */
static pare_status write(pare_node *to, const pare_node *scores, const pare_node *values,
                         const pare_q_attention *q, float v_scale)
{
    PARE_TRY(pare_node_set_float(to, "scale", q->scale));
    PARE_TRY(copy_int(scores, "x_zero_point", to, "q_zero_point"));
    PARE_TRY(copy_int(scores, "w_zero_point", to, "k_zero_point"));
    PARE_TRY(copy_int(values, "w_zero_point", to, "v_zero_point"));
    PARE_TRY(pare_node_set_float(to, "p_scale", q->p_scale));
    PARE_TRY(pare_node_set_int(to, "p_steps", (int64_t)q->p_steps));
    PARE_TRY(pare_node_set_float(to, "v_scale", v_scale));
    PARE_TRY(pare_node_set_float(to, "y_scale", pare_node_float(values, "y_scale", 1)));
    PARE_TRY(copy_int(values, "y_zero_point", to, "y_zero_point"));
    PARE_TRY(copy_int(values, "output_dtype", to, "output_dtype"));
    return pare_node_set_int(to, "to", pare_node_int(values, "to", values->in[0]->dtype));
}

static bool is_positive(float v) { return v > 0 && isfinite(v); }

/* Has the product with V read the codes as QSoftmax wrote them, and can QAttention say its scales?
   Any pair of parameters is valid between the two. */
static bool scales_agree(const pare_node *softmax, const pare_node *values,
                         const pare_q_attention *q, float v_scale)
{
    return pare_node_float(values, "x_scale", 1) == q->p_scale &&
           pare_node_int(values, "x_zero_point", 0) == pare_node_int(softmax, "y_zero_point", 0) &&
           is_positive(q->scale) && is_positive(q->p_scale) && is_positive(v_scale);
}

static pare_status attention_join(pare_fuse *f, pare_node *softmax, bool *changed)
{
    float k_scale, v_scale;
    pare_q_attention q = {0};
    pare_attention_found a = {.scale = 1, .head_axes = {1, 1, 1, 1}, .parts = {-1, -1, -1}};
    if (!is_ours(softmax, "QSoftmax") || !softmax->in[0]) return PARE_OK;
    pare_value *p = softmax->out[0];
    pare_node *values = pare_fuse_only_use(f, p), *made,
              *scores = scores_of(f, softmax, &a.mask, &k_scale);
    if (!scores || !values || !is_product(values, &v_scale) || values->in[0] != p) return PARE_OK;
    a.q = scores->in[0], a.k_transposed = scores->in[1], a.v = values->in[1], a.last = values;
    const pare_shape *qs = &a.q->shape, *ks = &a.k_transposed->shape, *vs = &a.v->shape;
    if (qs->rank < 3 || !pare_shape_known(qs) || !pare_shape_known(ks) || !pare_shape_known(vs) ||
        !same_leading(qs, ks) || !same_leading(qs, vs))
        return PARE_OK;
    q.scale = pare_node_float(scores, "x_scale", 1) * k_scale;
    q.p_scale = pare_node_float(softmax, "y_scale", 1);
    q.p_steps =
        (float)((p->dtype == PARE_s8 ? 127 : 255) - pare_node_int(softmax, "y_zero_point", 0));
    if (!scales_agree(softmax, values, &q, v_scale) || !kernel_takes(&a, &q)) return PARE_OK;
    const pare_node was = *values; /* its attributes and inputs outlive it in the arena */
    PARE_TRY(pare_attention_replace(f, &a, "QAttention", &made));
    *changed = true;
    return write(made, scores, &was, &q, v_scale);
}

pare_status pare_pass_fuse_q_attention(pare_model *model, const char *const *keep, int keep_count)
{
    static const pare_fuse_fn rule[] = {attention_join};
    const pare_fuse f = {.keep = keep, .keep_count = keep_count};
    bool changed = false;
    return pare_fuse_run(model->graph, &f, rule, 1, &changed);
}
