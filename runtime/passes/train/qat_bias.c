/* SPDX-License-Identifier: Apache-2.0 */
/* A bias is added to sums of x q times w q, whose steps are s_x s_w[c]. Files of pare quantize hold
   it rounded to these, as floats or as s32; others may not, which is seen in the numbers. */
#include "runtime/passes/train/qat_bias.h"
#include "runtime/passes/train/qat_levels.h"

#include <math.h>
#include <string.h>

typedef struct bias {
    pare_node *node; /* that reads it */
    int at;
    const pare_tensor *x_scale, *w_scale; /* and the constants' names: */
    const char *x_name, *w_name;
} bias;

static pare_node *fake_of(const pare_value *v)
{
    pare_node *n = v ? v->producer : NULL;
    return n && !strcmp(n->op_type, "FakeQuantize") ? n : NULL;
}

/* The sum after a product that alone reads it and adds a constant, or NULL. */
static pare_node *sum_of(const pare_value *y)
{
    pare_node *sum = pare_value_only_user(y);
    if (!sum || !pare_node_is(sum, "Add")) return NULL;
    return sum->in[sum->in[0] == y] && sum->in[sum->in[0] == y]->data ? sum : NULL;
}

/* Where a weighted node's bias is: its own input, else the sum's. */
static pare_status find(pare_node *node, bias *out, bool *found)
{
    pare_weighted part;
    *found = false;
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED) return PARE_OK;
    PARE_TRY(pare_op_of(node)->quant.weighted(node, &part));
    const pare_node *x = fake_of(pare_node_in(node, part.x));
    const pare_node *w = fake_of(pare_node_in(node, part.w));
    if (!x || !w || !w->in[0]->data || x->in[1]->data->count != 1) return PARE_OK;
    const bool own = part.bias >= 0 && pare_node_in(node, part.bias);
    pare_node *sum = own ? NULL : sum_of(node->out[0]);
    if (!own && !sum) return PARE_OK;
    out->node = own ? node : sum;
    out->at = own ? part.bias : sum->in[0]->data == NULL;
    out->x_scale = x->in[1]->data;
    out->w_scale = w->in[1]->data;
    out->x_name = x->in[1]->name;
    out->w_name = w->in[1]->name;
    *found = part.alpha == 1 && part.beta == 1;
    return PARE_OK;
}

/* The step of element c of a bias of `count`; false where there is not one for each. */
static bool step_of(const bias *b, int64_t count, int64_t c, float *out)
{
    const int64_t n = b->w_scale->count;
    if (n != 1 && n != count) return false;
    *out = ((const float *)b->x_scale->data)[0] * ((const float *)b->w_scale->data)[n == 1 ? 0 : c];
    return true;
}

static bool is_rounded(const bias *b, const pare_tensor *t)
{
    float step;
    for (int64_t c = 0; c < t->count; c++) {
        const float v = ((const float *)t->data)[c];
        if (!step_of(b, t->count, c, &step)) return false;
        const float again = (float)(rint((double)v / (double)step) * (double)step);
        if (memcmp(&again, &v, sizeof v)) return false;
    }
    return true;
}

static bool is_listed(const pare_qat_pass *p, const char *tensor)
{
    for (int i = 0; i < p->list.count; i++)
        if (!strcmp(p->list.item[i].tensor, tensor)) return true;
    return false;
}

static pare_status list_float(pare_qat_pass *p, const bias *b)
{
    const pare_value *v = b->node->in[b->at];
    if (!v->is_init || v->data->dtype != PARE_f32 || is_listed(p, v->name)) return PARE_OK;
    const bool rounded = is_rounded(b, v->data);
    return pare_fake_add(p, &(pare_fake){.kind = PARE_FAKE_BIAS,
                                         .tensor = v->name,
                                         .output = v->name,
                                         .file_tensor = v->name,
                                         .type = PARE_f32,
                                         .scales = v->data->count,
                                         .x_scale = rounded ? b->x_name : NULL,
                                         .w_scale = rounded ? b->w_name : NULL});
}

/* --- s32 --- */

static bool is_s32(const pare_node *dq, int64_t *scales)
{
    if (!dq || !pare_node_is(dq, "DequantizeLinear")) return false;
    const pare_value *q = pare_node_in(dq, 0), *s = pare_node_in(dq, 1), *z = pare_node_in(dq, 2);
    if (!q || !q->is_init || q->data->dtype != PARE_s32 || q->is_output || q->user_count != 1)
        return false;
    if (!s || !s->is_init || s->data->dtype != PARE_f32 || (z && !z->data)) return false;
    for (int64_t i = 0; z && i < z->data->count; i++)
        if (pare_qat_int(z->data, i)) return false;
    *scales = s->data->count;
    return q->data->rank == 1 && (*scales == 1 || *scales == q->data->count);
}

static bool scales_agree(const bias *b, const pare_tensor *scale, int64_t count)
{
    float step;
    for (int64_t c = 0; c < count; c++) {
        const float *s = &((const float *)scale->data)[scale->count == 1 ? 0 : c];
        if (!step_of(b, count, c, &step) || memcmp(s, &step, sizeof step)) return false;
    }
    return true;
}

static pare_status list_s32(pare_qat_pass *p, const bias *b, pare_node *dq)
{
    const pare_tensor *q = dq->in[0]->data, *scale = dq->in[1]->data;
    const char *name = pare_qat_name(p, dq->in[0]->name);
    pare_value *made;
    float *data = pare_alloc(p->model->ctx, (size_t)q->count, sizeof *data);
    pare_status st = name && data ? PARE_OK : PARE_MEMORY;
    for (int64_t c = 0; st == PARE_OK && c < q->count; c++)
        data[c] = (float)((const int32_t *)q->data)[c] *
                  ((const float *)scale->data)[scale->count == 1 ? 0 : c];
    if (st == PARE_OK) st = pare_init_new(p->graph, &made, name, PARE_f32, q->rank, q->dims, data);
    pare_free(data);
    PARE_TRY(st);
    const bool sums = scales_agree(b, scale, q->count);
    PARE_TRY(pare_fake_add(p, &(pare_fake){.kind = PARE_FAKE_BIAS,
                                           .tensor = made->name,
                                           .output = made->name,
                                           .dequantizer = dq->name[0] ? dq->name : NULL,
                                           .file_tensor = dq->in[0]->name,
                                           .file_scale = dq->in[1]->name,
                                           .type = PARE_s32,
                                           .scales = q->count,
                                           .x_scale = sums ? b->x_name : NULL,
                                           .w_scale = sums ? b->w_name : NULL}));
    return pare_value_replace(dq->out[0], made, false);
}

pare_status pare_qat_biases(pare_qat_pass *p)
{
    for (int n = 0; n < p->graph->node_count; n++) {
        bias b;
        bool found;
        int64_t scales;
        PARE_TRY(find(p->graph->node[n], &b, &found));
        if (!found) continue;
        pare_node *dq = b.node->in[b.at]->producer;
        if (dq && is_s32(dq, &scales) && !dq->out[0]->is_output)
            PARE_TRY(list_s32(p, &b, dq));
        else
            PARE_TRY(list_float(p, &b));
    }
    return PARE_OK;
}
