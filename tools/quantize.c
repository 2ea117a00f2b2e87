/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/quantize.h"

#include "formats/onnx.h"
#include "quant/target.h"
#include "tools/calibrate.h"
#include "tools/progress.h"
#include "tools/range_facts.h"
#include "tools/text.h"

#include <string.h>

pare_status pare_int8_choose(pare_tool *tool, const pare_int8_options *o, int weight_bits,
                             pare_quant_options *out)
{
    enum { U8 = 1 };
    const char *method = out->fp8 && !strcmp(o->method, "auto") ? "minmax" : o->method;
    const bool tensorrt = o->activations != U8 && weight_bits == 8; /* takes it */
    out->precision = PARE_PRECISION_INT8;
    out->weight_bits = weight_bits;
    out->target = o->target >= 0 ? (pare_quant_target)o->target
                  : tensorrt     ? PARE_TARGET_TENSORRT
                                 : PARE_TARGET_ONNXRUNTIME;
    out->unsigned_activations = o->activations >= 0
                                    ? o->activations == U8
                                    : pare_target_of(out->target)->unsigned_activations;
    out->per_tensor_weights = o->weights == 1;
    out->skip = o->skip.item;
    out->skip_count = o->skip.count;
    out->only = o->only.item;
    out->only_count = o->only.count;
    out->bias_correction = o->bias_correction != 2;
    out->fast_correction = o->bias_correction == 1;
    out->equalize = !o->no_equalization;
    PARE_TRY(pare_method_parse(tool->ctx, method, &out->rule));
    if (out->fp8 && out->rule.method != PARE_METHOD_MINMAX &&
        out->rule.method != PARE_METHOD_PERCENTILE)
        return PARE_FAIL(tool->ctx, USAGE,
                         "fp8: --method %s weighs the steps of integers; expected minmax or "
                         "percentile",
                         method);
    out->rule.symmetric = !out->unsigned_activations;
    const bool chooses = out->rule.method == PARE_METHOD_AUTO && !out->only_count;
    out->mixed = o->mixed >= 0 ? o->mixed / 100 : chooses ? PARE_QUANT_MIXED : 0;
    return pare_target_allows(tool->ctx, out);
}

/* --- ranges --- */

/* A table that names no model is a calibration cache: two ends a tensor. */
static bool is_cache(const pare_ranges *ranges)
{
    const char *hash = pare_ranges_model_hash(ranges);
    return strspn(hash, "0") == strlen(hash);
}

/* A table, a cache, or a quantized model. */
static pare_status read_table(pare_tool *tool, pare_ranges **out, const char *path)
{
    pare_model *model;
    if (!pare_ends_with(path, ".onnx")) return pare_ranges_read(tool->ctx, out, path);
    PARE_TRY(pare_onnx_read(tool->ctx, &model, path));
    const pare_status st = pare_ranges_of_model(tool->ctx, out, model);
    pare_model_free(model);
    return st;
}

static pare_status read_ranges(pare_tool *tool, pare_ranges **out, const char *path,
                               const char *model, const char *hash)
{
    PARE_TRY(read_table(tool, out, path));
    const char *theirs = pare_ranges_model_hash(*out);
    if (!is_cache(*out) && strcmp(theirs, hash) != 0)
        return PARE_FAIL(tool->ctx, INPUT,
                         "%s: made for another model (hash %s, %s has %s); run 'pare "
                         "calibrate %s' again",
                         path, theirs, model, hash, model);
    PARE_TRY(pare_tool_open_device(tool));
    pare_ranges_use_device(*out, tool->device); /* where ranges are searched */
    return PARE_OK;
}

/* Its tensors must be this model's, most of them. */
static pare_status check_names(pare_tool *tool, const pare_ranges *ranges, const pare_model *model,
                               const char *path)
{
    const int all = pare_ranges_count(ranges);
    int known = 0;
    for (int i = 0; i < all; i++)
        known += pare_graph_find_own(model->graph, pare_ranges_at(ranges, i)->name) != NULL;
    if (!known)
        return PARE_FAIL(tool->ctx, INPUT,
                         "%s: none of its %d tensors is in %s ('%s' is not, nor the others); "
                         "expected a table made of this model",
                         path, all, model->path, pare_ranges_at(ranges, 0)->name);
    if (2 * known < all)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "%s: only %d of its %d tensors are in %s; is it of another model? Nodes without a "
                 "range stay float",
                 path, known, all, model->path);
    return PARE_OK;
}

/* What --ranges cannot forecast: a table of int8's tensors. */
static void warn_partial(pare_tool *tool, const pare_ranges *ranges, const char *path)
{
    pare_log(
        tool->ctx, PARE_LOG_WARNING,
        "%s: knows the %d tensors that int8 would quantize; an overflow of f16 in another one is "
        "not forecast (--data sees all)",
        path, pare_ranges_count(ranges));
}

/* A table, and where it is INT8's the one that FP16 beside it is judged by. */
typedef struct tables {
    pare_ranges *ranges, *float_ranges;
} tables;

static bool is_fp16(const pare_quant_options *o) { return o->precision == PARE_PRECISION_FP16; }

static bool is_beside_fp16(const pare_quant_options *o)
{
    return o->precision == PARE_PRECISION_INT8 && o->float_fp16;
}

static pare_status measure(pare_tool *tool, pare_ranges **out, const pare_model *model, bool fp16,
                           bool again, const pare_quantize_from *from, const pare_source *source)
{
    const pare_calibrate_how how = {.model_hash = from->hash,
                                    .minmax_only = fp16,
                                    .again = again,
                                    .trace = again ? NULL : from->trace,
                                    .cache = from->cache};
    pare_status st = pare_tool_calibrate_on(tool, out, model, from->source, source, &how);
    if (fp16 && st == PARE_UNSUPPORTED)
        return pare_fail_prefix(tool->ctx, st,
                                "a forecast of overflows runs the model, and this one cannot be "
                                "run (leave --data out to convert without)");
    return st;
}

/* --- mixed precision --- */

static pare_status find_sensitive(pare_tool *tool, pare_model *model, const pare_ranges *ranges,
                                  pare_quant_options *options, const pare_quant_search *search,
                                  pare_max_drop *max_drop)
{
    pare_progress bar;
    pare_quant_search shown = *search;
    shown.progress = pare_progress_step;
    shown.progress_user = &bar;
    pare_progress_begin(&bar, stderr, tool->common->quiet, "measure", "nodes");
    const pare_status st =
        max_drop
            ? pare_max_drop_find(tool, model, ranges, options, &shown, max_drop)
            : pare_quant_find_sensitive(tool->ctx, model, ranges, options, &shown, &options->keep);
    pare_progress_end(&bar);
    return st;
}

/* On a GPU what is not int8 computes in FP16, unless that was asked otherwise. */
static pare_status allow_fp16(pare_tool *tool, pare_model *model, pare_quant_options *options,
                              const pare_quantize_from *from, pare_quant_facts *facts)
{
    const pare_prefer *p = from->prefer;
    if (!p || !p->may_fp16 || !(tool->device || p->gpu)) return PARE_OK;
    options->float_fp16 = true;
    return pare_quant_raise_opset(tool->ctx, model, options, facts);
}

/* After what stays float for its accuracy. With more nodes in float a model rarely loses more;
   where it does, and more than is allowed, none stays float for its latency. */
static pare_status place(pare_tool *tool, pare_model *model, const pare_ranges *ranges,
                         pare_quant_options *options, const pare_quantize_from *from,
                         const pare_source *source)
{
    pare_max_drop *m = from->max_drop;
    PARE_TRY(pare_prefer_latency(tool, model, ranges, options, source, from->prefer));
    if (!m || !(options->float_for_latency || options->f32_for_latency)) return PARE_OK;
    const double before = m->drop;
    PARE_TRY(pare_max_drop_judge(tool, model, ranges, options, m));
    if (m->drop <= m->points || m->drop <= before) return PARE_OK;
    m->drop = before;
    options->float_for_latency = options->f32_for_latency = NULL;
    from->prefer->gave_up = true;
    from->prefer->found.chosen = from->prefer->found.int8;
    return PARE_OK;
}

/* The samples that judge, evenly spaced: of another file, or of the one that is calibrated on. */
static pare_status open_judge(pare_tool *tool, pare_source *out, const pare_model *model,
                              const pare_quantize_from *from)
{
    enum { JUDGES = 10000 };
    pare_source_options options = *from->source;
    options.data = from->max_drop->data;
    options.samples = -1;
    options.range = NULL;
    from->max_drop->source = out;
    from->max_drop->batch = (int)options.batch;
    return pare_source_open_first(tool, out, model, &options, JUDGES);
}

/* Samples that outlive the quantization. */
typedef struct samples {
    pare_source own;
    pare_quant_search search;
} samples;

/* Statistics of the samples, and what they say of nodes that should stay float. */
static pare_status learn(pare_tool *tool, pare_model *model, pare_quant_options *options,
                         const pare_quantize_from *from, samples *in, tables *t,
                         pare_quant_facts *facts)
{
    pare_source judge = {0};
    const pare_source *source = from->opened ? from->opened : &in->own;
    pare_status st = PARE_OK;
    if (!from->opened)
        st = pare_source_open_first(tool, &in->own, model, from->source, PARE_CALIBRATION_SAMPLES);
    if (st == PARE_OK && from->max_drop) st = open_judge(tool, &judge, model, from);
    if (st == PARE_OK) st = pare_tool_open_device(tool);
    if (st == PARE_OK) st = allow_fp16(tool, model, options, from, facts);
    if (st == PARE_OK && from->max_drop) st = pare_max_drop_check(tool, model, from->max_drop);
    if (st == PARE_OK && !pare_precision_is_weight_only(options->precision))
        st = measure(tool, &t->ranges, model, is_fp16(options), false, from, source);
    if (st == PARE_OK && is_beside_fp16(options))
        st = measure(tool, &t->float_ranges, model, true, true, from, source);
    options->float_ranges = t->float_ranges;
    in->search = (pare_quant_search){.data = source->data,
                                     .samples = source->samples,
                                     .sample_count = source->count,
                                     .threads = (int)tool->common->threads,
                                     .device = tool->device};
    if (pare_quant_reads_samples(options)) options->inputs = &in->search;
    if (options->precision == PARE_PRECISION_INT8 && options->bias_correction &&
        !options->fast_correction)
        options->correct = &in->search;
    if (st == PARE_OK && t->ranges && (options->mixed > 0 || from->max_drop))
        st = find_sensitive(tool, model, t->ranges, options, &in->search, from->max_drop);
    if (st == PARE_OK && from->prefer) st = place(tool, model, t->ranges, options, from, source);
    pare_source_close(&judge);
    return st;
}

/* --- all --- */

static pare_status convert(pare_tool *tool, pare_model *model, const pare_quant_options *options,
                           samples *in, const pare_ranges *ranges, pare_quant_facts *facts)
{
    pare_progress bar;
    if (!options->inputs && !options->correct)
        return pare_quantize(tool->ctx, model, ranges, options, facts);
    in->search.progress = pare_progress_step;
    in->search.progress_user = &bar;
    const bool rounds = options->inputs != NULL;
    pare_progress_begin(&bar, stderr, tool->common->quiet, rounds ? "round" : "correct",
                        rounds ? "weights" : "layers");
    const pare_status st = pare_quantize(tool->ctx, model, ranges, options, facts);
    pare_progress_end(&bar);
    return st;
}

static pare_status quantize(pare_tool *tool, pare_model *model, pare_quant_options *options,
                            const pare_quantize_from *from, samples *in, tables *t,
                            pare_quant_facts *facts)
{
    if (!from->source->data) options->mixed = 0;
    if (from->ranges)
        PARE_TRY(read_ranges(tool, &t->ranges, from->ranges, model->path, from->hash));
    PARE_TRY(pare_quant_prepare(tool->ctx, model, options, facts));
    if (from->prefer) PARE_TRY(pare_prefer_check(tool, model, from->prefer));
    if (t->ranges && is_cache(t->ranges)) {
        options->rule.method = PARE_METHOD_MINMAX; /* the ends as they are */
        PARE_TRY(check_names(tool, t->ranges, model, from->ranges));
    }
    if (from->source->data && options->precision != PARE_PRECISION_BF16 &&
        !(pare_precision_is_weight_only(options->precision) && !pare_quant_reads_samples(options)))
        PARE_TRY(learn(tool, model, options, from, in, t, facts));
    if (from->ranges) PARE_TRY(allow_fp16(tool, model, options, from, facts));
    if (from->ranges && from->prefer) PARE_TRY(place(tool, model, t->ranges, options, from, NULL));
    if (from->prepared) PARE_TRY(pare_model_clone(tool->ctx, from->prepared, model));
    if (from->source->data && tool->device) options->device = tool->device->name;
    if (from->ranges && (is_fp16(options) || is_beside_fp16(options)))
        warn_partial(tool, t->ranges, from->ranges);
    PARE_TRY(convert(tool, model, options, in, t->ranges, facts));
    if (from->facts && t->ranges && options->precision == PARE_PRECISION_INT8)
        PARE_TRY(pare_range_facts(tool->ctx, tool->facts, t->ranges, &options->rule, options->fp8));
    return pare_ctx_poll(tool->ctx);
}

pare_status pare_tool_quantize(pare_tool *tool, pare_model *model,
                               const pare_quant_options *options, const pare_quantize_from *from,
                               pare_quant_facts *facts)
{
    pare_quant_options own = *options;
    own.threads = (int)tool->common->threads;
    tables t = {NULL, NULL};
    samples in = {0};
    if (from->prepared) *from->prepared = NULL;
    pare_status st = quantize(tool, model, &own, from, &in, &t, facts);
    pare_source_close(&in.own);
    if (t.ranges) pare_ranges_free(t.ranges);
    if (t.float_ranges) pare_ranges_free(t.float_ranges);
    if (st != PARE_OK && from->prepared) {
        pare_model_free(*from->prepared);
        *from->prepared = NULL;
    }
    return st;
}
