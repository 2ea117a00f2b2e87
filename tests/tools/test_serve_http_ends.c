/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection of HTTP ends: by its client, by time, in the middle of a reply, and draining. */
#include "tests/tools/http_desk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { LIMIT = 1000, PENDING = 4000 };

static int setup(void **state)
{
    static http_desk d;
    *state = &d;
    return http_desk_open(&d, LIMIT, PENDING) ? 0 : -1;
}

static int teardown(void **state)
{
    http_desk_close(*state);
    return 0;
}

#define P "POST / HTTP/1.1\r\nHost: x\r\n"

/* --- ends --- */

/* A client that closes its side behind a whole request is answered. */
static void half_closed(void **state)
{
    http_desk *d = *state;
    d->answers_later = true;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(shutdown(d->client, SHUT_WR), 0);
    http_desk_event(d, PARE_TURN_READ | PARE_TURN_ENDED);
    assert_false(d->is_closed);
    http_desk_answer(d);
    assert_non_null(strstr(http_desk_hear(d), "GET / 0:0"));
    assert_false(d->is_closed);
    http_desk_answer(d);
    assert_non_null(strstr(http_desk_hear(d), "GET /b 0:0"));
    assert_true(d->is_closed);
}

/* The end comes together with what is before it. */
static void half_closed_at_once(void **state)
{
    http_desk *d = *state;
    static const char text[] = P "Content-Length: 5\r\n\r\nhello";
    assert_int_equal(send(d->client, text, sizeof text - 1, 0), sizeof text - 1);
    assert_int_equal(shutdown(d->client, SHUT_WR), 0);
    http_desk_event(d, PARE_TURN_READ | PARE_TURN_ENDED);
    assert_non_null(strstr(http_desk_hear(d), "POST / 5:"));
    assert_true(d->is_closed);
}

static void ends_in_a_request(void **state)
{
    (void)state;
    static const char text[] = P "Content-Length: 5\r\n\r\nhello";
    for (size_t i = 0; i < sizeof text - 1; i++) {
        http_desk d;
        assert_true(http_desk_open(&d, LIMIT, PENDING));
        http_desk_send(&d, text, i);
        assert_int_equal(shutdown(d.client, SHUT_WR), 0);
        http_desk_event(&d, PARE_TURN_READ | PARE_TURN_ENDED);
        assert_true(d.is_closed);
        assert_string_equal(http_desk_hear(&d), "");
        assert_int_equal(d.handled, 0);
        http_desk_close(&d);
    }
}

/* --- replies that the socket does not take at once --- */

enum { LARGE = 4 << 20 };

static void a_slow_reader(void **state)
{
    http_desk *d = *state;
    char piece[50000];
    size_t all = 0;
    d->reply_bytes = LARGE;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(d->c->step, PARE_STEP_SENDING);
    assert_int_equal(d->held, LARGE);
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); /* waits for its turn */
    assert_int_equal(d->handled, 1);
    while (d->handled == 1) {
        const size_t n = http_desk_read(d, piece, sizeof piece);
        assert_true(n > 0);
        all += n;
        http_desk_event(d, 0);
    }
    assert_true(all > LARGE / 2 && all < 2 * LARGE);
}

static void a_reader_that_stops(void **state)
{
    http_desk *d = *state;
    char piece[50000];
    d->reply_bytes = LARGE;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 6; i++) {
        http_desk_pass(d, 99);
        assert_false(d->is_closed);
        assert_true(http_desk_read(d, piece, sizeof piece) > 0); /* a little is too little */
        http_desk_event(d, 0);
    }
    http_desk_pass(d, 10);
    assert_true(d->is_closed);
    assert_int_equal(d->held, 0);
}

/* Who reads as much as 600 s are for has 600 s more. */
static void a_reader_that_reads_enough(void **state)
{
    enum { ENOUGH = 20 << 20 };
    http_desk *d = *state;
    char piece[50000];
    d->reply_bytes = 64 << 20;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    http_desk_pass(d, 500);
    for (size_t all = 0; all < ENOUGH; http_desk_event(d, 0))
        all += http_desk_read(d, piece, sizeof piece);
    http_desk_pass(d, 599);
    assert_false(d->is_closed);
    http_desk_pass(d, 2);
    assert_true(d->is_closed);
}

static void gone_in_the_middle_of_a_reply(void **state)
{
    http_desk *d = *state;
    char piece[5000];
    d->reply_bytes = LARGE;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    (void)http_desk_read(d, piece, sizeof piece);
    close(d->client);
    d->client = -1;
    http_desk_event(d, PARE_TURN_READ | PARE_TURN_ENDED | PARE_TURN_GONE);
    assert_true(d->is_closed);
    assert_int_equal(d->held, 0);
}

/* --- time --- */

static void silence(void **state)
{
    http_desk *d = *state;
    http_desk_pass(d, 59);
    assert_false(d->is_closed);
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    http_desk_pass(d, 59);
    assert_false(d->is_closed);
    http_desk_pass(d, 2);
    assert_true(d->is_closed);
}

/* Empty lines are no request. */
static void empty_lines(void **state)
{
    (void)state;
    for (int pieces = 1; pieces <= 2; pieces++) {
        http_desk d;
        assert_true(http_desk_open(&d, LIMIT, PENDING));
        for (int i = 0; i < 6; i++) {
            assert_false(d.is_closed);
            http_desk_pass(&d, 9.9);
            http_desk_say(&d, pieces == 1 ? "\r\n" : i % 2 ? "\n" : "\r");
        }
        assert_false(d.is_closed);
        http_desk_pass(&d, 2);
        assert_true(d.is_closed);
        http_desk_close(&d);
    }
}

/* Lines that come slowly have 60 s in all. */
static void slow_lines(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\nA: ");
    for (int i = 0; i < 6; i++) {
        assert_false(d->is_closed);
        http_desk_pass(d, 9.9);
        http_desk_say(d, "a");
    }
    assert_false(d->is_closed);
    http_desk_pass(d, 1);
    assert_true(d->is_closed);
}

static void a_slow_body(void **state)
{
    http_desk *d = *state;
    http_desk_pass(d, 59);
    http_desk_say(d, P "Content-Length: 100\r\n\r\n");
    for (int i = 0; i < 6; i++) {
        assert_false(d->is_closed);
        http_desk_pass(d, 9.9);
        http_desk_say(d, "a");
    }
    assert_false(d->is_closed);
    assert_int_equal(d->held, 6);
    http_desk_pass(d, 1);
    assert_true(d->is_closed);
    assert_int_equal(d->held, 0);
}

/* A body comes in whole as long as enough of it does, and what came buys no time for later. */
static void a_large_body_in_time(void **state)
{
    enum { PIECE = 2 << 20, COUNT = 4 };
    (void)state;
    http_desk d;
    char *piece = calloc(PIECE, 1);
    assert_non_null(piece);
    assert_true(http_desk_open(&d, 1 << 30, 1 << 30));
    http_desk_say(&d, P "Content-Length: 100000000\r\n\r\n");
    for (int i = 0; i < COUNT; i++) {
        http_desk_send(&d, piece, PIECE);
        http_desk_pass(&d, 59);
        assert_false(d.is_closed);
    }
    assert_int_equal(d.held, COUNT * PIECE);
    http_desk_say(&d, "a");
    http_desk_pass(&d, 2);
    assert_true(d.is_closed);
    assert_int_equal(d.held, 0);
    http_desk_close(&d);
    free(piece);
}

static void lingers(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(d), "200 OK"));
    for (int i = 0; i < 10; i++) {
        assert_false(d->is_closed);
        http_desk_pass(d, 1.9);
        http_desk_say(d, "more and more");
    }
    http_desk_pass(d, 2.1);
    assert_true(d->is_closed);
}

static void computing_takes_as_long_as_it_takes(void **state)
{
    http_desk *d = *state;
    d->answers_later = true;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    http_desk_pass(d, 1e6);
    assert_false(d->is_closed);
    http_desk_answer(d);
    assert_non_null(strstr(http_desk_hear(d), "200 OK"));
}

/* --- draining --- */

static void drains(http_desk *d)
{
    d->common.drained = d->now;
    atomic_store(&d->common.draining, true);
}

static void drained_where_idle(void **state)
{
    http_desk *d = *state;
    http_desk_pass(d, 10);
    drains(d);
    http_desk_pass(d, 0.2);
    assert_false(d->is_closed);
    http_desk_pass(d, 0.2);
    assert_true(d->is_closed);
}

/* A request that is in the socket, and not read, is no idle connection's. */
static void drained_where_a_request_comes(void **state)
{
    http_desk *d = *state;
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    drains(d);
    assert_int_equal(send(d->client, text, sizeof text - 1, 0), sizeof text - 1);
    http_desk_pass(d, 0.4);
    assert_false(d->is_closed);
    http_desk_event(d, PARE_TURN_READ);
    const char *got = http_desk_hear(d);
    assert_non_null(strstr(got, "Connection: close"));
    assert_non_null(strstr(got, "GET / 0:0"));
}

/* A request that comes while another is computed is answered, too. */
static void what_comes_meanwhile_is_answered(void **state)
{
    http_desk *d = *state;
    d->answers_later = true;
    http_desk_say(d, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    drains(d);
    http_desk_say(d, "GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    http_desk_answer(d);
    assert_null(strstr(http_desk_hear(d), "Connection: close"));
    http_desk_answer(d);
    assert_non_null(strstr(http_desk_hear(d), "GET /b 0:0"));
}

static void what_has_come_is_answered(void **state)
{
    http_desk *d = *state;
    d->answers_later = true;
    http_desk_say(d, "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    drains(d);
    http_desk_answer(d);
    http_desk_answer(d);
    const char *got = http_desk_hear(d), *close = strstr(got, "Connection: close");
    assert_non_null(strstr(got, "GET /a 0:0"));
    assert_non_null(strstr(got, "GET /b 0:0"));
    assert_non_null(close);
    assert_true(close > strstr(got, "GET /a 0:0"));
    assert_int_equal(d->c->step, PARE_STEP_LINGERING);
}

static void drained_in_a_request(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, P "Content-Length: 100\r\n\r\n");
    drains(d);
    for (int i = 0; i < 6; i++) {
        http_desk_pass(d, 4.9);
        http_desk_say(d, "a");
    }
    assert_false(d->is_closed);
    http_desk_pass(d, 1); /* 30 s in all */
    assert_true(d->is_closed);
}

static void drained_where_it_stops(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, P "Content-Length: 100\r\n\r\n");
    drains(d);
    http_desk_pass(d, 5.1);
    assert_true(d->is_closed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(half_closed),
        CASE(half_closed_at_once),
        CASE(ends_in_a_request),
        CASE(a_slow_reader),
        CASE(a_reader_that_stops),
        CASE(a_reader_that_reads_enough),
        CASE(gone_in_the_middle_of_a_reply),
        CASE(silence),
        CASE(empty_lines),
        CASE(slow_lines),
        CASE(a_slow_body),
        CASE(a_large_body_in_time),
        CASE(lingers),
        CASE(computing_takes_as_long_as_it_takes),
        CASE(drained_where_idle),
        CASE(drained_where_a_request_comes),
        CASE(what_comes_meanwhile_is_answered),
        CASE(what_has_come_is_answered),
        CASE(drained_in_a_request),
        CASE(drained_where_it_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
