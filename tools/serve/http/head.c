/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/head.h"

#include <string.h>

int pare_head_look(pare_head *h, const char *text, size_t bytes)
{
    while (h->at < bytes) {
        const unsigned char b = (unsigned char)text[h->at++];
        if (h->is_cr) {
            if (b != '\n') return PARE_HEAD_WRONG;
            h->is_cr = false;
            if (!h->line) return PARE_HEAD_WHOLE;
            h->line = 0;
            h->lines++;
        } else if (b == '\r') {
            h->is_cr = true;
        } else {
            const bool is_folded = !h->line && h->lines && (b == ' ' || b == '\t');
            if (is_folded || (b < ' ' && b != '\t') || b == 0x7f) return PARE_HEAD_WRONG;
            h->line++;
        }
    }
    return PARE_HEAD_MORE;
}

/* RFC 9110, 5.6.2: a token. */
bool pare_head_is_name(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char b = (unsigned char)text[i];
        const bool is_letter = (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z');
        if (!is_letter && !(b >= '0' && b <= '9') && (!b || !strchr("!#$%&'*+-.^_`|~", b)))
            return false;
    }
    return bytes > 0;
}

static int digit_of(char b)
{
    if (b >= '0' && b <= '9') return b - '0';
    if (b >= 'a' && b <= 'f') return b - 'a' + 10;
    if (b >= 'A' && b <= 'F') return b - 'A' + 10;
    return -1;
}

/* The line of a chunk's size, without its end. */
static bool is_size(const char *text, size_t bytes)
{
    enum { DIGITS = 16 };
    size_t n = 0;
    while (n < bytes && digit_of(text[n]) >= 0) n++;
    return n > 0 && n <= DIGITS && (n == bytes || text[n] == ';');
}

/* Each line of the trailers has a name; the form of the lines was looked at. */
static bool are_headers(const char *text, size_t bytes)
{
    for (const char *end = text + bytes, *line = text; line < end && *line != '\r';) {
        const char *colon = memchr(line, ':', (size_t)(end - line));
        if (!colon || !pare_head_is_name(line, (size_t)(colon - line))) return false;
        const char *next = memchr(colon, '\n', (size_t)(end - colon));
        if (!next) return false;
        line = next + 1;
    }
    return true;
}

bool pare_chunk_is_well_formed(const char *text, size_t bytes, bool is_first, bool is_last)
{
    pare_head h = {0};
    if (!is_first) {
        if (bytes < 2 || memcmp(text, "\r\n", 2) != 0) return false;
        text += 2;
        bytes -= 2;
    }
    const int form = pare_head_look(&h, text, bytes);
    const char *line = memchr(text, '\r', bytes);
    if (!line || !is_size(text, (size_t)(line - text))) return false;
    if (!is_last) return form == PARE_HEAD_MORE && h.lines == 1 && !h.line && !h.is_cr;
    line += 2;
    return form == PARE_HEAD_WHOLE && h.at == bytes &&
           are_headers(line, bytes - (size_t)(line - text));
}

void pare_path_decode(char *path)
{
    char *to = path;
    for (const char *from = path; *from;) {
        const int high = *from == '%' ? digit_of(from[1]) : -1;
        const int low = high >= 0 ? digit_of(from[2]) : -1;
        const int byte = low >= 0 ? high * 16 + low : 0;
        if (byte && byte != '/') {
            *to++ = (char)byte;
            from += 3;
        } else
            *to++ = *from++;
    }
    *to = 0;
}
