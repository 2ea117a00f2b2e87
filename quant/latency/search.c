/* SPDX-License-Identifier: Apache-2.0 */
/* The assignment of nodes to int8, FP16 and FP32 that takes the least time. */
#include "quant/internal.h"
#include "quant/latency/internal.h"
#include "quant/output_error.h"
#include "runtime/base/version.h"
#include "runtime/passes/passes.h"

#include <math.h>

enum { ROUNDS = 5 };                    /* assignments that are timed, the one of all int8 first */
static const double PICOSECONDS = 1e12; /* in a second: capacities are whole numbers */
static const double GAIN = 0.02;        /* what a node must be faster in a longer format to have it;
                                           what a whole model must be faster to have more such nodes */

/* One assignment, timed. */
typedef struct trial {
    pare_quant_format *place; /* (nodes) of the step that has it */
    pare_quant_times times;
} trial;

typedef struct search {
    pare_ctx *ctx;
    pare_model *model; /* prepared */
    const pare_ranges *ranges;
    const pare_quant_options *options;
    const pare_quant_latency_options *how;
    pare_quant_format in_float; /* the format of float nodes, where nothing is against it */
    pare_arena arena;
    pare_machine_table *table;
    pare_model *sized; /* with the shapes of the run that is timed */
    pare_node **all;   /* nodes of the model and its bodies, as options->keep has them */
    int *place;        /* (all_count) among the main graph's; -1: of a body */
    int all_count, count;
    pare_ptr_map at; /* node of the main graph -> its place */
    pare_range *chosen;
    const char **stays_float, **stays_f32; /* (all_count) scratch of a trial */
    trial trial[ROUNDS];
    int trials, timed;
    double *seconds[PARE_IN_COUNT]; /* (count) of the step that a node heads, in each format */
    bool *is_f16;                   /* (count) some node of that step can be */
    double rate[PARE_IN_COUNT][PARE_IN_COUNT]; /* seconds an element from one format to another */
    bool least; /* conversions count at their least: one for all readers of a tensor, none behind a
                   product of integers; else each reader pays, as if it were the only one */
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
    const pare_status st = how->measure ? how->measure(how->measure_user, s->model, model, out)
                           : how->gpu ? pare_quant_times_predict(s->ctx, s->model, model, how, out)
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

/* A weighted node that is int8 where it may. */
static bool could_be(const search *s, int i)
{
    const pare_quant_times *int8 = &s->trial[0].times;
    return pare_quant_kind_of(s->model->graph->node[i]) == PARE_QUANT_WEIGHTED &&
           int8->place[int8->head[i]] == PARE_IN_INT8;
}

/* Node i of the main graph, -1: another one. */
static bool stays_float(const search *s, const trial *t, int i)
{
    return i >= 0 && t != &s->trial[0] && could_be(s, i) && t->place[i] != PARE_IN_INT8;
}

static bool stays_f32(const search *s, const trial *t, int i)
{
    return i >= 0 && t != &s->trial[0] && s->is_f16[s->trial[0].times.head[i]] &&
           t->place[i] == PARE_IN_F32;
}

/* Quantizes with the trial's float nodes and times it. */
static pare_status try_it(search *s, trial *t)
{
    pare_model *model;
    pare_quant_options options = *s->options;
    for (int i = 0; i < s->all_count; i++) {
        s->stays_float[i] = stays_float(s, t, s->place[i]) ? "" : NULL;
        s->stays_f32[i] = stays_f32(s, t, s->place[i]) ? "" : NULL;
    }
    options.float_for_latency = s->stays_float;
    options.f32_for_latency = s->in_float == PARE_IN_F16 ? s->stays_f32 : NULL;
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

/* Adds the times of a model up by the steps of the one that is all int8. */
static pare_status by_step(search *s, const pare_quant_times *now, double **out)
{
    *out = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (int i = 0; i < s->count; i++) (*out)[s->trial[0].times.head[i]] += now->seconds[i];
    return PARE_OK;
}

static void learn_rates(search *s, const pare_quant_times *now)
{
    static const pare_quant_format in_float[] = {PARE_IN_F32, PARE_IN_F16};
    for (int i = 0; i < 2; i++) {
        if (now->quantize > 0) s->rate[in_float[i]][PARE_IN_INT8] = now->quantize;
        if (now->dequantize > 0) s->rate[PARE_IN_INT8][in_float[i]] = now->dequantize;
        if (now->cast > 0) s->rate[in_float[i]][in_float[1 - i]] = now->cast;
    }
}

/* The step of a trial that has node i has nodes of one format, as it is headed. */
static pare_status learn(search *s, const trial *t)
{
    const pare_quant_times *now = &t->times, *int8 = &s->trial[0].times;
    double *seconds;
    PARE_TRY(by_step(s, now, &seconds));
    for (int i = 0; i < s->count; i++) {
        if (int8->head[i] != i) continue;
        s->seconds[now->place[now->head[i]]][i] = seconds[i];
    }
    learn_rates(s, now);
    return PARE_OK;
}

/* --- steps that only a float model has --- */

/* Of the all-int8 model's steps: those of node i's become step `to`'s. */
static void step_join(search *s, int i, int to)
{
    pare_quant_times *int8 = &s->trial[0].times;
    const int from = int8->head[i];
    if (from == to) return;
    for (int k = 0; k < s->count; k++)
        if (int8->head[k] == from) int8->head[k] = to;
    if (int8->place[from] > int8->place[to]) int8->place[to] = int8->place[from];
}

/* A float model computes several products of the all-int8 one in one step, as attention: they
   change their format together, with what is between them. */
static void steps_join(search *s, const pare_quant_times *floats)
{
    for (int h = 0; h < s->count; h++) {
        int products = 0, first = -1;
        for (int i = 0; i < s->count; i++)
            if (floats->head[i] == h &&
                pare_quant_kind_of(s->model->graph->node[i]) == PARE_QUANT_WEIGHTED && !products++)
                first = s->trial[0].times.head[i];
        for (int i = 0; products > 1 && i < s->count; i++)
            if (floats->head[i] == h) step_join(s, i, first);
    }
}

/* The model in FP16; *out has no nodes where none can be FP16. */
static pare_status time_f16(search *s, pare_quant_times *out)
{
    const pare_quant_options f16 = {.precision = PARE_PRECISION_FP16};
    const pare_ranges *seen = s->options->float_ranges;
    pare_model *model;
    *out = (pare_quant_times){0};
    PARE_TRY(pare_model_clone(s->ctx, &model, s->model));
    const pare_log_fn log = s->ctx->log;
    s->ctx->log = NULL;
    pare_status st = pare_quantize(s->ctx, model, seen ? seen : s->ranges, &f16, NULL);
    s->ctx->log = log;
    if (st == PARE_OK)
        st = times_of(s, model, out);
    else if (st == PARE_INPUT) {
        pare_ctx_clear(s->ctx);
        st = PARE_OK;
    }
    pare_model_free(model);
    return st;
}

static pare_status learn_float(search *s, const pare_quant_times *times, pare_quant_format place)
{
    PARE_TRY(by_step(s, times, &s->seconds[place]));
    for (int i = 0; i < s->count; i++)
        if (times->place[i] == PARE_IN_F16) s->is_f16[s->trial[0].times.head[i]] = true;
    learn_rates(s, times);
    return PARE_OK;
}

/* From models that are float throughout, and the one that is all int8. */
static pare_status learn_all(search *s)
{
    pare_quant_times f32, f16 = {0};
    PARE_TRY(times_of(s, s->model, &f32));
    if (s->in_float == PARE_IN_F16) PARE_TRY(time_f16(s, &f16));
    steps_join(s, &f32);
    if (f16.count) steps_join(s, &f16);
    PARE_TRY(learn_float(s, &f32, PARE_IN_F32));
    if (f16.count) PARE_TRY(learn_float(s, &f16, PARE_IN_F16));
    return learn(s, &s->trial[0]);
}

/* --- the assignment --- */

static int64_t capacity(double seconds) { return (int64_t)fmin(seconds * PICOSECONDS, 1e14); }

static double elements_of(const search *s, const pare_value *v)
{
    const pare_value *sized = pare_graph_find_own(s->sized->graph, v->name);
    return pare_quant_values(sized ? sized : v);
}

/* What a conversion takes at best, perhaps by a third format. */
static void close_rates(const search *s, double rate[PARE_IN_COUNT][PARE_IN_COUNT])
{
    memcpy(rate, s->rate, sizeof s->rate);
    for (int k = 0; k < PARE_IN_COUNT; k++)
        for (int i = 0; i < PARE_IN_COUNT; i++)
            for (int j = 0; j < PARE_IN_COUNT; j++)
                rate[i][j] = fmin(rate[i][j], rate[i][k] + rate[k][j]);
}

/* Of a unit, by its head. */
static bool is_product(const search *s, int head)
{
    return head < s->count &&
           pare_quant_kind_of(s->model->graph->node[head]) == PARE_QUANT_WEIGHTED;
}

static pare_status add_edge(search *s, pare_assignment *a, int from, int to, double elements)
{
    double rate[PARE_IN_COUNT][PARE_IN_COUNT];
    if (from == to) return PARE_OK;
    if (!pare_arena_grow(&s->arena, &a->edge, &a->capacity, (size_t)a->edges, sizeof *a->edge))
        return PARE_MEMORY;
    pare_format_edge *edge = &a->edge[a->edges++];
    *edge = (pare_format_edge){.from = from, .to = to};
    close_rates(s, rate);
    for (int i = 0; i < PARE_IN_COUNT; i++)
        for (int k = 0; k < PARE_IN_COUNT; k++)
            edge->convert[i][k] = i == k || (i == PARE_IN_INT8 && s->least && is_product(s, from))
                                      ? 0
                                      : capacity(elements * rate[i][k]);
    return PARE_OK;
}

/* Of a longer format than it could have, what it must be faster by. */
static void price(const search *s, int i, int64_t cost[PARE_IN_COUNT])
{
    const bool int8 = s->trial[0].times.place[i] == PARE_IN_INT8;
    const bool f16 = s->in_float == PARE_IN_F16 && s->is_f16[i];
    const double gain = int8 ? 1 + GAIN : 1;
    cost[PARE_IN_INT8] = int8 ? capacity(s->seconds[PARE_IN_INT8][i]) : PARE_CUT_INFINITE;
    cost[PARE_IN_F16] = f16 ? capacity(s->seconds[PARE_IN_F16][i] * gain) : PARE_CUT_INFINITE;
    cost[PARE_IN_F32] = capacity(s->seconds[PARE_IN_F32][i] * (f16 ? gain * (1 + GAIN) : gain));
}

/* Outputs are f32: what makes them in FP16 casts them. */
static void price_outputs(const search *s, pare_assignment *a)
{
    const pare_graph *g = s->model->graph;
    for (int i = 0; i < g->out.count; i++) {
        const pare_value *v = g->out.item[i];
        const int at = v->producer ? pare_ptr_map_find(&s->at, v->producer) : -1;
        if (at < 0 || v->dtype != PARE_f32) continue;
        int64_t *cost = &a->cost[s->trial[0].times.head[at]][PARE_IN_F16];
        if (*cost < PARE_CUT_INFINITE)
            *cost += capacity(elements_of(s, v) * s->rate[PARE_IN_F16][PARE_IN_F32]);
    }
}

/* Vertices are the steps of the model that is all int8, by their heads; the last one is what is
   always f32, such as the inputs. */
static pare_status build(search *s, pare_assignment *a)
{
    const pare_quant_times *int8 = &s->trial[0].times;
    const pare_graph *g = s->model->graph;
    a->count = s->count + 1;
    a->cost = pare_arena_alloc(&s->arena, (size_t)a->count, sizeof *a->cost);
    if (!a->cost) return PARE_MEMORY;
    a->cost[s->count][PARE_IN_F16] = a->cost[s->count][PARE_IN_INT8] = PARE_CUT_INFINITE;
    for (int i = 0; i < s->count; i++)
        if (int8->head[i] == i) price(s, i, a->cost[i]);
    price_outputs(s, a);
    for (int i = 0; i < s->count; i++)
        for (int k = 0; k < g->node[i]->in_count; k++) {
            const pare_value *v = g->node[i]->in[k];
            if (!v || v->data || v->dtype != PARE_f32 || v->graph != g) continue;
            const int from =
                v->producer ? int8->head[pare_ptr_map_find(&s->at, v->producer)] : s->count;
            const double part = s->least && v->user_count > 1 ? 1.0 / v->user_count : 1;
            PARE_TRY(add_edge(s, a, from, int8->head[i], part * elements_of(s, v)));
        }
    return PARE_OK;
}

static bool any_int8(const search *s, const pare_quant_format *place)
{
    for (int i = 0; i < s->count; i++)
        if (could_be(s, i) && place[s->trial[0].times.head[i]] == PARE_IN_INT8) return true;
    return false;
}

/* Something has to be int8: the step that loses least by it. -1: there is none. */
static int least_loss(const search *s, const pare_assignment *a, pare_quant_format *place)
{
    int best = -1;
    int64_t least = 0;
    for (int i = 0; i < s->count; i++) {
        if (!could_be(s, i) || s->trial[0].times.head[i] != i) continue;
        const pare_quant_format was = place[i];
        place[i] = PARE_IN_INT8;
        const int64_t cost = pare_assignment_cost(a, place);
        place[i] = was;
        if (best >= 0 && cost >= least) continue;
        best = i;
        least = cost;
    }
    return best;
}

/* False: one like it was timed already. */
static pare_status assign(search *s, trial *t, bool *fresh)
{
    pare_assignment a = {0};
    pare_quant_format *place = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof *place);
    t->place = pare_arena_alloc(&s->arena, (size_t)s->count + 1, sizeof *t->place);
    if (!place || !t->place) return PARE_MEMORY;
    PARE_TRY(build(s, &a));
    PARE_TRY(pare_assign(s->ctx, &a, place));
    if (!any_int8(s, place)) {
        const int least = least_loss(s, &a, place);
        if (least >= 0) place[least] = PARE_IN_INT8;
    }
    for (int i = 0; i < s->count; i++) t->place[i] = place[s->trial[0].times.head[i]];
    *fresh = true;
    for (int k = 0; *fresh && k < s->trials; k++)
        *fresh = memcmp(t->place, s->trial[k].place, (size_t)s->count * sizeof *t->place) != 0;
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
    const size_t nodes = (size_t)s->count + 1, all = (size_t)s->all_count + 1;
    s->stays_float = pare_arena_alloc(&s->arena, all, sizeof *s->stays_float);
    s->stays_f32 = pare_arena_alloc(&s->arena, all, sizeof *s->stays_f32);
    s->is_f16 = pare_arena_alloc(&s->arena, nodes, sizeof *s->is_f16);
    s->trial[0].place = pare_arena_alloc(&s->arena, nodes, sizeof *s->trial[0].place);
    if (!s->stays_float || !s->stays_f32 || !s->is_f16 || !s->trial[0].place) return PARE_MEMORY;
    for (int p = 0; p < PARE_IN_COUNT; p++) {
        s->seconds[p] = pare_arena_alloc(&s->arena, nodes, sizeof *s->seconds[p]);
        if (!s->seconds[p]) return PARE_MEMORY;
    }
    PARE_TRY(pare_machine_table_open(s->ctx, &s->table, s->how->gpu ? NULL : s->how->cache_dir,
                                     s->how->device, &kind));
    PARE_TRY(pare_model_clone(s->ctx, &s->sized, s->model));
    for (int i = 0; i < s->how->shape_count; i++) {
        pare_value *v = pare_graph_find_own(s->sized->graph, s->how->shapes[i].name);
        if (v) pare_value_set_type(v, v->dtype, &s->how->shapes[i].shape);
    }
    PARE_TRY(pare_pass_infer(s->sized, &infer));
    return pare_quant_rule(s->ctx, s->ranges, s->options, &s->chosen);
}

/* All that can be is int8, the rest in the float format; then all in float. */
static pare_status begin(search *s)
{
    trial *first = &s->trial[0];
    for (int i = 0; i < s->count; i++) first->place[i] = s->in_float;
    PARE_TRY(try_it(s, first));
    PARE_TRY(learn_all(s));
    for (int i = 0; i < s->count; i++) {
        const int head = first->times.head[i];
        const bool int8 = first->times.place[head] == PARE_IN_INT8;
        first->place[i] = int8                                            ? PARE_IN_INT8
                          : s->in_float == PARE_IN_F16 && s->is_f16[head] ? PARE_IN_F16
                                                                          : PARE_IN_F32;
    }
    return PARE_OK;
}

/* An assignment that was not timed yet: conversions count for each reader and at their least, in
   turns. */
static pare_status assign_anew(search *s, trial *t, bool *fresh)
{
    *fresh = false;
    for (int k = 0; k < 2 && !*fresh; k++) {
        PARE_TRY(assign(s, t, fresh));
        s->least = !s->least;
    }
    return PARE_OK;
}

static pare_status find(search *s, const trial **best)
{
    PARE_TRY(open_search(s));
    PARE_TRY(begin(s));
    *best = &s->trial[0];
    for (s->trials = 1; s->trials < ROUNDS; s->trials++) {
        trial *next = &s->trial[s->trials];
        bool fresh;
        PARE_TRY(assign_anew(s, next, &fresh));
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

static const char *format_of(pare_quant_format place)
{
    static const char *const names[PARE_IN_COUNT] = {"FP32", "FP16", "INT8"};
    return names[place];
}

/* Why the nodes of a list are in their format and not in a shorter one. */
static pare_status name_nodes(const search *s, const trial *best,
                              bool (*is_listed)(const search *s, const trial *t, int i),
                              pare_quant_format shorter, const char *const **out)
{
    pare_arena *arena = &s->model->arena;
    const char **made = pare_arena_alloc(arena, (size_t)s->all_count + 1, sizeof *made);
    if (!made) return PARE_MEMORY;
    for (int i = 0; i < s->all_count; i++) {
        const int at = s->place[i];
        if (!is_listed(s, best, at)) continue;
        const int head = s->trial[0].times.head[at];
        const pare_quant_format now = best->place[at];
        made[i] = pare_arena_printf(arena, "it takes %.3g us in %s and %.3g us in %s",
                                    1e6 * s->seconds[now][head], format_of(now),
                                    1e6 * s->seconds[shorter][head], format_of(shorter));
        if (!made[i]) return PARE_MEMORY;
    }
    *out = made;
    return PARE_OK;
}

static pare_status name_all(const search *s, const trial *best, pare_quant_options *options)
{
    PARE_TRY(name_nodes(s, best, stays_float, PARE_IN_INT8, &options->float_for_latency));
    if (s->in_float == PARE_IN_F32) return PARE_OK;
    return name_nodes(s, best, stays_f32, PARE_IN_F16, &options->f32_for_latency);
}

pare_status pare_quant_find_fastest(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                                    pare_quant_options *options,
                                    const pare_quant_latency_options *how, pare_quant_latency *out)
{
    search s = {.ctx = ctx,
                .model = model,
                .ranges = ranges,
                .options = options,
                .how = how,
                .in_float = options->float_fp16 ? PARE_IN_F16 : PARE_IN_F32};
    const trial *best = NULL;
    options->float_for_latency = options->f32_for_latency = NULL;
    pare_arena_init(&s.arena, ctx);
    pare_status st = find(&s, &best);
    if (st == PARE_OK && best != &s.trial[0]) st = name_all(&s, best, options);
    if (st == PARE_OK)
        *out = (pare_quant_latency){s.trial[0].times.against, best->times.against, s.timed};
    pare_free(s.chosen);
    pare_model_free(s.sized);
    pare_machine_table_free(s.table);
    pare_arena_free(&s.arena);
    return st;
}
