/* SPDX-License-Identifier: Apache-2.0 */
/* Memory order. One walk in graph order decides for each rank-4 tensor: a node of an NHWC row reads
   and writes N, H, W, C; one of an ANYORDER row follows its inputs; all others are row-major. Where
   maker and reader differ a Reorder is between, one for all readers of a kind, but where a
   QuantizeLinear can write the other order. Tensors for which both orders are the same bytes (C =
   1, or H = W = 1) are never reordered. A Transpose from or to channels-last that only renames what
   is in memory becomes a View. Shapes must be known. */
#include "runtime/base/f8.h"
#include "runtime/ops/fused.h"
#include "runtime/passes/optimize/fuse.h"
#include "runtime/passes/passes.h"

#include <string.h>

/* Both orders the same? (Also for ranks other than 4, which have one order.) */
static bool one_order(const pare_value *v)
{
    const int64_t *d = v->shape.dim;
    return v->shape.rank != 4 || !pare_shape_known(&v->shape) || d[1] == 1 ||
           (d[2] == 1 && d[3] == 1);
}

static bool in_order(const pare_value *v, bool nhwc)
{
    return one_order(v) || (v->nhwc && !v->data) == nhwc;
}

/* A tensor that something outside this walk reads: a graph output, or a subgraph's node. */
static bool is_seen(const pare_value *v)
{
    for (int i = 0; i < v->user_count; i++)
        if (v->user[i]->graph != v->graph) return true;
    return v->is_output;
}

/* QuantizeLinear to 8 bits by one scale reads one order and writes the other in one pass over
   memory: what it makes for this reader alone needs no Reorder. */
static bool turns(const pare_value *v)
{
    const pare_node *n = v->producer;
    return n && pare_node_is(n, "QuantizeLinear") && v->user_count == 1 && !is_seen(v) &&
           (pare_type_is_int8(v->dtype) || pare_type_is_f8(v->dtype)) &&
           pare_shape_count(&n->in[1]->shape) == 1;
}

/* The tensor in the wanted order: itself, an earlier Reorder of it, or a new one before `before`.
 */
static pare_status reordered(pare_node *before, pare_value *v, bool nhwc, pare_value **out)
{
    *out = v;
    if (v->data || in_order(v, nhwc)) return PARE_OK;
    if (nhwc && turns(v)) {
        v->nhwc = true;
        return PARE_OK;
    }
    for (int i = 0; i < v->user_count; i++) {
        const pare_node *n = v->user[i];
        if (n->graph != before->graph || strcmp(n->op_type, "Reorder") ||
            strcmp(n->domain, PARE_DOMAIN))
            continue;
        if (n->out[0]->nhwc == nhwc && n->in[0] == v &&
            pare_node_index(n) < pare_node_index(before)) {
            *out = n->out[0];
            return PARE_OK;
        }
    }
    pare_node *made;
    PARE_TRY(pare_fuse_insert(before, "Reorder", PARE_DOMAIN, &v, 1, &v->shape, &made));
    *out = made->out[0];
    (*out)->nhwc = nhwc;
    return PARE_OK;
}

static pare_status read_in(pare_node *node, int i, bool nhwc)
{
    pare_value *v = pare_node_in(node, i), *fit;
    if (!v) return PARE_OK;
    PARE_TRY(reordered(node, v, nhwc, &fit));
    return fit == v ? PARE_OK : pare_node_set_in(node, i, fit);
}

/* Output 0 in N, H, W, C order; what is seen from outside gets its row-major form under its name.
 */
static pare_status write_nhwc(pare_node *node)
{
    pare_value *y = node->out[0], *inner;
    if (one_order(y)) return PARE_OK;
    if (!is_seen(y)) {
        y->nhwc = true;
        return PARE_OK;
    }
    const char *name = pare_graph_fresh_name(node->graph, y->name);
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(node->graph, &inner, name));
    inner->dtype = y->dtype;
    inner->shape = y->shape;
    inner->nhwc = true;
    pare_node_set_out(node, 0, inner);
    return pare_node_new(node->graph, NULL, pare_node_index(node) + 1, "Reorder", PARE_DOMAIN, name,
                         &inner, 1, &y, 1);
}

/* --- Transposes that only rename --- */

static bool perm_is(const pare_node *node, const int64_t *wanted, int rank)
{
    int count;
    const int64_t *perm = pare_node_ints(node, "perm", &count);
    return perm && count == rank && !memcmp(perm, wanted, (size_t)rank * sizeof *perm);
}

static pare_status make_view(pare_node *node, pare_value *x)
{
    pare_node *view;
    const pare_shape shape = node->out[0]->shape;
    PARE_TRY(pare_fuse_replace(node, "View", PARE_DOMAIN, &x, 1, &view));
    return pare_node_set_ints(view, "shape", shape.dim, shape.rank);
}

/* The N, H, W, C tensor [N, C, H, W] that node's input is [N, C, H * W] of, or NULL. */
static pare_value *flattened_image(const pare_node *node)
{
    const pare_value *v = node->in[0];
    const pare_node *reshape = v->producer;
    if (v->data || v->shape.rank != 3 || !reshape || !pare_node_is(reshape, "Reshape")) return NULL;
    pare_value *x = reshape->in[0];
    bool same = x->shape.rank == 4 && x->shape.dim[0] == v->shape.dim[0] &&
                x->shape.dim[1] == v->shape.dim[1];
    /* the reshape reads the image, or a row-major copy of it made by this pass */
    if (same && x->producer && !strcmp(x->producer->op_type, "Reorder")) x = x->producer->in[0];
    return same && x->nhwc && !x->data ? x : NULL;
}

static pare_status transpose(pare_node *node, bool *done)
{
    static const int64_t to_last[] = {0, 2, 3, 1}, from_last[] = {0, 3, 1, 2}, swap[] = {0, 2, 1};
    pare_value *x = node->in[0], *y = node->out[0];
    *done = true;
    if (x->shape.rank == 4 && x->nhwc && !x->data && perm_is(node, to_last, 4))
        return make_view(node, x);
    if (x->shape.rank == 4 && !x->nhwc && !x->data && perm_is(node, from_last, 4) && !is_seen(y)) {
        y->nhwc = !one_order(y);
        return make_view(node, x);
    }
    pare_value *image = perm_is(node, swap, 3) ? flattened_image(node) : NULL;
    if (image) return make_view(node, image);
    *done = false;
    return PARE_OK;
}

/* --- the walk --- */

static bool is_ours(const pare_node *node, const char *op_type)
{
    return !strcmp(node->op_type, op_type) && !strcmp(node->domain, PARE_DOMAIN);
}

/* Inputs that are images beside the first: a residual; what a pool or convolution read. */
static bool reads_image(const pare_node *node, int i)
{
    if (i == 3) return is_ours(node, "FusedConv") || is_ours(node, "FusedDepthwisePointwise");
    return i == 1 && (is_ours(node, "ConvGradWeight") || is_ours(node, "MaxPoolGrad"));
}

static pare_status place_nhwc(pare_node *node)
{
    const pare_value *x = pare_node_in(node, 0);
    bool nhwc = x && x->shape.rank == 4;
    PARE_TRY(read_in(node, 0, nhwc));
    for (int i = 1; i < node->in_count; i++)
        PARE_TRY(read_in(node, i, nhwc && reads_image(node, i)));
    return nhwc && !is_ours(node, "ConvGradWeight") ? write_nhwc(node) : PARE_OK;
}

/* Follows: N, H, W, C where an input is, all inputs of rank 4 alike. */
static pare_status place_any(pare_node *node)
{
    bool nhwc = false, done = false, outputs = true;
    if (pare_node_is(node, "Transpose")) {
        PARE_TRY(transpose(node, &done));
        return PARE_OK; /* it reads any order and writes row-major */
    }
    for (int i = 0; i < node->in_count; i++)
        nhwc = nhwc || (node->in[i] && node->in[i]->nhwc && !node->in[i]->data);
    const int images = is_ours(node, "FakeQuantizeGrad") ? 1 : node->out_count; /* dX, dScale */
    for (int i = 0; i < images; i++)
        outputs = outputs && (!node->out[i] || node->out[i]->shape.rank == 4);
    if (!nhwc || !outputs || (node->out_count > 1 && node->out[0] && is_seen(node->out[0])))
        return PARE_OK;
    for (int i = 0; i < node->in_count; i++) PARE_TRY(read_in(node, i, true));
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] && !one_order(node->out[i]) && !is_seen(node->out[i]))
            node->out[i]->nhwc = true;
    return write_nhwc(node);
}

static pare_status place_rowmajor(pare_node *node)
{
    for (int i = 0; i < node->in_count; i++) PARE_TRY(read_in(node, i, false));
    return PARE_OK;
}

static pare_status place(pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    if (!node->out_count || !node->out[0]) return PARE_OK;
    if (is_ours(node, "View") || is_ours(node, "Reorder")) return PARE_OK; /* of an earlier walk */
    if (op && op->layout == PARE_NHWC) return place_nhwc(node);
    if (op && op->layout == PARE_ANYORDER) return place_any(node);
    return place_rowmajor(node);
}

/* Only the main graph: subgraphs run rarely and read row-major tensors. */
pare_status pare_pass_layout(pare_model *model)
{
    pare_graph *g = model->graph;
    pare_ctx *ctx = model->ctx;
    int count = g->node_count;
    pare_node **list = pare_alloc(ctx, (size_t)count, sizeof *list);
    if (!list) return PARE_MEMORY;
    if (count) memcpy(list, g->node, (size_t)count * sizeof *list);
    pare_status st = PARE_OK;
    for (int i = 0; i < count && st == PARE_OK; i++) st = place(list[i]);
    pare_free(list);
    if (st == PARE_OK) pare_graph_sweep(g);
    return st;
}
