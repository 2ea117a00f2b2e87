/* SPDX-License-Identifier: Apache-2.0 */
/* The table of statistics, and its packed form: numbers of 7 bits a byte, low first (LEB128), the
   last of a number below 128; a number 2n + 1 in a histogram is a bin's count, 2n are n empty bins.
   Floats are their bits. */
#include "calib/ranges.h"
#include "runtime/base/size.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void pare_stats_drop(pare_stats *s)
{
    pare_histogram_free(s->histogram);
    pare_channels_free(s->channels);
    pare_free((void *)s->name);
    *s = (pare_stats){0};
}

pare_status pare_ranges_new(pare_ctx *ctx, pare_ranges **out, const char *const *names, int count)
{
    pare_ranges *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    pare_status st = PARE_OK;
    memset(r->model, '0', sizeof r->model - 1);
    r->stats = pare_alloc(ctx, (size_t)count, sizeof *r->stats);
    if (!r->stats) st = PARE_MEMORY;
    for (; st == PARE_OK && r->count < count; r->count++) {
        pare_stats *s = &r->stats[r->count];
        st = pare_histogram_new(ctx, &s->histogram);
        if (st == PARE_OK) st = pare_channels_new(ctx, &s->channels);
        if (st == PARE_OK && !(s->name = pare_strdup(ctx, names[r->count]))) st = PARE_MEMORY;
        if (st != PARE_OK) {
            pare_stats_drop(s);
            break;
        }
    }
    if (st != PARE_OK) {
        pare_ranges_free(r);
        return st;
    }
    *out = r;
    return PARE_OK;
}

void pare_ranges_free(pare_ranges *ranges)
{
    if (!ranges) return;
    for (int i = 0; i < ranges->count; i++) pare_stats_drop(&ranges->stats[i]);
    pare_free(ranges->stats);
    pare_free(ranges);
}

int pare_ranges_count(const pare_ranges *ranges) { return ranges->count; }

const pare_stats *pare_ranges_at(const pare_ranges *ranges, int i) { return &ranges->stats[i]; }

const pare_stats *pare_ranges_find(const pare_ranges *ranges, const char *name)
{
    for (int i = 0; i < ranges->count; i++)
        if (!strcmp(ranges->stats[i].name, name)) return &ranges->stats[i];
    return NULL;
}

int pare_ranges_place(const pare_ranges *r, const char *name)
{
    int low = 0, high = r->count;
    while (low < high) {
        int at = low + (high - low) / 2, order = strcmp(name, r->stats[at].name);
        if (order == 0) return at;
        if (order < 0)
            high = at;
        else
            low = at + 1;
    }
    return -1;
}

const char *pare_ranges_model_hash(const pare_ranges *ranges) { return ranges->model; }

bool pare_ranges_see_all(const pare_ranges *ranges) { return ranges->minmax_only; }

void pare_ranges_use_device(pare_ranges *ranges, pare_device *device)
{
    ranges->device = device && device->samples ? device : NULL;
}

int64_t pare_ranges_samples(const pare_ranges *ranges) { return ranges->samples; }

/* Was it seen without means of its channels, which the other has? */
static bool lacks_channels(const pare_stats *s, const pare_stats *other)
{
    return s->histogram->count && !s->channels->count && other->channels->count;
}

pare_status pare_ranges_merge(pare_ctx *ctx, pare_ranges *a, const pare_ranges *b)
{
    if (strcmp(a->model, b->model) != 0)
        return PARE_FAIL(ctx, INPUT,
                         "made for model %s, the table before it for %s; only tables of one "
                         "model can be added up",
                         b->model, a->model);
    if (a->count != b->count)
        return PARE_FAIL(ctx, INPUT,
                         "has %d tensors, the table before it %d; both must come from the "
                         "same version of pare",
                         b->count, a->count);
    int64_t samples;
    if (__builtin_add_overflow(a->samples, b->samples, &samples))
        return PARE_FAIL(ctx, INPUT, "the number of samples overflows");
    for (int i = 0; i < a->count; i++) {
        const pare_histogram *x = a->stats[i].histogram, *y = b->stats[i].histogram;
        if (strcmp(a->stats[i].name, b->stats[i].name) != 0)
            return PARE_FAIL(ctx, INPUT,
                             "has tensor '%s' where the table before it has '%s'; both must "
                             "come from the same version of pare",
                             b->stats[i].name, a->stats[i].name);
        if (x->count > INT64_MAX - y->count)
            return PARE_FAIL(ctx, INPUT, "tensor '%s': the sum of counts overflows",
                             a->stats[i].name);
    }
    for (int i = 0; i < a->count; i++) {
        if (lacks_channels(&a->stats[i], &b->stats[i]) ||
            lacks_channels(&b->stats[i], &a->stats[i]))
            pare_channels_mix(a->stats[i].channels);
        PARE_TRY(pare_histogram_merge(ctx, a->stats[i].histogram, b->stats[i].histogram));
        pare_status st = pare_channels_merge(ctx, a->stats[i].channels, b->stats[i].channels);
        if (st != PARE_OK)
            return pare_fail(ctx, st, "tensor '%s': the sum of its channels overflows",
                             a->stats[i].name);
    }
    a->samples = samples;
    a->data = pare_hash_sum(a->data, b->data);
    return PARE_OK;
}

/* --- packing --- */

typedef struct packer {
    pare_ctx *ctx;
    uint8_t *data;
    size_t size, capacity;
    bool failed;
} packer;

typedef struct unpacker {
    const uint8_t *at, *end;
    bool failed;
} unpacker;

/* --- numbers --- */

static void put(packer *p, const void *data, size_t bytes)
{
    while (!p->failed && p->capacity - p->size < bytes) {
        const size_t more = p->capacity ? 2 * p->capacity : 1 << 16;
        uint8_t *grown = pare_alloc(p->ctx, more, 1);
        p->failed = !grown;
        if (!grown) return;
        if (p->size) memcpy(grown, p->data, p->size);
        pare_free(p->data);
        p->data = grown;
        p->capacity = more;
    }
    if (p->failed) return;
    memcpy(p->data + p->size, data, bytes);
    p->size += bytes;
}

static void put_number(packer *p, uint64_t value)
{
    uint8_t text[10];
    size_t n = 0;
    for (; value > 127; value >>= 7) text[n++] = (uint8_t)(value | 128);
    text[n++] = (uint8_t)value;
    put(p, text, n);
}

static const void *take(unpacker *u, size_t bytes)
{
    const uint8_t *at = u->at;
    u->failed |= (size_t)(u->end - at) < bytes;
    if (u->failed) return NULL;
    u->at += bytes;
    return at;
}

static uint64_t take_number(unpacker *u)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t *byte = take(u, 1);
        if (!byte) return 0;
        value |= (uint64_t)(*byte & 127) << shift;
        if (*byte < 128) return value;
    }
    u->failed = true;
    return 0;
}

static int64_t take_count(unpacker *u, int64_t most)
{
    const uint64_t value = take_number(u);
    u->failed |= value > (uint64_t)most;
    return u->failed ? 0 : (int64_t)value;
}

static void take_bytes(unpacker *u, void *to, size_t bytes)
{
    const void *from = take(u, bytes);
    if (from && bytes) memcpy(to, from, bytes);
}

/* --- histograms --- */

static void put_bins(packer *p, const uint64_t *bins)
{
    for (int i = -1; i < PARE_HISTOGRAM_BINS;) {
        int empty = 0;
        while (i + empty < PARE_HISTOGRAM_BINS && !bins[i + empty]) empty++;
        put_number(p, empty ? (uint64_t)empty << 1 : bins[i] << 1 | 1);
        i += empty ? empty : 1;
    }
}

static void take_bins(unpacker *u, uint64_t *bins)
{
    for (int i = -1; i < PARE_HISTOGRAM_BINS && !u->failed;) {
        const uint64_t value = take_number(u), empty = value >> 1;
        if (value & 1) {
            bins[i++] = value >> 1;
            continue;
        }
        u->failed |= !empty || empty > (uint64_t)(PARE_HISTOGRAM_BINS - i);
        if (!u->failed) i += (int)empty;
    }
}

static void put_histogram(packer *p, const pare_histogram *h)
{
    const uint64_t counts[] = {h->count, h->zero, h->nan, h->inf};
    for (int i = 0; i < 4; i++) put_number(p, counts[i]);
    put(p, &h->min, sizeof h->min);
    put(p, &h->max, sizeof h->max);
    put_number(p, (uint64_t)(h->top + 1));
    put_number(p, (h->slot ? 1 : 0) + (h->negative ? 2 : 0));
    for (int s = 0; s < 2; s++)
        if (pare_histogram_bins(h, s)) put_bins(p, pare_histogram_bins(h, s));
}

static pare_status take_histogram(pare_ctx *ctx, unpacker *u, pare_histogram *h)
{
    uint64_t *const counts[] = {&h->count, &h->zero, &h->nan, &h->inf};
    for (int i = 0; i < 4; i++) *counts[i] = take_number(u);
    take_bytes(u, &h->min, sizeof h->min);
    take_bytes(u, &h->max, sizeof h->max);
    const int top = (int)take_count(u, 255) - 1, halves = (int)take_count(u, 3);
    u->failed |= halves == 2 || (top >= 0) != (halves > 0);
    if (u->failed || !halves) return PARE_OK;
    PARE_TRY(pare_histogram_open(ctx, h, top, halves == 3));
    for (int s = 0; s < 2; s++)
        if (pare_histogram_bins(h, s)) take_bins(u, pare_histogram_bins(h, s));
    return PARE_OK;
}

/* --- channels --- */

static void put_channels(packer *p, const pare_channels *c)
{
    put_number(p, (uint64_t)c->count);
    put_number(p, c->each);
    put_number(p, c->lost);
    if (!c->count) return;
    put(p, c->sum, (size_t)c->count * sizeof *c->sum);
    put(p, c->largest, (size_t)c->count * sizeof *c->largest);
}

static pare_status take_channels(pare_ctx *ctx, unpacker *u, pare_channels *c)
{
    const int64_t count = take_count(u, (u->end - u->at) / (int64_t)sizeof *c->sum);
    c->each = take_number(u);
    c->lost = take_number(u);
    if (u->failed || !count) return PARE_OK;
    PARE_TRY(pare_channels_open(ctx, c, count));
    take_bytes(u, c->sum, (size_t)count * sizeof *c->sum);
    take_bytes(u, c->largest, (size_t)count * sizeof *c->largest);
    return PARE_OK;
}

/* --- tables --- */

pare_status pare_ranges_pack(pare_ctx *ctx, const pare_ranges *r, void **out, size_t *bytes)
{
    packer p = {.ctx = ctx};
    put(&p, r->model, sizeof r->model - 1);
    put(&p, &r->data, sizeof r->data);
    put_number(&p, (uint64_t)r->samples);
    put_number(&p, r->minmax_only);
    put_number(&p, (uint64_t)r->count);
    for (int i = 0; i < r->count; i++) put(&p, r->stats[i].name, strlen(r->stats[i].name) + 1);
    for (int i = 0; i < r->count; i++) {
        put_histogram(&p, r->stats[i].histogram);
        put_channels(&p, r->stats[i].channels);
    }
    if (p.failed) {
        pare_free(p.data);
        return PARE_MEMORY;
    }
    *out = p.data;
    *bytes = p.size;
    return PARE_OK;
}

static const char *take_name(unpacker *u)
{
    const char *name = (const char *)u->at;
    const char *end = memchr(name, 0, (size_t)(u->end - u->at));
    u->failed |= !end;
    if (end) u->at = (const uint8_t *)end + 1;
    return end ? name : NULL;
}

static pare_status take_tensors(pare_ctx *ctx, unpacker *u, pare_ranges **out)
{
    const int count = (int)take_count(u, u->end - u->at < INT32_MAX ? u->end - u->at : INT32_MAX);
    const char **names = pare_alloc(ctx, (size_t)count, sizeof *names);
    if (!names) return PARE_MEMORY;
    for (int i = 0; i < count && !u->failed; i++) names[i] = take_name(u);
    pare_status st = u->failed ? PARE_OK : pare_ranges_new(ctx, out, names, count);
    pare_free((void *)names);
    for (int i = 0; st == PARE_OK && !u->failed && i < count; i++) {
        st = take_histogram(ctx, u, (*out)->stats[i].histogram);
        if (st == PARE_OK) st = take_channels(ctx, u, (*out)->stats[i].channels);
    }
    return st;
}

pare_status pare_ranges_unpack(pare_ctx *ctx, pare_ranges **out, const void *data, size_t bytes)
{
    unpacker u = {.at = data, .end = (const uint8_t *)data + bytes};
    pare_ranges head = {0}, *ranges = NULL;
    take_bytes(&u, head.model, sizeof head.model - 1);
    take_bytes(&u, &head.data, sizeof head.data);
    head.samples = take_count(&u, INT64_MAX);
    head.minmax_only = take_count(&u, 1) == 1;
    pare_status st = u.failed ? PARE_OK : take_tensors(ctx, &u, &ranges);
    if (st == PARE_OK && (u.failed || u.at != u.end))
        st = PARE_FAIL(ctx, INPUT, "the bytes are no table of statistics");
    if (st != PARE_OK) {
        pare_ranges_free(ranges);
        return st;
    }
    memcpy(ranges->model, head.model, sizeof head.model);
    ranges->data = head.data;
    ranges->samples = head.samples;
    ranges->minmax_only = head.minmax_only;
    *out = ranges;
    return PARE_OK;
}
