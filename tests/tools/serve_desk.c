/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tools/serve_desk.h"

#include "formats/onnx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void on_done(pare_exchange *x)
{
    ask *a = (ask *)(void *)x;
    pthread_mutex_lock(&a->desk->lock);
    a->done = true;
    pthread_cond_broadcast(&a->desk->changed);
    pthread_mutex_unlock(&a->desk->lock);
}

ask *desk_send(desk *d, const char *method, const char *path, const void *body, size_t bytes,
               size_t json)
{
    ask *a = calloc(1, sizeof *a);
    assert_non_null(a);
    pare_exchange_init(&a->x, &d->ctx);
    a->desk = d;
    a->x.done = on_done;
    a->x.held = d->held;
    a->x.most_held = d->most_held;
    a->x.method = pare_arena_strdup(&a->x.arena, method);
    a->x.path = pare_arena_strdup(&a->x.arena, path);
    a->memory = d->bodies ? pare_bodies_get(d->bodies, PARE_BODY_LARGE + bytes) : NULL;
    assert_true(a->memory || !d->bodies);
    a->x.is_pinned = a->memory && a->memory->pool->pin;
    a->x.body = a->body = a->memory ? a->memory->data : malloc(bytes + 1);
    if (bytes) memcpy(a->body, body, bytes);
    a->x.bytes = bytes;
    if (json != bytes) a->x.json_bytes = pare_arena_printf(&a->x.arena, "%zu", json);
    pare_api_handle(&d->api, &a->x);
    return a;
}

void ask_await(ask *a)
{
    pthread_mutex_lock(&a->desk->lock);
    while (!a->done) pthread_cond_wait(&a->desk->changed, &a->desk->lock);
    pthread_mutex_unlock(&a->desk->lock);
}

void ask_forget(ask *a)
{
    pare_exchange_free(&a->x);
    if (a->memory) memset(a->body, 0xff, a->memory->room); /* no copy may be under way */
    pare_bodies_put(a->memory);
    if (!a->memory) free(a->body);
    free(a);
}

void desk_gives(desk *d, const char *method, const char *path, const char *body, int code,
                const char *words)
{
    ask *a = desk_send(d, method, path, body, strlen(body), strlen(body));
    ask_await(a);
    char *text = strndup(a->x.reply.body ? a->x.reply.body : "", a->x.reply.bytes);
    if (a->x.reply.code != code || !strstr(text, words))
        fail_msg("%s %s: %d %s, expected %d %s", method, path, a->x.reply.code, text, code, words);
    free(text);
    ask_forget(a);
}

void desk_run(const char *format, const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    assert_int_equal(system(command), 0);
}

void desk_open_with(desk *d, const pare_repository_options *options)
{
    if (pare_repository_open(&d->ctx, &d->api.repository, options) != PARE_OK)
        fail_msg("%s", d->ctx.message);
}

void desk_open(desk *d, const char *const *paths, int count, const pare_serve_config *config)
{
    const pare_repository_options options = {
        .path = paths, .count = count, .config = *config, .gpus = d->gpus};
    desk_open_with(d, &options);
}

int desk_setup(void **state)
{
    desk *d = calloc(1, sizeof *d);
    if (!d) return 1;
    pare_ctx_init(&d->ctx);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    strcpy(d->folder, "/tmp/pare_serve_XXXXXX");
    d->path[0] = d->folder;
    *state = d;
    return mkdtemp(d->folder) ? 0 : 1;
}

void desk_close(desk *d)
{
    pare_repository_close(d->api.repository);
    if (d->api.regions) pare_regions_free(d->api.regions);
    d->bodies = NULL;
    pare_gpus_free(d->gpus);
    pare_device_close(d->device);
    d->api.repository = NULL;
    d->api.regions = NULL;
    d->gpus = NULL;
    d->device = NULL;
}

int desk_teardown(void **state)
{
    desk *d = *state;
    desk_close(d);
    pare_shadows_free(d->api.shadows);
    desk_run("rm -rf '%s'%s", d->folder, "");
    free(d);
    return 0;
}

pare_shadow *desk_open_shadow(desk *d, const char *const *paths, int count,
                              const pare_shadows_options *options)
{
    if (pare_shadows_new(&d->ctx, &d->api.shadows, options) != PARE_OK)
        fail_msg("%s", d->ctx.message);
    const pare_repository_options served = {.path = paths,
                                            .count = count,
                                            .config = desk_config(8, 0, 1),
                                            .gpus = d->gpus,
                                            .shadows = d->api.shadows};
    desk_open_with(d, &served);
    if (pare_shadows_start(d->api.shadows, &d->ctx, d->api.repository) != PARE_OK)
        fail_msg("%s", d->ctx.message);
    return pare_shadows_at(d->api.shadows, 0);
}

pare_serve_config desk_config(int64_t max_batch, int64_t delay, int64_t instances)
{
    pare_serve_config config;
    pare_serve_config_init(&config);
    config.max_batch = max_batch;
    config.delay = delay;
    config.instances = config.gpu_instances = instances;
    return config;
}

pare_served_stats desk_stats(desk *d, const char *model)
{
    pare_served *s;
    pare_served_stats stats;
    assert_int_equal(pare_repository_find(d->api.repository, &d->ctx, &s, model, 0), PARE_OK);
    pare_served_stats_read(&s->stats, &stats);
    pare_served_release(s);
    return stats;
}

void desk_put_model(desk *d, const char *model, int version)
{
    char from[128], to[128];
    snprintf(from, sizeof from, "datasets/zoo/%s.onnx", model);
    snprintf(to, sizeof to, "%s/net/%d", d->folder, version);
    desk_run("mkdir -p '%s'%s", to, "");
    desk_run("cp %s '%s'/model.onnx", from, to);
}

void desk_put_text(const desk *d, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", d->folder, name);
    desk_run("mkdir -p \"$(dirname '%s')\"%s", path, "");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && !fclose(file));
}

void desk_put_config(desk *d, const char *text) { desk_put_text(d, "net/config.pbtxt", text); }

void desk_put_graph(const desk *d, graph_case *g, const char *name, const char *config)
{
    char path[256], file[64];
    snprintf(file, sizeof file, "%s/1/model.onnx", name);
    desk_put_text(d, file, "");
    snprintf(path, sizeof path, "%s/%s", d->folder, file);
    g->model->ir_version = 8;
    if (pare_onnx_write(&g->ctx, g->model, path, NULL) != PARE_OK) fail_msg("%s", g->ctx.message);
    graph_close(g);
    snprintf(file, sizeof file, "%s/config.pbtxt", name);
    if (config) desk_put_text(d, file, config);
}

void desk_pixels(uint32_t seed, int rows, float *pixels)
{
    for (int i = 0; i < rows * PIXELS; i++) {
        seed = seed * 1664525u + 1013904223u;
        pixels[i] = (float)(seed >> 8) * 0x1p-22f - 2;
    }
}

ask *desk_send_images(desk *d, const char *path, const char *words, uint32_t seed, int rows)
{
    char json[512];
    const size_t bytes = (size_t)rows * PIXELS * sizeof(float);
    const int n = snprintf(json, sizeof json,
                           "{%s\"parameters\": {\"binary_data_output\": true}, \"inputs\": [{"
                           "\"name\": \"input\", \"shape\": [%d, 1, 28, 28], \"datatype\": "
                           "\"FP32\", \"parameters\": {\"binary_data_size\": %zu}}]}",
                           words, rows, bytes);
    char *body = malloc((size_t)n + bytes);
    float *pixels = malloc(bytes);
    desk_pixels(seed, rows, pixels);
    memcpy(body, json, (size_t)n);
    memcpy(body + n, pixels, bytes);
    ask *a = desk_send(d, "POST", path, body, (size_t)n + bytes, (size_t)n);
    free(pixels);
    free(body);
    return a;
}

ask *desk_ask(desk *d, const char *model, uint32_t seed, int rows)
{
    char path[64];
    snprintf(path, sizeof path, "/v2/models/%s/infer", model);
    return desk_send_images(d, path, "", seed, rows);
}

void ask_take_logits(ask *a, int rows, float *logits)
{
    ask_await(a);
    const pare_reply *r = &a->x.reply;
    if (r->code != 200) fail_msg("%d %.*s", r->code, (int)r->bytes, r->body);
    assert_int_equal(r->bytes - r->json_bytes, (size_t)rows * CLASSES * sizeof(float));
    memcpy(logits, r->body + r->json_bytes, r->bytes - r->json_bytes);
    ask_forget(a);
}
