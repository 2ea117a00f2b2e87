/* SPDX-License-Identifier: Apache-2.0 */
/* From a float model and its ranges, or samples, to a quantized model: the preparation of the float
   graph, the choice of nodes (--skip, --only), INT8, and the manifest in the file's metadata_props,
   which with the same ranges or samples suffices to make the same file again. There is no clock in
   it. */
#include "formats/onnx.h"
#include "quant/internal.h"
#include "quant/quant.h"
#include "runtime/base/hash.h"
#include "runtime/graph/pattern.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- the float graph that is calibrated and then quantized --- */

/* The oldest opset that can say what will be written: DequantizeLinear with an axis (13), of
   FP8 or with f16 scales (19), with blocks or of INT4 (21), Cast to bf16 (13), bf16 in every
   operator (22). */
static int64_t wanted_opset(const pare_quant_options *options)
{
    if (options->float_weights) return options->precision == PARE_PRECISION_W4A16 ? 24 : 21;
    if (options->precision == PARE_PRECISION_W4A16 || options->weight_bits == 4) return 21;
    if (options->precision == PARE_PRECISION_W8A16 && options->block_size) return 21;
    if (options->precision == PARE_PRECISION_INT8 &&
        (options->fp8 || pare_quant_f16_scales(options)))
        return 19;
    return options->precision == PARE_PRECISION_BF16 && options->bf16_compute ? 22 : 13;
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

/* Before constants are folded, integer weights among them. */
static pare_status refuse_integers(pare_graph *graph, void *user)
{
    (void)user;
    for (int n = 0; n < graph->node_count; n++)
        if (pare_quant_kind_of(graph->node[n]) == PARE_QUANT_INTEGER)
            return PARE_FAIL_NODE(graph->node[n], INPUT,
                                  "the model is quantized already, expected a float model; start "
                                  "from the f32 model it was made from");
    return PARE_OK;
}

static pare_status refuse_halves(pare_graph *graph, void *user)
{
    (void)user;
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
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

/* Before a calibration that may take hours. */
static pare_status patterns_check(pare_model *model, const pare_quant_options *options)
{
    pare_arena arena;
    pare_quant_nodes nodes;
    if (!options->skip_count && !options->only_count) return PARE_OK;
    pare_arena_init(&arena, model->ctx);
    const pare_status st = pare_quant_select(model, &arena, options, &nodes);
    pare_arena_free(&arena);
    return st;
}

pare_status pare_quant_prepare(pare_ctx *ctx, pare_model *model, const pare_quant_options *options,
                               pare_quant_facts *facts)
{
    int64_t before = pare_model_opset(model, ""), wanted = wanted_opset(options);
    PARE_TRY(pare_graph_sort(model->graph));
    PARE_TRY(pare_pass_expand_contrib(model));
    PARE_TRY(pare_pass_version_convert(model, before < wanted ? wanted : before));
    PARE_TRY(pare_graph_each(model->graph, refuse_integers, NULL));
    pare_graph_clear_inputs(model->graph);
    pare_infer_options infer = {.fold = true, .lenient = true, .fold_bodies = true};
    bool expanded;
    PARE_TRY(pare_pass_infer(model, &infer));
    PARE_TRY(pare_pass_inline_control(model, &infer, NULL, 0));
    PARE_TRY(pare_graph_name_apart(model->graph));
    PARE_TRY(pare_pass_expand_einsum(model, &expanded));
    if (expanded) PARE_TRY(pare_pass_infer(model, &infer));
    PARE_TRY(pare_graph_each(model->graph, refuse_halves, NULL));
    PARE_TRY(pare_pass_fold_batchnorm(model));
    PARE_TRY(pare_graph_sweep_all(model->graph));
    PARE_TRY(patterns_check(model, options));
    pare_model_raise_ir(model);
    if (facts)
        *facts =
            (pare_quant_facts){.opset_before = before, .opset_after = pare_model_opset(model, "")};
    return note_source(ctx, model, before);
}

pare_status pare_quant_raise_opset(pare_ctx *ctx, pare_model *model,
                                   const pare_quant_options *options, pare_quant_facts *facts)
{
    const pare_infer_options infer = {.fold = true, .lenient = true, .fold_bodies = true};
    const int64_t now = pare_model_opset(model, ""), wanted = wanted_opset(options);
    if (now >= wanted) return PARE_OK;
    PARE_TRY(pare_pass_version_convert(model, wanted));
    PARE_TRY(pare_pass_infer(model, &infer));
    pare_model_raise_ir(model);
    if (facts) facts->opset_after = pare_model_opset(model, "");
    return note_source(ctx, model, facts ? facts->opset_before : now);
}

/* --- patterns --- */

const char *pare_quant_node_name(const pare_node *node)
{
    const char *path = pare_node_path(node);
    return path ? path : "?";
}

pare_status pare_quant_select(pare_model *model, pare_arena *arena,
                              const pare_quant_options *options, pare_quant_nodes *out)
{
    PARE_TRY(pare_graph_all_nodes(model->graph, arena, &out->item, &out->count));
    out->chosen = pare_arena_alloc(arena, (size_t)out->count + 1, sizeof *out->chosen);
    if (!out->chosen) return PARE_MEMORY;
    out->keep = options->keep;
    out->float_for_latency = options->float_for_latency;
    pare_ptr_map_init(&out->at, arena);
    for (int n = 0; n < out->count; n++) {
        out->chosen[n] = options->only_count == 0;
        PARE_TRY(pare_ptr_map_put(&out->at, out->item[n], n));
    }
    PARE_TRY(pare_pattern_mark(model, out->item, out->count, "--only", options->only,
                               options->only_count, true, out->chosen));
    return pare_pattern_mark(model, out->item, out->count, "--skip", options->skip,
                             options->skip_count, false, out->chosen);
}

bool pare_quant_chosen(const pare_quant_nodes *nodes, const pare_node *node)
{
    const int at = pare_ptr_map_find(&nodes->at, node);
    return at >= 0 && nodes->chosen[at];
}

static const char *reason(const pare_quant_nodes *nodes, const char *const *why,
                          const pare_node *node)
{
    const int at = why ? pare_ptr_map_find(&nodes->at, node) : -1;
    return at >= 0 ? why[at] : NULL;
}

const char *pare_quant_kept(const pare_quant_nodes *nodes, const pare_node *node)
{
    return reason(nodes, nodes->keep, node);
}

const char *pare_quant_float_for_latency(const pare_quant_nodes *nodes, const pare_node *node)
{
    return reason(nodes, nodes->float_for_latency, node);
}

/* --- the manifest --- */

static const char *method_text(const pare_range_rule *rule, char *text, size_t size)
{
    const int n = snprintf(text, size, "%s", pare_method_name(rule->method));
    if (rule->method == PARE_METHOD_PERCENTILE)
        snprintf(text + n, size - (size_t)n, ":%.10g", rule->percentile);
    return text;
}

static char *with_patterns(pare_model *model, char *recipe, const char *word,
                           const char *const *pattern, int count)
{
    for (int i = 0; i < count && recipe; i++)
        recipe = pare_arena_printf(&model->arena, "%s %s=%s", recipe, word, pattern[i]);
    return recipe;
}

static bool four_bits(const pare_quant_options *o) { return o->weight_bits == 4; }

/* By default INT8 rounds to the nearest and does not say so. */
static const char *rounding_text(const pare_quant_options *o, char *text, size_t size)
{
    const int iterations = pare_quant_iterations(o);
    if (!o->inputs || o->rounding == PARE_ROUNDING_NEAREST)
        snprintf(text, size, "%s",
                 o->precision == PARE_PRECISION_INT8 && !four_bits(o) ? "" : " rounding=nearest");
    else if (iterations)
        snprintf(text, size, " rounding=adaround iterations=%d", iterations);
    else
        snprintf(text, size, " rounding=gptq");
    return text;
}

static char *recipe_of(pare_model *model, const pare_quant_options *o)
{
    char method[40], mixed[48] = "", rounding[48];
    char *recipe;
    rounding_text(o, rounding, sizeof rounding);
    if (o->mixed > 0) snprintf(mixed, sizeof mixed, " mixed-precision=%.10g", 100 * o->mixed);
    if (o->precision == PARE_PRECISION_INT8)
        recipe = pare_arena_printf(
            &model->arena, "%s activations=%s target=%s weights=%s method=%s%s%s%s%s%s",
            o->fp8         ? "fp8"
            : four_bits(o) ? "w4a8"
                           : "int8",
            o->fp8                    ? "e4m3"
            : o->unsigned_activations ? "u8"
                                      : "s8",
            pare_target_of(o->target)->name, o->per_tensor_weights ? "tensor" : "channel",
            method_text(&o->rule, method, sizeof method),
            !o->bias_correction ? " bias-correction=none"
            : o->correct        ? ""
                                : " bias-correction=fast",
            o->equalize ? "" : " equalization=no", mixed, rounding,
            o->float_fp16 ? " float-precision=fp16" : "");
    else if (pare_precision_is_weight_only(o->precision))
        recipe = pare_arena_printf(&model->arena, "%s block-size=%" PRId64 "%s%s%s",
                                   o->precision == PARE_PRECISION_W4A16 ? "w4a16" : "w8a16",
                                   o->block_size, o->float_weights ? " weight-type=float" : "",
                                   o->inputs && !o->equalize ? " equalization=no" : "", rounding);
    else
        recipe = pare_arena_printf(
            &model->arena, "%s io=%s%s", o->precision == PARE_PRECISION_FP16 ? "fp16" : "bf16",
            o->io_same ? "same" : "f32", o->bf16_compute ? " bf16-compute" : "");
    recipe = with_patterns(model, recipe, "skip", o->skip, o->skip_count);
    return with_patterns(model, recipe, "only", o->only, o->only_count);
}

pare_status pare_quant_manifest(pare_model *model, const pare_quant_options *options,
                                const char *ranges_hash)
{
    char *recipe = recipe_of(model, options);
    if (!recipe) return PARE_MEMORY;
    PARE_TRY(pare_onnx_recipe(model, recipe));
    if (options->device) PARE_TRY(pare_model_set_meta(model, "pare.device", options->device));
    return ranges_hash ? pare_model_set_meta(model, "pare.ranges_hash", ranges_hash) : PARE_OK;
}

/* --- INT8, and the entry to every precision --- */

/* Hash of what was taken from the ranges: name, scale and zero point of every point, and the
   corrected biases, order-free. */
static void hash_points(const pare_quant_scheme *s, char text[33])
{
    pare_hash sum = s->shifts;
    for (int i = 0; i < s->point_count; i++) {
        const pare_quant_point *p = &s->point[i];
        pare_hash name = pare_hash_bytes(p->value->name, strlen(p->value->name));
        struct {
            uint64_t low, high;
            float scale;
            int32_t zero;
        } row = {name.low, name.high, p->scale, p->zero};
        sum = pare_hash_sum(sum, pare_hash_bytes(&row, sizeof row));
    }
    pare_hash_text(sum, text);
}

static pare_status to_int8(pare_quant_scheme *s)
{
    char hash[33];
    if (s->options->correct) PARE_TRY(pare_quant_biases_open(s));
    PARE_TRY(pare_quant_place(s));
    if (s->job_count + s->weight_only_count == 0)
        return PARE_FAIL(s->ctx, INPUT,
                         "%s: no node can become int8; expected a float Conv, Gemm or MatMul%s "
                         "that --skip and --only leave to quantize",
                         s->model->path,
                         pare_target_says(s->options->target, PARE_RULE_RECURRENT_WEIGHT) ==
                                 PARE_TAKEN
                             ? ", LSTM, GRU or RNN"
                             : "");
    PARE_TRY(pare_quant_equalize(s));
    PARE_TRY(pare_quant_scales(s));
    PARE_TRY(pare_quant_emit(s));
    PARE_TRY(pare_graph_sweep_all(s->graph));
    if (s->biases) PARE_TRY(pare_quant_correct_biases(s));
    hash_points(s, hash);
    if (s->options->float_fp16) PARE_TRY(pare_quant_rest_to_fp16(s));
    const char *names = s->facts->latency_nodes;
    if (names) PARE_TRY(pare_model_set_meta(s->model, "pare.float_for_latency", names));
    return pare_quant_manifest(s->model, s->options, hash);
}

pare_status pare_quantize(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                          const pare_quant_options *options, pare_quant_facts *facts)
{
    pare_quant_facts none = {0};
    if (!facts) facts = &none;
    if (options->precision != PARE_PRECISION_INT8) {
        PARE_TRY(pare_precision_is_weight_only(options->precision)
                     ? pare_quant_to_weight_only(ctx, model, options, facts)
                     : pare_quant_to_lowp(ctx, model, ranges, options, facts));
        return pare_graph_name_nodes_apart(model->graph);
    }
    PARE_TRY(pare_target_allows(ctx, options));
    pare_arena arena;
    pare_arena_init(&arena, ctx);
    pare_quant_scheme s = {.ctx = ctx,
                           .model = model,
                           .graph = model->graph,
                           .arena = &arena,
                           .ranges = ranges,
                           .options = options,
                           .facts = facts};
    pare_ptr_map_init(&s.point_at, &arena);
    pare_ptr_map_init(&s.rescale_at, &arena);
    pare_status st = options->inputs ? pare_quant_inputs_open(&s) : PARE_OK;
    if (st == PARE_OK) st = to_int8(&s);
    pare_quant_inputs_close(&s);
    pare_quant_biases_close(&s);
    pare_arena_free(&arena);
    return st == PARE_OK ? pare_graph_name_nodes_apart(model->graph) : st;
}

/* --- calibration and quantization in one call --- */

void pare_quant_options_init(pare_quant_options *out)
{
    *out = (pare_quant_options){.rule = {.method = PARE_METHOD_AUTO, .symmetric = true},
                                .bias_correction = true,
                                .equalize = true,
                                .mixed = PARE_QUANT_MIXED};
}

/* Ranges of a prepared model, which of its nodes should stay float, and the samples that say how
   weights are rounded. *index are those chosen here, to be freed. */
static pare_status learn(pare_ctx *ctx, pare_ranges **out, pare_ranges **float_out,
                         pare_model *model, pare_data *data, pare_quant_options *options,
                         const pare_calib_options *given, pare_quant_search *search,
                         int64_t **index)
{
    enum { SAMPLES = 512, BATCH = 64 };
    pare_calib_options own = given ? *given : (pare_calib_options){.batch = BATCH};
    own.minmax_only = options->precision == PARE_PRECISION_FP16;
    if (!own.samples) {
        const int64_t all = pare_data_count(data);
        own.sample_count = all < SAMPLES ? all : SAMPLES;
        *index = pare_alloc(ctx, (size_t)own.sample_count + 1, sizeof **index);
        if (!*index) return PARE_MEMORY;
        pare_data_spread(0, all, own.sample_count, *index);
        own.samples = *index;
    }
    *search = (pare_quant_search){.data = data,
                                  .samples = own.samples,
                                  .sample_count = own.sample_count,
                                  .threads = own.threads,
                                  .device = own.device};
    if (pare_quant_reads_samples(options)) options->inputs = search;
    if (options->bias_correction && !options->fast_correction) options->correct = search;
    if (pare_precision_is_weight_only(options->precision)) return PARE_OK;
    PARE_TRY(pare_calibrate(ctx, out, model, data, &own));
    own.minmax_only = true;
    if (options->precision == PARE_PRECISION_INT8 && options->float_fp16)
        PARE_TRY(pare_calibrate(ctx, float_out, model, data, &own));
    options->float_ranges = *float_out;
    return pare_quant_find_sensitive(ctx, model, *out, options, search, &options->keep);
}

pare_status pare_quantize_on_data(pare_ctx *ctx, pare_model *model, pare_data *data,
                                  const pare_quant_options *options,
                                  const pare_calib_options *calib, pare_quant_facts *facts)
{
    pare_quant_facts own;
    pare_quant_options chosen = *options;
    pare_ranges *ranges = NULL, *float_ranges = NULL;
    pare_quant_search search;
    int64_t *index = NULL;
    if (!facts) facts = &own;
    if (!data && options->precision == PARE_PRECISION_INT8)
        return PARE_FAIL(ctx, USAGE, "%s: int8 needs ranges, expected data to calibrate on",
                         model->path);
    PARE_TRY(pare_quant_prepare(ctx, model, options, facts));
    pare_status st = PARE_OK;
    if (data && options->precision != PARE_PRECISION_BF16)
        st = learn(ctx, &ranges, &float_ranges, model, data, &chosen, calib, &search, &index);
    if (st == PARE_OK) st = pare_quantize(ctx, model, ranges, &chosen, facts);
    if (ranges) pare_ranges_free(ranges);
    if (float_ranges) pare_ranges_free(float_ranges);
    pare_free(index);
    return st;
}
