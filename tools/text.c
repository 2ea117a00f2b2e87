/* SPDX-License-Identifier: Apache-2.0 */
/* One writer for each kind of cell; all of them take pare_text_escape's text. */
#include "tools/text.h"

#include "runtime/base/text.h"

#include <stdlib.h>
#include <string.h>

/* Room for more bytes and the NUL. */
static bool reserve(pare_text *text, size_t more)
{
    if (text->failed) return false;
    if (text->size + more + 1 <= text->capacity) return true;
    size_t capacity = 2 * (text->size + more) + 256;
    char *data = pare_alloc(text->ctx, capacity, 1);
    text->failed = !data;
    if (!data) return false;
    if (text->size) memcpy(data, text->data, text->size);
    pare_free(text->data);
    text->data = data;
    text->capacity = capacity;
    return true;
}

static void add_bytes(pare_text *text, const char *bytes, size_t n)
{
    if (!n || !reserve(text, n)) return;
    memcpy(text->data + text->size, bytes, n);
    text->size += n;
    text->data[text->size] = 0;
}

void pare_text_add(pare_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(text, (size_t)n)) return;
    va_start(args, format);
    vsnprintf(text->data + text->size, (size_t)n + 1, format, args);
    va_end(args);
    text->size += (size_t)n;
}

int pare_print(FILE *file, const char *format, ...)
{
    char small[1024], *line = small;
    va_list args;
    va_start(args, format);
    const size_t n = pare_text_format(small, sizeof small, 0, format, args);
    if (n >= sizeof small && (line = malloc(n + 1)) != NULL)
        pare_text_format(line, n + 1, 0, format, args);
    va_end(args);
    fputs(line ? line : small, file);
    if (file == stderr) fflush(file); /* it has a buffer (memory_guard.c) */
    if (line != small) free(line);
    return (int)n;
}

/* What a medium writes for a byte; NULL: the byte itself. */

static const char *in_html(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

static const char *in_markdown(char c)
{
    static const char special[] = "\\`*_[]<>|~";
    static const char *const escaped[] = {"\\\\", "\\`", "\\*", "\\_", "\\[",
                                          "\\]",  "\\<", "\\>", "\\|", "\\~"};
    const char *at = strchr(special, c);
    return at ? escaped[at - special] : NULL;
}

static const char *in_csv(char c) { return c == '"' ? "\"\"" : NULL; }

/* Adds escaped text; where the medium writes a character in another way, that. */
static void add_replaced(pare_text *text, pare_medium medium, const char *shown)
{
    static const char *(*const replaced[])(char) = {NULL, in_markdown, in_html, in_csv};
    while (*shown) {
        const char *end = shown, *other = NULL;
        while (*end && !(replaced[medium] && (other = replaced[medium](*end)))) end++;
        add_bytes(text, shown, (size_t)(end - shown));
        if (other) add_bytes(text, other, strlen(other));
        shown = end + (other != NULL);
    }
}

/* --- formats --- */

enum { MARK = 1 }; /* before and after each text argument */

/* The format with a mark before and after each %s; at least twice its length fits. */
static void mark_texts(char *out, const char *format)
{
    while (*format) {
        const size_t n = *format == '%' ? 2 + strspn(format + 1, "-+ #0123456789.*lzjt") : 1;
        const bool text = n > 1 && format[n - 1] == 's';
        if (text) *out++ = MARK;
        memcpy(out, format, n);
        out += n;
        if (text) *out++ = MARK;
        format += n;
    }
    *out = 0;
}

/* The arguments come escaped as bytes, between two NULs each. */
static void put_list(pare_text *text, pare_medium medium, const char *format, va_list args)
{
    char small_format[512], small[1024], *marked = small_format, *all = small;
    if (2 * strlen(format) >= sizeof small_format)
        marked = pare_alloc(text->ctx, 2 * strlen(format) + 1, 1);
    if (marked) mark_texts(marked, format);
    const size_t n = marked ? pare_text_format(small, sizeof small, MARK, marked, args) : 0;
    if (n >= sizeof small) all = pare_alloc(text->ctx, n + 1, 1);
    text->failed |= !marked || !all;
    if (marked && all && all != small) pare_text_format(all, n + 1, MARK, marked, args);
    const char *at = all;
    for (bool argument = false; marked && at && at <= all + n; argument = !argument) {
        add_replaced(text, argument ? medium : PARE_PLAIN, at);
        at += strlen(at) + 1;
    }
    if (marked != small_format) pare_free(marked);
    if (all != small) pare_free(all);
}

void pare_text_put(pare_text *text, pare_medium medium, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_list(text, medium, format, args);
    va_end(args);
}

void pare_text_html(pare_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_list(text, PARE_HTML, format, args);
    va_end(args);
}

/* --- CSV --- */

/* A decimal number, as strtod reads it to its end, and no name that strtod knows. */
static bool is_number(const char *text)
{
    char *stop;
    strtod(text, &stop);
    return !*stop && !text[strspn(text, "+-.0123456789eE")];
}

void pare_text_add_csv(pare_text *text, const char *plain)
{
    const bool quoted = strpbrk(plain, ",\"") != NULL;
    if (quoted) pare_text_add(text, "\"");
    if (*plain && strchr("=+-@", *plain) && !is_number(plain)) pare_text_add(text, "'");
    pare_text_put(text, PARE_CSV, "%s", plain);
    if (quoted) pare_text_add(text, "\"");
}

bool pare_ends_with(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n > m && !strcmp(path + n - m, end);
}
