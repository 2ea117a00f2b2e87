/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of a zoo's file share: the tree of its text, the tables of its keys, and what
   was read so far. */
#ifndef PARE_TOOLS_ZOO_READER_H
#define PARE_TOOLS_ZOO_READER_H

#include "tools/zoo/file.h"

/* --- the text (yaml.c) --- */

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
   most 8 levels deep. PARE_INPUT with path and line: no YAML, or what a zoo's file has no use for:
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

/* --- the zoo (file.c, step.c) --- */

/* A zoo's file while it is read. */
typedef struct pare_zoo_reader {
    pare_arena *arena;
    const char *path;
    const char *folder; /* of path, with its '/'; "" where it names none */
    const pare_yaml *root;
    pare_zoo zoo; /* what the keys say, and more and more of the rest */
    const char *data, *test;
    const pare_yaml *models, *variants, *slurm; /* slurm NULL: it is not there */
} pare_zoo_reader;

/* Fills in what the keys of the root say. */
PARE_NODISCARD pare_status pare_zoo_read_keys(pare_zoo_reader *reader);

/* A path that is in the file, seen from where pare was started; it never begins with '-'. In
   the arena, NULL with the message set. */
const char *pare_zoo_path(const pare_zoo_reader *reader, const char *path);

/* PARE_INPUT where there is no such file. */
PARE_NODISCARD pare_status pare_zoo_need_file(const pare_zoo_reader *reader, int line,
                                              const char *key, const char *path);

/* One step (step.c). */
PARE_NODISCARD pare_status pare_zoo_read_step(const pare_zoo_reader *reader, pare_zoo_step *out,
                                              const char *text, int line);

/* Can the step do without data? It must have them where it measures something. */
bool pare_zoo_step_needs_data(const pare_zoo_step *step);
#endif
