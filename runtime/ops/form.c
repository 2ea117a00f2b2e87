/* SPDX-License-Identifier: Apache-2.0 */
/* What forms.inc says of a node: how many inputs and outputs, and the types of its attributes.
   Shape rules need not ask for that again. */
#include "runtime/ops/infer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define PARE_ANY INT_MAX

typedef struct form {
    int fewest, most, outputs; /* 0, 0, 0: an operator that passes make */
} form;

static const form forms[PARE_OP_COUNT] = {
#define PARE_UNARY(op, ...) [PARE_OP_##op] = {1, 1, 1},
#define PARE_UNARY_FORM(...)
#include "runtime/ops/unary.inc"
#define PARE_FORM(op, fewest, most, outputs) [PARE_OP_##op] = {fewest, most, outputs},
#include "runtime/ops/forms.inc"
};

static const struct {
    pare_op_id of; /* PARE_OP_COUNT: every operator */
    const char *name;
    pare_attr_kind kind;
} attributes[] = {
#define PARE_ATTRIBUTE(name, kind)        {PARE_OP_COUNT, #name, PARE_ATTR_##kind},
#define PARE_ATTRIBUTE_OF(op, name, kind) {PARE_OP_##op, #name, PARE_ATTR_##kind},
#include "runtime/ops/forms.inc"
};

/* The types an input may have, as bits; or the input whose type it has. */
enum {
    F32 = 1 << PARE_f32,
    FLOAT = F32 | 1 << PARE_f64 | 1 << PARE_f16 | 1 << PARE_bf16,
    S32 = 1 << PARE_s32,
    S64 = 1 << PARE_s64,
    BOOL = 1 << PARE_bool,
    INDEX = S32 | S64,
    SIGNED = FLOAT | INDEX | 1 << PARE_s16 | 1 << PARE_s8,
    NUMBER = SIGNED | 1 << PARE_u8 | 1 << PARE_u16 | 1 << PARE_u32 | 1 << PARE_u64
};

static const struct {
    pare_op_id of;
    int input, other; /* other -1: types */
    unsigned types;
} inputs[] = {
#define PARE_INPUT(op, input, types) {PARE_OP_##op, input, -1, types},
#define PARE_SAME(op, input, other)  {PARE_OP_##op, input, other, 0},
#include "runtime/ops/forms.inc"
};

static const char *kind_text(pare_attr_kind kind)
{
    static const char *const text[] = {"undefined",      "float",   "int",    "string",
                                       "tensor",         "graph",   "floats", "ints",
                                       "strings",        "tensors", "graphs", "sparse tensor",
                                       "sparse tensors", "type",    "types"};
    return (size_t)kind < sizeof text / sizeof *text ? text[kind] : text[0];
}

static pare_status check_attribute(const pare_node *node, pare_op_id id, const pare_attr *attr)
{
    pare_attr_kind kind = attr->kind;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if ((attributes[i].of == PARE_OP_COUNT || attributes[i].of == id) &&
            !strcmp(attributes[i].name, attr->name))
            kind = attributes[i].kind;
    if (kind == attr->kind || attr->ref) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "attribute '%s' is of type %s, expected %s", attr->name,
                          kind_text(attr->kind), kind_text(kind));
}

/* The types of a mask, "s32 or s64". */
static const char *types_text(unsigned types, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int d = 0; d < PARE_DTYPE_COUNT && n < size; d++)
        if (types >> d & 1)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? " or " : "",
                                  pare_type((pare_dtype)d)->name);
    return text;
}

static pare_status check_inputs(const pare_node *node, pare_op_id id)
{
    char text[64];
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        const pare_dtype type = pare_infer_dtype(node, inputs[i].input);
        if (inputs[i].of != id || !type) continue;
        if (inputs[i].other >= 0)
            PARE_TRY(pare_infer_same_type(node, inputs[i].input, inputs[i].other));
        else if (!(inputs[i].types >> type & 1))
            return PARE_FAIL_NODE(node, INPUT, "input '%s' has type %s, expected %s",
                                  node->in[inputs[i].input]->name, pare_type(type)->name,
                                  types_text(inputs[i].types, text, sizeof text));
    }
    return PARE_OK;
}

static int last_there(pare_value *const *list, int count)
{
    while (count && !list[count - 1]) count--;
    return count;
}

static const form *form_of(const pare_op *op)
{
    const form *f = &forms[op - pare_ops];
    return f->outputs ? f : NULL;
}

bool pare_op_form(const pare_op *op, int *fewest, int *most, int *outputs)
{
    const form *f = form_of(op);
    *fewest = f ? f->fewest : 0;
    *most = f ? f->most : 0;
    *outputs = f ? f->outputs : 0;
    return f;
}

pare_status pare_op_infer(pare_node *node)
{
    const pare_op *op = pare_op_of(node);
    const form *f = form_of(op);
    if (f) {
        const int in = last_there(node->in, node->in_count);
        const int out = last_there(node->out, node->out_count);
        for (int i = 0; i < f->fewest; i++)
            if (!pare_node_in(node, i))
                return PARE_FAIL_NODE(node, INPUT, "input %d is missing", i);
        if (in > f->most)
            return PARE_FAIL_NODE(node, INPUT, "it has %d inputs, expected %d at most", in,
                                  f->most);
        if (out > f->outputs)
            return PARE_FAIL_NODE(node, INPUT, "it has %d outputs, expected %d at most", out,
                                  f->outputs);
        for (int i = 0; i < node->attr_count; i++)
            PARE_TRY(check_attribute(node, (pare_op_id)(op - pare_ops), &node->attr[i]));
        PARE_TRY(check_inputs(node, (pare_op_id)(op - pare_ops)));
    }
    return op->infer(node);
}
