/* SPDX-License-Identifier: Apache-2.0 */
/* Whole nets on the (emulated) GPU against the CPU, tensor by tensor. */
#include "formats/onnx.h"
#include "runtime/cuda/cuda.h"
#include "runtime/exec/exec.h"
#include "tests/passes/qdq_case.h"
#include "tests/simt/testing.h"

#include <math.h>
#include <stdio.h>

enum { MOST = 256 };

/* What a run showed: each tensor's values as floats. */
typedef struct shown {
    char name[MOST][64];
    float *values[MOST];
    int64_t count[MOST];
    int tensors;
} shown;

static pare_status look(void *user, const pare_value *value, const pare_view *view)
{
    shown *s = user;
    if (view->dtype != PARE_f32 || s->tensors == MOST) return PARE_OK;
    size_t bytes = pare_view_bytes(view);
    snprintf(s->name[s->tensors], sizeof s->name[0], "%s", value->name);
    s->values[s->tensors] = malloc(bytes + 1);
    s->count[s->tensors] = pare_view_count(view);
    memcpy(s->values[s->tensors++], view->data, bytes);
    return PARE_OK;
}

static void shown_free(shown *s)
{
    for (int i = 0; i < s->tensors; i++) free(s->values[i]);
    free(s);
}

static void input_fill(pare_runner *runner)
{
    pare_view x = pare_runner_input(runner, 0);
    float *values = x.data;
    for (int64_t i = 0; i < pare_view_count(&x); i++) values[i] = (float)(i * 37 % 101) / 50 - 1;
}

static shown *infer(const char *path, pare_device *device)
{
    pare_ctx ctx;
    pare_model *m;
    pare_plan *plan;
    pare_runner *runner;
    pare_plan_options options = {.threads = 1, .device = device};
    pare_input_shape shape = {"input", {.rank = 4, .dim = {2, 1, 28, 28}}};
    shown *s = calloc(1, sizeof *s);
    pare_ctx_init(&ctx);
    assert_int_equal(pare_onnx_read(&ctx, &m, path), PARE_OK);
    if (pare_plan_new(&ctx, &plan, m, &shape, 1, &options) != PARE_OK) fail_msg("%s", ctx.message);
    pare_model_free(m);
    for (int i = 0; device && getenv("PARE_STEPS") && i < pare_plan_step_count(plan); i++) {
        pare_step_info step;
        pare_plan_step(plan, i, &step);
        print_message("%-24s %-20s %s\n", step.op_type, step.kernel, step.output);
    }
    if (pare_runner_new(&ctx, &runner, plan) != PARE_OK) fail_msg("%s", ctx.message);
    input_fill(runner);
    for (int run = 0; run < 4; run++) { /* plain, recorded, played, watched */
        if (run == 3) pare_runner_observe(runner, look, s);
        if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", ctx.message);
    }
    pare_runner_free(runner);
    pare_plan_free(plan);
    return s;
}

static void compare(const shown *cpu, const shown *gpu, double tolerance)
{
    assert_int_equal(cpu->tensors, gpu->tensors);
    assert_true(cpu->tensors > 2);
    for (int i = 0; i < cpu->tensors; i++) {
        double most = 1e-30, worst = 0;
        assert_string_equal(cpu->name[i], gpu->name[i]);
        assert_true(cpu->count[i] == gpu->count[i]);
        for (int64_t k = 0; k < cpu->count[i]; k++) {
            double a = (double)cpu->values[i][k], b = (double)gpu->values[i][k];
            most = fmax(most, fabs(a));
            if (!(fabs(a - b) <= worst)) worst = fabs(a - b); /* NaN stays */
        }
        if (!(worst <= tolerance * most))
            fail_msg("tensor %s differs by %g of %g", cpu->name[i], worst, most);
    }
}

static void net_matches(const char *path)
{
    pare_ctx ctx;
    pare_device *device;
    pare_ctx_init(&ctx);
    if (pare_cuda_open(&ctx, &device, 0, 0) != PARE_OK) fail_msg("%s", ctx.message);
    shown *cpu = infer(path, NULL), *gpu = infer(path, device);
    compare(cpu, gpu, 1e-5);
    device->backend->close(device);
    shown_free(cpu);
    shown_free(gpu);
}

static void mlp_is_as_on_the_cpu(void **state)
{
    (void)state;
    net_matches("datasets/zoo/mlp.onnx");
}

static void cnn_is_as_on_the_cpu(void **state)
{
    (void)state;
    net_matches("datasets/zoo/cnn.onnx");
}

enum { ROWS = 5, STREAM = ROWS * QDQ_WIDTH };

/* kept: a tensor to be observed; NULL: none. */
static void stream_infer(graph_case *g, pare_device *device, const char *kept, float *y)
{
    pare_plan *plan;
    pare_runner *runner;
    const pare_plan_options options = {
        .threads = 1, .device = device, .keep = &kept, .keep_count = kept != NULL};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    float *x = pare_runner_input(runner, 0).data;
    for (int i = 0; i < STREAM; i++) x[i] = (float)(i * 37 % 101) / 13 - 4;
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    memcpy(y, pare_runner_output(runner, 0).data, STREAM * sizeof *y);
    pare_runner_free(runner);
    pare_plan_free(plan);
}

/* Also while a tensor is observed, where products make f32. */
static void f16_residuals_are_the_cpus_bytes(void **state)
{
    (void)state;
    graph_case g;
    pare_device *device;
    float cpu[STREAM], gpu[STREAM];
    qdq_stream(&g, ROWS);
    if (pare_cuda_open(&g.ctx, &device, 0, 0) != PARE_OK) fail_msg("%s", g.ctx.message);
    stream_infer(&g, NULL, NULL, cpu);
    stream_infer(&g, device, NULL, gpu);
    assert_memory_equal(gpu, cpu, sizeof cpu);
    stream_infer(&g, device, "b", gpu);
    assert_memory_equal(gpu, cpu, sizeof cpu);
    device->backend->close(device);
    graph_close(&g);
}

static void vit_is_as_on_the_cpu(void **state)
{
    (void)state;
    net_matches("datasets/zoo/vit.onnx");
}

static void mobilenet_is_as_on_the_cpu(void **state)
{
    (void)state;
    net_matches("datasets/zoo/mobilenet.onnx");
}

/* PARE_NETS=large: those that take seconds. */
int main(void)
{
    const struct CMUnitTest small[] = {
        device_test(mlp_is_as_on_the_cpu),
        device_test(cnn_is_as_on_the_cpu),
        device_test(f16_residuals_are_the_cpus_bytes),
    };
    const struct CMUnitTest large[] = {
        device_test(vit_is_as_on_the_cpu),
        device_test(mobilenet_is_as_on_the_cpu),
    };
    const char *which = getenv("PARE_NETS");
    if (which && !strcmp(which, "large")) return cmocka_run_group_tests(large, NULL, NULL);
    return cmocka_run_group_tests(small, NULL, NULL);
}
