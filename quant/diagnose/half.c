/* SPDX-License-Identifier: Apache-2.0 */
/* Models in f16: which tensor is beyond its largest number, or below its normal ones. */
#include "quant/diagnose/internal.h"

#include <math.h>

#define F16_LARGEST 65504.0

static pare_status watch(pare_diag *d, pare_ranges **out)
{
    pare_calib_options options;
    pare_calib_options_init(&options);
    options.samples = d->outputs.sample;
    options.sample_count = d->outputs.samples;
    options.batch = (int)d->outputs.samples;
    options.threads = d->on->threads;
    options.device = d->on->device;
    options.minmax_only = true;
    return pare_calibrate(d->ctx, out, d->exact, d->on->data, &options);
}

static pare_status list(pare_diag *d, const pare_ranges *ranges)
{
    const pare_graph *g = d->master->graph;
    pare_diagnosis *out = d->out;
    out->finding = pare_arena_alloc(&out->arena, (size_t)g->node_count + 1, sizeof *out->finding);
    if (!out->finding) return PARE_MEMORY;
    for (int n = 0; n < g->node_count; n++) {
        const pare_node *node = g->node[n];
        const pare_value *y = node->out_count ? node->out[0] : NULL;
        const double seen =
            y && y->dtype == PARE_f16 ? pare_quant_seen_largest(ranges, y->name) : NAN;
        const bool small = pare_quant_f16_small(seen);
        if (!(seen > F16_LARGEST) && !small) continue;
        pare_finding *f = &out->finding[out->finding_count++];
        *f = (pare_finding){.fault = small ? PARE_FAULT_F16_UNDERFLOW : PARE_FAULT_F16_OVERFLOW,
                            .effect = NAN,
                            .gain = NAN};
        f->node = pare_arena_printf(&out->arena, "%s", pare_quant_node_name(node));
        f->tensor = pare_arena_printf(&out->arena, "%s", y->name);
        f->cause =
            small ? pare_arena_printf(&out->arena,
                                      "it reaches %.4g, f16 loses bits below 2^-14 = 6.1e-05", seen)
                  : pare_arena_printf(&out->arena, "it reaches %.4g, f16 ends at %.0f", seen,
                                      F16_LARGEST);
        f->cure = "keep it f32: convert the float model again with --precision fp16 --data";
        if (!f->node || !f->tensor || !f->cause) return PARE_MEMORY;
    }
    return PARE_OK;
}

/* The conversion that sees these samples keeps f32 what overflows. */
static pare_status convert(pare_diag *d, const pare_ranges *ranges)
{
    const pare_quant_options options = {.precision = PARE_PRECISION_FP16};
    pare_model *model;
    PARE_TRY(pare_model_clone(d->ctx, &model, d->exact));
    pare_status st = pare_quantize(d->ctx, model, ranges, &options, NULL);
    double error;
    if (st == PARE_OK) st = pare_output_error_of(&d->outputs, model, &error);
    if (st == PARE_OK) {
        const double gain = pare_diagnosis_db(error, d->outputs.count) -
                            pare_diagnosis_db(d->out->error, d->outputs.count);
        for (int i = 0; i < d->out->finding_count; i++) {
            d->out->finding[i].gain = gain;
            d->out->finding[i].applied = d->mend;
        }
    }
    if (st == PARE_OK && d->mend) {
        d->out->mended = error;
        d->out->model = model;
        return PARE_OK;
    }
    pare_model_free(model);
    return st;
}

pare_status pare_diag_half(pare_diag *d, bool *is)
{
    const pare_graph *g = d->master->graph;
    pare_ranges *ranges = NULL;
    *is = false;
    for (int n = 0; n < g->node_count && !*is; n++)
        for (int o = 0; o < g->node[n]->out_count; o++)
            *is |= g->node[n]->out[o] && g->node[n]->out[o]->dtype == PARE_f16;
    if (!*is) return PARE_OK;
    PARE_TRY(pare_output_error_of(&d->outputs, d->master, &d->out->error));
    PARE_TRY(watch(d, &ranges));
    pare_status st = list(d, ranges);
    if (st == PARE_OK && d->out->finding_count) st = convert(d, ranges);
    pare_ranges_free(ranges);
    return st;
}
