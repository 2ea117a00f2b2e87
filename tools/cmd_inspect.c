/* SPDX-License-Identifier: Apache-2.0 */
/* pare inspect: what a model holds. */
#include "calib/calib.h"
#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/base/text.h"
#include "tools/commands.h"
#include "tools/group_facts.h"
#include "tools/model_facts.h"
#include "tools/roofline.h"
#include "tools/shapes.h"
#include "tools/table.h"
#include "tools/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct inspect_options {
    pare_common common;
    bool nodes, ranges, groups, outputs, tf32;
    pare_list shapes;
    const char *gpu, *measured;
    int64_t batch;
} inspect_options;

#define OPTIONS inspect_options
static const pare_option table[] = {
    PARE_OPT_FLAG("nodes", nodes, "list every node with its inputs and outputs, too"),
    PARE_OPT_FLAG(
        "ranges", ranges,
        "list the tensors that the model quantizes with their ranges, whatever tool wrote "
        "it"),
    PARE_OPT_FLAG(
        "groups", groups,
        "list which channels can be pruned and what falls together with them, and why others stay"),
    PARE_OPT_FLAG("outputs", outputs, "with --groups: the model's outputs may lose channels, too"),
    PARE_OPT_LIST("shapes", "in:1x3x224x224", shapes,
                  "with --groups: sizes of inputs that the model leaves open (batch 1, else 128 "
                  "where it fits); with --device: shapes of inputs (open axes 1)"),
    PARE_OPT_TEXT(
        "device", "h200|h100", gpu,
        "predict, without a GPU, what each fused step takes on this one and what bounds it "
        "(nothing is predicted)"),
    PARE_OPT_INT("batch", "N", batch, 1, 1e6,
                 "with --device: first axis of the inputs that leave it open (1)"),
    PARE_OPT_FLAG("tf32", tf32,
                  "with --device: as it is where f32 products may be rounded to TF32"),
    PARE_OPT_FILE("measured", "p.json", measured,
                  "with --device: what 'bench --profile' measured of this model; its times stand "
                  "beside the predicted ones"),
    {0},
};

static pare_status count_operators(pare_graph *graph, void *user)
{
    for (int i = 0; i < graph->node_count; i++) {
        char name[1024];
        const pare_node *node = graph->node[i];
        char plain[256];
        snprintf(plain, sizeof plain, "%s%s%s", node->domain, *node->domain ? "." : "",
                 node->op_type);
        pare_text_escape(name, sizeof name, plain, strlen(plain));
        json_t *old = json_object_get(user, name);
        json_object_set_new(user, name, json_integer(json_integer_value(old) + 1));
    }
    return PARE_OK;
}

static json_t *facts_of(const pare_model *model, const pare_model_facts *facts)
{
    json_t *opsets = json_object(), *types = json_object(), *operators = json_object();
    for (int i = 0; i < model->opset_count; i++) {
        char domain[1024];
        const char *plain = *model->opset[i].domain ? model->opset[i].domain : "ai.onnx";
        pare_text_escape(domain, sizeof domain, plain, strlen(plain));
        json_object_set_new(opsets, domain, json_integer(model->opset[i].version));
    }
    for (int t = 1; t < PARE_DTYPE_COUNT; t++)
        if (facts->of_type[t])
            json_object_set_new(types, pare_type((pare_dtype)t)->onnx_name,
                                json_integer(facts->of_type[t]));
    (void)!pare_graph_each(model->graph, count_operators, operators); /* cannot fail */
    return json_pack(
        "{s:o, s:I, s:I, s:o, s:o, s:o, s:s, s:o, s:o, s:I, s:o, s:o, s:I, s:o, s:I, s:I}", "file",
        pare_json_text(model->path), "bytes", (json_int_t)pare_model_bytes(model), "ir_version",
        (json_int_t)model->ir_version, "producer", pare_json_text(model->producer_name),
        "producer_version", pare_json_text(model->producer_version), "opset", opsets, "precision",
        pare_model_precision(facts), "inputs", pare_values_json(&model->graph->in, true), "outputs",
        pare_values_json(&model->graph->out, false), "parameters", (json_int_t)facts->parameters,
        "parameters_by_type", types, "macs_per_sample",
        facts->macs < 0 ? json_null() : json_real(facts->macs), "nodes", (json_int_t)facts->nodes,
        "operators", operators, "quantize_nodes", (json_int_t)facts->quantize, "dequantize_nodes",
        (json_int_t)facts->dequantize);
}

static void print_values(const char *title, const pare_values *values, bool inputs)
{
    char text[256];
    for (int i = 0; i < values->count; i++) {
        const pare_value *v = values->item[i];
        if (inputs && v->is_init) continue;
        pare_print(stdout, "%-14s%s %s %s\n", title, v->name, pare_type(v->dtype)->onnx_name,
                   pare_shape_text(&v->shape, text, sizeof text));
        title = "";
    }
}

typedef struct named_count {
    const char *name;
    int64_t n;
} named_count;

static int by_count(const void *a, const void *b)
{
    const named_count *x = a, *y = b;
    return (x->n < y->n) - (x->n > y->n);
}

/* Names and numbers of an object, greatest first: "Conv 53, Relu 49". */
static void print_counts(const char *title, json_t *object)
{
    named_count item[256];
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (count == 256) break;
        item[count].name = key;
        item[count++].n = json_integer_value(value);
    }
    qsort(item, count, sizeof *item, by_count);
    pare_print(stdout, "%-14s", title);
    int at = 14;
    for (size_t i = 0; i < count; i++) {
        char text[1100];
        int n = snprintf(text, sizeof text, "%s %lld%s", item[i].name, (long long)item[i].n,
                         i + 1 < count ? ", " : "");
        if (at + n > 100) at = pare_print(stdout, "\n%14s", "") - 1;
        at += pare_print(stdout, "%s", text);
    }
    pare_print(stdout, "\n");
}

static void print_names(pare_value *const *values, int count)
{
    for (int i = 0; i < count; i++) pare_print(stdout, " %s", values[i] ? values[i]->name : "-");
}

static void print_nodes(const pare_graph *graph)
{
    for (int i = 0; i < graph->node_count; i++) {
        const pare_node *node = graph->node[i];
        pare_print(stdout, "%4d %-20s %s:", i, node->op_type,
                   *node->name ? node->name : "(unnamed)");
        print_names(node->in, node->in_count);
        pare_print(stdout, " ->");
        print_names(node->out, node->out_count);
        pare_print(stdout, "\n");
    }
}

static void print_facts(json_t *json, const pare_model *model, const pare_model_facts *facts)
{
    char a[32], b[32];
    pare_print(stdout, "%-14s%s\n%-14s%s\n", "file", model->path, "size",
               pare_bytes_text((double)pare_model_bytes(model), a, sizeof a));
    pare_print(stdout, "%-14sIR %lld", "format", (long long)model->ir_version);
    for (int i = 0; i < model->opset_count; i++)
        pare_print(stdout, ", %s opset %lld",
                   *model->opset[i].domain ? model->opset[i].domain : "ai.onnx",
                   (long long)model->opset[i].version);
    if (model->producer_name) pare_print(stdout, ", by %s", model->producer_name);
    if (model->producer_version) pare_print(stdout, " %s", model->producer_version);
    pare_print(stdout, "\n");
    print_values("inputs", &model->graph->in, true);
    print_values("outputs", &model->graph->out, false);
    pare_print(stdout, "%-14s%s (%s)\n", "parameters",
               pare_count_text((double)facts->parameters, a, sizeof a),
               pare_bytes_text(facts->bytes, b, sizeof b));
    print_counts("by type", json_object_get(json, "parameters_by_type"));
    pare_print(stdout, "%-14s%s\n", "precision", pare_model_precision(facts));
    if (facts->quantize || facts->dequantize)
        pare_print(stdout, "%-14s%lld QuantizeLinear, %lld DequantizeLinear\n", "quantized",
                   (long long)facts->quantize, (long long)facts->dequantize);
    pare_print(stdout, "%-14s%s\n", "MACs",
               facts->macs < 0 ? "unknown" : pare_count_text(facts->macs, a, sizeof a));
    pare_print(stdout, "%-14s%lld\n", "nodes", (long long)facts->nodes);
    print_counts("operators", json_object_get(json, "operators"));
}

/* The groups of a copy that is prepared for pruning. */
static pare_status show_groups(pare_tool *tool, const pare_model *model, const inspect_options *o)
{
    pare_groups_options options = {.outputs = o->outputs};
    pare_model *copy;
    pare_groups *groups = NULL;
    PARE_TRY(pare_shapes_parse(tool, model, "--shapes", &o->shapes,
                               (pare_input_shape **)&options.shape, &options.shape_count));
    PARE_TRY(pare_model_clone(tool->ctx, &copy, model));
    pare_status st = pare_prune_prepare(tool->ctx, copy);
    if (st == PARE_OK) st = pare_groups_new(tool->ctx, &groups, copy, &options);
    if (st == PARE_OK) {
        json_t *json = pare_groups_json(groups);
        pare_groups_print(json, o->common.verbose);
        json_object_set_new(tool->facts, "groups", json);
    }
    pare_groups_free(groups);
    pare_model_free(copy);
    return st;
}

/* Of a copy, for looking rewrites it. */
static pare_status show_ranges(pare_tool *tool, const pare_model *model)
{
    pare_model *copy;
    pare_quantized_tensor *list;
    pare_table rows;
    int count = 0;
    json_t *json = json_array();
    PARE_TRY(pare_model_clone(tool->ctx, &copy, model));
    pare_status st = pare_quantized_tensors(copy, &tool->arena, &list, &count);
    pare_table_init(&rows, &tool->arena, "llrrrr");
    pare_table_add(&rows, "tensor|type|low|high|scale|zero point");
    for (int i = 0; st == PARE_OK && i < count; i++) {
        const pare_quantized_tensor *t = &list[i];
        pare_table_add(&rows, "%s|%s|%.6g|%.6g|%.6g|%d", t->name, pare_type(t->type)->onnx_name,
                       (double)t->low, (double)t->high, (double)t->scale, t->zero);
        json_array_append_new(
            json, json_pack("{s:o, s:s, s:f, s:f, s:f, s:i}", "name", pare_json_text(t->name),
                            "type", pare_type(t->type)->onnx_name, "low", (double)t->low, "high",
                            (double)t->high, "scale", (double)t->scale, "zero_point", t->zero));
    }
    if (st == PARE_OK && count)
        pare_table_print(&rows, stdout);
    else if (st == PARE_OK)
        pare_print(stdout, "ranges        none: no tensor is quantized with one scale\n");
    json_object_set_new(tool->facts, "quantized_tensors", json);
    pare_model_free(copy);
    return st;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const inspect_options *o = options;
    pare_model *model;
    pare_model_facts facts;
    const pare_gpu_spec *known = NULL;
    pare_gpu_spec spec = {0};
    if (o->outputs && !o->groups)
        return PARE_FAIL(tool->ctx, USAGE, "--outputs only says something with --groups");
    if (o->shapes.count && !o->groups && !o->gpu)
        return PARE_FAIL(tool->ctx, USAGE,
                         "--shapes only says something with --groups or --device");
    if (o->batch && !o->gpu)
        return PARE_FAIL(tool->ctx, USAGE, "--batch only says something with --device");
    if (o->measured && !o->gpu)
        return PARE_FAIL(tool->ctx, USAGE, "--measured only says something with --device");
    if (o->tf32 && !o->gpu)
        return PARE_FAIL(tool->ctx, USAGE, "--tf32 only says something with --device");
    if (o->gpu) PARE_TRY(pare_gpu_spec_find(tool->ctx, &known, o->gpu));
    if (known) spec = *known;
    spec.tf32 = o->tf32;
    PARE_TRY(pare_onnx_read(tool->ctx, &model, tool->arg[0]));
    pare_status st = pare_model_count(tool->ctx, model, &facts);
    if (st == PARE_OK) {
        json_t *json = facts_of(model, &facts);
        print_facts(json, model, &facts);
        if (o->nodes) print_nodes(model->graph);
        json_object_set_new(tool->facts, "model", json);
        if (o->ranges) st = show_ranges(tool, model);
        if (st == PARE_OK && o->groups) st = show_groups(tool, model, o);
        if (st == PARE_OK && known)
            st = pare_roofline_show(tool, model, &spec, o->batch, &o->shapes, o->measured);
    }
    pare_model_free(model);
    return st;
}

const pare_command pare_command_inspect = {
    .name = "inspect",
    .arguments = "MODEL",
    .min = 1,
    .max = 1,
    .summary = "show inputs, outputs, size, operators and multiply-adds of a model",
    .example = "pare inspect resnet.onnx",
    .options = table,
    .size = sizeof(inspect_options),
    .run = run,
};
