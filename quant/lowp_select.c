/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes compute in the short type, and why the others stay f32. */
#include "calib/histogram.h"
#include "quant/lowp.h"

#include <math.h>
#include <string.h>

enum {
    LONG_SUM = 2048, /* results of more addends stay f32 */
    /* What was seen may be this many times larger on other samples, or after the rounding of what
       is in front of it: calibration reads some hundred samples, whose minmax_only are rarely
       doubled later, and an octave costs nothing but a few nodes that could have been short. */
    HEADROOM = 2
};

static bool has_f32(pare_value *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i] && list[i]->dtype == PARE_f32) return true;
    return false;
}

static int unknown_dims(const pare_shape *s)
{
    int n = 0;
    for (int i = 0; i < s->rank; i++) n += s->dim[i] < 0;
    return n;
}

static double known_count(const pare_shape *s)
{
    double n = 1;
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i] > 0) n *= (double)s->dim[i];
    return n;
}

/* More than LONG_SUM addends of one result? A window's are its places, another reduction's are
   elements in over elements out: unknown sizes cancel where as many are left as came in, else they
   are taken as long. */
static bool sums_many(const pare_node *node)
{
    const pare_value *x = pare_node_in(node, 0), *y = node->out[0];
    int count;
    const int64_t *window = pare_node_ints(node, "kernel_shape", &count);
    double places = 1;
    for (int i = 0; window && i < count; i++) places *= (double)window[i];
    if (window) return places > LONG_SUM;
    if (!x || !y || x->shape.rank < 0 || y->shape.rank < 0) return true;
    return unknown_dims(&x->shape) > unknown_dims(&y->shape) ||
           known_count(&x->shape) > known_count(&y->shape) * LONG_SUM;
}

/* --- overflow --- */

const pare_attr *pare_lowp_content(const pare_node *node)
{
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->kind == PARE_ATTR_TENSOR && !attr->ref && attr->tensor->dtype == PARE_f32)
            return attr;
    }
    return NULL;
}

/* The largest number of a content, where that is beyond the type; else 0. */
static float content_beyond(const pare_lowp *h, const pare_node *node)
{
    const pare_attr *attr = pare_lowp_content(node);
    float end = 0;
    for (int64_t i = 0; attr && i < attr->tensor->count; i++) {
        float x;
        memcpy(&x, (const char *)attr->tensor->data + i * (int64_t)sizeof x, sizeof x);
        if (isfinite(x) && fabsf(x) > fabsf(end)) end = x;
    }
    return fabsf(end) > h->largest ? end : 0;
}

/* Did calibration watch every tensor? Then one that it did not see was folded to a constant. */
static bool sees_all(const pare_lowp *h)
{
    return h->type == PARE_f16 && h->ranges && pare_ranges_see_all(h->ranges);
}

/* What calibration saw of a tensor beyond the forecast's limit, or 0. A folded one is beyond where
   what it is made of was. */
static float forecast(const pare_lowp *h, const pare_value *v)
{
    if (!h->ranges || !v || h->type != PARE_f16) return 0;
    const pare_stats *stats = pare_ranges_find(h->ranges, pare_lowp_seen(v)->name);
    if (!stats) return sees_all(h) && pare_ptr_map_find(&h->beyond, v) >= 0 ? INFINITY : 0;
    float low = stats->histogram->min, high = stats->histogram->max;
    float end = high > -low ? high : low;
    return fabsf(end) > h->largest / HEADROOM ? end : 0;
}

/* The first tensor a node reads or makes that would overflow, or NULL. */
static const pare_value *first_overflow(const pare_lowp *h, const pare_node *node, float *seen)
{
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && !node->in[i]->data && (*seen = forecast(h, node->in[i])) != 0)
            return node->in[i];
    for (int i = 0; i < node->out_count; i++)
        if ((*seen = forecast(h, node->out[i])) != 0) return node->out[i];
    *seen = sees_all(h) ? content_beyond(h, node) : 0;
    return *seen != 0 ? node->out[0] : NULL;
}

/* Adds a node to a list of names, "a, b". */
static pare_status add_name(pare_lowp *h, const pare_node *node, const char **list, int *count)
{
    const char *name = pare_quant_node_name(node);
    *list = *list ? pare_arena_printf(&h->model->arena, "%s, %s", *list, name) : name;
    (*count)++;
    return *list ? PARE_OK : PARE_MEMORY;
}

static pare_status note_overflow(pare_lowp *h, const pare_node *node, const char **why)
{
    float seen;
    const pare_value *v = first_overflow(h, node, &seen);
    if (!v) return PARE_OK;
    pare_arena *arena = &h->model->arena;
    *why = isfinite(seen)
               ? pare_arena_printf(arena, "calibration saw %.6g in '%s', and f16 ends at 65504",
                                   (double)seen, v->name)
               : pare_arena_printf(arena, "'%s' holds constants beyond f16's 65504", v->name);
    PARE_TRY(add_name(h, node, &h->facts->overflow_nodes, &h->facts->overflow_count));
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i]) PARE_TRY(pare_ptr_map_put(&h->beyond, node->out[i], 1));
    return *why ? PARE_OK : PARE_MEMORY;
}

/* --- underflow --- */

/* The first tensor that a node reads or makes whose numbers are all below f16's normal ones, as far
   as calibration saw, or NULL. */
static const pare_value *first_small(const pare_lowp *h, const pare_node *node, double *seen)
{
    for (int i = 0; i < node->in_count + node->out_count; i++) {
        const pare_value *v = i < node->in_count ? node->in[i] : node->out[i - node->in_count];
        if (!v || v->data || v->dtype != PARE_f32) continue;
        *seen = pare_quant_seen_largest(h->ranges, pare_lowp_seen(v)->name);
        if (pare_quant_f16_small(*seen)) return v;
    }
    return NULL;
}

/* A constant operand that f16 takes most bits of, or NULL; a bias is small beside what it is added
   to. */
static const pare_value *first_lost(const pare_node *node)
{
    const pare_quant_role *role = pare_quant_role_of(node);
    pare_weighted part = {.bias = -1};
    if (pare_quant_kind_of(node) == PARE_QUANT_WEIGHTED && role->weighted(node, &part) != PARE_OK)
        part.bias = -1;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        const bool keeps = i < 32 && (role->f32_inputs >> i & 1);
        if (v && v->data && v->dtype == PARE_f32 && i != part.bias && !keeps &&
            pare_quant_f16_loses(v->data))
            return v;
    }
    return NULL;
}

static pare_status note_underflow(pare_lowp *h, const pare_node *node, const char **why)
{
    double seen;
    if (h->type != PARE_f16) return PARE_OK; /* bf16 has f32's exponents */
    const pare_value *v = first_small(h, node, &seen), *lost = v ? NULL : first_lost(node);
    if (lost && !h->ranges)
        return pare_quant_warn(h->model, h->facts, PARE_FAULT_F16_UNDERFLOW, node, lost->name,
                               "most of its bits are below f16's smallest number, 2^-24; --data "
                               "keeps the node f32, --skip too");
    if (!v && !lost) return PARE_OK;
    pare_arena *arena = &h->model->arena;
    *why = v ? pare_arena_printf(arena,
                                 "calibration saw %.3g at most in '%s', and f16 loses bits below "
                                 "2^-14",
                                 seen, v->name)
             : pare_arena_printf(arena, "'%s' is too small for f16's steps of 2^-24", lost->name);
    PARE_TRY(add_name(h, node, &h->facts->underflow_nodes, &h->facts->underflow_count));
    return *why ? PARE_OK : PARE_MEMORY;
}

/* --- latency --- */

static pare_status note_latency(pare_lowp *h, const pare_node *node, const char **why)
{
    const int at = h->f32 ? pare_ptr_map_find(&h->before->at, node) : -1;
    *why = at >= 0 ? h->f32[at] : NULL;
    if (!*why) return PARE_OK;
    return add_name(h, node, &h->facts->f32_latency_nodes, &h->facts->f32_latency_count);
}

/* --- one node --- */

/* Why a node stays f32; NULL where it computes in the short type; "" where there is nothing to say.
 */
static pare_status judge(pare_lowp *h, const pare_node *node, bool chosen, const char **why)
{
    const pare_quant_role *role = pare_quant_role_of(node);
    *why = "";
    if (!has_f32(node->out, node->out_count) && !has_f32(node->in, node->in_count)) return PARE_OK;
    if (role && role->half == PARE_LOWP_CAST) return PARE_OK;
    *why = "it makes f32 from no f32 tensor";
    if (!has_f32(node->in, node->in_count) && !pare_lowp_content(node)) return PARE_OK;
    *why = "the type of an input is unknown";
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && node->in[i]->dtype == PARE_NOTYPE) return PARE_OK;
    *why = "it makes a sequence or an optional";
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] && node->out[i]->dtype == PARE_NOTYPE) return PARE_OK;
    *why = "skipped by a pattern";
    if (!chosen) return PARE_OK;
    if (h->pairs) PARE_TRY(pare_lowp_judge_pairs(h, node, why));
    if (h->pairs && *why) return PARE_OK;
    PARE_TRY(note_latency(h, node, why));
    if (h->f32 && *why) return PARE_OK;
    *why = pare_node_has_graphs(node) ? "its bodies take f32" : "the operator is unknown";
    if (!role || pare_node_has_graphs(node)) return PARE_OK;
    *why = "the operator stays f32";
    if (role->half == PARE_LOWP_NEVER) return PARE_OK;
    *why = "it sums more than 2,048 values";
    if (role->half == PARE_LOWP_REDUCES && sums_many(node)) return PARE_OK;
    PARE_TRY(pare_quant_check_weights(node));
    *why = NULL;
    PARE_TRY(note_overflow(h, node, why));
    return *why ? PARE_OK : note_underflow(h, node, why);
}

static pare_status decide(pare_lowp *h, const pare_node *node, bool chosen)
{
    const char *why;
    PARE_TRY(judge(h, node, chosen, &why));
    PARE_TRY(pare_ptr_map_put(&h->is_lowp, node, !why));
    if (!why && !(h->pairs && pare_lowp_is_int8(node))) h->facts->quantized_nodes++;
    if (!why || !why[0]) return PARE_OK;
    h->facts->float_nodes++;
    return pare_quant_note(h->model, h->facts, "%s (%s) stays f32: %s", pare_quant_node_name(node),
                           node->op_type, why);
}

pare_status pare_lowp_select(pare_lowp *h)
{
    PARE_TRY(pare_quant_select(h->model, h->arena, h->options, &h->nodes));
    for (int n = 0; n < h->nodes.count; n++)
        if (!h->pairs || !pare_lowp_is_pair(h->nodes.item[n]))
            PARE_TRY(decide(h, h->nodes.item[n], h->nodes.chosen[n]));
    if (h->pairs) PARE_TRY(pare_lowp_decide_pairs(h));
    if (h->facts->quantized_nodes == 0 && !h->pairs)
        return PARE_FAIL(
            h->ctx, INPUT,
            "%s: no node can compute in %s; expected a float model with nodes that "
            "--skip, --only and the forecasts of overflow and underflow leave to convert",
            h->model->path, pare_type(h->type)->name);
    if (h->facts->overflow_nodes)
        PARE_TRY(pare_model_set_meta(h->model, "pare.f32_for_overflow", h->facts->overflow_nodes));
    if (h->facts->f32_latency_nodes)
        PARE_TRY(
            pare_model_set_meta(h->model, "pare.f32_for_latency", h->facts->f32_latency_nodes));
    if (!h->facts->underflow_nodes) return PARE_OK;
    return pare_model_set_meta(h->model, "pare.f32_for_underflow", h->facts->underflow_nodes);
}
