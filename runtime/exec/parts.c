/* SPDX-License-Identifier: Apache-2.0 */
/* Concats are looked at from the last to the first: of those that share an input the last, which is
   the longest where each adds to the one before, holds it, and a Concat inside another one finds
   where its result lies. A part is taken for trial, judged by the kernels that would make and read
   it, and given up where one refuses. */
#include "runtime/exec/parts.h"
#include "runtime/ops/int8_elementwise.h"
#include "runtime/ops/moves.h"

#include <string.h>

/* Positions of the first node that writes a tensor, and of the last that reads it. */
typedef struct parts_life {
    int first, last;
} parts_life;

typedef struct parts_search {
    pare_ctx *ctx;
    pare_parts *parts;
    const pare_graph *graph;
    const pare_parts_rules *rules;
    size_t *alive;    /* (nodes + 1): bytes at a position, results in place of dying inputs apart */
    parts_life *life; /* (nodes): of output 0 with its parts */
    size_t most;      /* bytes that may be alive at once */
} parts_search;

/* --- looking --- */

static bool is_concat(const pare_node *n)
{
    return pare_node_is(n, "Concat") ||
           (!strcmp(n->op_type, "QConcat") && !strcmp(n->domain, PARE_DOMAIN));
}

const pare_concat_part *pare_parts_find(const pare_parts *parts, const pare_value *v)
{
    const int i = pare_ptr_map_find(&parts->of, v);
    return i >= 0 && parts->part[i].whole ? &parts->part[i] : NULL;
}

static void dense_view(const pare_value *v, pare_view *out)
{
    pare_view_set(out, v->dtype, &v->shape, v->nhwc && !v->data);
}

void pare_parts_view(const pare_parts *parts, const pare_value *v, pare_view *out)
{
    const pare_concat_part *part = pare_parts_find(parts, v);
    pare_view lies;
    dense_view(v, out);
    if (!part || !part->pitch) return;
    dense_view(part->lies, &lies);
    memcpy(out->stride, lies.stride, sizeof out->stride);
}

static size_t bytes_of(const pare_value *v)
{
    size_t bytes;
    const int64_t n = pare_shape_count(&v->shape);
    return n > 0 && pare_type_bytes(v->dtype, n, &bytes) ? bytes : 0;
}

static int last_reader(const pare_value *v)
{
    const pare_graph *g = v->graph;
    if (v->is_output) return g->node_count;
    int last = -1;
    for (int i = 0; i < v->user_count; i++) {
        const pare_node *user = v->user[i];
        int at = user->graph == g ? user->mark : g->node_count;
        if (at > last) last = at;
        if (pare_op_is_alias(user) && user->in[0] == v && user->out[0]) {
            at = last_reader(user->out[0]);
            if (at > last) last = at;
        }
    }
    return last;
}

int pare_parts_last_use(const pare_parts *parts, const pare_value *v)
{
    const int own = last_reader(v), of_parts = pare_ptr_map_find(&parts->last, v);
    return own > of_parts ? own : of_parts;
}

/* --- where an input would lie --- */

/* A row of y along an axis, where it begins: what is joined to y, or split off, is parts of it.
 *each: elements of it for an index of the axis. False: an outer result has other rows. */
static bool rows_of(const pare_parts *parts, const pare_value *y, int axis, pare_concat_part *row,
                    int64_t *each)
{
    const pare_concat_part *outer = pare_parts_find(parts, y);
    const bool apart = outer && outer->pitch;
    pare_view dense;
    dense_view(y, &dense);
    const int64_t elements = dense.dim[axis] * dense.stride[axis];
    const size_t bytes = (size_t)elements * (size_t)(pare_type(y->dtype)->bits / 8);
    *each = dense.stride[axis];
    *row = (pare_concat_part){.whole = outer ? outer->whole : y,
                              .lies = apart ? outer->lies : y,
                              .axis = axis,
                              .at = outer ? outer->at : 0,
                              .pitch = apart ? outer->pitch : bytes};
    if (pare_view_count(&dense) == elements) row->pitch = 0;
    return !apart || outer->axis == axis;
}

/* The same order of bytes in both tensors? */
static bool same_order(const pare_value *v, const pare_value *y)
{
    pare_view own, other;
    dense_view(v, &own);
    pare_view_set(&other, v->dtype, &v->shape, y->nhwc && !y->data);
    return pare_view_same_order(&own, &other);
}

static bool is_plain(const parts_search *s, const pare_concat_part *p)
{
    return !p->pitch && p->at % s->rules->align == 0;
}

static bool is_aligned(const pare_concat_part *p)
{
    return p->at % PARE_PART_ALIGN == 0 && p->width % PARE_PART_ALIGN == 0 &&
           p->pitch % PARE_PART_ALIGN == 0;
}

/* --- whether it may --- */

static bool is_whole(const parts_search *s, const pare_value *v)
{
    return pare_ptr_map_find(&s->parts->held, v) > 0;
}

/* May its memory be another's? Not where it is seen from outside, also under another shape. */
static bool is_inner(const parts_search *s, const pare_value *v)
{
    if (v->data || !v->producer || v->producer->graph != s->graph || v->is_output || v->is_input)
        return false;
    for (int i = 0; i < v->user_count; i++) {
        const pare_node *n = v->user[i];
        if (n->graph != s->graph) return false;
        if (pare_op_is_alias(n) && n->out[0] && !is_inner(s, n->out[0])) return false;
    }
    return true;
}

/* Do the kernels that make and read it take it where it is? */
static bool is_taken(const parts_search *s, const pare_value *v)
{
    const pare_parts_rules *r = s->rules;
    if (!r->takes || pare_op_is_alias(v->producer) || !r->takes(r->user, v->producer, s->parts))
        return false;
    for (int i = 0; i < v->user_count; i++)
        if (pare_op_is_alias(v->user[i]) || !r->takes(r->user, v->user[i], s->parts)) return false;
    return true;
}

/* --- taking --- */

/* So many more parts lie in whole. */
static pare_status held_add(pare_parts *parts, const pare_value *whole, int more)
{
    if (!whole) return PARE_OK;
    const int held = pare_ptr_map_find(&parts->held, whole);
    return pare_ptr_map_put(&parts->held, whole, (held > 0 ? held : 0) + more);
}

static pare_status part_put(pare_parts *parts, const pare_value *v, const pare_concat_part *part)
{
    int i = pare_ptr_map_find(&parts->of, v);
    if (i < 0) {
        i = parts->count;
        if (!pare_arena_grow(parts->arena, &parts->part, &parts->capacity, (size_t)i,
                             sizeof *parts->part) ||
            !pare_arena_grow(parts->arena, &parts->value, &parts->value_capacity, (size_t)i,
                             sizeof *parts->value))
            return PARE_MEMORY;
        PARE_TRY(pare_ptr_map_put(&parts->of, v, i));
        parts->value[i] = v;
        parts->part[i].whole = NULL;
        parts->count++;
    }
    PARE_TRY(held_add(parts, parts->part[i].whole, -1));
    parts->part[i] = *part;
    return held_add(parts, part->whole, 1);
}

/* Gives up what lies in v's producers' memory under other shapes, up to the one that makes it. */
static pare_status part_drop(parts_search *s, const pare_value *v)
{
    for (const pare_concat_part none = {0};; v = v->producer->in[0]) {
        PARE_TRY(part_put(s->parts, v, &none));
        if (!pare_op_is_alias(v->producer)) return PARE_OK;
    }
}

/* v lies there, and so does what it shows under another shape. */
static pare_status chain_put(parts_search *s, const pare_value *v, pare_concat_part part)
{
    for (;; v = v->producer->in[0]) {
        if (!part.pitch) part.lies = v;
        PARE_TRY(part_put(s->parts, v, &part));
        if (!pare_op_is_alias(v->producer)) return PARE_OK;
    }
}

/* Is all of the chain free to move? */
static bool chain_is_free(const parts_search *s, const pare_value *v)
{
    for (;; v = v->producer->in[0]) {
        if (pare_parts_find(s->parts, v) || is_whole(s, v) || !is_inner(s, v)) return false;
        if (!pare_op_is_alias(v->producer)) return true;
        if (!v->producer->in[0]) return false;
    }
}

/* May v be there, as far as its graph says? */
static bool is_candidate(const parts_search *s, const pare_value *v, const pare_concat_part *part)
{
    return part->width && (is_plain(s, part) || is_aligned(part)) && chain_is_free(s, v);
}

/* What its kernels refuse. */
static bool is_refused(const parts_search *s, const pare_value *v)
{
    const pare_concat_part *part = pare_parts_find(s->parts, v);
    return part && !is_plain(s, part) && !is_taken(s, v);
}

/* A Concat's result and inputs, a Split's input and results, a Slice's input and result. */
typedef struct parts_joint {
    const pare_node *node;
    const pare_value *y;
    pare_value *const *piece;
    int count, axis;
    int64_t first; /* index of the axis at which the first piece begins */
    bool some;     /* the pieces are not all of y */
} parts_joint;

static parts_joint joint_of(const pare_node *n)
{
    parts_joint j = {.node = n, .y = n->in[0], .piece = n->out, .count = n->out_count};
    if (is_concat(n))
        j = (parts_joint){.node = n, .y = n->out[0], .piece = n->in, .count = n->in_count};
    j.some = pare_slice_stretch(n, &j.axis, &j.first);
    if (!j.some) j.axis = pare_node_axis(n, is_concat(n), j.y->shape.rank);
    return j;
}

/* Of a Split, or a Slice of a stretch of one axis: what a node makes alone, in memory of its own or
   in a Concat's. */
static bool is_split(const pare_node *n)
{
    int axis;
    int64_t first;
    const pare_value *x = pare_node_in(n, 0);
    if (!pare_node_is(n, "Split") && !pare_slice_stretch(n, &axis, &first)) return false;
    if (!x || x->data || x->is_input || !x->producer) return false;
    return x->producer->graph == n->graph && x->producer->out[0] == x &&
           !pare_op_is_alias(x->producer);
}

/* Are the node's pieces parts of one tensor, and is all of it known? */
static bool is_joint(const pare_node *n)
{
    if (!(is_concat(n) || is_split(n)) || !n->out_count || !n->out[0]) return false;
    const parts_joint j = joint_of(n);
    for (int i = 0; i < j.count; i++)
        if (!j.piece[i] || !pare_shape_known(&j.piece[i]->shape)) return false;
    return pare_shape_known(&j.y->shape) && bytes_of(j.y) && pare_type(j.y->dtype)->bits % 8 == 0;
}

/* Are piece i's bytes moved as they are? */
static bool is_moved(const parts_joint *j, int i)
{
    const pare_value *v = j->piece[i];
    if (v->dtype != j->y->dtype || !same_order(v, j->y)) return false;
    return strcmp(j->node->op_type, "QConcat") != 0 || pare_concat_is_copy(j->node, i);
}

/* A row of y from the first piece on. */
static bool joint_row(const pare_parts *parts, const parts_joint *j, pare_concat_part *row,
                      int64_t *each)
{
    if (!rows_of(parts, j->y, j->axis, row, each)) return false;
    row->at += (size_t)(j->first * *each) * (size_t)(pare_type(j->y->dtype)->bits / 8);
    return true;
}

/* Where piece i would be; the next one is behind it. */
static pare_concat_part next_part(const parts_joint *j, int i, int64_t each, pare_concat_part *row)
{
    const pare_value *v = j->piece[i];
    pare_concat_part part = *row;
    part.width = (size_t)(v->shape.dim[row->axis] * each) * (size_t)(pare_type(v->dtype)->bits / 8);
    row->at += part.width;
    return part;
}

/* Is piece i at its part of the row? */
static bool lies_there(const pare_parts *parts, const parts_joint *j, int i,
                       const pare_concat_part *part)
{
    const pare_concat_part *is = pare_parts_find(parts, j->piece[i]);
    if (!part->width) return true;
    return is && is->whole == part->whole && is->at == part->at && is->pitch == part->pitch &&
           is_moved(j, i);
}

/* Over the pieces that are there. */
typedef struct parts_walk {
    const pare_parts *parts;
    const parts_joint *j;
    pare_concat_part row;
    int64_t each;
    int next;
} parts_walk;

static parts_walk walk_of(const pare_parts *parts, const parts_joint *j)
{
    parts_walk w = {.parts = parts, .j = j};
    if (!joint_row(parts, j, &w.row, &w.each)) w.next = j->count;
    return w;
}

/* The next one; NULL: there is none. */
static const pare_value *walk_next(parts_walk *w)
{
    while (w->next < w->j->count) {
        const int i = w->next++;
        const pare_concat_part part = next_part(w->j, i, w->each, &w->row);
        if (lies_there(w->parts, w->j, i, &part)) return w->j->piece[i];
    }
    return NULL;
}

/* Gives up pieces that are there: all, or what is refused. */
static pare_status pieces_drop(parts_search *s, const parts_joint *j, bool all, bool *any)
{
    const pare_value *v;
    *any = false;
    for (parts_walk w = walk_of(s->parts, j); (v = walk_next(&w));) {
        if (!pare_parts_find(s->parts, v) || !(all || is_refused(s, v))) continue;
        PARE_TRY(part_drop(s, v));
        *any = true;
    }
    return PARE_OK;
}

/* All that may be parts, less what is refused, until nothing is: a residual and what it is added to
   are taken together or not at all. */
static pare_status pieces_try(parts_search *s, const parts_joint *j)
{
    pare_concat_part row;
    int64_t each;
    if (!joint_row(s->parts, j, &row, &each)) return PARE_OK;
    for (int i = 0; i < j->count; i++) {
        const pare_concat_part part = next_part(j, i, each, &row);
        if (is_moved(j, i) && is_candidate(s, j->piece[i], &part))
            PARE_TRY(chain_put(s, j->piece[i], part));
    }
    for (bool again = true; again;) PARE_TRY(pieces_drop(s, j, false, &again));
    return PARE_OK;
}

/* --- pieces that lie side by side already --- */

static bool lie_side_by_side(const parts_search *s, const parts_joint *j, pare_concat_part *out)
{
    pare_view dense;
    for (int i = 0; i < j->count; i++) {
        const pare_concat_part *p = pare_parts_find(s->parts, j->piece[i]);
        if (!p || !is_moved(j, i)) return false;
        if (i == 0) {
            *out = *p;
            continue;
        }
        if (p->whole != out->whole || p->pitch != out->pitch || p->at != out->at + out->width)
            return false;
        out->width += p->width;
    }
    if (out->pitch) return out->axis == j->axis && out->lies->shape.rank == j->y->shape.rank;
    dense_view(j->y, &dense);
    return dense.dim[j->axis] * dense.stride[j->axis] == pare_view_count(&dense);
}

/* What they are pieces of is a part, too. */
static pare_status whole_try(parts_search *s, const parts_joint *j, bool *done)
{
    pare_concat_part part;
    *done = false;
    if (j->some || pare_parts_find(s->parts, j->y) || !lie_side_by_side(s, j, &part))
        return PARE_OK;
    if (!is_candidate(s, j->y, &part)) return PARE_OK;
    PARE_TRY(chain_put(s, j->y, part));
    if (is_refused(s, j->y)) return part_drop(s, j->y);
    *done = true;
    return PARE_OK;
}

/* --- memory --- */

static parts_life life_of(const pare_value *v)
{
    const int first = v->producer->mark, last = last_reader(v);
    return (parts_life){first, last < first ? first : last};
}

/* What every node's results take, before anything is a part. Returns the most. */
static size_t alive_find(parts_search *s)
{
    const pare_graph *g = s->graph;
    size_t most = 0;
    for (int i = 0; i < g->node_count; i++) {
        const pare_node *n = g->node[i];
        for (int k = 0; k < n->out_count; k++) {
            if (!n->out[k]) continue;
            const parts_life l = life_of(n->out[k]);
            if (k == 0) s->life[i] = l;
            if (pare_op_is_alias(n)) continue;
            s->alive[l.first] += bytes_of(n->out[k]);
            if (l.last < g->node_count) s->alive[l.last + 1] -= bytes_of(n->out[k]);
        }
    }
    for (int i = 0; i <= g->node_count; i++) {
        if (i) s->alive[i] += s->alive[i - 1]; /* unsigned: sums come out right */
        if (s->alive[i] > most) most = s->alive[i];
    }
    return most;
}

/* So many bytes more from first to last. Returns the most that is alive there. */
static size_t alive_add(parts_search *s, int first, int last, size_t bytes)
{
    size_t most = 0;
    for (int i = first; i <= last; i++) {
        s->alive[i] += bytes;
        if (s->alive[i] > most) most = s->alive[i];
        s->parts->looked++;
    }
    return most;
}

/* The same where a tensor that lived as `from` says lives as `to` does, which is longer. */
static size_t life_extend(parts_search *s, parts_life from, parts_life to, size_t bytes)
{
    const size_t before = alive_add(s, to.first, from.first - 1, bytes);
    const size_t behind = alive_add(s, from.last + 1, to.last, bytes);
    return before > behind ? before : behind;
}

/* v, and what it shows under another shape, needs no memory, or some again; `whole` lives as long
   as they do. */
static void chain_move(parts_search *s, const pare_value *v, bool back, parts_life *whole)
{
    for (;; v = v->producer->in[0]) {
        const parts_life l = life_of(v);
        if (l.first < whole->first) whole->first = l.first;
        if (l.last > whole->last) whole->last = l.last;
        if (pare_op_is_alias(v->producer)) continue;
        alive_add(s, l.first, l.last, back ? bytes_of(v) : 0 - bytes_of(v));
        return;
    }
}

static void joint_move(parts_search *s, const parts_joint *j, bool whole, bool back, parts_life *l)
{
    const pare_value *v;
    if (whole) {
        chain_move(s, j->y, back, l);
        return;
    }
    for (parts_walk w = walk_of(s->parts, j); (v = walk_next(&w));)
        if (pare_parts_find(s->parts, v)) chain_move(s, v, back, l);
}

/* --- the graph --- */

static pare_status joint_undo(parts_search *s, const parts_joint *j, bool whole)
{
    bool any;
    return whole ? part_drop(s, j->y) : pieces_drop(s, j, true, &any);
}

/* Does what is alive fit with what the joint has taken? One tensor lives longer, others need no
   memory any more: more is alive only where that one was not. */
static bool joint_fits(parts_search *s, const parts_joint *j, bool whole)
{
    const pare_concat_part *outer = pare_parts_find(s->parts, j->y);
    const pare_value *in = outer ? outer->whole : j->y;
    parts_life *life = &s->life[in->producer->mark], longer = *life;
    joint_move(s, j, whole, false, &longer);
    if (life_extend(s, *life, longer, bytes_of(in)) <= s->most) {
        *life = longer;
        return true;
    }
    life_extend(s, *life, longer, 0 - bytes_of(in));
    joint_move(s, j, whole, true, &longer);
    return false;
}

static pare_status joint_try(parts_search *s, const pare_node *n)
{
    bool whole, any = false;
    PARE_TRY(pare_ctx_poll(s->ctx));
    if (!is_joint(n)) return PARE_OK;
    const parts_joint j = joint_of(n);
    PARE_TRY(whole_try(s, &j, &whole));
    if (!whole) PARE_TRY(pieces_try(s, &j));
    for (int i = 0; i < j.count; i++) any = any || pare_parts_find(s->parts, j.piece[i]);
    if (!any || joint_fits(s, &j, whole)) return PARE_OK;
    return joint_undo(s, &j, whole);
}

/* Splits after Concats: their pieces may be parts already. */
static pare_status joints_try(parts_search *s)
{
    enum { SLACK = 4 << 20 };
    const pare_graph *g = s->graph;
    const size_t alone = alive_find(s);
    s->most = alone + alone / 8 + SLACK;
    for (int i = g->node_count - 1; i >= 0; i--)
        if (is_concat(g->node[i])) PARE_TRY(joint_try(s, g->node[i]));
    for (int i = 0; i < g->node_count; i++)
        if (is_split(g->node[i])) PARE_TRY(joint_try(s, g->node[i]));
    return PARE_OK;
}

static pare_status last_uses_find(pare_parts *parts)
{
    for (int i = 0; i < parts->count; i++) {
        const pare_value *whole = parts->part[i].whole;
        const int last = whole ? last_reader(parts->value[i]) : -1;
        if (whole && last > pare_ptr_map_find(&parts->last, whole))
            PARE_TRY(pare_ptr_map_put(&parts->last, whole, last));
    }
    return PARE_OK;
}

pare_status pare_parts_choose(pare_ctx *ctx, pare_parts *out, pare_arena *arena,
                              const pare_graph *graph, const pare_parts_rules *rules)
{
    const size_t nodes = (size_t)graph->node_count;
    parts_search s = {.ctx = ctx, .parts = out, .graph = graph, .rules = rules};
    *out = (pare_parts){.arena = arena};
    pare_ptr_map_init(&out->of, arena);
    pare_ptr_map_init(&out->held, arena);
    pare_ptr_map_init(&out->last, arena);
    for (int i = 0; i < graph->node_count; i++) graph->node[i]->mark = i;
    s.alive = pare_alloc(ctx, nodes + 1, sizeof *s.alive);
    s.life = pare_alloc(ctx, nodes + 1, sizeof *s.life);
    pare_status st = s.alive && s.life ? joints_try(&s) : PARE_MEMORY;
    if (st == PARE_OK) st = last_uses_find(out);
    pare_free(s.alive);
    pare_free(s.life);
    return st;
}

pare_status pare_parts_alias(pare_parts *parts, const pare_value *v, const pare_value *y)
{
    const pare_concat_part *there = pare_parts_find(parts, v);
    if (!there) return PARE_OK;
    pare_concat_part part = *there;
    part.lies = y;
    return part_put(parts, y, &part);
}

bool pare_parts_joined(const pare_parts *parts, const pare_node *node, int piece)
{
    pare_concat_part row, part = {0};
    int64_t each;
    if (!is_joint(node)) return false;
    const parts_joint j = joint_of(node);
    if (piece >= j.count || !joint_row(parts, &j, &row, &each)) return false;
    for (int i = 0; i <= piece; i++) part = next_part(&j, i, each, &row);
    return lies_there(parts, &j, piece, &part);
}

bool pare_parts_all_joined(const pare_parts *parts, const pare_node *node)
{
    int joined = 0;
    if (!is_joint(node)) return false;
    const parts_joint j = joint_of(node);
    for (parts_walk w = walk_of(parts, &j); walk_next(&w);) joined++;
    return joined == j.count;
}

size_t pare_parts_joined_bytes(const pare_parts *parts, const pare_node *node)
{
    const pare_value *v;
    size_t bytes = 0;
    if (!is_joint(node)) return 0;
    const parts_joint j = joint_of(node);
    for (parts_walk w = walk_of(parts, &j); (v = walk_next(&w));) bytes += bytes_of(v);
    return bytes;
}
