/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/prefer.h"

#include "tools/progress.h"
#include "tools/check_output.h"
#include "tools/shapes.h"
#include "tools/text.h"

static bool is_met(const pare_prefer *p) { return p->found.chosen.ratio <= PARE_QUANT_NOT_SLOWER; }

/* Of inputs that --shapes does not name: what a run of the data has. */
static pare_status add_data_shapes(pare_tool *tool, const pare_model *model,
                                   const pare_source *source, pare_input_shape **shape, int *count)
{
    int64_t unit;
    int all, given = *count;
    pare_value **in = pare_model_inputs(&tool->arena, model, &all);
    pare_input_shape *both =
        pare_arena_alloc(&tool->arena, (size_t)given + (size_t)all + 1, sizeof *both);
    if (!in || !both) return PARE_MEMORY;
    PARE_TRY(pare_data_run_samples(tool->ctx, source->data, model, &unit));
    if (given) memcpy(both, *shape, (size_t)given * sizeof *both);
    for (int i = 0; i < all && i < source->input_count; i++)
        if (!pare_input_shape_find(both, given, in[i]->name))
            both[(*count)++] = (pare_input_shape){
                in[i]->name, pare_data_run_shape(source->data, i, unit > 0 ? unit : 1)};
    *shape = both;
    return PARE_OK;
}

pare_status pare_prefer_latency(pare_tool *tool, pare_model *prepared, const pare_ranges *ranges,
                                pare_quant_options *options, const pare_source *source,
                                pare_prefer *asked)
{
    pare_progress bar;
    pare_input_shape *shapes;
    int count;
    const pare_gpu_spec *gpu = NULL;
    pare_quant_latency_options how = {.threads = (int)tool->common->threads,
                                      .device = tool->device,
                                      .cache_dir = asked->cache,
                                      .progress = pare_progress_step,
                                      .progress_user = &bar};
    if (asked->gpu) PARE_TRY(pare_gpu_spec_find(tool->ctx, &gpu, asked->gpu));
    how.gpu = gpu;
    PARE_TRY(pare_shapes_parse(tool, prepared, "--shapes", asked->shapes, &shapes, &count));
    if (source) PARE_TRY(add_data_shapes(tool, prepared, source, &shapes, &count));
    PARE_TRY(pare_shapes_choose(tool, prepared, shapes, count, &shapes, &count));
    how.shapes = shapes;
    how.shape_count = count;
    if (asked->cache) pare_make_cache(tool->ctx, asked->cache);
    pare_progress_begin(&bar, stderr, tool->common->quiet, "time", "models");
    const pare_status st =
        pare_quant_find_fastest(tool->ctx, prepared, ranges, options, &how, &asked->found);
    pare_progress_end(&bar);
    return st == PARE_INPUT
               ? pare_fail_prefix(
                     tool->ctx, st,
                     "--prefer latency runs the model with the shapes of --shapes, else "
                     "of the data")
               : st;
}

pare_status pare_prefer_check(pare_tool *tool, const pare_model *prepared, const pare_prefer *asked)
{
    pare_input_shape *shapes;
    pare_plan_options options;
    pare_plan *plan = NULL;
    const pare_gpu_spec *gpu;
    int count, inputs;
    if (asked->gpu) PARE_TRY(pare_gpu_spec_find(tool->ctx, &gpu, asked->gpu));
    PARE_TRY(pare_shapes_parse(tool, prepared, "--shapes", asked->shapes, &shapes, &count));
    if (!pare_model_inputs(&tool->arena, prepared, &inputs)) return PARE_MEMORY;
    if (count < inputs) return PARE_OK; /* others are the data's, which calibration runs */
    PARE_TRY(pare_shapes_choose(tool, prepared, shapes, count, &shapes, &count));
    pare_plan_options_init(&options);
    const pare_status st = pare_plan_new(tool->ctx, &plan, prepared, shapes, count, &options);
    pare_plan_free(plan);
    return st == PARE_OK ? st : pare_fail_prefix(tool->ctx, st, "--shapes");
}

/* --- what was found --- */

json_t *pare_prefer_json(const pare_prefer *p)
{
    const pare_side_by_side *all = &p->found.int8, *now = &p->found.chosen;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:s?}", "float_ms", now->a_ms, "int8_ms",
                     all->b_ms, "ms", now->b_ms, "int8_ratio", all->ratio, "ratio", now->ratio,
                     "stable", (int)!now->disturbed, "met", (int)is_met(p), "predicted_for",
                     p->gpu);
}

static const char *rival(const pare_tool *tool, const pare_prefer *p)
{
    return tool->device || p->gpu ? "FP16" : "float";
}

void pare_prefer_print(pare_tool *tool, const pare_prefer *p)
{
    const pare_side_by_side *all = &p->found.int8, *now = &p->found.chosen;
    if (p->gpu) pare_print(stderr, "predicted for %s: ", p->gpu);
    pare_print(stderr, "%.3g ms a run, %.2f of the %s model's time", now->b_ms, now->ratio,
               rival(tool, p));
    if (all->ratio != now->ratio)
        pare_print(stderr, "; %.2f where no node stays float for it", all->ratio);
    pare_print(stderr, "\n");
    if (now->disturbed)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "times were unstable: other work shares the cores, or the clock changes; quantize "
                 "again when it is quiet");
    if (p->gave_up)
        pare_log(tool->ctx, PARE_LOG_WARNING,
                 "a faster placement was found, but it loses more than --max-drop allows; it is "
                 "not used");
}

pare_status pare_prefer_verdict(pare_tool *tool, const pare_prefer *p, const char *output)
{
    const pare_side_by_side *now = &p->found.chosen;
    if (is_met(p)) return PARE_OK;
    return PARE_FAIL(
        tool->ctx, MISSED,
        "%s: is slower than the %s model %s%s: %.3g ms a run, %.3g ms in %s; it is the "
        "fastest that was found",
        output, rival(tool, p), p->gpu ? "as predicted for " : "here", p->gpu ? p->gpu : "",
        now->b_ms, now->a_ms, rival(tool, p));
}
