/* SPDX-License-Identifier: Apache-2.0 */
/* A quantized model against a target's row: each Q/DQ pair, then each weighted node with what it
   reads. */
#include "quant/internal.h"
#include "runtime/base/minifloat.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <math.h>

typedef struct checker {
    pare_ctx *ctx;
    pare_model *model;
    pare_quant_target target;
    const pare_target_row *row;
    pare_target_report *out;
    const pare_node *saturates; /* the first node whose sums may, and how many do */
    int saturating;
} checker;

static bool has(pare_formats set, pare_dtype type)
{
    return type < 64 && (set & (pare_formats)1 << type);
}

static const char *type_name(pare_dtype type) { return pare_type(type)->name; }

#define SAY(...) pare_arena_printf(&c->out->arena, __VA_ARGS__)

/* A tensor is named once a rule: Q and DQ, and the DQ of several graphs, say the same. */
static bool is_known(const checker *c, pare_target_rule rule, const char *tensor)
{
    for (int i = 0; i < c->out->count; i++)
        if (c->out->finding[i].rule == rule && !strcmp(c->out->finding[i].tensor, tensor))
            return true;
    return false;
}

static pare_status add(checker *c, pare_target_rule rule, pare_target_verdict verdict,
                       const pare_node *node, const char *tensor, const char *text)
{
    pare_target_report *r = c->out;
    if (!text) return PARE_MEMORY;
    if (verdict == PARE_TAKEN || is_known(c, rule, tensor)) return PARE_OK;
    if (!pare_arena_grow(&r->arena, &r->finding, &r->capacity, (size_t)r->count,
                         sizeof *r->finding))
        return PARE_MEMORY;
    pare_target_finding *f = &r->finding[r->count++];
    *f = (pare_target_finding){.rule = rule, .verdict = verdict, .text = text};
    f->node = SAY("%s", node ? pare_quant_node_name(node) : "");
    f->op = SAY("%s", node ? node->op_type : "");
    f->tensor = SAY("%s", tensor);
    r->refused += verdict == PARE_REFUSED;
    return f->node && f->op && f->tensor ? PARE_OK : PARE_MEMORY;
}

/* What the target says of the rule, where it says anything. */
static pare_status found(checker *c, pare_target_rule rule, const pare_node *node,
                         const char *tensor, const char *text)
{
    return add(c, rule, pare_target_says(c->target, rule), node, tensor, text);
}

/* --- pairs --- */

bool pare_quant_all_bytes(const pare_tensor *t, uint8_t byte)
{
    const uint8_t *at = t->data;
    for (size_t i = 0; i < t->bytes; i++)
        if (at[i] != byte) return false;
    return true;
}

/* The float tensor that a Q quantizes, or the constant that a DQ reads. */
static const pare_value *tensor_of(const pare_node *node)
{
    const pare_value *x = node->in[0];
    return pare_quant_is_dq(node) && pare_quant_is_q(x->producer) ? x->producer->in[0] : x;
}

static pare_dtype quantized_type(const pare_node *node)
{
    const pare_value *zero = pare_node_in(node, 2);
    if (pare_quant_is_dq(node)) return node->in[0]->dtype;
    if (zero) return zero->dtype;
    return (pare_dtype)pare_node_int(node, "output_dtype", PARE_u8);
}

pare_node *pare_quant_lost_relu(const pare_node *q)
{
    const pare_value *x = pare_node_in(q, 0), *zero = pare_node_in(q, 2);
    if (!pare_quant_is_q(q) || !x || !zero || !zero->data || !pare_quant_all_bytes(zero->data, 0) ||
        !(pare_is_minifloat(zero->dtype) || zero->dtype == PARE_s4) ||
        pare_value_only_user(x) != q || x->user_count != 1)
        return NULL;
    return x->producer && pare_node_is(x->producer, "Relu") ? x->producer : NULL;
}

static bool is_bad_scale(const pare_tensor *scale)
{
    const pare_type_info *type = pare_type(scale->dtype);
    const size_t step = (size_t)type->bits / 8;
    for (int64_t i = 0; pare_type_is_float(scale->dtype) && type->to_f32 && i < scale->count; i++) {
        const float s = type->to_f32((const char *)scale->data + (size_t)i * step);
        if (!(s > 0) || isinf(s)) return true;
    }
    return false;
}

static pare_status check_scale(checker *c, const pare_node *node, const char *tensor)
{
    const pare_value *scale = pare_node_in(node, 1);
    if (!scale) return PARE_OK; /* the check of the model says it */
    if (scale->data && is_bad_scale(scale->data))
        return found(c, PARE_RULE_SCALE, node, tensor, "a scale of it is 0, negative or no number");
    if (scale->data && scale->dtype != PARE_f16 && scale->dtype != PARE_bf16) return PARE_OK;
    if (scale->data)
        return found(c, PARE_RULE_SCALE_TYPE, node, tensor,
                     SAY("its scale is %s: %s may compute what reads it in float",
                         type_name(scale->dtype), c->row->title));
    return found(c, PARE_RULE_COMPUTED_SCALE, node, tensor,
                 SAY("its scale is computed in the graph: %s %s", c->row->title,
                     c->target == PARE_TARGET_TENSORRT
                         ? "takes constants alone; calibrate"
                         : "may compute what reads it in float; calibrate"));
}

/* The formats of a set, "s8, u8". */
static const char *set_text(checker *c, pare_formats set)
{
    const char *text = "";
    for (int type = 0; type < 64 && text; type++)
        if (has(set, (pare_dtype)type))
            text = SAY("%s%s%s", text, *text ? ", " : "", type_name((pare_dtype)type));
    return text;
}

static pare_status check_type(checker *c, pare_target_rule rule, const pare_node *node,
                              const char *tensor, pare_dtype type, pare_formats fast,
                              pare_formats slow)
{
    if (type == PARE_NOTYPE || has(fast, type)) return PARE_OK;
    if (has(slow, type))
        return add(
            c, rule, PARE_NOTED, node, tensor,
            SAY("it is %s: %s computes what reads it in float", type_name(type), c->row->title));
    const char *takes = set_text(c, fast | slow);
    return takes ? found(c, rule, node, tensor,
                         SAY("it is %s, %s takes %s", type_name(type), c->row->title, takes))
                 : PARE_MEMORY;
}

static pare_status check_activation(checker *c, const pare_node *node, const char *tensor)
{
    const pare_value *scale = pare_node_in(node, 1), *zero = pare_node_in(node, 2);
    PARE_TRY(check_type(c, PARE_RULE_ACTIVATION_TYPE, node, tensor, quantized_type(node),
                        c->row->activations, c->row->slow_activations));
    if (zero && (!zero->data || !pare_quant_all_bytes(zero->data, 0)))
        PARE_TRY(found(c, PARE_RULE_ZERO_POINT, node, tensor,
                       SAY("its zero point is not 0, %s takes symmetric numbers; quantize with s8 "
                           "activations",
                           c->row->title)));
    if (pare_quant_lost_relu(node))
        PARE_TRY(found(c, PARE_RULE_RELU, node, tensor,
                       SAY("%s takes the Relu before it away; expected Max(x, 0), or "
                           "sessions without graph optimization",
                           c->row->title)));
    if (!scale || !scale->data || scale->data->count == 1) return PARE_OK;
    return found(
        c, PARE_RULE_CHANNEL_ACTIVATION, node, tensor,
        SAY("an activation with %" PRId64 " scales: %s %s", scale->data->count, c->row->title,
            c->target == PARE_TARGET_TENSORRT ? "takes one" : "computes what reads it in float"));
}

static pare_status check_constant(checker *c, const pare_node *dq, const char *tensor)
{
    const pare_value *zero = pare_node_in(dq, 2);
    const pare_dtype type = dq->in[0]->dtype;
    if (type == PARE_s32)
        return found(c, PARE_RULE_S32_BIAS, dq, tensor,
                     SAY("a DequantizeLinear of s32, which %s does not take; expected a float bias",
                         c->row->title));
    PARE_TRY(check_type(c, PARE_RULE_WEIGHT_TYPE, dq, tensor, type, c->row->weights,
                        c->row->slow_weights));
    if (c->target != PARE_TARGET_TENSORRT || !zero || !zero->data ||
        pare_quant_all_bytes(zero->data, 0))
        return PARE_OK;
    return found(c, PARE_RULE_WEIGHT_ZERO_POINT, dq, tensor,
                 SAY("a zero point of it is not 0, %s takes symmetric weights", c->row->title));
}

static pare_status check_pair(checker *c, const pare_node *node)
{
    const pare_value *x = pare_node_in(node, 0);
    if (!x) return PARE_OK;
    const char *tensor = tensor_of(node)->name;
    PARE_TRY(check_scale(c, node, tensor));
    if (pare_quant_is_dq(node) && x->data) return check_constant(c, node, tensor);
    return check_activation(c, node, tensor);
}

/* --- weighted nodes --- */

/* The DQ that makes an input, or NULL. */
static const pare_node *dq_of(const pare_value *value)
{
    return value && pare_quant_is_dq(value->producer) ? value->producer : NULL;
}

/* The same of what an input was moved from. */
static const pare_node *source_dq(const pare_value *value)
{
    while (value && value->producer && pare_quant_kind_of(value->producer) == PARE_QUANT_PASS)
        value = pare_node_in(value->producer, 0);
    return dq_of(value);
}

/* The DQ of a constant. */
static const pare_node *constant_dq(const pare_value *value)
{
    const pare_node *dq = dq_of(value);
    return dq && dq->in[0] && dq->in[0]->data ? dq : NULL;
}

static bool is_beyond_7_bits(const pare_tensor *w)
{
    const int8_t *q = w->data;
    for (int64_t i = 0; i < w->count; i++)
        if (q[i] > 64 || q[i] < -64) return true;
    return false;
}

static pare_status check_int4(checker *c, const pare_node *node, const pare_node *dq, bool alone)
{
    const pare_tensor *w = dq->in[0]->data;
    const char *is = !alone                                ? "beside quantized activations"
                     : !pare_node_int(dq, "block_size", 0) ? "without blocks"
                     : w->count % 2                        ? "of an odd number of values"
                                                           : NULL;
    if (!is) return PARE_OK;
    return found(c, PARE_RULE_INT4, node, dq->in[0]->name,
                 SAY("INT4 weights %s: %s takes them alone, in blocks; quantize with int8 or w4a16",
                     is, c->row->title));
}

static pare_status check_axis(checker *c, const pare_node *node, const pare_node *dq, int wants)
{
    const pare_value *scale = pare_node_in(dq, 1);
    const pare_tensor *w = dq->in[0]->data;
    const int is = pare_node_axis(dq, 1, w->rank);
    if (!scale || scale->shape.rank != 1 || pare_shape_count(&scale->shape) == 1 || wants < 0 ||
        is == wants)
        return PARE_OK;
    return found(c, PARE_RULE_WEIGHT_AXIS, node, dq->in[0]->name,
                 SAY("its scales lie along axis %d, its outputs along axis %d: %s", is, wants,
                     c->target == PARE_TARGET_TENSORRT
                         ? "TensorRT takes them along the outputs"
                         : "some kernels read them as those of outputs, the others compute in "
                           "float"));
}

/* Formats and zero points that only convolutions compute in float. */
static pare_status check_kernel(checker *c, const pare_node *node, const pare_node *dq)
{
    const pare_value *zero = pare_node_in(dq, 2);
    const pare_tensor *w = dq->in[0]->data;
    if (w->rank < 3 || c->target == PARE_TARGET_TENSORRT) return PARE_OK;
    if (has(c->row->slow_kernels, w->dtype))
        return add(c, PARE_RULE_WEIGHT_TYPE, PARE_NOTED, node, dq->in[0]->name,
                   SAY("it is %s: %s computes its convolution in float, with s8 in integers",
                       type_name(w->dtype), c->row->title));
    if (!zero || !zero->data || pare_quant_all_bytes(zero->data, 0)) return PARE_OK;
    return found(
        c, PARE_RULE_WEIGHT_ZERO_POINT, node, dq->in[0]->name,
        SAY("a zero point of it is not 0: %s computes its convolution in float", c->row->title));
}

static pare_status check_weight(checker *c, const pare_node *node, const pare_weighted *part,
                                const pare_node *dq)
{
    const pare_node *x = source_dq(node->in[part->x]);
    const pare_tensor *w = dq->in[0]->data;
    const bool alone = !x;
    PARE_TRY(check_axis(c, node, dq, part->axis));
    PARE_TRY(check_kernel(c, node, dq));
    if (pare_type_is_packed(w->dtype))
        return c->row->int4_alone ? check_int4(c, node, dq, alone) : PARE_OK;
    if (alone)
        return found(c, PARE_RULE_WEIGHTS_ALONE, node, dq->in[0]->name,
                     SAY("%s weights of a float input: %s documents INT4 for weights alone",
                         type_name(w->dtype), c->row->title));
    if (w->dtype == PARE_s8 && pare_type(x->in[0]->dtype)->bits == 8 && is_beyond_7_bits(w) &&
        !c->saturating++)
        c->saturates = node;
    return PARE_OK;
}

/* --- biases --- */

/* Its scales against s_x * s_w; so far apart they are other numbers, not other roundings. */
static bool is_other_scale(const pare_node *bias, const pare_node *x, const pare_node *w)
{
    const double NEAR = 1e-3;
    const pare_node *from[] = {bias, x, w};
    const pare_tensor *t[3];
    for (int i = 0; i < 3; i++) {
        const pare_value *scale = from[i] ? pare_node_in(from[i], 1) : NULL;
        t[i] = scale ? scale->data : NULL;
        if (!t[i] || t[i]->dtype != PARE_f32) return false;
    }
    if (t[1]->count != 1) return false;
    const int64_t n = t[0]->count > t[2]->count ? t[0]->count : t[2]->count;
    for (int k = 0; k < 3; k += 2)
        if (t[k]->count != 1 && t[k]->count != n) return true;
    for (int64_t i = 0; i < n; i++) {
        const double b = (double)pare_quant_number(t[0]->data, t[0]->count == 1 ? 0 : i);
        const double s = (double)pare_quant_number(t[1]->data, 0) *
                         (double)pare_quant_number(t[2]->data, t[2]->count == 1 ? 0 : i);
        if (!(fabs(b - s) <= NEAR * fabs(s))) return true;
    }
    return false;
}

const pare_node *pare_quant_odd_bias(const pare_node *node)
{
    pare_weighted part;
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED ||
        pare_op_of(node)->quant.weighted(node, &part) != PARE_OK || part.bias < 0)
        return NULL;
    const pare_node *bias = constant_dq(pare_node_in(node, part.bias));
    if (!bias || bias->in[0]->dtype != PARE_s32) return NULL;
    return is_other_scale(bias, dq_of(pare_node_in(node, part.x)),
                          constant_dq(pare_node_in(node, part.w)))
               ? bias
               : NULL;
}

static pare_status check_weighted(checker *c, const pare_node *node)
{
    pare_weighted part;
    PARE_TRY(pare_op_of(node)->quant.weighted(node, &part));
    const pare_node *w = constant_dq(pare_node_in(node, part.w)), *bias = pare_quant_odd_bias(node);
    if (w && node->in[part.x]) PARE_TRY(check_weight(c, node, &part, w));
    if (!bias) return PARE_OK;
    return found(c, PARE_RULE_BIAS_SCALE, node, bias->in[0]->name,
                 SAY("the scale of its s32 bias is not that of its input times its weight's: %s "
                     "adds it as if it were, or computes in float",
                     c->row->title));
}

static pare_status check_recurrent(checker *c, const pare_node *node)
{
    for (int i = PARE_QUANT_WEIGHT_FIRST; i <= PARE_QUANT_WEIGHT_LAST; i++) {
        const pare_node *w = constant_dq(pare_node_in(node, i));
        if (w)
            PARE_TRY(
                found(c, PARE_RULE_RECURRENT_WEIGHT, node, w->in[0]->name,
                      SAY("%s weights of a recurrent layer: %s %s", type_name(w->in[0]->dtype),
                          c->row->title,
                          c->target == PARE_TARGET_TENSORRT ? "documents INT4 for weights alone"
                                                            : "wants constants there")));
    }
    return PARE_OK;
}

/* --- additions --- */

/* A product, or the addition of its bias, that nothing but the Q of this DQ reads. */
static bool is_main_branch(const pare_node *dq)
{
    const pare_node *q = dq ? dq->in[0]->producer : NULL;
    if (!pare_quant_is_q(q) || pare_value_only_user(q->in[0]) != q) return false;
    const pare_node *node = q->in[0]->producer;
    for (int i = 0; pare_quant_kind_of(node) == PARE_QUANT_SUM && i < node->in_count; i++) {
        const pare_node *before = node->in[i] ? node->in[i]->producer : NULL;
        if (pare_quant_kind_of(before) == PARE_QUANT_WEIGHTED &&
            pare_quant_bias_node(before) == node)
            return true;
    }
    return pare_quant_kind_of(node) == PARE_QUANT_WEIGHTED;
}

static pare_status check_sum(checker *c, const pare_node *node)
{
    const pare_node *dq[2] = {dq_of(pare_node_in(node, 0)), dq_of(pare_node_in(node, 1))};
    if (node->in_count != 2 || !dq[0] || !dq[1]) return PARE_OK;
    const int main = is_main_branch(dq[0]) ? 0 : is_main_branch(dq[1]) ? 1 : -1;
    if (main < 0) return PARE_OK;
    return found(c, PARE_RULE_RESIDUAL, node, dq[main]->in[0]->producer->in[0]->name,
                 SAY("quantized between a weighted node and the residual addition, which %s then "
                     "does not fuse; it wants Q/DQ on the skip input alone",
                     c->row->title));
}

/* --- all --- */

static pare_status check_node(checker *c, const pare_node *node)
{
    if (pare_node_is_qdq(node)) return check_pair(c, node);
    switch (pare_quant_kind_of(node)) {
    case PARE_QUANT_WEIGHTED: return check_weighted(c, node);
    case PARE_QUANT_WEIGHT_ONLY: return check_recurrent(c, node);
    case PARE_QUANT_SUM: return check_sum(c, node);
    case PARE_QUANT_INTEGER:
        return found(c, PARE_RULE_OPERATOR, node, node->out[0] ? node->out[0]->name : "",
                     SAY("%s has no %s; expected the float operator between DequantizeLinear and "
                         "QuantizeLinear",
                         c->row->title, node->op_type));
    default: return PARE_OK;
    }
}

static pare_status check_opset(checker *c, int64_t opset)
{
    const pare_target_row *row = c->row;
    if (!row->opset_last || (opset >= row->opset_first && opset <= row->opset_last)) return PARE_OK;
    return found(c, PARE_RULE_OPSET, NULL, "",
                 SAY("opset %" PRId64 ": %s reads %" PRId64 " to %" PRId64, opset, row->title,
                     row->opset_first, row->opset_last));
}

static pare_status check_all(checker *c)
{
    pare_node **node;
    int count;
    PARE_TRY(check_opset(c, pare_model_opset(c->model, "")));
    PARE_TRY(pare_quant_target_open(c->model));
    PARE_TRY(pare_graph_all_nodes(c->model->graph, &c->model->arena, &node, &count));
    for (int i = 0; i < count; i++) PARE_TRY(check_node(c, node[i]));
    if (c->saturating)
        PARE_TRY(found(c, PARE_RULE_SATURATION, c->saturates, c->saturates->out[0]->name,
                       SAY("%d nodes, this one first, have s8 weights beyond 7 bits: on CPUs "
                           "without VNNI their sums may saturate at 16 bits; validate there",
                           c->saturating)));
    return pare_ctx_poll(c->ctx);
}

pare_status pare_target_check(pare_ctx *ctx, const pare_model *model, pare_quant_target target,
                              pare_target_report **out)
{
    checker c = {.ctx = ctx, .target = target, .row = pare_target_of(target)};
    *out = NULL;
    c.out = pare_alloc(ctx, 1, sizeof *c.out);
    if (!c.out) return PARE_MEMORY;
    *c.out = (pare_target_report){0};
    pare_arena_init(&c.out->arena, ctx);
    pare_status st = pare_model_clone(ctx, &c.model, model);
    if (st == PARE_OK) {
        st = check_all(&c);
        pare_model_free(c.model);
    }
    if (st == PARE_OK)
        *out = c.out;
    else
        pare_target_report_free(c.out);
    return st;
}

void pare_target_report_free(pare_target_report *report)
{
    if (!report) return;
    pare_arena_free(&report->arena);
    pare_free(report);
}
