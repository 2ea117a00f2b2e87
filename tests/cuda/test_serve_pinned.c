/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies in memory from which the emulated GPU copies by itself: the same bytes as from ordinary
   memory, alone and in batches, copied from the body; and every call of a run that fails in turn.
 */
#include "testing.h"
#include "runtime/exec/exec.h"
#include "tests/cuda/region_client.h"

enum { REQUESTS = 40 };

static pare_backend counting; /* the device's */
static const pare_backend *counted;
static pare_bodies *pinned;
static const char *body; /* (body_bytes) of the next request */
static size_t body_bytes;
static int from_body; /* copies up from there */

static pare_status count_upload(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                                size_t bytes)
{
    const uintptr_t at = (uintptr_t)src, begin = (uintptr_t)body;
    if (at >= begin && at - begin < body_bytes) __atomic_add_fetch(&from_body, 1, __ATOMIC_RELAXED);
    return counted->upload(ctx, stream, dst, src, bytes);
}

static void open_model(desk *d, const char *model, const pare_serve_config *config)
{
    char path[64];
    const char *const paths[] = {path};
    snprintf(path, sizeof path, "datasets/zoo/%s.onnx", model);
    assert_int_equal(pare_device_open(&d->ctx, &d->device, "cuda"), PARE_OK);
    counted = d->device->backend;
    counting = *counted;
    counting.upload = count_upload;
    d->device->backend = &counting;
    assert_int_equal(pare_gpus_new(&d->ctx, &d->gpus, d->device, 0), PARE_OK);
    desk_open(d, paths, 1, config);
    pinned = &pare_gpus_first(d->gpus)->pinned;
    body_bytes = 0;
}

static int teardown(void **state)
{
    simt_fail_at(0, 0, false);
    desk_close(*state);
    return desk_teardown(state) || device_is_clean(state);
}

/* The next request's body goes where this one's was. */
static void know_body(desk *d, const char *model)
{
    float logits[CLASSES];
    d->bodies = pinned;
    ask_take_logits(desk_ask(d, model, 0, 1), 1, logits);
    assert_non_null(pinned->free);
    body = pinned->free->data;
    body_bytes = pinned->free->room;
}

static void bodies_are_copied_from_where_they_are(void **state)
{
    desk *d = *state;
    float right[3 * CLASSES], logits[3 * CLASSES];
    const char *const models[] = {"mlp", "cnn"};
    const pare_serve_config config = desk_config(3, 0, 1);
    for (int m = 0; m < 2; m++) {
        open_model(d, models[m], &config);
        know_body(d, models[m]);
        for (int i = 0; i < REQUESTS; i += 4) {
            const int rows = desk_rows(i);
            d->bodies = NULL;
            __atomic_store_n(&from_body, 0, __ATOMIC_RELAXED);
            ask_take_logits(desk_ask(d, models[m], (uint32_t)i, rows), rows, right);
            assert_int_equal(__atomic_load_n(&from_body, __ATOMIC_RELAXED), 0);
            d->bodies = pinned;
            ask_take_logits(desk_ask(d, models[m], (uint32_t)i, rows), rows, logits);
            assert_int_equal(__atomic_load_n(&from_body, __ATOMIC_RELAXED), 1);
            assert_memory_equal(logits, right, (size_t)rows * LOGITS);
        }
        assert_int_equal(warnings, 0);
        desk_close(d);
    }
}

static void batches_mix_both(void **state)
{
    desk *d = *state;
    static float alone[REQUESTS][3 * CLASSES], together[3 * CLASSES];
    static ask *asked[REQUESTS];
    const pare_serve_config single = desk_config(3, 0, 1);
    const pare_serve_config batched = desk_config(11, 200000, 2);
    open_model(d, "mlp", &single);
    for (int i = 0; i < REQUESTS; i++)
        ask_take_logits(desk_ask(d, "mlp", (uint32_t)i, desk_rows(i)), desk_rows(i), alone[i]);
    desk_close(d);
    open_model(d, "mlp", &batched);
    for (int i = 0; i < REQUESTS; i++) {
        d->bodies = i % 3 ? pinned : NULL;
        asked[i] = desk_ask(d, "mlp", (uint32_t)i, desk_rows(i));
    }
    for (int i = 0; i < REQUESTS; i++) {
        ask_take_logits(asked[i], desk_rows(i), together);
        assert_memory_equal(together, alone[i], (size_t)desk_rows(i) * LOGITS);
    }
    assert_true(desk_stats(d, "mlp").runs < REQUESTS);
    desk_close(d);
}

/* Each call of a run fails once: its request is told so or has its bytes, no copy reads its body
   behind its reply, and the next has its bytes. */
static void failed_copies_are_told_and_forgotten(void **state)
{
    desk *d = *state;
    static const int codes[] = {719, 2};
    float right[CLASSES], logits[CLASSES];
    const pare_serve_config config = desk_config(4, 0, 1);
    int told = 0;
    open_model(d, "mlp", &config);
    ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, right);
    know_body(d, "mlp");
    const uint64_t before = simt_calls();
    ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, logits);
    const uint64_t calls = simt_calls() - before;
    assert_true(calls > 2);
    for (uint64_t n = 1; n <= 2 * calls; n++) {
        simt_fail_at((n + 1) / 2, codes[n % 2], false);
        ask *a = desk_ask(d, "mlp", 1, 1);
        ask_await(a);
        simt_fail_at(0, 0, false);
        if (a->x.reply.code == 200) {
            ask_take_logits(a, 1, logits);
            assert_memory_equal(logits, right, sizeof right);
        } else {
            assert_true(a->x.reply.code == 500 || a->x.reply.code == 503);
            told++;
            ask_forget(a);
        }
        ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, logits);
        assert_memory_equal(logits, right, sizeof right);
    }
    assert_true(told >= (int)calls);
    desk_gives(d, "GET", "/v2/models/mlp/ready", "", 200, "");
    desk_close(d);
}

/* Small bodies, and those beyond what may be pinned, are in ordinary memory. */
static void memory_has_a_limit(void **state)
{
    desk *d = *state;
    const pare_serve_config config = desk_config(4, 0, 1);
    open_model(d, "mlp", &config);
    assert_null(pare_bodies_get(pinned, PARE_BODY_LARGE - 1));
    assert_null(pare_bodies_get(pinned, pinned->most / 8 + 1));
    pare_body *a = pare_bodies_get(pinned, 1 << 20);
    assert_non_null(a);
    char *data = a->data;
    memset(data, 1, a->room);
    pinned->most = 9 << 20;
    pare_body *others[8];
    for (int i = 0; i < 8; i++) assert_non_null(others[i] = pare_bodies_get(pinned, 1 << 20));
    assert_null(pare_bodies_get(pinned, 1 << 20));
    pare_bodies_put(a);
    a = pare_bodies_get(pinned, (1 << 20) - 1000);
    assert_non_null(a);
    assert_ptr_equal(a->data, data);
    pare_bodies_put(a);
    assert_int_equal(pthread_mutex_lock(&pare_gpus_first(d->gpus)->making), 0);
    assert_null(pare_bodies_get(pinned, PARE_BODY_LARGE)); /* while someone makes a plan */
    assert_int_equal(pthread_mutex_unlock(&pare_gpus_first(d->gpus)->making), 0);
    a = pare_bodies_get(pinned, PARE_BODY_LARGE); /* in place of one that no one uses */
    assert_non_null(a);
    assert_int_equal(pinned->kept, (8 << 20) + a->room);
    pare_bodies_put(a);
    for (int i = 0; i < 8; i++) pare_bodies_put(others[i]);
    desk_close(d);
}

static void body_is_in(desk *d, const char *path, const char *encoding, const pare_bodies *want)
{
    pare_exchange x;
    pare_exchange_init(&x, &d->ctx);
    x.path = path;
    x.encoding = encoding;
    assert_ptr_equal(pare_api_bodies(&d->api, &x), want);
    pare_exchange_free(&x);
}

/* What the model does not take as it came is in ordinary memory: it is unpacked, or decoded. */
static void which_bodies_are_pinned(void **state)
{
    desk *d = *state;
    static const int64_t dims[] = {1, 3, 8, 8};
    const pare_serve_config config = desk_config(1, 0, 1);
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "image", PARE_f32, 4, dims);
    graph_node(&g, "Relu", "image", "same");
    graph_output(&g, "same");
    desk_put_graph(
        d, &g, "pictures",
        "parameters { key: \"preprocess\" value { string_value: \"resize 10, crop 8\" } }");
    desk_put_model(d, "mlp", 1);
    assert_int_equal(pare_device_open(&d->ctx, &d->device, "cuda"), PARE_OK);
    assert_int_equal(pare_gpus_new(&d->ctx, &d->gpus, d->device, 0), PARE_OK);
    desk_open(d, d->path, 1, &config);
    pinned = &pare_gpus_first(d->gpus)->pinned;
    body_is_in(d, "/v2/models/net/infer", NULL, pinned);
    body_is_in(d, "/v2/models/net/versions/1/infer", "identity", pinned);
    body_is_in(d, "/v2/models/net/infer", "gzip", NULL);
    body_is_in(d, "/v2/models/net/ready", NULL, NULL);
    body_is_in(d, "/v2/models/none/infer", NULL, NULL);
    desk_gives(d, "GET", "/v2/models/pictures/ready", "", 200, "");
    body_is_in(d, "/v2/models/pictures/infer", NULL, NULL);
    desk_close(d);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, desk_setup_heard, teardown)
    const struct CMUnitTest tests[] = {
        CASE(bodies_are_copied_from_where_they_are),
        CASE(batches_mix_both),
        CASE(failed_copies_are_told_and_forgotten),
        CASE(memory_has_a_limit),
        CASE(which_bodies_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
