/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tools/http_desk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* "METHOD PATH N:SUM", with the sum of the body's bytes, each times its place. */
static char *describe(const pare_exchange *x, size_t *bytes)
{
    char *text = malloc(strlen(x->path) + 96);
    unsigned long long sum = 0;
    for (size_t i = 0; i < x->bytes; i++)
        sum += (unsigned char)x->body[i] * (unsigned long long)(i + 1);
    if (text) *bytes = (size_t)sprintf(text, "%s %s %zu:%llu", x->method, x->path, x->bytes, sum);
    return text;
}

static void reply_to(const http_desk *d, pare_exchange *x)
{
    size_t bytes = d->reply_bytes;
    char *text = bytes ? malloc(bytes) : describe(x, &bytes);
    if (d->reply_bytes && text) memset(text, 'r', bytes);
    pare_exchange_text(x, "text/plain", text, bytes);
}

static void handle(void *user, pare_exchange *x)
{
    http_desk *d = user;
    d->handled++;
    if (d->answers_later)
        d->waiting = x;
    else
        reply_to(d, x);
}

static bool admit(void *user, pare_exchange *x)
{
    const http_desk *d = user;
    if (d->refuses) pare_exchange_refuse(x, PARE_HTTP_UNAUTHORIZED, "not admitted");
    return !d->refuses;
}

static void give_back(pare_connection *c)
{
    http_desk *d = c->loop;
    d->returned = c;
}

static double now_of_test;

static double seconds(void) { return now_of_test; }

bool http_desk_open(http_desk *d, int64_t limit, int64_t pending)
{
    int fd[2];
    *d = (http_desk){.now = 1000};
    now_of_test = d->now;
    d->common.seconds = seconds;
    pare_ctx_init(&d->common.ctx);
    d->common.options = (pare_http_options){.limit = limit,
                                            .pending = pending,
                                            .held = &d->held,
                                            .admit = admit,
                                            .handle = handle,
                                            .user = d};
    d->common.give_back = give_back;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd)) return false;
    pare_bodies_init(&d->common.bodies, 1 << 20);
    d->client = fd[0];
    d->c = pare_connection_new(&d->common, fd[1], d->now);
    if (!d->c) return false;
    d->c->loop = d;
    pare_connection_run(d->c, d->now);
    return true;
}

static void run(http_desk *d)
{
    do {
        d->returned = NULL;
        pare_connection_run(d->c, d->now);
    } while (d->returned);
    d->is_closed = d->c->step == PARE_STEP_CLOSED;
}

void http_desk_event(http_desk *d, unsigned events)
{
    if (pare_connection_note(d->c, events)) run(d);
}

void http_desk_send(http_desk *d, const char *bytes, size_t count)
{
    for (size_t sent = 0; sent < count && !d->is_closed;) {
        const ssize_t n = send(d->client, bytes + sent, count - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) sent += (size_t)n;
        http_desk_event(d, PARE_TURN_READ);
        if (n <= 0 && pare_connection_is_out(d->c)) return;
    }
}

void http_desk_answer(http_desk *d)
{
    pare_exchange *x = d->waiting;
    d->waiting = NULL;
    if (!x) return;
    reply_to(d, x);
    if (d->returned) run(d);
}

void http_desk_pass(http_desk *d, double seconds_later)
{
    now_of_test = d->now += seconds_later;
    pare_connection_tick(d->c, d->now);
    d->is_closed = d->c->step == PARE_STEP_CLOSED;
}

size_t http_desk_read(http_desk *d, char *out, size_t size)
{
    size_t have = 0;
    for (ssize_t n; have + 1 < size; have += (size_t)n) {
        n = recv(d->client, out + have, size - 1 - have, MSG_DONTWAIT);
        if (n <= 0) break;
    }
    out[have] = 0;
    return have;
}

void http_desk_say(http_desk *d, const char *text) { http_desk_send(d, text, strlen(text)); }

const char *http_desk_hear(http_desk *d)
{
    static char text[1 << 16];
    (void)http_desk_read(d, text, sizeof text);
    for (char *at, *end; (at = strstr(text, "Date: ")); memmove(at, end + 2, strlen(end + 2) + 1)) {
        end = strstr(at, "\r\n");
        if (!end) abort();
    }
    return text;
}

void http_desk_close(http_desk *d)
{
    if (d->client >= 0) close(d->client);
    d->client = -1;
    while (d->waiting) http_desk_answer(d);
    for (int i = 0; i < 100 && d->c->step != PARE_STEP_CLOSED; i++)
        http_desk_event(d, PARE_TURN_READ | PARE_TURN_ENDED | PARE_TURN_GONE);
    if (d->c->step != PARE_STEP_CLOSED) abort(); /* its end was not seen */
    pare_connection_free(d->c);
    pare_bodies_free(&d->common.bodies);
    if (d->held) abort(); /* something still counts */
}
