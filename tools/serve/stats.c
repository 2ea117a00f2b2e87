/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/stats.h"

#include "formats/json.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const stage_names[PARE_STAGES] = {"request", "queue", "compute_input",
                                                     "compute_infer", "compute_output"};

const char *pare_stage_name(pare_stage stage) { return stage_names[stage]; }

void pare_served_stats_init(pare_served_stats *s)
{
    *s = (pare_served_stats){0};
    (void)pthread_mutex_init(&s->lock, NULL); /* on Linux it does not fail */
}

void pare_served_stats_free(pare_served_stats *s)
{
    pare_free(s->size);
    (void)pthread_mutex_destroy(&s->lock);
}

static uint64_t nanoseconds(double seconds) { return seconds > 0 ? (uint64_t)(seconds * 1e9) : 0; }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add(pare_tally *tally, double seconds)
{
    tally->count++;
    tally->ns += nanoseconds(seconds);
}

void pare_served_stats_answer(pare_served_stats *s, const double *seconds)
{
    const double at = now();
    (void)pthread_mutex_lock(&s->lock);
    for (int i = 0; i < PARE_STAGES; i++) add(&s->stage[i], seconds[i]);
    s->last = at;
    (void)pthread_mutex_unlock(&s->lock);
}

void pare_served_stats_failure(pare_served_stats *s, double seconds)
{
    const double at = now();
    (void)pthread_mutex_lock(&s->lock);
    add(&s->failed, seconds);
    s->last = at;
    (void)pthread_mutex_unlock(&s->lock);
}

void pare_served_stats_shed(pare_served_stats *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->shed++;
    (void)pthread_mutex_unlock(&s->lock);
}

/* The tally of runs of this size, kept in order of size; NULL: memory is out, and the run is not in
   it. */
static pare_size_tally *size_of(pare_served_stats *s, int64_t rows)
{
    size_t at = 0;
    pare_ctx ctx;
    while (at < s->size_count && s->size[at].rows < rows) at++;
    if (at < s->size_count && s->size[at].rows == rows) return &s->size[at];
    pare_ctx_init(&ctx);
    if (!pare_grow(&ctx, &s->size, &s->size_capacity, s->size_count, sizeof *s->size)) return NULL;
    memmove(s->size + at + 1, s->size + at, (s->size_count - at) * sizeof *s->size);
    s->size[at] = (pare_size_tally){.rows = rows};
    s->size_count++;
    return &s->size[at];
}

void pare_served_stats_run(pare_served_stats *s, int64_t rows, const double *seconds)
{
    (void)pthread_mutex_lock(&s->lock);
    pare_size_tally *size = size_of(s, rows);
    s->runs++;
    s->rows += (uint64_t)rows;
    if (size) {
        size->runs++;
        for (int i = PARE_STAGE_INPUT; i < PARE_STAGES; i++) size->ns[i] += nanoseconds(seconds[i]);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

void pare_served_stats_read(pare_served_stats *s, pare_served_stats *out)
{
    (void)pthread_mutex_lock(&s->lock);
    *out = *s;
    (void)pthread_mutex_unlock(&s->lock);
    out->size = NULL;
    out->size_count = 0;
}

/* --- JSON --- */

static json_t *tally_json(uint64_t count, uint64_t ns)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)count, "ns", (json_int_t)ns);
}

static json_t *requests_json(const pare_served_stats *s)
{
    const pare_tally *q = &s->stage[PARE_STAGE_REQUEST];
    json_t *json = json_pack("{s:o, s:o}", "success", tally_json(q->count, q->ns), "fail",
                             tally_json(s->failed.count, s->failed.ns));
    for (int i = PARE_STAGE_QUEUE; i < PARE_STAGES; i++)
        json_object_set_new(json, stage_names[i], tally_json(s->stage[i].count, s->stage[i].ns));
    json_object_set_new(json, "cache_hit", tally_json(0, 0));
    json_object_set_new(json, "cache_miss", tally_json(0, 0));
    return json;
}

static json_t *size_json(const pare_size_tally *size)
{
    json_t *json = json_pack("{s:I}", "batch_size", (json_int_t)size->rows);
    for (int i = PARE_STAGE_INPUT; i < PARE_STAGES; i++)
        json_object_set_new(json, stage_names[i], tally_json(size->runs, size->ns[i]));
    return json;
}

json_t *pare_served_stats_json(pare_served_stats *s, const char *name, int64_t version)
{
    char text[32];
    json_t *sizes = json_array();
    snprintf(text, sizeof text, "%lld", (long long)version);
    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->size_count; i++) json_array_append_new(sizes, size_json(&s->size[i]));
    json_t *json =
        json_pack("{s:o, s:s, s:I, s:I, s:I, s:o, s:o}", "name", pare_json_text(name), "version",
                  text, "last_inference", (json_int_t)(s->last * 1e3), "inference_count",
                  (json_int_t)s->rows, "execution_count", (json_int_t)s->runs, "inference_stats",
                  requests_json(s), "batch_stats", sizes);
    (void)pthread_mutex_unlock(&s->lock);
    return json;
}
