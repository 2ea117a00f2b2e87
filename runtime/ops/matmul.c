/* SPDX-License-Identifier: Apache-2.0 */
/* Shape, upgrade and quantization rules of matrix products. */
#include "runtime/ops/infer.h"

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
