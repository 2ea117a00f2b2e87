/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner on the device, or the emulated one, whose clock counts pieces of work: kernels that
   fill their output so many times. */
#include "runtime/cuda/cuda.h"
#include "runtime/exec/plan.h"
#include "tests/simt/testing.h"

#include <unistd.h>

static int runs;
static bool looked;

static pare_status fill_times(const pare_call *c, int times)
{
    for (int i = 0; i < times; i++)
        PARE_TRY(c->stream->device->backend->fill(c->ctx, c->stream, c->out[0].data, i,
                                                  pare_view_bytes(&c->out[0])));
    runs++;
    return PARE_OK;
}

static pare_status run_often(const pare_call *c) { return fill_times(c, 9); }
static pare_status run_once(const pare_call *c) { return fill_times(c, 1); }
static pare_status run_thrice(const pare_call *c) { return fill_times(c, 3); }

/* Adds a constant, which must be on the device: looked at in the first run, which nobody times. */
static pare_status run_constant(const pare_call *c)
{
    if (looked) return run_once(c);
    looked = true;
    float x[4];
    const pare_backend *b = c->stream->device->backend;
    PARE_TRY(b->download(c->ctx, c->stream, x, c->in[1].data, sizeof x));
    PARE_TRY(b->sync(c->ctx, c->stream));
    for (int i = 0; i < 4; i++) assert_true(x[i] == (float)i + 0.5f);
    return run_once(c);
}

static pare_status refuse(const pare_call *c) { return PARE_FAIL(c->ctx, DEVICE, "told to fail"); }
static pare_status no_memory(pare_prep *p) { return PARE_FAIL(p->ctx, MEMORY, "no room"); }

static const pare_kernel often = {.name = "often", .run = run_often};
static const pare_kernel once = {.name = "once", .run = run_once};
static const pare_kernel thrice = {.name = "thrice", .run = run_thrice};
static const pare_kernel constant = {.name = "constant", .run = run_constant};
static const pare_kernel failing = {.name = "failing", .run = refuse};
static const pare_kernel hungry = {.name = "hungry", .prepare = no_memory, .run = run_once};

typedef struct fixture {
    pare_ctx ctx;
    pare_device *device;
    pare_model *model;
    pare_view in[2], out;
    pare_prep prep;
    char folder[32], file[64];
} fixture;

static const float half[4] = {0.5f, 1.5f, 2.5f, 3.5f};

static void setup(fixture *f)
{
    pare_value *x[2], *y;
    pare_node *node;
    memset(f, 0, sizeof *f);
    pare_ctx_init(&f->ctx);
    assert_int_equal(pare_cuda_open(&f->ctx, &f->device, 0, 0), PARE_OK);
    assert_int_equal(pare_model_new(&f->ctx, &f->model, "tune.onnx"), PARE_OK);
    assert_int_equal(pare_value_new(f->model->graph, &x[0], "x"), PARE_OK);
    assert_int_equal(pare_value_new(f->model->graph, &x[1], "c"), PARE_OK);
    assert_int_equal(pare_value_new(f->model->graph, &y, "y"), PARE_OK);
    assert_int_equal(pare_node_new(f->model->graph, &node, 0, "Add", "", "a", x, 2, &y, 1),
                     PARE_OK);
    pare_view_set(&f->in[0], PARE_f32, &(pare_shape){.rank = 1, .dim = {4}}, false);
    f->in[1] = f->out = f->in[0];
    f->in[1].data = (void *)half;
    f->prep = (pare_prep){.ctx = &f->ctx,
                          .node = node,
                          .in = f->in,
                          .out = &f->out,
                          .in_count = 2,
                          .out_count = 1,
                          .threads = 1,
                          .share = -1,
                          .device = f->device};
    strcpy(f->folder, "/tmp/pare-tune-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->file, sizeof f->file, "%s/timing.json", f->folder);
    runs = 0;
    looked = false;
}

static void teardown(fixture *f)
{
    unlink(f->file);
    rmdir(f->folder);
    pare_model_free(f->model);
    pare_device_close(f->device);
}

static const char *choose(fixture *f, bool tune, const pare_kernel *const *list)
{
    pare_tuner *tuner;
    const pare_kernel *chosen;
    pare_plan_options options = {.tune = tune, .cache_dir = f->folder, .device = f->device};
    assert_int_equal(pare_tuner_open(&f->ctx, &tuner, &options), PARE_OK);
    if (pare_tuner_choose(tuner, &f->prep, list, &chosen) != PARE_OK) {
        pare_tuner_discard(tuner);
        return "";
    }
    assert_int_equal(pare_tuner_close(tuner), PARE_OK);
    return chosen->name;
}

static void the_devices_own_clock_decides_once(void **state)
{
    (void)state;
    fixture f;
    static const pare_kernel *const list[] = {&often, &thrice, &constant, NULL};
    setup(&f);
    assert_string_equal(choose(&f, false, list), "often");
    assert_int_equal(runs, 0);
    assert_string_equal(choose(&f, true, list), "constant");
    assert_true(runs > 0);
    assert_true(looked);
    runs = 0;
    assert_string_equal(choose(&f, true, list), "constant");
    assert_string_equal(choose(&f, false, list), "constant");
    assert_int_equal(runs, 0);
    teardown(&f);
}

/* The key holds shape, type, device, driver and the list of kernels. */
static void another_key_is_timed_again(void **state)
{
    (void)state;
    fixture f;
    static const pare_kernel *const list[] = {&often, &once, NULL};
    static const pare_kernel *const longer[] = {&often, &once, &thrice, NULL};
    setup(&f);
    f.prep.in_count = 1;
    choose(&f, true, list);
    for (int change = 0; change < 5; change++) {
        if (change == 0) f.in[0].dim[0] = f.out.dim[0] = 3;
        if (change == 1) f.in[0].dtype = f.out.dtype = PARE_f16;
        if (change == 2) strcpy(f.device->name, "Another GPU (sm_80)");
        if (change == 3) strcpy(f.device->driver, "14.1");
        runs = 0;
        assert_string_equal(choose(&f, true, change == 4 ? longer : list), "once");
        assert_true(runs > 0);
        runs = 0;
        assert_string_equal(choose(&f, true, change == 4 ? longer : list), "once");
        assert_int_equal(runs, 0);
    }
    teardown(&f);
}

/* Opens the device again, as another process does. */
static void reopen(fixture *f)
{
    pare_device_close(f->device);
    assert_int_equal(pare_cuda_open(&f->ctx, &f->device, 0, 0), PARE_OK);
    f->prep.device = f->device;
}

static int times_of(fixture *f, const pare_kernel *const *list)
{
    runs = 0;
    assert_string_equal(choose(f, true, list), "once");
    return runs;
}

/* A library of another version may have another choice of algorithms behind the same name. */
static void another_library_is_timed_again(void **state)
{
    (void)state;
    fixture f;
    static const pare_kernel *const list[] = {&often, &once, NULL};
    const int version = simt_set.blas;
    setup(&f);
    f.prep.in_count = 1;
    assert_true(times_of(&f, list) > 0);
    reopen(&f);
    assert_int_equal(times_of(&f, list), 0);
    f.device->tf32 = true;
    assert_true(times_of(&f, list) > 0);
    f.device->tf32 = false;
    assert_int_equal(times_of(&f, list), 0);
    strcpy(f.device->versions, "driver 1, cuBLAS 2, cuBLASLt 3");
    assert_true(times_of(&f, list) > 0);
    if (simt_emulated()) {
        simt_set.blas = 130200;
        reopen(&f);
        assert_true(times_of(&f, list) > 0);
        assert_non_null(strstr(f.device->versions, "cuBLAS 13.2.0, cuBLASLt 13.2.0"));
        assert_int_equal(times_of(&f, list), 0);
        simt_set.blas = version;
        reopen(&f);
        assert_int_equal(times_of(&f, list), 0);
    }
    teardown(&f);
}

static int warnings;

static void count_warning(void *user, pare_log_level level, const char *line)
{
    (void)user, (void)line;
    warnings += level == PARE_LOG_WARNING;
}

static void file_write(const fixture *f, const char *text)
{
    FILE *file = fopen(f->file, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Whatever the file holds, its times are not taken, one warning says so, and they are made again.
   Of a whole file one byte of the machine's name is another. */
static void a_file_of_no_use_is_said_once(void **state)
{
    (void)state;
    fixture f;
    char whole[1024] = "";
    static const pare_kernel *const list[] = {&often, &once, NULL};
    static const char *const bad[] = {"", "{", "[]", "{\"pare_timing\": 1, \"machines\": 3}",
                                      "{\"pare_timing\": 1, \"machines\": {\"x\": {}}}"};
    setup(&f);
    f.prep.in_count = 1;
    f.ctx.log = count_warning;
    choose(&f, true, list);
    FILE *file = fopen(f.file, "r");
    assert_non_null(file);
    assert_true(fread(whole, 1, sizeof whole - 1, file) > 0);
    fclose(file);
    char *kernels = strstr(whole, ", kernels ");
    assert_non_null(kernels);
    kernels[10] = kernels[10] == '0' ? '1' : '0';
    for (int i = 0; i < 6; i++) {
        file_write(&f, i < 5 ? bad[i] : whole);
        warnings = 0;
        assert_true(times_of(&f, list) > 0);
        assert_int_equal(warnings, 1);
        assert_int_equal(times_of(&f, list), 0);
        assert_int_equal(warnings, 1);
    }
    teardown(&f);
}

/* --- how they are timed --- */

/* Waits for its own work, which a capture does not allow. */
static pare_status run_waiting(const pare_call *c)
{
    PARE_TRY(fill_times(c, 3));
    return c->stream->device->backend->sync(c->ctx, c->stream);
}

static const pare_kernel waiting = {.name = "waiting", .run = run_waiting};

static void what_cannot_be_captured_is_timed_in_the_stream(void **state)
{
    (void)state;
    fixture f;
    static const pare_kernel *const quicker[] = {&often, &waiting, NULL};
    static const pare_kernel *const slower[] = {&once, &waiting, NULL};
    setup(&f);
    f.prep.in_count = 1;
    assert_string_equal(choose(&f, true, quicker), "waiting");
    assert_string_equal(f.ctx.message, "");
    assert_string_equal(choose(&f, true, slower), "once");
    assert_string_equal(f.ctx.message, "");
    teardown(&f);
}

enum { SEEN = 256 };
static const void *seen[SEEN];
static int seen_count;
static bool read_values;
static float values[4];

/* Notes where its input is, and once what is in it. */
static pare_status run_noting(const pare_call *c)
{
    const pare_backend *b = c->stream->device->backend;
    if (seen_count < SEEN) seen[seen_count++] = c->in[0].data;
    if (!read_values) {
        read_values = true;
        PARE_TRY(b->download(c->ctx, c->stream, values, c->in[0].data, sizeof values));
        PARE_TRY(b->sync(c->ctx, c->stream));
    }
    return run_once(c);
}

static const pare_kernel noting = {.name = "noting", .run = run_noting};

static int distinct(const void *const *list, int count)
{
    int different = 0;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < i && list[k] != list[i]) k++;
        different += k == i;
    }
    return different;
}

/* Two runs come before the capture; all of a graph's runs have tensors of their own, as long as
   the sets are smaller than the cache. */
static void runs_are_captured_on_tensors_of_their_own(void **state)
{
    (void)state;
    fixture f;
    static const pare_kernel *const list[] = {&often, &noting, NULL};
    setup(&f);
    f.prep.in_count = 1;
    seen_count = 0, read_values = false;
    const uint64_t before = simt_calls_of("cudaGraphLaunch");
    assert_string_equal(choose(&f, true, list), "noting");
    assert_int_equal(seen_count, 2 + 8);
    assert_int_equal(distinct(seen + 2, 8), 8);
    if (simt_emulated()) assert_true(simt_calls_of("cudaGraphLaunch") >= before + 6);
    for (int i = 0; i < 4; i++) assert_true(values[i] >= -1 && values[i] < 1 && values[i] != 0);
    assert_true(values[0] != values[1]);
    teardown(&f);
}

static pare_status pack_constant(pare_prep *p)
{
    p->packed = 2;
    return PARE_OK;
}

static const pare_kernel packing = {.name = "packing", .prepare = pack_constant, .run = run_noting};

/* Packed constants exist once: a second run in a graph would find them in the cache. A kernel that
   packs none is timed the same way, so that neither pays less for the graph's launch. */
static void constants_are_read_once_a_graph(void **state)
{
    (void)state;
    static const pare_kernel *const lists[][3] = {{&often, &packing, NULL},
                                                  {&often, &noting, NULL}};
    for (int i = 0; i < 2; i++) {
        fixture f;
        setup(&f);
        f.in[0].dim[0] = f.out.dim[0] = 2;
        seen_count = 0, read_values = true;
        assert_string_equal(choose(&f, true, lists[i]), lists[i][1]->name);
        assert_int_equal(seen_count, 2 + 1);
        teardown(&f);
    }
}

/* A device with room for one set has no flush, and still chooses. */
static void a_nearly_full_device_takes_one_set(void **state)
{
    (void)state;
    fixture f;
    static const pare_kernel *const list[] = {&often, &noting, NULL};
    setup(&f);
    f.prep.in_count = 1;
    pare_device_close(f.device);
    assert_int_equal(pare_cuda_open(&f.ctx, &f.device, 0, 64 << 10), PARE_OK);
    f.prep.device = f.device;
    seen_count = 0, read_values = false;
    assert_string_equal(choose(&f, true, list), "noting");
    assert_int_equal(distinct(seen, seen_count), 1);
    assert_string_equal(f.ctx.message, "");
    teardown(&f);
}

/* What runs after a choice is computed as without one. */
static void trials_leave_no_trace(void **state)
{
    (void)state;
    fixture f;
    static const int64_t x_dims[] = {4, 16}, w_dims[] = {16, 8};
    enum { X = 4 * 16, W = 16 * 8, Y = 4 * 8 };
    float weights[W], got[3][Y];
    pare_value *x, *w, *y;
    pare_node *node;
    pare_model *m;
    pare_tensor *t;
    setup(&f);
    for (int i = 0; i < W; i++) weights[i] = (float)(i * 7 % 13 - 6);
    assert_int_equal(pare_model_new(&f.ctx, &m, "product.onnx"), PARE_OK);
    assert_int_equal(pare_model_set_opset(m, "", 13), PARE_OK);
    assert_int_equal(pare_value_new(m->graph, &x, "x"), PARE_OK);
    assert_int_equal(pare_value_new(m->graph, &w, "w"), PARE_OK);
    assert_int_equal(pare_value_new(m->graph, &y, "y"), PARE_OK);
    pare_value_set_type(x, PARE_f32, &(pare_shape){.rank = 2, .dim = {x_dims[0], x_dims[1]}});
    x->is_input = y->is_output = true;
    assert_int_equal(pare_values_add(m->graph, &m->graph->in, x), PARE_OK);
    assert_int_equal(pare_tensor_new(m, &t, "w", PARE_f32, 2, w_dims, weights), PARE_OK);
    assert_int_equal(pare_value_set_init(w, t), PARE_OK);
    assert_int_equal(
        pare_node_new(m->graph, &node, 0, "MatMul", "", "p", (pare_value *[]){x, w}, 2, &y, 1),
        PARE_OK);
    assert_int_equal(pare_values_add(m->graph, &m->graph->out, y), PARE_OK);
    for (int k = 0; k < 3; k++) { /* without a choice, with one, and with one of the file's */
        pare_plan_options options = {
            .threads = 1, .device = f.device, .tune = k > 0, .cache_dir = k ? f.folder : NULL};
        pare_plan *plan;
        pare_runner *runner;
        const uint64_t before = simt_calls_of("cudaStreamBeginCapture");
        assert_int_equal(pare_plan_new(&f.ctx, &plan, m, NULL, 0, &options), PARE_OK);
        if (simt_emulated())
            assert_int_equal(simt_calls_of("cudaStreamBeginCapture") > before, k == 1);
        assert_int_equal(pare_runner_new(&f.ctx, &runner, plan), PARE_OK);
        float *in = pare_runner_input(runner, 0).data;
        for (int run = 0; run < 3; run++) {
            for (int i = 0; i < X; i++) in[i] = (float)(i % 9 - 4);
            assert_int_equal(pare_runner_run(runner), PARE_OK);
        }
        memcpy(got[k], pare_runner_output(runner, 0).data, sizeof got[k]);
        assert_memory_equal(got[k], got[0], sizeof got[0]);
        pare_runner_free(runner);
        pare_plan_free(plan);
    }
    pare_model_free(m);
    teardown(&f);
}

static void failures_are_passed_on_and_a_full_device_is_none(void **state)
{
    (void)state;
    fixture f;
    static const pare_kernel *const list[] = {&often, &failing, NULL};
    static const pare_kernel *const full[] = {&hungry, &often, NULL};
    setup(&f);
    assert_string_equal(choose(&f, true, list), "");
    assert_string_equal(f.ctx.message, "told to fail");
    pare_ctx_clear(&f.ctx);
    assert_string_equal(choose(&f, true, full), "often");
    assert_string_equal(f.ctx.message, "");
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(the_devices_own_clock_decides_once),
        device_test(another_key_is_timed_again),
        device_test(another_library_is_timed_again),
        device_test(a_file_of_no_use_is_said_once),
        device_test(what_cannot_be_captured_is_timed_in_the_stream),
        device_test(runs_are_captured_on_tensors_of_their_own),
        device_test(constants_are_read_once_a_graph),
        device_test(a_nearly_full_device_takes_one_set),
        device_test(trials_leave_no_trace),
        device_test(failures_are_passed_on_and_a_full_device_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
