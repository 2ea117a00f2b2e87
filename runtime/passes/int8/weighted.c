/* SPDX-License-Identifier: Apache-2.0 */
/* Conv, Gemm, MatMul and their fused forms between int8 tensors, or tensors of one FP8 type, become
   FusedConv and FusedMatMul of their codes. Without a Q after it the result is f32. */
#include "runtime/base/f8.h"
#include "runtime/passes/int8/fold_qdq.h"

#include <string.h>

/* A weighted node taken apart. */
typedef struct parts {
    pare_node *node;
    bool is_conv;
    pare_value *x, *w, *bias, *residual; /* float values; bias, residual NULL where absent */
    float alpha, beta;
    pare_qparam xp, wp; /* wp: of a second activation */
    pare_value *xq, *wq;
    pare_qweight weight;
    bool constant;
    int64_t channels; /* of the output; -1 where it is not known and not needed */
} parts;

static bool is_ours(const pare_node *node, const char *type)
{
    return !strcmp(node->domain, PARE_DOMAIN) && !strcmp(node->op_type, type);
}

static bool is_conv(const pare_node *node)
{
    return pare_node_is(node, "Conv") || is_ours(node, "FusedConv");
}

bool pare_qdq_is_product(const pare_node *node)
{
    return is_conv(node) || pare_node_is(node, "Gemm") || pare_node_is(node, "MatMul") ||
           is_ours(node, "FusedMatMul");
}

static bool take_apart(pare_node *node, parts *p)
{
    bool gemm = pare_node_is(node, "Gemm"), fused = is_ours(node, "FusedMatMul");
    if (!pare_qdq_is_product(node)) return false;
    *p = (parts){.node = node, .alpha = 1, .beta = 1, .is_conv = is_conv(node)};
    p->x = pare_node_in(node, 0);
    p->w = pare_node_in(node, 1);
    p->bias = pare_node_in(node, 2);
    if (is_ours(node, "FusedConv") || fused) p->residual = pare_node_in(node, 3);
    if (gemm) {
        p->alpha = pare_node_float(node, "alpha", 1);
        p->beta = pare_node_float(node, "beta", 1);
    } else if (fused) {
        const char *act = pare_node_string(node, "activation", "none");
        bool taken =
            !strcmp(act, "clip") || !strcmp(act, "leaky_relu") || !strcmp(act, "hardsigmoid");
        p->alpha = pare_node_float(node, "gain", taken ? 1 : pare_node_float(node, "alpha", 1));
    }
    return p->x && p->w && p->x->dtype == PARE_f32;
}

/* --- operands --- */

static int channel_axis(const parts *p, int rank)
{
    if (p->is_conv) return 0;
    return pare_node_int(p->node, "transB", 0) ? rank - 2 : rank - 1;
}

/* May codes of these types be factors of one product? */
static bool types_meet(const pare_qparam *x, pare_dtype w)
{
    return pare_qparam_is_int8(x) ? pare_type_is_int8(w) : w == x->dtype;
}

/* Weight constant, one scale or one per output channel; or a second 8-bit activation. */
static bool read_weight(parts *p)
{
    p->constant = pare_qdq_weight(p->w, &p->weight);
    if (p->constant) {
        const pare_tensor *q = p->weight.q->data;
        if (q->rank < 2 || q->dtype == PARE_u8 || !types_meet(&p->xp, q->dtype)) return false;
        if (pare_type_is_f8(q->dtype) && !p->weight.centred) return false;
        /* no kernel for GPUs has windows of three axes */
        if (pare_type_is_f8(q->dtype) && p->is_conv && q->rank > 4) return false;
        int axis = channel_axis(p, q->rank);
        p->channels = q->dims[axis];
        p->wq = p->weight.q;
        if (p->weight.count > 1 && p->weight.axis != axis) return false;
        return true;
    }
    p->wq = pare_qdq_after(p->w, &p->wp);
    p->channels = -1;
    return p->wq && types_meet(&p->xp, p->wp.dtype) && p->w->shape.rank >= 2 && !p->is_conv;
}

static bool read_operands(parts *p)
{
    p->xq = pare_qdq_after(p->x, &p->xp);
    return p->xq && p->x->shape.rank >= 2 && read_weight(p);
}

static pare_status scale_value(parts *p, pare_value **out)
{
    pare_graph *graph = p->node->graph;
    int64_t count = p->constant ? p->weight.count : 1;
    float *scale = pare_alloc(graph->model->ctx, (size_t)count, sizeof *scale);
    if (!scale) return PARE_MEMORY;
    for (int64_t i = 0; i < count; i++)
        scale[i] = p->alpha * (p->constant ? p->weight.scale[i] : p->wp.scale);
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_w_scale", p->node->out[0]->name);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    pare_status st =
        name ? pare_init_new(graph, out, name, PARE_f32, 1, &count, scale) : PARE_MEMORY;
    pare_free(scale);
    return st;
}

/* Element c of a bias that is f32, or s32 after a DequantizeLinear, constant. */
typedef struct bias_look {
    const float *f;
    const int32_t *q;
    const float *scale;
    int64_t count, scale_count;
} bias_look;

static bool look_bias(const parts *p, bias_look *out)
{
    const pare_value *b = p->bias;
    *out = (bias_look){0};
    if (b->data && b->data->dtype == PARE_f32) {
        *out = (bias_look){.f = b->data->data, .count = b->data->count};
    } else {
        const pare_node *dq = b->producer;
        if (!dq || !pare_node_is(dq, "DequantizeLinear")) return false;
        const pare_value *q = dq->in[0], *s = pare_node_in(dq, 1);
        if (!q || !q->data || q->data->dtype != PARE_s32 || !s || !s->data) return false;
        *out = (bias_look){.q = q->data->data,
                           .scale = s->data->data,
                           .count = q->data->count,
                           .scale_count = s->data->count};
        if (s->data->dtype != PARE_f32) return false;
        if (out->scale_count != 1 && out->scale_count != out->count) return false;
    }
    /* one for all, or one per channel along the last axis */
    return out->count == 1 || out->count == p->channels || (p->channels < 0 && b->shape.rank == 1);
}

static float bias_scale(const parts *p, const float *w_scale, int64_t w_count, int64_t c)
{
    return p->xp.scale * w_scale[w_count == 1 ? 0 : c];
}

/* Is the bias s32 with the very scale of the sums? */
static bool counts_sums(const parts *p, const bias_look *b, const float *w_scale, int64_t w_count)
{
    int64_t count = w_count > b->count ? w_count : b->count;
    if (!b->q || p->beta != 1) return false;
    for (int64_t c = 0; c < count; c++)
        if (b->scale[b->scale_count == 1 ? 0 : c] != bias_scale(p, w_scale, w_count, c))
            return false;
    return true;
}

static float real_bias(const bias_look *b, int64_t c)
{
    if (b->count == 1) c = 0;
    return b->f ? b->f[c] : (float)b->q[c] * b->scale[b->scale_count == 1 ? 0 : c];
}

/* The bias in steps of the sum: s32 where the file has it so, else b / (s_x * s_w) in f32. Rounding
   a float bias to whole steps would be a change of what the file says: small, but after it are
   quantizers that turn it into steps of theirs. */
static pare_status bias_value(const parts *p, const bias_look *b, const float *w_scale,
                              int64_t w_count, pare_value **out)
{
    pare_graph *graph = p->node->graph;
    bool whole = counts_sums(p, b, w_scale, w_count);
    int64_t count = w_count > b->count ? w_count : b->count;
    if (p->channels > 0) count = p->channels;
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_bias", p->node->out[0]->name);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    int32_t *q = pare_arena_alloc(&graph->model->arena, (size_t)count, sizeof *q);
    float *f = pare_arena_alloc(&graph->model->arena, (size_t)count, sizeof *f);
    if (!name || !q || !f) return PARE_MEMORY;
    for (int64_t c = 0; c < count; c++)
        if (whole)
            q[c] = b->q[b->count == 1 ? 0 : c];
        else
            f[c] = (float)((double)real_bias(b, c) * (double)p->beta /
                           (double)bias_scale(p, w_scale, w_count, c));
    const void *data = whole ? (const void *)q : f;
    return pare_init_new(graph, out, name, whole ? PARE_s32 : PARE_f32, 1, &count, data);
}

/* --- the node of codes --- */

static pare_status set_param(pare_node *node, const char *scale, const char *zero,
                             const pare_qparam *p)
{
    PARE_TRY(pare_node_set_float(node, scale, p->scale));
    return pare_node_set_int(node, zero, p->zero);
}

/* Attributes of the window with auto_pad resolved, as FusedConv has them. */
static pare_status copy_attributes(const parts *p, pare_node *to)
{
    static const char *const gone[] = {"alpha", "beta", "gain"};
    const char *act = pare_node_string(p->node, "activation", "none");
    bool keep = strcmp(act, "none") != 0;
    for (int i = 0; i < p->node->attr_count; i++) {
        const char *name = p->node->attr[i].name;
        bool drop = !strcmp(name, gone[2]);
        if (!keep) drop = drop || !strcmp(name, gone[0]) || !strcmp(name, gone[1]);
        if (!drop) PARE_TRY(pare_node_set_attr(to, &p->node->attr[i]));
    }
    return PARE_OK;
}

static pare_status write_params(const parts *p, pare_node *to, const pare_qparam *yp)
{
    PARE_TRY(set_param(to, "x_scale", "x_zero_point", &p->xp));
    if (yp) PARE_TRY(set_param(to, "y_scale", "y_zero_point", yp));
    int32_t w_zero = p->constant ? 0 : p->wp.zero;
    if (w_zero) PARE_TRY(pare_node_set_int(to, "w_zero_point", w_zero));
    return pare_node_set_int(to, "to", yp ? yp->dtype : PARE_f32);
}

static pare_status rewrite(parts *p, const bias_look *bias)
{
    pare_graph *graph = p->node->graph;
    pare_qparam yp, zp;
    pare_node *q = pare_qdq_only_q(p->node->out[0], &yp), *made;
    pare_value *in[5] = {p->xq, p->wq, NULL, p->residual, NULL}, *zq = NULL;
    PARE_TRY(scale_value(p, &in[4]));
    const pare_tensor *ws = in[4]->data;
    if (p->bias) PARE_TRY(bias_value(p, bias, ws->data, ws->count, &in[2]));
    if (p->residual && (zq = pare_qdq_after(p->residual, &zp)) && !types_meet(&p->xp, zp.dtype))
        zq = NULL;
    if (q && !types_meet(&p->xp, yp.dtype)) q = NULL;
    if (zq) in[3] = zq;
    pare_value *y = q ? q->out[0] : p->node->out[0];
    int at = pare_node_index(p->node);
    if (q) pare_node_remove(q);
    p->node->out[0]->producer = NULL;
    PARE_TRY(pare_node_new(graph, &made, at, p->is_conv ? "FusedConv" : "FusedMatMul", PARE_DOMAIN,
                           p->node->name, in, 5, &y, 1));
    PARE_TRY(copy_attributes(p, made));
    PARE_TRY(write_params(p, made, q ? &yp : NULL));
    if (zq) PARE_TRY(set_param(made, "z_scale", "z_zero_point", &zp));
    p->node->out_count = 0; /* its output belongs to the new node */
    pare_node_remove(p->node);
    return PARE_OK;
}

/* Weights with zero points are made wider: [x, x] . [a, b]. */
static pare_status centre(parts *p, bool *done)
{
    *done = true;
    if (!p->constant || p->weight.centred) return PARE_OK;
    int w_rank = p->weight.q->data->rank, x_rank = p->x->shape.rank;
    if (p->weight.count == 1) p->weight.axis = channel_axis(p, w_rank);
    bool a = pare_node_int(p->node, "transA", 0), b = pare_node_int(p->node, "transB", 0);
    int depth = p->is_conv ? 1 : b ? w_rank - 1 : w_rank - 2;
    int x_axis = p->is_conv ? 1 : a ? x_rank - 2 : x_rank - 1;
    int64_t groups = p->is_conv ? pare_node_int(p->node, "group", 1) : 1;
    return pare_qdq_widen(p->node, &p->weight, depth, x_axis, groups, &p->xq, &p->wq, done);
}

/* A positive constant factor or divisor after a product with f32 result (the scale of attention's
   scores) goes into the scales. */
static pare_status take_factor(parts *p)
{
    pare_value *y = p->node->out[0];
    pare_node *mul = pare_value_only_user(y);
    const char *act = pare_node_string(p->node, "activation", "none");
    if (!mul || mul->graph != p->node->graph || p->bias || p->residual || strcmp(act, "none"))
        return PARE_OK;
    const bool divides = pare_node_is(mul, "Div") && mul->in[0] == y;
    if (!divides && !pare_node_is(mul, "Mul")) return PARE_OK;
    const pare_value *factor = mul->in[mul->in[0] == y];
    if (!factor || !factor->data || factor->data->dtype != PARE_f32 || factor->data->count != 1 ||
        factor->data->rank > y->shape.rank)
        return PARE_OK;
    const float c = *(const float *)factor->data->data;
    if (!(c > 0) || c > 1e30f || c < 1e-30f) return PARE_OK;
    p->alpha = divides ? p->alpha / c : p->alpha * c;
    pare_value *scaled = mul->out[0];
    pare_node_remove(mul);
    pare_node_set_out(p->node, 0, scaled);
    return PARE_OK;
}

/* Input i of a DequantizeLinear, constant levels of 4 bits, as s8. */
static pare_status as_bytes(pare_node *dq, int i)
{
    pare_graph *graph = dq->graph;
    const pare_value *v = pare_node_in(dq, i);
    if (!v) return PARE_OK;
    const pare_tensor *t = v->data;
    char *wanted = pare_arena_printf(&graph->model->arena, "%s_s8", v->name);
    const char *name = wanted ? pare_graph_fresh_name(graph, wanted) : NULL;
    int8_t *bytes = pare_alloc(graph->model->ctx, (size_t)t->count + 1, 1);
    pare_value *made;
    pare_status st = name && bytes ? PARE_OK : PARE_MEMORY;
    for (int64_t k = 0; st == PARE_OK && k < t->count; k++)
        bytes[k] = (int8_t)pare_packed_get(t->dtype, t->data, k);
    if (st == PARE_OK) st = pare_init_new(graph, &made, name, PARE_s8, t->rank, t->dims, bytes);
    pare_free(bytes);
    return st == PARE_OK ? pare_node_set_in(dq, i, made) : st;
}

/* Integer products take weights of 8 bits: those of 4 become such where the input is int8. */
static pare_status widen_levels(const parts *p)
{
    pare_qparam x;
    pare_node *dq = p->w->producer;
    if (!dq || !pare_node_is(dq, "DequantizeLinear") || !pare_qdq_after(p->x, &x) ||
        !pare_qparam_is_int8(&x))
        return PARE_OK;
    const pare_value *q = pare_node_in(dq, 0), *zero = pare_node_in(dq, 2);
    if (!q || !q->data || (q->data->dtype != PARE_s4 && q->data->dtype != PARE_u4) ||
        pare_node_int(dq, "block_size", 0) || (zero && !zero->data))
        return PARE_OK;
    PARE_TRY(as_bytes(dq, 0));
    return as_bytes(dq, 2);
}

static pare_status fold_one(pare_node *node)
{
    parts p;
    bias_look bias = {0};
    if (!take_apart(node, &p)) return PARE_OK;
    PARE_TRY(widen_levels(&p));
    if (!read_operands(&p)) return PARE_OK;
    if (p.bias && !look_bias(&p, &bias)) return PARE_OK;
    if (!(p.alpha > 0)) return PARE_OK;
    bool done;
    PARE_TRY(centre(&p, &done));
    if (!done) return PARE_OK;
    PARE_TRY(take_factor(&p));
    return rewrite(&p, &bias);
}

pare_status pare_qdq_fold_weighted(pare_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) PARE_TRY(fold_one(graph->node[n]));
    return PARE_OK;
}
