/* SPDX-License-Identifier: Apache-2.0 */
/* Where a graph is cut. A stage may begin at any node that runs; what crosses there are the tensors
   made before it and read from it on. A dynamic program over these places finds the stages: of the
   first j places in k stages, the best is the best of all first i in k - 1 stages with one more
   stage from i to j.

   Costs are relative, in bytes of memory moved. A node costs the bytes that it reads and writes, or
   its multiply-adds where these take longer. The rates decide where cuts are, and no result. */
#include "runtime/exec/stages.h"
#include "runtime/exec/plan.h"

#include <math.h>

/* In the time in which a byte is moved: multiply-adds of 32 and 16 bits and of integers of 8. What
   a byte that is sent costs. What each node costs beside its work. */
typedef struct rates {
    double f32, f16, s8, sent, node;
} rates;

/* An assumption about a core with vector instructions, on which f16 is widened. Sending copies a
   byte three times: each reads and writes it. */
static const rates cpu = {.f32 = 4, .f16 = 4, .s8 = 16, .sent = 6};
/* NVIDIA H200 SXM: 67 T operations of FP32, 989 T of FP16 and 1,979 T of INT8 a second (datasheet,
   dense), 2.9 TB/s of memory, copies to and from the host at 55 GB/s, and a launch in 1.2 us
   (eval/roofline). */
static const rates gpu = {.f32 = 12, .f16 = 170, .s8 = 340, .sent = 105, .node = 3.5e6};

/* A node that reads a constant, and the next one that does (node_count: none). */
typedef struct use {
    int node, next;
    size_t bytes;
} use;

/* What is known of the graph before it is cut. */
typedef struct cutter {
    const pare_graph *graph;
    pare_arena arena;
    const rates *rates;
    size_t most;  /* bytes of weights in a stage */
    int places;   /* where a stage may begin, and the end */
    int *at;      /* (places + 1) their nodes */
    double *cost; /* (places + 1) of all nodes before the place */
    double *sent; /* (places + 1) bytes that cross there */
    use *use;     /* in the order of the nodes */
    int uses;
    int *first; /* (places + 1) of the uses at the place and behind it */
    int *from;  /* (stages, places + 1) where the last of so many stages begins */
    struct best {
        double slowest, sent;
    } * best; /* (2, places + 1) */
} cutter;

static bool sized(const pare_value *v, size_t *bytes)
{
    const int64_t count = v ? pare_shape_count(&v->shape) : -1;
    return count >= 0 && pare_type_bytes(v->dtype, count, bytes);
}

/* The last position that reads v; node_count for outputs, -1 where nothing does. */
static int last_use(const pare_graph *g, const pare_value *v)
{
    int last = v->is_output ? g->node_count : -1;
    for (int i = 0; i < v->user_count; i++)
        if (v->user[i]->graph == g && v->user[i]->mark > last) last = v->user[i]->mark;
    return last;
}

static void number_nodes(const pare_graph *g)
{
    for (int i = 0; i < g->node_count; i++) g->node[i]->mark = i;
}

static double macs_a_byte(const rates *r, const pare_value *x)
{
    if (!x) return r->f32;
    if (x->dtype == PARE_s8 || x->dtype == PARE_u8) return r->s8;
    return x->dtype == PARE_f16 || x->dtype == PARE_bf16 ? r->f16 : r->f32;
}

static double node_cost(const rates *r, const pare_node *node)
{
    double moved = 0;
    size_t bytes;
    if (pare_op_is_alias(node)) return 0;
    for (int i = 0; i < node->in_count; i++)
        if (sized(node->in[i], &bytes)) moved += (double)bytes;
    for (int i = 0; i < node->out_count; i++)
        if (sized(node->out[i], &bytes)) moved += (double)bytes;
    return r->node + fmax(moved, pare_node_macs(node) / macs_a_byte(r, pare_node_in(node, 0)));
}

/* --- what crosses --- */

/* v, made at position `made`, crosses at all places behind it up to its last reader. */
static void add_crossing(double *change, const pare_graph *g, const pare_value *v, int made)
{
    size_t bytes;
    const int last = v->data ? -1 : last_use(g, v);
    if (last <= made || !sized(v, &bytes)) return;
    change[made + 1] += (double)bytes;
    change[last + 1] -= (double)bytes;
}

/* crossing: (node_count + 2), of which [b] becomes the bytes that cross before node b. */
static void count_crossing(const pare_graph *g, double *crossing)
{
    for (int i = 0; i < g->in.count; i++) add_crossing(crossing, g, g->in.item[i], -1);
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->node[i]->out_count; k++)
            if (g->node[i]->out[k]) add_crossing(crossing, g, g->node[i]->out[k], i);
    for (int b = 1; b <= g->node_count; b++) crossing[b] += crossing[b - 1];
}

static pare_status list_add(pare_value **list, int *count, const pare_graph *g, pare_value *v,
                            int made, int at)
{
    if (v->data || made >= at || last_use(g, v) < at) return PARE_OK;
    if (v->dtype == PARE_string)
        return PARE_FAIL(g->model->ctx, UNSUPPORTED,
                         "%s: tensor '%s' holds strings, which are not sent to another stage",
                         g->model->path, v->name);
    list[(*count)++] = v;
    return PARE_OK;
}

pare_status pare_graph_crossing(const pare_graph *g, int at, pare_arena *arena, pare_value ***out,
                                int *count)
{
    const pare_values *ends = at ? &g->out : &g->in;
    size_t most = (size_t)g->in.count + (size_t)g->out.count;
    for (int i = 0; i < g->node_count; i++) most += (size_t)g->node[i]->out_count;
    pare_value **list = pare_arena_alloc(arena, most + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    *out = list;
    *count = 0;
    if (!at || at == g->node_count) {
        for (int i = 0; i < ends->count; i++)
            if (at || !ends->item[i]->is_init) list[(*count)++] = ends->item[i];
        return PARE_OK;
    }
    number_nodes(g);
    for (int i = 0; i < g->in.count; i++) PARE_TRY(list_add(list, count, g, g->in.item[i], -1, at));
    for (int i = 0; i < at; i++)
        for (int k = 0; k < g->node[i]->out_count; k++)
            if (g->node[i]->out[k]) PARE_TRY(list_add(list, count, g, g->node[i]->out[k], i, at));
    return PARE_OK;
}

/* --- the cut --- */

static bool repeated(const pare_node *node, int k)
{
    for (int i = 0; i < k; i++)
        if (node->in[i] == node->in[k]) return true;
    return false;
}

static void add_use(cutter *c, const pare_node *node, const pare_value *v)
{
    use *u = &c->use[c->uses++];
    *u = (use){node->mark, c->graph->node_count, v->data->bytes};
    for (int i = 0; i < v->user_count; i++)
        if (v->user[i]->graph == c->graph && v->user[i]->mark > node->mark &&
            v->user[i]->mark < u->next)
            u->next = v->user[i]->mark;
}

static pare_status list_uses(cutter *c)
{
    size_t most = 0;
    for (int i = 0; i < c->graph->node_count; i++) most += (size_t)c->graph->node[i]->in_count;
    c->use = pare_arena_alloc(&c->arena, most + 1, sizeof *c->use);
    c->first = pare_arena_alloc(&c->arena, (size_t)c->places + 1, sizeof *c->first);
    if (!c->use || !c->first) return PARE_MEMORY;
    for (int i = 0, place = 0; i <= c->graph->node_count; i++) {
        if (i == c->at[place]) c->first[place++] = c->uses;
        const pare_node *node = i < c->graph->node_count ? c->graph->node[i] : NULL;
        for (int k = 0; node && k < node->in_count; k++)
            if (node->in[k] && node->in[k]->data && !repeated(node, k))
                add_use(c, node, node->in[k]);
    }
    return PARE_OK;
}

static pare_status list_places(cutter *c)
{
    const pare_graph *g = c->graph;
    const size_t n = (size_t)g->node_count;
    double cost = 0, *crossing = pare_arena_alloc(&c->arena, n + 2, sizeof *crossing);
    c->at = pare_arena_alloc(&c->arena, n + 1, sizeof *c->at);
    c->cost = pare_arena_alloc(&c->arena, n + 1, sizeof *c->cost);
    c->sent = pare_arena_alloc(&c->arena, n + 1, sizeof *c->sent);
    if (!crossing || !c->at || !c->cost || !c->sent) return PARE_MEMORY;
    number_nodes(g);
    count_crossing(g, crossing);
    for (int i = 0; i < g->node_count; i++) {
        if (!pare_op_is_alias(g->node[i])) {
            c->at[c->places] = c->places ? i : 0; /* what is before the first is of its stage */
            c->cost[c->places] = c->places ? cost : 0;
            c->sent[c->places++] = crossing[i];
        }
        cost += node_cost(c->rates, g->node[i]);
    }
    c->at[c->places] = g->node_count;
    c->cost[c->places] = cost;
    c->sent[c->places] = crossing[g->node_count];
    return PARE_OK;
}

static pare_status cutter_open(cutter *c, int stages)
{
    const pare_model *m = c->graph->model;
    PARE_TRY(list_places(c));
    if (c->places < stages)
        return PARE_FAIL(m->ctx, INPUT,
                         "%s: %d stages were asked for, but the graph has only %d node%s that run",
                         m->path, stages, c->places, c->places == 1 ? "" : "s");
    PARE_TRY(list_uses(c));
    const size_t row = (size_t)c->places + 1;
    c->from = pare_arena_alloc(&c->arena, row * (size_t)stages, sizeof *c->from);
    c->best = pare_arena_alloc(&c->arena, row * 2, sizeof *c->best);
    return c->from && c->best ? PARE_OK : PARE_MEMORY;
}

static double stage_cost(const cutter *c, int i, int j)
{
    return c->cost[j] - c->cost[i] + c->rates->sent * c->sent[j];
}

/* Bytes of the constants read between places i and i + 1, but for those that are read again before
   place j. */
static size_t new_weights(const cutter *c, int i, int j)
{
    size_t bytes = 0;
    for (int u = c->first[i]; u < c->first[i + 1]; u++)
        if (c->use[u].next >= c->at[j]) bytes += c->use[u].bytes;
    return bytes;
}

/* The last of k + 1 stages up to place j begins at i, as late as it can first: the longer it is,
   the more it costs and the more weights it has. */
static void choose_last(cutter *c, int k, int j)
{
    const int row = c->places + 1;
    const struct best *before = c->best + (k + 1) % 2 * row;
    struct best *best = &c->best[k % 2 * row + j];
    size_t weights = 0;
    best->slowest = INFINITY;
    for (int i = j - 1; i >= k; i--) {
        const double last = stage_cost(c, i, j);
        weights += new_weights(c, i, j);
        if (last > best->slowest || (c->most && weights > c->most)) return;
        if (k ? before[i].slowest == INFINITY : i > 0) continue;
        const double slowest = k ? fmax(last, before[i].slowest) : last,
                     sent = (k ? before[i].sent : 0) + c->sent[j];
        if (slowest > best->slowest || (slowest == best->slowest && sent >= best->sent)) continue;
        *best = (struct best){slowest, sent};
        c->from[k * row + j] = i;
    }
}

static pare_status choose(cutter *c, int stages)
{
    const pare_model *m = c->graph->model;
    for (int k = 0; k < stages; k++)
        for (int j = k + 1; j <= c->places; j++) choose_last(c, k, j);
    if (c->best[(stages - 1) % 2 * (c->places + 1) + c->places].slowest < INFINITY) return PARE_OK;
    return PARE_FAIL(m->ctx, INPUT,
                     "%s: cannot be cut into %d stage%s of at most %zu bytes of weights; take more "
                     "stages",
                     m->path, stages, stages == 1 ? "" : "s", c->most);
}

static void describe(const cutter *c, int i, int j, pare_plan_stage *s)
{
    const pare_graph *g = c->graph;
    *s = (pare_plan_stage){.first = c->at[i],
                           .count = c->at[j] - c->at[i],
                           .sent = (size_t)c->sent[j],
                           .cost = stage_cost(c, i, j)};
    for (int p = i; p < j; p++) s->weights += new_weights(c, p, j);
    for (int n = s->first; n < s->first + s->count; n++) {
        s->steps += !pare_op_is_alias(g->node[n]);
        s->macs += fmax(0, pare_node_macs(g->node[n]));
    }
}

void pare_cut_options_init(pare_cut_options *out) { *out = (pare_cut_options){.stages = 1}; }

pare_status pare_graph_cut(const pare_graph *graph, const pare_cut_options *how,
                           pare_plan_stage *out)
{
    cutter c = {.graph = graph, .rates = how->device ? &gpu : &cpu, .most = how->weights};
    pare_arena_init(&c.arena, graph->model->ctx);
    pare_status st = cutter_open(&c, how->stages);
    if (st == PARE_OK) st = choose(&c, how->stages);
    for (int k = how->stages - 1, j = c.places, i; st == PARE_OK && k >= 0; k--, j = i) {
        i = c.from[k * (c.places + 1) + j];
        describe(&c, i, j, &out[k]);
    }
    pare_arena_free(&c.arena);
    return st;
}

/* --- the schedule --- */

pare_status pare_stages_bubble(pare_ctx *ctx, double *out, const double *cost, int stages,
                               int64_t microbatches, int window)
{
    const int64_t kept = window && window < microbatches ? window : microbatches;
    double *done = pare_alloc(ctx, (size_t)stages, sizeof *done);
    double *left = pare_alloc(ctx, (size_t)kept, sizeof *left); /* when the last ones came out */
    pare_status st = done && left ? PARE_OK : PARE_MEMORY;
    double work = 0;
    for (int s = 0; s < stages; s++) work += cost[s];
    for (int64_t m = 0; st == PARE_OK && m < microbatches; m++) {
        double at = m >= kept ? left[m % kept] : 0;
        for (int s = 0; s < stages; s++) at = done[s] = fmax(at, done[s]) + cost[s];
        left[m % kept] = at;
    }
    if (st == PARE_OK)
        *out = microbatches > 0 && work > 0
                   ? 1 - (double)microbatches * work / (stages * done[stages - 1])
                   : 0;
    pare_free(done);
    pare_free(left);
    return st;
}
