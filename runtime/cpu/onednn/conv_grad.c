/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a convolution by oneDNN, f32. Its generated code (jit) takes N, H, W, C tensors;
   plain ones go through its matrix products. The weight, or its gradient, is packed as the
   primitive wants it: constants once, else by a reorder beside it in each run. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/conv_grad.h"
#include "runtime/cpu/onednn/onednn.h"
#include "runtime/cpu/onednn/conv.h"

#include <string.h>

enum { ACTIVATION, WEIGHT, RESULT, SCRATCHPAD, OPERANDS }; /* of the primitive */

typedef struct grad {
    dnnl_engine_t engine;
    dnnl_primitive_t primitive,
        reorder; /* reorder: of the weight, or after of its gradient; or NULL */
    dnnl_memory_desc_t desc[OPERANDS], plain; /* plain: the weight in the graph's order */
    int arg[OPERANDS];
    void *packed;             /* a constant weight */
    size_t weight_at, pad_at; /* in scratch */
    bool weight, scratchpad;  /* weight: this makes dW */
    int threads;
} grad;

typedef struct descs {
    dnnl_memory_desc_t x, w, w_any, y;
} descs;

static bool descs_make(const pare_prep *p, bool weight, int64_t group, descs *d)
{
    const pare_view *w = weight ? &p->out[0] : &p->in[1];
    return pare_dnnl_image_desc(&p->in[0], &d->y) &&
           pare_dnnl_image_desc(weight ? &p->in[1] : &p->out[0], &d->x) &&
           pare_dnnl_weight_desc(w, group, false, &d->w) &&
           pare_dnnl_weight_desc(w, group, true, &d->w_any);
}

typedef struct steps {
    dnnl_dims_t stride, dilation, begin, end;
} steps;

static void steps_make(const pare_window *w, steps *s)
{
    int first = 3 - w->nd;
    for (int i = 0; i < w->nd; i++) {
        s->stride[i] = w->stride[first + i];
        s->dilation[i] = w->dilation[first + i] - 1;
        s->begin[i] = w->begin[first + i];
        s->end[i] = (w->out[first + i] - 1) * s->stride[i] +
                    (w->kernel[first + i] - 1) * (s->dilation[i] + 1) + 1 - w->in[first + i] -
                    s->begin[i];
    }
}

/* The first implementation that is no plain loop, or NULL. */
static dnnl_primitive_desc_t describe(const pare_conv *c, const descs *d, bool weight,
                                      dnnl_engine_t engine)
{
    steps s;
    dnnl_convolution_desc_t forward, op;
    dnnl_primitive_desc_t hint, desc = NULL;
    dnnl_primitive_attr_t attr;
    const char *name = "";
    steps_make(&c->window, &s);
    if (dnnl_dilated_convolution_forward_desc_init(&forward, dnnl_forward_training,
                                                   dnnl_convolution_direct, &d->x, &d->w_any, NULL,
                                                   &d->y, s.stride, s.dilation, s.begin, s.end))
        return NULL;
    dnnl_status_t st = weight ? dnnl_dilated_convolution_backward_weights_desc_init(
                                    &op, dnnl_convolution_direct, &d->x, &d->w_any, NULL, &d->y,
                                    s.stride, s.dilation, s.begin, s.end)
                              : dnnl_dilated_convolution_backward_data_desc_init(
                                    &op, dnnl_convolution_direct, &d->x, &d->w_any, &d->y, s.stride,
                                    s.dilation, s.begin, s.end);
    if (st || dnnl_primitive_desc_create(&hint, &forward, NULL, engine, NULL)) return NULL;
    if (!dnnl_primitive_attr_create(&attr)) {
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
        if (dnnl_primitive_desc_create(&desc, &op, attr, engine, hint)) desc = NULL;
        dnnl_primitive_attr_destroy(attr);
    }
    dnnl_primitive_desc_destroy(hint);
    if (desc) dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    if (desc && strstr(name, "ref")) {
        dnnl_primitive_desc_destroy(desc);
        desc = NULL;
    }
    return desc;
}

static bool can(const pare_prep *p, bool weight)
{
    pare_conv c;
    descs d;
    dnnl_engine_t engine;
    for (int i = 0; i < 2; i++)
        if (p->in[i].dtype != PARE_f32 || pare_view_count(&p->in[i]) == 0) return false;
    if (pare_view_count(&p->out[0]) == 0) return false;
    if (pare_conv_grad_read(p, weight, &c) != PARE_OK) {
        pare_ctx_clear(p->ctx);
        return false;
    }
    if (!descs_make(p, weight, c.group, &d) || dnnl_engine_create(&engine, dnnl_cpu, 0))
        return false;
    dnnl_primitive_desc_t desc = describe(&c, &d, weight, engine);
    if (desc) dnnl_primitive_desc_destroy(desc);
    dnnl_engine_destroy(engine);
    return desc != NULL;
}

static void release(void *state)
{
    grad *g = state;
    if (!g) return;
    if (g->reorder) dnnl_primitive_destroy(g->reorder);
    if (g->primitive) dnnl_primitive_destroy(g->primitive);
    if (g->engine) dnnl_engine_destroy(g->engine);
    memset(g, 0, sizeof *g);
}

static size_t reserve(size_t *scratch, const dnnl_memory_desc_t *desc)
{
    size_t at = *scratch;
    *scratch += (dnnl_memory_desc_get_size(desc) + 63) / 64 * 64;
    return at;
}

/* The weight between the graph's order and the primitive's. */
static pare_status place_weight(pare_prep *p, grad *g)
{
    const dnnl_memory_desc_t *wanted = &g->desc[g->weight ? RESULT : WEIGHT];
    dnnl_primitive_desc_t desc;
    if (dnnl_memory_desc_equal(&g->plain, wanted)) return PARE_OK;
    const dnnl_memory_desc_t *from = g->weight ? wanted : &g->plain,
                             *to = g->weight ? &g->plain : wanted;
    dnnl_status_t st =
        dnnl_reorder_primitive_desc_create(&desc, from, g->engine, to, g->engine, NULL);
    if (st == dnnl_success) {
        st = dnnl_primitive_create(&g->reorder, desc);
        dnnl_primitive_desc_destroy(desc);
    }
    if (st != dnnl_success) return pare_dnnl_fail(p->node, st, "a weight's order");
    if (g->weight || !p->in[1].data) {
        g->weight_at = reserve(&p->scratch, wanted);
        return PARE_OK;
    }
    g->packed = pare_arena_alloc(p->arena, dnnl_memory_desc_get_size(wanted), 1);
    if (!g->packed) return PARE_MEMORY;
    st = pare_dnnl_reorder(g->engine, from, p->in[1].data, to, g->packed);
    if (st != dnnl_success) return pare_dnnl_fail(p->node, st, "a packed weight");
    dnnl_primitive_destroy(g->reorder);
    g->reorder = NULL;
    return PARE_OK;
}

static pare_status fill(pare_prep *p, grad *g, const descs *d, dnnl_primitive_desc_t desc)
{
    dnnl_status_t st = dnnl_primitive_create(&g->primitive, desc);
    if (st != dnnl_success) return pare_dnnl_fail(p->node, st, "a primitive");
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    dnnl_query_t query = g->weight ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    const dnnl_memory_desc_t w = *dnnl_primitive_desc_query_md(desc, query, 0);
    g->desc[ACTIVATION] = d->y;
    g->desc[WEIGHT] = g->weight ? d->x : w;
    g->desc[RESULT] = g->weight ? w : d->x;
    g->plain = d->w;
    g->arg[ACTIVATION] = DNNL_ARG_DIFF_DST;
    g->arg[WEIGHT] = g->weight ? DNNL_ARG_SRC : DNNL_ARG_WEIGHTS;
    g->arg[RESULT] = g->weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_DIFF_SRC;
    g->arg[SCRATCHPAD] = DNNL_ARG_SCRATCHPAD;
    p->scratch = 0;
    g->scratchpad = pad && dnnl_memory_desc_get_size(pad) > 0;
    if (g->scratchpad) {
        g->desc[SCRATCHPAD] = *pad;
        g->pad_at = reserve(&p->scratch, pad);
    }
    return place_weight(p, g);
}

static pare_status prepare(pare_prep *p, bool weight)
{
    pare_conv c;
    descs d;
    PARE_TRY(pare_conv_grad_read(p, weight, &c));
    grad *g = pare_arena_alloc(p->arena, 1, sizeof *g);
    if (!g) return PARE_MEMORY;
    g->weight = weight;
    g->threads = p->deterministic ? 1 : p->threads;
    dnnl_status_t made = dnnl_engine_create(&g->engine, dnnl_cpu, 0);
    if (made != dnnl_success) return pare_dnnl_fail(p->node, made, "an engine");
    pare_dnnl_use_threads(g->threads);
    dnnl_primitive_desc_t desc =
        descs_make(p, weight, c.group, &d) ? describe(&c, &d, weight, g->engine) : NULL;
    pare_status st =
        desc ? fill(p, g, &d, desc)
             : pare_dnnl_fail(p->node, dnnl_unimplemented, "this convolution's gradient");
    pare_dnnl_use_threads(p->threads);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (st != PARE_OK)
        release(g);
    else
        p->state = g;
    return st;
}

/* --- running --- */

typedef struct bound {
    dnnl_stream_t stream;
    dnnl_memory_t memory[OPERANDS], plain;
} bound;

static pare_status bind(pare_call *c, pare_arena *arena)
{
    const grad *g = c->state;
    bound *b = pare_arena_alloc(arena, 1, sizeof *b);
    if (!b) return PARE_MEMORY;
    c->bound = b;
    dnnl_status_t st = dnnl_stream_create(&b->stream, g->engine, dnnl_stream_default_flags);
    for (int i = 0; st == dnnl_success && i < OPERANDS - !g->scratchpad; i++)
        st = dnnl_memory_create(&b->memory[i], &g->desc[i], g->engine, NULL);
    if (st == dnnl_success) st = dnnl_memory_create(&b->plain, &g->plain, g->engine, NULL);
    return st == dnnl_success ? PARE_OK : pare_dnnl_fail(c->node, st, "memory objects");
}

static void unbind(void *bound_)
{
    bound *b = bound_;
    if (!b) return;
    for (int i = 0; i < OPERANDS; i++)
        if (b->memory[i]) dnnl_memory_destroy(b->memory[i]);
    if (b->plain) dnnl_memory_destroy(b->plain);
    if (b->stream) dnnl_stream_destroy(b->stream);
    memset(b, 0, sizeof *b);
}

static dnnl_status_t execute(const grad *g, const bound *b)
{
    const int w = g->weight ? RESULT : WEIGHT;
    dnnl_exec_arg_t arg[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) arg[i] = (dnnl_exec_arg_t){g->arg[i], b->memory[i]};
    const dnnl_exec_arg_t pack[] = {{DNNL_ARG_FROM, b->plain}, {DNNL_ARG_TO, b->memory[w]}};
    const dnnl_exec_arg_t back[] = {{DNNL_ARG_FROM, b->memory[w]}, {DNNL_ARG_TO, b->plain}};
    dnnl_status_t st = dnnl_success;
    if (g->reorder && !g->weight) st = dnnl_primitive_execute(g->reorder, b->stream, 2, pack);
    if (st == dnnl_success)
        st = dnnl_primitive_execute(g->primitive, b->stream, OPERANDS - !g->scratchpad, arg);
    if (st == dnnl_success && g->reorder && g->weight)
        st = dnnl_primitive_execute(g->reorder, b->stream, 2, back);
    return st;
}

static pare_status run(const pare_call *c)
{
    const grad *g = c->state;
    const bound *b = c->bound;
    char *scratch = c->scratch;
    void *plain = g->weight ? c->out[0].data : c->in[1].data;
    void *w = g->packed ? g->packed : g->reorder ? scratch + g->weight_at : plain;
    dnnl_memory_set_data_handle(b->memory[ACTIVATION], c->in[0].data);
    dnnl_memory_set_data_handle(b->memory[WEIGHT], g->weight ? c->in[1].data : w);
    dnnl_memory_set_data_handle(b->memory[RESULT], g->weight ? w : c->out[0].data);
    if (g->scratchpad) dnnl_memory_set_data_handle(b->memory[SCRATCHPAD], scratch + g->pad_at);
    dnnl_memory_set_data_handle(b->plain, plain);
    if (g->threads != c->threads) pare_dnnl_use_threads(g->threads);
    dnnl_status_t st = execute(g, b);
    if (g->threads != c->threads) pare_dnnl_use_threads(c->threads);
    return st == dnnl_success ? PARE_OK : pare_dnnl_fail(c->node, st, "to run");
}

#define KERNEL(which, is_weight)                                                                   \
    static bool which##_can(const pare_prep *p) { return can(p, is_weight); }                      \
    static pare_status which##_prepare(pare_prep *p) { return prepare(p, is_weight); }             \
    const pare_kernel pare_onednn_conv_grad_##which = {.name = "onednn_conv_grad_" #which,         \
                                                       .can = which##_can,                         \
                                                       .prepare = which##_prepare,                 \
                                                       .bind = bind,                               \
                                                       .run = run,                                 \
                                                       .unbind = unbind,                           \
                                                       .release = release}
KERNEL(input, false);
KERNEL(weight, true);
