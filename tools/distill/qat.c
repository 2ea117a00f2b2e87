/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/distill/qat.h"

#include "formats/onnx.h"
#include "runtime/ops/ops.h"
#include "tools/calibrate.h"
#include "tools/check_output.h"

#include <string.h>

static const char *const of_calibration[] = {
    "qat-samples",        "method",          "activations", "target", "weights", "skip",
    "no-bias-correction", "no-equalization", "only",        NULL};

pare_status pare_qat_check(pare_tool *tool, const pare_qat_options *o)
{
    static const char *const of_training[] = {"qat-scales", NULL};
    if (o->on >= 0) return PARE_OK;
    PARE_TRY(pare_refuse_options(tool, "without --qat", of_calibration));
    return pare_refuse_options(tool, "without --qat", of_training);
}

/* --- from the student to the graph that is trained --- */

static const pare_node *quantized_node(const pare_model *model)
{
    for (int n = 0; n < model->graph->node_count; n++) {
        const pare_node *node = model->graph->node[n];
        if (pare_node_is_qdq(node)) return node;
    }
    return NULL;
}

pare_status pare_qat_open(pare_tool *tool, pare_qat *out, const pare_model *student,
                          const pare_source_options *source, const pare_qat_options *o)
{
    const pare_node *node = quantized_node(student);
    *out = (pare_qat){.tool = tool, .options = o, .came_quantized = node != NULL, .of = *source};
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
static void take_facts(pare_qat *q)
{
    json_t *facts = q->tool->facts, *device = json_object_get(facts, "device");
    q->calibration = json_incref(json_object_get(facts, "data"));
    if (q->calibration && device) json_object_set(q->calibration, "device", device);
    json_object_del(facts, "data");
    json_object_del(facts, "device");
}

/* A float model becomes the QDQ file; *f32 gets it as it was calibrated. */
static pare_status quantize(pare_qat *q, pare_model *student, pare_model **f32)
{
    pare_quant_options quant = {0};
    pare_quant_facts facts = {0};
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_int8_choose(q->tool, &q->options->int8, &quant));
    PARE_TRY(pare_onnx_hash(q->tool->ctx, student->path, hash, &bytes));
    const pare_quantize_from from = {
        .source = &q->of, .opened = &q->source, .hash = hash, .prepared = f32};
    PARE_TRY(pare_tool_quantize(q->tool, student, &quant, &from, &facts));
    for (int i = 0; i < facts.note_count; i++)
        pare_log(q->tool->ctx, PARE_LOG_INFO, "%s", facts.note[i]);
    take_facts(q);
    return PARE_OK;
}

static pare_status make_graph(pare_qat *q, const pare_model *student, const pare_model *f32)
{
    PARE_TRY(pare_model_clone(q->tool->ctx, &q->graph, student));
    PARE_TRY(pare_pass_fake_quantize(q->graph, &q->fakes, f32));
    if (!f32) PARE_TRY(pare_pass_qat_init(q->graph, &q->fakes, 1));
    for (int i = 0; i < q->fakes.count; i++)
        if (q->fakes.item[i].kind != PARE_FAKE_BIAS) return PARE_OK;
    return PARE_FAIL(q->tool->ctx, INPUT,
                     "%s: the student is quantized, but no pair in it is one that --qat trains: "
                     "QuantizeLinear and DequantizeLinear of f32 and s8 or u8 with constant scales",
                     student->path);
}

pare_status pare_qat_make(pare_qat *q, pare_model *student)
{
    pare_model *f32 = NULL;
    if (q->options->on < 0) return PARE_OK;
    if (!q->came_quantized) PARE_TRY(quantize(q, student, &f32));
    pare_status st = make_graph(q, student, f32);
    pare_model_free(f32);
    pare_source_close(&q->source);
    return st;
}

void pare_qat_close(pare_qat *q)
{
    pare_source_close(&q->source);
    pare_model_free(q->graph);
    json_decref(q->calibration);
    *q = (pare_qat){0};
}

/* --- the training's options --- */

static int64_t count_zeros(const pare_tensor *t)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < t->count; i++) {
        float v; /* a map's addresses are any */
        memcpy(&v, (const char *)t->data + (size_t)i * sizeof v, sizeof v);
        zeros += v == 0;
    }
    return zeros;
}

/* Weights of at least 20 % zeros; *first: one of them. */
static int count_sparse(const pare_qat *q, const char **first)
{
    int count = 0;
    for (int i = 0; i < q->fakes.count; i++) {
        const pare_fake *f = &q->fakes.item[i];
        if (f->kind != PARE_FAKE_WEIGHT) continue;
        const pare_tensor *t = pare_graph_find_own(q->graph->graph, f->tensor)->data;
        const int64_t zeros = count_zeros(t);
        if (!zeros || zeros * 5 < t->count) continue;
        if (!count) *first = f->file_tensor;
        count++;
    }
    return count;
}

/* In a quantized file a 0 may be a weight that was pruned, or one of less than half a step, which
   training must be able to move; the file does not say which. So all of them train, unless asked
   otherwise. Masters of a float student are its own: there a 0 is a 0. */
static void settle_zeros(const pare_qat *q, pare_distill_options *training)
{
    const char *first = NULL;
    if (!q->came_quantized || pare_is_given(q->tool, "zeros")) return;
    training->train_zeros = true;
    const int sparse = count_sparse(q, &first);
    if (sparse)
        pare_log(q->tool->ctx, PARE_LOG_WARNING,
                 "%s: %d weight%s of 20 %% zeros and more (the first is '%s'); small weights are "
                 "rounded to zero, too, so all zeros are trained; --zeros keep keeps them",
                 q->graph->path, sparse, sparse == 1 ? "" : "s", first);
}

static pare_status add_scales(const pare_qat *q, pare_distill_options *training)
{
    pare_distill_scale *list =
        pare_arena_alloc(&q->tool->arena, (size_t)q->fakes.count + 1, sizeof *list);
    int count = 0;
    if (!list) return PARE_MEMORY;
    for (int i = 0; i < q->fakes.count; i++) {
        const pare_fake *f = &q->fakes.item[i];
        if (f->scale) list[count++] = (pare_distill_scale){f->scale, f->gradient_scale};
    }
    training->scale = list;
    training->scale_count = count;
    return PARE_OK;
}

pare_status pare_qat_settle(const pare_qat *q, pare_distill_options *training)
{
    if (!q->graph) return PARE_OK;
    settle_zeros(q, training);
    return q->options->scales == PARE_QAT_LEARNED ? add_scales(q, training) : PARE_OK;
}

/* --- back --- */

pare_status pare_qat_write(pare_qat *q, pare_model *student)
{
    return q->graph ? pare_pass_qat_export(student, q->graph, &q->fakes) : PARE_OK;
}

pare_status pare_qat_recipe(const pare_qat *q, const pare_model *student, const char **recipe)
{
    const pare_pairs *meta = &student->meta;
    for (int i = 0; q->graph && *recipe && i < meta->count; i++) {
        const pare_pair *m = &meta->item[i];
        if (m->key && m->value && !strcmp(m->key, "pare.recipe"))
            *recipe = pare_arena_printf(&q->tool->arena, "%s; %s", m->value, *recipe);
    }
    return *recipe ? PARE_OK : PARE_MEMORY;
}

json_t *pare_qat_json(const pare_qat *q, const pare_distill_options *training)
{
    int weights = 0, activations = 0;
    int64_t elements = 0, from_f32 = 0;
    for (int i = 0; i < q->fakes.count; i++) {
        const pare_fake *f = &q->fakes.item[i];
        activations += f->kind == PARE_FAKE_ACTIVATION;
        if (f->kind != PARE_FAKE_WEIGHT) continue;
        weights++;
        elements += pare_graph_find_own(q->graph->graph, f->tensor)->data->count;
        from_f32 += f->from_f32;
    }
    json_t *facts = json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I}", "precision", "int8", "student",
                              q->came_quantized ? "int8" : "float", "scales",
                              training->scale_count ? "learned" : "fixed", "activations",
                              activations, "weights", weights, "weight_elements",
                              (json_int_t)elements, "float_masters", (json_int_t)from_f32);
    if (facts && q->calibration) json_object_set(facts, "calibration", q->calibration);
    return facts;
}
