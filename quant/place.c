/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors become int8: the weighted nodes, then what the target wants around them (its
   row in target/rows.c).

   TensorRT: Q/DQ on the inputs of weighted nodes and on the skip input of a residual addition;
   nothing between a convolution and the addition it is fused with, nothing around float operators,
   nothing on graph outputs.

   ONNX Runtime: Q/DQ after every Conv, Gemm, MatMul + Add with its clamp, and from every int8
   tensor backwards through what can compute on int8: views, pools, joins, additions, products.

   OpenVINO: the same, but from the inputs of weighted nodes alone: what only float operators read
   stays float, for a pair before them is a pass over the tensor that nothing fuses. */
#include "quant/internal.h"

#include <string.h>

/* Float, not constant. */
static bool is_activation(const pare_value *value)
{
    return value && value->dtype == PARE_f32 && !value->data;
}

static bool is_chosen(const pare_quant_scheme *s, const pare_node *node)
{
    return pare_quant_chosen(&s->nodes, node);
}

int pare_quant_point_find(const pare_quant_scheme *s, const pare_value *value)
{
    return pare_ptr_map_find(&s->point_at, value);
}

static bool is_unknown(const pare_quant_scheme *s, const pare_value *value)
{
    return pare_ptr_map_find(&s->unknown, value) >= 0;
}

static pare_status point_add(pare_quant_scheme *s, pare_value *value, int *at)
{
    *at = pare_quant_point_find(s, value);
    if (*at >= 0) return PARE_OK;
    if (!pare_arena_grow(s->arena, &s->point, &s->point_capacity, (size_t)s->point_count,
                         sizeof *s->point))
        return PARE_MEMORY;
    *at = s->point_count++;
    s->point[*at] = (pare_quant_point){.value = value, .group = *at};
    return pare_ptr_map_put(&s->point_at, value, *at);
}

static pare_status use_add(pare_quant_scheme *s, pare_node *node, int input)
{
    int at;
    if (is_unknown(s, node->in[input])) return PARE_OK;
    PARE_TRY(point_add(s, node->in[input], &at));
    if (!pare_arena_grow(s->arena, &s->use, &s->use_capacity, (size_t)s->use_count, sizeof *s->use))
        return PARE_MEMORY;
    s->use[s->use_count++] = (pare_quant_use){node, input, at};
    return PARE_OK;
}

pare_quant_job *pare_quant_job_of(pare_quant_scheme *s, const pare_node *node)
{
    for (int i = 0; node && i < s->job_count; i++)
        if (s->job[i].node == node) return &s->job[i];
    return NULL;
}

/* --- the weighted nodes --- */

/* Lists a node that stays float for its accuracy or its latency. */
static pare_status list_kept(pare_quant_scheme *s, const pare_node *node, const char *why)
{
    const char *name = pare_quant_node_name(node);
    const char **list = NULL;
    if (why == pare_quant_kept(&s->nodes, node))
        list = &s->facts->sensitive_nodes;
    else if (why == pare_quant_float_for_latency(&s->nodes, node))
        list = &s->facts->latency_nodes;
    if (!list) return PARE_OK;
    *list = *list ? pare_arena_printf(&s->model->arena, "%s, %s", *list, name) : name;
    return *list ? PARE_OK : PARE_MEMORY;
}

static pare_status keep_float(pare_quant_scheme *s, const pare_node *node, const char *why)
{
    s->facts->float_nodes++;
    return pare_quant_note(s->model, s->facts, "%s (%s) stays float: %s",
                           pare_quant_node_name(node), node->op_type, why);
}

/* Why a weighted node cannot become int8, or NULL. */
static const char *obstacle(const pare_quant_scheme *s, const pare_node *node,
                            const pare_weighted *part)
{
    const pare_value *x = pare_node_in(node, part->x), *w = pare_node_in(node, part->w);
    if (!is_chosen(s, node)) return "skipped by a pattern";
    if (pare_quant_kept(&s->nodes, node)) return pare_quant_kept(&s->nodes, node);
    if (pare_quant_float_for_latency(&s->nodes, node))
        return pare_quant_float_for_latency(&s->nodes, node);
    if (!x || !w) return "an input is missing";
    if (x->dtype != PARE_f32 || w->dtype != PARE_f32) return "its inputs are not f32";
    if (x->data) return "both inputs are constant";
    if (w->data && w->data->rank < 2) return "its weight is a vector";
    if (w->data && w->data->count == 0) return "its weight is empty";
    if (is_unknown(s, x) || is_unknown(s, w)) return "calibration saw nothing of its input";
    return NULL;
}

static pare_status add_job(pare_quant_scheme *s, pare_node *node)
{
    pare_quant_job job = {.node = node};
    PARE_TRY(pare_op_of(node)->quant.weighted(node, &job.part));
    const char *why = obstacle(s, node, &job.part);
    if (why) PARE_TRY(list_kept(s, node, why));
    if (why) return keep_float(s, node, why);
    job.part.constant = node->in[job.part.w]->data != NULL;
    if (!pare_arena_grow(s->arena, &s->job, &s->job_capacity, (size_t)s->job_count, sizeof *s->job))
        return PARE_MEMORY;
    s->job[s->job_count++] = job;
    s->facts->quantized_nodes++;
    return PARE_OK;
}

/* --- recurrent nodes --- */

/* Why the weights of a recurrent node stay float, or NULL. */
static const char *weight_obstacle(const pare_quant_scheme *s, const pare_node *node)
{
    if (!is_chosen(s, node)) return "skipped by a pattern";
    if (pare_target_says(s->options->target, PARE_RULE_RECURRENT_WEIGHT) != PARE_TAKEN)
        return s->options->target == PARE_TARGET_TENSORRT
                   ? "TensorRT takes no int8 weights in recurrent layers; --target onnxruntime "
                     "writes them"
                   : "OpenVINO takes no int8 weights in recurrent layers; --target onnxruntime "
                     "writes them";
    for (int i = PARE_QUANT_WEIGHT_FIRST; i <= PARE_QUANT_WEIGHT_LAST; i++) {
        const pare_value *w = pare_node_in(node, i);
        if (!w || !w->data) return "its weights are computed";
        if (w->dtype != PARE_f32) return "its weights are not f32";
        if (w->data->count == 0 || w->data->rank < 2) return "its weights are empty";
    }
    return NULL;
}

static pare_status add_weight_only(pare_quant_scheme *s, pare_node *node)
{
    const char *why = weight_obstacle(s, node);
    if (why) return keep_float(s, node, why);
    if (!pare_arena_grow(s->arena, &s->weight_only, &s->weight_only_capacity,
                         (size_t)s->weight_only_count, sizeof *s->weight_only))
        return PARE_MEMORY;
    s->weight_only[s->weight_only_count++] = node;
    s->facts->weight_only_nodes++;
    return PARE_OK;
}

/* --- chains: weighted node, bias addition, clamp --- */

/* The only reader of a value that is no graph output, where it is not in a body. */
static pare_node *reader_of(const pare_value *value)
{
    pare_node *user = pare_value_only_user(value);
    return user && user->graph == value->graph ? user : NULL;
}

/* The same where it adds a constant vector. */
static pare_node *bias_reader(const pare_value *value)
{
    pare_node *user = reader_of(value);
    if (!user || pare_quant_kind_of(user) != PARE_QUANT_SUM || user->in_count != 2) return NULL;
    const pare_value *other = user->in[user->in[0] == value];
    return other && other->data ? user : NULL;
}

pare_node *pare_quant_bias_node(const pare_node *node) { return bias_reader(node->out[0]); }

/* The tensor after a weighted node's bias addition and clamp, where each is the only reader. */
static pare_value *chain_end(const pare_node *node)
{
    pare_value *end = node->out[0];
    pare_node *next = bias_reader(end);
    if (next) end = next->out[0];
    next = reader_of(end);
    if (next && pare_quant_kind_of(next) == PARE_QUANT_CLAMP && next->in[0] == end)
        end = next->out[0];
    return end;
}

/* The weighted node whose output, or bias addition's output, this is; else NULL. */
static pare_quant_job *chain_start(pare_quant_scheme *s, const pare_value *value)
{
    const pare_node *node = value->producer;
    if (!node) return NULL;
    pare_quant_job *job = pare_quant_job_of(s, node);
    for (int i = 0; !job && i < node->in_count; i++) {
        const pare_node *before = node->in[i] ? node->in[i]->producer : NULL;
        if (before && before->out[0] == node->in[i] && bias_reader(node->in[i]) == node)
            job = pare_quant_job_of(s, before);
    }
    return job;
}

/* --- inputs and skip inputs --- */

/* The tensor after the addition's clamp, where it has one. */
static const pare_value *after_clamp(const pare_node *sum)
{
    const pare_value *y = sum->out[0];
    const pare_node *next = reader_of(y);
    return next && pare_quant_kind_of(next) == PARE_QUANT_CLAMP ? next->out[0] : y;
}

/* The input of a residual addition that is not computed by the weighted node it is fused with, or
   -1. Where two weighted nodes meet, the second input is the skip. */
static int skip_input(pare_quant_scheme *s, const pare_node *sum)
{
    bool main[2];
    for (int i = 0; i < 2; i++) main[i] = reader_of(sum->in[i]) && chain_start(s, sum->in[i]);
    return main[0] ? 1 : main[1] ? 0 : -1;
}

/* A skip tensor is worth its rounding only where the sum, or the tensor itself, is int8 anyway: in
   a float residual stream (LayerNorm after the addition) it stays float. */
static pare_status place_skip(pare_quant_scheme *s, pare_node *sum)
{
    if (sum->in_count != 2 || !is_chosen(s, sum)) return PARE_OK;
    if (!is_activation(sum->in[0]) || !is_activation(sum->in[1])) return PARE_OK;
    if (sum->in[0] == sum->in[1] || !pare_shape_equal(&sum->in[0]->shape, &sum->in[1]->shape))
        return PARE_OK;
    int skip = skip_input(s, sum);
    if (skip < 0) return PARE_OK;
    bool is_int8 = pare_quant_point_find(s, after_clamp(sum)) >= 0 ||
                   pare_quant_point_find(s, sum->in[skip]) >= 0;
    return is_int8 ? use_add(s, sum, skip) : PARE_OK;
}

static pare_status place_inputs(pare_quant_scheme *s)
{
    for (int i = 0; i < s->job_count; i++) {
        const pare_quant_job *job = &s->job[i];
        PARE_TRY(use_add(s, job->node, job->part.x));
        if (!job->part.constant) PARE_TRY(use_add(s, job->node, job->part.w));
    }
    for (int n = 0; n < s->nodes.count; n++)
        if (pare_quant_kind_of(s->nodes.item[n]) == PARE_QUANT_SUM)
            PARE_TRY(place_skip(s, s->nodes.item[n]));
    return PARE_OK;
}

/* --- through what computes on int8 --- */

static pare_status add_point(pare_quant_scheme *s, pare_value *value)
{
    int at;
    if (!is_activation(value) || is_unknown(s, value)) return PARE_OK;
    PARE_TRY(point_add(s, value, &at));
    s->point[at].everyone = true;
    return PARE_OK;
}

/* Does a value reach graph outputs only, through nodes that move it? Then it stays float. */
static bool leaves(const pare_value *value)
{
    for (int hops = 0; hops < 64; hops++) {
        if (value->user_count == 0) return true;
        if (value->user_count > 1) return false;
        const pare_node *user = value->user[0];
        if (pare_quant_kind_of(user) != PARE_QUANT_PASS || user->in[0] != value) return false;
        value = user->out[0];
    }
    return false;
}

/* The two factors of a product of activations. */
static pare_status place_factors(pare_quant_scheme *s, const pare_quant_job *job)
{
    pare_value *const factor[] = {job->node->in[job->part.x], job->node->in[job->part.w]};
    for (int i = 0; i < 2; i++) {
        PARE_TRY(add_point(s, factor[i]));
        const int at = pare_quant_point_find(s, factor[i]);
        if (at >= 0) s->point[at].balanced = pare_target_of(s->options->target)->balanced_factors;
    }
    return PARE_OK;
}

static pare_status place_job(pare_quant_scheme *s, const pare_quant_job *job)
{
    if (!job->part.constant) return place_factors(s, job);
    PARE_TRY(add_point(s, job->node->in[job->part.x]));
    if (!pare_target_of(s->options->target)->behind_weighted) return PARE_OK;
    pare_value *end = chain_end(job->node);
    return leaves(end) ? PARE_OK : add_point(s, end);
}

/* Two computed tensors of one rank: a factor or addend for all, constant or not, stays float. */
static bool joins_tensors(const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (!is_activation(node->in[i]) || node->in[i]->shape.rank == 0 ||
            node->in[i]->shape.rank != node->in[0]->shape.rank)
            return false;
    return true;
}

/* Inputs of the node that makes an int8 tensor, where that node can compute on int8. */
static pare_status place_before(pare_quant_scheme *s, pare_value *value)
{
    pare_node *node = value->producer;
    if (node && pare_quant_kind_of(node) == PARE_QUANT_CLAMP && reader_of(node->in[0]) == node)
        node = node->in[0]->producer;
    if (!node || !is_chosen(s, node)) return PARE_OK;
    int first = 0, last = -1;
    switch (pare_quant_kind_of(node)) {
    case PARE_QUANT_PASS:
    case PARE_QUANT_MEAN: last = 0; break;
    case PARE_QUANT_JOIN: last = node->in_count - 1; break;
    case PARE_QUANT_SUM:
    case PARE_QUANT_PRODUCT:
        if (!joins_tensors(node)) return PARE_OK;
        last = node->in_count - 1;
        break;
    default: break;
    }
    for (int i = first; i <= last && i < node->in_count; i++) PARE_TRY(add_point(s, node->in[i]));
    return PARE_OK;
}

static pare_status place_through(pare_quant_scheme *s)
{
    for (int i = 0; i < s->job_count; i++) PARE_TRY(place_job(s, &s->job[i]));
    for (int i = 0; i < s->point_count; i++) PARE_TRY(place_before(s, s->point[i].value));
    return PARE_OK;
}

/* --- tensors that share a scale --- */

static int group_of(const pare_quant_scheme *s, int at)
{
    while (s->point[at].group != at) at = s->point[at].group;
    return at;
}

static void unite(pare_quant_scheme *s, int a, int b)
{
    a = group_of(s, a);
    b = group_of(s, b);
    if (a < b)
        s->point[b].group = a;
    else
        s->point[a].group = b;
}

/* Where a value that only moved came from. */
static pare_value *root_of(pare_value *value)
{
    while (value->producer && pare_quant_kind_of(value->producer) == PARE_QUANT_PASS &&
           is_activation(pare_node_in(value->producer, 0)))
        value = value->producer->in[0];
    return value;
}

/* A join's inputs and output share a scale where all of them are points. */
static void unite_join(pare_quant_scheme *s, int at)
{
    const pare_node *join = s->point[at].value->producer;
    if (!join || pare_quant_kind_of(join) != PARE_QUANT_JOIN) return;
    for (int i = 0; i < join->in_count; i++)
        if (!join->in[i] || pare_quant_point_find(s, join->in[i]) < 0) return;
    for (int i = 0; i < join->in_count; i++) unite(s, at, pare_quant_point_find(s, join->in[i]));
}

static pare_status unite_points(pare_quant_scheme *s)
{
    pare_ptr_map first;
    pare_ptr_map_init(&first, s->arena);
    for (int i = 0; i < s->point_count; i++) {
        pare_value *root = root_of(s->point[i].value);
        int at = pare_ptr_map_find(&first, root);
        if (at < 0)
            PARE_TRY(pare_ptr_map_put(&first, root, i));
        else if (pare_target_of(s->options->target)->one_scale || pare_quant_spans_agree(s, at, i))
            unite(s, at, i);
    }
    for (int i = 0; i < s->point_count; i++) unite_join(s, i);
    for (int i = 0; i < s->point_count; i++) s->point[i].group = group_of(s, i);
    return PARE_OK;
}

/* Jobs and points; *known: a range was found for each. What has none stays float in the next
   placement. */
static pare_status place_known(pare_quant_scheme *s, bool *known)
{
    const pare_quant_facts before = *s->facts;
    for (int n = 0; n < s->nodes.count; n++) {
        const pare_quant_kind kind = pare_quant_kind_of(s->nodes.item[n]);
        if (kind == PARE_QUANT_WEIGHTED) PARE_TRY(add_job(s, s->nodes.item[n]));
        if (kind == PARE_QUANT_WEIGHT_ONLY) PARE_TRY(add_weight_only(s, s->nodes.item[n]));
    }
    PARE_TRY(pare_target_of(s->options->target)->through ? place_through(s) : place_inputs(s));
    PARE_TRY(pare_quant_choose_ranges(s));
    *known = true;
    for (int i = 0; i < s->point_count; i++) {
        if (!s->point[i].unknown) continue;
        *known = false;
        PARE_TRY(pare_ptr_map_put(&s->unknown, s->point[i].value, 1));
    }
    if (*known) return PARE_OK;
    *s->facts = before;
    s->job_count = s->point_count = s->use_count = s->weight_only_count = 0;
    pare_ptr_map_init(&s->point_at, s->arena);
    return PARE_OK;
}

pare_status pare_quant_place(pare_quant_scheme *s)
{
    PARE_TRY(pare_quant_select(s->model, s->arena, s->options, &s->nodes));
    pare_ptr_map_init(&s->unknown, s->arena);
    for (bool known = false; !known;) PARE_TRY(place_known(s, &known));
    PARE_TRY(unite_points(s));
    for (int i = 0; i < s->job_count; i++)
        s->job[i].x = pare_quant_point_find(s, s->job[i].node->in[s->job[i].part.x]);
    return PARE_OK;
}
