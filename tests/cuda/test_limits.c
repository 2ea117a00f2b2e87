/* SPDX-License-Identifier: Apache-2.0 */
/* What is larger than a grid or than 32 bits, lies where kernels cannot read it, or asks for what a
   device lacks: another kernel or the host computes it, or one error names the node. No tensor here
   is as large as its shape says but one of 2^22 columns. */
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/gemm/gemm.h"
#include "runtime/ops/ops.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

typedef struct fixture {
    graph_case g;
    pare_device *device;
    pare_view in[3], out;
    pare_prep prep;
} fixture;

static void setup(fixture *f)
{
    memset(f, 0, sizeof *f);
    graph_open(&f->g, 17);
    assert_int_equal(pare_cuda_open(&f->g.ctx, &f->device, 0, 0), PARE_OK);
}

static void teardown(fixture *f)
{
    pare_device_close(f->device);
    graph_close(&f->g);
}

/* A node "node" whose views have these shapes and no memory. */
static void node_set(fixture *f, const char *op, int inputs, const pare_shape *in,
                     const pare_shape *out)
{
    static const char *const names[] = {"", "a", "a b", "a b c"};
    const int64_t one[] = {1};
    for (int i = 0; i < inputs; i++) {
        if (!pare_graph_find_own(f->g.model->graph, (const char *[]){"a", "b", "c"}[i]))
            graph_input(&f->g, (const char *[]){"a", "b", "c"}[i], PARE_f32, 1, one);
        pare_view_set(&f->in[i], PARE_f32, &in[i], false);
    }
    pare_view_set(&f->out, PARE_f32, out, false);
    pare_node *node = graph_node(&f->g, op, names[inputs], "y");
    if (strstr(op, "ConvGrad")) node->domain = PARE_DOMAIN;
    f->prep = (pare_prep){.ctx = &f->g.ctx,
                          .node = node,
                          .in = f->in,
                          .out = &f->out,
                          .in_count = inputs,
                          .out_count = 1,
                          .threads = 1,
                          .arena = &f->g.model->arena,
                          .device = f->device,
                          .share = -1};
}

static const pare_kernel *kernel_for(const fixture *f)
{
    const pare_op *op = pare_op_of(f->prep.node);
    for (const pare_kernel *const *k = op->cuda; *k; k++)
        if (!(*k)->can || (*k)->can(&f->prep)) return *k;
    return NULL;
}

/* Of a node that was prepared. */
static pare_call call_of(fixture *f)
{
    return (pare_call){.ctx = &f->g.ctx,
                       .node = f->prep.node,
                       .in = f->in,
                       .out = &f->out,
                       .in_count = f->prep.in_count,
                       .out_count = 1,
                       .state = f->prep.state,
                       .stream = f->device->setup};
}

static bool taken(const char *op, int inputs, const pare_shape *in, pare_shape out)
{
    fixture f;
    setup(&f);
    node_set(&f, op, inputs, in, &out);
    const bool is = kernel_for(&f) != NULL;
    assert_string_equal(f.g.ctx.message, "");
    teardown(&f);
    return is;
}

#define SHAPE(n, ...)                                                                              \
    (pare_shape)                                                                                   \
    {                                                                                              \
        .rank = (n), .dim = { __VA_ARGS__ }                                                        \
    }

/* Columns are a grid's y. cuBLAS counts further, but does not take constants that are not there. */
static bool product_taken(int64_t columns, int64_t depth)
{
    const pare_shape in[] = {SHAPE(3, 3, 2, depth), SHAPE(3, 1, depth, columns)};
    fixture f;
    setup(&f);
    node_set(&f, "MatMul", 2, in, &SHAPE(3, 3, 2, columns));
    f.prep.deterministic = true; /* none of the libraries' */
    const bool is = kernel_for(&f) != NULL;
    teardown(&f);
    return is;
}

static void products_wider_than_a_grid_are_refused(void **state)
{
    (void)state;
    assert_true(product_taken(PARE_CUDA_MOST_COLUMNS, 1));
    assert_false(product_taken((int64_t)PARE_CUDA_MOST_COLUMNS + 1, 1));
    assert_false(product_taken((int64_t)1 << 33, 1));
    assert_true(product_taken(8, INT32_MAX / 8));
    assert_false(product_taken(8, (int64_t)INT32_MAX / 8 + 1));
}

static void convolutions_beyond_32_bits_are_refused(void **state)
{
    (void)state;
    const int64_t longest = INT32_MAX / 4, wide = (int64_t)65535 * 64;
    const pare_shape fits[] = {SHAPE(3, 1, 1, longest), SHAPE(3, 1, 1, 1)};
    const pare_shape long_x[] = {SHAPE(3, 1, 1, longest + 1), SHAPE(3, 1, 1, 1)};
    const pare_shape filters[] = {SHAPE(3, 1, 1, 4), SHAPE(3, wide, 1, 1)};
    const pare_shape more[] = {SHAPE(3, 1, 1, 4), SHAPE(3, wide + 1, 1, 1)};
    assert_true(taken("Conv", 2, fits, SHAPE(3, 1, 1, longest)));
    assert_false(taken("Conv", 2, long_x, SHAPE(3, 1, 1, longest + 1)));
    assert_true(taken("Conv", 2, filters, SHAPE(3, 1, wide, 4)));
    assert_false(taken("Conv", 2, more, SHAPE(3, 1, wide + 1, 4)));
}

/* The kernel of a convolution or one of its gradients whose pictures are NHWC. */
static void convolution_runs(const char *op, const pare_shape *x, const pare_shape *y,
                             const pare_shape *w, const char *expect)
{
    const bool dx = !strcmp(op, "ConvGradInput"), dw = !strcmp(op, "ConvGradWeight");
    const pare_shape in[] = {dx || dw ? *y : *x, dw ? *x : *w}, *out = dx ? x : dw ? w : y;
    fixture f;
    setup(&f);
    node_set(&f, op, 2, in, out);
    pare_view_set(&f.in[0], PARE_f32, &in[0], true);
    pare_view_set(&f.in[1], PARE_f32, &in[1], dw);
    pare_view_set(&f.out, PARE_f32, out, !dw);
    const pare_kernel *k = kernel_for(&f);
    assert_string_equal(f.g.ctx.message, "");
    assert_string_equal(k ? k->name : "none", expect);
    teardown(&f);
}

/* Filters of Y, channels of dX, and channels and taps of dW are columns; dX has filters in squares
   of 32 besides. */
static void tiles_of_convolutions_fit_a_grid(void **state)
{
    (void)state;
    const int64_t most = PARE_CUDA_MOST_COLUMNS, squares = (int64_t)65535 * 32;
    const struct {
        const char *op;
        int64_t channels, filters, taps;
        const char *expect;
    } rows[] = {
        {"Conv", 4, most, 1, "cuda_conv_tile"},
        {"Conv", 4, most + 4, 1, "none"},
        {"ConvGradInput", most, 4, 1, "cuda_conv_grad_input_tile"},
        {"ConvGradInput", most + 4, 4, 1, "none"},
        {"ConvGradInput", 4, squares, 1, "cuda_conv_grad_input_tile"},
        {"ConvGradInput", 4, squares + 4, 1, "cuda_conv_grad"},
        {"ConvGradWeight", most / 4, 4, 4, "cuda_conv_grad_weight_tile"},
        {"ConvGradWeight", most / 4 + 4, 4, 4, "none"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        convolution_runs(rows[i].op, &SHAPE(4, 1, rows[i].channels, rows[i].taps, 1),
                         &SHAPE(4, 1, rows[i].filters, 1, 1),
                         &SHAPE(4, rows[i].filters, rows[i].channels, rows[i].taps, 1),
                         rows[i].expect);
}

/* Chunks of four floats, of one image and of two: 2^30, then 2^31. */
static void windows_are_within_32_bits(void **state)
{
    (void)state;
    const int64_t side = 1 << 13;
    const struct {
        int64_t images, channels;
        const char *expect;
    } rows[] = {
        {1, 64, "cuda_conv_grad_weight_tile"},
        {1, 128, "cuda_conv_grad"},
        {2, 32, "cuda_conv_grad_weight_tile"},
        {2, 64, "cuda_conv_grad"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        convolution_runs("ConvGradWeight", &SHAPE(4, rows[i].images, rows[i].channels, side, side),
                         &SHAPE(4, rows[i].images, 4, side, side),
                         &SHAPE(4, 4, rows[i].channels, 1, 1), rows[i].expect);
}

/* A row is a warp's: more rows than a grid holds fail before anything is touched. */
static void a_grid_past_its_limit_names_the_node(void **state)
{
    (void)state;
    fixture f;
    const pare_shape huge = SHAPE(2, (int64_t)1 << 34, 1);
    setup(&f);
    node_set(&f, "Softmax", 1, &huge, &huge);
    f.in[0].data = f.out.data = &f;
    const pare_kernel *k = kernel_for(&f);
    assert_non_null(k);
    if (k->prepare) assert_int_equal(k->prepare(&f.prep), PARE_OK);
    const pare_call call = call_of(&f);
    assert_int_equal(k->run(&call), PARE_DEVICE);
    assert_non_null(strstr(f.g.ctx.message, "(Softmax), tensor 'y'"));
    assert_non_null(strstr(f.g.ctx.message, "larger than a grid"));
    if (k->release) k->release(f.prep.state);
    teardown(&f);
}

/* Runs the node's kernel, whose views have memory. */
static void kernel_runs(fixture *f)
{
    const pare_kernel *k = kernel_for(f);
    assert_non_null(k);
    if (k->prepare) assert_int_equal(k->prepare(&f->prep), PARE_OK);
    const pare_call call = call_of(f);
    assert_int_equal(k->run(&call), PARE_OK);
    CUDA_IS(cudaSuccess, cudaDeviceSynchronize());
    if (k->release) k->release(f->prep.state);
}

/* A line of bytes is repeated until they are more than 2^31. */
static void elements_past_32_bits_are_copied(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    print_message("2 GiB take this build too long\n");
    skip();
#endif
    enum { LINE = 1 << 16, LINES = (1 << 15) + 1, PAST = 16 };
    const int64_t count = (int64_t)LINE * LINES;
    const int64_t at[] = {0, 77, INT32_MAX, (int64_t)1 << 31, ((int64_t)1 << 31) + 77, count - 1};
    const pare_shape shape = SHAPE(2, LINES, LINE);
    static int8_t line[LINE], past[PAST];
    void *from, *to;
    fixture f;
    setup(&f);
    const pare_backend *memory = f.device->backend;
    assert_int_equal(memory->alloc(&f.g.ctx, f.device, &from, LINE), PARE_OK);
    assert_int_equal(memory->alloc(&f.g.ctx, f.device, &to, (size_t)count + PAST), PARE_OK);
    for (int i = 0; i < LINE; i++) line[i] = (int8_t)(i % 113);
    CUDA_IS(cudaSuccess, cudaMemcpy(from, line, LINE, cudaMemcpyHostToDevice));
    CUDA_IS(cudaSuccess, cudaMemset((char *)to + count, 99, PAST));
    node_set(&f, "Identity", 1, &shape, &shape);
    f.in[0].dtype = f.out.dtype = PARE_s8;
    f.in[0].data = from, f.in[0].stride[0] = 0, f.out.data = to;
    kernel_runs(&f);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        int8_t v;
        CUDA_IS(cudaSuccess, cudaMemcpy(&v, (char *)to + at[i], 1, cudaMemcpyDeviceToHost));
        assert_int_equal(v, at[i] % LINE % 113);
    }
    CUDA_IS(cudaSuccess, cudaMemcpy(past, (char *)to + count, PAST, cudaMemcpyDeviceToHost));
    for (int i = 0; i < PAST; i++) assert_int_equal(past[i], 99);
    memory->free(f.device, from);
    memory->free(f.device, to);
    teardown(&f);
}

/* One column more than the grid holds: the host computes the node between copies. */
static void the_host_takes_what_no_kernel_can(void **state)
{
    (void)state;
    enum { COLUMNS = PARE_CUDA_MOST_COLUMNS + 1 };
    fixture f;
    pare_plan *plan;
    pare_runner *runner;
    pare_step_info info;
    setup(&f);
    graph_input(&f.g, "x", PARE_f32, 2, (int64_t[]){1, 1});
    graph_input(&f.g, "w", PARE_f32, 2, (int64_t[]){1, COLUMNS});
    graph_node(&f.g, "MatMul", "x w", "y");
    graph_output(&f.g, "y");
    const pare_plan_options options = {.deterministic = true, .threads = 1, .device = f.device};
    assert_int_equal(pare_plan_new(&f.g.ctx, &plan, f.g.model, NULL, 0, &options), PARE_OK);
    pare_plan_step(plan, 0, &info);
    assert_string_equal(info.kernel, "host");
    assert_int_equal(pare_runner_new(&f.g.ctx, &runner, plan), PARE_OK);
    float *w = pare_runner_input(runner, 1).data;
    *(float *)pare_runner_input(runner, 0).data = 3;
    for (int i = 0; i < COLUMNS; i++) w[i] = (float)(i % 1000);
    assert_int_equal(pare_runner_run(runner), PARE_OK);
    const float *y = pare_runner_output(runner, 0).data;
    for (int i = 0; i < COLUMNS; i++)
        if (y[i] != (float)(3 * (i % 1000))) fail_msg("column %d: %g", i, (double)y[i]);
    pare_runner_free(runner);
    pare_plan_free(plan);
    teardown(&f);
}

static pare_status place(fixture *f, char *at, bool deterministic)
{
    pare_plan *plan;
    const pare_placed placed[] = {{"x", at}};
    const pare_plan_options options = {.deterministic = deterministic,
                                       .threads = 1,
                                       .device = f->device,
                                       .placed = placed,
                                       .placed_count = 1};
    pare_ctx_clear(&f->g.ctx);
    pare_status st = pare_plan_new(&f->g.ctx, &plan, f->g.model, NULL, 0, &options);
    if (st == PARE_OK) pare_plan_free(plan);
    return st;
}

static void a_misaligned_input_is_refused(void **state)
{
    (void)state;
    fixture f;
    void *memory;
    setup(&f);
    graph_input(&f.g, "x", PARE_f32, 1, (int64_t[]){8});
    graph_node(&f.g, "Relu", "x", "y");
    graph_output(&f.g, "y");
    assert_int_equal(f.device->backend->alloc(&f.g.ctx, f.device, &memory, 1024), PARE_OK);
    assert_int_equal(place(&f, memory, false), PARE_OK);
    assert_int_equal(place(&f, (char *)memory + 256, false), PARE_OK);
    assert_int_equal(place(&f, (char *)memory + 64, false), PARE_INPUT);
    assert_non_null(strstr(f.g.ctx.message, "input 'x' was placed at"));
    assert_int_equal(place(&f, (char *)memory + 64, true), PARE_OK);
    assert_int_equal(place(&f, (char *)memory + 4, true), PARE_INPUT);
    f.device->backend->free(f.device, memory);
    teardown(&f);
}

/* Launches ask for the last error. */
static void a_free_that_fails_is_forgotten(void **state)
{
    (void)state;
    fixture f;
    if (!simt_emulated()) skip();
    setup(&f);
    for (uint64_t call = 1; call <= 2; call++) { /* before the memory goes */
        void *memory;
        assert_int_equal(f.device->backend->alloc(&f.g.ctx, f.device, &memory, 1024), PARE_OK);
        simt_fail_at(call, cudaErrorUnknown, false);
        f.device->backend->free(f.device, memory);
        simt_fail_at(0, 0, false);
        CUDA_IS(cudaSuccess, cudaGetLastError());
    }
    teardown(&f);
}

static void a_device_without_pools_is_refused(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_device *device = NULL;
    pare_ctx_init(&ctx);
    if (!simt_emulated()) skip();
    simt_set.pools = false;
    assert_int_equal(pare_cuda_open(&ctx, &device, 0, 0), PARE_DEVICE);
    assert_non_null(strstr(ctx.message, "no memory pools"));
    simt_set.pools = true;
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_cuda_open(&ctx, &device, 0, 0), PARE_OK);
    pare_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(products_wider_than_a_grid_are_refused),
        device_test(convolutions_beyond_32_bits_are_refused),
        device_test(tiles_of_convolutions_fit_a_grid),
        device_test(windows_are_within_32_bits),
        device_test(a_grid_past_its_limit_names_the_node),
        device_test(elements_past_32_bits_are_copied),
        device_test(the_host_takes_what_no_kernel_can),
        device_test(a_misaligned_input_is_refused),
        device_test(a_free_that_fails_is_forgotten),
        device_test(a_device_without_pools_is_refused),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
