/* SPDX-License-Identifier: Apache-2.0 */
/* The model that pruning starts from. It stays what it is where it can: only old forms are lifted
   and small constants folded, so that shapes and attributes can be read and rewritten in one form.
 */
#include "prune/plan.h"
#include "prune/channels.h"
#include "runtime/passes/passes.h"

#include <string.h>

enum { OLDEST_OPSET = 13, FOLD_LIMIT = 1 << 16 };

static bool is_quantized(const pare_value *v)
{
    switch (v->dtype) {
    case PARE_s8:
    case PARE_s4:
    case PARE_u4:
    case PARE_s2:
    case PARE_u2: return true;
    case PARE_u8: return v->data || v->producer;
    default: return false;
    }
}

static pare_status refuse_quantized(pare_graph *graph, void *user)
{
    (void)user;
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && is_quantized(node->in[i]))
                return PARE_FAIL_NODE(
                    node, INPUT,
                    "tensor '%s' is %s, the model is quantized already: prune the "
                    "float model first, then quantize",
                    node->in[i]->name, pare_type(node->in[i]->dtype)->name);
    }
    return PARE_OK;
}

/* Bytes, at least FOLD_LIMIT. */
static size_t largest_weight(const pare_graph *graph)
{
    size_t largest = FOLD_LIMIT;
    for (int i = 0; i < graph->init.count; i++) {
        const pare_tensor *t = graph->init.item[i]->data;
        if (t && t->bytes > largest) largest = t->bytes;
    }
    return largest;
}

pare_status pare_prune_prepare(pare_ctx *ctx, pare_model *model)
{
    (void)ctx;
    PARE_TRY(pare_graph_sort(model->graph));
    PARE_TRY(pare_pass_expand_contrib(model));
    PARE_TRY(pare_pass_version_convert(model, OLDEST_OPSET));
    pare_graph_clear_inputs(model->graph);
    pare_infer_options infer = {
        .fold = true, .lenient = true, .keep_dequantize = true, .fold_bodies = true};
    bool expanded;
    infer.fold_limit = FOLD_LIMIT;
    PARE_TRY(pare_pass_infer(model, &infer));
    PARE_TRY(pare_pass_expand_einsum(model, &expanded));
    infer.fold_limit = largest_weight(model->graph); /* Einsum's, in the order a MatMul reads */
    if (expanded) PARE_TRY(pare_pass_infer(model, &infer));
    PARE_TRY(pare_graph_each(model->graph, refuse_quantized, NULL));
    pare_model_raise_ir(model);
    return PARE_OK;
}

/* The sized copy of a model: open dims of its inputs get numbers, shape arithmetic is folded.
   Weights lose their content in it, so that nothing made from them is folded: what the analysis
   finds constant is constant in the model, too. */

enum { FEW = 8 };

/* The numbers for open dims: of the batch (axis 0, and its symbol wherever it is), of others.
 */
typedef struct open_sizes {
    int64_t batch, other, more_batch, more; /* more: than the size given in the options */
} open_sizes;

/* Short vectors may say extents (scales of a Resize): they stay. */
static pare_status forget_weights(pare_graph *graph, void *user)
{
    (void)user;
    for (int i = 0; i < graph->init.count; i++) {
        pare_value *v = graph->init.item[i];
        if (pare_type_is_float(v->dtype) && v->data && (v->data->rank > 1 || v->data->count > FEW))
            v->data = NULL;
    }
    return PARE_OK;
}

static const pare_shape *given_shape(const pare_groups_options *options, const char *name)
{
    for (int i = 0; options && i < options->shape_count; i++)
        if (!strcmp(options->shape[i].name, name)) return &options->shape[i].shape;
    return NULL;
}

static bool is_batch(const pare_graph *graph, const char *symbol)
{
    for (int i = 0; symbol && i < graph->in.count; i++) {
        const pare_shape *s = &graph->in.item[i]->shape;
        if (s->rank > 0 && s->dim[0] < 0 && s->name[0] && !strcmp(s->name[0], symbol)) return true;
    }
    return false;
}

/* What is given must be what the model fixes. */
static pare_status check_given(const pare_model *model, const pare_groups_options *options)
{
    for (int i = 0; i < model->graph->in.count; i++) {
        const pare_value *v = model->graph->in.item[i];
        const pare_shape *given = given_shape(options, v->name);
        char has[256], asked[256];
        bool fits = !given || v->shape.rank < 0 || given->rank == v->shape.rank;
        for (int d = 0; fits && given && d < v->shape.rank; d++)
            fits = v->shape.dim[d] < 0 || given->dim[d] == v->shape.dim[d];
        if (!fits)
            return PARE_FAIL(model->ctx, INPUT, "%s: input '%s' is %s, the shape given for it %s",
                             model->path, v->name, pare_shape_text(&v->shape, has, sizeof has),
                             pare_shape_text(given, asked, sizeof asked));
    }
    return PARE_OK;
}

/* Symbols are read in the model, sizes written to the copy. */
static pare_status size_inputs(const pare_model *model, pare_model *sized,
                               const pare_groups_options *options, const open_sizes *sizes,
                               bool *open)
{
    const pare_graph *g = model->graph;
    for (int i = 0; i < g->in.count; i++) {
        const pare_value *v = g->in.item[i];
        const pare_shape *given = given_shape(options, v->name);
        pare_shape shape = v->shape;
        if (v->is_init) continue;
        if (given) shape.rank = given->rank;
        for (int d = 0; d < shape.rank; d++) {
            if (v->shape.rank >= 0 && v->shape.dim[d] >= 0) continue;
            bool batch = d == 0 || is_batch(g, v->shape.rank >= 0 ? v->shape.name[d] : NULL);
            *open = true;
            shape.dim[d] = batch ? sizes->batch : sizes->other;
            if (given && given->dim[d] > 0)
                shape.dim[d] = given->dim[d] + (batch ? sizes->more_batch : sizes->more);
        }
        pare_value_set_type(sized->graph->in.item[i], v->dtype, &shape);
    }
    return PARE_OK;
}

static pare_status infer_sized(pare_ctx *ctx, pare_model **out, const pare_model *model,
                               const pare_groups_options *options, const open_sizes *sizes,
                               bool *open)
{
    pare_infer_options infer = {.fold = true, .lenient = true, .fold_limit = FOLD_LIMIT};
    pare_model *sized;
    PARE_TRY(pare_model_clone(ctx, &sized, model));
    pare_status st = pare_graph_each(sized->graph, forget_weights, NULL);
    if (st == PARE_OK) st = size_inputs(model, sized, options, sizes, open);
    if (st == PARE_OK) st = pare_pass_infer(sized, &infer);
    if (st == PARE_OK)
        *out = sized;
    else
        pare_model_free(sized);
    return st;
}

/* Sequences are as long as a typical text, pictures as large as a typical picture where that does
   not fit. The larger sizes only tell extents that follow the input from those that do not: any
   that the model takes will do. */
static const open_sizes first_sizes[] = {{1, 128, 0, 0}, {1, 224, 0, 0}, {1, 512, 0, 0}};
static const open_sizes larger_sizes[] = {{3, 160, 2, 32}, {3, 256, 2, 64}, {3, 448, 2, 224},
                                          {1, 160, 0, 32}, {1, 256, 0, 64}, {1, 448, 0, 224},
                                          {3, 128, 2, 0},  {3, 224, 2, 0}};

pare_status pare_sized_new(pare_ctx *ctx, pare_model **out, const pare_model *model,
                           const pare_groups_options *options, bool larger, bool *open)
{
    const open_sizes *sizes = larger ? larger_sizes : first_sizes;
    size_t count =
        larger ? sizeof larger_sizes / sizeof *sizes : sizeof first_sizes / sizeof *sizes;
    pare_status st = PARE_INPUT;
    *open = true;
    *out = NULL;
    PARE_TRY(check_given(model, options));
    for (size_t i = 0; i < count && st == PARE_INPUT && *open; i++) {
        if (i) pare_ctx_clear(ctx);
        *open = false;
        st = infer_sized(ctx, out, model, options, &sizes[i], open);
    }
    if (st != PARE_INPUT || !*open) return st;
    if (!larger)
        return pare_fail_prefix(
            ctx, st, "no size that was tried for the open dimensions fits (--shapes gives one)");
    pare_log(ctx, PARE_LOG_WARNING, "%s: its open dimensions take no other size: %s", model->path,
             ctx->message);
    pare_ctx_clear(ctx);
    return PARE_OK;
}
