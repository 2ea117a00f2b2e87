/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a ModelConfig in protobuf's text form, for those who read its parts. */
#ifndef PARE_TOOLS_SERVE_CONFIG_FIELDS_H
#define PARE_TOOLS_SERVE_CONFIG_FIELDS_H

#include "tools/serve/config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    pare_arena *arena;
    pare_ctx *ctx;
    const char *path, *name;
    pare_serve_config *config;
} reader;

/* --- fields of a message: each member is the array of its values --- */

/* The value of a field that may be given once; NULL where it is absent. */
static inline pare_status read_value(reader *r, const json_t *message, const char *key,
                                     const json_t **out)
{
    const json_t *list = json_object_get(message, key);
    *out = json_array_get(list, 0);
    if (json_array_size(list) <= 1) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: %s: is given %zu times, expected once", r->path, key,
                     json_array_size(list));
}

static inline pare_status read_int(reader *r, const json_t *message, const char *key, int64_t low,
                                   int64_t high, int64_t *out)
{
    const json_t *value;
    PARE_TRY(read_value(r, message, key, &value));
    if (!value) return PARE_OK;
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high)
        return PARE_FAIL(r->ctx, INPUT, "%s: %s: expected a whole number from %lld to %lld",
                         r->path, key, (long long)low, (long long)high);
    *out = json_integer_value(value);
    return PARE_OK;
}

static inline pare_status read_bool(reader *r, const json_t *message, const char *key, bool *out)
{
    const json_t *value;
    PARE_TRY(read_value(r, message, key, &value));
    if (!value) return PARE_OK;
    if (!json_is_boolean(value))
        return PARE_FAIL(r->ctx, INPUT, "%s: %s: expected true or false", r->path, key);
    *out = json_is_true(value);
    return PARE_OK;
}

static inline pare_status read_text(reader *r, const json_t *message, const char *key,
                                    const char **out)
{
    const json_t *value;
    PARE_TRY(read_value(r, message, key, &value));
    if (!value) return PARE_OK;
    if (!json_is_string(value))
        return PARE_FAIL(r->ctx, INPUT, "%s: %s: expected a text", r->path, key);
    *out = pare_arena_strdup(r->arena, json_string_value(value));
    return *out ? PARE_OK : PARE_MEMORY;
}

/* Whole numbers of a repeated field. */
static inline pare_status read_ints(reader *r, const json_t *message, const char *key, int64_t low,
                                    int most, int64_t *out, int *count)
{
    const json_t *list = json_object_get(message, key);
    if (json_array_size(list) > (size_t)most)
        return PARE_FAIL(r->ctx, INPUT, "%s: %s: has %zu numbers, at most %d are read", r->path,
                         key, json_array_size(list), most);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < low)
            return PARE_FAIL(r->ctx, INPUT, "%s: %s: expected whole numbers from %lld", r->path,
                             key, (long long)low);
        out[i] = json_integer_value(value);
    }
    *count = (int)json_array_size(list);
    return PARE_OK;
}

/* A field that is a message; *out is NULL where it is absent. */
static inline pare_status read_message(reader *r, const json_t *message, const char *key,
                                       const json_t **out)
{
    PARE_TRY(read_value(r, message, key, out));
    if (!*out || json_is_object(*out)) return PARE_OK;
    return PARE_FAIL(r->ctx, INPUT, "%s: %s: expected { ... }", r->path, key);
}

/* Warns of the members that are not among the words. */
static inline void warn_of_others(reader *r, const json_t *message, const char *where,
                                  const char *words)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)message, key, value)
    {
        char word[256];
        snprintf(word, sizeof word, " %s ", key);
        if (!strstr(words, word))
            pare_log(r->ctx, PARE_LOG_WARNING, "%s: '%s%s' is not read", r->path, where, key);
    }
}

/* Replies are sent as they come. */
static inline pare_status warn_of_order(reader *r, const json_t *message, const char *where)
{
    bool is_kept = false;
    PARE_TRY(read_bool(r, message, "preserve_ordering", &is_kept));
    if (is_kept)
        pare_log(r->ctx, PARE_LOG_WARNING,
                 "%s: '%s.preserve_ordering' is not read: replies are sent as they come", r->path,
                 where);
    return PARE_OK;
}

/* sequence_config.c: `sequence_batching`, where it is given. */
PARE_NODISCARD pare_status pare_sequence_config_read(reader *r, const json_t *root);
#endif
