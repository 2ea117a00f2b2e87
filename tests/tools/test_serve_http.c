/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of HTTP: what comes in whatever pieces, and what is refused. */
#include "tests/tools/http_desk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { LIMIT = 1000, PENDING = 4000, TEXT = 1 << 16 };

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

#define SAYS(body) "Content-Type: text/plain\r\n\r\n" body

static void one_request(void **state)
{
    http_desk_say(*state, "GET /v2?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_desk_hear(*state),
                        "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n" SAYS("GET /v2 0:0"));
    http_desk_say(*state, "HEAD /a%2Fb%6d%00%zz%4 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_desk_hear(*state),
                        "HTTP/1.1 200 OK\r\nContent-Length: 24\r\n" SAYS(""));
    http_desk_say(*state, "GET /a%2fb%2Fc%252F HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(*state), SAYS("GET /a%2fb%2Fc%2F 0:0")));
    http_desk_say(*state, "GET http://host/%61?q HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(*state), SAYS("GET /a 0:0")));
    static const char *const roots[] = {"http://host", "http://host?x=/v2", "HTTPS://host?/v2"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        http_desk_say(*state, "GET ");
        http_desk_say(*state, roots[i]);
        http_desk_say(*state, " HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_non_null(strstr(http_desk_hear(*state), SAYS("GET / 0:0")));
    }
}

static void the_date(void **state)
{
    char text[TEXT];
    http_desk_say(*state, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    (void)http_desk_read(*state, text, sizeof text);
    const char *at = strstr(text, "Date: ");
    assert_non_null(at);
    const time_t now = time(NULL);
    struct tm want;
    char line[64];
    bool found = false;
    for (time_t t = now - 5; t <= now + 1 && !found; t++) {
        (void)gmtime_r(&t, &want);
        (void)strftime(line, sizeof line, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &want);
        found = !strncmp(at, line, strlen(line));
    }
    assert_true(found);
}

/* --- pieces --- */

static const char stream[] =
    "\r\n\r\nGET /one HTTP/1.1\r\nHost: x\r\n\r\n"
    "POST /two HTTP/1.1\r\nhOST:x\r\nContent-Length: 12\r\n\r\nhello, world"
    "POST /three HTTP/1.1\r\nHost: \t x \r\nTransfer-Encoding: CHUNKED\r\n\r\n"
    "5\r\nhello\r\n7;a=\"b\"\r\n, world\r\n0\r\nTrailer: t\r\nMore:\r\n\r\n"
    "POST /four HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    "0\r\n\r\n"
    "HEAD /five HTTP/1.1\r\nHost: x\r\nEmpty:\r\n\r\n"
    "POST /six HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    "GET /seven HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/* What the stream is answered, in one piece. */
static char *all_answers(void)
{
    http_desk d;
    assert_true(http_desk_open(&d, LIMIT, PENDING));
    http_desk_say(&d, stream);
    char *text = strdup(http_desk_hear(&d));
    assert_int_equal(d.handled, 7);
    http_desk_close(&d);
    return text;
}

static void what_is_answered(void **state)
{
    (void)state;
    char *all = all_answers();
    const char *const parts[] = {"GET /one 0:0HTTP/1.1 200",
                                 "POST /two 12:7584HTTP/1.1 200",
                                 "POST /three 12:7584HTTP/1.1 200",
                                 "POST /four 0:0HTTP/1.1 200",
                                 "\r\n\r\nHTTP/1.1 200",
                                 "POST /six 0:0HTTP/1.1 200",
                                 "Connection: close\r\n\r\nGET /seven 0:0"};
    const char *at = all;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        if (!at) print_error("%s: not in\n%s\n", parts[i], all);
        assert_non_null(at);
    }
    free(all);
}

static void every_split(void **state)
{
    (void)state;
    char *want = all_answers();
    for (size_t i = 0; i < sizeof stream; i++) {
        http_desk d;
        assert_true(http_desk_open(&d, LIMIT, PENDING));
        http_desk_send(&d, stream, i);
        http_desk_send(&d, stream + i, sizeof stream - 1 - i);
        assert_string_equal(http_desk_hear(&d), want);
        http_desk_close(&d);
    }
    free(want);
}

static void byte_by_byte(void **state)
{
    http_desk *d = *state;
    char *want = all_answers();
    for (size_t i = 0; i < sizeof stream - 1; i++) http_desk_send(d, stream + i, 1);
    assert_string_equal(http_desk_hear(d), want);
    free(want);
}

/* Replies that are made later come in order, and nothing is read ahead of them. */
static void pipelined(void **state)
{
    http_desk *d = *state;
    char *want = all_answers();
    d->answers_later = true;
    http_desk_say(d, stream);
    for (int i = 1; i <= 7; i++) {
        assert_int_equal(d->handled, i);
        assert_non_null(d->waiting);
        http_desk_answer(d);
    }
    assert_string_equal(http_desk_hear(d), want);
    free(want);
}

/* A body is where its first tensor is aligned, whatever came with the lines. */
static void body_is_aligned(void **state)
{
    http_desk *d = *state;
    static const char head[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200\r\n"
                               "Inference-Header-Content-Length: 23\r\n\r\n";
    char text[sizeof head + 200];
    d->answers_later = true;
    memcpy(text, head, sizeof head - 1);
    for (int i = 0; i < 200; i++) text[sizeof head - 1 + i] = (char)i;
    for (size_t split = 0; split <= 200; split += 25) {
        http_desk_send(d, text, sizeof head - 1 + split);
        http_desk_send(d, text + sizeof head - 1 + split, 200 - split);
        assert_non_null(d->waiting);
        assert_int_equal((uintptr_t)(d->waiting->body + 23) % PARE_BODY_ALIGN, 0);
        assert_memory_equal(d->waiting->body, text + sizeof head - 1, 200);
        http_desk_answer(d);
    }
}

/* --- what is no HTTP --- */

#define P       "POST / HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED P "Transfer-Encoding: chunked\r\n\r\n"

static const struct {
    const char *text;
    int code;
} wrong[] = {
    {P "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {P "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", 400},
    {P "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400},
    {P "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy", 400},
    {P "Content-Length: 1, 1\r\n\r\nx", 400},
    {P "Content-Length: +1\r\n\r\nx", 400},
    {P "Content-Length: -1\r\n\r\nx", 400},
    {P "Content-Length: 0x1\r\n\r\nx", 400},
    {P "Content-Length: 1 1\r\n\r\nx", 400},
    {P "Content-Length:\r\n\r\nx", 400},
    {P "Content-Length: 99999999999999999999999\r\n\r\nx", 400},
    {P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {P "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
    {P "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400},
    {P "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
    {P "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400},
    {P "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
    {P "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {P "A: b\r\n c\r\n\r\n", 400},
    {P "A: b\r\n\tc\r\n\r\n", 400},
    {P " A: b\r\n\r\n", 400},
    {P "A : b\r\n\r\n", 400},
    {P "A(: b\r\n\r\n", 400},
    {P ": b\r\n\r\n", 400},
    {P "A\r\n\r\n", 400},
    {P "A: b\n\r\n", 400},
    {P "A: b\r\r\n", 400},
    {P "A: b\rC: d\r\n\r\n", 400},
    {P "A: b\x01\r\n\r\n", 400},
    {P "A: b\x7f\r\n\r\n", 400},
    {"GET / HTTP/1.1\n\n", 400},
    {"GET / HTTP/1.1\r\nHost: x\n\r\n", 400},
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
     400},
    {"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"GET HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400},
    {" GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"NONE / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"GET /\r\n\r\n", 0},
    {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
    {"GET / HTTP/1.x\r\nHost: x\r\n\r\n", 400},
    {"GET / http/1.1\r\nHost: x\r\n\r\n", 400},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
    {"\x16\x03\x01\x02", 400},
    {CHUNKED "g\r\n", 400},
    {CHUNKED "-1\r\n", 400},
    {CHUNKED "0x1\r\n", 400},
    {CHUNKED "\r\n0\r\n\r\n", 400},
    {CHUNKED "5 \r\nhello\r\n0\r\n\r\n", 400},
    {CHUNKED " 5\r\nhello\r\n0\r\n\r\n", 400},
    {CHUNKED "5\nhello\r\n0\r\n\r\n", 400},
    {CHUNKED "5\rXhello\r\n0\r\n\r\n", 400},
    {CHUNKED "5;a\nhello\r\n0\r\n\r\n", 400},
    {CHUNKED "5\r\nhelloXX0\r\n\r\n", 400},
    {CHUNKED "5\r\nhello\n0\r\n\r\n", 400},
    {CHUNKED "5\r\nhello\r0\r\n\r\n", 400},
    {CHUNKED "5\r\nhello0\r\n\r\n", 400},
    {CHUNKED "4\r\nhello\r\n0\r\n\r\n", 400},
    {CHUNKED "FFFFFFFFFFFFFFFFF\r\nhello", 400},
    {CHUNKED "00000000000000005\r\nhello\r\n0\r\n\r\n", 400},
    {CHUNKED "5\r\nhello\r\n0\r\nA : b\r\n\r\n", 400},
    {CHUNKED "5\r\nhello\r\n0\r\n A: b\r\n\r\n", 400},
    {CHUNKED "5\r\nhello\r\n0\r\nA: b\n\r\n", 400},
    {CHUNKED "5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n", 400},
};

static void is_refused(http_desk *d, size_t i)
{
    const char *got = http_desk_hear(d);
    int code = 0;
    if (!strncmp(got, "HTTP/1.1 ", 9)) code = atoi(got + 9);
    const bool is_code = wrong[i].code ? code == wrong[i].code : code == 400 || code == 505;
    if (!is_code || !strstr(got, "\r\nConnection: close\r\n") || !strstr(got, "{\"error\":"))
        print_error("%s\n%s\n", wrong[i].text, got);
    assert_true(is_code);
    assert_non_null(strstr(got, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(got, "{\"error\":"));
    assert_null(strstr(got + 9, "HTTP/1.1 "));
    assert_int_equal(d->handled, 0);
    assert_int_equal(d->c->step, PARE_STEP_LINGERING);
}

/* Each is refused, and a request behind it is not answered, in one piece and byte by byte. */
static void what_is_no_http(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (int whole = 0; whole < 2; whole++) {
            http_desk d;
            assert_true(http_desk_open(&d, LIMIT, PENDING));
            const size_t bytes = strlen(wrong[i].text);
            for (size_t k = 0; k < bytes; k += whole ? bytes : 1)
                http_desk_send(&d, wrong[i].text + k, whole ? bytes : 1);
            http_desk_say(&d, "\r\n\r\n");
            http_desk_say(&d, "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
            is_refused(&d, i);
            http_desk_close(&d);
        }
}

/* A refusal of HEAD has no body, either. */
static void no_body_of_a_refused_head(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, "HEAD / HTTP/1.1\r\n\r\n");
    const char *got = http_desk_hear(d), *end = strstr(got, "\r\n\r\n");
    assert_non_null(strstr(got, "HTTP/1.1 400 "));
    assert_non_null(end);
    assert_string_equal(end, "\r\n\r\n");
}

/* --- limits --- */

static void a_large_head(void **state)
{
    http_desk *d = *state;
    char line[1024];
    memset(line, 'a', sizeof line);
    memcpy(line, "X: ", 3);
    memcpy(line + sizeof line - 3, "\r\n", 3);
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 31; i++) http_desk_say(d, line);
    http_desk_say(d, "\r\n");
    assert_non_null(strstr(http_desk_hear(d), "200 OK"));
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 40; i++) http_desk_say(d, line);
    assert_non_null(strstr(http_desk_hear(d), "HTTP/1.1 431 "));
    assert_int_equal(d->c->step, PARE_STEP_LINGERING);
}

static void post(http_desk *d, const char *more, size_t bytes)
{
    char head[256], body[512] = {0};
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n", more,
             bytes);
    http_desk_say(d, head);
    for (size_t sent = 0; sent < bytes; sent += sizeof body)
        http_desk_send(d, body, bytes - sent < sizeof body ? bytes - sent : sizeof body);
}

/* A refused body is read to its end, and the connection goes on. */
static void a_large_body(void **state)
{
    http_desk *d = *state;
    post(d, "", LIMIT + 1);
    assert_non_null(strstr(http_desk_hear(d), "HTTP/1.1 413 "));
    post(d, "", LIMIT);
    assert_non_null(strstr(http_desk_hear(d), "POST / 1000:0"));
    http_desk_say(d, CHUNKED);
    for (int i = 0; i < 100; i++) http_desk_say(d, "20\r\n0123456789abcdef0123456789abcdef\r\n");
    assert_string_equal(http_desk_hear(d), "");
    http_desk_say(d, "0\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(d), "HTTP/1.1 413 "));
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(d), "GET / 0:0"));
    assert_int_equal(d->handled, 2);
}

/* What came of a body goes when it is refused, not at its end. */
static void a_refused_body_goes(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, CHUNKED);
    for (int i = 0; i < LIMIT / 32; i++)
        http_desk_say(d, "20\r\n0123456789abcdef0123456789abcdef\r\n");
    assert_int_equal(d->held, LIMIT / 32 * 32);
    assert_non_null(d->c->memory);
    http_desk_say(d, "20\r\n0123456789abcdef0123456789abcdef\r\n");
    assert_int_equal(d->held, 0);
    assert_null(d->c->memory);
    http_desk_say(d, "20\r\n0123456789abcdef0123456789abcdef\r\n0\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(d), "HTTP/1.1 413 "));
    http_desk_say(d, P "Content-Length: 600\r\n\r\n");
    d->held = PENDING - 500;
    for (int i = 0; i < 5; i++) {
        char piece[120] = {0};
        http_desk_send(d, piece, sizeof piece);
    }
    assert_int_equal(d->held, PENDING - 500);
    d->held = 0;
    assert_non_null(strstr(http_desk_hear(d), "HTTP/1.1 503 "));
}

static void far_too_large(void **state)
{
    http_desk *d = *state;
    enum { PIECE = 1 << 16 };
    char *piece = calloc(PIECE, 1);
    assert_non_null(piece);
    http_desk_say(d, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n");
    for (int i = 0; i < 1023; i++) http_desk_send(d, piece, PIECE);
    assert_false(d->is_closed);
    for (int i = 0; i < 3; i++) http_desk_send(d, piece, PIECE);
    assert_true(d->is_closed);
    assert_string_equal(http_desk_hear(d), "");
    free(piece);
}

static void too_much_on_its_way(void **state)
{
    http_desk *d = *state;
    d->held = PENDING - 500;
    post(d, "", 501);
    const char *got = http_desk_hear(d);
    assert_non_null(strstr(got, "HTTP/1.1 503 "));
    assert_non_null(strstr(got, "Retry-After: 1\r\n"));
    post(d, "", 500);
    assert_non_null(strstr(http_desk_hear(d), "POST / 500:0"));
    assert_int_equal(d->held, PENDING - 500);
    d->held = 0;
}

static void many_chunk_lines(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, CHUNKED "5;");
    for (int i = 0; i < 500; i++) http_desk_say(d, "0123456789");
    assert_non_null(strstr(http_desk_hear(d), "HTTP/1.1 400 "));
}

/* --- a client that asks first --- */

#define ASKS "Expect: 100-continue\r\n"

static void asks_first(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, P ASKS "Content-Length: 5\r\n\r\n");
    assert_string_equal(http_desk_hear(d), "HTTP/1.1 100 Continue\r\n\r\n");
    http_desk_say(d, "hello");
    assert_non_null(strstr(http_desk_hear(d), "POST / 5:"));
    http_desk_say(d, P ASKS "Transfer-Encoding: chunked\r\n\r\n");
    assert_string_equal(http_desk_hear(d), "HTTP/1.1 100 Continue\r\n\r\n");
    http_desk_say(d, "5\r\nhello\r\n0\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(d), "POST / 5:"));
    http_desk_say(d, P ASKS "Content-Length: 5\r\n\r\nhello"); /* it has not waited */
    assert_null(strstr(http_desk_hear(d), "100 Continue"));
    http_desk_say(d, P ASKS "Content-Length: 0\r\n\r\n");
    assert_null(strstr(http_desk_hear(d), "100 Continue"));
    http_desk_say(d,
                  "POST / HTTP/1.0\r\n" ASKS "Content-Length: 5\r\nConnection: keep-alive\r\n\r\n");
    assert_string_equal(http_desk_hear(d), "");
    http_desk_say(d, "hello");
    assert_non_null(strstr(http_desk_hear(d), "Connection: keep-alive\r\n\r\nPOST / 5:"));
}

/* The refusal comes at once, and what may come of the body is not taken for a request. */
static void asks_for_too_much(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, P ASKS "Content-Length: 1001\r\n\r\n");
    const char *got = http_desk_hear(d);
    assert_non_null(strstr(got, "HTTP/1.1 413 "));
    assert_non_null(strstr(got, "Connection: close"));
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(http_desk_hear(d), "");
    assert_int_equal(d->handled, 0);
}

static void not_admitted(void **state)
{
    http_desk *d = *state;
    d->refuses = true;
    post(d, "", 500);
    const char *got = http_desk_hear(d);
    assert_non_null(strstr(got, "HTTP/1.1 401 "));
    assert_non_null(strstr(got, "WWW-Authenticate: Bearer\r\n"));
    assert_null(strstr(got, "Connection: close"));
    assert_null(d->c->memory);
    post(d, ASKS, 0);
    assert_non_null(strstr(http_desk_hear(d), "HTTP/1.1 401 "));
    http_desk_say(d, P ASKS "Content-Length: 1\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(d), "HTTP/1.1 401 "));
    assert_int_equal(d->c->step, PARE_STEP_LINGERING);
    assert_int_equal(d->handled, 0);
}

/* --- versions --- */

static void http_1_0(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(d), "Connection: keep-alive\r\n"));
    http_desk_say(d, "GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    const char *got = http_desk_hear(d);
    assert_non_null(strstr(got, "Connection: close\r\n"));
    assert_int_equal(d->handled, 2);
}

static void upgrades_are_not_made(void **state)
{
    http_desk *d = *state;
    http_desk_say(d, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
                     "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n"
                     "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(http_desk_hear(d), "GET /next 0:0"));
    assert_int_equal(d->handled, 3);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(one_request),
        CASE(the_date),
        CASE(what_is_answered),
        CASE(every_split),
        CASE(byte_by_byte),
        CASE(pipelined),
        CASE(body_is_aligned),

        CASE(what_is_no_http),
        CASE(a_large_head),
        CASE(a_large_body),

        CASE(far_too_large),
        CASE(too_much_on_its_way),
        CASE(many_chunk_lines),
        CASE(asks_first),
        CASE(asks_for_too_much),
        CASE(not_admitted),
        CASE(http_1_0),
        CASE(upgrades_are_not_made),

        CASE(no_body_of_a_refused_head),
        CASE(a_refused_body_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
