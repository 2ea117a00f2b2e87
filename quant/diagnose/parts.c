/* SPDX-License-Identifier: Apache-2.0 */
/* The master: the quantized model in which every part can be read as it is in the file, as floats,
   and in other ways. What is not read in a trial is swept away. */
#include "quant/diagnose/internal.h"
#include "runtime/base/f8.h"
#include "runtime/passes/passes.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* --- words --- */

const char *pare_diag_node_name(const pare_part *part)
{
    return part->node ? pare_quant_node_name(part->node) : "";
}

const char *pare_diag_tensor_name(const pare_part *part) { return part->name; }

pare_status pare_diag_note(pare_diag *d, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *copy = pare_arena_printf(&d->out->arena, "%s", text);
    const char **grown =
        pare_arena_alloc(&d->out->arena, (size_t)d->out->note_count + 1, sizeof *grown);
    if (!copy || !grown) return PARE_MEMORY;
    if (d->out->note_count) memcpy(grown, d->out->note, (size_t)d->out->note_count * sizeof *grown);
    grown[d->out->note_count++] = copy;
    d->out->note = grown;
    return PARE_OK;
}

/* --- the graph's end --- */

pare_status pare_diag_append(pare_diag *d, const char *op_type, const char *base,
                             pare_value *const *in, int in_count, pare_value **out)
{
    pare_graph *g = d->master->graph;
    PARE_TRY(pare_quant_value(g, out, base, op_type));
    return pare_quant_insert(g, g->node_count, NULL, op_type, base, in, in_count, *out);
}

/* --- pairs --- */

/* A DequantizeLinear whose output the model gives: an Identity in between can be read as another.
 */
static pare_status part_output(pare_node *dq)
{
    pare_graph *g = dq->graph;
    pare_value *y = dq->out[0], *fresh, *in[3];
    pare_node *made;
    const int count = dq->in_count < 3 ? dq->in_count : 3, at = pare_node_index(dq);
    for (int i = 0; i < count; i++) in[i] = dq->in[i];
    PARE_TRY(pare_quant_value(g, &fresh, y->name, "dequantized"));
    pare_value_set_type(fresh, y->dtype, &y->shape);
    const pare_attr *attr = dq->attr;
    const int attrs = dq->attr_count;
    const char *name = dq->name;
    pare_node_remove(dq);
    PARE_TRY(pare_node_new(g, &made, at, "DequantizeLinear", "", name, in, count, &fresh, 1));
    for (int a = 0; a < attrs; a++) PARE_TRY(pare_node_set_attr(made, &attr[a]));
    return pare_quant_insert(g, at + 1, NULL, "Identity", y->name, &fresh, 1, y);
}

static pare_status part_outputs(pare_graph *g)
{
    for (int n = 0; n < g->node_count; n++)
        if (pare_quant_is_dq(g->node[n]) && g->node[n]->out[0] && g->node[n]->out[0]->is_output)
            PARE_TRY(part_output(g->node[n]));
    return PARE_OK;
}

/* Operators that keep their input's scale may work on the integers: with a pair before and after
   them they work on floats, to the same result. */
static pare_status part_integer(pare_node *node)
{
    pare_graph *g = node->graph;
    pare_value *q = node->in[0], *y = node->out[0], *x, *z;
    pare_node *before = q->producer;
    pare_value *in[3] = {q, pare_node_in(before, 1), pare_node_in(before, 2)};
    const int count = in[2] ? 3 : 2;
    PARE_TRY(pare_quant_value(g, &x, q->name, "dequantized"));
    pare_value_set_type(x, in[1]->dtype, &q->shape);
    PARE_TRY(pare_quant_insert(g, pare_node_index(node), NULL, "DequantizeLinear", q->name, in,
                               count, x));
    PARE_TRY(pare_node_set_in(node, 0, x));
    PARE_TRY(pare_quant_value(g, &z, y->name, "real"));
    pare_value_set_type(z, in[1]->dtype, &y->shape);
    y->producer = NULL;
    pare_node_set_out(node, 0, z);
    in[0] = z;
    return pare_quant_insert(g, pare_node_index(node) + 1, NULL, "QuantizeLinear", y->name, in,
                             count, y);
}

static pare_status part_integers(pare_graph *g)
{
    for (int n = 0; n < g->node_count; n++) {
        pare_node *node = g->node[n];
        const pare_value *x = pare_node_in(node, 0);
        if (pare_quant_kind_of(node) == PARE_QUANT_PASS && x && pare_quant_is_q(x->producer) &&
            node->out_count == 1)
            PARE_TRY(part_integer(node));
    }
    return PARE_OK;
}

static pare_status add_part(pare_diag *d, pare_part **out)
{
    if (!pare_arena_grow(&d->arena, &d->part, &d->capacity, (size_t)d->count, sizeof *d->part))
        return PARE_MEMORY;
    *out = &d->part[d->count++];
    **out = (pare_part){.effect = NAN, .clip_effect = NAN, .next_error = NAN};
    return PARE_OK;
}

static pare_status add_read(pare_diag *d, pare_part *part, int node, int input, const char *exact)
{
    if (!pare_arena_grow(&d->arena, &part->read, &part->read_capacity, (size_t)part->read_count,
                         sizeof *part->read))
        return PARE_MEMORY;
    pare_part_read *r = &part->read[part->read_count++];
    *r = (pare_part_read){.node = node, .input = input};
    r->name[PARE_CHOICE_QUANTIZED] = d->master->graph->node[node]->in[input]->name;
    r->name[PARE_CHOICE_FLOAT] = exact;
    return PARE_OK;
}

/* All readers of a DequantizeLinear in the main graph, other pairs among them. exact: the float
   tensor, in any type; NULL: not known yet. */
static pare_status add_reads(pare_diag *d, pare_part *part, const pare_node *dq, pare_value *exact)
{
    const pare_graph *g = d->master->graph;
    const int all = g->node_count;
    if (exact) PARE_TRY(pare_diag_cast(d, exact, dq->out[0]->dtype, &exact));
    for (int n = 0; n < all; n++)
        for (int i = 0; i < g->node[n]->in_count; i++)
            if (g->node[n]->in[i] == dq->out[0])
                PARE_TRY(add_read(d, part, n, i, exact ? exact->name : NULL));
    return PARE_OK;
}

static const pare_node *real_node(const pare_value *value)
{
    const pare_node *node = value->producer;
    while (node && (pare_node_is_qdq(node) || pare_node_copied(node)) && node->in[0])
        node = node->in[0]->producer;
    return node;
}

static bool is_norm(const pare_node *node)
{
    return !strcmp(node->op_type, "LayerNormalization") ||
           !strcmp(node->op_type, "RMSNormalization");
}

const pare_node *pare_diag_source(const pare_value *value)
{
    enum { FAR = 12 };
    const pare_node *node = value ? value->producer : NULL;
    for (int i = 0; i < FAR && node; i++) {
        if (pare_quant_kind_of(node) == PARE_QUANT_WEIGHTED || is_norm(node)) return node;
        int flowing = -1;
        for (int k = 0; k < node->in_count; k++) {
            const pare_value *in = node->in[k];
            if (!in || in->data || (pare_quant_is_dq(in->producer) && in->producer->in[0]->data))
                continue;
            flowing = flowing < 0 ? k : node->in_count;
        }
        if (flowing < 0 || flowing >= node->in_count) return NULL;
        node = node->in[flowing]->producer;
    }
    return NULL;
}

/* The float model's tensor: of that name, or of the one that the quantized tensor's begins with
   ("y" of "y_quantized"); NULL: none. */
static const pare_value *exact_value(const pare_diag *d, const pare_node *q)
{
    const pare_graph *g = d->exact->graph;
    const pare_value *best = pare_graph_find_own(g, q->in[0]->name);
    size_t longest = 0;
    for (int n = 0; !best && n < g->node_count; n++)
        for (int o = 0; o < g->node[n]->out_count; o++) {
            const pare_value *v = g->node[n]->out[o];
            const size_t size = v ? strlen(v->name) : 0;
            if (size <= longest || strncmp(v->name, q->out[0]->name, size) != 0) continue;
            longest = size;
            best = v;
        }
    return best;
}

static bool is_clamp(const pare_node *node) { return pare_quant_kind_of(node) == PARE_QUANT_CLAMP; }

/* The clamp that makes a tensor of the float model, or alone reads it where the file has nothing of
   its result's name; NULL: none. */
static const pare_node *clamp_of(const pare_diag *d, const pare_value *exact)
{
    if (exact->producer && is_clamp(exact->producer)) return exact->producer;
    const pare_node *user = pare_value_only_user(exact);
    if (!user || !is_clamp(user)) return NULL;
    const pare_value *v = pare_graph_find_own(d->master->graph, user->out[0]->name);
    return v && v->producer ? NULL : user;
}

/* A quantizer may leave out a Relu or Clip that its range does: the float form has it again. */
static pare_status restore_clamp(pare_diag *d, const pare_node *q, pare_value **x)
{
    const pare_value *exact = exact_value(d, q);
    const pare_node *clamp = exact ? clamp_of(d, exact) : NULL;
    const pare_node *made = real_node(q->in[0]);
    *x = q->in[0];
    if (!clamp || !made || !strcmp(made->op_type, clamp->op_type) || clamp->in_count > 3)
        return PARE_OK;
    pare_value *in[3] = {q->in[0]}, *y;
    for (int i = 1; i < clamp->in_count; i++) {
        const pare_tensor *t = clamp->in[i] ? clamp->in[i]->data : NULL;
        if (clamp->in[i] && !t) return PARE_OK;
        in[i] = NULL;
        PARE_TRY(pare_diag_floats(d, t, &t));
        if (t)
            PARE_TRY(
                pare_diag_constant(d, clamp->in[i]->name, "limit", q->in[0]->dtype, t, &in[i]));
    }
    PARE_TRY(pare_diag_append(d, clamp->op_type, q->in[0]->name, in, clamp->in_count, &y));
    for (int a = 0; a < clamp->attr_count; a++)
        PARE_TRY(pare_node_set_attr(y->producer, &clamp->attr[a]));
    pare_value_set_type(y, q->in[0]->dtype, &q->in[0]->shape);
    *x = y;
    return PARE_OK;
}

static pare_status add_activation(pare_diag *d, pare_node *q)
{
    pare_value *x = q->in[0];
    pare_quantized_tensor t;
    pare_part *part;
    if (!pare_quantized_tensor_of(q, &t) || pare_type_is_f8(t.type) || !pare_diag_takes(x->dtype))
        return PARE_OK;
    PARE_TRY(restore_clamp(d, q, &x));
    PARE_TRY(add_part(d, &part));
    part->kind = PARE_PART_ACTIVATION;
    part->q = q;
    part->value = x;
    part->name = q->in[0]->name;
    part->node = real_node(q->in[0]);
    part->source = pare_diag_source(q->in[0]);
    PARE_TRY(pare_diag_floats(d, q->in[1]->data, &part->scale));
    part->step = t.scale;
    part->zero = t.zero;
    part->least = t.least;
    part->most = t.most;
    part->low = t.low;
    part->high = t.high;
    const pare_value *y = q->out[0];
    for (int u = 0; u < y->user_count; u++)
        if (pare_quant_is_dq(y->user[u]) && y->user[u]->graph == d->master->graph) {
            part->dq = y->user[u];
            PARE_TRY(add_reads(d, part, y->user[u], x));
        }
    if (!part->read_count) d->count--; /* another form: QLinear operators, bodies */
    return PARE_OK;
}

/* The constant at the beginning of a weight's DequantizeLinear, or NULL. */
static pare_value *constant_of(const pare_node *dq)
{
    pare_value *q = pare_node_in(dq, 0);
    return q && q->data ? q : NULL;
}

static pare_status add_weight(pare_diag *d, pare_node *dq)
{
    const pare_tensor *scale;
    pare_value *q = constant_of(dq);
    pare_part *part;
    const pare_value *s = q ? pare_node_in(dq, 1) : NULL;
    PARE_TRY(pare_diag_floats(d, s ? s->data : NULL, &scale));
    if (!scale) return PARE_OK;
    PARE_TRY(add_part(d, &part));
    part->kind = q->data->dtype == PARE_s32 ? PARE_PART_BIAS : PARE_PART_WEIGHT;
    part->dq = dq;
    part->value = q;
    part->name = q->name;
    part->scale = scale;
    PARE_TRY(add_reads(d, part, dq, NULL));
    if (!part->read_count)
        d->count--;
    else
        part->node = d->master->graph->node[part->read[0].node];
    return PARE_OK;
}

static pare_status add_parts(pare_diag *d)
{
    pare_graph *g = d->master->graph;
    const int all = g->node_count; /* more are appended */
    int pairs = 0, activations = 0;
    for (int n = 0; n < all; n++) {
        pare_node *node = g->node[n];
        const int before = d->count;
        if (pare_quant_is_dq(node)) PARE_TRY(add_weight(d, node));
        if (!pare_quant_is_q(node)) continue;
        PARE_TRY(add_activation(d, node));
        pairs++;
        activations += d->count - before;
    }
    if (activations < pairs)
        return pare_diag_note(d,
                              "%d of %d QuantizeLinear nodes are of a form that is not looked at: "
                              "FP8, per channel, in blocks, without a DequantizeLinear",
                              pairs - activations, pairs);
    return PARE_OK;
}

/* --- trials --- */

/* Limited to what the levels can say. */
static pare_status add_clip(pare_diag *d, pare_part *part)
{
    pare_graph *g = d->master->graph;
    pare_value *in[3], *y, *seen;
    const char *name = part->value->name;
    PARE_TRY(pare_diag_cast(d, part->value, PARE_f32, &in[0]));
    PARE_TRY(pare_quant_constant(g, &in[1], name, "low", PARE_f32, 0, NULL, &part->low));
    PARE_TRY(pare_quant_constant(g, &in[2], name, "high", PARE_f32, 0, NULL, &part->high));
    PARE_TRY(pare_diag_append(d, "Clip", name, in, 3, &y));
    pare_value_set_type(y, PARE_f32, &part->value->shape);
    for (int r = 0; r < part->read_count; r++) {
        PARE_TRY(pare_diag_cast(d, y, pare_diag_read_type(d, &part->read[r]), &seen));
        part->read[r].name[PARE_CHOICE_CLIPPED] = seen->name;
    }
    return PARE_OK;
}

static pare_status add_clips(pare_diag *d)
{
    for (int k = 0; k < d->count; k++)
        if (d->part[k].kind == PARE_PART_ACTIVATION) PARE_TRY(add_clip(d, &d->part[k]));
    return PARE_OK;
}

bool pare_diag_has(const pare_part *part, pare_choice choice)
{
    return part->read_count && part->read[0].name[choice];
}

void pare_diag_choose_all(pare_diag *d, pare_choice choice)
{
    for (int k = 0; k < d->count; k++) d->choice[k] = choice;
}

pare_status pare_diag_build(const pare_diag *d, const pare_choice *choice, pare_model **out)
{
    PARE_TRY(pare_model_clone(d->ctx, out, d->master));
    pare_graph *g = (*out)->graph;
    for (int k = 0; k < d->count; k++)
        for (int r = 0; r < d->part[k].read_count; r++) {
            const pare_part_read *read = &d->part[k].read[r];
            const char *name = read->name[choice[k]];
            if (!name || choice[k] == PARE_CHOICE_QUANTIZED) continue;
            pare_value *v = pare_graph_find_own(g, name);
            if (v) PARE_TRY(pare_node_set_in(g->node[read->node], read->input, v));
        }
    pare_graph_sweep(g);
    return pare_graph_sort(g);
}

/* --- all --- */

static pare_status prepare_exact(pare_diag *d, const pare_model *exact)
{
    pare_quant_options options;
    pare_quant_options_init(&options);
    PARE_TRY(pare_model_clone(d->ctx, &d->exact, exact));
    return pare_quant_prepare(d->ctx, d->exact, &options, NULL);
}

static pare_status prepare_master(pare_diag *d, const pare_model *quantized)
{
    enum { OPSET = 13 };
    const pare_infer_options infer = {.fold = true, .lenient = true, .keep_dequantize = true};
    PARE_TRY(pare_model_clone(d->ctx, &d->master, quantized));
    const int64_t before = pare_model_opset(d->master, "");
    PARE_TRY(pare_graph_sort(d->master->graph));
    PARE_TRY(pare_pass_expand_contrib(d->master));
    PARE_TRY(pare_pass_version_convert(d->master, before < OPSET ? OPSET : before));
    pare_graph_clear_inputs(d->master->graph);
    PARE_TRY(pare_pass_infer(d->master, &infer));
    PARE_TRY(pare_pass_expand_qlinear(d->master));
    PARE_TRY(part_integers(d->master->graph));
    PARE_TRY(part_outputs(d->master->graph));
    PARE_TRY(pare_pass_infer(d->master, &infer));
    pare_model_raise_ir(d->master);
    return PARE_OK;
}

static pare_status check_outputs(const pare_diag *d)
{
    const pare_values *want = &d->exact->graph->out;
    for (int i = 0; i < want->count; i++) {
        const pare_value *v = pare_graph_find_own(d->master->graph, want->item[i]->name);
        if (!v || !v->is_output)
            return PARE_FAIL(d->ctx, INPUT,
                             "%s: has no output '%s', which %s has; expected a quantized form of "
                             "that model",
                             d->master->path, want->item[i]->name, d->exact->path);
    }
    return PARE_OK;
}

pare_status pare_diag_open(pare_diag *d, const pare_model *exact, const pare_model *quantized)
{
    const pare_infer_options fold = {.fold = true, .lenient = true};
    PARE_TRY(prepare_exact(d, exact));
    PARE_TRY(prepare_master(d, quantized));
    PARE_TRY(check_outputs(d));
    PARE_TRY(add_parts(d));
    d->choice = pare_arena_alloc(&d->arena, (size_t)d->count + 1, sizeof *d->choice);
    if (!d->choice) return PARE_MEMORY;
    PARE_TRY(pare_model_clone(d->ctx, &d->folded, d->master));
    PARE_TRY(pare_pass_infer(d->folded, &fold));
    PARE_TRY(add_clips(d));
    return pare_diag_match(d);
}
