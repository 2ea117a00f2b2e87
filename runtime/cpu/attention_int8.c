/* SPDX-License-Identifier: Apache-2.0 */
/* pare.QAttention in plain C, any strides, as runtime/ops/attention.h states it: a query at a time.
   Its exponentials, then the steps of its probabilities, live in scratch. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/softmax_codes.h"

static pare_status q_attention_prepare(pare_prep *p)
{
    pare_q_attention *a = pare_arena_alloc(p->arena, 1, sizeof *a);
    if (!a) return PARE_MEMORY;
    PARE_TRY(pare_q_attention_read(p->node, a));
    const pare_view k = pare_attention_views_of(p->node, p->in, p->in_count, &p->out[0]).k;
    p->scratch = (size_t)k.dim[k.rank - 2] * sizeof(float);
    p->state = a;
    return PARE_OK;
}

/* Offsets of one query in Q, the mask and Y, and of its head in K and V. */
typedef struct query {
    int64_t q, k, v, mask, y;
} query;

static query query_of(const pare_attention_views *x, int64_t head, int64_t row)
{
    const int r = x->y.rank;
    query at = {.q = pare_attention_head_offset(&x->q, &x->y, head) + row * x->q.stride[r - 2],
                .k = pare_attention_head_offset(&x->k, &x->y, head),
                .v = pare_attention_head_offset(&x->v, &x->y, head),
                .y = pare_attention_head_offset(&x->y, &x->y, head) + row * x->y.stride[r - 2]};
    if (!x->mask) return at;
    at.mask = pare_attention_head_offset(x->mask, &x->y, head);
    const int m = x->mask->rank;
    if (m > 1 && x->mask->dim[m - 2] != 1) at.mask += row * x->mask->stride[m - 2];
    return at;
}

static float score_of(const pare_q_attention *a, const pare_attention_views *x, const query *at,
                      int64_t key)
{
    const int r = x->y.rank;
    int32_t sum = 0;
    for (int64_t d = 0; d < x->q.dim[r - 1]; d++)
        sum += ((int32_t)pare_ref_get_int(&x->q, at->q + d * x->q.stride[r - 1]) - a->q_zero) *
               ((int32_t)pare_ref_get_int(&x->k, at->k + key * x->k.stride[r - 2] +
                                                     d * x->k.stride[r - 1]) -
                a->k_zero);
    const float score = (float)sum * a->scale;
    if (!x->mask) return score;
    const int last = x->mask->rank - 1;
    const int64_t step = last < 0 || x->mask->dim[last] == 1 ? 0 : x->mask->stride[last];
    return score + ((const float *)x->mask->data)[at->mask + key * step];
}

/* Scores become steps of probabilities. */
static void steps_make(const pare_q_attention *a, float *score, int64_t keys)
{
    float top = -INFINITY;
    uint64_t total = 0;
    for (int64_t j = 0; j < keys; j++) top = score[j] > top ? score[j] : top;
    const float less = pare_softmax_less(top), low = pare_softmax_low(top),
                round = pare_softmax_round(top);
    for (int64_t j = 0; j < keys; j++) {
        score[j] = pare_softmax_power(score[j] - less, low, round);
        total += pare_softmax_part_of(score[j], keys);
    }
    const float c = pare_softmax_factor(top, pare_softmax_total(total, keys), a->p_scale);
    for (int64_t j = 0; j < keys; j++) score[j] = pare_softmax_step(score[j], c, a->p_steps);
}

static void query_run(const pare_q_attention *a, const pare_attention_views *x, const query *at,
                      float *score)
{
    const int r = x->y.rank;
    const int64_t keys = x->k.dim[r - 2];
    for (int64_t j = 0; j < keys; j++) score[j] = score_of(a, x, at, j);
    steps_make(a, score, keys);
    for (int64_t d = 0; d < x->y.dim[r - 1]; d++) {
        int32_t sum = 0;
        for (int64_t j = 0; j < keys; j++)
            sum += (int32_t)score[j] *
                   ((int32_t)pare_ref_get_int(&x->v, at->v + j * x->v.stride[r - 2] +
                                                         d * x->v.stride[r - 1]) -
                    a->v_zero);
        pare_ref_set(&x->y, at->y + d * x->y.stride[r - 1],
                     (double)pare_epilogue_value(&a->epilogue, (float)sum * a->m));
    }
}

static pare_status q_attention_run(const pare_call *c)
{
    const pare_attention_views x = pare_attention_views_of(c->node, c->in, c->in_count, &c->out[0]);
    const int r = x.y.rank;
    const int64_t rows = x.y.dim[r - 2], row = rows * x.y.dim[r - 1],
                  heads = row ? pare_view_count(&x.y) / row : 0;
    for (int64_t head = 0; head < heads; head++)
        for (int64_t i = 0; i < rows; i++) {
            const query at = query_of(&x, head, i);
            query_run(c->state, &x, &at, c->scratch);
        }
    return PARE_OK;
}

static const pare_kernel ref_q_attention = {.name = "ref_q_attention",
                                            .prepare = q_attention_prepare,
                                            .run = q_attention_run,
                                            .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_q_attention[] = {&ref_q_attention, NULL};
