/* SPDX-License-Identifier: Apache-2.0 */
/* distill --qat: options, calibration, recipe and facts. */
#include "tools/distill/qat.h"

#include "formats/onnx.h"
#include "tools/calibrate.h"
#include "tools/check_output.h"

#include <string.h>

static const char *const of_calibration[] = {
    "qat-samples",        "method",          "activations", "target", "weights", "skip",
    "bias-correction", "no-equalization", "only",        NULL};

pare_status pare_qat_check(pare_tool *tool, const pare_qat_options *o)
{
    static const char *const of_training[] = {"qat-scales", NULL};
    if (o->on >= 0) return PARE_OK;
    PARE_TRY(pare_refuse_options(tool, "without --qat", of_calibration));
    return pare_refuse_options(tool, "without --qat", of_training);
}

/* --- from the student to the graph that is trained --- */

pare_status pare_qat_open(pare_tool *tool, pare_qat_job *out, const pare_model *student,
                          const pare_source_options *source, const pare_qat_options *o)
{
    const pare_node *node = pare_qat_find_quantized(student);
    *out =
        (pare_qat_job){.tool = tool, .options = o, .came_quantized = node != NULL, .of = *source};
    out->of.samples = o->samples;
    if (o->on < 0 && node)
        return PARE_FAIL_NODE(node, INPUT,
                              "the student is quantized, expected a float model; --qat int8 trains "
                              "it as the INT8 model that it is");
    if (o->on < 0) return PARE_OK;
    if (node) return pare_refuse_options(tool, "with a student that is quantized", of_calibration);
    return pare_source_open_first(tool, &out->source, student, &out->of, PARE_CALIBRATION_SAMPLES);
}

/* What calibration says of itself belongs to the quantization; "data" are the training's. */
static void take_facts(pare_qat_job *q)
{
    json_t *facts = q->tool->facts, *device = json_object_get(facts, "device");
    q->calibration = json_incref(json_object_get(facts, "data"));
    if (q->calibration && device) json_object_set(q->calibration, "device", device);
    json_object_del(facts, "data");
    json_object_del(facts, "device");
}

/* A float model becomes the QDQ file; *f32 gets it as it was calibrated. */
static pare_status quantize(pare_qat_job *q, pare_model *student, pare_model **f32)
{
    pare_quant_options quant = {0};
    pare_quant_facts facts = {0};
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_int8_choose(q->tool, &q->options->int8, 8, &quant));
    PARE_TRY(pare_onnx_hash(q->tool->ctx, student->path, hash, &bytes));
    const pare_quantize_from from = {
        .source = &q->of, .opened = &q->source, .hash = hash, .prepared = f32};
    PARE_TRY(pare_tool_quantize(q->tool, student, &quant, &from, &facts));
    for (int i = 0; i < facts.note_count; i++)
        pare_log(q->tool->ctx, PARE_LOG_INFO, "%s", facts.note[i]);
    take_facts(q);
    return PARE_OK;
}

pare_status pare_qat_make(pare_qat_job *q, pare_model *student)
{
    pare_model *f32 = NULL;
    if (q->options->on < 0) return PARE_OK;
    if (!q->came_quantized) PARE_TRY(quantize(q, student, &f32));
    pare_status st = pare_qat_new(q->tool->ctx, &q->qat, student, f32);
    pare_model_free(f32);
    pare_source_close(&q->source);
    return st;
}

void pare_qat_close(pare_qat_job *q)
{
    pare_source_close(&q->source);
    pare_qat_free(q->qat);
    json_decref(q->calibration);
    *q = (pare_qat_job){0};
}

pare_status pare_qat_settle(const pare_qat_job *q, pare_distill_options *training)
{
    if (!q->qat) return PARE_OK;
    return pare_qat_set_options(q->qat, q->options->scales == PARE_QAT_LEARNED,
                                pare_is_given(q->tool, "zeros"), training);
}

/* --- the result --- */

pare_status pare_qat_recipe(const pare_qat_job *q, const pare_model *student, const char **recipe)
{
    const pare_pairs *meta = &student->meta;
    for (int i = 0; q->qat && *recipe && i < meta->count; i++) {
        const pare_pair *m = &meta->item[i];
        if (m->key && m->value && !strcmp(m->key, "pare.recipe"))
            *recipe = pare_arena_printf(&q->tool->arena, "%s; %s", m->value, *recipe);
    }
    return *recipe ? PARE_OK : PARE_MEMORY;
}

json_t *pare_qat_json(const pare_qat_job *q, const pare_distill_options *training)
{
    pare_qat_facts count;
    pare_qat_count(q->qat, &count);
    json_t *facts = json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:I, s:I}", "precision", "int8", "student",
        q->came_quantized ? "int8" : "float", "scales", training->scale_count ? "learned" : "fixed",
        "activations", count.activations, "weights", count.weights, "weight_elements",
        (json_int_t)count.elements, "float_masters", (json_int_t)count.from_f32);
    if (facts && q->calibration) json_object_set(facts, "calibration", q->calibration);
    return facts;
}
