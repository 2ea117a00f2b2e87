/* SPDX-License-Identifier: Apache-2.0 */
/* softmax(scale * Q K^T + mask) V in small operators becomes pare.FusedAttention (Vaswani et al.
   2017). The scale may be on Q, on K (before or after its transpose) or on the product; K's
   transpose is undone in the Transpose that made it. A Transpose that brings heads before or behind
   the sequence is read as strides and goes, as do a Transpose and a Split, Slices or Gathers that
   take Q, K and V from one product (head_axes and parts in ops/attention.h). */
#include "runtime/ops/attention.h"
#include "runtime/ops/infer.h"
#include "runtime/passes/optimize/fuse_attention.h"

#include <string.h>

/* Steps over scalings of v that nothing else reads. */
static pare_value *unscaled(const pare_fuse *f, pare_value *v, double *scale)
{
    double factor;
    pare_value *x;
    while (!v->data && v->producer && v->graph == f->graph && v->user_count == 1 &&
           pare_fuse_may_vanish(f, v) && pare_fuse_scaled(v->producer, &x, &factor)) {
        *scale *= factor;
        v = x;
    }
    return v;
}

static bool match(const pare_fuse *f, pare_node *softmax, pare_attention_found *a)
{
    int rank = softmax->in[0]->shape.rank;
    int64_t axis = pare_node_int(softmax, "axis", -1);
    pare_node *out = pare_fuse_next(f, softmax->out[0], "MatMul");
    if (rank < 3 || (axis != -1 && axis != rank - 1) || !out || out->in[0] != softmax->out[0])
        return false;
    *a = (pare_attention_found){
        .v = out->in[1], .last = out, .scale = 1, .head_axes = {1, 1, 1, 1}, .parts = {-1, -1, -1}};
    pare_value *scores = softmax->in[0];
    if (a->v->shape.rank != rank || pare_fuse_only_use(f, scores) != softmax) return false;
    pare_node *add = scores->producer;
    if (add && pare_node_is(add, "Add")) {
        for (int i = 0; i < 2 && !a->mask; i++) {
            double scale = 1;
            pare_value *s = unscaled(f, add->in[i], &scale);
            if (!s->producer || !pare_node_is(s->producer, "MatMul") || s->user_count != 1)
                continue;
            if (!pare_shape_equal(&s->shape, &scores->shape)) continue;
            a->mask = add->in[1 - i];
            scores = add->in[i];
        }
        if (!a->mask || a->mask->shape.rank > rank) return false;
    }
    if (!pare_fuse_may_vanish(f, scores) || scores->user_count != 1) return false;
    scores = unscaled(f, scores, &a->scale);
    pare_node *product = scores->producer;
    if (!product || scores->data || !pare_node_is(product, "MatMul") || scores->user_count != 1 ||
        !pare_fuse_may_vanish(f, scores))
        return false;
    a->q = unscaled(f, product->in[0], &a->scale);
    a->k_transposed = unscaled(f, product->in[1], &a->scale);
    return a->q->shape.rank == rank && a->k_transposed->shape.rank == rank &&
           pare_shape_known(&a->k_transposed->shape);
}

/* Where K^T comes from: a Transpose of source by perm, and a Reshape of leading axes after it. */
typedef struct origin {
    pare_value *source;
    int64_t perm[PARE_MAX_RANK];
    int rank;
    bool split;
} origin;

static void origin_read(const pare_fuse *f, pare_value *kt, origin *o)
{
    int rank = kt->shape.rank, count;
    pare_value *from = kt;
    *o = (origin){.source = kt, .rank = rank};
    for (int i = 0; i < rank; i++) o->perm[i] = i;
    if (!pare_fuse_may_vanish(f, from)) return;
    if (from->producer && pare_node_is(from->producer, "Reshape")) {
        pare_value *x = from->producer->in[0];
        int r = x->shape.rank;
        if (r < 2 || x->data || x->shape.dim[r - 1] != kt->shape.dim[rank - 1] ||
            x->shape.dim[r - 2] != kt->shape.dim[rank - 2])
            return;
        from = x;
    }
    pare_node *transpose = from->producer;
    if (!transpose || !pare_node_is(transpose, "Transpose") || transpose->in[0]->data) return;
    if (!pare_fuse_may_vanish(f, from)) return;
    const int64_t *perm = pare_node_ints(transpose, "perm", &count);
    o->split = from != kt;
    o->source = transpose->in[0];
    o->rank = from->shape.rank;
    for (int i = 0; i < o->rank; i++) o->perm[i] = perm ? perm[i] : o->rank - 1 - i;
}

static void swap_last(int64_t *list, int rank)
{
    int64_t last = list[rank - 1];
    list[rank - 1] = list[rank - 2];
    list[rank - 2] = last;
}

/* Does the order exchange the sequence and the heads of four axes? */
static bool moves_heads(const int64_t *perm, int rank)
{
    return rank == 4 && perm[0] == 0 && perm[1] == 2 && perm[2] == 1 && perm[3] == 3;
}

static bool is_head_move(const pare_node *n)
{
    int count;
    if (!n || !pare_node_is(n, "Transpose") || n->in[0]->data) return false;
    const int64_t *perm = pare_node_ints(n, "perm", &count);
    return perm && moves_heads(perm, count);
}

static pare_node *maker_of(const pare_fuse *f, const pare_value *v)
{
    return v->data || v->graph != f->graph || !pare_fuse_may_vanish(f, v) ? NULL : v->producer;
}

/* v is [1, ...] of x: which one of x's first axis? -1: it is something else. */
static int64_t first_axis_part(const pare_node *n, const pare_value *v)
{
    const pare_value *x = pare_node_in(n, 0);
    bool one = x && x->shape.rank == v->shape.rank && v->shape.dim[0] == 1;
    for (int i = 1; one && i < x->shape.rank; i++) one = x->shape.dim[i] == v->shape.dim[i];
    if (!one || !pare_shape_known(&x->shape)) return -1;
    if (pare_node_is(n, "Split")) {
        int64_t before = 0;
        for (int i = 0; n->out[i] != v; i++) {
            if (!n->out[i]) return -1;
            before += n->out[i]->shape.dim[0];
        }
        return before;
    }
    const pare_value *start = pare_node_in(n, 1), *step = pare_node_in(n, 4);
    if (!pare_node_is(n, "Slice") || !start || !start->data || start->data->count != 1) return -1;
    const int64_t at = (int64_t)pare_tensor_number(start->data, 0);
    if (step && !pare_fuse_is(step, 1)) return -1;
    return at < 0 ? at + x->shape.dim[0] : at;
}

/* An operand [N, H, S, D] that is a part of [N, S, parts, H, D], whose parts came first by a
   Transpose and were split: the packed one, or NULL. */
static pare_value *packed(const pare_fuse *f, const pare_value *v, int64_t *part)
{
    pare_node *drop = maker_of(f, v);
    if (!drop || v->shape.rank != 4 || !pare_shape_known(&v->shape)) return NULL;
    pare_value *moved = pare_node_in(drop, 0);
    if (!moved) return NULL;
    if (pare_node_is(drop, "Gather")) {
        double index;
        if (pare_node_int(drop, "axis", 0) || !pare_fuse_scalar(drop->in[1], &index)) return NULL;
        *part = (int64_t)index + (index < 0 ? moved->shape.dim[0] : 0);
    } else if (pare_node_is(drop, "Squeeze") || pare_node_is(drop, "Reshape")) {
        const pare_value *one = moved;
        const pare_node *cut = maker_of(f, one);
        bool same = cut && one->shape.rank == 5 && one->shape.dim[0] == 1;
        for (int i = 0; i < 4; i++) same = same && one->shape.dim[i + 1] == v->shape.dim[i];
        if (!same) return NULL;
        *part = first_axis_part(cut, one);
        moved = pare_node_in(cut, 0);
        if (*part < 0) return NULL;
    } else {
        return NULL;
    }
    const pare_node *move = maker_of(f, moved);
    static const int64_t wanted[] = {2, 0, 3, 1, 4};
    int count;
    if (!move || !pare_node_is(move, "Transpose") || move->in[0]->data) return NULL;
    const int64_t *perm = pare_node_ints(move, "perm", &count);
    bool fits = perm && count == 5 && *part >= 0 && *part < moved->shape.dim[0];
    for (int i = 0; fits && i < 5; i++) fits = perm[i] == wanted[i];
    return fits ? move->in[0] : NULL;
}

/* An operand in front of the Transpose that moved its heads, if one did. */
static pare_value *unmoved(const pare_fuse *f, pare_attention_found *a, int operand, pare_value *v)
{
    int64_t part;
    pare_value *all = packed(f, v, &part);
    if (all) {
        a->parts[operand] = part;
        return all;
    }
    const pare_node *move = maker_of(f, v);
    if (!is_head_move(move)) return v;
    a->head_axes[operand] = 2;
    return move->in[0];
}

/* K [.., S, D] from K^T: what the Transpose read that made it, where only heads are elsewhere, else
   that Transpose without its last swap, or one more. */
static pare_status untransposed(pare_fuse *f, pare_attention_found *a, pare_value **out)
{
    origin o;
    pare_node *made;
    origin_read(f, a->k_transposed, &o);
    swap_last(o.perm, o.rank);
    bool same = true;
    for (int i = 0; i < o.rank; i++) same = same && o.perm[i] == i;
    *out = unscaled(f, o.source, &a->scale);
    if (!o.split && moves_heads(o.perm, o.rank)) {
        a->head_axes[PARE_ATTENTION_K] = 2;
        return PARE_OK;
    }
    if (!same) {
        pare_shape shape = {.rank = o.rank};
        for (int i = 0; i < o.rank; i++) shape.dim[i] = o.source->shape.dim[o.perm[i]];
        PARE_TRY(pare_fuse_insert(a->last, "Transpose", "", out, 1, &shape, &made));
        PARE_TRY(pare_node_set_ints(made, "perm", o.perm, o.rank));
        *out = made->out[0];
    }
    if (!o.split) {
        *out = unmoved(f, a, PARE_ATTENTION_K, *out);
        return PARE_OK;
    }
    pare_shape shape = a->k_transposed->shape;
    swap_last(shape.dim, shape.rank);
    memset(shape.name, 0, sizeof shape.name);
    const char *name = pare_upgrade_name(a->last, "shape");
    pare_value *in[2] = {*out};
    int64_t rank = shape.rank;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(f->graph, &in[1], name, PARE_s64, 1, &rank, shape.dim));
    PARE_TRY(pare_fuse_insert(a->last, "Reshape", "", in, 2, &shape, &made));
    *out = made->out[0];
    return PARE_OK;
}

/* The leading axes of K and V must be Q's: the kernel does not broadcast them. */
static bool same_leading(const pare_value *a, const pare_value *b)
{
    int rank = a->shape.rank;
    return a->dtype == b->dtype &&
           !memcmp(a->shape.dim, b->shape.dim, (size_t)(rank - 2) * sizeof *a->shape.dim);
}

/* Q and V in front of a Transpose of their heads, Y behind one, which becomes the last node. */
static void move_heads(const pare_fuse *f, pare_attention_found *a)
{
    a->q = unmoved(f, a, PARE_ATTENTION_Q, a->q);
    if (a->parts[PARE_ATTENTION_Q] < 0) a->q = unscaled(f, a->q, &a->scale);
    a->v = unmoved(f, a, PARE_ATTENTION_V, a->v);
    pare_node *move = pare_fuse_only_use(f, a->last->out[0]);
    if (!is_head_move(move)) return;
    a->head_axes[PARE_ATTENTION_Y] = 2;
    a->last = move;
}

/* f32 of any size; halves of those that FlashAttention takes: products and Softmax are faster than
   the kernel of any floats. */
static bool fits(const pare_value *v)
{
    const int64_t size = v->shape.dim[v->shape.rank - 1];
    const bool half = v->dtype == PARE_f16 || v->dtype == PARE_bf16;
    return v->dtype == PARE_f32 || (half && size <= 128 && size % 8 == 0);
}

pare_status pare_attention_replace(pare_fuse *f, pare_attention_found *a, const char *op_type,
                                   pare_node **out)
{
    pare_value *k = NULL;
    bool moved = false, packs = false;
    PARE_TRY(untransposed(f, a, &k));
    move_heads(f, a);
    pare_value *in[] = {a->q, k, a->v, a->mask};
    for (int i = 0; i < 4; i++) moved = moved || a->head_axes[i] != 1;
    for (int i = 0; i < 3; i++) packs = packs || a->parts[i] >= 0;
    PARE_TRY(pare_fuse_replace(a->last, op_type, PARE_DOMAIN, in, a->mask ? 4 : 3, out));
    if (moved) PARE_TRY(pare_node_set_ints(*out, "head_axes", a->head_axes, 4));
    return packs ? pare_node_set_ints(*out, "parts", a->parts, 3) : PARE_OK;
}

pare_status pare_fuse_attention(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_attention_found a;
    pare_node *fresh;
    if (!pare_node_is(node, "Softmax") || !match(f, node, &a)) return PARE_OK;
    if (!fits(a.q) || !fits(a.v) || !same_leading(a.q, a.k_transposed) || !same_leading(a.q, a.v))
        return PARE_OK;
    PARE_TRY(pare_attention_replace(f, &a, "FusedAttention", &fresh));
    *changed = true;
    return pare_node_set_float(fresh, "scale", (float)a.scale);
}
