/* SPDX-License-Identifier: Apache-2.0 */
/* Escaped text, and a printf that escapes its text arguments. */
#include "runtime/base/text.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Output that counts what does not fit. */
typedef struct sink {
    char *out;
    size_t size, used;
    bool full; /* a piece did not fit: no later one is written */
} sink;

static void put(sink *s, const char *piece, size_t n)
{
    if (!s->full && s->used + n < s->size)
        memcpy(s->out + s->used, piece, n);
    else if (!s->full) {
        s->full = true;
        if (s->size) s->out[s->used] = 0;
    }
    s->used += n;
}

static size_t end(sink *s)
{
    if (!s->full && s->size) s->out[s->used] = 0;
    return s->used;
}

/* Bytes of the UTF-8 character at p, 0 where there is none (RFC 3629, table of section 4). */
static size_t utf8_length(const unsigned char *p, size_t count, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (!n || n > count || p[0] > 0xf4) return 0;
    *code = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (p[i] & 0x3f);
    }
    const bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code < least[n] || *code > 0x10ffff || surrogate ? 0 : n;
}

/* C0, DEL, C1, line and paragraph separators, bidirectional marks, the byte order mark and
   noncharacters. */
static bool is_printable(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0xfeff) return false;
    if ((c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e)) return false;
    if (c >= 0x2066 && c <= 0x2069) return false;
    return !(c >= 0xfdd0 && c <= 0xfdef) && (c & 0xfffe) != 0xfffe;
}

static void put_escaped(sink *s, const char *bytes, size_t count)
{
    const unsigned char *p = (const unsigned char *)bytes;
    while (count) {
        uint32_t code = 0;
        size_t n = utf8_length(p, count, &code);
        if (n && is_printable(code)) {
            put(s, (const char *)p, n);
        } else if (*p == '\n' || *p == '\t' || *p == '\r') {
            put(s, *p == '\n' ? "\\n" : *p == '\t' ? "\\t" : "\\r", 2);
            n = 1;
        } else {
            char hex[5];
            if (!n) n = 1;
            for (size_t i = 0; i < n; i++) {
                snprintf(hex, sizeof hex, "\\x%02X", p[i]);
                put(s, hex, 4);
            }
        }
        p += n;
        count -= n;
    }
}

size_t pare_text_escape(char *out, size_t size, const char *bytes, size_t count)
{
    sink s = {.out = out, .size = size};
    put_escaped(&s, bytes, count);
    return end(&s);
}

/* --- formats --- */

/* One conversion: "%-*.3lld" is flags "-", a width, a precision, a size 'L' and the letter 'd'. */
typedef struct conversion {
    char flags[8];
    int width, precision; /* precision -1: none */
    char size, letter;    /* size: 0, 'l', 'L' (ll), 'z', 'j', 't' */
} conversion;

static int number_at(const char **p)
{
    int n = 0;
    while (**p >= '0' && **p <= '9') n = 10 * n + *(*p)++ - '0';
    return n;
}

/* Reads what follows '%' but for the arguments' numbers: width and precision -2 are '*'. */
static const char *read_conversion(conversion *c, const char *p)
{
    size_t flags = 0;
    *c = (conversion){.precision = -1};
    for (; *p && strchr("-+ #0", *p); p++)
        if (flags + 2 < sizeof c->flags) c->flags[flags++] = *p;
    if (*p == '*')
        c->width = -2, p++;
    else
        c->width = number_at(&p);
    if (*p == '.') {
        p++;
        if (*p == '*')
            c->precision = -2, p++;
        else
            c->precision = number_at(&p);
    }
    for (; *p && strchr("lzjt", *p); p++) c->size = c->size == 'l' ? 'L' : *p;
    c->letter = *p;
    return *p ? p + 1 : p;
}

static void pad(sink *s, int n)
{
    for (; n > 0; n--) put(s, " ", 1);
}

static void put_text(sink *s, const conversion *c, const char *text)
{
    if (!text) text = "(null)";
    const size_t n = c->precision >= 0 ? strnlen(text, (size_t)c->precision) : strlen(text);
    sink measure = {0};
    put_escaped(&measure, text, n);
    const int gap = c->width - (int)measure.used;
    const bool left = strchr(c->flags, '-') != NULL;
    pad(s, left ? 0 : gap);
    put_escaped(s, text, n);
    pad(s, left ? gap : 0);
}

/* Integers of every size as one type: signed for d, i and c, else unsigned. */
static void put_integer(sink *s, const conversion *c, intmax_t value)
{
    char spec[32], text[512];
    int n;
    if (c->letter == 'c') {
        const char byte = (char)value;
        put_text(s, &(conversion){.width = c->width, .precision = 1}, &byte);
        return;
    }
    if (c->precision >= 0)
        snprintf(spec, sizeof spec, "%%%s*.*j%c", c->flags, c->letter);
    else
        snprintf(spec, sizeof spec, "%%%s*j%c", c->flags, c->letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    n = c->precision >= 0 ? snprintf(text, sizeof text, spec, c->width, c->precision, value)
                          : snprintf(text, sizeof text, spec, c->width, value);
#pragma GCC diagnostic pop
    put(s, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

static void put_real(sink *s, const conversion *c, double value)
{
    char spec[32], text[512];
    snprintf(spec, sizeof spec, "%%%s*.*%c", c->flags, c->letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const int n = snprintf(text, sizeof text, spec, c->width, c->precision, value);
#pragma GCC diagnostic pop
    put(s, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

/* va_list as a member, so that functions can take it by address. */
typedef struct arguments {
    va_list list;
} arguments;

static intmax_t next_signed(arguments *a, char size)
{
    switch (size) {
    case 'l': return va_arg(a->list, long);
    case 'L': return va_arg(a->list, long long);
    case 'z':
    case 't': return va_arg(a->list, ptrdiff_t);
    case 'j': return va_arg(a->list, intmax_t);
    default: return va_arg(a->list, int);
    }
}

static uintmax_t next_unsigned(arguments *a, char size)
{
    switch (size) {
    case 'l': return va_arg(a->list, unsigned long);
    case 'L': return va_arg(a->list, unsigned long long);
    case 'z':
    case 't': return va_arg(a->list, size_t);
    case 'j': return va_arg(a->list, uintmax_t);
    default: return va_arg(a->list, unsigned);
    }
}

static void put_conversion(sink *s, conversion *c, arguments *a)
{
    char text[32];
    if (c->width == -2) c->width = va_arg(a->list, int);
    if (c->precision == -2) c->precision = va_arg(a->list, int);
    if (c->width < 0) {
        c->flags[strlen(c->flags)] = '-';
        c->width = -c->width;
    }
    switch (c->letter) {
    case 's': put_text(s, c, va_arg(a->list, const char *)); break;
    case 'd':
    case 'i':
    case 'c': put_integer(s, c, next_signed(a, c->size)); break;
    case 'u':
    case 'x':
    case 'X':
    case 'o': put_integer(s, c, (intmax_t)next_unsigned(a, c->size)); break;
    case 'e':
    case 'f':
    case 'g': put_real(s, c, va_arg(a->list, double)); break;
    case 'p':
        snprintf(text, sizeof text, "%p", va_arg(a->list, void *));
        put_text(s, c, text);
        break;
    case '%': put(s, "%", 1); break;
    default: assert(!"a conversion that pare_text_format does not know");
    }
}

size_t pare_text_format(char *out, size_t size, char mark, const char *format, va_list args)
{
    sink s = {.out = out, .size = size};
    arguments a;
    va_copy(a.list, args);
    while (*format) {
        const char *p = format;
        while (*p && *p != '%' && !(mark && *p == mark)) p++;
        put(&s, format, (size_t)(p - format));
        format = p;
        if (*p == '%') {
            conversion c;
            format = read_conversion(&c, p + 1);
            put_conversion(&s, &c, &a);
        } else if (*p) {
            put(&s, "", 1);
            format++;
        }
    }
    va_end(a.list);
    return end(&s);
}
