/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.json. The histograms and the sums of channels are the content; the ranges beside them are
   for people (they follow from the histograms and are not read back). Nothing in it depends on
   batch, threads, order or time. */
#include "calib/ranges.h"
#include "formats/tensorrt_cache.h"
#include "formats/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const methods[] = {
    "minmax", "percentile:99.9", "percentile:99.99", "percentile:99.999", "entropy", "mse", "auto"};
enum { METHODS = sizeof methods / sizeof *methods };

/* Every method's range of one tensor, with a zero point and symmetric. */
typedef struct tensor_ranges {
    pare_range range[2][METHODS];
} tensor_ranges;

/* --- bins as text --- */

char *pare_bins_print(pare_ctx *ctx, const uint64_t *bins)
{
    int used = PARE_HISTOGRAM_BINS;
    while (used > 0 && !bins[used - 1]) used--;
    char *text = pare_alloc(ctx, (size_t)used * 17 + 1, 1), *at = text;
    for (int i = 0, empty; text && i < used; i += empty) {
        for (empty = 0; !bins[i + empty]; empty++) {
        }
        at += empty ? sprintf(at, "%s-%x", at == text ? "" : " ", (unsigned)empty)
                    : sprintf(at, "%s%" PRIx64, at == text ? "" : " ", bins[i]);
        if (!empty) empty = 1;
    }
    return text;
}

/* A sum as sign and hexadecimal digits; returns the end. */
static char *print_wide(char *at, pare_wide value)
{
    if (value < 0) *at++ = '-', value = -value; /* far from the least number there is */
    uint64_t high = (uint64_t)(value >> 64), low = (uint64_t)value;
    return at +
           (high ? sprintf(at, "%" PRIx64 "%016" PRIx64, high, low) : sprintf(at, "%" PRIx64, low));
}

char *pare_sums_print(pare_ctx *ctx, const pare_channels *c)
{
    enum { LONGEST = 34 }; /* sign, 32 digits, space */
    char *text = pare_alloc(ctx, (size_t)c->count * LONGEST + 1, 1), *at = text;
    for (int64_t i = 0; text && i < c->count; i++) {
        if (i) *at++ = ' ';
        at = print_wide(at, c->sum[i]);
    }
    return text;
}

char *pare_largest_print(pare_ctx *ctx, const pare_channels *c)
{
    char *text = pare_alloc(ctx, (size_t)c->count * 9 + 1, 1), *at = text;
    for (int64_t i = 0; text && i < c->count; i++) {
        uint32_t bits;
        memcpy(&bits, &c->largest[i], sizeof bits);
        at += sprintf(at, i ? " %" PRIx32 : "%" PRIx32, bits);
    }
    return text;
}

/* --- JSON --- */

static pare_status set_channels(pare_ctx *ctx, json_t *tensor, const pare_channels *c)
{
    if (!c->count) return PARE_OK;
    char *sums = pare_sums_print(ctx, c), *largest = sums ? pare_largest_print(ctx, c) : NULL;
    if (largest)
        json_object_set_new(tensor, "channels",
                            json_pack("{s:I, s:I, s:s, s:s}", "each", (json_int_t)c->each, "lost",
                                      (json_int_t)c->lost, "sums", sums, "largest", largest));
    pare_free(sums);
    pare_free(largest);
    return largest ? PARE_OK : PARE_MEMORY;
}

static json_t *method_json(const tensor_ranges *t, int m, bool symmetric, bool named)
{
    const pare_range *r = &t->range[symmetric][m];
    json_t *out = symmetric ? json_real((double)r->high)
                            : json_pack("[f, f]", (double)r->low, (double)r->high);
    return named ? json_pack("{s:o, s:s}", "range", out, "chosen", pare_method_name(r->chosen))
                 : out;
}

static json_t *ranges_json(const tensor_ranges *t, bool symmetric)
{
    json_t *out = json_object();
    for (int m = 0; m < METHODS; m++)
        json_object_set_new(out, methods[m], method_json(t, m, symmetric, m == METHODS - 1));
    return out;
}

static pare_status set_bins(pare_ctx *ctx, json_t *tensor, const pare_histogram *h, int sign)
{
    const uint64_t *bins = pare_histogram_bins(h, sign);
    if (!bins) return PARE_OK;
    char *text = pare_bins_print(ctx, bins);
    if (!text) return PARE_MEMORY;
    json_object_set_new(tensor, sign ? "negative" : "positive",
                        json_pack("{s:I, s:s}", "below", (json_int_t)bins[-1], "bins", text));
    pare_free(text);
    return PARE_OK;
}

static pare_status add_tensor(pare_ctx *ctx, json_t *list, const pare_stats *s,
                              const tensor_ranges *t, const char *path)
{
    const pare_histogram *h = s->histogram;
    json_t *name = json_string(s->name);
    if (!name)
        return PARE_FAIL(ctx, INPUT,
                         "%s: tensor '%s': its name is not UTF-8, which JSON needs; rename "
                         "it in the model",
                         path, s->name);
    json_t *tensor =
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:f, s:f}", "name", name, "count",
                  (json_int_t)h->count, "zero", (json_int_t)h->zero, "nan", (json_int_t)h->nan,
                  "inf", (json_int_t)h->inf, "min", (double)h->min, "max", (double)h->max);
    json_array_append_new(list, tensor);
    if (h->count > h->nan + h->inf) {
        json_object_set_new(tensor, "s8", ranges_json(t, true));
        json_object_set_new(tensor, "u8", ranges_json(t, false));
    }
    json_object_set_new(tensor, "top", json_integer(h->top));
    PARE_TRY(set_bins(ctx, tensor, h, 0));
    PARE_TRY(set_bins(ctx, tensor, h, 1));
    return set_channels(ctx, tensor, s->channels);
}

static pare_status choose_ranges(pare_ctx *ctx, const pare_ranges *r, tensor_ranges *chosen)
{
    pare_range_rule rule[2 * METHODS];
    for (int i = 0; i < 2 * METHODS; i++) {
        PARE_TRY(pare_method_parse(ctx, methods[i % METHODS], &rule[i]));
        rule[i].symmetric = i >= METHODS;
    }
    return pare_ranges_choose(ctx, r, rule, 2 * METHODS, chosen->range[0]);
}

pare_status pare_ranges_write(pare_ctx *ctx, const pare_ranges *r, const char *path)
{
    char data[33];
    pare_hash_text(r->data, data);
    json_t *list = json_array();
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:s, s:I, s:O}", "format", "pare ranges", "version", 1, "model",
                  r->model, "data", data, "samples", (json_int_t)r->samples, "tensors", list);
    tensor_ranges *chosen = pare_alloc(ctx, (size_t)r->count + 1, sizeof *chosen);
    pare_status st = root && chosen ? choose_ranges(ctx, r, chosen) : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < r->count; i++)
        st = add_tensor(ctx, list, &r->stats[i], &chosen[i], path);
    if (st == PARE_OK) st = pare_json_write(ctx, root, path);
    pare_free(chosen);
    json_decref(list);
    json_decref(root);
    return st;
}

pare_status pare_ranges_write_cache(pare_ctx *ctx, const pare_ranges *r,
                                    const pare_range_rule *rule, int64_t version, const char *path)
{
    pare_range *chosen = pare_alloc(ctx, (size_t)r->count + 1, sizeof *chosen);
    pare_tensorrt_cache cache = {.name = pare_alloc(ctx, (size_t)r->count + 1, sizeof(char *)),
                                 .scale = pare_alloc(ctx, (size_t)r->count + 1, sizeof(float))};
    pare_status st = chosen && cache.name && cache.scale
                         ? pare_ranges_choose(ctx, r, rule, 1, chosen)
                         : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < r->count; i++) {
        int zero;
        const pare_stats *s = &r->stats[i];
        if (s->histogram->count <= s->histogram->nan + s->histogram->inf) continue;
        if (strpbrk(s->name, "\r\n"))
            st = PARE_FAIL(ctx, INPUT,
                           "%s: tensor '%s': its name has a line break, which a calibration cache "
                           "cannot hold; rename it in the model",
                           path, s->name);
        cache.name[cache.count] = (char *)(uintptr_t)s->name;
        pare_range_scale(&chosen[i], true, &cache.scale[cache.count++], &zero);
    }
    if (st == PARE_OK) st = pare_tensorrt_cache_write(ctx, &cache, version, path);
    pare_free(cache.name);
    pare_free(cache.scale);
    pare_free(chosen);
    return st;
}
