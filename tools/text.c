/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/text.h"

#include <stdio.h>
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

void pare_text_add_escaped(pare_text *text, const char *plain)
{
    while (*plain) {
        const size_t n = strcspn(plain, "&<>\"'");
        if (n) pare_text_add(text, "%.*s", (int)n, plain);
        plain += n;
        switch (*plain) {
        case 0: return;
        case '&': pare_text_add(text, "&amp;"); break;
        case '<': pare_text_add(text, "&lt;"); break;
        case '>': pare_text_add(text, "&gt;"); break;
        case '"': pare_text_add(text, "&quot;"); break;
        default: pare_text_add(text, "&#39;");
        }
        plain++;
    }
}
