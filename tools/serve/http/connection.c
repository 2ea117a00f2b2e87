/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    BUFFER = 16 << 10,      /* bytes that are read at once, beside a body's */
    MOST_HEAD = 32 << 10,   /* of a request's lines */
    SINK = 16 << 10,        /* that are dropped at once */
    MOST_STEPS = 48,        /* of one turn */
    IDLE_SECONDS = 60,      /* without a request; for its lines in all, and a piece of its body */
    UNREAD_SECONDS = 600,   /* for a piece of a reply to be read */
    LEAST_RATE = 32 << 10,  /* bytes a second: a piece is what has to move in such a time, or all */
    SPARED_SECONDS = 1,     /* more where a request has come, and was not read yet */
    LINGER_SECONDS = 2,     /* for the client's end behind the last reply */
    LEFT_SECONDS = 30,      /* the same where it still sends */
    STALLED_SECONDS = 5,    /* draining: without anything of a request that has begun */
    DROPPED_MORE = 64 << 20 /* bytes that are read of a refused body beside two bodies */
};
static const double quiet = 0.3; /* seconds: draining, without a next request */

/* --- its life --- */

pare_connection *pare_connection_new(pare_http_common *common, int fd, double now)
{
    pare_connection *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->common = common;
    c->fd = fd;
    c->since = c->begun = now;
    c->step = common->tls ? PARE_STEP_SHAKING : PARE_STEP_HEAD;
    c->is_readable = true;
    atomic_init(&c->turn, PARE_TURN_OUT); /* until it is given to its loop */
    if (!common->tls || (c->tls = pare_tls_new(common->tls, fd))) return c;
    free(c);
    return NULL;
}

void pare_connection_free(pare_connection *c)
{
    if (!c) return;
    pare_request_end(c);
    pare_request_forget(c);
    pare_tls_free(c->tls);
    free(c->buffer);
    free(c);
}

static void shut(pare_connection *c)
{
    if (c->step == PARE_STEP_CLOSED) return;
    if (c->tls && c->step != PARE_STEP_SHAKING && c->step != PARE_STEP_LINGERING)
        pare_tls_bye(c->tls);
    pare_request_end(c);
    close(c->fd);
    c->fd = -1;
    c->step = PARE_STEP_CLOSED;
}

bool pare_connection_is_out(const pare_connection *c)
{
    return atomic_load_explicit(&c->turn, memory_order_acquire) & PARE_TURN_OUT;
}

bool pare_connection_note(pare_connection *c, unsigned events)
{
    if (!(atomic_fetch_or(&c->turn, events) & PARE_TURN_OUT)) return true;
    if (events & PARE_TURN_GONE) __atomic_store_n(&c->x.gone, true, __ATOMIC_RELAXED);
    return false;
}

/* --- its pace --- */

void pare_connection_pace(pare_connection *c)
{
    c->paced = c->now;
    c->piece = 0;
}

/* Bytes have come, or went: as many as `seconds` are for begin a new time. */
static void keep_pace(pare_connection *c, size_t bytes, size_t seconds)
{
    c->since = c->now;
    c->piece += bytes;
    if (c->piece >= seconds * LEAST_RATE) pare_connection_pace(c);
}

/* --- reading --- */

bool pare_connection_has_more(const pare_connection *c)
{
    char first;
    return c->have > c->used || (c->tls && pare_tls_has_more(c->tls)) ||
           recv(c->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

typedef enum got { GOT_SOME, GOT_NOTHING, GOT_END } got;

/* Into `to`, and what comes behind these bytes into the buffer; *n: bytes in `to`. */
static got read_some(pare_connection *c, char *to, size_t bytes, size_t *n)
{
    const size_t spare = c->room - c->have;
    ssize_t all;
    if (c->tls) {
        all = pare_tls_read(c->tls, bytes ? to : c->buffer + c->have, bytes ? bytes : spare);
    } else {
        struct iovec part[2] = {{to, bytes}, {c->buffer ? c->buffer + c->have : NULL, spare}};
        struct msghdr message = {.msg_iov = part + !bytes,
                                 .msg_iovlen = (size_t)((bytes > 0) + (spare > 0))};
        do all = recvmsg(c->fd, &message, 0);
        while (all < 0 && errno == EINTR);
    }
    if (all > 0) {
        *n = (size_t)all < bytes ? (size_t)all : bytes;
        c->have += (size_t)all - *n;
        keep_pace(c, (size_t)all, IDLE_SECONDS);
        /* a short read has emptied the socket; the client's end is told apart, and TLS has a memory
           of its own */
        if (!c->tls && (size_t)all < bytes + spare && !c->has_ended) c->is_readable = false;
        return GOT_SOME;
    }
    c->is_readable = false;
    return all < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? GOT_NOTHING : GOT_END;
}

static bool make_room(pare_connection *c, size_t room)
{
    if (c->room >= room) return true;
    char *buffer = realloc(c->buffer, room);
    if (!buffer) return false;
    c->buffer = buffer;
    c->room = room;
    return true;
}

static bool fill_buffer(pare_connection *c)
{
    size_t none;
    size_t room = c->room ? c->room : BUFFER;
    if (!c->is_readable) return false;
    if (c->have == c->room && c->room) room = 2 * c->room;
    const got g = make_room(c, room) ? read_some(c, NULL, 0, &none) : GOT_END;
    if (g == GOT_END) shut(c);
    return g == GOT_SOME;
}

/* --- steps: each says whether another can follow at once --- */

static bool shake(pare_connection *c)
{
    if (!pare_tls_shake(c->tls)) {
        c->step = PARE_STEP_HEAD;
        c->since = c->begun = c->now;
        return true;
    }
    if (errno != EAGAIN) shut(c);
    return false;
}

static void drop_front(pare_connection *c, size_t bytes)
{
    if (!bytes) return;
    c->have -= bytes;
    memmove(c->buffer, c->buffer + bytes, c->have);
    c->head = (pare_head){0};
}

/* Empty lines before a request are passed over. */
static void drop_empty_lines(pare_connection *c)
{
    size_t n = 0;
    while (c->have - n >= 2 && !memcmp(c->buffer + n, "\r\n", 2)) n += 2;
    drop_front(c, n);
}

static bool read_head(pare_connection *c)
{
    if (!c->head.lines && !c->head.line) drop_empty_lines(c);
    if (c->have == c->head.at) return fill_buffer(c);
    if (!c->head.at && c->buffer[0] != '\r') c->begun = c->now; /* it may be an empty line's */
    const int form = pare_head_look(&c->head, c->buffer, c->have);
    if (form == PARE_HEAD_WRONG) {
        pare_request_refuse(c, PARE_HTTP_BAD_REQUEST,
                            "the request's header is no HTTP/1.1: expected lines that end with CR "
                            "LF, and no other control characters");
    } else if (c->head.at > MOST_HEAD) {
        pare_request_refuse(c, PARE_HTTP_HEADERS_TOO_LARGE,
                            "the request's header is larger than %d bytes", MOST_HEAD);
    } else if (form == PARE_HEAD_WHOLE) {
        c->used = c->head.at;
        pare_request_begin(c);
    }
    return true;
}

static void hand_out(pare_connection *c)
{
    c->step = PARE_STEP_OUT;
    atomic_store(&c->turn, PARE_TURN_OUT); /* the loop alone notes events, and is here */
    c->common->options.handle(c->common->options.user, &c->x);
}

/* The request is whole. */
static void finish(pare_connection *c)
{
    if (c->is_refused)
        pare_reply_begin(c);
    else
        hand_out(c);
}

static bool ends_dropping(pare_connection *c)
{
    const uint64_t most = 2 * (uint64_t)c->common->options.limit + DROPPED_MORE;
    if (c->came <= most) return false;
    shut(c);
    return true;
}

/* What came with the lines is copied; the rest is read to its place. */
static bool read_body(pare_connection *c)
{
    char sink[SINK];
    size_t n = c->have - c->used;
    if (n > c->left) n = (size_t)c->left;
    if (n) {
        pare_request_take(c, c->buffer + c->used, n);
        c->used += n;
        if (c->left) c->used = c->have = c->head.at; /* all was taken */
    }
    if (!c->left) {
        finish(c);
        return true;
    }
    if (n) return true;
    if (!c->is_readable) return false;
    char *to = pare_request_place(c);
    size_t most = to ? SIZE_MAX / 2 : sizeof sink;
    if (most > c->left) most = (size_t)c->left;
    const got g = read_some(c, to ? to : sink, most, &n);
    if (g == GOT_END) shut(c);
    if (g != GOT_SOME) return false;
    pare_request_take(c, to ? to : sink, n);
    return !ends_dropping(c);
}

static bool read_chunks(pare_connection *c)
{
    if (c->have > c->used) pare_request_take_chunks(c);
    if (c->step != PARE_STEP_CHUNKS) return true; /* it is wrong */
    if (c->chunks->is_whole) {
        finish(c);
        return true;
    }
    return !ends_dropping(c) && fill_buffer(c);
}

static void linger(pare_connection *c)
{
    if (c->tls) pare_tls_bye(c->tls);
    (void)shutdown(c->fd, SHUT_WR);
    c->step = PARE_STEP_LINGERING;
    c->begun = c->since = c->now;
}

/* The reply was sent: the next request, or the end. */
static void end_reply(pare_connection *c)
{
    const bool is_last = c->is_last;
    pare_request_end(c);
    drop_front(c, c->used);
    c->head = (pare_head){0};
    c->used = 0;
    c->since = c->begun = c->now;
    c->step = PARE_STEP_HEAD;
    if (is_last) linger(c);
}

static void send_some(pare_connection *c)
{
    const size_t before = c->sent;
    const pare_sent sent = pare_reply_send(c);
    if (c->sent > before) keep_pace(c, c->sent - before, UNREAD_SECONDS);
    if (sent == PARE_SENT_ALL) end_reply(c);
    if (sent == PARE_SENT_BROKEN) c->step = PARE_STEP_BROKEN;
}

static bool send_reply(pare_connection *c)
{
    send_some(c);
    return c->step != PARE_STEP_SENDING;
}

static bool send_continue(pare_connection *c)
{
    const pare_sent sent = pare_reply_send_continue(c);
    if (sent == PARE_SENT_ALL) c->step = c->chunks ? PARE_STEP_CHUNKS : PARE_STEP_BODY;
    if (sent == PARE_SENT_BROKEN) c->step = PARE_STEP_BROKEN;
    return sent != PARE_SENT_SOME;
}

static bool read_rest(pare_connection *c)
{
    char sink[SINK];
    size_t n;
    c->have = c->used = 0; /* what comes behind the last request is not read */
    if (!c->is_readable) return false;
    const got g = read_some(c, sink, sizeof sink, &n);
    if (g == GOT_END) shut(c);
    return g == GOT_SOME;
}

static bool advance(pare_connection *c)
{
    switch (c->step) {
    case PARE_STEP_SHAKING: return shake(c);
    case PARE_STEP_HEAD: return read_head(c);
    case PARE_STEP_CONTINUE: return send_continue(c);
    case PARE_STEP_BODY: return read_body(c);
    case PARE_STEP_CHUNKS: return read_chunks(c);
    case PARE_STEP_SENDING: return send_reply(c);
    case PARE_STEP_LINGERING: return read_rest(c);
    case PARE_STEP_BROKEN: shut(c); return false;
    case PARE_STEP_OUT:
    case PARE_STEP_CLOSED: break;
    }
    return false;
}

void pare_connection_run(pare_connection *c, double now)
{
    const unsigned events = atomic_exchange(&c->turn, 0);
    if (c->step == PARE_STEP_CLOSED) return;
    if (events & (PARE_TURN_READ | PARE_TURN_ENDED | PARE_TURN_GONE)) c->is_readable = true;
    if (events & (PARE_TURN_ENDED | PARE_TURN_GONE)) c->has_ended = true;
    c->now = now;
    for (int i = 0; i < MOST_STEPS; i++) {
        const bool goes_on = advance(c);
        if (pare_connection_is_out(c) || !goes_on) return;
    }
    atomic_store(&c->turn, PARE_TURN_OUT);
    c->common->give_back(c);
}

/* --- the reply --- */

/* Of the thread that made it, which owns the connection now, unless the loop refuses a request that
   still comes. */
void pare_connection_done(pare_exchange *x)
{
    pare_connection *c = (pare_connection *)(void *)x;
    unsigned out = PARE_TURN_OUT;
    if (!pare_connection_is_out(c)) {
        c->is_refused = true;
        pare_request_drop_body(c);
        return;
    }
    c->now = c->common->seconds();
    pare_reply_begin(c);
    if (!c->tls) send_some(c);
    const bool waits = c->step == PARE_STEP_HEAD || c->step == PARE_STEP_LINGERING;
    if (waits && !c->have && !c->is_readable && atomic_compare_exchange_strong(&c->turn, &out, 0))
        return;
    c->common->give_back(c);
}

/* --- time --- */

/* No request has begun; empty lines are none. */
static bool is_idle_for_long(const pare_connection *c, double all, bool drains, double drained)
{
    const double most = drains ? quiet : IDLE_SECONDS;
    const double idle = drains && drained < all ? drained : all;
    return idle > most && (idle > most + SPARED_SECONDS || !pare_connection_has_more(c));
}

static bool is_over(const pare_connection *c, double now)
{
    const bool drains = atomic_load(&c->common->draining);
    const double still = now - c->since, all = now - c->begun;
    const double drained = drains ? now - c->common->drained : 0;
    switch (c->step) {
    case PARE_STEP_HEAD:
        if (!c->have) return is_idle_for_long(c, all, drains, drained);
        if (all > IDLE_SECONDS) return true; /* fall through */
    case PARE_STEP_SHAKING:
    case PARE_STEP_CONTINUE:
        return still > (drains ? STALLED_SECONDS : IDLE_SECONDS) || drained > PARE_SLOW_SECONDS;
    case PARE_STEP_BODY:
    case PARE_STEP_CHUNKS:
        return now - c->paced > IDLE_SECONDS || (drains && still > STALLED_SECONDS) ||
               drained > PARE_SLOW_SECONDS;
    case PARE_STEP_SENDING:
        return now - c->paced > UNREAD_SECONDS ||
               (drains && all > PARE_SLOW_SECONDS && drained > PARE_SLOW_SECONDS);
    case PARE_STEP_LINGERING: return still > LINGER_SECONDS || all > LEFT_SECONDS;
    case PARE_STEP_OUT:
    case PARE_STEP_BROKEN:
    case PARE_STEP_CLOSED: break;
    }
    return false;
}

void pare_connection_tick(pare_connection *c, double now)
{
    if (pare_connection_is_out(c) || c->step == PARE_STEP_CLOSED) return;
    const bool is_still = now - c->since > 1;
    if (is_still && c->spare) pare_request_forget(c); /* it may be so for long */
    if (is_over(c, now)) {
        shut(c);
    } else if (c->step == PARE_STEP_HEAD && !c->have && c->buffer && is_still) {
        pare_request_forget(c);
        free(c->buffer);
        c->buffer = NULL;
        c->room = 0;
    }
}
