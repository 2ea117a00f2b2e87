/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are queued ahead: bytes are those of runs one at a time in any order of streams, copies
   of the next run and of the last one do not wait for the one that computes, and what goes without
   a wait between two streams is seen. */
#include "runtime/cuda/cuda.h"
#include "runtime/eval/eval.h"
#include "runtime/exec/batch.h"
#include "runtime/exec/runner.h"
#include "formats/onnx.h"
#include "tests/calib/tables.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

enum { ROWS = 3, WIDTH = 8, SIZE = ROWS * WIDTH, ITEMS = 6, ORDERS = 16 };

/* --- a small net: y = relu(x w) + x, read last; z = x x --- */

typedef struct fixture {
    graph_case g;
    pare_device *device;
    pare_plan *plan;
    float x[ITEMS][SIZE], y[ITEMS][SIZE], z[ITEMS][SIZE];
    int taken; /* items, in order */
    bool right;
} fixture;

static void check(fixture *f, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", f->g.ctx.message);
}

static void build(fixture *f)
{
    float w[WIDTH * WIDTH];
    uint32_t seed = 7;
    memset(f, 0, sizeof *f);
    graph_open(&f->g, 17);
    for (int i = 0; i < WIDTH * WIDTH; i++) w[i] = (float)(test_random(&seed) % 33) / 16 - 1;
    for (int i = 0; i < ITEMS * SIZE; i++)
        f->x[i / SIZE][i % SIZE] = (float)(test_random(&seed) % 65) / 32 - 1;
    graph_input(&f->g, "x", PARE_f32, 2, (int64_t[]){ROWS, WIDTH});
    graph_floats(&f->g, "w", 2, (int64_t[]){WIDTH, WIDTH}, w);
    graph_node(&f->g, "MatMul", "x w", "p");
    graph_node(&f->g, "Relu", "p", "r");
    graph_node(&f->g, "Softmax", "r", "q");
    graph_node(&f->g, "Add", "q x", "y");
    graph_node(&f->g, "Mul", "x x", "z");
    graph_output(&f->g, "y");
    graph_output(&f->g, "z");
}

/* The device, the plan, and what runs one at a time give. */
static void open_net(fixture *f)
{
    pare_plan_options options = {.threads = 1};
    pare_runner *r;
    build(f);
    check(f, pare_cuda_open(&f->g.ctx, &f->device, 0, 0));
    options.device = f->device;
    check(f, pare_plan_new(&f->g.ctx, &f->plan, f->g.model, NULL, 0, &options));
    assert_true(pare_plan_step_count(f->plan) > 2);
    check(f, pare_runner_new(&f->g.ctx, &r, f->plan));
    for (int i = 0; i < ITEMS; i++) {
        memcpy(pare_runner_input(r, 0).data, f->x[i], sizeof f->x[i]);
        check(f, pare_runner_run(r));
        memcpy(f->y[i], pare_runner_output(r, 0).data, sizeof f->y[i]);
        memcpy(f->z[i], pare_runner_output(r, 1).data, sizeof f->z[i]);
    }
    pare_runner_free(r);
}

static void close_net(fixture *f)
{
    pare_plan_free(f->plan);
    pare_device_close(f->device);
    graph_close(&f->g);
}

static pare_status load(void *user, int64_t item, pare_replica *replica)
{
    const fixture *f = user;
    memcpy(pare_runner_input(replica->runner, 0).data, f->x[item % ITEMS], sizeof f->x[0]);
    return PARE_OK;
}

static pare_status take(void *user, int64_t item, pare_replica *replica)
{
    fixture *f = user;
    const float *y = pare_runner_output(replica->runner, 0).data,
                *z = pare_runner_output(replica->runner, 1).data;
    f->right = f->right && item == f->taken && !memcmp(y, f->y[item % ITEMS], sizeof f->y[0]) &&
               !memcmp(z, f->z[item % ITEMS], sizeof f->z[0]);
    f->taken++;
    return PARE_OK;
}

static pare_status pool_new(fixture *f, pare_replicas **out)
{
    f->taken = 0;
    f->right = true;
    return pare_replicas_new(&f->g.ctx, out, f->plan, &(pare_replicas_options){.overlap = true});
}

/* Two rounds of items, the second behind the first. */
static pare_status run_items(fixture *f, pare_replicas *pool)
{
    const pare_batch_work work = {.load = load, .take = take, .in_flight = true, .user = f};
    PARE_TRY(pare_replicas_run(pool, 0, ITEMS, &work));
    PARE_TRY(pare_replicas_run(pool, ITEMS, ITEMS, &work));
    return pare_replicas_finish(pool, INT64_MAX);
}

static void order_set(int which)
{
    simt_set.streams = (simt_streams)(which % 4);
    simt_set.schedule = which < 4 ? SIMT_FIFO : which < 8 ? SIMT_REVERSED : SIMT_RANDOM;
    simt_set.seed = (uint64_t)which;
}

/* --- bytes --- */

static void bytes_are_those_of_runs_one_at_a_time(void **state)
{
    (void)state;
    fixture f;
    open_net(&f);
    const simt_settings usual = simt_set;
    for (int order = 0; order < (simt_emulated() ? ORDERS : 1); order++) {
        pare_replicas *pool;
        order_set(order);
        check(&f, pool_new(&f, &pool));
        assert_int_equal(pare_replicas_count(pool), 1);
        check(&f, run_items(&f, pool));
        assert_true(f.right);
        assert_int_equal(f.taken, 2 * ITEMS);
        assert_non_null(pare_replicas_at(pool, 0)->runner->device->ahead);
        pare_replicas_free(pool);
    }
    simt_set = usual;
    close_net(&f);
}

/* In flight are two items from the second on; the oldest is landed first, and only what is asked
   for is waited for. */
static void two_items_are_in_flight(void **state)
{
    (void)state;
    fixture f;
    pare_replicas *pool;
    const pare_batch_work work = {.load = load, .take = take, .in_flight = true, .user = &f};
    open_net(&f);
    check(&f, pool_new(&f, &pool));
    const pare_replica *p = pare_replicas_at(pool, 0);
    for (int i = 0; i < ITEMS; i++) {
        check(&f, pare_replicas_run(pool, i, 1, &work));
        assert_int_equal(f.taken, i < 2 ? i : i - 1);
        assert_int_equal(p->flying, i < 1 ? 1 : i < 2 ? 1 : 2);
    }
    check(&f, pare_replicas_finish(pool, ITEMS - 1));
    assert_int_equal(f.taken, ITEMS - 1);
    assert_int_equal(p->flying, 1);
    check(&f, pare_replicas_finish(pool, ITEMS));
    assert_int_equal(f.taken, ITEMS);
    assert_true(f.right);
    check(&f, pare_replicas_run(pool, ITEMS, 1, &work)); /* stays in flight when the pool goes */
    pare_replicas_free(pool);
    close_net(&f);
}

/* --- failures --- */

/* Each call that can fail, with ASan every seventh: a message of one line, items before it are
   right, nothing is left over. */
static void a_call_that_fails_is_told(void **state)
{
    (void)state;
    fixture f;
    int failures = 0;
#ifdef __SANITIZE_ADDRESS__
    enum { APART = 7 };
#else
    enum { APART = 1 };
#endif
    if (!simt_emulated() || simt_checks()) skip();
    open_net(&f);
    for (uint64_t n = 1;; n += APART) {
        pare_replicas *pool = NULL;
        const uint64_t before = simt_calls();
        simt_fail_at(n, n % 2 ? cudaErrorUnknown : cudaErrorLaunchFailure, false);
        pare_status st = pool_new(&f, &pool);
        if (st == PARE_OK) st = run_items(&f, pool);
        simt_fail_at(0, 0, false);
        const bool all = simt_calls() - before < n;
        assert_true(f.right);
        pare_replicas_free(pool);
        (void)cudaGetLastError(); /* of a release that was told to fail */
        if (all) break;
        if (st == PARE_OK) continue; /* it was worked around */
        failures++;
        assert_true(strlen(f.g.ctx.message) > 8 && !strchr(f.g.ctx.message, '\n'));
        pare_ctx_clear(&f.g.ctx);
    }
    assert_true(failures > 100 / APART);
    close_net(&f);
}

static const pare_backend *backend;
static const pare_device *denied_on;
static size_t granted; /* blocks from now on */
static char said[512];

static pare_status alloc_or_not(pare_ctx *ctx, pare_device *device, void **out, size_t bytes)
{
    if (device == denied_on && !granted) return PARE_FAIL(ctx, MEMORY, "there is no more");
    granted -= device == denied_on;
    return backend->alloc(ctx, device, out, bytes);
}

static void note(void *user, pare_log_level level, const char *line)
{
    (void)user;
    if (level == PARE_LOG_INFO) snprintf(said, sizeof said, "%s", line);
}

/* Then items run one at a time, and are the same. */
static void a_device_without_memory_for_it_takes_turns(void **state)
{
    (void)state;
    fixture f;
    pare_replicas *pool;
    open_net(&f);
    pare_backend watched = *f.device->backend;
    backend = f.device->backend;
    watched.alloc = alloc_or_not;
    f.device->backend = &watched;
    check(&f, pool_new(&f, &pool));
    pare_replicas_at(pool, 0)->ctx.log = note;
    denied_on = f.device;
    granted = 0;
    check(&f, run_items(&f, pool));
    denied_on = NULL;
    assert_true(f.right);
    assert_int_equal(f.taken, 2 * ITEMS);
    assert_null(pare_replicas_at(pool, 0)->runner->device->ahead);
    assert_non_null(strstr(said, "copies and computing take turns"));
    pare_replicas_free(pool);
    f.device->backend = backend;
    close_net(&f);
}

/* --- planted --- */

static const pare_stream_table *real;
enum { WAITS = 4 }; /* of a run, in order: taken, up, down, made */
static int left_out, waits;

static pare_status wait_or_not(pare_ctx *ctx, pare_stream *stream, pare_event *event)
{
    if (left_out >= 0 && waits++ % WAITS == left_out) return PARE_OK;
    return real->event_wait(ctx, stream, event);
}

/* Is it seen, in some order of streams, that this wait of each run is left out? */
static bool is_seen(fixture *f, int wait)
{
    const simt_settings usual = simt_set;
    bool seen = false;
    for (int order = 0; order < 4 * ORDERS && !seen; order++) {
        pare_replicas *pool;
        const pare_batch_work work = {.load = load, .take = take, .user = f};
        order_set(order);
        left_out = -1;
        check(f, pool_new(f, &pool));
        check(f, pare_replicas_run(pool, 0, 2, &work)); /* the second one is the first ahead */
        left_out = wait;
        waits = 0;
        check(f, pare_replicas_run(pool, 2, ITEMS, &work));
        left_out = -1;
        seen = !f->right;
        pare_replicas_free(pool);
    }
    simt_set = usual;
    return seen;
}

static void a_wait_that_is_left_out_is_seen(void **state)
{
    (void)state;
    fixture f;
    static pare_stream_table table;
    if (!simt_emulated()) skip();
    open_net(&f);
    real = f.device->streams;
    table = *real;
    table.event_wait = wait_or_not;
    f.device->streams = &table;
    assert_false(is_seen(&f, -1));
    for (int wait = 0; wait < WAITS; wait++)
        if (!is_seen(&f, wait)) fail_msg("wait %d can be left out", wait);
    f.device->streams = real;
    close_net(&f);
}

/* --- predictions --- */

enum { SAMPLES = 12, SIDE = 28, PIXELS = SIDE * SIDE };

/* Calls in order, a letter each with that of their stream: a, b, c as they are met. */
static char calls[1024];
static const pare_stream *met[4];

static void call_note(char what, const pare_stream *stream)
{
    int at = 0;
    while (stream && at < 3 && met[at] && met[at] != stream) at++;
    if (stream) met[at] = stream;
    const size_t length = strlen(calls);
    if (length + 4 > sizeof calls) return;
    snprintf(calls + length, sizeof calls - length, stream ? "%c%c " : "%c ", what, 'a' + at);
}

static pare_status upload_noted(pare_ctx *ctx, pare_stream *stream, void *to, const void *from,
                                size_t bytes)
{
    call_note('U', stream);
    return backend->upload(ctx, stream, to, from, bytes);
}

static pare_status download_noted(pare_ctx *ctx, pare_stream *stream, void *to, const void *from,
                                  size_t bytes)
{
    call_note('D', stream);
    return backend->download(ctx, stream, to, from, bytes);
}

static pare_status sync_noted(pare_ctx *ctx, pare_stream *stream)
{
    call_note('S', stream);
    return backend->sync(ctx, stream);
}

static pare_status graph_noted(pare_ctx *ctx, pare_stream *stream, pare_captured_graph *graph)
{
    call_note('G', stream);
    return real->graph_launch(ctx, stream, graph);
}

static pare_status mark_noted(pare_ctx *ctx, pare_stream *stream, pare_event *event)
{
    call_note('M', stream);
    return real->event_mark(ctx, stream, event);
}

static pare_status wait_noted(pare_ctx *ctx, pare_stream *stream, pare_event *event)
{
    call_note('W', stream);
    return real->event_wait(ctx, stream, event);
}

static pare_status event_sync_noted(pare_ctx *ctx, pare_event *event)
{
    call_note('E', NULL);
    return real->event_sync(ctx, event);
}

static tables files;

static void write_data(pare_ctx *ctx)
{
    static uint8_t x[SAMPLES * PIXELS];
    const float mean = 0.286f, std = 0.353f;
    pare_data_column column = {.name = "input",
                               .dtype = PARE_u8,
                               .shape = {.rank = 3, .dim = {1, SIDE, SIDE}},
                               .mean = &mean,
                               .std = &std,
                               .channels = 1,
                               .layout = "nchw"};
    pare_data_writer *w = NULL;
    uint32_t seed = 3;
    for (int i = 0; i < SAMPLES * PIXELS; i++) x[i] = (uint8_t)test_random(&seed);
    const void *block[1] = {x};
    assert_int_equal(pare_data_create(ctx, &w, files.data, &column, 1), PARE_OK);
    assert_int_equal(pare_data_append(w, block, SAMPLES), PARE_OK);
    assert_int_equal(pare_data_commit(w), PARE_OK);
}

typedef struct predicted {
    float y[SAMPLES][10];
    char last[sizeof calls]; /* calls of the last but one batch */
} predicted;

/* All samples by batches of `batch`; ahead: with the reader. */
static void predict(pare_device *device, int batch, bool ahead, predicted *out)
{
    pare_ctx ctx;
    pare_model *m;
    pare_data *data;
    pare_predictor *p;
    pare_reader *reader;
    pare_batch now;
    int64_t samples[SAMPLES];
    size_t to_come;
    const pare_data_input in = {"input", PARE_f32, {4, {-1, 1, SIDE, SIDE}, {0}}, NULL};
    const pare_plan_options options = {.threads = 1, .device = device};
    pare_ctx_init(&ctx);
    for (int i = 0; i < SAMPLES; i++) samples[i] = i;
    assert_int_equal(pare_onnx_read(&ctx, &m, "datasets/zoo/mlp.onnx"), PARE_OK);
    assert_int_equal(pare_data_open(&ctx, &data, files.data, &in, 1), PARE_OK);
    assert_int_equal(pare_predictor_new(&ctx, &p, m, data, &in, 1, &options), PARE_OK);
    assert_int_equal(pare_predictor_prepare(p, batch, SAMPLES, &to_come), PARE_OK);
    assert_int_equal(pare_reader_open(&ctx, &reader, data, samples, SAMPLES, batch, 1), PARE_OK);
    for (int64_t done = 0; done < SAMPLES; done += now.count) {
        assert_int_equal(pare_reader_next(reader, &now), PARE_OK);
        calls[0] = 0;
        memset(met, 0, sizeof met);
        if (pare_predict(p, &now, ahead ? reader : NULL) != PARE_OK) fail_msg("%s", ctx.message);
        const pare_rows rows = pare_predictor_rows(p, 0);
        assert_int_equal(rows.size, 10);
        memcpy(out->y[done], rows.f32, (size_t)now.count * sizeof out->y[0]);
        if (done + 2 * batch >= SAMPLES && done + batch < SAMPLES)
            memcpy(out->last, calls, sizeof calls);
    }
    pare_reader_close(reader);
    pare_predictor_free(p);
    pare_data_close(data);
    pare_model_free(m);
}

/* While a batch is in flight its successor's pixels go up in a stream of their own once the batch
   has taken its, its outputs come down in a third, and the host then waits for the batch alone. */
static void copies_of_the_next_batch_are_queued_first(void **state)
{
    (void)state;
    static predicted plain, ahead, pieces;
    static pare_stream_table table;
    static pare_backend watched;
    pare_ctx ctx;
    pare_device *device;
    pare_ctx_init(&ctx);
    write_data(&ctx);
    assert_int_equal(pare_cuda_open(&ctx, &device, 0, 0), PARE_OK);
    real = device->streams;
    backend = device->backend;
    table = *real;
    watched = *backend;
    watched.upload = upload_noted;
    watched.download = download_noted;
    watched.sync = sync_noted;
    table.graph_launch = graph_noted;
    table.event_mark = mark_noted;
    table.event_wait = wait_noted;
    table.event_sync = event_sync_noted;
    predict(device, 2, false, &plain);
    device->streams = &table;
    device->backend = &watched;
    predict(device, 2, true, &ahead);
    assert_string_equal(ahead.last, "Wa Ua Ma Wb Mb Gb Wb Mb Wc Dc Mc E ");
    device->streams = real;
    device->backend = backend;
    predict(device, 5, true, &pieces);
    assert_memory_equal(plain.y, ahead.y, sizeof plain.y);
    assert_memory_equal(plain.y, pieces.y, sizeof plain.y);
    device->backend->close(device);
}

static int open_folder(void **state)
{
    (void)state;
    tables_open(&files);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    return tables_close(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(bytes_are_those_of_runs_one_at_a_time),
        device_test(two_items_are_in_flight),
        device_test(a_call_that_fails_is_told),
        device_test(a_device_without_memory_for_it_takes_turns),
        device_test(a_wait_that_is_left_out_is_seen),
        device_test(copies_of_the_next_batch_are_queued_first),
    };
    if (!device_is_present()) return 77;
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
