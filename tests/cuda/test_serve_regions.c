/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in the emulated GPU's memory, by handles: the same bytes as in the request's body, alone
   and in batches, on the GPU without the host, elsewhere by it; what is wrong; regions that go; and
   every call of a run that fails in turn. */
#include "testing.h"
#include "runtime/exec/exec.h"
#include "tests/cuda/region_client.h"
#include "tools/serve/grpc/message.h"
#include "tools/serve/grpc/methods.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REQUESTS = 40, GAP = 12 };

static pare_regions regions;
static pare_backend counting; /* the first device's */
static const pare_backend *counted;
static int host_copies; /* copies of tensors from and to the host */

/* The device also copies a word that says whether data were wrong. */
static bool is_tensor(size_t bytes) { return bytes > 8; }

static pare_status count_upload(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                                size_t bytes)
{
    __atomic_add_fetch(&host_copies, is_tensor(bytes), __ATOMIC_RELAXED);
    return counted->upload(ctx, stream, dst, src, bytes);
}

static pare_status count_download(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                                  size_t bytes)
{
    __atomic_add_fetch(&host_copies, is_tensor(bytes), __ATOMIC_RELAXED);
    return counted->download(ctx, stream, dst, src, bytes);
}

static void open_gpus(desk *d, bool is_first)
{
    if (is_first) {
        assert_int_equal(pare_device_open(&d->ctx, &d->device, "cuda"), PARE_OK);
        counted = d->device->backend;
        counting = *counted;
        counting.upload = count_upload;
        counting.download = count_download;
        d->device->backend = &counting;
    }
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
    CUDA_OK(cudaSetDevice(0));
    return desk_teardown(state) || device_is_clean(state);
}

static void open_model(desk *d, const char *model, const pare_serve_config *config)
{
    char path[64];
    const char *const paths[] = {path};
    snprintf(path, sizeof path, "datasets/zoo/%s.onnx", model);
    open_gpus(d, true);
    desk_open(d, paths, 1, config);
}

/* --- the same bytes --- */

/* The region's first bytes are no tensor's. */
static float *make_all(size_t *bytes, size_t *at)
{
    *bytes = GAP;
    for (int i = 0; i < REQUESTS; i++) {
        at[i] = *bytes;
        *bytes += (size_t)desk_rows(i) * ROW;
    }
    float *all = calloc(1, *bytes);
    assert_non_null(all);
    for (int i = 0; i < REQUESTS; i++)
        desk_pixels((uint32_t)i, desk_rows(i), all + at[i] / sizeof(float));
    return all;
}

static void regions_give_the_bytes_of_bodies(void **state)
{
    desk *d = *state;
    float right[3 * CLASSES], logits[3 * CLASSES];
    size_t bytes, at[REQUESTS];
    float *all = make_all(&bytes, at);
    const char *const models[] = {"mlp", "cnn"};
    const pare_serve_config config = desk_config(3, 0, 1);
    for (int m = 0; m < 2; m++) {
        open_model(d, models[m], &config);
        void *in = enlist_new(d, "in", all, bytes), *out = enlist_new(d, "out", NULL, 1000);
        for (int i = 0; i < REQUESTS; i += 4) {
            const int rows = desk_rows(i);
            ask_take_logits(desk_ask(d, models[m], (uint32_t)i, rows), rows, right);
            ask_take_logits(send_region(d, models[m], rows, at[i], -1), rows, logits);
            assert_memory_equal(logits, right, (size_t)rows * LOGITS);
            __atomic_store_n(&host_copies, 0, __ATOMIC_RELAXED);
            await_put(send_region(d, models[m], rows, at[i], 4 * i));
            assert_int_equal(__atomic_load_n(&host_copies, __ATOMIC_RELAXED), 0);
            fetch_logits(out, (size_t)(4 * i), rows, logits);
            assert_memory_equal(logits, right, (size_t)rows * LOGITS);
        }
        /* and a body's are brought up again */
        ask_take_logits(desk_ask(d, models[m], 4, 3), 3, logits);
        assert_int_equal(__atomic_load_n(&host_copies, __ATOMIC_RELAXED), 2);
        ask_take_logits(send_region(d, models[m], 3, at[4], -1), 3, right);
        assert_memory_equal(logits, right, 3 * LOGITS);
        assert_int_equal(warnings, 0);
        desk_close(d);
        CUDA_OK(cudaFree(in));
        CUDA_OK(cudaFree(out));
    }
    free(all);
}

static void batches_mix_bodies_and_regions(void **state)
{
    desk *d = *state;
    static float alone[REQUESTS][3 * CLASSES], together[3 * CLASSES];
    static ask *asked[REQUESTS];
    size_t bytes, at[REQUESTS];
    float *all = make_all(&bytes, at);
    const pare_serve_config single = desk_config(3, 0, 1);
    const pare_serve_config batched = desk_config(11, 200000, 2);
    open_model(d, "mlp", &single);
    for (int i = 0; i < REQUESTS; i++)
        ask_take_logits(desk_ask(d, "mlp", (uint32_t)i, desk_rows(i)), desk_rows(i), alone[i]);
    desk_close(d);
    open_model(d, "mlp", &batched);
    void *in = enlist_new(d, "in", all, bytes);
    void *out = enlist_new(d, "out", NULL, REQUESTS * sizeof alone[0]);
    for (int i = 0; i < REQUESTS; i++)
        asked[i] = i % 3 ? send_region(d, "mlp", desk_rows(i), at[i],
                                       i % 3 == 1 ? -1 : i * (long)sizeof alone[0])
                         : desk_ask(d, "mlp", (uint32_t)i, desk_rows(i));
    for (int i = 0; i < REQUESTS; i++) {
        if (i % 3 < 2) {
            ask_take_logits(asked[i], desk_rows(i), together);
        } else {
            await_put(asked[i]);
            fetch_logits(out, (size_t)i * sizeof alone[0], desk_rows(i), together);
        }
        assert_memory_equal(together, alone[i], (size_t)desk_rows(i) * LOGITS);
    }
    assert_true(desk_stats(d, "mlp").runs < REQUESTS);
    desk_close(d);
    CUDA_OK(cudaFree(in));
    CUDA_OK(cudaFree(out));
    free(all);
}

/* A model on the CPU, and one on another GPU, get the bytes by the host. */
static void other_processors_get_the_bytes(void **state)
{
    desk *d = *state;
    float pixels[PIXELS], right[CLASSES], logits[CLASSES];
    const char *const paths[] = {d->folder, "datasets/zoo/mlp.onnx"};
    const char *const groups[] = {"instance_group { kind: KIND_CPU }",
                                  "instance_group { gpus: 1 }"};
    const pare_serve_config config = desk_config(4, 0, 1);
    desk_pixels(9, 1, pixels);
    desk_put_model(d, "mlp", 1);
    simt_set.devices = 2;
    for (int g = 0; g < 2; g++) {
        desk_put_config(d, groups[g]);
        open_gpus(d, true);
        desk_open(d, paths, 2, &config);
        CUDA_OK(cudaSetDevice(0));
        void *in = enlist_new(d, "in", pixels, ROW), *out = enlist_new(d, "out", NULL, LOGITS);
        ask_take_logits(desk_ask(d, "net", 9, 1), 1, right);
        await_put(send_region(d, "net", 1, 0, 0));
        fetch_logits(out, 0, 1, logits);
        assert_memory_equal(logits, right, sizeof right);
        for (int n = 1; n < 3; n++) { /* the copy from the region fails, or the wait for it */
            simt_fail_at((uint64_t)n, 719, false);
            ask *a = send_region(d, "net", 1, 0, 0);
            ask_await(a);
            simt_fail_at(0, 0, false);
            assert_int_equal(a->x.reply.code, 500);
            assert_non_null(
                memmem(a->x.reply.body, a->x.reply.bytes, "shared memory of GPU 0", 22));
            ask_forget(a);
            await_put(send_region(d, "net", 1, 0, 0));
        }
        assert_int_equal(warnings, 0); /* no plan was made anew */
        desk_close(d);
        CUDA_OK(cudaFree(in));
        CUDA_OK(cudaFree(out));
    }
}

/* Classes are text, which the host makes. */
static void classes_come_from_regions(void **state)
{
    desk *d = *state;
    float pixels[PIXELS], logits[CLASSES];
    const pare_serve_config config = desk_config(4, 0, 1);
    desk_pixels(3, 1, pixels);
    open_model(d, "mlp", &config);
    void *in = enlist_new(d, "in", pixels, ROW), *out = enlist_new(d, "out", NULL, 64);
    ask_take_logits(send_region(d, "mlp", 1, 0, -1), 1, logits);
    desk_gives(d, "POST", "/v2/models/mlp/infer",
               "{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 1, 28, 28], \"datatype\": "
               "\"FP32\", \"parameters\": {\"shared_memory_region\": \"in\", "
               "\"shared_memory_byte_size\": 3136}}], \"outputs\": [{\"name\": \"logits\", "
               "\"parameters\": {\"classification\": 1, \"shared_memory_region\": \"out\", "
               "\"shared_memory_byte_size\": 64}}]}",
               200, "\"datatype\":\"BYTES\"");
    char text[64], first[64];
    int top = 0;
    for (int i = 1; i < CLASSES; i++)
        if (logits[i] > logits[top]) top = i;
    const int n = snprintf(first, sizeof first, "%f:%d", (double)logits[top], top);
    CUDA_OK(cudaMemcpy(text, out, sizeof text, cudaMemcpyDeviceToHost));
    assert_int_equal(text[0], n);
    assert_memory_equal(text + 4, first, (size_t)n);
    desk_close(d);
    CUDA_OK(cudaFree(in));
    CUDA_OK(cudaFree(out));
}

/* --- what is wrong --- */

static void wrong_regions_are_told(void **state)
{
    desk *d = *state;
    char garbage[96], gone[96], other[96], good[96];
    const unsigned char bytes[PARE_SHARING_HANDLE] = {1, 2, 3};
    const pare_serve_config config = desk_config(4, 0, 1);
    static const char status[] = "/v2/cudasharedmemory/region/r/status";
    simt_set.devices = 3;
    desk_put_model(d, "mlp", 1);
    desk_put_config(d, "instance_group { gpus: [0, 1] }");
    open_gpus(d, false);
    desk_open(d, d->path, 1, &config);
    CUDA_OK(cudaSetDevice(0));
    void *memory = device_copy(NULL, 1000), *freed = device_copy(NULL, 1000);
    strcpy(good, handle_text(memory));
    strcpy(gone, handle_text(freed));
    CUDA_OK(cudaFree(freed));
    CUDA_OK(cudaSetDevice(1));
    void *on_other = device_copy(NULL, 1000);
    strcpy(other, handle_text(on_other));
    pare_base64_put(garbage, bytes, sizeof bytes);
    enlist(d, "r", "AAAA", 0, 1000, 400, "region 'r': raw_handle: expected 64 bytes as base64");
    enlist(d, "r", garbage, 0, 1000, 400, "the handle is of no memory that another process shares");
    enlist(d, "r", gone, 0, 1000, 400, "the handle is of no memory that another process shares");
    enlist(d, "r", other, 0, 1000, 400, "the handle is of memory of GPU 1, expected GPU 0");
    enlist(d, "r", good, 2, 1000, 400, "region 'r': no model is served on GPU 2");
    enlist(d, "r", good, -1, 1000, 400, "region 'r': no model is served on GPU -1");
    enlist(d, "r", good, 0, 1001, 400, "the handle is of 1000 bytes of memory, expected 1001");
    desk_gives(d, "POST", "/v2/cudasharedmemory/region/r/register", "{\"device_id\": 0}", 400,
               "expected a 'raw_handle'");
    desk_gives(d, "GET", status, "", 404, "there is no shared memory region 'r'");
    enlist(d, "r", good, 0, 1000, 200, "");
    enlist(d, "again", good, 0, 10, 200, ""); /* the same memory */
    enlist(d, "s", other, 1, 1000, 200, "");
    enlist(d, "r", other, 1, 1000, 400, "region 'r' is registered already");
    desk_gives(d, "GET", status, "", 200, "[{\"name\":\"r\",\"device_id\":0,\"byte_size\":1000}]");
    desk_gives(d, "GET", "/v2/cudasharedmemory/status", "", 200, "\"name\":\"s\",\"device_id\":1");
    desk_gives(d, "GET", "/v2/systemsharedmemory/status", "", 200, "[]");
    desk_gives(d, "POST", "/v2/systemsharedmemory/unregister", "", 200, "");
    desk_gives(d, "GET", status, "", 200, "\"r\"");
    desk_gives(d, "POST", "/v2/cudasharedmemory/unregister", "", 200, "");
    desk_gives(d, "GET", "/v2/cudasharedmemory/status", "", 200, "[]");
    desk_close(d);
    CUDA_OK(cudaFree(memory));
    CUDA_OK(cudaFree(on_other));
}

static void who_is_not_asked_refuses(void **state)
{
    desk *d = *state;
    static const char words[] = "pare serve --cuda-shared-memory allows it";
    const pare_serve_config config = desk_config(4, 0, 1);
    open_model(d, "mlp", &config);
    desk_gives(d, "GET", "/v2", "", 200, "\"cuda_shared_memory\"]");
    regions.has_system = false;
    desk_gives(d, "GET", "/v2/systemsharedmemory/status", "", 501, "--shared-memory allows it");
    regions.has_system = true;
    regions.gpus = NULL;
    desk_gives(d, "GET", "/v2", "", 200, "\"system_shared_memory\"]");
    desk_gives(d, "GET", "/v2/cudasharedmemory/status", "", 501, words);
    desk_gives(d, "POST", "/v2/cudasharedmemory/region/r/register", "{}", 501, words);
    desk_gives(d, "POST", "/v2/cudasharedmemory/unregister", "", 501, words);
}

static void on_done(pare_exchange *x) { assert_int_not_equal(x->reply.code, 0); }

/* Asks at once, and lets go of the message. has: bytes that the reply has; none: it is empty. */
static void call(desk *d, const char *name, pare_message *m, int status, const void *has,
                 size_t bytes)
{
    char path[96];
    pare_grpc_request q;
    const int n =
        snprintf(path, sizeof path, "/inference.GRPCInferenceService/CudaSharedMemory%s", name);
    const pare_grpc_method *method = pare_grpc_method_find(path, (size_t)n);
    assert_non_null(method);
    pare_grpc_request_init(&q, &d->ctx, method);
    q.x.done = on_done;
    q.x.body = m->data;
    q.x.bytes = m->bytes;
    pare_grpc_request_handle(&q, &d->api);
    assert_int_equal(pare_grpc_request_finish(&q), status);
    if (bytes)
        assert_non_null(memmem(q.x.reply.body, q.x.reply.bytes, has, bytes));
    else
        assert_int_equal(q.x.reply.bytes, 0);
    pare_exchange_free(&q.x);
    pare_message_free(m);
}

/* The protocol's numbers: a region's name is 1, handle 2, device 3 and size 4; in a status device 2
   and size 3. */
static void grpc_registers_regions(void **state)
{
    desk *d = *state;
    cudaIpcMemHandle_t handle;
    pare_message m = {0};
    static const unsigned char named[] = {10, 1, 'r'}, sized[] = {24, 0xe8, 7};
    static const char word[] = "--cuda-shared-memory";
    const pare_serve_config config = desk_config(4, 0, 1);
    open_model(d, "mlp", &config);
    void *memory = device_copy(NULL, 1000);
    CUDA_OK(cudaIpcGetMemHandle(&handle, memory));
    pare_message_text(&m, 1, "r");
    pare_message_bytes(&m, 2, &handle, sizeof handle);
    pare_message_number(&m, 4, 1000);
    call(d, "Register", &m, PARE_GRPC_OK, NULL, 0);
    call(d, "Status", &m, PARE_GRPC_OK, named, sizeof named);
    pare_message_text(&m, 1, "r");
    call(d, "Status", &m, PARE_GRPC_OK, sized, sizeof sized);
    pare_message_text(&m, 1, "s");
    call(d, "Status", &m, PARE_GRPC_NOT_FOUND, "'s'", 3);
    pare_message_text(&m, 1, "r");
    pare_message_bytes(&m, 2, &handle, sizeof handle - 1);
    pare_message_number(&m, 4, 1000);
    call(d, "Register", &m, PARE_GRPC_INVALID_ARGUMENT, "64 bytes", 8);
    call(d, "Unregister", &m, PARE_GRPC_OK, NULL, 0);
    call(d, "Status", &m, PARE_GRPC_OK, NULL, 0);
    regions.gpus = NULL;
    call(d, "Status", &m, PARE_GRPC_UNIMPLEMENTED, word, sizeof word - 1);
    desk_close(d);
    CUDA_OK(cudaFree(memory));
}

static void small_regions_are_told(void **state)
{
    desk *d = *state;
    const pare_serve_config config = desk_config(4, 0, 1);
    open_model(d, "mlp", &config);
    void *in = enlist_new(d, "in", NULL, 2 * ROW), *out = enlist_new(d, "out", NULL, 2 * LOGITS);
    static const struct {
        int rows;
        size_t from;
        long to;
        const char *words;
    } cases[] = {
        {3, 0, -1, "shared memory region 'in' has 6272 bytes, expected 9408 behind 0"},
        {1, ROW + 1, -1, "shared memory region 'in' has 6272 bytes, expected 3136 behind 3137"},
        {1, 0, LOGITS + 1, "shared memory region 'out' has 80 bytes, expected 40 behind 41"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ask *a = send_region(d, "mlp", cases[i].rows, cases[i].from, cases[i].to);
        ask_await(a);
        assert_int_equal(a->x.reply.code, 400);
        assert_non_null(
            memmem(a->x.reply.body, a->x.reply.bytes, cases[i].words, strlen(cases[i].words)));
        ask_forget(a);
    }
    desk_gives(d, "POST", "/v2/models/mlp/infer",
               "{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 1, 28, 28], \"datatype\": "
               "\"FP32\", \"parameters\": {\"shared_memory_region\": \"in\", "
               "\"shared_memory_byte_size\": 3136}}], \"outputs\": [{\"name\": \"logits\", "
               "\"parameters\": {\"shared_memory_region\": \"out\", \"shared_memory_byte_size\": "
               "39}}]}",
               400, "takes 40 bytes, shared_memory_byte_size is 39");
    desk_close(d);
    CUDA_OK(cudaFree(in));
    CUDA_OK(cudaFree(out));
}

/* --- regions that go, and calls that fail --- */

static void unregistered_regions_last_until_replies(void **state)
{
    desk *d = *state;
    float pixels[PIXELS], right[CLASSES], logits[CLASSES];
    const pare_serve_config config = desk_config(4, 60000000, 1);
    desk_pixels(2, 1, pixels);
    open_model(d, "mlp", &config);
    void *in = enlist_new(d, "in", pixels, ROW), *out = enlist_new(d, "out", NULL, LOGITS);
    ask *body = desk_ask(d, "mlp", 2, 1), *a = send_region(d, "mlp", 1, 0, 0);
    const uint64_t before = simt_calls_of("cudaIpcCloseMemHandle");
    strike(d, "in");
    strike(d, "out");
    desk_gives(d, "GET", "/v2/cudasharedmemory/status", "", 200, "[]");
    desk_gives(d, "POST", "/v2/models/mlp/infer",
               "{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 1, 28, 28], \"datatype\": "
               "\"FP32\", \"parameters\": {\"shared_memory_region\": \"in\", "
               "\"shared_memory_byte_size\": 3136}}]}",
               400, "there is no shared memory region 'in'");
    assert_int_equal(simt_calls_of("cudaIpcCloseMemHandle"), before);
    assert_int_equal(pare_repository_hurry(d->api.repository, &d->ctx), PARE_OK);
    ask_take_logits(body, 1, right);
    await_put(a);
    assert_int_equal(simt_calls_of("cudaIpcCloseMemHandle"), before + 2);
    fetch_logits(out, 0, 1, logits);
    assert_memory_equal(logits, right, sizeof right);
    CUDA_OK(cudaFree(in));
    CUDA_OK(cudaFree(out));
}

/* A batch whose second request's memory has become smaller: the others are answered. */
static void a_failed_row_fails_alone(void **state)
{
    desk *d = *state;
    float pixels[PIXELS], right[CLASSES], logits[CLASSES];
    char key[32], body[96];
    const pare_serve_config config = desk_config(4, 60000000, 1);
    snprintf(key, sizeof key, "/pare_regions_%d", (int)getpid());
    const int fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && !ftruncate(fd, ROW));
    desk_pixels(2, 1, pixels);
    open_model(d, "mlp", &config);
    void *in = enlist_new(d, "good", pixels, ROW), *out = enlist_new(d, "out", NULL, LOGITS);
    snprintf(body, sizeof body, "{\"key\": \"%s\", \"byte_size\": %d}", key, (int)ROW);
    desk_gives(d, "POST", "/v2/systemsharedmemory/region/bad/register", body, 200, "");
    ask *a = send_from(d, "mlp", "good", 1, 0, 0), *bad = send_from(d, "mlp", "bad", 1, 0, -1);
    ask *last = desk_ask(d, "mlp", 2, 1);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pare_repository_hurry(d->api.repository, &d->ctx), PARE_OK);
    ask_take_logits(last, 1, right);
    ask_await(bad);
    assert_int_equal(bad->x.reply.code, 400);
    ask_forget(bad);
    await_put(a);
    fetch_logits(out, 0, 1, logits);
    assert_memory_equal(logits, right, sizeof right);
    close(fd);
    shm_unlink(key);
    desk_close(d);
    CUDA_OK(cudaFree(in));
    CUDA_OK(cudaFree(out));
}

/* Each call of a run fails once: its requests are told so or have their bytes, and the next have
   theirs. */
static void failed_copies_are_told_and_forgotten(void **state)
{
    desk *d = *state;
    static const int codes[] = {719, 2};
    float pixels[PIXELS], right[CLASSES], logits[CLASSES];
    const pare_serve_config config = desk_config(4, 0, 1);
    int told = 0;
    desk_pixels(1, 1, pixels);
    open_model(d, "mlp", &config);
    void *in = enlist_new(d, "in", pixels, ROW), *out = enlist_new(d, "out", NULL, LOGITS);
    ask_take_logits(desk_ask(d, "mlp", 1, 1), 1, right);
    const uint64_t before = simt_calls();
    await_put(send_region(d, "mlp", 1, 0, 0));
    const uint64_t calls = simt_calls() - before;
    assert_true(calls > 3);
    for (uint64_t n = 1; n <= 2 * calls; n++) {
        CUDA_OK(cudaMemset(out, 0, LOGITS));
        CUDA_OK(cudaDeviceSynchronize());
        simt_fail_at((n + 1) / 2, codes[n % 2], false);
        ask *a = send_region(d, "mlp", 1, 0, 0);
        ask_await(a);
        simt_fail_at(0, 0, false);
        if (a->x.reply.code == 200) {
            await_put(a);
            fetch_logits(out, 0, 1, logits);
            assert_memory_equal(logits, right, sizeof right);
        } else {
            assert_true(a->x.reply.code == 500 || a->x.reply.code == 503);
            told++;
            ask_forget(a);
        }
        await_put(send_region(d, "mlp", 1, 0, 0));
        fetch_logits(out, 0, 1, logits);
        assert_memory_equal(logits, right, sizeof right);
    }
    assert_true(told >= (int)calls);
    desk_gives(d, "GET", "/v2/models/mlp/ready", "", 200, "");
    desk_close(d);
    CUDA_OK(cudaFree(in));
    CUDA_OK(cudaFree(out));
}

/* Each call of a registration fails once, and leaves nothing open. */
static void failed_registrations_leave_nothing(void **state)
{
    desk *d = *state;
    const pare_serve_config config = desk_config(4, 0, 1);
    char body[256];
    open_model(d, "mlp", &config);
    void *memory = device_copy(NULL, 100);
    snprintf(body, sizeof body, "{\"raw_handle\": {\"b64\": \"%s\"}, \"byte_size\": 100}",
             handle_text(memory));
    char before[256], after[256];
    simt_live(before, sizeof before);
    int code = 0, failed = 0;
    for (uint64_t n = 1; code != 200; n++) {
        simt_fail_at(n, 999, false);
        ask *a = desk_send(d, "POST", "/v2/cudasharedmemory/region/r/register", body, strlen(body),
                           strlen(body));
        ask_await(a);
        simt_fail_at(0, 0, false);
        code = a->x.reply.code;
        ask_forget(a);
        simt_live(after, sizeof after);
        if (code == 200) break;
        assert_int_equal(code, 500);
        assert_string_equal(after, before);
        failed++;
    }
    assert_true(failed >= 5);
    strike(d, "r");
    simt_live(after, sizeof after);
    assert_string_equal(after, before);
    CUDA_OK(cudaFree(memory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(regions_give_the_bytes_of_bodies, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(batches_mix_bodies_and_regions, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(other_processors_get_the_bytes, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(classes_come_from_regions, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(wrong_regions_are_told, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(who_is_not_asked_refuses, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(grpc_registers_regions, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(small_regions_are_told, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(unregistered_regions_last_until_replies, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_failed_row_fails_alone, desk_setup_heard, teardown),
        cmocka_unit_test_setup_teardown(failed_copies_are_told_and_forgotten, desk_setup_heard,
                                        teardown),
        cmocka_unit_test_setup_teardown(failed_registrations_leave_nothing, desk_setup_heard,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
