/* SPDX-License-Identifier: Apache-2.0 */
/* Served models without a transport: a test hands in requests and waits for their replies. */
#ifndef PARE_TESTS_TOOLS_SERVE_DESK_H
#define PARE_TESTS_TOOLS_SERVE_DESK_H

#include "tests/warnings.h"
#include "tools/serve/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* A request whose reply the test waits for. */
typedef struct ask {
    pare_exchange x; /* first */
    struct desk *desk;
    bool done; /* under the desk's lock */
    char *body;
} ask;

typedef struct desk {
    pare_ctx ctx;
    pare_api api;
    pare_gpus *gpus; /* NULL: the CPU alone */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char folder[64];
    const char *path[1]; /* the folder */
} desk;

static inline void on_done(pare_exchange *x)
{
    ask *a = (ask *)(void *)x;
    pthread_mutex_lock(&a->desk->lock);
    a->done = true;
    pthread_cond_broadcast(&a->desk->changed);
    pthread_mutex_unlock(&a->desk->lock);
}

/* Hands in a request; the body is JSON with binary data behind its first json bytes. */
static inline ask *send(desk *d, const char *method, const char *path, const void *body,
                        size_t bytes, size_t json)
{
    ask *a = calloc(1, sizeof *a);
    assert_non_null(a);
    pare_exchange_init(&a->x, &d->ctx);
    a->desk = d;
    a->x.done = on_done;
    a->x.method = pare_arena_strdup(&a->x.arena, method);
    a->x.path = pare_arena_strdup(&a->x.arena, path);
    a->x.body = a->body = malloc(bytes + 1);
    if (bytes) memcpy(a->body, body, bytes);
    a->x.bytes = bytes;
    if (json != bytes) a->x.json_bytes = pare_arena_printf(&a->x.arena, "%zu", json);
    pare_api_handle(&d->api, &a->x);
    return a;
}

static inline void await(ask *a)
{
    pthread_mutex_lock(&a->desk->lock);
    while (!a->done) pthread_cond_wait(&a->desk->changed, &a->desk->lock);
    pthread_mutex_unlock(&a->desk->lock);
}

static inline void forget(ask *a)
{
    pare_exchange_free(&a->x);
    free(a->body);
    free(a);
}

/* Is this the reply, with the text in it? */
static inline void gives(desk *d, const char *method, const char *path, const char *body, int code,
                         const char *words)
{
    ask *a = send(d, method, path, body, strlen(body), strlen(body));
    await(a);
    char *text = strndup(a->x.reply.body ? a->x.reply.body : "", a->x.reply.bytes);
    if (a->x.reply.code != code || !strstr(text, words))
        fail_msg("%s %s: %d %s, expected %d %s", method, path, a->x.reply.code, text, code, words);
    free(text);
    forget(a);
}

static inline void run(const char *format, const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    assert_int_equal(system(command), 0);
}

static inline void desk_open(desk *d, const char *const *paths, int count,
                             const pare_serve_config *config)
{
    pare_repository_options options = {
        .path = paths, .count = count, .config = *config, .gpus = d->gpus};
    if (pare_repository_open(&d->ctx, &d->api.repository, &options) != PARE_OK)
        fail_msg("%s", d->ctx.message);
}

static inline int setup(void **state)
{
    desk *d = calloc(1, sizeof *d);
    if (!d) return 1;
    pare_ctx_init(&d->ctx);
    hear_warnings(&d->ctx);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    strcpy(d->folder, "/tmp/pare_serve_XXXXXX");
    d->path[0] = d->folder;
    *state = d;
    return mkdtemp(d->folder) ? 0 : 1;
}

static inline int teardown(void **state)
{
    desk *d = *state;
    pare_repository_close(d->api.repository);
    run("rm -rf '%s'%s", d->folder, "");
    free(d);
    return 0;
}

static inline pare_serve_config config_of(int64_t max_batch, int64_t delay, int64_t instances)
{
    pare_serve_config config;
    pare_serve_config_init(&config);
    config.max_batch = max_batch;
    config.delay = delay;
    config.instances = instances;
    return config;
}

enum { PIXELS = 28 * 28, CLASSES = 10 };

/* A request to a model of 28 x 28 pixels, of so many samples with made-up pixels. */
static inline ask *send_images_to(desk *d, const char *path, uint32_t seed, int rows)
{
    char json[512];
    const size_t bytes = (size_t)rows * PIXELS * sizeof(float);
    const int n = snprintf(json, sizeof json,
                           "{\"parameters\": {\"binary_data_output\": true}, \"inputs\": [{"
                           "\"name\": \"input\", \"shape\": [%d, 1, 28, 28], \"datatype\": "
                           "\"FP32\", \"parameters\": {\"binary_data_size\": %zu}}]}",
                           rows, bytes);
    char *body = malloc((size_t)n + bytes);
    memcpy(body, json, (size_t)n);
    for (int i = 0; i < rows * PIXELS; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float pixel = (float)(seed >> 8) * 0x1p-22f - 2;
        memcpy(body + n + (size_t)i * sizeof pixel, &pixel, sizeof pixel);
    }
    ask *a = send(d, "POST", path, body, (size_t)n + bytes, (size_t)n);
    free(body);
    return a;
}

static inline ask *send_images(desk *d, uint32_t seed, int rows)
{
    return send_images_to(d, "/v2/models/mlp/infer", seed, rows);
}

/* The logits of a reply: (rows, CLASSES). */
static inline void take_logits(ask *a, int rows, float *logits)
{
    await(a);
    const pare_reply *r = &a->x.reply;
    if (r->code != 200) fail_msg("%d %.*s", r->code, (int)r->bytes, r->body);
    assert_int_equal(r->bytes - r->json_bytes, (size_t)rows * CLASSES * sizeof(float));
    memcpy(logits, r->body + r->json_bytes, r->bytes - r->json_bytes);
    forget(a);
}

/* A model of the zoo in the folder, as net. */
static inline void put_model(desk *d, const char *model, int version)
{
    char from[128], to[128];
    snprintf(from, sizeof from, "datasets/zoo/%s.onnx", model);
    snprintf(to, sizeof to, "%s/net/%d", d->folder, version);
    run("mkdir -p '%s'%s", to, "");
    run("cp %s '%s'/model.onnx", from, to);
}

static inline void put_config(desk *d, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/net/config.pbtxt", d->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

#endif
