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
    if (line != small) free(line);
    return (int)n;
}

void pare_text_add_plain(pare_text *text, const char *plain)
{
    const size_t count = strlen(plain), n = pare_text_escape(NULL, 0, plain, count);
    if (!reserve(text, n)) return;
    pare_text_escape(text->data + text->size, n + 1, plain, count);
    text->size += n;
}

/* Escapes the text, and what stands for a byte of it (NULL: the byte itself) instead of that. */
static void add_replaced(pare_text *text, const char *plain, const char *(*replaced)(char))
{
    pare_text shown = {.ctx = text->ctx};
    pare_text_add_plain(&shown, plain);
    text->failed |= shown.failed;
    for (const char *p = shown.data; p && *p; p++) {
        const char *other = replaced(*p);
        if (other)
            pare_text_add(text, "%s", other);
        else
            pare_text_add(text, "%c", *p);
    }
    pare_free(shown.data);
}

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

void pare_text_add_escaped(pare_text *text, const char *plain)
{
    if (plain) add_replaced(text, plain, in_html);
}

static const char *in_markdown(char c)
{
    static const char special[] = "\\`*_[]<>|~";
    static const char *const escaped[] = {"\\\\", "\\`", "\\*", "\\_", "\\[",
                                          "\\]",  "\\<", "\\>", "\\|", "\\~"};
    const char *at = strchr(special, c);
    return at ? escaped[at - special] : NULL;
}

void pare_text_add_markdown(pare_text *text, const char *plain)
{
    add_replaced(text, plain, in_markdown);
}

static const char *in_csv(char c) { return c == '"' ? "\"\"" : NULL; }

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
    add_replaced(text, plain, in_csv);
    if (quoted) pare_text_add(text, "\"");
}
