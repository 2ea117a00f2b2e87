/* SPDX-License-Identifier: Apache-2.0 */
#include "calib/ranges.h"
#include "runtime/base/size.h"

#include <inttypes.h>
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
        const pare_channels *c = a->stats[i].channels, *d = b->stats[i].channels;
        if (c->count && d->count && c->count != d->count)
            return PARE_FAIL(ctx, INPUT,
                             "tensor '%s' has %" PRId64 " channels, in the table before it %" PRId64
                             "; both must come from one shape of the model's inputs",
                             a->stats[i].name, d->count, c->count);
        if (x->count > INT64_MAX - y->count)
            return PARE_FAIL(ctx, INPUT, "tensor '%s': the sum of counts overflows",
                             a->stats[i].name);
    }
    for (int i = 0; i < a->count; i++) {
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
