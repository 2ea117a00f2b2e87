/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on a device whose memory the host cannot touch: every step runs on the host between copies,
   and results, observed tensors and times are as on the CPU. */
#include "formats/onnx.h"
#include "runtime/exec/exec.h"
#include "tests/exec/fake_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct seen {
    uint64_t sum; /* of the bytes of all observed tensors, with their names */
    int count;
} seen;

static pare_status look(void *user, const pare_value *value, const pare_view *view)
{
    seen *s = user;
    const unsigned char *bytes = view->data;
    for (const char *c = value->name; *c; c++) s->sum = s->sum * 31 + (unsigned char)*c;
    for (size_t i = 0; i < pare_view_bytes(view); i++) s->sum = s->sum * 31 + bytes[i];
    s->count++;
    return PARE_OK;
}

static void input_fill(pare_runner *runner)
{
    pare_view x = pare_runner_input(runner, 0);
    float *values = x.data;
    for (int64_t i = 0; i < pare_view_count(&x); i++) values[i] = (float)(i * 37 % 101) / 50 - 1;
}

typedef struct result {
    float logits[20];
    seen seen;
    double slowest;
} result;

/* Two images through a model, three times: plain, plain again, observed and timed. */
static pare_status infer(pare_ctx *ctx, const pare_model *m, pare_device *device, result *out)
{
    pare_plan_options options = {.threads = 1, .device = device};
    pare_input_shape shape = {"input", {.rank = 4, .dim = {2, 1, 28, 28}}};
    pare_plan *plan = NULL;
    pare_runner *runner = NULL;
    double times[512] = {0};
    pare_status st = pare_plan_new(ctx, &plan, m, &shape, 1, &options);
    if (st == PARE_OK) st = pare_runner_new(ctx, &runner, plan);
    if (st == PARE_OK) {
        assert_in_range(pare_plan_step_count(plan), 1, 512);
        input_fill(runner);
        st = pare_runner_run(runner);
    }
    if (st == PARE_OK) st = pare_runner_run(runner);
    if (st == PARE_OK) {
        memcpy(out->logits, pare_runner_output(runner, 0).data, sizeof out->logits);
        pare_runner_observe(runner, look, &out->seen);
        pare_runner_profile(runner, times);
        st = pare_runner_run(runner);
    }
    for (int i = 0; i < 512; i++)
        if (times[i] > out->slowest) out->slowest = times[i];
    pare_runner_free(runner);
    pare_plan_free(plan);
    return st;
}

static void model_matches(const char *path)
{
    pare_ctx ctx;
    pare_model *m;
    fake_device fake;
    fake_counts counts;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_onnx_read(&ctx, &m, path), PARE_OK);
    fake_device_open(&fake, &counts);
    result cpu = {0}, there = {0};
    assert_int_equal(infer(&ctx, m, NULL, &cpu), PARE_OK);
    assert_int_equal(infer(&ctx, m, &fake.device, &there), PARE_OK);
    assert_memory_equal(cpu.logits, there.logits, sizeof cpu.logits);
    assert_true(cpu.seen.count > 1);
    assert_int_equal(cpu.seen.count, there.seen.count);
    assert_true(cpu.seen.sum == there.seen.sum);
    assert_true(there.slowest > 0);
    assert_true(counts.uploads > 0 && counts.downloads > 0);
    assert_int_equal(counts.blocks | counts.streams | counts.pinned | counts.events, 0);
    pare_model_free(m);
}

static void a_convolutional_net_runs_as_on_the_cpu(void **state)
{
    (void)state;
    model_matches("datasets/zoo/resnet.onnx");
}

static void a_transformer_runs_as_on_the_cpu(void **state)
{
    (void)state;
    model_matches("datasets/zoo/vit.onnx");
}

static void each_failing_call_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_model *m;
    fake_device fake;
    fake_counts counts;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_onnx_read(&ctx, &m, "datasets/zoo/mlp.onnx"), PARE_OK);
    pare_status st = PARE_DEVICE;
    long n = 0;
    for (; st != PARE_OK && n < 1000; n++) {
        result r = {0};
        fake_device_open(&fake, &counts);
        counts.fail_after = n;
        pare_ctx_clear(&ctx);
        st = infer(&ctx, m, &fake.device, &r);
        assert_true(st == PARE_OK || st == PARE_DEVICE);
        assert_true(st == PARE_OK || strstr(ctx.message, "told to fail"));
        assert_int_equal(counts.blocks | counts.streams | counts.pinned | counts.events, 0);
    }
    assert_int_equal(st, PARE_OK);
    assert_true(n > 20);
    pare_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolutional_net_runs_as_on_the_cpu),
        cmocka_unit_test(a_transformer_runs_as_on_the_cpu),
        cmocka_unit_test(each_failing_call_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
