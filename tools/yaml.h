/* SPDX-License-Identifier: Apache-2.0 */
/* YAML as a tree with lines, and maps held against tables of keys: zoos and recipes. */
#ifndef PARE_TOOLS_YAML_H
#define PARE_TOOLS_YAML_H

#include "runtime/base/arena.h"

/* A value of the text with its line, from 1. */
typedef struct pare_yaml {
    enum { PARE_YAML_SCALAR, PARE_YAML_LIST, PARE_YAML_MAP } kind;
    int line;
    const char *key;  /* of an entry of a map, else NULL */
    const char *text; /* of a scalar */
    struct pare_yaml *first, *last, *next;
} pare_yaml;

/* What a key's value must be, and the type of the field that takes it. */
typedef enum pare_yaml_type {
    PARE_YAML_TEXT,     /* const char *; not empty */
    PARE_YAML_SWITCH,   /* bool; true or false */
    PARE_YAML_COUNT,    /* int64_t; 1 or more */
    PARE_YAML_POSITIVE, /* double; more than 0 */
    PARE_YAML_AMOUNT,   /* double; 0 or more */
    PARE_YAML_SIZE,     /* int64_t; bytes with their unit, "4GB" */
    PARE_YAML_ENTRIES,  /* const pare_yaml *; a list of maps with these keys, without: of texts */
    PARE_YAML_PARTS     /* a map, whose keys have their fields in the same struct */
} pare_yaml_type;

typedef struct pare_yaml_key {
    const char *name; /* NULL: the table ends here */
    pare_yaml_type type;
    bool needed; /* its list is not empty, too */
    size_t field;
    const struct pare_yaml_key *keys;
} pare_yaml_key;

/* The tree of a file, of at least one value, in the arena; it is no larger than the text and at
   most 8 levels deep. PARE_INPUT with path and line: no YAML, or what our files have no use for:
   aliases, tags, a second document, deep nesting, more than 4 MiB. PARE_IO: it cannot be read. */
PARE_NODISCARD pare_status pare_yaml_read(pare_arena *arena, pare_yaml **out, const char *path);
/* The same of bytes in memory; path is for messages. */
PARE_NODISCARD pare_status pare_yaml_parse(pare_arena *arena, pare_yaml **out, const char *path,
                                           const char *data, size_t bytes);

/* Checks a value that must be a map against a table, with all that is in it, and fills in the
   fields of its keys; what the map leaves out stays as it was. to NULL: the check alone.
   PARE_INPUT "PATH:LINE: KEY: what, expected". */
PARE_NODISCARD pare_status pare_yaml_fill(pare_ctx *ctx, const char *path, const pare_yaml *map,
                                          const pare_yaml_key *keys, void *to);

/* The entry of a map; NULL where it has none. */
const pare_yaml *pare_yaml_find(const pare_yaml *map, const char *key);
#endif
