/* SPDX-License-Identifier: Apache-2.0 */
/* Models served in stages on several emulated GPUs: the bytes of one GPU, where they lie, what is
   refused, tensors in the memory of the first GPU and of the last, and every call of a run that
   fails in turn. */
#include "testing.h"
#include "formats/onnx.h"
#include "runtime/exec/exec.h"
#include "tests/cuda/region_client.h"
#include "tools/serve/plans.h"

enum { REQUESTS = 40, GPUS = 4 };

#define PIPELINE "parameters { key: 'parallel' value { string_value: 'pipeline' } } "
#define ON_THREE PIPELINE "instance_group { kind: KIND_GPU gpus: [0, 1, 2] } "

static pare_regions regions;

static void open_gpus(desk *d)
{
    simt_set.devices = GPUS;
    assert_int_equal(pare_device_open(&d->ctx, &d->device, "cuda"), PARE_OK);
    assert_int_equal(pare_gpus_new(&d->ctx, &d->gpus, d->device, 0), PARE_OK);
    pare_regions_init(&regions);
    regions.gpus = d->gpus;
    d->api.regions = &regions;
}

static int teardown(void **state)
{
    simt_fail_at(0, 0, false);
    desk_close(*state);
    simt_set.devices = 1;
    simt_set.mixed = false;
    CUDA_OK(cudaSetDevice(0));
    return desk_teardown(state) || device_is_clean(state);
}

/* The folder's model "net", a net of the zoo, and its config.pbtxt. */
static void open_net(desk *d, const char *net, const char *text, const pare_serve_config *config)
{
    desk_put_model(d, net, 1);
    desk_put_config(d, text);
    open_gpus(d);
    desk_open(d, d->path, 1, config);
}

/* --- the same bytes --- */

static void ask_alone(desk *d, float (*out)[3 * CLASSES])
{
    for (int i = 0; i < REQUESTS; i++)
        ask_take_logits(desk_ask(d, "net", (uint32_t)i, desk_rows(i)), desk_rows(i), out[i]);
}

static void assert_together(desk *d, float (*right)[3 * CLASSES])
{
    static ask *asked[REQUESTS];
    static float logits[3 * CLASSES];
    for (int i = 0; i < REQUESTS; i++) asked[i] = desk_ask(d, "net", (uint32_t)i, desk_rows(i));
    for (int i = 0; i < REQUESTS; i++) {
        ask_take_logits(asked[i], desk_rows(i), logits);
        assert_memory_equal(logits, right[i], (size_t)desk_rows(i) * CLASSES * sizeof(float));
    }
}

static void batches_give_the_bytes_of_one_gpu(void **state)
{
    desk *d = *state;
    static float alone[REQUESTS][3 * CLASSES];
    static const char *const models[] = {"mlp", "cnn"};
    const pare_serve_config single = desk_config(3, 0, 1);
    const pare_serve_config batched = desk_config(11, 200000, 2);
    for (int m = 0; m < 2; m++) {
        open_net(d, models[m], "", &single);
        ask_alone(d, alone);
        desk_close(d);
        open_net(d, models[m], ON_THREE, &batched);
        assert_together(d, alone);
        assert_true(desk_stats(d, "net").runs < REQUESTS);
        assert_int_equal(desk_stats(d, "net").failed.count, 0);
        assert_int_equal(warnings, 0);
        desk_close(d);
    }
}

/* Two chains over the same GPUs, the other way round, and one of two others: each takes requests,
   and plans for them are made while the others run. */
static void several_chains_give_the_same_bytes(void **state)
{
    desk *d = *state;
    static float alone[REQUESTS][3 * CLASSES];
    const pare_serve_config config = desk_config(3, 0, 1);
    open_net(d, "mlp", "", &config);
    ask_alone(d, alone);
    desk_put_config(d, PIPELINE "instance_group [ { gpus: [0, 1, 2] }, { gpus: [2, 1] count: 3 }, "
                                "{ gpus: [3, 0] } ]");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200,
               "\"count\":3,\"gpus\":[0,1,2]},{\"name\":\"net\",\"kind\":\"KIND_GPU\",\"count\":3,"
               "\"gpus\":[2,1]},{\"name\":\"net\",\"kind\":\"KIND_GPU\",\"count\":2,"
               "\"gpus\":[3,0]}]");
    for (int turn = 0; turn < 3; turn++) assert_together(d, alone);
}

typedef struct planner {
    pare_ctx ctx;
    pare_model *model;
    pare_gpu *gpu[2];
    pare_status status;
} planner;

/* Plans are made for a few shapes, and then the right to make them is taken often: that is all that
   the end of plans without one does. */
static pare_status plan_often(planner *p)
{
    pare_plans *plans;
    const pare_plans_options where = {.gpu = p->gpu, .gpu_count = 2, .instances = 1};
    PARE_TRY(pare_plans_new(&p->ctx, &plans, p->model, &where));
    pare_status st = PARE_OK;
    for (int rows = 1; st == PARE_OK && rows <= 4; rows++) {
        const pare_input_shape shape = {"input", {.rank = 4, .dim = {rows, 1, 28, 28}}};
        pare_planned *planned;
        st = pare_plans_get(plans, &p->ctx, &planned, &shape, 1);
        if (st == PARE_OK) pare_plans_put(plans, planned);
    }
    pare_plans_free(plans);
    for (int turn = 0; st == PARE_OK && turn < 20000; turn++) {
        st = pare_plans_new(&p->ctx, &plans, p->model, &where);
        if (st == PARE_OK) pare_plans_free(plans);
    }
    return st;
}

static void *plan_thread(void *user)
{
    planner *p = user;
    p->status = plan_often(p);
    return NULL;
}

/* Chains over the same GPUs, the other way round, whose plans are made at the same time. */
static void plans_wait_for_gpus_in_one_order(void **state)
{
    enum { THREADS = 4 };
    desk *d = *state;
    planner all[THREADS];
    pthread_t thread[THREADS];
    pare_model *model;
    open_gpus(d);
    assert_int_equal(pare_onnx_read(&d->ctx, &model, "datasets/zoo/mlp.onnx"), PARE_OK);
    for (int i = 0; i < THREADS; i++) {
        planner *p = &all[i];
        *p = (planner){.model = model};
        pare_ctx_init(&p->ctx);
        for (int k = 0; k < 2; k++)
            assert_int_equal(pare_gpus_get(d->gpus, &d->ctx, &p->gpu[k], i % 2 ? 1 - k : k),
                             PARE_OK);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, plan_thread, &all[i]), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        if (all[i].status != PARE_OK) fail_msg("%s", all[i].ctx.message);
    pare_model_free(model);
}

/* --- where models lie --- */

static void config_says_where_the_stages_are(void **state)
{
    desk *d = *state;
    pare_served *s;
    const pare_serve_config config = desk_config(4, 0, 5);
    open_net(d, "cnn", ON_THREE, &config);
    desk_gives(d, "GET", "/v2/models/net/config", "", 200,
               "\"kind\":\"KIND_GPU\",\"count\":3,\"gpus\":[0,1,2]}]");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200,
               "\"parameters\":{\"parallel\":{\"string_value\":\"pipeline\"}}");
    assert_int_equal(pare_repository_find(d->api.repository, &d->ctx, &s, "net", 0), PARE_OK);
    const pare_pipeline_plan *p = s->site[0].planned;
    assert_true(p->stages == 3 && p->samples == 4 && p->runs == 3);
    assert_true(p->bubble >= p->bubble_equal && p->bubble < 1 && p->bubble_equal == 0);
    for (int i = 0; i < 3; i++) assert_true(p->activations[i] > 0 && p->stage[i].steps > 0);
    pare_served_release(s);
    desk_put_config(d, PIPELINE "instance_group { gpus: [3, 1] count: 1 }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200, "\"count\":1,\"gpus\":[3,1]}]");
    assert_int_equal(pare_repository_find(d->api.repository, &d->ctx, &s, "net", 0), PARE_OK);
    assert_true(s->site[0].planned->bubble_equal == 0.5); /* one of two GPUs is at work */
    pare_served_release(s);
}

/* The command line places models that do not choose. */
static void the_command_line_places_the_others(void **state)
{
    desk *d = *state;
    pare_serve_config config = desk_config(4, 0, 1);
    config.kind = PARE_KIND_GPU;
    config.is_pipeline = true;
    config.gpu_count = 2;
    config.gpu[0].index = 2;
    config.gpu[1].index = 3;
    open_net(d, "mlp", "", &config);
    desk_gives(d, "GET", "/v2/models/net/config", "", 200, "\"count\":2,\"gpus\":[2,3]}]");
    static const char *const texts[][2] = {
        {"instance_group { count: 4 }", "\"count\":4,\"gpus\":[2,3]}]"},
        {PIPELINE, "\"count\":2,\"gpus\":[2,3]}]"},
        {"instance_group { gpus: 1 }", "\"count\":1,\"gpus\":[1]}]"},
        {"instance_group { kind: KIND_CPU }", "\"kind\":\"KIND_CPU\",\"count\":1}]"}};
    for (int i = 0; i < 4; i++) {
        desk_put_config(d, texts[i][0]);
        desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
        desk_gives(d, "GET", "/v2/models/net/config", "", 200, texts[i][1]);
    }
    assert_int_equal(warnings, 0);
}

static void what_is_no_pipeline_is_refused(void **state)
{
    desk *d = *state;
    static const struct {
        int code;
        const char *config, *words;
    } wrong[] = {
        {400, PIPELINE,
         "'parallel' is 'pipeline', whose stages lie on GPUs, expected instance_group"},
        {400, PIPELINE "instance_group { kind: KIND_CPU }", "whose stages lie on GPUs"},
        {400, PIPELINE "instance_group { gpus: 1 }", "instance_group: a pipeline on GPU 1 alone"},
        {400, PIPELINE "instance_group { kind: KIND_GPU }", "a pipeline on GPU 0 alone"},
        {400, PIPELINE "instance_group { gpus: [1, 2, 1] }", "GPU 1 is named twice"},
        {400, PIPELINE "instance_group { gpus: [0, 7] }", "instance_group: GPU 7 does not exist"},
        {501, PIPELINE "instance_group { gpus: [0, 1, 2, 3] }",
         "4 stages were asked for, but the graph has only 3 nodes that run"},
        {501, "parameters { key: 'parallel' value { string_value: 'tensor' } }",
         "config.pbtxt: parameters: 'parallel' is 'tensor', expected pipeline"},
        {400, "parameters { key: 'parallel' }", "parameters: 'parallel' has no string_value"}};
    const pare_serve_config config = desk_config(4, 0, 1);
    open_net(d, "mlp", "", &config);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        desk_put_config(d, wrong[i].config);
        desk_gives(d, "POST", "/v2/repository/models/net/load", "", wrong[i].code, wrong[i].words);
        desk_gives(d, "GET", "/v2/models/net/ready", "", 200, "");
    }
    desk_close(d);
    simt_set.mixed = true;
    open_net(d, "mlp", PIPELINE "instance_group { gpus: [0, 2] }", &config);
    desk_put_config(d, ON_THREE);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 501,
               "instance_group: GPU 0 is emulated device (sm_90) and GPU 1 is emulated device B");
}

/* --- tensors in GPUs' memory --- */

/* Copies that a request of a full batch makes on each GPU with its regions on GPU 0, 1 or 2. A
   region on GPU 1 is brought down and its input up to GPU 0, the output down from GPU 2 and up to
   the region. One on GPU 0 is copied there in place of both of the input's, one on GPU 2 in place
   of the output's. */
static const uint64_t right_copies[3][3] = {{2, 0, 1}, {1, 2, 1}, {1, 0, 2}};

static void assert_copies(int gpu, const uint64_t *before)
{
    for (int i = 0; i < 3; i++) {
        const uint64_t got = simt_copies_on(i) - before[i];
        if (got != right_copies[gpu][i])
            fail_msg("regions on GPU %d: %d copies on GPU %d", gpu, (int)got, i);
    }
}

/* Inputs are read from the first GPU's memory, outputs put to the last one's; in another one's they
   go by the host. */
static void regions_are_on_the_ends(void **state)
{
    desk *d = *state;
    float right[4 * CLASSES], logits[4 * CLASSES], x[4 * PIXELS];
    void *in[GPUS], *out[GPUS];
    const pare_serve_config config = desk_config(4, 0, 2);
    open_net(d, "mlp", ON_THREE, &config);
    desk_pixels(9, 4, x);
    ask_take_logits(desk_ask(d, "net", 9, 4), 4, right);
    for (int gpu = 0; gpu < 3; gpu++) {
        CUDA_OK(cudaSetDevice(gpu));
        in[gpu] = device_copy(x, sizeof x);
        out[gpu] = device_copy(NULL, sizeof right);
        CUDA_OK(cudaDeviceSynchronize());
        enlist(d, "in", handle_text(in[gpu]), gpu, sizeof x, 200, "");
        enlist(d, "out", handle_text(out[gpu]), gpu, sizeof right, 200, "");
        ask_take_logits(send_region(d, "net", 4, 0, -1), 4, logits);
        assert_memory_equal(logits, right, sizeof right);
        const uint64_t before[] = {simt_copies_on(0), simt_copies_on(1), simt_copies_on(2)};
        await_put(send_region(d, "net", 4, 0, 0));
        assert_copies(gpu, before);
        fetch_logits(out[gpu], 0, 4, logits);
        assert_memory_equal(logits, right, sizeof right);
        strike(d, "in");
        strike(d, "out");
    }
    CUDA_OK(cudaDeviceSynchronize());
    for (int gpu = 0; gpu < 3; gpu++) {
        CUDA_OK(cudaSetDevice(gpu));
        CUDA_OK(cudaFree(in[gpu]));
        CUDA_OK(cudaFree(out[gpu]));
    }
}

/* --- over it --- */

static void shadows_and_ensembles_run_over_it(void **state)
{
    desk *d = *state;
    float right[CLASSES], logits[CLASSES];
    static const char *const rule = "mlp=net";
    const char *const paths[] = {"datasets/zoo/mlp.onnx", d->folder};
    const pare_shadows_options options = {.rule = &rule, .count = 1, .share = 1, .queue = 64};
    desk_put_model(d, "mlp", 1);
    desk_put_config(d, ON_THREE);
    desk_put_text(d, "all/config.pbtxt",
                  "platform: 'ensemble' max_batch_size: 4 "
                  "input { name: 'input' data_type: TYPE_FP32 dims: [1, 28, 28] } "
                  "output { name: 'logits' data_type: TYPE_FP32 dims: 10 } "
                  "ensemble_scheduling { step { model_name: 'net' model_version: -1 "
                  "input_map { key: 'input' value: 'input' } "
                  "output_map { key: 'logits' value: 'logits' } } }");
    open_gpus(d);
    pare_shadow *shadow = desk_open_shadow(d, paths, 2, &options);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        ask_take_logits(desk_ask(d, "mlp", i, 1), 1, right);
        ask_take_logits(desk_ask(d, "all", i, 1), 1, logits);
        assert_memory_equal(logits, right, sizeof right);
    }
    pare_shadows_drain(d->api.shadows);
    const pare_shadow_stats *stats = pare_shadow_stats_of(shadow);
    assert_int_equal(stats->compared, REQUESTS);
    assert_int_equal(stats->agreed, REQUESTS);
}

/* --- a GPU that fails --- */

/* Each call of a run fails once: its request is told so or has its bytes, the next has its bytes.
 */
static void failed_run_is_told_and_forgotten(void **state)
{
    desk *d = *state;
    float right[CLASSES], logits[CLASSES];
    const pare_serve_config config = desk_config(1, 0, 1);
    int told = 0;
    open_net(d, "mlp", PIPELINE "instance_group { gpus: [0, 1, 2] count: 1 }", &config);
    ask_take_logits(desk_ask(d, "net", 1, 1), 1, right);
    const uint64_t before = simt_calls();
    ask_take_logits(desk_ask(d, "net", 1, 1), 1, right);
    const uint64_t calls = simt_calls() - before;
    for (uint64_t n = 1; n <= calls; n++) {
        simt_fail_at(n, 719, false);
        ask *a = desk_ask(d, "net", 1, 1);
        ask_await(a);
        simt_fail_at(0, 0, false);
        if (a->x.reply.code == 200) {
            ask_take_logits(a, 1, logits);
            assert_memory_equal(logits, right, sizeof right);
        } else {
            assert_int_equal(a->x.reply.code, 500);
            assert_non_null(memmem(a->x.reply.body, a->x.reply.bytes, "model 'net': ", 13));
            told++;
            ask_forget(a);
        }
        ask_take_logits(desk_ask(d, "net", 1, 1), 1, logits);
        assert_memory_equal(logits, right, sizeof right);
    }
    assert_true(told > (int)calls / 2);
    desk_gives(d, "GET", "/v2/models/net/ready", "", 200, "");
}

static void a_lost_gpu_makes_the_model_unready(void **state)
{
    desk *d = *state;
    static ask *asked[REQUESTS];
    float right[CLASSES], logits[CLASSES];
    int failed = 0;
    const pare_serve_config config = desk_config(4, 1000, 1);
    open_net(d, "mlp", ON_THREE, &config);
    ask_take_logits(desk_ask(d, "net", 1, 1), 1, right);
    simt_fail_at(60, 700, true);
    for (int i = 0; i < REQUESTS; i++) asked[i] = desk_ask(d, "net", 1, 1);
    for (int i = 0; i < REQUESTS; i++) {
        ask_await(asked[i]);
        const int code = asked[i]->x.reply.code;
        assert_true(code == 200 || code == 500 || code == 503);
        failed += code != 200;
        ask_forget(asked[i]);
    }
    assert_true(failed > 0);
    desk_gives(d, "GET", "/v2/models/net/ready", "", 503, "model 'net' is not ready: ");
    desk_gives(d, "POST", "/v2/models/net/infer", "{}", 503, "the GPU is lost");
    simt_fail_at(0, 0, false);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    ask_take_logits(desk_ask(d, "net", 1, 1), 1, logits);
    assert_memory_equal(logits, right, sizeof right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_give_the_bytes_of_one_gpu, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(several_chains_give_the_same_bytes, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(plans_wait_for_gpus_in_one_order, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(config_says_where_the_stages_are, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_command_line_places_the_others, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_no_pipeline_is_refused, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(regions_are_on_the_ends, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(shadows_and_ensembles_run_over_it, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(failed_run_is_told_and_forgotten, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_lost_gpu_makes_the_model_unready, desk_setup_heard,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
