/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in plain C, any strides: Y = softmax(scale * Q K^T + mask) V along the last axis, sums
   in double, rounded once to Y's type ("Attention Is All You Need", Vaswani et al. 2017,
   section 3.2.1). The scores of one row live in scratch. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/ref.h"

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
    int rank = p->in[1].rank;
    p->scratch = (size_t)p->in[1].dim[rank - 2] * sizeof(double);
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

static void scores_row(const pare_call *c, const heads *h, double *score, const pare_view *mask)
{
    const attention_args *m = c->state;
    const pare_view *q = &c->in[0], *k = &c->in[1];
    int r = q->rank;
    int64_t keys = k->dim[r - 2], depth = q->dim[r - 1];
    double high = -INFINITY, total = 0;
    for (int64_t j = 0; j < keys; j++) {
        double sum = 0;
        for (int64_t d = 0; d < depth; d++)
            sum += pare_ref_get(q, h->q + d * q->stride[r - 1]) *
                   pare_ref_get(k, h->k + j * k->stride[r - 2] + d * k->stride[r - 1]);
        sum *= (double)m->scale;
        if (mask) {
            int last = mask->rank - 1;
            int64_t step = mask->dim[last] == 1 ? 0 : mask->stride[last];
            sum += pare_ref_get(mask, h->mask + j * step);
        }
        score[j] = sum;
        if (sum > high) high = sum;
    }
    for (int64_t j = 0; j < keys; j++) total += score[j] = exp(score[j] - high);
    for (int64_t j = 0; j < keys; j++) score[j] /= total;
}

static void attention_row(const pare_call *c, const int64_t *index, int64_t row)
{
    const pare_view *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *y = &c->out[0];
    const pare_view *mask = c->in_count > 3 && c->in[3].dtype != PARE_NOTYPE ? &c->in[3] : NULL;
    int r = q->rank;
    heads h = {leading(q, r, index) + row * q->stride[r - 2], leading(k, r, index),
               leading(v, r, index), 0, leading(y, r, index) + row * y->stride[r - 2]};
    if (mask) {
        h.mask = leading(mask, r, index);
        if (mask->rank > 1 && mask->dim[mask->rank - 2] != 1)
            h.mask += row * mask->stride[mask->rank - 2];
    }
    double *score = c->scratch;
    scores_row(c, &h, score, mask);
    for (int64_t d = 0; d < v->dim[r - 1]; d++) {
        double sum = 0;
        for (int64_t j = 0; j < k->dim[r - 2]; j++)
            sum += score[j] * pare_ref_get(v, h.v + j * v->stride[r - 2] + d * v->stride[r - 1]);
        pare_ref_set(y, h.y + d * y->stride[r - 1], sum);
    }
}

static pare_status attention_run(const pare_call *c)
{
    pare_view outer = c->out[0];
    outer.rank -= 2;
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(&c->out[0]) == 0) return PARE_OK;
    do
        for (int64_t i = 0; i < c->out[0].dim[outer.rank]; i++) attention_row(c, index, i);
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
