/* SPDX-License-Identifier: Apache-2.0 */
/* Quantization-aware training: from a QDQ model to the graph that is trained, and back. */
#include "distill/qat.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/train/fake_quantize.h"

#include <string.h>

struct pare_qat {
    pare_model *graph;
    pare_fakes fakes;
    bool from_f32; /* masters of weights are a float model's */
};

const pare_node *pare_qat_find_quantized(const pare_model *model)
{
    for (int n = 0; n < model->graph->node_count; n++)
        if (pare_node_is_qdq(model->graph->node[n])) return model->graph->node[n];
    return NULL;
}

static pare_status make(pare_ctx *ctx, pare_qat *q, const pare_model *quantized,
                        const pare_model *f32)
{
    PARE_TRY(pare_model_clone(ctx, &q->graph, quantized));
    PARE_TRY(pare_pass_fake_quantize(q->graph, &q->fakes, f32));
    if (!f32) PARE_TRY(pare_pass_qat_init(q->graph, &q->fakes, 1));
    for (int i = 0; i < q->fakes.count; i++)
        if (q->fakes.item[i].kind != PARE_FAKE_BIAS) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "%s: the student is quantized, but no pair in it is one that --qat trains: "
                     "QuantizeLinear and DequantizeLinear of f32 and s8 or u8 with constant scales",
                     quantized->path);
}

pare_status pare_qat_new(pare_ctx *ctx, pare_qat **out, const pare_model *quantized,
                         const pare_model *f32)
{
    pare_qat *q = pare_alloc(ctx, 1, sizeof *q);
    if (!q) return PARE_MEMORY;
    *q = (pare_qat){.from_f32 = f32 != NULL};
    const pare_status st = make(ctx, q, quantized, f32);
    if (st == PARE_OK)
        *out = q;
    else
        pare_qat_free(q);
    return st;
}

void pare_qat_free(pare_qat *q)
{
    if (q) pare_model_free(q->graph);
    pare_free(q);
}

pare_model *pare_qat_graph(const pare_qat *q) { return q->graph; }

/* --- the training's options --- */

static const pare_tensor *master(const pare_qat *q, const pare_fake *f)
{
    return pare_graph_find_own(q->graph->graph, f->tensor)->data;
}

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
        const pare_tensor *t = master(q, f);
        const int64_t zeros = count_zeros(t);
        if (!zeros || zeros * 5 < t->count) continue;
        if (!count) *first = f->file_tensor;
        count++;
    }
    return count;
}

static void set_zeros(const pare_qat *q, pare_distill_options *training)
{
    const char *first = NULL;
    training->train_zeros = true;
    const int sparse = count_sparse(q, &first);
    if (sparse)
        pare_log(q->graph->ctx, PARE_LOG_WARNING,
                 "%s: %d weight%s of 20 %% zeros and more (the first is '%s'); small weights are "
                 "rounded to zero, too, so all zeros are trained; --zeros keep keeps them",
                 q->graph->path, sparse, sparse == 1 ? "" : "s", first);
}

pare_status pare_qat_set_options(const pare_qat *q, bool learn_scales, bool keep_zeros,
                                 pare_distill_options *training)
{
    if (!q->from_f32 && !keep_zeros) set_zeros(q, training);
    if (!learn_scales) return PARE_OK;
    pare_distill_scale *list =
        pare_arena_alloc(&q->graph->arena, (size_t)q->fakes.count + 1, sizeof *list);
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

/* --- back --- */

pare_status pare_qat_export(const pare_qat *q, pare_model *quantized)
{
    return pare_pass_qat_export(quantized, q->graph, &q->fakes);
}

void pare_qat_count(const pare_qat *q, pare_qat_facts *out)
{
    *out = (pare_qat_facts){0};
    for (int i = 0; i < q->fakes.count; i++) {
        const pare_fake *f = &q->fakes.item[i];
        out->activations += f->kind == PARE_FAKE_ACTIVATION;
        if (f->kind != PARE_FAKE_WEIGHT) continue;
        out->weights++;
        out->elements += master(q, f)->count;
        out->from_f32 += f->from_f32;
    }
}
