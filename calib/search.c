/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of all tensors by several rules at once: on the host a tensor a thread, what rules share
   made once; on a device (samples.h) some dozens of tensors at a time, as its memory allows. Both
   choose the same: the arithmetic is one text, and ties are settled alike. */
#include "calib/range.h"
#include "calib/ranges.h"

#include <string.h>

typedef struct search {
    pare_ctx *ctx;
    const pare_ranges *ranges;
    const pare_range_rule *rules;
    int rule_count;
    pare_range *out;
} search;

static bool has_values(const pare_histogram *h) { return h->count > h->nan + h->inf; }

static pare_range *out_of(const search *s, int tensor)
{
    return s->out + (size_t)tensor * (size_t)s->rule_count;
}

/* --- on the host --- */

static pare_status choose_tensor(pare_ctx *ctx, const search *s, int tensor)
{
    const pare_histogram *h = s->ranges->stats[tensor].histogram;
    pare_range *out = out_of(s, tensor);
    pare_range_work work[2] = {{.histogram = h}, {.histogram = h, .symmetric = true}};
    pare_status st = PARE_OK;
    for (int i = 0; st == PARE_OK && i < s->rule_count; i++) {
        out[i] = (pare_range){.chosen = s->rules[i].method};
        if (has_values(h))
            st = pare_range_choose_with(ctx, &work[s->rules[i].symmetric], &s->rules[i], &out[i]);
    }
    pare_error_sums_free(&work[0].sums);
    pare_error_sums_free(&work[1].sums);
    return st;
}

static pare_status choose_on_host(const search *s)
{
    int n = s->ranges->count;
    pare_ctx *child = pare_alloc(s->ctx, (size_t)n + 1, sizeof *child);
    pare_status *status = pare_alloc(s->ctx, (size_t)n + 1, sizeof *status);
    pare_status st = child && status ? PARE_OK : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < n; i++) pare_ctx_child(&child[i], s->ctx);
    if (st == PARE_OK) {
#pragma omp parallel for schedule(dynamic)
        for (int i = 0; i < n; i++) status[i] = choose_tensor(&child[i], s, i);
    }
    for (int i = 0; st == PARE_OK && i < n; i++)
        if (status[i] != PARE_OK)
            st = pare_fail(s->ctx, status[i], "tensor '%s': %s", s->ranges->stats[i].name,
                           child[i].message);
    pare_free(child);
    pare_free(status);
    return st;
}

/* --- on a device --- */

enum { AT_ONCE = 64, RULES = 2 };

typedef struct device_search {
    const search *s;
    pare_device *device;
    pare_search what;
    int *slot;       /* (rule_count): which of what is found is the rule's; -1: the whole range */
    int *tensor;     /* tensors that are searched */
    int count, room; /* of tensors; at once */
    pare_histogram_dev_bins *staging; /* (room) */
    pare_search_result *result;       /* (room, RULES, PARE_SEARCH_COUNT) */
    double decay[PARE_RANGE_DECAY];
    void *block; /* on the device: histograms, work, results, decay */
} device_search;

/* The first two percents are those that `auto` tries. */
static int percent_slot(pare_search *what, double percent)
{
    for (int i = 0; i < PARE_SEARCH_PERCENTS; i++) {
        if (what->percent[i] == 0) what->percent[i] = percent;
        if (what->percent[i] == percent) return i;
    }
    return -1;
}

static const unsigned wants[] = {[PARE_METHOD_ENTROPY] = 1u << PARE_SEARCH_ENTROPY,
                                 [PARE_METHOD_MSE] = 1u << PARE_SEARCH_ERROR,
                                 [PARE_METHOD_AUTO] =
                                     3u << PARE_SEARCH_PERCENT | 1u << PARE_SEARCH_ENTROPY |
                                     1u << PARE_SEARCH_WEIGHED | 1u << PARE_SEARCH_AUTO};

/* What the rules ask for; false where they are more than are searched at once. */
static bool plan_rules(device_search *d)
{
    static const int slots[] = {[PARE_METHOD_MINMAX] = -1,
                                [PARE_METHOD_ENTROPY] = PARE_SEARCH_ENTROPY,
                                [PARE_METHOD_MSE] = PARE_SEARCH_ERROR,
                                [PARE_METHOD_AUTO] = PARE_SEARCH_AUTO};
    d->what = (pare_search){.percent = {99.99, 99.999}, .clip_weight = PARE_AUTO_CLIP_WEIGHT};
    for (int i = 0; i < d->s->rule_count; i++) {
        const pare_range_rule *rule = &d->s->rules[i];
        d->what.rules |= 1u << rule->symmetric;
        if (rule->method != PARE_METHOD_PERCENTILE) {
            d->slot[i] = slots[rule->method];
            d->what.wanted |= wants[rule->method];
            continue;
        }
        int at = percent_slot(&d->what, rule->percentile);
        if (at < 0) return false;
        d->slot[i] = PARE_SEARCH_PERCENT + at;
        d->what.wanted |= 1u << d->slot[i];
    }
    return true;
}

static int ordered(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

static void stage(pare_histogram_dev_bins *to, const pare_histogram *h)
{
    to->histogram = (pare_histogram_dev){.count = h->count,
                                         .zero = h->zero,
                                         .nan = h->nan,
                                         .inf = h->inf,
                                         .low = ordered(h->min),
                                         .high = ordered(h->max),
                                         .first = h->first,
                                         .top = h->top,
                                         .negative = h->negative};
    for (int sign = 0; sign < 2; sign++) {
        const uint64_t *bins = pare_histogram_bins(h, sign);
        if (bins) memcpy(to->slot[sign], bins - 1, sizeof to->slot[sign]);
    }
}

static size_t result_bytes(int tensors)
{
    return (size_t)tensors * RULES * PARE_SEARCH_COUNT * sizeof(pare_search_result);
}

/* Room for as many tensors at once as the device's memory has; PARE_MEMORY where not for one. */
static pare_status make_room(device_search *d)
{
    pare_ctx *ctx = d->s->ctx;
    size_t each = sizeof *d->staging + d->device->samples->work_bytes + result_bytes(1);
    void *block = NULL;
    pare_status st = PARE_MEMORY;
    for (d->room = d->count < AT_ONCE ? d->count : AT_ONCE; d->room; d->room /= 2) {
        pare_ctx_clear(ctx);
        st = d->device->backend->alloc(ctx, d->device, &block,
                                       each * (size_t)d->room + sizeof d->decay);
        if (st != PARE_MEMORY) break;
    }
    PARE_TRY(st);
    d->block = block;
    d->staging = pare_alloc(ctx, (size_t)d->room, sizeof *d->staging);
    d->result = pare_alloc(ctx, result_bytes(d->room), 1);
    if (!d->staging || !d->result) return PARE_MEMORY;
    char *at = d->block;
    d->what.histogram = (void *)at;
    d->what.work = at += sizeof *d->staging * (size_t)d->room;
    d->what.result = (void *)(at += d->device->samples->work_bytes * (size_t)d->room);
    d->what.decay = (void *)(at += result_bytes(d->room));
    pare_range_decay(d->decay);
    return d->device->backend->upload(ctx, d->device->setup, at, d->decay, sizeof d->decay);
}

static pare_range range_of_result(const device_search *d, const pare_search_result *of_tensor,
                                  int rule)
{
    static const pare_method candidate[PARE_CANDIDATE] = {
        PARE_METHOD_MINMAX, PARE_METHOD_PERCENTILE, PARE_METHOD_PERCENTILE, PARE_METHOD_ENTROPY,
        PARE_METHOD_MSE};
    const pare_range_rule *r = &d->s->rules[rule];
    const pare_search_result *f = of_tensor + r->symmetric * PARE_SEARCH_COUNT + d->slot[rule];
    pare_method chosen = r->method == PARE_METHOD_AUTO ? candidate[f->candidate] : r->method;
    return (pare_range){f->low, f->high, chosen};
}

/* Searches so many tensors from the first. */
static pare_status search_some(device_search *d, int first, int count)
{
    pare_ctx *ctx = d->s->ctx;
    const pare_backend *b = d->device->backend;
    pare_stream *stream = d->device->setup;
    memset(d->staging, 0, (size_t)count * sizeof *d->staging);
    for (int i = 0; i < count; i++)
        stage(&d->staging[i], d->s->ranges->stats[d->tensor[first + i]].histogram);
    d->what.tensors = count;
    PARE_TRY(b->upload(ctx, stream, (void *)d->what.histogram, d->staging,
                       (size_t)count * sizeof *d->staging));
    PARE_TRY(b->fill(ctx, stream, d->what.result, 0, result_bytes(count)));
    PARE_TRY(d->device->samples->search(ctx, stream, &d->what));
    PARE_TRY(b->download(ctx, stream, d->result, d->what.result, result_bytes(count)));
    PARE_TRY(b->sync(ctx, stream));
    for (int i = 0; i < count; i++)
        for (int rule = 0; rule < d->s->rule_count; rule++)
            if (d->slot[rule] >= 0)
                out_of(d->s, d->tensor[first + i])[rule] =
                    range_of_result(d, d->result + (size_t)i * RULES * PARE_SEARCH_COUNT, rule);
    return PARE_OK;
}

/* Ranges that need no search: of min-max, and of tensors that hold nothing but zeros. */
static pare_status choose_whole(device_search *d)
{
    const search *s = d->s;
    for (int i = 0; i < s->ranges->count; i++) {
        const pare_histogram *h = s->ranges->stats[i].histogram;
        bool searched = has_values(h) && pare_histogram_nonzero(h);
        for (int rule = 0; rule < s->rule_count; rule++) {
            pare_range_work work = {.histogram = h, .symmetric = s->rules[rule].symmetric};
            out_of(s, i)[rule] = (pare_range){.chosen = s->rules[rule].method};
            if (has_values(h) && (!searched || d->slot[rule] < 0))
                PARE_TRY(
                    pare_range_choose_with(s->ctx, &work, &s->rules[rule], &out_of(s, i)[rule]));
        }
        if (searched) d->tensor[d->count++] = i;
    }
    return PARE_OK;
}

static pare_status run_on_device(device_search *d, bool *done)
{
    const search *s = d->s;
    d->slot = pare_alloc(s->ctx, (size_t)s->rule_count, sizeof *d->slot);
    d->tensor = pare_alloc(s->ctx, (size_t)s->ranges->count + 1, sizeof *d->tensor);
    if (!d->slot || !d->tensor) return PARE_MEMORY;
    *done = plan_rules(d);
    if (!*done) return PARE_OK;
    PARE_TRY(choose_whole(d));
    if (!d->what.wanted || !d->count) return PARE_OK;
    PARE_TRY(make_room(d));
    for (int i = 0; i < d->count; i += d->room)
        PARE_TRY(search_some(d, i, d->count - i < d->room ? d->count - i : d->room));
    return PARE_OK;
}

static pare_status choose_on_device(const search *s, bool *done)
{
    device_search d = {.s = s, .device = s->ranges->device};
    pare_status st = run_on_device(&d, done);
    if (st != PARE_OK)
        (void)d.device->backend->sync(s->ctx, d.device->setup); /* copies in progress */
    d.device->backend->free(d.device, d.block);
    pare_free(d.slot);
    pare_free(d.tensor);
    pare_free(d.staging);
    pare_free(d.result);
    return st;
}

pare_status pare_ranges_choose(pare_ctx *ctx, const pare_ranges *ranges,
                               const pare_range_rule *rules, int rule_count, pare_range *out)
{
    search s = {ctx, ranges, rules, rule_count, out};
    bool done = false;
    if (ranges->device && !ranges->minmax_only) PARE_TRY(choose_on_device(&s, &done));
    return done ? PARE_OK : choose_on_host(&s);
}
