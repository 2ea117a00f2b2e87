/* SPDX-License-Identifier: Apache-2.0 */
/* YAML as a tree with lines, from libyaml's events, and its maps held against tables of keys.
   Aliases are refused, so that the tree is no larger than the text, and it is shallow: no file can
   blow it up. */
#include "tools/yaml.h"
#include "tools/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum {
    LARGEST = 4 << 20, /* bytes of a file; 10,000 models named one by one need 1 MB */
    DEEPEST = 8        /* a zoo's file needs 4 */
};

/* --- the tree --- */

typedef struct walk {
    pare_arena *arena;
    const char *path, *data;
    yaml_parser_t parser;
    pare_yaml *open[DEEPEST]; /* maps and lists that have begun */
    int depth;
    const char *key; /* read, its value not yet */
    pare_yaml *root;
} walk;

static int line_of(const yaml_event_t *event) { return (int)event->start_mark.line + 1; }

/* Bytes that are no text have an offset, but no mark. */
static pare_status broken(walk *w)
{
    const yaml_parser_t *p = &w->parser;
    if (p->error == YAML_MEMORY_ERROR) return PARE_FAIL(w->arena->ctx, MEMORY, "out of memory");
    size_t line = p->problem_mark.line + 1;
    if (p->error == YAML_READER_ERROR) {
        line = 1;
        for (size_t i = 0; i < p->problem_offset; i++) line += w->data[i] == '\n';
    }
    return PARE_FAIL(w->arena->ctx, INPUT, "%s:%zu: is no YAML: %s%s%s", w->path, line,
                     p->context ? p->context : "", p->context ? ": " : "",
                     p->problem ? p->problem : "cannot be read");
}

/* Puts a value where the last key, or the list it is in, says. */
static void place(walk *w, pare_yaml *value)
{
    pare_yaml *in = w->depth ? w->open[w->depth - 1] : NULL;
    value->key = w->key;
    w->key = NULL;
    if (!in) {
        w->root = value;
    } else {
        *(in->last ? &in->last->next : &in->first) = value;
        in->last = value;
    }
}

static pare_status begin(walk *w, const yaml_event_t *event, int kind)
{
    pare_yaml *value = pare_arena_alloc(w->arena, 1, sizeof *value);
    if (!value) return PARE_MEMORY;
    *value = (pare_yaml){.kind = kind, .line = line_of(event)};
    place(w, value);
    if (w->depth == DEEPEST)
        return PARE_FAIL(w->arena->ctx, INPUT, "%s:%d: is nested deeper than %d levels", w->path,
                         value->line, DEEPEST);
    w->open[w->depth++] = value;
    return PARE_OK;
}

static pare_status scalar(walk *w, const yaml_event_t *event)
{
    const char *bytes = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    const pare_yaml *in = w->depth ? w->open[w->depth - 1] : NULL;
    if (memchr(bytes, 0, n))
        return PARE_FAIL(w->arena->ctx, INPUT, "%s:%d: has a byte 0 in its text", w->path,
                         line_of(event));
    char *text = pare_arena_strndup(w->arena, bytes, n);
    if (!text) return PARE_MEMORY;
    if (in && in->kind == PARE_YAML_MAP && !w->key) {
        w->key = text;
        return PARE_OK;
    }
    pare_yaml *value = pare_arena_alloc(w->arena, 1, sizeof *value);
    if (!value) return PARE_MEMORY;
    *value = (pare_yaml){.kind = PARE_YAML_SCALAR, .line = line_of(event), .text = text};
    place(w, value);
    return PARE_OK;
}

/* What YAML has and this file has no use for. */
static pare_status refuse(walk *w, const yaml_event_t *event)
{
    const yaml_event_type_t type = event->type;
    const char *what = NULL;
    const pare_yaml *in = w->depth ? w->open[w->depth - 1] : NULL;
    const bool map = type == YAML_MAPPING_START_EVENT, list = type == YAML_SEQUENCE_START_EVENT;
    const bool text = type == YAML_SCALAR_EVENT;
    if (type == YAML_ALIAS_EVENT)
        what = "has an alias (*), expected the text itself";
    else if ((text && event->data.scalar.anchor) || (map && event->data.mapping_start.anchor) ||
             (list && event->data.sequence_start.anchor))
        what = "has an anchor (&), and aliases are not taken";
    else if ((text && event->data.scalar.tag) || (map && event->data.mapping_start.tag) ||
             (list && event->data.sequence_start.tag))
        what = "has a tag (!), expected a plain value";
    else if (type == YAML_DOCUMENT_START_EVENT && w->root)
        what = "begins a second document, expected one";
    else if ((map || list) && in && in->kind == PARE_YAML_MAP && !w->key)
        what = "has a list or map as its key, expected a name";
    if (!what) return PARE_OK;
    return PARE_FAIL(w->arena->ctx, INPUT, "%s:%d: %s", w->path, line_of(event), what);
}

static pare_status take(walk *w, const yaml_event_t *event)
{
    PARE_TRY(refuse(w, event));
    switch (event->type) {
    case YAML_SCALAR_EVENT: return scalar(w, event);
    case YAML_SEQUENCE_START_EVENT: return begin(w, event, PARE_YAML_LIST);
    case YAML_MAPPING_START_EVENT: return begin(w, event, PARE_YAML_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: w->depth--; return PARE_OK;
    default: return PARE_OK;
    }
}

pare_status pare_yaml_parse(pare_arena *arena, pare_yaml **out, const char *path, const char *data,
                            size_t bytes)
{
    walk w = {.arena = arena, .path = path, .data = data};
    bool more = true;
    pare_status st = PARE_OK;
    if (!yaml_parser_initialize(&w.parser)) return PARE_FAIL(arena->ctx, MEMORY, "out of memory");
    yaml_parser_set_input_string(&w.parser, (const unsigned char *)data, bytes);
    while (more && st == PARE_OK) {
        yaml_event_t event;
        if (!yaml_parser_parse(&w.parser, &event)) {
            st = broken(&w);
            break;
        }
        more = event.type != YAML_STREAM_END_EVENT;
        st = take(&w, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&w.parser);
    *out = w.root;
    if (st == PARE_OK && !w.root)
        st = PARE_FAIL(arena->ctx, INPUT, "%s:1: is empty, expected keys and values", path);
    return st;
}

pare_status pare_yaml_read(pare_arena *arena, pare_yaml **out, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return PARE_FAIL(arena->ctx, IO, "%s: %s", path, strerror(errno));
    char *data = pare_arena_alloc(arena, 1, LARGEST + 1);
    const size_t bytes = data ? fread(data, 1, LARGEST + 1, file) : 0;
    pare_status st = data ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK && ferror(file))
        st = PARE_FAIL(arena->ctx, IO, "%s: %s", path, strerror(errno));
    if (st == PARE_OK && bytes > LARGEST)
        st = PARE_FAIL(arena->ctx, INPUT, "%s: is larger than %d MiB, expected a shorter YAML file",
                       path, LARGEST >> 20);
    fclose(file);
    return st == PARE_OK ? pare_yaml_parse(arena, out, path, data, bytes) : st;
}

const pare_yaml *pare_yaml_find(const pare_yaml *map, const char *key)
{
    const pare_yaml *at = map->first;
    while (at && strcmp(at->key, key) != 0) at = at->next;
    return at;
}

/* --- the tables --- */

typedef struct filling {
    pare_ctx *ctx;
    const char *path;
} filling;

static pare_status refuse_value(const filling *f, const pare_yaml *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static pare_status refuse_value(const filling *f, const pare_yaml *at, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return PARE_FAIL(f->ctx, INPUT, "%s:%d: %.200s%s%s", f->path, at->line, at->key ? at->key : "",
                     at->key ? ": " : "", text);
}

static pare_status unknown_key(const filling *f, const pare_yaml_key *keys, const pare_yaml *at)
{
    const char *names[16], *near;
    char list[256] = "";
    int n = 0;
    for (; keys->name; keys++) {
        const size_t end = strlen(list);
        names[n++] = keys->name;
        snprintf(list + end, sizeof list - end, "%s%s", end ? ", " : "", keys->name);
    }
    near = pare_nearest(at->key, names, n);
    return PARE_FAIL(f->ctx, INPUT, "%s:%d: no key '%.200s' here, %s%s%s", f->path, at->line,
                     at->key, near ? "did you mean '" : "expected one of ", near ? near : list,
                     near ? "'" : "");
}

static pare_status check_kind(const filling *f, const pare_yaml *at, int kind)
{
    static const char *const has[] = {"is one value", "is a list", "is a map"};
    static const char *const expected[] = {"one value", "a list: [a, b]", "a map: {key: value}"};
    if ((int)at->kind == kind) return PARE_OK;
    return refuse_value(f, at, "%s, expected %s", has[at->kind], expected[kind]);
}

static bool read_count(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && !*end && !errno;
}

static bool read_number(const char *text, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return end != text && !*end && !errno && isfinite(*out);
}

/* The value of a text; to NULL: the check alone. */
static pare_status fill_text(const filling *f, pare_yaml_type type, const pare_yaml *at, void *to)
{
    const char *text = at->text, *expected = NULL, *range = NULL;
    int64_t count = 0;
    double number = 0;
    if (type == PARE_YAML_TEXT && !*text) return refuse_value(f, at, "is empty, expected text");
    if (type == PARE_YAML_SWITCH) {
        if (strcmp(text, "true") && strcmp(text, "false")) expected = "true or false";
    } else if (type == PARE_YAML_COUNT) {
        if (!read_count(text, &count)) expected = "a whole number";
        if (count < 1) range = "1 or more";
    } else if (type == PARE_YAML_POSITIVE || type == PARE_YAML_AMOUNT) {
        if (!read_number(text, &number)) expected = "a number";
        if (type == PARE_YAML_AMOUNT ? number < 0 : number <= 0)
            range = type == PARE_YAML_AMOUNT ? "0 or more" : "more than 0";
    } else if (type == PARE_YAML_SIZE) {
        number = pare_bytes_parse(text);
        count = number >= 1 && number <= 1e18 ? (int64_t)number : 0;
        if (!count) expected = "a size with its unit: 512MB, 1.5GB, 2GiB";
    }
    if (expected) return refuse_value(f, at, "'%.100s', expected %s", text, expected);
    if (range) return refuse_value(f, at, "%.100s, expected %s", text, range);
    if (!to) return PARE_OK;
    if (type == PARE_YAML_TEXT) *(const char **)to = text;
    if (type == PARE_YAML_SWITCH) *(bool *)to = !strcmp(text, "true");
    if (type == PARE_YAML_COUNT || type == PARE_YAML_SIZE) *(int64_t *)to = count;
    if (type == PARE_YAML_POSITIVE || type == PARE_YAML_AMOUNT) *(double *)to = number;
    return PARE_OK;
}

static pare_status fill_map(const filling *f, const pare_yaml *map, const pare_yaml_key *keys,
                            char *to);

static pare_status fill_value(const filling *f, const pare_yaml_key *key, const pare_yaml *at,
                              char *to)
{
    if (key->type == PARE_YAML_PARTS) return fill_map(f, at, key->keys, to);
    if (key->type == PARE_YAML_ENTRIES) {
        PARE_TRY(check_kind(f, at, PARE_YAML_LIST));
        if (!at->first && key->needed)
            return refuse_value(f, at, "is empty, expected at least one entry");
        const pare_yaml_key text = {.type = PARE_YAML_TEXT};
        for (const pare_yaml *entry = at->first; entry; entry = entry->next)
            PARE_TRY(key->keys ? fill_map(f, entry, key->keys, NULL)
                               : fill_value(f, &text, entry, NULL));
        if (to) *(const pare_yaml **)(void *)(to + key->field) = at;
        return PARE_OK;
    }
    PARE_TRY(check_kind(f, at, PARE_YAML_SCALAR));
    return fill_text(f, key->type, at, to ? to + key->field : NULL);
}

static pare_status fill_map(const filling *f, const pare_yaml *map, const pare_yaml_key *keys,
                            char *to)
{
    PARE_TRY(check_kind(f, map, PARE_YAML_MAP));
    for (const pare_yaml *at = map->first; at; at = at->next) {
        const pare_yaml *before = pare_yaml_find(map, at->key);
        const pare_yaml_key *key = keys;
        while (key->name && strcmp(key->name, at->key) != 0) key++;
        if (!key->name) return unknown_key(f, keys, at);
        if (before != at) return refuse_value(f, at, "is in line %d already", before->line);
        PARE_TRY(fill_value(f, key, at, to));
    }
    for (const pare_yaml_key *key = keys; key->name; key++)
        if (key->needed && !pare_yaml_find(map, key->name))
            return refuse_value(f, map, "'%s' is missing", key->name);
    return PARE_OK;
}

pare_status pare_yaml_fill(pare_ctx *ctx, const char *path, const pare_yaml *map,
                           const pare_yaml_key *keys, void *to)
{
    return fill_map(&(filling){ctx, path}, map, keys, to);
}
