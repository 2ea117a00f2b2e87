/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a plan by the nodes of the model that it was made of. Passes keep the names of the
   tensors that they keep, and steps are in topological order: so a step computes all that its
   output needs and no step before it has computed. */
#include "quant/latency/internal.h"
#include "runtime/ops/ops.h"

#include <math.h>
#include <string.h>

pare_status pare_quant_times_new(pare_quant_times *out, pare_arena *arena, int count)
{
    *out = (pare_quant_times){.count = count};
    out->seconds = pare_arena_alloc(arena, (size_t)count + 1, sizeof *out->seconds);
    out->head = pare_arena_alloc(arena, (size_t)count + 1, sizeof *out->head);
    out->place = pare_arena_alloc(arena, (size_t)count + 1, sizeof *out->place);
    if (!out->seconds || !out->head || !out->place) return PARE_MEMORY;
    for (int i = 0; i < count; i++) out->head[i] = i;
    return PARE_OK;
}

/* --- a step's nodes --- */

typedef struct cover {
    const pare_graph *graph; /* of the prepared model */
    pare_quant_times *times;
    bool *taken; /* (nodes) by a step */
    int *stack;  /* (nodes) */
} cover;

/* The last place in a name where what conversions add to it begins, or NULL. */
static char *ending_of(char *name)
{
    static const char *const endings[] = {"_quantized", "_dequantized", "_f16", "_f32"};
    char *last = NULL;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        for (char *at = strstr(name, endings[i]); at; at = strstr(at + 1, endings[i]))
            if (!last || at > last) last = at;
    return last;
}

/* The prepared model's tensor that a plan's tensor holds, perhaps in another type. */
static const pare_value *origin_of(const pare_graph *graph, const char *name)
{
    char base[512];
    const pare_value *v = pare_graph_find_own(graph, name);
    if (v || strlen(name) >= sizeof base) return v;
    strcpy(base, name);
    for (char *end; !v && (end = ending_of(base));) {
        *end = 0;
        v = pare_graph_find_own(graph, base);
    }
    return v;
}

static bool is_weighted(const pare_node *node)
{
    return pare_quant_kind_of(node) == PARE_QUANT_WEIGHTED;
}

static void take(cover *c, int node, int *depth)
{
    if (node < 0 || c->taken[node]) return;
    c->taken[node] = true;
    c->stack[(*depth)++] = node;
}

/* Takes what the tensor needs and nobody has; returns the node that heads it, -1: none is taken. A
   constant's producer is a step of no plan, and is taken all the same. */
static int take_for(cover *c, const pare_value *v, int first)
{
    int depth = 0, head = first;
    if (v->producer) take(c, v->producer->mark, &depth);
    for (int done = 0; done < depth; done++) {
        const int at = c->stack[done];
        const pare_node *node = c->graph->node[at];
        if (head < 0 || (is_weighted(node) && !is_weighted(c->graph->node[head]))) head = at;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && node->in[i]->producer && node->in[i]->graph == c->graph)
                take(c, node->in[i]->producer->mark, &depth);
    }
    for (int i = 0; i < depth; i++) c->times->head[c->stack[i]] = head;
    return head;
}

static pare_quant_format place_of(const pare_node *step)
{
    pare_quant_format place = PARE_IN_F32;
    for (int i = 0; i < step->in_count + step->out_count; i++) {
        const pare_value *v = i < step->in_count ? step->in[i] : step->out[i - step->in_count];
        if (v && (v->dtype == PARE_s8 || v->dtype == PARE_u8 || v->dtype == PARE_s4))
            return PARE_IN_INT8;
        if (v && v->dtype == PARE_f16) place = PARE_IN_F16;
    }
    return place;
}

enum { CONVERSIONS = 3 };
static const char *const conversions[CONVERSIONS] = {"QuantizeLinear", "DequantizeLinear", "Cast"};

typedef struct rates {
    double seconds[CONVERSIONS], elements[CONVERSIONS];
} rates;

static int conversion_of(const pare_node *step)
{
    for (int i = 0; i < CONVERSIONS; i++)
        if (pare_node_is(step, conversions[i])) return i;
    return -1;
}

static void note_step(cover *c, const pare_node *step, double seconds, rates *r)
{
    const pare_value *known = NULL;
    int head = -1;
    for (int i = 0; i < step->out_count; i++) {
        const pare_value *v = step->out[i] ? origin_of(c->graph, step->out[i]->name) : NULL;
        if (!v) continue;
        known = v;
        head = take_for(c, v, head);
    }
    const int conversion = head < 0 ? conversion_of(step) : -1;
    if (conversion >= 0) {
        const int64_t n = pare_shape_count(&step->out[0]->shape);
        r->seconds[conversion] += seconds;
        r->elements[conversion] += n > 0 ? (double)n : 0;
        return;
    }
    if (head < 0 && known && known->producer) head = c->times->head[known->producer->mark];
    if (head < 0) return; /* a copy of an input into another memory order */
    c->times->seconds[head] += seconds;
    if (place_of(step) > c->times->place[head]) c->times->place[head] = place_of(step);
}

static double rate_of(const rates *r, int conversion)
{
    return r->elements[conversion] > 0 ? r->seconds[conversion] / r->elements[conversion] : 0;
}

pare_status pare_quant_times_attribute(pare_ctx *ctx, const pare_model *prepared,
                                       const pare_node *const *step, const double *seconds,
                                       int count, pare_quant_times *out)
{
    const pare_graph *graph = prepared->graph;
    pare_arena arena;
    pare_arena_init(&arena, ctx);
    rates r = {{0}, {0}};
    const size_t n = (size_t)graph->node_count + 1;
    cover c = {.graph = graph,
               .times = out,
               .taken = pare_arena_alloc(&arena, n, sizeof *c.taken),
               .stack = pare_arena_alloc(&arena, n, sizeof *c.stack)};
    const pare_status st = c.taken && c.stack ? PARE_OK : PARE_MEMORY;
    for (int i = 0; i < graph->node_count; i++) graph->node[i]->mark = i;
    for (int i = 0; st == PARE_OK && i < count; i++) note_step(&c, step[i], seconds[i], &r);
    out->quantize = rate_of(&r, 0);
    out->dequantize = rate_of(&r, 1);
    out->cast = rate_of(&r, 2);
    pare_arena_free(&arena);
    return st;
}

/* --- the clock --- */

/* Other work on the machine only ever adds time: a step's quickest time counts. */
static pare_status time_steps(pare_ctx *ctx, const pare_model *prepared, const pare_timed *timed,
                              pare_quant_times *out)
{
    const int count = pare_plan_step_count(timed->plan);
    double *seconds = pare_alloc(ctx, (size_t)count + 1, sizeof *seconds);
    const pare_node **step = pare_alloc(ctx, (size_t)count + 1, sizeof *step);
    pare_status st = seconds && step ? PARE_OK : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < count; i++) step[i] = pare_plan_node(timed->plan, i);
    if (st == PARE_OK) st = pare_measure_steps(ctx, timed->runner, 0, seconds);
    if (st == PARE_OK) st = pare_quant_times_attribute(ctx, prepared, step, seconds, count, out);
    pare_free(seconds);
    pare_free(step);
    return st;
}

pare_status pare_quant_make_rival(pare_ctx *ctx, const pare_model *prepared, bool fp16,
                                  pare_model **out)
{
    const pare_quant_options options = {.precision = PARE_PRECISION_FP16};
    PARE_TRY(pare_model_clone(ctx, out, prepared));
    return fp16 ? pare_quantize(ctx, *out, NULL, &options, NULL) : PARE_OK;
}

static pare_status time_against(pare_ctx *ctx, const pare_model *rival, const pare_model *candidate,
                                const pare_timed *timed, const pare_timed_how *how,
                                pare_side_by_side *out)
{
    pare_timed other;
    PARE_TRY(pare_timed_open(ctx, &other, rival, how));
    const pare_status st = pare_timed_compare(ctx, &other, rival, timed, candidate, how, out);
    pare_timed_close(&other);
    return st;
}

pare_status pare_quant_times_measure(pare_ctx *ctx, const pare_model *float_model,
                                     const pare_model *candidate,
                                     const pare_quant_latency_options *how, pare_quant_times *out)
{
    const pare_timed_how timing = {.shapes = how->shapes,
                                   .shape_count = how->shape_count,
                                   .options = {.threads = how->threads,
                                               .device = how->device,
                                               .tune = true,
                                               .cache_dir = how->cache_dir}};
    pare_timed timed;
    pare_model *rival = NULL;
    PARE_TRY(pare_timed_open(ctx, &timed, candidate, &timing));
    pare_status st = time_steps(ctx, float_model, &timed, out);
    if (st == PARE_OK && candidate != float_model) {
        st = pare_quant_make_rival(ctx, float_model, how->device != NULL, &rival);
        if (st == PARE_OK) st = time_against(ctx, rival, candidate, &timed, &timing, &out->against);
        pare_model_free(rival);
    }
    pare_timed_close(&timed);
    return st;
}

/* --- in a table --- */

json_t *pare_quant_times_json(const pare_quant_times *t)
{
    json_t *nodes = json_array();
    for (int i = 0; i < t->count; i++)
        json_array_append_new(nodes,
                              json_pack("[f, i, i]", t->seconds[i], t->head[i], (int)t->place[i]));
    return json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "nodes", nodes, "quantize",
                     t->quantize, "dequantize", t->dequantize, "cast", t->cast, "float_ms",
                     t->against.a_ms, "ms", t->against.b_ms, "ratio", t->against.ratio, "disturbed",
                     (int)t->against.disturbed);
}

static bool parse_node(const json_t *json, int at, pare_quant_times *out)
{
    const json_t *head = json_array_get(json, 1), *format = json_array_get(json, 2);
    const json_int_t place = json_is_integer(format) ? json_integer_value(format) : -1;
    out->seconds[at] = json_number_value(json_array_get(json, 0));
    out->head[at] = (int)json_integer_value(head);
    if (place < 0 || place >= PARE_IN_COUNT) return false;
    out->place[at] = (pare_quant_format)place;
    return json_is_integer(head) && out->head[at] >= 0 && out->head[at] < out->count &&
           out->seconds[at] >= 0;
}

static double number(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

bool pare_quant_times_parse(const json_t *json, pare_quant_times *out)
{
    const json_t *nodes = json_object_get(json, "nodes");
    bool fine = (int)json_array_size(nodes) == out->count;
    for (int i = 0; fine && i < out->count; i++)
        fine = parse_node(json_array_get(nodes, (size_t)i), i, out);
    static const char *const keys[] = {"quantize", "dequantize", "cast", "float_ms", "ms", "ratio"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        fine = fine && number(json, keys[i]) >= 0;
    out->quantize = number(json, "quantize");
    out->dequantize = number(json, "dequantize");
    out->cast = number(json, "cast");
    out->against =
        (pare_side_by_side){number(json, "float_ms"), number(json, "ms"), number(json, "ratio"),
                            json_is_true(json_object_get(json, "disturbed"))};
    return fine;
}
