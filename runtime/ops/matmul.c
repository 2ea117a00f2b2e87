/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm and their integer forms: shapes, weights, gradients, prune rules.
   For Y = A B, dA = dY B^T and dB = A^T dY. Transposes are the product's own; leading axes that
   were broadcast are summed, by one product over all rows where the other side is a matrix. */
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/prune_bind.h"

static bool clash(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

static pare_status inner_clash(const pare_node *node, const pare_value *a, const pare_value *b)
{
    char ta[128], tb[128];
    return PARE_FAIL_NODE(node, INPUT, "'%s' %s and '%s' %s do not fit: inner sizes differ",
                          a->name, pare_shape_text(&a->shape, ta, sizeof ta), b->name,
                          pare_shape_text(&b->shape, tb, sizeof tb));
}

/* Numpy's matmul: a vector on the left is a row, on the right a column, whose axis then goes. */
static pare_status matmul_shape(pare_node *node, int ia, int ib, pare_shape *out)
{
    pare_value *a, *b;
    PARE_TRY(pare_infer_need(node, ia, &a));
    PARE_TRY(pare_infer_need(node, ib, &b));
    *out = pare_shape_unknown(-1);
    if (a->shape.rank < 0 || b->shape.rank < 0) return PARE_OK;
    if (a->shape.rank == 0 || b->shape.rank == 0)
        return PARE_FAIL_NODE(node, INPUT, "a scalar has no matrix product, use Mul");
    pare_shape left = a->shape, right = b->shape;
    bool row = left.rank == 1, column = right.rank == 1;
    int64_t ka = left.dim[left.rank - 1], kb = right.dim[column ? 0 : right.rank - 2];
    if (clash(ka, kb)) return inner_clash(node, a, b);
    int64_t m = row ? 1 : left.dim[left.rank - 2], n = column ? 1 : right.dim[right.rank - 1];
    const char *mn = row ? NULL : left.name[left.rank - 2];
    const char *nn = column ? NULL : right.name[right.rank - 1];
    left.rank = row ? 0 : left.rank - 2;
    right.rank = column ? 0 : right.rank - 2;
    PARE_TRY(pare_infer_broadcast(node, &left, &right));
    *out = left;
    if (!row) {
        out->name[out->rank] = mn;
        out->dim[out->rank++] = m;
    }
    if (!column) {
        out->name[out->rank] = nn;
        out->dim[out->rank++] = n;
    }
    return PARE_OK;
}

pare_status pare_infer_matmul(pare_node *node)
{
    pare_shape out;
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    PARE_TRY(matmul_shape(node, 0, 1, &out));
    pare_dtype dtype = pare_infer_dtype(node, 0);
    pare_infer_out(node, 0, dtype ? dtype : pare_infer_dtype(node, 1), &out);
    return PARE_OK;
}

pare_status pare_infer_matmul_integer(pare_node *node)
{
    pare_shape out;
    PARE_TRY(matmul_shape(node, 0, 1, &out));
    pare_infer_out(node, 0, PARE_s32, &out);
    return PARE_OK;
}

/* QLinearMatMul: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point. */
pare_status pare_infer_qlinear_matmul(pare_node *node)
{
    pare_shape out;
    PARE_TRY(matmul_shape(node, 0, 3, &out));
    pare_infer_out(node, 0, pare_infer_dtype(node, 7), &out);
    return PARE_OK;
}

/* Gemm (1, 6): C is stretched where `broadcast` says so; (7): wherever its shape asks for it. */
pare_status pare_upgrade_gemm(pare_node *node, int64_t version)
{
    if (version >= 7) return PARE_OK;
    pare_node_remove_attr(node, "broadcast");
    return pare_upgrade_opset(node, 7);
}

/* Gemm (13): Y = alpha A' B' + beta C, A' [M, K], B' [K, N], C broadcasts to [M, N]. */
pare_status pare_infer_gemm(pare_node *node)
{
    pare_value *a, *b, *c = pare_node_in(node, 2);
    PARE_TRY(pare_infer_need(node, 0, &a));
    PARE_TRY(pare_infer_need(node, 1, &b));
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    PARE_TRY(pare_infer_same_type(node, 0, 2));
    if ((a->shape.rank >= 0 && a->shape.rank != 2) || (b->shape.rank >= 0 && b->shape.rank != 2))
        return PARE_FAIL_NODE(node, INPUT, "A and B must be matrices");
    int ta = pare_node_int(node, "transA", 0) != 0, tb = pare_node_int(node, "transB", 0) != 0;
    pare_shape out = pare_shape_unknown(2);
    int64_t ka = -1, kb = -1;
    if (a->shape.rank == 2) {
        out.dim[0] = a->shape.dim[ta];
        out.name[0] = a->shape.name[ta];
        ka = a->shape.dim[!ta];
    }
    if (b->shape.rank == 2) {
        out.dim[1] = b->shape.dim[!tb];
        out.name[1] = b->shape.name[!tb];
        kb = b->shape.dim[tb];
    }
    if (clash(ka, kb)) return inner_clash(node, a, b);
    if (c && c->shape.rank >= 0) {
        pare_shape both = out;
        PARE_TRY(pare_infer_broadcast(node, &both, &c->shape));
        if (both.rank != 2 || clash(both.dim[0], out.dim[0]) || clash(both.dim[1], out.dim[1]))
            return PARE_FAIL_NODE(node, INPUT, "C '%s' does not broadcast to the product's shape",
                                  c->name);
    }
    pare_infer_out(node, 0, a->dtype ? a->dtype : b->dtype, &out);
    return PARE_OK;
}

/* --- quantization --- */

/* The weight sits on either side; two constants: the right one. Without a constant the right side
   counts as the second activation. */
pare_status pare_weighted_matmul(const pare_node *node, pare_weighted *out)
{
    pare_value *a, *b;
    PARE_TRY(pare_infer_need(node, 0, &a));
    PARE_TRY(pare_infer_need(node, 1, &b));
    bool left = a->data && !b->data;
    const pare_value *w = left ? a : b;
    *out = (pare_weighted){.x = left, .w = !left, .bias = -1, .takes = -1, .alpha = 1, .beta = 1};
    out->constant = w->data != NULL;
    /* output channels: the columns of a weight on the right, the rows of one on the left */
    int rank = w->shape.rank;
    out->axis = rank < 2 ? 0 : left ? rank - 2 : rank - 1;
    return PARE_OK;
}

pare_status pare_weighted_gemm(const pare_node *node, pare_weighted *out)
{
    pare_value *b;
    PARE_TRY(pare_infer_need(node, 1, &b));
    *out = (pare_weighted){.x = 0, .w = 1, .bias = pare_node_in(node, 2) ? 2 : -1};
    out->takes = 2;
    out->axis = pare_node_int(node, "transB", 0) ? 0 : 1;
    out->alpha = pare_node_float(node, "alpha", 1);
    out->beta = pare_node_float(node, "beta", 1);
    out->constant = b->data != NULL;
    return PARE_OK;
}

static pare_shape matrix(int64_t rows, int64_t columns)
{
    return (pare_shape){.rank = 2, .dim = {rows, columns}};
}

/* alpha a' b' of two matrices */
static pare_value *gemm(pare_grad *g, pare_value *a, bool trans_a, pare_value *b, bool trans_b,
                        float alpha)
{
    pare_node *node = pare_grad_begin(g, "Gemm", (pare_value *[]){a, b}, 2, 1);
    pare_grad_int(g, node, "transA", trans_a);
    pare_grad_int(g, node, "transB", trans_b);
    pare_grad_float(g, node, "alpha", alpha);
    return pare_grad_end(g, node);
}

static pare_value *batched(pare_grad *g, pare_value *a, bool trans_a, pare_value *b, bool trans_b)
{
    pare_node *node = pare_grad_begin(g, "FusedMatMul", (pare_value *[]){a, b}, 2, 1);
    pare_grad_int(g, node, "transA", trans_a);
    pare_grad_int(g, node, "transB", trans_b);
    return pare_grad_end(g, node);
}

/* v (..., rows, columns) as a matrix of all its rows */
static pare_value *all_rows(pare_grad *g, pare_value *v)
{
    if (g->status != PARE_OK) return NULL;
    int64_t columns = v->shape.dim[v->shape.rank - 1];
    const pare_shape shape = matrix(pare_shape_product(&v->shape, 0, v->shape.rank - 1), columns);
    return pare_grad_reshaped(g, v, &shape);
}

/* B is a matrix: rows of all of A against it. */
static void matmul_rows(pare_grad *g, const pare_node *node, pare_value *a, pare_value *b,
                        pare_value *dy)
{
    pare_value *rows = all_rows(g, dy);
    if (pare_grad_wants(g, node->in[0])) {
        pare_value *da = gemm(g, rows, false, b, true, 1);
        pare_grad_give(g, node->in[0], pare_grad_reshaped(g, da, &node->in[0]->shape));
    }
    if (pare_grad_wants(g, node->in[1])) {
        pare_value *db = gemm(g, all_rows(g, a), true, rows, false, 1);
        pare_grad_give(g, node->in[1], pare_grad_reshaped(g, db, &node->in[1]->shape));
    }
}

/* A vector on the left is a row, on the right a column (numpy's matmul). */
static pare_shape full_shape(const pare_value *v, bool left)
{
    pare_shape s = v->shape;
    if (s.rank == 1) s = left ? matrix(1, s.dim[0]) : matrix(s.dim[0], 1);
    return s;
}

pare_status pare_grad_matmul(pare_grad *g, const pare_node *node)
{
    const pare_shape sa = full_shape(node->in[0], true), sb = full_shape(node->in[1], false);
    pare_value *a = pare_grad_reshaped(g, node->in[0], &sa);
    pare_value *b = pare_grad_reshaped(g, node->in[1], &sb);
    pare_shape sy =
        sa.rank > sb.rank ? sa : sb; /* leading axes from dY, which lacks vectors' axes */
    const pare_shape *have = &node->out[0]->shape;
    for (int i = 0; i < sy.rank - 2; i++) sy.dim[i] = have->dim[i];
    sy.dim[sy.rank - 2] = sa.dim[sa.rank - 2];
    sy.dim[sy.rank - 1] = sb.dim[sb.rank - 1];
    pare_value *dy = pare_grad_reshaped(g, pare_grad_of(g, node->out[0]), &sy);
    if (sb.rank == 2) {
        matmul_rows(g, node, a, b, dy);
        return g->status;
    }
    if (pare_grad_wants(g, node->in[0])) {
        pare_value *da = batched(g, dy, false, b, true);
        if (node->in[0]->shape.rank > 1)
            pare_grad_give_sum(g, node->in[0], da);
        else { /* (batch..., 1, K) to (K) */
            pare_value *rows = all_rows(g, da);
            pare_grad_give_sum(g, node->in[0], rows);
        }
    }
    if (pare_grad_wants(g, node->in[1]))
        pare_grad_give_sum(g, node->in[1], batched(g, a, true, dy, false));
    return g->status;
}

/* Gemm (13): Y = alpha A' B' + beta C */
pare_status pare_grad_gemm(pare_grad *g, const pare_node *node)
{
    bool ta = pare_node_int(node, "transA", 0) != 0, tb = pare_node_int(node, "transB", 0) != 0;
    float alpha = pare_node_float(node, "alpha", 1);
    pare_value *dy = pare_grad_of(g, node->out[0]), *a = node->in[0], *b = node->in[1];
    if (pare_grad_wants(g, a))
        pare_grad_give(g, a,
                       ta ? gemm(g, b, tb, dy, true, alpha) : gemm(g, dy, false, b, !tb, alpha));
    if (pare_grad_wants(g, b))
        pare_grad_give(g, b,
                       tb ? gemm(g, dy, true, a, ta, alpha) : gemm(g, a, !ta, dy, false, alpha));
    if (pare_grad_wants(g, pare_node_in(node, 2))) {
        double beta = (double)pare_node_float(node, "beta", 1);
        pare_grad_give_sum(g, node->in[2], pare_grad_scaled(g, dy, beta));
    }
    return g->status;
}

/* Gemm (7 .. 13): Y [M, N] = alpha * A' * B' + beta * C. */
pare_status pare_prune_bind_gemm(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *a = node->in[0], *b = node->in[1], *c = pare_node_in(node, 2);
    const pare_value *y = node->out[0];
    int summed_a = !pare_node_int(node, "transA", 0), summed_b = !!pare_node_int(node, "transB", 0);
    pare_axis_span axis[] = {pare_axis_all(y, 0), pare_axis_all(y, 1), pare_axis_all(a, summed_a)};
    PARE_TRY(binder->work(binder->user, node, 1, axis, 3));
    PARE_TRY(pare_bind_axes(binder, node, a, !summed_a, y, 0));
    PARE_TRY(pare_bind_axes(binder, node, b, !summed_b, y, 1));
    if (c) PARE_TRY(pare_bind_broadcast(binder, node, c, y));
    return pare_bind_summed(binder, node, a, summed_a, b, summed_b);
}

/* MatMul (1 .. 13), numpy's rules: leading axes broadcast, vectors have no row or column axis. */
pare_status pare_prune_bind_matmul(const pare_node *node, const pare_prune_binder *binder)
{
    const pare_value *a = node->in[0], *b = node->in[1], *y = node->out[0];
    int ra = a->shape.rank, rb = b->shape.rank, n = y->shape.rank;
    int columns = rb > 1, rows = ra > 1, leading = n - rows - columns;
    int summed_a = ra - 1, summed_b = rb > 1 ? rb - 2 : 0;
    int leading_a = ra > 2 ? ra - 2 : 0, leading_b = rb > 2 ? rb - 2 : 0;
    pare_axis_span axis[PARE_MAX_RANK + 1];
    for (int i = 0; i < n; i++) axis[i] = pare_axis_all(y, i);
    axis[n] = pare_axis_all(a, summed_a);
    PARE_TRY(binder->work(binder->user, node, 1, axis, n + 1));
    PARE_TRY(pare_bind_range(binder, node, a, 0, leading_a, y, leading - leading_a));
    PARE_TRY(pare_bind_range(binder, node, b, 0, leading_b, y, leading - leading_b));
    if (rows) PARE_TRY(pare_bind_axes(binder, node, a, ra - 2, y, leading));
    if (columns) PARE_TRY(pare_bind_axes(binder, node, b, rb - 1, y, n - 1));
    return pare_bind_summed(binder, node, a, summed_a, b, summed_b);
}
