/* SPDX-License-Identifier: Apache-2.0 */
/* Attention (23, 24) and RotaryEmbedding (23): shapes. And the operands of pare.FusedAttention. Q
   is (batch, q heads, q length, head size) or (batch, q length, q heads x head size); K and V
   likewise with the kv heads, of which each serves as many q heads. With a cache, past_key and
   past_value come before K and V along their length. */
#include "runtime/ops/attention.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>

/* (batch, heads, length, size) of an input; dims that are not known are -1. */
static pare_status split_heads(const pare_node *node, int i, const char *attr, pare_shape *out)
{
    const pare_shape *x = &node->in[i]->shape;
    const int64_t heads = pare_node_int(node, attr, 0);
    *out = pare_shape_unknown(4);
    if (x->rank < 0) return PARE_OK;
    if (x->rank == 4) {
        *out = *x;
        if (heads > 0 && x->dim[1] >= 0 && x->dim[1] != heads)
            return PARE_FAIL_NODE(node, INPUT, "'%s' has %" PRId64 " heads, %s says %" PRId64,
                                  node->in[i]->name, x->dim[1], attr, heads);
        return PARE_OK;
    }
    if (x->rank != 3)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has rank %d, expected 3 or 4", node->in[i]->name,
                              x->rank);
    if (heads <= 0)
        return PARE_FAIL_NODE(node, INPUT, "%s is missing, which '%s' of rank 3 needs", attr,
                              node->in[i]->name);
    if (x->dim[2] >= 0 && x->dim[2] % heads)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has %" PRId64 " columns for %" PRId64 " heads",
                              node->in[i]->name, x->dim[2], heads);
    out->dim[0] = x->dim[0];
    out->dim[1] = heads;
    out->dim[2] = x->dim[1];
    out->dim[3] = x->dim[2] < 0 ? -1 : x->dim[2] / heads;
    return PARE_OK;
}

/* The past's length added to the present one; 0 where there is no past. */
static pare_status with_past(const pare_node *node, int i, const pare_shape *now, int64_t *length)
{
    const pare_value *past = pare_node_in(node, i);
    *length = now->dim[2];
    if (!past) return PARE_OK;
    const pare_shape *p = &past->shape;
    if (p->rank >= 0 && p->rank != 4)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has rank %d, expected 4", past->name, p->rank);
    for (int d = 0; p->rank == 4 && d < 4; d++)
        if (d != 2 && p->dim[d] >= 0 && now->dim[d] >= 0 && p->dim[d] != now->dim[d])
            return PARE_FAIL_NODE(node, INPUT,
                                  "axis %d of '%s' is %" PRId64 ", expected %" PRId64 " as of '%s'",
                                  d, past->name, p->dim[d], now->dim[d], node->in[i - 3]->name);
    *length = p->rank != 4 || p->dim[2] < 0 || now->dim[2] < 0 ? -1 : now->dim[2] + p->dim[2];
    return PARE_OK;
}

static bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

static pare_status check_agree(const pare_node *node, const pare_shape *q, const pare_shape *k,
                               const pare_shape *v)
{
    if (differ(q->dim[0], k->dim[0]) || differ(k->dim[0], v->dim[0]))
        return PARE_FAIL_NODE(node, INPUT, "Q, K and V have batches of different size");
    if (differ(q->dim[3], k->dim[3]))
        return PARE_FAIL_NODE(node, INPUT, "heads of Q have %" PRId64 " columns, of K %" PRId64,
                              q->dim[3], k->dim[3]);
    if (differ(k->dim[1], v->dim[1]) || differ(k->dim[2], v->dim[2]))
        return PARE_FAIL_NODE(node, INPUT, "K and V differ in heads or length");
    if (k->dim[1] == 0 || (q->dim[1] >= 0 && k->dim[1] > 0 && q->dim[1] % k->dim[1]))
        return PARE_FAIL_NODE(node, INPUT,
                              "%" PRId64 " heads of Q are no multiple of %" PRId64 " heads of K",
                              q->dim[1], k->dim[1]);
    return PARE_OK;
}

/* A mask broadcasts to the scores; its last axis may be shorter from version 24 on. */
static pare_status check_mask(const pare_node *node, const pare_shape *scores)
{
    const pare_value *mask = pare_node_in(node, 3);
    if (!mask || mask->shape.rank < 0) return PARE_OK;
    const int rank = mask->shape.rank;
    bool fits = rank <= 4;
    for (int d = 0; fits && d < rank; d++) {
        const int64_t m = mask->shape.dim[d], s = scores->dim[4 - rank + d];
        fits = m < 0 || s < 0 || m == s || m == 1 || (d == rank - 1 && m < s);
    }
    if (fits) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "attn_mask '%s' does not broadcast to the scores",
                          mask->name);
}

/* nonpad_kv_seqlen: one length for each of the batch. */
static pare_status check_lengths(const pare_node *node, int64_t batch)
{
    const pare_value *v = pare_node_in(node, 6);
    if (!v || v->shape.rank < 0 || (v->shape.rank == 1 && !differ(v->shape.dim[0], batch)))
        return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "'%s' must have one length for each of the batch", v->name);
}

pare_status pare_infer_sdpa(pare_node *node)
{
    pare_value *x;
    pare_shape q, k, v, y;
    int64_t length, v_length;
    for (int i = 0; i < 3; i++) PARE_TRY(pare_infer_need(node, i, &x));
    PARE_TRY(split_heads(node, 0, "q_num_heads", &q));
    PARE_TRY(split_heads(node, 1, "kv_num_heads", &k));
    PARE_TRY(split_heads(node, 2, "kv_num_heads", &v));
    PARE_TRY(check_agree(node, &q, &k, &v));
    PARE_TRY(with_past(node, 4, &k, &length));
    PARE_TRY(with_past(node, 5, &v, &v_length));
    if (!pare_node_in(node, 4) != !pare_node_in(node, 5))
        return PARE_FAIL_NODE(node, INPUT, "past_key and past_value come together or not at all");
    if (differ(length, v_length))
        return PARE_FAIL_NODE(node, INPUT,
                              "with the past, K has a length of %" PRId64 " and V of %" PRId64,
                              length, v_length);
    const pare_dtype type = node->in[0]->dtype;
    y = q;
    y.dim[3] = length;
    PARE_TRY(check_mask(node, &y));
    PARE_TRY(check_lengths(node, q.dim[0]));
    pare_infer_out(node, 3, type, &y);
    y.dim[3] = v.dim[3];
    if (node->in[0]->shape.rank == 3) {
        y = node->in[0]->shape;
        y.dim[2] = v.dim[3] < 0 ? -1 : q.dim[1] * v.dim[3];
        y.name[2] = NULL;
    }
    if (node->in[0]->shape.rank < 0) y = pare_shape_unknown(-1);
    pare_infer_out(node, 0, type, &y);
    k.dim[2] = length;
    v.dim[2] = v_length;
    pare_infer_out(node, 1, node->in[1]->dtype, &k);
    pare_infer_out(node, 2, node->in[2]->dtype, &v);
    return PARE_OK;
}

/* --- RotaryEmbedding --- */

/* Sizes of X: batch, heads, length, head size and how many columns are rotated; -1: unknown. */
typedef struct rotary_sizes {
    pare_shape x;
    int64_t rotated;
} rotary_sizes;

static pare_status rotary_sizes_of(const pare_node *node, rotary_sizes *out)
{
    PARE_TRY(split_heads(node, 0, "num_heads", &out->x));
    const int64_t size = out->x.dim[3], some = pare_node_int(node, "rotary_embedding_dim", 0);
    out->rotated = some ? some : size;
    if (some < 0 || (size >= 0 && (out->rotated > size || out->rotated % 2)))
        return PARE_FAIL_NODE(node, INPUT,
                              "%" PRId64 " columns of a head of %" PRId64
                              " are to be rotated, expected an even number of them",
                              out->rotated, size);
    return PARE_OK;
}

/* Is the shape of input i as wanted (-1: any size)? */
static pare_status rotary_check(const pare_node *node, int i, int rank, const int64_t *wanted)
{
    const pare_value *v = node->in[i];
    char text[128];
    bool fits = v->shape.rank < 0 || v->shape.rank == rank;
    for (int d = 0; fits && d < v->shape.rank; d++) fits = !differ(v->shape.dim[d], wanted[d]);
    if (fits) return PARE_OK;
    pare_shape want = {.rank = rank};
    for (int d = 0; d < rank; d++) want.dim[d] = wanted[d];
    char has[128];
    return PARE_FAIL_NODE(node, INPUT, "'%s' has shape %s, expected %s", v->name,
                          pare_shape_text(&v->shape, has, sizeof has),
                          pare_shape_text(&want, text, sizeof text));
}

/* cos and sin are (batch, length, half), or with positions (most positions, half). */
pare_status pare_infer_rotary_embedding(pare_node *node)
{
    pare_value *x;
    rotary_sizes s;
    for (int i = 0; i < 3; i++) PARE_TRY(pare_infer_need(node, i, &x));
    for (int i = 1; i < 3; i++) PARE_TRY(pare_infer_same_type(node, 0, i));
    PARE_TRY(rotary_sizes_of(node, &s));
    const pare_value *positions = pare_node_in(node, 3);
    const int64_t half = s.rotated < 0 ? -1 : s.rotated / 2, batch = s.x.dim[0];
    const int64_t by_place[] = {batch, s.x.dim[2], half}, by_position[] = {-1, half};
    for (int i = 1; i < 3; i++)
        PARE_TRY(rotary_check(node, i, positions ? 2 : 3, positions ? by_position : by_place));
    if (positions) PARE_TRY(rotary_check(node, 3, 2, by_place));
    const pare_shape *c = &node->in[1]->shape, *n = &node->in[2]->shape;
    if (positions && c->rank == 2 && n->rank == 2 && differ(c->dim[0], n->dim[0]))
        return PARE_FAIL_NODE(node, INPUT, "'%s' and '%s' have different numbers of positions",
                              node->in[1]->name, node->in[2]->name);
    if (positions && positions->dtype && positions->dtype != PARE_s64)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has type %s, expected s64", positions->name,
                              pare_type(positions->dtype)->name);
    pare_infer_out(node, 0, node->in[0]->dtype, &node->in[0]->shape);
    return PARE_OK;
}

/* --- what a kernel reads --- */

pare_view pare_attention_heads(const pare_view *x, int64_t heads)
{
    pare_view y = *x;
    if (x->rank == 4) return y;
    y.rank = 4;
    y.dim[1] = heads;
    y.dim[2] = x->dim[1];
    y.dim[3] = x->dim[2] / heads;
    y.stride[1] = y.dim[3] * x->stride[2];
    y.stride[2] = x->stride[1];
    y.stride[3] = x->stride[2];
    return y;
}

/* --- pare.FusedAttention --- */

bool pare_attention_is_moved(const pare_node *node, int operand)
{
    int count;
    const int64_t *axes = pare_node_ints(node, "head_axes", &count);
    return axes && count > operand && axes[operand] == 2;
}

/* Which part of a packed product it is, -1: none. */
static int64_t part_of(const pare_node *node, int operand)
{
    int count;
    const int64_t *parts = pare_node_ints(node, "parts", &count);
    return parts && count > operand ? parts[operand] : -1;
}

pare_shape pare_attention_shape(const pare_node *node, int operand, const pare_shape *shape)
{
    pare_shape s = *shape;
    if (s.rank == 5 && part_of(node, operand) >= 0) {
        static const int axis[] = {0, 3, 1, 4};
        s.rank = 4;
        for (int i = 0; i < 4; i++)
            s.dim[i] = shape->dim[axis[i]], s.name[i] = shape->name[axis[i]];
        return s;
    }
    if (s.rank != 4 || !pare_attention_is_moved(node, operand)) return s;
    s.dim[1] = shape->dim[2], s.name[1] = shape->name[2];
    s.dim[2] = shape->dim[1], s.name[2] = shape->name[1];
    return s;
}

static pare_view moved_view(const pare_node *node, int operand, const pare_view *x)
{
    pare_view v = *x;
    const int64_t part = part_of(node, operand);
    if (x->rank == 5 && part >= 0) {
        static const int axis[] = {0, 3, 1, 4};
        const int bytes = pare_type(x->dtype)->bits / 8;
        v.rank = 4;
        for (int i = 0; i < 4; i++) v.dim[i] = x->dim[axis[i]], v.stride[i] = x->stride[axis[i]];
        if (x->data) v.data = (char *)x->data + part * x->stride[2] * bytes;
        return v;
    }
    if (x->rank != 4 || !pare_attention_is_moved(node, operand)) return v;
    v.dim[1] = x->dim[2], v.stride[1] = x->stride[2];
    v.dim[2] = x->dim[1], v.stride[2] = x->stride[1];
    return v;
}

pare_attention_views pare_attention_views_of(const pare_node *node, const pare_view *in,
                                             int in_count, const pare_view *y)
{
    const pare_dtype type = node->in[0]->dtype;
    const bool masked = in_count > 3 && in[3].dtype, half = type == PARE_f16 || type == PARE_bf16;
    return (pare_attention_views){.q = moved_view(node, PARE_ATTENTION_Q, &in[0]),
                                  .k = moved_view(node, PARE_ATTENTION_K, &in[1]),
                                  .v = moved_view(node, PARE_ATTENTION_V, &in[2]),
                                  .y = moved_view(node, PARE_ATTENTION_Y, y),
                                  .mask = masked ? &in[3] : NULL,
                                  .rounded = masked && half ? type : PARE_NOTYPE};
}

int64_t pare_attention_head_offset(const pare_view *v, const pare_view *y, int64_t head)
{
    int64_t offset = 0;
    for (int i = y->rank - 3; i >= 0; i--) {
        const int64_t index = head % y->dim[i];
        const int axis = i - (y->rank - v->rank);
        head /= y->dim[i];
        if (axis >= 0 && axis < v->rank - 2 && v->dim[axis] != 1) offset += index * v->stride[axis];
    }
    return offset;
}
