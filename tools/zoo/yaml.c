/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a zoo's file as libcyaml's tables. The tree of the text is held against the same
   tables first, for libcyaml's own refusals carry no line that a program can read, and it takes any
   word for true. */
#include "tools/zoo/yaml.h"

#ifdef PARE_CYAML
#include "tools/options.h"
#include "tools/zoo/yaml_inner.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4 << 20 }; /* bytes of a file; 10,000 models named one by one need 1 MB */

static const cyaml_schema_value_t words = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, CYAML_UNLIMITED)};

#define TEXT(key, type, field)                                                                     \
    CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, type, field, 1,          \
                           CYAML_UNLIMITED)
#define REAL(key, type, field)                                                                     \
    CYAML_FIELD_FLOAT_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, type, field)

static const cyaml_schema_field_t model_fields[] = {
    CYAML_FIELD_SEQUENCE("files", CYAML_FLAG_POINTER, pare_zoo_text_models, files, &words, 1,
                         CYAML_UNLIMITED),
    TEXT("data", pare_zoo_text_models, data),
    TEXT("test", pare_zoo_text_models, test),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t model_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, pare_zoo_text_models, model_fields)};

static const cyaml_schema_field_t variant_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, pare_zoo_text_variant, name, 1,
                           CYAML_UNLIMITED),
    CYAML_FIELD_SEQUENCE("steps", CYAML_FLAG_POINTER, pare_zoo_text_variant, steps, &words, 1,
                         CYAML_UNLIMITED),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t variant_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, pare_zoo_text_variant, variant_fields)};

static const cyaml_schema_field_t limit_fields[] = {
    REAL("time", pare_zoo_text_limits, time),
    TEXT("memory", pare_zoo_text_limits, memory),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t goal_fields[] = {
    REAL("drop", pare_zoo_text_goals, drop),
    REAL("latency", pare_zoo_text_goals, latency),
    REAL("speed_up", pare_zoo_text_goals, speed_up),
    TEXT("size", pare_zoo_text_goals, size),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t zoo_fields[] = {
    TEXT("name", pare_zoo_text, name),
    CYAML_FIELD_SEQUENCE("models", CYAML_FLAG_POINTER, pare_zoo_text, models, &model_value, 1,
                         CYAML_UNLIMITED),
    TEXT("data", pare_zoo_text, data),
    TEXT("test", pare_zoo_text, test),
    CYAML_FIELD_INT_PTR("samples", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, pare_zoo_text,
                        samples),
    CYAML_FIELD_BOOL_PTR("latency", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, pare_zoo_text,
                         latency),
    CYAML_FIELD_BOOL_PTR("any_accuracy", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, pare_zoo_text,
                         any_accuracy),
    CYAML_FIELD_SEQUENCE("variants", CYAML_FLAG_POINTER, pare_zoo_text, variants, &variant_value, 1,
                         CYAML_UNLIMITED),
    CYAML_FIELD_MAPPING_PTR("limits", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, pare_zoo_text,
                            limits, limit_fields),
    CYAML_FIELD_MAPPING_PTR("goals", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, pare_zoo_text, goals,
                            goal_fields),
    CYAML_FIELD_SEQUENCE("slurm", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, pare_zoo_text, slurm,
                         &words, 0, CYAML_UNLIMITED),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t zoo_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, pare_zoo_text, zoo_fields)};

/* --- the tree against the tables --- */

typedef struct check {
    pare_ctx *ctx;
    const char *path;
} check;

#define REFUSE(c, value, ...) refuse(c, (value)->line, (value)->key, __VA_ARGS__)
static pare_status refuse(const check *c, int line, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static pare_status refuse(const check *c, int line, const char *key, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return PARE_FAIL(c->ctx, INPUT, "%s:%d: %.200s%s%s", c->path, line, key ? key : "",
                     key ? ": " : "", text);
}

static pare_status unknown_key(const check *c, const cyaml_schema_field_t *fields,
                               const pare_yaml *value)
{
    const char *names[16], *near;
    char list[256] = "";
    int n = 0;
    for (; fields->key; fields++) {
        size_t at = strlen(list);
        names[n++] = fields->key;
        snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", fields->key);
    }
    near = pare_nearest(value->key, names, n);
    if (near)
        return refuse(c, value->line, NULL, "no key '%.200s' here, did you mean '%s'", value->key,
                      near);
    return refuse(c, value->line, NULL, "no key '%.200s' here, expected one of %s", value->key,
                  list);
}

static pare_status check_value(const check *c, const cyaml_schema_value_t *schema,
                               const pare_yaml *value);

static pare_status check_map(const check *c, const cyaml_schema_field_t *fields,
                             const pare_yaml *value)
{
    int line_of[16] = {0}; /* of each field once it was seen */
    for (const pare_yaml *at = value->first; at; at = at->next) {
        int i = 0;
        while (fields[i].key && strcmp(fields[i].key, at->key) != 0) i++;
        if (!fields[i].key) return unknown_key(c, fields, at);
        if (line_of[i]) return REFUSE(c, at, "is in line %d already", line_of[i]);
        line_of[i] = at->line;
        PARE_TRY(check_value(c, &fields[i].value, at));
    }
    for (int i = 0; fields[i].key; i++)
        if (!line_of[i] && !(fields[i].value.flags & CYAML_FLAG_OPTIONAL))
            return refuse(c, value->line, value->key, "'%s' is missing", fields[i].key);
    return PARE_OK;
}

static pare_status check_list(const check *c, const cyaml_schema_value_t *schema,
                              const pare_yaml *value)
{
    if (!value->first && schema->sequence.min)
        return REFUSE(c, value, "is empty, expected at least one entry");
    for (const pare_yaml *at = value->first; at; at = at->next)
        PARE_TRY(check_value(c, schema->sequence.entry, at));
    return PARE_OK;
}

static bool is_number(const char *text, bool whole)
{
    char *end;
    errno = 0;
    double value = whole ? (double)strtoll(text, &end, 10) : strtod(text, &end);
    return end != text && !*end && !errno && isfinite(value);
}

static pare_status check_scalar(const check *c, cyaml_type_e type, const pare_yaml *value)
{
    const char *text = value->text, *expected = NULL;
    if (type == CYAML_STRING && !*text) return REFUSE(c, value, "is empty, expected text");
    if (type == CYAML_BOOL && strcmp(text, "true") && strcmp(text, "false"))
        expected = "true or false";
    if (type == CYAML_INT && !is_number(text, true)) expected = "a whole number";
    if (type == CYAML_FLOAT && !is_number(text, false)) expected = "a number";
    if (!expected) return PARE_OK;
    return REFUSE(c, value, "'%.100s', expected %s", text, expected);
}

static pare_status check_value(const check *c, const cyaml_schema_value_t *schema,
                               const pare_yaml *value)
{
    const bool list = schema->type == CYAML_SEQUENCE, map = schema->type == CYAML_MAPPING;
    const int kind = list ? PARE_YAML_LIST : map ? PARE_YAML_MAP : PARE_YAML_SCALAR;
    if ((int)value->kind != kind) {
        static const char *const has[] = {"is one value", "is a list", "is a map"};
        static const char *const expected[] = {"one value", "a list: [a, b]",
                                               "a map: {key: value}"};
        return REFUSE(c, value, "%s, expected %s", has[value->kind], expected[kind]);
    }
    if (map) return check_map(c, schema->mapping.fields, value);
    if (list) return check_list(c, schema, value);
    return check_scalar(c, schema->type, value);
}

/* --- reading --- */

/* libcyaml's memory is in the arena; it makes lists longer one by one, so each block keeps its
   size in front and grows by doubling. */
typedef union block {
    size_t bytes;
    max_align_t align;
} block;

static void *arena_memory(void *user, void *old, size_t bytes)
{
    block *before = old ? (block *)old - 1 : NULL, *now;
    if (!bytes || (before && bytes <= before->bytes)) return bytes ? old : NULL;
    if (before && bytes < 2 * before->bytes) bytes = 2 * before->bytes;
    now = pare_arena_alloc(user, 1, sizeof *now + bytes);
    if (!now) return NULL;
    now->bytes = bytes;
    if (before) memcpy(now + 1, old, before->bytes);
    return now + 1;
}

static pare_status read_all(pare_arena *arena, const char *path, char **out, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) return PARE_FAIL(arena->ctx, IO, "%s: %s", path, strerror(errno));
    char *data = NULL, *more;
    size_t size = 0;
    pare_status st = PARE_OK;
    for (size_t got = 1, capacity = 0; got && size <= LARGEST; size += got) {
        if (size == capacity) {
            capacity = capacity ? 2 * capacity : 16384;
            more = pare_arena_alloc(arena, 1, capacity);
            st = more ? PARE_OK : PARE_MEMORY;
            if (st != PARE_OK) break;
            if (size) memcpy(more, data, size);
            data = more;
        }
        got = fread(data + size, 1, capacity - size, file);
    }
    if (st == PARE_OK && ferror(file))
        st = PARE_FAIL(arena->ctx, IO, "%s: %s", path, strerror(errno));
    if (st == PARE_OK && size > LARGEST)
        st = PARE_FAIL(arena->ctx, INPUT, "%s: is larger than %d MiB, expected a zoo's YAML", path,
                       LARGEST >> 20);
    fclose(file);
    *out = data;
    *bytes = size;
    return st;
}

static pare_status load(pare_arena *arena, pare_zoo_text **out, const char *path, const char *data,
                        size_t bytes)
{
    const cyaml_config_t config = {.mem_fn = arena_memory,
                                   .mem_ctx = arena,
                                   .log_level = CYAML_LOG_ERROR,
                                   .flags = CYAML_CFG_NO_ALIAS};
    cyaml_data_t *value = NULL;
    cyaml_err_t code =
        cyaml_load_data((const uint8_t *)data, bytes, &config, &zoo_value, &value, NULL);
    *out = value;
    if (code == CYAML_ERR_OOM) return PARE_FAIL(arena->ctx, MEMORY, "out of memory");
    if (code == CYAML_OK && value) return PARE_OK;
    return PARE_FAIL(arena->ctx, INPUT, "%s:1: %s", path, cyaml_strerror(code));
}

pare_status pare_zoo_text_parse(pare_arena *arena, pare_zoo_text **out, pare_yaml **lines,
                                const char *path, const char *data, size_t bytes)
{
    const check c = {.ctx = arena->ctx, .path = path};
    PARE_TRY(pare_yaml_tree(arena, lines, path, data, bytes));
    if (!*lines)
        return PARE_FAIL(arena->ctx, INPUT, "%s:1: is empty, expected models and variants", path);
    PARE_TRY(check_value(&c, &zoo_value, *lines));
    return load(arena, out, path, data, bytes);
}

pare_status pare_zoo_text_read(pare_arena *arena, pare_zoo_text **out, pare_yaml **lines,
                               const char *path)
{
    char *data = NULL;
    size_t bytes = 0;
    PARE_TRY(read_all(arena, path, &data, &bytes));
    return pare_zoo_text_parse(arena, out, lines, path, data, bytes);
}
#else
pare_status pare_zoo_text_parse(pare_arena *arena, pare_zoo_text **out, pare_yaml **lines,
                                const char *path, const char *data, size_t bytes)
{
    (void)data;
    (void)bytes;
    return pare_zoo_text_read(arena, out, lines, path);
}

pare_status pare_zoo_text_read(pare_arena *arena, pare_zoo_text **out, pare_yaml **lines,
                               const char *path)
{
    *out = NULL;
    *lines = NULL;
    return PARE_FAIL(arena->ctx, UNSUPPORTED,
                     "%s: pare was built without libcyaml (libcyaml-dev), which reads zoos", path);
}
#endif
