/* SPDX-License-Identifier: Apache-2.0 */
/* Models served on the emulated GPU: the same bytes alone and in batches, the processors that
   config.pbtxt chooses, and every call of a run that fails in turn. */
#include "testing.h"
#include "formats/onnx.h"
#include "runtime/exec/exec.h"
#include "tests/tools/serve_desk.h"
#include "tools/serve/plans.h"

enum { REQUESTS = 40 };

static void gpus_open(desk *d, bool is_first)
{
    if (is_first) assert_int_equal(pare_device_open(&d->ctx, &d->device, "cuda"), PARE_OK);
    assert_int_equal(pare_gpus_new(&d->ctx, &d->gpus, d->device, 0), PARE_OK);
}

static int teardown(void **state)
{
    simt_fail_at(0, 0, false);
    desk_close(*state);
    simt_set.devices = 1;
    simt_set.memory = (size_t)4 << 30;
    return desk_teardown(state) || device_is_clean(state);
}

/* --- batches --- */

static void batches_give_the_bytes_of_single_requests(void **state)
{
    desk *d = *state;
    static float alone[REQUESTS][3 * CLASSES], together[3 * CLASSES];
    static ask *asked[REQUESTS];
    const char *const models[] = {"mlp", "cnn"};
    for (int m = 0; m < 2; m++) {
        char path[64];
        const char *const paths[] = {path};
        const pare_serve_config single = desk_config(3, 0, 1);
        const pare_serve_config batched = desk_config(11, 200000, 2);
        snprintf(path, sizeof path, "datasets/zoo/%s.onnx", models[m]);
        gpus_open(d, true);
        desk_open(d, paths, 1, &single);
        for (int i = 0; i < REQUESTS; i++)
            ask_take_logits(desk_ask(d, models[m], (uint32_t)i, desk_rows(i)), desk_rows(i),
                            alone[i]);
        assert_int_equal(desk_stats(d, models[m]).runs, REQUESTS);
        pare_repository_close(d->api.repository);
        desk_open(d, paths, 1, &batched);
        for (int i = 0; i < REQUESTS; i++)
            asked[i] = desk_ask(d, models[m], (uint32_t)i, desk_rows(i));
        for (int i = 0; i < REQUESTS; i++) {
            ask_take_logits(asked[i], desk_rows(i), together);
            assert_memory_equal(together, alone[i], (size_t)desk_rows(i) * CLASSES * sizeof(float));
        }
        assert_true(desk_stats(d, models[m]).runs < REQUESTS); /* requests were run together */
        assert_int_equal(warnings, 0);
        desk_close(d);
    }
}

/* --- processors --- */

static void config_chooses_the_processor(void **state)
{
    desk *d = *state;
    const pare_serve_config config = desk_config(4, 0, 1);
    desk_put_model(d, "mlp", 1);
    simt_set.devices = 2;
    gpus_open(d, true);
    desk_open(d, d->path, 1, &config);
    desk_gives(d, "GET", "/v2/models/net/config", "", 200,
               "\"kind\":\"KIND_GPU\",\"count\":1,\"gpus\":[0]}]");
    desk_put_config(d, "instance_group { kind: KIND_CPU }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200, "\"kind\":\"KIND_CPU\",\"count\":1}]");
    desk_put_config(d, "instance_group { gpus: 1 count: 3 }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200,
               "\"kind\":\"KIND_GPU\",\"count\":3,\"gpus\":[1]}]");
    desk_put_config(d, "instance_group { kind: KIND_GPU gpus: 7 }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400,
               "net/1/model.onnx: instance_group: GPU 7 does not exist");
    desk_gives(d, "GET", "/v2/models/net/ready", "", 200, ""); /* it goes on as it was */
}

static void several_gpus_give_the_same_bytes(void **state)
{
    desk *d = *state;
    static ask *asked[REQUESTS];
    float first[CLASSES], other[CLASSES];
    const pare_serve_config config = desk_config(1, 0, 1);
    desk_put_model(d, "mlp", 1);
    desk_put_config(d, "instance_group [ { gpus: [0, 1] }, { gpus: 1 } ]");
    simt_set.devices = 2;
    gpus_open(d, false);
    desk_open(d, d->path, 1, &config);
    desk_gives(d, "GET", "/v2/models/net/config", "", 200,
               "\"count\":1,\"gpus\":[0]},{\"name\":\"net\",\"kind\":\"KIND_GPU\",\"count\":2,"
               "\"gpus\":[1]}]");
    for (int i = 0; i < REQUESTS; i++) asked[i] = desk_ask(d, "net", 5, 1);
    ask_take_logits(asked[0], 1, first);
    for (int i = 1; i < REQUESTS; i++) {
        ask_take_logits(asked[i], 1, other);
        assert_memory_equal(other, first, sizeof first);
    }
}

/* Threads of a GPU that is lost leave requests to those of the other one. */
static void the_other_gpu_runs_what_is_left(void **state)
{
    desk *d = *state;
    static ask *asked[REQUESTS];
    float first[CLASSES], other[CLASSES];
    pare_served *s;
    const pare_serve_config config = desk_config(1, 0, 1);
    desk_put_model(d, "mlp", 1);
    desk_put_config(d, "instance_group [ { gpus: 0 count: 4 }, { gpus: 1 } ]");
    simt_set.devices = 2;
    gpus_open(d, false);
    desk_open(d, d->path, 1, &config);
    ask_take_logits(desk_ask(d, "net", 5, 1), 1, first);
    assert_int_equal(pare_repository_find(d->api.repository, &d->ctx, &s, "net", 0), PARE_OK);
    __atomic_store_n(&s->site[0].is_lost, true, __ATOMIC_RELEASE);
    __atomic_store_n(&s->lost, 1, __ATOMIC_RELEASE);
    pare_served_release(s);
    for (int i = 0; i < REQUESTS; i++) asked[i] = desk_ask(d, "net", 5, 1);
    for (int i = 0; i < REQUESTS; i++) {
        ask_take_logits(asked[i], 1, other);
        assert_memory_equal(other, first, sizeof first);
    }
    desk_gives(d, "GET", "/v2/health/ready", "", 200, ""); /* it is served */
}

/* Loads a model that has plans of six sizes; *frees: pieces of memory that were freed meanwhile. */
static pare_status load_six(desk *d, uint64_t *frees)
{
    const char *const paths[] = {"datasets/zoo/mlp.onnx"};
    pare_repository_options options = {.path = paths, .count = 1, .config = desk_config(32, 0, 1)};
    desk_close(d);
    pare_ctx_clear(&d->ctx);
    gpus_open(d, true);
    options.gpus = d->gpus;
    const uint64_t before = simt_calls_of("cudaFreeAsync");
    const pare_status st = pare_repository_open(&d->ctx, &d->api.repository, &options);
    *frees = simt_calls_of("cudaFreeAsync") - before;
    return st;
}

/* Plans that no one uses make room for others. */
static void memory_that_is_out_is_made(void **state)
{
    desk *d = *state;
    float roomy[CLASSES], narrow[CLASSES];
    uint64_t usual, frees;
    assert_int_equal(load_six(d, &usual), PARE_OK);
    ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, roomy);
    simt_set.memory = 500000;
    for (pare_status st = PARE_MEMORY; st != PARE_OK;) {
        simt_set.memory += simt_set.memory / 8;
        st = load_six(d, &frees);
        if (st != PARE_OK && !strstr(d->ctx.message, "GPU memory")) fail_msg("%s", d->ctx.message);
    }
    assert_true(frees > usual);
    ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, narrow);
    assert_memory_equal(narrow, roomy, sizeof roomy);
}

/* --- recording --- */

typedef struct watch {
    pare_gpu *gpu;
    bool is_held;
} watch;

static pare_status look(void *user, int64_t item, pare_replica *replica)
{
    watch *w = user;
    (void)item, (void)replica;
    w->is_held = pthread_mutex_trylock(&w->gpu->making) != 0;
    if (!w->is_held) (void)pthread_mutex_unlock(&w->gpu->making);
    return PARE_OK;
}

/* Must others wait to make and free plans on the GPU while this run is made? */
static bool runs_alone(pare_plans *plans, pare_replica *replica, pare_gpu *gpu)
{
    watch w = {.gpu = gpu};
    const pare_batch_work work = {.load = look, .user = &w};
    assert_int_equal(pare_plans_run(plans, replica, &work), PARE_OK);
    return w.is_held;
}

/* What was recorded when the plan was made is dropped: the next run records again. */
static void a_run_that_records_holds_off_who_frees(void **state)
{
    desk *d = *state;
    static const float table[256];
    const pare_pixels pixels = {.table = table, .channels = 1, .inner = PIXELS, .count = PIXELS};
    const pare_input_shape shape = {"input", {.rank = 4, .dim = {1, 1, 28, 28}}};
    pare_model *m;
    pare_plans *plans;
    pare_planned *planned;
    gpus_open(d, true);
    pare_gpu *gpu = pare_gpus_first(d->gpus);
    assert_int_equal(pare_onnx_read(&d->ctx, &m, "datasets/zoo/mlp.onnx"), PARE_OK);
    const pare_plans_options where = {.gpu = &gpu, .gpu_count = 1, .instances = 1};
    assert_int_equal(pare_plans_new(&d->ctx, &plans, m, &where), PARE_OK);
    assert_int_equal(pare_plans_get(plans, &d->ctx, &planned, &shape, 1), PARE_OK);
    pare_replica *replica = pare_replicas_at(planned->replicas, 0);
    assert_false(runs_alone(plans, replica, gpu));
    assert_int_equal(pare_runner_take_pixels(replica->runner, 0, &pixels), PARE_OK);
    assert_true(runs_alone(plans, replica, gpu));
    assert_false(runs_alone(plans, replica, gpu));
    pare_plans_put(plans, planned);
    pare_plans_free(plans);
    pare_model_free(m);
}

/* --- a GPU that fails --- */

/* Each call of a run fails once: its request is told so or has its bytes, the next has its bytes.
 */
static void failed_run_is_told_and_forgotten(void **state)
{
    desk *d = *state;
    static const int codes[] = {719, 2};
    float right[CLASSES], logits[CLASSES];
    const char *const paths[] = {"datasets/zoo/mlp.onnx"};
    const pare_serve_config config = desk_config(4, 0, 1);
    int told = 0;
    gpus_open(d, true);
    desk_open(d, paths, 1, &config);
    ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, right);
    const uint64_t before = simt_calls();
    ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, right);
    const uint64_t calls = simt_calls() - before;
    assert_true(calls > 3);
    for (uint64_t n = 1; n <= 2 * calls; n++) {
        simt_fail_at((n + 1) / 2, codes[n % 2], false);
        ask *a = desk_ask(d, "mlp", 1, 1);
        ask_await(a);
        simt_fail_at(0, 0, false);
        const int code = a->x.reply.code;
        if (code == 200) {
            ask_take_logits(a, 1, logits);
            assert_memory_equal(logits, right, sizeof right);
        } else {
            assert_true(code == 500 || code == 503);
            const char *words = code == 500 ? "model 'mlp': " : "out of";
            assert_non_null(memmem(a->x.reply.body, a->x.reply.bytes, words, strlen(words)));
            told++;
            ask_forget(a);
        }
        ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, logits);
        assert_memory_equal(logits, right, sizeof right);
    }
    assert_true(told >= (int)calls);
    desk_gives(d, "GET", "/v2/models/mlp/ready", "", 200, "");
}

/* Requests that wait when the GPU is lost are answered, other models go on, a load tries again. */
static void lost_gpu_makes_its_models_unready(void **state)
{
    desk *d = *state;
    static ask *asked[REQUESTS];
    float right[CLASSES], logits[CLASSES];
    int answered = 0, failed = 0;
    static const char *const traffic[] = {"net=1:1"};
    const char *const paths[] = {d->folder, "datasets/zoo/mlp.onnx"};
    pare_repository_options options = {.path = paths,
                                       .count = 2,
                                       .config = desk_config(4, 1000, 1),
                                       .traffic = traffic,
                                       .traffic_count = 1};
    desk_put_model(d, "mlp", 1);
    desk_put_text(d, "all/config.pbtxt",
                  "platform: 'ensemble' max_batch_size: 4 "
                  "input { name: 'input' data_type: TYPE_FP32 dims: [1, 28, 28] } "
                  "output { name: 'logits' data_type: TYPE_FP32 dims: 10 } "
                  "ensemble_scheduling { step { model_name: 'net' model_version: -1 "
                  "input_map { key: 'input' value: 'input' } "
                  "output_map { key: 'logits' value: 'logits' } } }");
    desk_put_config(
        d, "max_batch_size: 4 dynamic_batching { } instance_group { kind: KIND_GPU count: 2 }");
    gpus_open(d, false);
    options.gpus = d->gpus;
    desk_open_with(d, &options);
    ask_take_logits(desk_ask(d, "net", 1, 1), 1, right);
    desk_gives(d, "GET", "/v2/health/ready", "", 200, "");
    simt_fail_at(40, 700, true);
    for (int i = 0; i < REQUESTS; i++) asked[i] = desk_ask(d, "net", 1, 1);
    for (int i = 0; i < REQUESTS; i++) {
        ask_await(asked[i]);
        const int code = asked[i]->x.reply.code;
        if (code == 200)
            answered++;
        else if (code == 500 || code == 503)
            failed++;
        ask_forget(asked[i]);
    }
    assert_int_equal(answered + failed, REQUESTS);
    assert_true(failed > 0);
    desk_gives(d, "GET", "/v2/models/net/ready", "", 503, "model 'net' is not ready: ");
    desk_gives(d, "POST", "/v2/models/net/infer", "{}", 503, "the GPU is lost");
    desk_gives(d, "POST", "/v2/models/net/infer", "{\"inputs\": []}", 503, "the GPU is lost");
    desk_gives(d, "POST", "/v2/models/net/versions/1/infer", "{}", 503, "the GPU is lost");
    desk_gives(d, "POST", "/v2/models/all/infer", "{}", 503,
               "model 'all' is not ready: model 'net' is not ready: ");
    desk_gives(d, "GET", "/v2/health/ready", "", 503, "model 'net' is not ready: ");
    desk_gives(d, "GET", "/v2/health/live", "", 200, "");
    desk_gives(d, "POST", "/v2/repository/index", "", 200,
               "\"state\":\"UNAVAILABLE\",\"reason\":\"");
    desk_gives(d, "POST", "/v2/repository/index", "{\"ready\": true}", 200, "[{\"name\":\"mlp\"");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 500, "the GPU is lost");
    ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, logits); /* on the CPU */
    simt_fail_at(0, 0, false);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/health/ready", "", 200, "");
    ask_take_logits(desk_ask(d, "net", 1, 1), 1, logits);
    assert_memory_equal(logits, right, sizeof right);
}

/* The end does not wait for a GPU that is lost. */
static void lost_gpu_does_not_hold_the_end(void **state)
{
    desk *d = *state;
    static ask *asked[REQUESTS];
    const char *const paths[] = {"datasets/zoo/mlp.onnx"};
    const pare_serve_config config = desk_config(4, 60000000, 2);
    gpus_open(d, true);
    desk_open(d, paths, 1, &config);
    for (int i = 0; i < REQUESTS; i++) asked[i] = desk_ask(d, "mlp", 1, 1);
    simt_fail_at(1, 700, true);
    assert_int_equal(pare_repository_hurry(d->api.repository, &d->ctx), PARE_OK);
    for (int i = 0; i < REQUESTS; i++) {
        ask_await(asked[i]);
        ask_forget(asked[i]);
    }
    pare_repository_close(d->api.repository);
    d->api.repository = NULL;
    simt_fail_at(0, 0, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_give_the_bytes_of_single_requests, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(config_chooses_the_processor, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(several_gpus_give_the_same_bytes, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_other_gpu_runs_what_is_left, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(memory_that_is_out_is_made, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(a_run_that_records_holds_off_who_frees, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(failed_run_is_told_and_forgotten, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(lost_gpu_makes_its_models_unready, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(lost_gpu_does_not_hold_the_end, desk_setup_heard, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
