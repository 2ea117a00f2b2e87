/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules of matrix products: for Y = A B, dA = dY B^T and dB = A^T dY. Transposes are the
   product's own; leading axes that were broadcast are summed, by one product over all rows where
   the other side is a matrix. */
#include "runtime/ops/grad.h"

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
