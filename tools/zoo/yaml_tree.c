/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a YAML file as a tree with lines, from libyaml's events. Aliases are refused, so that
   the tree is no larger than the text, and it is shallow: no one can blow it up. */
#include "tools/zoo/yaml_inner.h"

#include <string.h>

#ifdef PARE_CYAML
#include <yaml.h>

enum { DEEPEST = 8 }; /* a zoo's file needs 4 */

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
static pare_status place(walk *w, pare_yaml *value)
{
    pare_yaml *in = w->depth ? w->open[w->depth - 1] : NULL;
    value->key = w->key;
    w->key = NULL;
    if (!in) {
        w->root = value;
        return PARE_OK;
    }
    if (in->last)
        in->last->next = value;
    else
        in->first = value;
    in->last = value;
    return PARE_OK;
}

static pare_status begin(walk *w, const yaml_event_t *event, int kind)
{
    pare_yaml *value = pare_arena_alloc(w->arena, 1, sizeof *value);
    if (!value) return PARE_MEMORY;
    *value = (pare_yaml){.kind = kind, .line = line_of(event)};
    PARE_TRY(place(w, value));
    if (w->depth == DEEPEST)
        return PARE_FAIL(w->arena->ctx, INPUT,
                         "%s:%d: is nested deeper than %d levels, more than a zoo's file has",
                         w->path, value->line, DEEPEST);
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
    return place(w, value);
}

/* What YAML has and this file has no use for. */
static pare_status refuse(walk *w, const yaml_event_t *event)
{
    const yaml_event_type_t type = event->type;
    const char *what = NULL;
    const pare_yaml *in = w->depth ? w->open[w->depth - 1] : NULL;
    const bool opens = type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
    if (type == YAML_ALIAS_EVENT)
        what = "has an alias (*), expected the text itself";
    else if ((type == YAML_SCALAR_EVENT && event->data.scalar.anchor) ||
             (type == YAML_MAPPING_START_EVENT && event->data.mapping_start.anchor) ||
             (type == YAML_SEQUENCE_START_EVENT && event->data.sequence_start.anchor))
        what = "has an anchor (&), and aliases are not taken";
    else if ((type == YAML_SCALAR_EVENT && event->data.scalar.tag) ||
             (type == YAML_MAPPING_START_EVENT && event->data.mapping_start.tag) ||
             (type == YAML_SEQUENCE_START_EVENT && event->data.sequence_start.tag))
        what = "has a tag (!), expected a plain value";
    else if (type == YAML_DOCUMENT_START_EVENT && w->root)
        what = "begins a second document, expected one";
    else if (opens && in && in->kind == PARE_YAML_MAP && !w->key)
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

pare_status pare_yaml_tree(pare_arena *arena, pare_yaml **out, const char *path, const char *data,
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
    return st;
}
#endif

const pare_yaml *pare_yaml_find(const pare_yaml *value, const char *key)
{
    const pare_yaml *at = value && value->kind == PARE_YAML_MAP ? value->first : NULL;
    while (at && strcmp(at->key, key) != 0) at = at->next;
    return at;
}

int pare_yaml_line(const pare_yaml *value, int otherwise)
{
    return value ? value->line : otherwise;
}
