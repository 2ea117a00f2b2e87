/* SPDX-License-Identifier: Apache-2.0 */
/* The float graph that is calibrated and then quantized: opset lifted, constants and
   BatchNormalization folded, initializers out of the graph inputs. Value names survive. */
#include "quant/parts.h"
#include "formats/onnx.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <stdio.h>

#ifndef PARE_VERSION
#define PARE_VERSION "0.1.0"
#endif

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

static void clear_inputs(pare_graph *g)
{
    for (int i = g->in.count - 1; i >= 0; i--) {
        pare_value *v = g->in.item[i];
        if (!v->is_init) continue;
        v->is_input = false;
        pare_values_remove(&g->in, v);
    }
}

static pare_status note_source(pare_ctx *ctx, pare_model *model, int64_t before)
{
    char text[80], hash[33];
    uint64_t bytes;
    snprintf(text, sizeof text, "%s", PARE_VERSION);
    PARE_TRY(pare_quant_meta_set(model, "pare.version", text));
    if (model->path[0] && pare_onnx_hash(ctx, model->path, hash, &bytes) == PARE_OK)
        PARE_TRY(pare_quant_meta_set(model, "pare.source_hash", hash));
    else
        pare_ctx_clear(ctx); /* a model made in memory has no file */
    int64_t after = pare_model_opset(model, "");
    if (before == after) return PARE_OK;
    snprintf(text, sizeof text, "%" PRId64 " to %" PRId64, before, after);
    return pare_quant_meta_set(model, "pare.opset_lifted", text);
}

pare_status pare_quant_prepare(pare_ctx *ctx, pare_model *model, const pare_quant_options *options)
{
    int64_t before = pare_model_opset(model, ""), wanted = wanted_opset(options);
    PARE_TRY(pare_graph_sort(model->graph));
    if (before < wanted) PARE_TRY(pare_pass_lift(model, wanted));
    clear_inputs(model->graph);
    pare_infer_options infer = {.fold = true, .lenient = true};
    PARE_TRY(pare_pass_infer(model, &infer));
    PARE_TRY(pare_pass_fold_batchnorm(model));
    pare_graph_sweep(model->graph);
    int64_t ir = ir_of_opset(pare_model_opset(model, ""));
    if (model->ir_version < ir) model->ir_version = ir;
    return note_source(ctx, model, before);
}
