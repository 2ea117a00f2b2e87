/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load/client.h"

#include <jansson.h>
#include <stdio.h>

const char *pare_client_error(const pare_client_reply *reply, char *text, size_t size)
{
    json_t *json = json_loadb(reply->body, reply->bytes, 0, NULL);
    const char *error = json_string_value(json_object_get(json, "error"));
    if (!reply->status)
        snprintf(text, size, "%s", reply->error);
    else if (error)
        snprintf(text, size, "HTTP %d: %s", reply->status, error);
    else if (reply->bytes)
        snprintf(text, size, "HTTP %d: %.*s", reply->status,
                 (int)(reply->bytes < 100 ? reply->bytes : 100), reply->body);
    else
        snprintf(text, size, "HTTP %d", reply->status);
    json_decref(json);
    return text;
}

#ifdef PARE_CURL
#include "runtime/base/clock.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { ERROR_TEXT = CURL_ERROR_SIZE, MOST_BODY = 1 << 30 /* bytes of an answer */ };

typedef struct connection {
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    size_t bytes, capacity, json_bytes;
    bool is_busy;
    char error[ERROR_TEXT];
} connection;

struct pare_client {
    pare_ctx *ctx;
    CURLM *multi;
    const char *url;
    char *authorization;    /* a whole header, or NULL */
    connection *connection; /* (count) the last one is pare_client_get's */
    int count;
    int timer; /* a descriptor that ends a wait in time: that of poll() counts milliseconds */
};

/* --- what comes --- */

static size_t take_body(char *data, size_t size, size_t count, void *user)
{
    connection *c = user;
    const size_t n = size * count, needed = c->bytes + n;
    if (needed > MOST_BODY) return 0;
    if (needed > c->capacity) {
        const size_t capacity = needed > 2 * c->capacity ? needed : 2 * c->capacity;
        char *more = realloc(c->body, capacity);
        if (!more) return 0;
        c->body = more;
        c->capacity = capacity;
    }
    memcpy(c->body + c->bytes, data, n);
    c->bytes += n;
    return n;
}

static size_t take_header(char *data, size_t size, size_t count, void *user)
{
    static const char name[] = "Inference-Header-Content-Length:";
    connection *c = user;
    const size_t n = size * count, length = strlen(name);
    char text[32];
    if (n <= length || strncasecmp(data, name, length) != 0) return n;
    snprintf(text, sizeof text, "%.*s", (int)(n - length), data + length);
    c->json_bytes = strtoull(text, NULL, 10);
    return n;
}

/* --- connections --- */

static bool open_connection(pare_client *client, connection *c, const char *authority)
{
    CURL *e = c->easy = curl_easy_init();
    if (!e) return false;
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(e, CURLOPT_PRIVATE, c);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->error);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_DNS_CACHE_TIMEOUT, -1L);
    if (authority && (curl_easy_setopt(e, CURLOPT_CAINFO, authority) ||
                      curl_easy_setopt(e, CURLOPT_CAPATH, NULL))) /* these alone */
        return false;
    return !client->authorization ||
           (c->headers = curl_slist_append(NULL, client->authorization)) != NULL;
}

static pare_status open_all(pare_client *client, const pare_client_options *o)
{
    pare_ctx *ctx = client->ctx;
    const size_t n = strlen("Authorization: Bearer ") + (o->token ? strlen(o->token) : 0) + 1;
    if (o->token) {
        client->authorization = pare_alloc(ctx, n, 1);
        if (!client->authorization) return PARE_MEMORY;
        snprintf(client->authorization, n, "Authorization: Bearer %s", o->token);
    }
    const int count = o->connections + 1;
    client->connection = pare_alloc(ctx, (size_t)count, sizeof *client->connection);
    if (!client->connection) return PARE_MEMORY;
    client->multi = curl_multi_init();
    client->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!client->multi || client->timer < 0)
        return PARE_FAIL(ctx, IO, "%s: libcurl cannot be used: %s", o->url, strerror(errno));
    curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, (long)count);
    for (; client->count < count; client->count++)
        if (!open_connection(client, &client->connection[client->count], o->authority)) {
            client->count++;
            return PARE_FAIL(ctx, MEMORY, "out of memory for %d connections", count);
        }
    return PARE_OK;
}

/* As many descriptors as the system lets this process have, where it has fewer than are needed. */
static void allow_descriptors(int connections)
{
    enum { OTHERS = 64 };
    struct rlimit limit;
    const rlim_t needed = (rlim_t)connections + OTHERS;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed) return;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* else connections fail, and say so */
}

pare_status pare_client_open(pare_ctx *ctx, pare_client **out, const pare_client_options *o)
{
    if (strncmp(o->url, "http://", 7) != 0 && strncmp(o->url, "https://", 8) != 0)
        return PARE_FAIL(ctx, USAGE, "%s: expected http://HOST:PORT or https://HOST:PORT", o->url);
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return PARE_FAIL(ctx, IO, "%s: libcurl cannot be used", o->url);
    pare_client *client = pare_alloc(ctx, 1, sizeof *client);
    if (!client) {
        curl_global_cleanup();
        return PARE_MEMORY;
    }
    *client = (pare_client){.ctx = ctx, .url = o->url, .timer = -1};
    allow_descriptors(o->connections);
    const pare_status st = open_all(client, o);
    if (st == PARE_OK)
        *out = client;
    else
        pare_client_close(client);
    return st;
}

void pare_client_close(pare_client *client)
{
    if (!client) return;
    pare_client_stop(client);
    for (int i = 0; i < client->count; i++) {
        connection *c = &client->connection[i];
        curl_easy_cleanup(c->easy);
        curl_slist_free_all(c->headers);
        free(c->body);
    }
    curl_multi_cleanup(client->multi);
    if (client->timer >= 0) close(client->timer);
    pare_free(client->connection);
    pare_free(client->authorization);
    pare_free(client);
    curl_global_cleanup();
}

/* --- requests --- */

static pare_status set_url(pare_client *client, connection *c, const char *path)
{
    size_t n = strlen(client->url);
    while (n && client->url[n - 1] == '/') n--;
    const size_t size = n + strlen(path) + 1;
    char *url = pare_alloc(client->ctx, size, 1);
    if (!url) return PARE_MEMORY;
    snprintf(url, size, "%.*s%s", (int)n, client->url, path);
    const CURLcode code = curl_easy_setopt(c->easy, CURLOPT_URL, url);
    pare_free(url);
    if (!code) return PARE_OK;
    return PARE_FAIL(client->ctx, USAGE, "%s: %s", client->url, curl_easy_strerror(code));
}

static pare_status begin(pare_client *client, connection *c, double seconds)
{
    const long ms = seconds > 1e6 ? 1000000000L : (long)(1e3 * seconds);
    c->bytes = c->json_bytes = 0;
    c->error[0] = 0;
    curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, ms > 0 ? ms : 1L);
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    if (curl_multi_add_handle(client->multi, c->easy))
        return PARE_FAIL(client->ctx, IO, "%s: libcurl takes no request", client->url);
    c->is_busy = true;
    return PARE_OK;
}

/* The headers of an inference request; they are made anew where its JSON has another length. */
static pare_status set_headers(pare_client *client, connection *c, size_t json_bytes)
{
    char line[96];
    struct curl_slist *list = NULL, *more;
    snprintf(line, sizeof line, "Inference-Header-Content-Length: %zu", json_bytes);
    if (c->headers && !strcmp(c->headers->data, line)) return PARE_OK;
    const char *const words[] = {line, "Content-Type: application/octet-stream",
                                 "Expect:", client->authorization};
    for (size_t i = 0; i < sizeof words / sizeof *words && words[i]; i++) {
        if (!(more = curl_slist_append(list, words[i]))) {
            curl_slist_free_all(list);
            return PARE_FAIL(client->ctx, MEMORY, "out of memory for a request");
        }
        list = more;
    }
    curl_slist_free_all(c->headers);
    c->headers = list;
    return PARE_OK;
}

pare_status pare_client_send(pare_client *client, int i, const pare_client_request *request)
{
    connection *c = &client->connection[i];
    PARE_TRY(set_headers(client, c, request->json_bytes));
    PARE_TRY(set_url(client, c, request->path));
    curl_easy_setopt(c->easy, CURLOPT_POST, 1L);
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, request->body);
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->bytes);
    PARE_TRY(begin(client, c, request->seconds));
    int running;
    if (!curl_multi_perform(client->multi, &running)) return PARE_OK; /* it is on its way */
    return PARE_FAIL(client->ctx, IO, "%s: libcurl cannot continue", client->url);
}

/* The timer rings at `until`, at once where that has passed. */
static void set_timer(const pare_client *client, double until)
{
    const double left = fmin(fmax(until - pare_seconds(), 1e-9), 1e6);
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)left}};
    at.it_value.tv_nsec = (long)(1e9 * (left - (double)at.it_value.tv_sec));
    if (!at.it_value.tv_sec && !at.it_value.tv_nsec) at.it_value.tv_nsec = 1;
    timerfd_settime(client->timer, 0, &at, NULL);
}

pare_status pare_client_wait(pare_client *client, double until)
{
    int running, ready;
    struct curl_waitfd timer = {.fd = client->timer, .events = CURL_WAIT_POLLIN};
    const double left = until - pare_seconds();
    if (left > 0) {
        set_timer(client, until);
        const int ms = left > 60 ? 60000 : (int)(1e3 * left) + 1;
        if (curl_multi_poll(client->multi, &timer, 1, ms, &ready) && errno != EINTR)
            return PARE_FAIL(client->ctx, IO, "%s: libcurl cannot wait", client->url);
    }
    if (!curl_multi_perform(client->multi, &running)) return PARE_OK;
    return PARE_FAIL(client->ctx, IO, "%s: libcurl cannot continue", client->url);
}

static void note_reply(const connection *c, CURLcode code, pare_client_reply *out)
{
    long status = 0, os = 0;
    *out = (pare_client_reply){
        .body = c->body ? c->body : "", .bytes = c->bytes, .json_bytes = c->json_bytes};
    if (!code) curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    out->status = (int)status;
    if (code == CURLE_COULDNT_CONNECT) curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &os);
    out->refused = os == ECONNREFUSED;
    out->timed_out = code == CURLE_OPERATION_TIMEDOUT;
    if (status) return;
    out->error = out->timed_out ? "no answer in time"
                 : *c->error    ? c->error
                                : curl_easy_strerror(code);
}

int pare_client_next(pare_client *client, pare_client_reply *out)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(client->multi, &left));) {
        if (m->msg != CURLMSG_DONE) continue;
        char *user = NULL;
        CURL *easy = m->easy_handle;
        const CURLcode code = m->data.result;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, &user);
        connection *c = (connection *)(void *)user;
        curl_multi_remove_handle(client->multi, easy);
        c->is_busy = false;
        note_reply(c, code, out);
        return (int)(c - client->connection);
    }
    return -1;
}

void pare_client_stop(pare_client *client)
{
    for (int i = 0; i < client->count; i++) {
        connection *c = &client->connection[i];
        if (c->is_busy) curl_multi_remove_handle(client->multi, c->easy);
        c->is_busy = false;
    }
}

pare_status pare_client_get(pare_client *client, const char *path, pare_client_reply *out)
{
    connection *c = &client->connection[client->count - 1];
    const double step = 0.1;
    PARE_TRY(set_url(client, c, path));
    curl_easy_setopt(c->easy, CURLOPT_HTTPGET, 1L);
    PARE_TRY(begin(client, c, PARE_CLIENT_SECONDS));
    while (pare_client_next(client, out) < 0) {
        PARE_TRY(pare_ctx_poll(client->ctx));
        PARE_TRY(pare_client_wait(client, pare_seconds() + step));
    }
    if (out->status) return PARE_OK;
    return PARE_FAIL(client->ctx, IO, "%s: no answer: %s", client->url, out->error);
}

#else

pare_status pare_client_open(pare_ctx *ctx, pare_client **out, const pare_client_options *options)
{
    (void)out;
    (void)options;
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "this build has no HTTP client: install libcurl4-openssl-dev and build again");
}

void pare_client_close(pare_client *client) { (void)client; }

pare_status pare_client_get(pare_client *client, const char *path, pare_client_reply *out)
{
    (void)client;
    (void)path;
    (void)out;
    return PARE_UNSUPPORTED;
}

pare_status pare_client_send(pare_client *client, int connection,
                             const pare_client_request *request)
{
    (void)client;
    (void)connection;
    (void)request;
    return PARE_UNSUPPORTED;
}

pare_status pare_client_wait(pare_client *client, double until)
{
    (void)client;
    (void)until;
    return PARE_UNSUPPORTED;
}

int pare_client_next(pare_client *client, pare_client_reply *out)
{
    (void)client;
    (void)out;
    return -1;
}

void pare_client_stop(pare_client *client) { (void)client; }
#endif
