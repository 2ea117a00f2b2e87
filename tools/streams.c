/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/streams.h"

#include <pthread.h>
#include <string.h>

typedef struct stream {
    pare_streams *all;
    pare_ctx ctx; /* its thread's */
    pare_runner *runner;
    pare_times times;
    pare_windows windows;
    pthread_t thread;
    pare_status status;
} stream;

struct pare_streams {
    pare_ctx *ctx;
    const pare_measure_options *options;
    stream *stream;
    int count;
    pthread_mutex_t lock;
    pthread_cond_t warm;
    int waiting; /* streams that are warm, or that will never be */
};

pare_status pare_streams_new(pare_ctx *ctx, pare_streams **out, const pare_plan *plan, int count)
{
    pare_streams *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->ctx = ctx;
    s->stream = pare_alloc(ctx, (size_t)count, sizeof *s->stream);
    if (!s->stream) {
        pare_free(s);
        return PARE_MEMORY;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->warm, NULL);
    pare_status st = PARE_OK;
    for (int i = 0; st == PARE_OK && i < count; i++) {
        stream *one = &s->stream[i];
        one->all = s;
        pare_ctx_child(&one->ctx, ctx);
        s->count = i + 1;
        st = pare_runner_new(&one->ctx, &one->runner, plan);
        if (st == PARE_OK)
            pare_measure_fill(one->runner);
        else
            (void)pare_fail(ctx, st, "%s", one->ctx.message);
    }
    if (st == PARE_OK)
        *out = s;
    else
        pare_streams_free(s);
    return st;
}

void pare_streams_free(pare_streams *streams)
{
    if (!streams) return;
    for (int i = 0; i < streams->count; i++) {
        pare_runner_free(streams->stream[i].runner);
        pare_times_free(&streams->stream[i].times);
    }
    pthread_mutex_destroy(&streams->lock);
    pthread_cond_destroy(&streams->warm);
    pare_free(streams->stream);
    pare_free(streams);
}

int pare_streams_count(const pare_streams *streams) { return streams->count; }

pare_runner *pare_streams_runner(const pare_streams *streams, int i)
{
    return streams->stream[i].runner;
}

pare_status pare_streams_status(const pare_streams *streams, pare_status status)
{
    for (int i = 0; status != PARE_OK && i < streams->count; i++)
        if (streams->stream[i].ctx.message[0])
            (void)pare_fail(streams->ctx, status, "%s", streams->stream[i].ctx.message);
    return status;
}

/* --- measuring --- */

static void arrive(pare_streams *s, bool stay)
{
    pthread_mutex_lock(&s->lock);
    s->waiting++;
    pthread_cond_broadcast(&s->warm);
    while (stay && s->waiting < s->count) pthread_cond_wait(&s->warm, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static pare_status measure_one(stream *one)
{
    pare_status st = pare_measure_warm(&one->ctx, one->runner, one->all->options);
    arrive(one->all, st == PARE_OK);
    if (st != PARE_OK) return st;
    return pare_measure_timed(&one->ctx, one->runner, one->all->options, &one->times);
}

static void *work(void *user)
{
    stream *one = user;
    one->status = measure_one(one);
    return NULL;
}

/* Once through all streams, side by side. */
static pare_status measure_window(pare_streams *streams, const pare_measure_options *options)
{
    int started = 1;
    pare_status st = PARE_OK;
    streams->options = options;
    streams->waiting = 0;
    for (; started < streams->count; started++)
        if (pthread_create(&streams->stream[started].thread, NULL, work,
                           &streams->stream[started])) {
            st = PARE_FAIL(streams->ctx, MEMORY, "thread %d of %d could not be started", started,
                           streams->count);
            break;
        }
    for (int i = started; i < streams->count; i++) arrive(streams, false);
    streams->stream[0].status = measure_one(&streams->stream[0]); /* on this thread */
    for (int i = 1; i < started; i++) pthread_join(streams->stream[i].thread, NULL);
    for (int i = 0; st == PARE_OK && i < started; i++) st = streams->stream[i].status;
    for (int i = 0; st == PARE_OK && i < streams->count; i++)
        st =
            pare_windows_note(streams->ctx, &streams->stream[i].windows, &streams->stream[i].times);
    return pare_streams_status(streams, st);
}

static bool all_agree(const pare_streams *s)
{
    for (int i = 0; i < s->count; i++)
        if (!pare_windows_agree(&s->stream[i].windows)) return false;
    return true;
}

/* The windows that count are the same of all streams. */
static void cut(pare_streams *s)
{
    int first = 0;
    for (int i = 0; i < s->count; i++) {
        const int own = pare_windows_first(&s->stream[i].windows);
        if (own > first) first = own;
    }
    if (!all_agree(s)) first = 0;
    for (int i = 0; i < s->count; i++)
        pare_windows_cut(&s->stream[i].windows, first, &s->stream[i].times);
}

pare_status pare_streams_measure(pare_streams *streams, const pare_measure_options *options)
{
    enum { LEAST = 3, MOST = 9 };
    pare_measure_options window = *options;
    window.duration /= LEAST;
    window.iterations = (options->iterations + LEAST - 1) / LEAST;
    for (int i = 0; i < streams->count; i++) streams->stream[i].windows = (pare_windows){0};
    if (!(options->duration > 0)) return measure_window(streams, options);
    for (int w = 0; w < MOST && (w < LEAST || !all_agree(streams)); w++) {
        PARE_TRY(measure_window(streams, &window));
        window.warm_up = 0;
    }
    cut(streams);
    return PARE_OK;
}

/* --- facts --- */

/* The k-th runs of all streams, then the next: roughly in order of time. */
static pare_status merge(const pare_streams *s, pare_times *all)
{
    size_t most = 0, at = 0;
    for (int i = 0; i < s->count; i++) {
        const pare_times *t = &s->stream[i].times;
        at += t->count;
        if (t->count > most) most = t->count;
        if (t->wall > all->wall) all->wall = t->wall;
        if (t->apart > all->apart) all->apart = t->apart;
        all->windows = t->windows;
        all->waited += t->waited / s->count; /* each saw that of all threads */
    }
    all->ms = pare_alloc(s->ctx, at, sizeof *all->ms);
    if (!all->ms) return PARE_MEMORY;
    for (size_t k = 0; k < most; k++)
        for (int i = 0; i < s->count; i++)
            if (k < s->stream[i].times.count) all->ms[all->count++] = s->stream[i].times.ms[k];
    return PARE_OK;
}

/* What of one stream's facts is worth repeating for each. */
static json_t *brief(json_t *facts)
{
    static const char *const keys[] = {"latency_ms", "runs", "throughput_per_s"};
    if (!facts) return NULL;
    json_t *json = json_object();
    for (int i = 0; i < 3; i++) json_object_set(json, keys[i], json_object_get(facts, keys[i]));
    json_decref(facts);
    return json;
}

json_t *pare_streams_json(pare_streams *streams, double batch, const double *percentiles,
                          int percentile_count)
{
    pare_times all = {0};
    if (merge(streams, &all) != PARE_OK) return NULL;
    json_t *json = pare_times_json(streams->ctx, &all, batch, percentiles, percentile_count);
    pare_times_free(&all);
    if (!json || streams->count == 1) return json;
    json_t *list = json_array();
    json_object_set_new(json, "streams", list);
    for (int i = 0; i < streams->count; i++) {
        json_t *one = brief(pare_times_json(streams->ctx, &streams->stream[i].times, batch,
                                            percentiles, percentile_count));
        if (json_array_append_new(list, one)) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}
