/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/pbtxt.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32, LONGEST = 4096 }; /* messages in messages, characters of a value */

typedef struct parser {
    pare_ctx *ctx;
    const char *path, *at, *end;
    int line, depth;
} parser;

static pare_status parse_message(parser *p, json_t *message, char close);

static pare_status fail(parser *p, const char *fact)
{
    return PARE_FAIL(p->ctx, INPUT, "%s: line %d: %s", p->path, p->line, fact);
}

/* --- characters --- */

static void skip_blanks(parser *p)
{
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#')
            while (p->at + 1 < p->end && p->at[1] != '\n') p->at++;
        else if (*p->at == '\n')
            p->line++;
        else if (!isspace((unsigned char)*p->at))
            return;
    }
}

/* The next character that is no blank, 0 at the end. */
static char peek(parser *p)
{
    skip_blanks(p);
    return p->at < p->end ? *p->at : 0;
}

static bool accept(parser *p, char c)
{
    if (peek(p) != c || !c) return false;
    p->at++;
    return true;
}

/* A run of letters, digits and what numbers hold. */
static size_t take_word(parser *p, char *word)
{
    size_t n = 0;
    peek(p);
    while (p->at < p->end && n < LONGEST - 1 &&
           (isalnum((unsigned char)*p->at) || strchr("_+-.", *p->at)) && *p->at)
        word[n++] = *p->at++;
    word[n] = 0;
    return n;
}

/* --- values --- */

static char unescape(char c)
{
    static const char from[] = "ntr\\\"'", to[] = "\n\t\r\\\"'";
    const char *at = c ? strchr(from, c) : NULL;
    return at ? to[at - from] : 0;
}

/* Strings one after the other are one. */
static pare_status parse_string(parser *p, json_t **out)
{
    char text[LONGEST];
    size_t n = 0;
    for (char quote = peek(p); quote == '"' || quote == '\''; quote = peek(p)) {
        p->at++;
        while (p->at < p->end && *p->at != quote && *p->at != '\n') {
            char c = *p->at++;
            if (c == '\\' && p->at < p->end && !(c = unescape(*p->at++)))
                return fail(p, "an escape that is not known in a string");
            if (n == LONGEST - 1) return fail(p, "a string is too long");
            text[n++] = c;
        }
        if (p->at == p->end || *p->at != quote) return fail(p, "a string does not end");
        p->at++;
    }
    *out = json_stringn(text, n);
    return *out ? PARE_OK : fail(p, "a string is no UTF-8");
}

static pare_status parse_scalar(parser *p, json_t **out)
{
    char word[LONGEST], *end;
    if (peek(p) == '"' || peek(p) == '\'') return parse_string(p, out);
    if (!take_word(p, word)) return fail(p, "expected a value");
    errno = 0;
    const long long whole = strtoll(word, &end, 0);
    if (!*end && !errno) {
        *out = json_integer(whole);
        return PARE_OK;
    }
    const bool is_number = strchr("+-.0123456789", word[0]) != NULL;
    const double real = is_number ? strtod(word, &end) : 0;
    if (is_number && *end) return fail(p, "a number is damaged");
    if (is_number)
        *out = json_real(real);
    else if (!strcmp(word, "true") || !strcmp(word, "false"))
        *out = json_boolean(word[0] == 't');
    else
        *out = json_string(word);
    return *out ? PARE_OK : fail(p, "a number is too large");
}

static pare_status parse_value(parser *p, json_t **out)
{
    const char open = peek(p);
    if (open != '{' && open != '<') return parse_scalar(p, out);
    if (++p->depth > DEEPEST) return fail(p, "messages are nested too deeply");
    p->at++;
    *out = json_object();
    if (!*out) return PARE_MEMORY;
    PARE_TRY(parse_message(p, *out, open == '{' ? '}' : '>'));
    p->depth--;
    return PARE_OK;
}

static pare_status add_value(parser *p, json_t *list)
{
    json_t *value = NULL;
    pare_status st = parse_value(p, &value);
    if (st != PARE_OK) {
        json_decref(value);
        return st;
    }
    return json_array_append_new(list, value) ? PARE_MEMORY : PARE_OK;
}

static pare_status add_list(parser *p, json_t *list)
{
    if (accept(p, ']')) return PARE_OK;
    do PARE_TRY(add_value(p, list));
    while (accept(p, ','));
    return accept(p, ']') ? PARE_OK : fail(p, "expected ',' or ']'");
}

/* --- messages --- */

static pare_status parse_field(parser *p, json_t *message)
{
    char name[LONGEST];
    if (!take_word(p, name)) return fail(p, "expected the name of a field");
    const bool has_colon = accept(p, ':');
    if (!has_colon && !(peek(p) && strchr("{<[", peek(p))))
        return fail(p, "expected ':' behind the name of a field");
    json_t *list = json_object_get(message, name);
    if (!list && json_object_set_new(message, name, list = json_array())) return PARE_MEMORY;
    PARE_TRY(accept(p, '[') ? add_list(p, list) : add_value(p, list));
    if (!accept(p, ',')) (void)accept(p, ';');
    return PARE_OK;
}

/* close: what ends it; 0: the end of the text. */
static pare_status parse_message(parser *p, json_t *message, char close)
{
    while (peek(p) != close) {
        if (!peek(p)) return fail(p, "a message does not end");
        PARE_TRY(parse_field(p, message));
    }
    if (close) p->at++;
    return PARE_OK;
}

pare_status pare_pbtxt_parse(pare_ctx *ctx, json_t **out, const char *text, size_t bytes,
                             const char *path)
{
    parser p = {.ctx = ctx, .path = path, .at = text, .end = text + bytes, .line = 1};
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) p.at += 3; /* which editors put there */
    json_t *message = json_object();
    pare_status st = message ? parse_message(&p, message, 0) : PARE_MEMORY;
    if (st == PARE_OK && p.at != p.end) st = fail(&p, "a zero byte");
    if (st == PARE_OK)
        *out = message;
    else
        json_decref(message);
    return st;
}
