/* SPDX-License-Identifier: Apache-2.0 */
/* The float graph that is calibrated and then quantized: opset lifted, constants and
   BatchNormalization folded, initializers out of the graph inputs. Value names survive. */
#include "quant/internal.h"
#include "formats/onnx.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>

/* The oldest opset that can say what will be written: DequantizeLinear with an axis (13), Cast to
   bf16 (13), bf16 in every operator (22). */
static int64_t wanted_opset(const pare_quant_options *options)
{
    return options->precision == PARE_PRECISION_BF16 && options->bf16_compute ? 22 : 13;
}

/* The IR version that came with an opset (ONNX's Versioning.md). */
static int64_t ir_of_opset(int64_t opset)
{
    static const struct {
        int64_t opset, ir;
    } rows[] = {{23, 11}, {21, 10}, {19, 9}, {15, 8}, {13, 7}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (opset >= rows[i].opset) return rows[i].ir;
    return 6;
}

/* An operator that computes in f16 or bf16; conversions do not. */
static const pare_value *short_input(const pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    if (op && op->quant.half == PARE_LOWP_CAST) return NULL;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (v && (v->dtype == PARE_f16 || v->dtype == PARE_bf16)) return v;
    }
    return NULL;
}

static pare_status refuse_graph(pare_graph *graph, void *user)
{
    (void)user;
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
        if (pare_quant_kind_of(node) == PARE_QUANT_INTEGER)
            return PARE_FAIL_NODE(node, INPUT,
                                  "the model is quantized already, expected a float model; start "
                                  "from the f32 model it was made from");
        const pare_value *v = short_input(node);
        if (v)
            return PARE_FAIL_NODE(
                node, INPUT,
                "tensor '%s' is %s: the model computes in it already, expected an "
                "f32 model; start from the f32 model it was made from",
                v->name, pare_type(v->dtype)->name);
    }
    return PARE_OK;
}

/* The opset of the file that the model came from, for the written file's reader. */
static pare_status note_source(pare_ctx *ctx, pare_model *model, int64_t before)
{
    PARE_TRY(pare_onnx_manifest(ctx, model, NULL, NULL));
    const int64_t after = pare_model_opset(model, "");
    if (before == after) return PARE_OK;
    const char *text = pare_arena_printf(&model->arena, "%" PRId64 " to %" PRId64, before, after);
    return text ? pare_model_set_meta(model, "pare.opset_lifted", text) : PARE_MEMORY;
}

pare_status pare_quant_prepare(pare_ctx *ctx, pare_model *model, const pare_quant_options *options,
                               pare_quant_facts *facts)
{
    int64_t before = pare_model_opset(model, ""), wanted = wanted_opset(options);
    PARE_TRY(pare_graph_sort(model->graph));
    if (before < wanted) PARE_TRY(pare_pass_version_convert(model, wanted));
    pare_graph_clear_inputs(model->graph);
    pare_infer_options infer = {.fold = true, .lenient = true};
    PARE_TRY(pare_pass_infer(model, &infer));
    PARE_TRY(pare_graph_each(model->graph, refuse_graph, NULL));
    PARE_TRY(pare_pass_fold_batchnorm(model));
    pare_graph_sweep(model->graph);
    int64_t ir = ir_of_opset(pare_model_opset(model, ""));
    if (model->ir_version < ir) model->ir_version = ir;
    if (facts)
        *facts =
            (pare_quant_facts){.opset_before = before, .opset_after = pare_model_opset(model, "")};
    return note_source(ctx, model, before);
}
