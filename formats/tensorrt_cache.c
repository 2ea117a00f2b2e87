/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/tensorrt_cache.h"

#include "formats/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 8 };

typedef struct line {
    const char *text;
    size_t length;
    int number;
} line;

/* The next line that is not empty; false at the end. */
static bool next_line(const char **at, const char *end, line *l)
{
    while (*at < end) {
        const char *stop = memchr(*at, '\n', (size_t)(end - *at));
        const char *next = stop ? stop + 1 : end;
        *l = (line){*at, (size_t)((stop ? stop : end) - *at), l->number + 1};
        *at = next;
        while (l->length && l->text[l->length - 1] == '\r') l->length--;
        if (l->length) return true;
    }
    return false;
}

static bool parse_scale(const char *digits, float *scale)
{
    uint32_t bits = 0;
    for (int i = 0; i < DIGITS; i++) {
        const char c = digits[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return false;
        bits = bits << 4 | (uint32_t)digit;
    }
    memcpy(scale, &bits, sizeof *scale);
    return true;
}

/* Names may hold ": " themselves: the number is behind the last one. */
static pare_status parse_line(pare_ctx *ctx, const line *l, const char *path, char **name,
                              float *scale)
{
    const size_t tail = DIGITS + 2;
    const char *colon = l->length > tail ? l->text + l->length - tail : NULL;
    if (!colon || memcmp(colon, ": ", 2) != 0 || !parse_scale(colon + 2, scale))
        return PARE_FAIL(ctx, INPUT,
                         "%s: line %d: expected 'TENSOR: ' and 8 hexadecimal digits; the file is "
                         "cut or no calibration cache of TensorRT",
                         path, l->number);
    const size_t length = (size_t)(colon - l->text);
    *name = pare_alloc(ctx, length + 1, 1);
    if (!*name) return PARE_MEMORY;
    memcpy(*name, l->text, length);
    if (!(*scale >= 0) || !isfinite(*scale * 127)) {
        const pare_status st =
            PARE_FAIL(ctx, INPUT,
                      "%s: tensor '%s' has the scale %g, expected a finite number of 0 "
                      "or more; calibrate again",
                      path, *name, (double)*scale);
        pare_free(*name);
        return st;
    }
    return PARE_OK;
}

bool pare_is_tensorrt_cache(const char *text, size_t size)
{
    return size >= 4 && !memcmp(text, "TRT-", 4);
}

void pare_tensorrt_cache_free(pare_tensorrt_cache *cache)
{
    for (int i = 0; i < cache->count; i++) pare_free(cache->name[i]);
    pare_free(cache->name);
    pare_free(cache->scale);
    *cache = (pare_tensorrt_cache){0};
}

pare_status pare_tensorrt_cache_parse(pare_ctx *ctx, pare_tensorrt_cache *out, const char *text,
                                      size_t size, const char *path)
{
    const char *at = text, *end = text + size;
    size_t names = 0, scales = 0;
    line l = {0};
    *out = (pare_tensorrt_cache){0};
    (void)next_line(&at, end, &l); /* what it was made by */
    while (next_line(&at, end, &l)) {
        if (!pare_grow(ctx, &out->name, &names, (size_t)out->count, sizeof *out->name) ||
            !pare_grow(ctx, &out->scale, &scales, (size_t)out->count, sizeof *out->scale))
            return PARE_MEMORY;
        PARE_TRY(parse_line(ctx, &l, path, &out->name[out->count], &out->scale[out->count]));
        out->count++;
    }
    if (out->count) return PARE_OK;
    return PARE_FAIL(ctx, INPUT, "%s: holds no tensor, expected lines 'TENSOR: 3c010204'", path);
}

pare_status pare_tensorrt_cache_write(pare_ctx *ctx, const pare_tensorrt_cache *cache,
                                      int64_t version, const char *path)
{
    size_t room = 64, used;
    for (int i = 0; i < cache->count; i++) room += strlen(cache->name[i]) + DIGITS + 4;
    char *text = pare_alloc(ctx, room, 1);
    if (!text) return PARE_MEMORY;
    used = (size_t)snprintf(text, room, "TRT-%lld-EntropyCalibration2\n", (long long)version);
    for (int i = 0; i < cache->count; i++) {
        uint32_t bits;
        memcpy(&bits, &cache->scale[i], sizeof bits);
        used += (size_t)snprintf(text + used, room - used, "%s: %08x\n", cache->name[i], bits);
    }
    const pare_status st = pare_file_write(ctx, path, text, used);
    pare_free(text);
    return st;
}
