/* SPDX-License-Identifier: Apache-2.0 */
/* pare.FusedAttention and Attention (23, 24) in plain C, any strides: Y = softmax(scale * Q K^T +
   mask) V along the last axis, sums in double, rounded once to Y's type ("Attention Is All You
   Need", Vaswani et al. 2017, section 3.2.1). The scores of one row live in scratch. Of f16 and
   bf16 under a mask, FusedAttention also rounds scores, and their sums with the mask. */
#include "runtime/cpu/attention.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/attention.h"

#include <math.h>

typedef struct attention_args {
    float scale;
} attention_args;

static bool attention_can(const pare_prep *p)
{
    return pare_type_is_float(p->in[0].dtype) && p->in[0].rank >= 2;
}

static pare_status attention_prepare(pare_prep *p)
{
    attention_args *m = pare_arena_alloc(p->arena, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    m->scale = pare_node_float(p->node, "scale", 1);
    p->state = m;
    const pare_view k = pare_attention_views_of(p->node, p->in, p->in_count, &p->out[0]).k;
    p->scratch = (size_t)k.dim[k.rank - 2] * sizeof(double);
    return PARE_OK;
}

/* Offsets of one (leading axes..., row) in Q, K, V, mask and Y. */
typedef struct heads {
    int64_t q, k, v, mask, y;
} heads;

static int64_t leading(const pare_view *v, int rank, const int64_t *index)
{
    int64_t offset = 0;
    for (int i = 0; i < rank - 2; i++) {
        int axis = i - (rank - v->rank);
        if (axis >= 0 && v->dim[axis] != 1) offset += index[i] * v->stride[axis];
    }
    return offset;
}

/* The nearest number of the type (through f32); PARE_NOTYPE: v. */
static double rounded(double v, pare_dtype type)
{
    uint16_t half;
    if (type == PARE_NOTYPE) return v;
    pare_type(type)->from_f32_ref(&half, (float)v);
    return (double)pare_type(type)->to_f32(&half);
}

static void scores_row(const pare_attention_views *x, float scale, const heads *h, double *score)
{
    const pare_view *q = &x->q, *k = &x->k, *mask = x->mask;
    int r = q->rank;
    int64_t keys = k->dim[r - 2], depth = q->dim[r - 1];
    double high = -INFINITY, total = 0;
    for (int64_t j = 0; j < keys; j++) {
        double sum = 0;
        for (int64_t d = 0; d < depth; d++)
            sum += pare_ref_get(q, h->q + d * q->stride[r - 1]) *
                   pare_ref_get(k, h->k + j * k->stride[r - 2] + d * k->stride[r - 1]);
        sum *= (double)scale;
        if (mask) {
            int last = mask->rank - 1;
            int64_t step = last < 0 || mask->dim[last] == 1 ? 0 : mask->stride[last];
            sum = rounded(rounded(sum, x->rounded) + pare_ref_get(mask, h->mask + j * step),
                          x->rounded);
        }
        score[j] = sum;
        if (sum > high) high = sum;
    }
    for (int64_t j = 0; j < keys; j++) total += score[j] = exp(score[j] - high);
    for (int64_t j = 0; j < keys; j++) score[j] /= total;
}

static void attention_row(const pare_call *c, const pare_attention_views *x, const int64_t *index,
                          int64_t row)
{
    const attention_args *m = c->state;
    const pare_view *q = &x->q, *k = &x->k, *v = &x->v, *y = &x->y, *mask = x->mask;
    int r = q->rank;
    heads h = {leading(q, r, index) + row * q->stride[r - 2], leading(k, r, index),
               leading(v, r, index), 0, leading(y, r, index) + row * y->stride[r - 2]};
    if (mask) {
        h.mask = leading(mask, r, index);
        if (mask->rank > 1 && mask->dim[mask->rank - 2] != 1)
            h.mask += row * mask->stride[mask->rank - 2];
    }
    double *score = c->scratch;
    scores_row(x, m->scale, &h, score);
    for (int64_t d = 0; d < v->dim[r - 1]; d++) {
        double sum = 0;
        for (int64_t j = 0; j < k->dim[r - 2]; j++)
            sum += score[j] * pare_ref_get(v, h.v + j * v->stride[r - 2] + d * v->stride[r - 1]);
        pare_ref_set(y, h.y + d * y->stride[r - 1], sum);
    }
}

static pare_status attention_run(const pare_call *c)
{
    const pare_attention_views x = pare_attention_views_of(c->node, c->in, c->in_count, &c->out[0]);
    pare_view outer = x.y;
    outer.rank -= 2;
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(&x.y) == 0) return PARE_OK;
    do
        for (int64_t i = 0; i < x.y.dim[outer.rank]; i++) attention_row(c, &x, index, i);
    while (pare_ref_next(&outer, index));
    return PARE_OK;
}

const pare_kernel pare_ref_attention = {.name = "ref_attention",
                                        .can = attention_can,
                                        .prepare = attention_prepare,
                                        .run = attention_run,
                                        .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_attention[] = {PARE_WITH_ONEDNN(&pare_onednn_attention) &
                                                     pare_attention_f32,
                                                 &pare_widened, &pare_ref_attention, NULL};

/* --- Attention: with heads that share keys, masks, a cache, a cap; the scores in this order:
       s = scale Q K^T, + mask, s = cap tanh (s / cap), softmax --- */

enum { MODE_PRODUCT, MODE_MASKED, MODE_CAPPED, MODE_SOFTMAX }; /* qk_matmul_output_mode */

void pare_sdpa_read(const pare_prep *p, pare_sdpa *s)
{
    s->q_heads = pare_node_int(p->node, "q_num_heads", 0);
    s->kv_heads = pare_node_int(p->node, "kv_num_heads", 0);
    const pare_view q = pare_attention_heads(&p->in[0], s->q_heads);
    s->scale = (double)pare_node_float(p->node, "scale", 0);
    if (!pare_node_attr(p->node, "scale")) s->scale = 1 / sqrt((double)q.dim[3]);
    s->cap = (double)pare_node_float(p->node, "softcap", 0);
    s->mode = (int)pare_node_int(p->node, "qk_matmul_output_mode", 0);
    s->causal = pare_node_int(p->node, "is_causal", 0) != 0;
}

static pare_status sdpa_prepare(pare_prep *p)
{
    pare_sdpa *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_sdpa_read(p, s);
    const pare_view k = pare_attention_heads(&p->in[1], s->kv_heads);
    const int64_t past = p->in_count > 4 && p->in[4].dtype ? p->in[4].dim[2] : 0;
    p->scratch = sizeof(double) * (size_t)p->threads * (size_t)(k.dim[2] + past);
    p->state = s;
    return PARE_OK;
}

static const pare_view *given(const pare_call *c, int i)
{
    return c->in_count > i && c->in[i].dtype ? &c->in[i] : NULL;
}

pare_sdpa_views pare_sdpa_views_of(const pare_call *c, const pare_sdpa *s)
{
    pare_sdpa_views v = {.q = pare_attention_heads(&c->in[0], s->q_heads),
                         .y = pare_attention_heads(&c->out[0], s->q_heads),
                         .mask = given(c, 3),
                         .valid = given(c, 6)};
    v.key[1] = pare_attention_heads(&c->in[1], s->kv_heads);
    v.value[1] = pare_attention_heads(&c->in[2], s->kv_heads);
    v.keys = v.key[1].dim[2];
    if (given(c, 4)) {
        v.key[0] = c->in[4];
        v.value[0] = c->in[5];
        v.past = c->in[4].dim[2];
        v.keys += v.past;
    }
    v.scores = c->out_count > 3 && c->out[3].dtype ? &c->out[3] : NULL;
    return v;
}

/* Number j of (batch, head) along the length of past and present, column d. */
static double cached(const pare_view *view, int64_t past, const int64_t at[2], int64_t j, int64_t d)
{
    const pare_view *x = &view[j >= past];
    if (j >= past) j -= past;
    return pare_ref_get(x, at[0] * x->stride[0] + at[1] * x->stride[1] + j * x->stride[2] +
                               d * x->stride[3]);
}

/* What is added to a score. */
static double mask_at(const pare_sdpa_views *v, const int64_t at[3], int64_t j)
{
    const pare_view *m = v->mask;
    int64_t offset = 0;
    for (int d = 0; d < m->rank; d++) {
        const int axis = 4 - m->rank + d;
        const int64_t i = axis == 3 ? j : at[axis];
        if (axis == 3 && m->dim[d] != 1 && i >= m->dim[d]) return -INFINITY;
        if (m->dim[d] != 1) offset += i * m->stride[d];
    }
    const double x = pare_ref_get(m, offset);
    return m->dtype != PARE_bool ? x : x != 0 ? 0 : -INFINITY;
}

static void sdpa_show(const pare_sdpa_views *v, bool wanted, const int64_t at[3],
                      const double *score)
{
    if (!v->scores || !wanted) return;
    const pare_view *to = v->scores;
    const int64_t row = at[0] * to->stride[0] + at[1] * to->stride[1] + at[2] * to->stride[2];
    for (int64_t j = 0; j < v->keys; j++) pare_ref_set(to, row + j * to->stride[3], score[j]);
}

/* One query: at is (batch, head, place). */
static void sdpa_row(const pare_sdpa *s, const pare_sdpa_views *v, const int64_t at[3],
                     double *score)
{
    const int64_t kv[2] = {at[0], at[1] / (v->q.dim[1] / v->key[1].dim[1])};
    const int64_t q = at[0] * v->q.stride[0] + at[1] * v->q.stride[1] + at[2] * v->q.stride[2];
    const int64_t y = at[0] * v->y.stride[0] + at[1] * v->y.stride[1] + at[2] * v->y.stride[2];
    const int64_t valid =
        v->valid ? pare_ref_get_int(v->valid, at[0] * v->valid->stride[0]) : v->keys;
    double high = -INFINITY, total = 0;
    for (int64_t j = 0; j < v->keys; j++) {
        double sum = 0;
        for (int64_t d = 0; d < v->q.dim[3]; d++)
            sum += pare_ref_get(&v->q, q + d * v->q.stride[3]) * cached(v->key, v->past, kv, j, d);
        score[j] = sum * s->scale;
    }
    sdpa_show(v, s->mode == MODE_PRODUCT, at, score);
    for (int64_t j = 0; j < v->keys; j++) {
        if (v->mask) score[j] += mask_at(v, at, j);
        if (j >= valid || (s->causal && j > v->past + at[2])) score[j] = -INFINITY;
    }
    sdpa_show(v, s->mode == MODE_MASKED, at, score);
    for (int64_t j = 0; s->cap > 0 && j < v->keys; j++) score[j] = s->cap * tanh(score[j] / s->cap);
    sdpa_show(v, s->mode == MODE_CAPPED, at, score);
    for (int64_t j = 0; j < v->keys; j++) high = fmax(high, score[j]);
    for (int64_t j = 0; j < v->keys; j++) total += score[j] = exp(score[j] - high);
    for (int64_t j = 0; j < v->keys; j++) score[j] /= total;
    sdpa_show(v, s->mode == MODE_SOFTMAX, at, score);
    for (int64_t d = 0; d < v->y.dim[3]; d++) {
        double sum = 0;
        for (int64_t j = 0; j < v->keys; j++) sum += score[j] * cached(v->value, v->past, kv, j, d);
        pare_ref_set(&v->y, y + d * v->y.stride[3], sum);
    }
}

/* The cache with what came to it. */
static void present(const pare_view *to, const pare_view *from, int64_t past)
{
    pare_view part = *to;
    if (!to->dtype) return;
    part.dim[2] = past;
    if (past) pare_ref_copy(&part, &from[0], 1);
    part.dim[2] = to->dim[2] - past;
    part.data = pare_ref_at(to, past * to->stride[2]);
    pare_ref_copy(&part, &from[1], 1);
}

void pare_sdpa_present(const pare_call *c, const pare_sdpa_views *v)
{
    if (c->out_count > 1) present(&c->out[1], v->key, v->past);
    if (c->out_count > 2) present(&c->out[2], v->value, v->past);
}

static pare_status sdpa_run(const pare_call *c)
{
    const pare_sdpa *s = c->state;
    const pare_sdpa_views v = pare_sdpa_views_of(c, s);
    const int64_t places = v.q.dim[2], q_heads = v.q.dim[1], rows = v.q.dim[0] * q_heads * places;
    const int threads = rows > 1 ? c->threads : 1;
    pare_sdpa_present(c, &v);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++)
        for (int64_t i = rows * t / threads; i < rows * (t + 1) / threads; i++)
            sdpa_row(s, &v, (int64_t[]){i / places / q_heads, i / places % q_heads, i % places},
                     (double *)c->scratch + t * v.keys);
    return PARE_OK;
}

static const pare_kernel ref_sdpa = {.name = "ref_sdpa",
                                     .can = pare_ref_can_floats,
                                     .prepare = sdpa_prepare,
                                     .run = sdpa_run,
                                     .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_sdpa[] = {&pare_sdpa_f32, &pare_widened, &ref_sdpa, NULL};
