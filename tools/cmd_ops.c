/* SPDX-License-Identifier: Apache-2.0 */
/* pare ops: the operator table as users see it. */
#include "runtime/ops/ops.h"
#include "runtime/passes/import/contrib.h"
#include "tools/commands.h"
#include "tools/table.h"
#include "tools/text.h"

#include <string.h>

typedef struct ops_options {
    pare_common common;
    bool kernels;
} ops_options;

#define OPTIONS ops_options
static const pare_option table[] = {
    PARE_OPT_FLAG("kernels", kernels, "name the kernels, fastest first"),
    {0},
};

/* How the operator is quantized, in words. */
static const char *quant_text(pare_quant_kind kind)
{
    switch (kind) {
    case PARE_QUANT_INTEGER:
    case PARE_QUANT_NONE: return "stays float";
    case PARE_QUANT_WEIGHTED: return "int8, weights per channel";
    case PARE_QUANT_WEIGHT_ONLY: return "int8 weights, computes in float";
    case PARE_QUANT_OWN:
    case PARE_QUANT_SUM:
    case PARE_QUANT_PRODUCT:
    case PARE_QUANT_MEAN: return "int8, own range";
    case PARE_QUANT_FIXED: return "int8, fixed range";
    case PARE_QUANT_PASS: return "int8, its input's range";
    case PARE_QUANT_JOIN: return "int8, one range for all";
    case PARE_QUANT_CLAMP: return "int8, fused";
    }
    return "";
}

static json_t *kernel_names(const pare_op *op, char *text, size_t size)
{
    json_t *list = json_array();
    size_t used = 0;
    *text = 0;
    for (const pare_kernel *const *k = op->cpu; k && *k; k++) {
        json_array_append_new(list, json_string((*k)->name));
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", (*k)->name);
    }
    return list;
}

/* Operators that are rewritten into standard ones: they have no kernels of their own. */
static int add_rewritten(json_t *list, pare_table *text)
{
    for (int i = 0; i < pare_contrib_op_count; i++) {
        const pare_contrib_op *op = &pare_contrib_ops[i];
        const char *domain = *op->domain ? op->domain : "ai.onnx";
        static const char *const form = "as the standard operators it becomes";
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:s, s:[]}", "name", op->name,
                                              "domain", domain, "opset_first", 1, "opset_last", 1,
                                              "int8", form, "kernels"));
        pare_table_add(text, "%s%s%s|1|%s|", op->domain, *op->domain ? "." : "", op->name, form);
    }
    return pare_contrib_op_count;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const ops_options *o = options;
    json_t *list = json_array();
    pare_table text;
    int shown = 0;
    pare_table_init(&text, &tool->arena, o->kernels ? "lrll" : "lrl");
    pare_table_add(&text, "operator|opset|INT8|kernels");
    for (int i = 0; i < PARE_OP_COUNT; i++) {
        const pare_op *op = &pare_ops[i];
        char kernels[512];
        if (!strcmp(op->domain, PARE_DOMAIN) && !o->common.verbose) continue;
        json_t *names = kernel_names(op, kernels, sizeof kernels);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:i, s:i, s:s, s:o}", "name", op->name,
                                        "domain", *op->domain ? op->domain : "ai.onnx",
                                        "opset_first", op->first, "opset_last", op->last, "int8",
                                        quant_text(op->quant.kind), "kernels", names));
        pare_table_add(&text, "%s%s%s|%d-%d|%s|%s", op->domain, *op->domain ? "." : "", op->name,
                       op->first, op->last, quant_text(op->quant.kind), o->kernels ? kernels : "");
        shown++;
    }
    shown += add_rewritten(list, &text);
    pare_table_print(&text, stdout);
    pare_print(stdout, "%d operators\n", shown);
    json_object_set_new(tool->facts, "operators", list);
    return PARE_OK;
}

const pare_command pare_command_ops = {
    .name = "ops",
    .arguments = "",
    .summary = "list the supported operators",
    .detail =
        "Operators outside ONNX (com.microsoft) are rewritten into standard ones when a model is\n"
        "run, quantized or pruned. Operators that the runtime makes itself while it fuses are\n"
        "listed with --verbose.",
    .example = "pare ops --kernels",
    .options = table,
    .size = sizeof(ops_options),
    .run = run,
};
