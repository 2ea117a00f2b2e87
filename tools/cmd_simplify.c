/* SPDX-License-Identifier: Apache-2.0 */
/* pare simplify: what an exporter left goes; the outputs of both files are compared before the new
   one is written. */
#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/eval/eval.h"
#include "runtime/passes/passes.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/shapes.h"
#include "tools/source.h"
#include "tools/table.h"
#include "tools/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct simplify_options {
    pare_common common;
    const char *output;
    pare_list fixed, shapes;
    bool standard, no_check, external_data;
} simplify_options;

#define OPTIONS simplify_options
static const pare_option table[] = {
    PARE_OPT_SHORT('o', OUTPUT, "output", "OUT", output, "model to write"),
    PARE_OPT_LIST("static", "in=1x3x224x224", fixed,
                  "fix the shape of an input, more with commas between them; what follows from it "
                  "becomes constant"),
    PARE_OPT_FLAG("standard", standard,
                  "rewrite operators of com.microsoft into ONNX's own (opset 21)"),
    PARE_OPT_LIST("shapes", "in=1x3x224x224", shapes,
                  "shape of an input for the comparison alone (unknown dims: 1)"),
    PARE_OPT_FLAG("no-check", no_check, "write the model without comparing its outputs"),
    PARE_OPT_FLAG("external-data", external_data,
                  "write weights to OUT.<hash>.data beside it; needed above 2 GiB"),
    {0},
};

/* Outputs may be apart as far as sums in another order are. */
#define MOST_APART 1e-4

/* --- what a model holds, by operator --- */

typedef struct operator_count {
    const char *name;
    int before, after;
} operator_count;

typedef struct census {
    pare_tool *tool;
    operator_count *row;
    size_t count, capacity;
    int before, after;
    bool second; /* counts the simplified model */
} census;

static pare_status count_graph(pare_graph *graph, void *user)
{
    census *c = user;
    for (int n = 0; n < graph->node_count; n++) {
        const pare_node *node = graph->node[n];
        size_t i = 0;
        while (i < c->count && strcmp(c->row[i].name, node->op_type) != 0) i++;
        if (i == c->count) {
            if (!pare_arena_grow(&c->tool->arena, &c->row, &c->capacity, c->count, sizeof *c->row))
                return PARE_MEMORY;
            c->row[c->count++] = (operator_count){.name = node->op_type};
        }
        ++*(c->second ? &c->row[i].after : &c->row[i].before);
        ++*(c->second ? &c->after : &c->before);
    }
    return PARE_OK;
}

static int by_change(const void *a, const void *b)
{
    const operator_count *x = a, *y = b;
    const int p = x->before - x->after, q = y->before - y->after;
    return p != q ? (p < q) - (p > q) : strcmp(x->name, y->name);
}

/* The rows that changed, most removed first, on standard error; all rows in the facts. */
static void report_census(pare_tool *tool, census *c, bool quiet)
{
    pare_table t;
    json_t *operators = json_object();
    qsort(c->row, c->count, sizeof *c->row, by_change);
    pare_table_init(&t, &tool->arena, "lrr");
    pare_table_add(&t, "operator|before|after");
    for (size_t i = 0; i < c->count; i++) {
        const operator_count *r = &c->row[i];
        json_object_set_new(operators, r->name,
                            json_pack("{s:i, s:i}", "before", r->before, "after", r->after));
        if (r->before != r->after) pare_table_add(&t, "%s|%d|%d", r->name, r->before, r->after);
    }
    json_object_set_new(tool->facts, "operators", operators);
    if (!quiet && t.count > 1) pare_table_print(&t, stderr);
}

/* --- shapes --- */

/* Fixes the inputs that --static names. */
static pare_status fix_inputs(pare_tool *tool, pare_model *model, const pare_list *list)
{
    pare_input_shape *shapes;
    int count;
    PARE_TRY(pare_shapes_parse(tool, model, "--static", list, &shapes, &count));
    for (int i = 0; i < count; i++) {
        pare_value *v = pare_graph_find_own(model->graph, shapes[i].name);
        const pare_shape *given = &shapes[i].shape;
        char has[256], asked[256];
        bool fits = v->shape.rank < 0 || v->shape.rank == given->rank;
        for (int d = 0; fits && d < v->shape.rank; d++)
            fits = v->shape.dim[d] < 0 || v->shape.dim[d] == given->dim[d];
        if (!fits)
            return PARE_FAIL(tool->ctx, INPUT, "%s: input '%s' is %s, --static gives %s",
                             model->path, v->name, pare_shape_text(&v->shape, has, sizeof has),
                             pare_shape_text(given, asked, sizeof asked));
        for (int d = 0; d < given->rank; d++)
            if (!given->dim[d])
                return PARE_FAIL(tool->ctx, USAGE,
                                 "--static %s: axis %d is 0 long, expected 1 or more", v->name, d);
        pare_value_set_type(v, v->dtype, given);
    }
    return PARE_OK;
}

/* The file says what was inferred from the fixed inputs. */
static void declare(const pare_values *list)
{
    for (int i = 0; i < list->count; i++) {
        pare_value *v = list->item[i];
        const pare_shape shape = v->shape;
        if (v->dtype && pare_shape_known(&shape)) pare_value_set_type(v, v->dtype, &shape);
    }
}

/* Shapes of all inputs for the comparison: those asked for, the others as the simplified model has
   them, unknown dims 1. */
static pare_status check_shapes(pare_tool *tool, const pare_model *model, const pare_list *list,
                                pare_input_shape **out, int *count)
{
    pare_input_shape *given;
    int given_count;
    PARE_TRY(pare_shapes_parse(tool, model, "--shapes", list, &given, &given_count));
    return pare_shapes_choose(tool, model, given, given_count, out, count);
}

/* --- the command --- */

static pare_status compare(pare_tool *tool, const simplify_options *o, const pare_model *before,
                           const pare_model *after)
{
    const pare_plan_options options = {.threads = (int)o->common.threads};
    pare_input_shape *shapes;
    int count;
    double apart;
    const char *output;
    PARE_TRY(check_shapes(tool, after, &o->shapes, &shapes, &count));
    pare_status st =
        pare_models_apart(tool->ctx, before, after, shapes, count, &options, &apart, &output);
    if (st != PARE_OK)
        return pare_fail_prefix(tool->ctx, st,
                                "the outputs cannot be compared (--shapes gives other sizes, "
                                "--no-check writes the model without)");
    if (apart > MOST_APART)
        return PARE_FAIL(tool->ctx, UNSUPPORTED,
                         "%s: output '%s' is %.3g of its largest value apart after simplifying, "
                         "expected at most %g; nothing was written",
                         before->path, output, apart, MOST_APART);
    json_object_set_new(tool->facts, "outputs_apart", json_real(apart));
    return PARE_OK;
}

static pare_status report(pare_tool *tool, const simplify_options *o, census *c, int64_t opset[2],
                          const char *hash, uint64_t bytes)
{
    char hash_after[33], size[2][32], text[64] = "not compared";
    uint64_t bytes_after;
    const json_t *apart = json_object_get(tool->facts, "outputs_apart");
    PARE_TRY(pare_onnx_hash(tool->ctx, o->output, hash_after, &bytes_after));
    if (apart) snprintf(text, sizeof text, "at most %.2g apart", json_real_value(apart));
    if (apart && json_real_value(apart) == 0) snprintf(text, sizeof text, "equal");
    pare_print(stdout, "%s\n", o->output);
    report_census(tool, c, o->common.quiet);
    if (!o->common.quiet) {
        pare_print(stderr, "%d nodes (were %d), %s (were %s), outputs %s", c->after, c->before,
                   pare_bytes_text((double)bytes_after, size[0], sizeof size[0]),
                   pare_bytes_text((double)bytes, size[1], sizeof size[1]), text);
        if (opset[0] != opset[1])
            pare_print(stderr, ", opset %lld (was %lld)", (long long)opset[1], (long long)opset[0]);
        pare_print(stderr, "\n");
    }
    json_object_update_new(
        tool->facts,
        json_pack("{s:{s:o, s:s, s:I}, s:{s:o, s:s, s:I}, s:i, s:i, s:I, s:I, s:[o]}", "model",
                  "file", pare_json_text(tool->arg[0]), "hash", hash, "bytes", (json_int_t)bytes,
                  "output", "file", pare_json_text(o->output), "hash", hash_after, "bytes",
                  (json_int_t)bytes_after, "nodes_before", c->before, "nodes_after", c->after,
                  "opset_before", (json_int_t)opset[0], "opset_after", (json_int_t)opset[1],
                  "outputs", pare_json_text(o->output)));
    return PARE_OK;
}

static pare_status simplify(pare_tool *tool, const simplify_options *o, const pare_model *before,
                            pare_model *after)
{
    const pare_onnx_write_options writing = {.external_data = o->external_data};
    int64_t opset[2] = {pare_model_opset(before, ""), 0};
    census c = {.tool = tool};
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_onnx_hash(tool->ctx, tool->arg[0], hash, &bytes));
    PARE_TRY(pare_graph_each(before->graph, count_graph, &c));
    PARE_TRY(fix_inputs(tool, after, &o->fixed));
    if (o->standard) PARE_TRY(pare_pass_expand_contrib(after));
    PARE_TRY(pare_pass_simplify(after, NULL, 0));
    if (o->fixed.count) {
        declare(&after->graph->out);
        declare(&after->graph->info);
    }
    c.second = true;
    PARE_TRY(pare_graph_each(after->graph, count_graph, &c));
    if (!o->no_check) PARE_TRY(compare(tool, o, before, after));
    PARE_TRY(pare_onnx_write(tool->ctx, after, o->output, &writing));
    opset[1] = pare_model_opset(after, "");
    return report(tool, o, &c, opset, hash, bytes);
}

static pare_status check(pare_tool *tool, const void *options)
{
    static const char *const of_comparison[] = {"shapes", NULL};
    const simplify_options *o = options;
    PARE_TRY(pare_need_option(tool, o->output, "-o OUT", "the model to write"));
    return o->no_check ? pare_refuse_options(tool, "with --no-check", of_comparison) : PARE_OK;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const simplify_options *o = options;
    pare_model *before = NULL, *after = NULL;
    PARE_TRY(check(tool, o));
    PARE_TRY(pare_onnx_read(tool->ctx, &before, tool->arg[0]));
    pare_status st = pare_model_clone(tool->ctx, &after, before);
    if (st == PARE_OK) st = simplify(tool, o, before, after);
    pare_model_free(after);
    pare_model_free(before);
    return st;
}

const pare_command pare_command_simplify = {
    .name = "simplify",
    .arguments = "MODEL -o OUT",
    .min = 1,
    .max = 1,
    .summary = "remove what exporters leave: shape arithmetic, casts, transposes, duplicates",
    .detail = "Names of inputs and outputs stay, and so do their values: both files are run on the "
              "same\n"
              "made-up inputs before OUT is written, and where an output differs nothing is. "
              "Opsets below 13\n"
              "are lifted to 13. --static makes an open batch or picture size a fixed one.",
    .example = "pare simplify model.onnx -o simple.onnx --static input=1x3x224x224",
    .options = table,
    .size = sizeof(simplify_options),
    .check = check,
    .run = run,
};
