/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/conv/dnn_plan.h"
#include "runtime/base/size.h"

#include <string.h>

enum { MOST_CONFIGS = 40 };

static void plans_free(const pare_dnn_api *api, pare_dnn_plan *p)
{
    while (p) {
        pare_dnn_plan *next = p->next;
        (void)api->drop(p->plan);
        pare_free(p);
        p = next;
    }
}

void pare_dnn_answers_free(const pare_dnn_api *api, pare_dnn_answers *a)
{
    while (a) {
        pare_dnn_answers *next = a->next;
        for (int i = 0; i < a->count; i++) plans_free(api, a->engine[i].first.next);
        while (a->made_count) (void)api->drop(a->made[--a->made_count]);
        pare_free(a);
        a = next;
    }
}

/* --- descriptors --- */

typedef struct dnn_maker {
    pare_ctx *ctx;
    const pare_dnn_target *at;
    pare_dnn_answers *to;
    const pare_dnn_conv *conv;
    void *graph;
    int code; /* of the last call that failed */
} dnn_maker;

static pare_status told(dnn_maker *m, int code, const char *call)
{
    m->code = code;
    return pare_cuda_dnn_status(m->ctx, m->at->api, NULL, code, call);
}

static pare_status create(dnn_maker *m, int type, void **out)
{
    *out = NULL;
    return told(m, m->at->api->make(type, out), "cudnnBackendCreateDescriptor");
}

static void keep(dnn_maker *m, void *descriptor)
{
    m->to->made[m->to->made_count++] = descriptor; /* a graph, and four plans, are fewer than 64 */
}

/* One that lives as long as the answers. */
static pare_status make(dnn_maker *m, int type, void **out)
{
    PARE_TRY(create(m, type, out));
    keep(m, *out);
    return PARE_OK;
}

static pare_status set(dnn_maker *m, void *d, int name, int type, int64_t count, const void *values)
{
    return told(m, m->at->api->set(d, name, type, count, values), "cudnnBackendSetAttribute");
}

static pare_status set_int(dnn_maker *m, void *d, int name, int type, int value)
{
    return set(m, d, name, type, 1, &value);
}

static pare_status finalize(dnn_maker *m, void *d)
{
    return told(m, m->at->api->finalize(d), "cudnnBackendFinalize");
}

/* --- the graph --- */

enum { BETWEEN = PARE_DNN_TENSORS + 1 }; /* names of the tensors that are not in memory */

static pare_status tensor_make(dnn_maker *m, const pare_dnn_tensor *t, int type, int64_t id,
                               bool is_virtual, void **out)
{
    const int64_t rank = m->conv->rank, aligned = PARE_DNN_ALIGNED;
    PARE_TRY(make(m, PARE_DNN_TENSOR, out));
    PARE_TRY(set(m, *out, PARE_DNN_TENSOR_ID, PARE_DNN_T_INT64, 1, &id));
    PARE_TRY(set_int(m, *out, PARE_DNN_TENSOR_TYPE, PARE_DNN_T_DATA_TYPE, type));
    PARE_TRY(set(m, *out, PARE_DNN_TENSOR_DIMS, PARE_DNN_T_INT64, rank, t->dim));
    PARE_TRY(set(m, *out, PARE_DNN_TENSOR_STRIDES, PARE_DNN_T_INT64, rank, t->stride));
    PARE_TRY(set(m, *out, PARE_DNN_TENSOR_ALIGNMENT, PARE_DNN_T_INT64, 1, &aligned));
    if (is_virtual)
        PARE_TRY(set(m, *out, PARE_DNN_TENSOR_VIRTUAL, PARE_DNN_T_BOOL, 1, &is_virtual));
    return finalize(m, *out);
}

static pare_status place_make(dnn_maker *m, const pare_dnn_tensor *t, int place, void **out)
{
    return tensor_make(m, t, (int)t->type, place + 1, false, out);
}

static int sum_type(const pare_dnn_conv *c)
{
    return c->x.type == PARE_DNN_S8 ? PARE_DNN_S32 : PARE_DNN_F32;
}

static pare_status window_make(dnn_maker *m, void **out)
{
    const pare_dnn_conv *c = m->conv;
    const int64_t axes = c->rank - 2;
    PARE_TRY(make(m, PARE_DNN_CONVOLUTION, out));
    PARE_TRY(set(m, *out, PARE_DNN_CONVOLUTION_AXES, PARE_DNN_T_INT64, 1, &axes));
    PARE_TRY(set_int(m, *out, PARE_DNN_CONVOLUTION_COMPUTE, PARE_DNN_T_DATA_TYPE, sum_type(c)));
    PARE_TRY(set_int(m, *out, PARE_DNN_CONVOLUTION_MODE, PARE_DNN_T_CONVOLUTION_MODE,
                     PARE_DNN_CROSS_CORRELATION));
    PARE_TRY(set(m, *out, PARE_DNN_CONVOLUTION_PRE_PADDINGS, PARE_DNN_T_INT64, axes, c->begin));
    PARE_TRY(set(m, *out, PARE_DNN_CONVOLUTION_POST_PADDINGS, PARE_DNN_T_INT64, axes, c->end));
    PARE_TRY(set(m, *out, PARE_DNN_CONVOLUTION_STRIDES, PARE_DNN_T_INT64, axes, c->stride));
    PARE_TRY(set(m, *out, PARE_DNN_CONVOLUTION_DILATIONS, PARE_DNN_T_INT64, axes, c->dilation));
    return finalize(m, *out);
}

static pare_status convolution_make(dnn_maker *m, void *x, void *w, void *y, void **out)
{
    static const int kinds[] = {[PARE_CUDA_CONV_Y] = PARE_DNN_OP_FORWARD,
                                [PARE_CUDA_CONV_DX] = PARE_DNN_OP_BACKWARD_DATA,
                                [PARE_CUDA_CONV_DW] = PARE_DNN_OP_BACKWARD_FILTER},
                     names[] = {[PARE_CUDA_CONV_Y] = PARE_DNN_FORWARD,
                                [PARE_CUDA_CONV_DX] = PARE_DNN_BACKWARD_DATA,
                                [PARE_CUDA_CONV_DW] = PARE_DNN_BACKWARD_FILTER};
    const int name = names[m->conv->makes];
    const float one = 1, none = 0;
    void *window;
    PARE_TRY(window_make(m, &window));
    PARE_TRY(make(m, kinds[m->conv->makes], out));
    PARE_TRY(set(m, *out, name + PARE_DNN_OF_ALPHA, PARE_DNN_T_FLOAT, 1, &one));
    PARE_TRY(set(m, *out, name + PARE_DNN_OF_BETA, PARE_DNN_T_FLOAT, 1, &none));
    PARE_TRY(set(m, *out, name + PARE_DNN_OF_CONVOLUTION, PARE_DNN_T_DESCRIPTOR, 1, &window));
    PARE_TRY(set(m, *out, name + PARE_DNN_OF_W, PARE_DNN_T_DESCRIPTOR, 1, &w));
    PARE_TRY(set(m, *out, name + PARE_DNN_OF_X, PARE_DNN_T_DESCRIPTOR, 1, &x));
    PARE_TRY(set(m, *out, name + PARE_DNN_OF_Y, PARE_DNN_T_DESCRIPTOR, 1, &y));
    return finalize(m, *out);
}

/* b: NULL of an activation. */
static pare_status pointwise_make(dnn_maker *m, void *x, void *b, void *y, void **out)
{
    const pare_dnn_conv *c = m->conv;
    const double low = c->act == PARE_ACT_CLIP ? c->low : 0;
    void *of;
    PARE_TRY(make(m, PARE_DNN_POINTWISE, &of));
    PARE_TRY(set_int(m, of, PARE_DNN_POINTWISE_MODE, PARE_DNN_T_POINTWISE_MODE,
                     b ? PARE_DNN_POINTWISE_ADD : PARE_DNN_POINTWISE_RELU));
    PARE_TRY(set_int(m, of, PARE_DNN_POINTWISE_MATH, PARE_DNN_T_DATA_TYPE, PARE_DNN_F32));
    if (!b) /* without it ReLU may make a number of NaN */
        PARE_TRY(set_int(m, of, PARE_DNN_POINTWISE_NAN, PARE_DNN_T_NAN_PROPAGATION,
                         PARE_DNN_PROPAGATE_NAN));
    if (!b) PARE_TRY(set(m, of, PARE_DNN_POINTWISE_LOWER, PARE_DNN_T_DOUBLE, 1, &low));
    if (!b && c->act == PARE_ACT_CLIP)
        PARE_TRY(set(m, of, PARE_DNN_POINTWISE_UPPER, PARE_DNN_T_DOUBLE, 1, &c->high));
    PARE_TRY(finalize(m, of));
    PARE_TRY(make(m, PARE_DNN_OP_POINTWISE, out));
    PARE_TRY(set(m, *out, PARE_DNN_OP_POINTWISE_OF, PARE_DNN_T_DESCRIPTOR, 1, &of));
    PARE_TRY(set(m, *out, PARE_DNN_OP_POINTWISE_X, PARE_DNN_T_DESCRIPTOR, 1, &x));
    if (b) PARE_TRY(set(m, *out, PARE_DNN_OP_POINTWISE_B, PARE_DNN_T_DESCRIPTOR, 1, &b));
    PARE_TRY(set(m, *out, PARE_DNN_OP_POINTWISE_Y, PARE_DNN_T_DESCRIPTOR, 1, &y));
    return finalize(m, *out);
}

/* What follows a forward convolution: the residual first, then the bias, as the library's fastest
   engines have it. */
typedef struct dnn_tail {
    void *operand[3]; /* NULL: the activation */
    int count;
} dnn_tail;

static pare_status tail_make(dnn_maker *m, dnn_tail *t)
{
    const pare_dnn_conv *c = m->conv;
    *t = (dnn_tail){0};
    if (c->added) PARE_TRY(place_make(m, &c->residual, PARE_DNN_RESIDUAL, &t->operand[t->count++]));
    if (c->biased) PARE_TRY(place_make(m, &c->bias, PARE_DNN_BIAS, &t->operand[t->count++]));
    if (c->act != PARE_ACT_NONE) t->operand[t->count++] = NULL;
    return PARE_OK;
}

/* Tensor `at` of those that are made one after the other: the last one is Y. */
static pare_status next_make(dnn_maker *m, const dnn_tail *t, int at, void **out)
{
    if (at == t->count) return place_make(m, &m->conv->y, PARE_DNN_Y, out);
    return tensor_make(m, &m->conv->y, sum_type(m->conv), BETWEEN + at, true, out);
}

static pare_status graph_make(dnn_maker *m)
{
    const pare_dnn_conv *c = m->conv;
    void *x, *w, *y, *ops[4];
    dnn_tail tail;
    PARE_TRY(place_make(m, &c->x, PARE_DNN_X, &x));
    PARE_TRY(place_make(m, &c->w, PARE_DNN_W, &w));
    PARE_TRY(tail_make(m, &tail));
    PARE_TRY(next_make(m, &tail, 0, &y));
    PARE_TRY(convolution_make(m, x, w, y, &ops[0]));
    for (int i = 0; i < tail.count; i++) {
        void *next;
        PARE_TRY(next_make(m, &tail, i + 1, &next));
        PARE_TRY(pointwise_make(m, y, tail.operand[i], next, &ops[1 + i]));
        y = next;
    }
    PARE_TRY(make(m, PARE_DNN_GRAPH, &m->graph));
    if (m->at->handle)
        PARE_TRY(set(m, m->graph, PARE_DNN_GRAPH_HANDLE, PARE_DNN_T_HANDLE, 1, &m->at->handle));
    PARE_TRY(set(m, m->graph, PARE_DNN_GRAPH_OPS, PARE_DNN_T_DESCRIPTOR, 1 + tail.count, ops));
    return finalize(m, m->graph);
}

/* --- engines --- */

/* Other sums than those of products, less precise ones, ones whose order is left to chance. */
#define NOTE(n) (1u << PARE_DNN_NOTE_##n)
static const unsigned refused = NOTE(REDUCED_PRECISION) | NOTE(FFT) | NOTE(NONDETERMINISTIC) |
                                NOTE(WINOGRAD) | NOTE(WINOGRAD_4X4) | NOTE(WINOGRAD_6X6) |
                                NOTE(WINOGRAD_13X13),
                      rounding = NOTE(TENSOR_CORE) | NOTE(DOWN_CONVERT_INPUTS);
enum {
    REORDERS = 1 << PARE_DNN_BEHAVIOR_FILTER_REORDER | 1 << PARE_DNN_BEHAVIOR_BIAS_REORDER,
    COMPILES = 1 << PARE_DNN_BEHAVIOR_RUNTIME_COMPILATION
};

static pare_status notes_get(dnn_maker *m, void *engine, int name, int type, unsigned *bits)
{
    int note[PARE_DNN_MOST_NOTES];
    int64_t count = 0;
    PARE_TRY(told(m, m->at->api->get(engine, name, type, PARE_DNN_MOST_NOTES, &count, note),
                  "cudnnBackendGetAttribute"));
    *bits = 0;
    for (int64_t i = 0; i < count && i < PARE_DNN_MOST_NOTES; i++)
        if (note[i] >= 0 && note[i] < 32) *bits |= 1u << note[i];
    return PARE_OK;
}

/* *fits: is it compiled when a plan is made, or not, as asked, and are its sums such as we want? */
static pare_status engine_judge(dnn_maker *m, void *config, bool compiled, bool *fits, bool *cores)
{
    unsigned numbers = 0, behavior = 0;
    int64_t count;
    void *engine;
    PARE_TRY(create(m, PARE_DNN_ENGINE, &engine));
    pare_status st = told(
        m,
        m->at->api->get(config, PARE_DNN_CONFIG_ENGINE, PARE_DNN_T_DESCRIPTOR, 1, &count, &engine),
        "cudnnBackendGetAttribute");
    if (st == PARE_OK)
        st = notes_get(m, engine, PARE_DNN_ENGINE_NUMERICAL_NOTE, PARE_DNN_T_NUMERICAL_NOTE,
                       &numbers);
    if (st == PARE_OK)
        st = notes_get(m, engine, PARE_DNN_ENGINE_BEHAVIOR_NOTE, PARE_DNN_T_BEHAVIOR_NOTE,
                       &behavior);
    (void)m->at->api->drop(engine);
    const bool whole = m->conv->x.type == PARE_DNN_F32 && !m->conv->tf32;
    *fits = !(numbers & refused) && !(whole && numbers & rounding) && !(behavior & REORDERS) &&
            !(behavior & COMPILES) == !compiled;
    *cores = numbers & NOTE(TENSOR_CORE);
    return st;
}

static pare_status plan_fill(dnn_maker *m, void *config, void *plan, int64_t *workspace)
{
    int64_t count;
    if (m->at->handle)
        PARE_TRY(set(m, plan, PARE_DNN_PLAN_HANDLE, PARE_DNN_T_HANDLE, 1, &m->at->handle));
    PARE_TRY(set(m, plan, PARE_DNN_PLAN_CONFIG, PARE_DNN_T_DESCRIPTOR, 1, &config));
    if (m->at->properties)
        PARE_TRY(set(m, plan, PARE_DNN_PLAN_DEVICE, PARE_DNN_T_DESCRIPTOR, 1, &m->at->properties));
    PARE_TRY(finalize(m, plan));
    return told(
        m, m->at->api->get(plan, PARE_DNN_PLAN_WORKSPACE, PARE_DNN_T_INT64, 1, &count, workspace),
        "cudnnBackendGetAttribute");
}

/* The library refuses a graph or a question, and others may do. */
static bool is_refusal(int code)
{
    const int category = code / PARE_DNN_CATEGORY * PARE_DNN_CATEGORY;
    return category == PARE_DNN_NOT_SUPPORTED || category == PARE_DNN_BAD_PARAM ||
           code == PARE_DNN_COMPILATION_FAILED;
}

static pare_status refusal_pass(dnn_maker *m, pare_status st)
{
    if (st == PARE_OK || !is_refusal(m->code)) return st;
    pare_ctx_clear(m->ctx);
    return PARE_OK;
}

/* Whatever the trouble with one engine, others may serve; without memory none is asked. */
static pare_status engine_pass(dnn_maker *m, pare_status st)
{
    if (st == PARE_OK || st == PARE_MEMORY) return st;
    if (!is_refusal(m->code))
        pare_log(m->ctx, PARE_LOG_INFO, "an engine of cuDNN is left out: %s", m->ctx->message);
    pare_ctx_clear(m->ctx);
    return PARE_OK;
}

/* Adds the config's plan where there is one; *kept: the config belongs to it. */
static pare_status plan_add(dnn_maker *m, void *config, bool cores, bool *kept)
{
    pare_dnn_answers *to = m->to;
    int64_t workspace = -1;
    void *plan;
    *kept = false;
    PARE_TRY(create(m, PARE_DNN_PLAN, &plan));
    const pare_status st = plan_fill(m, config, plan, &workspace);
    if (st != PARE_OK || workspace < 0 || workspace > PARE_DNN_WORKSPACE) {
        (void)m->at->api->drop(plan);
        return st;
    }
    *kept = true;
    keep(m, config);
    keep(m, plan);
    to->engine[to->count++] = (pare_dnn_engine){
        .config = config,
        .workspace = (size_t)workspace,
        .tensor_cores = cores,
        .first = {.plan = plan},
    };
    return PARE_OK;
}

/* Of configs in the library's order those that fit, until there are `most` plans. Drops the rest.
 */
static pare_status configs_take(dnn_maker *m, void **config, int64_t count, bool compiled, int most)
{
    pare_status st = PARE_OK;
    for (int64_t i = 0; i < count; i++) {
        bool fits = false, cores = false, kept = false;
        if (st == PARE_OK && m->to->count < most) {
            st = engine_judge(m, config[i], compiled, &fits, &cores);
            if (st == PARE_OK && fits) st = plan_add(m, config[i], cores, &kept);
            st = engine_pass(m, st);
        }
        if (!kept) (void)m->at->api->drop(config[i]);
    }
    return st;
}

static pare_status heuristics_fill(dnn_maker *m, void *h, int mode)
{
    PARE_TRY(set(m, h, PARE_DNN_HEURISTICS_GRAPH, PARE_DNN_T_DESCRIPTOR, 1, &m->graph));
    PARE_TRY(set_int(m, h, PARE_DNN_HEURISTICS_MODE, PARE_DNN_T_HEURISTICS_MODE, mode));
    if (m->at->properties)
        PARE_TRY(
            set(m, h, PARE_DNN_HEURISTICS_DEVICE, PARE_DNN_T_DESCRIPTOR, 1, &m->at->properties));
    return finalize(m, h);
}

static pare_status results_get(dnn_maker *m, void *h, void **config, int64_t asked, int64_t *count)
{
    return told(m,
                m->at->api->get(h, PARE_DNN_HEURISTICS_RESULTS, PARE_DNN_T_DESCRIPTOR, asked, count,
                                config),
                "cudnnBackendGetAttribute");
}

/* What is left of the configs that were made is dropped by the caller. */
static pare_status configs_get(dnn_maker *m, void *h, void **config, int64_t *made, int64_t *count)
{
    PARE_TRY(results_get(m, h, NULL, 0, count));
    const int64_t most = *count < MOST_CONFIGS ? *count : MOST_CONFIGS;
    for (; *made < most; ++*made) PARE_TRY(create(m, PARE_DNN_ENGINE_CONFIG, &config[*made]));
    if (most) PARE_TRY(results_get(m, h, config, most, count));
    if (*count > most) *count = most;
    return PARE_OK;
}

static pare_status engines_ask(dnn_maker *m, int mode, bool compiled, int most)
{
    void *h, *config[MOST_CONFIGS];
    int64_t made = 0, count = 0;
    PARE_TRY(create(m, PARE_DNN_HEURISTICS, &h));
    pare_status st = heuristics_fill(m, h, mode);
    if (st == PARE_OK) st = configs_get(m, h, config, &made, &count);
    if (st != PARE_OK) count = 0;
    for (; made > count; made--) (void)m->at->api->drop(config[made - 1]);
    if (st == PARE_OK) st = configs_take(m, config, count, compiled, most);
    (void)m->at->api->drop(h);
    return refusal_pass(m, st);
}

static bool has_tensor_cores(const pare_dnn_answers *a)
{
    for (int i = 0; i < a->count; i++)
        if (a->engine[i].tensor_cores) return true;
    return false;
}

/* Those on tensor cores first, else in their order. */
static void plans_order(pare_dnn_answers *a)
{
    pare_dnn_engine ordered[PARE_DNN_MOST];
    int n = 0;
    for (int cores = 1; cores >= 0; cores--)
        for (int i = 0; i < a->count; i++)
            if (a->engine[i].tensor_cores == cores) ordered[n++] = a->engine[i];
    memcpy(a->engine, ordered, (size_t)n * sizeof *ordered);
}

/* The best by the heuristic that are there; one that is compiled now, which takes about a second,
   where none of them is on tensor cores; else what serves anything. */
static pare_status plans_make(dnn_maker *m)
{
    const pare_dnn_answers *a = m->to;
    const int modes[] = {PARE_DNN_HEURISTICS_A, PARE_DNN_HEURISTICS_FALLBACK};
    PARE_TRY(refusal_pass(m, graph_make(m)));
    if (m->code) return PARE_OK;
    PARE_TRY(engines_ask(m, PARE_DNN_HEURISTICS_A, false, PARE_DNN_MOST));
    const int before = a->count;
    for (int i = 0; i < 2; i++)
        if (m->conv->compiles && a->count == before && before < PARE_DNN_MOST &&
            !has_tensor_cores(a))
            PARE_TRY(engines_ask(m, modes[i], true, before + 1));
    if (!a->count) PARE_TRY(engines_ask(m, PARE_DNN_HEURISTICS_FALLBACK, false, PARE_DNN_MOST));
    plans_order(m->to);
    return PARE_OK;
}

pare_status pare_dnn_ask(pare_ctx *ctx, const pare_dnn_target *at, const pare_dnn_conv *conv,
                         pare_dnn_answers **out)
{
    pare_dnn_answers *a = pare_alloc(ctx, 1, sizeof *a);
    if (!a) return PARE_MEMORY;
    dnn_maker m = {.ctx = ctx, .at = at, .to = a, .conv = &a->of};
    a->of = *conv;
    const pare_status st = plans_make(&m);
    if (st != PARE_OK) {
        pare_dnn_answers_free(at->api, a);
        return st;
    }
    *out = a;
    return PARE_OK;
}

pare_status pare_dnn_plan_add(pare_ctx *ctx, const pare_dnn_target *at, pare_dnn_engine *engine,
                              pare_dnn_plan **out)
{
    dnn_maker m = {.ctx = ctx, .at = at};
    int64_t workspace = 0;
    pare_dnn_plan *p = pare_alloc(ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    pare_status st = create(&m, PARE_DNN_PLAN, &p->plan);
    if (st == PARE_OK) st = plan_fill(&m, engine->config, p->plan, &workspace);
    if (st == PARE_OK && (uint64_t)workspace > engine->workspace)
        st = PARE_FAIL(ctx, DEVICE,
                       "a second plan of cuDNN's wants a workspace of %lld bytes, not %zu",
                       (long long)workspace, engine->workspace);
    if (st != PARE_OK) {
        if (p->plan) (void)at->api->drop(p->plan);
        pare_free(p);
        return st;
    }
    p->next = engine->first.next;
    engine->first.next = p;
    *out = p;
    return PARE_OK;
}
