/* SPDX-License-Identifier: Apache-2.0 */
/* Where a graph is cut. A stage may begin at any node that runs; what crosses there are the tensors
   made before it and read from it on. A dynamic program over these places finds the stages: of the
   first j places in k stages, the best is the best of all first i in k - 1 stages with one more
   stage from i to j.

   Costs are relative, in bytes of memory moved. A node costs the bytes that it reads and writes, or
   its multiply-adds where these take longer. The rates decide where cuts are, and no result. */
#include "runtime/exec/stages.h"
#include "runtime/base/f8.h"
#include "runtime/exec/plan.h"
#include "runtime/ops/fused.h"

#include <math.h>

/* In the time in which a byte is moved: multiply-adds of 32 and 16 bits, of integers of 8 and of
   FP8. What a byte that is sent costs. What each node costs beside its work. */
typedef struct rates {
    double f32, f16, s8, f8, sent, node;
} rates;

/* An assumption about a core with vector instructions, on which f16 and FP8 are widened. Sending
   copies a byte three times: each reads and writes it. */
static const rates cpu = {.f32 = 4, .f16 = 4, .s8 = 16, .f8 = 4, .sent = 6};
/* NVIDIA H200 SXM: 67 T operations of FP32, 989 T of FP16 and 1,979 T of INT8 and FP8 a second
   (datasheet, dense), 2.9 TB/s of memory, copies to and from the host at 55 GB/s, and a launch
   in 1.2 us (eval/roofline). */
static const rates gpu = {.f32 = 12, .f16 = 170, .s8 = 340, .f8 = 340, .sent = 105, .node = 3.5e6};

/* A node that reads a constant, and the next one that does (node_count: none). */
typedef struct use {
    int node, next;
    size_t bytes;
} use;

/* What is known of the graph before it is cut. */
typedef struct cutter {
    const pare_graph *graph;
    int nodes; /* of it, that are cut */
    const pare_stage_split *split;
    const pare_value **weight; /* (split's) or NULL: it is not in the graph */
    pare_arena arena;
    const rates *rates;
    size_t most;  /* bytes of weights in a stage */
    int places;   /* where a stage may begin, and the end */
    int *at;      /* (places + 1) their nodes */
    double *cost; /* (places + 1) of all nodes before the place */
    double *sent; /* (places + 1) bytes that cross there */
    use *use;     /* in the order of the nodes */
    int uses;
    int *first;   /* (places + 1) of the uses at the place and behind it */
    int *pin;     /* (places) the stage that it must be of; -1: any */
    bool *joined; /* (places) no stage begins here: it reads a weight that the place before does */
    int *from;    /* (stages, places + 1) where the last of so many stages begins */
    struct best {
        double slowest, sent;
    } * best; /* (2, places + 1) */
} cutter;

static bool sized(const pare_value *v, size_t *bytes)
{
    const int64_t count = v ? pare_shape_count(&v->shape) : -1;
    return count >= 0 && pare_type_bytes(v->dtype, count, bytes);
}

/* The last position that reads v; `end` for outputs, -1 where nothing does. */
static int last_use(const pare_graph *g, const pare_value *v, int end)
{
    int last = v->is_output ? end : -1;
    for (int i = 0; i < v->user_count; i++)
        if (v->user[i]->graph == g && v->user[i]->mark > last) last = v->user[i]->mark;
    return last;
}

/* Nodes from `end` on are none of its readers. */
static void number_nodes(const pare_graph *g, int end)
{
    for (int i = 0; i < g->node_count; i++) g->node[i]->mark = i < end ? i : -1;
}

static double macs_a_byte(const rates *r, const pare_value *x)
{
    if (!x) return r->f32;
    if (pare_type_is_int8(x->dtype)) return r->s8;
    if (pare_type_is_f8(x->dtype)) return r->f8;
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
static void add_crossing(double *change, const cutter *c, const pare_value *v, int made)
{
    size_t bytes;
    const int last = v->data ? -1 : last_use(c->graph, v, c->nodes);
    if (last <= made || !sized(v, &bytes)) return;
    change[made + 1] += (double)bytes;
    change[last + 1] -= (double)bytes;
}

/* crossing: (nodes + 2), of which [b] becomes the bytes that cross before node b. */
static void count_crossing(const cutter *c, double *crossing)
{
    const pare_graph *g = c->graph;
    for (int i = 0; !c->split && i < g->in.count; i++) add_crossing(crossing, c, g->in.item[i], -1);
    for (int i = 0; i < c->nodes; i++)
        for (int k = 0; k < g->node[i]->out_count; k++)
            if (g->node[i]->out[k]) add_crossing(crossing, c, g->node[i]->out[k], i);
    for (int b = 1; b <= c->nodes; b++) crossing[b] += crossing[b - 1];
}

static pare_status list_add(pare_value **list, int *count, const pare_graph *g, pare_value *v,
                            int made, int at)
{
    if (v->data || made >= at || last_use(g, v, g->node_count) < at) return PARE_OK;
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
    number_nodes(g, g->node_count);
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

/* Bytes of a constant, or of a weight that has a gradient. */
static size_t weight_bytes(const cutter *c, const pare_value *v)
{
    size_t bytes = 0;
    if (v->data) return v->data->bytes;
    for (int k = 0; c->split && c->split->gradient && k < c->split->count; k++)
        if (c->weight[k] == v && c->split->gradient[k] && sized(v, &bytes)) return bytes;
    return 0;
}

static void add_use(cutter *c, const pare_node *node, const pare_value *v)
{
    const size_t bytes = weight_bytes(c, v);
    if (!bytes) return;
    use *u = &c->use[c->uses++];
    *u = (use){node->mark, c->nodes, bytes};
    for (int i = 0; i < v->user_count; i++)
        if (v->user[i]->graph == c->graph && v->user[i]->mark > node->mark &&
            v->user[i]->mark < u->next)
            u->next = v->user[i]->mark;
}

static pare_status list_uses(cutter *c)
{
    size_t most = 0;
    for (int i = 0; i < c->nodes; i++) most += (size_t)c->graph->node[i]->in_count;
    c->use = pare_arena_alloc(&c->arena, most + 1, sizeof *c->use);
    c->first = pare_arena_alloc(&c->arena, (size_t)c->places + 1, sizeof *c->first);
    if (!c->use || !c->first) return PARE_MEMORY;
    for (int i = 0, place = 0; i <= c->nodes; i++) {
        if (i == c->at[place]) c->first[place++] = c->uses;
        const pare_node *node = i < c->nodes ? c->graph->node[i] : NULL;
        for (int k = 0; node && k < node->in_count; k++)
            if (node->in[k] && !repeated(node, k)) add_use(c, node, node->in[k]);
    }
    return PARE_OK;
}

static pare_status list_places(cutter *c)
{
    const pare_graph *g = c->graph;
    const size_t n = (size_t)c->nodes;
    double cost = 0, *crossing = pare_arena_alloc(&c->arena, n + 2, sizeof *crossing);
    c->at = pare_arena_alloc(&c->arena, n + 1, sizeof *c->at);
    c->cost = pare_arena_alloc(&c->arena, n + 1, sizeof *c->cost);
    c->sent = pare_arena_alloc(&c->arena, n + 1, sizeof *c->sent);
    if (!crossing || !c->at || !c->cost || !c->sent) return PARE_MEMORY;
    number_nodes(g, c->nodes);
    count_crossing(c, crossing);
    for (int i = 0; i < c->nodes; i++) {
        if (!pare_op_is_alias(g->node[i])) {
            c->at[c->places] = c->places ? i : 0; /* what is before the first is of its stage */
            c->cost[c->places] = c->places ? cost : 0;
            c->sent[c->places++] = crossing[i];
        }
        cost += node_cost(c->rates, g->node[i]);
    }
    c->at[c->places] = c->nodes;
    c->cost[c->places] = cost;
    c->sent[c->places] = crossing[c->nodes];
    return PARE_OK;
}

/* --- weights that are read in one stage alone --- */

/* The place whose nodes this one is among. */
static int place_of(const cutter *c, int node)
{
    int low = 0, high = c->places;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        *(c->at[middle] <= node ? &low : &high) = middle;
    }
    return low;
}

static pare_status pin_place(cutter *c, int place, int k)
{
    const pare_stage_split *s = c->split;
    if (s->stage[k] < 0) return PARE_OK;
    if (c->pin[place] >= 0 && c->pin[place] != s->stage[k])
        return PARE_FAIL(c->graph->model->ctx, UNSUPPORTED,
                         "%s: weight '%s' of stage %d is read beside weights of stage %d",
                         c->graph->model->path, s->weight[k], s->stage[k], c->pin[place]);
    c->pin[place] = s->stage[k];
    return PARE_OK;
}

/* Places between the first and the last reader of weight k stay together. */
static pare_status join_readers(cutter *c, int k)
{
    const pare_value *v = c->weight[k];
    int first = c->places, last = -1;
    for (int i = 0; v && i < v->user_count; i++) {
        if (v->user[i]->graph != c->graph || v->user[i]->mark < 0) continue;
        const int place = place_of(c, v->user[i]->mark);
        if (place < first) first = place;
        if (place > last) last = place;
        PARE_TRY(pin_place(c, place, k));
    }
    for (int p = first + 1; p <= last; p++) c->joined[p] = true;
    return PARE_OK;
}

static pare_status read_split(cutter *c)
{
    const size_t count = c->split ? (size_t)c->split->count : 0;
    c->weight = pare_arena_alloc(&c->arena, count + 1, sizeof *c->weight);
    c->pin = pare_arena_alloc(&c->arena, (size_t)c->places + 1, sizeof *c->pin);
    c->joined = pare_arena_alloc(&c->arena, (size_t)c->places + 1, sizeof *c->joined);
    if (!c->weight || !c->pin || !c->joined) return PARE_MEMORY;
    for (int p = 0; p < c->places; p++) c->pin[p] = -1;
    for (size_t k = 0; k < count; k++) {
        c->weight[k] = pare_graph_find_own(c->graph, c->split->weight[k]);
        PARE_TRY(join_readers(c, (int)k));
    }
    return PARE_OK;
}

/* The stages that the cut has chosen for weights. */
static void write_split(const cutter *c, const pare_plan_stage *stage, int stages)
{
    for (int k = 0; c->split && k < c->split->count; k++) {
        const pare_value *v = c->weight[k];
        for (int i = 0; v && i < v->user_count; i++)
            for (int s = 0; v->user[i]->graph == c->graph && v->user[i]->mark >= 0 && s < stages;
                 s++)
                if (v->user[i]->mark >= stage[s].first) c->split->stage[k] = s;
    }
}

static pare_status cutter_open(cutter *c, int stages)
{
    const pare_model *m = c->graph->model;
    int begins = 0;
    PARE_TRY(list_places(c));
    PARE_TRY(read_split(c));
    for (int p = 0; p < c->places; p++) begins += !c->joined[p];
    if (c->places < stages)
        return PARE_FAIL(m->ctx, INPUT,
                         "%s: %d stages were asked for, but the graph has only %d node%s that run",
                         m->path, stages, c->places, c->places == 1 ? "" : "s");
    if (begins < stages)
        return PARE_FAIL(m->ctx, INPUT,
                         "%s: %d stages were asked for, but only %d can be: nodes that read the "
                         "same weight are of one stage",
                         m->path, stages, begins);
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
        if (c->pin[i] >= 0 && c->pin[i] != k) return;
        if (c->joined[i]) continue;
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
    if (!c->most)
        return PARE_FAIL(m->ctx, UNSUPPORTED,
                         "%s: cannot be cut into %d stages where the graph that is trained is cut; "
                         "take fewer",
                         m->path, stages);
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
    cutter c = {.graph = graph,
                .nodes = how->nodes ? how->nodes : graph->node_count,
                .split = how->split,
                .rates = how->device ? &gpu : &cpu,
                .most = how->weights};
    pare_arena_init(&c.arena, graph->model->ctx);
    pare_status st = cutter_open(&c, how->stages);
    if (st == PARE_OK) st = choose(&c, how->stages);
    for (int k = how->stages - 1, j = c.places, i; st == PARE_OK && k >= 0; k--, j = i) {
        i = c.from[k * (c.places + 1) + j];
        describe(&c, i, j, &out[k]);
    }
    if (st == PARE_OK) write_split(&c, out, how->stages);
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
