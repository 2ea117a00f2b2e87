/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, QAttention and MultiHeadAttention of ONNX Runtime in products, masks and Softmax,
   which quantize, prune, and fuse again where the plan is made. */
#include "runtime/passes/import/contrib_attention.h"

#include <inttypes.h>

static pare_value *in(const pare_contrib *c, int i) { return pare_node_in(c->node, i); }

/* --- shared --- */

int64_t pare_contrib_heads(pare_contrib *c, const char *attr)
{
    const int64_t heads = pare_node_int(c->node, attr, 0);
    if (c->status == PARE_OK && (heads < 1 || heads > 1 << 20))
        CONTRIB_FAIL(c, INPUT, "attribute '%s' is %" PRId64 ", expected a number of heads", attr,
                     heads);
    return heads;
}

pare_value *pare_contrib_split_heads(pare_contrib *c, pare_value *x, int64_t heads)
{
    return TRANSPOSE(c, -1, RESHAPE(c, -1, x, 0, 0, heads, -1), 0, 2, 1, 3);
}

pare_value *pare_contrib_length(pare_contrib *c, pare_value *x, int64_t axis)
{
    pare_value *list = OP(c, "Shape", x);
    pare_contrib_int(c, "start", axis);
    pare_contrib_int(c, "end", axis + 1);
    return OP(c, "Reshape", list, pare_contrib_ints(c, NULL, 0));
}

pare_value *pare_contrib_range(pare_contrib *c, pare_value *count)
{
    static const int64_t zero = 0, one = 1;
    pare_value *first = pare_contrib_constant(c, "first", PARE_s64, 0, NULL, &zero);
    return OP(c, "Range", first, count, pare_contrib_constant(c, "step", PARE_s64, 0, NULL, &one));
}

pare_value *pare_contrib_mask(pare_contrib *c, pare_value *allowed, double filter)
{
    pare_value *zero = pare_contrib_number(c, c->like, 0);
    return OP(c, "Where", allowed, zero, pare_contrib_number(c, c->like, filter));
}

pare_value *pare_contrib_sum(pare_contrib *c, pare_value *x, pare_value *y)
{
    return x && y ? OP(c, "Add", x, y) : x ? x : y;
}

static pare_value *scaled(pare_contrib *c, pare_value *scores, pare_value *q,
                          const pare_contrib_scores *s)
{
    double scale = s->scale;
    if (scale == 0 && s->size > 0) scale = 1 / __builtin_sqrt((double)s->size);
    if (scale == 1) return scores;
    if (scale != 0) return OP(c, "Mul", scores, pare_contrib_number(c, c->like, scale));
    pare_value *size = OP(c, "Cast", pare_contrib_length(c, q, 3));
    if (c->status == PARE_OK) pare_contrib_int(c, "to", c->like->dtype);
    return OP(c, "Div", scores, OP(c, "Sqrt", size));
}

static pare_value *softmax(pare_contrib *c, pare_value *scores, pare_value *sink)
{
    if (sink) {
        pare_value *column = OP(c, "Shape", pare_contrib_slice(c, scores, 3, 0, 1));
        scores = OP(c, "Concat", scores, OP(c, "Expand", sink, column));
        pare_contrib_int(c, "axis", 3);
    }
    pare_value *y = OP(c, "Softmax", scores);
    pare_contrib_int(c, "axis", -1);
    return sink ? pare_contrib_slice(c, y, 3, 0, -1) : y;
}

void pare_contrib_attend(pare_contrib *c, pare_value *q, pare_value *k, pare_value *v,
                         const pare_contrib_scores *s)
{
    pare_value *scores = OP(c, "MatMul", q, TRANSPOSE(c, -1, k, 0, 1, 3, 2));
    scores = scaled(c, scores, q, s);
    if (s->softcap > 0) {
        pare_value *cap = pare_contrib_number(c, c->like, s->softcap);
        scores = OP(c, "Mul", OP(c, "Tanh", OP(c, "Div", scores, cap)), cap);
    }
    pare_value *weights = softmax(c, pare_contrib_sum(c, scores, s->mask), s->sink);
    pare_value *y = TRANSPOSE(c, -1, OP(c, "MatMul", weights, v), 0, 2, 1, 3);
    RESHAPE(c, 0, y, 0, 0, -1);
}

/* --- masks --- */

/* Keys up to a query's own place. */
static pare_value *causal(pare_contrib *c, pare_value *q, pare_value *k, double filter)
{
    pare_value *queries = pare_contrib_length(c, q, 2), *keys = pare_contrib_length(c, k, 2);
    pare_value *row = OP(c, "Add", pare_contrib_range(c, queries), OP(c, "Sub", keys, queries));
    row = OP(c, "Unsqueeze", row, INTS(c, 1));
    pare_value *allowed = OP(c, "LessOrEqual", pare_contrib_range(c, keys), row);
    return pare_contrib_mask(c, allowed, filter);
}

/* Lengths (batch) as (batch, keys): is the key below the length? */
static pare_value *below(pare_contrib *c, pare_value *lengths, pare_value *k)
{
    pare_value *length = OP(c, "Cast", lengths);
    pare_contrib_int(c, "to", PARE_s64);
    length = OP(c, "Unsqueeze", length, INTS(c, 1));
    return OP(c, "Less", pare_contrib_range(c, pare_contrib_length(c, k, 2)), length);
}

/* A mask of keys: lengths (batch), (batch, keys) or (batch, queries, keys); 0 hides. */
static pare_value *key_mask(pare_contrib *c, pare_value *mask, pare_value *k, double filter)
{
    if (!mask || c->status != PARE_OK) return NULL;
    const pare_shape *m = &mask->shape, *x = &in(c, 0)->shape;
    if (m->rank < 1 || m->rank > 3) {
        CONTRIB_FAIL(c, UNSUPPORTED, "the mask '%s' has rank %d, expected 1 to 3", mask->name,
                     m->rank);
        return NULL;
    }
    if (m->rank == 1 && m->dim[0] >= 0 && x->rank > 0 && x->dim[0] >= 0 && m->dim[0] != x->dim[0]) {
        CONTRIB_FAIL(c, UNSUPPORTED,
                     "the mask '%s' has %" PRId64 " entries, expected one length for each of the "
                     "%" PRId64 " samples",
                     mask->name, m->dim[0], x->dim[0]);
        return NULL;
    }
    pare_value *allowed;
    if (m->rank == 1) {
        allowed = below(c, mask, k);
    } else {
        allowed = OP(c, "Cast", mask);
        pare_contrib_int(c, "to", PARE_bool);
    }
    allowed = OP(c, "Unsqueeze", allowed, m->rank == 3 ? INTS(c, 1) : INTS(c, 1, 2));
    return pare_contrib_mask(c, allowed, filter);
}

static pare_value *masks(pare_contrib *c, pare_value *mask, pare_value *bias, pare_value *q,
                         pare_value *k)
{
    const double filter = pare_node_float(c->node, "mask_filter_value", -10000);
    pare_value *sum = key_mask(c, mask, k, filter);
    if (pare_node_int(c->node, "unidirectional", 0))
        sum = pare_contrib_sum(c, sum, causal(c, q, k, filter));
    return pare_contrib_sum(c, sum, bias);
}

/* --- Attention --- */

/* past (2, batch, heads, length, size) before a K (0) or V (1). */
static pare_value *with_past(pare_contrib *c, pare_value *past, int which, pare_value *x)
{
    const int64_t index = which;
    if (!past) return x;
    pare_value *at = pare_contrib_constant(c, "index", PARE_s64, 0, NULL, &index);
    pare_value *old = OP(c, "Gather", past, at);
    pare_value *y = OP(c, "Concat", old, x);
    pare_contrib_int(c, "axis", 2);
    return y;
}

/* Q, K and V side by side in x (batch, length, 3 hidden). hidden: of Q; 0: unknown. */
static void attention(pare_contrib *c, pare_value *x, int64_t hidden, pare_value *mask,
                      pare_value *past, pare_value *bias)
{
    const int64_t heads = pare_contrib_heads(c, "num_heads");
    int count;
    const int64_t *sizes = pare_node_ints(c->node, "qkv_hidden_sizes", &count);
    if (sizes && count != 3) {
        CONTRIB_FAIL(c, INPUT, "attribute 'qkv_hidden_sizes' has %d entries, expected 3", count);
        return;
    }
    pare_value *const inputs[] = {x, sizes ? pare_contrib_ints(c, sizes, 3) : NULL};
    pare_value *q = pare_contrib_op_new(c, -1, "Split", inputs, 2, 3), *k = pare_contrib_made(c, 1),
               *v = pare_contrib_made(c, 2);
    pare_contrib_int(c, "axis", -1);
    if (!sizes) pare_contrib_int(c, "num_outputs", 3);
    q = pare_contrib_split_heads(c, q, heads);
    k = with_past(c, past, 0, pare_contrib_split_heads(c, k, heads));
    v = with_past(c, past, 1, pare_contrib_split_heads(c, v, heads));
    if (pare_contrib_has_out(c, 1)) {
        pare_value *first = OP(c, "Unsqueeze", k, INTS(c, 0));
        OP_TO(c, 1, "Concat", first, OP(c, "Unsqueeze", v, INTS(c, 0)));
        pare_contrib_int(c, "axis", 0);
    }
    if (sizes) hidden = sizes[0];
    pare_contrib_scores s = {.scale = pare_node_float(c->node, "scale", 0),
                             .size = c->status == PARE_OK && hidden > 0 ? hidden / heads : 0};
    s.mask = masks(c, mask, bias, q, k);
    pare_contrib_attend(c, q, k, v, &s);
}

/* A third of the columns of the weight. */
static int64_t hidden_of(const pare_value *weight)
{
    return weight && weight->shape.rank == 2 && weight->shape.dim[1] > 0 ? weight->shape.dim[1] / 3
                                                                         : 0;
}

static bool needs(pare_contrib *c, int first, int last)
{
    for (int i = first; i <= last && c->status == PARE_OK; i++)
        if (!in(c, i)) CONTRIB_FAIL(c, INPUT, "its input %d is missing", i);
    return c->status == PARE_OK;
}

void pare_contrib_attention(pare_contrib *c)
{
    if (!needs(c, 1, 1)) return;
    pare_value *x = OP(c, "MatMul", in(c, 0), in(c, 1));
    attention(c, pare_contrib_sum(c, x, in(c, 2)), hidden_of(in(c, 1)), in(c, 3), in(c, 4),
              in(c, 5));
}

/* The numbers of the input and of the weight's columns are those of Q/DQ. */
void pare_contrib_q_attention(pare_contrib *c)
{
    if (!needs(c, 1, 4)) return;
    if (in(c, 3)->dtype != PARE_f32) {
        CONTRIB_FAIL(c, UNSUPPORTED, "scale '%s' must be f32", in(c, 3)->name);
        return;
    }
    c->like = in(c, 3);
    pare_value *x = pare_contrib_dequantize(c, in(c, 0), in(c, 3), in(c, 6), 2);
    pare_value *w = pare_contrib_dequantize(c, in(c, 1), in(c, 4), in(c, 7), 1);
    pare_value *y = OP(c, "Add", OP(c, "MatMul", x, w), in(c, 2));
    attention(c, y, hidden_of(in(c, 1)), in(c, 5), in(c, 8), NULL);
}

/* --- MultiHeadAttention --- */

static int64_t columns_of(const pare_value *x)
{
    return x && x->shape.rank == 3 && x->shape.dim[2] > 0 ? x->shape.dim[2] : 0;
}

/* Columns first to last of the bias added to a part; what has four axes has it already. */
static pare_value *biased(pare_contrib *c, pare_value *x, int64_t first, int64_t count)
{
    if (!in(c, 3) || x->shape.rank == 4) return x;
    if (count < 1) {
        CONTRIB_FAIL(c, UNSUPPORTED, "the columns of '%s' are unknown, which bias '%s' needs",
                     x->name, in(c, 3)->name);
        return NULL;
    }
    return OP(c, "Add", x, pare_contrib_slice(c, in(c, 3), 0, first, first + count));
}

/* K or V with its past, as output `to`. */
static pare_value *key_or_value(pare_contrib *c, pare_value *given, pare_value *x, int64_t heads,
                                pare_value *past, int to)
{
    pare_value *y = given->shape.rank == 4 ? x : pare_contrib_split_heads(c, x, heads);
    const bool out = pare_contrib_has_out(c, to);
    if (past) {
        y = OP_TO(c, out ? to : -1, "Concat", past, y);
        pare_contrib_int(c, "axis", 2);
    } else if (out) {
        y = OP_TO(c, to, "Identity", y);
    }
    return y;
}

void pare_contrib_multi_head_attention(pare_contrib *c)
{
    const int64_t heads = pare_contrib_heads(c, "num_heads");
    pare_value *q = in(c, 0), *k = in(c, 1), *v = in(c, 2);
    if (c->status == PARE_OK && (!k || !v))
        CONTRIB_FAIL(c, UNSUPPORTED, "input %d is missing: packed forms are not supported",
                     k ? 2 : 1);
    for (int i = 0; i < 3 && c->status == PARE_OK; i++)
        if (in(c, i)->shape.rank != 3 && (i == 0 || in(c, i)->shape.rank != 4))
            CONTRIB_FAIL(c, UNSUPPORTED, "input '%s' has rank %d, expected %s", in(c, i)->name,
                         in(c, i)->shape.rank, i ? "3 or 4" : "3");
    if (c->status == PARE_OK && pare_contrib_has_out(c, 3))
        CONTRIB_FAIL(c, UNSUPPORTED, "output 3, '%s', is not supported", c->node->out[3]->name);
    if (c->status != PARE_OK) return;
    const int64_t hidden = columns_of(q);
    q = pare_contrib_split_heads(c, biased(c, q, 0, hidden), heads);
    k = key_or_value(c, k, biased(c, k, hidden, hidden), heads, in(c, 6), 1);
    v = key_or_value(c, v, biased(c, v, 2 * hidden, columns_of(v)), heads, in(c, 7), 2);
    pare_contrib_scores s = {.scale = pare_node_float(c->node, "scale", 0), .size = hidden / heads};
    s.mask = masks(c, in(c, 4), in(c, 5), q, k);
    pare_contrib_attend(c, q, k, v, &s);
}
