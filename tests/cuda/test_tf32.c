/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 where the device allows TF32. Every number is 1 and a few bits behind it, so that
   sums of f32 are exact, and so are sums of factors that lost the bits that TF32 has not. */
#include "runtime/cuda/cuda.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <math.h>
#include <unistd.h>

enum { ROWS = 8, DEPTH = 64, COLUMNS = 32 };

/* Twelve bits behind the point. */
static float x_at(int i) { return 1 + (float)(i % 7) * 0x1p-12f; }

/* Ten: to nearest, ties away from 0. */
static float tf32(float v) { return floorf(v * 0x1p10f + 0.5f) * 0x1p-10f; }

typedef enum model_kind { CONSTANT, COMPUTED, CONV } model_kind;

static void model_make(graph_case *g, model_kind kind)
{
    static float ones[DEPTH * COLUMNS];
    for (int i = 0; i < DEPTH * COLUMNS; i++) ones[i] = 1;
    graph_open(g, 17);
    switch (kind) {
    case CONSTANT:
        graph_input(g, "x", PARE_f32, 2, (int64_t[]){ROWS, DEPTH});
        graph_floats(g, "w", 2, (int64_t[]){DEPTH, COLUMNS}, ones);
        graph_node(g, "MatMul", "x w", "y");
        break;
    case COMPUTED: /* two products side by side, rows of x */
        graph_input(g, "x", PARE_f32, 3, (int64_t[]){2, ROWS / 2, DEPTH});
        graph_input(g, "v", PARE_f32, 3, (int64_t[]){2, DEPTH, COLUMNS});
        graph_node(g, "MatMul", "x v", "y");
        break;
    case CONV: /* pixels are rows, channels are together after the layout pass */
        graph_input(g, "x", PARE_f32, 4, (int64_t[]){1, DEPTH, 2, ROWS / 2});
        graph_floats(g, "w", 4, (int64_t[]){COLUMNS, DEPTH, 1, 1}, ones);
        graph_node(g, "Conv", "x w", "y");
        break;
    }
    graph_output(g, "y");
}

/* sums: what each row of y is expected to be. */
static void inputs_fill(pare_runner *runner, model_kind kind, bool rounded, float sums[ROWS])
{
    float *x = pare_runner_input(runner, 0).data;
    for (int r = 0; r < ROWS; r++) {
        sums[r] = 0;
        for (int k = 0; k < DEPTH; k++) {
            const float v = x_at(r * DEPTH + k);
            x[kind == CONV ? k * ROWS + r : r * DEPTH + k] = v;
            sums[r] += rounded ? tf32(v) : v;
        }
    }
    if (kind != COMPUTED) return;
    float *w = pare_runner_input(runner, 1).data;
    for (int i = 0; i < 2 * DEPTH * COLUMNS; i++) w[i] = 1;
}

/* Of convolutions the library's kernels are behind our own: a timing cache that says otherwise. */
static void library_prefer(graph_case *g, pare_device *device, const char *folder)
{
    char path[64], text[2048] = "";
    pare_plan *plan;
    const pare_plan_options options = {
        .threads = 1, .tune = true, .cache_dir = folder, .device = device};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    pare_plan_free(plan);
    snprintf(path, sizeof path, "%s/timing.json", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    char *name = strstr(text, "\"cuda_conv_");
    assert_non_null(name);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%.*s\"cublaslt_conv_0%s", (int)(name - text), text, strchr(name + 1, '"'));
    fclose(file);
}

static void check_kind(model_kind kind, bool allowed, bool deterministic)
{
    graph_case g;
    pare_device *device;
    pare_plan *plan;
    pare_runner *runner;
    float sums[ROWS];
    model_make(&g, kind);
    assert_int_equal(pare_cuda_open(&g.ctx, &device, 0, 0), PARE_OK);
    assert_false(device->tf32);
    device->tf32 = allowed;
    char folder[] = "/tmp/pare-tf32-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/timing.json", folder);
    if (kind == CONV && !deterministic) library_prefer(&g, device, folder);
    const pare_plan_options options = {
        .threads = 1, .deterministic = deterministic, .cache_dir = folder, .device = device};
    if (pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    assert_int_equal(pare_runner_new(&g.ctx, &runner, plan), PARE_OK);
    inputs_fill(runner, kind, allowed && (!deterministic || kind != COMPUTED), sums);
    assert_int_equal(pare_runner_run(runner), PARE_OK);
    const float *y = pare_runner_output(runner, 0).data;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            const float got = y[kind == CONV ? c * ROWS + r : r * COLUMNS + c];
            if (got != sums[r])
                fail_msg("kind %d, row %d: %.9g, not %.9g", kind, r, (double)got, (double)sums[r]);
        }
    pare_runner_free(runner);
    pare_plan_free(plan);
    pare_device_close(device);
    graph_close(&g);
    unlink(path);
    rmdir(folder);
}

static void rounds_factors_where_it_is_allowed(void **state)
{
    (void)state;
    for (int kind = CONSTANT; kind <= CONV; kind++) check_kind((model_kind)kind, true, false);
}

static void is_off_unless_asked_for(void **state)
{
    (void)state;
    for (int kind = CONSTANT; kind <= CONV; kind++) check_kind((model_kind)kind, false, false);
}

/* Our own kernels round, for constant weights; the libraries have no part in it. */
static void rounds_in_deterministic_execution(void **state)
{
    (void)state;
    for (int kind = CONSTANT; kind <= CONV; kind++) check_kind((model_kind)kind, true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(rounds_factors_where_it_is_allowed),
        device_test(is_off_unless_asked_for),
        device_test(rounds_in_deterministic_execution),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
