/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/pairs.h"
#include "calib/channels.h"

#include <math.h>
#include <string.h>

enum { MOST_LIMITS = 4 };

typedef struct search {
    const pare_quant_makers *makers;
    pare_quant_pair pair;
    pare_quant_operand limit[MOST_LIMITS]; /* constants on the way that go along */
    int limits;
} search;

/* --- where channels are made --- */

static bool operand_add(search *q, pare_node *node, int input, int axis)
{
    pare_quant_pair *p = &q->pair;
    const pare_value *v = pare_node_in(node, input);
    if (!v || !v->data || v->dtype != PARE_f32 || axis < 0 || axis >= v->data->rank ||
        v->data->dims[axis] != p->channels || p->operands == PARE_PAIR_OPERANDS)
        return false;
    p->operand[p->operands++] = (pare_quant_operand){node, input, axis};
    return true;
}

/* A vector, one number a channel, whose other axes are 1. */
static bool vector_add(search *q, pare_node *node, int input)
{
    const pare_value *v = pare_node_in(node, input);
    int axis = v && v->data ? v->data->rank - 1 : -1;
    if (axis < 0 || v->data->count != q->pair.channels) return false;
    while (axis > 0 && v->data->dims[axis] == 1) axis--;
    return operand_add(q, node, input, axis);
}

/* The same where it is broadcast along the channels of the node's output. */
static bool aligned_add(search *q, pare_node *node, int input)
{
    const pare_value *v = pare_node_in(node, input);
    const int rank = node->out[0]->shape.rank, from_end = rank - pare_channels_axis(rank);
    return v && v->data && rank > 0 && v->data->rank >= from_end &&
           v->data->dims[v->data->rank - from_end] == q->pair.channels &&
           vector_add(q, node, input);
}

static bool limits_add(search *q)
{
    for (int i = 0; i < q->limits; i++)
        if (!aligned_add(q, q->limit[i].node, q->limit[i].input)) return false;
    return true;
}

/* sum: the addition after it that is its bias, or NULL. */
static bool made_by_product(search *q, pare_node *node, const pare_weighted *part, pare_node *sum)
{
    const pare_tensor *w = part->constant ? node->in[part->w]->data : NULL;
    const bool is_plain = w && part->w > part->x && part->axis >= 0 && part->axis < w->rank &&
                          (w->rank == 2 || (w->rank >= 4 && !part->axis));
    if (!is_plain || part->beta != 1) return false;
    q->pair.channels = w->dims[part->axis];
    if (!operand_add(q, node, part->w, part->axis)) return false;
    if (part->bias >= 0 && pare_node_in(node, part->bias) && !vector_add(q, node, part->bias))
        return false;
    if (!sum) return true;
    q->pair.product = node->out[0];
    return aligned_add(q, sum, sum->in[0]->data == NULL);
}

static bool made_by_norm(search *q, pare_node *node)
{
    const bool is_norm =
        !strcmp(node->op_type, "LayerNormalization") || !strcmp(node->op_type, "RMSNormalization");
    const pare_value *scale = is_norm ? pare_node_in(node, 1) : NULL;
    if (!scale || !scale->data || scale->data->rank != 1) return false;
    q->pair.channels = scale->data->dims[0];
    if (node->out[0]->shape.rank < 2 || node->out[0]->shape.rank > 3) return false;
    return vector_add(q, node, 1) && (!pare_node_in(node, 2) || vector_add(q, node, 2));
}

/* The input that is a constant of more than one number, of a node of two inputs; -1: none. */
static int constant_of(const pare_node *node)
{
    for (int i = 0; i < 2 && node->in_count == 2; i++) {
        const pare_value *v = node->in[i], *other = node->in[1 - i];
        if (v && v->data && v->dtype == PARE_f32 && v->data->count > 1 && other && !other->data)
            return i;
    }
    return -1;
}

/* A constant of each channel times a tensor: the end of a normalization in small operators. */
static bool made_by_scale(search *q, pare_node *node)
{
    const int at = strcmp(node->op_type, "Mul") ? -1 : constant_of(node);
    if (at < 0) return false;
    q->pair.channels = node->in[at]->data->count;
    return aligned_add(q, node, at);
}

/* --- what may be between --- */

static float number_of(const pare_value *v, float missing)
{
    if (!v) return missing;
    bool known = v->data && v->data->dtype == PARE_f32 && v->data->count == 1;
    return known ? pare_quant_number(v->data->data, 0) : NAN;
}

/* Commutes with a positive factor. */
static bool is_homogeneous(const search *q, const pare_node *node)
{
    static const char *const types[] = {"Relu",        "LeakyRelu",     "MaxPool",
                                        "AveragePool", "GlobalMaxPool", "GlobalAveragePool",
                                        "Identity",    "Dropout"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(node->op_type, types[i])) return true;
    if (pare_quant_kind_of(node) != PARE_QUANT_CLAMP) return false;
    const float high = number_of(pare_node_in(node, 2), INFINITY);
    return number_of(pare_node_in(node, 1), -INFINITY) == 0 &&
           (q->makers->bounds ? high > 0 : high == INFINITY);
}

/* Min, Max or Add with a constant: 0, or numbers that go along with their channels. *x: the other
   input. */
static bool is_limit(search *q, pare_node *node, const pare_value **x)
{
    const bool is_add = !strcmp(node->op_type, "Add");
    if ((!is_add && strcmp(node->op_type, "Min") && strcmp(node->op_type, "Max")) ||
        node->in_count != 2)
        return false;
    const int at = constant_of(node);
    if (at < 0) {
        *x = pare_node_in(node, 0);
        return number_of(pare_node_in(node, 1), NAN) == 0;
    }
    *x = node->in[1 - at];
    if (q->limits == MOST_LIMITS) return false;
    q->limit[q->limits++] = (pare_quant_operand){node, at, 0};
    return true;
}

/* (N, C, H, W) to (N, C H W): *block = H W. */
static bool flattens(const pare_node *node, int64_t *block)
{
    const pare_value *x = pare_node_in(node, 0);
    const pare_shape *y = &node->out[0]->shape;
    const bool moves = !strcmp(node->op_type, "Flatten") || !strcmp(node->op_type, "Reshape") ||
                       !strcmp(node->op_type, "Squeeze");
    if (!moves || !x || x->shape.rank < 4 || y->rank != 2 || y->dim[1] < 1) return false;
    int64_t count = 1;
    for (int i = 1; i < x->shape.rank; i++) {
        if (x->shape.dim[i] < 1) return false;
        count *= x->shape.dim[i];
    }
    *block = count / x->shape.dim[1];
    return count == y->dim[1];
}

/* --- attention --- */

/* The node of this operator that makes a value which only one node reads; or NULL. */
static const pare_node *maker_of(const pare_value *v, const char *op_type)
{
    const pare_node *node = v ? v->producer : NULL;
    return node && pare_node_is(node, op_type) && node->out[0] == v && !v->is_output &&
                   pare_value_only_user(v)
               ? node
               : NULL;
}

/* (N, T, H, D) and (N, H, T, D) change places. */
static const pare_node *turn_of(const pare_value *v)
{
    static const int64_t heads[] = {0, 2, 1, 3};
    const pare_node *node = maker_of(v, "Transpose");
    int count = 0;
    const int64_t *perm = node ? pare_node_ints(node, "perm", &count) : NULL;
    return perm && count == 4 && !memcmp(perm, heads, sizeof heads) ? node : NULL;
}

static int64_t last_dim(const pare_value *v)
{
    return v->shape.rank > 0 ? v->shape.dim[v->shape.rank - 1] : -1;
}

static bool same_heads(const pare_value *a, const pare_value *b)
{
    return a->shape.rank == 4 && b->shape.rank == 4 && a->shape.dim[1] > 0 && last_dim(a) > 0 &&
           a->shape.dim[1] == b->shape.dim[1] && last_dim(a) == last_dim(b);
}

/* The tensor (..., H D) whose heads, weighted by attention, are x (..., H D); or NULL. Each output
   of a head sums that head's numbers at the same place: channels stay where they are. */
static const pare_value *attended(const pare_node *join)
{
    const pare_value *x = join->out[0];
    if (!pare_node_is(join, "Reshape")) return NULL;
    const pare_node *turned = turn_of(join->in[0]);
    const pare_node *mix = turned ? maker_of(turned->in[0], "MatMul") : NULL;
    const pare_node *back = mix && !mix->in[0]->data ? turn_of(mix->in[1]) : NULL;
    const pare_node *split = back ? maker_of(back->in[0], "Reshape") : NULL;
    if (!split || !same_heads(mix->out[0], mix->in[1])) return NULL;
    const int64_t channels = mix->out[0]->shape.dim[1] * last_dim(mix->out[0]);
    const pare_value *v = split->in[0];
    const bool flat = x->shape.rank < 4 && v->shape.rank < 4 && v->shape.rank > 0;
    return flat && last_dim(x) == channels && last_dim(v) == channels ? v : NULL;
}

/* --- the search --- */

static bool seek(search *q, const pare_value *v, int step);

/* One of two computed factors whose channels meet. */
static bool seek_gate(search *q, const pare_node *node, int step)
{
    const pare_value *const *in = (const pare_value *const *)node->in;
    if (strcmp(node->op_type, "Mul") || node->in_count != 2 || !in[0] || !in[1]) return false;
    const pare_shape *a = &in[0]->shape, *b = &in[1]->shape;
    const int axis = a->rank > 0 ? pare_channels_axis(a->rank) : -1;
    if (in[0]->data || in[1]->data || axis < 0 || a->rank != b->rank || a->dim[axis] < 1 ||
        a->dim[axis] != b->dim[axis])
        return false;
    for (int i = 0; i < 2; i++) {
        search branch = *q;
        if (!seek(&branch, in[i], step + 1)) continue;
        *q = branch;
        return true;
    }
    return false;
}

/* A weighted node, or the addition of its bias. *yes: the channels can be divided there. */
static bool ends_in_product(search *q, pare_node *node, bool *yes)
{
    pare_weighted part;
    const bool own = q->makers->find(q->makers->user, node, &part);
    if (own) *yes = made_by_product(q, node, &part, NULL) && limits_add(q);
    for (int i = 0; !own && i < node->in_count && i < 2; i++) {
        const pare_value *in = node->in[i];
        pare_node *maker = in ? in->producer : NULL;
        if (!maker || in->is_output || pare_quant_bias_node(maker) != node ||
            !q->makers->find(q->makers->user, maker, &part))
            continue;
        *yes = made_by_product(q, maker, &part, node) && limits_add(q);
        return true;
    }
    return own;
}

/* v is not the first of the way where step > 0. */
static bool seek(search *q, const pare_value *v, int step)
{
    pare_node *node = v->producer;
    const pare_value *x;
    bool yes = false;
    if (step == PARE_PAIR_STEPS || v->is_output || !node || node->out[0] != v) return false;
    if (step && pare_value_only_user(v) == NULL) return false;
    q->pair.way[q->pair.ways++] = v;
    if (ends_in_product(q, node, &yes)) return yes;
    if (made_by_norm(q, node) || made_by_scale(q, node)) return limits_add(q);
    x = q->makers->products ? attended(node) : NULL;
    if (!x && q->makers->products && seek_gate(q, node, step)) return true;
    if (!x && !is_limit(q, node, &x)) {
        x = pare_node_in(node, 0);
        if (!is_homogeneous(q, node) && !flattens(node, &q->pair.block)) return false;
    }
    return x && x->graph == v->graph && seek(q, x, step + 1);
}

bool pare_quant_pair_find(const pare_value *x, const pare_quant_makers *makers,
                          pare_quant_pair *out)
{
    search q = {.makers = makers, .pair.block = 1};
    if (!seek(&q, x, 0)) return false;
    *out = q.pair;
    return true;
}

pare_status pare_quant_operand_divide(pare_ctx *ctx, const pare_quant_operand *o, const float *e,
                                      float **out)
{
    const pare_tensor *t = o->node->in[o->input]->data;
    const pare_quant_weight_view w = pare_quant_weight_look(t, o->axis);
    *out = pare_alloc(ctx, (size_t)t->count, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (int64_t i = 0; i < t->count; i++)
        (*out)[i] = pare_quant_number(t->data, i) / e[i / w.inner % w.channels];
    return PARE_OK;
}
