/* SPDX-License-Identifier: Apache-2.0 */
/* From a float model and samples to a quantized model in one call. */
#include "quant/quant.h"

void pare_quant_options_init(pare_quant_options *out)
{
    *out = (pare_quant_options){.rule = {.method = PARE_METHOD_AUTO, .symmetric = true},
                                .bias_correction = true,
                                .equalize = true};
}

/* Ranges of a prepared model; *index are the samples chosen here, to be freed. */
static pare_status calibrate(pare_ctx *ctx, pare_ranges **out, const pare_model *model,
                             pare_data *data, bool minmax_only, const pare_calib_options *given,
                             int64_t **index)
{
    enum { SAMPLES = 512, BATCH = 64 };
    pare_calib_options own = given ? *given : (pare_calib_options){.batch = BATCH};
    own.minmax_only = minmax_only;
    if (!own.samples) {
        const int64_t all = pare_data_count(data);
        own.sample_count = all < SAMPLES ? all : SAMPLES;
        *index = pare_alloc(ctx, (size_t)own.sample_count + 1, sizeof **index);
        if (!*index) return PARE_MEMORY;
        pare_data_spread(0, all, own.sample_count, *index);
        own.samples = *index;
    }
    return pare_calibrate(ctx, out, model, data, &own);
}

pare_status pare_quantize_on_data(pare_ctx *ctx, pare_model *model, pare_data *data,
                                  const pare_quant_options *options,
                                  const pare_calib_options *calib, pare_quant_facts *facts)
{
    pare_quant_facts own;
    pare_ranges *ranges = NULL;
    int64_t *index = NULL;
    if (!facts) facts = &own;
    if (!data && options->precision == PARE_PRECISION_INT8)
        return PARE_FAIL(ctx, USAGE, "%s: int8 needs ranges, expected data to calibrate on",
                         model->path);
    PARE_TRY(pare_quant_prepare(ctx, model, options, facts));
    pare_status st = PARE_OK;
    if (data && options->precision != PARE_PRECISION_BF16)
        st = calibrate(ctx, &ranges, model, data, options->precision == PARE_PRECISION_FP16, calib,
                       &index);
    if (st == PARE_OK) st = pare_quantize(ctx, model, ranges, options, facts);
    if (ranges) pare_ranges_free(ranges);
    pare_free(index);
    return st;
}
