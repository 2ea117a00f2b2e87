/* SPDX-License-Identifier: Apache-2.0 */
/* Which number format each vertex of a graph gets, so that the sum of what vertices cost in it and
   of what conversions along edges cost is least.

   Exact: one vertex after the other is eliminated, the one with the fewest neighbours first; what
   it costs at best is a table over their formats (Bertele, Brioschi 1972, "Nonserial Dynamic
   Programming"). Nets are narrow: a chain has one neighbour, a residual block two. Where a table
   would have more than WIDTH vertices: alpha-expansion by minimum cuts (Boykov, Veksler, Zabih
   2001, IEEE TPAMI 23(11)), within twice the least sum of conversions. */
#include "quant/latency/internal.h"

#include <string.h>

enum { LABELS = PARE_IN_COUNT, WIDTH = 8, MOST_EXACT = 4096 /* vertices: a matrix of them */ };

static int64_t limited(int64_t cost) { return cost < PARE_CUT_INFINITE ? cost : PARE_CUT_INFINITE; }

int64_t pare_assignment_cost(const pare_assignment *a, const pare_quant_format *place)
{
    int64_t sum = 0;
    for (int v = 0; v < a->count; v++) sum = limited(sum + a->cost[v][place[v]]);
    for (int e = 0; e < a->edges; e++) {
        const pare_format_edge *edge = &a->edge[e];
        sum = limited(sum + edge->convert[place[edge->from]][place[edge->to]]);
    }
    return sum;
}

/* --- elimination --- */

/* Costs by the formats of some vertices: the first one's counts single entries. */
typedef struct table {
    int vertex[WIDTH + 1], count;
    int64_t *cost;         /* (LABELS to the power of count) */
    unsigned char *choice; /* of the eliminated vertex; NULL: a given table */
    int chooses;           /* that vertex */
    bool gone;             /* it is in another one */
} table;

typedef struct elimination {
    const pare_assignment *a;
    pare_arena arena;
    table *item;
    int count;
    size_t capacity;
    bool *beside; /* (vertices, vertices) */
    int *degree;  /* (vertices) of those that are left; -1: eliminated */
    pare_quant_format *place;
} elimination;

static int entries(int count) { return count ? LABELS * entries(count - 1) : 1; }

static int entry_of(const table *t, const pare_quant_format *place)
{
    int at = 0;
    for (int i = t->count; i-- > 0;) at = at * LABELS + (int)place[t->vertex[i]];
    return at;
}

static pare_status table_new(elimination *x, const int *vertex, int count, table **out)
{
    if (!pare_arena_grow(&x->arena, &x->item, &x->capacity, (size_t)x->count, sizeof *x->item))
        return PARE_MEMORY;
    table *t = &x->item[x->count++];
    *t = (table){.count = count, .chooses = -1};
    memcpy(t->vertex, vertex, (size_t)count * sizeof *vertex);
    t->cost = pare_arena_alloc(&x->arena, (size_t)entries(count), sizeof *t->cost);
    *out = t;
    return t->cost ? PARE_OK : PARE_MEMORY;
}

static void join(elimination *x, int a, int b)
{
    const size_t n = (size_t)x->a->count;
    if (a == b || x->beside[(size_t)a * n + (size_t)b]) return;
    x->beside[(size_t)a * n + (size_t)b] = x->beside[(size_t)b * n + (size_t)a] = true;
    x->degree[a]++;
    x->degree[b]++;
}

static pare_status fill(elimination *x)
{
    const pare_assignment *a = x->a;
    table *t;
    for (int v = 0; v < a->count; v++) {
        PARE_TRY(table_new(x, &v, 1, &t));
        memcpy(t->cost, a->cost[v], sizeof a->cost[v]);
    }
    for (int e = 0; e < a->edges; e++) {
        const int ends[] = {a->edge[e].from, a->edge[e].to};
        if (ends[0] == ends[1]) continue;
        PARE_TRY(table_new(x, ends, 2, &t));
        for (int from = 0; from < LABELS; from++)
            for (int to = 0; to < LABELS; to++)
                t->cost[from + LABELS * to] = a->edge[e].convert[from][to];
        join(x, ends[0], ends[1]);
    }
    return PARE_OK;
}

static int narrowest(const elimination *x)
{
    int best = -1;
    for (int v = 0; v < x->a->count; v++)
        if (x->degree[v] >= 0 && (best < 0 || x->degree[v] < x->degree[best])) best = v;
    return best;
}

static bool holds(const table *t, int v)
{
    for (int i = 0; i < t->count && !t->gone; i++)
        if (t->vertex[i] == v) return true;
    return false;
}

/* The formats of a table's vertices at entry `at`. */
static void set_places(const table *t, int at, pare_quant_format *place)
{
    for (int i = 0; i < t->count; i++, at /= LABELS)
        place[t->vertex[i]] = (pare_quant_format)(at % LABELS);
}

/* What v costs at best beside its neighbours, as they are placed. Equal: the shorter format. */
static void choose(elimination *x, const int *with, int count, int v, table *t, int at)
{
    t->cost[at] = INT64_MAX;
    for (int label = LABELS; label-- > 0;) {
        int64_t sum = 0;
        x->place[v] = (pare_quant_format)label;
        for (int i = 0; i < count; i++) {
            const table *from = &x->item[with[i]];
            sum = limited(sum + from->cost[entry_of(from, x->place)]);
        }
        if (sum >= t->cost[at]) continue;
        t->cost[at] = sum;
        t->choice[at] = (unsigned char)label;
    }
}

static pare_status eliminate(elimination *x, int v)
{
    int near[WIDTH], degree = 0, count = 0;
    table *t;
    for (int u = 0; u < x->a->count; u++)
        if (x->degree[u] >= 0 && x->beside[(size_t)v * (size_t)x->a->count + (size_t)u])
            near[degree++] = u;
    int *with = pare_arena_alloc(&x->arena, (size_t)x->count + 1, sizeof *with);
    if (!with) return PARE_MEMORY;
    for (int i = 0; i < x->count; i++)
        if (holds(&x->item[i], v)) with[count++] = i;
    PARE_TRY(table_new(x, near, degree, &t));
    t->chooses = v;
    t->choice = pare_arena_alloc(&x->arena, (size_t)entries(degree), 1);
    if (!t->choice) return PARE_MEMORY;
    for (int at = 0; at < entries(degree); at++) {
        set_places(t, at, x->place);
        choose(x, with, count, v, t, at);
    }
    for (int i = 0; i < count; i++) x->item[with[i]].gone = true;
    x->degree[v] = -1;
    for (int i = 0; i < degree; i++) x->degree[near[i]]--;
    for (int i = 0; i < degree; i++)
        for (int k = i + 1; k < degree; k++) join(x, near[i], near[k]);
    return PARE_OK;
}

static pare_status eliminate_all(elimination *x, bool *done)
{
    const size_t n = (size_t)x->a->count;
    x->beside = pare_arena_alloc(&x->arena, n * n + 1, sizeof *x->beside);
    x->degree = pare_arena_alloc(&x->arena, n + 1, sizeof *x->degree);
    if (!x->beside || !x->degree) return PARE_MEMORY;
    PARE_TRY(fill(x));
    for (int v; (v = narrowest(x)) >= 0;) {
        if (x->degree[v] > WIDTH) return PARE_OK;
        PARE_TRY(eliminate(x, v));
    }
    for (int i = x->count; i-- > 0;) {
        const table *t = &x->item[i];
        if (t->chooses >= 0)
            x->place[t->chooses] = (pare_quant_format)t->choice[entry_of(t, x->place)];
    }
    *done = true;
    return PARE_OK;
}

pare_status pare_assign_exactly(pare_ctx *ctx, const pare_assignment *a, pare_quant_format *place,
                                bool *done)
{
    elimination x = {.a = a, .place = place};
    *done = false;
    if (a->count > MOST_EXACT) return PARE_OK;
    pare_arena_init(&x.arena, ctx);
    const pare_status st = eliminate_all(&x, done);
    pare_arena_free(&x.arena);
    return st;
}

/* --- alpha-expansion --- */

typedef struct expansion {
    const pare_assignment *a;
    int64_t *source, *sink;   /* (vertices) */
    pare_cut_edge *edge;      /* (edges) */
    bool *keeps;              /* (vertices) its format, else it takes alpha */
    pare_quant_format *trial; /* (vertices) */
} expansion;

static void add_cost(int64_t *to, int64_t *otherwise, int64_t cost)
{
    if (cost > 0)
        *to += cost;
    else
        *otherwise -= cost;
}

/* Vertices on the source's side keep their format. Of an edge (u, v) with costs A where both keep
   it, B where v takes alpha, C where u does: A + (C - A) [u takes] - C [v takes]
   + (B + C - A) [u keeps, v takes], which is no less than 0 (triangle inequality). */
static void build(expansion *x, pare_quant_format alpha, const pare_quant_format *place)
{
    const pare_assignment *a = x->a;
    for (int v = 0; v < a->count; v++) {
        x->sink[v] = a->cost[v][place[v]];
        x->source[v] = a->cost[v][alpha];
    }
    for (int e = 0; e < a->edges; e++) {
        const pare_format_edge *edge = &a->edge[e];
        const int u = edge->from, v = edge->to;
        const int64_t both = edge->convert[place[u]][place[v]], to = edge->convert[place[u]][alpha],
                      from = edge->convert[alpha][place[v]];
        x->edge[e] = (pare_cut_edge){u, v, u == v ? 0 : to + from - both, 0};
        if (u == v) continue;
        add_cost(&x->source[u], &x->sink[u], from - both);
        add_cost(&x->source[v], &x->sink[v], -from);
    }
}

static pare_status expand(pare_ctx *ctx, expansion *x, pare_quant_format *place, int64_t *cost)
{
    const pare_assignment *a = x->a;
    const size_t bytes = (size_t)a->count * sizeof *place;
    for (bool better = true; better;) {
        better = false;
        for (int alpha = LABELS; alpha-- > 0;) {
            build(x, (pare_quant_format)alpha, place);
            PARE_TRY(pare_min_cut(ctx, a->count, x->source, x->sink, x->edge, a->edges, x->keeps));
            for (int v = 0; v < a->count; v++)
                x->trial[v] = x->keeps[v] ? place[v] : (pare_quant_format)alpha;
            const int64_t now = pare_assignment_cost(a, x->trial);
            if (now >= *cost) continue;
            *cost = now;
            memcpy(place, x->trial, bytes);
            better = true;
        }
    }
    return PARE_OK;
}

/* All vertices in one format, those that cannot be in their cheapest. */
static void uniform(const pare_assignment *a, pare_quant_format label, pare_quant_format *place)
{
    for (int v = 0; v < a->count; v++) {
        place[v] = label;
        for (int other = LABELS; other-- > 0;)
            if (a->cost[v][label] >= PARE_CUT_INFINITE && a->cost[v][other] < a->cost[v][place[v]])
                place[v] = (pare_quant_format)other;
    }
}

static pare_status expand_all(pare_ctx *ctx, expansion *x, pare_arena *arena,
                              pare_quant_format *place)
{
    const size_t n = (size_t)x->a->count + 1, edges = (size_t)x->a->edges + 1;
    int64_t least = INT64_MAX;
    x->source = pare_arena_alloc(arena, n, sizeof *x->source);
    x->sink = pare_arena_alloc(arena, n, sizeof *x->sink);
    x->edge = pare_arena_alloc(arena, edges, sizeof *x->edge);
    x->keeps = pare_arena_alloc(arena, n, sizeof *x->keeps);
    x->trial = pare_arena_alloc(arena, n, sizeof *x->trial);
    if (!x->source || !x->sink || !x->edge || !x->keeps || !x->trial) return PARE_MEMORY;
    for (int label = LABELS; label-- > 0;) {
        uniform(x->a, (pare_quant_format)label, x->trial);
        const int64_t cost = pare_assignment_cost(x->a, x->trial);
        if (cost >= least) continue;
        least = cost;
        memcpy(place, x->trial, (n - 1) * sizeof *place);
    }
    return expand(ctx, x, place, &least);
}

pare_status pare_assign_by_expansion(pare_ctx *ctx, const pare_assignment *a,
                                     pare_quant_format *place)
{
    expansion x = {.a = a};
    pare_arena arena;
    pare_arena_init(&arena, ctx);
    const pare_status st = expand_all(ctx, &x, &arena, place);
    pare_arena_free(&arena);
    return st;
}

pare_status pare_assign(pare_ctx *ctx, const pare_assignment *a, pare_quant_format *place)
{
    bool done;
    PARE_TRY(pare_assign_exactly(ctx, a, place, &done));
    return done ? PARE_OK : pare_assign_by_expansion(ctx, a, place);
}
