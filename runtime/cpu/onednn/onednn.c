/* SPDX-License-Identifier: Apache-2.0 */
/* What all oneDNN nodes share (onednn.h): slots, packing, binding, running. */
#include "runtime/cpu/onednn/onednn.h"
#include "runtime/base/room.h"
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/cpu/isa.h"

#include <omp.h>
#include <string.h>

#if DNNL_VERSION_MAJOR != 2
#error "onednn*.c speak oneDNN 2.x; leave them out of the build"
#endif

pare_isa pare_onednn_isa(void)
{
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(), vnni = 0x40, avx512 = 0x20;
    if (isa == (unsigned)dnnl_cpu_isa_all || (isa & vnni)) return PARE_ISA_VNNI;
    if (isa & avx512) return PARE_ISA_AVX512;
    return (isa & (unsigned)dnnl_cpu_isa_avx2) == (unsigned)dnnl_cpu_isa_avx2 ? PARE_ISA_AVX2
                                                                              : PARE_ISA_PORTABLE;
}

pare_status pare_dnnl_fail(const pare_node *node, dnnl_status_t status, const char *what)
{
    if (status == dnnl_out_of_memory)
        return PARE_FAIL_NODE(node, MEMORY, "oneDNN is out of memory while it makes %s", what);
    return PARE_FAIL_NODE(node, DEVICE, "oneDNN refuses %s (status %d)", what, (int)status);
}

dnnl_data_type_t pare_dnnl_type(pare_dtype dtype)
{
    switch (dtype) {
    case PARE_f32:
    case PARE_f16:
    case PARE_bf16: return dnnl_f32;
    case PARE_s8: return dnnl_s8;
    case PARE_u8: return dnnl_u8;
    case PARE_s32: return dnnl_s32;
    default: return dnnl_data_type_undef;
    }
}

/* oneDNN 2.6 writes code to where its allocation should have been when memory has run out (under a
   limit on addresses): whether there is room is asked before. */
enum { ROOM = 16 << 20 };

pare_status pare_dnnl_new(pare_prep *p, pare_dnnl **out)
{
    pare_dnnl *d = pare_arena_alloc(p->arena, 1, sizeof *d);
    if (!d) return PARE_MEMORY;
    d->residual = -1;
    if (!pare_has_room(ROOM)) return pare_dnnl_fail(p->node, dnnl_out_of_memory, "a primitive");
    dnnl_status_t status = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (status != dnnl_success) return pare_dnnl_fail(p->node, status, "an engine");
    *out = d;
    return PARE_OK;
}

void pare_dnnl_release(void *state)
{
    pare_dnnl *d = state;
    if (!d) return;
    for (int i = 0; i < d->count; i++)
        if (d->slot[i].pack) dnnl_primitive_destroy(d->slot[i].pack);
    d->count = 0;
    if (d->primitive) dnnl_primitive_destroy(d->primitive);
    if (d->engine) dnnl_engine_destroy(d->engine);
    d->primitive = NULL;
    d->engine = NULL;
}

pare_dnnl_slot *pare_dnnl_add(pare_dnnl *d, int arg, pare_dnnl_place place, int index, void *data,
                              const dnnl_memory_desc_t *desc)
{
    pare_dnnl_slot *s = &d->slot[d->count++];
    *s = (pare_dnnl_slot){.arg = arg, .place = place, .index = index, .data = data, .desc = *desc};
    return s;
}

static bool is_lowp(pare_dtype t) { return t == PARE_f16 || t == PARE_bf16; }

static void reserve(pare_dnnl *d, pare_dnnl_slot *s, const pare_view *view)
{
    s->half = is_lowp(view->dtype) ? view->dtype : PARE_NOTYPE;
    s->flip = !s->half;
    s->count = pare_view_count(view);
    s->offset = d->scratch;
    d->scratch += ((size_t)s->count * (s->flip ? 1 : sizeof(float)) + 63) / 64 * 64;
}

pare_status pare_dnnl_add_in(pare_prep *p, pare_dnnl *d, int arg, int index,
                             const dnnl_memory_desc_t *desc)
{
    const pare_view *v = &p->in[index];
    pare_dnnl_slot *s =
        pare_dnnl_add(d, arg, v->data ? PARE_DNNL_FIXED : PARE_DNNL_IN, index, v->data, desc);
    if (!is_lowp(v->dtype) && (v->dtype != PARE_u8 || desc->data_type != dnnl_s8)) return PARE_OK;
    if (!v->data) {
        reserve(d, s, v);
        return PARE_OK;
    }
    int64_t count = pare_view_count(v);
    s->data = pare_arena_alloc(p->arena, (size_t)count, sizeof(float));
    if (!s->data) return PARE_MEMORY;
    pare_widen(s->data, v->data, v->dtype, count, 1);
    return PARE_OK;
}

pare_status pare_dnnl_add_out(pare_prep *p, pare_dnnl *d, const dnnl_memory_desc_t *desc)
{
    d->output = d->count;
    pare_dnnl_slot *s = pare_dnnl_add(d, DNNL_ARG_DST, PARE_DNNL_OUT, 0, NULL, desc);
    if (is_lowp(p->out[0].dtype)) reserve(d, s, &p->out[0]);
    return PARE_OK;
}

dnnl_status_t pare_dnnl_reorder(dnnl_engine_t engine, const dnnl_memory_desc_t *from, void *source,
                                const dnnl_memory_desc_t *to, void *target)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t a = NULL, b = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_status_t st = dnnl_memory_create(&a, from, engine, source);
    if (st == dnnl_success) st = dnnl_memory_create(&b, to, engine, target);
    if (st == dnnl_success)
        st = dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL);
    if (st == dnnl_success) st = dnnl_primitive_create(&primitive, desc);
    if (st == dnnl_success) st = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, a}, {DNNL_ARG_TO, b}};
    if (st == dnnl_success) st = dnnl_primitive_execute(primitive, stream, 2, args);
    if (stream) dnnl_stream_wait(stream);
    if (stream) dnnl_stream_destroy(stream);
    if (primitive) dnnl_primitive_destroy(primitive);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (a) dnnl_memory_destroy(a);
    if (b) dnnl_memory_destroy(b);
    return st;
}

static pare_status add_repacked(pare_prep *p, pare_dnnl *d, int arg, int index,
                                const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *wanted)
{
    dnnl_primitive_desc_t desc;
    pare_dnnl_slot *s = pare_dnnl_add(d, arg, PARE_DNNL_IN, index, NULL, wanted);
    s->plain = *plain;
    s->offset = d->scratch;
    d->scratch += (dnnl_memory_desc_get_size(wanted) + 63) / 64 * 64;
    dnnl_status_t st =
        dnnl_reorder_primitive_desc_create(&desc, plain, d->engine, wanted, d->engine, NULL);
    if (st == dnnl_success) {
        st = dnnl_primitive_create(&s->pack, desc);
        dnnl_primitive_desc_destroy(desc);
    }
    return st == dnnl_success ? PARE_OK : pare_dnnl_fail(p->node, st, "a weight's order");
}

pare_status pare_dnnl_add_packed(pare_prep *p, pare_dnnl *d, int arg, int index,
                                 const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *wanted)
{
    if (dnnl_memory_desc_equal(plain, wanted)) return pare_dnnl_add_in(p, d, arg, index, plain);
    const pare_view *v = &p->in[index];
    if (!v->data) return add_repacked(p, d, arg, index, plain, wanted);
    float *wide = NULL;
    void *source = v->data;
    if (is_lowp(v->dtype)) {
        int64_t count = pare_view_count(v);
        wide = pare_alloc(p->ctx, (size_t)count, sizeof *wide);
        if (!wide) return PARE_MEMORY;
        pare_widen(wide, v->data, v->dtype, count, 1);
        source = wide;
    }
    void *packed = pare_arena_alloc(p->arena, dnnl_memory_desc_get_size(wanted), 1);
    dnnl_status_t st = dnnl_out_of_memory;
    if (packed) st = pare_dnnl_reorder(d->engine, plain, source, wanted, packed);
    pare_free(wide);
    if (st != dnnl_success) return pare_dnnl_fail(p->node, st, "a packed weight");
    pare_dnnl_add(d, arg, PARE_DNNL_FIXED, index, packed, wanted);
    p->packed |= 1u << index;
    return PARE_OK;
}

pare_status pare_dnnl_make(pare_prep *p, pare_dnnl *d, const_dnnl_primitive_desc_t desc)
{
    dnnl_status_t st = dnnl_primitive_create(&d->primitive, desc);
    if (st != dnnl_success) return pare_dnnl_fail(p->node, st, "a primitive");
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    size_t bytes = pad ? dnnl_memory_desc_get_size(pad) : 0;
    if (bytes) {
        pare_dnnl_slot *s = pare_dnnl_add(d, DNNL_ARG_SCRATCHPAD, PARE_DNNL_SCRATCH, 0, NULL, pad);
        s->offset = d->scratch;
        d->scratch += (bytes + 63) / 64 * 64;
    }
    p->scratch = d->scratch;
    p->state = d;
    return PARE_OK;
}

int pare_dnnl_threads(const pare_prep *p, double macs, bool int8)
{
    double worth = int8 ? 4e5 : 1e5; /* a second thread costs about a microsecond */
    return p->deterministic || macs < worth ? 1 : p->threads;
}

void pare_dnnl_use_threads(int threads) { omp_set_num_threads(threads); }

bool pare_dnnl_residual_fits(const pare_view *z, const pare_view *y)
{
    if (!pare_view_same_order(z, y)) return false;
    return y->dtype == PARE_f32 || (pare_type_is_int8(z->dtype) && pare_type_is_int8(y->dtype)) ||
           z->dtype == y->dtype;
}

void pare_dnnl_set_residual(pare_prep *p, pare_dnnl *d, int index, const pare_quant_args *q)
{
    d->residual = index;
    const pare_view *z = &p->in[index];
    if (q) d->residual_scale = q->z_scale, d->residual_zero = q->z_zero;
    if (p->dying >> index & 1 && z->dtype == p->out[0].dtype) p->share = index;
}

/* --- running --- */

typedef struct bound {
    dnnl_stream_t stream;
    dnnl_memory_t memory[PARE_DNNL_SLOTS];
    dnnl_memory_t plain[PARE_DNNL_SLOTS]; /* of weights that are reordered; else NULL */
    dnnl_exec_arg_t arg[PARE_DNNL_SLOTS];
    void *last[PARE_DNNL_SLOTS];
    int count;
} bound;

pare_status pare_dnnl_bind(pare_call *c, pare_arena *arena)
{
    const pare_dnnl *d = c->state;
    bound *b = pare_arena_alloc(arena, 1, sizeof *b);
    if (!b) return PARE_MEMORY;
    c->bound = b;
    dnnl_status_t st = dnnl_stream_create(&b->stream, d->engine, dnnl_stream_default_flags);
    for (int i = 0; st == dnnl_success && i < d->count; i++, b->count++) {
        const pare_dnnl_slot *s = &d->slot[i];
        b->last[i] = s->data;
        st = dnnl_memory_create(&b->memory[i], &s->desc, d->engine, s->data);
        b->arg[i] = (dnnl_exec_arg_t){s->arg, b->memory[i]};
        if (st == dnnl_success && s->pack)
            st = dnnl_memory_create(&b->plain[i], &s->plain, d->engine, NULL);
    }
    return st == dnnl_success ? PARE_OK : pare_dnnl_fail(c->node, st, "memory objects");
}

void pare_dnnl_unbind(void *bound_)
{
    bound *b = bound_;
    if (!b) return;
    for (int i = 0; i < b->count; i++) {
        dnnl_memory_destroy(b->memory[i]);
        if (b->plain[i]) dnnl_memory_destroy(b->plain[i]);
    }
    if (b->stream) dnnl_stream_destroy(b->stream);
    b->count = 0;
    b->stream = NULL;
}

static void *slot_data(const pare_call *c, const pare_dnnl_slot *s)
{
    if (s->place == PARE_DNNL_FIXED) return s->data;
    if (s->place == PARE_DNNL_SCRATCH || s->half || s->flip || s->pack)
        return (char *)c->scratch + s->offset;
    return s->place == PARE_DNNL_IN ? c->in[s->index].data : c->out[s->index].data;
}

/* The same numbers less 128, as s8. */
static void flip_bytes(uint8_t *dst, const uint8_t *src, int64_t count)
{
    for (int64_t i = 0; i < count; i++) dst[i] = src[i] ^ 0x80;
}

/* The residual goes where the output will be summed onto it. */
static void place_residual(const pare_call *c, const pare_dnnl *d, void *target)
{
    const pare_view *z = &c->in[d->residual];
    int64_t count = pare_view_count(z);
    if (is_lowp(z->dtype)) {
        pare_widen(target, z->data, z->dtype, count, c->threads);
    } else if (pare_type_is_int8(z->dtype) && c->out[0].dtype == PARE_f32) {
        float *y = target;
        for (int64_t at = 0; at < count; at += PARE_ROW) {
            int64_t n = count - at < PARE_ROW ? count - at : PARE_ROW;
            pare_row_load(y + at, n, (const char *)z->data + at, z->dtype, 1, d->residual_zero);
            for (int64_t i = 0; i < n; i++) y[at + i] *= d->residual_scale;
        }
    } else if (z->data != target) {
        memcpy(target, z->data, pare_view_bytes(z));
    }
}

/* Weights that are no constants, into the order that the primitive wants. */
static dnnl_status_t pack_weights(const pare_call *c, const pare_dnnl *d, const bound *b)
{
    dnnl_status_t st = dnnl_success;
    for (int i = 0; i < d->count && st == dnnl_success; i++) {
        const pare_dnnl_slot *s = &d->slot[i];
        const dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, b->plain[i]}, {DNNL_ARG_TO, b->memory[i]}};
        if (!s->pack) continue;
        st = dnnl_memory_set_data_handle(b->plain[i], c->in[s->index].data);
        if (st == dnnl_success) st = dnnl_primitive_execute(s->pack, b->stream, 2, arg);
    }
    return st;
}

pare_status pare_dnnl_run(const pare_call *c)
{
    const pare_dnnl *d = c->state;
    bound *b = c->bound;
    for (int i = 0; i < d->count; i++) {
        const pare_dnnl_slot *s = &d->slot[i];
        void *data = slot_data(c, s);
        if (data != b->last[i]) {
            dnnl_memory_set_data_handle(b->memory[i], data);
            b->last[i] = data;
        }
        if (s->flip) flip_bytes(data, c->in[s->index].data, s->count);
        if (s->half && s->place == PARE_DNNL_IN)
            pare_widen(data, c->in[s->index].data, s->half, s->count, c->threads);
    }
    if (d->residual >= 0) place_residual(c, d, b->last[d->output]);
    if (d->threads != c->threads) omp_set_num_threads(d->threads);
    dnnl_status_t st = pack_weights(c, d, b);
    if (st == dnnl_success) st = dnnl_primitive_execute(d->primitive, b->stream, d->count, b->arg);
    if (d->threads != c->threads) omp_set_num_threads(c->threads);
    if (st != dnnl_success) return pare_dnnl_fail(c->node, st, "to run");
    const pare_dnnl_slot *y = &d->slot[d->output];
    if (y->half) pare_narrow(c->out[0].data, b->last[d->output], y->half, y->count, c->threads);
    return PARE_OK;
}

/* Attributes of fused oneDNN nodes, in the order of epilogue.h: scales, residual sum, activation,
   zero point (applied last by oneDNN itself). */

/* Appends the activation; scale: 1 / s_y where it is curved and y has 8 bits, else 1. */
static bool append_act(dnnl_post_ops_t ops, const pare_act *act, float scale)
{
    dnnl_alg_kind_t kind = dnnl_alg_kind_undef;
    float alpha = 0, beta = 0;
    switch (act->kind) {
    case PARE_ACT_NONE: return true;
    case PARE_ACT_RELU: kind = dnnl_eltwise_relu; break;
    case PARE_ACT_LEAKY_RELU:
        kind = dnnl_eltwise_relu;
        alpha = act->alpha;
        break;
    case PARE_ACT_CLIP:
        kind = dnnl_eltwise_clip;
        alpha = act->alpha;
        beta = act->beta;
        break;
    case PARE_ACT_SIGMOID: kind = dnnl_eltwise_logistic; break;
    case PARE_ACT_TANH: kind = dnnl_eltwise_tanh; break;
    case PARE_ACT_SILU:
        kind = dnnl_eltwise_swish;
        alpha = 1;
        break;
    case PARE_ACT_HARDSWISH: kind = dnnl_eltwise_hardswish; break;
    case PARE_ACT_GELU: kind = dnnl_eltwise_gelu_erf; break;
    case PARE_ACT_GELU_TANH: kind = dnnl_eltwise_gelu_tanh; break;
    case PARE_ACT_HARDSIGMOID: /* a line, then held in [0, 1] */
        if (dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_linear, act->alpha, act->beta))
            return false;
        kind = dnnl_eltwise_clip, beta = 1;
        break;
    default: return false;
    }
    return dnnl_post_ops_append_eltwise(ops, scale, kind, alpha, beta) == dnnl_success;
}

static bool set_zero_points(dnnl_primitive_attr_t attr, const pare_dnnl_attr *in)
{
    int32_t x = in->q->x_zero, w = in->q->w_zero, y = (int32_t)in->epilogue->y_zero;
    if (x && dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_SRC, 1, 0, &x)) return false;
    if (w && dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_WEIGHTS, 1, 0, &w)) return false;
    return !y || !dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_DST, 1, 0, &y);
}

static bool append_ops(dnnl_post_ops_t ops, const pare_dnnl_attr *in)
{
    const pare_epilogue *e = in->epilogue;
    if (!in->q) {
        if (in->sum && dnnl_post_ops_append_sum(ops, 1)) return false;
        return append_act(ops, in->act, 1);
    }
    if (in->sum && e->to == PARE_f32) {
        if (dnnl_post_ops_append_sum(ops, 1)) return false;
    } else if (in->sum) {
        if (dnnl_post_ops_append_sum_v3(ops, e->z_scale, e->z_zero, pare_dnnl_type(e->z_type)))
            return false;
    }
    return append_act(ops, &e->act, e->curved ? 1 / e->y_scale : 1);
}

bool pare_dnnl_attr_make(const pare_dnnl_attr *in, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    if (dnnl_primitive_attr_create(out)) return false;
    bool ok = !dnnl_post_ops_create(&ops) &&
              !dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    ok = ok && append_ops(ops, in) && !dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ok && in->q)
        ok = set_zero_points(*out, in) &&
             !dnnl_primitive_attr_set_output_scales(*out, in->scale_count, in->mask, in->scale);
    if (ok && !in->q && in->alpha != 1)
        ok = !dnnl_primitive_attr_set_output_scales(*out, 1, 0, &in->alpha);
    if (ops) dnnl_post_ops_destroy(ops);
    if (!ok) dnnl_primitive_attr_destroy(*out);
    return ok;
}
