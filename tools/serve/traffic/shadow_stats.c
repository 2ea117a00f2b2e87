/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/traffic/shadow_stats.h"

#include "formats/json.h"

#include <math.h>
#include <string.h>

void pare_shadow_stats_init(pare_shadow_stats *s)
{
    *s = (pare_shadow_stats){0};
    (void)pthread_mutex_init(&s->lock, NULL); /* on Linux it does not fail */
}

void pare_shadow_stats_free(pare_shadow_stats *s)
{
    for (size_t i = 0; i < s->output_count; i++) pare_free(s->output[i].name);
    pare_free(s->output);
    (void)pthread_mutex_destroy(&s->lock);
}

/* --- times --- */

void pare_time_bins_add(pare_time_bins *b, double seconds)
{
    const double at = seconds > 1e-6 ? 16 * log2(seconds * 1e6) : 0;
    b->bin[at < PARE_TIME_BINS - 1 ? (int)at : PARE_TIME_BINS - 1]++;
    b->count++;
    b->seconds += seconds;
}

double pare_time_bins_percentile(const pare_time_bins *b, double q)
{
    if (!b->count) return 0;
    const double rank = q / 100 * (double)(b->count - 1);
    uint64_t below = 0;
    int i = 0;
    while ((double)(below += b->bin[i]) <= rank) i++;
    return 1e-6 * exp2((i + 0.5) / 16);
}

/* --- counts --- */

bool pare_shadow_stats_offer(pare_shadow_stats *s, double share)
{
    (void)pthread_mutex_lock(&s->lock);
    const double n = (double)s->offered++;
    (void)pthread_mutex_unlock(&s->lock);
    return floor((n + 1) * share) > floor(n * share);
}

void pare_shadow_stats_drop(pare_shadow_stats *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->dropped++;
    (void)pthread_mutex_unlock(&s->lock);
}

void pare_shadow_stats_fail(pare_shadow_stats *s, const char *why)
{
    (void)pthread_mutex_lock(&s->lock);
    s->failed++;
    snprintf(s->why, sizeof s->why, "%s", *why ? why : "out of memory");
    (void)pthread_mutex_unlock(&s->lock);
}

void pare_shadow_stats_times(pare_shadow_stats *s, const double *first, const double *other)
{
    const double *of[] = {first, other};
    (void)pthread_mutex_lock(&s->lock);
    s->compared++;
    for (int k = 0; k < 2; k++) {
        pare_time_bins_add(&s->whole[k], of[k][PARE_STAGE_REQUEST]);
        pare_time_bins_add(&s->compute[k], of[k][PARE_STAGE_INFER]);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

/* --- two answers --- */

/* The entry of this output, under the lock; NULL: memory is out. */
static pare_shadow_output *output_of(pare_shadow_stats *s, pare_ctx *ctx, const char *name)
{
    for (size_t i = 0; i < s->output_count; i++)
        if (!strcmp(s->output[i].name, name)) return &s->output[i];
    if (!pare_grow(ctx, &s->output, &s->output_capacity, s->output_count, sizeof *s->output))
        return NULL;
    pare_shadow_output *one = &s->output[s->output_count];
    *one = (pare_shadow_output){.name = pare_strdup(ctx, name)};
    if (!one->name) return NULL;
    s->output_count++;
    return one;
}

static int64_t count_of(const pare_infer_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->dim[d];
    return count;
}

/* The tensor's elements as f32, in scratch where they are not; NULL: they are no numbers. */
static const float *as_f32(const pare_infer_tensor *t, float *scratch)
{
    const char *at = t->data;
    const size_t size = (size_t)pare_type(t->dtype)->bits / 8;
    if (t->dtype == PARE_f32) return t->data;
    if (t->dtype == PARE_f64) {
        for (int64_t i = 0; i < count_of(t); i++) scratch[i] = (float)((const double *)t->data)[i];
        return scratch;
    }
    if (!pare_type(t->dtype)->to_f32) return NULL;
    for (int64_t i = 0; i < count_of(t); i++, at += size)
        scratch[i] = pare_type(t->dtype)->to_f32(at);
    return scratch;
}

static bool is_same(const pare_infer_tensor *a, const pare_infer_tensor *b)
{
    if (a->dtype != b->dtype) return false;
    if (a->dtype != PARE_string) return !a->bytes || !memcmp(a->data, b->data, a->bytes);
    const pare_bytes *x = a->data, *y = b->data;
    for (int64_t i = 0; i < count_of(a); i++)
        if (!pare_bytes_equal(x[i], y[i])) return false;
    return true;
}

/* Are rows of this tensor one score for each class? As pare validate has it: one of a row's axes
   has all its elements. */
static bool is_classifier(const pare_infer_tensor *t, bool batched, int64_t size)
{
    for (int d = batched; d < t->rank && size >= 2; d++)
        if (t->dim[d] == size) return true;
    return false;
}

static void add_classes(pare_shadow_stats *s, const pare_infer_tensor *t, const float *first,
                        const float *other, bool batched)
{
    const int64_t rows = batched ? t->dim[0] : 1, size = rows ? count_of(t) / rows : 0;
    if (!is_classifier(t, batched, size)) return;
    for (int64_t row = 0; row < rows; row++, first += size, other += size)
        s->agreed += pare_stats_argmax(first, size) == pare_stats_argmax(other, size);
    s->samples += rows;
}

pare_status pare_shadow_stats_compare(pare_shadow_stats *s, pare_ctx *ctx,
                                      const pare_infer_tensor *first,
                                      const pare_infer_tensor *other, int count, int top,
                                      bool batched)
{
    pare_status st = PARE_OK;
    for (int i = 0; st == PARE_OK && i < count; i++) {
        const int64_t n = count_of(&first[i]);
        float *scratch = pare_alloc(ctx, (size_t)n + 1, 2 * sizeof *scratch);
        if (!scratch) return PARE_MEMORY;
        const float *a = as_f32(&first[i], scratch), *b = as_f32(&other[i], scratch + n);
        const bool same = is_same(&first[i], &other[i]);
        (void)pthread_mutex_lock(&s->lock);
        pare_shadow_output *output = output_of(s, ctx, first[i].name);
        if (!output) {
            st = PARE_MEMORY;
        } else {
            output->requests++;
            output->same += same;
            if (a && b) pare_error_add(&output->error, a, b, n);
            if (a && b && i == top) add_classes(s, &first[i], a, b, batched);
        }
        (void)pthread_mutex_unlock(&s->lock);
        pare_free(scratch);
    }
    return st;
}

/* --- JSON --- */

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *outputs_json(const pare_shadow_stats *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->output_count; i++) {
        const pare_shadow_output *o = &s->output[i];
        json_t *one = json_pack("{s:o, s:I, s:I}", "name", pare_json_text(o->name), "requests",
                                (json_int_t)o->requests, "same", (json_int_t)o->same);
        if (o->error.count) {
            json_object_set_new(one, "sqnr_db", real_or_null(pare_error_sqnr(&o->error)));
            json_object_set_new(one, "max_abs", real_or_null(o->error.max_abs));
        }
        json_array_append_new(list, one);
    }
    return list;
}

/* p99 where there are requests enough, as everywhere. */
static json_t *bins_json(const pare_time_bins *b)
{
    const double count = b->count ? (double)b->count : 1;
    json_t *json = json_pack("{s:f, s:f}", "mean", 1e3 * b->seconds / count, "median",
                             1e3 * pare_time_bins_percentile(b, 50));
    if (b->count >= (uint64_t)pare_stats_needed(99))
        json_object_set_new(json, "p99", json_real(1e3 * pare_time_bins_percentile(b, 99)));
    return json;
}

static json_t *times_json(const pare_time_bins *bins)
{
    return json_pack("{s:o, s:o}", "model", bins_json(&bins[0]), "shadow", bins_json(&bins[1]));
}

json_t *pare_shadow_stats_json(pare_shadow_stats *s)
{
    (void)pthread_mutex_lock(&s->lock);
    json_t *json = json_pack("{s:I, s:I, s:I, s:I, s:o}", "answered", (json_int_t)s->offered,
                             "compared", (json_int_t)s->compared, "dropped", (json_int_t)s->dropped,
                             "failed", (json_int_t)s->failed, "outputs", outputs_json(s));
    if (s->samples) {
        const pare_interval i = pare_stats_wilson(s->agreed, s->samples);
        json_object_set_new(json, "samples", json_integer(s->samples));
        json_object_set_new(json, "agreement",
                            json_real(100 * (double)s->agreed / (double)s->samples));
        json_object_set_new(json, "agreement_interval",
                            json_pack("[f, f]", 100 * i.low, 100 * i.high));
    }
    if (s->compared) {
        json_object_set_new(json, "latency_ms", times_json(s->whole));
        json_object_set_new(json, "compute_ms", times_json(s->compute));
    }
    if (*s->why) json_object_set_new(json, "last_failure", pare_json_text(s->why));
    (void)pthread_mutex_unlock(&s->lock);
    return json;
}
