/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/labels.h"

#include "formats/file.h"

#include <jansson.h>
#include <string.h>

static bool is_utf8(const char *text, size_t bytes)
{
    json_t *json = json_stringn(text, bytes);
    json_decref(json);
    return json && !memchr(text, 0, bytes);
}

/* Lines end with \n or \r\n, the last one may end with the file. */
static pare_status split(pare_arena *arena, pare_labels *labels, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    size_t lines = 1;
    for (const char *at = text; at < end; at++) lines += *at == '\n';
    labels->text = pare_arena_alloc(arena, lines, sizeof *labels->text);
    if (!labels->text) return PARE_MEMORY;
    for (const char *at = text; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        const bool has_return = stop > at && stop[-1] == '\r';
        const char *label = pare_arena_strndup(arena, at, (size_t)(stop - at) - has_return);
        if (!label) return PARE_MEMORY;
        labels->text[labels->count++] = label;
        at = stop + 1;
    }
    return PARE_OK;
}

pare_status pare_labels_read(pare_arena *arena, pare_labels **out, const char *path,
                             const char *file)
{
    pare_map map;
    pare_labels *labels = *out = pare_arena_alloc(arena, 1, sizeof *labels);
    if (!labels) return PARE_MEMORY;
    labels->file = pare_arena_strdup(arena, file);
    if (!labels->file) return PARE_MEMORY;
    PARE_TRY(pare_map_read(arena->ctx, &map, path));
    const char *text = map.size ? (const char *)map.data : "";
    const pare_status st = is_utf8(text, map.size)
                               ? split(arena, labels, text, map.size)
                               : PARE_FAIL(arena->ctx, INPUT, "%s: is no text in UTF-8", path);
    pare_map_close(&map);
    return st;
}

const char *pare_labels_at(const pare_labels *labels, int64_t place)
{
    const bool is_there = labels && place >= 0 && place < labels->count;
    return is_there && *labels->text[place] ? labels->text[place] : NULL;
}
