/* SPDX-License-Identifier: Apache-2.0 */
/* The assignment of nodes to float and int8 that takes the least time. */
#include "quant/internal.h"
#include "quant/latency/internal.h"
#include "quant/output_error.h"
#include "runtime/base/version.h"
#include "runtime/passes/passes.h"

#include <math.h>

enum { ROUNDS = 5 };                    /* assignments that are timed, the one of all int8 first */
static const double PICOSECONDS = 1e12; /* in a second: capacities are whole numbers */
static const double GAIN = 0.02;        /* what a node must be faster in float to stay float; what a
                                           whole model must be faster to have more float nodes */

/* One assignment, timed. */
typedef struct trial {
    bool *is_float; /* (nodes) */
    pare_quant_times times;
} trial;

typedef struct search {
    pare_ctx *ctx;
    pare_model *model; /* prepared */
    const pare_ranges *ranges;
    const pare_quant_options *options;
    const pare_quant_latency_options *how;
    pare_arena arena;
    pare_machine_table *table;
    pare_model *sized; /* with the shapes of the run that is timed */
    pare_node **all;   /* nodes of the model and its bodies, as options->keep has them */
    int *place;        /* (all_count) among the main graph's; -1: of a body */
    int all_count, count;
    pare_ptr_map at; /* node of the main graph -> its place */
    pare_range *chosen;
    const char **stays_float; /* (all_count) scratch of a trial */
    pare_quant_times reference;
    trial trial[ROUNDS];
    int trials, timed;
    double *in_float, *in_int8; /* (count) seconds of the step that a node heads */
    double quantize, dequantize;
} search;

/* --- models and their times --- */

static const pare_machine_table_kind kind = {
    "placement.json", "pare_placement", "a table of placement times", "models are timed again"};

/* What times depend on: the structure of what is run, not the numbers in it. */
static pare_status key_of(search *s, const pare_model *model, char key[33])
{
    pare_hash sum = {0};
    pare_node **all;
    int count;
    PARE_TRY(pare_graph_all_nodes(model->graph, &s->arena, &all, &count));
    const int threads = s->how->threads > 0 ? s->how->threads : pare_cpu_cores();
    pare_key_add(&sum, 0, PARE_VERSION, sizeof PARE_VERSION);
    pare_key_add(&sum, 1, &threads, sizeof threads);
    for (int i = 0; i < s->how->shape_count; i++) {
        const pare_input_shape *in = &s->how->shapes[i];
        pare_key_add(&sum, 2 + 2 * i, in->name, strlen(in->name));
        pare_key_add(&sum, 3 + 2 * i, in->shape.dim,
                     (size_t)in->shape.rank * sizeof *in->shape.dim);
    }
    for (int n = 0; n < count; n++) {
        const pare_node *node = all[n];
        pare_hash one = {0};
        pare_key_add(&one, 1, node->op_type, strlen(node->op_type));
        pare_key_add(&one, 2, pare_quant_node_name(node), strlen(pare_quant_node_name(node)));
        pare_key_add_attrs(&one, node);
        for (int i = 0; i < node->in_count; i++) {
            const pare_value *v = node->in[i];
            const int facts[3] = {v ? (int)v->dtype : -1, v && v->data, v ? v->shape.rank : 0};
            if (v) pare_key_add(&one, 100 + 3 * i, v->name, strlen(v->name));
            pare_key_add(&one, 101 + 3 * i, facts, sizeof facts);
            if (v && v->shape.rank > 0)
                pare_key_add(&one, 102 + 3 * i, v->shape.dim,
                             (size_t)v->shape.rank * sizeof *v->shape.dim);
        }
        pare_key_add(&sum, 1000 + n, &one, sizeof one);
    }
    pare_hash_text(sum, key);
    return PARE_OK;
}

static pare_status measure(search *s, const pare_model *model, pare_quant_times *out)
{
    const pare_quant_latency_options *how = s->how;
    const pare_log_fn log = s->ctx->log;
    s->ctx->log = NULL; /* plans would say every kernel many times */
    const pare_status st = how->measure
                               ? how->measure(how->measure_user, s->model, model, out)
                               : pare_quant_times_measure(s->ctx, s->model, model, how, out);
    s->ctx->log = log;
    PARE_TRY(st);
    s->timed++;
    if (how->progress) how->progress(how->progress_user, s->timed, 0);
    return pare_ctx_poll(s->ctx);
}

/* From the table, else from a run, and then into the table at once: a search that is killed goes on
   where it was. */
static pare_status times_of(search *s, const pare_model *model, pare_quant_times *out)
{
    char key[33];
    PARE_TRY(key_of(s, model, key));
    PARE_TRY(pare_quant_times_new(out, &s->arena, s->count));
    const json_t *known = pare_machine_table_find(s->table, key);
    if (known && pare_quant_times_parse(known, out)) return PARE_OK;
    PARE_TRY(pare_quant_times_new(out, &s->arena, s->count));
    PARE_TRY(measure(s, model, out));
    if (out->against.disturbed) return PARE_OK; /* the next search measures again */
    PARE_TRY(pare_machine_table_put(s->table, key, pare_quant_times_json(out)));
    pare_machine_table_store(s->table);
    return PARE_OK;
}

/* Quantizes with the trial's float nodes and times it. */
static pare_status try_it(search *s, trial *t)
{
    pare_model *model;
    pare_quant_options options = *s->options;
    for (int i = 0; i < s->all_count; i++)
        s->stays_float[i] = s->place[i] >= 0 && t->is_float[s->place[i]] ? "" : NULL;
    options.float_for_latency = s->stays_float;
    options.inputs = options.correct = NULL; /* what the numbers are takes no time of a run */
    options.chosen = s->chosen;
    PARE_TRY(pare_model_clone(s->ctx, &model, s->model));
    const pare_log_fn log = s->ctx->log;
    s->ctx->log = NULL; /* a trial's notes are not the result's */
    pare_status st = pare_quantize(s->ctx, model, s->ranges, &options, NULL);
    s->ctx->log = log;
    if (st == PARE_OK) st = times_of(s, model, &t->times);
    pare_model_free(model);
    return st;
}

/* --- what a node costs --- */

/* The step of a trial that has node i has float nodes, or int8 ones, as it is headed. */
static pare_status learn(search *s, const trial *t)
{
    const pare_quant_times *now = &t->times, *int8 = &s->trial[0].times;
    double *seconds = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof *seconds);
    if (!seconds) return PARE_MEMORY;
    for (int i = 0; i < s->count; i++) seconds[int8->head[i]] += now->seconds[i];
    for (int i = 0; i < s->count; i++) {
        if (int8->head[i] != i || !int8->integer[i]) continue;
        if (now->integer[now->head[i]])
            s->in_int8[i] = seconds[i];
        else
            s->in_float[i] = seconds[i];
    }
    if (now->quantize > 0) s->quantize = now->quantize;
    if (now->dequantize > 0) s->dequantize = now->dequantize;
    return PARE_OK;
}

static void learn_float(search *s)
{
    const pare_quant_times *int8 = &s->trial[0].times;
    for (int i = 0; i < s->count; i++) s->in_float[int8->head[i]] += s->reference.seconds[i];
}

/* --- the assignment --- */

static int64_t capacity(double seconds) { return (int64_t)fmin(seconds * PICOSECONDS, 1e14); }

static double elements_of(const search *s, const pare_value *v)
{
    const pare_value *sized = pare_graph_find_own(s->sized->graph, v->name);
    return pare_quant_values(sized ? sized : v);
}

typedef struct network {
    int64_t *source, *sink; /* (count + 1); the last vertex is what is always float */
    pare_cut_edge *edge;
    int edges;
    size_t capacity;
} network;

static pare_status add_edge(search *s, network *n, int from, int to, double elements)
{
    if (from == to) return PARE_OK;
    if (!pare_arena_grow(&s->arena, &n->edge, &n->capacity, (size_t)n->edges, sizeof *n->edge))
        return PARE_MEMORY;
    n->edge[n->edges++] = (pare_cut_edge){from, to, capacity(elements * s->quantize),
                                          capacity(elements * s->dequantize)};
    return PARE_OK;
}

/* Vertices are the steps of the model that is all int8, by their heads. On the source's side:
   float. A cut edge from there is a QuantizeLinear, one to there a DequantizeLinear. */
static pare_status build(search *s, network *n)
{
    const pare_quant_times *int8 = &s->trial[0].times;
    const pare_graph *g = s->model->graph;
    n->source = pare_arena_alloc(&s->arena, (size_t)s->count + 2, sizeof *n->source);
    n->sink = pare_arena_alloc(&s->arena, (size_t)s->count + 2, sizeof *n->sink);
    if (!n->source || !n->sink) return PARE_MEMORY;
    n->source[s->count] = PARE_CUT_INFINITE;
    for (int i = 0; i < s->count; i++) {
        if (int8->head[i] != i) continue;
        n->source[i] = int8->integer[i] ? capacity(s->in_int8[i]) : PARE_CUT_INFINITE;
        n->sink[i] = int8->integer[i] ? capacity(s->in_float[i] * (1 + GAIN)) : 0;
    }
    for (int i = 0; i < s->count; i++)
        for (int k = 0; k < g->node[i]->in_count; k++) {
            const pare_value *v = g->node[i]->in[k];
            if (!v || v->data || v->dtype != PARE_f32 || v->graph != g) continue;
            const int from =
                v->producer ? int8->head[pare_ptr_map_find(&s->at, v->producer)] : s->count;
            PARE_TRY(add_edge(s, n, from, int8->head[i], elements_of(s, v)));
        }
    return PARE_OK;
}

/* A weighted node that is int8 where it may. */
static bool could_be(const search *s, int i)
{
    const pare_quant_times *int8 = &s->trial[0].times;
    return pare_quant_kind_of(s->model->graph->node[i]) == PARE_QUANT_WEIGHTED &&
           int8->integer[int8->head[i]];
}

static bool any_int8(const search *s, const bool *side)
{
    for (int i = 0; i < s->count; i++)
        if (could_be(s, i) && !side[s->trial[0].times.head[i]]) return true;
    return false;
}

/* Something has to be int8: the step that loses least by it. -1: there is none. */
static int least_loss(const search *s, const network *n)
{
    int best = -1;
    int64_t least = 0;
    for (int i = 0; i < s->count; i++) {
        if (!could_be(s, i) || s->trial[0].times.head[i] != i) continue;
        int64_t loss = n->source[i] - n->sink[i];
        for (int e = 0; e < n->edges; e++)
            loss += n->edge[e].to == i     ? n->edge[e].forth
                    : n->edge[e].from == i ? n->edge[e].back
                                           : 0;
        if (best >= 0 && loss >= least) continue;
        best = i;
        least = loss;
    }
    return best;
}

/* False: one like it was timed already. */
static pare_status assign(search *s, trial *t, bool *fresh)
{
    network n = {0};
    const pare_quant_times *int8 = &s->trial[0].times;
    bool *side = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof *side);
    t->is_float = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof *t->is_float);
    if (!side || !t->is_float) return PARE_MEMORY;
    PARE_TRY(build(s, &n));
    PARE_TRY(pare_min_cut(s->ctx, s->count + 1, n.source, n.sink, n.edge, n.edges, side));
    if (!any_int8(s, side)) {
        const int least = least_loss(s, &n);
        if (least >= 0) side[least] = false;
    }
    for (int i = 0; i < s->count; i++) t->is_float[i] = could_be(s, i) && side[int8->head[i]];
    *fresh = true;
    for (int k = 0; *fresh && k < s->trials; k++)
        *fresh = memcmp(t->is_float, s->trial[k].is_float, (size_t)s->count) != 0;
    return PARE_OK;
}

/* --- the search --- */

static pare_status open_search(search *s)
{
    const pare_infer_options infer = {.fold = true, .lenient = true, .fold_limit = 1 << 16};
    pare_graph *g = s->model->graph;
    s->count = g->node_count;
    PARE_TRY(pare_graph_all_nodes(g, &s->arena, &s->all, &s->all_count));
    s->place = pare_arena_alloc(&s->arena, (size_t)s->all_count + 1, sizeof *s->place);
    if (!s->place) return PARE_MEMORY;
    pare_ptr_map_init(&s->at, &s->arena);
    for (int i = 0; i < s->count; i++) PARE_TRY(pare_ptr_map_put(&s->at, g->node[i], i));
    for (int i = 0; i < s->all_count; i++) s->place[i] = pare_ptr_map_find(&s->at, s->all[i]);
    s->stays_float = pare_arena_alloc(&s->arena, (size_t)s->all_count + 1, sizeof *s->stays_float);
    s->in_float = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof *s->in_float);
    s->in_int8 = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof *s->in_int8);
    s->trial[0].is_float = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof(bool));
    if (!s->stays_float || !s->in_float || !s->in_int8 || !s->trial[0].is_float) return PARE_MEMORY;
    PARE_TRY(pare_machine_table_open(s->ctx, &s->table, s->how->cache_dir, s->how->device, &kind));
    PARE_TRY(pare_model_clone(s->ctx, &s->sized, s->model));
    for (int i = 0; i < s->how->shape_count; i++) {
        pare_value *v = pare_graph_find_own(s->sized->graph, s->how->shapes[i].name);
        if (v) pare_value_set_type(v, v->dtype, &s->how->shapes[i].shape);
    }
    PARE_TRY(pare_pass_infer(s->sized, &infer));
    return pare_quant_rule(s->ctx, s->ranges, s->options, &s->chosen);
}

static pare_status find(search *s, const trial **best)
{
    PARE_TRY(open_search(s));
    PARE_TRY(try_it(s, &s->trial[0]));
    PARE_TRY(times_of(s, s->model, &s->reference));
    PARE_TRY(learn(s, &s->trial[0]));
    learn_float(s);
    *best = &s->trial[0];
    for (s->trials = 1; s->trials < ROUNDS; s->trials++) {
        trial *next = &s->trial[s->trials];
        bool fresh;
        PARE_TRY(assign(s, next, &fresh));
        if (!fresh) break;
        PARE_TRY(try_it(s, next));
        PARE_TRY(learn(s, next));
        const double now = next->times.against.ratio, before = (*best)->times.against.ratio;
        pare_log(s->ctx, PARE_LOG_INFO, "placement %d: %.3g of the float model's time", s->trials,
                 now);
        if (now < before * (1 - GAIN)) *best = next;
    }
    return PARE_OK;
}

static pare_status name_float_nodes(const search *s, const trial *best, const char *const **out)
{
    pare_arena *arena = &s->model->arena;
    const pare_quant_times *int8 = &s->trial[0].times;
    const char **made = pare_arena_alloc(arena, (size_t)s->all_count + 1, sizeof *made);
    if (!made) return PARE_MEMORY;
    for (int i = 0; i < s->all_count; i++) {
        if (s->place[i] < 0 || !best->is_float[s->place[i]]) continue;
        const int head = int8->head[s->place[i]];
        made[i] = pare_arena_printf(arena, "it takes %.3g us in float and %.3g us as int8",
                                    1e6 * s->in_float[head], 1e6 * s->in_int8[head]);
        if (!made[i]) return PARE_MEMORY;
    }
    *out = made;
    return PARE_OK;
}

pare_status pare_quant_find_fastest(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                                    const pare_quant_options *options,
                                    const pare_quant_latency_options *how,
                                    const char *const **float_nodes, pare_quant_latency *out)
{
    search s = {.ctx = ctx, .model = model, .ranges = ranges, .options = options, .how = how};
    const trial *best = NULL;
    *float_nodes = NULL;
    pare_arena_init(&s.arena, ctx);
    pare_status st = find(&s, &best);
    if (st == PARE_OK && best != &s.trial[0]) st = name_float_nodes(&s, best, float_nodes);
    if (st == PARE_OK)
        *out = (pare_quant_latency){s.trial[0].times.against, best->times.against, s.timed};
    pare_free(s.chosen);
    pare_model_free(s.sized);
    pare_machine_table_free(s.table);
    pare_arena_free(&s.arena);
    return st;
}
