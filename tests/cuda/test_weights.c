/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 with weights of 4 and 8 bits on the device: its kernels against the CPU's plain
   one, a plan that keeps such weights small, sums that do not depend on the rows beside them, and
   calls that fail. PARE_EXACT=quick: a part of the cases. */
#include "runtime/base/minifloat.h"
#include "runtime/cuda/cuda.h"
#include "tests/cpu/kernel_case.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <math.h>

typedef struct product {
    pare_dtype type;
    int64_t rows, depth, columns, block; /* block 0: a scale for all of a column */
} product;

static bool is_float(pare_dtype type) { return type == PARE_f8e4m3 || type == PARE_f4e2m1; }

/* NaN is the one code that a product cannot be compared with. */
static void numbers_keep(pare_dtype type, uint8_t *code, int64_t count)
{
    for (int64_t i = 0; type == PARE_f8e4m3 && i < count; i++)
        if ((code[i] & 0x7f) == 0x7f) code[i] ^= 1;
}

/* --- kernels --- */

/* Scales that make sums of about 1. */
static void scales_add(kernel_case *k, const product *p, bool turned, bool one)
{
    const int64_t groups = p->block ? (p->depth + p->block - 1) / p->block : 1, single = 1;
    const int64_t dims[2] = {turned ? p->columns : groups, turned ? groups : p->columns};
    const float unit =
        p->type == PARE_f8e4m3 || p->type == PARE_s8 || p->type == PARE_u8 ? 0.001f : 0.02f;
    float *scale = case_input(k, PARE_f32, one ? 1 : 2, one ? &single : dims, true, 0, 1);
    for (int64_t i = 0; i < pare_view_count(&k->in[4]); i++) scale[i] *= unit;
}

/* Ways of cuBLASLt that take it: the stub knows two. */
static int library_runs(const product *p, unsigned how)
{
    const bool empty = !p->rows || !p->depth || !p->columns, computed = (how & 5) == 4;
    const bool passes = !(how & 128) || p->columns % 4 == 0; /* of whole vectors */
    return !empty && !computed && passes && !(how & 64) ? 2 : 0;
}

/* One product on every kernel of the device that takes it, `ours` of them our own; bits of `how`:
   transB and a constant bias, zero points, bias, residual, one scale for all, batches,
   deterministic, GELU. */
static void product_check(const product *p, unsigned how, int ours)
{
    kernel_case k;
    const bool turned = how & 1, zeros = how & 2 && !is_float(p->type),
               one = (how & 16 && !p->block) || !p->depth;
    const int64_t w[2] = {turned ? p->columns : p->depth, turned ? p->depth : p->columns};
    const int64_t batch = how & 32 ? 3 : 1, x[3] = {batch, p->rows, p->depth},
                  y[3] = {batch, p->rows, p->columns};
    case_open(&k, "pare", "FusedMatMul", (uint64_t)(p->depth * 131 + p->columns) + how);
    case_input(&k, PARE_f32, 3, x, false, 0, 1);
    uint8_t *code = case_input(&k, p->type, 2, w, true, p->type == PARE_s8 ? -128 : 0,
                               p->type == PARE_u8 ? 255 : 127);
    numbers_keep(p->type, code, p->depth * p->columns);
    case_input(&k, how & 4 ? PARE_f32 : PARE_NOTYPE, 1, &p->columns, how & 1, 0, 1);
    case_input(&k, how & 8 ? PARE_f32 : PARE_NOTYPE, 3, y, false, 0, 2);
    scales_add(&k, p, turned, one);
    if (zeros) {
        int64_t dims[2] = {k.in[4].dim[0], k.in[4].dim[1]};
        case_input(&k, p->type, k.in[4].rank, dims, true, p->type == PARE_s8 ? -20 : 100,
                   p->type == PARE_s8 ? 20 : 160);
    }
    case_set_int(&k, "transB", turned);
    if (p->block) case_set_int(&k, "block_size", p->block);
    assert_int_equal(pare_node_set_string(k.node, "activation", how & 128 ? "gelu" : "relu"),
                     PARE_OK);
    k.deterministic = (how & 64) != 0;
    case_check_libraries(&k, ours, library_runs(p, how));
}

static const pare_dtype formats[] = {PARE_s4, PARE_u4, PARE_s8, PARE_u8, PARE_f4e2m1, PARE_f8e4m3};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Depths around chunks (16 and 32 numbers) and pieces (512 and 1,024), columns that fill no block,
   groups that chunks cross. */
static void kernels_agree(void **state)
{
    (void)state;
    static const product shapes[] = {
        {0, 1, 1, 1, 0},      {0, 1, 31, 9, 0},      {0, 1, 64, 17, 32},  {0, 2, 33, 7, 32},
        {0, 3, 96, 8, 16},    {0, 4, 130, 70, 64},   {0, 5, 77, 5, 5},    {0, 8, 128, 13, 32},
        {0, 9, 100, 65, 128}, {0, 17, 1030, 3, 256}, {0, 1, 2085, 9, 32}, {0, 2, 515, 11, 7},
        {0, 70, 48, 66, 16},  {0, 1, 1024, 4, 1},    {0, 3, 40, 6, 1000}, {0, 2, 0, 5, 0},
        {0, 0, 16, 5, 16},    {0, 2, 16, 0, 0},
    };
    unsigned how = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f = 0; f < FORMATS; f++) {
            product p = shapes[i];
            p.type = formats[f];
            how = how * 5 + 27;
            if (case_is_quick() && how / 8 % 4) continue;
            const int64_t rows = p.rows * (how & 32 ? 3 : 1);
            const int ours = rows > 64 || how & 64 ? 1 : 2;
            product_check(&p, how & 255, ours);
        }
}

/* --- plans --- */

enum { DEPTH = 224, COLUMNS = 120, BLOCK = 32, LEVELS = DEPTH * COLUMNS };

static pare_device *device;
static size_t device_bytes; /* asked for since it was set to 0 */
static pare_backend counting;

static pare_status counted_alloc(pare_ctx *ctx, pare_device *d, void **out, size_t bytes)
{
    device_bytes += bytes;
    return pare_cuda_backend.alloc(ctx, d, out, bytes);
}

static void device_open(pare_ctx *ctx)
{
    if (pare_cuda_open(ctx, &device, 0, 0) != PARE_OK) fail_msg("%s", ctx->message);
    counting = *device->backend;
    counting.alloc = counted_alloc;
    device->backend = &counting;
    device_bytes = 0;
}

static void constant(graph_case *g, const char *name, pare_dtype type, int rank,
                     const int64_t *dims, const void *data)
{
    pare_value *v;
    assert_int_equal(pare_init_new(g->model->graph, &v, name, type, rank, dims, data), PARE_OK);
}

/* x (rows, depth) times a dequantized constant in blocks (powers: whose scales are powers of two)
   or with a scale a column, plus a bias. */
static void graph_make(graph_case *g, pare_dtype type, int64_t rows, bool blocked, bool powers)
{
    static uint8_t code[LEVELS], power[DEPTH / BLOCK * COLUMNS];
    static float scale[DEPTH / BLOCK * COLUMNS];
    const int64_t groups = blocked ? DEPTH / BLOCK : 1, dims[2] = {groups, COLUMNS};
    const float unit = pare_type(type)->bits == 4 ? 0.01f : 0.0005f; /* sums of about 1 */
    uint32_t seed = 5;
    for (int i = 0; i < LEVELS; i++) code[i] = (uint8_t)test_random(&seed);
    numbers_keep(type, code, LEVELS);
    for (int i = 0; i < groups * COLUMNS; i++) {
        scale[i] = unit * (1 + 0.01f * (float)(test_random(&seed) % 50));
        power[i] = (uint8_t)(120 + test_random(&seed) % 4);
    }
    graph_open(g, 24);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){rows, DEPTH});
    constant(g, "q", type, 2, (int64_t[]){DEPTH, COLUMNS}, code);
    constant(g, "s", powers ? PARE_f8e8m0 : PARE_f32, blocked ? 2 : 1, blocked ? dims : dims + 1,
             powers ? (const void *)power : scale);
    graph_floats(g, "b", 1, dims + 1, scale);
    pare_node *dq = graph_node(g, "DequantizeLinear", "q s", "w");
    assert_int_equal(pare_node_set_int(dq, "axis", blocked ? 0 : 1), PARE_OK);
    if (blocked) assert_int_equal(pare_node_set_int(dq, "block_size", BLOCK), PARE_OK);
    if (powers) assert_int_equal(pare_node_set_int(dq, "output_dtype", PARE_f32), PARE_OK);
    graph_node(g, "MatMul", "x w", "m");
    graph_node(g, "Add", "m b", "y");
    graph_output(g, "y");
}

static pare_status plan_make(graph_case *g, pare_plan **out, int64_t rows, bool deterministic)
{
    const pare_input_shape shape = {"x", {.rank = 2, .dim = {rows, DEPTH}}};
    const pare_plan_options options = {
        .threads = 1, .device = device, .deterministic = deterministic};
    return pare_plan_new(&g->ctx, out, g->model, &shape, 1, &options);
}

/* Row r of x is the same in every product. */
static void rows_fill(float *x, int64_t rows)
{
    uint32_t seed = 17;
    for (int64_t i = 0; i < rows * DEPTH; i++)
        x[i] = (float)(test_random(&seed) % 2001) * 0.001f - 1;
}

static void plan_run(graph_case *g, const pare_plan *plan, int64_t rows, float *y)
{
    pare_runner *r;
    if (pare_runner_new(&g->ctx, &r, plan) != PARE_OK) fail_msg("%s", g->ctx.message);
    rows_fill(pare_runner_input(r, 0).data, rows);
    if (pare_runner_run(r) != PARE_OK) fail_msg("%s", g->ctx.message);
    memcpy(y, pare_runner_output(r, 0).data, (size_t)(rows * COLUMNS) * sizeof *y);
    pare_runner_free(r);
}

static void same(const float *want, const float *got, int64_t count)
{
    float largest = 1;
    for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(want[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(want[i] - got[i]) <= 1e-5f * largest))
            fail_msg("element %d is %.9g, expected %.9g", (int)i, (double)got[i], (double)want[i]);
}

/* A plan takes the kernel, and asks the device for the weights' own bytes, their scales and what
   one activation of each kind needs: less than half of f32 weights. */
static void plans_keep_weights_small(void **state)
{
    (void)state;
    static const struct {
        pare_dtype type;
        bool blocked, powers;
    } cases[] = {{PARE_s4, true, false},     {PARE_u4, true, false},     {PARE_s8, false, false},
                 {PARE_s8, true, false},     {PARE_u8, false, false},    {PARE_f4e2m1, true, true},
                 {PARE_f4e2m1, true, false}, {PARE_f8e4m3, false, false}};
    enum { MOST = 70 };
    static float want[MOST * COLUMNS], got[MOST * COLUMNS], x[MOST * DEPTH];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int rows = 3; rows <= MOST; rows += MOST - 3) {
            graph_case g;
            pare_plan *plan;
            pare_step_info step;
            graph_make(&g, cases[i].type, rows, cases[i].blocked, cases[i].powers);
            device_open(&g.ctx);
            if (plan_make(&g, &plan, rows, false) != PARE_OK) fail_msg("%s", g.ctx.message);
            assert_int_equal(pare_plan_step_count(plan), 1);
            pare_plan_step(plan, 0, &step);
            assert_string_equal(step.kernel, rows <= 64             ? "cuda_matmul_weights_few"
                                             : case_has_libraries() ? "cublaslt_0"
                                                                    : "cuda_matmul_weights");
            const size_t groups = cases[i].blocked ? DEPTH / BLOCK : 1;
            const size_t bits = (size_t)pare_type(cases[i].type)->bits;
            assert_in_range(device_bytes, LEVELS * bits / 8,
                            LEVELS * bits / 8 + groups * COLUMNS * 5 + COLUMNS * 4 + 2048);
            plan_run(&g, plan, rows, got);
            rows_fill(x, rows);
            graph_run(&g, 2, (int64_t[]){rows, DEPTH}, x, want, (int64_t)rows * COLUMNS);
            same(want, got, (int64_t)rows * COLUMNS);
            pare_plan_free(plan);
            pare_device_close(device);
            graph_close(&g);
        }
}

/* E4M3's NaN, and zero points of a float format, are f32 as before. */
static void a_nan_stays_one(void **state)
{
    (void)state;
    graph_case g;
    pare_plan *plan;
    float y[COLUMNS];
    graph_make(&g, PARE_f8e4m3, 1, false, false);
    const pare_tensor *q = graph_value(&g, "q")->data;
    ((uint8_t *)(uintptr_t)q->data)[3] = 0xff;
    device_open(&g.ctx);
    if (plan_make(&g, &plan, 1, false) != PARE_OK) fail_msg("%s", g.ctx.message);
    plan_run(&g, plan, 1, y);
    for (int i = 0; i < COLUMNS; i++) assert_int_equal(isnan(y[i]) != 0, i == 3);
    pare_plan_free(plan);
    pare_device_close(device);
    graph_close(&g);
}

/* The first row alone and among others; deterministic: with any number of them. */
static void sums_do_not_depend_on_other_rows(void **state)
{
    (void)state;
    static const int rows[] = {1, 2, 3, 8, 33, 70};
    static float one[COLUMNS], all[70 * COLUMNS];
    for (int f = 0; f < FORMATS; f++)
        for (int deterministic = 0; deterministic < 2; deterministic++)
            for (int i = 0; i < (deterministic ? 6 : 5); i++) {
                graph_case g;
                pare_plan *plan;
                graph_make(&g, formats[f], rows[i], true, false);
                device_open(&g.ctx);
                if (plan_make(&g, &plan, rows[i], deterministic) != PARE_OK)
                    fail_msg("%s", g.ctx.message);
                plan_run(&g, plan, rows[i], all);
                if (i == 0) memcpy(one, all, sizeof one);
                assert_memory_equal(all, one, sizeof one);
                pare_plan_free(plan);
                pare_device_close(device);
                graph_close(&g);
            }
}

/* Makes a plan while a call of the device (after < 0), or an allocation of the host after so many,
   fails. */
static pare_status plan_fail(pare_dtype type, uint64_t call, long after)
{
    graph_case g;
    pare_plan *plan = NULL;
    graph_make(&g, type, 2, true, type == PARE_f4e2m1);
    device_open(&g.ctx);
    g.ctx.fail_after = after;
    if (call) simt_fail_at(call, cudaErrorMemoryAllocation, false);
    const pare_status st = plan_make(&g, &plan, 2, false);
    simt_fail_at(0, 0, false);
    g.ctx.fail_after = -1;
    assert_true(st == PARE_OK || (*g.ctx.message && !plan));
    assert_true(st == PARE_OK || st == PARE_MEMORY);
    pare_plan_free(plan);
    pare_device_close(device);
    graph_close(&g);
    return st;
}

/* Calls of the device and allocations of the host that fail while a plan is made: a status and a
   message, nothing lost. cuBLAS is done without. */
static void failures_are_passed_on(void **state)
{
    (void)state;
    if (!simt_emulated()) skip();
    const uint64_t before = simt_calls();
    assert_int_equal(plan_fail(PARE_u4, 0, -1), PARE_OK);
    const uint64_t calls = simt_calls() - before;
    int failed = 0;
    for (uint64_t n = 1; n <= calls; n++) failed += plan_fail(PARE_u4, n, -1) != PARE_OK;
    assert_in_range(failed, 3, calls);
    long after = 0;
    while (plan_fail(PARE_f4e2m1, 0, after) != PARE_OK) after++;
    assert_in_range(after, 20, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(kernels_agree),          device_test(plans_keep_weights_small),
        device_test(a_nan_stays_one),        device_test(sums_do_not_depend_on_other_rows),
        device_test(failures_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
