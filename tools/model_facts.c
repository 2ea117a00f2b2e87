/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/model_facts.h"

#include "formats/json.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

#include <string.h>
#include <sys/stat.h>

/* --- multiply-adds --- */

static pare_status add_macs(pare_graph *graph, void *user)
{
    double *sum = user;
    for (int i = 0; i < graph->node_count; i++) {
        double macs = pare_node_macs(graph->node[i]);
        *sum = macs < 0 || *sum < 0 ? -1 : *sum + macs;
    }
    return PARE_OK;
}

/* Infers shapes of one sample on a copy; a model whose shapes cannot be inferred has none. */
static pare_status count_macs(pare_ctx *ctx, const pare_model *model, double *out)
{
    pare_model *copy;
    PARE_TRY(pare_model_clone(ctx, &copy, model));
    pare_values *in = &copy->graph->in;
    for (int i = 0; i < in->count; i++) {
        pare_shape shape = in->item[i]->shape;
        for (int d = 0; d < shape.rank; d++)
            if (shape.dim[d] < 0) shape.dim[d] = 1;
        if (!in->item[i]->is_init) pare_value_set_type(in->item[i], in->item[i]->dtype, &shape);
    }
    pare_infer_options options = {.fold = true, .lenient = true, .fold_limit = 1 << 16};
    pare_status st = pare_graph_sort(copy->graph);
    if (st == PARE_OK) st = pare_pass_version_convert(copy, 13);
    if (st == PARE_OK) st = pare_pass_infer(copy, &options);
    *out = 0;
    if (st == PARE_OK) st = pare_graph_each(copy->graph, add_macs, out);
    if (st != PARE_OK) {
        *out = -1;
        pare_log(ctx, PARE_LOG_INFO, "no multiply-adds: %s", ctx->message);
        if (st != PARE_MEMORY && st != PARE_INTERRUPTED) st = PARE_OK;
        if (st == PARE_OK) pare_ctx_clear(ctx);
    }
    pare_model_free(copy);
    return st;
}

/* --- counting --- */

static void add_tensor(pare_model_facts *facts, const pare_tensor *tensor)
{
    if (!tensor) return;
    facts->parameters += tensor->count;
    if (tensor->dtype < PARE_DTYPE_COUNT) facts->of_type[tensor->dtype] += tensor->count;
    facts->bytes += (double)tensor->bytes;
}

static pare_status count_graph(pare_graph *graph, void *user)
{
    pare_model_facts *facts = user;
    facts->nodes += graph->node_count;
    for (int i = 0; i < graph->init.count; i++) add_tensor(facts, graph->init.item[i]->data);
    for (int i = 0; i < graph->node_count; i++) {
        const pare_node *node = graph->node[i];
        const pare_attr *value = pare_node_attr(node, "value");
        if (pare_node_is(node, "Constant") && value && value->kind == PARE_ATTR_TENSOR)
            add_tensor(facts, value->tensor);
        facts->quantize += pare_node_is(node, "QuantizeLinear");
        facts->dequantize += pare_node_is(node, "DequantizeLinear");
    }
    return PARE_OK;
}

pare_status pare_model_count(pare_ctx *ctx, const pare_model *model, pare_model_facts *out)
{
    *out = (pare_model_facts){0};
    PARE_TRY(pare_graph_each(model->graph, count_graph, out));
    return count_macs(ctx, model, &out->macs);
}

const char *pare_model_precision(const pare_model_facts *facts)
{
    int64_t f8 = facts->of_type[PARE_f8e4m3] + facts->of_type[PARE_f8e5m2];
    int64_t s8 = facts->of_type[PARE_s8] + facts->of_type[PARE_u8] + f8;
    int64_t s4 = facts->of_type[PARE_s4] + facts->of_type[PARE_u4] + facts->of_type[PARE_f4e2m1];
    int64_t f16 = facts->of_type[PARE_f16], bf16 = facts->of_type[PARE_bf16];
    int64_t f32 = facts->of_type[PARE_f32] + facts->of_type[PARE_f64];
    if (facts->dequantize && s4 > s8) return facts->quantize ? "w4a8" : "w4a16";
    if (facts->dequantize && s8 > 0 && !facts->quantize) return "w8a16";
    if (facts->dequantize && (s8 > 0 || facts->quantize)) return 2 * f8 > s8 ? "fp8" : "int8";
    if (bf16 > f16 && bf16 > f32) return "bf16";
    if (f16 > f32) return "fp16";
    if (s8 > f32) return "int8";
    return "fp32";
}

/* --- sizes, values --- */

typedef struct external_files {
    const char *name[64];
    int count;
} external_files;

static void note_file(external_files *files, const pare_tensor *tensor)
{
    for (int i = 0; tensor && i < tensor->external.count; i++) {
        const pare_pair *pair = &tensor->external.item[i];
        bool known = strcmp(pair->key, "location") != 0;
        for (int k = 0; k < files->count && !known; k++)
            known = !strcmp(files->name[k], pair->value);
        if (!known && files->count < 64) files->name[files->count++] = pair->value;
    }
}

static pare_status note_files(pare_graph *graph, void *user)
{
    for (int i = 0; i < graph->init.count; i++) note_file(user, graph->init.item[i]->data);
    return PARE_OK;
}

int64_t pare_model_bytes(const pare_model *model)
{
    struct stat st;
    external_files files = {0};
    int64_t sum = stat(model->path, &st) ? 0 : (int64_t)st.st_size;
    const char *slash = strrchr(model->path, '/');
    (void)!pare_graph_each(model->graph, note_files, &files); /* note_files cannot fail */
    for (int i = 0; i < files.count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - model->path) + 1 : 0,
                 model->path, files.name[i]);
        if (!stat(path, &st)) sum += st.st_size;
    }
    return sum;
}

json_t *pare_values_json(const pare_values *values, bool without_initializers)
{
    json_t *list = json_array();
    for (int i = 0; i < values->count; i++) {
        const pare_value *v = values->item[i];
        if (without_initializers && v->is_init) continue;
        json_t *shape = v->shape.rank < 0 ? json_null() : json_array();
        for (int d = 0; d < v->shape.rank; d++)
            json_array_append_new(shape,
                                  v->shape.dim[d] >= 0
                                      ? json_integer(v->shape.dim[d])
                                      : pare_json_text(v->shape.name[d] ? v->shape.name[d] : "?"));
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o}", "name", pare_json_text(v->name), "type",
                                        pare_type(v->dtype)->onnx_name, "shape", shape));
    }
    return list;
}
