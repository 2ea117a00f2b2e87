/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange's reply becomes bytes on a connection. */
#include "tools/serve/http/connection.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

/* --- its lines --- */

typedef struct lines {
    char *text;
    size_t bytes, room;
} lines;

static void put(lines *l, const char *text)
{
    const size_t bytes = strlen(text);
    assert(bytes < l->room - l->bytes); /* all are the server's own words */
    if (bytes >= l->room - l->bytes) return;
    memcpy(l->text + l->bytes, text, bytes);
    l->bytes += bytes;
}

static void put_number(lines *l, unsigned long long n)
{
    char digits[24], *at = digits + sizeof digits - 1;
    *at = 0;
    do *--at = (char)('0' + n % 10);
    while (n /= 10);
    put(l, at);
}

static void put_two(lines *l, int n)
{
    const char text[] = {(char)('0' + n / 10), (char)('0' + n % 10), 0};
    put(l, text);
}

static void put_field(lines *l, const char *name, const char *value)
{
    if (!value) return;
    put(l, name);
    put(l, ": ");
    put(l, value);
    put(l, "\r\n");
}

static void put_count(lines *l, const char *name, unsigned long long n)
{
    put(l, name);
    put(l, ": ");
    put_number(l, n);
    put(l, "\r\n");
}

/* The date of a day, counted from 1970-01-01: the years are taken to begin in March, so that the
   day that some have more is their last. */
static void put_day(lines *l, long days)
{
    static const char *const weekday[] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
    static const char *const month[] = {"Mar", "Apr", "May", "Jun", "Jul", "Aug",
                                        "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"};
    enum { ERA = 146097 }; /* days of 400 years */
    const long shifted = days + 719468;
    const long era = shifted / ERA, day = shifted % ERA;
    const long year = (day - day / 1460 + day / 36524 - day / (ERA - 1)) / 365;
    const long of_year = day - (365 * year + year / 4 - year / 100);
    const long m = (5 * of_year + 2) / 153;
    put(l, weekday[days % 7]);
    put(l, ", ");
    put_two(l, (int)(of_year - (153 * m + 2) / 5 + 1));
    put(l, " ");
    put(l, month[m]);
    put(l, " ");
    put_number(l, (unsigned long long)(era * 400 + year + (m >= 10)));
}

/* "Fri, 27 Nov 2026 05:40:00 GMT": gmtime_r has a lock that all threads would share. */
static void put_date(lines *l)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) || now.tv_sec < 0) return;
    const long day = (long)(now.tv_sec / 86400), second = (long)(now.tv_sec % 86400);
    put(l, "Date: ");
    put_day(l, day);
    put(l, " ");
    put_two(l, (int)(second / 3600));
    put(l, ":");
    put_two(l, (int)(second / 60 % 60));
    put(l, ":");
    put_two(l, (int)(second % 60));
    put(l, " GMT\r\n");
}

static const char *phrase_of(int code)
{
    switch (code) {
    case PARE_HTTP_OK: return "OK";
    case PARE_HTTP_BAD_REQUEST: return "Bad Request";
    case PARE_HTTP_UNAUTHORIZED: return "Unauthorized";
    case PARE_HTTP_NOT_FOUND: return "Not Found";
    case PARE_HTTP_NOT_ALLOWED: return "Method Not Allowed";
    case PARE_HTTP_TOO_LARGE: return "Content Too Large";
    case PARE_HTTP_HEADERS_TOO_LARGE: return "Request Header Fields Too Large";
    case PARE_HTTP_BROKEN: return "Internal Server Error";
    case PARE_HTTP_NOT_SERVED: return "Not Implemented";
    case PARE_HTTP_UNAVAILABLE: return "Service Unavailable";
    case PARE_HTTP_VERSION: return "HTTP Version Not Supported";
    default: return "";
    }
}

/* Draining, a connection ends behind the last request that has come. */
static bool ends(const pare_connection *c)
{
    if (c->is_last || !atomic_load(&c->common->draining)) return c->is_last;
    return c->now - c->common->drained > PARE_SLOW_SECONDS || !pare_connection_has_more(c);
}

void pare_reply_begin(pare_connection *c)
{
    const pare_reply *r = &c->x.reply;
    lines l = {.text = c->lines, .room = sizeof c->lines};
    c->is_last = ends(c);
    put(&l, "HTTP/1.1 ");
    put_number(&l, (unsigned)r->code);
    put(&l, " ");
    put(&l, phrase_of(r->code));
    put(&l, "\r\n");
    put_date(&l);
    put_count(&l, "Content-Length", r->bytes);
    put_field(&l, "Content-Type", r->type);
    put_field(&l, "Content-Encoding", r->encoding);
    if (r->code == PARE_HTTP_UNAUTHORIZED) put_field(&l, "WWW-Authenticate", "Bearer");
    put_field(&l, "Allow", r->allow);
    if (r->json_bytes) put_count(&l, "Inference-Header-Content-Length", r->json_bytes);
    if (r->retry_after) put_count(&l, "Retry-After", (unsigned)r->retry_after);
    if (c->is_last)
        put_field(&l, "Connection", "close");
    else if (c->has_version_1_0)
        put_field(&l, "Connection", "keep-alive");
    put(&l, "\r\n");
    c->line_bytes = l.bytes;
    c->sent = 0;
    pare_request_drop_body(c);
    pare_exchange_hold_reply(&c->x);
    c->begun = c->since = c->now;
    pare_connection_pace(c);
    c->step = PARE_STEP_SENDING;
}

/* --- its way --- */

static ssize_t give(pare_connection *c, struct iovec *part, size_t count)
{
    if (c->tls) return pare_tls_write(c->tls, part->iov_base, part->iov_len);
    const struct msghdr message = {.msg_iov = part, .msg_iovlen = count};
    return sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* `lines`, and the body behind it, from c->sent on. */
static pare_sent send_from(pare_connection *c, const char *text, size_t bytes, const char *body,
                           size_t body_bytes)
{
    while (c->sent < bytes + body_bytes) {
        struct iovec part[2];
        size_t count = 0;
        const size_t behind = c->sent > bytes ? c->sent - bytes : 0;
        if (c->sent < bytes)
            part[count++] = (struct iovec){(char *)text + c->sent, bytes - c->sent};
        if (behind < body_bytes)
            part[count++] = (struct iovec){(char *)body + behind, body_bytes - behind};
        const ssize_t n = give(c, part, count);
        if (n >= 0)
            c->sent += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return PARE_SENT_SOME;
        else if (errno != EINTR)
            return PARE_SENT_BROKEN;
    }
    return PARE_SENT_ALL;
}

pare_sent pare_reply_send(pare_connection *c)
{
    const pare_reply *r = &c->x.reply;
    return send_from(c, c->lines, c->line_bytes, r->body, c->is_head || !r->body ? 0 : r->bytes);
}

pare_sent pare_reply_send_continue(pare_connection *c)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    return send_from(c, text, sizeof text - 1, NULL, 0);
}
