/* SPDX-License-Identifier: Apache-2.0 */
/* FP16 beside int8. Where the target takes f16 scales, a pair and what it is fused with have f16
   tensors around the same integers: Q(f16), DQ(f16), and the product between them is f16 by its
   type alone. Elsewhere pairs and what runtimes fuse with them stay f32, as without FP16, between
   Casts. */
#include "quant/lowp.h"

const pare_value *pare_lowp_seen(const pare_value *v)
{
    const pare_node *dq = v->producer, *q = pare_quant_is_dq(dq) ? dq->in[0]->producer : NULL;
    return pare_quant_is_q(q) && q->in[0] ? q->in[0] : v;
}

/* The DQ that makes an input, or NULL. */
static const pare_node *dq_of(const pare_node *node, int i)
{
    const pare_value *v = pare_node_in(node, i);
    return v && pare_quant_is_dq(v->producer) ? v->producer : NULL;
}

bool pare_lowp_is_int8(const pare_node *node)
{
    pare_weighted part;
    return pare_quant_kind_of(node) == PARE_QUANT_WEIGHTED &&
           pare_quant_role_of(node)->weighted(node, &part) == PARE_OK && dq_of(node, part.x) &&
           dq_of(node, part.w);
}

/* --- f16 pairs --- */

/* Is each scale of it an f16 number? */
static bool takes_f16(const pare_node *pair)
{
    const pare_value *scale = pare_node_in(pair, 1);
    if (!scale || !scale->data || scale->data->dtype != PARE_f32) return false;
    for (int64_t i = 0; i < scale->data->count; i++) {
        const float s = pare_quant_number(scale->data->data, i);
        if (!pare_quant_f16_takes(s) || pare_f16_to_f32(pare_f32_to_f16(s)) != s) return false;
    }
    return true;
}

static bool is_lowp(const pare_lowp *h, const pare_node *node)
{
    return node && pare_ptr_map_find(&h->is_lowp, node) == 1;
}

/* Does a node that computes in f16 read the tensor? */
static bool has_lowp_reader(const pare_lowp *h, const pare_value *v)
{
    for (int i = 0; i < v->user_count; i++)
        if (is_lowp(h, v->user[i])) return true;
    return false;
}

pare_status pare_lowp_decide_pairs(pare_lowp *h)
{
    for (int n = 0; n < h->nodes.count; n++) {
        const pare_node *node = h->nodes.item[n];
        if (!pare_lowp_is_pair(node)) continue;
        const bool beside_f16 = pare_quant_is_q(node)
                                    ? node->in[0] && is_lowp(h, node->in[0]->producer)
                                    : has_lowp_reader(h, node->out[0]);
        PARE_TRY(
            pare_ptr_map_put(&h->is_lowp, node, h->f16_scales && beside_f16 && takes_f16(node)));
    }
    return PARE_OK;
}

/* --- f32 pairs --- */

static bool is_quantized(const pare_value *v)
{
    for (int i = 0; i < v->user_count; i++)
        if (!pare_quant_is_q(v->user[i])) return false;
    return v->user_count > 0 && !v->is_output;
}

/* What a node that stays f32 for its pairs makes: levels that a pair left as they are, or sums. */
enum { SUMS, LEVELS };

static bool only_moves(const pare_node *node)
{
    const pare_quant_kind kind = pare_quant_kind_of(node);
    return kind == PARE_QUANT_PASS || kind == PARE_QUANT_JOIN;
}

/* Is it fused with a node before it that stays f32 for its pairs? */
static bool continues(const pare_lowp *h, const pare_node *node)
{
    const pare_quant_kind kind = pare_quant_kind_of(node);
    bool constant = false, levels = false, sums = false;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        const int before = v && v->producer ? pare_ptr_map_find(&h->beside, v->producer) : -1;
        constant = constant || (v && v->data);
        levels = levels || before == LEVELS;
        sums = sums || before == SUMS;
    }
    return levels || (sums && (kind == PARE_QUANT_CLAMP || (kind == PARE_QUANT_SUM && constant) ||
                               is_quantized(node->out[0])));
}

pare_status pare_lowp_judge_pairs(pare_lowp *h, const pare_node *node, const char **why)
{
    bool reads = false, takes = true;
    *why = NULL;
    for (int i = 0; i < node->in_count; i++) {
        const pare_node *dq = dq_of(node, i);
        reads = reads || dq;
        takes = takes && (!dq || takes_f16(dq));
    }
    if (h->f16_scales) {
        if (!takes) *why = "f16 cannot hold the scales of an input";
        return PARE_OK;
    }
    if (!reads && !continues(h, node)) return PARE_OK;
    *why = "";
    return pare_ptr_map_put(&h->beside, node, only_moves(node) ? LEVELS : SUMS);
}
