/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/http.h"

#include "runtime/base/clock.h"
#include "tools/serve/http/connections.h"
#include "tools/serve/listen.h"

#if PARE_MICROHTTPD

#include <errno.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    POOL = 96 << 10, /* bytes of a connection's buffers: large bodies come in large pieces, and the
                         library writes zeros over all of it after each request */
    MOST_CONNECTIONS = 8192,
    FILES = 32,              /* descriptors that are no connections */
    IDLE_SECONDS = 60,       /* a connection of which no whole request comes is closed */
    UNREAD_SECONDS = 600,    /* so is one whose reply is not read */
    STALLED_SECONDS = 5,     /* draining leaves a request of which nothing comes */
    DROPPED_MORE = 64 << 20, /* bytes that are read of a refused body beside two bodies */
    QUIET_MS = 300,          /* draining ends when no request came for so long */
    SLOW_SECONDS = 30, /* a request that still comes after so long, or a reply that is still sent so
                          long after the last was made, is lost */
};

struct pare_http {
    pare_ctx ctx; /* of requests */
    pare_http_options options;
    struct MHD_Daemon *daemon;
    int listener, port;
    atomic_bool draining, closed;            /* closed: requests are refused */
    atomic_int arriving, answering, sending; /* requests whose body comes; that wait for their
                                                reply; that send it */
    atomic_uint seen, replies;               /* requests, and replies, so far */
    atomic_int resuming;                     /* threads that hand a reply over */
    pare_connections connections;
    pthread_t sweeper;
    atomic_bool is_swept; /* the thread runs */
};

/* The connection's, NULL where memory was out. */
static pare_connection *connection_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* Who goes on with a request: a thread of the transport, or who makes the reply. */
enum { HANDLED, WAITING, REPLIED };

typedef struct request {
    pare_exchange x; /* first: the others know only this */
    pare_http *http;
    struct MHD_Connection *connection;
    atomic_int state;
    char *block;         /* the body's memory */
    size_t from, room;   /* of the body in it */
    size_t dropped;      /* bytes of a body that is not taken */
    atomic_int *counted; /* as arriving, answering or sending */
} request;

/* --- a request --- */

static void count_as(request *q, atomic_int *counter)
{
    if (counter) atomic_fetch_add(counter, 1);
    if (q->counted) atomic_fetch_sub(q->counted, 1);
    q->counted = counter;
}

static void on_done(pare_exchange *x)
{
    request *q = (request *)(void *)x;
    pare_http *http = q->http;
    struct MHD_Connection *connection = q->connection;
    atomic_fetch_add(&http->resuming, 1);
    if (atomic_exchange(&q->state, REPLIED) == WAITING) MHD_resume_connection(connection);
    atomic_fetch_sub(&http->resuming, 1); /* by now the request may be gone */
}

/* Room for a body of so many bytes; false: memory is out. */
static bool make_room(request *q, size_t bytes)
{
    if (bytes <= q->room && q->block) return true;
    const size_t room = bytes > 2 * q->room ? bytes : 2 * q->room;
    char *block = aligned_alloc(PARE_BODY_ALIGN, (q->from + room + 2 * PARE_BODY_ALIGN - 1) /
                                                     PARE_BODY_ALIGN * PARE_BODY_ALIGN);
    if (!block) return false;
    if (q->x.bytes) memcpy(block + q->from, q->block + q->from, q->x.bytes);
    free(q->block);
    q->block = block;
    q->room = room;
    q->x.body = block + q->from;
    return true;
}

static const char *header(const request *q, const char *name)
{
    return MHD_lookup_connection_value(q->connection, MHD_HEADER_KIND, name);
}

/* The bytes that a header announces, 0 where it does not. */
static size_t announced(const request *q, const char *name)
{
    const char *text = header(q, name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static request *request_new(pare_http *http, struct MHD_Connection *connection, const char *url,
                            const char *method)
{
    request *q = malloc(sizeof *q);
    if (!q) return NULL;
    *q = (request){.http = http, .connection = connection};
    pare_exchange_init(&q->x, &http->ctx);
    q->x.done = on_done;
    q->x.body = "";
    q->x.method = pare_arena_strdup(&q->x.arena, method);
    q->x.path = pare_arena_strdup(&q->x.arena, url);
    q->x.json_bytes = header(q, "Inference-Header-Content-Length");
    q->x.encoding = header(q, MHD_HTTP_HEADER_CONTENT_ENCODING);
    q->x.accept_encoding = header(q, MHD_HTTP_HEADER_ACCEPT_ENCODING);
    q->x.limit = (size_t)http->options.limit;
    q->x.held = http->options.held;
    q->x.most_held = (size_t)http->options.pending;
    q->x.authorization = header(q, MHD_HTTP_HEADER_AUTHORIZATION);
    q->from =
        (PARE_BODY_ALIGN - announced(q, "Inference-Header-Content-Length") % PARE_BODY_ALIGN) %
        PARE_BODY_ALIGN;
    if (q->x.method && q->x.path) return q;
    pare_exchange_free(&q->x);
    free(q);
    return NULL;
}

/* The request is over: its reply was sent, or its connection is gone. */
static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    request *q = *state;
    (void)user;
    (void)code;
    *state = NULL;
    pare_connection_note(connection_of(connection), PARE_CONNECTION_IDLE);
    if (!q) return;
    count_as(q, NULL);
    pare_exchange_free(&q->x);
    free(q->block);
    free(q);
}

/* --- replies --- */

static struct MHD_Response *response_new(request *q)
{
    char number[32];
    pare_reply *r = &q->x.reply;
    struct MHD_Response *response =
        r->body ? MHD_create_response_from_buffer(r->bytes, r->body, MHD_RESPMEM_MUST_FREE)
                : MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    if (!response) return NULL;
    r->body = NULL; /* it is the response's */
    if (r->type) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, r->type);
    if (r->encoding)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, r->encoding);
    if (r->code == PARE_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (r->allow) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, r->allow);
    if (r->json_bytes) {
        snprintf(number, sizeof number, "%zu", r->json_bytes);
        MHD_add_response_header(response, "Inference-Header-Content-Length", number);
    }
    if (r->retry_after) {
        snprintf(number, sizeof number, "%d", r->retry_after);
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, number);
    }
    if (atomic_load(&q->http->draining))
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    return response;
}

static enum MHD_Result send_reply(request *q)
{
    struct MHD_Response *response = response_new(q);
    pare_connection_note(connection_of(q->connection), PARE_CONNECTION_WHOLE);
    pare_exchange_drop_body(&q->x);
    pare_exchange_hold_reply(&q->x);
    free(q->block);
    q->block = NULL;
    count_as(q, &q->http->sending);
    atomic_fetch_add(&q->http->replies, 1);
    if (!response) return MHD_NO;
    const enum MHD_Result sent =
        MHD_queue_response(q->connection, (unsigned)q->x.reply.code, response);
    MHD_destroy_response(response);
    return sent;
}

static bool is_replied(request *q) { return atomic_load(&q->state) == REPLIED; }

static void refuse_size(request *q)
{
    pare_exchange_refuse(&q->x, PARE_HTTP_TOO_LARGE,
                         "the request's body is larger than the %lld bytes that are taken",
                         (long long)q->http->options.limit);
}

/* The reply may be made already when handle returns, or while the connection is put aside. */
static enum MHD_Result reply(request *q)
{
    int handled = HANDLED;
    pare_connection_note(connection_of(q->connection), PARE_CONNECTION_WHOLE);
    count_as(q, &q->http->answering); /* before it looks whether that is too late */
    if (atomic_load(&q->http->closed))
        pare_exchange_refuse(&q->x, PARE_HTTP_UNAVAILABLE, "the server has ended");
    else
        q->http->options.handle(q->http->options.user, &q->x);
    if (is_replied(q)) return send_reply(q);
    MHD_suspend_connection(q->connection);
    if (!atomic_compare_exchange_strong(&q->state, &handled, WAITING))
        MHD_resume_connection(q->connection);
    return MHD_YES;
}

/* A piece of the body. That of a request that was refused is read to its end, as far as a body may
   go: a client that still sends would not see the reply. */
static enum MHD_Result take_piece(request *q, const char *data, size_t *bytes)
{
    const size_t all = q->x.bytes + *bytes, limit = (size_t)q->http->options.limit;
    if (!is_replied(q) && all > limit) refuse_size(q);
    if (!is_replied(q) && !pare_exchange_hold(&q->x, *bytes))
        pare_exchange_fail(&q->x, PARE_HTTP_UNAVAILABLE);
    if (is_replied(q)) {
        q->dropped += *bytes;
        if (q->dropped > 2 * limit + DROPPED_MORE) return MHD_NO;
    } else if (make_room(q, all)) {
        memcpy(q->block + q->from + q->x.bytes, data, *bytes);
        q->x.bytes = all;
    } else
        return MHD_NO;
    *bytes = 0;
    return MHD_YES;
}

/* The headers are there. A client that waits for a word before it sends a body gets it now. */
static enum MHD_Result begin(request *q)
{
    pare_http *http = q->http;
    const size_t bytes = announced(q, MHD_HTTP_HEADER_CONTENT_LENGTH);
    atomic_fetch_add(&http->seen, 1);
    count_as(q, &http->arriving);
    if (http->options.admit(http->options.user, &q->x)) {
        if (bytes > (size_t)http->options.limit)
            refuse_size(q);
        else if (bytes && !make_room(q, bytes))
            return MHD_NO;
    }
    return is_replied(q) && header(q, MHD_HTTP_HEADER_EXPECT) ? send_reply(q) : MHD_YES;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **state)
{
    request *q = *state;
    (void)version;
    if (!q || *bytes) pare_connection_note(connection_of(connection), PARE_CONNECTION_COMES);
    if (!q) {
        q = *state = request_new(user, connection, url, method);
        return q ? begin(q) : MHD_NO;
    }
    if (*bytes) return take_piece(q, data, bytes);
    return is_replied(q) ? send_reply(q) : reply(q);
}

/* Decodes the %XX of a path, and returns its length. One with %00 stays as it is: it would end
 * there. */
static size_t decode(void *user, struct MHD_Connection *connection, char *text)
{
    (void)user;
    (void)connection;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

/* --- connections --- */

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    pare_http *http = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = info ? pare_connections_add(&http->connections, info->connect_fd) : NULL;
    } else {
        pare_connections_remove(&http->connections, *context);
        *context = NULL;
    }
}

/* The library does not see the end of a connection that came with data: its epoll says it once. */
static void *sweep(void *user)
{
    enum { STEP_MS = 50, STEPS = 20 };
    pare_http *http = user;
    for (int step = 1; atomic_load(&http->is_swept); step++) {
        pare_sleep_ms(STEP_MS);
        if (step % STEPS) continue;
        pare_connections_sweep(&http->connections, pare_seconds(), IDLE_SECONDS,
                               atomic_load(&http->draining) ? STALLED_SECONDS : IDLE_SECONDS);
    }
    return NULL;
}

/* --- listening --- */

/* As many connections as descriptors allow, with some left for files. */
static unsigned most_connections(void)
{
    const unsigned half = pare_listen_most();
    const unsigned most = half > 2 * FILES ? half - FILES : FILES;
    return most < MOST_CONNECTIONS ? most : MOST_CONNECTIONS;
}

static pare_status start(pare_http *http)
{
    const pare_http_options *o = &http->options;
    const bool tls = o->certificate != NULL;
    const unsigned pool = o->threads > 1 ? (unsigned)o->threads : 0; /* the library's word for 1 */
    const struct MHD_OptionItem secret[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)o->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)o->key},
        {MHD_OPTION_END, 0, NULL},
    };
    if (tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return PARE_FAIL(&http->ctx, UNSUPPORTED, "this libmicrohttpd was built without TLS");
    PARE_TRY(pare_listen(&http->ctx, &http->listener, o->host, o->port, &http->port));
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
            (tls ? MHD_USE_TLS : 0u),
        0, NULL, NULL, on_request, http, MHD_OPTION_LISTEN_SOCKET, http->listener,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL,
        MHD_OPTION_CONNECTION_LIMIT, most_connections(), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)UNREAD_SECONDS, MHD_OPTION_THREAD_POOL_SIZE, pool, MHD_OPTION_ARRAY,
        tls ? secret : secret + 2, MHD_OPTION_UNESCAPE_CALLBACK, decode, NULL, MHD_OPTION_END);
    if (http->daemon) return PARE_OK;
    if (tls)
        return PARE_FAIL(&http->ctx, INPUT,
                         "the certificate and the key cannot be used; expected PEM, and the key "
                         "of the certificate");
    return PARE_FAIL(&http->ctx, IO, "%s port %d: the HTTP library does not start", o->host,
                     http->port);
}

static pare_status start_sweeper(pare_http *http)
{
    atomic_store(&http->is_swept, true);
    const int code = pthread_create(&http->sweeper, NULL, sweep, http);
    if (!code) return PARE_OK;
    atomic_store(&http->is_swept, false);
    return PARE_FAIL(&http->ctx, IO, "a thread of HTTP's does not start: %s", strerror(code));
}

pare_status pare_http_open(pare_ctx *ctx, pare_http **out, const pare_http_options *options)
{
    pare_http *http = pare_alloc(ctx, 1, sizeof *http);
    if (!http) return PARE_MEMORY;
    pare_ctx_child(&http->ctx, ctx);
    http->ctx.interrupted = NULL; /* they are answered after the first signal, too */
    http->options = *options;
    http->listener = -1;
    pare_connections_init(&http->connections);
    pare_status st = start(http);
    if (st == PARE_OK) st = start_sweeper(http);
    if (st == PARE_OK) {
        *out = http;
        return PARE_OK;
    }
    (void)pare_fail(ctx, st, "%s", http->ctx.message);
    pare_http_close(http);
    return st;
}

int pare_http_port(const pare_http *http) { return http->port; }

/* --- draining --- */

/* Takes the connections that the system has accepted but the library has not seen. */
static void take_waiting(pare_http *http)
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof from;
    for (int fd; (fd = accept4(http->listener, (struct sockaddr *)&from, &bytes,
                               SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;
         bytes = sizeof from)
        (void)MHD_add_connection(http->daemon, fd, (struct sockaddr *)&from, bytes);
}

/* Waits until nothing is under way: for requests until they are answered, for those that only come,
   or whose reply is only sent, for SLOW_SECONDS. */
static void await_quiet(pare_http *http)
{
    enum { STEP_MS = 5, SLOW_MS = SLOW_SECONDS * 1000 };
    unsigned seen = atomic_load(&http->seen), replies = atomic_load(&http->replies);
    for (int quiet = 0, all = 0, sent = 0; quiet < QUIET_MS; all += STEP_MS, sent += STEP_MS) {
        pare_sleep_ms(STEP_MS);
        const bool answers = atomic_load(&http->answering) > 0;
        const bool comes = atomic_load(&http->arriving) > 0 || atomic_load(&http->seen) != seen;
        if (answers || atomic_load(&http->replies) != replies) sent = 0;
        replies = atomic_load(&http->replies);
        const bool sends = atomic_load(&http->sending) > 0 && sent < SLOW_MS;
        seen = atomic_load(&http->seen);
        quiet = answers || sends || (comes && all < SLOW_MS) ? 0 : quiet + STEP_MS;
    }
}

void pare_http_drain(pare_http *http)
{
    atomic_store(&http->draining, true);
    (void)MHD_quiesce_daemon(http->daemon);
    take_waiting(http);
    (void)shutdown(http->listener, SHUT_RDWR); /* from now on connections are refused */
    await_quiet(http);
    atomic_store(&http->closed, true);
    while (atomic_load(&http->answering)) pare_sleep_ms(1); /* that were not refused yet */
}

void pare_http_close(pare_http *http)
{
    if (!http) return;
    while (atomic_load(&http->resuming)) pare_sleep_ms(1);
    if (atomic_exchange(&http->is_swept, false)) (void)pthread_join(http->sweeper, NULL);
    if (http->daemon) MHD_stop_daemon(http->daemon);
    pare_connections_free(&http->connections);
    if (http->listener >= 0) close(http->listener);
    pare_free(http);
}

#else

pare_status pare_http_open(pare_ctx *ctx, pare_http **out, const pare_http_options *options)
{
    (void)out;
    (void)options;
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "this build has no HTTP library: install libmicrohttpd-dev and build again");
}

int pare_http_port(const pare_http *http)
{
    (void)http;
    return 0;
}

void pare_http_drain(pare_http *http) { (void)http; }

void pare_http_close(pare_http *http) { (void)http; }

#endif
