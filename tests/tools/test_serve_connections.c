/* SPDX-License-Identifier: Apache-2.0 */
/* Connections without a request: which a sweep shuts down, at times that the test says. */
#include "tools/serve/http/connections.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { IDLE = 60, STALLED = 5 };

/* A connection and its client. */
typedef struct pair {
    pare_connections all;
    pare_connection *c;
    int client, server;
} pair;

static int open_pair(void **state)
{
    static pair p;
    int fd[2];
    *state = &p;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) return -1;
    p.client = fd[0];
    p.server = fd[1];
    pare_connections_init(&p.all);
    p.c = pare_connections_add(&p.all, p.server);
    return p.c ? 0 : -1;
}

static int close_pair(void **state)
{
    pair *p = *state;
    pare_connections_remove(&p->all, p->c);
    pare_connections_free(&p->all);
    close(p->client);
    close(p->server);
    return 0;
}

static void sweep(pair *p, double now) { pare_connections_sweep(&p->all, now, IDLE, STALLED); }

/* Nothing can be sent any more, which the end of the client alone does not bring about. */
static bool is_shut(const pair *p)
{
    char byte;
    return recv(p->client, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void takes_piece(const pair *p)
{
    char bytes[16];
    assert_int_equal(send(p->client, "half", 4, 0), 4);
    assert_int_equal(recv(p->server, bytes, sizeof bytes, 0), 4);
}

static void a_client_that_is_gone(void **state)
{
    pair *p = *state;
    takes_piece(p);
    sweep(p, 1);
    assert_int_equal(shutdown(p->client, SHUT_WR), 0);
    sweep(p, 2);
    assert_false(is_shut(p)); /* the request may be whole and not noted yet */
    sweep(p, 3);
    assert_true(is_shut(p));
}

static void what_is_noted_counts_anew(void **state)
{
    pair *p = *state;
    assert_int_equal(shutdown(p->client, SHUT_WR), 0);
    for (int at = 1; at < 10; at++) {
        sweep(p, at);
        pare_connection_note(p->c, PARE_CONNECTION_COMES);
    }
    assert_false(is_shut(p));
    sweep(p, 10);
    sweep(p, 11);
    assert_true(is_shut(p));
}

static void a_whole_request_is_answered(void **state)
{
    pair *p = *state;
    pare_connection_note(p->c, PARE_CONNECTION_WHOLE);
    assert_int_equal(shutdown(p->client, SHUT_WR), 0);
    for (int at = 1; at < 10; at++) sweep(p, 100 * at);
    assert_false(is_shut(p));
    pare_connection_note(p->c, PARE_CONNECTION_IDLE);
    sweep(p, 1001);
    assert_false(is_shut(p));
    sweep(p, 1002);
    assert_true(is_shut(p));
}

static void what_waits_to_be_read_is_read(void **state)
{
    pair *p = *state;
    assert_int_equal(send(p->client, "half", 4, 0), 4);
    assert_int_equal(shutdown(p->client, SHUT_WR), 0);
    for (int at = 1; at < 10; at++) sweep(p, 100 * at);
    assert_false(is_shut(p));
}

static void silence(void **state)
{
    pair *p = *state;
    sweep(p, 1);
    sweep(p, IDLE);
    assert_false(is_shut(p));
    pare_connection_note(p->c, PARE_CONNECTION_IDLE);
    sweep(p, IDLE + 1);
    sweep(p, 2 * IDLE);
    assert_false(is_shut(p));
    sweep(p, 2 * IDLE + 1);
    assert_true(is_shut(p));
}

static void a_body_that_stops(void **state)
{
    pair *p = *state;
    for (int at = 1; at < 100; at += STALLED) {
        pare_connection_note(p->c, PARE_CONNECTION_COMES);
        sweep(p, at);
        sweep(p, at + STALLED - 1);
    }
    assert_false(is_shut(p));
    sweep(p, 100 + STALLED);
    assert_true(is_shut(p));
}

static void only_those_that_are_meant(void **state)
{
    pair *p = *state;
    int fd[2][2];
    pare_connection *other[2];
    char byte;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd[i]), 0);
        other[i] = pare_connections_add(&p->all, fd[i][1]);
        assert_non_null(other[i]);
    }
    sweep(p, 1);
    pare_connection_note(other[0], PARE_CONNECTION_IDLE);
    sweep(p, IDLE);
    sweep(p, IDLE + 1);
    assert_true(is_shut(p));
    assert_int_equal(recv(fd[0][0], &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(recv(fd[1][0], &byte, 1, MSG_DONTWAIT), 0);
    for (int i = 0; i < 2; i++) {
        pare_connections_remove(&p->all, other[i]);
        close(fd[i][0]);
        close(fd[i][1]);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        CASE(a_client_that_is_gone),
        CASE(what_is_noted_counts_anew),
        CASE(a_whole_request_is_answered),
        CASE(what_waits_to_be_read_is_read),
        CASE(silence),
        CASE(a_body_that_stops),
        CASE(only_those_that_are_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
