/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply-adds of a node, from its shapes. Padding counts as if it were multiplied. */
#include "runtime/ops/attention.h"
#include "runtime/ops/depthwise_pointwise.h"
#include "runtime/ops/einsum.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/recurrent.h"
#include "runtime/ops/window.h"

static int64_t dim_of(const pare_value *v, int i)
{
    if (!v || v->shape.rank < 1) return -1;
    int d = i < 0 ? i + v->shape.rank : i;
    return d >= 0 && d < v->shape.rank ? v->shape.dim[d] : -1;
}

/* each for every element of `over`; -1 where one of them is unknown. */
static double times(const pare_value *over, int64_t each)
{
    int64_t count = over ? pare_shape_count(&over->shape) : -1;
    return count < 0 || each < 0 ? -1 : (double)count * (double)each;
}

/* Elements of w for one index of its first axis: W is (M, C / group, kernel...) and every output
   element meets that many; of ConvTranspose it is (C, M / group, kernel...) and every input element
   does. */
static int64_t filter_size(const pare_value *w)
{
    int64_t all = w ? pare_shape_count(&w->shape) : -1, first = dim_of(w, 0);
    return all >= 0 && first > 0 ? all / first : -1;
}

/* Of what the convolution makes ahead of the pool. */
static double conv_pool_macs(const pare_node *node)
{
    pare_window conv;
    const pare_value *x = pare_node_in(node, 0), *w = pare_node_in(node, 1);
    if (!x || !w || x->shape.rank != 4 || w->shape.rank != 4 ||
        pare_window_read(node, &x->shape, w->shape.dim + 2, &conv) != PARE_OK)
        return -1;
    pare_value made = *node->out[0];
    made.shape.dim[2] = conv.out[1], made.shape.dim[3] = conv.out[2];
    return times(&made, filter_size(w));
}

/* Channels of the pointwise convolution for each element of Y, and 9 taps, or so many as there are,
   for each of these at each position. */
static double depthwise_pointwise_macs(const pare_node *node)
{
    const pare_value *w = pare_node_in(node, 1), *d = pare_node_in(node, PARE_DEPTHWISE_WEIGHTS);
    if (!w || !d || w->shape.rank != 4 || d->shape.rank != 4) return -1;
    pare_value made = *node->out[0];
    if (made.shape.rank != 4) return -1;
    made.shape.dim[1] = d->shape.dim[0];
    const double pointwise = times(node->out[0], filter_size(w)),
                 own = times(&made, filter_size(d));
    return pointwise < 0 || own < 0 ? -1 : pointwise + own;
}

/* softmax(Q K^T) V: (B..., L, D) x (B..., S, D) gives B L S, each of D; with (B..., S, E) B L E,
   each of S. */
static double attention_macs(const pare_node *node)
{
    const pare_value *past = pare_node_in(node, 4); /* of Attention: a cache before K */
    if (!pare_node_in(node, 0) || !pare_node_in(node, 1)) return -1;
    pare_value q = *node->in[0], k = *node->in[1];
    q.shape = pare_attention_shape(node, PARE_ATTENTION_Q, &q.shape);
    k.shape = pare_attention_shape(node, PARE_ATTENTION_K, &k.shape);
    const int64_t keys = past ? dim_of(&k, -2) + dim_of(past, -2) : dim_of(&k, -2);
    double scores = times(&q, keys), sums = times(node->out[0], keys);
    return scores < 0 || sums < 0 ? -1 : scores + sums;
}

/* Einsum: a product for every index of all labels; of one input there is nothing to multiply. */
static double einsum_macs(const pare_node *node)
{
    pare_einsum e;
    bool known;
    double macs = 1;
    if (node->in_count < 2) return 0;
    if (pare_einsum_of(node, &e, &known) != PARE_OK || !known) return -1;
    for (int i = 0; i < e.labels; i++) {
        if (e.dim[i] < 0) return -1;
        macs *= (double)e.dim[i];
    }
    return macs * (e.inputs - 1);
}

/* RNN, GRU, LSTM: each gate's row meets X and the state at each step. */
static double recurrent_macs(const pare_node *node)
{
    pare_recurrent r;
    if (pare_recurrent_read(node, &r) != PARE_OK || r.length < 0 || r.batch < 0 || r.size < 0 ||
        r.hidden < 0)
        return -1;
    return (double)r.length * (double)r.batch * r.directions * r.gates * (double)r.hidden *
           (double)(r.size + r.hidden);
}

double pare_node_macs(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    if (!op) return 0;
    const pare_value *a = pare_node_in(node, 0), *y = node->out_count ? node->out[0] : NULL;
    switch (op - pare_ops) {
    case PARE_OP_Conv:
    case PARE_OP_ConvInteger:
    case PARE_OP_FusedConv: return times(y, filter_size(pare_node_in(node, 1)));
    case PARE_OP_FusedConvPool: return conv_pool_macs(node);
    case PARE_OP_FusedDepthwisePointwise: return depthwise_pointwise_macs(node);
    case PARE_OP_QLinearConv: return times(y, filter_size(pare_node_in(node, 3)));
    case PARE_OP_ConvTranspose: return times(a, filter_size(pare_node_in(node, 1)));
    case PARE_OP_Gemm:
    case PARE_OP_FusedMatMul:
        return times(y, dim_of(a, pare_node_int(node, "transA", 0) ? -2 : -1));
    case PARE_OP_MatMul:
    case PARE_OP_MatMulInteger:
    case PARE_OP_QLinearMatMul: return times(y, dim_of(a, -1));
    case PARE_OP_Attention:
    case PARE_OP_FusedAttention:
    case PARE_OP_QAttention: return attention_macs(node);
    case PARE_OP_Einsum: return einsum_macs(node);
    case PARE_OP_RNN:
    case PARE_OP_GRU:
    case PARE_OP_LSTM: return recurrent_macs(node);
    default: return 0;
    }
}
