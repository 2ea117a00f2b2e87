/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a zoo's file: values by libcyaml, and the line of each by a second look at the text,
   for messages. What the values mean is file.c's. */
#ifndef PARE_TOOLS_ZOO_YAML_H
#define PARE_TOOLS_ZOO_YAML_H

#include "runtime/base/arena.h"

/* A value of the text with its line, from 1. */
typedef struct pare_yaml {
    enum { PARE_YAML_SCALAR, PARE_YAML_LIST, PARE_YAML_MAP } kind;
    int line;
    const char *key;  /* of an entry of a map, else NULL */
    const char *text; /* of a scalar */
    struct pare_yaml *first, *last, *next;
} pare_yaml;

/* Fields that the text leaves out are NULL. */
typedef struct pare_zoo_text_models {
    char **files, *data, *test;
    unsigned files_count;
} pare_zoo_text_models;

typedef struct pare_zoo_text_variant {
    char *name, **steps;
    unsigned steps_count;
} pare_zoo_text_variant;

typedef struct pare_zoo_text_limits {
    double *time;
    char *memory;
} pare_zoo_text_limits;

typedef struct pare_zoo_text_goals {
    double *drop, *latency, *speed_up;
    char *size;
} pare_zoo_text_goals;

typedef struct pare_zoo_text {
    char *name, *data, *test, **slurm;
    int64_t *samples;
    bool *latency, *any_accuracy;
    pare_zoo_text_models *models;
    pare_zoo_text_variant *variants;
    pare_zoo_text_limits *limits;
    pare_zoo_text_goals *goals;
    unsigned models_count, variants_count, slurm_count;
} pare_zoo_text;

/* Both in the arena. PARE_INPUT with the line: no YAML, no map of a zoo's keys. */
PARE_NODISCARD pare_status pare_zoo_text_read(pare_arena *arena, pare_zoo_text **out,
                                              pare_yaml **lines, const char *path);
/* The same of bytes in memory; path is for messages. */
PARE_NODISCARD pare_status pare_zoo_text_parse(pare_arena *arena, pare_zoo_text **out,
                                               pare_yaml **lines, const char *path,
                                               const char *data, size_t bytes);

/* The entry of a map; NULL where it has none, or value is NULL. */
const pare_yaml *pare_yaml_find(const pare_yaml *value, const char *key);
/* The line of value, else of its nearest that exists: `otherwise`. */
int pare_yaml_line(const pare_yaml *value, int otherwise);
#endif
