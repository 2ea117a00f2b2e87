/* SPDX-License-Identifier: Apache-2.0 */
/* What a model takes on a GPU that is not there: the steps that it would run, as the roofline has
   them, by the nodes of the model. */
#include "quant/latency/internal.h"

static pare_status roofline_of(pare_ctx *ctx, const pare_model *model,
                               const pare_quant_latency_options *how, pare_roofline **out)
{
    return pare_roofline_new(ctx, out, model, how->shapes, how->shape_count, how->gpu);
}

static pare_status take_steps(pare_ctx *ctx, const pare_model *prepared, const pare_roofline *r,
                              pare_quant_times *out)
{
    const int count = pare_roofline_count(r);
    double *seconds = pare_alloc(ctx, (size_t)count + 1, sizeof *seconds);
    const pare_node **step = pare_alloc(ctx, (size_t)count + 1, sizeof *step);
    pare_status st = seconds && step ? PARE_OK : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < count; i++) {
        seconds[i] = pare_roofline_at(r, i)->seconds;
        step[i] = pare_roofline_node(r, i);
    }
    if (st == PARE_OK) st = pare_quant_times_attribute(ctx, prepared, step, seconds, count, out);
    pare_free(seconds);
    pare_free(step);
    return st;
}

pare_status pare_quant_times_predict(pare_ctx *ctx, const pare_model *float_model,
                                     const pare_model *candidate,
                                     const pare_quant_latency_options *how, pare_quant_times *out)
{
    pare_roofline *own = NULL, *other = NULL;
    pare_model *rival = NULL;
    pare_status st = roofline_of(ctx, candidate, how, &own);
    if (st == PARE_OK) st = take_steps(ctx, float_model, own, out);
    if (st == PARE_OK && candidate != float_model) {
        st = pare_quant_make_rival(ctx, float_model, true, &rival);
        if (st == PARE_OK) st = roofline_of(ctx, rival, how, &other);
        if (st == PARE_OK) {
            const double a = pare_roofline_seconds(other), b = pare_roofline_seconds(own);
            out->against = (pare_side_by_side){.a_ms = a * 1e3, .b_ms = b * 1e3, .ratio = b / a};
        }
    }
    pare_roofline_free(own);
    pare_roofline_free(other);
    pare_model_free(rival);
    return st;
}
