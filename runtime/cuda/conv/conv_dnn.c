/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and their gradients on cuDNN: its first few engines (dnn_kept.h), an entry each.
   Floats with bias, ReLU or bounds, and a residual. 8-bit ones that our own kernels lack, over
   three axes or with computed weights: the library makes the sums, which are exact, and the passes
   of dnn_pass.h the rest. Sums of floats are the library's: not in deterministic execution, but for
   convolutions of a training where the device allows that (pare_cuda_allow_dnn). */
#include "runtime/base/size.h"
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/conv/dnn_kept.h"
#include "runtime/cuda/conv/dnn_pass.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/gemm/prepack.h"

#include <stdlib.h>
#include <string.h>

/* What a reader found of a node. */
typedef struct dnn_node {
    pare_dnn_conv c;
    pare_conv_args a; /* of a forward one */
    bool int8, packs; /* packs: constant W is copied, channels fastest */
    bool zeros;       /* a bias of zeros is made: without one no fast engine adds or bounds */
    bool copies;      /* X is copied, with its zero point around it */
    int32_t zero;     /* of X as s8 */
    bool last;        /* channels of Y are fastest */
} dnn_node;

/* --- tensors --- */

static int dnn_type(pare_dtype type)
{
    switch (type) {
    case PARE_f16: return PARE_DNN_F16;
    case PARE_bf16: return PARE_DNN_BF16;
    case PARE_s8: return PARE_DNN_S8;
    default: return PARE_DNN_F32;
    }
}

/* Of rank 3 an axis of length 1 is added. False of empty tensors, large ones, broadcast ones. */
static bool tensor_read(const pare_view *v, int type, pare_dnn_tensor *out)
{
    const bool adds = v->rank == 3;
    int at = 0;
    if (v->rank < 3 || v->rank > PARE_DNN_AXES || pare_view_count(v) > INT32_MAX) return false;
    *out = (pare_dnn_tensor){.type = type};
    for (int i = 0; i < v->rank; i++) {
        if (v->dim[i] < 1 || v->stride[i] < (v->dim[i] > 1)) return false;
        if (adds && i == 2) {
            out->dim[at] = 1;
            out->stride[at++] = v->dim[2] * v->stride[2];
        }
        out->dim[at] = v->dim[i];
        out->stride[at++] = v->stride[i];
    }
    return true;
}

static void dense_set(pare_dnn_tensor *t, int64_t rank, bool last)
{
    int64_t step = last ? t->dim[1] : 1;
    if (last) t->stride[1] = 1;
    for (int64_t i = rank - 1; i >= 2; i--) t->stride[i] = step, step *= t->dim[i];
    if (!last) t->stride[1] = step, step *= t->dim[1];
    t->stride[0] = step;
}

static void vector_set(pare_dnn_tensor *t, int64_t rank, int64_t count, int type, bool last)
{
    *t = (pare_dnn_tensor){.type = type, .dim = {1, count, 1, 1, 1}};
    if (rank == 4) t->dim[4] = 0;
    dense_set(t, rank, last);
}

static bool window_set(const pare_window *w, const pare_dnn_tensor *y, pare_dnn_conv *c)
{
    const int axes = (int)c->rank - 2;
    for (int i = 0; i < axes; i++) {
        const int from = 3 - axes + i;
        c->begin[i] = w->begin[from], c->end[i] = w->end[from];
        c->stride[i] = w->stride[from], c->dilation[i] = w->dilation[from];
        if (w->begin[from] < 0 || w->end[from] < 0 || w->out[from] != y->dim[2 + i]) return false;
    }
    return true;
}

/* --- nodes --- */

/* In deterministic execution results depend neither on the batch nor on what is installed. */
static bool sums_allowed(const pare_prep *p, pare_cuda_conv_makes makes)
{
    const bool training = makes != PARE_CUDA_CONV_Y || !p->in[1].data;
    return !p->deterministic || (training && pare_cuda_allows_dnn(p->device));
}

static bool parts_read(const pare_prep *p, const pare_cuda_conv_parts *parts, dnn_node *n)
{
    pare_dnn_conv *c = &n->c;
    pare_window win;
    c->makes = parts->makes;
    c->rank = parts->x->rank < 4 ? 4 : parts->x->rank;
    /* our own kernels are good where W is constant and pictures have two axes or fewer; sums of
       floats that are to be the same tomorrow do not depend on whether NVRTC is there */
    c->compiles = (!p->in[1].data || c->rank > 4) &&
                  !(p->deterministic && !pare_type_is_int8(p->in[0].dtype));
    n->last = c->rank == 4 && parts->x->stride[1] == 1 && parts->y->stride[1] == 1;
    return parts->w->rank == parts->x->rank && parts->y->rank == parts->x->rank &&
           pare_cuda_readable(p, pare_cuda_conv_window(p, &win)) && win.group > 0 &&
           tensor_read(parts->x, dnn_type(parts->x->dtype), &c->x) &&
           tensor_read(parts->w, dnn_type(parts->w->dtype), &c->w) &&
           tensor_read(parts->y, dnn_type(parts->y->dtype), &c->y) && window_set(&win, &c->y, c);
}

/* W as it is packed: channels fastest. */
static void packs_set(const pare_prep *p, dnn_node *n)
{
    n->packs = p->in[1].data && n->last && pare_view_rowmajor(&p->in[1]);
    if (n->packs) dense_set(&n->c.w, n->c.rank, true);
}

/* --- floats --- */

static bool act_fits(const pare_act *act)
{
    return act->kind == PARE_ACT_NONE || act->kind == PARE_ACT_RELU ||
           (act->kind == PARE_ACT_CLIP && act->alpha <= act->beta);
}

static bool ends_read(const pare_prep *p, dnn_node *n)
{
    const pare_conv_args *a = &n->a;
    const pare_dtype type = p->in[0].dtype;
    const pare_view *b = pare_operand(p->in, p->in_count, a->at.bias),
                    *z = pare_operand(p->in, p->in_count, a->at.residual);
    pare_dnn_conv *c = &n->c;
    if (a->at.w_scale >= 0 || !act_fits(&a->act)) return false;
    if (b && ((b->dtype != type && b->dtype != PARE_f32) || b->rank < 1 ||
              pare_view_count(b) != a->m || b->dim[b->rank - 1] != a->m))
        return false;
    if (z && (z->dtype != type || z->rank != p->out[0].rank ||
              !tensor_read(z, dnn_type(type), &c->residual) ||
              memcmp(c->residual.dim, c->y.dim, sizeof c->y.dim)))
        return false;
    c->added = z != NULL;
    n->zeros = !b && (z || a->act.kind != PARE_ACT_NONE);
    c->biased = b || n->zeros;
    if (c->biased) vector_set(&c->bias, c->rank, a->m, dnn_type(b ? b->dtype : type), n->last);
    c->act = a->act.kind;
    if (a->act.kind == PARE_ACT_CLIP) c->low = a->act.alpha, c->high = a->act.beta;
    return true;
}

/* All of one type: version 9 has no engine for f32 gradients of weights beside short tensors. */
static bool floats_read(const pare_prep *p, dnn_node *n)
{
    const pare_cuda_conv_parts parts = pare_cuda_conv_parts_of(p);
    const pare_dtype type = p->in[0].dtype;
    *n = (dnn_node){.a = {.at = {-1, -1, -1, -1}}};
    if (!pare_cuda_can_float(p, 2) || p->out[0].dtype != type || !sums_allowed(p, parts.makes) ||
        !parts_read(p, &parts, n))
        return false;
    n->c.tf32 = type == PARE_f32 && p->device->tf32;
    if (parts.makes != PARE_CUDA_CONV_Y) return p->in_count == 2;
    if (!pare_cuda_readable(p, pare_conv_args_read(p, &n->a)) || !ends_read(p, n)) return false;
    packs_set(p, n);
    return true;
}

/* --- integers --- */

static bool is_padded(const pare_dnn_conv *c)
{
    bool padded = false;
    for (int i = 0; i < 3; i++) padded = padded || c->begin[i] || c->end[i];
    return padded;
}

/* X as the library reads it: dense, and with what was around it. */
static void copy_set(dnn_node *n)
{
    pare_dnn_conv *c = &n->c;
    for (int i = 0; i < c->rank - 2; i++) {
        c->x.dim[2 + i] += c->begin[i] + c->end[i];
        c->begin[i] = c->end[i] = 0;
    }
    dense_set(&c->x, c->rank, n->last);
}

static bool is_dense(const pare_view *v, bool last)
{
    return last ? pare_view_nhwc(v) : pare_view_rowmajor(v);
}

/* Is every sum below 2^24? The library passes sums through f32, which holds integers up to there.
   Larger ones are rounded as the epilogue would round them, unless a shift is to be taken off
   before. */
static bool sums_exact(const pare_view *w)
{
    const int64_t depth = pare_view_count(w) / w->dim[0];
    for (int64_t m = 0; m < w->dim[0]; m++) {
        int64_t sum = 0;
        for (int64_t k = 0; k < depth; k++) sum += abs(((const int8_t *)w->data)[m * depth + k]);
        if (128 * sum > 1 << 24) return false;
    }
    return true;
}

/* Where pixels beyond the edge count, as they do unless the zero point is 0, they are made. */
static bool integers_read(const pare_prep *p, dnn_node *n)
{
    const pare_cuda_conv_parts parts = pare_cuda_conv_parts_of(p);
    const pare_view *x = &p->in[0], *y = &p->out[0];
    pare_dnn_conv *c = &n->c;
    *n = (dnn_node){.int8 = true};
    if (!pare_type_is_int8(x->dtype) || p->in[1].dtype != PARE_s8 ||
        (p->in[1].data && x->rank < 5) || (y->dtype != PARE_f32 && !pare_type_is_int8(y->dtype)) ||
        !parts_read(p, &parts, n) || !pare_cuda_readable(p, pare_conv_args_read(p, &n->a)) ||
        n->a.q.w_zero || !is_dense(y, n->last) || !pare_cuda_residual_fits(p, n->a.at.residual))
        return false;
    n->zero = n->a.q.x_zero - (x->dtype == PARE_u8 ? 128 : 0);
    if (n->zero && !(p->in[1].data && pare_view_rowmajor(&p->in[1]) && sums_exact(&p->in[1])))
        return false;
    n->copies = x->dtype == PARE_u8 || (n->zero && is_padded(c)) || !is_dense(x, n->last);
    if (n->copies) copy_set(n);
    packs_set(p, n);
    c->x.type = c->w.type = PARE_DNN_S8, c->y.type = PARE_DNN_S32;
    double count = 1; /* of X with what is around it */
    for (int i = 0; i < c->rank; i++) count *= (double)c->x.dim[i];
    return count <= INT32_MAX;
}

static bool node_read(const pare_prep *p, dnn_node *n)
{
    return p->in_count > 1 && p->device &&
           (pare_type_is_int8(p->in[0].dtype) ? integers_read(p, n) : floats_read(p, n));
}

bool pare_dnn_conv_read(const pare_prep *p, pare_dnn_conv *out)
{
    dnn_node n;
    const bool fits = node_read(p, &n);
    if (fits) *out = n.c;
    return fits;
}

/* --- constants --- */

typedef struct dnn_prepared {
    pare_dnn_chosen chosen;
    pare_device *device;
    void *block;          /* of constants, or NULL */
    const void *w, *bias; /* in it; NULL: the inputs */
    pare_cuda_conv_makes makes;
    int bias_at, residual_at; /* input positions, -1: none */
    bool int8, copies;
    pare_dnn_signs signs;           /* all but addresses */
    pare_dnn_requantize requantize; /* the same */
    size_t copy, sums;              /* in scratch */
} dnn_prepared;

/* Offsets in the block. */
typedef struct dnn_block {
    size_t w, bias, scale, shift, bytes;
} dnn_block;

static size_t part(size_t *end, size_t bytes)
{
    const size_t at = *end;
    *end = pare_align_up(at + bytes, 256);
    return at;
}

static dnn_block block_of(const pare_prep *p, const dnn_node *n)
{
    const size_t m = (size_t)n->a.m;
    dnn_block b = {0};
    if (n->packs) b.w = part(&b.bytes, pare_view_bytes(&p->in[1]));
    if (n->zeros) b.bias = part(&b.bytes, m * sizeof(float));
    if (!n->int8) return b;
    b.bias = part(&b.bytes, m * sizeof(float));
    b.scale = part(&b.bytes, m * sizeof(float));
    b.shift = part(&b.bytes, m * sizeof(int32_t));
    return b;
}

/* W (filters, channels, window) as rows of filters, channels fastest. */
static void weights_pack(const pare_view *w, char *to)
{
    const size_t bytes = (size_t)pare_cuda_bytes(w->dtype);
    int64_t taps = 1;
    for (int i = 2; i < w->rank; i++) taps *= w->dim[i];
    for (int64_t m = 0; m < w->dim[0]; m++)
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = 0; c < w->dim[1]; c++, to += bytes)
                memcpy(to, (const char *)w->data + (size_t)((m * w->dim[1] + c) * taps + t) * bytes,
                       bytes);
}

/* What a sum over a picture with a zero point is too much: modulo 2^32. */
static void shift_pack(const pare_view *w, int32_t zero, int64_t m, int32_t *shift)
{
    const int64_t depth = pare_view_count(w) / m;
    for (int64_t i = 0; i < m; i++) {
        int32_t sum = 0;
        for (int64_t k = 0; zero && k < depth; k++) sum += ((const int8_t *)w->data)[i * depth + k];
        shift[i] = (int32_t)((uint32_t)zero * (uint32_t)sum);
    }
}

static void block_fill(const pare_prep *p, const dnn_node *n, const dnn_block *b, char *host)
{
    const size_t bytes = (size_t)n->a.m * sizeof(float);
    if (n->packs) weights_pack(&p->in[1], host + b->w);
    if (!n->int8) return;
    if (n->a.bias) memcpy(host + b->bias, n->a.bias, bytes);
    memcpy(host + b->scale, n->a.scale, bytes);
    shift_pack(&p->in[1], n->zero, n->a.m, (int32_t *)(void *)(host + b->shift));
}

static pare_status block_make(pare_prep *p, const dnn_node *n, dnn_prepared *s)
{
    const dnn_block b = block_of(p, n);
    if (!b.bytes) return PARE_OK;
    char *host = pare_alloc(p->ctx, b.bytes, 1);
    if (!host) return PARE_MEMORY;
    block_fill(p, n, &b, host);
    const pare_status st = pare_cuda_copy_kept(p, &s->block, host, b.bytes);
    pare_free(host);
    if (st != PARE_OK)
        return pare_fail_prefix(p->ctx, st, "node '%s' (%s)", p->node->name, p->node->op_type);
    const char *block = s->block;
    if (n->packs) s->w = block + b.w;
    if (n->zeros) s->bias = block + b.bias;
    if (!n->int8) return PARE_OK;
    s->requantize.bias = (const float *)(const void *)(block + b.bias);
    s->requantize.scale = (const float *)(const void *)(block + b.scale);
    s->requantize.shift = (const int32_t *)(const void *)(block + b.shift);
    return PARE_OK;
}

/* --- entries --- */

static bool dnn_can(const pare_prep *p, int rank)
{
    dnn_node n;
    return node_read(p, &n) && pare_dnn_has(p, &n.c, rank);
}

static void signs_set(pare_prep *p, const dnn_node *n, dnn_prepared *s)
{
    const pare_window *w = &n->a.win;
    pare_dnn_signs *to = &s->signs;
    to->channels = pare_cuda_fast_divisor_of((int)n->a.c);
    to->zero = n->zero;
    to->flips = p->in[0].dtype == PARE_u8, to->last = n->last;
    pare_cuda_strides(&p->in[0], to->from_stride);
    to->count = n->a.n * n->a.c;
    for (int i = 0; i < 3; i++) {
        const int axis = i - (5 - (int)n->c.rank), out = axis < 0 ? 1 : (int)n->c.x.dim[2 + axis];
        to->in[i] = (int)w->in[i], to->begin[i] = (int)w->begin[i];
        to->out[i] = pare_cuda_fast_divisor_of(out);
        to->count *= out;
    }
    s->copy = p->scratch;
    p->scratch += pare_align_up((size_t)to->count, 256);
}

static void passes_set(pare_prep *p, const dnn_node *n, dnn_prepared *s)
{
    if (!n->int8) return;
    if (n->copies) signs_set(p, n, s);
    s->sums = p->scratch;
    p->scratch += pare_align_up((size_t)pare_view_count(&p->out[0]) * sizeof(int32_t), 256);
    s->requantize.count = pare_view_count(&p->out[0]);
    s->requantize.channels = pare_cuda_fast_divisor_of((int)n->a.m);
    s->requantize.inner =
        pare_cuda_fast_divisor_of(n->last ? 1 : (int)(s->requantize.count / (n->a.n * n->a.m)));
    s->requantize.epilogue = n->a.epilogue;
}

static void packed_set(pare_prep *p, const dnn_node *n)
{
    if (n->packs) p->packed |= 2;
    if (!n->int8) return;
    if (n->a.at.bias >= 0) p->packed |= 1u << n->a.at.bias;
    if (n->a.at.w_scale >= 0) p->packed |= 1u << n->a.at.w_scale;
}

static void dnn_release(void *state)
{
    dnn_prepared *s = state;
    if (!s) return;
    pare_dnn_leave(&s->chosen);
    if (s->block) s->device->backend->free(s->device, s->block);
}

static pare_status dnn_prepare(pare_prep *p, int rank)
{
    dnn_node n;
    dnn_prepared *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    if (!node_read(p, &n)) return PARE_FAIL_NODE(p->node, UNSUPPORTED, "cuDNN does not take it");
    s->device = p->device;
    s->makes = (pare_cuda_conv_makes)n.c.makes;
    s->int8 = n.int8, s->copies = n.copies;
    s->bias_at = n.int8 ? -1 : n.a.at.bias, s->residual_at = n.a.at.residual;
    PARE_TRY(pare_dnn_choose(p, &n.c, rank, &s->chosen));
    const pare_status st = block_make(p, &n, s);
    if (st != PARE_OK) {
        dnn_release(s);
        return st;
    }
    passes_set(p, &n, s);
    packed_set(p, &n);
    p->state = s;
    return PARE_OK;
}

static void places_set(const pare_call *c, const dnn_prepared *s, void *data[PARE_DNN_TENSORS])
{
    const int x = s->makes == PARE_CUDA_CONV_DW;
    data[PARE_DNN_X] = s->makes == PARE_CUDA_CONV_DX ? c->out[0].data : c->in[x].data;
    data[PARE_DNN_W] = s->makes == PARE_CUDA_CONV_DW ? c->out[0].data : c->in[1].data;
    data[PARE_DNN_Y] = s->makes == PARE_CUDA_CONV_Y ? c->out[0].data : c->in[0].data;
    if (s->bias_at >= 0) data[PARE_DNN_BIAS] = c->in[s->bias_at].data;
    if (s->residual_at >= 0) data[PARE_DNN_RESIDUAL] = c->in[s->residual_at].data;
    if (s->w) data[PARE_DNN_W] = (void *)(uintptr_t)s->w;
    if (s->bias) data[PARE_DNN_BIAS] = (void *)(uintptr_t)s->bias;
    if (s->int8) data[PARE_DNN_Y] = (char *)c->scratch + s->sums;
    if (s->copies) data[PARE_DNN_X] = (char *)c->scratch + s->copy;
}

static pare_status dnn_bind(pare_call *c, pare_arena *arena)
{
    const dnn_prepared *s = c->state;
    void *data[PARE_DNN_TENSORS] = {0};
    pare_dnn_bound *b;
    places_set(c, s, data);
    PARE_TRY(pare_dnn_bind(c, arena, &s->chosen, data, &b));
    c->bound = b;
    return PARE_OK;
}

static void dnn_unbind(void *bound) { pare_dnn_unbind(bound); }

static pare_status signs_run(const pare_call *c, const dnn_prepared *s, void *to)
{
    pare_dnn_signs signs = s->signs;
    signs.from = c->in[0].data;
    signs.to = to;
    return PARE_CUDA_LAUNCH(c, pare_dnn_signs_launch, &signs);
}

static pare_status requantize_run(const pare_call *c, const dnn_prepared *s, const void *sums)
{
    pare_dnn_requantize r = s->requantize;
    if (s->residual_at >= 0) r.z = c->in[s->residual_at].data;
    r.sums = sums;
    r.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_dnn_requantize_launch, &r);
}

static pare_status dnn_run(const pare_call *c)
{
    const dnn_prepared *s = c->state;
    void *data[PARE_DNN_TENSORS] = {0};
    places_set(c, s, data);
    if (s->copies) PARE_TRY(signs_run(c, s, data[PARE_DNN_X]));
    PARE_TRY(pare_dnn_run(c, c->bound, data));
    return s->int8 ? requantize_run(c, s, data[PARE_DNN_Y]) : PARE_OK;
}

#define DNN_ENTRY(rank)                                                                            \
    static bool dnn_can_##rank(const pare_prep *prep) { return dnn_can(prep, rank); }              \
    static pare_status dnn_prepare_##rank(pare_prep *prep) { return dnn_prepare(prep, rank); }     \
    const pare_kernel pare_cuda_conv_dnn_##rank = {.name = "cudnn_conv_" #rank,                    \
                                                   .can = dnn_can_##rank,                          \
                                                   .prepare = dnn_prepare_##rank,                  \
                                                   .bind = dnn_bind,                               \
                                                   .run = dnn_run,                                 \
                                                   .unbind = dnn_unbind,                           \
                                                   .release = dnn_release};
DNN_ENTRY(0)
DNN_ENTRY(1)
DNN_ENTRY(2)
DNN_ENTRY(3)
