/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/encoding.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { GZIP = 15 + 16, ZLIB = 15 }; /* zlib's windowBits */

/* Bytes that one call is given: zlib counts in unsigned int. */
static uInt piece_of(size_t bytes) { return bytes < INT_MAX ? (uInt)bytes : INT_MAX; }

/* --- what a client sends --- */

typedef struct unpacking {
    pare_exchange *x;
    size_t from; /* what comes before the body, for its alignment */
    size_t room, bytes;
} unpacking;

/* Twice the room, and a byte more than may be: what is too large is then seen. */
static pare_status grow(unpacking *u)
{
    const size_t limit = u->x->limit + 1;
    size_t room = u->room ? 2 * u->room : 4 * u->x->bytes + 4096;
    if (room > limit) room = limit;
    char *memory = aligned_alloc(PARE_BODY_ALIGN, (u->from + room + PARE_BODY_ALIGN - 1) /
                                                      PARE_BODY_ALIGN * PARE_BODY_ALIGN);
    if (!memory) return PARE_FAIL(&u->x->ctx, MEMORY, "out of memory to unpack a request");
    if (u->bytes) memcpy(memory + u->from, u->x->unpacked + u->from, u->bytes);
    free(u->x->unpacked);
    u->x->unpacked = memory;
    u->room = room;
    return PARE_OK;
}

static pare_status unpack(unpacking *u, z_stream *z)
{
    pare_exchange *x = u->x;
    size_t taken = 0;
    for (int code = Z_OK; code != Z_STREAM_END;) {
        if (u->bytes == u->room) PARE_TRY(grow(u));
        z->next_in = (Bytef *)x->body + taken;
        z->avail_in = piece_of(x->bytes - taken);
        z->next_out = (Bytef *)x->unpacked + u->from + u->bytes;
        z->avail_out = piece_of(u->room - u->bytes);
        const uInt in = z->avail_in, out = z->avail_out;
        code = inflate(z, Z_NO_FLUSH);
        taken += in - z->avail_in;
        u->bytes += out - z->avail_out;
        if (!pare_exchange_hold(x, out - z->avail_out)) return PARE_MEMORY;
        if (u->bytes > x->limit)
            return PARE_FAIL(&x->ctx, INPUT,
                             "the request's body is larger than the %zu bytes that are taken, once "
                             "it is unpacked",
                             x->limit);
        const bool is_stuck = in == z->avail_in && out == z->avail_out;
        if ((code != Z_OK && code != Z_STREAM_END) || (is_stuck && code == Z_OK))
            return PARE_FAIL(&x->ctx, INPUT, "the request's body is no whole %s", x->encoding);
    }
    if (taken == x->bytes) return PARE_OK;
    return PARE_FAIL(&x->ctx, INPUT, "%zu bytes are behind the request's compressed body",
                     x->bytes - taken);
}

pare_status pare_encoding_decode(pare_exchange *x)
{
    z_stream z = {0};
    const char *e = x->encoding;
    if (!e || !*e || !strcmp(e, "identity")) return PARE_OK;
    const bool is_gzip = !strcmp(e, "gzip");
    if (!is_gzip && strcmp(e, "deflate") != 0)
        return PARE_FAIL(&x->ctx, UNSUPPORTED,
                         "Content-Encoding is '%s', expected gzip, deflate or identity", e);
    const size_t json = x->json_bytes ? strtoull(x->json_bytes, NULL, 10) : 0;
    unpacking u = {.x = x, .from = (PARE_BODY_ALIGN - json % PARE_BODY_ALIGN) % PARE_BODY_ALIGN};
    if (inflateInit2(&z, is_gzip ? GZIP : ZLIB) != Z_OK)
        return PARE_FAIL(&x->ctx, MEMORY, "out of memory to unpack a request");
    const pare_status st = unpack(&u, &z);
    (void)inflateEnd(&z);
    x->body = x->unpacked ? x->unpacked + u.from : "";
    x->is_pinned = false;
    x->bytes = u.bytes;
    return st;
}

/* --- what it is sent --- */

/* Is the word in a list as Accept-Encoding has it, and not with the weight 0? */
static bool accepts(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; *at; at += *at == ',') {
        at += strspn(at, " \t");
        const size_t whole = strcspn(at, ",");
        const char *weight = memchr(at, ';', whole);
        const bool is_it = !strncmp(at, word, n) && strchr(" \t;,", at[n]);
        weight = weight ? strstr(weight, "q=") : NULL;
        if (is_it && !(weight && weight < at + whole && strtod(weight + 2, NULL) == 0)) return true;
        at += whole;
    }
    return false;
}

static pare_status pack(pare_exchange *x, z_stream *z)
{
    pare_reply *r = &x->reply;
    size_t given = 0, made = 0;
    const size_t room = deflateBound(z, r->bytes);
    char *packed = malloc(room);
    if (!packed) return PARE_FAIL(&x->ctx, MEMORY, "out of memory to compress a response");
    for (int code = Z_OK; code != Z_STREAM_END;) {
        z->next_in = (Bytef *)r->body + given;
        z->avail_in = piece_of(r->bytes - given);
        z->next_out = (Bytef *)packed + made;
        z->avail_out = piece_of(room - made);
        const uInt in = z->avail_in, out = z->avail_out;
        code = deflate(z, given + in == r->bytes ? Z_FINISH : Z_NO_FLUSH);
        given += in - z->avail_in;
        made += out - z->avail_out;
        if (code == Z_OK || code == Z_STREAM_END) continue;
        free(packed);
        return PARE_FAIL(&x->ctx, IO, "a response cannot be compressed");
    }
    free(r->body);
    r->body = packed;
    r->bytes = made;
    return PARE_OK;
}

pare_status pare_encoding_encode(pare_exchange *x)
{
    z_stream z = {0};
    const char *list = x->accept_encoding;
    if (!list || !x->reply.body) return PARE_OK;
    const char *word = accepts(list, "gzip") ? "gzip" : accepts(list, "deflate") ? "deflate" : NULL;
    if (!word) return PARE_OK;
    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, *word == 'g' ? GZIP : ZLIB, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return PARE_FAIL(&x->ctx, MEMORY, "out of memory to compress a response");
    const pare_status st = pack(x, &z);
    (void)deflateEnd(&z);
    if (st == PARE_OK) x->reply.encoding = word;
    return st;
}
