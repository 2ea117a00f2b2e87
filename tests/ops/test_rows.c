/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of the operator table has a case (rows.inc), and every kernel of the row runs in one:
   the plain kernel in each type it takes against itself in f64 (integers: s64) on the same values,
   the others and, where the tests are built with a device, the device's against the plain one. In
   row-major order, and with rank-4 tensors in N, H, W, C order. PARE_EXACT=quick: f32 and s8. */
#include "tests/ops/row_case.h"
#include "runtime/cpu/fast.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/plan.h"

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
enum { LINES = sizeof lines / sizeof *lines };

static const pare_dtype types[] = {PARE_f32, PARE_f64, PARE_f16, PARE_bf16, PARE_s8,
                                   PARE_u8,  PARE_s16, PARE_u16, PARE_s32,  PARE_u32,
                                   PARE_s64, PARE_u64, PARE_bool};
enum { TYPES = sizeof types / sizeof *types };

/* Kernels that no case can reach here. */
static const char *const exempt[][2] = {
    {"onednn_conv_brg", "a stopwatch's choice where oneDNN has two families for a machine"},
    {"onednn_conv_jit", "the other of the two"},
    {"quantize_nhwc", "reads one order and writes the other: cpu/test_quantize.c"},
    {"cuda_quantize_nhwc", "the same"},
    {"cuda_conv_grad_weight_tile",
     "reads N, H, W, C and writes weights, which are row-major: cuda/test_conv_grad.c"},
    {"cublaslt_2", "the emulated cuBLASLt offers two algorithms"},
    {"cublaslt_3", "the same"},
    {"cublaslt_4", "the same"},
    {"cublaslt_5", "the same"},
    {"cublaslt_6", "the same"},
    {"cublaslt_7", "the same"},
    {"cublaslt_epilogue_2", "the same"},
    {"cublaslt_epilogue_3", "the same"},
    {"cublaslt_conv_2", "the same"},
    {"cublaslt_conv_3", "the same"},
    {"cudnn_conv_0", "the emulation has cuDNN where a test asks for it: cuda/test_dnn.c"},
    {"cudnn_conv_1", "the same"},
    {"cudnn_conv_2", "the same"},
    {"cudnn_conv_3", "the same"},
    {"cuda_matmul_wgmma_128x128", "takes large products alone: cuda/test_wgmma.c"},
    {"cuda_matmul_wgmma_256x128", "the same"},
    {"cuda_matmul_wgmma_128x192", "the same"},
    {"cuda_matmul_wgmma_128x64", "the same"},
    {"cuda_matmul_wgmma_256x64", "the same"},
    {"cuda_matmul_wgmma_256x128_4wg", "the same"},
    {"cuda_conv_tcgen_128x64", "takes large products alone, of another device: cuda/test_tcgen.c"},
    {"cuda_conv_tcgen_128x128", "the same"},
    {"cuda_conv_tcgen_128x256", "the same"},
    {"cuda_matmul_tcgen_128x64", "the same"},
    {"cuda_matmul_tcgen_128x128", "the same"},
    {"cuda_matmul_tcgen_128x256", "the same"},
    {"cuda_conv_wgmma_128x128", "the same"},
    {"cuda_conv_wgmma_256x128", "the same"},
    {"cuda_conv_wgmma_128x192", "the same"},
    {"cuda_conv_wgmma_128x64", "the same"},
    {"cuda_conv_wgmma_256x64", "the same"},
    {"cuda_conv_wgmma_256x128_4wg", "the same"},
    {"cuda_matmul_sparse_wgmma_128x128", "takes large products alone: cuda/test_wgmma_sparse.c"},
    {"cuda_matmul_sparse_wgmma_256x128", "the same"},
    {"cuda_matmul_sparse_wgmma_256x64", "the same"},
    {"cuda_matmul_sparse_wgmma_4wg", "the same"},
    {"cuda_conv_sparse_wgmma_128x128", "the same"},
    {"cuda_conv_sparse_wgmma_256x128", "the same"},
    {"cuda_conv_sparse_wgmma_256x64", "the same"},
    {"cuda_conv_sparse_wgmma_4wg", "the same"},
};

static bool ran[PARE_OP_COUNT][2][PARE_MOST_KERNELS]; /* row, [CPU, device], place in its list */
static pare_device *device;                           /* NULL: the tests are built without one */

static bool quick(void)
{
    const char *word = getenv("PARE_EXACT");
    return word && !strcmp(word, "quick");
}

static double unit_of(pare_dtype type)
{
    switch (type) {
    case PARE_f64: return 1e-12;
    case PARE_f32: return 2e-5;
    case PARE_f16: return 2e-3;
    default: return 1.6e-2;
    }
}

static bool typed(const row_case *r)
{
    for (int i = 0; i < r->in_count; i++)
        if (r->tried[i]) return true;
    return false;
}

static int failures;

/* The plain kernel in f64 (s64 of integers) on r's values, where it takes that. */
static void against_wide(const row_line *line, const row_case *r, pare_dtype type, bool nhwc,
                         const pare_kernel *plain, const char *what)
{
    pare_dtype wide = pare_type_is_float(type) ? PARE_f64 : PARE_s64;
    row_case w;
    if (type == wide || type == PARE_bool || !typed(r)) return;
    if (row_open(&w, line, wide, nhwc)) {
        row_copy_values(&w, r);
        row_result result = row_run(&w, plain, NULL);
        failures += result == ROW_FAILED ||
                    (result == ROW_RAN && !row_compare(&w, r, unit_of(type), 0, what));
    }
    row_close(&w);
}

/* Outputs may be wider than what they were computed from: sums in f64 of f32. */
static double unit_of_case(const row_case *r, pare_dtype type)
{
    double unit = unit_of(r->out[0].dtype), own = pare_type_is_float(type) ? unit_of(type) : 0;
    return typed(r) && own > unit ? own : unit;
}

/* Outputs of `of`, the plain kernel's, against those of kernel k of the CPU's or device's list. */
static void kernel_check(const row_line *line, const row_case *of, pare_dtype type, bool nhwc,
                         int side, int k, const char *what)
{
    const pare_op *op = of->op;
    const pare_kernel *kernel = (side ? op->cuda : op->cpu)[k];
    row_case r;
    char text[300];
    snprintf(text, sizeof text, "%s: %s", what, kernel->name);
    assert_true(row_open(&r, line, type, nhwc));
    row_result result = row_run(&r, kernel, side ? device : NULL);
    if (result != ROW_REFUSED) {
        const char *activation = pare_node_string(r.node, "activation", "none");
        int steps = !strcmp(activation, "gelu") || !strcmp(r.node->op_type, "QLayerNormalization");
        ran[op - pare_ops][side][k] = true;
        if (result == ROW_FAILED) print_error("%s failed\n", text);
        failures +=
            result == ROW_FAILED || !row_compare(of, &r, unit_of_case(&r, type), steps, text);
    }
    row_close(&r);
}

/* Short floats that the plain kernel does not take are computed by way of f32: that is then plain.
 */
static int plain_of(const row_line *line, pare_dtype type, bool nhwc, const pare_op *op, int last)
{
    row_case r;
    bool widened = false;
    if (last == 0 || op->cpu[last - 1] != &pare_widened) return last;
    if (row_open(&r, line, type, nhwc)) widened = row_run(&r, op->cpu[last], NULL) == ROW_REFUSED;
    row_close(&r);
    return last - widened;
}

/* A line in one type and order. False where its plain kernel does not take it. */
static bool line_check(const row_line *line, pare_dtype type, bool nhwc)
{
    row_case r;
    char what[200];
    int last = 0;
    snprintf(what, sizeof what, "%s \"%s\" %s%s", line->op, line->operands, pare_type(type)->name,
             nhwc ? " NHWC" : "");
    bool good = row_open(&r, line, type, nhwc);
    const pare_op *op = r.op;
    while (op->cpu[last] && op->cpu[last + 1]) last++;
    const int plain = good && op->cpu[0] ? plain_of(line, type, nhwc, op, last) : last;
    row_result result = good && op->cpu[0] ? row_run(&r, op->cpu[plain], NULL) : ROW_REFUSED;
    if (result == ROW_FAILED) print_error("%s failed\n", what), failures++;
    if (result == ROW_RAN) {
        ran[op - pare_ops][0][plain] = true;
        against_wide(line, &r, type, nhwc, op->cpu[last], what);
        for (int k = 0; k < plain; k++) kernel_check(line, &r, type, nhwc, 0, k, what);
        for (int k = 0; device && op->cuda[k]; k++) kernel_check(line, &r, type, nhwc, 1, k, what);
    }
    row_close(&r);
    return result == ROW_RAN;
}

static bool has_rank_4(const row_line *line)
{
    row_case r;
    bool good = row_open(&r, line, PARE_f32, false), found = false;
    for (int i = 0; good && i < r.in_count; i++)
        found = found || (r.in[i].rank == 4 && !r.constant[i]);
    bool moves = r.op->layout != PARE_ROWMAJOR;
    row_close(&r);
    return found && moves;
}

static int length_of(const pare_kernel *const *list)
{
    int n = 0;
    while (list[n]) n++;
    return n;
}

/* A tuner tries no kernel behind so many. */
static void lists_are_short_enough(void **state)
{
    (void)state;
    for (int i = 0; i < PARE_OP_COUNT; i++) {
        assert_in_range(length_of(pare_ops[i].cpu), 0, PARE_MOST_KERNELS);
        assert_in_range(length_of(pare_ops[i].cuda), 0, PARE_MOST_KERNELS);
    }
}

static void every_kernel_on_every_line(void **state)
{
    (void)state;
    for (int i = 0; i < LINES; i++) {
        int served = 0;
        bool nhwc = has_rank_4(&lines[i]);
        for (int t = 0; t < TYPES; t++) {
            if (quick() && types[t] != PARE_f32 && types[t] != PARE_s8) continue;
            served += line_check(&lines[i], types[t], false);
            if (nhwc) served += line_check(&lines[i], types[t], true);
        }
        if (served || quick()) continue;
        print_error("%s \"%s\" %s: the plain kernel takes it in no type\n", lines[i].op,
                    lines[i].operands, lines[i].attributes);
        failures++;
    }
    assert_int_equal(failures, 0);
}

static bool is_exempt(const char *name)
{
    for (size_t i = 0; i < sizeof exempt / sizeof *exempt; i++)
        if (!strcmp(exempt[i][0], name)) return true;
    return false;
}

static bool ran_in_some_row(const pare_kernel *kernel)
{
    for (int i = 0; i < PARE_OP_COUNT; i++)
        for (int k = 0; pare_ops[i].cuda[k]; k++)
            if (pare_ops[i].cuda[k] == kernel && ran[i][1][k]) return true;
    return false;
}

/* Kernels of a row that no case reached. On the device some rows share kernels; there each kernel
   runs in one of them at least, and each row runs one kernel at least. */
static int missing_of(const pare_op *op, int side)
{
    const pare_kernel *const *list = side ? op->cuda : op->cpu;
    int missing = 0;
    bool any = false;
    for (int k = 0; list[k]; k++) {
        bool own = ran[op - pare_ops][side][k];
        any = any || own;
        if (own || (side && ran_in_some_row(list[k])) || is_exempt(list[k]->name)) continue;
        print_error("row %s: no case reaches its kernel %s\n", op->name, list[k]->name);
        missing++;
    }
    if (list[0] && !any)
        print_error("row %s: none of its %s kernels runs\n", op->name, side ? "device" : "CPU");
    return missing + (list[0] && !any);
}

static void every_row_and_kernel_was_reached(void **state)
{
    int missing = 0;
    (void)state;
    if (quick()) return;
    for (int i = 0; i < PARE_OP_COUNT; i++) {
        const pare_op *op = &pare_ops[i];
        if (op->cpu == pare_cpu_interpreter)
            continue; /* no kernel: tests/exec/test_interpreter.c */
        if (!op->cpu[0]) {
            print_error("row %s: it has no kernel\n", op->name);
            missing++;
        }
        missing += missing_of(op, 0);
        if (device) missing += missing_of(op, 1);
    }
    assert_int_equal(missing, 0);
}

static int open_device(void **state)
{
    (void)state;
#ifdef CASE_DEVICE
    static pare_ctx ctx;
    pare_ctx_init(&ctx);
    if (pare_device_open(&ctx, &device, "cuda") != PARE_OK) fail_msg("%s", ctx.message);
#endif
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    if (device) pare_device_close(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_short_enough),
        cmocka_unit_test(every_kernel_on_every_line),
        cmocka_unit_test(every_row_and_kernel_was_reached),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
