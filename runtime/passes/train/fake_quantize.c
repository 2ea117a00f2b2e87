/* SPDX-License-Identifier: Apache-2.0 */
/* Order: pairs after tensors and after float constants; integers after a DequantizeLinear;
   activations of one scale share its constant; biases, which need to know both scales. */
#include "runtime/passes/train/qat.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

#include <math.h>
#include <string.h>

/* --- reading --- */

static bool same_constant(const pare_value *a, const pare_value *b)
{
    if (a == b) return true;
    if (!a || !b || !a->data || !b->data) return false;
    const pare_tensor *s = a->data, *t = b->data;
    return s->dtype == t->dtype && s->count == t->count && !memcmp(s->data, t->data, s->bytes);
}

static bool all_positive(const pare_tensor *scale)
{
    for (int64_t i = 0; i < scale->count; i++) {
        float s = ((const float *)scale->data)[i];
        if (!(s > 0) || !isfinite(s)) return false;
    }
    return true;
}

/* Scale, zero point and axis of a Q or DQ node with these of an integer type that is trained. */
static bool read_levels(const pare_node *node, const pare_shape *shape, pare_dtype missing,
                        pare_fake *out)
{
    static const int low[] = {[PARE_s8] = -128, [PARE_u8] = 0};
    const pare_value *scale = pare_node_in(node, 1), *zero = pare_node_in(node, 2);
    if (!scale || !scale->is_init || scale->data->dtype != PARE_f32 || scale->data->rank > 1)
        return false;
    if (pare_node_int(node, "block_size", 0) || !all_positive(scale->data)) return false;
    if (zero && (!zero->is_init || zero->data->count != scale->data->count)) return false;
    out->type = zero ? zero->data->dtype : missing;
    if (out->type != PARE_s8 && out->type != PARE_u8) return false;
    out->low = low[out->type];
    out->high = out->low + 255;
    out->scale = out->file_scale = scale->name;
    out->zero = zero ? zero->name : NULL;
    out->scales = scale->data->count;
    out->axis = -1;
    if (out->scales == 1) return true;
    out->axis = pare_node_axis(node, 1, shape->rank);
    return out->axis >= 0 && out->axis < shape->rank && shape->dim[out->axis] == out->scales;
}

static const char *title(const pare_node *node) { return node->name[0] ? node->name : NULL; }

/* --- making --- */

pare_status pare_fake_add(pare_qat_pass *p, const pare_fake *fake)
{
    if (!pare_arena_grow(&p->model->arena, &p->list.item, &p->capacity, (size_t)p->list.count,
                         sizeof *p->list.item))
        return PARE_MEMORY;
    p->list.item[p->list.count++] = *fake;
    return PARE_OK;
}

/* N of the gradient's scale: elements a scale, of one sample where they are computed. */
static double gradient_scale(const pare_fake *f, const pare_value *x)
{
    double n = 1;
    for (int i = f->kind == PARE_FAKE_ACTIVATION; i < x->shape.rank; i++)
        if (i != f->axis && x->shape.dim[i] > 0) n *= (double)x->shape.dim[i];
    return 1 / sqrt(n * f->high);
}

/* FakeQuantize of x in a DequantizeLinear's place. */
static pare_status stand_in(pare_qat_pass *p, pare_node *dq, pare_value *x, pare_fake *f)
{
    pare_value *y = dq->out[0], *in[3] = {x, dq->in[1], pare_node_in(dq, 2)};
    pare_node *made;
    const int at = pare_node_index(dq);
    f->tensor = x->name;
    f->output = y->name;
    f->dequantizer = title(dq);
    f->gradient_scale = gradient_scale(f, x);
    pare_node_remove(dq);
    PARE_TRY(pare_node_new(p->graph, &made, at, "FakeQuantize", PARE_DOMAIN, dq->name, in,
                           in[2] ? 3 : 2, &y, 1));
    if (f->axis >= 0) PARE_TRY(pare_node_set_int(made, "axis", f->axis));
    if (!in[2]) PARE_TRY(pare_node_set_int(made, "to", f->type));
    if (f->low == -127) PARE_TRY(pare_node_set_int(made, "low", f->low));
    return pare_fake_add(p, f);
}

/* Do DequantizeLinear nodes with the node's own scale and zero point alone read the integers? */
static bool is_pair(const pare_node *q)
{
    const pare_value *y = q->out[0];
    if (y->is_output || !y->user_count) return false;
    for (int i = 0; i < y->user_count; i++) {
        const pare_node *dq = y->user[i];
        if (dq->graph != q->graph || !pare_node_is(dq, "DequantizeLinear") || dq->in[0] != y ||
            !same_constant(dq->in[1], q->in[1]) ||
            !same_constant(pare_node_in(dq, 2), pare_node_in(q, 2)) ||
            (dq->in[1]->shape.rank == 1 &&
             pare_node_int(dq, "axis", 1) != pare_node_int(q, "axis", 1)))
            return false;
    }
    return true;
}

static pare_status replace_pair(pare_qat_pass *p, pare_node *q)
{
    pare_value *x = pare_node_in(q, 0), *y = q->out[0];
    const pare_dtype missing = (pare_dtype)pare_node_int(q, "output_dtype", PARE_u8);
    pare_fake f = {.quantizer = title(q)};
    if (!x || x->dtype != PARE_f32 || !is_pair(q) || !read_levels(q, &x->shape, missing, &f))
        return PARE_OK;
    if (x->data && !x->is_init) return PARE_OK;
    f.kind = x->data ? PARE_FAKE_WEIGHT : PARE_FAKE_ACTIVATION;
    if (x->data) f.file_tensor = x->name;
    while (y->user_count) PARE_TRY(stand_in(p, y->user[0], x, &f));
    pare_node_remove(q);
    return PARE_OK;
}

/* Integers after DequantizeLinear: one master however many of these read them; they must agree. */
static bool is_weight(const pare_node *dq)
{
    const pare_value *q = dq->in[0];
    for (int i = 0; i < q->user_count; i++) {
        const pare_node *other = q->user[i];
        if (other->graph != dq->graph || !pare_node_is(other, "DequantizeLinear") ||
            other->in[0] != q || other->in[1] != dq->in[1] ||
            pare_node_in(other, 2) != pare_node_in(dq, 2) ||
            pare_node_int(other, "axis", 1) != pare_node_int(dq, "axis", 1))
            return false;
    }
    return !q->is_output;
}

static pare_status replace_weight(pare_qat_pass *p, pare_node *dq)
{
    pare_value *q = pare_node_in(dq, 0), *master;
    pare_fake f = {.kind = PARE_FAKE_WEIGHT};
    if (!q || !q->is_init || q->data->rank > PARE_MAX_RANK || !q->data->count ||
        !read_levels(dq, &q->shape, q->data->dtype, &f) || f.type != q->data->dtype ||
        !is_weight(dq))
        return PARE_OK;
    f.file_tensor = q->name;
    PARE_TRY(pare_qat_weight(p, dq, &f, &master));
    while (q->user_count) PARE_TRY(stand_in(p, q->user[0], master, &f));
    return PARE_OK;
}

/* --- shared scales --- */

static pare_node *node_of(const pare_qat_pass *p, const pare_fake *f)
{
    return pare_graph_find_own(p->graph, f->output)->producer;
}

static bool is_fake(const pare_node *node)
{
    return node && !strcmp(node->op_type, "FakeQuantize");
}

static bool same_levels(const pare_node *a, const pare_node *b)
{
    return same_constant(a->in[1], b->in[1]) &&
           same_constant(pare_node_in(a, 2), pare_node_in(b, 2)) &&
           pare_node_int(a, "axis", 1) == pare_node_int(b, "axis", 1) &&
           pare_node_int(a, "to", 0) == pare_node_int(b, "to", 0);
}

/* Where a value came from that only moved, through pairs of these levels too. */
static const pare_value *root_of(const pare_value *v, const pare_node *levels)
{
    for (const pare_node *n = v->producer; n && n->in_count; n = v->producer) {
        const bool moves = pare_quant_kind_of(n) == PARE_QUANT_PASS;
        if (!n->in[0] || !(moves || (is_fake(n) && same_levels(n, levels)))) break;
        v = n->in[0];
    }
    return v;
}

/* Do the values after b reach a by moves alone, or as a part of what is joined there? */
static bool is_tied(const pare_node *a, const pare_node *b)
{
    if (!same_levels(a, b)) return false;
    const pare_value *root = root_of(a->in[0], a), *other = root_of(b->in[0], b);
    if (root == other) return true;
    const pare_node *join = root->producer;
    if (pare_quant_kind_of(join) != PARE_QUANT_JOIN) return false;
    for (int i = 0; i < join->in_count; i++)
        if (join->in[i] && root_of(join->in[i], a) == other) return true;
    return false;
}

static int first_of(const int *group, int i)
{
    while (group[i] != i) i = group[i];
    return i;
}

/* Tensors that only move, or are joined, between two pairs have one scale by design; it is trained
   as one, the constant of the first of them. */
static pare_status tie(pare_qat_pass *p)
{
    const int n = p->list.count;
    int *group = pare_arena_alloc(&p->model->arena, (size_t)n + 1, sizeof *group);
    if (!group) return PARE_MEMORY;
    for (int i = 0; i < n; i++) {
        group[i] = i;
        for (int k = 0; k < i && p->list.item[i].kind == PARE_FAKE_ACTIVATION; k++) {
            if (p->list.item[k].kind != PARE_FAKE_ACTIVATION) continue;
            const pare_node *a = node_of(p, &p->list.item[i]), *b = node_of(p, &p->list.item[k]);
            const int x = first_of(group, i), y = first_of(group, k);
            if (x != y && (is_tied(a, b) || is_tied(b, a))) group[x > y ? x : y] = x < y ? x : y;
        }
    }
    for (int i = 0; i < n; i++) {
        const pare_fake *first = &p->list.item[first_of(group, i)];
        if (first == &p->list.item[i]) continue;
        p->list.item[i].scale = first->scale;
        PARE_TRY(pare_node_set_in(node_of(p, &p->list.item[i]), 1, node_of(p, first)->in[1]));
    }
    return PARE_OK;
}

/* --- the pass --- */

/* Calls fn for every node of this operator, first to last; fn may remove it and put another at its
   place. */
static pare_status each(pare_qat_pass *p, const char *op,
                        pare_status (*fn)(pare_qat_pass *, pare_node *))
{
    for (int n = 0; n < p->graph->node_count;) {
        pare_node *node = p->graph->node[n];
        if (pare_node_is(node, op)) PARE_TRY(fn(p, node));
        if (n < p->graph->node_count && p->graph->node[n] == node) n++;
    }
    return PARE_OK;
}

pare_status pare_pass_fake_quantize(pare_model *model, pare_fakes *out, const pare_model *f32)
{
    pare_qat_pass p = {.model = model, .graph = model->graph, .f32 = f32};
    *out = (pare_fakes){0};
    PARE_TRY(pare_graph_sort(model->graph));
    PARE_TRY(pare_pass_infer(model, &(pare_infer_options){.lenient = true}));
    PARE_TRY(each(&p, "QuantizeLinear", replace_pair));
    PARE_TRY(each(&p, "DequantizeLinear", replace_weight));
    PARE_TRY(tie(&p));
    PARE_TRY(pare_qat_biases(&p));
    PARE_TRY(pare_graph_sort(model->graph));
    pare_graph_sweep(model->graph);
    *out = p.list;
    return PARE_OK;
}
