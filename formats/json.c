/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/json.h"
#include "formats/file.h"

#include <string.h>

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
