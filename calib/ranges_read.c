/* SPDX-License-Identifier: Apache-2.0 */
/* Reading ranges.json as a stranger's file: every key is known, every number in its bounds, and
   what a histogram says of itself (its sum, its top octave, its minmax_only) must agree with its
   bins.
 */
#include "calib/ranges.h"
#include "formats/file.h"
#include "formats/json.h"
#include "formats/tensorrt_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    pare_ctx *ctx;
    const char *path;
    const char *tensor; /* being read, or NULL */
} reading;

static pare_status bad(const reading *r, const char *what)
{
    return PARE_FAIL(r->ctx, INPUT, "%s: %s%s%s%s; make it again with pare calibrate", r->path,
                     r->tensor ? "tensor '" : "", r->tensor ? r->tensor : "",
                     r->tensor ? "': " : "", what);
}

static pare_status check_keys(const reading *r, const json_t *object, const char *const *known)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return bad(r, "expected an object");
    json_object_foreach((json_t *)object, key, value)
    {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        if (!known[i])
            return PARE_FAIL(r->ctx, INPUT,
                             "%s: unknown key '%.64s'; it was made by another version of "
                             "pare, make it again with pare calibrate",
                             r->path, key);
    }
    return PARE_OK;
}

static pare_status get_count(const reading *r, const json_t *object, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return PARE_FAIL(r->ctx, INPUT, "%s: %s%s'%s' is not a count", r->path,
                         r->tensor ? r->tensor : "", r->tensor ? ": " : "", key);
    *out = (uint64_t)json_integer_value(v);
    return PARE_OK;
}

static bool get_float(const json_t *object, const char *key, float *out)
{
    const json_t *v = json_object_get(object, key);
    *out = (float)json_number_value(v);
    return json_is_number(v) && isfinite(*out) && (double)*out == json_number_value(v);
}

/* --- bins --- */

bool pare_bins_parse(const char *text, uint64_t *bins)
{
    int at = 0;
    while (*text) {
        bool empty = *text == '-';
        uint64_t value = 0;
        int digits = 0;
        for (text += empty; *text && *text != ' '; text++, digits++) {
            int d = *text >= '0' && *text <= '9'   ? *text - '0'
                    : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10
                                                   : 16;
            if (d == 16 || digits == 16) return false;
            value = value << 4 | (uint64_t)d;
        }
        if (!digits || !value || value > INT64_MAX) return false;
        if (*text == ' ' && !*++text) return false;
        uint64_t room = (uint64_t)(PARE_HISTOGRAM_BINS - at);
        if (empty ? value >= room || !*text : room == 0)
            return false; /* a run never ends the text */
        if (!empty) bins[at] = value;
        at += empty ? (int)value : 1;
    }
    return true;
}

/* Digits up to a space or the end; at most `most` of them. */
static bool parse_hex(const char **text, int most, pare_wide *out)
{
    int digits = 0;
    *out = 0;
    for (; **text && **text != ' '; ++*text, digits++) {
        int d = **text >= '0' && **text <= '9'   ? **text - '0'
                : **text >= 'a' && **text <= 'f' ? **text - 'a' + 10
                                                 : 16;
        if (d == 16 || digits == most) return false;
        *out = *out * 16 + d;
    }
    if (**text == ' ' && !*++*text) return false;
    return digits > 0;
}

pare_status pare_channels_parse(pare_ctx *ctx, pare_channels *c, const char *sums,
                                const char *largest, bool *good)
{
    enum { SUM_DIGITS = 31, FLOAT_DIGITS = 8, INFINITE = 0x7f800000 };
    int64_t n = *sums != 0, i = 0;
    for (const char *s = sums; *s; s++) n += *s == ' ';
    *good = false;
    if (n < 1 || n > (int64_t)strlen(largest)) return PARE_OK;
    PARE_TRY(pare_channels_open(ctx, c, n));
    for (; i < n && *sums; i++) {
        bool minus = *sums == '-';
        pare_wide bits;
        sums += minus;
        if (!parse_hex(&sums, SUM_DIGITS, &c->sum[i])) return PARE_OK;
        if (minus) c->sum[i] = -c->sum[i];
        if (!parse_hex(&largest, FLOAT_DIGITS, &bits)) return PARE_OK;
        uint32_t word = (uint32_t)bits;
        memcpy(&c->largest[i], &word, sizeof word);
        if (bits > INFINITE) return PARE_OK; /* negative or NaN */
    }
    *good = i == n && !*sums && !*largest;
    return PARE_OK;
}

/* One sign's half; total: what it counts. */
static pare_status read_half(const reading *r, const json_t *tensor, pare_histogram *h, int sign,
                             uint64_t *total)
{
    static const char *const known[] = {"below", "bins", NULL};
    const json_t *half = json_object_get(tensor, sign ? "negative" : "positive");
    uint64_t *bins = pare_histogram_bins(h, sign);
    *total = 0;
    if (!half) return sign || !bins ? PARE_OK : bad(r, "its positive bins are missing");
    if (!bins) return bad(r, "it has bins, but no top octave");
    PARE_TRY(check_keys(r, half, known));
    const char *text = json_string_value(json_object_get(half, "bins"));
    PARE_TRY(get_count(r, half, "below", &bins[-1]));
    if (!text || !pare_bins_parse(text, bins)) return bad(r, "its bins are damaged");
    for (int i = -1; i < PARE_HISTOGRAM_BINS; i++)
        if (__builtin_add_overflow(*total, bins[i], total)) return bad(r, "its counts overflow");
    return PARE_OK;
}

/* Does the extreme of one sign are in its highest bin that is not empty? */
static bool extreme_fits(const pare_histogram *h, int sign, uint64_t total)
{
    const uint64_t *bins = pare_histogram_bins(h, sign);
    float extreme = sign ? -h->min : h->max;
    if (!total) return extreme <= 0;
    int i = PARE_HISTOGRAM_BINS - 1;
    while (i >= 0 && !bins[i]) i--;
    return extreme > 0 && extreme >= (i < 0 ? 0 : pare_histogram_edge(h, i)) &&
           extreme < pare_histogram_edge(h, i + 1);
}

static pare_status check_histogram(const reading *r, const pare_histogram *h, const uint64_t *half)
{
    uint64_t sum = half[0];
    if (__builtin_add_overflow(sum, half[1], &sum) || __builtin_add_overflow(sum, h->zero, &sum) ||
        __builtin_add_overflow(sum, h->nan, &sum) || __builtin_add_overflow(sum, h->inf, &sum) ||
        sum != h->count)
        return bad(r, "its counts do not add up");
    if (h->negative && !half[1]) return bad(r, "its negative bins are empty");
    bool agrees = extreme_fits(h, 0, half[0]) && extreme_fits(h, 1, half[1]) && h->min <= h->max;
    if (agrees && h->zero) agrees = h->min <= 0 && h->max >= 0;
    if (agrees && !h->zero && !half[0] && !half[1]) agrees = h->min == 0 && h->max == 0;
    if (!agrees) return bad(r, "its min and max do not agree with its bins");
    uint64_t highest = 0;
    int first = (h->top - h->first) * PARE_OCTAVE_BINS;
    for (int s = 0; s < 2 && h->slot; s++)
        for (int i = first; pare_histogram_bins(h, s) && i < PARE_HISTOGRAM_BINS; i++)
            highest |= pare_histogram_bins(h, s)[i];
    return h->slot && !highest ? bad(r, "its top octave is empty") : PARE_OK;
}

/* --- tensors --- */

static pare_status read_histogram(const reading *r, const json_t *tensor, pare_histogram *h)
{
    uint64_t half[2];
    const json_t *top = json_object_get(tensor, "top");
    json_int_t octave = json_integer_value(top);
    PARE_TRY(get_count(r, tensor, "count", &h->count));
    PARE_TRY(get_count(r, tensor, "zero", &h->zero));
    PARE_TRY(get_count(r, tensor, "nan", &h->nan));
    PARE_TRY(get_count(r, tensor, "inf", &h->inf));
    if (!get_float(tensor, "min", &h->min) || !get_float(tensor, "max", &h->max))
        return bad(r, "its min or max is not a float");
    if (!json_is_integer(top) || octave < -1 || octave > 254)
        return bad(r, "its top octave is wrong");
    if (octave >= 0)
        PARE_TRY(pare_histogram_open(r->ctx, h, (int)octave,
                                     json_object_get(tensor, "negative") != NULL));
    PARE_TRY(read_half(r, tensor, h, 0, &half[0]));
    PARE_TRY(read_half(r, tensor, h, 1, &half[1]));
    return check_histogram(r, h, half);
}

/* Do sums and magnitudes agree with the histogram and with each other? */
static bool channels_fit(const pare_channels *c, const pare_histogram *h)
{
    uint64_t all;
    if (!c->each || __builtin_mul_overflow(c->each, (uint64_t)c->count, &all) || all != h->count)
        return false;
    if (c->lost) return true;
    float largest = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (!(fabs(pare_channels_mean(c, i)) <= (double)c->largest[i] * 1.000001 + 1e-9))
            return false;
        largest = fmaxf(largest, c->largest[i]);
    }
    return largest == fmaxf(-h->min, h->max);
}

static pare_status read_channels(const reading *r, const json_t *tensor, pare_stats *s)
{
    static const char *const known[] = {"each", "lost", "sums", "largest", NULL};
    const json_t *object = json_object_get(tensor, "channels");
    if (!object) return PARE_OK;
    PARE_TRY(check_keys(r, object, known));
    const char *sums = json_string_value(json_object_get(object, "sums"));
    const char *largest = json_string_value(json_object_get(object, "largest"));
    bool good = sums && largest;
    PARE_TRY(get_count(r, object, "each", &s->channels->each));
    PARE_TRY(get_count(r, object, "lost", &s->channels->lost));
    if (good) PARE_TRY(pare_channels_parse(r->ctx, s->channels, sums, largest, &good));
    if (!good) return bad(r, "the sums of its channels are damaged");
    return channels_fit(s->channels, s->histogram)
               ? PARE_OK
               : bad(r, "its channels do not agree with its bins");
}

static pare_status read_tensors(reading *r, const json_t *list, pare_ranges *ranges)
{
    static const char *const known[] = {"name",     "count",    "zero",     "nan", "inf",
                                        "min",      "max",      "s8",       "u8",  "top",
                                        "positive", "negative", "channels", NULL};
    for (int i = 0; i < ranges->count; i++) {
        const json_t *tensor = json_array_get(list, (size_t)i);
        r->tensor = ranges->stats[i].name;
        PARE_TRY(check_keys(r, tensor, known));
        PARE_TRY(read_histogram(r, tensor, ranges->stats[i].histogram));
        PARE_TRY(read_channels(r, tensor, &ranges->stats[i]));
    }
    return PARE_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of all tensors; none twice. */
static pare_status read_names(const reading *r, const json_t *list, const char **names)
{
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        names[i] = json_string_value(json_object_get(json_array_get(list, i), "name"));
        if (!names[i]) return bad(r, "a tensor has no name");
    }
    const char **sorted = pare_alloc(r->ctx, n, sizeof *sorted);
    if (!sorted) return PARE_MEMORY;
    memcpy(sorted, names, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    pare_status st = PARE_OK;
    for (size_t i = 1; st == PARE_OK && i < n; i++)
        if (!strcmp(sorted[i], sorted[i - 1])) st = bad(r, "a tensor is in it twice");
    pare_free(sorted);
    return st;
}

/* --- the file --- */

static pare_status read_head(const reading *r, const json_t *root, pare_ranges *out)
{
    const char *model = json_string_value(json_object_get(root, "model"));
    const char *data = json_string_value(json_object_get(root, "data"));
    uint64_t samples = 0;
    pare_hash hash;
    if (!model || pare_hash_parse(model, &hash) || !data || pare_hash_parse(data, &out->data))
        return bad(r, "its hash of model or data is damaged");
    memcpy(out->model, model, sizeof out->model);
    PARE_TRY(get_count(r, root, "samples", &samples));
    out->samples = (int64_t)samples;
    return PARE_OK;
}

static pare_status read_root(reading *r, const json_t *root, pare_ranges **out)
{
    static const char *const known[] = {"format",  "version", "model", "data",
                                        "samples", "tensors", NULL};
    enum { MAX_TENSORS = 1 << 20 };
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *list = json_object_get(root, "tensors"), *version = json_object_get(root, "versio"
                                                                                            "n");
    if (!format || strcmp(format, "pare ranges") != 0)
        return PARE_FAIL(r->ctx, INPUT,
                         "%s: is not a table of ranges; expected what pare calibrate "
                         "writes",
                         r->path);
    if (json_integer_value(version) != 1) return bad(r, "its version is not 1");
    PARE_TRY(check_keys(r, root, known));
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > MAX_TENSORS) return bad(r, "its list of tensors is damaged");
    const char **names = pare_alloc(r->ctx, n, sizeof *names);
    if (!names) return PARE_MEMORY;
    pare_ranges *ranges = NULL;
    pare_status st = read_names(r, list, names);
    if (st == PARE_OK) st = pare_ranges_new(r->ctx, &ranges, names, (int)n);
    pare_free(names);
    if (st == PARE_OK) st = read_head(r, root, ranges);
    if (st == PARE_OK) st = read_tensors(r, list, ranges);
    if (st == PARE_OK)
        *out = ranges;
    else
        pare_ranges_free(ranges);
    return st;
}

/* A calibration cache of TensorRT. */
static pare_status from_cache(pare_ctx *ctx, pare_ranges **out, const pare_tensorrt_cache *cache)
{
    float *ends = pare_alloc(ctx, 2 * (size_t)cache->count + 1, sizeof *ends);
    if (!ends) return PARE_MEMORY;
    for (int i = 0; i < cache->count; i++) {
        ends[i] = -127 * cache->scale[i];
        ends[cache->count + i] = 127 * cache->scale[i];
    }
    const pare_status st = pare_ranges_of_ends(ctx, out, (const char *const *)cache->name, ends,
                                               ends + cache->count, cache->count);
    pare_free(ends);
    return st;
}

static pare_status parse_cache(pare_ctx *ctx, pare_ranges **out, const char *text, size_t size,
                               const char *path)
{
    pare_tensorrt_cache cache;
    pare_status st = pare_tensorrt_cache_parse(ctx, &cache, text, size, path);
    if (st == PARE_OK) st = from_cache(ctx, out, &cache);
    pare_tensorrt_cache_free(&cache);
    return st;
}

pare_status pare_ranges_parse(pare_ctx *ctx, pare_ranges **out, const char *text, size_t size,
                              const char *path)
{
    json_error_t error;
    reading r = {ctx, path, NULL};
    if (pare_is_tensorrt_cache(text, size)) return parse_cache(ctx, out, text, size, path);
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return PARE_FAIL(ctx, INPUT, "%s: line %d, column %d: not valid JSON: %s", path, error.line,
                         error.column, error.text);
    pare_status st = read_root(&r, root, out);
    json_decref(root);
    return st;
}

pare_status pare_ranges_read(pare_ctx *ctx, pare_ranges **out, const char *path)
{
    pare_map map;
    PARE_TRY(pare_map_open(ctx, &map, path));
    const pare_status st = pare_ranges_parse(ctx, out, (const char *)map.data, map.size, path);
    pare_map_close(&map);
    return st;
}
