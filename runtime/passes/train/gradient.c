/* SPDX-License-Identifier: Apache-2.0 */
/* Plan: the tensors to differentiate by become inputs, so that folding keeps what is computed from
   them; shapes are inferred; the loss is put after the logits; values that depend on a parameter
   are marked; then every node with a gradient on an output and a marked input emits its rule's
   nodes, last node first. Constants come back at the end unless they are to stay inputs. */
#include "runtime/passes/train/gradient.h"
#include "runtime/ops/grad.h"
#include "runtime/passes/passes.h"

#include <string.h>

enum { GRADIENT_OPSET = 21 }; /* rules emit the forms of this opset */

typedef struct parameter {
    pare_value *value;
    const pare_tensor *data; /* NULL: not a constant */
    bool was_input;
} parameter;

typedef struct differ {
    pare_model *model;
    pare_graph *graph;
    const pare_gradient_options *options;
    parameter *parameter;
    pare_grad grad;
    pare_value *loss, *labels;
    const char **frozen; /* operators that were named */
    size_t frozen_capacity;
    int frozen_count, forward; /* forward: nodes up to the loss */
} differ;

/* --- parameters --- */

static pare_status make_input(differ *d, parameter *p)
{
    pare_value *v = p->value;
    p->was_input = v->is_input;
    pare_values_remove(&d->graph->init, v);
    v->data = NULL;
    v->is_init = false;
    v->is_input = true;
    return p->was_input ? PARE_OK : pare_values_add(d->graph, &d->graph->in, v);
}

static pare_status open_parameters(differ *d)
{
    const pare_gradient_options *o = d->options;
    d->parameter =
        pare_arena_alloc(&d->model->arena, (size_t)o->by_count + 1, sizeof *d->parameter);
    if (!d->parameter) return PARE_MEMORY;
    for (int i = 0; i < o->by_count; i++) {
        parameter *p = &d->parameter[i];
        p->value = pare_graph_find_own(d->graph, o->by[i]);
        if (!p->value)
            return PARE_FAIL(d->model->ctx, INPUT,
                             "%s: there is no tensor '%s' to differentiate by", d->model->path,
                             o->by[i]);
        p->data = p->value->data;
        if (p->data && !p->value->producer) PARE_TRY(make_input(d, p));
    }
    return PARE_OK;
}

static pare_status check_parameters(const differ *d)
{
    for (int i = 0; i < d->options->by_count; i++) {
        const pare_value *v = d->parameter[i].value;
        if (!pare_type_is_float(v->dtype))
            return PARE_FAIL(d->model->ctx, INPUT,
                             "%s: tensor '%s' has type %s, expected a float to differentiate by",
                             d->model->path, v->name, pare_type(v->dtype)->name);
    }
    return PARE_OK;
}

static pare_status close_parameters(differ *d)
{
    for (int i = 0; i < d->options->by_count && !d->options->as_inputs; i++) {
        parameter *p = &d->parameter[i];
        if (!p->data) continue;
        if (!p->was_input) {
            pare_values_remove(&d->graph->in, p->value);
            p->value->is_input = false;
        }
        PARE_TRY(pare_value_set_init(p->value, p->data));
    }
    return PARE_OK;
}

static pare_status check_inputs(const differ *d)
{
    char text[256];
    for (int i = 0; i < d->graph->in.count; i++) {
        const pare_value *v = d->graph->in.item[i];
        if (!pare_shape_known(&v->shape))
            return PARE_FAIL(d->model->ctx, UNSUPPORTED,
                             "%s: input '%s' has shape %s; gradients need every size to be known",
                             d->model->path, v->name,
                             pare_shape_text(&v->shape, text, sizeof text));
    }
    return PARE_OK;
}

/* --- the loss --- */

static pare_status find_loss(const differ *d, pare_value **out)
{
    const char *name = d->options->of;
    if (name) {
        *out = pare_graph_find_own(d->graph, name);
        if (*out) return PARE_OK;
        return PARE_FAIL(d->model->ctx, INPUT, "%s: there is no tensor '%s' to make a loss of",
                         d->model->path, name);
    }
    if (!d->graph->out.count)
        return PARE_FAIL(d->model->ctx, INPUT, "%s: the graph has no outputs", d->model->path);
    *out = d->graph->out.item[0];
    return PARE_OK;
}

static pare_status add_labels(differ *d, const pare_value *logits)
{
    const pare_shape rows = {.rank = 1, .dim = {logits->shape.dim[0]}};
    const char *name = pare_graph_fresh_name(d->graph, "labels");
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(d->graph, &d->labels, name));
    pare_value_set_type(d->labels, PARE_s64, &rows);
    d->labels->is_input = true;
    return pare_values_add(d->graph, &d->graph->in, d->labels);
}

/* The logits after which the loss is: what a last Softmax reads, axes of 1 dropped. */
static pare_status find_logits(differ *d, pare_value **out)
{
    char text[256];
    pare_value *v = *out;
    const pare_node *last = v->producer;
    bool softmax = last && pare_node_is_softmax(last) &&
                   (pare_node_int(last, "axis", -1) == -1 || pare_node_int(last, "axis", -1) == 1);
    if (softmax) v = last->in[0];
    const pare_shape *s = &v->shape;
    int64_t classes = s->rank >= 2 ? s->dim[1] : 0;
    if (!pare_type_is_float(v->dtype) || classes < 2 || pare_shape_product(s, 2, s->rank) != 1)
        return PARE_FAIL(d->model->ctx, INPUT,
                         "%s: output '%s' %s %s is no classifier's: expected [samples, classes] of "
                         "floats",
                         d->model->path, v->name, pare_type(v->dtype)->name,
                         pare_shape_text(s, text, sizeof text));
    *out = v;
    return PARE_OK;
}

/* Emits the loss and gives the logits (or the loss tensor) their gradient. */
static pare_status make_loss(differ *d, pare_value *of)
{
    pare_grad *g = &d->grad;
    if (d->options->loss == PARE_LOSS_TENSOR) {
        d->loss = of;
        pare_value *one = pare_grad_number(g, of->dtype, 1);
        pare_grad_give(g, of, pare_grad_reshaped(g, one, &of->shape));
        return g->status;
    }
    pare_shape rows = {.rank = 2, .dim = {of->shape.dim[0], of->shape.dim[1]}};
    if (d->options->loss == PARE_LOSS_LABELS) PARE_TRY(add_labels(d, of));
    pare_value *in[] = {pare_grad_reshaped(g, of, &rows), d->labels};
    pare_node *node = pare_grad_begin(g, "CrossEntropy", in, d->labels ? 2 : 1, 2);
    d->loss = pare_grad_end(g, node);
    if (d->loss) pare_grad_give(g, of, pare_grad_reshaped(g, node->out[1], &of->shape));
    return g->status;
}

static pare_status check_loss(differ *d, pare_value **of)
{
    PARE_TRY(find_loss(d, of));
    if (d->options->loss != PARE_LOSS_TENSOR) return find_logits(d, of);
    if (pare_type_is_float((*of)->dtype) && pare_shape_count(&(*of)->shape) == 1) return PARE_OK;
    char text[256];
    return PARE_FAIL(d->model->ctx, INPUT, "%s: tensor '%s' %s %s is no loss: expected one float",
                     d->model->path, (*of)->name, pare_type((*of)->dtype)->name,
                     pare_shape_text(&(*of)->shape, text, sizeof text));
}

/* --- forwards: what depends on a parameter --- */

static pare_status table_make(differ *d)
{
    size_t values = (size_t)d->options->by_count + 1;
    for (int i = 0; i < d->forward; i++) values += (size_t)d->graph->node[i]->out_count;
    d->grad.grad = pare_arena_alloc(d->grad.wanted.arena, values, sizeof *d->grad.grad);
    return d->grad.grad ? PARE_OK : PARE_MEMORY;
}

static bool any_wanted(const differ *d, const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (pare_grad_wants(&d->grad, node->in[i])) return true;
    return false;
}

static void mark(differ *d)
{
    for (int i = 0; i < d->options->by_count; i++) pare_grad_want(&d->grad, d->parameter[i].value);
    for (int i = 0; i < d->forward; i++) {
        const pare_node *n = d->graph->node[i];
        if (!any_wanted(d, n)) continue;
        for (int k = 0; k < n->out_count; k++)
            if (n->out[k] && pare_type_is_float(n->out[k]->dtype))
                pare_grad_want(&d->grad, n->out[k]);
    }
}

/* --- backwards --- */

/* Says once for each operator why its gradient ends here. */
static pare_status freeze(differ *d, const pare_node *node)
{
    pare_ctx *ctx = d->model->ctx;
    for (int i = 0; i < d->frozen_count; i++)
        if (!strcmp(d->frozen[i], node->op_type)) {
            pare_ctx_clear(ctx);
            return PARE_OK;
        }
    if (!pare_arena_grow(&d->model->arena, &d->frozen, &d->frozen_capacity, (size_t)d->frozen_count,
                         sizeof *d->frozen))
        return PARE_MEMORY;
    d->frozen[d->frozen_count++] = node->op_type;
    pare_log(ctx, PARE_LOG_WARNING,
             "%s; weights that reach the loss only through it stay as they are", ctx->message);
    pare_ctx_clear(ctx);
    return PARE_OK;
}

static pare_status rule(differ *d, const pare_node *node)
{
    pare_grad *g = &d->grad;
    const pare_op *op = pare_op_of(node);
    bool reached = false;
    for (int i = 0; i < node->out_count; i++) reached = reached || pare_grad_of(g, node->out[i]);
    if (!reached || !any_wanted(d, node)) return PARE_OK;
    g->base = node->out[0] ? node->out[0]->name : "";
    int before = d->graph->node_count;
    pare_status st = op ? op->grad(g, node) : pare_grad_none(g, node);
    if (st != PARE_UNSUPPORTED || g->status != PARE_OK || d->graph->node_count != before) return st;
    return freeze(d, node);
}

static pare_status backwards(differ *d)
{
    for (int i = d->forward - 1; i >= 0; i--) {
        PARE_TRY(pare_ctx_poll(d->model->ctx));
        PARE_TRY(rule(d, d->graph->node[i]));
    }
    return d->grad.status;
}

/* --- outputs --- */

static pare_status add_output(differ *d, pare_value *v)
{
    v->is_output = true;
    return pare_values_add(d->graph, &d->graph->out, v);
}

/* A value that is an output (or an input, or stands for two gradients) gets a copy. */
static pare_value *output_of(differ *d, pare_value *v)
{
    d->grad.base = v->name;
    return v->is_output || v->is_input || v->data ? PARE_EMIT(&d->grad, "Identity", v) : v;
}

static pare_status make_outputs(differ *d, pare_gradient *out)
{
    const pare_gradient_options *o = d->options;
    if (!o->keep_outputs) {
        for (int i = 0; i < d->graph->out.count; i++) d->graph->out.item[i]->is_output = false;
        d->graph->out.count = 0;
    }
    pare_value *loss = output_of(d, d->loss);
    if (!loss) return d->grad.status;
    PARE_TRY(add_output(d, loss));
    out->loss = loss->name;
    out->labels = d->labels ? d->labels->name : NULL;
    out->gradient =
        pare_arena_alloc(&d->model->arena, (size_t)o->by_count + 1, sizeof *out->gradient);
    if (!out->gradient) return PARE_MEMORY;
    for (int i = 0; i < o->by_count; i++) {
        pare_value *v = pare_grad_of(&d->grad, d->parameter[i].value);
        if (v) v = output_of(d, v);
        if (d->grad.status != PARE_OK) return d->grad.status;
        if (!v) continue;
        PARE_TRY(add_output(d, v));
        out->gradient[i] = v->name;
    }
    return PARE_OK;
}

static pare_status differentiate(differ *d, pare_gradient *out)
{
    const pare_infer_options infer = {.fold = true, .lenient = true};
    pare_value *of;
    bool expanded;
    PARE_TRY(open_parameters(d));
    PARE_TRY(check_inputs(d));
    PARE_TRY(pare_pass_version_convert(d->model, GRADIENT_OPSET));
    PARE_TRY(pare_pass_infer(d->model, &infer));
    PARE_TRY(pare_pass_expand_einsum(d->model, &expanded));
    if (expanded) PARE_TRY(pare_pass_infer(d->model, &infer));
    PARE_TRY(check_parameters(d));
    PARE_TRY(check_loss(d, &of));
    d->forward = d->graph->node_count;
    PARE_TRY(table_make(d));
    mark(d);
    PARE_TRY(d->grad.status);
    PARE_TRY(make_loss(d, of));
    PARE_TRY(backwards(d));
    PARE_TRY(make_outputs(d, out));
    PARE_TRY(close_parameters(d));
    PARE_TRY(pare_graph_sort(d->graph));
    pare_graph_sweep(d->graph);
    return PARE_OK;
}

pare_status pare_pass_gradient(pare_model *model, pare_gradient *out,
                               const pare_gradient_options *options)
{
    differ d = {.model = model,
                .graph = model->graph,
                .options = options,
                .grad = {.graph = model->graph, .base = "loss"}};
    pare_arena arena;
    pare_arena_init(&arena, model->ctx);
    pare_ptr_map_init(&d.grad.wanted, &arena);
    *out = (pare_gradient){0};
    pare_status st = differentiate(&d, out);
    pare_arena_free(&arena);
    return st;
}
