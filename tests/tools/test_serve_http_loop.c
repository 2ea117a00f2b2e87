/* SPDX-License-Identifier: Apache-2.0 */
/* The whole transport: many clients over TCP, replies made by threads of the test, and draining:
   every request that is handled is answered, in order, and its answer arrives. */
#include "runtime/base/clock.h"
#include "tools/serve/http/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { WORKERS = 3, CLIENTS = 8, ROUNDS = 60, MOST_BODY = 300000, WAITING = 1024 };

typedef struct office {
    pare_http *http;
    size_t held;
    pthread_mutex_t lock;
    pthread_cond_t more;
    pare_exchange *waiting[WAITING];
    int count;
    bool is_over;
    atomic_int handled, received, wrong;
    atomic_bool keeps; /* a request goes to `kept`, and the test answers it */
    _Atomic(pare_exchange *) kept;
    pthread_t worker[WORKERS];
} office;

/* The reply is the body, behind its length. */
static void answer(pare_exchange *x)
{
    char *text = malloc(x->bytes + 32);
    const size_t head = text ? (size_t)sprintf(text, "%zu:", x->bytes) : 0;
    if (text && x->bytes) memcpy(text + head, x->body, x->bytes);
    pare_exchange_text(x, "text/plain", text, head + x->bytes);
}

static bool admit(void *user, pare_exchange *x)
{
    (void)user;
    (void)x;
    return true;
}

/* Every third is answered at once, by the loop's own thread. */
static void handle(void *user, pare_exchange *x)
{
    office *o = user;
    bool is_taken = false;
    if (atomic_load(&o->keeps)) {
        atomic_store(&o->kept, x);
        return;
    }
    if (atomic_fetch_add(&o->handled, 1) % 3) {
        (void)pthread_mutex_lock(&o->lock);
        is_taken = o->count < WAITING;
        if (is_taken) o->waiting[o->count++] = x;
        (void)pthread_mutex_unlock(&o->lock);
        (void)pthread_cond_signal(&o->more);
    }
    if (!is_taken) answer(x);
}

static void *work(void *user)
{
    office *o = user;
    for (;;) {
        (void)pthread_mutex_lock(&o->lock);
        while (!o->count && !o->is_over) (void)pthread_cond_wait(&o->more, &o->lock);
        pare_exchange *x = o->count ? o->waiting[--o->count] : NULL;
        (void)pthread_mutex_unlock(&o->lock);
        if (!x) return NULL;
        answer(x);
    }
}

static int setup(void **state)
{
    static office o;
    pare_ctx ctx;
    memset(&o, 0, sizeof o);
    *state = &o;
    pare_ctx_init(&ctx);
    const pare_http_options options = {.host = "127.0.0.1",
                                       .threads = 3,
                                       .limit = MOST_BODY,
                                       .pending = 1 << 30,
                                       .held = &o.held,
                                       .admit = admit,
                                       .handle = handle,
                                       .user = &o};
    (void)pthread_mutex_init(&o.lock, NULL);
    (void)pthread_cond_init(&o.more, NULL);
    if (pare_http_open(&ctx, &o.http, &options) != PARE_OK) return -1;
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&o.worker[i], NULL, work, &o)) return -1;
    return 0;
}

static int teardown(void **state)
{
    office *o = *state;
    pare_http_drain(o->http);
    (void)pthread_mutex_lock(&o->lock);
    o->is_over = true;
    (void)pthread_mutex_unlock(&o->lock);
    (void)pthread_cond_broadcast(&o->more);
    for (int i = 0; i < WORKERS; i++) (void)pthread_join(o->worker[i], NULL);
    pare_http_close(o->http);
    (void)pthread_mutex_destroy(&o->lock);
    (void)pthread_cond_destroy(&o->more);
    return o->held ? -1 : 0;
}

/* --- a client --- */

typedef struct client {
    office *o;
    unsigned seed;
    int fd;
    char *text; /* what came and is not read */
    size_t have, room;
} client;

static unsigned next(client *c) { return (c->seed = c->seed * 1664525u + 1013904223u) >> 8; }

static bool connects(client *c)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)pare_http_port(c->o->http)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    c->have = 0;
    return c->fd >= 0 && !connect(c->fd, (struct sockaddr *)&at, sizeof at);
}

static bool sends_all(client *c, const char *text, size_t bytes)
{
    while (bytes) {
        size_t piece = next(c) % 4 ? bytes : 1 + next(c) % bytes;
        const ssize_t n = send(c->fd, text, piece, MSG_NOSIGNAL);
        if (n <= 0) return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool receives(client *c)
{
    if (c->have == c->room) {
        char *text = realloc(c->text, c->room = 2 * c->room + 65536);
        if (!text) abort();
        c->text = text;
    }
    const ssize_t n = recv(c->fd, c->text + c->have, c->room - c->have, 0);
    if (n <= 0) return false;
    c->have += (size_t)n;
    return true;
}

/* A reply whose body is as it should be. -1: the connection has ended; *last: it says it will. */
static int reads_reply(client *c, size_t body, char fill, bool *last)
{
    const char *end;
    while (!c->have || !(end = memmem(c->text, c->have, "\r\n\r\n", 4)))
        if (!receives(c)) return -1;
    const size_t head = (size_t)(end + 4 - c->text);
    const char *length = memmem(c->text, head, "Content-Length: ", 16);
    const size_t bytes = length ? strtoull(length + 16, NULL, 10) : 0;
    *last = memmem(c->text, head, "Connection: close", 17) != NULL;
    while (c->have < head + bytes)
        if (!receives(c)) return -1;
    char want[32];
    const size_t before = (size_t)sprintf(want, "%zu:", body);
    bool good = !memcmp(c->text, "HTTP/1.1 200 ", 13) && bytes == before + body &&
                !memcmp(c->text + head, want, before);
    for (size_t i = 0; good && i < body; i++) good = c->text[head + before + i] == fill;
    c->have -= head + bytes;
    memmove(c->text, c->text + head + bytes, c->have);
    atomic_fetch_add(&c->o->received, 1);
    if (!good) atomic_fetch_add(&c->o->wrong, 1);
    return good;
}

/* Some requests at once, then their replies. False: the connection has ended. */
static bool asks(client *c, bool *last)
{
    enum { MOST = 4 };
    const int count = 1 + (int)(next(c) % MOST);
    size_t body[MOST], all = 0;
    char *text = malloc(MOST * (MOST_BODY + 200)), fill[MOST];
    if (!text) abort();
    for (int i = 0; i < count; i++) {
        body[i] = next(c) % 3 ? next(c) % 300 : next(c) % MOST_BODY;
        if (next(c) % 4 && body[i] > 30000) body[i] /= 10;
        fill[i] = (char)('a' + next(c) % 26);
        all += (size_t)sprintf(
            text + all, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", body[i]);
        memset(text + all, fill[i], body[i]);
        all += body[i];
    }
    bool goes_on = sends_all(c, text, all);
    for (int i = 0; i < count && !*last; i++)
        if (reads_reply(c, body[i], fill[i], last) < 0) {
            goes_on = false;
            break;
        }
    free(text);
    return goes_on && !*last;
}

static void *ask_on(void *user)
{
    client c = {.o = user, .seed = (unsigned)(uintptr_t)&c};
    bool last = false;
    if (!connects(&c)) atomic_fetch_add(&c.o->wrong, 1);
    for (int i = 0; i < ROUNDS; i++)
        if (!asks(&c, &last)) atomic_fetch_add(&c.o->wrong, 1);
    close(c.fd);
    free(c.text);
    return NULL;
}

static void *ask_until_the_end(void *user)
{
    client c = {.o = user, .seed = (unsigned)(uintptr_t)&c + 7};
    bool last = false;
    if (!connects(&c)) atomic_fetch_add(&c.o->wrong, 1);
    while (asks(&c, &last)) continue;
    close(c.fd);
    free(c.text);
    return NULL;
}

/* Clients that go away in the middle. */
static void *leave_early(void *user)
{
    client c = {.o = user, .seed = 3};
    static const char text[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nhello";
    for (int i = 0; i < ROUNDS; i++) {
        if (!connects(&c)) continue;
        const struct linger reset = {1, 0};
        if (i % 2) (void)setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        (void)sends_all(&c, text, next(&c) % sizeof text);
        close(c.fd);
    }
    return NULL;
}

static void run(office *o, void *(*main)(void *), void (*meanwhile)(office *))
{
    pthread_t thread[CLIENTS], early;
    assert_int_equal(pthread_create(&early, NULL, leave_early, o), 0);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, main, o), 0);
    meanwhile(o);
    for (int i = 0; i < CLIENTS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(pthread_join(early, NULL), 0);
}

static void nothing(office *o) { (void)o; }

static void many_clients(void **state)
{
    office *o = *state;
    run(o, ask_on, nothing);
    assert_int_equal(atomic_load(&o->wrong), 0);
    assert_int_equal(atomic_load(&o->received), atomic_load(&o->handled));
    assert_true(atomic_load(&o->received) >= CLIENTS * ROUNDS);
}

static void drain_soon(office *o)
{
    while (atomic_load(&o->received) < 300) pare_sleep_ms(1);
    pare_http_drain(o->http);
}

/* What was handled has arrived, though the end came in the middle. */
static void draining(void **state)
{
    office *o = *state;
    run(o, ask_until_the_end, drain_soon);
    assert_int_equal(atomic_load(&o->wrong), 0);
    assert_int_equal(atomic_load(&o->received), atomic_load(&o->handled));
    client late = {.o = o};
    assert_false(connects(&late));
    close(late.fd);
}

/* Requests that come slowly hold up none: the one that is whole first is answered first. */
static void no_one_waits_for_others(void **state)
{
    static const char text[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\naaa";
    enum { COUNT = 12 };
    client c[COUNT];
    bool last = false;
    for (int i = 0; i < COUNT; i++) {
        c[i] = (client){.o = *state, .seed = (unsigned)i};
        assert_true(connects(&c[i]));
        assert_true(sends_all(&c[i], text, sizeof text - 1));
    }
    for (int i = COUNT - 1; i >= 0; i--) {
        assert_true(sends_all(&c[i], "aa", 2));
        assert_int_equal(reads_reply(&c[i], 5, 'a', &last), 1);
    }
    for (int i = 0; i < COUNT; i++) {
        close(c[i].fd);
        free(c[i].text);
    }
}

/* A client that has closed its side may read on; one that has reset the connection is gone. */
static void gone_while_it_is_computed(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const struct linger reset = {1, 0};
    office *o = *state;
    client c = {.o = o};
    atomic_store(&o->keeps, true);
    assert_true(connects(&c));
    assert_true(sends_all(&c, text, sizeof text - 1));
    while (!atomic_load(&o->kept)) pare_sleep_ms(1);
    pare_exchange *x = atomic_load(&o->kept);
    assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
    pare_sleep_ms(50);
    const bool was_gone = pare_exchange_is_gone(x);
    (void)setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(c.fd);
    for (int i = 0; i < 10000 && !pare_exchange_is_gone(x); i++) pare_sleep_ms(1);
    const bool is_gone = pare_exchange_is_gone(x);
    answer(x);
    assert_false(was_gone);
    assert_true(is_gone);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {CASE(many_clients), CASE(draining),
                                       CASE(no_one_waits_for_others),
                                       CASE(gone_while_it_is_computed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
