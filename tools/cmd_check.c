/* SPDX-License-Identifier: Apache-2.0 */
/* pare check: all problems of a model at once, and what a runtime would not take of it. */
#include "formats/json.h"
#include "formats/onnx.h"
#include "quant/target.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"
#include "tools/commands.h"
#include "tools/text.h"

#include <math.h>
#include <string.h>

typedef struct check_options {
    pare_common common;
    int target; /* -1: none */
    const char *fix;
} check_options;

#define OPTIONS check_options
static const pare_option table[] = {
    PARE_OPT_CHOICE("target", PARE_TARGET_WORDS, target,
                    "list what this runtime would not take of a quantized model, too"),
    PARE_OPT_OUTPUT("fix", "OUT", fix,
                    "write the model with what can be changed without changing what it computes"),
    {0},
};

static const check_options defaults = {.target = -1};

typedef struct findings {
    pare_tool *tool;
    const char *path;
    json_t *list, *warnings;
} findings;

/* One problem; the rules of shapes are asked twice, and say the same. */
static void add(findings *f, const char *text)
{
    json_t *line = pare_json_text(text), *other;
    size_t i;
    bool known = false;
    json_array_foreach(f->list, i, other) known |= json_equal(line, other) != 0;
    if (!known) {
        pare_print(stdout, "%s\n", text);
        json_array_append(f->list, line);
    }
    json_decref(line);
}

static void found(void *user, const char *problem)
{
    findings *f = user;
    const char *text = pare_arena_printf(&f->tool->arena, "%s: %s", f->path, problem);
    if (text) add(f, text);
}

/* The context's message as one more problem; it begins with the file already. */
static void found_message(findings *f)
{
    add(f, f->tool->ctx->message);
    pare_ctx_clear(f->tool->ctx);
}

/* A lack of memory is no problem of the model. */
static pare_status found_status(findings *f, pare_status st)
{
    if (st == PARE_MEMORY || st == PARE_INTERRUPTED) return st;
    if (st != PARE_OK) found_message(f);
    return PARE_OK;
}

static bool can_infer(const pare_node *node)
{
    const pare_op *row = pare_op_of(node);
    int64_t version = pare_model_opset(node->graph->model, node->domain);
    if (!row || !pare_op_covers(row, version)) return false;
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && node->in[i]->dtype == PARE_NOTYPE) return false;
    return true;
}

/* Shapes node by node, so that a node no one knows does not hide what is wrong with others. The
   list of nodes is taken first: an upgrade may put some before a node, which are inferred with it.
 */
static pare_status check_shapes(pare_graph *graph, void *user)
{
    findings *f = user;
    int count = graph->node_count;
    pare_node **node = pare_arena_alloc(&f->tool->arena, (size_t)count, sizeof *node);
    if (!node) return PARE_MEMORY;
    if (count) memcpy(node, graph->node, (size_t)count * sizeof *node);
    for (int i = 0, at = 0; i < count; i++) {
        if (can_infer(node[i]))
            PARE_TRY(found_status(
                f, pare_op_of(node[i])->up(node[i], pare_model_opset(graph->model, ""))));
        for (int end = pare_node_index(node[i]); at <= end; at++)
            if (can_infer(graph->node[at]))
                PARE_TRY(found_status(f, pare_op_infer(graph->node[at])));
    }
    return PARE_OK;
}

/* --- values that spread --- */

typedef struct strange {
    int64_t nans, infinities, first;
} strange;

static strange count_strange(const pare_tensor *t)
{
    strange s = {.first = -1};
    const pare_type_info *type = pare_type(t->dtype);
    size_t step = (size_t)type->bits / 8;
    for (int64_t i = 0; pare_type_is_float(t->dtype) && i < t->count; i++) {
        const char *at = (const char *)t->data + (size_t)i * step;
        double value;
        if (t->dtype == PARE_f64)
            memcpy(&value, at, sizeof value);
        else
            value = (double)type->to_f32(at);
        if (isfinite(value)) continue;
        if (s.first < 0) s.first = i;
        s.nans += isnan(value) != 0;
        s.infinities += isinf(value) != 0;
    }
    return s;
}

static void warn_strange(findings *f, const char *name, const pare_tensor *t)
{
    strange s = count_strange(t);
    if (s.first < 0) return;
    const char *text = pare_arena_printf(
        &f->tool->arena,
        "%s: tensor '%s' holds %lld NaN and %lld infinite values, the first at element %lld",
        f->path, name, (long long)s.nans, (long long)s.infinities, (long long)s.first);
    if (!text) return;
    pare_print(stdout, "warning: %s\n", text);
    json_array_append_new(f->warnings, pare_json_text(text));
}

/* Weights and constants. No problem by themselves (a mask may hold -Inf), but what training that
   failed leaves behind. */
static pare_status check_values(pare_graph *graph, void *user)
{
    findings *f = user;
    for (int i = 0; i < graph->init.count; i++)
        if (graph->init.item[i]->data)
            warn_strange(f, graph->init.item[i]->name, graph->init.item[i]->data);
    for (int i = 0; i < graph->node_count; i++) {
        const pare_node *node = graph->node[i];
        for (int a = 0; a < node->attr_count; a++)
            if (node->attr[a].kind == PARE_ATTR_TENSOR && node->out_count && node->out[0])
                warn_strange(f, node->out[0]->name, node->attr[a].tensor);
    }
    return pare_ctx_poll(f->tool->ctx);
}

/* The pass stops before shapes where operators are unknown; the shapes of the others are asked for
   here. A model that cannot be read has one problem, which hides the others. */
static pare_status check_all(findings *f)
{
    pare_ctx *ctx = f->tool->ctx;
    pare_model *model;
    int count = 0;
    pare_status st = pare_onnx_read(ctx, &model, f->path);
    if (st == PARE_MEMORY || st == PARE_INTERRUPTED) return st;
    if (st != PARE_OK) {
        found_message(f);
        return PARE_OK;
    }
    if (!model->graph->out.count)
        found(f, "the graph has no outputs, so there is nothing to compute");
    st = pare_pass_check(model, found, f, &count);
    if (st == PARE_OK && count) {
        if (pare_graph_sort(model->graph) == PARE_OK)
            st = pare_graph_each(model->graph, check_shapes, f);
        else
            pare_ctx_clear(ctx); /* names or a cycle, said before */
    }
    if (st == PARE_OK) st = pare_graph_each(model->graph, check_values, f);
    pare_model_free(model);
    return st;
}

/* --- what a target would not take --- */

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

/* Lines on standard output and facts; of a repaired model, which has no facts, what remains. */
static pare_status tell(pare_tool *tool, const char *path, const pare_target_report *report,
                        json_t *facts)
{
    static const char *const verdicts[] = {"taken", "note", "refused"};
    for (int i = 0; i < report->count; i++) {
        const pare_target_finding *t = &report->finding[i];
        if (!facts && t->verdict == PARE_NOTED) continue;
        const char *rule = pare_target_rule_name(t->rule);
        pare_print(stdout, "%s%s: %s: ", t->verdict == PARE_NOTED ? "note: " : "", path, rule);
        if (*t->node) pare_print(stdout, "node '%s' (%s), ", t->node, t->op);
        if (*t->tensor) pare_print(stdout, "tensor '%s': ", t->tensor);
        pare_print(stdout, "%s\n", t->text);
        if (!facts) continue;
        json_array_append_new(
            facts, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "rule", rule, "verdict",
                             verdicts[t->verdict], "node", pare_json_text(t->node), "op_type",
                             pare_json_text(t->op), "tensor", pare_json_text(t->tensor), "text",
                             pare_json_text(t->text)));
    }
    return pare_ctx_poll(tool->ctx);
}

/* The repaired model is checked again: what remains is told, and how much that is. */
static pare_status repair(pare_tool *tool, const check_options *o, pare_model *model, int *remain)
{
    pare_target_report *report;
    int changed;
    PARE_TRY(pare_target_repair(model, (pare_quant_target)o->target, &changed));
    PARE_TRY(pare_target_check(tool->ctx, model, (pare_quant_target)o->target, &report));
    *remain = report->refused;
    pare_status st = pare_onnx_write(tool->ctx, model, o->fix, NULL);
    if (st == PARE_OK) {
        pare_print(stdout, "%s: %d tensors changed, %d problem%s remain%s\n", o->fix, changed,
                   *remain, plural((size_t)*remain), *remain == 1 ? "s" : "");
        st = tell(tool, o->fix, report, NULL);
        json_object_set_new(json_object_get(tool->facts, "target"), "changed",
                            json_integer(changed));
        json_object_set_new(tool->facts, "outputs", json_pack("[o]", pare_json_text(o->fix)));
    }
    pare_target_report_free(report);
    return st;
}

/* *refused: how much the target does not take, after the repair where one was asked for. */
static pare_status check_target(pare_tool *tool, const check_options *o, int *refused)
{
    const pare_quant_target target = (pare_quant_target)o->target;
    pare_model *model;
    pare_target_report *report;
    json_t *list = json_array();
    json_object_set_new(
        tool->facts, "target",
        json_pack("{s:s, s:o}", "name", pare_target_of(target)->name, "findings", list));
    PARE_TRY(pare_onnx_read(tool->ctx, &model, tool->arg[0]));
    pare_status st = pare_target_check(tool->ctx, model, target, &report);
    if (st == PARE_OK) {
        *refused = report->refused;
        st = tell(tool, tool->arg[0], report, list);
        pare_target_report_free(report);
    }
    if (st == PARE_OK && o->fix) st = repair(tool, o, model, refused);
    pare_model_free(model);
    return st;
}

/* --- all --- */

static pare_status check(pare_tool *tool, const void *options)
{
    const check_options *o = options;
    if (o->fix && o->target < 0)
        return PARE_FAIL(tool->ctx, USAGE, "check: --fix needs --target, the runtime to mend for");
    return PARE_OK;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const check_options *o = options;
    int refused = 0;
    PARE_TRY(check(tool, o));
    findings f = {
        .tool = tool, .path = tool->arg[0], .list = json_array(), .warnings = json_array()};
    json_object_set_new(tool->facts, "model",
                        json_pack("{s:o}", "file", pare_json_text(tool->arg[0])));
    json_object_set_new(tool->facts, "problems", f.list);
    json_object_set_new(tool->facts, "warnings", f.warnings);
    PARE_TRY(check_all(&f));
    size_t n = json_array_size(f.list);
    if (!n && o->target >= 0) PARE_TRY(check_target(tool, o, &refused));
    tool->found = true;
    if (n) return PARE_FAIL(tool->ctx, INPUT, "%s: %zu problem%s", tool->arg[0], n, plural(n));
    if (refused)
        return PARE_FAIL(tool->ctx, INPUT, "%s: %d thing%s that %s does not take",
                         o->fix ? o->fix : tool->arg[0], refused, plural((size_t)refused),
                         pare_target_of((pare_quant_target)o->target)->title);
    if (!o->fix) pare_print(stdout, "%s: no problems\n", tool->arg[0]);
    return PARE_OK;
}

const pare_command pare_command_check = {
    .name = "check",
    .arguments = "MODEL",
    .min = 1,
    .max = 1,
    .summary = "list all problems of a model at once",
    .detail = "Reads the file, then asks for every node whether its operator, opset and types can "
              "be run\n"
              "and whether shapes agree. Problems go to standard output; exit status 1 where there "
              "is one.\n"
              "NaN and infinite weights are warnings. With --target a quantized model of any tool "
              "is held\n"
              "against what that runtime takes; a line that begins with 'note:' is no problem.",
    .example = "pare check net.int8.onnx --target tensorrt --fix net.trt.onnx",
    .options = table,
    .size = sizeof(check_options),
    .defaults = &defaults,
    .check = check,
    .run = run,
};
