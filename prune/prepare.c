/* SPDX-License-Identifier: Apache-2.0 */
/* The model that pruning starts from. It stays what it is where it can: only old forms are lifted
   and small constants folded, so that shapes and attributes can be read and rewritten in one form.
 */
#include "prune/prune.h"
#include "runtime/passes/passes.h"

enum { OLDEST_OPSET = 13, FOLD_LIMIT = 1 << 16 };

static bool is_quantized(const pare_value *v)
{
    switch (v->dtype) {
    case PARE_s8:
    case PARE_s4:
    case PARE_u4: return true;
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

/* IR 4 let initializers be no inputs; opset 13 came with IR 7 (ONNX's Versioning.md). */
static void raise_ir(pare_model *model)
{
    static const struct {
        int64_t opset, ir;
    } rows[] = {{23, 11}, {21, 10}, {19, 9}, {15, 8}, {13, 7}};
    int64_t opset = pare_model_opset(model, "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (opset < rows[i].opset) continue;
        if (model->ir_version < rows[i].ir) model->ir_version = rows[i].ir;
        return;
    }
}

pare_status pare_prune_prepare(pare_ctx *ctx, pare_model *model)
{
    (void)ctx;
    PARE_TRY(pare_graph_sort(model->graph));
    if (pare_model_opset(model, "") < OLDEST_OPSET)
        PARE_TRY(pare_pass_version_convert(model, OLDEST_OPSET));
    pare_graph_clear_inputs(model->graph);
    pare_infer_options infer = {.fold = true, .lenient = true, .keep_dequantize = true};
    infer.fold_limit = FOLD_LIMIT;
    PARE_TRY(pare_pass_infer(model, &infer));
    PARE_TRY(pare_graph_each(model->graph, refuse_quantized, NULL));
    raise_ir(model);
    return PARE_OK;
}
