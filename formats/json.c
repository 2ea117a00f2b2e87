/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/json.h"
#include "formats/file.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

json_t *pare_json_text(const char *bytes)
{
    if (!bytes) return json_null();
    const size_t count = strlen(bytes), n = pare_text_escape(NULL, 0, bytes, count);
    char *shown = malloc(n + 1);
    if (!shown) return NULL;
    pare_text_escape(shown, n + 1, bytes, count);
    json_t *json = json_stringn(shown, n);
    free(shown);
    return json;
}

void pare_json_note(json_t *list, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_array_append_new(list, pare_json_text(text));
}

pare_status pare_json_read(pare_ctx *ctx, json_t **out, const char *path)
{
    pare_map map;
    PARE_TRY(pare_map_open(ctx, &map, path));
    pare_status st = PARE_OK;
    json_error_t error;
    json_t *json = NULL;
    if (map.size > (size_t)1 << 30)
        st = PARE_FAIL(ctx, INPUT, "%s: has %zu bytes, more than the 1 GiB JSON may have", path,
                       map.size);
    else
        json = json_loadb((const char *)map.data, map.size, JSON_REJECT_DUPLICATES, &error);
    if (!json && st == PARE_OK)
        st = PARE_FAIL(ctx, INPUT, "%s: line %d, column %d: not valid JSON: %s", path, error.line,
                       error.column, error.text);
    pare_map_close(&map);
    if (st == PARE_OK) *out = json;
    return st;
}

/* jansson hands out a few bytes at a time; they are gathered before they are written. */
typedef struct sink {
    pare_output *output;
    pare_status status;
    size_t used;
    char buffer[1 << 14];
} sink;

static int flush(sink *s)
{
    if (s->status == PARE_OK) s->status = pare_output_write(s->output, s->buffer, s->used);
    s->used = 0;
    return s->status == PARE_OK ? 0 : -1;
}

static int gather(const char *text, size_t size, void *user)
{
    sink *s = user;
    while (size > 0) {
        size_t room = sizeof s->buffer - s->used, n = size < room ? size : room;
        memcpy(s->buffer + s->used, text, n);
        s->used += n;
        text += n;
        size -= n;
        if (s->used == sizeof s->buffer && flush(s)) return -1;
    }
    return 0;
}

pare_status pare_json_write(pare_ctx *ctx, const json_t *json, const char *path)
{
    sink s = {.status = PARE_OK};
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY;
    PARE_TRY(pare_output_open(ctx, &s.output, path));
    int failed = json_dump_callback(json, gather, &s, flags) || gather("\n", 1, &s) || flush(&s);
    if (failed) {
        pare_output_discard(s.output);
        return s.status != PARE_OK
                   ? s.status
                   : PARE_FAIL(ctx, INPUT, "%s: its JSON holds text that is not UTF-8", path);
    }
    return pare_output_commit(s.output);
}

static pare_status fail_line(pare_ctx *ctx, const char *path, size_t at)
{
    return PARE_FAIL(ctx, INPUT,
                     "%s: byte %zu: begins a line that is no JSON object, so that this is no log; "
                     "move the file away",
                     path, at);
}

/* Bytes of the lines that stay. */
static pare_status lines_kept(pare_ctx *ctx, const char *path, const pare_map *map, int64_t last,
                              size_t *kept)
{
    const char *text = (const char *)map->data, *end = text + map->size, *next;
    bool begun = false; /* a line with a step came */
    *kept = 0;
    if (text < end && *text != '{') return fail_line(ctx, path, 0);
    for (const char *line = text; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) break;
        next = stop + 1;
        json_t *json = json_loadb(line, (size_t)(stop - line), 0, NULL);
        bool good = json_is_object(json);
        json_t *step = json_object_get(json, "step");
        bool has = json_is_integer(step), beyond = has && json_integer_value(step) > last;
        json_decref(json);
        if (!good) return fail_line(ctx, path, (size_t)(line - text));
        begun |= has;
        if (beyond) break;
        if (has || !begun) *kept = (size_t)(next - text);
    }
    return PARE_OK;
}

pare_status pare_json_lines_cut(pare_ctx *ctx, const char *path, int64_t last)
{
    pare_map map;
    size_t kept = 0;
    if (access(path, F_OK) && errno == ENOENT) return PARE_OK;
    PARE_TRY(pare_map_open(ctx, &map, path));
    pare_status st = lines_kept(ctx, path, &map, last, &kept);
    bool shorter = kept < map.size;
    pare_map_close(&map);
    if (st == PARE_OK && shorter && truncate(path, (off_t)kept))
        st = PARE_FAIL(ctx, IO, "%s: cannot be cut: %s", path, strerror(errno));
    return st;
}
