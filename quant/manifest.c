/* SPDX-License-Identifier: Apache-2.0 */
/* What was done, in the file's metadata_props: enough to make the same file again. No clock. */
#include "formats/onnx.h"
#include "quant/internal.h"

#include <stdio.h>

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

static char *recipe_of(pare_model *model, const pare_quant_options *o)
{
    char method[40];
    char *recipe;
    if (o->precision == PARE_PRECISION_INT8)
        recipe = pare_arena_printf(
            &model->arena, "int8 activations=%s target=%s weights=%s method=%s%s%s",
            o->unsigned_activations ? "u8" : "s8",
            o->target == PARE_TARGET_ONNXRUNTIME ? "onnxruntime" : "tensorrt",
            o->per_tensor_weights ? "tensor" : "channel",
            method_text(&o->rule, method, sizeof method),
            o->bias_correction ? "" : " bias-correction=no", o->equalize ? "" : " equalization=no");
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
