/* SPDX-License-Identifier: Apache-2.0 */
/* pare check: all problems of a model at once. */
#include "formats/onnx.h"
#include "runtime/ops/ops.h"
#include "tools/commands.h"

#include <string.h>

typedef struct check_options {
    pare_common common;
} check_options;

typedef struct findings {
    pare_tool *tool;
    json_t *list;
    const pare_node **bad; /* nodes with a problem: their shapes are not asked for */
    size_t bad_count, bad_capacity;
} findings;

/* Takes the context's message as one more problem. */
static void found(findings *f)
{
    printf("%s\n", f->tool->ctx->message);
    json_array_append_new(f->list, json_string(f->tool->ctx->message));
    pare_ctx_clear(f->tool->ctx);
}

/* Can the runtime run this operator of this opset on the CPU? */
static pare_status check_row(const pare_node *node)
{
    const pare_op *row = pare_op_of(node);
    int64_t version = pare_model_opset(node->graph->model, node->domain);
    if (!row)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "operator '%s%s%s' is not supported; 'pare ops' lists "
                                                 "what is", node->domain, *node->domain ? "." : "",
                              node->op_type);
    if (!version)
        return PARE_FAIL_NODE(node, INPUT, "the model imports no opset of domain '%s'",
                              *node->domain ? node->domain : "ai.onnx");
    if (version < row->first || version > row->last)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "opset %lld, supported are %d to %d",
                              (long long)version, row->first, row->last);
    return PARE_OK;
}

/* Lifts and infers node by node, so that one bad node does not hide the next. The list of nodes is
   taken first: an upgrade may insert some. */
static pare_status check_graph(pare_graph *graph, void *user)
{
    findings *f = user;
    int count = graph->node_count;
    pare_node **node = pare_arena_alloc(&f->tool->arena, (size_t)count, sizeof *node);
    if (!node) return PARE_MEMORY;
    if (count) memcpy(node, graph->node, (size_t)count * sizeof *node);
    for (int i = 0; i < count; i++) {
        if (check_row(node[i]) == PARE_OK &&
            pare_op_of(node[i])->up(node[i], pare_model_opset(graph->model, node[i]->domain)) == PARE_OK)
            continue;
        found(f);
        if (!pare_arena_grow(&f->tool->arena, &f->bad, &f->bad_capacity, f->bad_count, sizeof *f->bad))
            return PARE_MEMORY;
        f->bad[f->bad_count++] = node[i];
    }
    return PARE_OK;
}

static bool can_infer(const findings *f, const pare_node *node)
{
    for (size_t i = 0; i < f->bad_count; i++)
        if (f->bad[i] == node) return false;
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && node->in[i]->dtype == PARE_NOTYPE) return false;
    return true;
}

static pare_status infer_graph(pare_graph *graph, void *user)
{
    for (int i = 0; i < graph->node_count; i++) {
        pare_node *node = graph->node[i];
        const pare_op *row = pare_op_of(node);
        if (row && can_infer(user, node) && row->infer(node) != PARE_OK) found(user);
    }
    return PARE_OK;
}

static pare_status check_types(pare_graph *graph, findings *f)
{
    for (int i = 0; i < graph->in.count; i++) {
        const pare_value *value = graph->in.item[i];
        if (value->dtype != PARE_NOTYPE || value->is_init) continue;
        (void)PARE_FAIL(f->tool->ctx, UNSUPPORTED, "%s: input '%s' is no tensor of a known type",
                        graph->model->path, value->name);
        found(f);
    }
    return PARE_OK;
}

/* A model that cannot be read has one problem; it hides the others. */
static pare_status check_all(findings *f, const char *path)
{
    pare_model *model;
    pare_status st = pare_onnx_read(f->tool->ctx, &model, path);
    if (st != PARE_OK) {
        found(f);
        return st == PARE_MEMORY || st == PARE_INTERRUPTED ? st : PARE_OK;
    }
    st = check_types(model->graph, f);
    if (pare_graph_sort(model->graph) != PARE_OK) {
        found(f);
    } else {
        if (st == PARE_OK) st = pare_graph_each(model->graph, check_graph, f);
        if (st == PARE_OK) st = pare_graph_each(model->graph, infer_graph, f);
    }
    pare_model_free(model);
    return st;
}

static pare_status run(pare_tool *tool, const void *options)
{
    (void)options;
    findings f = {.tool = tool, .list = json_array()};
    json_object_set_new(tool->facts, "model", json_pack("{s:s}", "file", tool->arg[0]));
    json_object_set_new(tool->facts, "problems", f.list);
    PARE_TRY(check_all(&f, tool->arg[0]));
    size_t n = json_array_size(f.list);
    if (!n) {
        printf("%s: no problems\n", tool->arg[0]);
        return PARE_OK;
    }
    return PARE_FAIL(tool->ctx, INPUT, "%s: %zu problem%s", tool->arg[0], n, n == 1 ? "" : "s");
}

const pare_command pare_command_check = {
    .name = "check",
    .arguments = "MODEL",
    .min = 1,
    .max = 1,
    .summary = "list all problems of a model at once",
    .detail = "Reads the file, then asks for every node whether its operator, opset and types can be run\n"
              "and whether shapes agree. Problems go to standard output; exit status 1 where there is one.",
    .example = "pare check model.onnx",
    .size = sizeof(check_options),
    .run = run,
};
