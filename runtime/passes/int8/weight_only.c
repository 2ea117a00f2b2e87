/* SPDX-License-Identifier: Apache-2.0 */
/* Weights alone quantized: a matrix product of f32 with a constant after a DequantizeLinear (ONNX
   21: one scale, one a column, or one a block of rows; s8, u8, s4, u4; 24: E4M3 and MXFP4, whose
   scales are powers of two) keeps the constant. It becomes f32 inside the product, which reads an
   eighth or a quarter of the bytes. */
#include "runtime/base/minifloat.h"
#include "runtime/ops/fused.h"
#include "runtime/passes/int8/fold_qdq.h"

#include <string.h>

/* A product of an input, weights and perhaps a bias. */
typedef struct found {
    pare_value *x, *w, *bias, *residual, *q, *scale, *zero;
    int64_t block; /* rows that share a scale */
} found;

enum { LEAST = 1 << 14 }; /* weights below which nothing is won */

/* Where scales lie: one, one a column, or one a block of rows. */
static bool read_scales(const pare_node *dq, bool turned, found *f)
{
    const pare_tensor *q = f->q->data, *scale = f->scale->data;
    const int64_t depth = q->dims[turned], columns = q->dims[!turned];
    int64_t axis = pare_node_int(dq, "axis", 1);
    f->block = pare_node_int(dq, "block_size", 0);
    if (axis < 0) axis += q->rank;
    if (f->zero && f->zero->data->count != scale->count) return false;
    if (f->block)
        return axis == turned && scale->rank == 2 && scale->dims[!turned] == columns &&
               scale->dims[turned] == depth / f->block + (depth % f->block != 0);
    f->block = depth;
    return scale->count == 1 || (scale->rank == 1 && scale->count == columns && axis == !turned);
}

/* E4M3's NaN is the one code that no power of two makes right: such constants become f32. */
static bool has_nan(const pare_tensor *q)
{
    const uint8_t *code = q->data;
    for (int64_t i = 0; q->dtype == PARE_f8e4m3 && i < q->count; i++)
        if ((code[i] & 0x7f) == 0x7f) return true;
    return false;
}

static bool is_zero(const pare_tensor *t)
{
    const uint8_t *byte = t->data;
    for (size_t i = 0; i < t->bytes; i++)
        if (byte[i]) return false;
    return true;
}

/* Zero points of floats are 0 and say nothing. */
static bool type_fits(found *f, pare_kept_weights kept)
{
    const pare_tensor *q = f->q->data;
    const pare_dtype scale = f->scale->data->dtype;
    if (pare_type_is_weight_level(q->dtype)) return scale == PARE_f32;
    if (kept != PARE_KEEP_ALL || !pare_type_is_weight_float(q->dtype) || has_nan(q)) return false;
    if (f->zero && !is_zero(f->zero->data)) return false;
    f->zero = NULL;
    return scale == PARE_f32 || scale == PARE_f8e8m0;
}

static bool read_weight(const pare_node *node, bool turned, pare_kept_weights kept, found *f)
{
    const pare_node *dq = f->w->producer;
    if (!dq || dq->graph != node->graph || !pare_node_is(dq, "DequantizeLinear")) return false;
    f->q = pare_node_in(dq, 0);
    f->scale = pare_node_in(dq, 1);
    f->zero = pare_node_in(dq, 2);
    if (!f->q || !f->q->data || !f->scale || !f->scale->data || (f->zero && !f->zero->data))
        return false;
    const pare_tensor *q = f->q->data;
    return q->rank == 2 && q->count >= LEAST && f->w->dtype == PARE_f32 &&
           (!f->zero || f->zero->data->dtype == q->dtype) && read_scales(dq, turned, f) &&
           type_fits(f, kept);
}

/* One number, or one a column. */
static bool bias_fits(const found *f, bool turned)
{
    if (!f->bias) return true;
    const pare_shape *s = &f->bias->shape;
    const int64_t count = pare_shape_count(s), columns = f->q->data->dims[!turned];
    return f->bias->dtype == PARE_f32 && pare_shape_known(s) &&
           (count == 1 || (count == columns && s->dim[s->rank - 1] == columns));
}

static bool find(const pare_node *node, pare_kept_weights kept, found *f)
{
    const bool fused = !strcmp(node->domain, PARE_DOMAIN) && !strcmp(node->op_type, "FusedMatMul");
    if (!fused && !pare_node_is(node, "MatMul") && !pare_node_is(node, "Gemm")) return false;
    if (pare_node_int(node, "transA", 0)) return false;
    const bool turned = pare_node_int(node, "transB", 0) != 0;
    *f = (found){.x = pare_node_in(node, 0),
                 .w = pare_node_in(node, 1),
                 .bias = pare_node_in(node, 2),
                 .residual = fused ? pare_node_in(node, 3) : NULL};
    return f->x && f->w && f->x->dtype == PARE_f32 && f->x->shape.rank >= 2 &&
           node->out[0]->dtype == PARE_f32 && read_weight(node, turned, kept, f) &&
           bias_fits(f, turned);
}

/* Powers of two as f32. */
static pare_status scale_widen(pare_graph *graph, found *f)
{
    const pare_tensor *t = f->scale->data;
    const uint8_t *code = t->data;
    if (t->dtype == PARE_f32) return PARE_OK;
    pare_ctx *ctx = graph->model->ctx;
    float *wide = pare_alloc(ctx, (size_t)t->count + 1, sizeof *wide);
    if (!wide) return PARE_MEMORY;
    for (int64_t i = 0; i < t->count; i++) wide[i] = pare_minifloat_to_f32(t->dtype, code[i]);
    const char *name = pare_graph_fresh_name(graph, f->scale->name);
    const pare_status st =
        name ? pare_init_new(graph, &f->scale, name, PARE_f32, t->rank, t->dims, wide)
             : PARE_MEMORY;
    pare_free(wide);
    return st;
}

static pare_status rewrite(pare_node *node, found *f)
{
    PARE_TRY(scale_widen(node->graph, f));
    pare_value *in[] = {f->x, f->q, f->bias, f->residual, f->scale, f->zero}, *y = node->out[0];
    const int at = pare_node_index(node);
    pare_node *made;
    y->producer = NULL;
    PARE_TRY(pare_node_new(node->graph, &made, at, "FusedMatMul", PARE_DOMAIN, node->name, in, 6,
                           &y, 1));
    for (int i = 0; i < node->attr_count; i++) PARE_TRY(pare_node_set_attr(made, &node->attr[i]));
    PARE_TRY(pare_node_set_int(made, "block_size", f->block));
    node->out_count = 0; /* its output belongs to the new node */
    pare_node_remove(node);
    return PARE_OK;
}

pare_status pare_qdq_weight_only(pare_graph *graph, pare_kept_weights kept)
{
    found f;
    for (int n = 0; n < graph->node_count && kept != PARE_KEEP_NONE; n++)
        if (find(graph->node[n], kept, &f)) PARE_TRY(rewrite(graph->node[n], &f));
    return PARE_OK;
}
