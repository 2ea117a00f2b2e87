/* SPDX-License-Identifier: Apache-2.0 */
/* Raw bytes on a connection of HTTP, once in one piece and once in pieces whose sizes the first
   bytes say: no crash; the same replies both times; a request that is handed out is answered, and
   nothing behind a reply that says it is the last; all memory counts no more. */
#include "tests/fuzz/tensors.h"
#include "tests/tools/http_desk.h"

enum { MOST = 1 << 20, LIMIT = 4096, PENDING = 1 << 20 };

/* What a client has read. */
typedef struct heard {
    char text[MOST];
    size_t bytes;
    int handled;
} heard;

static void listen_on(http_desk *d, heard *h)
{
    for (size_t n; (n = http_desk_read(d, h->text + h->bytes, MOST - h->bytes)) > 0;) {
        h->bytes += n;
        expect(h->bytes + 1 < MOST, "more replies than the requests have room for");
        if (d->c->step != PARE_STEP_CLOSED) http_desk_event(d, 0); /* what waited can be sent */
    }
}

/* Takes out a text, up to an end: what may differ between two times. */
static void leave_out(heard *h, const char *from, const char *to)
{
    char *at = h->text, *end;
    while ((at = memmem(at, (size_t)(h->text + h->bytes - at), from, strlen(from)))) {
        end = memmem(at, (size_t)(h->text + h->bytes - at), to, strlen(to));
        expect(end != NULL, "a reply without an end");
        end += strlen(to);
        memmove(at, end, (size_t)(h->text + h->bytes - end));
        h->bytes -= (size_t)(end - at);
    }
}

/* Where a text is in the reply's lines; NULL: it is not there. */
static const char *find_in(const char *lines, const char *end, const char *text)
{
    return memmem(lines, (size_t)(end - lines), text, strlen(text));
}

/* From one reply to the next: a reply to HEAD has no body, and no body begins as a reply does. */
static void count_replies(const heard *h)
{
    int good = 0, last = 0;
    static const char any[] = "HTTP/1.1 ";
    for (const char *at = h->text, *all = h->text + h->bytes; at < all;) {
        expect(!last, "a reply behind the last");
        expect(all - at > 9 && !memcmp(at, any, sizeof any - 1), "no begin of a reply");
        const char *end = find_in(at, all, "\r\n\r\n");
        expect(end != NULL, "a reply without an end of its lines");
        end += 4;
        const char *length = find_in(at, end, "\r\nContent-Length: ");
        expect(length != NULL, "a reply without a length");
        const size_t bytes = strtoull(length + 18, NULL, 10);
        last = find_in(at, end, "\r\nConnection: close\r\n") != NULL;
        good += !memcmp(at + 9, "200 ", 4);
        const size_t left = (size_t)(all - end);
        const int has_body = left >= bytes && (left < 9 || memcmp(end, any, sizeof any - 1) != 0);
        at = has_body ? end + bytes : end;
    }
    expect(good == h->handled, "not as many replies as requests");
}

/* `pieces`: (count) their sizes, in turn; 0: the rest. */
static void try_bytes(heard *h, const char *data, size_t bytes, const uint8_t *pieces, size_t count,
                      int half)
{
    http_desk d;
    h->bytes = 0;
    expect(http_desk_open(&d, LIMIT, PENDING), "no sockets");
    d.answers_later = half;
    for (size_t at = 0, i = 0; at < bytes && !d.is_closed; i++) {
        size_t n = count ? pieces[i % count] : 0;
        if (!n || n > bytes - at) n = bytes - at;
        http_desk_send(&d, data + at, n);
        for (int k = 0; d.waiting && k < 10000; k++) http_desk_answer(&d);
        listen_on(&d, h);
        at += n;
    }
    if (!d.is_closed) http_desk_pass(&d, 1);
    if (!d.is_closed) http_desk_event(&d, PARE_TURN_READ);
    listen_on(&d, h);
    h->handled = d.handled;
    http_desk_close(&d);
    leave_out(h, "Date: ", "\r\n");
    leave_out(h, "HTTP/1.1 100 Continue", "\r\n\r\n");
    count_replies(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static heard whole, parts;
    enum { PIECES = 4 };
    if (size < PIECES || size > 8192) return 0;
    const char *text = (const char *)data + PIECES;
    try_bytes(&whole, text, size - PIECES, NULL, 0, 0);
    try_bytes(&parts, text, size - PIECES, data, PIECES, data[0] & 1);
    expect(whole.handled == parts.handled, "other requests in pieces");
    expect(whole.bytes == parts.bytes && !memcmp(whole.text, parts.text, whole.bytes),
           "other replies in pieces");
    return 0;
}
