/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/diagnose.h"

#include "formats/onnx.h"
#include "quant/diagnose/internal.h"

#include <math.h>

double pare_diagnosis_db(double error, int outputs)
{
    return error > 0      ? -10 * log10(error / (outputs > 0 ? outputs : 1))
           : isnan(error) ? NAN
                          : INFINITY;
}

/* Counts what a run costs, and runs the float model. */
static pare_status run_exact(pare_diag *d)
{
    pare_model *sized = NULL;
    double macs = 0, values = 0;
    pare_status st = pare_quant_run_shapes(d->ctx, d->exact, d->on->data, &sized);
    for (int n = 0; st == PARE_OK && n < sized->graph->node_count; n++)
        macs += fmax(pare_node_macs(sized->graph->node[n]), 0);
    for (int i = 0; st == PARE_OK && i < sized->graph->out.count; i++)
        values += pare_quant_values(sized->graph->out.item[i]);
    pare_model_free(sized);
    PARE_TRY(st);
    PARE_TRY(pare_output_error_open(d->ctx, &d->outputs, d->exact, d->on, macs, values,
                                    2.0 * d->count + 10, PARE_OUTPUT_SAMPLES));
    d->out->samples = d->outputs.samples;
    d->out->outputs = d->outputs.count;
    if (!d->outputs.count)
        return PARE_FAIL(d->ctx, UNSUPPORTED,
                         "%s: none of its outputs is f32, so there is nothing to compare",
                         d->exact->path);
    return pare_output_error_keep(&d->outputs, d->exact);
}

static pare_status all(pare_diag *d, const pare_model *exact, const pare_model *quantized)
{
    bool is_half;
    PARE_TRY(pare_diag_open(d, exact, quantized));
    PARE_TRY(run_exact(d));
    if (d->count) {
        PARE_TRY(pare_diag_measure(d));
        return pare_diag_find(d);
    }
    PARE_TRY(pare_diag_half(d, &is_half));
    if (!is_half)
        return PARE_FAIL(d->ctx, INPUT,
                         "%s: is not quantized: it has no tensor between QuantizeLinear and "
                         "DequantizeLinear, no weight with scales of f32, f16, bf16 or f8e8m0 "
                         "after a DequantizeLinear and no tensor in f16",
                         quantized->path);
    return PARE_OK;
}

/* What is written says what happened to it. */
static pare_status finish(pare_diag *d)
{
    pare_model *model = d->out->model;
    if (!model) return PARE_OK;
    PARE_TRY(pare_graph_name_nodes_apart(model->graph));
    return pare_onnx_recipe(model, "diagnose fix");
}

static void close_all(pare_diag *d)
{
    for (int k = 0; k < d->count; k++) {
        if (d->part[k].stats.histogram) pare_histogram_free(d->part[k].stats.histogram);
        pare_free(d->part[k].stats.exact);
    }
    pare_output_error_close(&d->outputs);
    pare_model_free(d->folded);
    pare_model_free(d->master);
    pare_model_free(d->exact);
    pare_arena_free(&d->arena);
}

pare_status pare_diagnose(pare_ctx *ctx, const pare_model *exact, const pare_model *quantized,
                          const pare_quant_search *on, bool mend, pare_diagnosis **out)
{
    pare_diagnosis *made = pare_alloc(ctx, 1, sizeof *made);
    pare_diag d = {.ctx = ctx, .on = on, .mend = mend, .out = made};
    *out = NULL;
    if (!made) return PARE_MEMORY;
    *made = (pare_diagnosis){.mended = NAN, .exact = NAN, .error = NAN};
    pare_arena_init(&made->arena, ctx);
    pare_arena_init(&d.arena, ctx);
    const pare_log_fn log = ctx->log;
    ctx->log = NULL; /* trials would say everything many times */
    pare_status st = all(&d, exact, quantized);
    ctx->log = log;
    if (st == PARE_OK) st = finish(&d);
    close_all(&d);
    if (st == PARE_OK)
        *out = made;
    else
        pare_diagnosis_free(made);
    return st;
}

void pare_diagnosis_free(pare_diagnosis *diagnosis)
{
    if (!diagnosis) return;
    pare_model_free(diagnosis->model);
    pare_arena_free(&diagnosis->arena);
    pare_free(diagnosis);
}
