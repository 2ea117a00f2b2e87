/* SPDX-License-Identifier: Apache-2.0 */
/* The float model's weights beside the file's. Tools rescale channels before they quantize (Nagel
   and others 2019, arXiv 1906.04721; SmoothQuant, arXiv 2211.10438): output o of a weight is then
   multiplied by a factor, and the weights that read channel o are divided by it. The factors are
   those of least squares; they count where a reader takes them back, so that a weight that is wrong
   is not taken for a rescaled one. */
#include "quant/diagnose/internal.h"

#include <math.h>

/* The same node of the float model: it makes the tensor of that name, or has that name. */
static const pare_node *twin_of(const pare_diag *d, const pare_node *node)
{
    const pare_graph *g = d->exact->graph;
    for (int o = 0; o < node->out_count; o++) {
        const pare_value *v = node->out[o] ? pare_graph_find_own(g, node->out[o]->name) : NULL;
        if (v && v->producer && !strcmp(v->producer->op_type, node->op_type)) return v->producer;
    }
    for (int n = 0; *node->name && n < g->node_count; n++)
        if (!strcmp(g->node[n]->name, node->name) && !strcmp(g->node[n]->op_type, node->op_type))
            return g->node[n];
    return NULL;
}

/* Numbers of one shape, in types that may differ. */
static bool same_form(const pare_tensor *a, const pare_tensor *b)
{
    if (!a || !b || !pare_diag_takes(a->dtype) || !pare_diag_takes(b->dtype) || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

/* Else the weight whose name the constant's begins with: "fc.weight" of "fc.weight_quantized". */
static const pare_tensor *by_name(const pare_diag *d, const char *name, const pare_tensor *like)
{
    const pare_tensor *best = NULL;
    size_t longest = 0;
    const pare_values *init = &d->exact->graph->init;
    for (int i = 0; i < init->count; i++) {
        const size_t n = strlen(init->item[i]->name);
        if (n > longest && !strncmp(init->item[i]->name, name, n) &&
            same_form(init->item[i]->data, like)) {
            best = init->item[i]->data;
            longest = n;
        }
    }
    return best;
}

static pare_status exact_of(pare_diag *d, const pare_node *node, int input, const char *name,
                            const pare_tensor *like, const pare_tensor **out)
{
    const pare_node *twin = twin_of(d, node);
    const pare_value *v = twin ? pare_node_in(twin, input) : NULL;
    const bool is_same = v && same_form(v->data, like);
    return pare_diag_floats(d, is_same ? v->data : by_name(d, name, like), out);
}

/* --- rescaled channels --- */

/* A weighted node and its constant in both models. */
typedef struct pare_diag_layer {
    const pare_node *node;
    pare_weighted role;
    const pare_tensor *w, *v; /* the float model's; the file's, dequantized */
    pare_quant_layout l;
    bool has_inputs; /* does the layout say what an input is? */
    float *out;      /* (outputs) the file's over the float model's, NULL: nothing was rescaled */
    bool confirmed;  /* by a reader that takes it back */
    const float *in; /* (in_count) of its input's channels, what they were multiplied with; NULL */
    int64_t in_count;
    const struct pare_diag_layer *maker; /* whose `out` this is; NULL: a normalization's */
} layer;

static int64_t place(const pare_quant_layout *l, int64_t o, int64_t i)
{
    return (l->inputs_first ? i * l->outputs + o : o * l->inputs + i) * l->taps;
}

/* What input channel i of output o is multiplied with to take the rescaling back. A flattened
   tensor has several features of a channel side by side. */
static double taken(const layer *y, int64_t o, int64_t i)
{
    const int64_t inputs = y->l.groups * y->l.inputs;
    const int64_t at = o / (y->l.outputs / y->l.groups) * y->l.inputs + i;
    return 1 / (double)y->in[at / (inputs / y->in_count)];
}

static bool fits_inputs(const layer *y)
{
    const int64_t inputs = y->l.groups * y->l.inputs;
    return y->has_inputs && y->in && y->in_count > 0 && inputs % y->in_count == 0;
}

/* Least squares for each output; out NULL: only the error that is left. */
static double fit_outputs(const layer *y, bool rescaled, float *out, double *plain)
{
    double left = 0;
    *plain = 0;
    for (int64_t o = 0; o < y->l.outputs; o++) {
        double wv = 0, ww = 0, vv = 0;
        for (int64_t i = 0; i < y->l.inputs; i++) {
            const int64_t at = place(&y->l, o, i);
            const double by = rescaled ? taken(y, o, i) : 1;
            for (int64_t t = 0; t < y->l.taps; t++) {
                const double w = by * (double)pare_quant_number(y->w->data, at + t),
                             v = (double)pare_quant_number(y->v->data, at + t);
                wv += w * v;
                ww += w * w;
                vv += v * v;
            }
        }
        const double factor = ww > 0 && wv > 0 ? wv / ww : 1; /* else nothing is left of it */
        left += vv - 2 * factor * wv + factor * factor * ww;
        *plain += vv - 2 * wv + ww;
        if (out) out[o] = (float)factor;
    }
    return left;
}

/* Is the error so much less that chance is not behind it? Rounding to 4 bits leaves much. */
static bool much_less(double error, double than) { return than > 0 && error < 0.8 * than; }

static bool lay_out(layer *y)
{
    const pare_quant_job job = {.node = (pare_node *)(uintptr_t)y->node, .part = y->role};
    const pare_tensor *w = y->w;
    const int axis = y->role.axis;
    if (w->rank < 2 || axis < 0 || axis >= w->rank) return false;
    const int64_t channels = axis > 1       ? 0
                             : w->rank == 2 ? w->dims[1 - axis]
                                            : w->dims[1] * pare_node_int(y->node, "group", 1);
    y->has_inputs = pare_quant_lay_out(&job, w, channels, &y->l);
    if (y->has_inputs) return true;
    const pare_quant_weight_view v = pare_quant_weight_look(w, axis);
    if (v.outer > 1 && v.inner > 1) return false;
    y->l = (pare_quant_layout){v.channels, v.outer > 1 ? v.outer : 1, v.inner, 1, v.outer > 1};
    return true;
}

/* What a normalization's channels were multiplied with. */
static pare_status norm_factors(pare_diag *d, const pare_node *node, layer *y)
{
    const pare_node *twin = twin_of(d, node);
    const pare_value *is = pare_node_in(node, 1), *was = twin ? pare_node_in(twin, 1) : NULL;
    if (!is || !was || !same_form(was->data, is->data)) return PARE_OK;
    const pare_tensor *now, *before;
    float *in = pare_arena_alloc(&d->arena, (size_t)is->data->count + 1, sizeof *in);
    bool equal = true;
    if (!in) return PARE_MEMORY;
    PARE_TRY(pare_diag_floats(d, is->data, &now));
    PARE_TRY(pare_diag_floats(d, was->data, &before));
    for (int64_t i = 0; i < now->count; i++) {
        const float a = pare_quant_number(now->data, i), b = pare_quant_number(before->data, i);
        in[i] = a / b > 0 && isfinite(a / b) ? a / b : 1;
        equal = equal && in[i] == 1;
    }
    if (equal) return PARE_OK;
    y->in = in;
    y->in_count = is->data->count;
    return PARE_OK;
}

static layer *layer_of(const pare_diag *d, const pare_node *node)
{
    for (int i = 0; i < d->layer_count; i++)
        if (d->layer[i].node == node) return &d->layer[i];
    return NULL;
}

/* Who rescaled the layer's input, as far as the file can have been rescaled there. */
static pare_status find_maker(pare_diag *d, layer *y)
{
    const pare_node *source = pare_diag_source(y->node->in[y->role.x]);
    if (!source) return PARE_OK;
    y->maker = layer_of(d, source);
    if (!y->maker) return norm_factors(d, source, y);
    y->in = y->maker->out;
    y->in_count = y->maker->l.outputs;
    return PARE_OK;
}

static pare_status add_layer(pare_diag *d, const pare_node *node)
{
    layer y = {.node = node};
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED ||
        pare_op_of(node)->quant.weighted(node, &y.role) != PARE_OK)
        return PARE_OK;
    const pare_value *w = pare_node_in(node, y.role.w);
    const pare_value *v = w ? pare_graph_find_own(d->folded->graph, w->name) : NULL;
    PARE_TRY(pare_diag_floats(d, v ? v->data : NULL, &y.v));
    if (!y.v) return PARE_OK;
    PARE_TRY(exact_of(d, node, y.role.w, w->name, y.v, &y.w));
    if (!y.w || !lay_out(&y)) return PARE_OK;
    PARE_TRY(find_maker(d, &y));
    double plain, rescaled_plain;
    const double left = fit_outputs(&y, false, NULL, &plain);
    bool use = false;
    if (fits_inputs(&y)) {
        const double error = fit_outputs(&y, true, NULL, &rescaled_plain);
        use = much_less(error, left) || (y.l.inputs == 1 && y.l.groups > 1);
        if (use && y.maker) layer_of(d, y.maker->node)->confirmed = true;
    }
    float *out = pare_arena_alloc(&d->arena, (size_t)y.l.outputs + 1, sizeof *out);
    if (!out) return PARE_MEMORY;
    const double error = fit_outputs(&y, use, out, &plain);
    y.out = much_less(error, plain) ? out : NULL;
    if (!pare_arena_grow(&d->arena, &d->layer, &d->layer_capacity, (size_t)d->layer_count,
                         sizeof *d->layer))
        return PARE_MEMORY;
    d->layer[d->layer_count++] = y;
    return PARE_OK;
}

static pare_status add_layers(pare_diag *d)
{
    for (int n = 0; n < d->master->graph->node_count; n++)
        PARE_TRY(add_layer(d, d->master->graph->node[n]));
    for (int i = 0; i < d->layer_count; i++) /* what nobody takes back is no rescaling */
        if (!d->layer[i].confirmed) d->layer[i].out = NULL;
    return PARE_OK;
}

/* --- what readers may read --- */

static pare_status put(pare_diag *d, const char *base, const pare_tensor *like, const void *data,
                       pare_part_read *read)
{
    const pare_dtype type = pare_diag_read_type(d, read);
    const pare_tensor from = {
        .rank = like->rank, .dims = like->dims, .count = like->count, .data = data};
    pare_tensor *t;
    pare_value *v;
    PARE_TRY(pare_diag_constant(d, base, "float", type, &from, &v));
    read->name[PARE_CHOICE_FLOAT] = v->name;
    read->exact = v->data;
    if (type == PARE_f32) return PARE_OK;
    PARE_TRY(pare_tensor_new(d->master, &t, base, PARE_f32, like->rank, like->dims, data));
    read->exact = t;
    return PARE_OK;
}

static pare_status put_rescaled(pare_diag *d, const layer *y, const char *base,
                                pare_part_read *read)
{
    const bool inputs = fits_inputs(y) && (!y->maker || y->maker->out);
    if (!inputs && !y->out) return put(d, base, y->w, y->w->data, read);
    float *w = pare_alloc(d->ctx, (size_t)y->w->count, sizeof *w);
    if (!w) return PARE_MEMORY;
    for (int64_t o = 0; o < y->l.outputs; o++)
        for (int64_t i = 0; i < y->l.inputs; i++) {
            const int64_t at = place(&y->l, o, i);
            const double by = (y->out ? (double)y->out[o] : 1) * (inputs ? taken(y, o, i) : 1);
            for (int64_t t = 0; t < y->l.taps; t++)
                w[at + t] = (float)(by * (double)pare_quant_number(y->w->data, at + t));
        }
    const pare_status st = put(d, base, y->w, w, read);
    pare_free(w);
    return st;
}

static pare_status match_weight(pare_diag *d, pare_part *part)
{
    part->readers = part->read_count;
    for (int r = 0; r < part->readers; r++) {
        pare_part_read *read = &part->read[r];
        const pare_node *node = d->master->graph->node[read->node];
        const layer *y = layer_of(d, node);
        const pare_tensor *w = NULL;
        if (part->made) PARE_TRY(exact_of(d, node, read->input, part->value->name, part->made, &w));
        if (!w) continue;
        if (!r) part->exact = w;
        if (y && y->role.w == read->input)
            PARE_TRY(put_rescaled(d, y, part->value->name, read));
        else
            PARE_TRY(put(d, part->value->name, w, w->data, read));
    }
    return PARE_OK;
}

/* --- biases --- */

/* Where a weighted node's bias is: its own input or the addition's after it. */
static bool bias_at(const pare_node *node, const pare_node **reader, int *input)
{
    pare_weighted role;
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED ||
        pare_op_of(node)->quant.weighted(node, &role) != PARE_OK)
        return false;
    *reader = node;
    *input = role.bias;
    if (role.bias >= 0) return pare_node_in(node, role.bias) != NULL;
    *reader = pare_quant_bias_node(node);
    for (int i = 0; *reader && i < (*reader)->in_count; i++)
        if ((*reader)->in[i] && (*reader)->in[i]->data) {
            *input = i;
            return true;
        }
    return false;
}

/* The float model's bias, rescaled as the outputs of the weighted node are. */
static pare_status put_bias(pare_diag *d, const pare_node *node, const char *base,
                            const pare_tensor *b, pare_part_read *read)
{
    const layer *y = layer_of(d, node);
    float *data = pare_alloc(d->ctx, (size_t)b->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    memcpy(data, b->data, (size_t)b->count * sizeof *data);
    if (y && y->out && b->count % y->l.outputs == 0)
        for (int64_t i = 0; i < b->count; i++) data[i] *= y->out[i % y->l.outputs];
    const pare_status st = put(d, base, b, data, read);
    pare_free(data);
    return st;
}

/* An int32 bias is a part of its own. */
static pare_status match_bias(pare_diag *d, pare_part *part)
{
    part->readers = part->read_count;
    for (int r = 0; r < part->read_count; r++) {
        pare_part_read *read = &part->read[r];
        const pare_node *node = d->master->graph->node[read->node];
        const char *name = part->value->name;
        const pare_tensor *b = NULL;
        if (part->made) PARE_TRY(exact_of(d, node, read->input, name, part->made, &b));
        if (!b) continue;
        if (!r) part->exact = b;
        PARE_TRY(put_bias(d, node, name, b, read));
    }
    return PARE_OK;
}

/* A float bias that was corrected belongs to the rounding of the weight. */
static pare_status match_correction(pare_diag *d, pare_part *part)
{
    const pare_node *reader;
    int input;
    if (!part->exact || part->readers != 1 || !bias_at(part->node, &reader, &input)) return PARE_OK;
    const pare_value *b = reader->in[input];
    const pare_node *twin = twin_of(d, reader);
    const pare_value *was = twin ? pare_node_in(twin, input) : NULL;
    const pare_tensor *exact;
    if (!was || !same_form(was->data, b->data) || !was->data->rank) return PARE_OK;
    PARE_TRY(pare_diag_floats(d, was->data, &exact));
    if (!pare_arena_grow(&d->arena, &part->read, &part->read_capacity, (size_t)part->read_count,
                         sizeof *part->read))
        return PARE_MEMORY;
    pare_part_read *read = &part->read[part->read_count++];
    *read = (pare_part_read){.node = pare_node_index(reader), .input = input};
    read->name[PARE_CHOICE_QUANTIZED] = b->name;
    return put_bias(d, part->node, b->name, exact, read);
}

pare_status pare_diag_match(pare_diag *d)
{
    int unknown = 0, known = 0;
    PARE_TRY(add_layers(d));
    for (int k = 0; k < d->count; k++) {
        pare_part *part = &d->part[k];
        if (part->kind == PARE_PART_ACTIVATION) continue;
        const pare_value *made = pare_graph_find_own(d->folded->graph, part->dq->out[0]->name);
        PARE_TRY(pare_diag_floats(d, made ? made->data : NULL, &part->made));
        PARE_TRY(part->kind == PARE_PART_WEIGHT ? match_weight(d, part) : match_bias(d, part));
        if (part->kind == PARE_PART_WEIGHT) PARE_TRY(match_correction(d, part));
        unknown += part->kind == PARE_PART_WEIGHT && !part->exact;
        known += part->exact != NULL;
    }
    if (unknown && !known)
        return PARE_FAIL(d->ctx, INPUT,
                         "%s: none of its %d quantized weights is in %s; expected a quantized form "
                         "of that model",
                         d->master->path, unknown, d->exact->path);
    if (unknown)
        return pare_diag_note(d,
                              "%d weights of the quantized model are not in the float model, by "
                              "node or name; what their rounding costs is not known",
                              unknown);
    return PARE_OK;
}
