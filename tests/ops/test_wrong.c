/* SPDX-License-Identifier: Apache-2.0 */
/* For every line of rows.inc: variants of it that are wrong, made from the line itself. Each is
   refused by the shape rule with a message that names the node, or (types) taken by no kernel.
     counts      one input fewer than the fewest, one more than the most, one output too many
     attributes  each with a value of another type; axis = 99; axes and starts of an input = 99
     types       each operand in each type that ONNX does not give it (types.inc)
   What runs all the same has its reason in the list of exemptions. And for memory's sake: each
   operand with an axis fewer and one more, which many operators may take. */
#include "tests/ops/row_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const row_line lines[] = {
#define ROW(op, operands, attributes, outputs) {#op, operands, attributes, outputs},
#include "tests/ops/rows.inc"
#undef ROW
};
enum { LINES = sizeof lines / sizeof *lines, WORDS = 64, WORD = 256, TEXT = 4096 };

static const pare_dtype types[] = {PARE_f32, PARE_f64, PARE_f16, PARE_bf16, PARE_s8,
                                   PARE_u8,  PARE_s16, PARE_u16, PARE_s32,  PARE_u32,
                                   PARE_s64, PARE_u64, PARE_bool};
enum { TYPES = sizeof types / sizeof *types };

static const char *const allowed[PARE_OP_COUNT] = {
#define TYPES(op, inputs) [PARE_OP_##op] = inputs,
#include "tests/ops/types.inc"
#undef TYPES
};

/* Variants that run: operator, which, why that is right. */
static const char *const exempt[][3] = {
#define WIDER "the plain kernel computes it in more types than ONNX lists, by the same formula"
    {"Relu", "input 0", WIDER},
    {"Celu", "input 0", WIDER},
    {"Shrink", "input 0", WIDER},
    {"Pow", "input 0", WIDER},
    {"Dropout", "input 0", WIDER},
    {"Einsum", "input 0", WIDER},
    {"Reduce", "input 0", WIDER},
    {"CumSum", "input 0", WIDER},
    {"MaxPool", "input 0", WIDER},
    {"GlobalMaxPool", "input 0", WIDER},
    {"Attention", "input 0", WIDER},
    {"Compress", "input 0 in bf16", WIDER},
    {"OneHot", "input 0 in bf16", WIDER},
    {"OneHot", "input 1 in bf16", WIDER},
    {"OneHot", "input 2 in bf16", WIDER},
    {"Range", "input 0", WIDER},
    {"ReverseSequence", "input 0 in bf16", WIDER},
    {"Unique", "input 0 in bf16", WIDER},
    {"Upsample", "input 0 in bf16", WIDER},
#define MIXED "lengths may mix s32 and s64"
    {"DFT", "input 2 in s32", MIXED},
    {"STFT", "input 1 in s32", MIXED},
    {"STFT", "input 3 in s32", MIXED},
    {"MelWeightMatrix", "input 0 in s32", MIXED},
    {"MelWeightMatrix", "input 1 in s32", MIXED},
    {"MelWeightMatrix", "input 2 in s32", MIXED},
#define WIDENED "a parameter of another float type is widened as the data are"
    {"BatchNormalization", "input", WIDENED},
    {"InstanceNormalization", "input", WIDENED},
    {"GroupNormalization", "input", WIDENED},
    {"LayerNormalization", "input", WIDENED},
};

static int failures, refused;

/* An exemption names an operator, or the beginning of several operators' names. */
static bool is_exempt(const char *op, const char *what)
{
    const char *type = strstr(what, " in ");
    for (size_t i = 0; i < sizeof exempt / sizeof *exempt; i++) {
        if (strncmp(exempt[i][0], op, strlen(exempt[i][0])) ||
            strncmp(exempt[i][1], what, strlen(exempt[i][1])))
            continue;
        pare_dtype dtype = type ? pare_type_find(type + 4) : PARE_NOTYPE;
        if (strcmp(exempt[i][2], WIDENED) != 0 || pare_type_is_float(dtype)) return true;
    }
    return false;
}

/* --- words of a line --- */

typedef struct words {
    char word[WORDS][WORD];
    int count;
} words;

static words split(const char *text)
{
    words w = {.count = 0};
    char copy[TEXT], *rest;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = strtok_r(copy, " ", &rest); p; p = strtok_r(NULL, " ", &rest))
        snprintf(w.word[w.count++], WORD, "%s", p);
    return w;
}

static const char *join(const words *w, char *text)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < w->count; i++)
        n += (size_t)snprintf(text + n, TEXT - n, "%s%s", i ? " " : "", w->word[i]);
    return text;
}

/* The first type that the line's plain kernel takes; PARE_NOTYPE: none. */
static pare_dtype type_of(const row_line *line)
{
    for (int t = 0; t < TYPES; t++) {
        row_case r;
        row_result result = ROW_REFUSED;
        if (row_open(&r, line, types[t], false))
            for (int k = 0; r.op->cpu[k] && result == ROW_REFUSED; k++)
                result = row_run(&r, r.op->cpu[k], NULL);
        row_close(&r);
        if (result == ROW_RAN) return types[t];
    }
    return PARE_NOTYPE;
}

/* Is the shape rule's message there, and the node's name in it? */
static bool says_why(const row_case *r) { return strstr(r->ctx.message, "node 'n'") != NULL; }

/* Opens a variant and runs it by every kernel that takes it; true where it ran. */
static bool runs(const row_line *line, pare_dtype type, bool *said)
{
    row_case r;
    bool ran = false;
    *said = true;
    if (row_open(&r, line, type, false)) {
        for (int k = 0; r.op->cpu[k]; k++) {
            row_result result = row_run(&r, r.op->cpu[k], NULL);
            ran = ran || result == ROW_RAN;
            if (result == ROW_FAILED) *said = says_why(&r);
        }
    } else if (r.ctx.message[0]) {
        *said = says_why(&r);
    }
    row_close(&r);
    return ran;
}

static void expect_refused(const row_line *line, pare_dtype type, const char *what)
{
    bool said, ran = runs(line, type, &said);
    refused += !ran;
    if ((!ran && said) || is_exempt(line->op, what)) return;
    print_error("%s \"%s\" %s, %d outputs, %s: %s: %s\n", line->op, line->operands,
                line->attributes, line->outputs, pare_type(type)->name, what,
                ran ? "it runs" : "the message does not name the node");
    failures++;
}

/* --- counts --- */

static void wrong_counts(const row_line *line, pare_dtype type)
{
    int fewest, most, outputs;
    char text[TEXT];
    words w = split(line->operands);
    row_line bad = *line;
    const pare_op *op = pare_op_find("", line->op);
    if (!op || !pare_op_form(op, &fewest, &most, &outputs)) return;
    if (fewest && fewest <= w.count) {
        words fewer = w;
        fewer.count = fewest - 1;
        bad.operands = join(&fewer, text);
        expect_refused(&bad, type, "too few inputs");
    }
    if (most < ROW_OPERANDS) {
        words more = w;
        while (more.count < most) strcpy(more.word[more.count++], "-");
        strcpy(more.word[more.count++], "d1:f32");
        bad.operands = join(&more, text);
        expect_refused(&bad, type, "too many inputs");
    }
    bad = *line;
    if (outputs >= ROW_OUTPUTS) return; /* Split, which may have any number */
    bad.outputs = outputs + 1;
    expect_refused(&bad, type, "too many outputs");
}

static void each_count_is_checked(void **state)
{
    (void)state;
    failures = 0;
    for (int i = 0; i < LINES; i++) wrong_counts(&lines[i], type_of(&lines[i]));
    assert_int_equal(failures, 0);
}

static void each_row_has_a_form(void **state)
{
    (void)state;
    failures = 0;
    for (int i = 0; i < PARE_OP_COUNT; i++) {
        int fewest, most, outputs;
        const pare_op *op = &pare_ops[i];
        bool found = pare_op_form(op, &fewest, &most, &outputs);
        if (op->domain[0] || (found && (allowed[i] || op->cpu == pare_cpu_interpreter))) continue;
        print_error("row %s: it has no line in %s\n", op->name,
                    found ? "tests/ops/types.inc" : "runtime/ops/forms.inc");
        failures++;
    }
    assert_int_equal(failures, 0);
}

/* --- attributes --- */

static void wrong_attributes(const row_line *line, pare_dtype type)
{
    char text[TEXT], what[64];
    words w = split(line->attributes);
    row_line bad = *line;
    for (int i = 0; i < w.count; i++) {
        words other = w;
        char *value = strchr(other.word[i], '=') + 1;
        strcpy(value, *value == 'f' ? "i1" : "f1");
        bad.attributes = join(&other, text);
        snprintf(what, sizeof what, "type of attribute %.*s", (int)(value - 1 - other.word[i]),
                 other.word[i]);
        expect_refused(&bad, type, what);
    }
}

static void each_type_of_an_attribute_is_checked(void **state)
{
    (void)state;
    failures = 0;
    for (int i = 0; i < LINES; i++)
        if (pare_op_find("", lines[i].op)) wrong_attributes(&lines[i], type_of(&lines[i]));
    assert_int_equal(failures, 0);
}

/* Operators whose attribute `axis` must be an axis of the first input. */
static const char *const with_axis[] = {
    "ArgMax",          "ArgMin",           "TopK",
    "Softmax",         "Hardmax",          "LogSoftmax",
    "LpNormalization", "RMSNormalization", "LayerNormalization",
    "Flatten",         "Concat",           "Split",
    "Gather",          "GatherElements",   "Scatter",
    "ScatterElements", "TensorScatter",    "OneHot",
    "Compress",        "Unique",
};

/* Operators with axes in an input. */
static const struct {
    const char *op;
    int input;
} with_axes[] = {
    {"ReduceSum", 1},    {"ReduceMean", 1},
    {"ReduceMax", 1},    {"ReduceMin", 1},
    {"ReduceL1", 1},     {"ReduceL2", 1},
    {"ReduceProd", 1},   {"ReduceSumSquare", 1},
    {"ReduceLogSum", 1}, {"ReduceLogSumExp", 1},
    {"CumSum", 1},       {"Squeeze", 1},
    {"Unsqueeze", 1},    {"DFT", 2},
    {"Slice", 3},
};

static void wrong_axes(const row_line *line, pare_dtype type)
{
    char text[TEXT];
    row_line bad = *line;
    for (size_t i = 0; i < sizeof with_axis / sizeof *with_axis; i++) {
        words w = split(line->attributes);
        int at = 0;
        if (strcmp(with_axis[i], line->op)) continue;
        while (at < w.count && strncmp(w.word[at], "axis=", 5)) at++;
        strcpy(w.word[at], "axis=i99");
        w.count += at == w.count;
        bad.attributes = join(&w, text);
        expect_refused(&bad, type, "axis 99");
        strcpy(w.word[at], "axis=i-99");
        bad.attributes = join(&w, text);
        expect_refused(&bad, type, "axis -99");
    }
    bad = *line;
    for (size_t i = 0; i < sizeof with_axes / sizeof *with_axes; i++) {
        words w = split(line->operands);
        if (strcmp(with_axes[i].op, line->op) || with_axes[i].input >= w.count) continue;
        char *word = w.word[with_axes[i].input];
        for (char *p = word + 1; *p; p++)
            if (*p >= '0' && *p <= '9' && (p == word + 1 || p[-1] == ',')) *p = '9';
        strcat(word, "9");
        bad.operands = join(&w, text);
        expect_refused(&bad, type, "axes of an input");
    }
}

static void each_axis_is_checked(void **state)
{
    (void)state;
    failures = 0;
    for (int i = 0; i < LINES; i++) wrong_axes(&lines[i], type_of(&lines[i]));
    assert_int_equal(failures, 0);
}

/* --- types --- */

/* Entry i of an operator's list in types.inc: its variable and the mask of its types. */
static bool entry(const pare_op *op, int i, char variable[8], unsigned *mask)
{
    words w = split(allowed[op - pare_ops] ? allowed[op - pare_ops] : "");
    const bool repeats = w.count && !strcmp(w.word[w.count - 1], "...");
    w.count -= repeats;
    if (repeats && i >= w.count) i = w.count - 1;
    if (i >= w.count) return false;
    const char *colon = strchr(w.word[i], ':');
    snprintf(variable, 8, "%.*s", (int)(colon - w.word[i]), w.word[i]);
    *mask = (unsigned)strtoul(colon + 1, NULL, 16);
    return true;
}

/* Does ONNX take the variant's types? */
static bool types_are_right(const row_case *r)
{
    for (int i = 0; i < r->in_count; i++) {
        char a[8], b[8];
        unsigned mask, other;
        int bit = 0;
        if (r->in[i].dtype == PARE_NOTYPE) continue;
        if (!entry(r->op, i, a, &mask)) return true;
        while (bit < TYPES && types[bit] != r->in[i].dtype) bit++;
        if (bit == TYPES || !(mask >> bit & 1)) return false;
        for (int k = 0; k < i && strcmp(a, "-"); k++)
            if (entry(r->op, k, b, &other) && !strcmp(a, b) && r->in[k].dtype != PARE_NOTYPE &&
                r->in[k].dtype != r->in[i].dtype)
                return false;
    }
    return true;
}

static void wrong_types(const row_line *line, pare_dtype type)
{
    words w = split(line->operands);
    char text[TEXT], what[64];
    row_line bad = *line;
    for (int i = 0; i < w.count; i++)
        for (int t = 0; t < TYPES && w.word[i][0] != '-'; t++) {
            words other = w;
            char *colon = strchr(other.word[i], ':');
            row_case r;
            if (colon) *colon = 0;
            strcat(strcat(other.word[i], ":"), pare_type(types[t])->name);
            bad.operands = join(&other, text);
            row_open(&r, &bad, type, false);
            const bool right = types_are_right(&r);
            row_close(&r);
            snprintf(what, sizeof what, "input %d in %s", i, pare_type(types[t])->name);
            if (!right) expect_refused(&bad, type, what);
        }
}

static void each_type_is_checked(void **state)
{
    (void)state;
    failures = 0;
    for (int i = 0; i < LINES; i++)
        if (pare_op_find("", lines[i].op)) wrong_types(&lines[i], type_of(&lines[i]));
    assert_int_equal(failures, 0);
}

/* --- ranks --- */

static void other_ranks(const row_line *line, pare_dtype type)
{
    words w = split(line->operands);
    char text[TEXT];
    row_line bad = *line;
    for (int i = 0; i < w.count; i++)
        for (int more = 0; more < 2; more++) {
            words other = w;
            char rest[WORD], *p = other.word[i] + 1, *x = strchr(p, 'x');
            bool said;
            if (!strchr("dpubDPUBS", other.word[i][0])) continue;
            if (more) {
                snprintf(rest, sizeof rest, "2x%.200s", p);
            } else {
                size_t first = x ? (size_t)(x + 1 - p) : strspn(p, "0123456789");
                snprintf(rest, sizeof rest, "%.200s", p + first);
            }
            strcpy(p, rest);
            bad.operands = join(&other, text);
            (void)runs(&bad, type, &said);
            if (said) continue;
            print_error("%s \"%s\" %s: the message does not name the node\n", bad.op, bad.operands,
                        bad.attributes);
            failures++;
        }
}

static void no_rank_is_a_surprise(void **state)
{
    (void)state;
    failures = 0;
    for (int i = 0; i < LINES; i++)
        if (pare_op_find("", lines[i].op)) other_ranks(&lines[i], type_of(&lines[i]));
    assert_int_equal(failures, 0);
}

static int say_count(void **state)
{
    (void)state;
    print_message("%d variants were refused\n", refused);
    return refused > 1000 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_has_a_form),
        cmocka_unit_test(each_count_is_checked),
        cmocka_unit_test(each_type_of_an_attribute_is_checked),
        cmocka_unit_test(each_axis_is_checked),
        cmocka_unit_test(each_type_is_checked),
        cmocka_unit_test(no_rank_is_a_surprise),
    };
    return cmocka_run_group_tests(tests, NULL, say_count);
}
