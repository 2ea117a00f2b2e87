/* SPDX-License-Identifier: Apache-2.0 */
/* RotaryEmbedding (Su et al. 2021) and GroupQueryAttention of ONNX Runtime, whose keys and values
   come after those of a cache. */
#include "runtime/passes/import/contrib_attention.h"

#include <inttypes.h>

static pare_value *in(const pare_contrib *c, int i) { return pare_node_in(c->node, i); }

static pare_value *as_s64(pare_contrib *c, pare_value *x)
{
    pare_value *y = OP(c, "Cast", x);
    pare_contrib_int(c, "to", PARE_s64);
    return y;
}

/* --- rotation --- */

typedef struct rotary {
    pare_value *cos, *sin; /* (batch or 1, 1, length, half) */
    bool interleaved;
    int64_t columns; /* that are rotated; 0: all */
} rotary;

/* Rows of the caches at positions (batch or 1, length). */
static void rotary_gather(pare_contrib *c, rotary *r, pare_value *cos, pare_value *sin,
                          pare_value *positions)
{
    r->cos = OP(c, "Unsqueeze", OP(c, "Gather", cos, positions), INTS(c, 1));
    r->sin = OP(c, "Unsqueeze", OP(c, "Gather", sin, positions), INTS(c, 1));
}

/* Both halves, or even and odd columns. */
static void halves(pare_contrib *c, pare_value *x, bool interleaved, pare_value **a, pare_value **b)
{
    if (interleaved) x = RESHAPE(c, -1, x, 0, 0, 0, -1, 2);
    *a = pare_contrib_op_new(c, -1, "Split", &x, 1, 2);
    *b = pare_contrib_made(c, 1);
    pare_contrib_int(c, "axis", -1);
    pare_contrib_int(c, "num_outputs", 2);
    if (!interleaved) return;
    *a = OP(c, "Squeeze", *a, INTS(c, -1));
    *b = OP(c, "Squeeze", *b, INTS(c, -1));
}

/* x (batch, heads, length, size) */
static pare_value *rotate(pare_contrib *c, const rotary *r, pare_value *x)
{
    pare_value *rest = NULL, *a, *b;
    if (r->columns) {
        rest = pare_contrib_slice(c, x, 3, r->columns, INT64_MAX);
        x = pare_contrib_slice(c, x, 3, 0, r->columns);
    }
    halves(c, x, r->interleaved, &a, &b);
    pare_value *real = OP(c, "Sub", OP(c, "Mul", a, r->cos), OP(c, "Mul", b, r->sin));
    pare_value *imaginary = OP(c, "Add", OP(c, "Mul", a, r->sin), OP(c, "Mul", b, r->cos));
    if (r->interleaved) {
        real = OP(c, "Unsqueeze", real, INTS(c, -1));
        imaginary = OP(c, "Unsqueeze", imaginary, INTS(c, -1));
    }
    pare_value *y = OP(c, "Concat", real, imaginary);
    pare_contrib_int(c, "axis", -1);
    if (r->interleaved) y = RESHAPE(c, -1, y, 0, 0, 0, -1);
    if (!rest) return y;
    y = OP(c, "Concat", y, rest);
    pare_contrib_int(c, "axis", -1);
    return y;
}

/* Columns of a cache, which are half of those that are rotated; 0: unknown. */
static int64_t half_of(const pare_value *cache)
{
    return cache->shape.rank == 2 && cache->shape.dim[1] > 0 ? cache->shape.dim[1] : 0;
}

static bool needs(pare_contrib *c, int first, int last)
{
    for (int i = first; i <= last && c->status == PARE_OK; i++)
        if (!in(c, i)) CONTRIB_FAIL(c, INPUT, "its input %d is missing", i);
    return c->status == PARE_OK;
}

/* Positions (batch, length), or the first one: [1]. */
static pare_value *positions_of(pare_contrib *c, pare_value *x)
{
    pare_value *given = in(c, 1);
    if (given->shape.rank == 2) return given;
    pare_value *range = pare_contrib_range(c, pare_contrib_length(c, x, 2));
    return OP(c, "Unsqueeze", OP(c, "Add", range, given), INTS(c, 0));
}

void pare_contrib_rotary_embedding(pare_contrib *c)
{
    const int64_t heads = pare_node_int(c->node, "num_heads", 0),
                  some = pare_node_int(c->node, "rotary_embedding_dim", 0);
    if (!needs(c, 1, 3)) return;
    const int64_t half = half_of(in(c, 2));
    const int rank = in(c, 0)->shape.rank;
    rotary r = {.interleaved = pare_node_int(c->node, "interleaved", 0) != 0, .columns = some};
    if (rank != 3 && rank != 4)
        CONTRIB_FAIL(c, UNSUPPORTED, "input '%s' has rank %d, expected 3 or 4", in(c, 0)->name,
                     rank);
    else if (in(c, 1)->shape.rank != 1 && in(c, 1)->shape.rank != 2)
        CONTRIB_FAIL(c, UNSUPPORTED, "positions '%s' have rank %d, expected 1 or 2", in(c, 1)->name,
                     in(c, 1)->shape.rank);
    else if (pare_node_float(c->node, "scale", 1) != 1)
        CONTRIB_FAIL(c, UNSUPPORTED, "attribute 'scale' is not supported, expected 1");
    else if (rank == 3 && heads < 1 && (some || !half))
        CONTRIB_FAIL(c, INPUT, "attribute 'num_heads' is missing");
    if (c->status != PARE_OK) return;
    pare_value *x = in(c, 0);
    if (rank == 3) {
        x = heads > 0 ? RESHAPE(c, -1, x, 0, 0, heads, -1) : RESHAPE(c, -1, x, 0, 0, -1, 2 * half);
        x = TRANSPOSE(c, -1, x, 0, 2, 1, 3);
    }
    rotary_gather(c, &r, in(c, 2), in(c, 3), positions_of(c, x));
    pare_value *y = rotate(c, &r, x);
    if (rank == 3)
        RESHAPE(c, 0, TRANSPOSE(c, -1, y, 0, 2, 1, 3), 0, 0, -1);
    else
        OP_TO(c, 0, "Identity", y);
}

/* --- GroupQueryAttention --- */

typedef struct grouped {
    int64_t heads, kv_heads, size;
    pare_value *q, *k, *v; /* (batch, heads, length, size) */
    pare_value *positions; /* of the queries: (batch, length) */
} grouped;

/* Size of a head from whatever says it. */
static int64_t size_of(const pare_contrib *c, const grouped *g)
{
    const pare_shape *q = &in(c, 0)->shape;
    const pare_value *past = in(c, 3);
    if (q->rank == 3 && q->dim[2] > 0)
        return q->dim[2] / (in(c, 1) ? g->heads : g->heads + 2 * g->kv_heads);
    return past && past->shape.rank == 4 && past->shape.dim[3] > 0 ? past->shape.dim[3] : 0;
}

static bool grouped_of(pare_contrib *c, grouped *g)
{
    *g = (grouped){.heads = pare_contrib_heads(c, "num_heads"),
                   .kv_heads = pare_contrib_heads(c, "kv_num_heads")};
    if (!needs(c, 5, 6)) return false;
    g->size = size_of(c, g);
    if (g->heads % g->kv_heads)
        CONTRIB_FAIL(c, INPUT, "attribute 'num_heads' is no multiple of 'kv_num_heads'");
    else if (!in(c, 1) != !in(c, 2))
        CONTRIB_FAIL(c, INPUT, "key and value, inputs 1 and 2, come together or not at all");
    else if (!in(c, 3) != !in(c, 4))
        CONTRIB_FAIL(c, INPUT, "past key and value, inputs 3 and 4, come together or not at all");
    else if (g->size < 1)
        CONTRIB_FAIL(c, UNSUPPORTED, "the columns of '%s' are unknown", in(c, 0)->name);
    else if (pare_contrib_has_out(c, 3))
        CONTRIB_FAIL(c, UNSUPPORTED, "output 3, '%s', is not supported", c->node->out[3]->name);
    return c->status == PARE_OK;
}

/* Q, K and V apart; without a key they are side by side in the query. */
static void grouped_split(pare_contrib *c, grouped *g)
{
    pare_value *q = in(c, 0), *k = in(c, 1), *v = in(c, 2);
    if (!k) {
        const int64_t kv = g->kv_heads * g->size;
        pare_value *const inputs[] = {q, INTS(c, g->heads * g->size, kv, kv)};
        q = pare_contrib_op_new(c, -1, "Split", inputs, 2, 3);
        k = pare_contrib_made(c, 1);
        v = pare_contrib_made(c, 2);
        pare_contrib_int(c, "axis", -1);
    }
    g->q = pare_contrib_split_heads(c, q, g->heads);
    g->k = pare_contrib_split_heads(c, k, g->kv_heads);
    g->v = pare_contrib_split_heads(c, v, g->kv_heads);
}

/* Input 5 is each sample's last position. The queries are the last ones before it; a first run,
   whose samples may be shorter than the tensor, begins at 0. */
static pare_value *positions(pare_contrib *c, pare_value *q)
{
    static const int64_t zero = 0, one = 1;
    pare_value *count = pare_contrib_length(c, q, 2);
    pare_value *last = as_s64(c, RESHAPE(c, -1, in(c, 5), -1));
    pare_value *first =
        OP(c, "Add", last, pare_contrib_constant(c, "one", PARE_s64, 0, NULL, &one));
    first = OP(c, "Sub", first, count);
    first = OP(c, "Max", first, pare_contrib_constant(c, "zero", PARE_s64, 0, NULL, &zero));
    first = OP(c, "Unsqueeze", first, INTS(c, 1));
    return OP(c, "Add", first, pare_contrib_range(c, count));
}

/* Output `to`: the past with x at the queries' positions. The past may be a buffer that is longer
   than what it holds: the longer of it and the total length (input 6) is what is made. */
static pare_value *cached(pare_contrib *c, const grouped *g, pare_value *past, pare_value *x,
                          int to)
{
    if (!past || (past->shape.rank == 4 && past->shape.dim[2] == 0))
        return pare_contrib_has_out(c, to) ? OP_TO(c, to, "Identity", x) : x;
    pare_value *whole = OP(c, "Concat", past, x);
    pare_contrib_int(c, "axis", 2);
    pare_value *at = OP(c, "Unsqueeze", g->positions, INTS(c, 1, 3));
    at = OP(c, "Expand", at, OP(c, "Shape", x));
    whole = OP(c, "ScatterElements", whole, at, x);
    pare_contrib_int(c, "axis", 2);
    pare_value *total = as_s64(c, RESHAPE(c, -1, in(c, 6), 1));
    pare_value *held = OP(c, "Shape", past);
    pare_contrib_int(c, "start", 2);
    pare_contrib_int(c, "end", 3);
    return OP_TO(c, pare_contrib_has_out(c, to) ? to : -1, "Slice", whole, INTS(c, 0),
                 OP(c, "Max", total, held), INTS(c, 2));
}

/* Each of the heads of K or V once for each query head that reads it. */
static pare_value *repeated(pare_contrib *c, const grouped *g, pare_value *x)
{
    const int64_t times = g->heads / g->kv_heads;
    if (times == 1) return x;
    x = OP(c, "Unsqueeze", x, INTS(c, 2));
    x = OP(c, "Expand", x, INTS(c, 1, 1, times, 1, 1));
    return RESHAPE(c, -1, x, 0, g->heads, -1, g->size);
}

/* A query sees the keys up to its own position, with a window only the nearest of them. */
static pare_value *grouped_mask(pare_contrib *c, const grouped *g)
{
    const int64_t window = pare_node_int(c->node, "local_window_size", -1);
    pare_value *at = OP(c, "Unsqueeze", g->positions, INTS(c, 1, 3));
    pare_value *keys = pare_contrib_range(c, pare_contrib_length(c, g->k, 2));
    pare_value *allowed = OP(c, "LessOrEqual", keys, at);
    if (window >= 0) {
        pare_value *reach = pare_contrib_constant(c, "window", PARE_s64, 0, NULL, &window);
        allowed = OP(c, "And", allowed, OP(c, "Greater", keys, OP(c, "Sub", at, reach)));
    }
    return pare_contrib_mask(c, allowed, c->like->dtype == PARE_f16 ? -60000 : -1e30);
}

void pare_contrib_group_query_attention(pare_contrib *c)
{
    grouped g;
    if (!grouped_of(c, &g)) return;
    grouped_split(c, &g);
    g.positions = positions(c, g.q);
    if (pare_node_int(c->node, "do_rotary", 0)) {
        if (!needs(c, 7, 8)) return;
        const int64_t half = half_of(in(c, 7));
        rotary r = {.interleaved = pare_node_int(c->node, "rotary_interleaved", 0) != 0,
                    .columns = half && 2 * half < g.size ? 2 * half : 0};
        rotary_gather(c, &r, in(c, 7), in(c, 8), in(c, 9) ? in(c, 9) : g.positions);
        g.q = rotate(c, &r, g.q);
        g.k = rotate(c, &r, g.k);
    }
    g.k = cached(c, &g, in(c, 3), g.k, 1);
    g.v = cached(c, &g, in(c, 4), g.v, 2);
    pare_contrib_scores s = {.scale = pare_node_float(c->node, "scale", 0),
                             .size = g.size,
                             .softcap = pare_node_float(c->node, "softcap", 0)};
    s.mask = pare_contrib_sum(c, grouped_mask(c, &g), in(c, 10));
    if (in(c, 11))
        s.sink = RESHAPE(c, -1, in(c, 11), 1, -1, 1, 1);
    else if (pare_node_int(c->node, "smooth_softmax", 0))
        s.sink = RESHAPE(c, -1, pare_contrib_number(c, c->like, 0), 1, 1, 1, 1);
    pare_contrib_attend(c, g.q, repeated(c, &g, g.k), repeated(c, &g, g.v), &s);
}
