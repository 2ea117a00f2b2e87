/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection has read becomes an exchange. */
#include "tools/serve/http/connection.h"

#include "tools/serve/http/memo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    CHUNKS_BUFFER = 64 << 10, /* bytes that are read at once of a body in chunks */
    MOST_SPARE = 8 << 10      /* of a body's memory that its connection keeps */
};

/* --- what the parser says --- */

static size_t place_of(const pare_connection *c, const char *at)
{
    return (size_t)(at - c->buffer);
}

static int on_target(pare_parser *p, const char *at, size_t bytes)
{
    pare_connection *c = p->data;
    c->target = (pare_span){.at = place_of(c, at), .bytes = bytes};
    return 0;
}

static int on_field(pare_parser *p, const char *at, size_t bytes)
{
    static const char *const names[] = {
#define X(name, text) text,
        PARE_FIELDS(X)
#undef X
    };
    pare_connection *c = p->data;
    if (c->chunks) return 0; /* trailers are not read */
    c->found = -1;
    for (int i = 0; i < PARE_FIELD_COUNT; i++)
        if (bytes == strlen(names[i]) && !strncasecmp(at, names[i], bytes)) c->found = i;
    if (c->found >= 0) c->field[c->found].count++;
    return !pare_head_is_name(at, bytes);
}

static int on_value(pare_parser *p, const char *at, size_t bytes)
{
    pare_connection *c = p->data;
    if (c->chunks || c->found < 0) return 0;
    while (bytes && (at[bytes - 1] == ' ' || at[bytes - 1] == '\t')) bytes--;
    c->field[c->found].at = place_of(c, at);
    c->field[c->found].bytes = bytes;
    return 0;
}

/* A body whose length is known needs no parser. */
static int on_lines(pare_parser *p)
{
    pare_connection *c = p->data;
    p->upgrade = 0; /* it stays HTTP/1.1 */
    c->x.method = pare_parser_method(p);
    c->is_head = !strcmp(c->x.method, "HEAD");
    c->is_last = !pare_parser_keeps_alive(p);
    c->length = c->field[PARE_FIELD_LENGTH].count ? p->content_length : 0;
    return !c->field[PARE_FIELD_TRANSFER].count;
}

static void add_gap(pare_chunks *ch, const char *end)
{
    const size_t bytes = (size_t)(end - ch->from);
    if (bytes > sizeof ch->gap - ch->gap_bytes) {
        ch->is_wrong = true;
        return;
    }
    memcpy(ch->gap + ch->gap_bytes, ch->from, bytes);
    ch->gap_bytes += bytes;
    ch->from = end;
}

static int on_chunk(pare_parser *p)
{
    pare_connection *c = p->data;
    c->chunks->left = p->content_length;
    c->chunks->is_new = true;
    return 0;
}

static int on_data(pare_parser *p, const char *at, size_t bytes)
{
    pare_connection *c = p->data;
    pare_chunks *ch = c->chunks;
    if (!ch) return 1;
    add_gap(ch, at);
    const bool is_well_formed =
        ch->is_new ? pare_chunk_is_well_formed(ch->gap, ch->gap_bytes, !ch->is_begun, false)
                   : !ch->gap_bytes;
    if (ch->is_wrong || !is_well_formed || bytes > ch->left) {
        ch->is_wrong = true;
        return 1;
    }
    ch->gap_bytes = 0;
    ch->is_new = false;
    ch->is_begun = true;
    ch->left -= bytes;
    ch->from = at + bytes;
    pare_request_take(c, at, bytes);
    return 0;
}

static int on_end(pare_parser *p)
{
    pare_connection *c = p->data;
    if (c->chunks) c->chunks->is_whole = true;
    return pare_parser_stop(p);
}

static const pare_parser_calls calls = {.on_url = on_target,
                                        .on_header_field = on_field,
                                        .on_header_value = on_value,
                                        .on_headers_complete = on_lines,
                                        .on_chunk_header = on_chunk,
                                        .on_body = on_data,
                                        .on_message_complete = on_end};

/* --- the exchange --- */

static void init(pare_connection *c)
{
    pare_http_common *common = c->common;
    pare_exchange_init(&c->x, &common->ctx);
    c->x.done = pare_connection_done;
    c->x.body = "";
    c->x.limit = (size_t)common->options.limit;
    c->x.held = common->options.held;
    c->x.most_held = (size_t)common->options.pending;
    c->x.memo = &c->memo;
    c->has_request = true;
    c->is_last = c->is_refused = c->has_version_1_0 = c->is_head = false;
    c->length = c->left = c->came = 0;
    c->target = (pare_span){0};
    memset(c->field, 0, sizeof c->field);
}

/* Little memory stays the connection's, for the next body. */
static void put_memory(pare_connection *c)
{
    pare_body *old = c->memory;
    if (old && old->room <= MOST_SPARE && (!c->spare || c->spare->room < old->room)) {
        old = c->spare;
        c->spare = c->memory;
    }
    pare_bodies_put(old);
    c->memory = NULL;
}

void pare_request_drop_body(pare_connection *c)
{
    pare_exchange_drop_body(&c->x);
    put_memory(c);
}

void pare_request_forget(pare_connection *c)
{
    pare_memo_free(c->memo);
    c->memo = NULL;
    pare_bodies_put(c->spare);
    c->spare = NULL;
}

void pare_request_end(pare_connection *c)
{
    if (!c->has_request) return;
    pare_request_drop_body(c);
    pare_exchange_free(&c->x);
    free(c->chunks);
    c->chunks = NULL;
    c->has_request = false;
}

void pare_request_refuse(pare_connection *c, int code, const char *format, ...)
{
    char message[512];
    va_list args;
    if (!c->has_request) init(c);
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (!c->is_refused) pare_exchange_refuse(&c->x, code, "%s", message);
    c->is_last = true;
    pare_reply_begin(c);
}

static void refuse_size(pare_connection *c)
{
    pare_exchange_refuse(&c->x, PARE_HTTP_TOO_LARGE,
                         "the request's body is larger than the %lld bytes that are taken",
                         (long long)c->common->options.limit);
}

/* A header's text, in its place; NULL: it is not there. */
static const char *text_of(pare_connection *c, int field)
{
    const pare_span *s = &c->field[field];
    if (!s->count) return NULL;
    if (!s->bytes) return "";
    c->buffer[s->at + s->bytes] = 0; /* a space or the line's end was there */
    return c->buffer + s->at;
}

/* The path alone, of "/path?query" or "http://host/path?query". */
static const char *path_of(pare_connection *c)
{
    char *path = c->buffer + c->target.at;
    path[c->target.bytes] = 0; /* the space behind it */
    if (!strncasecmp(path, "http://", 7) || !strncasecmp(path, "https://", 8)) {
        path = strpbrk(strchr(path, ':') + 3, "/?#");
        if (!path || *path != '/') return "/";
    }
    path[strcspn(path, "?#")] = 0;
    pare_path_decode(path);
    return path;
}

/* What the parser does not ask of a request's headers. NULL: they are as they should be. */
static const char *find_wrong(const pare_connection *c)
{
    const pare_span *f = c->field;
    if (f[PARE_FIELD_HOST].count > 1 || (!f[PARE_FIELD_HOST].count && !c->has_version_1_0))
        return "expected one header 'Host'";
    if (f[PARE_FIELD_LENGTH].count + f[PARE_FIELD_TRANSFER].count > 1)
        return "expected one of 'Content-Length' and 'Transfer-Encoding', once";
    if (f[PARE_FIELD_TRANSFER].count && c->has_version_1_0)
        return "HTTP/1.0 has no 'Transfer-Encoding'";
    if (f[PARE_FIELD_JSON].count > 1 || f[PARE_FIELD_ENCODING].count > 1 ||
        f[PARE_FIELD_AUTHORIZATION].count > 1)
        return "a header of which there may be one is there twice";
    return NULL;
}

/* The lines, by the parser. False: they are refused. */
static bool read_lines(pare_connection *c, pare_parser *parser)
{
    size_t taken;
    pare_parser_init(parser, &calls, c);
    const bool is_read = pare_parser_take(parser, &calls, c->buffer, c->head.at, &taken);
    const bool is_whole = *c->x.method && c->target.bytes; /* HTTP/2's preface is not, for llhttp */
    if (!is_read || taken != c->head.at || !is_whole) {
        pare_request_refuse(c, PARE_HTTP_BAD_REQUEST, "the request's header is no HTTP/1.1: %s",
                            is_read ? "it ends too early" : pare_parser_why(parser));
        return false;
    }
    c->has_version_1_0 = parser->http_major == 1 && parser->http_minor == 0;
    if (parser->http_major != 1) {
        pare_request_refuse(c, PARE_HTTP_VERSION, "the request is of HTTP/%d.%d, expected HTTP/1.1",
                            parser->http_major, parser->http_minor);
        return false;
    }
    const char *wrong = find_wrong(c);
    if (wrong) pare_request_refuse(c, PARE_HTTP_BAD_REQUEST, "the request's header: %s", wrong);
    return !wrong;
}

/* --- its body --- */

static pare_body *take_spare(pare_connection *c, size_t room)
{
    pare_body *spare = c->spare;
    if (!spare || spare->room < room) return NULL;
    c->spare = NULL;
    return spare;
}

/* Memory for a body of so many bytes. */
static bool make_place(pare_connection *c, size_t bytes)
{
    if (c->memory && bytes <= c->memory->room - c->from) return true;
    size_t room = bytes;
    if (c->memory && room < 2 * (c->memory->room - c->from)) room = 2 * (c->memory->room - c->from);
    pare_body *memory =
        c->pool ? pare_bodies_get(c->pool, c->from + room) : take_spare(c, c->from + room);
    if (!memory) memory = pare_bodies_get(&c->common->bodies, c->from + room);
    if (!memory) return false;
    if (c->x.bytes) memcpy(memory->data + c->from, c->memory->data + c->from, c->x.bytes);
    put_memory(c);
    c->memory = memory;
    c->x.body = memory->data + c->from;
    c->x.is_pinned = memory->pool->pin != NULL;
    return true;
}

char *pare_request_place(const pare_connection *c)
{
    return c->is_refused ? NULL : c->memory->data + c->from + c->x.bytes;
}

/* What of a body in chunks is too large is found out here. */
void pare_request_take(pare_connection *c, const char *at, size_t bytes)
{
    c->came += bytes;
    if (!c->chunks) c->left -= bytes;
    if (!c->is_refused && bytes > c->x.limit - c->x.bytes) refuse_size(c);
    if (!c->is_refused && !pare_exchange_hold(&c->x, bytes))
        pare_exchange_fail(&c->x, PARE_HTTP_UNAVAILABLE);
    if (!c->is_refused && !make_place(c, c->x.bytes + bytes))
        pare_exchange_refuse(&c->x, PARE_HTTP_UNAVAILABLE, "out of memory for the request's body");
    if (c->is_refused) return;
    char *place = pare_request_place(c);
    if (place != at) memcpy(place, at, bytes);
    c->x.bytes += bytes;
}

void pare_request_take_chunks(pare_connection *c)
{
    size_t taken;
    pare_chunks *ch = c->chunks;
    const char *data = c->buffer + c->used;
    ch->from = data;
    const bool is_read = pare_parser_take(&ch->parser, &calls, data, c->have - c->used, &taken);
    if (is_read && !ch->is_wrong) add_gap(ch, data + taken);
    if (is_read && ch->is_whole &&
        !pare_chunk_is_well_formed(ch->gap, ch->gap_bytes, !ch->is_begun, true))
        ch->is_wrong = true;
    if (!is_read || ch->is_wrong) {
        pare_request_refuse(c, PARE_HTTP_BAD_REQUEST, "the chunks of the request's body are wrong");
        return;
    }
    c->used += taken;
    if (!ch->is_whole) c->used = c->have = c->head.at; /* all was taken */
}

/* Some processors copy several times slower to 1 to 15 bytes behind where the source is in its page
   (AMD's with FSRM, by "rep movsb", which Linux takes for recv: 4.5 in place of 1 us for 10 KB). */
static bool is_slow(size_t behind) { return behind % PARE_BODY_PAGE - 1 < 15; }

/* Where the body begins in its memory: its first tensor is aligned. A client of this machine sends
   from the begin of a page, its lines and the body together or the body alone. */
static size_t choose_from(const pare_connection *c)
{
    const size_t json = c->x.json_bytes ? strtoull(c->x.json_bytes, NULL, 10) : 0;
    size_t from = (PARE_BODY_ALIGN - json % PARE_BODY_ALIGN) % PARE_BODY_ALIGN;
    while (is_slow(from) || is_slow(PARE_BODY_PAGE + from - c->head.at % PARE_BODY_PAGE))
        from += PARE_BODY_ALIGN;
    return from;
}

/* Makes ready for a body. False: memory is out. */
static bool begin_body(pare_connection *c, const pare_parser *parser)
{
    const pare_http_options *o = &c->common->options;
    const bool is_large = c->length >= PARE_BODY_LARGE && !c->is_refused;
    c->pool = o->bodies && is_large ? o->bodies(o->user, &c->x) : NULL;
    c->from = choose_from(c);
    c->left = c->length;
    if (!c->field[PARE_FIELD_TRANSFER].count)
        return c->is_refused || !c->length || make_place(c, (size_t)c->length);
    c->chunks = calloc(1, sizeof *c->chunks);
    if (!c->chunks) return false;
    c->chunks->parser = *parser;
    return true;
}

/* A client that waits for a word before it sends a body gets it, or the refusal, at once. */
static void choose_step(pare_connection *c, bool asks)
{
    const bool has_body = c->length || c->chunks;
    c->sent = 0;
    pare_connection_pace(c);
    if (asks && has_body && c->is_refused) {
        c->is_last = true; /* the body may come, or not */
        pare_reply_begin(c);
    } else if (asks && has_body && c->have == c->used)
        c->step = PARE_STEP_CONTINUE;
    else
        c->step = c->chunks ? PARE_STEP_CHUNKS : PARE_STEP_BODY;
}

/* The buffer is not moved from here to the request's end: its texts are the exchange's. */
static bool grow_buffer(pare_connection *c)
{
    if (!c->field[PARE_FIELD_TRANSFER].count || c->room >= CHUNKS_BUFFER) return true;
    char *buffer = realloc(c->buffer, CHUNKS_BUFFER);
    if (!buffer) return false;
    c->buffer = buffer;
    c->room = CHUNKS_BUFFER;
    return true;
}

void pare_request_begin(pare_connection *c)
{
    pare_parser parser;
    init(c);
    if (!read_lines(c, &parser)) return;
    const bool has_room = grow_buffer(c);
    const char *coding = text_of(c, PARE_FIELD_TRANSFER), *expected = text_of(c, PARE_FIELD_EXPECT);
    const bool asks = expected && !strcasecmp(expected, "100-continue") && !c->has_version_1_0;
    if (coding && strcasecmp(coding, "chunked") != 0) {
        pare_request_refuse(c, PARE_HTTP_NOT_SERVED,
                            "the header 'Transfer-Encoding' is '%s', expected 'chunked'", coding);
        return;
    }
    c->x.path = path_of(c);
    c->x.json_bytes = text_of(c, PARE_FIELD_JSON);
    c->x.encoding = text_of(c, PARE_FIELD_ENCODING);
    c->x.accept_encoding = text_of(c, PARE_FIELD_ACCEPT);
    c->x.authorization = text_of(c, PARE_FIELD_AUTHORIZATION);
    if (c->common->options.admit(c->common->options.user, &c->x) && c->length > c->x.limit)
        refuse_size(c);
    if (has_room && begin_body(c, &parser))
        choose_step(c, asks);
    else
        pare_request_refuse(c, PARE_HTTP_UNAVAILABLE, "out of memory for the request's body");
}
